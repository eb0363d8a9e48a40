"""Central noisy stochastic gradient descent over a convex set: the reference for the federated form.

Bassily, Smith and Thakurta (FOCS 2014, arXiv 1405.7085), Algorithm 1, A_Noise-GD. For t = 1 to n^2 - 1: draw one of the
n records with replacement, take its gradient g of an L-Lipschitz loss, and set

    theta_{t+1} = Pi_C(theta_t - eta(t) (n g + b_t)),  b_t ~ N(0, sigma^2 I),
    eta(t) = |C| / sqrt(t (n^2 L^2 + d sigma^2)),
    sigma^2 = 32 L^2 n^2 log(n / delta) log(1 / delta) / epsilon^2,

|C| being the diameter. The output is the last iterate. Theorem 2.1 states (epsilon, delta) for one replaced record.
dpcore.research.erm.noisy_descent accounts for the noise that is drawn, and a plan whose accounted epsilon exceeds
its epsilon is refused. Noise is exact, in units of L 2^-24. Utility: docs/explanation/proofs.md, "Noisy descent".
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from dpcore.accounting.gaussian import check_delta, check_epsilon
from dpcore.accounting.noise_shares import IntegerNoise
from dpcore.errors import ConfigurationError, DataError, PlanError, ShapeError
from dpcore.estimators.erm import LOGISTIC, ConvexSet, MarginLoss
from dpcore.numbers.rationals import check_rational
from dpcore.progress import Progress
from dpcore.randomness.noise import LARGEST_SIGMA, discrete_gaussian, indices
from dpcore.randomness.sources import RandomSource
from dpcore.records.clipping import Clip

# The subsampled Gaussian mechanism with one record of n per step: an epsilon for many steps, with its proof.
#
# One step. An index is drawn uniformly from n >= 2 records; the output is that record's vector plus N(0, sigma^2 I).
# No two vectors are further apart than Delta; mu = Delta / sigma.
#
# Neighbours: one record is replaced. With gamma = 1/n and r the likelihood ratio of N(mu, 1) to N(0, 1), t = 1 + gamma
# (r
# - 1)_+,
#
#     E_M'[(M / M')^k] <= 1 + E[F(t)],  F(t) = t^k + t^(1-k) - 1 - t = (t^k - t)(1 - t^-k).
#
# Many steps: divergences of one order add up (Mironov, CSF 2017, Proposition 1); to epsilon by Canonne, Kamath and
# Steinke (NeurIPS 2020), Proposition 12. Proof: docs/explanation/proofs.md, "The subsampled Gaussian mechanism".


_CELLS = 4096
_BEYOND = 13.0
_ORDERS = 1.0 + np.geomspace(0.01, 1e6, 161)
# For about ten operations on numbers with errors of a few units in the last place; exponents stay below 700.
_FIGURE_ROUNDING = 1e-11
_LARGEST_EXPONENT = 600.0


def sampled_epsilon(mu: float, n: int, steps: int, delta: Fraction | float, slack: float = 0.0) -> float:
    """An epsilon at which the composition of `steps` such steps over n records is (epsilon, delta)-private, rounded up.

    mu: Delta / sigma, rounded up by the caller. slack: lambda of one step's noise. Returns inf if no order gives a
    bound. Raises PlanError if an argument is out of range.
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


Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

MOST_ROWS = 2000
"""The limit of n^2 steps: four million, about a minute."""

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

    Raises ConfigurationError or PlanError if a field is out of range.
    """

    rows: int
    d: int
    epsilon: Fraction
    delta: Fraction
    """Of Theorem 2.1."""
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

    def __post_init__(self) -> None:
        check_rational("norm_bound", self.norm_bound)
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not 2 <= self.rows <= MOST_ROWS:
            raise PlanError(f"{self.rows} rows: n^2 steps need 2 to {MOST_ROWS}; for more rows use a federated descent")
        if self.noise not in {"theorem", "counted"} or self.output not in {"last", "average"}:
            raise ConfigurationError('choose noise "theorem" or "counted", and output "last" or "average"')
        if self.noise == "theorem" and self.epsilon > 2 * math.sqrt(math.log(1 / self.delta)):
            raise PlanError(
                f"epsilon is {float(self.epsilon):g}: Theorem 2.1 is proved up to 2 sqrt(log(1/delta)); choose less, "
                'or noise "counted"'
            )
        # Raises now if the diameter does not fit d, or the noise is too large to be drawn.
        self.convex_set.diameter(self.d)
        if self.counted_epsilon > self.epsilon:
            raise PlanError("the accounted epsilon exceeds epsilon: choose a smaller epsilon")

    @property
    def steps(self) -> int:
        """n^2 - 1: the number of records drawn."""
        return self.rows**2 - 1

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
        """The epsilon at delta that is proved for this noise: dpcore.research.erm.noisy_descent."""
        return self._count(self.share_sigma)

    @property
    def excess_bound(self) -> float:
        """A bound on E[sum_i l_i(theta) - min over C], for the last iterate: the module's docstring."""
        lipschitz, diameter = self.loss.lipschitz(float(self.norm_bound)), self.convex_set.diameter(self.d)
        spread = math.hypot(self.rows * lipschitz, math.sqrt(self.d) * self.sigma)
        bias = 2 * self.rows * lipschitz * math.sqrt(self.d) * math.ldexp(1.0, -GRADIENT_BITS)
        return (2 * spread / self.rows + bias) * diameter * (2 + 2 * math.log(self.rows))

    def _count(self, share_sigma: int) -> float:
        noise = IntegerNoise(share_sigma, 1, self.d)
        # Two vectors of at most 2^24 units.
        mu = noise.mu(4 << 2 * GRADIENT_BITS)
        return sampled_epsilon(mu, self.rows, self.steps, self.delta, noise.slack)

    def run(self, edges: Matrix, random: RandomSource, progress: Progress | None = None) -> Descended:
        """Descend from the point of C nearest to 0.

        edges: (n, d), y_i x_i. random: the operating system's if the output must be private. progress: callback `(done,
        total)`, in steps. Raises ShapeError for another shape, DataError if a row is not finite or longer than
        norm_bound.
        """
        integers = self._integer_edges(edges)
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

    def _integer_edges(self, edges: Matrix) -> Matrix:
        """Edges in units of R 2^-24, whole numbers, none longer than 2^24: (n, d) float64."""
        if edges.shape != (self.rows, self.d):
            raise ShapeError(f"edges have shape {edges.shape}: give ({self.rows}, {self.d}), as planned")
        bound = float(self.norm_bound)
        if not (np.linalg.norm(edges, axis=1) <= bound * (1 + _ROUNDING)).all():
            raise DataError(f"a row is not finite or longer than {bound:g}: raise norm_bound, or scale the rows")
        whole = np.trunc(np.ldexp(edges / bound, GRADIENT_BITS)).astype(np.int64)
        # Verified in exact arithmetic, independently of rounding.
        return Clip(Fraction(1), bias=False).apply(whole, GRADIENT_BITS).astype(np.float64)

    def _statement(self) -> str:
        stated = f"; Theorem 2.1 states epsilon {float(self.epsilon):g}" if self.noise == "theorem" else ""
        return (
            f"({self.counted_epsilon:.4g}, {float(self.delta):.4g})-differentially private when one of {self.rows} "
            f"rows is replaced, for the output alone, accounted by Renyi divergence{stated}. Holds if the rows stay "
            "private and the random bits come from the operating system."
        )


def _units(ratio: float) -> int:
    """The noise's sigma / (n L) in units of 2^-24, rounded up. Raises PlanError if so much noise cannot be drawn."""
    units = math.ceil(math.ldexp(ratio * (1 + 1e-12), GRADIENT_BITS))
    if units > LARGEST_SIGMA:
        raise PlanError("epsilon needs more noise than can be drawn: choose a larger epsilon")
    return units
