"""Bits of rows, compiled: a batch of predicates runs over tiles of rows that stay in a core's cache.

Importing this module imports Numba, which is slow: import it only in functions that compute.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from dpcore.numbers.compiling import compiled

WORD_ROWS = 64
"""Rows in a word of bits."""
AT_LEAST, BOTH, EITHER, COMPLEMENT, TRUE, GIVEN = range(6)
"""The operations of `run`."""
OPERATION, FIRST, SECOND, SLOT, COUNTED, KEPT = range(6)
"""The columns of a line of code."""

_WORDS = types.Array(types.uint64, 1, "C", readonly=True)
_LINES = types.Array(types.uint64, 2, "C", readonly=True)
_FEATURES = types.Array(types.int32, 2, "C", readonly=True)
_PLACES = types.Array(types.int64, 1, "C", readonly=True)
_CODE = types.Array(types.int64, 2, "C", readonly=True)
_PAIRS, _FOURS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_EIGHTS, _BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
_ONE, _TWO, _FOUR, _TOP = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
_EIGHT, _DIAGONAL = np.uint64(8), np.uint64(0x0102040810204080)
_NONE, _ALL = np.uint64(0), np.uint64(0xFFFFFFFFFFFFFFFF)
# Columns that are a power of 2 apart share their places in a core's smallest cache.
_APART = 16


@compiled(types.int64(types.uint64))
def ones(word: np.uint64) -> np.int64:
    """The number of bits of a word that are 1."""
    # Sums of two, four and eight bits side by side; the product adds up the bytes in the highest one.
    word -= (word >> _ONE) & _PAIRS
    word = (word & _FOURS) + ((word >> _TWO) & _FOURS)
    word = (word + (word >> _FOUR)) & _EIGHTS
    return np.int64((word * _BYTES) >> _TOP)


@compiled(types.int64(_WORDS, _WORDS))
def shared_bits(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> int:
    """The number of bits that are 1 in both, of as many words each."""
    count = np.int64(0)
    for place in range(len(first)):
        count += ones(first[place] & second[place])
    return int(count)


@compiled(
    types.void(
        _FEATURES,
        _PLACES,
        _WORDS,
        _LINES,
        _CODE,
        types.int64,
        types.int64,
        types.Array(types.int64, 1, "C"),
        types.Array(types.uint64, 2, "C"),
    )
)
def run(  # noqa: C901, PLR0912 - a branch for each operation; calls for tiles would take longer than their work
    features: NDArray[np.int32],
    columns: NDArray[np.int64],
    usable: NDArray[np.uint64],
    given: NDArray[np.uint64],
    code: NDArray[np.int64],
    slots: int,
    tile_rows: int,
    counts: NDArray[np.int64],
    kept: NDArray[np.uint64],
) -> None:
    """Run the code over rows, tile by tile. Each line of code writes bits to a slot.

    FIRST and SECOND of a line are slots; of AT_LEAST a place among `columns` and the bound, within 2^31; of GIVEN a
    line of `given`. The line's bits in usable rows are added to `counts` at COUNTED, and its bits go to the line KEPT
    of `kept`, unless these are -1.

    features: (rows, d). columns: the needed ones of d. usable: (words,). given: (g, words). tile_rows: a multiple of
    64. Bits of `kept` beyond the last row are undefined.
    """
    rows = len(features)
    tile = np.zeros((len(columns), tile_rows + _APART), dtype=np.int32)
    held = np.zeros((slots, tile_rows // WORD_ROWS), dtype=np.uint64)
    flags = np.zeros(WORD_ROWS, dtype=np.uint8)
    eights = flags.view(np.uint64)
    for start in range(0, rows, tile_rows):
        count = min(tile_rows, rows - start)
        first_word, words = start // WORD_ROWS, -(-count // WORD_ROWS)
        for row in range(count):
            for place in range(len(columns)):
                tile[place, row] = features[start + row, columns[place]]
        for number in range(len(code)):
            operation, first, second = code[number, OPERATION], code[number, FIRST], code[number, SECOND]
            found = held[code[number, SLOT]]
            if operation == AT_LEAST:
                column, bound = tile[first], np.int32(second)
                for place in range(words):
                    # A count that the compiler knows becomes a few instructions for many rows.
                    for row in range(WORD_ROWS):
                        flags[row] = column[place * WORD_ROWS + row] >= bound
                    word = _NONE
                    for eight in range(WORD_ROWS // 8):
                        # The product gathers the lowest bits of eight bytes in the highest one, the first's lowest.
                        word |= ((eights[eight] * _DIAGONAL) >> _TOP) << (_EIGHT * np.uint64(eight))
                    found[place] = word
            elif operation == BOTH:
                for place in range(words):
                    found[place] = held[first, place] & held[second, place]
            elif operation == EITHER:
                for place in range(words):
                    found[place] = held[first, place] | held[second, place]
            elif operation == COMPLEMENT:
                for place in range(words):
                    found[place] = ~held[first, place]
            elif operation == GIVEN:
                for place in range(words):
                    found[place] = given[first, first_word + place]
            else:
                for place in range(words):
                    found[place] = _ALL
            if code[number, COUNTED] >= 0:
                total = np.int64(0)
                for place in range(words):
                    total += ones(found[place] & usable[first_word + place])
                counts[code[number, COUNTED]] += total
            if code[number, KEPT] >= 0:
                for place in range(words):
                    kept[code[number, KEPT], first_word + place] = found[place]
