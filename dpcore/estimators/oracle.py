"""What learners that ask see of a federation: answers to sum queries within one budget, and never a row.

A learner of dpcore.estimators with `fit_queries(oracle)` runs wherever there is an oracle: over gRPC, in a simulation,
or in a test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, DataError
from dpcore.predicates.expressions import Predicate
from dpcore.records.basis import Basis
from dpcore.records.margin_weights import Loss
from dpcore.records.schema import Schema
from dpcore.statistics.estimates import Estimates
from dpcore.statistics.moments import Moments

WHOLE = Fraction(1)


@dataclass(frozen=True, eq=False)
class GradientEstimate:
    """The mean over m records of the clipped gradient of a loss, with noise; valid from construction.

    mean: (d,) float64, read-only. deviation: the standard deviation of the noise on each coordinate. rows: m, public.
    Raises DataError where a value is not finite, ConfigurationError where a figure is out of range.
    """

    mean: NDArray[np.float64]
    deviation: float
    rows: int

    def __post_init__(self) -> None:
        mean = np.array(self.mean, dtype=np.float64)
        if mean.ndim != 1 or not np.isfinite(mean).all():
            raise DataError("a gradient is not finite: decode the release again, or ask its query again")
        if self.rows < 1 or not self.deviation >= 0:
            raise ConfigurationError("a gradient has at least one row and noise that is not negative: give what it had")
        mean.setflags(write=False)
        object.__setattr__(self, "mean", mean)


class Asked(Protocol):
    """What everything that can be asked knows. A learner asks one of the protocols below, and no more than it needs.

    `part`, of every question: the fraction of the budget's squared mu (of its epsilon, where delta is 0) that one
    release takes; the parts of all that a learner asks add up to at most 1, and then all answers together are
    (epsilon, delta)-private, however each question depends on earlier answers: the noise does not (Dong, Roth and Su
    2022, Corollary 2: adaptive composition of Gaussian mechanisms).

    Every question raises PlanError where it cannot be asked, with what would work, before anybody is asked;
    ConfigurationError where an argument is out of range or the parts exceed 1; OracleRefusedError where the federation
    does not answer.
    """

    @property
    def schema(self) -> Schema:
        """How rows become coordinates."""
        ...


class StatisticOracle(Asked, Protocol):
    """What answers statistical queries."""

    @property
    def rows(self) -> int:
        """What the parties state, at least: what a learner plans with."""
        ...

    @property
    def epsilon(self) -> Fraction:
        """Of the whole budget."""
        ...

    @property
    def delta(self) -> Fraction:
        """Of the whole budget; 0 where it is pure."""
        ...

    def statistic(
        self,
        predicates: Sequence[Predicate],
        *,
        part: Fraction = WHOLE,
        tolerance: float | None = None,
        confidence: float = 0.95,
        noise_rate: float = 0.0,
    ) -> Estimates:
        """Estimates of E[phi(x, y)] for a batch of predicates, which is one release.

        tolerance: what every estimate must keep with probability `confidence`, all of them at once; None takes what
        there is. noise_rate: eta, at which labels are known to be flipped; estimates are of the unflipped ones.
        """
        ...


class MomentsOracle(Asked, Protocol):
    """What answers moments."""

    def moments(self, *, part: Fraction = WHOLE, norm_bound: Fraction | None = None) -> Moments:
        """Noisy sums of edges and of products, of records clipped to length `norm_bound`.

        norm_bound: R; None leaves the choice to whoever answers.
        """
        ...


class GradientOracle(Asked, Protocol):
    """What answers gradients."""

    def gradient(
        self,
        theta: NDArray[np.float64],
        *,
        clip: Fraction,
        part: Fraction = WHOLE,
        loss: Loss = "logistic",
        basis: Basis | None = None,
    ) -> GradientEstimate:
        """The mean over records of the gradient of `loss` at theta (d,), each record's clipped to length `clip`.

        basis: P; records are then written as P e first, and theta and the gradient are in those coordinates.
        """
        ...


class MomentsAndGradients(MomentsOracle, GradientOracle, Protocol):
    """What answers both, within one budget."""


class Oracle(StatisticOracle, MomentsAndGradients, Protocol):
    """A federation, asked whatever it answers within (epsilon, delta) in all."""
