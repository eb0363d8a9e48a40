"""What DP-FEAT's sensitive coordinate reveals to colluding parties, where split = exact.

Signatures are uniform over Algorithm 2's set for the pool of M rows, so the parties' counts k_q are independent
Binomial(m_q, 1/2) given that their sum is in [low, M - low].

The coordinator divides the pool's k among the parties and so knows every k_q, and with it the sum of each party's
sensitive values: the figures here hold only if it does so honestly and tells no one.

The experiment. The learner and all parties but p know the others' rows and counts, so of the released value they know
everything except k_p + c, where c depends on p's data and neighbours differ by one in it.

Given the others' counts, the distribution of k_p depends on their sum s alone, so they see no more than (s, k_p + c),
and

    P(s, j) is proportional to B(M - m_p, s) B(m_p, j) where low <= s + j <= M - low,

where B(m, k) is the mass of Binomial(m, 1/2) at k. Against the neighbour's P(s, j - 1) the loss at (s, j) is

    log B(m_p, j) / B(m_p, j - 1), for any s, where (s, j - 1) is admitted too, and infinite elsewhere: on the window's
    edge s + j = low, and at j = 0.

Both orders of the pair have the same loss distribution: the reflection (s, j) to (M - m_p - s, m_p - j) keeps P, since
the window is symmetric, and maps the pair (P(s, j), P(s, j - 1)) to (P(s', j'), P(s', j' + 1)), its other order moved
by one place. So one order is composed (dpcore.accounting.composition).

The smallest party has the largest epsilon. Let a < b be two parties' sizes. Rows are exchangeable: B(m, k) counts the
ways to place k among m. From (s, y), the view against a party of a rows, draw u, hypergeometric: how many of the s
places fall on b - a given rows of the M - a.

Then (s - u, y + u) has the distribution of the view against a party of b rows, under both neighbours: given s, u and
k_p are independent. This is post-processing, so the figure for b is at most the one for a; with b = M it is the
learner's own.
"""

import numpy as np
from numpy.typing import NDArray

from dpcore.numbers.count_distributions import ROUND_OFF, TRIMMED, CountDistribution, binomial_distribution


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
