"""Private empirical risk minimisation of many rows by a curator: batch descent, and a walk with its own epsilon.

Bassily, Smith and Thakurta (FOCS 2014, arXiv 1405.7085) take n^2 steps of one record, or sample by a walk in the time
of equation 9. For a smooth loss fewer steps over all records have the same bound without its logarithm. Proofs:
docs/explanation/proofs.md, "Private risk of many rows".
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy.special import expit

from dpcore.accounting.concentrated import concentrated_epsilon, concentrated_rho
from dpcore.accounting.gaussian import check_delta, check_epsilon, gaussian_mu
from dpcore.accounting.noise_shares import IntegerNoise, smallest_share
from dpcore.errors import ConfigurationError, PlanError
from dpcore.numbers.fixed_point import Matrix
from dpcore.numbers.rationals import check_rational
from dpcore.randomness.noise import around, bernoulli, discrete_gaussian, exp_interval
from dpcore.randomness.sources import RandomSource
from dpcore.records.losses import LOGISTIC, ConvexSet, MarginLoss
from dpcore.research.erm import GRADIENT_BITS, SCORE_BITS, Descended, Sampled, check_edges, integer_edges, normals

MOST_STEPS = 100_000
# Sums of n integers of 24 bits are exact in double precision.
MOST_BATCH_ROWS = 1 << 28


@dataclass(frozen=True)
class BatchDescent:
    """Noisy descent whose every step is over all n records, for the logistic loss; planned as `NoisyDescent` is.

    The output is the average of the iterates. Raises ConfigurationError or PlanError if a field is out of range.
    """

    rows: int
    """n."""
    d: int
    epsilon: Fraction
    delta: Fraction
    norm_bound: Fraction
    """R, no record is longer; L = R, and F is n R^2 / 4-smooth."""
    convex_set: ConvexSet
    """C."""

    def __post_init__(self) -> None:
        check_rational("norm_bound", self.norm_bound)
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not 1 <= self.rows <= MOST_BATCH_ROWS:
            raise PlanError(f"{self.rows} rows: give 1 to 2^28")
        self.convex_set.diameter(self.d)
        if self.steps > MOST_STEPS:
            raise PlanError(f"the plan needs {self.steps} steps, above {MOST_STEPS}: choose a smaller epsilon or set")

    @cached_property
    def steps(self) -> int:
        """T, for which starting far away costs a quarter of what the noise costs."""
        reach = self.rows * float(self.norm_bound) * self.convex_set.diameter(self.d)
        return max(1, math.ceil(reach * gaussian_mu(self.epsilon, self.delta) / (4 * math.sqrt(self.d))))

    @cached_property
    def share_sigma(self) -> int:
        """The standard deviation of the noise on each coordinate of a step, in units of L 2^-24."""
        return smallest_share(self._squared, 1, self.d * self.steps, self.epsilon, self.delta)

    @cached_property
    def counted_epsilon(self) -> float:
        """The epsilon at delta that is proved for all steps in composition."""
        return (
            IntegerNoise(self.share_sigma, 1, self.d * self.steps).distribution(self._squared).epsilon(self.delta).upper
        )

    @property
    def _squared(self) -> int:
        """Of all steps: a record that is replaced moves each sum by two vectors of at most 2^24 units."""
        return self.steps * (4 << 2 * GRADIENT_BITS)

    @property
    def _spread(self) -> tuple[float, float]:
        """The root of the mean squared length of a step's noise, and a bound on its bias by truncation."""
        unit = float(self.norm_bound) * math.ldexp(1.0, -GRADIENT_BITS)
        return math.sqrt(self.d) * self.share_sigma * unit, 2 * self.rows * math.sqrt(self.d) * unit

    @property
    def _smoothness(self) -> float:
        return self.rows * float(self.norm_bound) ** 2 / 4

    @property
    def excess_bound(self) -> float:
        """A bound on E[sum_i l_i(theta) - min over C]: about 2.5 |C| L sqrt(d) / mu, mu that of (epsilon, delta)."""
        diameter, (noise, bias) = self.convex_set.diameter(self.d), self._spread
        far = self._smoothness * diameter**2 / (2 * self.steps)
        moved = diameter * noise / (2 * math.sqrt(self.steps))
        return far + moved * (1 + (1 + bias / noise) ** 2) + bias * diameter

    def run(self, edges: Matrix, random: RandomSource) -> Descended:
        """Descend from the point of C nearest to 0. edges: (n, d), y_i x_i.

        Raises ShapeError if the edges are not as planned, DataError if a row is not finite or longer than norm_bound.
        """
        integers = integer_edges(edges, (self.rows, self.d), self.norm_bound)
        unit = float(self.norm_bound) * math.ldexp(1.0, -GRADIENT_BITS)
        diameter = self.convex_set.diameter(self.d)
        rate = unit / (self._smoothness + self._spread[0] * math.sqrt(self.steps) / diameter)
        theta = self.convex_set.project(np.zeros(self.d))
        total = np.zeros(self.d)
        for _ in range(self.steps):
            sums = np.trunc(LOGISTIC.weight(edges @ theta)[:, np.newaxis] * integers).sum(axis=0)
            theta = self.convex_set.project(theta + rate * (sums + discrete_gaussian(self.share_sigma, self.d, random)))
            total += theta
        statement = (
            f"({self.counted_epsilon:.4g}, {float(self.delta):.4g})-differentially private when one of {self.rows} "
            f"rows is replaced, for all {self.steps} steps in composition. Holds if the rows stay private and the "
            "random bits come from the operating system."
        )
        final = self.convex_set.project(total / self.steps)
        return Descended(final, self.counted_epsilon, self.delta, statement)


@dataclass(frozen=True)
class PrivateWalk:
    """A walk in C with Barker's acceptance, private by its coins: no mixing time enters its epsilon.

    A proposal theta' is a step of `length` in a random direction, accepted with probability 1 / (1 + exp(k D)), D the
    change of the summed loss in units of 2^-16, each record's clipped to `width`. Its stationary density is that of
    A_exp-samp up to rounding. Raises ConfigurationError or PlanError.
    """

    epsilon: Fraction
    """Of the whole walk, every point of it."""
    delta: Fraction
    """0 for pure privacy, for which a walk must be short."""
    d: int
    norm_bound: Fraction
    """R; L = R."""
    convex_set: ConvexSet
    """C."""
    steps: int
    length: Fraction
    loss: MarginLoss = LOGISTIC

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_rational("norm_bound", self.norm_bound)
        check_rational("length", self.length)
        self.convex_set.diameter(self.d)
        if self.delta:
            check_delta(self.delta)
        if not 1 <= self.steps <= MOST_STEPS:
            raise PlanError(f"{self.steps} steps: take 1 to {MOST_STEPS}")
        if self.rate <= 0:
            raise ConfigurationError("epsilon is too small for so many steps: take fewer or shorter ones")

    @property
    def width(self) -> int:
        """The most that a record changes D, in units of 2^-16: R length, rounded up."""
        return math.ceil(self.norm_bound * self.length * (1 << SCORE_BITS))

    @cached_property
    def rate(self) -> Fraction:
        """K per unit of 2^-16: the largest with the walk's epsilon, rounded down."""
        logit = self.epsilon / self.steps
        if self.delta:
            rho = concentrated_rho(self.epsilon, self.delta)
            logit = max(logit, Fraction(math.sqrt(8 * rho / self.steps)))
        # Rounded down to 40 significant bits, which also covers the root's rounding.
        exact = logit / (2 * self.width)
        scale = 1 << max(0, 40 - math.floor(math.log2(exact)))
        return Fraction(math.floor(exact * scale) - 1, scale)

    @property
    def counted_epsilon(self) -> float:
        """The proved epsilon at delta: T eta if pure, else also that of T eta^2 / 8 of concentrated privacy."""
        logit = 2 * self.width * self.rate
        pure = float(self.steps * logit) * (1 + 2.0**-50)
        return min(pure, concentrated_epsilon(self.steps * logit**2 / 8, self.delta)) if self.delta else pure

    @property
    def stationary_excess(self) -> float:
        """D / k: a bound on the average excess of the distribution that the walk approaches, not of the walk."""
        return self.d / math.ldexp(float(self.rate), SCORE_BITS)

    def run(self, edges: Matrix, random: RandomSource) -> Sampled:
        """The last point of the walk from the point of C nearest to 0.

        Raises ShapeError if the edges are not (n, d), DataError if a row is not finite or longer than norm_bound.
        """
        check_edges(edges, self.d, float(self.norm_bound))
        theta = self.convex_set.project(np.zeros(self.d))
        losses, taken = self.loss.value(edges @ theta), 0
        for _ in range(self.steps):
            direction = normals(self.d, random)
            proposal = theta + float(self.length) / float(np.linalg.norm(direction)) * direction
            if not self.convex_set.contains(proposal):
                continue
            proposed = self.loss.value(edges @ proposal)
            change = np.clip(np.rint(np.ldexp(proposed - losses, SCORE_BITS)), -self.width, self.width)
            if self.coin(int(change.sum()), random):
                theta, losses, taken = proposal, proposed, taken + 1
        spent = f"{self.counted_epsilon:.4g}"
        privacy = f"({spent}, {float(self.delta):.4g})" if self.delta else spent
        statement = (
            f"{privacy}-differentially private when one row is replaced, for all {self.steps} steps of the walk. That "
            "it has reached its stationary distribution is neither proved nor needed for this. Holds if the rows stay "
            "private and the random bits come from the operating system."
        )
        pure = None if self.delta else self.epsilon
        return Sampled(theta, pure, taken / self.steps, statement)

    def coin(self, change: int, random: RandomSource) -> bool:
        """True with probability 1 / (1 + exp(k change)), exactly."""
        exponent = self.rate * change

        def bounds(_: int, precision: int) -> tuple[int, int]:
            low, high = exp_interval(exponent, exponent, precision + 36)
            return around(1 / (1 + high), 1 / (1 + low), precision)

        return bool(bernoulli(np.array([expit(-float(exponent))]), bounds, random)[0])
