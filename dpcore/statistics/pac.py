"""The guarantee of a private PAC learner, and the number of rows that it needs.

Definition (Kasiviswanathan et al., SIAM J. Comput. 2011, section 3). For every distribution P and every target in the
class, with probability at least 1 - beta over independent rows and coins, the learned concept errs with probability
less than alpha under P, from `rows` rows on. Privacy, (epsilon, delta) for one replaced row, holds for every table.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.accounting.noise_shares import GaussianShares, NoiseShares
from dpcore.errors import ConfigurationError, PlanError, ShapeError
from dpcore.numbers.rationals import check_rational

Where = Literal["at one party or a curator", "federated"]
"""Who computes: a party that holds all rows; or anyone with the noisy totals of several parties, without any row."""


class TooFewRowsError(PlanError):
    """There are fewer `rows` than the guarantee needs: `needed` would suffice."""

    def __init__(self, rows: int, needed: int) -> None:
        self.rows, self.needed = rows, needed
        super().__init__(f"{rows} rows, and the guarantee needs {needed}: add rows, or raise alpha, beta or epsilon")


@dataclass(frozen=True)
class PacGuarantee:
    """(alpha, beta, epsilon, delta)-private PAC learning from `rows` rows. Raises ConfigurationError, PlanError."""

    alpha: float
    beta: float
    epsilon: Fraction
    delta: Fraction
    rows: int
    """Examples of all parties in total."""
    where: Where
    """See `Where`."""
    agnostic: bool = False
    """Labels may come from any distribution of (x, y), and the learned concept's error is less than that of the best
    concept in the class plus alpha."""

    def __post_init__(self) -> None:
        check_accuracy(self.alpha, self.beta)
        check_rational("epsilon", self.epsilon)
        if not 0 <= self.delta < 1:
            raise ConfigurationError(f"delta is {self.delta}: give 0 or a probability below 1")
        if self.rows < 1:
            raise ConfigurationError(f"a guarantee from {self.rows} rows on: give at least 1")

    def __str__(self) -> str:
        beyond, given = ("", " and a concept of the class gave the labels")
        if self.agnostic:
            beyond, given = " above that of the best concept of the class", ""
        return (
            f"with probability {1 - self.beta:g} the error on new rows is less than {self.alpha:g}{beyond}, if there "
            f"are at least {self.rows} rows{given}"
        )

    def check_rows(self, rows: int) -> None:
        """Raise TooFewRowsError if `rows` are fewer than the guarantee needs."""
        if rows < self.rows:
            raise TooFewRowsError(rows, self.rows)


def check_accuracy(alpha: float, beta: float) -> None:
    """Raise ConfigurationError if alpha or beta is not strictly between 0 and 1."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not (math.isfinite(value) and 0 < value < 1):
            raise ConfigurationError(f"{name} is {value}: give a number strictly between 0 and 1")


# How many rows suffice for a choice among finitely many concepts by noisy numbers of errors.
#
# A bad concept h has e(h) at least alpha of the rows (agnostic: above that of the best h*). All algorithms here
# satisfy, for some s > 0 and numbers K_h(s) that do not depend on the data,
#
#     P[h is chosen | rows] <= K_h(s) exp(-s (e(h) - e(h*))).                                                    (1)
#
# With rate(s) = -log(1 - alpha (1 - exp(-s))), or -log(cosh(s) - alpha sinh(s)) in the agnostic case, a bad concept is
# chosen with probability at most beta from n = (log K(s) + log(1 / beta)) / rate(s) rows on. Proof:
# docs/explanation/proofs.md, "Rows for a choice among concepts".


_GRID = np.geomspace(1e-7, 1.0, 2001)
# Neither bound improves for larger s: exp(-60) is negligible compared with 1.
_LARGEST = 60.0
# Bound on the relative rounding error of the few operations that give a number of rows.
_ROUNDING = 1e-9


def pac_rows(
    log_competitors: Callable[[float], float], alpha: float, beta: float, reach: float, *, agnostic: bool
) -> int:
    """The number of rows from which a bad concept is chosen with probability at most beta.

    log_competitors: log K(s), in nats, for s in (0, reach]; infinite if unknown. Raises PlanError, ConfigurationError.
    """
    check_accuracy(alpha, beta)
    # cosh(s) - alpha sinh(s) is least at tanh(s) = alpha, and K(s) grows with s.
    largest = min(reach, math.atanh(alpha) if agnostic else _LARGEST)
    best = math.inf
    for s in (largest * _GRID).tolist():
        rate = row_rate(s, alpha, agnostic=agnostic)
        if rate > 0:
            best = min(best, (log_competitors(s) - math.log(beta)) / rate)
    if not best < 1 << 62:
        raise PlanError("no number of rows below 2^62 suffices: raise alpha, beta or epsilon, or take a smaller domain")
    return math.ceil(best * (1 + _ROUNDING)) if best > 1 else 1


def row_rate(s: float, alpha: float, *, agnostic: bool) -> float:
    """The rate(s) of the module's docstring, in nats a row; not positive where agnostic and s is too large."""
    if agnostic:
        return -math.log1p(2 * math.sinh(s / 2) ** 2 - alpha * math.sinh(s))
    return -math.log1p(alpha * math.expm1(-s))


# Counts by interval and label: the counts to query, and the effect of their noise on a comparison of concepts. In (1)
# K_h(s) is the moment generating function of the noise on all counts that the comparison adds or subtracts.


MOST_COUNT_BITS = 15
"""Domains up to {0, ..., 2^15 - 1}: two counts for each value are the 2^16 statistics that one query may ask for."""


@dataclass(frozen=True)
class IntervalCounts:
    """The counts to query: for each label and each interval [lo, hi), the rows of that label whose value is in it.

    The answer is (2, len(intervals)), label 0 (or -1) first. l1, l2_squared: one row is in one interval of each of
    `levels`.
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

    Its moment generating function is at most exp(sigma^2 s^2 / 2). Raises ConfigurationError if sigma is negative.
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
    """Noise on each total: discrete Laplace of `scale` rows, on any grid, `copies` times. Raises ConfigurationError."""

    scale: float
    copies: Fraction = Fraction(1)
    """1 if the shares add up to exactly one such variable; N / h if N parties add shares made for h. Its moment
    generating function is at most the continuous 1 / (1 - s^2 t^2), as sinh(x) / x grows."""

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
    """The noise on each count if `parties` add shares and a row is 2^fraction_bits units. Raises ConfigurationError."""
    if parties < 1:
        raise ConfigurationError(f"{parties} parties: give at least 1")
    unit = 1 << fraction_bits
    if isinstance(shares, GaussianShares):
        return GaussianCounts(shares.deviation(parties) / unit)
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
    """The guarantee of choosing the concept of fewest noisy errors, of counts released at (epsilon, delta).

    log_competitors: log K(s) of the log moment generating function of a count at s. Raises as `pac_rows`.
    """
    rows = pac_rows(lambda s: log_competitors(noise.log_mgf(s)), alpha, beta, noise.reach, agnostic=agnostic)
    return PacGuarantee(alpha, beta, epsilon, delta, rows, "federated", agnostic)


def check_counts(counts: ArrayLike) -> tuple[NDArray[np.float64] | NDArray[np.int64], int]:
    """Counts as an array (2, 2^bits), integers as such, and bits, to 15. Raises ShapeError, ConfigurationError."""
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


# Labelled examples for the PAC learners: validated once, labels as Booleans.


MOST_BITS = 62
"""Domains up to {0, ..., 2^62 - 1}, so that a bound of an interval fits 64 bits."""


def labels_of(labels: ArrayLike) -> NDArray[np.bool_]:
    """Labels as Booleans (n,), of {0, 1} or {-1, +1}, not mixed. Raises ShapeError, ConfigurationError."""
    values = np.asarray(labels)
    if values.ndim != 1:
        raise ShapeError(f"labels have shape {values.shape}: give one label a row, (n,)")
    if values.dtype.kind not in "buif":
        raise ConfigurationError(f"labels have type {values.dtype}: write them as 0 and 1, or as -1 and +1")
    positive: NDArray[np.bool_] = values == 1
    if not ((positive | (values == 0)).all() or (positive | (values == -1)).all()):
        raise ConfigurationError("labels are neither all in {0, 1} nor all in {-1, +1}: use one of the two")
    return positive


def integers_of(points: ArrayLike, labels: ArrayLike, bits: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Points (n,) below 2^bits as int64, and labels as Booleans. Raises ShapeError, ConfigurationError."""
    check_bits(bits, MOST_BITS)
    positive, values = labels_of(labels), np.asarray(points)
    if values.shape != positive.shape:
        raise ShapeError(f"points have shape {values.shape} and labels {positive.shape}: give both as (n,)")
    if len(values) == 0:
        return np.empty(0, dtype=np.int64), positive
    if values.dtype.kind not in "ui":
        raise ConfigurationError(f"points have type {values.dtype}: give integers from 0 to 2^bits - 1")
    if int(values.min()) < 0 or int(values.max()) >= 1 << bits:
        raise ConfigurationError(f"a point is outside 0 to 2^{bits} - 1: raise bits or check the points")
    return values.astype(np.int64), positive


def bit_rows_of(points: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Points (n, d) of 0 and 1, and labels, as Booleans. Raises ShapeError, ConfigurationError."""
    positive, values = labels_of(labels), np.asarray(points)
    if values.ndim != 2 or len(values) != len(positive) or values.shape[1] < 1:
        raise ShapeError(f"points have shape {values.shape} and labels {positive.shape}: give (n, d), d >= 1, and (n,)")
    if values.dtype == np.bool_:
        return values, positive
    ones: NDArray[np.bool_] = values == 1
    if not (ones | (values == 0)).all():
        raise ConfigurationError("a point has a coordinate other than 0 or 1: give bits")
    return ones, positive


def check_bits(bits: int, most: int) -> None:
    """Raise ConfigurationError if bits is not an integer from 1 to `most`."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= most:
        raise ConfigurationError(f"a domain of {bits} bits: give an integer from 1 to {most}")


# Point functions from noisy counts: c_j(x) = 1 if x = j, else 0. With N_y(x) rows of label y at x, the fewest errors
# are where N_1(j) - N_0(j) is largest. K(s) = (2^d - 1) M(s)^4, M the moment generating function of a count's noise.


def point_counts(bits: int) -> IntervalCounts:
    """The counts that `point_from_counts` needs: every value by label; bits to 15. ConfigurationError."""
    check_bits(bits, MOST_COUNT_BITS)
    return IntervalCounts(tuple((value, value + 1) for value in range(1 << bits)), levels=1)


def point_from_counts(counts: ArrayLike) -> int:
    """The j whose concept has the fewest errors by the counts; the least such j.

    counts: (2, 2^bits) noisy numbers of rows in the order of `point_counts`, in any common unit. Post-processing: it
    costs no privacy. Raises ShapeError or ConfigurationError if counts are not such numbers.
    """
    (negatives, positives), _ = check_counts(counts)
    return int(np.argmax(positives - negatives))


def point_counts_guarantee(
    bits: int,
    alpha: float,
    beta: float,
    noise: CountNoise,
    epsilon: Fraction,
    delta: Fraction,
    *,
    agnostic: bool = False,
) -> PacGuarantee:
    """The guarantee of `point_from_counts` with this noise, of counts released at (epsilon, delta)."""
    check_bits(bits, MOST_COUNT_BITS)
    log_others = math.log((1 << bits) - 1)
    return counts_guarantee(
        lambda log_mgf: log_others + 4 * log_mgf, noise, alpha, beta, epsilon, delta, agnostic=agnostic
    )


# Thresholds from noisy counts: c_j(x) = 1 if x < j, for j from 0 to 2^d; e(j) - e(0) = N_0[0, j) - N_1[0, j).
#
# Interval v, from 1 to 2^d, is [v - b, v) with b the lowest set bit of v (Fenwick, Software: Practice and Experience
# 24(3), 1994): [0, j) is the union of one interval for each set bit of j, on d + 1 levels.
#
#     K(s) <= sum_{t < d} M2^(t + 1) (1 + M2)^t + M2^(d + 1);   K(s) = M2 (1 + M2)^d where j = 2^d,
#
# M2 the squared moment generating function of one count's noise. Proof: docs/explanation/proofs.md, "Rows for a
# threshold".


def threshold_counts(bits: int) -> IntervalCounts:
    """The counts that `threshold_from_counts` needs: 2^bits intervals by label, in bits + 1 levels; bits to 15."""
    check_bits(bits, MOST_COUNT_BITS)
    return IntervalCounts(tuple((end - (end & -end), end) for end in range(1, (1 << bits) + 1)), levels=bits + 1)


def threshold_from_counts(counts: ArrayLike) -> int:
    """The j whose concept has the fewest errors by the counts; the least such j.

    counts: (2, 2^bits) noisy numbers of rows in the order of `threshold_counts`, in any common unit. Post-processing:
    it costs no privacy. Raises ShapeError or ConfigurationError if counts are not such numbers.
    """
    (negatives, positives), bits = check_counts(counts)
    errors = np.concatenate([[0], negatives - positives])
    # From the longest interval down: errors[v] becomes that of [0, v) once [0, v - b), of longer ones, is known.
    for level in range(bits, -1, -1):
        ends = np.arange(1 << level, len(errors), 2 << level)
        errors[ends] += errors[ends - (1 << level)]
    return int(np.argmin(errors))


def threshold_counts_guarantee(
    bits: int,
    alpha: float,
    beta: float,
    noise: CountNoise,
    epsilon: Fraction,
    delta: Fraction,
    *,
    agnostic: bool = False,
) -> PacGuarantee:
    """The guarantee of `threshold_from_counts` with this noise, of counts released at (epsilon, delta)."""
    check_bits(bits, MOST_COUNT_BITS)
    return counts_guarantee(
        lambda log_mgf: log_competitors(bits, log_mgf), noise, alpha, beta, epsilon, delta, agnostic=agnostic
    )


def log_competitors(bits: int, log_mgf: float) -> float:
    """The larger log K(s) of the module's docstring; log_mgf: that of the noise on one count, at s."""
    pair = 2 * log_mgf
    either = float(np.logaddexp(0.0, pair))
    terms = [(level + 1) * pair + level * either for level in range(bits)]
    below = float(np.logaddexp.reduce([*terms, (bits + 1) * pair]))
    return max(below, pair + bits * either)
