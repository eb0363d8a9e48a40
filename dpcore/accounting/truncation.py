"""The counts k that DP-FEAT admits (Nock, Patrini, Friedman, ICML 2015, Algorithm 2), as exact integers.

k = #(selected, e = +1) + #(not selected, e = -1) on the sensitive coordinate. Algorithm 2 admits
beta (m + 1) <= k <= m - beta (m + 1), beta = 1 / (1 + e^(epsilon/2)).
"""

import math
from fractions import Fraction

import gmpy2

from dpcore.errors import PlanError


class EmptyTruncationError(PlanError):
    """A truncation that admits no k."""

    def __init__(self, *, rows: int, epsilon_per_rado: Fraction, smallest_epsilon: float) -> None:
        self.rows, self.epsilon_per_rado, self.smallest_epsilon = rows, epsilon_per_rado, smallest_epsilon
        ways = [] if math.isinf(smallest_epsilon) else [f"raise epsilon per rado to at least {smallest_epsilon:.4g}"]
        ways.append("draw without truncation")
        super().__init__(
            f"no signature of {rows} rows is admissible at {float(epsilon_per_rado):.4g} per rado: {', or '.join(ways)}"
        )


def admissible_range(rows: int, epsilon_per_rado: Fraction) -> tuple[int, int]:
    """Algorithm 2's [low, high] for m = rows, exactly; empty where low > high.

    low = ceil(beta (m+1)) and, as m is an integer, high = floor(m - beta (m+1)) = m - low.

    Directed rounding encloses beta (m+1). For a rational epsilon != 0, e^(epsilon/2) is transcendental (Lindemann), so
    beta (m+1) is never an integer, and at some precision both ends have the same ceiling, which is then exact. Every
    party, on every machine, gets the same integers.

    Raises PlanError if rows < 1 or epsilon_per_rado <= 0.
    """
    if rows < 1 or epsilon_per_rado <= 0:
        raise PlanError(f"{rows} rows at {epsilon_per_rado} per rado: give at least one row and a positive epsilon")
    precision = 128
    while True:
        lower, upper = (_beta_times(rows + 1, epsilon_per_rado, precision, outward) for outward in (False, True))
        low = int(gmpy2.ceil(lower))
        # beta > 0, so low >= 1 even if an enormous epsilon has rounded the lower end down to zero.
        if max(low, 1) == max(int(gmpy2.ceil(upper)), 1):
            return max(low, 1), rows - max(low, 1)
        precision *= 2


def _beta_times(factor: int, epsilon: Fraction, precision: int, upward: bool) -> gmpy2.mpfr:
    """The quotient factor / (1 + e^(epsilon/2)) rounded up or down; every step rounds accordingly."""
    toward, against = (gmpy2.RoundUp, gmpy2.RoundDown) if upward else (gmpy2.RoundDown, gmpy2.RoundUp)
    # A larger e^(epsilon/2) makes a smaller quotient, so the denominator is rounded the other way. emax is the
    # library's limit, so that e^(epsilon/2) of a very large epsilon does not become infinite.
    limits = {"precision": precision, "emax": gmpy2.get_emax_max(), "emin": gmpy2.get_emin_min()}
    with gmpy2.context(round=against, **limits):
        half = gmpy2.mpfr(gmpy2.mpq(epsilon.numerator, 2 * epsilon.denominator))
        denominator = 1 + gmpy2.exp(half)
    with gmpy2.context(round=toward, **limits):
        return gmpy2.mpfr(factor) / denominator


def smallest_epsilon_per_rado(rows: int) -> float:
    """The smallest epsilon per rado that admits some k of m = rows, rounded up by a part in 10^9; inf for one row.

    low <= high means low <= floor(m/2), so e^(epsilon/2) >= (m + 1 - floor(m/2)) / floor(m/2).
    """
    half = rows // 2
    if half == 0:
        return math.inf
    return 2 * math.log((rows + 1 - half) / half) * (1 + 1e-9)


def truncation(rows: int, epsilon_per_rado: Fraction | None) -> tuple[int, int]:
    """The [low, high] that a party of m = rows admits for its k; [0, m] without truncation.

    Raises EmptyTruncationError if Algorithm 2 admits nothing, PlanError if an argument is out of range.
    """
    if epsilon_per_rado is None:
        if rows < 1:
            raise PlanError(f"{rows} rows: give at least one")
        return 0, rows
    low, high = admissible_range(rows, epsilon_per_rado)
    if low > high:
        raise EmptyTruncationError(
            rows=rows, epsilon_per_rado=epsilon_per_rado, smallest_epsilon=smallest_epsilon_per_rado(rows)
        )
    return low, high
