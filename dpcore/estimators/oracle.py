"""Oracles: how querying estimators see a federation. They answer sum queries within one budget and show no row.

An estimator with `fit_queries(oracle)` runs with any oracle: over gRPC, in a simulation, or in a test.
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
from dpcore.records.feature_map import FeatureMap
from dpcore.records.margin_weights import LossName
from dpcore.records.schema import Schema
from dpcore.statistics.estimates import Estimates
from dpcore.statistics.moments import Moments

WHOLE = Fraction(1)


@dataclass(frozen=True, eq=False)
class GradientEstimate:
    """The mean over m records of the clipped gradient of a loss, with noise; valid from construction.

    Raises DataError if a value is not finite, ConfigurationError if a figure is out of range.
    """

    mean: NDArray[np.float64]
    """(d,) float64, read-only."""
    deviation: float
    """The standard deviation of the noise on each coordinate."""
    rows: int
    """m, public."""

    def __post_init__(self) -> None:
        mean = np.array(self.mean, dtype=np.float64)
        if mean.ndim != 1 or not np.isfinite(mean).all():
            raise DataError("a gradient is not finite: decode the release again, or run its query again")
        if self.rows < 1 or not self.deviation >= 0:
            raise ConfigurationError("a gradient needs rows >= 1 and deviation >= 0: pass those of the release")
        mean.setflags(write=False)
        object.__setattr__(self, "mean", mean)


class Asked(Protocol):
    """Base of the oracle protocols below. An estimator takes the narrowest of them that it needs.

    `part`, of every query: the fraction of the budget's squared mu (of its epsilon, if delta is 0) that one release
    takes. The parts of all queries of an estimator add up to at most 1.

    The composition of all answers is then (epsilon, delta)-private, even if queries depend on earlier answers, because
    the noise does not (Dong, Roth and Su 2022, Corollary 2).

    Every query raises, before any party receives it:

    Raises:
        PlanError: it is infeasible; the error has a feasible alternative.
        ConfigurationError: an argument is out of range, or the parts exceed 1.
        OracleRefusedError: the federation does not answer.
    """

    @property
    def schema(self) -> Schema:
        """How rows become coordinates."""
        ...


class StatisticOracle(Asked, Protocol):
    """An oracle that answers statistical queries."""

    @property
    def rows(self) -> int:
        """A lower bound on the number of rows, as parties state it; used for planning."""
        ...

    @property
    def epsilon(self) -> Fraction:
        """Epsilon of the whole budget."""
        ...

    @property
    def delta(self) -> Fraction:
        """Delta of the whole budget; 0 for pure differential privacy."""
        ...

    def statistic(
        self,
        predicates: Sequence[Predicate],
        *,
        part: Fraction = WHOLE,
        tolerance: float | None = None,
        confidence: float = 0.95,
        noise_rate: float = 0.0,
        feature_map: FeatureMap | None = None,
    ) -> Estimates:
        """Estimates of E[phi(x, y)] for a batch of predicates, in one release.

        tolerance: what all estimates together must keep with probability `confidence`; None accepts any. noise_rate:
        eta, the known rate at which labels are flipped; estimates are for the unflipped labels. feature_map: what
        records are mapped by before forms are evaluated.
        """
        ...


def check_all_rows(oracle: Asked) -> None:
    """Raise ConfigurationError if the oracle answers about a part of the rows (dpcore.records.held_back).

    For guarantees: they are counted for a known number of rows, and only the average of a part's is known.
    """
    if getattr(oracle, "held_back", None) is not None:
        raise ConfigurationError(
            "a guarantee needs a known number of rows, and how many are left if some are held back is not known: hold "
            "none back, or choose an estimator without a guarantee"
        )


def check_left(oracle: Asked, needed: Fraction = WHOLE, *, shrinks: bool = False) -> None:
    """Raise ConfigurationError if less of the oracle's budget is left than the estimator will ask for in all.

    To be called before its first query: what stops in the middle is charged, and makes no model. shrinks: whether the
    estimator's `part` sets what it asks for. An oracle without a budget always has enough.
    """
    left: Fraction = getattr(oracle, "left", WHOLE)
    if needed <= left:
        return
    smaller = f"set part to {left} or less, or " if shrinks and left else ""
    raise ConfigurationError(
        f"the estimator's queries take {float(needed):.4g} of the budget, and {float(left):.4g} of it is left, so it "
        f"asks nothing: {smaller}give it an oracle of its own, with federation.within(epsilon, delta)"
    )


class MomentsOracle(Asked, Protocol):
    """An oracle that answers moments."""

    def moments(
        self,
        *,
        part: Fraction = WHOLE,
        norm_bound: Fraction | None = None,
        edge_weight: Fraction | None = None,
        feature_map: FeatureMap | None = None,
    ) -> Moments:
        """Noisy sums of edges and of products, of records clipped to length `norm_bound`.

        norm_bound: the clipping norm R; None leaves the choice to the oracle. edge_weight: a, as for
        `dpcore.queries.norms.edge_multiplier`: the smaller, the less noise on products. feature_map: what records are
        mapped by before they are clipped; sums are then of its coordinates.
        """
        ...


class GradientOracle(Asked, Protocol):
    """An oracle that answers gradients."""

    def gradient(
        self,
        theta: NDArray[np.float64],
        *,
        clip: Fraction,
        part: Fraction = WHOLE,
        loss: LossName = "logistic",
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
    ) -> GradientEstimate:
        """The mean over records of the gradient of `loss` at theta (d,), each record's clipped to length `clip`.

        basis: P; records are first transformed to P e, and theta and the gradient are in those coordinates.
        feature_map: as in `MomentsOracle`; e is then the edge of the mapped record.
        """
        ...


class MomentsAndGradients(MomentsOracle, GradientOracle, Protocol):
    """An oracle that answers both, within one budget."""


class Oracle(StatisticOracle, MomentsAndGradients, Protocol):
    """A federation that answers every kind of query within (epsilon, delta) in total."""
