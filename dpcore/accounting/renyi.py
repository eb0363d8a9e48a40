"""Renyi divergences of single releases at fixed orders: of Laplace noise, and of whatever is only known to be pure.

A curve is a tuple: for each order 1 + s, s in STEPS, a bound on D_(1+s) between the outputs of neighbours, both ways.

Curves of releases add up, also where each is chosen after the answers to earlier ones (dpcore.accounting.filters). The
empty curve is that of no release. s D_(1+s) is convex in s, so a chord between two orders lies above it.

Every bound is an upper bound. It is computed with 300 bits, of which cancellation takes fewer than 150 for what queries
may have, raised by a margin far above the rest of the error, and rounded up to a double.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import gmpy2

from dpcore.accounting.concentrated import chord
from dpcore.errors import PlanError
from dpcore.randomness.coins import rational

Curve = tuple[Fraction, ...]

STEPS: tuple[Fraction, ...] = tuple(Fraction(2) ** power for power in range(-2, 11))
"""s = a - 1 for each finite order a of a curve. A curve has one value more, for a = infinity: the pure epsilon."""

_BITS = 300
_RELATIVE, _ABSOLUTE = Fraction(1, 1 << 80), Fraction(1, 1 << 200)
# Orders between those at which the least rho of a curve is searched, as for counts (dpcore.accounting.concentrated).
_RATIO = Fraction(21, 20)
_FIRST = Fraction(1, 1 << 10)


@lru_cache(maxsize=1024)
def pure_curve(epsilon: Fraction) -> Curve:
    """The curve of every (epsilon, 0)-private release: that of randomized response (dpcore.accounting.pure).

    Its loss is epsilon with probability 1 / (1 + e^-epsilon) and otherwise -epsilon, so E[e^(s l)] is e^(s epsilon) (1
    + e^(-(2s+1) epsilon)) / (1 + e^-epsilon). No order costs more than epsilon. Raises PlanError if epsilon is
    negative.
    """
    if epsilon < 0:
        raise PlanError(f"a pure epsilon of {epsilon}: give 0 or more")
    if epsilon == 0:
        return ()
    most = up(epsilon)

    def log_moment(s: Fraction) -> Fraction:
        with gmpy2.context(precision=_BITS):
            e, order = _real(epsilon), _real(s)
            return rational(order * e + gmpy2.log1p(gmpy2.exp(-(2 * order + 1) * e)) - gmpy2.log1p(gmpy2.exp(-e)))

    return (*(min(up(_raised(log_moment(s)) / s), most) for s in STEPS), most)


@lru_cache(maxsize=256)
def laplace_curve(scale: Fraction, l1: int, largest: int) -> tuple[Curve, Fraction]:
    """The curve of independent discrete Laplace noise of `scale` on integers, and a rho with D_a <= a rho for all a.

    l1, largest: a record moves the integers by at most l1 in total, and each by at most `largest`. Raises PlanError if
    one is not positive.

    A single integer that moves by k, x = k / t, q = e^(-1/t), u = q^(2s+1): under P the loss is x with probability
    1 / (1 + q), from k on -x with q^k / (1 + q), and between them it falls linearly, so the geometric sum gives

        E[e^(s l)] = A e^(s x) + (1 - A) e^(-(s+1) x),   A = (1 - q u) / ((1 - u) (1 + q)),   0 <= A <= 1.

    Its logarithm is convex in x and 0 at x = 0. So the sum over all integers is largest at an extreme point of what is
    allowed: as many as possible move by `largest`, and one by the rest.
    """
    if l1 <= 0 or largest <= 0:
        raise PlanError(f"sensitivities {l1} and {largest}: give positive numbers")
    largest = min(largest, l1)
    whole, rest = divmod(l1, largest)
    epsilon = Fraction(l1) / scale
    pure = pure_curve(epsilon)

    def log_moment(s: Fraction) -> Fraction:
        with gmpy2.context(precision=_BITS):
            inverse, order = 1 / _real(scale), _real(s)
            q, u = gmpy2.exp(-inverse), gmpy2.exp(-(2 * order + 1) * inverse)
            other = 1 - (1 - q * u) / ((1 - u) * (1 + q))
            total = gmpy2.mpfr(0)
            for count, shift in ((whole, largest), (1, rest)):
                x = shift * inverse
                total += count * (order * x + gmpy2.log1p(other * gmpy2.expm1(-(2 * order + 1) * x)))
            return rational(total)

    curve = tuple(min(up(_raised(log_moment(s)) / s), most) for s, most in zip(STEPS, pure, strict=False))
    return (*curve, pure[-1]), _least_rho(log_moment, epsilon)


def at_order(curve: Curve, s: Fraction) -> Fraction:
    """A bound on D_(1+s) from a curve, at any s > 0: by the chord between the orders around it.

    D grows with its order, so the first value bounds all orders below.
    """
    if not curve:
        return Fraction(0)
    place = bisect_left(STEPS, s)
    if place == len(STEPS):
        return curve[-1]
    if place == 0 or STEPS[place] == s:
        return curve[place]
    low, high = STEPS[place - 1], STEPS[place]
    below, above = low * curve[place - 1], high * curve[place]
    return min(curve[place], (below + (above - below) * (s - low) / (high - low)) / s)


def largest_pure(s: Fraction, room: float, most: float) -> float:
    """About the largest epsilon, at most `most`, of a pure release whose curve is at most `room` at order 1 + s."""
    place = min(bisect_left(STEPS, s), len(STEPS) - 1)
    high_s = float(STEPS[place])
    low_s = float(STEPS[place - 1]) if place else high_s
    part = (float(s) - low_s) / (high_s - low_s) if high_s > low_s and s < high_s else 1.0

    def log_moment(order: float, epsilon: float) -> float:
        return order * epsilon + math.log1p(math.exp(-(2 * order + 1) * epsilon)) - math.log1p(math.exp(-epsilon))

    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        found = (1 - part) * log_moment(low_s, middle) + part * log_moment(high_s, middle)
        low, high = (middle, high) if found <= room * min(float(s), high_s) else (low, middle)
    return low


def added(one: Curve, other: Curve) -> Curve:
    """The sum of two curves."""
    return tuple(a + b for a, b in zip(one, other, strict=True)) if one and other else one or other


def up(value: Fraction) -> Fraction:
    """The next double from `value` on, as a fraction."""
    rounded = float(value)
    return Fraction(rounded if Fraction(rounded) >= value else math.nextafter(rounded, math.inf))


def _raised(value: Fraction) -> Fraction:
    return max(Fraction(0), value) * (1 + _RELATIVE) + _ABSOLUTE


def _least_rho(log_moment: Callable[[Fraction], Fraction], epsilon: Fraction) -> Fraction:
    """A rho with D_a <= a rho for all a > 1, from K(s) = s D_(1+s), found as in `of_count`."""
    s, largest = _FIRST, float(up(epsilon))
    k = float(up(_raised(log_moment(s))))
    rho = k / float(s)
    while largest / (1 + float(s)) > rho:
        next_s = s * _RATIO
        next_s = Fraction(math.ceil(next_s * (1 << 20)), 1 << 20)
        next_k = float(up(_raised(log_moment(next_s))))
        rho = max(rho, chord(float(s), k, float(next_s), next_k))
        s, k = next_s, next_k
    return up(Fraction(rho) * (1 + Fraction(1, 10**12)))


def _real(value: Fraction) -> "gmpy2.mpfr":
    return gmpy2.mpfr(gmpy2.mpq(value))
