"""The moments query: what a record contributes, exact sums, and what a total decodes to."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import PlanError, ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.kind import QueryLimits, SumQuery
from dpcore.queries.moments import MOST_FRACTION_BITS, MomentsQuery
from dpcore.randomness.noise import tail_bound
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation
from dpcore.records.records import BLOCK_ROWS, Records

BITS = 12
QUERY = MomentsQuery(Clip(Fraction(7, 4), bias=True), 11, 40)
BARE = MomentsQuery(Clip(Fraction(7, 4), bias=False), 11, 40)


def party(rows: int, seed: int, d: int = 5, unusable: float = 0.1) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE, size=(rows, d), endpoint=True).astype(np.int32)
    features[:, -1] = ONE
    labels = generator.choice([-1, 1], size=rows).astype(np.int8)
    usable = generator.random(rows) >= unusable
    features[~usable], labels[~usable] = 0, 1
    return Records(features, labels, usable)


def joined(parties: list[Records]) -> Records:
    return Records(*(np.concatenate([getattr(p, name) for p in parties]) for name in ("features", "labels", "usable")))


def by_hand(query: MomentsQuery, held: Records, bits: int) -> list[int]:
    """The definition, record by record, in Python integers."""
    total = [0] * query.length(held.d)
    for x, y in zip(held.features.tolist(), held.labels.tolist(), strict=True):
        edge = [y * (abs(value) >> (30 - bits)) * (1 if value >= 0 else -1) for value in x]
        edge = query.clip.apply(np.array([edge], dtype=np.int64), bits)[0].tolist()
        vector = [query.edge_multiplier * value for value in edge]
        products = [(5 if j == k else 7) * edge[j] * edge[k] for j in range(held.d) for k in range(j, held.d)]
        # The last one is the square of the bias.
        vector += products[:-1] if query.clip.bias else products
        total = [a + b for a, b in zip(total, vector, strict=True)]
    return total


@pytest.mark.parametrize("query", [QUERY, BARE], ids=["bias", "no bias"])
@pytest.mark.parametrize("bits", [0, BITS, MOST_FRACTION_BITS])
def test_a_contribution_is_the_sum_of_its_records(query, bits):
    held = party(37, 3)
    assert query.sums(held, bits).tolist() == by_hand(query, held, bits)


def test_parties_sums_are_the_pooled_sum_bit_for_bit():
    parties = [party(rows, seed) for seed, rows in enumerate((17, BLOCK_ROWS + 5, 1, 64))]
    total = sum(QUERY.sums(held, MOST_FRACTION_BITS) for held in parties)
    assert np.array_equal(total, QUERY.sums(joined(parties), MOST_FRACTION_BITS))


def test_a_contribution_is_the_sums_and_one_share_of_noise():
    held = party(100, 5)
    noise = QUERY.contribution(held, BITS, Computation(SeededRandom(1))) - QUERY.sums(held, BITS)
    assert noise.shape == (QUERY.length(5),)
    assert 0 < np.abs(noise).max() < 6 * 40
    assert np.array_equal(QUERY.contribution(held, BITS, Computation(SeededRandom(1))) - noise, QUERY.sums(held, BITS))


def test_products_are_exact_where_a_block_is_as_large_as_it_gets():
    """BLOCK_ROWS records of all ones at the most fraction bits: one more bit would exceed double precision."""
    ones = Records(np.full((BLOCK_ROWS, 2), ONE, np.int32), np.ones(BLOCK_ROWS, np.int8), np.ones(BLOCK_ROWS, bool))
    odd = ones.features.copy()
    odd[0, 0] -= 1 << (30 - MOST_FRACTION_BITS)
    query = MomentsQuery(Clip(Fraction(2), bias=False), 1, 3)
    one = 1 << MOST_FRACTION_BITS
    sums = query.sums(Records(odd, ones.labels, ones.usable), MOST_FRACTION_BITS)
    exact = (BLOCK_ROWS - 1) * one**2
    assert sums.tolist() == [
        BLOCK_ROWS * one - 1,
        BLOCK_ROWS * one,
        5 * (exact + (one - 1) ** 2),
        7 * (exact + (one - 1) * one),
        5 * BLOCK_ROWS * one**2,
    ]
    assert BLOCK_ROWS * one**2 <= 1 << 53 < 4 * BLOCK_ROWS * one**2


def test_unusable_rows_add_zero_moments():
    held = party(60, 7, unusable=0.4)
    kept = Records(held.features[held.usable], held.labels[held.usable], held.usable[held.usable])
    assert 0 < kept.rows < 60
    assert np.array_equal(QUERY.sums(held, BITS), QUERY.sums(kept, BITS))


@pytest.mark.parametrize("query", [QUERY, BARE], ids=["bias", "no bias"])
def test_decoding_inverts_a_contribution(query):
    held = party(300, 9, unusable=0.0)
    edge_sum, products = query.decode(query.sums(held, BITS), BITS)
    edges = held.labels[:, None] * (held.features / ONE)
    free = edges[:, :-1] if query.clip.bias else edges
    most = (49 / 16 - query.clip.bias) ** 0.5
    free *= np.minimum(1, most / np.linalg.norm(free, axis=1))[:, None]
    clipped = np.column_stack([free, edges[:, -1]]) if query.clip.bias else free
    # Two truncations, each below a unit, for each record.
    assert np.abs(edge_sum - clipped.sum(axis=0)).max() < 2 * 300 / 2**BITS
    expected = clipped.T @ clipped
    if query.clip.bias:
        assert products[-1, -1] == 0
        expected[-1, -1] = 0
    assert np.abs(products - expected).max() < 4 * 300 / 2**BITS
    assert np.array_equal(products, products.T)
    # Both are far from zero, so that a wrong weight or unit would show.
    assert np.abs(edge_sum).max() > 1
    assert np.abs(expected).max() > 10


def test_weights_and_units_are_taken_out_again():
    query = MomentsQuery(Clip(Fraction(2), bias=True), 10, 3)
    edge_sum, products = query.decode(np.array([10 << 4, 30 << 4, 5 << 8, 21 << 8], dtype=np.int64), 4)
    assert edge_sum.tolist() == [1.0, 3.0]
    assert products.tolist() == [[1.0, 3.0], [3.0, 0.0]]


def test_moments_report_the_rows_the_bound_and_the_noise():
    held = party(50, 1)
    moments = QUERY.moments(QUERY.sums(held, BITS), BITS, rows=50, parties=4)
    assert (moments.rows, moments.bias, moments.norm_bound, moments.d) == (50, True, 1.75, 5)
    # The square of the bias is public: the row count, without noise.
    assert moments.product_sum[-1, -1] == 50
    assert moments.product_noise[-1, -1] == 0
    sigma = 40 * 4**0.5
    assert moments.edge_noise == pytest.approx(sigma / 11 / 2**BITS, rel=1e-12)
    assert moments.product_noise[0, 0] == pytest.approx(sigma / 5 / 4**BITS, rel=1e-12)
    assert moments.product_noise[0, 1] == moments.product_noise[1, 0]
    assert moments.product_noise[-1, 0] == pytest.approx(sigma / 7 / 4**BITS, rel=1e-12)
    bare = BARE.moments(BARE.sums(held, BITS), BITS, rows=50, parties=4)
    assert not bare.bias
    assert bare.product_noise[-1, -1] == pytest.approx(sigma / 5 / 4**BITS, rel=1e-12)
    # Without a bias it is a square like any other.
    assert bare.product_sum[-1, -1] == BARE.decode(BARE.sums(held, BITS), BITS)[1][-1, -1] > 30


@given(st.integers(1, 300), st.booleans())
def test_length_and_coordinates_are_inverse(d, bias):
    query = QUERY if bias else BARE
    length = query.length(d)
    assert length == d + d * (d + 1) // 2 - bias
    assert query.coordinates(length) == d
    assert query.shape(d) == (length,)
    for wrong in (length - 1, length + 1):
        if wrong not in (query.length(1), query.length(2)):
            with pytest.raises(ShapeError, match="not a total of moments"):
                query.coordinates(wrong)


def test_a_total_of_an_impossible_length_is_refused():
    for wrong in (0, 2, 10):
        with pytest.raises(ShapeError):
            QUERY.decode(np.zeros(wrong, dtype=np.int64), BITS)


@pytest.mark.parametrize(("multiplier", "place"), [(1, 3), (100_000, 0)])
def test_largest_sum_is_reached_and_not_exceeded(multiplier, place):
    query = MomentsQuery(Clip(Fraction(5), bias=True), multiplier, 3)
    ones = Records(np.full((9, 3), ONE, np.int32), np.ones(9, np.int8), np.ones(9, bool))
    bound = query.largest_sum(QueryLimits(9, 2, 3), BITS) - tail_bound(3, 2, query.length(3))
    reached = query.sums(ones, BITS)
    assert np.abs(reached).max() == bound
    assert int(np.abs(reached).argmax()) <= place + 1
    for seed in range(5):
        contribution = query.contribution(party(9, seed, 3), BITS, Computation(SeededRandom(seed)))
        assert np.abs(contribution).max() <= query.largest_sum(QueryLimits(9, 2, 3), BITS)


def test_largest_sum_grows_with_the_crowd():
    limits = QueryLimits(1000, 5, 5)
    grown = [QueryLimits(1001, 5, 5), QueryLimits(1000, 50, 5), QueryLimits(1000, 5, 500)]
    assert all(QUERY.largest_sum(more, BITS) > QUERY.largest_sum(limits, BITS) for more in grown)


def test_progress_reaches_the_end():
    reported: list[tuple[int, int]] = []
    QUERY.contribution(
        party(BLOCK_ROWS + 3, 1), BITS, Computation(SeededRandom(1), progress=lambda *at: reported.append(at))
    )
    assert reported == [(BLOCK_ROWS, BLOCK_ROWS + 3), (BLOCK_ROWS + 3, BLOCK_ROWS + 3)]


def test_it_is_a_sum_query_and_refuses_nonsense():
    query: SumQuery[object] = QUERY
    assert query.length(3) == 8
    clip = Clip(Fraction(2), bias=True)
    for multiplier, sigma in ((0, 3), (-1, 3), ((1 << 48) + 1, 3), (1, 2), (1, (1 << 48) + 1), (1, 3.5)):
        with pytest.raises(PlanError):
            MomentsQuery(clip, multiplier, sigma)
    for bits in (-1, MOST_FRACTION_BITS + 1):
        with pytest.raises(PlanError, match="0 to 20"):
            QUERY.sums(party(3, 1), bits)
        with pytest.raises(PlanError, match="0 to 20"):
            QUERY.largest_sum(QueryLimits(3, 1, 5), bits)
