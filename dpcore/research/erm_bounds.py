"""Bounds on the excess risk of private empirical risk minimisation, each with its constant.

Bassily, Smith and Thakurta (FOCS 2014, arXiv 1405.7085); slides by Mehta and Ravi. n records, d coordinates, a convex
set C of diameter |C|, F(theta) = sum_i l(theta; x_i). A bound is on F(theta) - min F. Neighbours: one record is
replaced. The paper gives orders; the constants here are proved in docs/explanation/proofs.md, "Bounds on private risk".
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc, gammainccinv

from dpcore.errors import PlanError
from dpcore.numbers.fixed_point import Matrix, Vector

# A figure is rounded towards the side that keeps its statement true.
_ROUNDING = 1e-12
_FAILURES = np.geomspace(1e-30, 0.5, 121)
_MOST_CODE_BITS = 16


@dataclass(frozen=True)
class Problem:
    """A private empirical risk minimisation, whose upper bounds are its methods. Raises PlanError."""

    rows: int
    """n."""
    d: int
    diameter: float
    """|C|."""
    lipschitz: float
    """L of one record's loss on C."""
    strong: float = 0.0
    """Delta: each record's loss is Delta-strongly convex; 0 if it is only convex."""

    def __post_init__(self) -> None:
        numbers = (self.diameter, self.lipschitz)
        if self.rows < 1 or self.d < 1 or not all(math.isfinite(x) and x > 0 for x in numbers):
            raise PlanError("give at least one row and coordinate, and a finite positive diameter and Lipschitz bound")
        if not (math.isfinite(self.strong) and self.strong >= 0):
            raise PlanError(f"strong is {self.strong}: give a finite modulus, or 0")

    @property
    def trivial(self) -> float:
        """N L |C|: no point of C has a larger excess."""
        return self.rows * self.lipschitz * self.diameter

    def sampling_bound(self, epsilon: float) -> float:
        """Exponential sampling, (epsilon, 0)-private: at most 2 d L |C| / epsilon on average; equation 8."""
        return 2 * self.d * self.lipschitz * self.diameter / _positive(epsilon)

    def descent_bound(self, sigma: float, steps: int) -> float:
        """The last iterate of A_Noise-GD on average, if its noise has `sigma` on a coordinate of n g; Theorem 2.4.

        Convex: Shamir and Zhang (ICML 2013), Theorem 2, rates |C| / (G sqrt t). Strongly convex: their Theorem 1, rates
        1 / (n Delta t). G^2 = n^2 L^2 + d sigma^2. Raises PlanError if steps < 1.
        """
        if steps < 1 or not sigma >= 0:
            raise PlanError(f"{steps} steps with noise {sigma}: take at least one, and noise of 0 or more")
        squared = (self.rows * self.lipschitz) ** 2 + self.d * sigma**2
        if self.strong:
            return 17 * squared * (1 + math.log(steps)) / (self.rows * self.strong * steps)
        return 2 * self.diameter * math.sqrt(squared) * (2 + math.log(steps)) / math.sqrt(steps)

    @property
    def sensitivity(self) -> float:
        """2 L / (n Delta): the most that replacing a record moves the minimiser. Raises PlanError if Delta is 0."""
        if not self.strong:
            raise PlanError("the loss is not strongly convex, so its minimiser may move anywhere: add a ridge")
        return 2 * self.lipschitz / (self.rows * self.strong)

    def output_bound(self, epsilon: float, smoothness: float = math.inf) -> float:
        """Output perturbation, (epsilon, 0)-private: the minimiser plus noise of density exp(-epsilon |b| / s), then C.

        s is the sensitivity. On average at most n L E|b| = 2 d L^2 / (Delta epsilon); n beta E|b|^2 / 2 if the
        gradient is zero at the minimiser and a record's gradient is beta-Lipschitz (beta: `smoothness`).
        """
        scale = self.sensitivity / _positive(epsilon)
        first = self.rows * self.lipschitz * self.d * scale
        return min(first, smoothness * self.rows / 2 * self.d * (self.d + 1) * scale**2)

    def localisation(self, epsilon: float) -> tuple[float, float]:
        """The radius r, and the bound on average, of output perturbation, then sampling within r; epsilon / 2 each.

        The paper's localisation, O(d^2 L^2 log(n) / (n Delta epsilon^2)): (epsilon, 0)-private by composition. If
        |b| <= r, the minimiser is within C and the ball; otherwise the excess is at most n L |C|.
        """
        half = _positive(epsilon) / 2
        scale = self.sensitivity / half
        radii = scale * gammainccinv(self.d, _FAILURES)
        failures = gammaincc(self.d, radii / scale)
        widths = np.minimum(2 * radii, self.diameter)
        bounds = 2 * self.d * self.lipschitz * widths / half + failures * self.trivial
        best = int(np.argmin(bounds))
        return float(radii[best]), float(bounds[best])


def sampling_time(n: int, d: int, diameter: float, epsilon: float) -> float:
    """Equation 9: |C|^2 d^3 n^3 max(d log(|C| d n), epsilon |C| n), the order of the efficient sampler's operations.

    The paper gives no constant; C is in isotropic position and L is 1. Raises PlanError.
    """
    if n < 1 or d < 1 or not diameter * d * n > 1:
        raise PlanError("give at least one row and coordinate, and a diameter with |C| d n > 1")
    longer = max(d * math.log(diameter * d * n), _positive(epsilon) * diameter * n)
    return diameter**2 * d**3 * float(n) ** 3 * longer


# Lower bounds, for C the unit ball and rows in the unit ball; two losses:
#
#     linear    l = -<theta, x>             1-Lipschitz, convex
#     squared   l = |theta - x|^2 / 2       2-Lipschitz on C, 1-strongly convex


@dataclass(frozen=True)
class LowerBound:
    """A lower bound on every private algorithm's excess, and the table that attains it."""

    excess: float
    moved: int
    """m: the rows of the hard table that are not zero; n - m are."""
    words: int
    """K: the number of hard tables of a packing; 0 for random ones."""
    distance: int
    """h: in how many signs the tables of a packing differ at least; 0 for random ones."""


def packing_bound(n: int, d: int, epsilon: float, *, squared: bool = False) -> LowerBound:
    """Pure privacy: on one of K tables the excess is at least `excess` with probability at least 1/2.

    Omega(min(n, d / epsilon)) for the linear loss, Omega(min(n, d^2 / (n epsilon^2))) for the squared one. A table is
    m copies of a word of a code of K words by Gilbert and Varshamov. Raises PlanError.
    """
    _check(n, d)
    least = _positive(epsilon)
    found, near, ring = [], 0, 1
    for h in range(1, d + 1):
        # The words within h - 1 signs of one; then C(d, h) are in h.
        near, ring = near + ring, ring * (d - h + 1) // h
        words = -(-(1 << d) // near)
        moved = min(n, math.floor((math.log(words) - math.log(2)) / least * (1 - _ROUNDING)))
        excess = moved**2 * h / (2 * n * d) if squared else moved * (1 - math.sqrt(1 - h / d))
        found.append(LowerBound(excess * (1 - _ROUNDING), moved, words, h))
    return max(found, key=lambda bound: bound.excess)


def fingerprint_bound(n: int, d: int, epsilon: float, delta: float, *, squared: bool = False) -> LowerBound:
    """Approximate privacy: the average excess over random tables is at least `excess`, so on one of them it is.

    Omega(min(n, sqrt(d) / epsilon)) for the linear loss, Omega(min(n, d / (n epsilon^2))) for the squared one, if
    delta is below 1 / (24 m). A table has m rows of random signs, `random_table`. 0 where the
    proof gives nothing. Raises PlanError.
    """
    _check(n, d)
    if not 0 <= delta < 1:
        raise PlanError(f"delta is {delta}: give a number from 0 to 1")
    sinh = math.sinh(min(_positive(epsilon), 500.0))
    # Beyond this m both bounds are negative.
    m = np.arange(1, min(n, math.ceil(2 * math.sqrt(d) / sinh) + 2) + 1)
    if squared:
        kept = (1 + 2 / m) * d * (1 / 3 - 4 * m * delta) - np.square((m + 2) * sinh) / 4
        excess = np.square(m) / (2 * n * d) * kept
    else:
        mean = 1 / 3 + 2 / (3 * m)
        length = mean**1.5 / np.sqrt(np.square(mean) + 1 / (4 * d))
        excess = m * (length - (m / 2 + 1) * (sinh / math.sqrt(d) + 4 * delta))
    best = int(np.argmax(excess))
    return LowerBound(max(0.0, float(excess[best]) * (1 - _ROUNDING)), int(m[best]), 0, 0)


def code(d: int, distance: int) -> Matrix:
    """Words of signs +-1 / sqrt d that differ in at least `distance` places, taken greedily: (K, d).

    At least as many as `packing_bound` counts. Raises PlanError if d exceeds 16.
    """
    _check(1, d)
    if d > _MOST_CODE_BITS or not 1 <= distance <= d:
        raise PlanError(f"{d} coordinates and distance {distance}: a code is listed for up to {_MOST_CODE_BITS}")
    signs = 1 - 2 * (np.arange(1 << d)[:, np.newaxis] >> np.arange(d) & 1)
    taken, left = [], signs
    while len(left):
        taken.append(left[0])
        left = left[(left != left[0]).sum(axis=1) >= distance]
    return np.array(taken) / math.sqrt(d)


def packed_table(word: Vector, n: int, moved: int) -> Matrix:
    """The hard table of a word (d,): `moved` copies of it and zeros, (n, d)."""
    rows = np.zeros((n, len(word)))
    rows[:moved] = word
    return rows


def random_table(n: int, d: int, moved: int, random: np.random.Generator) -> Matrix:
    """`moved` rows of signs / sqrt d, of means drawn from [-1, 1] by coordinate, and zeros: (n, d)."""
    means = random.uniform(-1, 1, size=d)
    rows = np.zeros((n, d))
    rows[:moved] = np.where(random.uniform(-1, 1, size=(moved, d)) < means, 1, -1) / math.sqrt(d)
    return rows


def linear_excess(theta: NDArray[np.float64], rows: Matrix) -> NDArray[np.float64]:
    """Excess of each theta (..., d) for the linear loss on the unit ball: (...)."""
    total = rows.sum(axis=0)
    excess: NDArray[np.float64] = np.linalg.norm(total) - theta @ total
    return excess


def squared_excess(theta: NDArray[np.float64], rows: Matrix) -> NDArray[np.float64]:
    """Excess of each theta (..., d) for the squared loss: (...)."""
    excess: NDArray[np.float64] = len(rows) / 2 * np.square(theta - rows.mean(axis=0)).sum(axis=-1)
    return excess


def _check(n: int, d: int) -> None:
    if n < 1 or d < 1:
        raise PlanError(f"{n} rows of {d} coordinates: give at least one of each")


def _positive(epsilon: float) -> float:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise PlanError(f"epsilon is {epsilon}: give a finite positive one")
    return float(epsilon)
