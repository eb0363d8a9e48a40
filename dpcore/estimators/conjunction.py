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
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, PlanError, SchemaError
from dpcore.estimators.oracle import StatisticOracle, check_all_rows
from dpcore.estimators.statistical_queries import (
    CLASSES,
    QueryClassifier,
    SignedLiteral,
    add_literal,
    all_of,
    encoded,
    flags,
    indicators,
)
from dpcore.estimators.statistical_queries import cuts as even_cuts
from dpcore.numbers.fixed_point import Vector
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.expressions import AtLeast, Equals, LabelIs, Not, Predicate
from dpcore.records.features import nearest
from dpcore.records.schema import RealFeature, Schema
from dpcore.statistics.accuracy import Estimates, SumNoise, check_noise_rate, corrected_batch, least_rows, planned_noise
from dpcore.statistics.pac import (
    CountNoise,
    GaussianCounts,
    LaplaceCounts,
    PacGuarantee,
    TooFewRowsError,
    count_noise,
    log_competitors,
    pac_rows,
    point_counts_guarantee,
    point_from_counts,
    threshold_counts,
    threshold_counts_guarantee,
    threshold_from_counts,
)

# Base of the estimators that choose the concept of fewest noisy errors, guaranteed from a number of rows on
# (dpcore.statistics.pac).
#
# If answers state only the noise's standard deviation D, the worst distribution that it may have is taken: one discrete
# Laplace variable on whole rows, of scale t = 1 / (2 asinh(1 / (sqrt(2) D))), with E exp(s noise) <= 1 / (1 - (s t)^2),
# s < 1 / t.
#
# A sum of c >= 1 such variables of total variance D^2, on a grid of unit u <= 1, has (1 - x / c)^-c with x = (D sinh(s
# u / 2) / u)^2 2, which falls with c and grows with u. For normal noise, exp(s^2 D^2 / 2) is below its limit exp(x).


MOST_VALUES = 4096
"""Largest domain that is counted value by value."""


def unstated_rows(needed: int) -> str:
    """The error message if `needed` rows are required and the number of rows is not known before the query."""
    return (
        f"no party states its rows, and at least {needed} are needed: state them (`rado provision init --party "
        "NAME=ROWS`), or set require_rows to False to query without the guarantee"
    )


class UnstatedRowsError(TooFewRowsError):
    """The guarantee needs rows and no party states any. `rows` is 0."""

    def __init__(self, needed: int) -> None:
        super().__init__(0, needed)
        self.args = (unstated_rows(needed),)


class CountedConcepts(QueryClassifier):
    """An estimator that uses counts; `_promise` gives its guarantee. After `fit_queries`: `guarantee_`.

    A row that is not usable is in no count: every concept is right on it. Errors are shares of all rows.
    """

    alpha: float
    beta: float
    """With probability >= 1 - beta the error is below alpha, beyond the best concept's if `agnostic`."""
    agnostic: bool
    part: Fraction
    """Of the oracle's budget."""
    require_rows: bool
    """Refuse if there are fewer rows than the guarantee needs, before the query where that is known."""

    @abstractmethod
    def _promise(self, noise: CountNoise, epsilon: Fraction, delta: Fraction) -> PacGuarantee:
        """The guarantee with this noise on a count, for a release that costs (epsilon, delta)."""

    def _count(self, oracle: StatisticOracle, predicates: Sequence[Predicate]) -> NDArray[np.float64]:
        """The noisy numbers of rows, in the order of `predicates`; sets `guarantee_`. Raises TooFewRowsError."""
        check_all_rows(oracle)
        # If the budget has a delta, a part of it is a part of its mu: the guarantee then states the whole epsilon.
        epsilon = oracle.epsilon * (self.part if oracle.delta == 0 else 1)
        if self.require_rows:
            least = self._least_noise(oracle, predicates)
            promised = min(
                (self._promise(noise, epsilon, oracle.delta) for noise in least), key=lambda found: found.rows
            )
            if not oracle.rows:
                raise UnstatedRowsError(promised.rows)
            promised.check_rows(oracle.rows)
        estimates = oracle.statistic(predicates, part=self.part)
        self.guarantee_ = self._promise(stated_noise(estimates), epsilon, oracle.delta)
        if self.require_rows:
            self.guarantee_.check_rows(estimates.rows)
        counts: NDArray[np.float64] = estimates.values * estimates.rows
        return counts

    def _least_noise(self, oracle: StatisticOracle, predicates: Sequence[Predicate]) -> list[CountNoise]:
        """Lower bounds on the noise that the federation may add; one of either kind if there is a delta."""
        sensitivity = batch_sensitivity(predicates)
        part = self.part if oracle.delta == 0 else Fraction(1)
        laplace = LaplaceCounts(float(sensitivity.l1 / (oracle.epsilon * part)))
        if oracle.delta == 0:
            return [laplace]
        normal = planned_noise(sensitivity.l1, sensitivity.l2_squared, oracle.epsilon, oracle.delta, self.part)
        return [laplace, GaussianCounts(normal.deviation)]


def stated_noise(estimates: Estimates) -> CountNoise:
    """The noise on each count, rows times an estimate: of the stated distribution, else the worst of its deviation."""
    distribution = estimates.shared_noise
    if distribution is None:
        return worst_noise(estimates.deviation * estimates.rows)
    return count_noise(distribution.shares, distribution.parties, distribution.fraction_bits)


def worst_noise(deviation: float) -> CountNoise:
    """The worst-case noise of the module's docstring, of this standard deviation in rows; none at 0."""
    if deviation == 0.0:
        return GaussianCounts(0.0)
    return LaplaceCounts(1.0 / (2.0 * math.asinh(1.0 / (math.sqrt(2.0) * deviation))))


# A point function over a category feature: +1 for rows of one value, -1 for all others. One release counts the rows of
# each value and label (sensitivity 2); the value with the fewest errors by the counts is chosen.


class PrivatePoint(CountedConcepts):
    """A point function, estimated from counts; see `CountedConcepts`.

    feature: a category, of at most 4096 values. empty: -1 everywhere may be chosen too; then `value_` is None.
    """

    def __init__(
        self,
        feature: str,
        *,
        empty: bool = False,
        alpha: float = 0.1,
        beta: float = 0.05,
        agnostic: bool = False,
        part: Fraction = Fraction(1),
        require_rows: bool = True,
    ) -> None:
        self.feature = feature
        self.empty = empty
        self.alpha = alpha
        self.beta = beta
        self.agnostic = agnostic
        self.part = part
        self.require_rows = require_rows

    def _learn(self, oracle: StatisticOracle) -> Vector:
        values = _values(oracle.schema, self.feature)
        self._concepts = len(values) + self.empty
        counts = self._count(
            oracle, [all_of((Equals(self.feature, value), label)) for label in reversed(CLASSES) for value in values]
        ).reshape(2, -1)
        # Pad to a power of two: with zero counts, whose concept is the empty one; else with copies of the last value's
        # counts, which lose ties to it.
        padding = ((0, 0), (0, (1 << self._bits) - len(values)))
        padded = np.pad(counts, padding) if self.empty else np.pad(counts, padding, mode="edge")
        chosen = point_from_counts(padded)
        self.value_ = values[chosen] if chosen < len(values) else None
        theta = np.zeros(oracle.schema.d)
        theta[-1] = -1.0
        if self.value_ is not None:
            theta[oracle.schema.coordinate(f"{self.feature}={self.value_}")] = 2.0
        return theta

    @property
    def _bits(self) -> int:
        return max(1, (self._concepts - 1).bit_length())

    def _promise(self, noise: CountNoise, epsilon: Fraction, delta: Fraction) -> PacGuarantee:
        return point_counts_guarantee(self._bits, self.alpha, self.beta, noise, epsilon, delta, agnostic=self.agnostic)


def _values(schema: Schema, name: str) -> tuple[str, ...]:
    features = {feature.name: feature for feature in schema.categories}
    if name not in features:
        known = nearest(name, features) if features else "it has none"
        raise SchemaError(f"schema {schema.name!r} has no category feature {name!r}; {known}")
    values = features[name].values
    if len(values) > MOST_VALUES:
        raise PlanError(
            f"feature {name!r} has {len(values)} values and at most {MOST_VALUES} can be counted: group them, or train "
            "on the rows themselves (dpcore.research.pac_classes.learn_point takes 2^62)"
        )
    return values


# A threshold on a real feature, at a cut of an even grid between its declared bounds.
#
# One release counts the rows of each label in dyadic intervals: k + 1 histograms for 2^k cells, of sensitivity 2 (k +
# 1). With L(s) the log moment generating function of one count's noise, for either direction
#
#     K(s) <= K_same(s) + (2^k + 1) exp(2 k L(2 s) + 2 L(s)).
#
# Proof: docs/explanation/proofs.md, "Rows for a threshold in either direction".


Direction = Literal["above", "below", "either"]

_HALF_UNIT = 2.0**-31
"""Half of the unit in which coordinates are stored, so that a coordinate exactly at a cut counts as at least it."""


class PrivateThreshold(CountedConcepts):
    """A threshold, estimated from counts; see `CountedConcepts`.

    feature: a real one. cuts: a power of two from 2 to 4096. direction: which side is +1; "above" includes the cut.
    After `fit_queries`: `cut_` in the feature's units, None for one class everywhere, and `direction_`.
    """

    def __init__(
        self,
        feature: str,
        *,
        cuts: int = 64,
        direction: Direction = "above",
        alpha: float = 0.1,
        beta: float = 0.05,
        agnostic: bool = False,
        part: Fraction = Fraction(1),
        require_rows: bool = True,
    ) -> None:
        self.feature = feature
        self.cuts = cuts
        self.direction = direction
        self.alpha = alpha
        self.beta = beta
        self.agnostic = agnostic
        self.part = part
        self.require_rows = require_rows

    def _learn(self, oracle: StatisticOracle) -> Vector:
        self._check()
        feature = _real(oracle.schema, self.feature)
        bounds = even_cuts(feature, self.cuts - 1)
        intervals = threshold_counts(self._bits).intervals
        # Order intervals by length, so that each length is recognised as a histogram.
        order = sorted(range(len(intervals)), key=lambda place: intervals[place][1] - intervals[place][0])
        predicates = [
            all_of((*_within(feature, bounds, *intervals[place]), label))
            for place in order
            for label in reversed(CLASSES)
        ]
        counts = np.empty((2, len(intervals)))
        counts[:, order] = self._count(oracle, predicates).reshape(-1, 2).T
        chosen, above = self._choose(counts)
        self.direction_ = "above" if above else "below"
        self.cut_ = float(bounds[chosen - 1]) if 0 < chosen < self.cuts else None
        theta = np.zeros(oracle.schema.d)
        if self.cut_ is None:
            theta[-1] = 1.0 if chosen == 0 else -1.0
        else:
            theta[oracle.schema.coordinate(self.feature)] = 1.0
            theta[-1] = _HALF_UNIT - encoded(feature, bounds[chosen - 1])
        return theta if above else -theta

    @property
    def _bits(self) -> int:
        return self.cuts.bit_length() - 1

    def _check(self) -> None:
        if self.direction not in {"above", "below", "either"}:
            raise ConfigurationError(f"direction is {self.direction!r}: choose above, below or either")
        if self.cuts > MOST_VALUES:
            raise PlanError(
                f"cuts is {self.cuts} and at most {MOST_VALUES} can be counted: take a coarser grid, or train on the "
                "rows themselves (dpcore.research.pac_classes.learn_threshold takes 2^62)"
            )
        if self.cuts < 2 or self.cuts & (self.cuts - 1):
            raise ConfigurationError(f"cuts is {self.cuts}: give a power of two from 2 to {MOST_VALUES}")

    def _choose(self, counts: NDArray[np.float64]) -> tuple[int, bool]:
        """The cut, 0 to 2^k, and whether the side above it is +1."""
        below, above = threshold_from_counts(counts), threshold_from_counts(counts[::-1])
        if self.direction != "either":
            return (above, True) if self.direction == "above" else (below, False)
        gains = counts[0] - counts[1]
        better = gains[-1] - _below(gains, above) < _below(gains, below)
        return (above, True) if better else (below, False)

    def _promise(self, noise: CountNoise, epsilon: Fraction, delta: Fraction) -> PacGuarantee:
        bits = self._bits
        if self.direction != "either":
            return threshold_counts_guarantee(
                bits, self.alpha, self.beta, noise, epsilon, delta, agnostic=self.agnostic
            )

        def log_both(s: float) -> float:
            same = log_competitors(bits, noise.log_mgf(s))
            other = math.log(self.cuts + 1) + 2 * bits * noise.log_mgf(2 * s) + 2 * noise.log_mgf(s)
            return float(np.logaddexp(same, other))

        rows = pac_rows(log_both, self.alpha, self.beta, noise.reach / 2, agnostic=self.agnostic)
        return PacGuarantee(self.alpha, self.beta, epsilon, delta, rows, "federated", self.agnostic)


def _below(gains: NDArray[np.float64], cut: int) -> float:
    """The sum of all cells below a cut, from dyadic intervals: one for each set bit of `cut`."""
    total = 0.0
    while cut:
        total += float(gains[cut - 1])
        cut &= cut - 1
    return total


def _within(feature: RealFeature, bounds: tuple[Fraction, ...], low: int, high: int) -> tuple[Predicate, ...]:
    """Predicates for the feature in cells low to high - 1; empty if those are all cells."""
    from_low = (AtLeast(feature.name, feature.bound(bounds[low - 1])),) if low else ()
    below_high = (Not(AtLeast(feature.name, feature.bound(bounds[high - 1]))),) if high <= len(bounds) else ()
    return (*from_low, *below_high)


def _real(schema: Schema, name: str) -> RealFeature:
    features = {feature.name: feature for feature in schema.numbers}
    if name not in features:
        known = nearest(name, features) if features else "it has none"
        raise SchemaError(f"schema {schema.name!r} has no real feature {name!r}; {known}")
    return features[name]


class SampleTooSmallError(PlanError):
    """The sample is too small. needed: rows that suffice. rows: those available, 0 if no party states any."""

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

    - error, failure: in (0, 1); for labels of a conjunction, flipped at the rate `noise_rate` in [0, 1/2).
    - indicators: also take the values of category features as candidates.
    - require_rows: refuse below `rows_needed`, before the query where that is known.

    After `fit_queries`: `features_`, names that must be true; `estimates_`; `warning_` if none is kept, else None.
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

    def _candidates(self, schema: Schema) -> tuple[SignedLiteral, ...]:
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
    """The least rows for which a conjunction over d features is guaranteed. noise: on each count of the query.

    Raises ConfigurationError if an argument is out of range, PlanError if no number of rows is enough.
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
    """K(b + gap, b), the Kullback-Leibler divergence of two coins, in nats; less a bound on its rounding error."""
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
