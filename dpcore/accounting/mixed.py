"""Composition of releases of different kinds: DP-FEAT's counts and Gaussian noise, over the scope that all bound.

Parameters must not depend on earlier answers, which holds for a plan whose whole cost is reserved. Counts are moved to
a grid as in dpcore.accounting.composition; the Gaussian part is one component, whose losses N(S/2, S) move up to a
coarser grid of step H. That raises epsilon by at most H, which the lower end of each bracket subtracts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import gmpy2
import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.composition import (
    FLATTEST,
    HOEFFDING_SHARE,
    LARGEST_EPSILON,
    RELATIVE_WIDTH,
    Bracket,
    Composed,
    DeltaTooSmallError,
    GridLosses,
    InfiniteEpsilonError,
    Slack,
    VoidEpsilonError,
    compose,
    finest_step,
    infinite_mass,
    is_narrow,
    log_tilted,
    spread,
    steepest_of,
    tilt_for,
    tilt_rounding,
)
from dpcore.accounting.concentrated import Concentrated, of_epsilon
from dpcore.accounting.gaussian import ShiftDistribution, WeakNoiseError, check_delta, composed_shift
from dpcore.errors import PlanError
from dpcore.numbers.distributions import ROUND_OFF, CountDistribution, convolved, tails
from dpcore.randomness.noise import rational

# The share of delta that the Gaussian part's tails may have.
CUT_SHARE = 1e-4
_ATOMS = 256
# Far above the rounding error of a few operations in double precision.
_MARGIN = 1e-9
# Steps of the Gaussian part's grid on each side of zero.
_MOST_STEPS = 1 << 15


@dataclass(frozen=True, eq=False)
class CountRelease:
    """n independent releases of a count that neighbours shift by one (dpcore.numbers.distributions)."""

    distribution: CountDistribution
    n: int


def mixed_epsilon(
    counts: Sequence[CountRelease], gaussians: Sequence[ShiftDistribution], delta: Fraction | float
) -> Bracket:
    """The least epsilon at which the composition of all releases is (epsilon, delta)-private, bracketed.

    Within 1 % where rounding allows. Raises InfiniteEpsilonError, VoidEpsilonError, DeltaTooSmallError, or PlanError if
    there is no release.
    """
    budget, distributions = check_delta(delta), tuple(gaussians)
    if not counts:
        return composed_shift(distributions).epsilon(delta)
    family = composed_shift(distributions).binned(_ATOMS) if distributions else None
    infinite = -math.expm1(
        sum(math.log1p(-min(infinite_mass(one.distribution, one.n), 1 - ROUND_OFF)) for one in counts)
    )
    n = sum(one.n for one in counts)
    if infinite >= budget / 2:
        raise InfiniteEpsilonError(rados=n, delta=budget, delta_per_rado=infinite / n, largest_rados=0)
    # A part never costs more than the whole. The grid below has room for losses up to twice LARGEST_EPSILON.
    if family is not None and family.delta(LARGEST_EPSILON).lower > budget:
        raise VoidEpsilonError(rados=n)
    variance = sum(spread(one.distribution, one.n) ** 2 for one in counts)
    if family is not None:
        variance += float(family.masses @ family.upper)
    guess = variance / 2 + math.sqrt(variance * 2 * math.log(1 / min(budget, 0.5)))
    reach = 0.0 if family is None else _reach(family, CUT_SHARE * budget)
    steepest = max(steepest_of(one.distribution) for one in counts) + reach
    tilt = tilt_for(lambda tilt: _log_scale(counts, family, tilt), math.sqrt(variance), steepest, delta=budget)
    finest = max(finest_step(one.distribution, one.n) for one in counts)
    step = max(RELATIVE_WIDTH / 4 * guess / math.sqrt(n * math.log(1 / (HOEFFDING_SHARE * budget)) / 2), finest)
    while True:
        upper, lower = (_composed(counts, family, step, budget, tilt, pessimistic=side) for side in (True, False))
        if upper.slack.delta + upper.cut >= budget / 2:
            raise DeltaTooSmallError(delta=budget, smallest_delta=10 * (upper.slack.delta + upper.cut))
        bracket = Bracket(lower.epsilon_lower(budget), upper.epsilon_upper(budget))
        if math.isinf(bracket.upper) and tilt > FLATTEST:
            tilt /= 4
            continue
        if is_narrow(bracket) or step <= finest or upper.shift <= RELATIVE_WIDTH / 20 * bracket.upper:
            break
        step = max(step / 4, finest)
    if bracket.upper > LARGEST_EPSILON:
        raise VoidEpsilonError(rados=n)
    return bracket


def _log_scale(counts: Sequence[CountRelease], family: ShiftDistribution | None, tilt: float) -> float:
    """Log E[e^(tilt loss)] of the composition, or a little more."""
    counted = sum(log_tilted(one.distribution, one.n, tilt) for one in counts)
    if family is None:
        return counted
    exponents = family.upper * (tilt * (tilt + 1) / 2)
    largest = float(exponents.max())
    return counted + largest + math.log(float(family.masses @ np.exp(exponents - largest)))


def _composed(
    counts: Sequence[CountRelease],
    family: ShiftDistribution | None,
    step: float,
    budget: float,
    tilt: float,
    *,
    pessimistic: bool,
) -> Composed:
    """All parts on one grid; `pessimistic` chooses the end of each S of the Gaussian part."""
    cut = CUT_SHARE * budget
    hoeffding = HOEFFDING_SHARE * budget / len(counts)
    parts = [compose(one.distribution, one.n, step, tilt, hoeffding) for one in counts]
    pieces = [part.finite for part in parts]
    shift, lost = sum(part.shift for part in parts), 0.0
    trimmed, factor, slack = 0.0, 1.0, 0.0
    if family is not None:
        piece, coarse, beyond = _gaussian_piece(family, step, cut, tilt, pessimistic=pessimistic)
        pieces.append(piece)
        shift, lost = shift + coarse, beyond
        # The coins are public, so cutting their distribution changes delta by the mass cut.
        trimmed, slack = family.trimmed, family.slack
        rounding = tilt_rounding(tilt * step * (abs(piece.first) + 1)) + 3 * _tails_error(family)
        factor = math.exp(slack + 2 * family.relative_error + rounding)
    return Composed(
        finite=reduce(_both, pieces),
        cut=lost,
        shift=shift,
        hoeffding=hoeffding * len(counts),
        infinite=-math.expm1(sum(math.log1p(-part.infinite) for part in parts)),
        slack=Slack(
            delta=sum(part.slack.delta for part in parts) + trimmed,
            factor=factor * math.prod(part.slack.factor for part in parts),
            epsilon=2 * slack + sum(part.slack.epsilon for part in parts),
        ),
    )


def _reach(family: ShiftDistribution, cut: float) -> float:
    """A loss that the Gaussian part exceeds with a probability below `cut`, unless losses are absurdly large."""
    likely = family.upper[np.cumsum(family.masses[::-1])[::-1] > cut / 4]
    farthest = float(likely.max(initial=0.0))
    return min(farthest / 2 + math.sqrt(farthest * 2 * math.log(4 / cut)), 2 * LARGEST_EPSILON)


def _gaussian_piece(
    family: ShiftDistribution, step: float, cut: float, tilt: float, *, pessimistic: bool
) -> tuple[GridLosses, float, float]:
    """The Gaussian part's losses, moved up to a grid of step H, a multiple of `step`; H; and the mass beyond the grid.

    Masses are differences of tails, P(loss <= l) up to 0 and P(loss > l) above.

    With tails right to e, delta is right to 3 e: delta is sum w_l mass_l with rising weights in [0, 1]. By summation by
    parts masses above 0 contribute e delta, those up to 0 at most 2 e w_0 P(S > 0, loss <= 0) <= 2 e delta, as the mean
    S/2 is not negative.
    """
    reach = _reach(family, cut)
    multiple = max(1, math.ceil(reach / _MOST_STEPS / step))
    coarse = multiple * step
    points = math.ceil(reach / coarse) + 1
    grid = np.arange(-points, points + 1, dtype=np.float64) * coarse
    below, above = _tails(family.upper if pessimistic else family.lower, family.masses, grid)
    masses = np.where(grid[1:] <= 0, np.diff(below), -np.diff(above))
    probabilities = np.zeros(2 * points * multiple + 1)
    probabilities[0] = below[0]
    probabilities[multiple::multiple] = np.maximum(masses, 0)
    infinite = float(above[-1])
    first = -points * multiple
    probabilities[::multiple] *= np.exp(tilt * grid)
    scale = float(probabilities.sum())
    piece = GridLosses(step, first, probabilities / scale, infinite, tilt=tilt, log_scale=math.log(scale))
    return piece, coarse, infinite + float(below[0])


def _both(a: GridLosses, b: GridLosses) -> GridLosses:
    """The sum of the losses of two independent parts of the same step and tilt, and its error."""
    found, rounding = convolved(a.masses, b.masses)
    size_a, size_b = (
        float(np.abs(part.masses).sum()) + part.pointwise * len(part.masses) + part.stray for part in (a, b)
    )
    return GridLosses(
        a.step,
        a.first + b.first,
        found,
        a.infinite + b.infinite - a.infinite * b.infinite,
        tilt=a.tilt,
        log_scale=a.log_scale + b.log_scale,
        pointwise=(a.pointwise * size_b + b.pointwise * size_a) * (1 + _MARGIN) + rounding,
        stray=(a.stray * size_b + b.stray * size_a) * (1 + _MARGIN),
    )


def _tails(
    squares: NDArray[np.float64], masses: NDArray[np.float64], grid: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """P(loss <= l) and P(loss > l) at each grid point, under the mixture of N(S/2, S); errors: `_tails_error`."""
    below, above = np.zeros_like(grid), np.zeros_like(grid)
    for square, mass in zip(squares, masses, strict=True):
        # No shift: the loss is 0.
        z = (grid - square / 2) / math.sqrt(square) if square > 0 else np.where(grid >= 0, np.inf, -np.inf)
        at_most, more = tails(z)
        below += mass * at_most
        above += mass * more
    return below, above


def _tails_error(family: ShiftDistribution) -> float:
    """A bound on the relative error of `_tails`, where a tail does not underflow; all that underflows is below 2^-1000.

    There |z| < 39 and (ln Phi)' <= |z| + 1; z is off by at most 10 |z| + 3 sqrt S round-offs, atoms add one each.
    """
    widest = math.sqrt(float(max(family.lower.max(), family.upper.max())))
    return 2.0**-46 + (40 * (390 + 3 * widest) + len(family.masses) + 1) * ROUND_OFF


# The worst case of pure differential privacy: randomized response, one bit kept with p = e^epsilon / (1 + e^epsilon).
#
# Every (epsilon, 0)-private release is, for each pair of neighbours, its post-processing (Kairouz, Oh and Viswanath,
# ICML 2015): with P and Q the outputs' distributions, A = (p P - (1-p) Q) / (2p - 1) and B = (p Q - (1-p) P) / (2p - 1)
# are distributions, P = p A + (1-p) B and Q = (1-p) A + p B.


# Far above the rounding error of a few operations in double precision.
_PURE_MARGIN = 1e-14


@dataclass(frozen=True)
class PureLoss:
    """A release of which only (bound, 0)-differential privacy is known, bound > 0, at worst: randomized response."""

    bound: Fraction

    def __post_init__(self) -> None:
        if self.bound <= 0:
            raise PlanError(f"a pure epsilon of {self.bound}: give a positive number")

    def epsilon(self, delta: Fraction | float) -> Bracket:
        """The bound, rounded up; the lower end, log(e^bound - delta (1 + e^bound)), is the least that delta allows.

        delta may be 0. Raises PlanError if it is not in [0, 1), WeakNoiseError above LARGEST_EPSILON.
        """
        if not 0 <= delta < 1:
            raise PlanError(f"delta is {float(delta):.6g}: choose a number from 0 to below 1")
        if self.bound > LARGEST_EPSILON:
            raise WeakNoiseError
        upper = _up(self.bound)
        left = 1 - float(delta) * (1 + math.exp(-upper))
        lower = upper + math.log(left) - _PURE_MARGIN * (1 + upper + 1 / left) if left > 0 else 0.0
        return Bracket(max(0.0, lower), upper)

    def delta(self, epsilon: float) -> Bracket:
        """0 from the bound on; below it (e^bound - e^epsilon) / (1 + e^bound), the divergence of randomized response.

        Raises PlanError if epsilon is not in [0, LARGEST_EPSILON].
        """
        if not 0 <= epsilon <= LARGEST_EPSILON:
            raise PlanError(f"epsilon is {epsilon}: give 0 to {LARGEST_EPSILON:.0f}")
        gap = float(self.bound - Fraction(epsilon))
        if gap <= 0:
            return Bracket(0.0, 0.0)
        value = -math.expm1(-gap) / (1 + math.exp(-float(self.bound)))
        return Bracket(value * (1 - _PURE_MARGIN), min(1.0, value * (1 + _PURE_MARGIN)))

    @property
    def concentrated(self) -> Concentrated:
        """A rho of epsilon tanh(epsilon / 2), rounded up: at most epsilon^2 / 2 and epsilon; the least.

        D_a = (f(u) - f(1/2)) / (u - 1/2), u = a - 1/2, f(u) = log cosh(epsilon u). As log cosh(epsilon sqrt(v)) is
        concave in v, f(u) - f(1/2) is at most (u^2 - 1/4) epsilon tanh(epsilon / 2), so D_a <= a rho.
        """
        with gmpy2.context(precision=80, round=gmpy2.RoundUp):
            epsilon = gmpy2.mpfr(gmpy2.mpq(self.bound))
            rho = rational(epsilon * gmpy2.tanh(epsilon / 2))
        return Concentrated(min(rho, of_epsilon(self.bound, Fraction(0)).rho), Fraction(0))


def _up(value: Fraction) -> float:
    rounded = float(value)
    return rounded if Fraction(rounded) >= value else math.nextafter(rounded, math.inf)
