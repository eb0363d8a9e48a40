"""As what differences of numbers count at most, chosen from noisy counts of their sizes.

Sums of clipped differences have noise of the size of the reach. A reach decides what is measured, never whether it is
right.
"""

import math
from fractions import Fraction

import numpy as np

from dpcore.evaluation.located_scores import Located, NoisyCells
from dpcore.numbers.fixed_point import Vector
from dpcore.predicates.expressions import MOST_ERROR

_TAILS = 0.01
"""Of errors and labels: few rows are beyond, and each may add more to a sum than all others."""
_CHEAP = 0.002
"""Noise of two standard deviations on a mean square may be this part of the label's variance, for less clipping."""
_HIDDEN = 0.2
"""The most rows that noise may hide beyond a reach."""
_OF_LEVELS = {0.5: 6.0, 0.75: 3.5}
"""Quantiles of sizes, and the multiples of them that a reach is. Of normal differences that is 4 deviations."""
ERRORS = tuple(Fraction(round(2.0 ** (20.0 - step / 4.0)), 1 << 19) for step in range(40, 0, -1))
"""Sizes of errors, ascending from 1/512 to 1.7, between which a first release counts rows."""
LABELS = tuple(Fraction(MOST_ERROR * step, 32) for step in range(1, 32))
FINE = 1 << 20
"""Centres and reaches are multiples of 1 / FINE."""


def cheap_reach(of_labels: NoisyCells, parts: Fraction) -> float:
    """The reach up to which the noise on squares is small against the label's variance, as far as cells tell.

    parts: that of the budget that the cells had, over that which squares have.
    """
    rows = of_labels.located
    if not rows.sum() or not of_labels.deviation:
        return 0.0 if of_labels.deviation else float(MOST_ERROR)
    middles = (np.arange(len(rows)) + 0.5) * MOST_ERROR / len(rows)
    variance = float(rows @ np.square(middles - rows @ middles / rows.sum()) / rows.sum())
    # Normal noise falls with the root of the part, at the same sensitivity, and Laplace noise faster.
    later = of_labels.deviation * math.sqrt(parts)
    return math.sqrt(_CHEAP * variance * float(rows.sum()) / (2.0 * later))


def reach_of(ends: Vector, found: NoisyCells, cheap: float) -> Fraction:
    """The reach of sizes in cells up to each of these ascending ends: at least `cheap`, at most the last of them."""
    rows, cells = float(found.counts.sum()), np.arange(len(ends), 0, -1)
    # Rows in each cell and in those above it, and the noise on their number.
    beyond = np.cumsum(found.counts[::-1])[::-1]
    noise = 2.0 * found.deviation * np.sqrt(cells)
    few = (beyond <= np.maximum(_TAILS * rows, noise)) & (noise <= _HIDDEN * rows)
    # From the last cell down, as long as few rows are there.
    first = len(few) - int(np.argmin(few[::-1])) if not few.all() else 0
    if first == len(few):
        return Fraction(float(ends[-1]))
    within = float(ends[first - 1]) if first else 0.0
    wide = _hidden_reach(ends, found, beyond) if noise[first] > _TAILS * rows else 2.0 * within
    return Fraction(math.ceil(min(max(wide, float(ends[0]), cheap), float(ends[-1])) * FINE), FINE)


def _hidden_reach(ends: Vector, found: NoisyCells, beyond: Vector) -> float:
    """The reach where noise hides more than the tails; beyond: the rows in each cell and in those above it."""
    rows, within = float(beyond[0]), np.cumsum(found.counts)
    sure = beyond > np.maximum(_TAILS * rows, 4.0 * found.deviation * np.sqrt(np.arange(len(ends), 0, -1)))
    if not sure.any():
        return float(ends[-1])
    levels = [factor * float(ends[int(np.argmax(within >= level * rows))]) for level, factor in _OF_LEVELS.items()]
    return max(*levels, float(ends[np.flatnonzero(sure)[-1]]))


def around(found: NoisyCells, cheap: float) -> tuple[Fraction, Fraction]:
    """The mean place of labels, and the reach of their distances from it."""
    ends = np.array([0.0, *map(float, LABELS), float(MOST_ERROR)]) - 1.0
    rows = found.located
    where = Located(ends, rows if rows.sum() else np.ones(len(rows)), found=bool(rows.sum()))
    centre = Fraction(round(where.mean_of(where.middles) * FINE), FINE)
    # The furthest that a label in a cell may be.
    sizes = np.maximum(np.abs(ends[1:] - float(centre)), np.abs(ends[:-1] - float(centre)))
    order = np.argsort(sizes, kind="stable")
    return centre, reach_of(sizes[order], NoisyCells(found.counts[order], found.deviation), cheap)
