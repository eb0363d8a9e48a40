"""Any finite class, by the exponential mechanism: the generic learner of Kasiviswanathan et al., section 3.

A concept is chosen with probability proportional to exp(epsilon q / 2), q the number of rows that it labels correctly.
Replacing a row changes every q by at most 1, so the choice is (epsilon, 0)-differentially private
(dpcore.research.pac.grouped_exponential). It runs at one party or a curator that holds the rows; the choice may be
published.

Rows. P[h is chosen] <= exp(-epsilon (e(h) - e(h*)) / 2) for every h, since the sum of weights is at least that of h*;
and a probability of at most x is at most x^t for every t in [0, 1].

So inequality (1) of dpcore.pac.sample_size holds for every s in (0, epsilon / 2] with K(s) = |C| - 1:

    realisable   n >= log((|C| - 1) / beta) / -log(1 - alpha (1 - exp(-epsilon / 2))),
                 near 2 log(|C| / beta) / (alpha epsilon) for a small epsilon and Occam's log(|C| / beta) / alpha for a
                 large one;
    agnostic     n >= log((|C| - 1) / beta) / -log(cosh(s) - alpha sinh(s)), s = min(epsilon / 2, atanh(alpha)),
                 near 2 log(|C| / beta) / alpha^2 if epsilon >= 2 alpha.

The paper and the lectures state orders of magnitude, (log|C| + log(1/beta)) max(1 / (alpha epsilon), 1 / alpha^2); the
bounds above have the constants.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.numbers.rationals import check_rational
from dpcore.pac.examples import labels_of
from dpcore.pac.guarantee import PacGuarantee
from dpcore.pac.sample_size import least_rows
from dpcore.randomness.sources import RandomSource
from dpcore.research.pac.grouped_exponential import choose

Points = NDArray[np.generic]
Concept = Callable[[Points], ArrayLike]
"""Labels (n,) for points (n, ...): each of {0, 1} or {-1, +1}, or Booleans."""


def learn_finite_class(predictions: ArrayLike, labels: ArrayLike, epsilon: Fraction, random: RandomSource) -> int:
    """The index of a concept, chosen with (epsilon, 0)-differential privacy; see the module's docstring.

    predictions: (|C|, n) Booleans, or zeros and ones, row h the predictions of concept h for each point. labels: (n,),
    {0, 1} or {-1, +1}. `predictions_of` makes them from callables.

    Runs at one party or a curator that sees all rows.

    Raises:
        ConfigurationError: the class is empty or labels are neither.
        ShapeError: shapes do not fit.
        PlanError: epsilon is not a positive Fraction.
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
    """Predictions of each concept for each point, (|C|, n) Booleans, for `learn_finite_class`.

    Raises ConfigurationError if the class is empty, ShapeError if a concept does not label every point.
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
    """The guarantee of `learn_finite_class` for a class of `concepts`; the module's docstring has the proof.

    Raises ConfigurationError or PlanError if an argument is out of range.
    """
    check_rational("epsilon", epsilon)
    if concepts < 1:
        raise ConfigurationError(f"a class of {concepts} concepts: give at least one")
    log_others = math.log(concepts - 1) if concepts > 1 else -math.inf
    rows = least_rows(lambda _: log_others, alpha, beta, float(epsilon / 2), agnostic=agnostic)
    return PacGuarantee(alpha, beta, epsilon, Fraction(0), rows, "at one party or a curator", agnostic)
