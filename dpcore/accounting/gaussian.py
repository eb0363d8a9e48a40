"""The exact privacy cost of Gaussian noise: one release, n releases that a record enters by a coin, and compositions.

Neighbours: one record is replaced. mu = Delta / sigma: Delta, the most that the record moves a release in the Euclidean
norm; sigma, the standard deviation of the independent noise on each coordinate.

- One release: delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), tight (Balle and Wang, ICML
  2018, Theorem 8, arXiv 1805.06530).
- A public coin: the record enters each of n rados with probability p. With K ~ Binomial(n, p), delta(epsilon) <=
  E_K[delta_G(epsilon; mu sqrt(K))], also against an adversary that knows the coins. Fair coins that stay secret cost
  less (dpcore.accounting.noise_shares.secret_coin_squared).
- Composition: squared shifts add (`ShiftDistribution`). Queries may depend on earlier answers, their parameters (mu, n,
  p) may not (Zhu, Dong and Wang, AISTATS 2022, arXiv 2106.08567).

Rounding is bounded at each step; state the upper end of every `Bracket`. Proof: docs/explanation/proofs.md, "Gaussian
noise".
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpcore.accounting.composition import LARGEST_EPSILON, Bracket, DeltaTooSmallError
from dpcore.errors import PlanError
from dpcore.numbers.distributions import ROUND_OFF, TAIL_BITS, erfcx, tails
from dpcore.numbers.fixed_point import Vector

MOST_RELEASES = 10_000_000
# Cut tails and what underflows weigh far less than this.
SMALLEST_DELTA = 1e-100
_UNDERFLOW = 1e-290
# The relative precision of a bisection.
_CLOSE = 1e-12
# Most atoms of a distribution before it is added to another, which makes an atom of each pair, and after it.
_FEWER_ATOMS, _MOST_ATOMS = 1024, 8192
# Tails of at most this mass are cut before a distribution is binned.
_LIGHT = 1e-40


class WeakNoiseError(PlanError):
    """Noise so small that epsilon bounds nothing."""

    def __init__(self) -> None:
        super().__init__(
            f"the noise is so small that epsilon is above {LARGEST_EPSILON:.0f}, which bounds nothing: add noise, or "
            "ask for fewer rados"
        )


@dataclass(frozen=True, eq=False)
class ShiftDistribution:
    """The distribution of the squared shift S between neighbours, in units of the noise's variance, and its cost."""

    lower: Vector
    """(atoms,) lower end of the interval that holds an atom's S."""
    upper: Vector
    """(atoms,) upper end."""
    masses: Vector
    """(atoms,), sum 1."""
    trimmed: float = 0.0
    """A bound on the total variation distance to the true distribution."""
    relative_error: float = 0.0
    """One on that of each mass."""
    slack: float = 0.0
    """Lambda of `dpcore.accounting.noise_shares`, of integer noise; 0 for continuous noise."""

    def delta(self, epsilon: float) -> Bracket:
        """The least delta at which the releases are (epsilon, delta)-private. Raises PlanError.

        With slack lambda, (epsilon' + 2 lambda, delta' e^lambda); below epsilon' = 0, delta' grows by no more than 1 -
        e^epsilon'.
        """
        if not 0 <= epsilon <= LARGEST_EPSILON:
            raise PlanError(f"epsilon is {epsilon}: give 0 to {LARGEST_EPSILON:.0f}")
        return Bracket(self._delta_lower(epsilon), self._delta_upper(epsilon))

    def epsilon(self, delta: Fraction | float) -> Bracket:
        """The least epsilon at which the releases are (epsilon, delta)-private.

        Raises WeakNoiseError above LARGEST_EPSILON, DeltaTooSmallError below 1e-100 (1e-37 where distributions were
        added), PlanError if delta is not in (0, 1).
        """
        if len(self.masses) > 1:
            return self._epsilon(delta)
        return _epsilon_of_one_shift(
            *(float(values[0]) for values in (self.lower, self.upper, self.masses)),
            self.trimmed,
            self.relative_error,
            self.slack,
            delta,
        )

    @property
    def sure_shift(self) -> Fraction | None:
        """mu^2 of Gaussian differential privacy, but for the slack, rounded up; None if coins decide about it."""
        if len(self.masses) > 1 or self.trimmed:
            return None
        # n mu mu is a product that was rounded twice, by at most a relative 2^-53 each time.
        return Fraction(math.nextafter(math.nextafter(float(self.upper[0]), math.inf), math.inf))

    def scaled(self, mu: float) -> "ShiftDistribution":
        """The distribution where each shift is `mu` times as long."""
        return replace(self, lower=self.lower * mu * mu, upper=self.upper * mu * mu)

    def binned(self, most: int) -> "ShiftDistribution":
        """The distribution in at most `most` atoms, hulls within equal steps of S; light tails are cut."""
        if len(self.masses) <= most:
            return self
        order = np.argsort(self.upper, kind="stable")
        lower, upper, masses = self.lower[order], self.upper[order], self.masses[order]
        first = int(np.searchsorted(np.cumsum(masses), _LIGHT))
        last = len(masses) - 1 - int(np.searchsorted(np.cumsum(masses[::-1]), _LIGHT))
        lower, upper, masses = (part[first : last + 1] for part in (lower, upper, masses))
        starts = np.unique(np.searchsorted(upper, np.linspace(upper[0], upper[-1], most), side="left"))
        return replace(
            self,
            lower=np.minimum.reduceat(lower, starts),
            upper=np.maximum.reduceat(upper, starts),
            masses=np.add.reduceat(masses, starts),
            trimmed=self.trimmed + 2 * _LIGHT,
            relative_error=self.relative_error + ROUND_OFF * len(masses),
        )

    def _epsilon(self, delta: Fraction | float) -> Bracket:
        budget = check_delta(delta)
        if budget <= 2 * self.trimmed:
            raise DeltaTooSmallError(delta=budget, smallest_delta=10 * self.trimmed)
        upper = _least(lambda epsilon: self._delta_upper(epsilon) <= budget)
        return Bracket(self._epsilon_lower(upper, float(delta)), upper)

    def _delta_upper(self, epsilon: float) -> float:
        inner = max(0.0, epsilon - 2 * self.slack)
        value, error = _hockey_stick(self.upper, inner)
        counted = float(self.masses @ (value + error)) * (1 + self.relative_error) + self.trimmed
        return min(1.0, counted * math.exp(self.slack) * (1 + 4 * ROUND_OFF) + 2 * self.slack)

    def _delta_lower(self, epsilon: float) -> float:
        value, error = _hockey_stick(self.lower, epsilon)
        return max(0.0, float(self.masses @ (value - error)) * (1 - self.relative_error) - self.trimmed)

    def _epsilon_lower(self, upper: float, delta: float) -> float:
        """An epsilon at which delta is not enough, close below `upper`; 0 if none is found."""
        gap = _CLOSE
        while gap < 1:
            if self._delta_lower(upper * (1 - gap)) > delta:
                return upper * (1 - gap)
            gap *= 2
        return 0.0


# A plan, its statement and each ledger ask for the same figures, again for each attempt and each part of a budget.
@lru_cache(maxsize=1024)
def _epsilon_of_one_shift(
    lower: float,
    upper: float,
    mass: float,
    trimmed: float,
    relative_error: float,
    slack: float,
    delta: Fraction | float,
) -> Bracket:
    """`ShiftDistribution.epsilon` of a distribution of one atom."""
    one = ShiftDistribution(np.array([lower]), np.array([upper]), np.array([mass]), trimmed, relative_error, slack)
    return one._epsilon(delta)  # noqa: SLF001  (one distribution, one module)


def shift_distribution(mu: float, n: int = 1, p: Fraction | float = 1, slack: float = 0.0) -> ShiftDistribution:
    """The distribution of n releases, each of which shifts by `mu` with probability `p`, and otherwise not at all.

    mu: Delta / sigma, rounded up by the caller. slack: of all n releases in total. Raises PlanError.
    """
    if not (math.isfinite(mu) and mu > 0):
        raise PlanError(f"mu is {mu}: a record moves a release by a positive and finite number of standard deviations")
    if not 1 <= n <= MOST_RELEASES:
        raise PlanError(f"{n} rados: ask for 1 to {MOST_RELEASES}")
    if not 0 < p <= 1:
        raise PlanError(f"p is {float(p)}: a record enters a rado with a probability above 0 and at most 1")
    if not 0 <= slack < 1:
        raise PlanError(f"the noise's slack is {slack}: take shares with a larger standard deviation")
    counts, masses = (np.array([float(n)]), np.ones(1)) if p == 1 else _binomial(n, p)
    squares = counts * mu * mu
    exact = p == 1
    return ShiftDistribution(
        lower=squares,
        upper=squares,
        masses=masses,
        trimmed=0.0 if exact else 2.0**-TAIL_BITS + len(masses) * _UNDERFLOW,
        relative_error=0.0 if exact else 8 * ROUND_OFF * len(masses),
        slack=slack,
    )


def composed_shift(distributions: Iterable[ShiftDistribution]) -> ShiftDistribution:
    """The distribution of the composition of independent releases. Raises PlanError if there is none."""
    found = list(distributions)
    if not found:
        raise PlanError("no release: give the distribution of at least one")
    sure = [distribution for distribution in found if len(distribution.masses) == 1]
    # Releases without coins come first: they have one atom each, so adding them needs no binning.
    result, *others = sure + [distribution for distribution in found if len(distribution.masses) > 1]
    for other in others:
        a, b = result.binned(_FEWER_ATOMS), other.binned(_FEWER_ATOMS)
        pairs = ShiftDistribution(
            lower=np.add.outer(a.lower, b.lower).ravel() * (1 - 2 * ROUND_OFF),
            upper=np.add.outer(a.upper, b.upper).ravel() * (1 + 2 * ROUND_OFF),
            masses=np.multiply.outer(a.masses, b.masses).ravel(),
            trimmed=a.trimmed + b.trimmed,
            relative_error=a.relative_error + b.relative_error + 2 * ROUND_OFF,
            slack=a.slack + b.slack,
        )
        result = pairs.binned(_MOST_ATOMS)
    return result


def gaussian_delta(mu: float, epsilon: float) -> Bracket:
    """The least delta of one Gaussian release. Raises what `ShiftDistribution.delta` does."""
    return shift_distribution(mu).delta(epsilon)


def gaussian_epsilon(mu: float, delta: Fraction | float) -> Bracket:
    """The least epsilon of one Gaussian release. Raises what `ShiftDistribution.epsilon` does."""
    return shift_distribution(mu).epsilon(delta)


def gaussian_mu(epsilon: Fraction | float, delta: Fraction | float) -> float:
    """The largest mu, rounded down, whose stated delta at `epsilon` is at most `delta`. Raises as `subsampled_mu`."""
    return subsampled_mu(1, 1, epsilon, delta)


def subsampled_delta(mu: float, n: int, p: Fraction | float, epsilon: float) -> Bracket:
    """The least delta of n rados that a record enters by a coin. Raises as `ShiftDistribution.delta`."""
    return shift_distribution(mu, n, p).delta(epsilon)


def subsampled_epsilon(mu: float, n: int, p: Fraction | float, delta: Fraction | float) -> Bracket:
    """The least epsilon of n rados that a record enters by a coin. Raises as `ShiftDistribution.epsilon`."""
    return shift_distribution(mu, n, p).epsilon(delta)


def subsampled_mu(n: int, p: Fraction | float, epsilon: Fraction | float, delta: Fraction | float) -> float:
    """The largest mu, rounded down, at which n rados that a record enters by a coin stay within (epsilon, delta).

    Raises PlanError if an argument is out of range: epsilon in (0, LARGEST_EPSILON], delta in (0, 1).
    """
    wanted, budget, unit = check_epsilon(epsilon), check_delta(delta), shift_distribution(1.0, n, p)

    def beyond(mu: float) -> bool:
        return unit.scaled(mu)._delta_upper(wanted) > budget  # noqa: SLF001  (one distribution, one module)

    low, high = 0.0, 1.0
    while not beyond(high):
        low, high = high, 2 * high
        if high > 2.0**64:  # delta is no less than the chance of entering any rado
            return low
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return low


def subsampled_rados(mu: float, p: Fraction | float, epsilon: Fraction | float, delta: Fraction | float) -> int:
    """The most rados, up to MOST_RELEASES, that stay within (epsilon, delta); 0 if none. Raises as `subsampled_mu`."""
    wanted, budget = check_epsilon(epsilon), check_delta(delta)

    def within(n: int) -> bool:
        return shift_distribution(mu, n, p)._delta_upper(wanted) <= budget  # noqa: SLF001  (one distribution, one module)

    below, above = 0, 1
    while above <= MOST_RELEASES and within(above):
        below, above = above, 2 * above
    above = min(above, MOST_RELEASES + 1)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if within(middle) else (below, middle)
    # An epsilon is stated a little above the least one (_least).
    while below and subsampled_epsilon(mu, below, p, delta).upper > epsilon:
        below -= 1
    return below


def check_delta(delta: Fraction | float) -> float:
    """Delta in double precision, rounded down: the counted delta is never above the requested one.

    Raises PlanError if it is not in (0, 1), DeltaTooSmallError if it is too small to count.
    """
    if not 0 < delta < 1:
        raise PlanError(f"delta is {float(delta):.6g}: choose a number between 0 and 1")
    if delta < SMALLEST_DELTA:
        raise DeltaTooSmallError(delta=float(delta), smallest_delta=SMALLEST_DELTA)
    return _down(delta)


def check_epsilon(epsilon: Fraction | float) -> float:
    """Epsilon in double precision, rounded down. Raises PlanError if it is not in (0, LARGEST_EPSILON]."""
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise PlanError(f"the total epsilon is out of range: choose a number above 0 and at most {LARGEST_EPSILON:.0f}")
    return _down(epsilon)


def _down(number: Fraction | float) -> float:
    rounded = float(number)
    return rounded if Fraction(rounded) <= number else math.nextafter(rounded, 0.0)


def _hockey_stick(squares: Vector, epsilon: float) -> tuple[Vector, Vector]:
    """delta_G(epsilon; sqrt(S)) for each S, and a bound on its error; epsilon >= 0.

    With a = mu/2 - epsilon/mu and b = -mu/2 - epsilon/mu, terms are exp(-a^2/2) erfcx(-b / sqrt 2) / 2, and for a <= 0
    the same with a. a and b are off by at most 6 round-offs of |b| >= |a|, and neither term moves by more than
    exp(-a^2/2)/2 times |a| as much.
    """
    mu = np.sqrt(squares)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        ratio = np.where(mu > 0, epsilon / mu, np.inf)
        a, b = mu / 2 - ratio, -mu / 2 - ratio
        bell = np.exp(-a * a / 2) / 2
        second = bell * erfcx(-b / math.sqrt(2))
        first = np.where(a > 0, tails(a)[0], bell * erfcx(np.maximum(-a, 0) / math.sqrt(2)))
    magnified = (1 + np.minimum(np.abs(a), 1e9)) * (1 + np.minimum(np.abs(b), 1e9))
    error = (first + second) * 2.0**-46 + bell * (16 * ROUND_OFF * magnified) + _UNDERFLOW
    # No shift, no loss.
    still = mu == 0
    return np.where(still, 0.0, np.clip(first - second, 0, 1)), np.where(still, 0.0, np.minimum(error, 1))


def _binomial(n: int, p: Fraction | float) -> tuple[Vector, Vector]:
    """Counts and masses of Binomial(n, p) except a tail of at most 2^-TAIL_BITS (Hoeffding); 5 round-offs a step."""
    exact = Fraction(p)
    odds = float(exact / (1 - exact))
    mode = min(n, int((n + 1) * exact))
    half_width = math.ceil(math.sqrt((TAIL_BITS + 1) * math.log(2) * n / 2)) + 2
    low, high = max(0, mode - half_width), min(n, mode + half_width)
    up = np.arange(mode, high, dtype=np.float64)
    down = np.arange(mode, low, -1, dtype=np.float64)
    with np.errstate(under="ignore"):
        right = np.cumprod((n - up) / (up + 1) * odds)
        left = np.cumprod(down / (n - down + 1) / odds)
    masses = np.concatenate([left[::-1], np.ones(1), right])
    return np.arange(low, high + 1, dtype=np.float64), masses / masses.sum()


def _least(enough: Callable[[float], bool]) -> float:
    """The least epsilon that is enough, or up to _CLOSE more; the result was itself tested. Raises WeakNoiseError."""
    if enough(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not enough(high):
        low, high = high, 2 * high
        if low >= LARGEST_EPSILON:
            raise WeakNoiseError
    while high - low > max(_CLOSE * high, 1e-15):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    if high > LARGEST_EPSILON:
        raise WeakNoiseError
    return high
