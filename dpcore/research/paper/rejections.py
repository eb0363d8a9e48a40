"""Theorem 7: the number of signatures that DP-FEAT draws to admit n (Nock, Patrini, Friedman, ICML 2015)."""

import math
from dataclasses import dataclass
from fractions import Fraction

from scipy.special import betainc, entr, expit

from dpcore.accounting.truncation import admissible_range
from dpcore.errors import ConfigurationError, PlanError
from dpcore.numbers.count_distributions import binomial_mass


@dataclass(frozen=True)
class Draws:
    """n_R, the signatures drawn from all of {-1, +1}^m until n are admitted: exact values, and Theorem 7's bound."""

    acceptance: float
    """The probability of admission."""
    expected: float
    """E[n_R], n / acceptance; inf if none is admitted."""
    quantile: float
    """The least N with P(n_R <= N) >= 1 - eta; inf if none is admitted."""
    theorem: float
    """The theorem's N, which it claims to suffice."""
    theorem_probability: float
    """P(n_R <= theorem), exact up to rounding."""
    eta: float

    @property
    def expected_rejections(self) -> float:
        """E[n_R] - n: the expected number of rejected signatures."""
        return self.expected * (1 - self.acceptance)

    @property
    def theorem_holds(self) -> bool:
        """Whether P(n_R <= theorem) is at least 1 - eta, as the theorem claims."""
        return self.theorem_probability >= 1 - self.eta


def draws(rows: int, n: int, epsilon_per_rado: Fraction, eta: float = 0.05) -> Draws:
    """The distribution of n_R for m = rows, compared with Theorem 7.

    Each draw is admitted with the same probability for all data (k is binomial, dpcore.rados.signatures), so n_R is
    negative binomial: P(n_R <= N) = P(Binomial(N, acceptance) >= n), an incomplete beta function.

    The theorem's count is not always enough, although it is claimed for every eta and epsilon. If the range contains no
    integer, no count is.

    And n_eta^* grows without bound as beta = 1/(1 + exp(epsilon/2)) goes to 0, where the rejected signatures (k = 0 and
    k = m at least) do not vanish: for m = 10 rows, n = 1,000 rados at epsilon = 20 should need no rejection but need
    one with probability 0.86. `theorem_holds` reports this.

    Raises PlanError if n < 1, rows < 1 or epsilon_per_rado <= 0, ConfigurationError if eta is not in (0, 1).
    """
    if n < 1:
        raise PlanError(f"{n} rados: ask for at least one")
    if not 0 < eta < 1:
        raise ConfigurationError(f"eta is {eta}: give a probability strictly between 0 and 1")
    low, _ = admissible_range(rows, epsilon_per_rado)
    # Rounding may give slightly more than 1.
    acceptance = min(1.0, binomial_mass(rows, low))
    bound = theorem_bound(rows, n, epsilon_per_rado, eta)
    return Draws(
        acceptance=acceptance,
        expected=n / acceptance if acceptance else math.inf,
        quantile=_quantile(n, acceptance, eta),
        theorem=bound,
        theorem_probability=_within(bound, n, acceptance),
        eta=eta,
    )


def theorem_bound(rows: int, n: int, epsilon_per_rado: Fraction, eta: float) -> float:
    """Theorem 7's count: n if n <= n_eta^*, else n ceil(log(n / n_eta^*) / (m D_BE(1 - beta || 1/2))).

    n_eta^* = eta (1 - exp(2 beta - 1)) / (4 beta), D_BE(p || 1/2) = log 2 + p log p + (1 - p) log(1 - p), in nats.
    """
    beta = float(expit(-float(epsilon_per_rado) / 2))
    if beta == 0:
        return float(n)  # beta underflows to 0: n_eta^* is infinite
    free = eta * -math.expm1(2 * beta - 1) / (4 * beta)
    if n <= free:
        return float(n)
    divergence = math.log(2) - float(entr(beta) + entr(1 - beta))
    if free <= 0 or divergence <= 0:
        return math.inf
    return float(n) * math.ceil(math.log(n / free) / (rows * divergence))


def _within(count: float, n: int, acceptance: float) -> float:
    """P(n_R <= count)."""
    if acceptance == 0 or count < n:
        return 0.0
    return 1.0 if math.isinf(count) else float(betainc(n, count - n + 1, acceptance))


def _quantile(n: int, acceptance: float, eta: float) -> float:
    if acceptance == 0:
        return math.inf
    below, above = n - 1, n
    while _within(above, n, acceptance) < 1 - eta:
        below, above = above, 2 * above
    while above - below > 1:
        middle = (below + above) // 2
        if _within(middle, n, acceptance) >= 1 - eta:
            above = middle
        else:
            below = middle
    return float(above)
