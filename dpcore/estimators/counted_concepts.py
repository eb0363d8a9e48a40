"""Base of the estimators that choose the concept of fewest noisy errors, with a guarantee for enough rows.

dpcore.pac has the guarantees. They need a bound on the moments of a count's noise, which follows from its distribution.

If answers state its standard deviation D only, the worst of all distributions that it may have
(dpcore.accounting.noise_shares) is taken: one discrete Laplace variable, on whole rows, of that D. Its scale is t = 1 /
(2 asinh(1 / (sqrt(2) D))), and

    E exp(s noise) <= 1 / (1 - (s t)^2),    s < 1 / t.

A sum of c >= 1 such variables of total variance D^2, on any grid of unit u <= 1, has (1 - x / c)^-c with x = (D sinh(s
u / 2) / u)^2 2, which falls with c and grows with u. For normal noise, exp(s^2 D^2 / 2) is below its limit exp(x).
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.estimators.oracle import StatisticOracle, check_all_rows
from dpcore.estimators.query_learner import QueryClassifier
from dpcore.pac.counts import CountNoise, GaussianCounts, LaplaceCounts, count_noise
from dpcore.pac.guarantee import PacGuarantee, TooFewRowsError
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.expressions import Predicate
from dpcore.statistics.estimates import Estimates
from dpcore.statistics.noise import planned_noise

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
    """An estimator that uses counts; `_promise` gives its guarantee.

    A row that is not usable is in no count: every concept is right on it. Errors are shares of all rows.

    After `fit_queries`: `guarantee_`, for any number of rows.
    """

    alpha: float
    beta: float
    """With probability >= 1 - beta the error is below alpha, if labels are those of a concept of the class; if
    `agnostic`, below that of the best concept plus alpha, for any labels."""
    agnostic: bool
    part: Fraction
    """Of the oracle's budget."""
    require_rows: bool
    """Refuse if there are fewer rows than the guarantee needs: before the query if even the least possible noise is too
    much, after it if the stated noise is."""

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
    distribution = estimates.distribution
    if distribution is None:
        return worst_noise(estimates.deviation * estimates.rows)
    return count_noise(distribution.shares, distribution.parties, distribution.fraction_bits)


def worst_noise(deviation: float) -> CountNoise:
    """The worst-case noise of the module's docstring, of this standard deviation in rows; none at 0."""
    if deviation == 0.0:
        return GaussianCounts(0.0)
    return LaplaceCounts(1.0 / (2.0 * math.asinh(1.0 / (math.sqrt(2.0) * deviation))))
