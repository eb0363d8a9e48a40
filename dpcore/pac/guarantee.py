"""The guarantee of a private PAC learner, and the number of rows that it needs.

Definition (Kasiviswanathan et al., SIAM J. Comput. 2011, section 3). For every distribution P of points and every
target in the class, with probability at least 1 - beta over rows drawn independently from P and over the algorithm's
randomness, the learned concept disagrees with the target with probability less than alpha under P. Accuracy needs
`rows`.

For all tables that differ in one replaced row, P[L(S) in T] <= exp(epsilon) P[L(S') in T] + delta for every set T of
outcomes. Privacy holds for every table and every number of rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from dpcore.errors import ConfigurationError, PlanError
from dpcore.numbers.rationals import check_rational

Where = Literal["at one party or a curator", "federated"]
"""Who computes: a party that holds all rows; or anyone with the noisy totals of several parties, without any row."""


class TooFewRowsError(PlanError):
    """There are fewer `rows` than the guarantee needs: `needed` would suffice."""

    def __init__(self, rows: int, needed: int) -> None:
        self.rows, self.needed = rows, needed
        super().__init__(f"{rows} rows, and the guarantee needs {needed}: add rows, or raise alpha, beta or epsilon")


@dataclass(frozen=True)
class PacGuarantee:
    """(alpha, beta, epsilon, delta)-private PAC learning from `rows` rows; the module's docstring defines it.

    Raises ConfigurationError or PlanError if a field is out of range.
    """

    alpha: float
    beta: float
    epsilon: Fraction
    delta: Fraction
    rows: int
    """Examples of all parties in total."""
    where: Where
    """See `Where`."""
    agnostic: bool = False
    """Labels may come from any distribution of (x, y), and the learned concept's error is less than that of the best
    concept in the class plus alpha."""

    def __post_init__(self) -> None:
        check_accuracy(self.alpha, self.beta)
        check_rational("epsilon", self.epsilon)
        if not 0 <= self.delta < 1:
            raise ConfigurationError(f"delta is {self.delta}: give 0 or a probability below 1")
        if self.rows < 1:
            raise ConfigurationError(f"a guarantee from {self.rows} rows on: give at least 1")

    def check_rows(self, rows: int) -> None:
        """Raise TooFewRowsError if `rows` are fewer than the guarantee needs."""
        if rows < self.rows:
            raise TooFewRowsError(rows, self.rows)


def check_accuracy(alpha: float, beta: float) -> None:
    """Raise ConfigurationError if alpha or beta is not strictly between 0 and 1."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not (math.isfinite(value) and 0 < value < 1):
            raise ConfigurationError(f"{name} is {value}: give a number strictly between 0 and 1")


# How many rows suffice for a choice among finitely many concepts by noisy numbers of errors.
#
# A concept h is bad if its number of errors e(h) is at least alpha of the rows (agnostic: above that of the best
# concept h*). All algorithms of this package satisfy, for some s > 0 and numbers K_h(s) that do not depend on the
# data,
#
#     P[h is chosen | rows] <= K_h(s) exp(-s (e(h) - e(h*))).                                                    (1)
#
# With rate(s) = -log(1 - alpha (1 - exp(-s))), or -log(cosh(s) - alpha sinh(s)) in the agnostic case, a bad concept is
# chosen with probability at most beta from n = (log K(s) + log(1 / beta)) / rate(s) rows on, for every s.
#
# Proof: docs/explanation/proofs.md, "Rows for a choice among concepts".


_GRID = np.geomspace(1e-7, 1.0, 2001)
# Neither bound improves for larger s: exp(-60) is negligible compared with 1.
_LARGEST = 60.0
# Bound on the relative rounding error of the few operations that give a number of rows.
_ROUNDING = 1e-9


def least_rows(
    log_competitors: Callable[[float], float], alpha: float, beta: float, reach: float, *, agnostic: bool
) -> int:
    """The number of rows from which a bad concept is chosen with probability at most beta; see the module's docstring.

    log_competitors: log K(s), in nats, for s in (0, reach]; infinite if it is not known. Raises PlanError if no s gives
    a finite number, ConfigurationError if alpha or beta is out of range.
    """
    check_accuracy(alpha, beta)
    # cosh(s) - alpha sinh(s) is least at tanh(s) = alpha, and K(s) grows with s.
    largest = min(reach, math.atanh(alpha) if agnostic else _LARGEST)
    best = math.inf
    for s in (largest * _GRID).tolist():
        rate = row_rate(s, alpha, agnostic=agnostic)
        if rate > 0:
            best = min(best, (log_competitors(s) - math.log(beta)) / rate)
    if not best < 1 << 62:
        raise PlanError("no number of rows below 2^62 suffices: raise alpha, beta or epsilon, or take a smaller domain")
    return math.ceil(best * (1 + _ROUNDING)) if best > 1 else 1


def row_rate(s: float, alpha: float, *, agnostic: bool) -> float:
    """The rate(s) of the module's docstring, in nats a row; not positive where agnostic and s is too large."""
    if agnostic:
        return -math.log1p(2 * math.sinh(s / 2) ** 2 - alpha * math.sinh(s))
    return -math.log1p(alpha * math.expm1(-s))
