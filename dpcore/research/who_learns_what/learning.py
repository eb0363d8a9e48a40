"""What a coalition learns about the honest parties' inputs, and whether it is more than totals of whole cohorts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import combinations, product

from dpcore.research.who_learns_what.protocol import (
    TODAY,
    ZERO,
    Form,
    Kind,
    Monomial,
    Protocol,
    Shown,
    Unknown,
    Upload,
    alpha,
    combined,
    contribution,
    drawn,
    outside,
    pair_of,
    polynomial,
    revealed,
    solutions,
    total,
    upload,
)


@dataclass(frozen=True)
class Coalition:
    """Who acts as one."""

    learner: bool = False
    coordinator: bool = False
    members: frozenset[str] = frozenset()
    """Parties that honest ones accepted."""
    outsider: bool = False
    """A party of the roster that no member did."""

    def knows(self, unknown: Unknown, honest: frozenset[str], protocol: Protocol = TODAY) -> bool:
        """Whether this number is known to it: its own, what it derives, and what is public."""
        match unknown.kind:
            case Kind.ROWS | Kind.OFFSET:
                return True
            case Kind.MASK:
                return not honest.issuperset(pair_of(unknown))
            case Kind.PAD:
                return self.learner or unknown.of not in honest
            case Kind.ALPHA:
                return self.learner or bool(self.members) or (self.outsider and protocol.seeds_for_roster)
            case _:
                return unknown.of not in honest


Choice = Sequence[Mapping[str, Shown]]
"""What each honest party is shown in each attempt."""


class Excess(StrEnum):
    """What a coalition learns beside totals over all honest members of a cohort."""

    OWN_VALUES = "a function of one party's own values"
    OWN_CHANGE = "how one party's contribution changed between attempts"
    OTHER_SUM = "a sum over several parties that is the total of no cohort"


def learned(
    coalition: Coalition, honest: frozenset[str], choice: Choice, protocol: Protocol = TODAY, *, point: int = 0
) -> list[Form]:
    """A basis of all linear functions of honest parties' inputs that the coalition learns.

    With the coordinator it has every product of uploads, without it the whole product of each attempt, without the
    learner (or a malformed key that it can open) no plaintext.
    """
    if not coalition.learner:
        return []
    seen: list[Form] = []
    for shown in choice:
        uploads = [upload(party, what, protocol) for party, what in sorted(shown.items())]
        seen += _plaintexts(uploads) if coalition.coordinator else _totals(uploads)

    def value_of(unknown: Unknown) -> int | None:
        return drawn(unknown, point) if coalition.knows(unknown, honest, protocol) else None

    known_apart = [form.at(value_of).without(lambda monomial: not monomial) for form in seen]
    return revealed(known_apart, _is_hidden)


def _is_of_others(party: str, monomial: Monomial) -> bool:
    return any(unknown.of != party for unknown in monomial)


def _is_hidden(monomial: Monomial) -> bool:
    return any(unknown.kind in {Kind.MASK, Kind.PAD, Kind.ALPHA} for unknown in monomial)


def _plaintexts(uploads: Sequence[Upload]) -> list[Form]:
    return [form for each in uploads for form in (*each.slots, *([] if each.tag is None else [each.tag]))]


def _totals(uploads: Sequence[Upload]) -> list[Form]:
    """Of an honest coordinator, which shows one cohort to all. Without colluding members' uploads: they are known."""
    columns = zip(*(_plaintexts([each]) for each in uploads), strict=True)
    return [total(column) for column in columns]


def whole_groups(honest: frozenset[str], choice: Choice) -> list[tuple[Shown, frozenset[str]]]:
    """For each attempt the groups of honest parties that are all honest members of the one cohort they were shown."""
    groups = []
    for shown in choice:
        for digest in sorted({what.digest for what in shown.values()}):
            group = frozenset(party for party, what in shown.items() if what.digest == digest)
            what = shown[min(group)]
            if group == honest & what.members:
                groups.append((what, group))
    return groups


def totals_of(what: Shown, group: frozenset[str], protocol: Protocol = TODAY) -> list[Form]:
    """The totals over a group in one attempt, one for each value."""
    return [total(contribution(party, place, what) for party in sorted(group)) for place in protocol.places]


@dataclass(frozen=True)
class Gain:
    """What a coalition learns."""

    excess: frozenset[Excess]
    """Beside totals over all honest members of a cohort; empty if nothing."""
    fewest: int
    """Of how many honest parties the smallest such total is that it learns; 0 if it learns none."""


def gain(
    coalition: Coalition, honest: frozenset[str], choice: Choice, protocol: Protocol = TODAY, *, point: int = 0
) -> Gain:
    """What a coalition gets that shows honest parties these things. point: where known numbers are drawn."""
    found = learned(coalition, honest, choice, protocol, point=point)
    groups = whole_groups(honest, choice)
    sums = [totals_of(what, group, protocol) for what, group in groups]
    sizes = [len(group) for (_, group), forms in zip(groups, sums, strict=True) if not outside(found, forms)]
    return Gain(_excess(honest, [form for forms in sums for form in forms], found), min(sizes, default=0))


def _excess(honest: frozenset[str], allowed: Sequence[Form], found: Sequence[Form]) -> frozenset[Excess]:
    if not outside(allowed, found):
        return frozenset()
    kinds: set[Excess] = set()
    own: list[Form] = []
    for party in sorted(honest):
        alone = revealed(found, partial(_is_of_others, party))
        own += alone
        for form in outside(allowed, alone):
            is_data = any(unknown.kind == Kind.DATA for unknown in form.unknowns)
            kinds.add(Excess.OWN_VALUES if is_data else Excess.OWN_CHANGE)
    if outside([*allowed, *own], found):
        kinds.add(Excess.OTHER_SUM)
    return frozenset(kinds)


# Which changes of a total an honest learner accepts, for each coalition that makes the total.
#
# A strategy adds, under encryption, multiples of any upload of any attempt, numbers in any slot and in the tag, and a
# packed plaintext in the tag, with factors of the prime field. The total opens if the check slot is unchanged and the
# tag moved by h(change of the values): linear conditions, as polynomials in all unknowns. A strategy fixed before the
# unknowns are drawn, and accepted for more than a share of (values + 1) / p of them, fulfils them identically (Schwartz
# 1980; Zippel 1979). Who knows a tag's coefficients may choose factors by them, so they are numbers then, at a random
# point.
#
# What it does not see:
#
# - A sum that wraps modulo 2^value_bits, which the tag refuses (threat model, 4.1).
# - Moves that shift slots by a power of two, or put a tag into slots: 64-bit slots read no linear function of its 130
#   bits.
# - A ciphertext with a single value: ciphertexts have at least two here. A single one can be taken out by who guesses
#   how often each other slot's sum wrapped, with two honest members right in 3 of 4 cases for each slot. Who knows the
#   coefficient a then finds a c, small like a c mod p, and scales a value V by 1 + c, if V^2 < 2^(value_bits - 1).


_SLOT = 1 << 24
"""2^slot_bits in the prime field."""


class Change(StrEnum):
    """Of the values of a total that opens."""

    NUMBERS = "numbers that the coalition chooses are added"
    SCALED = "it depends on honest parties' values of this attempt: scaled, or a part left out"
    MIXED = "it depends on honest parties' values of another attempt: replaced or mixed"


@dataclass(frozen=True)
class _Move:
    """What a strategy may add."""

    slots: tuple[Form, ...]
    """Check slot first."""
    tag: Form = ZERO


def accepted(
    coalition: Coalition, honest: frozenset[str], choice: Choice, protocol: Protocol = TODAY, *, point: int = 0
) -> frozenset[Change]:
    """What can be changed of the total of the last attempt, without the learner's notice.

    Every honest party is shown one cohort then, by its receipt. Members may send other values; a party in no cohort
    cannot.
    """
    target = choice[-1][min(honest)]
    if coalition.learner or set(choice[-1].values()) != {target}:
        raise ValueError("a total is judged by an honest learner, for one cohort: show all honest parties the same")
    uploads = [upload(party, what, protocol) for shown in choice for party, what in sorted(shown.items())]
    moves = list(_moves(coalition, uploads, target, protocol))
    if not moves:
        return frozenset()

    def value_of(unknown: Unknown) -> int | None:
        return drawn(unknown, point) if coalition.knows(unknown, honest, protocol) else None

    coefficient = alpha(target, protocol)
    conditions = [
        [move.slots[0].at(value_of)]
        + ([(move.tag - polynomial(move.slots[1:], coefficient)).at(value_of)] if protocol.has_tag else [])
        for move in moves
    ]
    changes = {
        change
        for factors in solutions(conditions)
        for place in range(1, protocol.values + 1)
        for change in _changes(combined(factors, [move.slots[place].at(value_of) for move in moves]), target)
    }
    return frozenset(changes)


def _moves(coalition: Coalition, uploads: Sequence[Upload], target: Shown, protocol: Protocol) -> Iterator[_Move]:
    width = protocol.values + 1
    if not coalition.coordinator and not coalition.members & target.members:
        return
    yield from (_Move(_only(slot, Form.number(1), width)) for slot in range(width))
    if protocol.has_tag:
        yield _Move((ZERO,) * width, Form.number(1))
    if not coalition.coordinator:
        return
    for each in uploads:
        yield _Move(each.slots)
        if each.tag is not None:
            yield _Move((ZERO,) * width, each.tag)
            yield _Move((ZERO,) * width, total(slot * Form.number(_SLOT**at) for at, slot in enumerate(each.slots)))


def _only(slot: int, form: Form, width: int) -> tuple[Form, ...]:
    return tuple(form if at == slot else ZERO for at in range(width))


def _changes(form: Form, target: Shown) -> Iterator[Change]:
    for monomial in form.terms:
        attempts = {unknown.shown.partition(":")[0] for unknown in monomial if unknown.kind == Kind.NOISE}
        if not monomial:
            yield Change.NUMBERS
        elif attempts - {str(target.attempt)}:
            yield Change.MIXED
        else:
            yield Change.SCALED


# Everything that a coalition may show each recipient apart, and what it gets by the best of it.
#
# A party sends for cohorts with at least c + 2 members that it accepted, itself among them, c the colluders that it
# assumes; members that it did not accept only change the digest, so they are variants here. No mask, pad or coefficient
# occurs in two attempts, so what is learned of several is the span of what is learned of each. Rules that link attempts
# are tried on pairs of attempts.


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
    """Two attempts: in the last all are shown one cohort; in the other, anything (a whole one beyond three parties)."""
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
