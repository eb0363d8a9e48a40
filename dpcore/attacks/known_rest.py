"""What the other coordinates of a release reveal about a protected one: an adversary to test a design.

It knows everything but the sign of one record's sensitive coordinate (differential privacy's adversary). Meeting in the
middle finds the usually only subset that adds up to a rado's other coordinates, and with the signature the bit, alone
or with noise. DP-FEAT's bound is about the sensitive coordinate alone, and does not exclude this.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ShapeError

Integers = NDArray[np.int64]
Selection = NDArray[np.bool_]

MOST_ROWS = 44
"""2^22 sums a half: 32 MiB, and about a second for each rado."""

# Odd multipliers without structure, from the golden ratio: sums over coordinates modulo 2^64 are the keys.
_MULTIPLIER = 0x9E3779B97F4A7C15


@dataclass(frozen=True, eq=False)
class SubsetSums:
    """Finds the subsets of known integer vectors that add up to a total, by meeting in the middle.

    Raises ShapeError for another shape or more rows.
    """

    vectors: Integers
    """(m, w) int64, 2 <= m <= MOST_ROWS, whose sums fit int64. Takes 2^(m/2) steps for each total."""

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or self.vectors.dtype != np.int64 or not 2 <= len(self.vectors) <= MOST_ROWS:
            raise ShapeError(
                f"vectors are {self.vectors.dtype} of shape {self.vectors.shape}: give int64 (m, w), m from 2 to "
                f"{MOST_ROWS}"
            )

    def matching(self, total: Integers) -> Selection:
        """Every subset that adds up to `total`, (w,): bool (count, m)."""
        if total.shape != self.vectors.shape[1:]:
            raise ShapeError(f"a total of shape {total.shape}: give {self.vectors.shape[1:]}")
        (left_keys, left), (right_keys, right) = self._left, self._right
        # Sorted keys, subtracted, are a rotation of a sorted array: each is found near the one before.
        wanted = _keys(total[np.newaxis], self._multipliers)[0] - right_keys
        first = np.searchsorted(left_keys, wanted)
        hits = np.flatnonzero(left_keys[np.minimum(first, len(left_keys) - 1)] == wanted)
        last = np.searchsorted(left_keys, wanted[hits], side="right")
        pairs = [
            (int(left[place]), int(right[hit]))
            for hit, end in zip(hits, last, strict=True)
            for place in range(int(first[hit]), int(end))
        ]
        rows = [np.concatenate([_bits(a, self._half), _bits(b, self._rest)]) for a, b in pairs]
        found = np.array(rows, dtype=np.bool_).reshape(len(rows), len(self.vectors))
        # Different sums may have the same key.
        exact = (found.astype(np.int64) @ self.vectors == total).all(axis=1)
        return np.asarray(found[exact], dtype=np.bool_)

    @property
    def _half(self) -> int:
        return len(self.vectors) // 2

    @property
    def _rest(self) -> int:
        return len(self.vectors) - self._half

    @cached_property
    def _multipliers(self) -> NDArray[np.uint64]:
        return np.array([pow(_MULTIPLIER, power, 1 << 64) for power in range(1, self.vectors.shape[1] + 1)], np.uint64)

    @cached_property
    def _left(self) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
        return _subset_keys(self.vectors[: self._half], self._multipliers)

    @cached_property
    def _right(self) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
        return _subset_keys(self.vectors[self._half :], self._multipliers)


@dataclass(frozen=True, eq=False)
class KnownAllButOneBit:
    """The adversary: its knowledge, and its best guess from a release.

    Raises ShapeError as `SubsetSums` does, ConfigurationError if sensitive or target is out of range.
    """

    edges: Integers
    """(m, d) int64 in integer units, every record's edge vector; the entry (target, sensitive) is never read."""
    sensitive: int
    """The protected coordinate."""
    target: int
    """The record whose bit is unknown."""
    one: int
    """The integer that encodes +1."""

    def __post_init__(self) -> None:
        SubsetSums(self.edges)
        m, d = self.edges.shape
        if not (d >= 2 and 0 <= self.sensitive < d and 0 <= self.target < m and self.one > 0):
            raise ConfigurationError(
                f"record {self.target} and coordinate {self.sensitive} of {m} x {d}, one = {self.one}: "
                "give indices within, a second coordinate and a positive unit"
            )

    def signatures(self, rados: Integers) -> tuple[Selection, Selection]:
        """Signatures found from the other coordinates of rados (n, d): (n, m), empty unless unique; (n,), whether."""
        if rados.ndim != 2 or rados.shape[1] != self.edges.shape[1]:
            raise ShapeError(f"rados have shape {rados.shape}: give (n, {self.edges.shape[1]})")
        selection = np.zeros((len(rados), len(self.edges)), dtype=np.bool_)
        unique = np.zeros(len(rados), dtype=np.bool_)
        for number, total in enumerate(np.delete(rados, self.sensitive, axis=1)):
            found = self._others.matching(total)
            if len(found) == 1:
                selection[number], unique[number] = found[0], True
        return selection, unique

    def evidence(self, rados: Integers, selection: Selection) -> Integers:
        """Each rado's sensitive coordinate minus the known records': (n,): the bit times `one`, and noise."""
        known = self.edges[:, self.sensitive].copy()
        known[self.target] = 0
        left: Integers = rados[:, self.sensitive] - selection.astype(np.int64) @ known
        return np.where(selection[:, self.target], left, 0)

    def guess(self, rados: Integers) -> int:
        """The bit, +1 or -1, or 0 if the release gives no evidence: the sign of the evidence's sum.

        For symmetric Gaussian noise of one variance, or none, it is the likelihood ratio test (Neyman and Pearson).
        """
        selection, _ = self.signatures(rados)
        return int(np.sign(self.evidence(rados, selection).sum()))

    @cached_property
    def _others(self) -> SubsetSums:
        return SubsetSums(np.delete(self.edges, self.sensitive, axis=1))


def _keys(sums: Integers, multipliers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One key for each sum, modulo 2^64, so that the key of a sum is the sum of the keys."""
    return np.asarray((sums.astype(np.uint64) * multipliers).sum(axis=1, dtype=np.uint64))


def _subset_keys(vectors: Integers, multipliers: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
    """Keys of the sums of all subsets, ascending, and the subsets: number b holds row i where bit i of b is set."""
    keys = np.zeros(1, dtype=np.uint64)
    for key in _keys(vectors, multipliers):
        keys = np.concatenate([keys, keys + key])
    order = np.argsort(keys, kind="stable")
    return keys[order], order


def _bits(number: int, count: int) -> Selection:
    return np.array([number >> place & 1 for place in range(count)], dtype=np.bool_)
