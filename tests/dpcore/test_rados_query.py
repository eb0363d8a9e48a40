from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import PlanError, ShapeError
from dpcore.queries.base import SumQuery
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import DpFeatDesign, PlainDesign
from dpcore.rados.edges import ONE, Records, edges
from dpcore.rados.signatures import draw
from dpcore.randomness import SeededRandom

FRACTION_BITS = 16
DP_FEAT = DpFeatDesign(1, "smoker", Fraction(1))


def party(rows: int, seed: int) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE, size=(rows, 5), endpoint=True).astype(np.int32)
    features[:, 1] = generator.choice([-ONE, ONE], size=rows)
    features[:, 4] = ONE
    labels = generator.choice([-1, 1], size=rows).astype(np.int8)
    usable = generator.random(rows) > 0.1
    features[~usable], labels[~usable] = 0, 1
    return Records(features, labels, usable)


@pytest.mark.parametrize("design", [PlainDesign(), DP_FEAT])
def test_federated_sums_equal_the_pooled_rados(design):
    """P6: parties of unequal size, row counts that are no multiples of 8, some rows not usable."""
    query = RadosQuery(40, design)
    parties = [party(rows, seed) for seed, rows in enumerate((17, 64, 9, 130))]
    total = sum(query.contribution(held, FRACTION_BITS, SeededRandom(i)) for i, held in enumerate(parties))
    chosen = [
        np.unpackbits(block, axis=1, count=held.rows, bitorder="little")
        for i, held in enumerate(parties)
        for block in [np.concatenate(list(draw(design, held, 40, SeededRandom(i))))]
    ]
    pooled = Records(
        *(np.concatenate([getattr(held, name) for held in parties]) for name in ("features", "labels", "usable"))
    )
    signatures = np.concatenate(chosen, axis=1)
    expected = query.sums_of(pooled, FRACTION_BITS, np.packbits(signatures, axis=1, bitorder="little"))
    assert np.array_equal(query.integers(total), expected)
    sensitive = None if isinstance(design, PlainDesign) else design.sensitive
    whole = np.concatenate([block for _, block in edges(pooled, FRACTION_BITS, sensitive)])
    assert np.array_equal(expected, signatures.astype(np.int64) @ whole)


def test_blocks_of_rows_and_rados_do_not_change_the_sum():
    held, query = party(9000, 3), RadosQuery(3, PlainDesign())
    (selection,) = draw(query.design, held, 3, SeededRandom(7))
    bits = np.unpackbits(selection, axis=1, count=9000, bitorder="little").astype(np.int64)
    (block,) = (block for _, block in edges(held, FRACTION_BITS, None, 16384))
    assert np.array_equal(query.contribution(held, FRACTION_BITS, SeededRandom(7)).reshape(3, 5), bits @ block)


def test_contribution_is_bounded_by_largest_sum():
    query, held = RadosQuery(20, DP_FEAT), party(50, 1)
    assert query.length(5) == 100
    assert query.largest_sum(50, FRACTION_BITS) == 50 << FRACTION_BITS
    assert np.abs(query.contribution(held, FRACTION_BITS, SeededRandom(1))).max() <= query.largest_sum(
        50, FRACTION_BITS
    )
    # The bound is reached: every row selected, with edge 1.
    ones = Records(np.full((8, 1), ONE, dtype=np.int32), np.ones(8, dtype=np.int8), np.ones(8, dtype=np.bool_))
    everything = np.array([[0xFF]], dtype=np.uint8)
    assert RadosQuery(1, PlainDesign()).sums_of(ones, 16, everything)[0, 0] == query.largest_sum(8, 16)


def test_decoding_divides_by_the_unit():
    query = RadosQuery(2, PlainDesign())
    total = np.array([1 << 16, -(1 << 15), 0, 3 << 16], dtype=np.int64)
    assert query.decode(total, 16).tolist() == [[1.0, -0.5], [0.0, 3.0]]
    for bad in (total[:3], total[:0], total.reshape(2, 2)):
        with pytest.raises(ShapeError):
            query.decode(bad, 16)


def test_progress_reaches_the_end():
    told: list[tuple[int, int]] = []
    RadosQuery(30, PlainDesign()).contribution(
        party(20, 1), FRACTION_BITS, SeededRandom(1), lambda done, of: told.append((done, of))
    )
    assert told[-1] == (30, 30)


def test_it_is_a_sum_query_and_refuses_nonsense():
    query: SumQuery[np.ndarray] = RadosQuery(1, PlainDesign())
    assert query.length(3) == 3
    with pytest.raises(PlanError):
        RadosQuery(0, PlainDesign())
    with pytest.raises(ShapeError):
        RadosQuery(1, PlainDesign()).sums_of(party(9, 1), 16, np.zeros((1, 1), dtype=np.uint8))
