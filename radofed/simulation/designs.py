"""From a design's name and options to the learner's query and the parties' computation.

The query is a `learner.requests.Request`, planned by learner.planning like any other. A draw over the pool
(split = exact) exists in simulation only: the query does not state it, and parties compute another kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.dp_feat import truncation
from dpcore.errors import ConfigurationError, PlanError
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statement import PrivacyStatement, statement_for
from dpcore.rados.signatures import MOST_EXPECTED_DRAWS, RejectionError, Signatures, expected_draws
from dpcore.rados.support import check_support, subsets
from dpcore.randomness.sources import RandomSource
from dpcore.records.computation import Computation
from dpcore.records.feature_map import FeatureMap
from dpcore.records.records import BLOCK_ROWS, Records, sensitive_positive
from dpcore.records.schema import Schema
from learner.number_of_rados import rados_within
from learner.requests import Request, release_request
from wire.design_options import AUTO, check_options
from wire.query import Query, setting_of
from wire.query_kinds import AnyKind
from wire.request_fields import (
    DELTA,
    SPLIT,
    USUAL_DELTA,
    USUAL_RADOS,
    ReleaseFields,
    Split,
    given_options,
)

HONEST_COORDINATOR = (
    "One draw over the pool was divided by the coordinator (split = exact), which knows every party's part: the "
    "figures assume that it does so honestly and tells no one. No node offers this; it is for simulation."
)

NOT_THE_COORDINATOR = (
    "The figure under collusion is for the learner and all other parties. It does not cover the coordinator, even "
    "if a sentence above says so."
)


@dataclass(frozen=True, kw_only=True)
class DesignOptions(ReleaseFields):
    """The design of a release and its options.

    Without `rados` it takes min(1000, m/2), or fewer if dp-feat's epsilon needs it. Raises ConfigurationError if an
    option is out of range or does not belong to the design.
    """

    delta: Annotated[Fraction, DELTA] = USUAL_DELTA
    split: Annotated[Split, SPLIT] = "local"
    feature_map: FeatureMap | None = None
    """What records are mapped by before they are clipped; a plan refuses it for designs that take none."""

    def __post_init__(self) -> None:
        if self.rados is not None and self.rados < 2:
            raise ConfigurationError(f"{self.rados} rados are too few to train on: choose at least 2")
        super().__post_init__()
        if self.design_name == AUTO:
            raise ConfigurationError("a simulation measures one design: give its name, such as the one of a plan")
        given = given_options(self) | ({"split": self.split} if self.split == "exact" else {})
        check_options(self.design_name, given, chosen=("rados",), hints={"sensitive": ": name one"})
        if self.split == "exact" and self.design == "dp-feat" and self.epsilon_per_rado is None:
            raise ConfigurationError("split = exact divides a truncated draw: give epsilon per rado")

    def request(self, schema: Schema, folds: Sequence[Sequence[int]]) -> Request:
        """The learner's request in every fold. folds: the parties' numbers of training rows, for each fold.

        Raises PlanError if two rados, or `rados` of them, cost more than epsilon.
        """
        asked = replace(
            self,
            rados=None if self.design_name == "moments" else self._rados(folds),
            # A divided pool is truncated as a whole: the query does not state it.
            epsilon_per_rado=None if self.split == "exact" else self.epsilon_per_rado,
            split="local",
        )
        if self.design == "dp-feat" and not self.joint:
            # Its epsilon has determined the number of rados.
            asked = replace(asked, epsilon=None)
        request = release_request(schema, asked, delta=self.delta)
        return replace(request, feature_map=self.feature_map)

    def _rados(self, folds: Sequence[Sequence[int]]) -> int:
        usual = max(2, min(USUAL_RADOS, min(map(sum, folds)) // 2))
        if self.epsilon is None or self.design != "dp-feat" or self.joint:
            return self.rados or usual
        pools = {(sum(rows),) if self.split == "exact" else tuple(sorted(rows)) for rows in folds}
        # One rado teaches nothing.
        most = rados_within(self.epsilon, self.delta, pools, self.epsilon_per_rado, asked=self.rados, fewest=2)
        return self.rados or min(most, usual)

    def divided(self, asked: AnyKind) -> RadosQuery | None:
        """The kind that parties compute of a divided pool; None if each party draws its own signatures."""
        if self.split == "local":
            return None
        assert isinstance(asked, RadosQuery), "a split is of rados"
        return replace(asked, design=asked.design.pooled(self.epsilon_per_rado))

    def statement(self, kind: AnyKind, query: Query, party_rows: Sequence[int]) -> PrivacyStatement:
        """The privacy statement of one fold's release. kind: what parties computed. Raises PlanError."""
        said = statement_for(kind, party_rows, query.delta, schema=query.schema, setting=setting_of(query))
        if self.split == "exact":
            # The coordinator knows the count of the record's own party: the total does not hide it.
            counted = (NOT_THE_COORDINATOR,) if self.design == "dp-feat" else ()
            return replace(said, assumptions=(HONEST_COORDINATOR, *counted, *said.assumptions))
        return said


# split = exact: one draw over the pool of M rows, which an honest coordinator divides among the parties.
#
# DP-FEAT. Algorithm 2's set over the pool is {sigma : low <= k <= M - low}, where k counts the rows with [selected] =
# [e = +1] on the sensitive coordinate.
#
# A uniform signature of that set is drawn in two steps: the parties' counts (k_1, .., k_K) with k = sum k_p, then, by
# each party, uniformly the k_p of its rows that agree. Each tuple of counts with an admitted sum has prod C(m_p, k_p)
# signatures, so
#
#     P(k_1, .., k_K) is proportional to prod_p C(m_p, k_p)   where low <= sum_p k_p <= M - low.
#
# This is k from the truncated Binomial(M, 1/2), divided by the multivariate hypergeometric distribution. It is drawn
# as independent k_p ~ Binomial(m_p, 1/2), each the number of ones among m_p fair bits, until the sum is admitted.
#
# Fixed support. A uniform subset of m* of the pool's rows has multivariate hypergeometric counts over the parties;
# given the counts, each party's part is uniform among its subsets of that size.
#
# All arithmetic is in integers, so the distributions are exact. The coordinator that divides knows every count; no
# node does this.

Counts = NDArray[np.int64]

# Most random bytes for one batch of candidate counts.
_BATCH_BYTES = 1 << 24


def divided_counts(kind: RadosQuery, party_rows: Sequence[int], random: RandomSource) -> Counts:
    """The coordinator's counts (n, K): how many rows of each party agree (DP-FEAT) or are selected.

    Raises PlanError if the design is not drawn over the pool, what `truncation` raises, RejectionError if its set is
    empty or too small to sample, and SupportError if the pool cannot give the support.
    """
    design, pool = kind.design, sum(party_rows)
    if not design.is_pooled:
        raise PlanError("only dp-feat and fixed-support with split = exact are divided by a coordinator")
    if design.support is not None:
        return support_counts(party_rows, check_support(pool, design.support), kind.rados, random)
    return central_counts(party_rows, truncation(pool, design.truncated_at)[0], kind.rados, random)


def central_counts(party_rows: Sequence[int], low: int, rados: int, random: RandomSource) -> Counts:
    """Counts (k_1, .., k_K) of `rados` signatures, each uniform over those with low <= sum k_p <= M - low: (n, K).

    Raises RejectionError if more than MOST_EXPECTED_DRAWS tries are expected.
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
    """`count` draws (count,) of Binomial(rows, 1/2): the number of ones among `rows` fair bits."""
    width = -(-rows // 8)
    octets = random.uint8(count * width).reshape(count, width)
    ones = np.bitwise_count(octets).sum(axis=1, dtype=np.int64)
    spare = np.uint8(~(0xFF >> (8 * width - rows)) & 0xFF)
    return np.asarray(ones - np.bitwise_count(octets[:, -1] & spare), dtype=np.int64)


def support_counts(party_rows: Sequence[int], size: int, rados: int, random: RandomSource) -> Counts:
    """Counts (n, K) of each party's records among `size` uniform ones of the pool: multivariate hypergeometric."""
    pool = sum(party_rows)
    drawn = subsets(pool, np.full(rados, size, dtype=np.int64), random)
    party = np.repeat(np.arange(len(party_rows)), party_rows)
    counts = np.zeros((len(party_rows), rados), dtype=np.int64)
    for first in range(0, pool, BLOCK_ROWS):
        here = party[first : first + BLOCK_ROWS]
        bits = np.unpackbits(drawn.block(first), axis=0, count=len(here), bitorder="little")
        present, starts = np.unique(here, return_index=True)
        counts[present] += np.add.reduceat(bits, starts, axis=0, dtype=np.int64)
    return counts.T.copy()


@dataclass(frozen=True, eq=False)
class AgreeingSignatures:
    """Signatures that select a row if it is in the subset and e = +1, or is neither."""

    agreeing: Signatures
    """The subsets."""
    positive: NDArray[np.bool_] = field(repr=False)
    """(m,), [e = +1]."""

    @property
    def rows(self) -> int:
        """Rows, m."""
        return self.agreeing.rows

    @property
    def rados(self) -> int:
        """Rados, n."""
        return self.agreeing.rados

    def block(self, first_row: int) -> NDArray[np.uint8]:
        """See `Signatures`."""
        here = self.positive[first_row : first_row + BLOCK_ROWS]
        negative = np.packbits(~here, bitorder="little")
        return self.agreeing.block(first_row) ^ negative[:, np.newaxis]


def divided_signatures(kind: RadosQuery, records: Records, counts: Counts, random: RandomSource) -> Signatures:
    """This party's signatures, uniform given its counts. counts: (n,), its column of `divided_counts`.

    records: as the design sums them, that is, rounded.
    """
    chosen = subsets(records.rows, counts, random)
    if kind.design.support is not None:
        return chosen
    return AgreeingSignatures(chosen, sensitive_positive(records, kind.design.coded[0]))


def divided_contribution(
    kind: RadosQuery, records: Records, fraction_bits: int, counts: Counts, computation: Computation
) -> NDArray[np.int64]:
    """The result of `RadosQuery.contribution`, (n d,), for signatures with the coordinator's counts."""
    prepared = kind.prepare(records, fraction_bits, computation.secret)
    signatures = divided_signatures(kind, prepared.records, counts, computation.random)
    sums = prepared.sums_over(signatures, computation.total)
    kind.add_noise(sums, computation.random)
    return sums.reshape(-1)
