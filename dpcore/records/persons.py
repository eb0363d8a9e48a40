"""Persons as units: a person's rows count together as much as one record, however many there are.

A party adds, for each person with rows of values v_i, the integers

    a = sum of w_i v_i,      w_i >= 0 integers that add up to W = 2^PERSON_BITS,

so that a / W is an average of the person's rows. Every row counts alike up to one unit of W; of a person with more than
W rows, W count. A person without a usable row adds zero.

Which rows count, and which count one unit more, is decided by a hash of the row's number, a pseudorandom function of
the person's id, and of how many rows of the person are above it.

Sensitivity. Let V be what a record may add, of which zero is one (a row that is not usable). A person adds W times a
point of the convex hull of V, exactly: nothing is rounded.

The weights depend on the person's own rows and id alone. So if a person is replaced by any other, with any number of
rows, one such point is replaced by another. In every norm the largest distance of two points of a hull is that of two
of its extreme points, which are in V.

So a sum moves by at most W times what it moves by if a record is replaced; and by W times the longest of V if a person
leaves one part of the rows (dpcore.records.held_back), which holds whole persons.

A person who is at up to k parties is replaced at each of them: by the triangle inequality the sum moves by k W times as
much. Rows at a party that colludes are known there anyway; those at the others are what is protected.

Two persons whose ids have one number (2^-64 for each pair) count as one person; that they do not is assumed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError, ShapeError
from dpcore.numbers.progress import Progress
from dpcore.records.records import BLOCK_ROWS, Records

PERSON_BITS = 8
PERSON_WEIGHT = 1 << PERSON_BITS
"""W, what a person's rows count together."""
MOST_PARTIES = 1 << 10
"""The most parties that a person may be assumed at."""


@dataclass(frozen=True)
class Persons:
    """That a query protects persons. Raises PlanError."""

    parties: int = 1
    """k, at how many parties a person may have rows."""

    def __post_init__(self) -> None:
        if not 1 <= self.parties <= MOST_PARTIES:
            raise PlanError(f"a person may be at {self.parties} parties: choose 1 to {MOST_PARTIES}")

    @property
    def factor(self) -> int:
        """K W: how many times as much a person moves a sum as one record that counts one unit."""
        return self.parties << PERSON_BITS


def factor_of(persons: Persons | None) -> int:
    """How many times as much the unit moves a sum as one record does."""
    return 1 if persons is None else persons.factor


def bits_of(persons: Persons | None) -> int:
    """The bits by which a total is finer than a sum over records: it is in units of 2^-bits of a record's."""
    return 0 if persons is None else PERSON_BITS


@dataclass(frozen=True, eq=False)
class PersonRows:
    """Which rows of a party are whose. numbers: (m,), of the rows by id, equal for equal ids."""

    numbers: NDArray[np.uint64]

    @cached_property
    def codes(self) -> NDArray[np.intp]:
        """(m,): of each row's person, from 0."""
        return np.unique(self.numbers, return_inverse=True)[1].astype(np.intp)

    @property
    def count(self) -> int:
        """How many persons there are, with usable rows or without."""
        return int(self.codes.max()) + 1 if len(self.codes) else 0

    def weights(self, usable: NDArray[np.bool_]) -> NDArray[np.int64]:
        """w_i of each row: int64 (m,), 0 for rows that are not usable. Raises ShapeError."""
        if usable.shape != self.numbers.shape:
            raise ShapeError(f"{len(self.numbers)} ids for {len(usable)} rows: number the same rows")
        above = earlier(self.codes)
        chosen = np.flatnonzero(usable)
        order = chosen[np.lexsort((_mixed(self.numbers[chosen], above[chosen]), self.codes[chosen]))]
        places, sizes = earlier(self.codes[order]), np.bincount(self.codes[order], minlength=self.count)
        own = sizes[self.codes[order]]
        found = np.zeros(len(usable), dtype=np.int64)
        found[order] = PERSON_WEIGHT // own + (places < PERSON_WEIGHT % own)
        return found

    def runs(self, rows: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int64]]]:
        """All rows, in runs of whole persons of about so many rows: places, ascending, and persons from 0 in a run."""
        order = np.argsort(self.codes, kind="stable")
        ends = np.cumsum(np.bincount(self.codes))
        first, start = 0, 0
        while start < len(order):
            last = max(int(np.searchsorted(ends, start + rows, side="right")), first + 1)
            places = np.sort(order[start : ends[last - 1]])
            yield places, (self.codes[places] - first).astype(np.int64)
            first, start = last, int(ends[last - 1])


def earlier(codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """For each entry, how many of the same code are before it: (n,)."""
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes) if len(codes) else np.zeros(0, dtype=np.intp)
    found = np.empty(len(codes), dtype=np.intp)
    found[order] = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return found


def _mixed(numbers: NDArray[np.uint64], above: NDArray[np.intp]) -> NDArray[np.uint64]:
    """A hash of both, so that no row counts more for its place (SplitMix64; Steele, Lea and Flood, OOPSLA 2014).

    No privacy rests on it: the bound holds for any weights that depend on the person's own rows.
    """
    with np.errstate(over="ignore"):
        mixed = numbers + (above.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return found


def sums_over_persons(
    persons: PersonRows,
    records: Records,
    sums: Callable[[Records, Progress | None], NDArray[np.int64]],
    progress: Progress | None = None,
) -> NDArray[np.int64]:
    """Sum of w_i v_i over the rows, for a sum over records of v_i. Exact: rows of equal weight are summed together.

    sums: adds up rows, in any order, linearly. progress: callback (rows done, rows). Raises what `sums` raises.
    """
    weights = persons.weights(records.usable)
    if records.are_elsewhere:
        # Where the rows are, they are read once for all weights. What follows a sum over rows is linear.
        return sums(records.counted(weights), progress)
    # A row that is not usable adds zero, so this is of the sum's shape.
    total, done = np.zeros_like(sums(records.between(0, 1), None)), 0
    for weight in np.unique(weights[weights > 0]):
        places = np.flatnonzero(weights == weight)
        total += weight * sums(records.at(places), None)
        done += len(places)
        if progress is not None:
            progress(done, records.rows)
    return total
