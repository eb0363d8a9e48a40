"""Bounds of private empirical risk minimisation, with constants: what must be lost, and what need not be.

Bassily, Smith and Thakurta (FOCS 2014, arXiv 1405.7085). All are of the summed loss over n records, p coordinates and
theta in the unit ball, and hold for the exact mechanisms. Proofs: docs/explanation/proofs.md, "Bounds of private
empirical risk".
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpcore.accounting.gaussian import check_epsilon
from dpcore.errors import PlanError
from dpcore.numbers.fixed_point import Matrix

_SPREAD = Fraction(1, 4)
"""beta: codewords differ in at least this share of their coordinates."""


def codewords(p: int) -> int:
    """A number of signs in {-1, 1}^p that differ pairwise in p / 4 coordinates or more, by Gilbert and Varshamov."""
    if p < 1:
        raise PlanError(f"{p} coordinates: give at least one")
    near = sum(math.comb(p, j) for j in range(math.ceil(_SPREAD * p)))
    return -(-(1 << p) // near)


def moved_records(n: int, p: int, epsilon: Fraction) -> int:
    """m, the most records that K data sets may differ in so that no (epsilon, 0)-private algorithm is right on all.

    The largest m <= n with m epsilon < ln(K / 2), K as of `codewords`; at least 0.
    """
    check_epsilon(epsilon)
    most = (math.log(codewords(p)) - math.log(2)) / float(epsilon)
    return max(0, min(n, math.ceil(most * (1 - 1e-12)) - 1))


def lower_bound_lipschitz(n: int, p: int, epsilon: Fraction) -> float:
    """Theorem 5.2's Omega(min(n, p / epsilon)) with a constant: (1 - sqrt(3) / 2) m, m as of `moved_records`.

    For the 1-Lipschitz loss -theta . x, |x| <= 1: every (epsilon, 0)-private algorithm loses at least this on one of
    the K data sets of `hard_rows` with probability above 1/2.
    """
    return (1 - math.sqrt(1 - float(_SPREAD))) * moved_records(n, p, epsilon)


def lower_bound_strongly_convex(n: int, p: int, epsilon: Fraction) -> float:
    """Theorem 5.4's Omega(min(n, p^2 / (epsilon^2 n))) with a constant: m^2 / (8 n), m as of `moved_records`.

    For the loss |theta - x|^2 / 2, |x| <= 1, which is 1-strongly convex and 2-Lipschitz; otherwise as
    `lower_bound_lipschitz`.
    """
    return float(_SPREAD) * moved_records(n, p, epsilon) ** 2 / (2 * n)


def lower_bound_approximate(n: int, p: int, epsilon: Fraction, delta: Fraction) -> float:
    """Theorem 5.5's Omega(min(n, p / (epsilon^2 n))) with a constant, for (epsilon, delta)-private algorithms.

    Loss as of `lower_bound_strongly_convex`; on some data set the expected excess is at least this. For m of the rows:
    m^2 / (2 n) times (a - sqrt(2 / (3 m)))^2, a the least with a^2 + m sinh(epsilon) / sqrt(p) a >= 1/3 - 8 m delta,
    for the best m of a grid.
    """
    check_epsilon(epsilon)
    if min(n, p) < 1 or not 0 <= delta < 1:
        raise PlanError("n and p are to be positive, and delta from 0 to below 1")
    found = 0.0
    for m in np.unique(np.geomspace(1, n, 200).astype(int)).tolist():
        slope, rest = m * math.sinh(float(epsilon)) / math.sqrt(p), 1 / 3 - 8 * m * float(delta)
        if rest > 0:
            least = 2 * rest / (slope + math.sqrt(slope**2 + 4 * rest))
            found = max(found, m**2 / (2 * n) * max(0.0, least - math.sqrt(2 / (3 * m))) ** 2)
    return found


def hard_rows(codeword: Matrix, n: int, moved: int) -> Matrix:
    """The data set of one codeword: `moved` rows of signs / sqrt(p), all others zero: (n, p). codeword: (p,)."""
    rows = np.zeros((n, len(codeword)))
    rows[:moved] = codeword / math.sqrt(len(codeword))
    return rows


def spread_code(p: int, count: int, random: np.random.Generator) -> Matrix:
    """`count` signs in {-1, 1}^p that differ pairwise in p / 4 coordinates or more, drawn one by one: (count, p).

    Raises PlanError if there are more than `codewords` promises.
    """
    if count > codewords(p):
        raise PlanError(f"{count} codewords of {p} coordinates: {codewords(p)} are promised to exist; ask for fewer")
    kept: list[Matrix] = []
    while len(kept) < count:
        drawn = random.choice([-1.0, 1.0], size=p)
        if all(np.count_nonzero(drawn != other) >= _SPREAD * p for other in kept):
            kept.append(drawn)
    return np.array(kept)


@dataclass(frozen=True)
class StronglyConvex:
    """n convex losses, each L-Lipschitz, plus the public term n mu |theta|^2 / 2. Raises PlanError.

    The minimum moves by at most 2 L / (n mu) if a record is replaced.
    """

    n: int
    p: int
    lipschitz: float
    """L."""
    curvature: float
    """mu > 0."""
    epsilon: Fraction
    """Pure, of the whole algorithm."""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if min(self.n, self.p) < 1 or not min(self.lipschitz, self.curvature) > 0:
            raise PlanError("n, p, the Lipschitz constant and the curvature are to be positive")

    @property
    def sensitivity(self) -> float:
        """2 L / (n mu): the distance of the minima of neighbours (Chaudhuri, Monteleoni and Sarwate, JMLR 2011)."""
        return 2 * self.lipschitz / (self.n * self.curvature)

    def distance(self, epsilon: float, failure: float) -> float:
        """How far output perturbation at epsilon moves the minimum, but for `failure`: a Gamma variable's upper end.

        The noise has density proportional to exp(-epsilon |b| / sensitivity), so |b| is Gamma(p) times sensitivity /
        epsilon, at most p + sqrt(2 p t) + t with probability 1 - e^-t (Boucheron, Lugosi and Massart, 2013).
        """
        t = -math.log(failure)
        return self.sensitivity / epsilon * (self.p + math.sqrt(2 * self.p * t) + t)

    def output_perturbation(self, smoothness: float) -> float:
        """A bound on the expected excess of output perturbation, each loss having a Hessian of at most `smoothness`.

        (mu + smoothness) n / 2 times E|b|^2 = p (p + 1) (sensitivity / epsilon)^2: O(p^2 / (n epsilon^2)).
        """
        scale = self.sensitivity / float(self.epsilon)
        return (self.curvature + smoothness) * self.n / 2 * self.p * (self.p + 1) * scale**2

    def output_perturbation_lipschitz(self, radius: float) -> float:
        """The same for any loss, on a ball of this radius, by its Lipschitz constant: O(p / epsilon), whatever n."""
        return self.n * (self.lipschitz + self.curvature * radius) * self.p * self.sensitivity / float(self.epsilon)

    def localised(self, failure: float) -> float:
        """Algorithm 3's expected excess but for `failure`: output perturbation at epsilon / 2, then sampling near it.

        The exponential mechanism at epsilon / 2 on the ball of the distance around the perturbed minimum: p / k, with k
        = epsilon / (4 L |C|), |C| twice that distance. O(p^2 L^2 / (n mu epsilon^2)), also without smoothness.
        """
        half = float(self.epsilon) / 2
        return self.p * 2 * self.lipschitz * 2 * self.distance(half, failure) / half


def sampling_time(n: int, p: int, epsilon: float, diameter: float) -> float:
    """Equation 9 of the slides, without its constant: |C|^2 p^3 n^3 max(p log(|C| p n), epsilon |C| n) steps."""
    if min(n, p) < 1 or not min(epsilon, diameter) > 0:
        raise PlanError("n, p, epsilon and the diameter are to be positive")
    return diameter**2 * p**3 * n**3 * max(p * math.log(diameter * p * n), epsilon * diameter * n)
