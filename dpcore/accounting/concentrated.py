"""Approximate zero-concentrated differential privacy: bounds (rho, failure) of single releases, and their conversions.

`failure`-approximately rho-zCDP (Bun and Steinke, TCC 2016, Definition 8.1): for neighbours with outputs P and Q there
are events E and F of probability at least 1 - failure with D_a(P|E to Q|F), D_a(Q|F to P|E) <= a rho for every order a
> 1.

They may use extra coins. rho and failure add up under composition (section 8), also of adaptive releases
(dpcore.accounting.filters).

Every bound here is an upper bound: rho, failures and epsilons are rounded up, the largest affordable rho down.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import gmpy2
import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.gaussian import ShiftDistribution
from dpcore.errors import PlanError
from dpcore.numbers.distributions import CountDistribution
from dpcore.randomness.noise import rational

# Logarithms of a - 1 where the search for an order begins; every order gives a valid bound.
_GRID = np.linspace(-40.0, 40.0, 3201)
_REFINEMENTS = 60
_GOLDEN = (math.sqrt(5) - 1) / 2
# Relative rounding of a sum of a dozen terms, each of a few operations.
_ROUNDING = 1e-14
# Orders at which a count's divergence is evaluated: the chord between neighbours is within 0.1 % of the convex curve.
_FIRST_ORDER, _ORDER_RATIO = 1e-3, 1.05
# h of `of_shift`.
_ABOVE_ONE = Fraction(1, 1 << 20)


@dataclass(frozen=True)
class Concentrated:
    """A release is `failure`-approximately rho-zCDP; exact, non-negative, failure at most 1. Raises PlanError."""

    rho: Fraction
    failure: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.rho < 0 or not 0 <= self.failure <= 1:
            raise PlanError(f"rho {self.rho} with failure {self.failure}: give rho >= 0 and a failure from 0 to 1")


def concentrated_epsilon(rho: Fraction | float, delta: Fraction | float) -> float:
    """An epsilon at which every rho-zCDP release is (epsilon, delta)-differentially private, rounded up.

    For every order a > 1 (Canonne, Kamath and Steinke, NeurIPS 2020, Corollary 13, solved for epsilon):

        epsilon = a rho + log(1 - 1/a) + (log(1/delta) - log a) / (a - 1).

    The result is the least over orders. Raises PlanError if rho < 0 or delta is not in (0, 1).
    """
    r, log_delta = _rho(rho), _log_delta(delta)
    if r == 0:
        return 0.0

    def epsilon(t: NDArray[np.float64]) -> NDArray[np.float64]:
        s = np.exp(t)
        tail = (-log_delta - np.log1p(s)) / s
        bound: NDArray[np.float64] = (1 + s) * r + tail - np.log1p(1 / s)
        return bound + _ROUNDING * ((1 + s) * r + (1 - log_delta + np.log1p(s)) / s + np.log1p(1 / s))

    return max(0.0, _least(epsilon))


def concentrated_delta(rho: Fraction | float, epsilon: float) -> float:
    """A delta at which every rho-zCDP release is (epsilon, delta)-differentially private, rounded up; at most 1.

    The least over orders a > 1 of exp((a-1)(a rho - epsilon)) / (a - 1) (1 - 1/a)^a (Canonne, Kamath and Steinke,
    NeurIPS 2020, Corollary 13). Raises PlanError if rho < 0 or epsilon < 0.
    """
    r = _rho(rho)
    if not epsilon >= 0:
        raise PlanError(f"epsilon is {epsilon}: give 0 or more")
    if r == 0:
        return 0.0

    def log_delta(t: NDArray[np.float64]) -> NDArray[np.float64]:
        s = np.exp(t)
        rounding = _ROUNDING * (s * ((1 + s) * r + epsilon) + np.abs(t) + (1 + s) * np.log1p(1 / s))
        bound: NDArray[np.float64] = s * ((1 + s) * r - epsilon) - t - (1 + s) * np.log1p(1 / s) + rounding
        return bound

    return min(1.0, math.exp(min(0.0, _least(log_delta))) * (1 + _ROUNDING))


def concentrated_rho(epsilon: Fraction | float, delta: Fraction | float) -> float:
    """The largest rho whose `concentrated_epsilon` at `delta` is at most `epsilon`, rounded down; 0 if there is none.

    Raises PlanError if epsilon < 0 or delta is not in (0, 1).
    """
    return rho_and_step(epsilon, delta)[0]


def rho_and_step(epsilon: Fraction | float, delta: Fraction | float) -> tuple[float, float]:
    """`concentrated_rho` r, and s > 0 such that already D_(1+s) <= (1+s) r gives epsilon at `delta`. Raises alike."""
    e, log_delta = _down(epsilon), _log_delta(delta)
    if e < 0:
        raise PlanError(f"epsilon is {e}: give 0 or more")

    def negative_rho(t: NDArray[np.float64]) -> NDArray[np.float64]:
        s = np.exp(t)
        tail = (-log_delta - np.log1p(s)) / s
        rounding = _ROUNDING * (e + (1 - log_delta + np.log1p(s)) / s + np.log1p(1 / s))
        largest: NDArray[np.float64] = (e - tail + np.log1p(1 / s) - rounding) / (1 + s)
        return -largest

    least, place = _least_at(negative_rho)
    return max(0.0, -least * (1 - _ROUNDING)), math.exp(place)


def conversion(s: Fraction, delta: Fraction | float) -> Fraction:
    """What order a = 1 + s adds: D_a <= D gives (D + conversion, delta)-privacy. Rounded up, and may be negative.

    log(1 - 1/a) + (log(1/delta) - log a) / (a - 1). Raises PlanError if s <= 0 or delta is not in (0, 1).
    """
    if s <= 0:
        raise PlanError(f"an order of 1 + {s}: give one above 1")
    step, log_delta = float(s), _log_delta(delta)
    tail, fall = (-log_delta - math.log1p(step)) / step, math.log1p(1 / step)
    return Fraction(tail - fall + _ROUNDING * ((1 - log_delta + math.log1p(step)) / step + fall))


def of_epsilon(epsilon: Fraction, delta: Fraction) -> Concentrated:
    """An (epsilon, delta)-private release is delta-approximately min(epsilon^2 / 2, epsilon)-zCDP.

    With probability delta the input is revealed, else randomized response (Kairouz, Oh and Viswanath, ICML 2015), of
    which D_a <= a epsilon^2 / 2 (Bun and Steinke, Proposition 1.4) and D_a <= epsilon <= a epsilon.
    """
    return Concentrated(min(epsilon * epsilon / 2, epsilon), delta)


def of_shift(distribution: ShiftDistribution, failure: Fraction) -> Concentrated:
    """The bound of Gaussian releases whose squared shift has this distribution, by coins that may be public.

    Given the coins, and with them a squared shift S, the releases are S/2-zCDP. Let s be the least value for which P(S
    > s) <= failure is shown. The event S <= s has the same probability under both neighbours.

    Given it, D_a is at most a s/2 for all coins, so also for the pair of output and coins, as the coins have the same
    distribution under both. Without such an event only the largest S would be valid: as a grows, the rarest coins
    decide.

    Integer noise, with lambda the distribution's slack: masses within a factor e^(+-lambda) move D_a by at most (2 +
    1/(a-1)) lambda. That is at most (2 + 1/h) lambda for a >= 1 + h; below, D_a is at most D_(1+h).

    So rho becomes (1 + h) (rho + (2 + 1/h) lambda), for any h > 0. Raises PlanError if the failure is not in (0, 1).
    """
    if not 0 < failure < 1:
        raise PlanError(f"failure {failure}: choose a number between 0 and 1")
    order = np.argsort(distribution.upper, kind="stable")
    squares, masses = distribution.upper[order], distribution.masses[order]
    # The mass of all atoms above each one, summed from the lightest end.
    above = np.concatenate([np.cumsum(masses[::-1])[::-1][1:], np.zeros(1)])
    cut = above * (1 + distribution.relative_error + _ROUNDING * len(masses)) + distribution.trimmed
    enough = np.flatnonzero(cut <= float(failure))
    kept = int(enough[0]) if len(enough) else len(squares) - 1
    # A squared shift n mu mu is a product that was rounded twice, by at most a relative 2^-53 each time.
    square = float(squares[kept])
    if square > 0:
        square = math.nextafter(math.nextafter(square, math.inf), math.inf)
    rho = Fraction(square) / 2
    if distribution.slack:
        rho = (1 + _ABOVE_ONE) * (rho + (2 + 1 / _ABOVE_ONE) * Fraction(distribution.slack))
    return Concentrated(rho, min(Fraction(1), Fraction(float(cut[kept]))))


def of_count(distribution: CountDistribution, n: int, failure: Fraction) -> Concentrated:
    """The bound of n independent releases of a count that neighbours shift by one (dpcore.numbers.distributions).

    distribution: from `binomial_distribution`, whose window conditions the true distribution. The count is conditioned
    on low + c + 1 to high - c, c the largest with n (1 - P) <= failure. If the infinite losses alone are more likely
    than that, c = 0, and the returned failure is larger than the requested one, at most 1.

    Proof: docs/explanation/proofs.md, "Concentrated bound of a count". Raises PlanError if n < 1 or the failure is not
    in (0, 1).
    """
    if n < 1 or not 0 < failure < 1:
        raise PlanError(f"n {n}, failure {failure}: give n >= 1 and a failure in (0, 1)")
    width = len(distribution.masses)
    if width < 2:
        return Concentrated(Fraction(0), Fraction(1))
    cuts = width // 2
    before = np.concatenate([np.zeros(1), np.cumsum(distribution.masses[: cuts - 1])])
    left_out = (2 * before + distribution.masses[:cuts]) * (
        1 + distribution.relative_error + _ROUNDING * width
    ) + distribution.trimmed
    c = max(0, int(np.searchsorted(n * left_out, float(failure), side="right")) - 1)
    failed = min(Fraction(1), n * Fraction(float(left_out[c])))
    inside = slice(c + 1, width - c)
    return Concentrated(n * Fraction(_count_rho(distribution, inside)), failed)


def _count_rho(distribution: CountDistribution, inside: slice) -> float:
    """The supremum over s > 0 of K(s) / (s (s+1)), rounded up, for the distribution given that k is `inside`."""
    masses = distribution.masses[inside]
    masses = masses / masses.sum()
    losses = distribution.losses[inside.start - 1 : inside.stop - 1]
    largest = float(losses.max()) + distribution.loss_error
    s, k = _FIRST_ORDER, _cumulant(masses, losses, _FIRST_ORDER, distribution)
    rho = max(0.0, k / s)
    while largest / (1 + s) > rho:
        next_s = s * _ORDER_RATIO
        next_k = _cumulant(masses, losses, next_s, distribution)
        rho = max(rho, chord(s, k, next_s, next_k))
        s, k = next_s, next_k
    return rho * (1 + 100 * _ROUNDING)


def chord(s: float, k: float, next_s: float, next_k: float) -> float:
    """The largest value of (x + y t) / (t (t+1)) for t in [s, next_s], with x + y t the line through both points."""
    y = (next_k - k) / (next_s - s)
    x = k - y * s
    candidates = [s, next_s]
    if x < 0 < y:
        # Where the derivative's numerator, -y t^2 - 2 x t - x, is zero.
        candidates.append(min(max((-x + math.sqrt(x * x - x * y)) / y, s), next_s))
    return max((x + y * t) / (t * (t + 1)) for t in candidates)


def _cumulant(
    masses: NDArray[np.float64], losses: NDArray[np.float64], s: float, distribution: CountDistribution
) -> float:
    """K(s) = log E[e^(s l)], rounded up."""
    exponents = s * losses
    top = float(exponents.max())
    error = 2 * distribution.relative_error + _ROUNDING
    if top < 0.5:
        # Small exponents: a sum of values near 1 would lose their small differences from it.
        terms = np.expm1(exponents)
        total = float(masses @ terms) + error * float(masses @ np.abs(terms)) + 2 * s * distribution.loss_error
        return math.log1p(total)
    total = float(masses @ np.exp(exponents - top))
    return top + math.log(total) + error + s * distribution.loss_error + _ROUNDING * (1 + top)


def _least(function: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
    """The minimum of `function` on the real line, to the precision of the search; every value is a valid bound."""
    return _least_at(function)[0]


def _least_at(function: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> tuple[float, float]:
    """`_least`, and where it is."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.nan_to_num(function(_GRID), nan=math.inf)
        best = int(values.argmin())
        low, high = _GRID[max(best - 1, 0)], _GRID[min(best + 1, len(_GRID) - 1)]
        least, place = float(values[best]), float(_GRID[best])
        for _ in range(_REFINEMENTS):
            inner = np.array([high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)])
            left, right = function(inner)
            least, place = min((least, place), (float(left), float(inner[0])), (float(right), float(inner[1])))
            low, high = (low, inner[1]) if left < right else (inner[0], high)
    return least, place


def _rho(rho: Fraction | float) -> float:
    if not rho >= 0:
        raise PlanError(f"rho is {rho}: give 0 or more")
    value = float(rho)
    return value if Fraction(value) >= rho else math.nextafter(value, math.inf)


def _down(value: Fraction | float) -> float:
    rounded = float(value)
    return rounded if Fraction(rounded) <= value else math.nextafter(rounded, -math.inf)


def _log_delta(delta: Fraction | float) -> float:
    if not 0 < delta < 1:
        raise PlanError(f"delta is {delta}: choose a number between 0 and 1")
    exact = Fraction(delta)
    # Logarithms of the integers themselves: a fraction may be too small for a double.
    logs = math.log(exact.numerator), math.log(exact.denominator)
    return logs[0] - logs[1] - 2 * math.ulp(logs[1])


# Renyi divergences of single releases at fixed orders: of Laplace noise, and of what is only known to be pure.
#
# A curve is a tuple: for each order 1 + s, s in STEPS, an upper bound on D_(1+s) between the outputs of neighbours.
# Curves of releases add up; the empty one is that of no release. s D_(1+s) is convex in s, so a chord between two
# orders lies above it. 300 bits, of which cancellation takes fewer than 150, then a margin and rounding up.


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
    """The curve of every (epsilon, 0)-private release: that of randomized response. Raises PlanError below 0.

    E[e^(s l)] = e^(s epsilon) (1 + e^(-(2s+1) epsilon)) / (1 + e^-epsilon); no order costs more than epsilon.
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
    """A bound on D_(1+s) from a curve, at any s > 0: by the chord between the orders around it."""
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
