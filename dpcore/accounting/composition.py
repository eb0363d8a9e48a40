"""Exact composition of a count that neighbours shift by one: brackets of epsilon and delta.

For two neighbouring data sets, one release of a count k has the distribution p(k) or p(k - 1). n independent releases
are composed by their privacy loss distribution. Both orders of the pair have the same one, because p is symmetric:
reflection maps (p(k), p(k-1)) to (p(k-1), p(k)). So one order is composed.

Upper end. Each outcome, of mass P and loss l, is split over the two grid points g1 <= l <= g2 so that its mass under
both neighbours is preserved: "connect the dots" for a single atom (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, arXiv
2207.04380). Merging the two pieces again is post-processing, so the split pair is never more private than the true one.

Lower end. Given l, a piece's excess x = grid - l is in an interval as long as the grid step h, and E[exp(-x)] = 1 under
P, because the other neighbour's mass is preserved. Hoeffding's lemma gives E[x] <= h^2/8, and his inequality, for the n
independent excesses, P(sum x >= n h^2/8 + h sqrt(n log(1/q)/2)) <= q. So the true delta at epsilon is at least the
split pair's delta at (epsilon + that shift), less q.

Rounding. Cut tails, relative errors of masses, errors of losses and the transform's rounding each widen the bracket by
a stated amount (`Slack`).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError
from dpcore.numbers.count_distributions import ROUND_OFF, CountDistribution

# An epsilon beyond this bounds nothing (e^150 to one), and cut tails are weighed with its exponential.
LARGEST_EPSILON = 150.0
_VAST = 700.0
RELATIVE_WIDTH = 0.01
ABSOLUTE_WIDTH = 1e-7
LARGEST_GRID = 1 << 22
# log2 of the points of any composed grid: LARGEST_GRID with a margin, as a grid is cut a little wider than requested.
LOG2_GRID = 24
# Shares of delta: the lower end uses one for Hoeffding's inequality, the upper end the other for the composed tail.
HOEFFDING_SHARE = 1e-3
CUT_SHARE = 1e-4


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
        super().__init__(
            f"delta {delta:.3g} is too small to count for this many rados: choose {smallest_delta:.1g} or more"
        )


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


def _slack(distribution: CountDistribution, n: int) -> Slack:
    """Each n-fold product distribution differs by at most n `trimmed`, and so delta by n trimmed (1 + e^epsilon).

    The transform: the n-th power of a Fourier transform F with |F| <= 1 magnifies F's own round-off, of order log2(grid
    points), n-fold. The allowance of 2 round-offs for each of n log2(grid points) is not a proved bound: it is some
    tens of times the observed error, and a test compares the two.
    """
    trimmed = n * distribution.trimmed * (1 + math.exp(LARGEST_EPSILON))
    transform = 2 * ROUND_OFF * (n + 8) * LOG2_GRID
    return Slack(
        delta=trimmed + transform,
        factor=math.exp(min(1.0, 4 * n * (distribution.relative_error + 4 * ROUND_OFF))),
        epsilon=n * (distribution.loss_error + 4 * ROUND_OFF),
    )


def infinite_mass(distribution: CountDistribution, n: int) -> float:
    """Probability that one of n releases shows a k that only one neighbour can produce: 1 - (1 - p(low))^n."""
    if len(distribution.masses) == 1:
        return 1.0
    return -math.expm1(n * math.log1p(-float(distribution.masses[0])))


@dataclass(frozen=True, eq=False)
class GridLosses:
    """Privacy losses on a grid: masses[i] at (first + i) step, and `infinite` at infinity."""

    step: float
    first: int
    masses: NDArray[np.float64]
    infinite: float

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at `epsilon`: E[max(0, 1 - e^(epsilon - loss))]."""
        start = min(len(self.masses), max(0, math.floor(epsilon / self.step) - self.first))
        excess = epsilon - self._losses(start)
        return self.infinite + float(self.masses[start:] @ -np.expm1(np.minimum(excess, 0)))

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 whose hockey-stick divergence is at most `delta`; inf if there is none.

        Between two grid points the divergence is U - e^epsilon L, with U the mass of the losses above and L the sum of
        their masses times e^(-loss). The search takes the last grid point where it exceeds delta, so that its round-off
        errs upwards.
        """
        if self.infinite > delta:
            return math.inf
        start = max(0, 1 - self.first)
        losses, masses = self._losses(start), self.masses[start:]
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

    def _losses(self, start: int) -> NDArray[np.float64]:
        return np.arange(self.first + start, self.first + len(self.masses), dtype=np.float64) * self.step


@dataclass(frozen=True)
class Composed:
    """The composition of n releases on a grid of step h, without infinite losses.

    `shift` and `hoeffding`, the q of the module's docstring, belong to the lower end.
    """

    finite: GridLosses
    cut: float
    shift: float
    hoeffding: float
    infinite: float
    slack: Slack

    def epsilon_upper(self, delta: float) -> float:
        """The end to state; inf if no finite epsilon can be shown."""
        budget = delta / self.slack.factor - self.infinite - self.slack.delta
        if budget <= self.cut:
            return math.inf
        return self.finite.epsilon(budget) + self.slack.epsilon

    def epsilon_lower(self, delta: float) -> float:
        """0 if nothing better can be shown."""
        budget = delta * self.slack.factor - self.infinite + self.slack.delta + 2 * self.cut + self.hoeffding
        if budget >= 1:
            return 0.0
        epsilon = self.finite.epsilon(budget)
        return max(0.0, epsilon - self.shift - self.slack.epsilon)

    def delta_upper(self, epsilon: float) -> float:
        """Never above 1."""
        finite = self.finite.delta(epsilon - self.slack.epsilon)
        return min(1.0, (finite + self.infinite + self.slack.delta) * self.slack.factor)

    def delta_lower(self, epsilon: float) -> float:
        """Never below 0."""
        finite = self.finite.delta(epsilon + self.shift + self.slack.epsilon)
        sure = finite + self.infinite - self.slack.delta - 2 * self.cut - self.hoeffding
        return max(0.0, sure / self.slack.factor)


def compose(distribution: CountDistribution, n: int, h: float, cut: float, hoeffding: float) -> Composed:
    """The composition of n releases with losses on a grid of step h; hoeffding: q of the lower end.

    At most `cut` of the composed mass moves to infinity, or wraps around to another place on the grid.
    """
    masses = distribution.masses[1:]
    below = np.floor(distribution.losses / h).astype(np.int64)
    # The share of the upper grid point that keeps both neighbours' masses; see the module's docstring.
    share = np.clip(np.expm1(below * h - distribution.losses) / math.expm1(-h), 0.0, 1.0)
    first = int(below.min())
    size = int(below.max()) - first + 2
    pieces = np.bincount(below - first, weights=masses * (1 - share), minlength=size).astype(np.float64)
    pieces += np.bincount(below - first + 1, weights=masses * share, minlength=size)
    offset, composed = _self_convolved(pieces, n, cut)
    return Composed(
        # The largest mass that the tails can have counts as infinite.
        finite=GridLosses(h, first * n + offset, composed, cut),
        cut=cut,
        shift=n * h * h / 8 + h * math.sqrt(n * math.log(1 / hoeffding) / 2),
        hoeffding=hoeffding,
        infinite=infinite_mass(distribution, n),
        slack=_slack(distribution, n),
    )


def _self_convolved(pieces: NDArray[np.float64], n: int, cut: float) -> tuple[int, NDArray[np.float64]]:
    """A window with all but `cut` of the n-fold convolution of `pieces`: its first index and its masses.

    The convolution is circular, by Fourier transforms, so the mass outside wraps around into the window.
    """
    low, high = _window(pieces, n, cut)
    length = _fast_length(max(high - low + 1, len(pieces)))
    # NumPy's transforms are pocketfft, as SciPy's are, whose import would delay a plan.
    whole = np.fft.irfft(np.fft.rfft(pieces, length) ** n, length)
    return low, np.roll(whole, -(low % length))[: high - low + 1]


def _fast_length(least: int) -> int:
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

    State the upper end. The bracket is wider than 1 % only where delta is close to the smallest that can be counted or
    to the probability of an infinite loss; both ends still hold.

    Raises InfiniteEpsilonError if no finite epsilon holds, VoidEpsilonError above LARGEST_EPSILON, DeltaTooSmallError
    where rounding could hide delta.
    """
    infinite, rounding = infinite_mass(distribution, n), _slack(distribution, n)
    if delta <= infinite:
        raise _infinite_error(distribution, n, delta)
    left = delta / rounding.factor - infinite - rounding.delta
    if left <= 0:
        if infinite > delta / 2:
            raise _infinite_error(distribution, n, delta)
        raise DeltaTooSmallError(delta=delta, smallest_delta=10 * (infinite + rounding.delta))
    mu = spread(distribution, n)
    guess = max(mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / min(left, 0.5))), 1e-9)
    hoeffding = HOEFFDING_SHARE * delta
    h = _step(distribution, n, guess, hoeffding)
    while True:
        composed = compose(distribution, n, h, CUT_SHARE * left, hoeffding)
        bracket = Bracket(composed.epsilon_lower(delta), composed.epsilon_upper(delta))
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


def _infinite_error(distribution: CountDistribution, n: int, delta: float) -> InfiniteEpsilonError:
    per_release = infinite_mass(distribution, 1)
    largest = 0 if per_release >= delta else int(math.log1p(-delta) / math.log1p(-per_release))
    return InfiniteEpsilonError(rados=n, delta=delta, delta_per_rado=per_release, largest_rados=min(largest, n - 1))


def delta_bracket(distribution: CountDistribution, n: int, epsilon: float) -> Bracket:
    """The least delta at which n releases are (epsilon, delta)-private, bracketed; state the upper end.

    The bracket is within 1 % wherever rounding (about 1e-14 n) allows. Raises PlanError if epsilon is not in [0,
    LARGEST_EPSILON].
    """
    if not 0 <= epsilon <= LARGEST_EPSILON:
        raise PlanError(f"epsilon is {epsilon}: give 0 to {LARGEST_EPSILON:.0f}")
    if len(distribution.masses) == 1:
        return Bracket(1.0, 1.0)
    rounding = _slack(distribution, n)
    hoeffding = CUT_SHARE
    h = _step(distribution, n, max(epsilon, spread(distribution, n)), hoeffding)
    while True:
        composed = compose(distribution, n, h, max(CUT_SHARE * hoeffding, rounding.delta / 16), hoeffding)
        bracket = Bracket(composed.delta_lower(epsilon), composed.delta_upper(epsilon))
        wide = bracket.upper - bracket.lower
        if wide <= RELATIVE_WIDTH * bracket.upper or bracket.upper <= 16 * rounding.delta:
            return bracket
        smaller = max(min(hoeffding, HOEFFDING_SHARE * bracket.upper), 1e-30)
        if h <= finest_step(distribution, n) and smaller >= hoeffding / 2:
            return bracket
        hoeffding, h = smaller, max(h / 4, finest_step(distribution, n))
