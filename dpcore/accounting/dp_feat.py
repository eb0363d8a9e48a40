"""The exact privacy cost of DP-FEAT, in place of Theorem 6 (Nock, Patrini, Friedman, ICML 2015: n epsilon, n delta).

Unit of privacy: one record's value of the sensitive coordinate. Scope: the marginal of that coordinate within the
release, and nothing beyond it.

A flip moves the count k by one. The learner alone sees the k of the pool (split = local); under collusion one party's
own distribution remains, and the worst party's figure is `epsilon_if_others_collude`. Without truncation the figure
also holds for plain rados, each boolean coordinate separately.

Proof: docs/explanation/proofs.md, "DP-FEAT".
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import gmpy2
import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.composition import (
    LARGEST_EPSILON,
    Bracket,
    InfiniteEpsilonError,
    delta_bracket,
    epsilon_bracket,
)
from dpcore.errors import PlanError
from dpcore.numbers.distributions import (
    MOST_ROWS,
    ROUND_OFF,
    TRIMMED,
    CountDistribution,
    binomial_distribution,
    binomial_mass,
    hardly_truncated,
    pooled_distribution,
)

# DP-FEAT's sensitive coordinate against colluding parties, where split = exact.
#
# The coordinator divides the pool's k and knows every k_q: the figures hold only if it does so honestly and tells no
# one. The learner and all parties but p see no more than (s, k_p + c), s the sum of the others' counts and c of p's
# data:
#
#     P(s, j) proportional to B(M - m_p, s) B(m_p, j) where low <= s + j <= M - low, B the binomial mass.
#
# The smallest party has the largest epsilon. Proof: docs/explanation/proofs.md, "DP-FEAT with an exact split".


def known_rest_distribution(rows: int, others: int, low: int) -> CountDistribution:
    """The loss of one rado against an adversary who knows the counts of all `others` rows, in the form for composition.

    rows: m_p. others: M - m_p. low: the pool's, so that low <= s + j <= rows + others - low.

    masses[0]: the probability of an infinite loss. masses[1:] and losses: those of the finite ones, one entry for each
    j. The result is not the distribution of a count: it is not symmetric. Its `low` is the first such j less one.

    Requires rows and others in 1..2^60 and a non-empty range. Both binomials are cut to their windows; given the range,
    whose probability is at least 1/(M + 1), each cut tail weighs at most TRIMMED, and so does what underflows.
    """
    high = rows + others - low
    assert low <= high
    own, rest = binomial_distribution(rows), binomial_distribution(others)
    j = own.low + np.arange(len(own.masses), dtype=np.int64)
    # With s = low - j the neighbour's (s, j - 1) is out of the window; from there to high - j both are in it.
    edge = own.masses * sliding_sums(rest.masses, 1, low - j - rest.low)
    inside = own.masses * sliding_sums(rest.masses, high - low, low - j + 1 - rest.low)
    infinite = float(edge.sum() + inside[0])
    finite = inside[1:]
    kept = np.flatnonzero(finite)
    # The entries with mass are consecutive: both factors are positive on intervals.
    places = slice(int(kept[0]), int(kept[-1]) + 1) if kept.size else slice(0)
    masses = np.concatenate([[infinite], finite[places]])
    return CountDistribution(
        low=own.low + (places.start or 0),
        masses=masses / masses.sum(),
        losses=own.losses[places],
        trimmed=3 * TRIMMED,
        relative_error=own.relative_error
        + rest.relative_error
        + 2 * ROUND_OFF * (len(own.masses) + len(rest.masses) + 4),
        loss_error=own.loss_error,
    )


def sliding_sums(values: NDArray[np.float64], length: int, starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """The sum of values[start : start + length] for each start, with values zero beyond its ends.

    It adds and never subtracts, so non-negative values keep their relative precision: an interval is the end of one
    block of `length` values and the beginning of the next (van Herk, 1992). At most length + 1 additions each.
    """
    width = len(values)
    if length <= 0:
        return np.zeros(len(starts))
    if length > width:
        # Cut to the length of the values: intervals that begin inside end beyond, the others keep their end.
        starts = np.where(starts > 0, starts, np.minimum(starts + length, width) - width)
        length = width
    blocks = -(-width // length) + 3
    padded = np.zeros(blocks * length)
    padded[length : length + width] = values
    grid = padded.reshape(blocks, length)
    before = np.zeros_like(grid)
    before[:, 1:] = np.cumsum(grid, axis=1)[:, :-1]
    onwards = np.cumsum(grid[:, ::-1], axis=1)[:, ::-1]
    block, place = np.divmod(np.clip(starts, -length, width) + length, length)
    return np.asarray(onwards[block, place] + before[block + 1, place])


# The counts k = #(selected, e = +1) + #(not selected, e = -1) that Algorithm 2 admits (ICML 2015), exactly: beta (m +
# 1) <= k <= m - beta (m + 1), beta = 1 / (1 + e^(epsilon/2)).


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
    """Algorithm 2's [low, high] for m = rows, exactly; empty where low > high. Raises PlanError.

    low = ceil(beta (m+1)), high = m - low. Directed rounding encloses beta (m+1), which is never an integer: for a
    rational epsilon != 0, e^(epsilon/2) is transcendental (Lindemann).
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
    """The smallest epsilon per rado that admits some k of m = rows, rounded up by a part in 10^9; inf for one row."""
    half = rows // 2
    if half == 0:
        return math.inf
    return 2 * math.log((rows + 1 - half) / half) * (1 + 1e-9)


def truncation(rows: int, epsilon_per_rado: Fraction | None) -> tuple[int, int]:
    """The [low, high] that m = rows admits; [0, m] without truncation. Raises EmptyTruncationError, PlanError."""
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


MOST_RADOS = 10_000_000


@dataclass(frozen=True)
class DpFeatAccount:
    """The cost of a DP-FEAT release at `delta`; against the learner alone it is in [epsilon_lower, epsilon]."""

    epsilon: float
    epsilon_lower: float
    delta: float
    epsilon_if_others_collude: float
    """From the worst party's own distribution, also an upper end."""
    theorem_epsilon: float | None
    """n epsilon_per_rado, None without truncation."""
    rados: int
    party_rows: tuple[int, ...]
    """m_p, public."""


def account(
    party_rows: Sequence[int], rados: int, epsilon_per_rado: Fraction | None, delta: Fraction | float
) -> DpFeatAccount:
    """The exact cost of `rados` rados over parties with `party_rows` rows, each truncated separately.

    epsilon_per_rado: Algorithm 2's; None draws uniform signatures. delta: in (0, 1), for the whole release. Raises
    PlanError, and EmptyTruncationError, InfiniteEpsilonError, VoidEpsilonError or DeltaTooSmallError if there is no
    figure, or none under collusion.
    """
    budget = _delta(delta)
    parties = _parties(party_rows, epsilon_per_rado)
    n = _rados(rados)
    others = max(epsilon_bracket(binomial_distribution(*party), n, budget).upper for party in _worst(parties))
    alone = epsilon_bracket(pooled_distribution(parties), n, budget)
    return DpFeatAccount(
        # A bound against more knowledge holds against the learner: the pool's k is the party's plus independent ones.
        epsilon=min(alone.upper, others),
        epsilon_lower=alone.lower,
        delta=float(delta),
        epsilon_if_others_collude=others,
        theorem_epsilon=None if epsilon_per_rado is None else theorem_epsilon(n, epsilon_per_rado),
        rados=n,
        party_rows=tuple(party_rows),
    )


def account_of_exact_split(
    party_rows: Sequence[int], rados: int, epsilon_per_rado: Fraction | None, delta: Fraction | float
) -> DpFeatAccount:
    """The exact cost if one truncation of the pool is divided among the parties (split = exact, simulation only).

    epsilon_if_others_collude: the smallest party's against learner and all other parties, but not the coordinator,
    which knows every count. Raises as `account`.
    """
    if epsilon_per_rado is None or len(party_rows) == 1:
        return account(party_rows, rados, epsilon_per_rado, delta)
    if not party_rows or min(party_rows) < 1:
        raise PlanError(f"the parties have {list(party_rows)} rows: give at least one party, and one row for each")
    budget, n, total, fewest = _delta(delta), _rados(rados), sum(party_rows), min(party_rows)
    ((_, low),) = _parties([total], epsilon_per_rado)
    alone = epsilon_bracket(binomial_distribution(total, low), n, budget)
    others = epsilon_bracket(known_rest_distribution(fewest, total - fewest, low), n, budget).upper
    return DpFeatAccount(
        epsilon=min(alone.upper, others),
        epsilon_lower=alone.lower,
        delta=float(delta),
        epsilon_if_others_collude=others,
        theorem_epsilon=theorem_epsilon(n, epsilon_per_rado),
        rados=n,
        party_rows=tuple(party_rows),
    )


def own_epsilon(rows: int, rados: int, epsilon_per_rado: Fraction | None, delta: Fraction | float) -> float:
    """What one party's ledger charges: its own distribution's, against any collusion. Raises as `account`."""
    (party,) = _parties([rows], epsilon_per_rado)
    return epsilon_bracket(binomial_distribution(*party), _rados(rados), _delta(delta)).upper


def epsilon_for(
    party_rows: Sequence[int], rados: int, epsilon_per_rado: Fraction | None, delta: Fraction | float
) -> Bracket:
    """Bracket of the learner's exact epsilon. Raises PlanError as `account` does."""
    distribution = pooled_distribution(_parties(party_rows, epsilon_per_rado))
    return epsilon_bracket(distribution, _rados(rados), _delta(delta))


def delta_for(party_rows: Sequence[int], rados: int, epsilon_per_rado: Fraction | None, epsilon: float) -> Bracket:
    """Bracket of the learner's exact delta at `epsilon`, in [0, 150]. Raises PlanError as `account` does."""
    distribution = pooled_distribution(_parties(party_rows, epsilon_per_rado))
    return delta_bracket(distribution, _rados(rados), epsilon)


def theorem_epsilon(rados: int, epsilon_per_rado: Fraction) -> float:
    """The figure n epsilon that Theorem 6 (ICML 2015) states for n rados."""
    return float(rados * epsilon_per_rado)


def delta_per_rado(rows: int, epsilon_per_rado: Fraction | None) -> float:
    """Probability, in one rado of one party, of a k that only one of two neighbours can produce. Raises as `account`.

    p(low) of the truncated distribution, relative error below 1e-9 (0 if it underflows); 2^-m without truncation.
    """
    ((_, low),) = _parties([rows], epsilon_per_rado)
    if epsilon_per_rado is None:
        return math.ldexp(1.0, -rows)
    mode = rows // 2
    k = np.arange(mode, low, -1, dtype=np.float64)
    to_mode = math.fsum(np.log1p((2 * k - rows - 1) / (rows - k + 1)))
    at_mode = float(binomial_distribution(rows).masses.max())
    return math.exp(to_mode) * at_mode / binomial_mass(rows, low)


def largest_rados(
    party_rows: Sequence[int],
    epsilon_per_rado: Fraction | None,
    epsilon: Fraction | float,
    delta: Fraction | float,
    most: int = MOST_RADOS,
) -> int:
    """The largest n up to `most` whose stated epsilon against the learner alone is at most `epsilon`; 0 if none.

    Guesses by mu^2/2 + mu sqrt(2 log 1/delta), mu^2 in proportion to n, save compositions. Raises PlanError,
    EmptyTruncationError.
    """
    if not epsilon > 0:
        raise PlanError(f"epsilon is {epsilon}: make it positive")
    distribution, budget = pooled_distribution(_parties(party_rows, epsilon_per_rado)), _delta(delta)
    tail = math.sqrt(-2 * math.log(budget))

    def mu(cost: float) -> float:
        # sqrt(tail^2 + 2 cost) - tail, without cancellation.
        return 2 * cost / (math.sqrt(tail * tail + 2 * cost) + tail)

    wanted = mu(min(float(epsilon), LARGEST_EPSILON))
    below, above = 0, min(most, MOST_RADOS) + 1
    # One rado's loss is near 2 (m/2 - k) / (m/2), of variance 4/m.
    guess = wanted * wanted * sum(party_rows) / 4
    # If the rule misleads, bisection finishes the search.
    for step in (1, 1, 1, 2, 4, 8, 16, 32):
        if above - below <= 1:
            break
        at = max(below + 1, min(above - 1, int(min(guess, above))))
        cost = _learners_own(distribution, at, budget)
        # An infinite epsilon gives no guess, so halve the range.
        likely = at * (wanted / mu(cost)) ** 2 if 0 < cost < math.inf else (below + at) / 2
        if cost <= epsilon:
            below, guess = at, max(likely, at + step)
        else:
            above, guess = at, min(likely, at - step)
    return last_that_fits(below, above, lambda n: _learners_own(distribution, n, budget) <= epsilon)


def last_that_fits(below: int, above: int, fits: Callable[[int], bool]) -> int:
    """The last n that fits, given that `below` does and `above` does not."""
    while above - below > 1:
        n = (below + above) // 2
        below, above = (n, above) if fits(n) else (below, n)
    return below


@dataclass(frozen=True)
class DpFeatRange:
    """The `dp-feat` queries without truncation that are possible; truncation makes no more so."""

    rows: int
    delta: Fraction
    one_rado: float | None
    """Epsilon of a single rado, None if no bound is finite."""
    largest: int
    """The most rados whose epsilon is at most `epsilon`, 0 if none."""
    delta_needed: float
    """Delta must exceed it for a finite bound at this size. rows_needed: for a finite bound at this delta."""

    @property
    def rows_needed(self) -> int:
        """The fewest rows m with 2^-m below delta, for a single rado."""
        return math.floor(-math.log2(self.delta)) + 1


def dp_feat_range(rows: int, *, delta: Fraction, epsilon: Fraction, most_rados: int) -> DpFeatRange:
    """The queries that a party of `rows` rows can answer at delta, within limits. Raises PlanError."""
    needed = delta_per_rado(rows, None)
    try:
        one = own_epsilon(rows, 1, None, delta)
    except InfiniteEpsilonError:
        return DpFeatRange(rows, delta, None, 0, needed)
    largest = largest_rados([rows], None, epsilon, delta, most_rados) if epsilon > 0 else 0
    return DpFeatRange(rows, delta, one, largest, needed)


def _learners_own(distribution: CountDistribution, n: int, delta: float) -> float:
    """Epsilon of n rados, its upper end; inf if none is finite."""
    try:
        return epsilon_bracket(distribution, n, delta).upper
    except PlanError:
        return math.inf


def _parties(party_rows: Sequence[int], epsilon_per_rado: Fraction | None) -> list[tuple[int, int]]:
    if not party_rows:
        raise PlanError("no party: give the row count of at least one")
    if max(party_rows) >= MOST_ROWS:
        raise PlanError(f"a party has {max(party_rows)} rows: give fewer than {MOST_ROWS}")
    return [(rows, truncation(rows, epsilon_per_rado)[0]) for rows in party_rows]


def _worst(parties: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parties that can have the worst own distribution: without truncation only the one with the fewest rows.

    Binomial(m + 1) is Binomial(m) plus an independent coin. Truncated ones are all counted, unless the truncation is
    beyond the window, for which `trimmed` has room.
    """
    distinct = sorted(set(parties))
    free = [party for party in distinct if party[1] == 0]
    nearly = [party for party in distinct if hardly_truncated(*party)]
    return [*free[:1], *nearly[:1], *(party for party in distinct if party[1] > 0 and not hardly_truncated(*party))]


def _rados(rados: int) -> int:
    if not 1 <= rados <= MOST_RADOS:
        raise PlanError(f"{rados} rados: ask for 1 to {MOST_RADOS}")
    return rados


def _delta(delta: Fraction | float) -> float:
    if not 0 < delta < 1:
        raise PlanError(f"delta is {delta}: choose a number between 0 and 1")
    counted = float(delta)
    # Rounded down, so that the counted delta is never above the requested one.
    return counted if Fraction(counted) <= delta else math.nextafter(counted, 0.0)
