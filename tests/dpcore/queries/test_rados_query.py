"""The rados query: what each design sums, the noise it adds, and the distribution it reports."""

import math
import pickle
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.dp_feat import truncation
from dpcore.errors import ConfigurationError, PlanError, ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.kind import QueryLimits, SumQuery
from dpcore.queries.rados import RadosQuery
from dpcore.rados import signatures, sums
from dpcore.rados.designs import (
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    JointDesign,
    PlainDesign,
    SensitiveFeature,
)
from dpcore.rados.signatures import GivenSignatures, signatures_of, whole
from dpcore.rados.sums import NoisedTable
from dpcore.randomness.noise import tail_bound
from dpcore.randomness.sources import SeededRandom
from dpcore.records import computation
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation, PartySecret, RowSums, sum_on_threads
from dpcore.records.records import BLOCK_ROWS, Records, edges

BITS = 16
SMOKER = SensitiveFeature(1, "smoker")
PLAIN, DP_FEAT = PlainDesign((1,)), DpFeatDesign((SMOKER,), Fraction(1))
CLIP = Clip(Fraction(5, 4), bias=True)
GAUSSIAN = GaussianDesign(CLIP, 30)
SUBSAMPLED = GaussianDesign(CLIP, 30, Fraction(1, 3))
JOINT = JointDesign("column", (0, 3), 2, 30)
FIXED = FixedSupportDesign(Fraction(1, 3), CLIP, 30)
BARE = FixedSupportDesign(Fraction(1, 3), CLIP, 0)
DESIGNS = {
    "plain": PLAIN,
    "dp-feat": DP_FEAT,
    "several": DpFeatDesign((SensitiveFeature(0, "age", rounded=True), SMOKER)),
    "joint": JOINT,
    "gaussian": GAUSSIAN,
    "subsampled": SUBSAMPLED,
    "fixed": FIXED,
    "bare": BARE,
}
ALL = pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS.keys())


def party(rows: int, seed: int, unusable: float = 0.1) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE, size=(rows, 5), endpoint=True).astype(np.int32)
    features[:, 1] = generator.choice([-ONE, ONE], size=rows)
    features[:, 4] = ONE
    labels = generator.choice([-1, 1], size=rows).astype(np.int8)
    usable = generator.random(rows) > unusable
    features[~usable], labels[~usable] = 0, 1
    return Records(features, labels, usable)


PARTIES = [party(rows, seed) for seed, rows in enumerate((17, 64, 9, 130))]


def secret_of(number: int) -> PartySecret:
    return PartySecret(bytes([number]) * 32, b"s" * 32)


def noise_of(design, rados: int, random: SeededRandom) -> np.ndarray:
    """The share of noise, drawn after the sums from the same source of randomness."""
    noise = np.zeros((rados, 5), dtype=np.int64)
    RadosQuery(rados, design).add_noise(noise, random)
    return noise


def summed_by_hand(design, held: Records, number: int) -> np.ndarray:
    """The edges that enter a rado, from their definition: (m, d)."""
    secret = secret_of(number)
    prepared = RadosQuery(1, design).prepare(held, BITS, secret)
    sensitive = {PlainDesign: PLAIN.booleans, DpFeatDesign: getattr(design, "coordinates", ())}.get(type(design), ())
    whole = np.concatenate([block for _, block in edges(prepared.records, BITS, sensitive)])
    if isinstance(design, GaussianDesign | FixedSupportDesign):
        whole = np.array([CLIP.apply(row[np.newaxis], BITS)[0] for row in whole])
    if design is FIXED:
        whole = whole + NoisedTable.of(held, design, BITS, secret).noise(0, whole.shape)
    return whole


@ALL
def test_federated_sums_equal_the_pooled_rados(design):
    """P6: parties of unequal size, row counts that are not multiples of 8, some rows not usable."""
    query = RadosQuery(40, design)
    total, expected = np.zeros(200, dtype=np.int64), np.zeros((40, 5), dtype=np.int64)
    bits, summed = [], []
    for number, held in enumerate(PARTIES):
        total += query.contribution(held, BITS, Computation(SeededRandom(number), secret_of(number)))
        random = SeededRandom(number)
        prepared = query.prepare(held, BITS, secret_of(number))
        drawn = whole(signatures_of(design, prepared.records, 40, random))
        bits.append(np.unpackbits(drawn, axis=1, count=held.rows, bitorder="little"))
        summed.append(summed_by_hand(design, held, number))
        expected += noise_of(design, 40, random)
    expected += np.concatenate(bits, axis=1).astype(np.int64) @ np.concatenate(summed)
    assert np.array_equal(query.integers(total), expected)


@pytest.mark.parametrize("design", [PLAIN, DP_FEAT, GAUSSIAN, BARE], ids=["plain", "dp-feat", "gaussian", "bare"])
def test_one_pool_of_records_sums_to_the_same(design):
    """The parties' sums for given rado signatures equal the pool's for the concatenated ones."""
    pooled = Records(
        *(np.concatenate([getattr(held, name) for held in PARTIES]) for name in ("features", "labels", "usable"))
    )
    generator, query = np.random.default_rng(4), RadosQuery(12, design)
    chosen = [generator.integers(0, 2, size=(12, held.rows)).astype(np.uint8) for held in PARTIES]
    parts = [
        query.prepare(held, BITS).sums_of(np.packbits(bits, axis=1, bitorder="little"))
        for held, bits in zip(PARTIES, chosen, strict=True)
    ]
    joined = np.packbits(np.concatenate(chosen, axis=1), axis=1, bitorder="little")
    assert np.array_equal(sum(parts), query.prepare(pooled, BITS).sums_of(joined))


def test_edges_are_clipped_before_they_are_summed():
    """Fails if sums are clipped, or nothing is: the sum of many short edges is longer than the clipping norm."""
    held = party(200, 8)
    everything = np.packbits(np.ones((1, 200), dtype=np.uint8), axis=1, bitorder="little")
    single = np.packbits(np.eye(200, dtype=np.uint8), axis=1, bitorder="little")
    prepared = RadosQuery(1, GAUSSIAN).prepare(held, BITS)
    rows = prepared.sums_of(single)
    assert (rows**2).sum(axis=1).max() <= CLIP.squared_units(BITS)
    assert np.array_equal(rows.sum(axis=0), prepared.sums_of(everything)[0])
    unclipped = RadosQuery(1, PLAIN).prepare(held, BITS).sums_of(single)
    assert ((unclipped**2).sum(axis=1) > CLIP.squared_units(BITS)).mean() > 0.5


@pytest.mark.parametrize("design", [JOINT, GAUSSIAN], ids=["joint", "gaussian"])
def test_noise_is_added_after_the_sums_if_the_design_has_noise(design):
    noise = noise_of(design, 200, SeededRandom(3))
    noised = list(range(5)) if design is GAUSSIAN else [0, 3]
    assert (noise[:, noised] != 0).mean() > 0.9
    assert not np.delete(noise, noised, axis=1).any()
    assert 25 < noise[:, noised].std() < 35
    for quiet in (PLAIN, DP_FEAT, FIXED, BARE):
        assert not noise_of(quiet, 20, SeededRandom(3)).any()


@pytest.mark.parametrize("design", [SUBSAMPLED, FIXED, BARE], ids=["subsampled", "fixed", "bare"])
def test_a_rado_takes_exactly_its_share_of_a_partys_rows(design):
    """The bias of unclipped rows counts the selected rows."""
    held = party(31, 3)
    features = np.zeros_like(held.features)
    features[:, 4] = ONE
    counted = Records(features, np.ones(31, np.int8), np.ones(31, bool))
    query = RadosQuery(50, design)
    bias = (
        query.integers(query.contribution(counted, BITS, Computation(SeededRandom(1), secret_of(1))))[:, 4] / 2.0**BITS
    )
    # Noise of 30 units is far below a record, which is 65,536.
    assert np.round(bias).tolist() == [10] * 50
    assert (bias == 10).all() == (design is BARE)


@ALL
def test_a_secret_is_required_only_where_draws_repeat(design):
    query, repeats = RadosQuery(3, design), design is FIXED or bool(getattr(design, "rounded", ()))
    if repeats:
        with pytest.raises(ConfigurationError, match="secret"):
            query.contribution(PARTIES[1], BITS, Computation(SeededRandom(1)))
    else:
        without = query.contribution(PARTIES[1], BITS, Computation(SeededRandom(1)))
        assert np.array_equal(without, query.contribution(PARTIES[1], BITS, Computation(SeededRandom(1), secret_of(1))))


def in_runs(blocks: int, threads: int) -> RowSums:
    """Runs of a given number of blocks, in reverse order, on a given number of threads."""

    def summed(part, records, progress=None):
        part = pickle.loads(pickle.dumps(part))
        starts = list(range(0, records.rows, blocks * BLOCK_ROWS))[::-1]

        def run(first: int) -> np.ndarray:
            total = np.zeros(part.shape, dtype=np.int64)
            part.add(total, records.between(first, first + blocks * BLOCK_ROWS), first)
            return total

        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(run, starts))

    return summed


LARGE = party(4 * BLOCK_ROWS + 77, 9)
WAYS = [sum_on_threads, in_runs(1, 1), in_runs(1, 4), in_runs(2, 2), in_runs(3, 4), in_runs(9, 1)]
NARROW = {
    "most admitted": DpFeatDesign((SMOKER,), Fraction(3, 100)),
    "few admitted": DpFeatDesign((SMOKER,), Fraction(3, 1000)),
}


@pytest.mark.variants(4)
@pytest.mark.parametrize("design", (DESIGNS | NARROW).values(), ids=(DESIGNS | NARROW).keys())
def test_a_contribution_is_its_definition_on_any_threads_and_in_any_runs(design):
    """Bit for bit: the same rado signatures drawn whole, times the edges; noise is drawn after them."""
    query, random = RadosQuery(21, design), SeededRandom(7)
    held = query.prepare(LARGE, BITS, secret_of(2)).records
    bits = np.unpackbits(whole(signatures_of(design, held, 21, random)), axis=1, count=held.rows, bitorder="little")
    sensitive = {PlainDesign: PLAIN.booleans, DpFeatDesign: getattr(design, "coordinates", ())}.get(type(design), ())
    expected = np.zeros((21, 5), dtype=np.int64)
    for first, block in edges(held, BITS, sensitive):
        summed = CLIP.apply(block, BITS) if isinstance(design, GaussianDesign | FixedSupportDesign) else block
        if design is FIXED:
            table = NoisedTable.of(LARGE, design, BITS, secret_of(2))
            summed = summed + table.noise(first, summed.shape)
        expected += bits[:, first : first + len(block)].astype(np.int64) @ summed
    query.add_noise(expected, random)
    # Rounding is slow and does not depend on threads.
    for way in WAYS if design is not DESIGNS["several"] else WAYS[:2]:
        found = query.contribution(LARGE, BITS, Computation(SeededRandom(7), secret_of(2), way))
        assert np.array_equal(found.reshape(21, 5), expected)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 100), Fraction(1, 500)])
def test_summing_candidates_or_counting_first_gives_the_same(epsilon, monkeypatch):
    """The same draws give the same rado signatures, whichever method is cheaper for the truncation."""
    design, held = DpFeatDesign((SMOKER,), epsilon), party(2 * BLOCK_ROWS + 3, 4)
    monkeypatch.setattr(signatures, "CANDIDATE_BYTES", 512 * 20)
    found = []
    for most in (0.0, 1e9):
        monkeypatch.setattr(sums, "_MOST_DRAWS_SUMMED", most)
        found.append(RadosQuery(30, design).contribution(held, BITS, Computation(SeededRandom(5))))
    assert np.array_equal(*found)
    chosen = whole(signatures_of(design, held, 30, SeededRandom(5)))
    assert np.array_equal(RadosQuery(30, design).prepare(held, BITS).sums_of(chosen).reshape(-1), found[0])


def test_truncated_sums_count_rows_that_are_not_usable_as_plus_one():
    """A truncation to two thirds of the spread: with a wrong k, rados outside it would be kept."""
    held, low = party(999, 12, unusable=0.4), truncation(999, Fraction(2, 25))[0]
    design = DpFeatDesign((SMOKER,), Fraction(2, 25))
    totals = RadosQuery(400, design).contribution(held, BITS, Computation(SeededRandom(5))).reshape(400, 5)
    positive = np.where(held.usable, held.features[:, 1].astype(np.int64) * held.labels > 0, True)
    k = (totals[:, 1] >> BITS) + np.count_nonzero(~positive)
    assert low <= k.min() < low + 5 < 999 - low - 5 < k.max() <= 999 - low


@pytest.mark.parametrize("name", ["plain", "dp-feat", "subsampled", "few admitted"])
def test_memory_is_for_sums_and_blocks_not_for_signatures(name, monkeypatch):
    monkeypatch.setattr(computation, "processors", lambda: 2)
    rows, n = 1 << 18, 2000
    features = np.full((rows, 2), ONE, dtype=np.int32)
    held = Records(features, np.ones(rows, np.int8), np.ones(rows, bool))
    design = {
        "plain": PlainDesign((0,)),
        "dp-feat": DpFeatDesign((SensitiveFeature(0, "s"),), Fraction(1)),
        "few admitted": DpFeatDesign((SensitiveFeature(0, "s"),), Fraction(1, 400)),
        "subsampled": GaussianDesign(Clip(Fraction(2), bias=False), 30, Fraction(1, 3)),
    }[name]
    RadosQuery(1, design).contribution(held.between(0, 5000), 4, Computation(SeededRandom(1)))
    tracemalloc.start()
    RadosQuery(n, design).contribution(held, 4, Computation(SeededRandom(1)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # All bits are 65 MB, or four times that of candidates. A block is 1 MB, or 4 MB of candidates, on each thread.
    assert peak < (24 if name == "few admitted" else 8) << 20


def test_work_that_is_stopped_stops(monkeypatch):
    monkeypatch.setattr(computation, "processors", lambda: 2)
    before = threading.active_count()
    for design in (PLAIN, NARROW["most admitted"], NARROW["few admitted"], FIXED):
        reported = []

        def stop(done: int, of: int, reported=reported) -> None:
            reported.append((done, of))
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            RadosQuery(3, design).contribution(LARGE, BITS, Computation(SeededRandom(1), secret_of(1), progress=stop))
        assert len(reported) == 1
        assert threading.active_count() == before


@ALL
def test_contribution_is_bounded_by_largest_sum(design):
    query, held = RadosQuery(20, design), party(50, 1)
    assert query.length(5) == 100
    assert query.shape(5) == (20, 5)
    bound = query.largest_sum(QueryLimits(50, 1, 5), BITS)
    noise = {JOINT: (30, 1), GAUSSIAN: (30, 1), SUBSAMPLED: (30, 1), FIXED: (30, 50)}.get(design)
    assert bound == (50 << BITS) + (tail_bound(*noise, 100) if noise else 0)
    assert np.abs(query.contribution(held, BITS, Computation(SeededRandom(1), secret_of(1)))).max() <= bound
    if noise:
        assert bound < query.largest_sum(QueryLimits(50, 1, 500), BITS)
        wider = QueryLimits(50, 4, 5) if design is not FIXED else QueryLimits(200, 1, 5)
        assert query.largest_sum(wider, BITS) - (wider.rows << BITS) == pytest.approx(
            2 * (bound - (50 << BITS)), rel=0.01
        )


def test_the_bound_is_reached():
    ones = Records(np.full((8, 1), ONE, dtype=np.int32), np.ones(8, dtype=np.int8), np.ones(8, dtype=np.bool_))
    query, everything = RadosQuery(1, PlainDesign()), np.array([[0xFF]], dtype=np.uint8)
    assert query.prepare(ones, BITS).sums_of(everything)[0, 0] == query.largest_sum(QueryLimits(8, 1, 1), BITS)


def test_the_distribution_of_rados_is_that_of_the_design():
    unit = 900 / 4.0**BITS
    for design in (PLAIN, DP_FEAT):
        distribution = RadosQuery(1, design).distribution(5, (120, 60, 240), BITS)
        assert (distribution.inclusion, distribution.fixed_support) == (0.5, False)
        assert distribution.rado_noise is distribution.edge_noise is distribution.rounding is None
        assert (distribution.central is None) == (design is PLAIN)
    several = RadosQuery(1, DESIGNS["several"]).distribution(5, (120, 60, 240), BITS)
    assert several.rounding.tolist() == [True, False, False, False, False]
    assert several.rado_noise is None
    joint = RadosQuery(1, JOINT).distribution(5, (120, 60, 240), BITS)
    assert joint.rado_noise.tolist() == pytest.approx([3 * unit, 0, 0, 3 * unit, 0])
    gaussian = RadosQuery(1, GAUSSIAN).distribution(5, (120, 60, 240), BITS)
    assert gaussian.rado_noise.tolist() == pytest.approx([3 * unit] * 5)
    assert (gaussian.inclusion, gaussian.fixed_support) == (0.5, False)
    subsampled = RadosQuery(1, SUBSAMPLED).distribution(5, (120, 60, 240), BITS)
    assert subsampled.rado_noise.tolist() == pytest.approx([3 * unit] * 5)
    assert (subsampled.inclusion, subsampled.fixed_support) == (1 / 3, True)
    # A table's noise is each party's own: it does not grow with their number.
    fixed = RadosQuery(1, FIXED).distribution(5, (120, 60, 240), BITS)
    assert fixed.edge_noise.tolist() == pytest.approx([unit] * 5)
    assert (fixed.inclusion, fixed.fixed_support, fixed.rado_noise) == (1 / 3, True, None)


def test_the_distribution_gives_the_variance_of_a_truncated_count():
    """Against the definition: k is binomial given low <= k <= m - low, coins exchangeable given k."""
    tight = Fraction(1, 10)

    def correlation(rows):
        low, high = truncation(rows, tight)
        k = np.arange(low, high + 1)
        mass = np.array([math.comb(rows, value) for value in k], dtype=float)
        # E[c_i c_l] of two of the m coins is ((2k - m)^2 - m) / (m (m - 1)).
        return float(mass @ ((2.0 * k - rows) ** 2 - rows)) / mass.sum() / rows / (rows - 1)

    sizes = (120, 60, 240)
    sensitive = (SensitiveFeature(1, "s", rounded=True),)
    local = RadosQuery(1, DpFeatDesign(sensitive, tight)).distribution(5, sizes, BITS)
    assert local.central.coordinate == 1
    assert local.central.correlation == pytest.approx(sum(m * correlation(m) for m in sizes) / 420, rel=1e-9)
    assert local.rounding.tolist() == [False, True, False, False, False]
    pooled = RadosQuery(1, DpFeatDesign(sensitive, tight, "exact")).distribution(5, sizes, BITS)
    assert pooled.central.correlation == pytest.approx(correlation(420), rel=1e-9)
    assert RadosQuery(1, DpFeatDesign(sensitive)).distribution(5, sizes, BITS).central is None


def test_decoding_divides_by_the_unit():
    query = RadosQuery(2, PlainDesign())
    total = np.array([1 << 16, -(1 << 15), 0, 3 << 16], dtype=np.int64)
    assert query.decode(total, 16).tolist() == [[1.0, -0.5], [0.0, 3.0]]
    for bad in (total[:3], total[:0], total.reshape(2, 2)):
        with pytest.raises(ShapeError):
            query.decode(bad, 16)


@pytest.mark.parametrize("design", (DESIGNS | NARROW).values(), ids=(DESIGNS | NARROW).keys())
def test_progress_ascends_to_the_end(design):
    reported: list[tuple[int, int]] = []
    RadosQuery(30, design).contribution(
        LARGE, BITS, Computation(SeededRandom(1), secret_of(1), progress=lambda *at: reported.append(at))
    )
    done = [rows for rows, _ in reported]
    assert done == sorted(done)
    assert reported[-1] == (LARGE.rows, LARGE.rows)
    assert {of for _, of in reported} == {LARGE.rows}
    assert len(set(done)) > 3


def test_it_is_a_sum_query_and_refuses_nonsense():
    query: SumQuery[np.ndarray] = RadosQuery(1, PlainDesign())
    assert query.length(3) == 3
    with pytest.raises(PlanError):
        RadosQuery(0, PlainDesign())
    prepared = RadosQuery(1, PlainDesign()).prepare(party(9, 1), BITS)
    for shape in ((1, 1), (1, 3), (2,)):
        with pytest.raises(ShapeError, match="selection has shape"):
            prepared.sums_of(np.zeros(shape, dtype=np.uint8))
    with pytest.raises(ShapeError, match="8 rows for 9 records"):
        prepared.sums_over(GivenSignatures(8, np.zeros((1, 1), dtype=np.uint8)))
