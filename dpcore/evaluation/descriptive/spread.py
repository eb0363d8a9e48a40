"""Means and standard deviations of a number in a group of rows, from three noisy sums, with intervals.

With z in [-1, 1] the number's coordinate, N, S and Q are the sums over a group of 1, of (z + 1) / 2 and of a function g
of z, each with independent noise of standard deviation D.

- g(z) is z^2 from below, by at most 1 / K^2 (dpcore.predicates.squares).

- The mean m = S / N: every e with |S - e N| <= q sqrt(N V + D^2 (1 + e^2)) (Fieller, J. R. Stat. Soc. B 16, 1954), V
  the variance of one value and q the standard deviations that noise and sample exceed with probability `failure`.

- The variance V = (Q / N - (2 m - 1)^2) / 4, by its linear part in the noise and in the sample. The variance of
  (u - m)^2, of u in [0, 1] with mean m, is at most b V - V^2 with b = max(m, 1 - m)^2.

The sample's parts are of the normal limit: `tests/statistical/test_descriptive.py` measures the coverage.
"""

import math
from dataclasses import dataclass

from dpcore.evaluation.intervals import CellNoise
from dpcore.predicates.expressions import Affine, Clipped, Predicate
from dpcore.predicates.squares import SLACK

_NO_NOISE = CellNoise(0.0, math.inf)
"""The sample alone, whose limit is normal."""

Range = tuple[float, float]


def unit(name: str) -> Predicate:
    """(z + 1) / 2, the share of the way from the lower bound to the upper one."""
    return Clipped(Affine(((name, 1),), 1), 2)


@dataclass(frozen=True)
class Spread:
    """The three sums of one group. `quantisation`: each row's value is rounded down by less than this."""

    count: float
    total: float
    squares: float
    noise: CellNoise
    quantisation: float = 0.0
    slack: float = SLACK
    """At most so much is the asked square below z^2."""

    @property
    def is_measured(self) -> bool:
        """Whether the rows can be told from none, with probability above 0.999."""
        return self.count > max(self._noise(1e-3), 1.0)

    @property
    def mean(self) -> float:
        """m, in [0, 1]."""
        return min(max(self.total / self.count, 0.0), 1.0)

    @property
    def variance(self) -> float:
        """V, in [0, 1/4]; the square's slack is halved by its middle."""
        found = (self.squares / self.count + self.slack / 2.0 - (2.0 * self.mean - 1.0) ** 2) / 4.0
        return min(max(found, 0.0), 0.25)

    def mean_interval(self, failure: float) -> Range | None:
        """Of the mean of the distribution; None if no e is excluded."""
        q = self._deviations(failure)
        n, s, d2 = self.count, self.total, self.noise.deviation**2
        # A variance that is known badly is of few rows, where noise is larger than the sample's deviation.
        variance = min(self.variance + self._variance_noise(), 0.25)
        leading = n * n - q * q * d2
        if leading <= 0.0:
            return None
        middle, constant = s * n, s * s - q * q * (n * variance + d2)
        root = math.sqrt(max(middle * middle - leading * constant, 0.0))
        return _within((middle - root) / leading, (middle + root) / leading + self.quantisation, 1.0)

    def deviation_interval(self, failure: float) -> Range:
        """Of the standard deviation of the distribution."""
        m, v = self.mean, self.variance
        sample = max(max(m, 1.0 - m) ** 2 * v - v * v, 0.0) / self.count
        reach = self._deviations(failure) * math.hypot(math.sqrt(sample), self._variance_noise())
        slack = self.slack / 8.0 + self.quantisation
        low, high = _within(v - reach - slack, v + reach + slack, 0.25)
        return math.sqrt(low), math.sqrt(high)

    def _variance_noise(self) -> float:
        """The noise's standard deviation on V: its derivatives are 1/4 by Q, 2 m - 1 by S, and what is left by N."""
        m, q = self.mean, self.squares / self.count
        by_total = 2.0 * m - 1.0
        by_count = m * by_total - q / 4.0
        return self.noise.deviation * math.sqrt(1.0 / 16.0 + by_total**2 + by_count**2) / self.count

    def _deviations(self, failure: float) -> float:
        return (self.noise if self.noise.deviation > 0.0 else _NO_NOISE).deviations(1, failure)

    def _noise(self, failure: float) -> float:
        return self.noise.half_width(1, failure)


def difference(first: float, first_range: Range, second: float, second_range: Range) -> Range:
    """An interval for first - second, from independent ones for each: Zou and Donner (Stat. Med. 27, 2008)."""
    found = first - second
    low = math.hypot(first - first_range[0], second_range[1] - second)
    high = math.hypot(first_range[1] - first, second - second_range[0])
    return found - low, found + high


def _within(low: float, high: float, most: float) -> Range:
    low = min(max(low, 0.0), most)
    return low, min(max(high, low), most)
