"""Counts by interval and label: the counts to query, and the effect of their noise on a comparison of concepts.

The parties release noisy totals of counts, from which anyone can choose a concept (post-processing).

A bad concept wins a comparison with probability at most E exp(s (noise in favour - excess of errors)), for every s > 0:
inequality (1) of dpcore.pac.sample_size, with K_h(s) the moment generating function of the noise on all counts that the
comparison adds or subtracts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.accounting.noise_shares import GaussianShares, NoiseShares
from dpcore.errors import ConfigurationError, ShapeError
from dpcore.pac.guarantee import PacGuarantee
from dpcore.pac.sample_size import least_rows

MOST_COUNT_BITS = 15
"""Domains up to {0, ..., 2^15 - 1}: two counts for each value are the 2^16 statistics that one query may ask for."""


@dataclass(frozen=True)
class IntervalCounts:
    """The counts to query: for each label and each interval [lo, hi), the rows of that label whose value is in it.

    The answer has shape (2, len(intervals)): row 0 for label 0 (or -1), row 1 for label 1, columns in this order.

    l1, l2_squared: the sensitivity of all counts to replacing one row. One row is counted at most once in each of the
    `levels` of disjoint intervals, so replacing it moves at most two counts of a level by 1.
    """

    intervals: tuple[tuple[int, int], ...]
    levels: int

    @property
    def l1(self) -> int:
        """L1 sensitivity: 2 for each level."""
        return 2 * self.levels

    @property
    def l2_squared(self) -> int:
        """Squared L2 sensitivity: 2 for each level."""
        return 2 * self.levels


@dataclass(frozen=True)
class GaussianCounts:
    """Noise on each total of standard deviation at most `sigma` rows, normal or a sum of discrete Gaussians.

    A discrete Gaussian's moment generating function is at most exp(sigma^2 s^2 / 2)
    (dpcore.randomness.discrete_gaussian, `tail_bound`), and variances of independent shares add. Raises
    ConfigurationError if sigma is negative.
    """

    sigma: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise ConfigurationError(f"sigma is {self.sigma} rows: give a finite number of at least 0")

    @property
    def reach(self) -> float:
        """Infinite: every s is allowed."""
        return math.inf

    def log_mgf(self, s: float) -> float:
        """Upper bound on log E exp(s noise), for s >= 0; the noise is symmetric."""
        return (self.sigma * s) ** 2 / 2


@dataclass(frozen=True)
class LaplaceCounts:
    """Noise on each total: discrete Laplace of `scale` rows, on integers or any finer grid, `copies` times.

    Raises ConfigurationError if a field is not positive.
    """

    scale: float
    copies: Fraction = Fraction(1)
    """1 if the shares add up to exactly one such variable; N / h if N parties add shares made for h.

    With unit u and q = exp(-u / t), the moment generating function is 1 / (1 - (sinh(s u / 2) / sinh(u / (2 t)))^2) for
    s < 1/t, and sinh(x) / x grows, so it is at most that of the continuous distribution, 1 / (1 - s^2 t^2).
    """

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale > 0 and self.copies > 0):
            raise ConfigurationError(f"scale {self.scale} rows, {self.copies} copies: give positive numbers")

    @property
    def reach(self) -> float:
        """Largest s that is allowed: slightly below 1 / scale, where the moments end."""
        return (1 - 2.0**-30) / self.scale

    def log_mgf(self, s: float) -> float:
        """Upper bound on log E exp(s noise), for 0 <= s <= reach; the noise is symmetric."""
        return -float(self.copies) * math.log1p(-((s * self.scale) ** 2))


CountNoise = GaussianCounts | LaplaceCounts


def count_noise(shares: NoiseShares, parties: int, fraction_bits: int) -> CountNoise:
    """The noise on each count if each of `parties` adds its share and one row counts as 2^fraction_bits units.

    Raises ConfigurationError if parties < 1.
    """
    if parties < 1:
        raise ConfigurationError(f"{parties} parties: give at least 1")
    unit = 1 << fraction_bits
    if isinstance(shares, GaussianShares):
        return GaussianCounts(shares.share_sigma * math.sqrt(parties) / unit)
    return LaplaceCounts(float(shares.scale / unit), Fraction(parties, shares.shares))


def counts_guarantee(
    log_competitors: Callable[[float], float],
    noise: CountNoise,
    alpha: float,
    beta: float,
    epsilon: Fraction,
    delta: Fraction,
    *,
    agnostic: bool,
) -> PacGuarantee:
    """The guarantee of choosing the concept of fewest noisy errors.

    log_competitors: log K(s) of dpcore.pac.sample_size as a function of the log of one count's moment generating
    function at s. epsilon, delta: the privacy cost of releasing the counts, by its own accounting. Raises as
    `least_rows`.
    """
    rows = least_rows(lambda s: log_competitors(noise.log_mgf(s)), alpha, beta, noise.reach, agnostic=agnostic)
    return PacGuarantee(alpha, beta, epsilon, delta, rows, "federated", agnostic)


def check_counts(counts: ArrayLike) -> tuple[NDArray[np.float64] | NDArray[np.int64], int]:
    """Counts as an array (2, 2^bits), and bits.

    Integers stay integers. Raises ShapeError unless the width is a power of two from 2 to 2^15, ConfigurationError if a
    count is not finite.
    """
    values = np.asarray(counts)
    width = values.shape[1] if values.ndim == 2 else 0
    bits = width.bit_length() - 1
    if values.ndim != 2 or len(values) != 2 or width != 1 << max(bits, 0) or not 1 <= bits <= MOST_COUNT_BITS:
        raise ShapeError(f"counts have shape {values.shape}: give (2, 2^bits), one row a label, bits from 1 to 15")
    if values.dtype.kind in "bui":
        return values.astype(np.int64), bits
    real = values.astype(np.float64)
    if not np.isfinite(real).all():
        raise ConfigurationError("a count is not a finite number: check the release")
    return real, bits
