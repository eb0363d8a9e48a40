"""Rows that a batch of statistical queries needs, and the accuracy of its answers for given rows.

M queries of [0, 1]-valued phi are answered by means over m rows, with noise on each sum. All answers are within tau of
E[phi] with probability >= 1 - failure if

    sampling(m) + quantisation + noise / m <= tau,

with sampling(m) = sqrt(ln(2 M / a) / (2 m)) by Hoeffding, noise the half-width that fails with probability at most b,
and a + b = failure (a = b with noise, else a = failure). Values rounded down to multiples of q move a mean by less than
q.

Queries that depend on earlier answers need fresh rows each: `separate_rows` follows Theorems 6 and 7 of Balcan's
lecture notes (Differential privacy and the statistical query model, 2015). Proof: docs/explanation/proofs.md, "Rows for
statistical queries".
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from dpcore.errors import ConfigurationError, PlanError
from dpcore.statistics.noise import SumNoise

MOST_ROWS = 1 << 62
"""The largest number of rows that is planned for."""


@dataclass(frozen=True)
class Amplification:
    """Factors by which each half-width, and the noise's deviation, grow when answers are combined (label_noise)."""

    sampling: float = 1.0
    quantisation: float = 1.0
    noise: float = 1.0
    deviation: float = 1.0


PLAIN = Amplification()


@dataclass(frozen=True)
class HalfWidths:
    """Half-widths that hold for all answers jointly, in units of the values; their sum is the tolerance."""

    sampling: float
    quantisation: float
    noise: float

    @property
    def tolerance(self) -> float:
        """The tau of the statistical-query model: sampling + quantisation + noise."""
        return self.sampling + self.quantisation + self.noise


@dataclass(frozen=True)
class Batch:
    """M queries answered at once, from the same rows. Raises ConfigurationError if a field is out of range."""

    queries: int
    """M."""
    noise: SumNoise | None = None
    """On each sum, None if there is none."""
    quantisation: float = 0.0
    """q, values are rounded down by less than this, 0 for Boolean predicates."""
    asked: int | None = None
    """How many sums carry noise, M unless each answer combines several; `amplification` gives the factors."""
    amplification: Amplification = PLAIN

    def __post_init__(self) -> None:
        if self.queries < 1 or (self.asked is not None and self.asked < 1):
            raise ConfigurationError(f"a batch of {self.queries} queries: ask at least one")
        if not (math.isfinite(self.quantisation) and self.quantisation >= 0.0):
            raise ConfigurationError(f"quantisation is {self.quantisation}: it must be finite and at least 0")

    def half_widths(self, rows: int, failure: float) -> HalfWidths:
        """The distance from the truth of answers over `rows` rows, for all of them with probability >= 1 - failure.

        Raises ConfigurationError if rows < 1 or failure is not between 0 and 1.
        """
        if rows < 1:
            raise ConfigurationError(f"answers over {rows} rows: give at least 1")
        _require_probability(failure)
        return self._half_widths(rows, failure, self._noise(failure))

    def _half_widths(self, rows: int, failure: float, noise: float) -> HalfWidths:
        sampling_failure = failure if self.noise is None else failure / 2.0
        sampling = math.sqrt(math.log(2.0 * self.queries / sampling_failure) / (2.0 * rows))
        return HalfWidths(
            sampling=self.amplification.sampling * sampling,
            quantisation=self.amplification.quantisation * self.quantisation,
            noise=self.amplification.noise * noise / rows,
        )

    def rows(self, tolerance: float, failure: float) -> int:
        """The least number of rows at which all answers are within `tolerance`.

        Raises ConfigurationError if an argument is not between 0 and 1, PlanError if no number of rows is enough.
        """
        _require_probability(failure)
        if not 0.0 < tolerance <= 1.0:
            raise ConfigurationError(f"tolerance is {tolerance}: it must be above 0 and at most 1")
        if self.amplification.quantisation * self.quantisation >= tolerance:
            raise PlanError(
                f"values are rounded to multiples of {self.quantisation:.3g}, which alone exceeds a tolerance of "
                f"{tolerance:.3g}: raise fraction_bits or the tolerance"
            )
        # Computed once, not for every number of rows tried: some distributions take a tenth of a second.
        noise = self._noise(failure)
        return least_rows(lambda rows: self._half_widths(rows, failure, noise).tolerance <= tolerance)

    def _noise(self, failure: float) -> float:
        if self.noise is None:
            return 0.0
        return self.noise.half_width(self.asked or self.queries, failure / 2.0)


def separate_rows(
    queries: int, tolerance: float, failure: float, *, noise: SumNoise | None = None, quantisation: float = 0.0
) -> int:
    """Rows for M queries that may depend on earlier answers, each on its own piece: Theorems 6 and 7.

    noise: on the sum over each piece; with LaplaceNoise(1 / alpha) all answers are alpha-private in total. Raises as
    `Batch.rows` does.
    """
    if queries < 1:
        raise ConfigurationError(f"a sequence of {queries} queries: ask at least one")
    _require_probability(failure)
    return queries * Batch(1, noise, quantisation).rows(tolerance, failure / queries)


def least_rows(enough: Callable[[int], bool]) -> int:
    """The least number of rows, at least 1, for which `enough` is true; it must stay true for more rows.

    Raises PlanError if 2^62 rows are not enough.
    """
    high = 1
    while not enough(high):
        high *= 2
        if high > MOST_ROWS:
            raise PlanError("no number of rows is enough: ask for less certainty or a larger tolerance")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _require_probability(failure: float) -> None:
    if not 0.0 < failure < 1.0:
        raise ConfigurationError(f"failure is {failure}: it must be between 0 and 1")
