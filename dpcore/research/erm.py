"""Central private empirical risk minimisation: the reference for the federated form."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri

from dpcore.accounting.gaussian import check_delta, check_epsilon
from dpcore.accounting.noise_shares import IntegerNoise
from dpcore.errors import ConfigurationError, DataError, PlanError, ShapeError
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.numbers.progress import Progress
from dpcore.numbers.rationals import check_rational
from dpcore.randomness.noise import LARGEST_SIGMA, discrete_gaussian, indices, words
from dpcore.randomness.sources import RandomSource
from dpcore.records.clipping import Clip
from dpcore.records.losses import LOGISTIC, ConvexSet, MarginLoss
from dpcore.research.mechanisms import ExponentialMechanism

# Central noisy stochastic gradient descent: Bassily, Smith and Thakurta (FOCS 2014, arXiv 1405.7085), A_Noise-GD.
#
# For t = 1 to n^2 - 1: draw one of the n records with replacement, take its gradient g of an L-Lipschitz loss, and set
#
#     theta_{t+1} = Pi_C(theta_t - eta(t) (n g + b_t)),  b_t ~ N(0, sigma^2 I),
#     eta(t) = |C| / sqrt(t (n^2 L^2 + d sigma^2)),
#     sigma^2 = 32 L^2 n^2 log(n / delta) log(1 / delta) / epsilon^2,
#
# |C| being the diameter. A plan whose accounted epsilon exceeds its epsilon is refused. Noise is exact, in units of L
# 2^-24. Utility: docs/explanation/proofs.md, "Noisy descent".


# The subsampled Gaussian mechanism with one record of n per step, n >= 2: an epsilon for many steps.
#
# Divergences of one order add up (Mironov, CSF 2017, Proposition 1); to epsilon by Canonne, Kamath and Steinke (NeurIPS
# 2020), Proposition 12. Proof: docs/explanation/proofs.md, "The subsampled Gaussian mechanism".


_CELLS = 4096
_BEYOND = 13.0
_ORDERS = 1.0 + np.geomspace(0.01, 1e6, 161)
# For about ten operations on numbers with errors of a few units in the last place; exponents stay below 700.
_FIGURE_ROUNDING = 1e-11
_LARGEST_EXPONENT = 600.0


def sampled_epsilon(mu: float, n: int, steps: int, delta: Fraction | float, slack: float = 0.0) -> float:
    """An epsilon at which `steps` such steps over n records are (epsilon, delta)-private, rounded up; inf if none.

    mu: Delta / sigma, rounded up by the caller. slack: lambda of one step's noise. Raises PlanError.
    """
    budget = check_delta(delta)
    if not (math.isfinite(mu) and mu > 0) or n < 2 or steps < 1 or not slack >= 0:
        raise PlanError(f"mu {mu}, {n} records, {steps} steps: give mu > 0, at least two records and one step")
    least = math.inf
    for order in _ORDERS:
        k = float(order)
        spent = steps * (renyi_divergence(mu, n, k) + (2 + 1 / (k - 1)) * slack)
        terms = (spent, math.log1p(-1 / k), -math.log(budget) / (k - 1), -math.log(k) / (k - 1))
        least = min(least, math.fsum(terms) + _FIGURE_ROUNDING * (1 + sum(map(abs, terms))))
    return max(0.0, least)


def renyi_divergence(mu: float, n: int, order: float) -> float:
    """An upper bound on the Renyi divergence of one step, in nats; inf if double precision cannot represent it."""
    last = order * mu + _BEYOND
    edges = np.linspace(mu / 2, last, _CELLS + 1)
    # log t at the upper end of each cell.
    ratio_logs = mu * edges[1:] - mu * mu / 2
    tail_log = order * (order - 1) * mu * mu / 2 + float(log_ndtr(-_BEYOND))
    if order * ratio_logs[-1] > _LARGEST_EXPONENT or tail_log > _LARGEST_EXPONENT:
        return math.inf
    log_t = np.log1p(np.expm1(ratio_logs) / n)
    values = np.exp(log_t) * np.expm1((order - 1) * log_t) * -np.expm1(-order * log_t)
    density = np.exp(-np.square(edges[:-1]) / 2) / math.sqrt(2 * math.pi)
    excess = float(values @ density) * (edges[1] - edges[0]) + math.exp(tail_log)
    return math.log1p(excess * (1 + _FIGURE_ROUNDING * (1 + order))) / (order - 1) * (1 + _FIGURE_ROUNDING)


MOST_ROWS = 2000
"""The most rows for n^2 steps: four million, about a minute."""
MOST_STEPS = MOST_ROWS**2

GRADIENT_BITS = 24
_DRAWN_TOGETHER = 1 << 16
# Relative excess of a row's length that is clipped, not refused: rows are often scaled to the bound itself.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Descended:
    """The result of a descent: theta (d,), and the privacy of this output alone, in numbers and in a sentence."""

    theta: Vector
    epsilon: float
    delta: Fraction
    statement: str


@dataclass(frozen=True)
class NoisyDescent:
    """A_Noise-GD for n = `rows` records of d coordinates, planned: its noise, cost and bound are known.

    Fewer draws than the paper's are the same algorithm, stopped earlier: T iterates instead of n^2 in its bound.

    Raises ConfigurationError or PlanError if a field is out of range.
    """

    rows: int
    d: int
    epsilon: Fraction
    delta: Fraction
    """Of the paper's theorem on its privacy."""
    norm_bound: Fraction
    """R, no record is longer; L = R for both losses."""
    convex_set: ConvexSet
    """C."""
    loss: MarginLoss = LOGISTIC
    noise: Literal["theorem", "counted"] = "theorem"
    """"theorem" takes its sigma; "counted" the least for which the accounting, instead of the theorem, gives epsilon.
    """
    output: Literal["last", "average"] = "last"
    """"last" iterate or the "average" of all, whose privacy is the same."""
    draws: int | None = None
    """How many records are drawn, with "counted" noise; None for the paper's n^2 - 1."""

    def __post_init__(self) -> None:
        check_rational("norm_bound", self.norm_bound)
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if self.rows < 2 or not 1 <= self.steps <= MOST_STEPS:
            raise PlanError(
                f"{self.rows} rows and {self.steps} steps: give at least 2 rows, and for more than {MOST_ROWS} of "
                f"them 1 to {MOST_STEPS} draws, fewer than the paper's n^2 - 1, or use dpcore.research.erm_at_scale"
            )
        if self.draws is not None and self.noise != "counted":
            raise ConfigurationError('the theorem is about n^2 - 1 draws: leave draws out, or give noise "counted"')
        if self.noise not in {"theorem", "counted"} or self.output not in {"last", "average"}:
            raise ConfigurationError('choose noise "theorem" or "counted", and output "last" or "average"')
        if self.noise == "theorem" and self.epsilon > 2 * math.sqrt(math.log(1 / self.delta)):
            raise PlanError(
                f"epsilon is {float(self.epsilon):g}: the paper's theorem is proved up to 2 sqrt(log(1/delta)); choose "
                'less, or noise "counted"'
            )
        # Raises now if the diameter does not fit d, or the noise is too large to be drawn.
        self.convex_set.diameter(self.d)
        if self.counted_epsilon > self.epsilon:
            raise PlanError("the accounted epsilon exceeds epsilon: choose a smaller epsilon")

    @property
    def steps(self) -> int:
        """The number of records drawn: n^2 - 1, or `draws`."""
        return self.rows**2 - 1 if self.draws is None else self.draws

    @cached_property
    def share_sigma(self) -> int:
        """The standard deviation of the noise on each coordinate, in units of n L 2^-24."""
        if self.noise == "theorem":
            return _units(math.sqrt(32 * math.log(self.rows / self.delta) * math.log(1 / self.delta)) / self.epsilon)
        low, high = 1 << 12, 1 << GRADIENT_BITS
        while self._count(high) > self.epsilon:
            low, high = high, _units(2 * math.ldexp(high, -GRADIENT_BITS))
        # Within a thousandth of the least; the value kept was accounted for.
        while high - low > max(1, high >> 10):
            middle = (low + high) // 2
            low, high = (low, middle) if self._count(middle) <= self.epsilon else (middle, high)
        return high

    @property
    def sigma(self) -> float:
        """The same in the units of n g."""
        return self.rows * float(self.norm_bound) * math.ldexp(self.share_sigma, -GRADIENT_BITS)

    @cached_property
    def counted_epsilon(self) -> float:
        """The epsilon at delta that is proved for this noise: dpcore.research.erm."""
        return self._count(self.share_sigma)

    @property
    def excess_bound(self) -> float:
        """A bound on E[sum_i l_i(theta) - min over C], for the last iterate: the module's docstring."""
        lipschitz, diameter = self.loss.lipschitz(float(self.norm_bound)), self.convex_set.diameter(self.d)
        spread = math.hypot(self.rows * lipschitz, math.sqrt(self.d) * self.sigma)
        bias = 2 * self.rows * lipschitz * math.sqrt(self.d) * math.ldexp(1.0, -GRADIENT_BITS)
        return (2 * spread / math.sqrt(self.steps + 1) + bias) * diameter * (2 + math.log(self.steps + 1))

    def _count(self, share_sigma: int) -> float:
        noise = IntegerNoise(share_sigma, 1, self.d)
        # Two vectors of at most 2^24 units.
        mu = noise.mu(4 << 2 * GRADIENT_BITS)
        return sampled_epsilon(mu, self.rows, self.steps, self.delta, noise.slack)

    def run(self, edges: Matrix, random: RandomSource, progress: Progress | None = None) -> Descended:
        """Descend from the point of C nearest to 0. edges: (n, d), y_i x_i. progress: callback `(done, total)`.

        Raises ShapeError, DataError if a row is not finite or longer than norm_bound.
        """
        integers = integer_edges(edges, (self.rows, self.d), self.norm_bound)
        weight, project = self.loss.weight, self.convex_set.project
        unit = self.rows * float(self.norm_bound) * math.ldexp(1.0, -GRADIENT_BITS)
        # eta(1), in units of the integer sums.
        first = self.convex_set.diameter(self.d) / math.hypot(
            self.rows * float(self.norm_bound), math.sqrt(self.d) * self.sigma
        )
        theta = project(np.zeros(self.d))
        sum_of_iterates = theta.copy()
        block = max(1, _DRAWN_TOGETHER // self.d)
        for start in range(0, self.steps, block):
            count = min(block, self.steps - start)
            rows = indices(self.rows, count, random)
            drawn, chosen = integers[rows], edges[rows]
            noise = discrete_gaussian(self.share_sigma, count * self.d, random).reshape(count, self.d)
            rates = first * unit / np.sqrt(np.arange(start + 1, start + count + 1))
            for i in range(count):
                released = np.trunc(weight(chosen[i] @ theta) * drawn[i]) + noise[i]
                theta = project(theta + rates[i] * released)
                sum_of_iterates += theta
            if progress is not None:
                progress(start + count, self.steps)
        final = theta if self.output == "last" else project(sum_of_iterates / (self.steps + 1))
        return Descended(final, self.counted_epsilon, self.delta, self._statement())

    def _statement(self) -> str:
        stated = f"; the paper's theorem states epsilon {float(self.epsilon):g}" if self.noise == "theorem" else ""
        return (
            f"({self.counted_epsilon:.4g}, {float(self.delta):.4g})-differentially private when one of {self.rows} "
            f"rows is replaced, for the output alone, accounted by Renyi divergence{stated}. Holds if the rows stay "
            "private and the random bits come from the operating system."
        )


def integer_edges(edges: Matrix, shape: tuple[int, int], norm_bound: Fraction) -> Matrix:
    """Edges in units of R 2^-24, whole numbers, none longer than 2^24: (n, d) float64. Raises ShapeError, DataError."""
    if edges.shape != shape:
        raise ShapeError(f"edges have shape {edges.shape}: give {shape}, as planned")
    bound = float(norm_bound)
    if not (np.linalg.norm(edges, axis=1) <= bound * (1 + _ROUNDING)).all():
        raise DataError(f"a row is not finite or longer than {bound:g}: raise norm_bound, or scale the rows")
    whole = np.trunc(np.ldexp(edges / bound, GRADIENT_BITS)).astype(np.int64)
    # Verified in exact arithmetic, independently of rounding.
    return Clip(Fraction(1), bias=False).apply(whole, GRADIENT_BITS).astype(np.float64)


def _units(ratio: float) -> int:
    """The noise's sigma / (n L) in units of 2^-24, rounded up. Raises PlanError if so much noise cannot be drawn."""
    units = math.ceil(math.ldexp(ratio * (1 + 1e-12), GRADIENT_BITS))
    if units > LARGEST_SIGMA:
        raise PlanError("epsilon needs more noise than can be drawn: choose a larger epsilon")
    return units


# Exponential sampling: Bassily, Smith and Thakurta (FOCS 2014, arXiv 1405.7085), A_exp-samp.
#
# theta in a convex set C of diameter |C|, with density proportional to exp(-k F(theta)), F = sum_i l_i an L-Lipschitz
# convex loss over n records, k = epsilon / (2 L |C|): (epsilon, 0)-private, and E[F] - min F <= d / k. `walk`
# only approaches it and claims no epsilon (erm_at_scale.PrivateWalk has one); `GridSampling` is exact on finitely many
# candidates.
# Proof: docs/explanation/proofs.md, "Exponential sampling".


# Uniform numbers (multiples of 2^-53) and normal ones (their quantiles), for random walks: no privacy proof holds for
# distributions in double precision (Mironov, CCS 2012).


def uniforms(count: int, random: RandomSource) -> NDArray[np.float64]:
    """`count` numbers strictly between 0 and 1: odd multiples of 2^-53."""
    return ((words(count, random) >> np.uint64(12)).astype(np.float64) * 2.0 + 1.0) * 2.0**-53


def normals(count: int, random: RandomSource) -> NDArray[np.float64]:
    """`count` standard normal numbers, by the quantile function."""
    quantiles: NDArray[np.float64] = ndtri(uniforms(count, random))
    return quantiles


SCORE_BITS = 16
MOST_CANDIDATES = 1 << 16
_CANDIDATES_TOGETHER = 256


@dataclass(frozen=True, eq=False)
class Sampled:
    """A classifier drawn: theta (d,), the pure epsilon proved for this output or None, and a statement in words."""

    theta: Vector
    epsilon: Fraction | None
    accepted: float
    """The share of a walk's proposals that were accepted; 1 for a draw without a walk."""
    statement: str


@dataclass(frozen=True)
class ExponentialSampling:
    """A_exp-samp over a convex set, by a random walk. Raises PlanError, ShapeError."""

    epsilon: Fraction
    """Of the exact distribution."""
    d: int
    """Coordinates."""
    norm_bound: Fraction
    """R, no record is longer; L = R."""
    convex_set: ConvexSet
    """C."""
    loss: MarginLoss = LOGISTIC

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_rational("norm_bound", self.norm_bound)
        self.convex_set.diameter(self.d)

    @property
    def rate(self) -> float:
        """k, per nat of the summed loss."""
        lipschitz = self.loss.lipschitz(float(self.norm_bound))
        return float(self.epsilon) / (2 * lipschitz * self.convex_set.diameter(self.d))

    @property
    def excess_bound(self) -> float:
        """Upper bound d / k on the exact distribution's expected excess of the summed loss."""
        return self.d / self.rate

    def walk(self, edges: Matrix, steps: int, random: RandomSource) -> Sampled:
        """The last point of `steps` steps of the Metropolis walk from the point of C nearest to 0.

        For a proved epsilon see dpcore.research.exact_sampling, whose draws have exactly such a distribution.

        Steps are normal vectors of length |C| / 2^j, j drawn; symmetric, so the exact distribution is stationary. The
        distance to it depends on the data and is not bounded here: Applegate and Kannan (STOC 1991) bound it for
        another walk, on a grid. Raises ShapeError, DataError if a row is longer than norm_bound, PlanError if steps <
        1.
        """
        check_edges(edges, self.d, float(self.norm_bound))
        if steps < 1:
            raise PlanError(f"{steps} steps: take at least one")
        diameter, rate = self.convex_set.diameter(self.d), self.rate
        scales = 1 + max(0, math.ceil(math.log2(float(self.epsilon) * len(edges) + 1)))
        theta = self.convex_set.project(np.zeros(self.d))
        loss, taken = self.loss.total(theta, edges), 0
        for _ in range(steps):
            which, coin = uniforms(2, random)
            scale = diameter / math.sqrt(self.d) * 2.0 ** -math.floor(which * scales)
            proposal = theta + scale * normals(self.d, random)
            if not self.convex_set.contains(proposal):
                continue
            proposed = self.loss.total(proposal, edges)
            if math.log(coin) < rate * (loss - proposed):
                theta, loss, taken = proposal, proposed, taken + 1
        statement = (
            f"No epsilon is claimed for this output. The distribution that the walk approaches is "
            f"{float(self.epsilon):g}-differentially private when one row is replaced; after {steps} steps the walk "
            "has another distribution, whose distance from it is not bounded here."
        )
        return Sampled(theta, None, taken / steps, statement)


@dataclass(frozen=True, eq=False)
class GridSampling:
    """Exponential sampling from finitely many candidates, exactly: a grid in one dimension, or any public list.

    A score is a loss in units of 2^-16, rounded and clipped to margins R r and -R r, r the longest candidate. A
    record's scores differ by at most `width` units, so replacing one moves centred sums by at most `width`: the
    exponential mechanism is epsilon-private.

    For the logistic loss `width` is R r, half of L |C| on a ball about 0. Raises ShapeError, DataError or PlanError.
    """

    candidates: Matrix
    """(G, d), chosen independently of the data; kept as a read-only copy."""
    epsilon: Fraction
    """Pure."""
    norm_bound: Fraction
    """R."""
    loss: MarginLoss = LOGISTIC

    def __post_init__(self) -> None:
        check_rational("epsilon", self.epsilon)
        check_rational("norm_bound", self.norm_bound)
        candidates = np.array(self.candidates, dtype=np.float64)
        if candidates.ndim != 2 or not 2 <= len(candidates) <= MOST_CANDIDATES or candidates.shape[1] < 1:
            raise ShapeError(
                f"candidates have shape {candidates.shape}: give (G, d) with 2 to {MOST_CANDIDATES} of them"
            )
        if not np.isfinite(candidates).all():
            raise DataError("a candidate is not finite: give finite ones")
        candidates.setflags(write=False)
        object.__setattr__(self, "candidates", candidates)
        if self.width < 1:
            raise ConfigurationError("all candidates are zero: give some that differ")

    @property
    def width(self) -> int:
        """The largest difference of a record's scores over the candidates, in units of 2^-16 nats."""
        low, high = self._range
        return high - low

    @property
    def excess_bound(self) -> float:
        """An upper bound on the expected excess of the summed scores, in nats: log(G) / k, k = epsilon / (2 width)."""
        return math.log(len(self.candidates)) * 2 * math.ldexp(self.width, -SCORE_BITS) / float(self.epsilon)

    def scores(self, edges: Matrix) -> NDArray[np.int64]:
        """The summed loss of each candidate in units of 2^-16: int64 (G,). Raises ShapeError, DataError."""
        check_edges(edges, self.candidates.shape[1], float(self.norm_bound))
        low, high = self._range
        total = np.empty(len(self.candidates), dtype=np.int64)
        for first in range(0, len(self.candidates), _CANDIDATES_TOGETHER):
            part = slice(first, first + _CANDIDATES_TOGETHER)
            losses = np.ldexp(self.loss.value(edges @ self.candidates[part].T), SCORE_BITS)
            total[part] = np.clip(np.rint(losses), low, high).astype(np.int64).sum(axis=0)
        return total

    def draw(self, edges: Matrix, random: RandomSource) -> Sampled:
        """One candidate, k with probability proportional to exp(-epsilon score_k / (2 width)), exactly. As `scores`."""
        mechanism = ExponentialMechanism(self.epsilon, Fraction(self.width))
        chosen = mechanism.release([-score for score in self.scores(edges).tolist()], random)
        statement = (
            f"{float(self.epsilon):g}-differentially private when one row is replaced: an exact draw from "
            f"{len(self.candidates)} candidates. Holds if the rows stay private, the candidates were chosen without "
            "them and the random bits come from the operating system."
        )
        return Sampled(self.candidates[chosen], self.epsilon, 1.0, statement)

    @property
    def _range(self) -> tuple[int, int]:
        """Least and greatest score of a record."""
        farthest = float(self.norm_bound) * float(np.linalg.norm(self.candidates, axis=1).max())
        low, high = np.ldexp(self.loss.value(np.array([farthest, -farthest])), SCORE_BITS)
        return math.floor(low), math.ceil(high)


def line(radius: float, count: int) -> Matrix:
    """`count` equally spaced candidates from -radius to radius: (count, 1)."""
    return np.linspace(-radius, radius, count)[:, np.newaxis]


def check_edges(edges: Matrix, d: int, norm_bound: float) -> None:
    """Raise ShapeError unless edges are (n, d), n > 0, and DataError if a row is longer than norm_bound."""
    if edges.ndim != 2 or edges.shape[1] != d or not len(edges):
        raise ShapeError(f"edges have shape {edges.shape}: give (n, {d})")
    if not (np.linalg.norm(edges, axis=1) <= norm_bound * (1 + _ROUNDING)).all():
        raise DataError(f"a row is not finite or longer than {norm_bound:g}: raise norm_bound, or scale the rows")
