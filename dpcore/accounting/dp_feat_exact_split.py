"""What DP-FEAT's sensitive coordinate reveals to colluding parties, where split = exact.

Signatures are uniform over Algorithm 2's set for the pool of M rows. The coordinator divides the pool's k among the
parties and so knows every k_q: the figures hold only if it does so honestly and tells no one.

The learner and all parties but p see no more than (s, k_p + c), s the sum of the others' counts and c of p's data, with

    P(s, j) proportional to B(M - m_p, s) B(m_p, j) where low <= s + j <= M - low, B(m, k) the mass of Binomial(m, 1/2).

The smallest party has the largest epsilon. Proof: docs/explanation/proofs.md, "DP-FEAT with an exact split".
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
