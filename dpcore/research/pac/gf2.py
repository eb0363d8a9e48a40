"""Linear equations over GF(2) by Gaussian elimination on packed 64-bit words."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ShapeError
from dpcore.randomness.sources import RandomSource

Bits = NDArray[np.bool_]
WORD = 64


@dataclass(frozen=True, eq=False)
class SolutionSpace:
    """All r in {0,1}^d that solve a consistent system: a particular solution plus every combination of a basis."""

    particular: Bits
    """(d,)."""
    basis: Bits
    """(dimension, d), linearly independent; there are 2^dimension solutions."""

    @property
    def dimension(self) -> int:
        """The number of free coordinates."""
        return len(self.basis)

    def draw(self, random: RandomSource) -> Bits:
        """A uniformly random solution (d,)."""
        whole = random.uint8(-(-self.dimension // 8))
        taken = np.unpackbits(whole, count=self.dimension, bitorder="little").astype(np.bool_)
        drawn: Bits = self.particular ^ np.logical_xor.reduce(self.basis[taken], axis=0)
        return drawn


def solve(rows: Bits, right: Bits) -> SolutionSpace | None:
    """The solutions r of <rows[i], r> = right[i] mod 2 for every i; None if there is none.

    rows: (m, d), d >= 1, m >= 0. right: (m,). Columns are eliminated eight at a time (Arlazarov, Dinic, Kronrod and
    Faradzev, 1970, the method of four Russians): about d / 8 passes over m d / 64 words. Raises ShapeError if shapes
    do not fit.
    """
    if rows.ndim != 2 or right.shape != rows.shape[:1] or rows.shape[1] < 1:
        raise ShapeError(f"rows have shape {rows.shape} and right sides {right.shape}: give (m, d), d >= 1, and (m,)")
    d = rows.shape[1]
    words = pack(np.column_stack([rows, right]))
    pivots = _reduce(words, d)
    rank = len(pivots)
    if (words[rank:, d // WORD] >> np.uint64(d % WORD) & np.uint64(1)).any():
        return None
    reduced = unpack(words[:rank], d + 1)
    free = np.setdiff1d(np.arange(d), pivots, assume_unique=True)
    particular = np.zeros(d, dtype=np.bool_)
    particular[pivots] = reduced[:, d]
    basis = np.zeros((len(free), d), dtype=np.bool_)
    basis[np.arange(len(free)), free] = True
    basis[:, pivots] = reduced[:, free].T
    return SolutionSpace(particular, basis)


def _reduce(words: NDArray[np.uint64], columns: int) -> list[int]:
    """Bring the first `columns` columns of packed rows (m, width) to reduced echelon form, in place.

    Returns the column of each leading one, in order of rows; pivots of one block of eight may be in any order.
    """
    octets = words.view(np.uint8)
    pivots: list[int] = []
    for block in range(-(-columns // 8)):
        mask, rank = np.uint8((1 << min(8, columns - 8 * block)) - 1), len(pivots)
        chosen = _independent(octets[rank:, block] & mask)
        if not chosen:
            continue
        leading = words[[rank + index for index in chosen]]
        bits = _reduce_block(leading, block, mask)
        _move_up(words, leading, rank, chosen)
        # For each value of the eight bits, the combination of leading rows that clears them in their columns.
        table = np.zeros((256, words.shape[1]), dtype=words.dtype)
        for row, bit in zip(leading, bits, strict=True):
            table[np.arange(256) >> bit & 1 == 1] ^= row
        # Rows without a pivot yet, including those chosen, are zero in all earlier columns.
        word, end = block // (WORD // 8), rank + len(bits)
        for part in (slice(0, rank), slice(end, None)):
            words[part, word:] ^= table[octets[part, block] & mask, word:]
        pivots += [8 * block + bit for bit in bits]
    return pivots


def _independent(values: NDArray[np.uint8]) -> list[int]:
    """Places of a maximal set of linearly independent values, as vectors of eight bits."""
    first = np.full(256, -1)
    # The last assignment of a value stays: in reverse order, its first place.
    first[values[::-1]] = np.arange(len(values) - 1, -1, -1)
    leads: dict[int, int] = {}
    chosen: list[int] = []
    for place in sorted(place for place in first[1:].tolist() if place >= 0):
        value = int(values[place])
        while value and value.bit_length() in leads:
            value ^= leads[value.bit_length()]
        if value:
            leads[value.bit_length()] = value
            chosen.append(place)
            if len(chosen) == 8:
                break
    return chosen


def _reduce_block(leading: NDArray[np.uint64], block: int, mask: np.uint8) -> list[int]:
    """Make independent rows (at most 8, width) unit vectors in some bits of a block, in place; the bit of each row."""
    octets = leading.view(np.uint8)
    bits = []
    for index in range(len(leading)):
        bit = int(octets[index, block] & mask).bit_length() - 1
        others = octets[:, block] >> bit & 1 == 1
        others[index] = False
        leading[others] ^= leading[index]
        bits.append(bit)
    return bits


def _move_up(words: NDArray[np.uint64], leading: NDArray[np.uint64], rank: int, chosen: list[int]) -> None:
    """Put `leading` at `rank`, and the rows that were there in place of the chosen rows."""
    left = [rank + place for place in chosen if place >= len(chosen)]
    words[left] = words[[rank + place for place in range(len(chosen)) if place not in chosen]]
    words[rank : rank + len(chosen)] = leading


def pack(bits: Bits) -> NDArray[np.uint64]:
    """Rows of bits (m, d) as words (m, ceil(d / 64)), the first bit lowest."""
    m, d = bits.shape
    padded = np.zeros((m, -(-d // WORD) * WORD), dtype=np.bool_)
    padded[:, :d] = bits
    # Little-endian everywhere, so that byte k holds columns from 8 k on.
    return np.packbits(padded, axis=1, bitorder="little").view("<u8")


def unpack(words: NDArray[np.uint64], d: int) -> Bits:
    """The first d bits of each row of words (m, width): (m, d)."""
    return np.unpackbits(words.view(np.uint8), axis=1, count=d, bitorder="little").astype(np.bool_)
