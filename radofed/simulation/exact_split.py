"""split = exact: one draw over the pool of M rows, which an honest coordinator divides among the parties.

DP-FEAT. Algorithm 2's set over the pool is {sigma : low <= k <= M - low}, where k counts the rows with [selected] =
[e = +1] on the sensitive coordinate. A uniform signature of that set is drawn in two steps: the parties' counts (k_1,
.., k_K) with k = sum k_p, then by each party, uniformly, the k_p of its rows that agree. For counts whose sum is
admitted there are prod C(m_p, k_p) signatures of each, so

    P(k_1, .., k_K) is proportional to prod_p C(m_p, k_p)   where low <= sum_p k_p <= M - low,

which is k from the truncated Binomial(M, 1/2), divided by the multivariate hypergeometric law. It is drawn as
independent k_p ~ Binomial(m_p, 1/2), each the ones among m_p fair bits, until the sum is admitted.

Fixed support. A uniform subset of m* of the pool's rows has the multivariate hypergeometric law over the parties, and
given the counts each party's part is uniform among its subsets of that size.

Integers throughout: the laws are exact. Whoever divides knows every count; a node never does this.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError
from dpcore.queries.base import Keyed
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import DpFeatDesign, FixedSupportDesign
from dpcore.rados.edges import Records, sensitive_positive
from dpcore.rados.signatures import MOST_EXPECTED_DRAWS, RejectionError, expected_draws
from dpcore.rados.support import BLOCK_KEYS, check_support, draw_subsets
from dpcore.rados.truncation import truncation
from dpcore.randomness import RandomSource

Counts = NDArray[np.int64]

# Random bytes that one batch of candidate counts may take.
_BATCH_BYTES = 1 << 24


def divides(kind: object) -> bool:
    """Whether a query of this kind is drawn over the pool."""
    return (
        isinstance(kind, RadosQuery)
        and isinstance(kind.design, DpFeatDesign | FixedSupportDesign)
        and kind.design.split == "exact"
    )


def divided_counts(kind: RadosQuery, party_rows: Sequence[int], random: RandomSource) -> Counts:
    """What the coordinator hands out: how many rows of each party agree (DP-FEAT) or are selected: (n, K).

    Raises PlanError where the design is not drawn over the pool, what `truncation` raises and RejectionError where its
    set is empty or too small to be met, SupportError where the pool cannot give the support.
    """
    design, pool = kind.design, sum(party_rows)
    if isinstance(design, DpFeatDesign) and design.split == "exact":
        return central_counts(party_rows, truncation(pool, design.epsilon_per_rado)[0], kind.rados, random)
    if isinstance(design, FixedSupportDesign) and design.split == "exact":
        return support_counts(party_rows, check_support(pool, design.fraction), kind.rados, random)
    raise PlanError("only dp-feat and fixed-support with split = exact are divided by a coordinator")


def central_counts(party_rows: Sequence[int], low: int, rados: int, random: RandomSource) -> Counts:
    """Counts (k_1, .., k_K) of `rados` signatures, each uniform over those with low <= sum k_p <= M - low: (n, K).

    Raises RejectionError where more than MOST_EXPECTED_DRAWS tries are expected.
    """
    pool = sum(party_rows)
    tries = expected_draws(pool, low)
    if tries > MOST_EXPECTED_DRAWS:
        raise RejectionError(expected_draws=tries, most_expected_draws=MOST_EXPECTED_DRAWS)
    accepted = np.empty((rados, len(party_rows)), dtype=np.int64)
    filled, most = 0, max(1, _BATCH_BYTES // -(-pool // 8))
    while filled < rados:
        wanted = min(most, int((rados - filled) * tries) + 8)
        candidates = np.column_stack([_binomials(rows, wanted, random) for rows in party_rows])
        totals = candidates.sum(axis=1)
        kept = candidates[(totals >= low) & (totals <= pool - low)][: rados - filled]
        accepted[filled : filled + len(kept)] = kept
        filled += len(kept)
    return accepted


def _binomials(rows: int, count: int, random: RandomSource) -> Counts:
    """`count` draws of Binomial(rows, 1/2): the ones among `rows` fair bits."""
    width = -(-rows // 8)
    octets = random.uint8(count * width).reshape(count, width)
    ones = np.bitwise_count(octets).sum(axis=1, dtype=np.int64)
    spare = np.uint8(~(0xFF >> (8 * width - rows)) & 0xFF)
    return np.asarray(ones - np.bitwise_count(octets[:, -1] & spare), dtype=np.int64)


def support_counts(party_rows: Sequence[int], size: int, rados: int, random: RandomSource) -> Counts:
    """How many of `size` records, uniform among the pool's, are each party's: multivariate hypergeometric, (n, K)."""
    pool = sum(party_rows)
    starts = np.concatenate([[0], np.cumsum(party_rows)[:-1]])
    blocks = [
        np.add.reduceat(np.unpackbits(block, axis=1, count=pool, bitorder="little"), starts, axis=1, dtype=np.int64)
        for block in draw_subsets(pool, size, rados, random)
    ]
    return np.concatenate(blocks)


def subsets_of_sizes(rows: int, sizes: Counts, random: RandomSource) -> Iterator[NDArray[np.uint8]]:
    """Packed bits of one subset for each of `sizes`, in order, uniform among those of that size: (block, ceil(rows/8)).

    sizes: (n,), each from 0 to `rows`. A subset is where independent uniform 64-bit keys are among the `size` smallest;
    where two keys tie across that border the subset is drawn anew, which leaves all equally likely.
    """
    block = max(1, BLOCK_KEYS // rows)
    for first in range(0, len(sizes), block):
        wanted = sizes[first : first + block]
        chosen = np.zeros((len(wanted), rows), dtype=np.bool_)
        missing = np.arange(len(wanted))
        while len(missing):
            keys = np.frombuffer(random.bytes(8 * len(missing) * rows), dtype="<u8").reshape(len(missing), rows)
            border = np.sort(keys, axis=1)[np.arange(len(missing)), np.maximum(wanted[missing] - 1, 0)]
            chosen[missing] = (keys <= border[:, np.newaxis]) & (wanted[missing] > 0)[:, np.newaxis]
            missing = missing[chosen[missing].sum(axis=1) != wanted[missing]]
        yield np.packbits(chosen, axis=1, bitorder="little")


def signatures_of(
    kind: RadosQuery, records: Records, counts: Counts, random: RandomSource
) -> Iterator[NDArray[np.uint8]]:
    """Packed selection bits of this party, uniform given its counts. counts: (n,), its column of `divided_counts`.

    records: as the design sums them, so rounded already.
    """
    design, rows = kind.design, records.rows
    subsets = subsets_of_sizes(rows, counts, random)
    if not isinstance(design, DpFeatDesign):
        yield from subsets
        return
    positive = np.packbits(sensitive_positive(records, design.coordinates[0]), bitorder="little")
    spare = np.packbits(np.ones(rows, dtype=np.bool_), bitorder="little")
    for agreeing in subsets:
        # Selected where the row agrees and e = +1, or does not and e = -1.
        yield ~(agreeing ^ positive) & spare


def divided_contribution(
    kind: RadosQuery, records: Records, fraction_bits: int, counts: Counts, random: RandomSource, keyed: Keyed
) -> NDArray[np.int64]:
    """What `RadosQuery.contribution` gives, for signatures with the counts that the coordinator handed out: (n d,)."""
    prepared = kind.prepare(records, fraction_bits, keyed)
    blocks = [prepared.sums_of(selection) for selection in signatures_of(kind, prepared.records, counts, random)]
    sums = np.concatenate(blocks)
    kind.add_noise(sums, random)
    return sums.reshape(-1)
