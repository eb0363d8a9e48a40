"""Exact samples of the discrete Gaussian N_Z(0, sigma^2): P(x) proportional to exp(-x^2 / (2 sigma^2)), x an integer.

Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (NeurIPS 2020), Algorithms 1 to 3, for an
integer sigma, vectorised. Every Bernoulli(exp(-gamma)) coin is decided exactly (dpcore.randomness.coins). The same
bytes give the same samples on every machine. Other processes on the same machine may observe the time of a sample, and
with it the sample.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError
from dpcore.randomness.coins import bernoulli_exp, indices
from dpcore.randomness.sources import RandomSource

LARGEST_SIGMA = 1 << 48
"""Up to this sigma, samples stay far below 2^63, and magnitudes up to 30 sigma below 2^53."""

SMALLEST_SHARE_SIGMA = 3
"""The theorem on sums of shares (dpcore.accounting.gaussian) needs a variance of at least 9."""

_BATCH = 1 << 16


def discrete_gaussian(sigma: int, count: int, random: RandomSource) -> NDArray[np.int64]:
    """`count` independent samples of N_Z(0, sigma^2): int64 (count,).

    Raises PlanError if sigma is not an integer from 1 to LARGEST_SIGMA.
    """
    if isinstance(sigma, bool) or not isinstance(sigma, int) or not 1 <= sigma <= LARGEST_SIGMA:
        raise PlanError(f"the noise's standard deviation is {sigma}: give an integer from 1 to 2^48")
    samples = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        # About a third of the candidates become samples if sigma is 1, nearly half if it is large.
        kept = _accepted(sigma, min(_BATCH, 2 * (count - filled) + 16), random)[: count - filled]
        samples[filled : filled + len(kept)] = kept
        filled += len(kept)
    return samples


def check_share(sigma: int) -> None:
    """Raise PlanError if `sigma` is not a standard deviation that a noise share may have."""
    if isinstance(sigma, bool) or not isinstance(sigma, int) or not SMALLEST_SHARE_SIGMA <= sigma <= LARGEST_SIGMA:
        raise PlanError(
            f"noise with a standard deviation of {sigma} units: shares are counted from {SMALLEST_SHARE_SIGMA} to "
            f"2^48 units; raise or lower fraction_bits"
        )


def _accepted(sigma: int, count: int, random: RandomSource) -> NDArray[np.int64]:
    """Algorithm 3 on `count` discrete Laplace candidates: the accepted ones, in order."""
    t = sigma + 1
    candidates = _discrete_laplace(t, count, random)

    def gamma(index: int) -> Fraction:
        return Fraction((abs(int(candidates[index])) * t - sigma * sigma) ** 2, 2 * sigma * sigma * t * t)

    offset = np.abs(candidates).astype(np.float64) - sigma * sigma / t
    accepted: NDArray[np.int64] = candidates[bernoulli_exp(np.square(offset / sigma) / 2, gamma, random)]
    return accepted


def _discrete_laplace(t: int, count: int, random: RandomSource) -> NDArray[np.int64]:
    """Algorithm 2 with scale t, P(x) proportional to exp(-|x| / t), on `count` candidates: the accepted ones."""
    low = indices(t, count, random)
    low = low[bernoulli_exp(low / t, lambda index: Fraction(int(low[index]), t), random)]
    magnitude = low + t * _geometric(len(low), random)
    negative = (np.frombuffer(random.bytes(len(low)), dtype=np.uint8) & 1).astype(bool)
    # Minus zero would count zero twice.
    kept = ~(negative & (magnitude == 0))
    signed: NDArray[np.int64] = np.where(negative, -magnitude, magnitude)[kept]
    return signed


def _geometric(count: int, random: RandomSource) -> NDArray[np.int64]:
    """The number of Bernoulli(1/e) coins that show 1 before the first 0: int64 (count,)."""
    runs = np.zeros(count, dtype=np.int64)
    going = np.arange(count)
    while len(going):
        going = going[bernoulli_exp(np.ones(len(going)), lambda _: Fraction(1), random)]
        runs[going] += 1
    return runs


def tail_bound(sigma: int, summands: int, values: int) -> int:
    """A magnitude that `values` sums of `summands` samples exceed with a total probability of at most 2^-64.

    N_Z(0, sigma^2) is sub-Gaussian with variance proxy sigma^2 (Canonne, Kamath and Steinke 2020): E[exp(s X)] is
    exp(s^2 sigma^2 / 2) times a ratio of shifted to unshifted sums of exp(-x^2 / (2 sigma^2)), which by Poisson
    summation is at most 1.

    Proxies of independent summands add, so P(|sum| > t) <= 2 exp(-t^2 / (2 summands sigma^2)), and a union bound covers
    the values.
    """
    return math.ceil(sigma * math.sqrt(2 * summands * (math.log(2 * values) + 64 * math.log(2)))) + 1
