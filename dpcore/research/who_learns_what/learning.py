"""What a coalition learns about the honest parties' inputs, and whether it is more than totals of whole cohorts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from dpcore.research.who_learns_what.forms import Form, Monomial, Unknown, drawn, outside, revealed, total
from dpcore.research.who_learns_what.protocol import (
    TODAY,
    Kind,
    Protocol,
    Shown,
    Upload,
    contribution,
    pair_of,
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
    """A party of the roster that nobody did."""

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

    With the coordinator it has each upload by itself, and so every product of uploads. Without it, it has the whole
    product of each attempt. Without the learner it has no plaintext at all. Who makes a malformed key that others can
    open is a learner in this.
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
