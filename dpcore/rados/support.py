"""Fixed support: signatures that select exactly m*_p of a party's m_p records, uniformly.

Each row enters a rado by its own coin of p near m*_p / m_p; then uniform rows are taken out, or put in. A permutation
of the rows keeps a result's probability, so every set is equally likely. Rows to move in each block follow the
distribution of drawing without replacement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError, ShapeError
from dpcore.randomness.sources import KEY_BYTES, KeyedRandom, RandomSource
from dpcore.records.computation import on_threads
from dpcore.records.records import BLOCK_ROWS

# Packed selection bits: row i is bit i mod 8 of byte i div 8, bits beyond the last row are zero. A signature is a row
# of such bytes, (n, ceil(m/8)); a block of rows is group-major, (ceil(rows/8), n).


# The most bytes whose one bits can be counted in one byte.
_BYTES_A_STEP = 31


def packed_width(rows: int) -> int:
    """Bytes of one packed signature of m = rows."""
    return -(-rows // 8)


def last_byte(rows: int) -> np.uint8:
    """The mask of the bits of a signature's last byte that stand for rows."""
    return np.uint8(0xFF >> (8 * packed_width(rows) - rows))


def rows_of_block(first_row: int, rows: int) -> int:
    """Number of rows in the block that begins at `first_row`, of m = rows. Raises ShapeError if none begins there."""
    if not 0 <= first_row < rows or first_row % BLOCK_ROWS:
        raise ShapeError(f"no block of {rows} rows begins at row {first_row}: give a multiple of {BLOCK_ROWS} below it")
    return min(BLOCK_ROWS, rows - first_row)


def ones_per_rado(block: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The number of rows of a group-major block that each rado selects: int64 (n,). block: uint8 (groups, n)."""
    ones = np.zeros(block.shape[1], dtype=np.int64)
    for first in range(0, len(block), _BYTES_A_STEP):
        ones += np.bitwise_count(block[first : first + _BYTES_A_STEP]).sum(axis=0, dtype=np.uint8)
    return ones


# The measured cost of moving one row, in random bits drawn.
_MOVE_BITS = 300
# The most bits of a coin: more bits cost more than the moves that they save.
_MOST_COIN_BITS = 8
# Words of a keystream drawn at once.
_FEWEST_WORDS, _MOST_WORDS = 1 << 8, 1 << 16


class SupportError(PlanError):
    """A support that is impossible with a party's rows."""

    def __init__(self, *, rows: int, fraction: Fraction) -> None:
        self.rows, self.fraction = rows, fraction
        remedy = (
            f"choose one that takes at least one row and leaves one, between {1 / rows:.3g} and {(rows - 1) / rows:.3g}"
            if rows > 1
            else "no fraction takes a row and leaves one, so leave this party out"
        )
        super().__init__(
            f"a fraction of {float(fraction):.4g} takes {support_size(rows, fraction)} of {rows} rows: {remedy}"
        )


def support_size(rows: int, fraction: Fraction) -> int:
    """m*_p = round(fraction m_p), halves to even."""
    return round(fraction * rows)


def check_support(rows: int, fraction: Fraction) -> int:
    """m*_p. Raises SupportError unless it is from 1 to m_p - 1."""
    size = support_size(rows, fraction)
    if not 0 < size < rows:
        raise SupportError(rows=rows, fraction=fraction)
    return size


def pooled_inclusion(party_rows: Sequence[int], fraction: Fraction) -> float:
    """The share of the pool that a rado takes, sum m*_p / m. party_rows: the m_p of each party that draws."""
    return sum(support_size(rows, fraction) for rows in party_rows) / sum(party_rows)


@dataclass(frozen=True)
class Coin:
    """A coin that shows 1 with probability exactly ones / 2^bits, from `bits` fair bits. bits 0: constant."""

    ones: int
    bits: int

    @classmethod
    def near(cls, share: Fraction) -> "Coin":
        """The cheapest coin for drawing subsets of this share of the rows. share: from 0 to 1."""
        coins = [cls(round(share * (1 << bits)), bits) for bits in range(_MOST_COIN_BITS + 1)]
        return min(coins, key=lambda coin: coin.bits + _MOVE_BITS * abs(share - coin.chance))

    @property
    def chance(self) -> Fraction:
        """Probability that the coin shows 1."""
        return Fraction(self.ones, 1 << self.bits)

    def toss(self, stream: KeyedRandom, shape: tuple[int, int]) -> NDArray[np.uint8]:
        """Eight independent coins in each byte: uint8, of this shape. Of ones / 2^bits, 1 is an "or" and 0 an "and"."""
        if not 0 < self.ones < 1 << self.bits:
            return np.full(shape, 0xFF if self.ones else 0, dtype=np.uint8)
        # Below the last 1 in `ones` the probability is 0; that 1 makes it 1/2, which is a fair bit.
        unused = (self.ones & -self.ones).bit_length() - 1
        shown = np.empty(shape, dtype=np.uint8)
        stream.fill(shown)
        fair = np.empty_like(shown) if self.bits - unused > 1 else shown
        for place in range(unused + 1, self.bits):
            stream.fill(fair)
            (np.bitwise_or if self.ones >> place & 1 else np.bitwise_and)(shown, fair, out=shown)
        return shown


@dataclass(frozen=True, eq=False)
class SubsetSignatures:
    """Signatures each of which is uniform among those that select an exact number of rows; see `subsets`."""

    rows: int
    coin: Coin
    coins: bytes = field(repr=False)
    chosen: bytes = field(repr=False)
    """Keys of the coins and of the choice of rows to move in a block."""
    moves: NDArray[np.int16] = field(repr=False)
    """int16 (blocks, n), the number of rows of each block to take out of each rado or, if negative, to put in."""

    @property
    def rados(self) -> int:
        """Rados, n."""
        return int(self.moves.shape[1])

    def block(self, first_row: int) -> NDArray[np.uint8]:
        """The block of rows that begins at `first_row`: uint8 (groups, n), group-major."""
        from dpcore.rados.compiled import move  # noqa: PLC0415  (numba takes half a second to import)

        number, rows = first_row // BLOCK_ROWS, rows_of_block(first_row, self.rows)
        selection = _tossed(self.coin, self.coins, first_row, self.rows, self.rados)
        moves = self.moves[number].astype(np.int64)
        _fed(
            lambda first_rado, words: move(selection, rows, moves, first_rado, _mask(rows), words),
            KeyedRandom(self.chosen, number),
            np.uint16,
            rados=self.rados,
            words=2 * int(np.abs(moves).sum()),
        )
        return selection


def subsets(rows: int, sizes: NDArray[np.int64], random: RandomSource) -> SubsetSignatures:
    """Independent signatures, uniform over those that select exactly sizes[j] of `rows` rows. Raises ShapeError.

    The coins are tossed twice: now, to count the rows of each block, and when a block is drawn.
    """
    from dpcore.rados.compiled import allot  # noqa: PLC0415  (numba takes half a second to import)

    if sizes.ndim != 1 or not len(sizes) or int(sizes.min()) < 0 or int(sizes.max()) > rows:
        raise ShapeError(f"a subset of {rows} rows has 0 to {rows} of them: give such sizes, at least one")
    coin = Coin.near(Fraction(int(sizes.sum()), rows * len(sizes)))
    coins, allotted, chosen = (random.bytes(KEY_BYTES) for _ in range(3))
    starts = range(0, rows, BLOCK_ROWS)
    counts = np.empty((len(sizes), len(starts)), dtype=np.uint16)

    def count(first_row: int) -> None:
        counts[:, first_row // BLOCK_ROWS] = ones_per_rado(_tossed(coin, coins, first_row, rows, len(sizes)))

    for _ in on_threads(count, starts):
        pass
    excess = counts.sum(axis=1, dtype=np.int64) - sizes
    # Selected rows move out if there are too many; other rows move in if there are too few.
    movable, few = counts, excess < 0
    movable[few] = np.minimum(BLOCK_ROWS, rows - np.asarray(starts)).astype(np.uint16) - counts[few]
    moved, moves = np.zeros_like(movable), np.abs(excess)
    shift = BLOCK_ROWS.bit_length() - 1
    _fed(
        lambda first_rado, words: allot(movable, moved, moves, first_rado, shift, _mask(len(starts) << shift), words),
        KeyedRandom(allotted),
        np.uint64,
        rados=len(sizes),
        words=2 * int(moves.sum()),
    )
    signed = np.ascontiguousarray(moved.T).astype(np.int16)
    signed[:, few] *= -1
    return SubsetSignatures(rows, coin, coins, chosen, signed)


def _tossed(coin: Coin, key: bytes, first_row: int, rows: int, rados: int) -> NDArray[np.uint8]:
    here = rows_of_block(first_row, rows)
    selection = coin.toss(KeyedRandom(key, first_row // BLOCK_ROWS), (packed_width(here), rados))
    selection[-1] &= last_byte(here)
    return selection


def _mask(numbers: int) -> int:
    """The bit mask for numbers below `numbers`."""
    return (1 << (numbers - 1).bit_length()) - 1


def _fed(
    loop: Callable[[int, NDArray[np.unsignedinteger]], int],
    stream: KeyedRandom,
    kind: type[np.unsignedinteger],
    *,
    rados: int,
    words: int,
) -> None:
    """Pass words of a stream to a loop of dpcore.rados.compiled until all rados are done. words: about how many."""
    buffer = np.empty(min(max(words, _FEWEST_WORDS), _MOST_WORDS), dtype=kind)
    rado = 0
    while rado < rados:
        stream.fill(buffer)
        rado = loop(rado, buffer)
