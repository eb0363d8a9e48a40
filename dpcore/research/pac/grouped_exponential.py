"""The exponential mechanism over groups of candidates of equal score, sampled exactly.

McSherry and Talwar (FOCS 2007): a candidate is chosen with probability proportional to exp(epsilon score / 2). If
replacing one row changes every score by at most 1, each weight changes by at most a factor exp(epsilon / 2), and so
does their sum, so the choice is (epsilon, 0)-differentially private.

Only the scores matter, so candidates of equal score form one group, and a class of 2^62 concepts costs no more than the
rows that distinguish them.

Rounding never decides: a uniform number is compared with sums of weights in double precision if it is further from each
than their error; else weights are bracketed by integers (dpcore.randomness.coins), to as many bits as needed. Neither
the choice nor its running time is hidden from other users of the machine.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.numbers.rationals import check_rational
from dpcore.randomness.coins import exp_bounds
from dpcore.randomness.sources import RandomSource

LARGEST_SCORE = 1 << 53
MOST_CANDIDATES = (1 << 62) + 1


def choose(
    sizes: NDArray[np.int64], scores: NDArray[np.int64], epsilon: Fraction, random: RandomSource
) -> tuple[int, int]:
    """A group and an index in it: candidate k of group g has probability proportional to exp(epsilon scores[g] / 2).

    sizes: (groups,), positive, the number of candidates of each, at most 2^62 + 1 in total. scores: (groups,), of
    sensitivity 1 and magnitude at most 2^53. Returns (g, k) with 0 <= k < sizes[g].

    Raises:
        ShapeError: shapes differ.
        ConfigurationError: there is no candidate, or too many.
        PlanError: epsilon is not positive.
    """
    check_rational("epsilon", epsilon)
    if sizes.ndim != 1 or sizes.shape != scores.shape:
        raise ShapeError(f"sizes have shape {sizes.shape} and scores {scores.shape}: give one of each for a group")
    if len(sizes) == 0:
        raise ConfigurationError("there is no candidate: give a class of at least one concept")
    if int(sizes.min()) < 1 or sum(sizes.tolist()) > MOST_CANDIDATES or int(np.abs(scores).max()) > LARGEST_SCORE:
        raise ConfigurationError("a group is empty, or the groups or their scores are too large: take a smaller domain")
    gaps, level = np.unique(int(scores.max()) - scores, return_inverse=True)
    held = np.zeros(len(gaps), dtype=np.int64)
    np.add.at(held, level, sizes)
    chosen = _level(held, gaps, epsilon, random)
    inside = np.flatnonzero(level == chosen)
    place = random.below(int(held[chosen]))
    ends = np.cumsum(sizes[inside])
    group = int(np.searchsorted(ends, place, side="right"))
    return int(inside[group]), place - int(ends[group] - sizes[inside[group]])


def _level(held: NDArray[np.int64], gaps: NDArray[np.int64], epsilon: Fraction, random: RandomSource) -> int:
    """An index, drawn with probability proportional to held exp(-epsilon gaps / 2); gaps ascend from 0."""
    word, precision = random.bits(128), 128
    likely = _likely(held, gaps, epsilon, word)
    if likely is not None:
        return likely
    while True:
        found = _decided(held, gaps, epsilon, word, precision)
        if found is not None:
            return found
        word, precision = (word << 64) | random.bits(64), precision + 64


def _likely(held: NDArray[np.int64], gaps: NDArray[np.int64], epsilon: Fraction, word: int) -> int | None:
    """The result of `_decided`, if double precision suffices; None if a boundary is within its error.

    A weight held exp(-gamma) has a relative error of at most (gamma + 4) 2^-52. With at most 2^62 candidates and
    weights that add up to at least 1, those of gamma > 100 weigh less than 2^-80, so a sum of L levels has an error of
    at most (L + 104) 2^-52.
    """
    sums = np.cumsum(held * np.exp(-float(epsilon / 2) * gaps))
    place = (word >> 64) * 2.0**-64 * sums[-1]
    index = int(np.searchsorted(sums, place, side="right"))
    error = (2.0**-40 + len(sums) * 2.0**-50) * sums[-1]
    if index == len(sums) or sums[index] - place <= error or (index and place - sums[index - 1] <= error):
        return None
    return index


def _decided(
    held: NDArray[np.int64], gaps: NDArray[np.int64], epsilon: Fraction, word: int, precision: int
) -> int | None:
    """The index of the uniform number that begins with the `precision` bits of `word`; None if it needs more."""
    # exp(-0.7 precision) 2^precision < 1: smaller weights are bracketed by [0, 1] and cannot be selected yet.
    near = int(np.searchsorted(gaps, min(int(7 * precision / (5 * epsilon)), 2 * LARGEST_SCORE), side="right"))
    low, high = [0], [0]
    for size, gap in zip(held[:near].tolist(), gaps[:near].tolist(), strict=True):
        below, above = exp_bounds(epsilon * gap / 2, precision)
        low.append(low[-1] + size * below)
        high.append(high[-1] + size * above)
    # The number times the sum of weights is in [least, most] / 2^precision, each sum up to i in [low[i], high[i]].
    least, most = word * low[-1], (word + 1) * (high[-1] + int(held[near:].sum()))
    for index in range(near):
        if most <= low[index + 1] << precision:
            return index if least >= high[index] << precision else None
    return None
