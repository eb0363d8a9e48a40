"""The guarantee of a private PAC learner, and the number of rows that it needs.

Definition (Kasiviswanathan et al., SIAM J. Comput. 2011, section 3). For every distribution P of points and every
target in the class, with probability at least 1 - beta over rows drawn independently from P and over the algorithm's
randomness, the learned concept disagrees with the target with probability less than alpha under P. Accuracy needs
`rows`.

For all tables that differ in one replaced row, P[L(S) in T] <= exp(epsilon) P[L(S') in T] + delta for every set T of
outcomes. Privacy holds for every table and every number of rows.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

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
