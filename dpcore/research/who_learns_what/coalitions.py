"""Everything that a coalition may show each recipient apart, and what it gets by the best of it.

The cohort rule is that of a party's policy: a party sends for cohorts with at least c + 2 members that it accepted,
itself among them, c being the colluders that it assumes.

Members that it did not accept do not count. They only change the digest, as other mask keys of colluding members,
another row count or another query do, so they are variants here.

**Why one attempt at a time.** Under today's rules no mask, pad or coefficient occurs in two attempts. What is learned
of several is then the span of what is learned of each. Rules that link attempts are tried on pairs of attempts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product

from dpcore.research.who_learns_what.learning import Change, Choice, Coalition, Excess, accepted, gain
from dpcore.research.who_learns_what.protocol import TODAY, Protocol, Shown

_VARIANTS = 2
"""Two suffice: a mask cancels if both ends have one digest, whatever the others are."""

_PARTIES_TOLD_APART = 3


@dataclass(frozen=True)
class Setting:
    """Parties that accepted one another, and a coalition."""

    parties: int
    """How many."""
    assumed: int
    """c of every honest party."""
    coalition: Coalition
    """Its members are among the parties, the last ones."""

    @classmethod
    def of(cls, parties: int, assumed: int, members: int, **others: bool) -> "Setting":
        """The last `members` parties collude, with the roles that are named."""
        names = [_name(index) for index in range(parties)]
        return cls(parties, assumed, Coalition(members=frozenset(names[parties - members :]), **others))

    @property
    def everyone(self) -> frozenset[str]:
        """The names of all parties."""
        return frozenset(_name(index) for index in range(self.parties))

    @property
    def honest(self) -> frozenset[str]:
        """Those that do not collude."""
        return self.everyone - self.coalition.members

    def cohorts(self, party: str) -> list[frozenset[str]]:
        """Those for which an honest party sends."""
        others = sorted(self.everyone - {party})
        least = self.assumed + 1
        return [
            frozenset((party, *chosen))
            for size in range(least, len(others) + 1)
            for chosen in combinations(others, size)
        ]


@dataclass(frozen=True)
class Findings:
    """What a coalition gets in a setting, over all choices."""

    excess: frozenset[Excess]
    fewest: int
    """As in `dpcore.research.who_learns_what.learning.Gain`."""
    changes: frozenset[Change]
    """Of a total, without the learner's notice; empty for a coalition with the learner."""


def findings(setting: Setting, protocol: Protocol = TODAY) -> Findings:
    """The worst over all choices."""
    coalition, honest = setting.coalition, setting.honest
    extra: set[Excess] = set()
    sizes: set[int] = set()
    changes: set[Change] = set()
    if coalition.learner:
        for choice in _told_apart(setting, protocol):
            got = gain(coalition, honest, choice, protocol)
            extra |= got.excess
            sizes.add(got.fewest)
    else:
        for choice in _before_the_last(setting):
            changes |= accepted(coalition, honest, choice, protocol)
    return Findings(frozenset(extra), min(sizes - {0}, default=0), frozenset(changes))


def _told_apart(setting: Setting, protocol: Protocol) -> Iterator[Choice]:
    """What a coalition with the learner may show."""
    if setting.coalition.coordinator:
        yield from _single(setting)
    else:
        yield from ([_same(setting, 1, members)] for members in _whole_cohorts(setting))
    yield from _pairs(setting)
    if not protocol.commits_seeds:
        yield from _unequal_seeds(setting)


def _single(setting: Setting) -> Iterator[Choice]:
    """One attempt: every honest party is shown any cohort and variant, or nothing."""
    honest = sorted(setting.honest)
    options = [
        [None, *(Shown(1, members, variant) for members in setting.cohorts(party) for variant in range(_VARIANTS))]
        for party in honest
    ]
    for shown in product(*options):
        if _is_first_of_its_kind(shown):
            yield [{party: what for party, what in zip(honest, shown, strict=True) if what is not None}]


def _is_first_of_its_kind(shown: Iterable[Shown | None]) -> bool:
    """Whether no renaming of variants comes before this one: of the same members, the first has variant 0."""
    seen: set[frozenset[str]] = set()
    for what in shown:
        if what is not None and what.members not in seen:
            if what.variant:
                return False
            seen.add(what.members)
    return True


def _before_the_last(setting: Setting) -> Iterator[Choice]:
    """Two attempts: in the last, whose total is opened, all are shown one cohort; in the other, anything.

    More than three parties are shown a whole cohort in the other, too: the rest would take minutes.
    """
    last = _same(setting, 2, setting.everyone)
    if setting.parties <= _PARTIES_TOLD_APART:
        yield from ([*first, last] for first in _single(setting))
    else:
        yield from ([_same(setting, 1, members), last] for members in _whole_cohorts(setting))


def _pairs(setting: Setting) -> Iterator[Choice]:
    """Two attempts in which all members of a cohort are shown it: with the same members, and with one fewer before."""
    whole = list(_whole_cohorts(setting))
    for first, second in product(whole, repeat=2):
        yield [_same(setting, 1, first), _same(setting, 2, second)]


def _whole_cohorts(setting: Setting) -> Iterator[frozenset[str]]:
    """All parties, and all but the first, where the rule allows that."""
    yield setting.everyone
    fewer = setting.everyone - {min(setting.honest)}
    if len(fewer) >= setting.assumed + 2 and fewer & setting.honest:
        yield fewer


def _same(setting: Setting, attempt: int, members: frozenset[str]) -> Mapping[str, Shown]:
    return {party: Shown(attempt, members) for party in sorted(setting.honest & members)}


def _unequal_seeds(setting: Setting) -> Iterator[Choice]:
    honest = sorted(setting.honest)
    for seeds in product((0, 1), repeat=len(honest)):
        shown = {party: Shown(1, setting.everyone, seed=seed) for party, seed in zip(honest, seeds, strict=True)}
        yield [shown]


def _name(index: int) -> str:
    return chr(ord("A") + index)


# Rules of the protocol that were missing once, or that a careless change would drop, and who gains by each.


@dataclass(frozen=True)
class Fault:
    """A rule that is left out."""

    words: str
    """Its absence."""
    protocol: Protocol
    by: Setting
    """The smallest coalition that gains."""
    rule: str
    """What prevents it."""


_LEARNER = Setting.of(3, 1, 0, learner=True)
_BOTH = Setting.of(3, 1, 0, learner=True, coordinator=True)
_COORDINATOR = Setting.of(3, 1, 0, coordinator=True)

FAULTS: dict[str, Fault] = {
    "unequal seeds": Fault(
        "the learner seals different seeds to two parties",
        Protocol(commits_seeds=False),
        _LEARNER,
        "the commitment in the signed query",
    ),
    "no tag": Fault("totals without a tag", Protocol(has_tag=False), _COORDINATOR, "the tag"),
    "dropped mask": Fault(
        "tags are not masked", Protocol(masks_tags=False), _BOTH, "masks on all plaintexts, between all pairs"
    ),
    "pad used twice": Fault(
        "a member's pad is the same in two attempts",
        Protocol(pads_name_attempt=False),
        Setting.of(4, 1, 1, coordinator=True),
        "pads that are derived from a fresh mask key for query, attempt and cohort",
    ),
    "seed for outsiders": Fault(
        "the learner seals the seed to parties that it did not accept",
        Protocol(seeds_for_roster=True),
        Setting.of(3, 1, 0, coordinator=True, outsider=True),
        "seeds for accepted parties only",
    ),
    "masks used twice": Fault(
        "a lost attempt is repeated with the same masks",
        Protocol(masks_name_attempt=False),
        _BOTH,
        "a fresh mask key for each attempt, whose number is in the derivation",
    ),
}
