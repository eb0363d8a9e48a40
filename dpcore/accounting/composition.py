"""Exact composition of a count that neighbours shift by one: brackets of epsilon and delta.

For two neighbouring data sets, one release of a count k has the distribution p(k) or p(k - 1). n independent releases
are composed by their privacy loss distribution on a grid.

Losses are split over grid points so that both masses are preserved ("connect the dots": Doroshenko, Ghazi, Kamath,
Kumar, Manurangsi, arXiv 2207.04380), which gives the upper end; Hoeffding's inequality gives the lower.

Masses are tilted by e^(t l), so that rounding and wrapped mass are small in proportion to any delta. Every error widens
the bracket by a stated amount (`Slack`, `GridLosses.error`).

Proof: docs/explanation/proofs.md, "Composition of a count".
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError
from dpcore.numbers.distributions import ROUND_OFF, CountDistribution, fast_length, self_convolved
from dpcore.numbers.rationals import upper_digits

# An epsilon beyond this bounds nothing (e^150 to one), and cut tails are weighed with its exponential.
LARGEST_EPSILON = 150.0
_VAST = 700.0
# Largest exponent of a tilt: far below overflow.
_STEEPEST = 300.0
# A tilt below it changes nothing, as losses that matter are below 150.
FLATTEST = 1e-4
RELATIVE_WIDTH = 0.01
ABSOLUTE_WIDTH = 1e-7
LARGEST_GRID = 1 << 22
# The share of delta that the lower end uses for Hoeffding's inequality.
HOEFFDING_SHARE = 1e-3
# The share of the tilted mass that may lie outside the window of a convolution.
CUT = 1e-12


class InfiniteEpsilonError(PlanError):
    """No finite epsilon holds at this delta: outcomes that only one neighbour can produce are too likely."""

    def __init__(self, *, rados: int, delta: float, delta_per_rado: float, largest_rados: int) -> None:
        self.rados, self.delta = rados, delta
        self.delta_per_rado, self.largest_rados = delta_per_rado, largest_rados
        remedy = f"ask for at most {largest_rados} rados, " if largest_rados else ""
        super().__init__(
            f"{rados} rados at delta {delta:.3g} have no finite epsilon, "
            f"because each reveals a value with probability {delta_per_rado:.3g}: {remedy}truncate less (a larger "
            "epsilon per rado, or none) or have more rows per party"
        )


class VoidEpsilonError(PlanError):
    """An epsilon so large that it bounds nothing."""

    def __init__(self, *, rados: int) -> None:
        self.rados = rados
        super().__init__(
            f"{rados} rados need an epsilon above {LARGEST_EPSILON:.0f}, which bounds nothing: ask for fewer rados"
        )


class DeltaTooSmallError(PlanError):
    """A delta too small to count in double precision."""

    def __init__(self, *, delta: float, smallest_delta: float) -> None:
        self.delta, self.smallest_delta = delta, smallest_delta
        least = upper_digits(smallest_delta, 1)
        super().__init__(f"delta {delta:.3g} is too small to count for this many rados: choose {least} or more")


@dataclass(frozen=True)
class Bracket:
    """A number between `lower` and `upper`, both ends included."""

    lower: float
    upper: float


@dataclass(frozen=True)
class Slack:
    """What cut tails and rounding may hide: additive in delta, a factor on delta, additive in epsilon."""

    delta: float
    factor: float
    epsilon: float


def _slack(distribution: CountDistribution, n: int, tilt: float) -> Slack:
    """Each n-fold product distribution differs by at most n `trimmed`, and so delta by n trimmed (1 + e^epsilon)."""
    steepest = tilt * float(np.abs(distribution.losses).max(initial=0.0))
    relative = 4 * (distribution.relative_error + 4 * ROUND_OFF) + tilt_rounding(steepest)
    return Slack(
        delta=n * distribution.trimmed * (1 + math.exp(LARGEST_EPSILON)),
        factor=math.exp(min(1.0, n * relative)),
        epsilon=n * (distribution.loss_error + 4 * ROUND_OFF),
    )


def tilt_rounding(steepest: float) -> float:
    """The relative error of a mass that is multiplied by an exponential of at most `steepest`, and divided."""
    return (2 * steepest + 8) * ROUND_OFF


def infinite_mass(distribution: CountDistribution, n: int) -> float:
    """Probability that one of n releases shows a k that only one neighbour can produce: 1 - (1 - p(low))^n."""
    if len(distribution.masses) == 1:
        return 1.0
    return -math.expm1(n * math.log1p(-float(distribution.masses[0])))


@dataclass(frozen=True, eq=False)
class GridLosses:
    """Losses on a grid: mass masses[i] e^(log_scale - tilt l) at l = (first + i) step, and `infinite` at infinity."""

    step: float
    first: int
    masses: NDArray[np.float64]
    infinite: float
    tilt: float = 0.0
    log_scale: float = 0.0
    pointwise: float = 0.0
    """Bounds the error of each of masses."""
    stray: float = 0.0
    """Bounds the sum of further errors, of mass that is missing or at another loss."""

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at `epsilon`: E[max(0, 1 - e^(epsilon - loss))], without a bound on its error."""
        masses, excess = self._above(epsilon)
        return self.infinite + float(masses @ -np.expm1(np.minimum(excess, 0)))

    def error(self, epsilon: float) -> float:
        """A bound on the error of `delta`.

        A loss above epsilon weighs at most 1, and a composed mass at it e^(log_scale - tilt epsilon) times its tilted
        one, e^(-tilt step) less with each step.
        """
        masses, _ = self._above(epsilon)
        decay = -math.expm1(-self.tilt * self.step)
        reach = min(float(len(masses)), 1 / decay) if decay > 0 else float(len(masses))
        exponents = abs(self.log_scale) + self.tilt * self.step * (abs(self.first) + len(self.masses))
        rounding = (len(masses) + 8 + 4 * exponents) * ROUND_OFF * float(np.abs(masses).sum())
        scale = math.exp(min(_VAST, self.log_scale - self.tilt * epsilon))
        return scale * (self.stray + self.pointwise * reach) + rounding

    def epsilon_upper(self, delta: float) -> float:
        """An epsilon at which the divergence, with its error, is at most `delta`; inf if none is found."""
        epsilon = self.epsilon(delta)
        if not epsilon < _VAST:
            return math.inf
        epsilon = max(epsilon, self.epsilon(delta - 1.01 * self.error(epsilon)))
        gap = 1e-12 * max(epsilon, self.step)
        # The result was itself tested, so errors of the search do not matter.
        while epsilon < _VAST:
            if self.delta(epsilon) + self.error(epsilon) <= delta:
                return epsilon
            epsilon, gap = epsilon + gap, 4 * gap
        return math.inf

    def epsilon_lower(self, delta: float) -> float:
        """An epsilon at which the divergence, without its error, is above `delta`; 0 if none is found."""
        epsilon = min(self.epsilon(delta), _VAST)
        epsilon = min(epsilon, self.epsilon(delta + 1.01 * self.error(epsilon)))
        gap = 1e-12 * max(epsilon, self.step)
        while epsilon > 0:
            if self.delta(epsilon) - self.error(epsilon) > delta:
                return epsilon
            epsilon, gap = epsilon - gap, 4 * gap
        return 0.0

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 whose hockey-stick divergence is at most `delta`; inf if there is none.

        Between two grid points the divergence is U - e^epsilon L, U the mass of the losses above and L the sum of their
        masses times e^(-loss). The last grid point where it exceeds delta is taken, so that round-off errs upwards.
        """
        if self.infinite > delta:
            return math.inf
        start = max(0, 1 - self.first)
        losses, masses = self._losses(start), self._masses(start)
        above = self.infinite + np.cumsum(masses[::-1])[::-1]
        # A loss above _VAST counts as infinite: its exponential would overflow.
        finite = np.minimum(losses, _VAST)
        discounted = np.cumsum(np.where(losses > _VAST, 0.0, masses * np.exp(-finite))[::-1])[::-1]
        # At the grid point below each loss that is above 0.
        at_points = above - np.exp(finite - self.step) * discounted
        beyond = np.flatnonzero(at_points > delta)
        last = int(beyond[-1]) if len(beyond) else 0
        if not len(losses) or above[last] <= delta:
            return 0.0
        if discounted[last] <= 0:
            return float(losses[last])
        return max(0.0, math.log((float(above[last]) - delta) / float(discounted[last])))

    def _above(self, epsilon: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The masses of the losses above epsilon, or just at it, and epsilon less each loss."""
        start = min(len(self.masses), max(0, math.floor(epsilon / self.step) - self.first))
        return self._masses(start), epsilon - self._losses(start)

    def _masses(self, start: int) -> NDArray[np.float64]:
        if not self.tilt and not self.log_scale:
            return self.masses[start:]
        return self.masses[start:] * np.exp(np.minimum(self.log_scale - self.tilt * self._losses(start), _VAST))

    def _losses(self, start: int) -> NDArray[np.float64]:
        return np.arange(self.first + start, self.first + len(self.masses), dtype=np.float64) * self.step


@dataclass(frozen=True)
class Composed:
    """The composition of n releases on a grid of step h, without infinite losses."""

    finite: GridLosses
    cut: float
    """Mass that `finite` counts as infinite, or moved. `shift`, `hoeffding` (q of the proof): of the lower end."""
    shift: float
    hoeffding: float
    infinite: float
    slack: Slack

    def epsilon_upper(self, delta: float) -> float:
        """The end to state; inf if no finite epsilon can be shown."""
        budget = delta / self.slack.factor - self.infinite - self.slack.delta
        if budget <= self.cut:
            return math.inf
        return self.finite.epsilon_upper(budget) + self.slack.epsilon

    def epsilon_lower(self, delta: float) -> float:
        """0 if nothing better can be shown."""
        budget = delta * self.slack.factor - self.infinite + self.slack.delta + 2 * self.cut + self.hoeffding
        if budget >= 1:
            return 0.0
        epsilon = self.finite.epsilon_lower(budget)
        return max(0.0, epsilon - self.shift - self.slack.epsilon)

    def delta_upper(self, epsilon: float) -> float:
        """Never above 1."""
        inner = epsilon - self.slack.epsilon
        finite = self.finite.delta(inner) + self.finite.error(inner)
        return min(1.0, (finite + self.infinite + self.slack.delta) * self.slack.factor)

    def delta_lower(self, epsilon: float) -> float:
        """Never below 0."""
        outer = epsilon + self.shift + self.slack.epsilon
        finite = self.finite.delta(outer) - self.finite.error(outer)
        sure = finite + self.infinite - self.slack.delta - 2 * self.cut - self.hoeffding
        return max(0.0, sure / self.slack.factor)


def compose(distribution: CountDistribution, n: int, h: float, tilt: float, hoeffding: float) -> Composed:
    """The composition of n releases with losses on a grid of step h. tilt: t >= 0, where the result is accurate."""
    masses = distribution.masses[1:]
    below = np.floor(distribution.losses / h).astype(np.int64)
    # The share of the upper grid point that keeps both neighbours' masses; see the module's docstring.
    share = np.clip(np.expm1(below * h - distribution.losses) / math.expm1(-h), 0.0, 1.0)
    first = int(below.min())
    size = int(below.max()) - first + 2
    pieces = np.bincount(below - first, weights=masses * (1 - share), minlength=size).astype(np.float64)
    pieces += np.bincount(below - first + 1, weights=masses * share, minlength=size)
    pieces *= np.exp(tilt * h * np.arange(first, first + size, dtype=np.float64))
    scale = float(pieces.sum())
    offset, composed, pointwise = _self_convolved(pieces / scale, n, CUT)
    return Composed(
        finite=GridLosses(
            h,
            first * n + offset,
            composed,
            0.0,
            tilt=tilt,
            log_scale=n * math.log(scale),
            pointwise=pointwise,
            # The mass outside the window is missing there, and inside at another loss.
            stray=2 * CUT,
        ),
        cut=0.0,
        shift=n * h * h / 8 + h * math.sqrt(n * math.log(1 / hoeffding) / 2),
        hoeffding=hoeffding,
        infinite=infinite_mass(distribution, n),
        slack=_slack(distribution, n, tilt),
    )


def _self_convolved(pieces: NDArray[np.float64], n: int, cut: float) -> tuple[int, NDArray[np.float64], float]:
    """A window with all but `cut` of the n-fold convolution of `pieces`: first index, masses, their error."""
    low, high = _window(pieces, n, cut)
    length = fast_length(max(high - low + 1, len(pieces)))
    whole, error = self_convolved(pieces, n, length)
    return low, np.roll(whole, -(low % length))[: high - low + 1], error


def log_tilted(distribution: CountDistribution, n: int, tilt: float) -> float:
    """The log of the mass of n releases, tilted by e^(tilt loss)."""
    return n * math.log(float(distribution.masses[1:] @ np.exp(tilt * distribution.losses)))


def tilt_for(log_scale: Callable[[float], float], mu: float, steepest: float, *, delta: float) -> float:
    """The t that gives the least epsilon by Chernoff's bound, M(t) e^(-t epsilon) <= delta.

    At most the one of losses N(mu^2 / 2, mu^2), as there may be no least one. log_scale: log M(t) of the composition.
    steepest: the largest loss of a part, whose exponential must not overflow.
    """
    if mu <= 0:
        return 0.0
    needed = math.log(1 / min(delta, 0.5))
    most = math.sqrt(2 * needed) / mu
    return min(most, _best_tilt(log_scale, lambda tilt: (log_scale(tilt) + needed) / tilt, steepest))


def _tilt_at(distribution: CountDistribution, n: int, epsilon: float) -> float:
    """The t that gives the least delta at epsilon by Chernoff's bound."""

    def log_scale(tilt: float) -> float:
        return log_tilted(distribution, n, tilt)

    mu = spread(distribution, n)
    if mu <= 0:
        return 0.0
    most = max(epsilon - mu * mu / 2, 0.0) / mu**2
    return min(most, _best_tilt(log_scale, lambda tilt: log_scale(tilt) - tilt * epsilon, steepest_of(distribution)))


def steepest_of(distribution: CountDistribution) -> float:
    """The largest loss."""
    return float(np.abs(distribution.losses).max(initial=0.0))


def _best_tilt(log_scale: Callable[[float], float], objective: Callable[[float], float], steepest: float) -> float:
    """The t at the minimum of `objective`, as far as nothing overflows: by golden sections of the scale of t."""
    low, high = -20.0, math.log(_STEEPEST / max(steepest, 1e-3))
    while high > low and log_scale(math.exp(high)) > 2 * _STEEPEST:
        high -= 0.5
    for _ in range(24):
        left, right = low + 0.382 * (high - low), low + 0.618 * (high - low)
        low, high = (low, right) if objective(math.exp(left)) <= objective(math.exp(right)) else (left, high)
    return math.exp((low + high) / 2)


def _window(pieces: NDArray[np.float64], n: int, cut: float) -> tuple[int, int]:
    """The index range beyond which each tail of the n-fold convolution has mass at most cut / 2 (Chernoff's bound).

    P(X >= x) <= E[exp(t (X - x))] for every t > 0. The function tries the best t for a Gaussian, smaller ones for
    heavier tails, and some at which the exponential cannot overflow.
    """
    index = np.arange(len(pieces), dtype=np.float64)
    mean = float(pieces @ index) / float(pieces.sum())
    centred = index - mean
    variance = n * float(pieces @ np.square(centred))
    log_share = math.log(2 / cut)
    low, high = 0, n * (len(pieces) - 1)
    if variance <= 0:
        return low, high
    best = math.sqrt(2 * log_share / variance)
    for t in (best, best / 2, best / 4, *(order / len(pieces) for order in (1, 5, 20, 100))):
        with np.errstate(over="ignore", invalid="ignore"):
            up, down = (float(pieces @ np.exp(sign * t * centred)) for sign in (1, -1))
        if math.isfinite(up):
            high = min(high, math.ceil(n * mean + (n * math.log(up) + log_share) / t) + 1)
        if math.isfinite(down):
            low = max(low, math.floor(n * mean - (n * math.log(down) + log_share) / t) - 1)
    return low, max(low, high)


def spread(distribution: CountDistribution, n: int) -> float:
    """mu: the root of the summed squared losses, the standard deviation of the composed loss up to a small term."""
    return math.sqrt(n * float(distribution.masses[1:] @ np.square(distribution.losses)))


def _step(distribution: CountDistribution, n: int, epsilon: float, hoeffding: float) -> float:
    """A grid step whose shift is about a third of a hundredth of epsilon."""
    wanted = RELATIVE_WIDTH / 3 * epsilon / math.sqrt(n * math.log(1 / hoeffding) / 2)
    return max(wanted, finest_step(distribution, n))


def finest_step(distribution: CountDistribution, n: int) -> float:
    """The step at which the grid has about LARGEST_GRID points: one release's losses, and thirty spreads of all n."""
    width = float(distribution.losses[0] - distribution.losses[-1])
    return max(width, min(n * width, 30 * spread(distribution, n)), 1e-300) / LARGEST_GRID


def is_narrow(bracket: Bracket) -> bool:
    """Whether a bracket is within 1 % (or 1e-7)."""
    return bracket.upper - bracket.lower <= max(RELATIVE_WIDTH * bracket.upper, ABSOLUTE_WIDTH)


def epsilon_bracket(distribution: CountDistribution, n: int, delta: float) -> Bracket:
    """The least epsilon at which n releases are (epsilon, delta)-private, bracketed within 1 % (or 1e-7).

    State the upper end. The bracket is wider only where delta is close to the smallest that can be counted or to the
    probability of an infinite loss. Raises InfiniteEpsilonError, VoidEpsilonError above LARGEST_EPSILON,
    DeltaTooSmallError where rounding could hide delta.
    """
    infinite = infinite_mass(distribution, n)
    if delta <= infinite:
        raise _infinite_error(distribution, n, delta)
    mu = spread(distribution, n)
    guess = _guess(mu, delta - infinite)
    tilt = tilt_for(lambda t: log_tilted(distribution, n, t), mu, steepest_of(distribution), delta=delta - infinite)
    rounding = _slack(distribution, n, tilt)
    left = delta / rounding.factor - infinite - rounding.delta
    if left <= 0:
        if infinite > delta / 2:
            raise _infinite_error(distribution, n, delta)
        raise DeltaTooSmallError(delta=delta, smallest_delta=10 * (infinite + rounding.delta))
    hoeffding = HOEFFDING_SHARE * delta
    h = _step(distribution, n, guess, hoeffding)
    while True:
        composed = compose(distribution, n, h, tilt, hoeffding)
        bracket = Bracket(composed.epsilon_lower(delta), composed.epsilon_upper(delta))
        if math.isinf(bracket.upper) and tilt > FLATTEST:
            tilt /= 4
            continue
        if bracket.lower > LARGEST_EPSILON:
            raise VoidEpsilonError(rados=n)
        # At this grid the rest of the width is rounding, which a finer grid does not reduce.
        if (
            is_narrow(bracket)
            or composed.shift <= RELATIVE_WIDTH / 20 * bracket.upper
            or h <= finest_step(distribution, n)
        ):
            break
        h = max(h / 4, finest_step(distribution, n))
    if bracket.upper > LARGEST_EPSILON:
        raise VoidEpsilonError(rados=n)
    return bracket


def _guess(mu: float, delta: float) -> float:
    """About epsilon at `delta`, if losses are N(mu^2 / 2, mu^2)."""
    return max(mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / min(delta, 0.5))), 1e-9)


def _infinite_error(distribution: CountDistribution, n: int, delta: float) -> InfiniteEpsilonError:
    per_release = infinite_mass(distribution, 1)
    largest = 0 if per_release >= delta else int(math.log1p(-delta) / math.log1p(-per_release))
    return InfiniteEpsilonError(rados=n, delta=delta, delta_per_rado=per_release, largest_rados=min(largest, n - 1))


def delta_bracket(distribution: CountDistribution, n: int, epsilon: float) -> Bracket:
    """The least delta at which n releases are (epsilon, delta)-private, within 1 % if rounding (1e-37 n) allows.

    Raises PlanError if epsilon is not in [0, LARGEST_EPSILON].
    """
    if not 0 <= epsilon <= LARGEST_EPSILON:
        raise PlanError(f"epsilon is {epsilon}: give 0 to {LARGEST_EPSILON:.0f}")
    if len(distribution.masses) == 1:
        return Bracket(1.0, 1.0)
    tilt = _tilt_at(distribution, n, epsilon)
    rounding = _slack(distribution, n, tilt)
    hoeffding = 1e-4
    h = _step(distribution, n, max(epsilon, spread(distribution, n)), hoeffding)
    while True:
        composed = compose(distribution, n, h, tilt, hoeffding)
        bracket = Bracket(composed.delta_lower(epsilon), composed.delta_upper(epsilon))
        wide = bracket.upper - bracket.lower
        if wide <= RELATIVE_WIDTH * bracket.upper or bracket.upper <= 16 * rounding.delta:
            return bracket
        smaller = max(min(hoeffding, HOEFFDING_SHARE * bracket.upper), 1e-30)
        if h <= finest_step(distribution, n) and smaller >= hoeffding / 2:
            return bracket
        hoeffding, h = smaller, max(h / 4, finest_step(distribution, n))
