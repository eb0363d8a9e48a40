"""Monotone conjunctions by statistical queries: a row is positive if all of some features are true.

Theorem 5 of Balcan's lecture notes (2015; after Kearns 1998): for each of d features estimate p_i = P(x_i false, c*(x)
= 1), and take the conjunction of the features whose estimate is at most T = error / (2 d). If each estimate is on the
right side of T, the error is at most `error`.

`rows_needed` uses the tails of binomial counts. With K the Kullback-Leibler divergence of two coins, g(t) = eta + t (1
- 2 eta), p = error / d and noise that moves no estimate by more than w:

    p_i = 0:   P(estimate > T)  <= exp(-m K(g(T - w), g(0))),   w <= T; with eta = 0 it is 0
    p_i >= p:  P(estimate <= T) <= exp(-m K(g(T + w), g(p))),   w < p - T.

Half of `failure` is for the noise, if there is some. Proof: docs/explanation/proofs.md, "Rows for a conjunction".
"""

import math
from fractions import Fraction

import numpy as np

from dpcore.errors import ConfigurationError, PlanError, SchemaError
from dpcore.estimators.base import Vector
from dpcore.estimators.counted_concepts import unstated_rows
from dpcore.estimators.oracle import StatisticOracle, check_all_rows
from dpcore.estimators.query_learner import Literal, QueryClassifier, add_literal, all_of, flags, indicators
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.expressions import LabelIs, Not
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import SumNoise, least_rows, planned_noise
from dpcore.statistics.label_noise import check_noise_rate, corrected_batch


class SampleTooSmallError(PlanError):
    """The sample is too small for the guarantee.

    needed: the rows that suffice. rows: those available, or 0 if no party states any.
    """

    def __init__(self, *, needed: int, rows: int) -> None:
        self.needed, self.rows = needed, rows
        super().__init__(
            f"there are {rows} rows, and this error, failure and noise need {needed}: add parties, raise error "
            "or the privacy budget, or set require_rows to False to go without the guarantee"
            if rows
            else unstated_rows(needed)
        )


class MonotoneConjunction(QueryClassifier):
    """A conjunction of boolean and threshold features; the module's docstring describes the algorithm.

    - error, failure: in (0, 1). With probability >= 1 - failure the classifier's error is at most `error`, if labels
      are a conjunction's, flipped at a known rate `noise_rate` in [0, 1/2).
    - indicators: also take the values of category features as candidates.
    - part: of the oracle's budget.
    - require_rows: refuse below `rows_needed`: before the query if even the least possible noise is too much, after it
      if the stated noise is.

    After `fit_queries`: `features_`, the names of the features that must be true; `estimates_`; `warning_`, a sentence
    if no feature is kept, else None. An empty conjunction is true.
    """

    warning_: str | None

    def __init__(
        self,
        *,
        error: float = 0.1,
        failure: float = 0.05,
        noise_rate: float = 0.0,
        indicators: bool = False,
        part: Fraction | int = 1,
        require_rows: bool = True,
    ) -> None:
        self.error = error
        self.failure = failure
        self.noise_rate = noise_rate
        self.indicators = indicators
        self.part = part
        self.require_rows = require_rows

    def _learn(self, oracle: StatisticOracle) -> Vector:
        candidates = self._candidates(oracle.schema)
        d = len(candidates)
        _check(d, self.error, self.failure, self.noise_rate)
        predicates = [all_of((Not(literal.predicate), LabelIs(positive=True))) for literal in candidates]
        if self.require_rows:
            check_all_rows(oracle)
            asked, _ = corrected_batch(predicates, self.noise_rate)
            sensitivity = batch_sensitivity(asked)
            least = planned_noise(sensitivity.l1, sensitivity.l2_squared, oracle.epsilon, oracle.delta, self.part)
            self._require(
                oracle.rows, rows_needed(d, self.error, self.failure, noise_rate=self.noise_rate, noise=least)
            )
        estimates = oracle.statistic(
            predicates, part=Fraction(self.part), confidence=1.0 - self.failure, noise_rate=self.noise_rate
        )
        if self.require_rows:
            stated = _Stated(estimates.noise * estimates.rows * (1.0 - 2.0 * self.noise_rate))
            needed = rows_needed(d, self.error, self.failure, noise_rate=self.noise_rate, noise=stated)
            self._require(estimates.rows, needed)
        kept = [candidates[i] for i in np.flatnonzero(estimates.values <= self.error / (2.0 * d))]
        self.estimates_ = estimates
        self.features_ = tuple(literal.text for literal in kept)
        self.warning_ = None if kept else f"none of {d} features is kept, so the classifier predicts +1 everywhere"
        theta = np.zeros(oracle.schema.d)
        for literal in kept:
            add_literal(theta, literal, 2.0)
        # Each literal that holds adds 2: all k give 2 k, all except one 2 k - 2.
        theta[-1] += 1.0 - 2.0 * len(kept)
        return theta

    def _candidates(self, schema: Schema) -> tuple[Literal, ...]:
        candidates = flags(schema) + (indicators(schema) if self.indicators else ())
        if not candidates:
            raise SchemaError(
                f"schema {schema.name!r} has no boolean or threshold feature for a conjunction: add one, or set "
                "indicators to use the values of categories"
            )
        return candidates

    def _require(self, rows: int, needed: int) -> None:
        if rows < needed:
            raise SampleTooSmallError(needed=needed, rows=rows)


def rows_needed(d: int, error: float, failure: float, *, noise_rate: float = 0.0, noise: SumNoise | None = None) -> int:
    """The least number of rows for which a conjunction over d features is guaranteed; see the module's docstring.

    noise: on each count that the query asks for, d of them, 2 d if noise_rate is above 0. Raises ConfigurationError if
    an argument is out of range, PlanError if no number of rows is enough.
    """
    _check(d, error, failure, noise_rate)
    sampling_failure = failure if noise is None else failure / 2.0
    asked = d if noise_rate == 0.0 else 2 * d
    noise_width = 0.0 if noise is None else noise.half_width(asked, failure / 2.0) / (1.0 - 2.0 * noise_rate)

    def enough(rows: int) -> bool:
        failing = _log_failure(rows, d, error, noise_rate, noise_width / rows)
        return math.log(d) + failing <= math.log(sampling_failure)

    return least_rows(enough)


def _log_failure(rows: int, d: int, error: float, noise_rate: float, width: float) -> float:
    """The log of the larger of the two bounds for one feature, at most 0; falls with `rows` and grows with `width`."""
    threshold, kept = error / (2.0 * d), 1.0 - 2.0 * noise_rate
    if width >= threshold:
        return 0.0
    # With noise_rate 0 a feature of the target is never false in a positive row.
    above = math.inf if noise_rate == 0.0 else _divergence(noise_rate, (threshold - width) * kept)
    below = _divergence(noise_rate + 2.0 * threshold * kept, (width - threshold) * kept)
    return -rows * min(above, below)


def _divergence(b: float, gap: float) -> float:
    """K(b + gap, b), the Kullback-Leibler divergence of two Bernoulli distributions, in nats; 0 < b < 1.

    Its two terms are near +gap and -gap and nearly cancel, so a bound on the rounding error is subtracted.
    """
    a = b + gap
    exact = a * math.log1p(gap / b) + (1.0 - a) * math.log1p(-gap / (1.0 - b))
    return max(0.0, exact - 8.0 * math.ulp(1.0) * abs(gap))


class _Stated:
    """Noise with a half-width stated already, for all values and at half the failure."""

    def __init__(self, width: float) -> None:
        self._width = width

    def half_width(self, values: int, failure: float) -> float:  # noqa: ARG002  (stated for these)
        return self._width

    @property
    def deviation(self) -> float:
        return math.nan


def _check(d: int, error: float, failure: float, noise_rate: float) -> None:
    if d < 1:
        raise ConfigurationError(f"a conjunction over {d} features: give at least one")
    for name, value in (("error", error), ("failure", failure)):
        if not 0.0 < value < 1.0:
            raise ConfigurationError(f"{name} is {value}: it must be between 0 and 1")
    check_noise_rate(noise_rate)
