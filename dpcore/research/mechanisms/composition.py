"""Adaptive composition of mechanisms on the same records, each of an (epsilon, delta) fixed in advance.

Three bounds. Basic: epsilons and deltas add (Dwork, Kenthapadi, McSherry, Mironov and Naor, EUROCRYPT 2006). Strong:
Dwork, Rothblum and Vadhan (FOCS 2010, Theorem III.3), better than basic for many small epsilons.

Optimal: Kairouz, Oh and Viswanath (ICML 2015, Theorem 3.3), never worse than either; no smaller bound holds for every k
mechanisms of that (epsilon, delta). It is the distribution of k pairs of coins: a mechanism reveals its input with
probability delta, and else is randomized response.

Results are rounded up.
"""

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import gmpy2

from dpcore.errors import PlanError
from dpcore.randomness.noise import rational
from dpcore.research.mechanisms.noise import check_epsilon

MOST_MECHANISMS = 1 << 16
# Sums of positive terms, each a product of at most about 2^17 factors: relative errors are below 2^-200.
_PRECISION = 256
_ERROR = Fraction(1, 1 << 200)


def basic(losses: Iterable[tuple[Fraction, Fraction]]) -> tuple[Fraction, Fraction]:
    """The sums of the epsilons and of the deltas, delta at most 1. Raises PlanError if one is out of range."""
    epsilon = delta = Fraction(0)
    for each_epsilon, each_delta in losses:
        if each_epsilon < 0 or not 0 <= each_delta <= 1:
            raise PlanError(f"a loss of ({each_epsilon}, {each_delta}): give epsilon >= 0 and delta from 0 to 1")
        epsilon, delta = epsilon + each_epsilon, delta + each_delta
    return epsilon, min(Fraction(1), delta)


def strong(epsilon: Fraction, delta: Fraction, mechanisms: int, slack: Fraction) -> tuple[float, Fraction]:
    """(epsilon', k delta + slack) of k mechanisms, epsilon' = sqrt(2 k log(1/slack)) epsilon + k epsilon (e^epsilon-1).

    slack: the bound's addition to delta, in (0, 1). Raises PlanError if an argument is out of range.
    """
    _check(epsilon, delta, mechanisms)
    if not 0 < slack < 1:
        raise PlanError(f"slack {slack}: choose a number between 0 and 1")
    with gmpy2.context(precision=_PRECISION, round=gmpy2.RoundUp):
        e, log_inverse = gmpy2.mpfr(gmpy2.mpq(epsilon)), gmpy2.log(gmpy2.mpfr(gmpy2.mpq(1 / slack)))
        total = gmpy2.sqrt(2 * mechanisms * log_inverse) * e + mechanisms * e * gmpy2.expm1(e)
    return _up(rational(total)), min(Fraction(1), mechanisms * delta + slack)


def optimal_delta(epsilon: Fraction, delta: Fraction, mechanisms: int, total_epsilon: Fraction | float) -> float:
    """The least delta at which the composition of any k (epsilon, delta)-mechanisms is (total_epsilon, delta)-private.

    1 - (1 - delta)^k (1 - D), with D = sum_l C(k, l) (e^((k-l) epsilon) - e^(total_epsilon + l epsilon)) / (1 +
    e^epsilon)^k over the l for which a term is positive: Theorem 3.3, stated there at total_epsilon = (k - 2i) epsilon.
    Raises PlanError if an argument is out of range.
    """
    _check(epsilon, delta, mechanisms)
    if not total_epsilon >= 0 or math.isinf(total_epsilon):
        raise PlanError(f"a total epsilon of {total_epsilon}: give 0 or more")
    wanted = Fraction(total_epsilon)
    with gmpy2.context(precision=_PRECISION):
        total = gmpy2.mpfr(0)
        for left, (mass, _) in enumerate(_outcomes(epsilon, mechanisms)):
            excess = (mechanisms - 2 * left) * epsilon - wanted
            if excess <= 0:
                break
            total -= mass * gmpy2.expm1(gmpy2.mpfr(gmpy2.mpq(-excess)))
        stick = min(Fraction(1), rational(total) * (1 + _ERROR))
    revealed = _revealed(delta, mechanisms)
    return min(1.0, _up(rational(revealed + (1 - revealed) * gmpy2.mpq(stick))))


def optimal_epsilon(epsilon: Fraction, delta: Fraction, mechanisms: int, total_delta: Fraction) -> float:
    """The least total epsilon at which the composition of any k (epsilon, delta)-mechanisms has total_delta.

    D of `optimal_delta` is the largest over L of A_L - e^total B_L, the sums of C(k, l) e^((k-l) epsilon) and of C(k,
    l) e^(l epsilon) over l <= L and (1 + e^epsilon)^k: so D <= d from e^total = max_L (A_L - d) / B_L on.

    Raises PlanError if an argument is out of range or total_delta is below 1 - (1 - delta)^k, for which no epsilon is
    enough.
    """
    _check(epsilon, delta, mechanisms)
    revealed = _revealed(delta, mechanisms)
    allowed = (gmpy2.mpq(total_delta) - revealed) / (1 - revealed)
    if not 0 <= total_delta < 1 or allowed < 0:
        raise PlanError(
            f"a total delta of {float(total_delta):.3g} for {mechanisms} mechanisms of delta {float(delta):.3g}: give "
            "a number below 1 and at least the probability that one of them reveals its input"
        )
    with gmpy2.context(precision=_PRECISION):
        above, below, best = gmpy2.mpfr(0), gmpy2.mpfr(0), gmpy2.mpfr(1)
        least = gmpy2.mpfr(allowed)
        for mass, other in _outcomes(epsilon, mechanisms):
            above, below = above + mass, below + other
            # Allow for the rounding of the sum, which a difference close to 0 would magnify.
            best = max(best, (above * (1 + gmpy2.mpfr(gmpy2.mpq(_ERROR))) - least) / below)
        total = rational(gmpy2.log(best))
    return _up(total * (1 + _ERROR) + _ERROR if total else total)


def _outcomes(epsilon: Fraction, mechanisms: int) -> Iterator[tuple[Any, Any]]:
    """For l = 0, 1, ..., k: the probability that l of k randomized responses are flipped, under either neighbour.

    Uses the caller's gmpy2 context, and the ratio of neighbouring terms.
    """
    e = gmpy2.exp(gmpy2.mpfr(gmpy2.mpq(epsilon)))
    mass, other = (e / (1 + e)) ** mechanisms, (1 / (1 + e)) ** mechanisms
    for left in range(mechanisms + 1):
        yield mass, other
        ratio = gmpy2.mpfr(mechanisms - left) / (left + 1)
        mass, other = mass * ratio / e, other * ratio * e


def _revealed(delta: Fraction, mechanisms: int) -> Any:
    """1 - (1 - delta)^k as an mpq, which is faster than a Fraction for its millions of bits."""
    return 1 - (1 - gmpy2.mpq(delta)) ** mechanisms


def _check(epsilon: Fraction, delta: Fraction, mechanisms: int) -> None:
    check_epsilon(epsilon)
    if not 0 <= delta < 1:
        raise PlanError(f"delta is {float(delta):.6g}: choose a number from 0 to below 1")
    if not 1 <= mechanisms <= MOST_MECHANISMS:
        raise PlanError(f"{mechanisms} mechanisms: give 1 to {MOST_MECHANISMS}")


def _up(value: Fraction) -> float:
    rounded = float(value)
    return rounded if Fraction(rounded) >= value else math.nextafter(rounded, math.inf)
