"""Convolutions of masses by Fourier transforms, with a proved bound on their rounding.

A transform of length L is off by at most e(L) |x|_1, e(L) = (1 + STAGE u)^t - 1, u the round-off and t <= log2(L) the
number of stages of radix 2 to 5 (after Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002, section
24.1).

Powers, products and the inverse transform have bounds of their own, so every point of a convolution has the same error
bound.

Assumed of the library: it evaluates lengths without prime factors above 5 by these stages (pocketfft does so), with
twiddle factors right to 8 u. Tests compare transforms with extended precision. Proof: docs/explanation/proofs.md,
"Rounding of transforms".
"""

import math

import numpy as np
from numpy.typing import NDArray

from dpcore.numbers.count_distributions import ROUND_OFF

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
    """The n-fold circular convolution of masses on `length` points, and a bound on the error of each point.

    pieces: (size,), size <= length; length: without prime factors above 5.
    """
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
    power[kept] = _power(spectrum[kept], n)
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


def _power(values: NDArray[np.complex128], n: int) -> NDArray[np.complex128]:
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
