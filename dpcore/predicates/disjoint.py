"""Sensitivity of the sums of a batch of predicates, some of which exclude one another.

Claim. If at most one predicate of each group is non-zero for any record, replacing a record changes the sums, in units
of 1, by at most sum_g min(2, |g|) in L1; the squares add up to at most the same.

Proof. Within a group, the old record has at most one non-zero value in [0, 1], and so has the new one. At most two sums
change, each by at most 1, and its square is at most its magnitude. Predicates that are 0 for every record are in no
group.

If a record leaves or joins the rows, at most one sum of each group changes.

Facts prove exclusion, also under a feature map. Without proof predicates overlap: M predicates have at most M and M.
A batch of parities has its own bound (dpcore.predicates.parities).
"""

import heapq
import math
import operator
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from dpcore.predicates.expressions import (
    Above,
    Affine,
    And,
    AtLeast,
    Clipped,
    Constant,
    Equals,
    Flag,
    LabelAbove,
    LabelAtLeast,
    LabelClass,
    LabelError,
    LabelIs,
    NonNegative,
    Not,
    Or,
    Predicate,
)
from dpcore.predicates.parities import parities_changed
from dpcore.records.features import Bound, Day

# Facts: what a non-zero value of a predicate proves about a record. Contradicting facts prove that predicates exclude.
#
# Each is on one axis. On the label, a flag, a category or one of its values, two different values exclude; on a real
# feature or a direction of coordinates two disjoint intervals do. Conjunctions give facts: min(a, b) is non-zero only
# if a and b are.
#
# A real feature is compared as stored, where different bounds may coincide: `<= c` never provably excludes `>= c'`, not
# even if c < c'. So it has two axes: intervals [c, c'), where `> c` counts as `>= c` and `<= c'` gives no fact, and (c,
# c'], where `< c'` counts as `<= c'` and `>= c` gives no fact. A form is evaluated exactly and needs one axis.


Axis = tuple[object, ...]
"""The kind of the axis, then what identifies it within its kind."""

MOST_LOOKED_AT = 256
"""The most parts of one conjunction that are examined."""

MOST_FACTS = 512
"""The most facts of one predicate that are kept."""

MOST_FOUND = 1_000_000
"""The most facts that are combined in one batch. A part that several predicates share counts once."""

NOWHERE, EVERYWHERE = -(1 << 256), 1 << 256
"""Ends before and after all other ends."""


def _end(bound: Bound, *, after: bool) -> int:
    """An end just before or just after a bound (Bound), as an integer, exactly in the order of bounds.

    They have at most 63 bits, so two different ones differ by more than 2^-126.
    """
    if isinstance(bound, Day):
        bound = Fraction(bound.number)
    return ((bound.numerator << 128) // bound.denominator << 1) + after


class ValueInterval(NamedTuple):
    """Values from one end up to another. An interval is below another if its upper end is <= the other's lower end."""

    lower: int = NOWHERE
    upper: int = EVERYWHERE

    def met(self, other: "ValueInterval") -> "ValueInterval | None":
        """The intersection, None if it is empty."""
        lower = max(self.lower, other.lower)
        upper = min(self.upper, other.upper)
        return ValueInterval(lower, upper) if lower < upper else None


Fact = ValueInterval | bool | str
Facts = Mapping[int, Fact]
"""Facts by the number of their axis, which one Finder assigns."""


class Finder:
    """Finds the facts of the predicates of one batch, by structure and order; a shared part is examined once.

    Fewer facts of a conjunction are still true: once the work reaches its bound, the rest is left out.
    """

    def __init__(self) -> None:
        self._axes: dict[Axis, int] = {}
        self._found: list[Facts | None] = []
        self._by_form: dict[Hashable, int] = {}
        self._by_node: dict[tuple[int, bool], int] = {}
        # Nodes are known by identity, which is unique only while they are kept.
        self._kept: list[Predicate] = []
        self._left = MOST_FOUND

    def facts(self, predicate: Predicate) -> Facts | None:
        """Facts that hold wherever the predicate is not 0, perhaps not all; None if they contradict: it is always 0.

        Time: the parts, at most MOST_LOOKED_AT of each conjunction, and MOST_FOUND for a whole batch.
        """
        self._kept.append(predicate)
        return self._found[self._place(predicate, negated=False)]

    def _place(self, node: Predicate, *, negated: bool) -> int:
        """The index in `_found` of the facts of a node, or of its complement if `negated`."""
        key = id(node), negated
        if key not in self._by_node:
            self._by_node[key] = self._new_place(node, negated=negated)
        return self._by_node[key]

    def _new_place(self, node: Predicate, *, negated: bool) -> int:
        if isinstance(node, Not):
            return self._place(node.part, negated=not negated)
        parts = _conjunction(node, negated=negated)
        # By place: equal parts have the same place, so their facts count once.
        places = tuple(dict.fromkeys(self._place(part, negated=negated) for part in islice(parts, MOST_LOOKED_AT)))
        if len(places) == 1:
            return places[0]
        # A node that is neither a conjunction nor an atom gives no facts, and has the place of no parts.
        form: Hashable = places if node.children() else (node, negated)
        if form not in self._by_form:
            self._by_form[form] = len(self._found)
            self._found.append(self._joined(places) if node.children() else self._of_atom(node, negated=negated))
        return self._by_form[form]

    def _of_atom(self, atom: Predicate, *, negated: bool) -> Facts | None:
        facts = _atom_facts(atom, negated=negated)
        return self._gathered((self._axes.setdefault(axis, len(self._axes)), fact) for axis, fact in facts)

    def _joined(self, places: Sequence[int]) -> Facts | None:
        parts = [self._found[place] for place in places]
        if None in parts:
            return None
        return self._gathered(item for part in parts if part for item in part.items())

    def _gathered(self, facts: Iterable[tuple[int, Fact]]) -> Facts | None:
        """Facts that all hold, combined by axis; None if two exclude each other."""
        found: dict[int, Fact] = {}
        for axis, fact in islice(facts, max(self._left, 0)):
            self._left -= 1
            known = found.get(axis)
            if known is None:
                if len(found) < MOST_FACTS:
                    found[axis] = fact
            elif known != fact:
                both = _both(known, fact)
                if both is None:
                    return None
                found[axis] = both
        return found


def exclude(first: Facts, second: Facts) -> bool:
    """Whether no record can satisfy both. One Finder must have found them."""
    few, many = (first, second) if len(first) <= len(second) else (second, first)
    for axis, fact in few.items():
        other = many.get(axis, fact)
        if other != fact and _both(other, fact) is None:
            return True
    return False


def _both(first: Fact, second: Fact) -> Fact | None:
    """The conjunction of two different facts on one axis, None if they exclude each other."""
    return first.met(second) if isinstance(first, ValueInterval) and isinstance(second, ValueInterval) else None


def _conjunction(predicate: Predicate, *, negated: bool) -> Sequence[Predicate]:
    """Predicates whose minimum this one is; if `negated`, those whose complements have its complement as minimum."""
    # 1 - max(a, b) = min(1 - a, 1 - b).
    if isinstance(predicate, Or if negated else And):
        return predicate.children()
    return ()


def _atom_facts(atom: Predicate, *, negated: bool) -> Iterator[tuple[Axis, Fact]]:  # noqa: C901, PLR0912 - a case for each kind
    match atom:
        case Constant(value):
            yield ("constant",), True
            yield ("constant",), value != negated
        case LabelIs(positive):
            yield ("label",), positive != negated
        case LabelClass(value):
            yield ("is class", value), not negated
            if not negated:
                yield ("class",), value
        case LabelError(sort="beyond", form=form, scale=scale, reach=reach):
            # Sizes of one error, which all of its comparisons compute alike.
            yield ("error", form, scale), _half_line(_end(reach, after=True), above=not negated)
        case LabelAtLeast(bound) | LabelAbove(bound):
            yield from _real_facts(None, bound, at_least=isinstance(atom, LabelAtLeast), negated=negated)
        case Flag(feature):
            yield ("flag", feature), not negated
        case Equals(feature, value):
            yield ("is", feature, value), not negated
            if not negated:
                yield ("category", feature), value
        case AtLeast(feature, bound) | Above(feature, bound):
            yield from _real_facts(feature, bound, at_least=isinstance(atom, AtLeast), negated=negated)
        case NonNegative(form):
            yield from _form_facts(form, Fraction(0), above=not negated, included=not negated)
        case Clipped(form, scale):
            # Non-zero if and only if form > 0; not 1 if and only if form < scale.
            yield from _form_facts(form, Fraction(scale if negated else 0), above=not negated, included=False)
        case _:
            pass


def _real_facts(feature: str | None, bound: Bound, *, at_least: bool, negated: bool) -> Iterator[tuple[Axis, Fact]]:
    """Facts of v >= bound or v > bound, or of their complements, on the axes of intervals [c, c') and (c, c'].

    feature: None for the label.
    """
    if at_least or not negated:
        yield ("[)", feature), _half_line(_end(bound, after=False), above=not negated)
    if negated or not at_least:
        yield ("(]", feature), _half_line(_end(bound, after=True), above=not negated)


def _half_line(end: int, *, above: bool) -> ValueInterval:
    return ValueInterval(lower=end) if above else ValueInterval(upper=end)


def _form_facts(form: Affine, bound: Fraction, *, above: bool, included: bool) -> Iterator[tuple[Axis, Fact]]:
    """The fact that the form is >=, >, < or <= bound, on the direction that it shares with all its multiples."""
    if not form.weights:
        return
    divisor = math.gcd(*(weight for _, weight in form.weights))
    if form.weights[0][1] < 0:
        divisor, above = -divisor, not above
    end = _end((bound - form.constant) / divisor, after=included != above)
    direction = Affine(tuple((name, weight // divisor) for name, weight in form.weights))
    yield ("direction", direction), _half_line(end, above=above)


MOST_SORTED = 1_500_000
"""The most facts that are looked up, sorted or hashed to divide one batch."""

MOST_COMPARED = 1_000_000
"""The most facts that are compared between pairs of predicates in one batch."""

_DEEPEST = 64


@dataclass(frozen=True)
class Sensitivity:
    """Sensitivity under replacement of one record, for values in [0, 1].

    l1 bounds the sum of absolute changes, l2_squared that of squares; in units of 2^-f, times 2^f and 4^f.
    """

    l1: int
    l2_squared: int
    alone: int = field(default=0, compare=False)
    """Bounds both where a record leaves or joins the rows: the most values of one record that are not 0."""


def batch_sensitivity(predicates: Sequence[Predicate]) -> Sensitivity:
    """The claim's bound, for groups found greedily in the batch's order. A histogram has 2 and 2."""
    return _sensitivity(_Batch(tuple(predicates)))


@dataclass(frozen=True, eq=False)
class _Batch:
    """A cache key: batches are equal only if their predicates are the same objects. Comparing large trees is slow."""

    predicates: tuple[Predicate, ...]

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.predicates)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Batch) or len(self.predicates) != len(other.predicates):
            return False
        return all(map(operator.is_, self.predicates, other.predicates))


@lru_cache(maxsize=8)
def _sensitivity(batch: _Batch) -> Sensitivity:
    # A large batch takes seconds, and planning, describing and charging a query each need the result.
    finder = Finder()
    members = [found for predicate in batch.predicates if (found := finder.facts(predicate)) is not None]
    # A predicate without facts excludes no other.
    alone = sum(not member for member in members)
    sizes = _Grouping().sizes([member for member in members if member])
    moved, single = max(1, alone + _cost(sizes)), max(1, alone + len(sizes))
    changed = parities_changed(batch.predicates)
    if changed is not None:
        # A row that is not usable has the value 0 everywhere, so leaving is a replacement.
        moved, single = min(moved, changed), min(single, changed)
    return Sensitivity(l1=moved, l2_squared=moved, alone=single)


def _cost(sizes: Iterable[int]) -> int:
    return sum(min(2, size) for size in sizes)


class _Grouping:
    """Divides members, given by their facts, into groups whose members all exclude one another. Bounds its own work.

    Once the work reaches its bound, each remaining member has a group of its own.
    """

    def __init__(self) -> None:
        self._to_sort, self._left = MOST_SORTED, MOST_COMPARED

    def sizes(self, members: Sequence[Facts], alike: Collection[int] = (), depth: int = 0) -> list[int]:
        """Sizes of groups that the members can be divided into. alike: axes on which all members have the same fact."""
        if len(members) < 2 or not self._affords(len(members[0])):
            return [1] * len(members)
        alike, shared = set(alike), list[list[Fact]]()
        for axis in members[0]:
            if axis in alike:
                continue
            found = self._facts(members, axis)
            if len(found) < len(members):
                continue
            if found.count(found[0]) == len(found):
                alike.add(axis)
                continue
            clusters = _clusters(found) if depth < _DEEPEST else []
            if len(clusters) > 1:
                return self._across([[members[i] for i in cluster] for cluster in clusters], alike, depth + 1)
            shared.append(found)
        # No single axis separates the members.
        ways = [[1] * len(members)]
        ways += [_coloured(intervals) for found in shared if (intervals := self._intervals(found))]
        if depth < _DEEPEST and len(kinds := self._kinds(members)) > 1:
            ways.append([size for kind in kinds for size in self.sizes(kind, alike, depth + 1)])
        if len(members) * (len(members) - 1) // 2 * max(map(len, members)) <= self._left:
            ways.append(self._first_fit(members))
        # Two groups of two cost as much as four of one, until each is joined with the groups of another cluster.
        return min(ways, key=lambda sizes: (_cost(sizes), len(sizes)))

    def _affords(self, facts: int) -> bool:
        """Whether so many facts may still be sorted. If so, counts them as sorted."""
        if facts > self._to_sort:
            return False
        self._to_sort -= facts
        return True

    def _facts(self, members: Sequence[Facts], axis: int) -> list[Fact]:
        """The members' facts on an axis; fewer than the members if one has none."""
        if axis not in members[-1] or not self._affords(len(members)):
            return []
        return [member[axis] for member in members if axis in member]

    def _intervals(self, found: Sequence[Fact]) -> list[ValueInterval]:
        """The facts on one axis that are intervals."""
        return [fact for fact in found if isinstance(fact, ValueInterval)] if self._affords(len(found)) else []

    def _kinds(self, members: Sequence[Facts]) -> list[list[Facts]]:
        """The members, divided by the axes on which they have facts."""
        kinds: dict[frozenset[int], list[Facts]] = {}
        if self._affords(sum(map(len, members))):
            for member in members:
                kinds.setdefault(frozenset(member), []).append(member)
        return list(kinds.values())

    def _across(self, clusters: Sequence[Sequence[Facts]], alike: Collection[int], depth: int) -> list[int]:
        """Sizes for clusters whose members exclude all members of other clusters: one group of each merge into one."""
        sums: list[int] = []
        for cluster in clusters:
            sizes = sorted(self.sizes(cluster, alike, depth), reverse=True)
            sums += [0] * (len(sizes) - len(sums))
            for place, size in enumerate(sizes):
                sums[place] += size
        return sums

    def _first_fit(self, members: Sequence[Facts]) -> list[int]:
        groups: list[list[Facts]] = []
        for member in members:
            fitting = next((group for group in groups if self._all_exclude(group, member)), None)
            if fitting is None:
                groups.append([member])
            else:
                fitting.append(member)
        return [len(group) for group in groups]

    def _all_exclude(self, group: Sequence[Facts], member: Facts) -> bool:
        for other in group:
            self._left -= min(len(other), len(member))
            if not exclude(other, member):
                return False
        return True


def _clusters(found: Sequence[Fact]) -> list[list[int]]:
    """Indices of facts on one axis, divided so that facts of different clusters exclude one another."""
    intervals = [fact for fact in found if isinstance(fact, ValueInterval)]
    if not intervals:
        by_value: dict[Fact, list[int]] = {}
        for place, fact in enumerate(found):
            by_value.setdefault(fact, []).append(place)
        return list(by_value.values())
    clusters: list[list[int]] = []
    reach = NOWHERE
    for place in sorted(range(len(intervals)), key=intervals.__getitem__):
        lower, upper = intervals[place]
        if not clusters or reach <= lower:
            clusters.append([])
        clusters[-1].append(place)
        reach = max(reach, upper)
    return clusters


def _coloured(intervals: Sequence[ValueInterval]) -> list[int]:
    """Sizes of the fewest groups of disjoint intervals: each interval joins the group that ends first, if it can."""
    groups: list[tuple[int, int]] = []
    for lower, upper in sorted(intervals):
        if groups and groups[0][0] <= lower:
            heapq.heapreplace(groups, (upper, groups[0][1] + 1))
        else:
            heapq.heappush(groups, (upper, 1))
    return [size for _, size in groups]
