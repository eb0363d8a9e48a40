"""Boosting of the regularised exponential rado loss: ridge, lasso, l-infinity and SLOPE (Nock, NIPS 2016).

The source is "On regularizing Rademacher observation losses", arXiv 1512.05244. The objective is, with omega the
strength and Omega the regulariser (and pi_j less a centre, by default most of the rados' mean, see
dpcore.estimators.radoboost),

    F(theta) = log((1/n) sum_j exp(-theta . pi_j)) + omega Omega(theta).

Each round moves the coordinate k of largest slope of F over pi_*k = max_j |pi_jk|. With w the weights of the rados, r =
sum_j w_j pi_jk / pi_*k and b = atanh(r),

    F(theta + alpha 1_k) - F(theta) <= log(cosh(b - alpha pi_*k) / cosh(b))
                                       + omega (Omega(theta + alpha 1_k) - Omega(theta)).

alpha minimises this bound, so F never rises. (The paper takes AdaBoost's step for every Omega, which can raise F.)

Where Omega is no sum over coordinates, a round may move a group of one magnitude instead: single ones stop short of the
minimum. Over few rados F is unbounded below unless omega is large.

Proof: docs/explanation/proofs.md, "Regularised boosting".
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import RadoClassifier, RadoSample
from dpcore.estimators.boosting import LARGEST_EDGE
from dpcore.estimators.moments_discriminant import Spread, products_of
from dpcore.estimators.rado_dual import lowest_value
from dpcore.estimators.radoboost import centre_of
from dpcore.estimators.regularisers import Group, Regulariser, Ridge, SortedNorm
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.numbers.progress import Progress

BISECTIONS = 60
"""Halvings of the interval that holds the new coordinate."""

SMALL_GAP = 0.01
"""A gap to the minimum, in nats, that needs no warning."""

SAME_SIZE = 1e-14
"""Coordinates whose magnitudes differ relatively by at most this are equal up to rounding."""


@dataclass(frozen=True, eq=False)
class _Boosted:
    """theta (d,)."""

    theta: Vector
    objective: Vector
    """F at the start and after each round."""
    finished: bool
    """No coordinate and no group of them had a slope left."""
    weights: Vector
    """The weights of the rados at theta, (n,)."""


@dataclass(frozen=True)
class Rounds:
    """At most n_rounds rounds; they stop when no slope over pi_* exceeds smallest_edge."""

    n_rounds: int
    smallest_edge: float


def all_alike(count: int) -> Vector:
    """Equal shares of this many rados."""
    return np.full(count, 1.0 / count)


def boost_regularised(
    rados: Matrix,
    shares: Vector,
    regulariser: Regulariser,
    strength: float,
    rounds: Rounds,
    *,
    centre: Vector | None = None,
) -> _Boosted:
    """Boosting rounds from theta = 0 on F, with the mean over rados (n, d) weighted by shares (n,), which sum to 1.

    centre: (d,), subtracted from every rado; None is zero.
    """
    kept = shares > 0
    centre = np.zeros(rados.shape[1]) if centre is None else centre
    largest = _largest_sizes(rados, kept, centre)
    largest = np.where(largest > 0, largest, 1.0)
    theta, margins = np.zeros(rados.shape[1]), np.zeros(len(rados))
    weights = shares
    objective = [0.0]
    for _ in range(rounds.n_rounds):
        mean = weights @ rados - centre
        move = _steepest(theta, mean, regulariser, strength, largest)
        if move.gain <= rounds.smallest_edge:
            return _Boosted(theta, np.array(objective), finished=True, weights=weights)
        column = rados[:, move.members] @ move.signs - float(centre[move.members] @ move.signs)
        reach = float(np.abs(column).max(initial=0.0, where=kept)) or 1.0
        old = float(theta[move.members[0]] * move.signs[0])
        edge = float(mean[move.members] @ move.signs) / reach
        value = _step(edge, reach, old, strength, regulariser.along(theta, move.members))
        value = _snap(value, np.abs(np.delete(theta, move.members)))
        margins += (value - old) * column
        theta[move.members] = value * move.signs
        shift = float(margins.min(initial=np.inf, where=kept))
        # An unused rado may have a margin far below the others', so its exponential is not computed.
        weights = np.exp(shift - margins, out=np.zeros_like(shares), where=kept)
        weights *= shares
        total = float(weights.sum())
        weights /= total
        objective.append(math.log(total) - shift + strength * regulariser.value(theta))
    return _Boosted(theta, np.array(objective), finished=False, weights=weights)


def _steepest(theta: Vector, mean: Vector, regulariser: Regulariser, strength: float, largest: Vector) -> Group:
    """The coordinate, or group, of largest slope of F over pi_*."""
    edges = mean / largest
    below, above = regulariser.slopes(theta)
    outward = np.where(theta == 0, np.abs(edges), np.sign(theta) * edges) - strength * above / largest
    inward = np.where(theta == 0, 0.0, strength * below / largest - np.sign(theta) * edges)
    gains = np.maximum(outward, inward)
    feature = int(np.argmax(gains))
    gain, group = float(gains[feature]), regulariser.steepest_group(theta, mean, strength, largest)
    # A group of separable terms has a gain between its members': rounding must not make it the larger.
    if group is not None and group.gain > gain * (1 + 1e-9):
        return group
    return Group(gain, np.array([feature]), np.ones(1))


def _largest_sizes(rados: Matrix, kept: NDArray[np.bool_], centre: Vector) -> Vector:
    """max_j |pi_jk - centre_k| over the rados kept, (d,)."""
    among = kept[:, np.newaxis]
    highest = rados.max(axis=0, initial=-np.inf, where=among)
    largest: Vector = np.maximum(highest - centre, centre - rados.min(axis=0, initial=np.inf, where=among))
    return largest


def _snap(value: float, others: Vector) -> float:
    """The value, or another coordinate's magnitude if bisection ended next to it, where Omega has a kink."""
    if not len(others):
        return value
    nearest = float(others[np.argmin(np.abs(others - abs(value)))])
    return math.copysign(nearest, value) if math.isclose(nearest, abs(value), rel_tol=SAME_SIZE) else value


def _step(edge: float, largest: float, old: float, strength: float, slope: Callable[[float], float]) -> float:
    """The coordinate's value that minimises the module's bound, from `old`: a root of its derivative, by bisection."""
    reach = math.atanh(math.copysign(min(abs(edge), LARGEST_EDGE), edge))

    def loss_slope(value: float) -> float:
        return -largest * math.tanh(reach - (value - old) * largest)

    at_zero = loss_slope(0.0)
    if abs(at_zero) <= strength * slope(0.0):
        return 0.0
    # The regulariser pulls towards zero, so the minimiser is between zero and the unregularised one.
    sign = -math.copysign(1.0, at_zero)
    low, high = 0.0, sign * (old + reach / largest)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        if sign * loss_slope(sign * middle) + strength * slope(middle) < 0:
            low = middle
        else:
            high = middle
    return sign * low


class RegularisedRadoBoost(RadoClassifier, ABC):
    """Boosting of the regularised exponential rado loss; subclasses define the regulariser.

    - n_rounds: T, the maximum number of rounds.
    - recentre: t > 0, the rados' mean is first multiplied by t / sqrt(m), as by `RadoBoost`; None boosts the rados as
      they are.
    - strength: omega, at least 0, in nats per unit of Omega. None chooses it among `FRACTIONS` of the regulariser's
      unit by cross-validation: the theta from some rados must have the largest correlation with the labels as estimated
      from the others, (theta . mu)^2 / (m theta . S theta). Only then is noise in the rados corrected for.
    - n_folds: at least 2, the folds of rados that choose the strength.
    - smallest_edge: boosting stops once no coordinate's slope over pi_*k is larger.
    - n_rados, random_state: as in `RadoClassifier`.

    All coordinates are regularised, including the bias: unregularised, it alone would separate the rados of unequal
    classes.

    After fitting, besides what `RadoClassifier` sets: `strength_`, the omega used; `objective_`, F at the start and
    after each round, in nats, never rising; `finished_`, whether no coordinate or group could improve; `correlation_`,
    the cross-validated correlation, signed, for each fraction, or None if the strength was given.

    `gap_`: the last F is above its minimum by at most this, in nats; inf if F may have none. `warning_` says so where
    the rounds ended early, else None.
    """

    FRACTIONS: ClassVar[tuple[float, ...]]

    def __init__(
        self,
        n_rounds: int = 1000,
        *,
        recentre: float | None = 1.0,
        strength: float | None = None,
        n_folds: int = 3,
        smallest_edge: float = 1e-6,
        n_rados: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(n_rados=n_rados, random_state=random_state)
        self.n_rounds = n_rounds
        self.recentre = recentre
        self.strength = strength
        self.n_folds = n_folds
        self.smallest_edge = smallest_edge

    @abstractmethod
    def _regulariser(self, d: int) -> Regulariser:
        """Omega over d coordinates."""

    def _learn(self, release: RadoSample, progress: Progress | None) -> Vector:
        self._check()
        rados, shares = release.rados, all_alike(len(release.rados))
        d = rados.shape[1]
        centre = np.zeros(d) if self.recentre is None else centre_of(release, self.recentre)
        regulariser = self._regulariser(d)
        self.correlation_: Vector | None = None
        if self.strength is None:
            self.correlation_ = self._validate(release, centre, regulariser, progress)
            fraction = self.FRACTIONS[int(np.argmax(self.correlation_))]
            self.strength_ = fraction * regulariser.unit(rados, shares, centre)
        else:
            self.strength_ = float(self.strength)
        boosted = boost_regularised(rados, shares, regulariser, self.strength_, self._rounds, centre=centre)
        self.objective_, self.finished_ = boosted.objective, boosted.finished
        lowest = lowest_value(rados, shares, boosted.weights, regulariser, self.strength_, centre)
        self.gap_ = max(0.0, float(boosted.objective[-1]) - lowest)
        self.warning_ = self._warning()
        return boosted.theta

    def _warning(self) -> str | None:
        # Without a regulariser the number of rounds takes its place, and F need not have a minimum.
        if self.finished_ or not self.strength_ or self.gap_ <= SMALL_GAP:
            return None
        if math.isinf(self.gap_):
            return f"after {self.n_rounds} rounds the loss still falls and may have no minimum: give a larger strength"
        return (
            f"after {self.n_rounds} rounds the regularised loss is within {self.gap_:.3g} nats of its minimum: for a "
            "smaller gap, raise n_rounds"
        )

    @property
    def _rounds(self) -> Rounds:
        return Rounds(self.n_rounds, self.smallest_edge)

    def _check(self) -> None:
        if self.n_rounds < 1:
            raise ConfigurationError(f"n_rounds is {self.n_rounds}: boost for at least one round")
        if self.strength is not None and not (math.isfinite(self.strength) and self.strength >= 0):
            raise ConfigurationError(f"strength is {self.strength}: it must be finite and at least 0, or None")
        if self.n_folds < 2:
            raise ConfigurationError(f"n_folds is {self.n_folds}: cross-validation needs at least 2")
        if not 0 <= self.smallest_edge < 1:
            raise ConfigurationError(f"smallest_edge is {self.smallest_edge}: it must be in [0, 1)")

    def _validate(
        self, release: RadoSample, centre: Vector, regulariser: Regulariser, progress: Progress | None
    ) -> Vector:
        """Signed correlation for each of `FRACTIONS`; 0 if theta is 0 or noise leaves no positive variance.

        Rados are boosted less the centre (d,), and measured as they are.
        """
        rados, rows = release.rados, release.rows
        mean = rados.mean(axis=0)
        mu = mean / release.distribution.inclusion
        folds = min(self.n_folds, len(rados))
        linear, square = np.zeros(len(self.FRACTIONS)), np.zeros(len(self.FRACTIONS))
        fold = np.arange(len(rados)) % folds
        for number in range(folds):
            held_out = Spread.of(rados[number::folds])
            products = products_of(held_out.about(mean) / held_out.count, mu, rows, release.distribution)
            shares = (fold != number) / (len(rados) - held_out.count)
            unit = regulariser.unit(rados, shares, centre)
            for index, fraction in enumerate(self.FRACTIONS):
                strength = fraction * unit
                theta = boost_regularised(rados, shares, regulariser, strength, self._rounds, centre=centre).theta
                # The scale of theta differs between folds and is irrelevant to its direction.
                theta = theta / max(float(np.abs(theta).max()), np.finfo(np.float64).tiny)
                linear[index] += theta @ mu
                square[index] += theta @ products @ theta
                if progress is not None:
                    progress(number * len(self.FRACTIONS) + index + 1, folds * len(self.FRACTIONS))
        positive = square > 0
        correlation: Vector = np.where(
            positive, linear * np.abs(linear) / (rows * np.where(positive, square, 1.0)), 0.0
        )
        return correlation / folds


class RadoBoostL2(RegularisedRadoBoost):
    """`RegularisedRadoBoost` with the ridge, Omega(theta) = |theta|_2^2 / 2."""

    FRACTIONS = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)

    def _regulariser(self, d: int) -> Regulariser:  # noqa: ARG002  the ridge has no weights to size
        return Ridge()


class RadoBoostL1(RegularisedRadoBoost):
    """`RegularisedRadoBoost` with the lasso, Omega(theta) = sum_k |theta_k|."""

    FRACTIONS = (0.0, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8)

    def _regulariser(self, d: int) -> Regulariser:
        return SortedNorm(np.ones(d))


class RadoBoostLinf(RegularisedRadoBoost):
    """`RegularisedRadoBoost` with the l-infinity norm, Omega(theta) = max_k |theta_k|."""

    FRACTIONS = (0.0, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8)

    def _regulariser(self, d: int) -> Regulariser:
        return SortedNorm(np.eye(d)[0])


class RadoBoostSlope(RegularisedRadoBoost):
    """`RegularisedRadoBoost` with SLOPE: weight k is the standard normal's quantile at 1 - k slope_rate / (2 d)."""

    FRACTIONS = (0.0, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8)

    def __init__(
        self,
        n_rounds: int = 1000,
        *,
        recentre: float | None = 1.0,
        slope_rate: float = 0.1,
        strength: float | None = None,
        n_folds: int = 3,
        smallest_edge: float = 1e-6,
        n_rados: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            n_rounds,
            recentre=recentre,
            strength=strength,
            n_folds=n_folds,
            smallest_edge=smallest_edge,
            n_rados=n_rados,
            random_state=random_state,
        )
        self.slope_rate = slope_rate

    def _check(self) -> None:
        super()._check()
        if not 0 < self.slope_rate < 1:
            raise ConfigurationError(f"slope_rate is {self.slope_rate}: it must be strictly between 0 and 1")

    def _regulariser(self, d: int) -> Regulariser:
        normal = NormalDist()
        return SortedNorm(np.array([normal.inv_cdf(1.0 - k * self.slope_rate / (2.0 * d)) for k in range(1, d + 1)]))
