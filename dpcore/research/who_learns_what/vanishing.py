"""What a coalition of learner, coordinator and members sees of a query whose members may vanish.

One attempt. Every honest party is told who accepted (A), who is in the cohort (C) and who uploaded (U), each what the
coalition likes, within what a party checks. Secrets that enough shares give back are known; everything else is the
linear algebra of `dpcore.research.who_learns_what.protocol`. Each rule can be left out.

    shares   a party gives its share of another's seed if that is in its U, of its mask key if it is in its C alone
    opened   a secret of a party, if as many parties of its A gave their share of it as the threshold says, with those
             of the dishonest ones

It does not see how the parties' noise is distributed. The sum over fewer honest parties than counted has too little.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from dpcore.research.who_learns_what.protocol import Form, Kind, Monomial, Unknown, revealed

Names = frozenset[str]


@dataclass(frozen=True)
class Rules:
    """Of a query whose members may vanish."""

    is_strict: bool = True
    """Whether the honest members that are left, t - d, have to be more than the square of those that may vanish."""
    has_self_masks: bool = True
    """Whether uploads have a mask of their own."""
    unmasks_once: bool = True
    """Whether a party gives its shares for one set of survivors only."""
    has_share_keys: bool = True
    """Whether shares are sealed with other keys than masks derive from."""
    names_sharing: bool = True
    """Whether a party uploads only for members that were told the same A."""


ALL = Rules()


@dataclass(frozen=True)
class Told:
    """What one party is told. survivors: of one set each; more than one without `Rules.unmasks_once`."""

    sharing: Names
    cohort: Names
    survivors: tuple[Names, ...]


@dataclass(frozen=True)
class Vanishing:
    """Parties of which some are dishonest, and how many may vanish. The threshold is |A| less these."""

    honest: Names
    dishonest: Names
    may_vanish: int

    def is_admitted(self, sharing: Names, rules: Rules) -> bool:
        """Whether an honest party, which knows how many may be dishonest, deals for it."""
        left = len(sharing) - self.may_vanish - len(sharing & self.dishonest)
        least = self.may_vanish**2 if rules.is_strict else 0
        return left > least


Choice = Mapping[str, Told]
"""What each honest party is told; nothing for one that does not occur."""


@dataclass(frozen=True)
class Seen:
    """What the coalition sees."""

    fewest: int
    """Over how many honest parties the smallest sum is; 0 if it sees none."""
    counted: int
    """Over how many it has to be: the honest ones among as many as the threshold says."""

    @property
    def is_too_much(self) -> bool:
        """Whether it sees more than the protocol promises."""
        return 0 < self.fewest < self.counted


def seen(setting: Vanishing, choice: Choice, rules: Rules = ALL) -> Seen:
    """What is seen of a choice. What a party would refuse is as if it were not told."""
    told = {name: what for name, what in choice.items() if setting.is_admitted(what.sharing, rules)}
    seeds, keys = _opened(setting, told, rules)
    uploads = [_upload(name, what.cohort, rules) for name, what in sorted(told.items()) if _uploads(name, told, rules)]

    def is_known(monomial: Monomial) -> bool:
        (unknown,) = monomial
        if unknown.kind is Kind.PAD:
            return unknown.of in seeds
        if unknown.kind is Kind.MASK:
            return not setting.honest.issuperset(unknown.of.split("+")) or bool(keys & set(unknown.of.split("+")))
        return unknown.of not in setting.honest

    shown = revealed(
        [upload.without(is_known) for upload in uploads],
        lambda monomial: any(unknown.kind in {Kind.MASK, Kind.PAD} for unknown in monomial),
    )
    sizes = [len({unknown.of for unknown in form.unknowns}) for form in shown]
    left = min((len(what.sharing - setting.dishonest) for what in told.values()), default=0) - setting.may_vanish
    return Seen(min(sizes, default=0), left)


def _uploads(name: str, told: Choice, rules: Rules) -> bool:
    """Whether a party uploads: unless a member of its cohort says that it dealt for another sharing."""
    others = [told[each].sharing for each in told[name].cohort if each in told]
    return not rules.names_sharing or all(sharing == told[name].sharing for sharing in others)


def _opened(setting: Vanishing, told: Choice, rules: Rules) -> tuple[set[str], set[str]]:
    """The honest parties whose seed, and those whose mask key, the shares give back."""
    seeds: set[str] = set() if rules.has_self_masks else set(setting.honest)
    keys: set[str] = set()
    while True:
        more_seeds = {name for name in told if _is_opened(setting, told, rules, name, keys, of_seed=True)} - seeds
        more_keys = {name for name in told if _is_opened(setting, told, rules, name, keys, of_seed=False)} - keys
        if not rules.has_share_keys:
            # Who knows a mask key opens what was dealt with it.
            more_seeds |= (keys | more_keys) - seeds
        if not more_seeds | more_keys:
            return seeds, keys
        seeds, keys = seeds | more_seeds, keys | more_keys


def _is_opened(setting: Vanishing, told: Choice, rules: Rules, dealer: str, keys: set[str], *, of_seed: bool) -> bool:
    sharing = told[dealer].sharing
    given = set(sharing & setting.dishonest)
    for name, what in told.items():
        if name not in sharing or what.sharing != sharing:
            continue
        if not rules.has_share_keys and name in keys:
            given.add(name)
        for survivors in what.survivors if not rules.unmasks_once else what.survivors[:1]:
            if dealer in (survivors if of_seed else what.cohort - survivors):
                given.add(name)
    return len(given) >= len(sharing) - setting.may_vanish


def _upload(name: str, cohort: Names, rules: Rules) -> Form:
    """A party's value with its masks for a cohort. Its own mask is an unknown as a pad is."""
    digest = "+".join(sorted(cohort))
    form = Form.of(Unknown(Kind.DATA, name))
    if rules.has_self_masks:
        form += Form.of(Unknown(Kind.PAD, name))
    for peer in sorted(cohort - {name}):
        lesser, greater = sorted((name, peer))
        stream = Form.of(Unknown(Kind.MASK, f"{lesser}+{greater}", "", digest))
        form = form + stream if name == lesser else form - stream
    return form


def worst(setting: Vanishing, sharings: Sequence[Names], rules: Rules = ALL) -> Seen:
    """The smallest sum over all choices: of these sharings, every cohort and every set of survivors for each party."""
    return min((seen(setting, choice, rules) for choice in _choices(setting, sharings, rules)), key=_rank)


def _rank(what: Seen) -> tuple[bool, int]:
    return (not what.is_too_much, what.fewest or 1 << 30)


def _choices(setting: Vanishing, sharings: Sequence[Names], rules: Rules) -> Iterator[Choice]:
    honest = sorted(setting.honest)
    options = [[None, *_told(setting, name, sharings, rules)] for name in honest]
    for each in product(*options):
        yield {name: told for name, told in zip(honest, each, strict=True) if told is not None}


def _told(setting: Vanishing, name: str, sharings: Sequence[Names], rules: Rules) -> Iterator[Told]:
    for sharing in sharings:
        if name not in sharing:
            continue
        least = len(sharing) - setting.may_vanish
        for cohort in _parts(sharing, name, least):
            sets = list(_parts(cohort, name, least))
            yield from (Told(sharing, cohort, (survivors,)) for survivors in sets)
            if not rules.unmasks_once and len(sets) > 1:
                yield Told(sharing, cohort, tuple(sets))


def _parts(whole: Names, member: str, least: int) -> Iterator[Names]:
    others = sorted(whole - {member})
    for size in range(least - 1, len(others) + 1):
        for chosen in combinations(others, size):
            yield frozenset((member, *chosen))


# A lie for each rule: what the coalition tells, and who gains by it if that rule is left out.


@dataclass(frozen=True)
class Lie:
    """A choice that shows too much under `rules`, and nothing too much under all of them."""

    setting: Vanishing
    choice: Choice
    rules: Rules


def _all_told(sharing: str, survivors: Mapping[str, str], cohort: str = "") -> Choice:
    """survivors: by party, the sets that it is told, with blanks between."""
    whole, members = frozenset(sharing), frozenset(cohort or sharing)
    return {
        name: Told(whole, members, tuple(frozenset(each) for each in sets.split())) for name, sets in survivors.items()
    }


_FOUR = Vanishing(frozenset("abc"), frozenset("z"), 1)
_MIXED = Vanishing(frozenset("abcdef"), frozenset("z"), 2)
_TWO_SHARINGS = Vanishing(frozenset("abcde"), frozenset("z"), 1)

LIES: Mapping[str, Lie] = {
    # Everybody has uploaded; c is said to have vanished.
    "no self-masks": Lie(
        _FOUR, _all_told("abcz", dict.fromkeys("ab", "abz") | {"c": "abcz"}), replace(ALL, has_self_masks=False)
    ),
    "two sets of survivors": Lie(
        _FOUR, _all_told("abcz", {"a": "abz abcz", "b": "abz abcz", "c": "abcz"}), replace(ALL, unmasks_once=False)
    ),
    "shares under mask keys": Lie(
        _FOUR, _all_told("abcz", dict.fromkeys("ab", "abz") | {"c": "abcz"}), replace(ALL, has_share_keys=False)
    ),
    # d, e and f are each left out by four of six, and no two parties leave out all of them.
    "a threshold for two whole sets": Lie(
        _MIXED,
        _all_told("abcdefz", {"a": "abcfz", "b": "abcez", "c": "abcdz", "d": "abcdz", "e": "abcez", "f": "abcfz"}),
        replace(ALL, is_strict=False),
    ),
    # c is in the cohort of a, and dealt for others, who say that it vanished.
    "members that dealt for others": Lie(
        _TWO_SHARINGS,
        {
            "a": Told(frozenset("abcz"), frozenset("acz"), (frozenset("acz"),)),
            "b": Told(frozenset("abcz"), frozenset("abz"), (frozenset("abz"),)),
            **{
                name: Told(frozenset("cdez"), frozenset("cdez"), (frozenset("cdez" if name == "c" else "dez"),))
                for name in "cde"
            },
        },
        replace(ALL, names_sharing=False),
    ),
}
