"""Fixed support: signatures that select exactly m*_p of a party's m_p records, uniformly."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError
from dpcore.randomness import RandomSource

# Random keys that one block of signatures may take.
BLOCK_KEYS = 1 << 21


class SupportError(PlanError):
    """A support that a party's rows cannot give."""

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
    """m*_p = round(fraction m_p), a half to even."""
    return round(fraction * rows)


def check_support(rows: int, fraction: Fraction) -> int:
    """m*_p, where it is from 1 to m_p - 1; raises SupportError elsewhere."""
    size = support_size(rows, fraction)
    if not 0 < size < rows:
        raise SupportError(rows=rows, fraction=fraction)
    return size


def draw_subsets(rows: int, size: int, count: int, random: RandomSource) -> Iterator[NDArray[np.uint8]]:
    """Packed selection bits of `count` independent subsets, each uniform over those of exactly `size` of `rows` rows.

    Yields uint8 (block, ceil(rows/8)), bits as in dpcore.rados.signatures. A subset is where independent uniform 64-bit
    keys are among the `size` smallest. Where two keys tie across that border the whole subset is drawn anew: given no
    tie, every subset is equally likely, the keys being exchangeable.
    """
    block = max(1, BLOCK_KEYS // rows)
    done = 0
    while done < count:
        drawn = min(block, count - done)
        keys = np.frombuffer(random.bytes(8 * drawn * rows), dtype="<u8").reshape(drawn, rows)
        border = np.partition(keys, size - 1, axis=1)[:, size - 1 : size]
        chosen = keys <= border
        exact = chosen[chosen.sum(axis=1) == size]
        done += len(exact)
        yield np.packbits(exact, axis=1, bitorder="little")
