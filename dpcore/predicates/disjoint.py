"""Sensitivity of the sums of a batch of predicates, some of which exclude one another.

Claim. Divide a batch into groups, such that at most one predicate of each group is non-zero for any one record.
Replacing a record changes the sums, in units of 1, by at most sum_g min(2, |g|) in L1. The squares of the changes add
up to at most the same bound.

Proof. A record's values are in [0, 1]. Within a group, the old record has at most one non-zero value, and so has the
new one.

At most two sums change, each by at most 1 in magnitude; a group of one has one sum. The square of such a change is at
most its magnitude. Predicates that are 0 for every record are in no group.

Facts (dpcore.predicates.facts) prove that the predicates of a group exclude one another, also if a feature map maps
records first: no fact is about the values that a coordinate can have. Without proof predicates count as overlapping, so
M predicates have at most M and M.
"""

import heapq
import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dpcore.predicates.expressions import Predicate
from dpcore.predicates.facts import NOWHERE, Fact, Facts, Finder, ValueInterval, exclude

MOST_SORTED = 1_500_000
"""The most facts that are looked up, sorted or hashed to divide one batch."""

MOST_COMPARED = 1_000_000
"""The most facts that are compared between pairs of predicates in one batch."""

_DEEPEST = 64


@dataclass(frozen=True)
class Sensitivity:
    """Sensitivity under replacement of one record, for values in [0, 1].

    l1 bounds the sum of the absolute changes, l2_squared the sum of their squares. Multiply by 2^f and 4^f for sums in
    units of 2^-f: values are rounded down to these units and so stay in [0, 2^f].
    """

    l1: int
    l2_squared: int


def batch_sensitivity(predicates: Sequence[Predicate]) -> Sensitivity:
    """The claim's bound, for groups that are found greedily. It depends only on the batch and its order.

    A histogram (also crossed with the label or other axes) is one group, and so are the leaves of a tree: 2 and 2. A
    predicate that is 0 for every record is in no group.
    """
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
    moved = max(1, alone + _cost(_Grouping().sizes([member for member in members if member])))
    return Sensitivity(l1=moved, l2_squared=moved)


def _cost(sizes: Iterable[int]) -> int:
    return sum(min(2, size) for size in sizes)


class _Grouping:
    """Divides members, given by their facts, into groups whose members all exclude one another. Bounds its own work.

    A group is represented by its size only; the order of groups does not matter. Once the work reaches its bound, each
    remaining member has a group of its own.
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
