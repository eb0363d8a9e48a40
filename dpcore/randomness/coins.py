"""Coins of any computable probability, decided exactly: rounding never affects the result.

A 64-bit word is the start of a uniform number. Double precision decides on which side of the probability it is, as long
as they are further apart than its error.

Otherwise, once in about 2^39 coins, the sampler draws further bits and compares them with bounds of the probability.
The distribution is exact, and the same bytes give the same coins on every machine. The time that a coin takes is not
hidden.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import gmpy2
import numpy as np
from numpy.typing import NDArray

from dpcore.randomness.sources import RandomSource

TOLERANCE = 2.0**-40
"""The most by which a probability in double precision may be off, including the 2^-53 of a word's conversion."""


def words(count: int, random: RandomSource) -> NDArray[np.uint64]:
    """`count` uniform 64-bit words: uint64 (count,)."""
    return np.frombuffer(random.bytes(8 * count), dtype="<u8").astype(np.uint64)


def indices(bound: int, count: int, random: RandomSource) -> NDArray[np.int64]:
    """`count` independent integers, uniform on [0, bound), by rejection: int64 (count,). bound: from 1 to 2^63."""
    mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
    accepted = [np.empty(0, dtype=np.uint64)]
    missing = count
    while missing > 0:
        drawn = words(2 * missing + 8, random) & mask
        accepted.append(drawn[drawn < np.uint64(bound)][:missing])
        missing -= len(accepted[-1])
    return np.concatenate(accepted).astype(np.int64)


def bernoulli(
    chances: NDArray[np.float64], bounds: Callable[[int, int], tuple[int, int]], random: RandomSource
) -> NDArray[np.bool_]:
    """One coin for each of `chances` (n,), each within TOLERANCE / 2 of its true p: bool (n,).

    bounds(i, precision): integers below and above p_i 2^precision, whose distance stays bounded as the precision grows.
    """
    drawn = words(len(chances), random)
    uniform = drawn.astype(np.float64) * 2.0**-64
    heads = uniform < chances
    for index in np.flatnonzero(np.abs(uniform - chances) <= TOLERANCE):
        heads[index] = decide(int(drawn[index]), partial(bounds, int(index)), random)
    return heads


def bernoulli_exp(
    gammas: NDArray[np.float64], exact: Callable[[int], Fraction], random: RandomSource
) -> NDArray[np.bool_]:
    """One coin of probability exp(-gamma) for each of `gammas` (n,), all >= 0. exact(i): the i-th as a rational.

    Assumes that each of `gammas` is within 2^-48 (1 + gamma) of the exact one, so that exp(-gamma) is within 2^-47.
    """
    return bernoulli(np.exp(-gammas), lambda i, precision: exp_bounds(exact(i), precision), random)


def decide(word: int, bounds: Callable[[int], tuple[int, int]], random: RandomSource) -> bool:
    """Whether the uniform number that starts with the 64 bits of `word` is below p. Draws more bits as needed.

    bounds(precision): integers below and above p 2^precision.
    """
    bits, precision = word, 64
    while True:
        low, high = bounds(precision)
        if bits + 1 <= low:
            return True
        if bits >= high:
            return False
        bits, precision = (bits << 64) | random.bits(64), precision + 64


def exp_bounds(gamma: Fraction, precision: int) -> tuple[int, int]:
    """Integers below and above exp(-gamma) 2^precision, at most 2 apart, by MPFR's directed rounding. gamma >= 0."""
    low, high = exp_interval(-gamma, -gamma, precision + 16)
    return around(low, high, precision)


def exp_interval(lower: Fraction, upper: Fraction, precision: int) -> tuple[Fraction, Fraction]:
    """Rationals below exp(lower) and above exp(upper), each within a relative 2^(2 - precision)."""
    ends = []
    # The argument is rounded too, and its relative error is multiplied by the argument's size in the exponential.
    guard = max(0, int(max(abs(lower), abs(upper))).bit_length())
    for exponent, rounding in ((lower, gmpy2.RoundDown), (upper, gmpy2.RoundUp)):
        with gmpy2.context(precision=precision + guard, round=rounding):
            ends.append(rational(gmpy2.exp(gmpy2.mpfr(gmpy2.mpq(exponent)))))
    return ends[0], ends[1]


def rational(number: object) -> Fraction:
    """An MPFR number as an exact rational."""
    exact = gmpy2.mpq(number)
    return Fraction(int(exact.numerator), int(exact.denominator))


def around(low: Fraction, high: Fraction, precision: int) -> tuple[int, int]:
    """floor(low 2^precision) and ceil(high 2^precision)."""
    return (
        (low.numerator << precision) // low.denominator,
        -((-high.numerator << precision) // high.denominator),
    )
