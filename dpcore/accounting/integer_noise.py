"""Integer noise counted as Gaussian noise, with a proved bound on the difference.

The noise on each coordinate is the sum of N shares, each an independent discrete Gaussian N_Z(0, s^2) of integer
standard deviation s >= 3. With tau_r = 2 sum_{j >= 1} exp(-2 pi^2 r^2 j^2), r_j^2 = s^2 j / (j + 1), rho = 2 and

    lambda = -sum_{j < N} log(1 - tau_{r_j}) - log(1 - tau_rho) + N log(1 + tau_s),

the mass on each coordinate is within a factor e^(+-lambda) of that of post-processed noise N(0, sigma^2 - rho^2), sigma
= s sqrt(N). So if that mechanism is (epsilon, delta)-private, the integer one over D coordinates is (epsilon + 2 D
lambda, delta e^(D lambda))-private. D lambda is below 1e-20 for every query that fits a message.

Kairouz, Liu and Steinke (ICML 2021, arXiv 2102.06387) bound the same ratio. Proof: docs/explanation/proofs.md, "Integer
noise".
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting.gaussian import ShiftDistribution, WeakNoiseError, shift_distribution, subsampled_mu
from dpcore.accounting.sensitivity import root_up
from dpcore.errors import PlanError
from dpcore.randomness.discrete_gaussian import LARGEST_SIGMA, SMALLEST_SHARE_SIGMA

ROUNDING_VARIANCE = 4
"""rho^2, in squared integer units."""


@dataclass(frozen=True)
class IntegerNoise:
    """The noise on each coordinate of a total: the sum of `shares` independent N_Z(0, share_sigma^2).

    Raises PlanError if a field is out of range.
    """

    share_sigma: int
    """s, integer units."""
    shares: int
    """N, of the parties that add one and keep it secret."""
    coordinates: int
    """D, the number of a record's values that get noise, over all rados."""

    def __post_init__(self) -> None:
        if not SMALLEST_SHARE_SIGMA <= self.share_sigma <= LARGEST_SIGMA:
            raise PlanError(
                f"a share's standard deviation is {self.share_sigma} units: it must be from {SMALLEST_SHARE_SIGMA} "
                "to 2^48; raise or lower fraction_bits"
            )
        if self.shares < 1:
            raise PlanError(f"{self.shares} shares of noise: give at least one")
        if self.coordinates < 1:
            raise PlanError(f"{self.coordinates} noised coordinates: give at least one")

    @property
    def variance(self) -> int:
        """N s^2, close to the noise's variance: that of a discrete Gaussian is below s^2, by far less than 1."""
        return self.shares * self.share_sigma**2

    @property
    def sigma(self) -> float:
        """Its root: the noise's standard deviation, in integer units."""
        return math.sqrt(self.variance)

    @property
    def slack(self) -> float:
        """D lambda, rounded up."""
        return self.coordinates * log_ratio(self.share_sigma, self.shares, ROUNDING_VARIANCE)

    def mu(self, squared_sensitivity: Fraction | int) -> float:
        """Delta / sigma of the continuous noise that this noise is counted as, rounded up; Delta^2 in squared units."""
        if squared_sensitivity <= 0:
            raise PlanError("the squared sensitivity is not positive: leave out the noise where a record moves nothing")
        return root_up(Fraction(squared_sensitivity) / (self.variance - ROUNDING_VARIANCE))

    def distribution(
        self, squared_sensitivity: Fraction | int, n: int = 1, p: Fraction | float = 1
    ) -> ShiftDistribution:
        """The squared shift of n rados with this noise, which a record enters each by a coin of probability p.

        squared_sensitivity: Delta^2 of one rado; `coordinates` counts the values of all n. Raises PlanError.
        """
        return shift_distribution(self.mu(squared_sensitivity), n, p, self.slack)


def log_ratio(share_sigma: float, shares: int, rounding_variance: float) -> float:
    """The lambda of the module's docstring, for one coordinate, rounded up; inf if there is no proved bound.

    Only the sum over j is long, and tau_r falls with j: j > 64 is counted at j = 64.
    """
    square = share_sigma * share_sigma
    direct = min(shares - 1, 64)
    terms = [_tau(square * j / (j + 1)) for j in range(1, direct + 1)]
    rest = shares - 1 - direct
    falls = [*terms, _tau(rounding_variance)]
    if max(falls) >= 1:
        return math.inf
    total = math.fsum(-math.log1p(-tau) for tau in falls) + shares * math.log1p(_tau(square))
    if rest:
        total -= rest * math.log1p(-terms[-1])
    return total * (1 + 1e-9)


def smallest_share(
    squared_sensitivity: Fraction | int,
    shares: int,
    coordinates: int,
    epsilon: Fraction | float,
    delta: Fraction | float,
    n: int = 1,
    p: Fraction | float = 1,
) -> int:
    """The least share s at which the noise of `shares` parties keeps n rados within (epsilon, delta); an integer.

    It is the least up to the error of epsilon, about a relative 1e-12 or 1e-14. Arguments as for
    `IntegerNoise.distribution`. Raises PlanError if an argument is out of range or s would be beyond 2^48.
    """
    mu = subsampled_mu(n, p, epsilon, delta)
    variance = Fraction(squared_sensitivity) / Fraction(mu) ** 2 + ROUNDING_VARIANCE
    share = max(SMALLEST_SHARE_SIGMA, math.isqrt(math.ceil(variance / shares)))
    # The root was rounded down without the slack, so a few steps up suffice; each is checked as it will be stated.
    # Steps grow, because an epsilon close to 0 has a larger relative error.
    step = max(1, share >> 44)
    while not _within(IntegerNoise(share, shares, coordinates).distribution(squared_sensitivity, n, p), epsilon, delta):
        share, step = share + step, 2 * step
    return share


def _within(distribution: ShiftDistribution, epsilon: Fraction | float, delta: Fraction | float) -> bool:
    try:
        return distribution.epsilon(delta).upper <= epsilon
    except WeakNoiseError:
        return False


def _tau(square: float) -> float:
    """2 sum_{j >= 1} exp(-2 pi^2 r^2 j^2) for r^2 = square, to rounding: terms fall faster than a geometric series."""
    first = math.exp(-2 * math.pi**2 * square)
    if first >= 1:
        return math.inf
    return 2 * math.fsum(first ** (j * j) for j in range(1, 40))
