"""Steps whose results are bits of a block's rows, made from comparisons of features and from given bits: compiled.

They run over tiles of rows that stay in a core's cache, without the interpreter between them. So processes that share a
machine slow one another down little (benchmarks/processes.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

WORD_ROWS = 64
"""Rows in a word of bits."""
_MOST_TILE_ROWS = 4096
_TILE_BYTES = 1 << 19
"""Of a tile's columns, if that leaves WORD_ROWS rows."""
_COORDINATE_BYTES = 4

Bits = NDArray[np.uint64]


class Bit(IntEnum):
    """An operation on bits, as `dpcore.predicates.compiled.run` knows it."""

    AT_LEAST = 0
    """numbers: a feature's coordinate, and the least at which the bit is 1, in units of 2^-30."""
    BOTH = 1
    EITHER = 2
    COMPLEMENT = 3
    TRUE = 4
    GIVEN = 5
    """Bits that were computed elsewhere."""


@dataclass(frozen=True)
class BitStep:
    """One operation."""

    place: int
    """The number of its result."""
    operation: Bit
    numbers: tuple[int, ...]
    reads: tuple[int, ...]
    """The numbers of the results that it reads."""


@dataclass(frozen=True)
class BitProgram:
    """Steps in an order in which each reads given bits, or results of earlier steps."""

    steps: tuple[BitStep, ...]
    columns: tuple[int, ...]
    """The features' coordinates that numbers of AT_LEAST count."""
    counted: tuple[int, ...]
    """The results, of steps, whose bits in usable rows are counted."""
    kept: tuple[int, ...]
    """The results, of steps, of which every bit is returned."""

    @cached_property
    def given(self) -> tuple[int, ...]:
        """The results that steps read, and that none of them makes."""
        made = {step.place for step in self.steps}
        return tuple(dict.fromkeys(read for step in self.steps for read in step.reads if read not in made))

    def run(
        self, features: NDArray[np.int32], usable: Bits, given: Mapping[int, Bits]
    ) -> tuple[dict[int, int], dict[int, Bits]]:
        """Counts of usable rows, and kept bits, by result. features: (rows, d). given: by result, as `usable`.

        Kept bits beyond the last row are undefined.
        """
        from dpcore.predicates.compiled import run  # noqa: PLC0415 - imports Numba

        assert len(usable) == -(-len(features) // WORD_ROWS), "usable has a bit for each row"
        assert max(self.columns, default=-1) < features.shape[1], "columns are some of the features"
        assert all(len(given[place]) == len(usable) for place in self.given), "given bits are of the same rows"
        code, slots = self._code
        lines = np.stack([given[place] for place in self.given]) if self.given else np.empty((0, 0), dtype=np.uint64)
        counts = np.zeros(len(self.counted), dtype=np.int64)
        kept = np.empty((len(self.kept), len(usable)), dtype=np.uint64)
        columns = np.array(self.columns, dtype=np.int64)
        if not (features.flags.c_contiguous and features.flags.aligned):
            # A copy of all columns may be as large as the party's table.
            features, columns = np.ascontiguousarray(features[:, columns]), np.arange(len(columns))
        run(features, columns, usable, lines, code, slots, self.tile_rows, counts, kept)
        return dict(zip(self.counted, counts.tolist(), strict=True)), dict(zip(self.kept, kept, strict=True))

    @property
    def tile_rows(self) -> int:
        """Rows of a tile: fewer if there are many columns."""
        fitting = _TILE_BYTES // (_COORDINATE_BYTES * max(1, len(self.columns))) // WORD_ROWS * WORD_ROWS
        return max(WORD_ROWS, min(_MOST_TILE_ROWS, fitting))

    @cached_property
    def _code(self) -> tuple[NDArray[np.int64], int]:
        """The lines for `run`, and how many slots they use: a slot is used again after its last reader."""
        return _Coding(self).lines()


class _Coding:
    def __init__(self, program: BitProgram) -> None:
        self._program = program
        self._counted = {place: number for number, place in enumerate(program.counted)}
        self._kept = {place: number for number, place in enumerate(program.kept)}
        self._given = {place: number for number, place in enumerate(program.given)}
        self._last = {read: step.place for step in program.steps for read in step.reads}
        self._slots: dict[int, int] = {}
        self._free: list[int] = []
        self._used = 0
        self._lines: list[tuple[int, ...]] = []

    def lines(self) -> tuple[NDArray[np.int64], int]:
        for step in self._program.steps:
            for read in step.reads:
                if read not in self._slots:
                    self._add(read, Bit.GIVEN, (self._given[read],))
            self._add(step.place, step.operation, (*step.numbers, *(self._slots[read] for read in step.reads)))
            self._release(step)
        return np.array(self._lines, dtype=np.int64), self._used

    def _add(self, place: int, operation: Bit, numbers: Sequence[int]) -> None:
        if self._free:
            slot = self._free.pop()
        else:
            slot, self._used = self._used, self._used + 1
        self._slots[place] = slot
        first, second = (*numbers, 0, 0)[:2]
        self._lines.append((operation, first, second, slot, self._counted.get(place, -1), self._kept.get(place, -1)))

    def _release(self, step: BitStep) -> None:
        ended = {place for place in (*step.reads, step.place) if self._last.get(place, place) == step.place}
        self._free.extend(self._slots[place] for place in ended)
