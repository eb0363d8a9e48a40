"""The normal distribution's functions in NumPy, with relative errors below 2^-47 where nothing underflows.

erfcx(x) = e^(x^2) erfc(x), x >= 0, is W. J. Cody's: rational functions on three intervals (Math. Comp. 23, 1969,
631-637, with the coefficients of his CALERF). Phi(z) = e^(-z^2/2) erfcx(-z / sqrt 2) / 2 for z <= 0, with z^2 split so
that its exponential is accurate. exp is taken to be right to 4 round-offs.

Proof of the bound: docs/explanation/proofs.md, "Rounding of the normal distribution".
"""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Number = TypeVar("Number", float, Vector)

_NEAR, _FAR = 15 / 32, 4.0
# Arrays shorter than this take less time number by number; longer ones in pieces, most of which are on one interval.
_SHORT, _PIECE = 100, 2048
# Beyond, Phi(-z) is below the least double.
_WIDEST = 64.0
_SQRT_PI = math.sqrt(math.pi)

# Coefficients, highest degree first.
_NEAR_N = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_NEAR_D = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_MIDDLE_N = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_MIDDLE_D = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_FAR_N = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
_FAR_D = (
    1.0,
    2.56852019228982242e0,
    1.87295284992346725e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)


def erfcx(x: Vector) -> Vector:
    """e^(x^2) erfc(x), the scaled complement of the error function, of each x >= 0; 0 at infinity: (n,)."""
    if x.size < _SHORT:
        return np.array([_erfcx(one) for one in x.tolist()])
    found = np.empty_like(x)
    for first in range(0, x.size, _PIECE):
        _erfcx_piece(x[first : first + _PIECE], found[first : first + _PIECE])
    return found


def tails(z: Vector) -> tuple[Vector, Vector]:
    """Phi(z) and Phi(-z): the probabilities that a standard normal variable is at most z, and above z. Both (n,)."""
    outer = np.minimum(np.abs(z), _WIDEST)
    near = np.rint(outer * 16.0) / 16.0
    with np.errstate(under="ignore"):
        bell = np.exp(-near * near / 2.0) * np.exp(-(outer - near) * (outer + near) / 2.0)
        tail = bell * erfcx(outer / math.sqrt(2.0)) / 2.0
    return np.where(z <= 0.0, tail, 1.0 - tail), np.where(z < 0.0, 1.0 - tail, tail)


def quantile(probability: float) -> float:
    """The z with Phi(z) = probability, which is in [0, 1), to about 16 digits (Wichura, AS 241, 1988)."""
    return NormalDist().inv_cdf(probability) if probability else -math.inf


def _erfcx_piece(x: Vector, out: Vector) -> None:
    near, far = x <= _NEAR, x > _FAR
    for interval, function in ((near, _erfcx_near), (far, _erfcx_far), (~(near | far), _erfcx_middle)):
        if interval.all():
            out[:] = function(x)
        elif interval.any():
            out[interval] = function(x[interval])


def _erfcx(x: float) -> float:
    if x <= _NEAR:
        return _erfcx_near(x)
    return _erfcx_middle(x) if x <= _FAR else _erfcx_far(x)


def _erfcx_near(x: Number) -> Number:
    square = x * x
    erf = x * _polynomial(_NEAR_N, square) / _polynomial(_NEAR_D, square)
    return (1.0 - erf) * (math.exp(square) if isinstance(square, float) else np.exp(square))


def _erfcx_middle(x: Number) -> Number:
    return _polynomial(_MIDDLE_N, x) / _polynomial(_MIDDLE_D, x)


def _erfcx_far(x: Number) -> Number:
    square = 1.0 / x / x
    return (1.0 / _SQRT_PI - square * _polynomial(_FAR_N, square) / _polynomial(_FAR_D, square)) / x


def _polynomial(coefficients: tuple[float, ...], x: Number) -> Number:
    """By Horner's rule."""
    first, second, *others = coefficients
    value = x * first + second
    for coefficient in others:
        value = value * x + coefficient
    return value


# Distribution of k, the count that determines DP-FEAT's sensitive coordinate: Binomial(m, 1/2), conditioned on low <= k
# <= m - low; the sum of the parties' for a pool. All are symmetric about half the row count.
#
# `trimmed` bounds the total variation distance that cut tails cause; masses are products and sums of positive numbers,
# whose number bounds their `relative_error`.


ROUND_OFF = 2.0**-53
# Tails with a total mass below 2^-400 on both sides are cut. By Hoeffding they start 11.8 sqrt(m) either side of m/2.
TAIL_BITS = 400
# If the distribution is conditioned on the truncation, the cut tail has at most (m + 1) times more mass: the admitted
# range contains the mode, whose mass is at least 1/(m + 1). Rows are below 2^60.
TRIMMED = 2.0 ** (60 - TAIL_BITS)
MOST_ROWS = 1 << 60


@dataclass(frozen=True, eq=False)
class CountDistribution:
    """A distribution of k on the integers low, low + 1, ...: symmetric, all masses positive, sum 1."""

    low: int
    masses: NDArray[np.float64]
    """(width,)."""
    losses: NDArray[np.float64]
    """(width - 1,), log(p(k) / p(k - 1)) for k = low + 1, ..., nats, decreasing."""
    trimmed: float
    """Bounds the total variation distance to the true distribution."""
    relative_error: float
    """Bounds the relative error of each mass, up to one common factor."""
    loss_error: float
    """Bounds the absolute error of each loss."""


def _window(rows: int) -> int:
    """The least k of the window: P(|k - m/2| > m/2 - window) <= 2 exp(-2 (m/2 - window)^2 / m) <= 2^-TAIL_BITS."""
    half_width = math.ceil(math.sqrt((TAIL_BITS + 1) * math.log(2) * rows / 2)) + 1
    return max(0, rows // 2 - half_width)


def hardly_truncated(rows: int, low: int) -> bool:
    """Whether a truncation cuts no more than the window does: the distribution is the binomial, within `trimmed`."""
    return 0 < low < _window(rows)


def _halves(rows: int, low: int) -> NDArray[np.float64]:
    """Binomial(rows, 1/2) on low..rows-low, divided by the mass of its mode; at most 3 round-offs a step."""
    mode = rows // 2
    k = np.arange(mode, low, -1, dtype=np.float64)
    left = np.concatenate([np.ones(1), np.cumprod(k / (rows - k + 1))])
    return np.concatenate([left[::-1], left[1:] if rows % 2 == 0 else left])


def binomial_mass(rows: int, low: int) -> float:
    """P(low <= Binomial(rows, 1/2) <= rows - low), with a relative error below 1e-9; 0 if the range is empty."""
    if 2 * low > rows:
        return 0.0
    window = _window(rows)
    whole = _halves(rows, window)
    cut = max(0, low - window)
    return float(whole[cut : len(whole) - cut].sum() / whole.sum())


def binomial_distribution(rows: int, low: int = 0) -> CountDistribution:
    """Binomial(rows, 1/2) conditioned on low <= k <= rows - low. Assumes 1 <= rows < 2^60 and a non-empty range."""
    assert 1 <= rows < MOST_ROWS
    assert 0 <= 2 * low <= rows
    first = max(low, _window(rows))
    masses = _halves(rows, first)
    k = np.arange(first + 1, rows - first + 1, dtype=np.float64)
    losses = np.log1p((rows + 1 - 2 * k) / k)
    return CountDistribution(
        low=first,
        masses=masses / masses.sum(),
        losses=losses,
        trimmed=TRIMMED if first > low else 0.0,
        relative_error=4 * ROUND_OFF * len(masses),
        loss_error=8 * ROUND_OFF * float(np.abs(losses).max(initial=0.0)),
    )


def convolution(a: CountDistribution, b: CountDistribution) -> CountDistribution:
    """The distribution of the sum of two independent counts."""
    masses = np.convolve(a.masses, b.masses)
    # A sum of w positive products is off by at most w + 1 round-offs.
    error = a.relative_error + b.relative_error + 2 * ROUND_OFF * (min(len(a.masses), len(b.masses)) + 2)
    # Rounding breaks the symmetry; this restores it. The mean of two values has at most the larger of their errors.
    masses = (masses + masses[::-1]) / 2
    cut = int(np.searchsorted(np.cumsum(masses), 2.0 ** -(TAIL_BITS + 1), side="right"))
    dropped = 4 * float(masses[:cut].sum())
    masses = masses[cut : len(masses) - cut]
    losses = np.diff(np.log(masses))
    return CountDistribution(
        low=a.low + b.low + cut,
        masses=masses / masses.sum(),
        losses=losses,
        trimmed=a.trimmed + b.trimmed + dropped,
        relative_error=error,
        # The logarithms themselves are off by a few round-offs of their size, at most TAIL_BITS log 2.
        loss_error=2 * error + 8 * ROUND_OFF * (TAIL_BITS + 100),
    )


def pooled_distribution(parties: Sequence[tuple[int, int]]) -> CountDistribution:
    """The distribution of the sum of k over independent parties, each given as (rows, low).

    Only truncated ones are convolved, equal ones by doubling, the narrowest first; the others are one binomial.
    """
    assert parties
    untruncated = [(rows, low) for rows, low in parties if low <= _window(rows)]
    truncated = Counter((rows, low) for rows, low in parties if low > _window(rows))
    counts: list[CountDistribution] = [
        _sum_of_independent(binomial_distribution(*party), count) for party, count in truncated.items()
    ]
    if untruncated:
        whole = binomial_distribution(sum(rows for rows, _ in untruncated))
        # For each untruncated party with low > 0 the binomial replaces the conditioned distribution.
        replaced = TRIMMED * sum(low > 0 for _, low in untruncated)
        counts.append(
            CountDistribution(
                whole.low, whole.masses, whole.losses, whole.trimmed + replaced, whole.relative_error, whole.loss_error
            )
        )
    # Ties are broken by arrival, since distributions do not compare.
    arrival = itertools.count()
    heap = [(len(count.masses), next(arrival), count) for count in counts]
    heapq.heapify(heap)
    while len(heap) > 1:
        *_, a = heapq.heappop(heap)
        *_, b = heapq.heappop(heap)
        both = convolution(a, b)
        heapq.heappush(heap, (len(both.masses), next(arrival), both))
    return heap[0][2]


def _sum_of_independent(base: CountDistribution, count: int) -> CountDistribution:
    """The distribution of the sum of `count` independent copies."""
    result: CountDistribution | None = None
    while True:
        if count % 2:
            result = base if result is None else convolution(result, base)
        count //= 2
        if count == 0:
            assert result is not None
            return result
        base = convolution(base, base)


# Convolutions of masses by Fourier transforms, with a proved bound on their rounding.
#
# A transform of length L is off by at most e(L) |x|_1, e(L) = (1 + STAGE u)^t - 1, t <= log2(L) the number of stages of
# radix 2 to 5 (after Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002, section 24.1). Assumes that
# the library uses these stages (pocketfft does), with twiddle factors right to 8 u; tests compare with extended
# precision. Proof: docs/explanation/proofs.md, "Rounding of transforms".


STAGE = 20
"""c: round-offs of a stage of a transform, for each entry."""

# Powers below it are replaced by 0.
_NEGLIGIBLE = 2.0**-120
# Bounds are themselves computed in double precision.
_MARGIN = 1.001


def transform_error(length: int) -> float:
    """e(L): the error of each value of a transform of `length` points, relative to the sum of the inputs' moduli."""
    return _MARGIN * math.expm1(math.ceil(math.log2(max(length, 2))) * math.log1p(STAGE * ROUND_OFF))


def self_convolved(pieces: NDArray[np.float64], n: int, length: int) -> tuple[NDArray[np.float64], float]:
    """The n-fold circular convolution on `length` points, no prime factors above 5; a bound on each error."""
    if n == 1:
        return np.concatenate([pieces, np.zeros(length - len(pieces))]), 0.0
    error = transform_error(length)
    off = error * float(np.abs(pieces).sum())
    spectrum = np.fft.rfft(pieces, length)
    largest = np.abs(spectrum) * (1 + 4 * ROUND_OFF) + off
    with np.errstate(under="ignore"):
        powers = np.exp(n * np.log(largest))
    kept = powers > _NEGLIGIBLE
    power = np.zeros_like(spectrum)
    power[kept] = _spectrum_power(spectrum[kept], n)
    wrong = np.where(kept, n * (off / largest + 5 * ROUND_OFF) * powers, powers)
    return np.fft.irfft(power, length), _inverse_error(wrong, powers, length)


def convolved(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """The convolution of two arrays, (len(a) + len(b) - 1,), and a bound on the error of each point."""
    points = len(a) + len(b) - 1
    length = fast_length(points)
    error = transform_error(length)
    first, second = np.fft.rfft(a, length), np.fft.rfft(b, length)
    off_a, off_b = (error * float(np.abs(part).sum()) for part in (a, b))
    size_a, size_b = np.abs(first) * (1 + 4 * ROUND_OFF), np.abs(second) * (1 + 4 * ROUND_OFF)
    wrong = off_a * (size_b + off_b) + off_b * size_a + 3 * ROUND_OFF * size_a * size_b
    found = np.fft.irfft(first * second, length)[:points]
    return found, _inverse_error(wrong, size_a * size_b, length)


def fast_length(least: int) -> int:
    """The least length >= `least` without a prime factor above 5: transforms of such lengths are fast."""
    best = 1 << (least - 1).bit_length()
    fives = 1
    while fives < best:
        odd = fives
        while odd < best:
            best = min(best, odd << (-(-least // odd) - 1).bit_length())
            odd *= 3
        fives *= 5
    return best


def _inverse_error(wrong: NDArray[np.float64], moduli: NDArray[np.float64], length: int) -> float:
    """The error of each point of the inverse transform of half a spectrum that is off by `wrong`."""
    error = transform_error(length) + 2 * ROUND_OFF
    total = float(wrong.sum()) * (1 + error) + error * float(moduli.sum())
    return _MARGIN * 2 * total / length


def _spectrum_power(values: NDArray[np.complex128], n: int) -> NDArray[np.complex128]:
    """The n-th powers, by squaring: at most 2 n multiplications' errors, in place of those of a logarithm."""
    result: NDArray[np.complex128] | None = None
    with np.errstate(under="ignore"):
        while True:
            if n % 2:
                result = values if result is None else result * values
            n //= 2
            if not n:
                assert result is not None
                return result
            values = values * values
