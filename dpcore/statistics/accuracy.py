"""The noise on sums over records, for planning and half-widths: in units of a record's largest value, 1."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.gaussian import gaussian_mu
from dpcore.accounting.local_response import LocalResponse
from dpcore.accounting.noise_shares import LaplaceShares, NoiseShares
from dpcore.errors import ConfigurationError, DataError, PlanError, ShapeError
from dpcore.numbers.distributions import quantile
from dpcore.predicates.expressions import Predicate, depends_on_label, swap_label


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
    """Laplace noise of density exp(-|x| / scale) / (2 scale) on each sum. Raises ConfigurationError.

    Scale 1 / alpha is alpha-private for values in [0, 1]: Theorem 3 of Balcan's lecture notes (2015).
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
        return self.parties / self.shares.needed(self.parties) if isinstance(self.shares, LaplaceShares) else math.inf


@dataclass(frozen=True)
class LocalNoise:
    """What flips of single answers do to a count over `rows` rows: unlike other noise, it grows with them."""

    response: LocalResponse
    rows: int = 1

    def over(self, rows: int) -> "LocalNoise":
        """The same over another number of rows."""
        return replace(self, rows=rows)

    def half_width(self, values: int, failure: float) -> float:
        """The bound of the coins' distribution, in rows."""
        return self.response.half_width(self.rows, values, _checked(values, failure))

    @property
    def deviation(self) -> float:
        """Standard deviation of an estimated count, in rows."""
        return self.response.deviation(self.rows)


def planned_noise(
    l1: int,
    l2_squared: int,
    epsilon: Fraction | float,
    delta: Fraction | float,
    part: Fraction | float = 1,
) -> SumNoise:
    """The least noise that a batch adds for a planned (epsilon, delta): Laplace if delta is 0, else normal.

    l1, l2_squared: the batch's replace-one sensitivity. part: of epsilon if delta is 0, else of the squared mu. Parties
    that do not trust all others add more. Raises ConfigurationError, PlanError.
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


# The answer to a batch of statistical queries, and its distance from the truth.


CHOSEN_BEFORE = "if no answer about these rows chose the statistics"
"""The premise of half-widths of a sample."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimates of E[phi] for a batch of M predicates phi with values in [0, 1].

    With probability >= `confidence`, over independent rows and the noise, all are within `tolerance` of the truth,
    under the `premise`. Raises ShapeError, DataError, ConfigurationError.
    """

    values: NDArray[np.float64]
    """(M,) float64, finite, not clipped to [0, 1], which noise may leave."""
    rows: int
    """m >= 1, that sums were divided by."""
    confidence: float
    """In (0, 1)."""
    sampling: float
    """Half-width for sampling from the distribution, in units of the values, as the next two."""
    quantisation: float
    """For rounding values to fixed point."""
    noise: float
    """For the noise."""
    deviation: float
    """Standard deviation of the noise on each value; the greatest, if they differ."""
    distribution: SharedNoise | LocalNoise | None = None
    """The distribution of the independent noise on rows times each value; None if it is not known."""
    most_rows: int | None = None
    """At most so many rows are behind each mean; None for `rows`, which of a part is what it has on average."""
    premise: str = CHOSEN_BEFORE
    """When `sampling` holds, as a clause."""

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1 or values.size < 1:
            raise ShapeError(f"estimates have shape {values.shape}: give (M,), one value a predicate")
        if not np.isfinite(values).all():
            raise DataError("an estimate is not finite: decode the release again, or run its query again")
        if self.rows < 1:
            raise ConfigurationError(f"estimates over {self.rows} rows: give the row count of the cohort, at least 1")
        if self.most_rows is not None and self.most_rows < self.rows:
            raise ConfigurationError(f"at most {self.most_rows} rows and {self.rows} on average: give all rows")
        if not 0.0 < self.confidence < 1.0:
            raise ConfigurationError(f"confidence is {self.confidence}: it must be between 0 and 1")
        for name in ("sampling", "quantisation", "noise", "deviation"):
            width = getattr(self, name)
            if not (math.isfinite(width) and width >= 0.0):
                raise ConfigurationError(f"{name} is {width}: it must be finite and at least 0")
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    @property
    def tolerance(self) -> float:
        """The tau of the statistical-query model: sampling + quantisation + noise."""
        return self.sampling + self.quantisation + self.noise

    @property
    def shared_noise(self) -> SharedNoise | None:
        """The distribution of shared noise, None if it is not known. Raises ConfigurationError for local answers."""
        if isinstance(self.distribution, LocalNoise):
            raise ConfigurationError(
                "these answers are local, whose noise grows with the rows: read their estimates and half-widths, or "
                "ask without local"
            )
        return self.distribution


# Rows that a batch of statistical queries needs, and the accuracy of its answers for given rows.
#
# All M means of [0, 1]-valued phi over m rows are within tau of E[phi] with probability >= 1 - failure if tau >=
# sqrt(ln(2 M / a) / (2 m)) + q + noise / m (Hoeffding), noise the half-width that fails with probability b, a + b =
# failure (a = b with noise, else b = 0), q the unit that values are rounded down to.
#
# Queries that depend on earlier answers need more (dpcore.statistics.adaptive), such as fresh rows each: Theorems 6 and
# 7 of Balcan's lecture notes (Differential privacy and the statistical query model, 2015). Proof:
# docs/explanation/proofs.md, "Rows for statistical queries".


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
    share: float = 1.0
    """p, the probability that a row is asked about, whatever its values; sums are divided by p times the rows."""
    is_fresh: bool = False
    """Whether answers about the other rows, and so the number of these, may have chosen the predicates."""
    bias: float | None = None
    """What stands for `sampling` before amplification, if not a sample's deviation (dpcore.statistics.adaptive)."""
    information: float = 0.0
    """I, in nats: what earlier answers tell about the rows (dpcore.statistics.adaptive)."""

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise ConfigurationError(f"a share of {self.share} of the rows is asked about: give one in (0, 1]")
        if self.queries < 1 or (self.asked is not None and self.asked < 1):
            raise ConfigurationError(f"a batch of {self.queries} queries: ask at least one")
        if not (math.isfinite(self.quantisation) and self.quantisation >= 0.0):
            raise ConfigurationError(f"quantisation is {self.quantisation}: it must be finite and at least 0")

    def half_widths(self, rows: int, failure: float) -> HalfWidths:
        """The distance from the truth of answers over `rows` rows, with probability >= 1 - failure."""
        if rows < 1:
            raise ConfigurationError(f"answers over {rows} rows: give at least 1")
        _require_probability(failure)
        return self._half_widths(rows, failure, self._noise(failure, rows))

    def _half_widths(self, rows: int, failure: float, noise: float) -> HalfWidths:
        sampling_failure = failure if self.noise is None else failure / 2.0
        sampling = self.bias
        if self.is_fresh:
            sampling = _fresh_deviation(rows, self.share, self.queries, sampling_failure, self.information)
        elif sampling is None:
            sampling = _deviation(
                (math.log(2.0 * self.queries / sampling_failure) + self.information) / rows, self.share
            )
        return HalfWidths(
            sampling=self.amplification.sampling * sampling / self.share,
            quantisation=self.amplification.quantisation * self.quantisation / self.share,
            noise=self.amplification.noise * noise / (self.share * rows),
        )

    def rows(self, tolerance: float, failure: float) -> int:
        """The least rows at which all answers are within `tolerance`. Raises ConfigurationError, PlanError."""
        _require_probability(failure)
        if not 0.0 < tolerance <= 1.0:
            raise ConfigurationError(f"tolerance is {tolerance}: it must be above 0 and at most 1")
        if self.amplification.quantisation * self.quantisation >= tolerance * self.share:
            raise PlanError(
                f"values are rounded to multiples of {self.quantisation:.3g}, which alone exceeds a tolerance of "
                f"{tolerance:.3g}: raise fraction_bits or the tolerance"
            )
        # Computed once, not for every number of rows tried: some distributions take a tenth of a second.
        if isinstance(self.noise, LocalNoise):
            return least_rows(lambda rows: self.half_widths(rows, failure).tolerance <= tolerance)
        noise = self._noise(failure, 1)
        return least_rows(lambda rows: self._half_widths(rows, failure, noise).tolerance <= tolerance)

    def _noise(self, failure: float, rows: int) -> float:
        if self.noise is None:
            return 0.0
        noise = self.noise.over(rows) if isinstance(self.noise, LocalNoise) else self.noise
        return noise.half_width(self.asked or self.queries, failure / 2.0)


def _deviation(rate: float, share: float) -> float:
    """The t that a mean of m values in [0, 1] exceeds on a side with probability at most exp(-m rate).

    share: bounds their expectation. Hoeffding 1963, Theorem 1: exp(-m K(b + t, b)), K the divergence of coins,
    for an expectation of b or 1 - b. K is convex in b and symmetric around (1 - t) / 2, where it is at least 2 t^2.
    """
    simple = math.sqrt(rate / 2.0)
    if share >= 0.5 or simple >= 1.0:
        return simple
    low, high = 0.0, simple
    for _ in range(60):
        middle = (low + high) / 2.0
        b = min(share, (1.0 - middle) / 2.0)
        a = b + middle
        divergence = a * math.log(a / b) + (1.0 - a) * math.log1p(-middle / (1.0 - b))
        low, high = (low, middle) if divergence >= rate else (middle, high)
    return high


def _fresh_deviation(rows: int, share: float, queries: int, failure: float, information: float) -> float:
    """The same for values that are chosen after it is known which rows are asked about, over all rows.

    The number n of these rows is within c of share m. Given it, a sum of values of mean e is within root(2 n e (1 - e)
    L) + L / 3 of n e (Bernstein). With e c, the largest is c / 2 + root(2 n L + c^2) / 2 + L / 3.

    information: I, which adds to L.
    """
    rate = math.log(4.0 * queries / failure) + information
    count = rows * _deviation(math.log(4.0 / failure) / rows, share)
    most = min(float(rows), share * rows + count)
    return (count + math.sqrt(2.0 * most * rate + count * count)) / (2.0 * rows) + rate / (3.0 * rows)


def separate_rows(
    queries: int, tolerance: float, failure: float, *, noise: SumNoise | None = None, quantisation: float = 0.0
) -> int:
    """Rows for M queries that may depend on earlier answers, each on its own piece: Theorems 6 and 7."""
    if queries < 1:
        raise ConfigurationError(f"a sequence of {queries} queries: ask at least one")
    _require_probability(failure)
    return queries * Batch(1, noise, quantisation).rows(tolerance, failure / queries)


def least_rows(enough: Callable[[int], bool]) -> int:
    """The least number of rows, at least 1, from which `enough` is true. Raises PlanError beyond 2^62."""
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


# Statistical queries under random label noise: labels are the true c*(x), flipped with probability eta < 1/2.
#
# With a = E[phi(x, y)] and b = E[phi(x, -y)] over what parties hold, the answer on true labels is ((1 - eta) a - eta b)
# / (1 - 2 eta) (Theorem 8 of Balcan's lecture notes, 2015, after Kearns 1998). Half-widths grow: sampling and noise by
# 1 / (1 - 2 eta), quantisation by (1 - eta) / (1 - 2 eta), the deviation by sqrt((1 - eta)^2 + eta^2) / (1 - 2 eta).
# Proof: docs/explanation/proofs.md, "Label noise".


@dataclass(frozen=True)
class Correction:
    """Converts answers on flipped to those on true labels, and errors. Raises ConfigurationError, ShapeError."""

    noise_rate: float
    """Eta in [0, 1/2)."""
    own: tuple[int, ...]
    swapped: tuple[int, ...]
    """The position of each predicate's own answer and of its swap's among `asked`; equal without a label."""
    asked: int

    def __post_init__(self) -> None:
        check_noise_rate(self.noise_rate)
        positions = (*self.own, *self.swapped)
        if not self.own or len(self.own) != len(self.swapped):
            raise ShapeError("a correction has no predicates, or not one swap for each: build it with corrected_batch")
        if min(positions) < 0 or max(positions) >= self.asked:
            raise ShapeError("a correction points outside the predicates asked: build it with corrected_batch")

    @property
    def queries(self) -> int:
        """M, the number of answers."""
        return len(self.own)

    @property
    def amplification(self) -> Amplification:
        """The factors of the module's docstring; all 1 if no predicate depends on the label or eta is 0."""
        if self.own == self.swapped or self.noise_rate == 0.0:
            return PLAIN
        eta, kept = self.noise_rate, 1.0 - 2.0 * self.noise_rate
        return Amplification(
            sampling=1.0 / kept,
            quantisation=(1.0 - eta) / kept,
            noise=1.0 / kept,
            deviation=math.hypot(1.0 - eta, eta) / kept,
        )

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Answers (M,) on true labels from the means (asked,). Raises ShapeError for another shape."""
        if values.shape != (self.asked,):
            raise ShapeError(f"answers have shape {values.shape} where {self.asked} were asked: give one for each")
        own, swapped = values[list(self.own)], values[list(self.swapped)]
        # If own and swapped are equal, this is exactly own.
        corrected: NDArray[np.float64] = own + (self.noise_rate / (1.0 - 2.0 * self.noise_rate)) * (own - swapped)
        return corrected

    def batch(self, noise: SumNoise | None = None, quantisation: float = 0.0) -> Batch:
        """Half-widths and rows of the corrected answers, with this noise on each sum of the query."""
        return Batch(self.queries, noise, quantisation, self.asked, self.amplification)


def corrected_batch(predicates: Sequence[Predicate], noise_rate: float) -> tuple[tuple[Predicate, ...], Correction]:
    """What to query to answer `predicates` on true labels, the swaps last, and how to correct the answers.

    noise_rate: eta in [0, 1/2), known; with 0 nothing is added. Raises ConfigurationError.
    """
    check_noise_rate(noise_rate)
    if not predicates:
        raise ConfigurationError("there are no predicates: ask at least one")
    positions: dict[Predicate, int] = {}
    own = tuple(positions.setdefault(predicate, len(positions)) for predicate in predicates)
    if noise_rate == 0.0:
        return tuple(positions), Correction(0.0, own, own, len(positions))
    swaps = [swap_label(predicate) if depends_on_label(predicate) else predicate for predicate in predicates]
    swapped = tuple(positions.setdefault(swap, len(positions)) for swap in swaps)
    return tuple(positions), Correction(noise_rate, own, swapped, len(positions))


def check_noise_rate(noise_rate: float) -> float:
    """The rate itself. Raises ConfigurationError unless it is in [0, 1/2)."""
    if not 0.0 <= noise_rate < 0.5:
        raise ConfigurationError(
            f"noise_rate is {noise_rate}: give the probability in [0, 1/2) with which a label is flipped; at 1/2 "
            "labels carry no information"
        )
    return noise_rate
