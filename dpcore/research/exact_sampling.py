"""Exponential sampling of a logistic model from a fine lattice in a ball, exactly, and its localised form.

Bassily, Smith and Thakurta (FOCS 2014, arXiv 1405.7085), Algorithms 2 and 3. In place of a random walk, whose distance
from the wanted distribution is not known, a proposal is accepted or rejected by an exact coin: the output has exactly
the distribution, and so its pure epsilon is proved. Proof: docs/explanation/proofs.md, "Exact sampling by rejection".

The running time depends on the rows and is not hidden.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.gaussian import check_epsilon
from dpcore.errors import DataError, PlanError, ShapeError
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.numbers.rationals import check_rational
from dpcore.randomness.noise import bernoulli_exp, discrete_gaussian
from dpcore.randomness.sources import RandomSource
from dpcore.records.losses import LOGISTIC
from dpcore.research.erm import SCORE_BITS, Sampled
from dpcore.research.mechanisms import LaplaceMechanism

LATTICE_BITS = 20
_UNIT = 2.0**-LATTICE_BITS
_TOGETHER = 32
# Of descent: e^-40 of the first error is left after so many steps times the root of the condition.
_DIGITS = 40.0
_CLOSE = 1e-12
_LEAST_CURVATURE = 1e-6
# Rounding of a score, at both of its ends, and of the losses in double precision.
_UNITS_A_ROW = 1.01

Integers = NDArray[np.int64]


def numbers(points: Integers) -> Matrix:
    """Points of the lattice, in units of 2^-20, as numbers of the same shape; exact."""
    found: Matrix = points.astype(np.float64) * _UNIT
    return found


@dataclass(frozen=True)
class LatticeSampling:
    """theta on the lattice of 2^-20 in a ball, with probability proportional to exp(-epsilon T / (2 width)), exactly.

    T is the sum over n records of log(1 + exp(-theta . e)) less that at the centre, in units of 2^-16, rounded, plus
    the public n curvature |theta|^2 / 2. A record's term is within R radius of 0. Raises PlanError.
    """

    epsilon: Fraction
    """Pure."""
    d: int
    norm_bound: Fraction
    """R, no record is longer; L = R."""
    radius: Fraction
    """Of the ball C."""
    curvature: float = 0.0
    """mu, of the public regulariser."""
    centre: tuple[int, ...] | None = None
    """Of the ball, in units of 2^-20; None for 0."""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_rational("norm_bound", self.norm_bound)
        check_rational("radius", self.radius)
        if self.d < 1 or not (math.isfinite(self.curvature) and self.curvature >= 0):
            raise PlanError(f"d is {self.d} and curvature {self.curvature}: give d >= 1 and a curvature from 0 up")
        if self.centre is not None and len(self.centre) != self.d:
            raise PlanError(f"the centre has {len(self.centre)} coordinates and theta {self.d}: give as many")

    @property
    def width(self) -> int:
        """The most that replacing a record moves T, in units of 2^-16: L |C|."""
        return 2 * self._half

    @property
    def rate(self) -> float:
        """k, per nat of the summed loss."""
        return math.ldexp(float(self.epsilon) / (2 * self.width), SCORE_BITS)

    @property
    def excess_bound(self) -> float:
        """D / k, equation 8's bound on the expected excess, in nats; proved for the ball, and close on its lattice."""
        return self.d / self.rate

    @cached_property
    def _half(self) -> int:
        return math.ceil(self.norm_bound * self.radius * (1 << SCORE_BITS))

    @cached_property
    def middle(self) -> Integers:
        """The centre of the ball, (d,), in units of 2^-20."""
        return np.array(self.centre or (0,) * self.d, dtype=np.int64)

    def draw(self, edges: Matrix, random: RandomSource) -> Sampled:
        """One draw. edges: (n, d), y_i x_i. Raises ShapeError, DataError if a row is longer than norm_bound."""
        points, accepted = self.draws(edges, 1, random)
        return Sampled(numbers(points[0]), self.epsilon, accepted, _statement(self.epsilon))

    def draws(self, edges: Matrix, count: int, random: RandomSource) -> tuple[Integers, float]:
        """`count` independent draws, in units of 2^-20, (count, d), which cost epsilon each; and the share accepted."""
        check_rows(edges, self.d, float(self.norm_bound))
        envelope, found, tried = _Envelope.of(self, edges), np.empty((0, self.d), dtype=np.int64), 0
        while len(found) < count:
            steps = discrete_gaussian(envelope.sigma, _TOGETHER * self.d, random).reshape(_TOGETHER, self.d)
            inside = steps[[self.contains(envelope.middle + step) for step in steps]]
            scores = self.scores(envelope.middle + inside, edges) if len(inside) else []
            gammas = [envelope.gamma(step, score) for step, score in zip(inside, scores, strict=True)]
            heads = bernoulli_exp(np.array(gammas, dtype=np.float64), gammas.__getitem__, random)
            found, tried = np.vstack([found, envelope.middle + inside[heads]]), tried + _TOGETHER
        return found[:count], len(found) / tried

    def contains(self, point: Integers) -> bool:
        """Whether a lattice point, in units of 2^-20, is in the ball; exact."""
        moved = (point - self.middle).astype(object)
        return bool(sum(moved * moved) <= (self.radius * (1 << LATTICE_BITS)) ** 2)

    def scores(self, points: Integers, edges: Matrix) -> list[int]:
        """T at lattice points (m, d), in units of 2^-16."""
        theta, centre = numbers(points), numbers(self.middle)
        change = LOGISTIC.value(edges @ theta.T) - LOGISTIC.value(edges @ centre)[:, np.newaxis]
        units = np.clip(np.rint(np.ldexp(change, SCORE_BITS)), -self._half, self._half).astype(np.int64).sum(axis=0)
        public = np.ldexp(len(edges) * self.curvature / 2 * np.square(theta).sum(axis=1), SCORE_BITS)
        return [int(data) + round(float(known)) for data, known in zip(units, public, strict=True)]

    def objective(self, theta: Vector, edges: Matrix) -> float:
        """The summed loss with the regulariser, in nats."""
        return LOGISTIC.total(theta, edges) + len(edges) * self.curvature / 2 * float(theta @ theta)

    def gradient(self, theta: Vector, edges: Matrix) -> Vector:
        """Of `objective`: (d,)."""
        gradient: Vector = LOGISTIC.gradient(theta, edges) + len(edges) * self.curvature * theta
        return gradient

    def minimum(self, edges: Matrix) -> Vector:
        """The minimum over the ball, up to rounding, by Nesterov's projected descent (2004, scheme 2.2.19)."""
        centre, radius = numbers(self.middle), float(self.radius)
        steepest = float(self.norm_bound) ** 2 / 4 + self.curvature
        root = math.sqrt(max(self.curvature / steepest, _LEAST_CURVATURE))
        theta = ahead = centre
        for _ in range(math.ceil(_DIGITS / root)):
            moved = ahead - self.gradient(ahead, edges) / (len(edges) * steepest) - centre
            new = centre + moved * min(1.0, radius / max(float(np.linalg.norm(moved)), 1e-300))
            ahead, theta = new + (1 - root) / (1 + root) * (new - theta), new
            if float(np.linalg.norm(ahead - new)) < _CLOSE:
                break
        return np.asarray(theta)


@dataclass(frozen=True, eq=False)
class _Envelope:
    """A discrete Gaussian around the minimum that, scaled, is above the density at every lattice point of the ball."""

    plan: LatticeSampling
    edges: Matrix
    middle: Integers
    """A lattice point near the minimum."""
    sigma: int
    """Of a proposal's step in each coordinate, in units of 2^-20."""
    score: int
    """T at the middle."""
    margin: Fraction

    @classmethod
    def of(cls, plan: LatticeSampling, edges: Matrix) -> "_Envelope":
        """For these rows: any envelope gives the same distribution."""
        least = plan.minimum(edges)
        # Toward the centre, so that it stays inside.
        middle = plan.middle + np.trunc(least / _UNIT - plan.middle).astype(np.int64)
        theta, radius = numbers(middle), float(plan.radius)
        reach = float(plan.norm_bound) * (float(np.linalg.norm(numbers(plan.middle))) + radius)
        flattest = 1 / (2 + 2 * math.cosh(reach))
        spread = max(0.0, float(np.linalg.eigvalsh(edges.T @ edges)[0]))
        bend = (flattest * spread + len(edges) * plan.curvature) * (1 - 1e-6)
        # Where the rows say little, steps of the ball's size: a proposal's density then varies by e^(1/2) in the ball.
        widest = math.ceil(2 * radius / _UNIT)
        sigma = math.ceil(min(widest, 1 / (_UNIT * math.sqrt(plan.rate * bend)) if bend > 0 else widest))
        is_widest = sigma == widest
        slope = plan.gradient(theta, edges)
        # The most that a tangent at the middle falls within the ball.
        fall = float(slope @ (theta - numbers(plan.middle))) + float(np.linalg.norm(slope)) * radius
        rounding = math.ldexp(_UNITS_A_ROW * len(edges) + 2, -SCORE_BITS)
        margin = Fraction(plan.rate * (max(0.0, fall) + rounding) * (1 + 1e-9)) + Fraction(int(is_widest), 2)
        return cls(plan, edges, middle, max(3, sigma), plan.scores(middle[np.newaxis], edges)[0], margin)

    def gamma(self, step: Integers, score: int) -> Fraction:
        """-log of the probability to accept a proposal; at least 0, or the envelope would be below the density."""
        density = self.plan.epsilon * (score - self.score) / (2 * self.plan.width)
        squares = sum(int(value) ** 2 for value in step)
        found = density - Fraction(squares, 2 * self.sigma**2) + self.margin
        assert found >= 0, "the envelope is proved to be above the density"
        return found


def localised(
    edges: Matrix, epsilon: Fraction, norm_bound: Fraction, curvature: float, random: RandomSource, failure: Fraction
) -> Sampled:
    """The paper's localisation: output perturbation at epsilon / 2, then sampling at epsilon / 2 in a ball around it.

    The ball contains the minimum with probability >= 1 - failure. Both are exact, and compose to (epsilon, 0). Raises
    PlanError, ShapeError, DataError.
    """
    d = edges.shape[1] if edges.ndim == 2 else 0
    start = perturbed_minimum(edges, epsilon / 2, norm_bound, curvature, random)
    radius = Fraction(math.ceil(start.distance(failure)) + 1, 1 << LATTICE_BITS)
    plan = LatticeSampling(epsilon / 2, d, norm_bound, radius, curvature, tuple(start.point.tolist()))
    drawn = plan.draw(edges, random)
    return replace(
        drawn, epsilon=epsilon, statement=drawn.statement.replace(f"{float(epsilon / 2):g}-", f"{float(epsilon):g}-", 1)
    )


@dataclass(frozen=True, eq=False)
class Perturbed:
    """The minimum with discrete Laplace noise: (d,), units of 2^-20."""

    point: Integers
    noise: LaplaceMechanism

    @property
    def theta(self) -> Vector:
        """The same as numbers."""
        return numbers(self.point)

    def distance(self, failure: Fraction) -> float:
        """With probability >= 1 - failure the minimum is this close to the point, in units of 2^-20."""
        d = len(self.point)
        return math.sqrt(d) * (self.noise.half_width(d, failure) + 2)


def perturbed_minimum(
    edges: Matrix, epsilon: Fraction, norm_bound: Fraction, curvature: float, random: RandomSource
) -> Perturbed:
    """Output perturbation: the minimum of the regularised logistic loss plus discrete Laplace noise; epsilon-private.

    Neighbours' minima differ by at most 2 R / (n mu) (Chaudhuri, Monteleoni and Sarwate, JMLR 2011); a computed minimum
    with gradient g is |g| / (n mu) away from the true one, which is below the rounding.

    Raises PlanError if the curvature is below a millionth of R^2, ShapeError, DataError if a row is longer than R.
    """
    if not curvature >= _LEAST_CURVATURE * float(norm_bound) ** 2:
        raise PlanError(f"curvature is {curvature}: the minimum moves too far unless it is a millionth of R^2 or more")
    check_rows(edges, edges.shape[1] if edges.ndim == 2 else 0, float(norm_bound))
    n, d = edges.shape
    # The minimum is no longer than R / mu, where the regulariser's slope exceeds every loss's.
    plan = LatticeSampling(epsilon, d, norm_bound, Fraction(float(norm_bound) / curvature) + 1, curvature)
    theta = plan.minimum(edges)
    slope = float(np.linalg.norm(plan.gradient(theta, edges)))
    assert slope <= n * curvature * _UNIT / 2, "the descent's rate is known, so the minimum is reached"
    moved = 2 * float(norm_bound) / (n * curvature) / _UNIT
    l1 = math.ceil(math.sqrt(d) * (moved + 1 + math.sqrt(d)) * (1 + 1e-8))
    noise = LaplaceMechanism(epsilon, l1)
    return Perturbed(noise.release(np.rint(theta / _UNIT).astype(np.int64), random), noise)


def _statement(epsilon: Fraction) -> str:
    return (
        f"{float(epsilon):g}-differentially private when one row is replaced: exact draws on the lattice of "
        f"2^-{LATTICE_BITS}. Holds if the rows and the running time stay private, the ball was chosen without the rows "
        "and the random bits come from the operating system."
    )


def check_rows(edges: Matrix, d: int, norm_bound: float) -> None:
    """Raise ShapeError or DataError unless edges are (n, d), finite and no longer than norm_bound."""
    if edges.ndim != 2 or edges.shape[1] != d or not edges.size:
        raise ShapeError(f"edges have shape {edges.shape}: give (n, {d})")
    if not (np.linalg.norm(edges, axis=1) <= norm_bound * (1 + 1e-9)).all():
        raise DataError(f"a row is not finite or longer than {norm_bound:g}: raise norm_bound, or scale the rows")
