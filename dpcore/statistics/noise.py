"""The noise on sums over records, for planning and half-widths: in units of a record's largest value, 1."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from dpcore.accounting.gaussian import gaussian_mu
from dpcore.accounting.noise_shares import LaplaceShares, NoiseShares
from dpcore.errors import ConfigurationError
from dpcore.numbers.normal import quantile


class SumNoise(Protocol):
    """Noise on each of several sums over records whose values are in [0, 1]; it does not grow with their number."""

    def half_width(self, values: int, failure: float) -> float:
        """With probability >= 1 - failure the noise on each of `values` sums is at most this."""
        ...

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on one sum."""
        ...


@dataclass(frozen=True)
class LaplaceNoise:
    """Laplace noise of density exp(-|x| / scale) / (2 scale) on each sum. Raises ConfigurationError unless scale > 0.

    One query of values in [0, 1] is alpha-private at scale 1 / alpha: Theorem 3 of Balcan's lecture notes on
    differential privacy and statistical queries (2015), stated there for the mean of n values.
    """

    scale: float

    def __post_init__(self) -> None:
        _require_positive("scale", self.scale)

    def half_width(self, values: int, failure: float) -> float:
        """The scale times ln(values / failure): P(|x| > h) = exp(-h / scale), and a union bound."""
        return self.scale * math.log(values / _checked(values, failure))

    @property
    def deviation(self) -> float:
        """Its standard deviation: scale sqrt(2)."""
        return math.sqrt(2.0) * self.scale


@dataclass(frozen=True)
class GaussianNoise:
    """Normal noise of standard deviation sigma on each sum. Raises ConfigurationError unless sigma > 0."""

    sigma: float

    def __post_init__(self) -> None:
        _require_positive("sigma", self.sigma)

    def half_width(self, values: int, failure: float) -> float:
        """Sigma times the normal quantile of failure / (2 values), and a union bound."""
        return -self.sigma * quantile(_checked(values, failure) / (2.0 * values))

    @property
    def deviation(self) -> float:
        """Its standard deviation: sigma."""
        return self.sigma


@dataclass(frozen=True)
class SharedNoise:
    """The noise of a total to which each of `parties` adds a share, with values in units of 2^-fraction_bits."""

    shares: NoiseShares
    parties: int
    fraction_bits: int

    def half_width(self, values: int, failure: float) -> float:
        """The bound of the shares' distribution, in units of 1."""
        return math.ldexp(self.shares.half_width(self.parties, values, _checked(values, failure)), -self.fraction_bits)

    @property
    def deviation(self) -> float:
        """The total's standard deviation, in units of 1."""
        return math.ldexp(self.shares.deviation(self.parties), -self.fraction_bits)

    @property
    def copies(self) -> float:
        """How many discrete Laplace variables of the shares' scale sum to the total; infinite for normal noise."""
        return self.parties / self.shares.shares if isinstance(self.shares, LaplaceShares) else math.inf


def planned_noise(
    l1: int,
    l2_squared: int,
    epsilon: Fraction | float,
    delta: Fraction | float,
    part: Fraction | float = 1,
) -> SumNoise:
    """The least noise that a batch adds for a budget of (epsilon, delta), for planning before a query.

    l1, l2_squared: the batch's sensitivity in the sum of magnitudes and of squares, replace-one, in units of 1. part:
    of the budget's epsilon if delta is 0, else of its squared mu. Laplace noise if delta is 0, otherwise normal of
    standard deviation sqrt(l2_squared / part) / mu (dpcore.accounting.gaussian).

    Parties that do not trust all others add more. Raises ConfigurationError if an argument is out of range, PlanError
    from `gaussian_mu`.
    """
    if min(l1, l2_squared) < 1 or epsilon <= 0 or not 0 < part <= 1:
        raise ConfigurationError(
            "noise is planned for a sensitivity of at least 1, an epsilon above 0 and a part of the budget in (0, 1]"
        )
    if delta == 0:
        return LaplaceNoise(float(l1 / (epsilon * part)))
    return GaussianNoise(math.sqrt(l2_squared / part) / gaussian_mu(epsilon, delta))


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ConfigurationError(f"{name} is {value}: give a finite number above 0, or None for no noise")


def _checked(values: int, failure: float) -> float:
    if values < 1 or not 0.0 < failure < 1.0:
        raise ConfigurationError(
            f"{values} values at failure {failure}: give at least one value and a probability between 0 and 1"
        )
    return failure
