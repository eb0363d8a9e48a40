"""split = exact: the whole procedure has the uniform distribution on the pool's set, and no other procedure passes."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.dp_feat import EmptyTruncationError, truncation
from dpcore.errors import PlanError
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import DpFeatDesign, FixedSupportDesign, PlainDesign, SensitiveFeature
from dpcore.rados.signatures import RejectionError, sensitive_counts, whole
from dpcore.rados.signatures import signatures_of as drawn_locally
from dpcore.rados.support import SupportError
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation, PartySecret
from dpcore.records.encoding import store
from dpcore.records.records import Records, sensitive_positive
from radofed.simulation.designs import (
    central_counts,
    divided_contribution,
    divided_counts,
    divided_signatures,
    support_counts,
)

pytestmark = pytest.mark.more

ROWS = (3, 5)
POOL = sum(ROWS)
EPSILON = Fraction(9, 4)
LOW = truncation(POOL, EPSILON)[0]
RADOS = 30_000
SECRET = PartySecret(b"s" * 32, b"d" * 32)


def records_of(rows: int, seed: int) -> Records:
    random = np.random.RandomState(seed)
    x = np.column_stack([random.uniform(-1, 1, rows), random.choice([-1.0, 1.0], rows), np.ones(rows)])
    return Records(store(x), random.choice([-1, 1], rows).astype(np.int8), np.ones(rows, dtype=bool))


PARTIES = tuple(records_of(rows, seed) for seed, rows in enumerate(ROWS))


def dp_feat(rados=RADOS, epsilon=EPSILON):
    return RadosQuery(rados, DpFeatDesign((SensitiveFeature(1, "s"),), epsilon, "exact"))


def fixed_support(rados=RADOS):
    return RadosQuery(rados, FixedSupportDesign(Fraction(3, 8), Clip(Fraction(2), bias=True), 0, "exact"))


def signatures(kind, counts, seed=b"parties"):
    """The pooled signatures as tuples of bits."""
    parts = [
        np.unpackbits(
            whole(divided_signatures(kind, part, column, SeededRandom(seed + bytes([place])))),
            axis=1,
            count=part.rows,
            bitorder="little",
        )
        for place, (part, column) in enumerate(zip(PARTIES, counts.T, strict=True))
    ]
    return [tuple(row) for row in np.hstack(parts).tolist()]


def admitted():
    """Algorithm 2's set over the pool, by enumeration: as selections."""
    positive = np.concatenate([part.features[:, 1].astype(np.int64) * part.labels > 0 for part in PARTIES])
    return {
        bits for bits in itertools.product([0, 1], repeat=POOL) if LOW <= int((positive == bits).sum()) <= POOL - LOW
    }


def surprise(found, outcomes):
    """Chi-square of counts against uniform `outcomes`, in standard deviations; inf for any other outcome."""
    tally = Counter(found)
    if set(tally) - outcomes:
        return math.inf
    expected = len(found) / len(outcomes)
    square = sum((tally[outcome] - expected) ** 2 / expected for outcome in outcomes)
    freedom = len(outcomes) - 1
    return (square - freedom) / math.sqrt(2 * freedom)


def test_the_pool_s_set_is_neither_empty_nor_everything():
    assert 0 < len(admitted()) < 2**POOL


@pytest.mark.more
def test_dp_feat_is_uniform_on_the_pool_s_set():
    kind = dp_feat()
    counts = divided_counts(kind, ROWS, SeededRandom(5))
    assert abs(surprise(signatures(kind, counts), admitted())) < 5


@pytest.mark.more
def test_fixed_support_is_uniform_on_subsets_of_the_pool():
    kind = fixed_support()
    counts = divided_counts(kind, ROWS, SeededRandom(6))
    assert (counts.sum(axis=1) == 3).all()
    subsets = {bits for bits in itertools.product([0, 1], repeat=POOL) if sum(bits) == 3}
    assert abs(surprise(signatures(kind, counts), subsets)) < 5


def test_as_many_rows_agree_as_the_coordinator_hands_out():
    for place, part in enumerate(PARTIES):
        counts = np.arange(600) % (part.rows + 1)
        drawn = whole(divided_signatures(dp_feat(), part, counts, SeededRandom(place)))
        positive = np.packbits(sensitive_positive(part, 1), bitorder="little")
        assert sensitive_counts(drawn, positive, part.rows).tolist() == counts.tolist()


def _rounded_in_proportion(generator):
    """Every party gets its share of k, rounded."""
    k = central_counts(ROWS, LOW, RADOS, SeededRandom(5)).sum(axis=1)
    first = np.round(k * ROWS[0] / POOL).astype(np.int64)
    return np.column_stack([first, k - first])


def _multinomial(generator):
    """Each of k units goes to a party by its size, with replacement."""
    k = central_counts(ROWS, LOW, RADOS, SeededRandom(5)).sum(axis=1)
    first = np.clip(generator.binomial(k, ROWS[0] / POOL), k - ROWS[1], ROWS[0])
    return np.column_stack([first, k - first])


def _flat_k(generator):
    """k is uniform in its range, and divided rightly."""
    k = generator.integers(LOW, POOL - LOW + 1, RADOS)
    first = generator.hypergeometric(k, POOL - k, ROWS[0])
    return np.column_stack([first, k - first])


def _untruncated(generator):
    return np.column_stack([generator.binomial(rows, 0.5, RADOS) for rows in ROWS])


@pytest.mark.parametrize("split", [_rounded_in_proportion, _multinomial, _flat_k, _untruncated])
def test_a_wrong_split_is_rejected(split):
    counts = split(np.random.default_rng(7))
    found = surprise(signatures(dp_feat(), counts), admitted())
    assert found > 8


def test_each_party_truncating_for_itself_is_another_distribution():
    """split = local lies inside the pool's set and is not uniform on it."""
    local = DpFeatDesign((SensitiveFeature(1, "s"),), EPSILON)
    parts = [
        np.unpackbits(
            whole(drawn_locally(local, part, RADOS, SeededRandom(place))), axis=1, count=part.rows, bitorder="little"
        )
        for place, part in enumerate(PARTIES)
    ]
    found = [tuple(row) for row in np.hstack(parts).tolist()]
    assert surprise(found, admitted()) > 8


def test_counts_of_larger_parties_have_the_exact_distribution():
    rows, low = (9, 20, 4), 14
    counts = central_counts(rows, low, 40_000, SeededRandom(8))
    ways = {
        place: math.prod(math.comb(m, k) for m, k in zip(rows, place, strict=True))
        for place in itertools.product(*(range(m + 1) for m in rows))
        if low <= sum(place) <= sum(rows) - low
    }
    whole = sum(ways.values())
    for party, size in enumerate(rows):
        for value in range(size + 1):
            exact = sum(count for place, count in ways.items() if place[party] == value) / whole
            share = float((counts[:, party] == value).mean())
            assert abs(share - exact) <= 5 * math.sqrt(exact * (1 - exact) / len(counts)) + 1e-12
    covariance = np.cov(counts.T)[0, 1]
    mean = [sum(p[i] * c for p, c in ways.items()) / whole for i in (0, 1)]
    exact = sum((p[0] - mean[0]) * (p[1] - mean[1]) * c for p, c in ways.items()) / whole
    assert exact < -0.1
    assert covariance == pytest.approx(exact, abs=0.1)


def test_support_counts_are_hypergeometric():
    rows = (9, 20, 4)
    counts = support_counts(rows, 11, 40_000, SeededRandom(9))
    assert (counts.sum(axis=1) == 11).all()
    for party, size in enumerate(rows):
        for value in range(min(size, 11) + 1):
            others = sum(rows) - size
            exact = math.comb(size, value) * math.comb(others, 11 - value) / math.comb(sum(rows), 11)
            share = float((counts[:, party] == value).mean())
            assert abs(share - exact) <= 5 * math.sqrt(exact * (1 - exact) / len(counts)) + 1e-12


@pytest.mark.parametrize("kind", [dp_feat(rados=40), fixed_support(rados=40)])
def test_the_contribution_is_the_definition(kind):
    counts = divided_counts(kind, ROWS, SeededRandom(11))
    bits = 16
    sums = [
        divided_contribution(kind, part, bits, column, Computation(SeededRandom(b"parties" + bytes([place])), SECRET))
        for place, (part, column) in enumerate(zip(PARTIES, counts.T, strict=True))
    ]
    selected = np.array(signatures(kind, counts))
    edges = np.vstack([np.trunc(part.features / 2**14) * part.labels[:, None] for part in PARTIES]).astype(np.int64)
    if isinstance(kind.design, FixedSupportDesign):
        assert np.abs(np.linalg.norm(edges / 2**bits, axis=1)).max() < 2  # nothing to clip
    assert np.array_equal(sum(sums).reshape(40, 3), selected @ edges)


def test_only_designs_over_the_pool_are_divided():
    plain = RadosQuery(5, PlainDesign())
    assert dp_feat().design.is_pooled
    assert fixed_support().design.is_pooled
    assert not plain.design.is_pooled
    with pytest.raises(PlanError, match="not drawn over the pool"):
        plain.design.pooled(None)
    with pytest.raises(PlanError, match="only dp-feat and fixed-support"):
        divided_counts(plain, ROWS, SeededRandom(1))


def test_what_cannot_be_met_is_refused():
    with pytest.raises(EmptyTruncationError):
        divided_counts(dp_feat(epsilon=Fraction(1, 1000)), ROWS, SeededRandom(1))
    with pytest.raises(RejectionError):
        central_counts((10**9, 10**9), 10**9, 10, _NoRandom())  # one value of two thousand million
    with pytest.raises(SupportError):
        divided_counts(fixed_support(), (1, 0), SeededRandom(1))


class _NoRandom(SeededRandom):
    def __init__(self) -> None:
        super().__init__(0)

    def bytes(self, count: int) -> bytes:
        raise AssertionError("nothing is drawn before it is known that drawing will end")
