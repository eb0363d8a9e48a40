"""The noise shares of the cohort that answers: what a party draws before it knows the cohort, and what it adds then.

The cohort that answers is known only after contributions were computed. A party draws its share for the largest cohort,
and a top-up for the real one once it has verified it (parties.answering.contribution).

With c colluders assumed and h honest parties in the smallest cohort, N - c of N parties are honest. With V = h s^2,

    Gaussian   a = ceil(root(V / (N_max - c))), then b_N = ceil(root(V / (N - c) - a^2)), at least 3, or no top-up:
               the honest parties' noise has the variance (N - c)(a^2 + b_N^2) >= V, in every cohort;
    Laplace    a difference of two NB(1 / (N_max - c), q), then of two NB(1 / (N - c) - 1 / (N_max - c), q): NB(r, q)
               and NB(r', q) add up to NB(r + r', q), so N - c honest parties add discrete Laplace noise, exactly.

Proof, and what a coordinator that lies about the cohort can do: docs/explanation/proofs.md, "Noise for the cohort that
answers".
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dpcore.errors import PlanError
from dpcore.randomness.noise import MOST_SHARES, SMALLEST_SHARE_SIGMA

MOST_PARTIES = 4096
"""The largest cohort whose noise may follow it: every size is checked when a query is read."""
MOST_LAPLACE_DRAWS = 64
"""The most pairs of variables of which a top-up of Laplace noise is made."""


@dataclass(frozen=True)
class Cohorts:
    """The cohorts that a query admits, if its noise is for the one that answers. Raises PlanError."""

    smallest: int
    honest: int
    """h, of the smallest one's parties. Of a larger one as many collude, and no more."""
    largest: int
    answered: int | None = None
    """How many parties answered, for figures about their noise alone; None if it is not known yet."""

    def __post_init__(self) -> None:
        if not 1 <= self.honest <= self.smallest <= self.largest <= MOST_PARTIES:
            raise PlanError(
                f"{self.honest} honest parties in cohorts of {self.smallest} to {self.largest}: give ascending numbers "
                f"up to {MOST_PARTIES}"
            )

    @property
    def colluders(self) -> int:
        """c, the parties of a cohort that are assumed to collude."""
        return self.smallest - self.honest

    def honest_of(self, parties: int) -> int:
        """N - c, the honest ones of a cohort of N parties. Raises PlanError if no such cohort is admitted."""
        if not self.smallest <= parties <= self.largest:
            raise PlanError(f"a cohort of {parties} parties: the query admits {self.smallest} to {self.largest}")
        return parties - self.colluders

    def nearest(self, parties: int) -> int:
        """The admitted cohort nearest to so many parties, of which a plan knows fewer than will answer."""
        return min(max(parties, self.smallest), self.largest)

    def first_share(self, share_sigma: int) -> int:
        """a, of the share that every party draws before the cohort is known. share_sigma: s, for the smallest one."""
        return max(SMALLEST_SHARE_SIGMA, _root_above(self.honest * share_sigma**2, self.honest_of(self.largest)))

    def top_up(self, share_sigma: int, parties: int) -> int:
        """b_N, of what a party adds to its share in a cohort of N parties; 0 if nothing."""
        honest = self.honest_of(parties)
        missing = self.honest * share_sigma**2 - honest * self.first_share(share_sigma) ** 2
        return 0 if missing <= 0 else max(SMALLEST_SHARE_SIGMA, _root_above(missing, honest))

    def share_variance(self, share_sigma: int, parties: int) -> int:
        """The sum a^2 + b_N^2, of what one party adds in a cohort of N parties; (N - c) of it are at least h s^2."""
        return self.first_share(share_sigma) ** 2 + self.top_up(share_sigma, parties) ** 2

    def most_variance(self, share_sigma: int) -> int:
        """The largest variance of a total's noise, N (a^2 + b_N^2), over all cohorts."""
        return _most_variance(self, share_sigma)

    def polya_top_up(self, parties: int) -> Fraction:
        """1 / (N - c) - 1 / (N_max - c): how much more of the noise one party adds if only N parties answer."""
        return Fraction(1, self.honest_of(parties)) - Fraction(1, self.honest_of(self.largest))

    def check_divisible(self) -> None:
        """Raise PlanError if a top-up of Laplace noise takes too many variables."""
        for parties in range(self.smallest, self.largest):
            part = self.polya_top_up(parties)
            if part.numerator > MOST_LAPLACE_DRAWS or part.denominator > MOST_SHARES:
                raise PlanError(
                    f"Laplace noise cannot be divided for cohorts of {self.smallest} to {self.largest} parties: raise "
                    "cohort_min, or ask for the noise of the smallest cohort"
                )


@lru_cache(maxsize=1024)
def _most_variance(cohorts: Cohorts, share_sigma: int) -> int:
    sizes = range(cohorts.smallest, cohorts.largest + 1)
    return max(parties * cohorts.share_variance(share_sigma, parties) for parties in sizes)


def _root_above(numerator: int, denominator: int) -> int:
    """The least integer whose square is at least numerator / denominator, which is positive."""
    return math.isqrt(-(-numerator // denominator) - 1) + 1
