"""Exponential sampling: a classifier drawn with probability that falls exponentially in its loss.

Bassily, Smith and Thakurta (FOCS 2014, arXiv 1405.7085), Algorithm 2, A_exp-samp: theta in a convex set C, with density
proportional to exp(-k F(theta)), F = sum_i l_i an L-Lipschitz convex loss over n records, |C| the diameter,

    k = epsilon / (2 L |C|).

That distribution is (epsilon, 0)-private for one replaced record (Theorem 3.1), with E[F] - min F <= d / k (Theorem
3.2). `ExponentialSampling.walk` takes a random walk towards it and claims no epsilon. `GridSampling` draws from
finitely many candidates, exactly, and its epsilon holds. Proof: docs/explanation/proofs.md, "Exponential sampling".
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpcore.accounting.gaussian import check_epsilon
from dpcore.errors import ConfigurationError, DataError, PlanError, ShapeError
from dpcore.estimators.erm import LOGISTIC, ConvexSet, MarginLoss
from dpcore.numbers.rationals import check_rational
from dpcore.randomness.noise import words
from dpcore.randomness.sources import RandomSource
from dpcore.research.mechanisms.choosing import ExponentialMechanism

# Arrays of uniform and normal numbers from a source of random bits.
#
# Uniform numbers are multiples of 2^-53, and normal ones their quantiles. They suit random walks; no privacy proof
# holds for distributions in double precision (Mironov, CCS 2012).


def uniforms(count: int, random: RandomSource) -> NDArray[np.float64]:
    """`count` numbers strictly between 0 and 1: odd multiples of 2^-53."""
    return ((words(count, random) >> np.uint64(12)).astype(np.float64) * 2.0 + 1.0) * 2.0**-53


def normals(count: int, random: RandomSource) -> NDArray[np.float64]:
    """`count` standard normal numbers, by the quantile function."""
    quantiles: NDArray[np.float64] = ndtri(uniforms(count, random))
    return quantiles


Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

SCORE_BITS = 16
MOST_CANDIDATES = 1 << 16
_ROUNDING = 1e-9
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
    """A_exp-samp over a convex set, by a random walk.

    Raises PlanError if a field is out of range, ShapeError if the set has another d.
    """

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

        A proposal is theta plus a normal vector, whose length is drawn from |C| / 2^j, j = 0, 1, ..., down to a length
        over which the density changes by at most a factor; proposals outside C are rejected.

        Proposals are symmetric, so the exact distribution is stationary, and every point can be reached, so the walk
        converges to it.

        Its distance after `steps` depends on the data and is not bounded here. Applegate and Kannan (STOC 1991) bound
        it for a walk on a grid, with which the paper's section 3 stays private in polynomially many steps; this is a
        different walk.

        edges: (n, d), y_i x_i. Raises ShapeError, DataError if a row is longer than norm_bound, PlanError if steps < 1.
        """
        _check_edges(edges, self.d, float(self.norm_bound))
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

    A record's score at a candidate is its loss in units of 2^-16, rounded and clipped to the losses at margins R r and
    -R r, r the longest candidate.

    So scores are integers, and a record's scores differ by at most `width` units; as in the module's docstring,
    replacing a record moves a sum of centred scores by at most `width`, and the exponential mechanism with that
    sensitivity, drawn exactly, is epsilon-differentially private.

    For the logistic loss `width` is R r, half of L |C| on a ball about 0.

    Raises ShapeError, DataError or PlanError if a field is out of range.
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
        """An upper bound on the expected excess of the summed scores over the best candidate's, in nats.

        log(G) / k with k = epsilon / (2 width): the distribution maximises k times the expected score plus its own
        entropy, and that of the best candidate alone has no entropy.
        """
        return math.log(len(self.candidates)) * 2 * math.ldexp(self.width, -SCORE_BITS) / float(self.epsilon)

    def scores(self, edges: Matrix) -> NDArray[np.int64]:
        """The summed loss of each candidate in units of 2^-16, by the records' integer scores: int64 (G,).

        edges: (n, d). Raises ShapeError, DataError if a row is longer than norm_bound.
        """
        _check_edges(edges, self.candidates.shape[1], float(self.norm_bound))
        low, high = self._range
        total = np.empty(len(self.candidates), dtype=np.int64)
        for first in range(0, len(self.candidates), _CANDIDATES_TOGETHER):
            part = slice(first, first + _CANDIDATES_TOGETHER)
            losses = np.ldexp(self.loss.value(edges @ self.candidates[part].T), SCORE_BITS)
            total[part] = np.clip(np.rint(losses), low, high).astype(np.int64).sum(axis=0)
        return total

    def draw(self, edges: Matrix, random: RandomSource) -> Sampled:
        """One candidate, k with probability proportional to exp(-epsilon score_k / (2 width)), exactly.

        Raises as `scores`.
        """
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


def _check_edges(edges: Matrix, d: int, norm_bound: float) -> None:
    if edges.ndim != 2 or edges.shape[1] != d or not len(edges):
        raise ShapeError(f"edges have shape {edges.shape}: give (n, {d})")
    if not (np.linalg.norm(edges, axis=1) <= norm_bound * (1 + _ROUNDING)).all():
        raise DataError(f"a row is not finite or longer than {norm_bound:g}: raise norm_bound, or scale the rows")
