"""A threshold on a real feature, at one of the cuts of an even grid between its declared bounds.

One release counts the rows of each label in dyadic intervals of the grid: k + 1 histograms for 2^k cells, so the
sensitivity is 2 (k + 1).

The errors of each cut are sums of at most k counts a label, and the cut of the fewest errors is chosen
(dpcore.research.pac.thresholds). With L(s) the log moment generating function of one count's noise, for either
direction

    K(s) <= K_same(s) + (2^k + 1) exp(2 k L(2 s) + 2 L(s)).

Proof: docs/explanation/proofs.md, "Rows for a threshold in either direction".
"""

import math
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, PlanError, SchemaError
from dpcore.estimators.base import Vector
from dpcore.estimators.contingency import cuts as even_cuts
from dpcore.estimators.contingency import encoded
from dpcore.estimators.counted_concepts import MOST_VALUES, CountedConcepts
from dpcore.estimators.oracle import StatisticOracle
from dpcore.estimators.query_learner import CLASSES, all_of
from dpcore.pac.counts import CountNoise
from dpcore.pac.guarantee import PacGuarantee
from dpcore.pac.sample_size import least_rows
from dpcore.pac.threshold_counts import (
    log_competitors,
    threshold_counts,
    threshold_counts_guarantee,
    threshold_from_counts,
)
from dpcore.predicates.expressions import AtLeast, Not, Predicate
from dpcore.records.features import nearest
from dpcore.records.schema import RealFeature, Schema

Direction = Literal["above", "below", "either"]

_HALF_UNIT = 2.0**-31
"""Half of the unit in which coordinates are stored, so that a coordinate exactly at a cut counts as at least it."""


class PrivateThreshold(CountedConcepts):
    """A threshold, estimated from counts; see `CountedConcepts` for alpha, beta, agnostic, part and require_rows.

    feature: a real one. cuts: cells of the grid, a power of two from 2 to 4096. direction: which side is +1; "above"
    includes the cut itself. After `fit_queries`: `cut_`, in the feature's units, None if one class is predicted
    everywhere, and `direction_`.
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
                "rows themselves (dpcore.research.pac.thresholds.learn_threshold takes 2^62)"
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

        rows = least_rows(log_both, self.alpha, self.beta, noise.reach / 2, agnostic=self.agnostic)
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
