"""The worst case of pure differential privacy, in the form of the Gaussian distributions.

Every (epsilon, 0)-private release is, for each pair of neighbours, a post-processing of randomized response: one bit
that is kept with probability p = e^epsilon / (1 + e^epsilon), else flipped (Kairouz, Oh and Viswanath, ICML 2015).

Proof: if P and Q are the outputs' distributions, A = (p P - (1-p) Q) / (2p - 1) and B = (p Q - (1-p) P) / (2p - 1) are
distributions too, because neither P nor Q is above e^epsilon times the other.

P = p A + (1-p) B, and Q = (1-p) A + p B.

So the bounds of randomized response hold for every such release, and are tight for it.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import gmpy2

from dpcore.accounting.composition import LARGEST_EPSILON, Bracket
from dpcore.accounting.concentrated import Concentrated, of_epsilon
from dpcore.accounting.gaussian import WeakNoiseError
from dpcore.errors import PlanError
from dpcore.randomness.coins import rational

# Far above the rounding error of a few operations in double precision.
_MARGIN = 1e-14


@dataclass(frozen=True)
class PureLoss:
    """A release of which only (bound, 0)-differential privacy is known, bound > 0.

    A bracket is around the worst case of the least epsilon or delta: the lower end is that of randomized response, so
    no smaller value holds for all such releases. Raises PlanError if the bound is not positive.
    """

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
        lower = upper + math.log(left) - _MARGIN * (1 + upper + 1 / left) if left > 0 else 0.0
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
        return Bracket(value * (1 - _MARGIN), min(1.0, value * (1 + _MARGIN)))

    @property
    def concentrated(self) -> Concentrated:
        """A rho of epsilon tanh(epsilon / 2), rounded up: at most epsilon^2 / 2 and at most epsilon.

        For randomized response, D_a = (f(u) - f(1/2)) / (u - 1/2), with u = a - 1/2 and f(u) = log cosh(epsilon u). log
        cosh(epsilon sqrt(v)) is concave in v: its derivative is epsilon tanh(epsilon sqrt(v)) / (2 sqrt(v)), and
        tanh(x)/x falls.

        So f(u) - f(1/2) is at most (u^2 - 1/4) times the derivative at v = 1/4, which is epsilon tanh(epsilon / 2), and
        D_a <= (u + 1/2) epsilon tanh(epsilon / 2) = a rho. As D_1 = rho, no smaller rho holds.
        """
        with gmpy2.context(precision=80, round=gmpy2.RoundUp):
            epsilon = gmpy2.mpfr(gmpy2.mpq(self.bound))
            rho = rational(epsilon * gmpy2.tanh(epsilon / 2))
        return Concentrated(min(rho, of_epsilon(self.bound, Fraction(0)).rho), Fraction(0))


def _up(value: Fraction) -> float:
    rounded = float(value)
    return rounded if Fraction(rounded) >= value else math.nextafter(rounded, math.inf)
