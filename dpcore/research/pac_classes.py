"""Any finite class, by the exponential mechanism: the generic learner of Kasiviswanathan et al., section 3.

A concept is chosen with probability proportional to exp(epsilon q / 2), q the number of rows that it labels correctly,
which a row changes by at most 1: (epsilon, 0)-private. P[h is chosen] <= exp(-epsilon (e(h) - e(h*)) / 2), so (1) of
dpcore.statistics.pac holds for every s in (0, epsilon / 2] with K(s) = |C| - 1:

    realisable   n >= log((|C| - 1) / beta) / -log(1 - alpha (1 - exp(-epsilon / 2)));
    agnostic     n >= log((|C| - 1) / beta) / -log(cosh(s) - alpha sinh(s)), s = min(epsilon / 2, atanh(alpha)).
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.numbers.rationals import check_rational
from dpcore.randomness.noise import exp_bounds
from dpcore.randomness.sources import RandomSource
from dpcore.statistics.pac import MOST_BITS, PacGuarantee, check_bits, integers_of, labels_of, pac_rows

# The exponential mechanism over groups of candidates of equal score, exact (McSherry and Talwar, FOCS 2007): weights
# exp(epsilon score / 2), (epsilon, 0)-private if a row changes every score by at most 1.
#
# A class of 2^62 concepts costs no more than the rows that distinguish them. A uniform number is compared with sums of
# weights in double precision where it is further from each than their error, else with integer brackets, to as many
# bits as needed. Neither the choice nor its running time is hidden from other users of the machine.


LARGEST_SCORE = 1 << 53
MOST_CANDIDATES = (1 << 62) + 1


def choose(
    sizes: NDArray[np.int64], scores: NDArray[np.int64], epsilon: Fraction, random: RandomSource
) -> tuple[int, int]:
    """A group and an index in it: candidate k of group g has probability proportional to exp(epsilon scores[g] / 2).

    sizes: (groups,), at most 2^62 + 1 in total. scores: (groups,), of sensitivity 1, at most 2^53. Raises ShapeError,
    ConfigurationError for no or too many candidates, PlanError if epsilon is not positive.
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
    """The result of `_decided` in double precision; None if a boundary is within its error.

    A weight has an error of (gamma + 4) 2^-52; those of gamma > 100 weigh less than 2^-80: a sum of L levels, (L + 104)
    2^-52.
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


Points = NDArray[np.generic]
Concept = Callable[[Points], ArrayLike]
"""Labels (n,) for points (n, ...): each of {0, 1} or {-1, +1}, or Booleans."""


def learn_finite_class(predictions: ArrayLike, labels: ArrayLike, epsilon: Fraction, random: RandomSource) -> int:
    """The index of a concept, chosen with (epsilon, 0)-differential privacy, where all rows are seen.

    predictions: (|C|, n) of zeros and ones, as of `predictions_of`. labels: (n,), {0, 1} or {-1, +1}. Raises
    ConfigurationError, ShapeError, PlanError.
    """
    positive, predicted = labels_of(labels), np.asarray(predictions)
    if predicted.ndim != 2 or predicted.shape[1] != len(positive):
        raise ShapeError(f"predictions have shape {predicted.shape}: give (concepts, n) for {len(positive)} labels")
    if predicted.dtype != np.bool_ and not ((predicted == 0) | (predicted == 1)).all():
        raise ConfigurationError("a prediction is neither 0 nor 1: give Booleans")
    right = (predicted.astype(np.bool_) == positive).sum(axis=1, dtype=np.int64)
    chosen, _ = choose(np.ones(len(right), dtype=np.int64), right, epsilon, random)
    return chosen


def predictions_of(concepts: Sequence[Concept], points: Points) -> NDArray[np.bool_]:
    """Predictions of each concept for each point, (|C|, n) Booleans.

    Raises ConfigurationError if there is no concept or a label is of neither kind, ShapeError if a concept does
    not give one label for each point.
    """
    if not concepts:
        raise ConfigurationError("the class is empty: give at least one concept")
    predicted = np.empty((len(concepts), len(points)), dtype=np.bool_)
    for index, concept in enumerate(concepts):
        labels = labels_of(concept(points))
        if len(labels) != len(points):
            raise ShapeError(f"concept {index} gives {len(labels)} labels for {len(points)} points: give one for each")
        predicted[index] = labels
    return predicted


def finite_class_guarantee(
    concepts: int, alpha: float, beta: float, epsilon: Fraction, *, agnostic: bool = False
) -> PacGuarantee:
    """The guarantee of `learn_finite_class` for a class of `concepts`.

    Raises ConfigurationError if a number is out of range, PlanError if more rows are needed than can be counted.
    """
    check_rational("epsilon", epsilon)
    if concepts < 1:
        raise ConfigurationError(f"a class of {concepts} concepts: give at least one")
    log_others = math.log(concepts - 1) if concepts > 1 else -math.inf
    rows = pac_rows(lambda _: log_others, alpha, beta, float(epsilon / 2), agnostic=agnostic)
    return PacGuarantee(alpha, beta, epsilon, Fraction(0), rows, "at one party or a curator", agnostic)


# POINT_d: c_j(x) = 1 if x = j, else 0, over {0, ..., 2^d - 1}. All points without a row make the same number of errors,
# so `learn_point` takes time n log n. A federation uses noisy counts: dpcore.statistics.pac.


def learn_point(points: ArrayLike, labels: ArrayLike, bits: int, epsilon: Fraction, random: RandomSource) -> int:
    """The j of a concept c_j, chosen with (epsilon, 0)-differential privacy, where all rows are seen.

    points: (n,) of {0, ..., 2^bits - 1}, bits from 1 to 62. Raises ShapeError if the arrays do not fit,
    ConfigurationError if a point or a label is outside its domain, PlanError if epsilon is out of range.
    """
    values, positive = integers_of(points, labels, bits)
    seen, place = np.unique(values, return_inverse=True)
    score = np.zeros(len(seen), dtype=np.int64)
    # Rightly labelled rows, less those of label 0, which are the same number for every concept.
    np.add.at(score, place, np.where(positive, 1, -1))
    sizes = np.ones(len(seen), dtype=np.int64)
    unseen = (1 << bits) - len(seen)
    if unseen:
        sizes, score = np.append(sizes, unseen), np.append(score, 0)
    group, offset = choose(sizes, score, epsilon, random)
    if group < len(seen):
        return int(seen[group])
    # Unseen point k comes after as many seen ones as have at most k unseen before them.
    return offset + int(np.searchsorted(seen - np.arange(len(seen)), offset, side="right"))


def point_guarantee(bits: int, alpha: float, beta: float, epsilon: Fraction, *, agnostic: bool = False) -> PacGuarantee:
    """What `learn_point` promises: `finite_class_guarantee` with 2^bits concepts. Raises as it does."""
    check_bits(bits, MOST_BITS)
    return finite_class_guarantee(1 << bits, alpha, beta, epsilon, agnostic=agnostic)


# THRESHOLD_d: c_j(x) = 1 if x < j, over {0, ..., 2^d - 1}, for j from 0 to 2^d. The number of errors changes only after
# a row's value, so `learn_threshold` takes time n log n. A federation uses noisy counts: dpcore.statistics.pac.


def learn_threshold(points: ArrayLike, labels: ArrayLike, bits: int, epsilon: Fraction, random: RandomSource) -> int:
    """The j of a concept c_j, 0 <= j <= 2^bits, chosen with (epsilon, 0)-differential privacy. As `learn_point`."""
    values, positive = integers_of(points, labels, bits)
    seen, place = np.unique(values, return_inverse=True)
    gain = np.zeros(len(seen), dtype=np.int64)
    np.add.at(gain, place, np.where(positive, 1, -1))
    # Concept 0 labels every row 0; a larger j gains the positive rows below it and loses the negative ones.
    score = np.concatenate([[0], np.cumsum(gain)])
    starts = np.concatenate([[0], seen + 1])
    sizes = np.diff(np.append(starts, (1 << bits) + 1))
    group, offset = choose(sizes, score, epsilon, random)
    return int(starts[group]) + offset


def threshold_guarantee(
    bits: int, alpha: float, beta: float, epsilon: Fraction, *, agnostic: bool = False
) -> PacGuarantee:
    """The guarantee of `learn_threshold`: `finite_class_guarantee` with 2^bits + 1 concepts. Raises as it does."""
    check_bits(bits, MOST_BITS)
    return finite_class_guarantee((1 << bits) + 1, alpha, beta, epsilon, agnostic=agnostic)
