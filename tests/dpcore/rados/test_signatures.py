"""Signatures: descriptions from which any block can be drawn, truncation by rejection, and invalid requests."""

import math
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.dp_feat import EmptyTruncationError, truncation
from dpcore.errors import PlanError, SchemaError, ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.rados import signatures
from dpcore.rados.designs import (
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    JointDesign,
    PlainDesign,
    SensitiveFeature,
)
from dpcore.rados.signatures import (
    AgreeingRows,
    GivenSignatures,
    KeptSignatures,
    RejectionError,
    Truncation,
    UniformSignatures,
    expected_draws,
    sensitive_counts,
    signatures_of,
    whole,
)
from dpcore.rados.support import SupportError, last_byte, ones_per_rado, packed_width, rows_of_block
from dpcore.randomness.sources import KeyedRandom, SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.computation import sum_on_threads
from dpcore.records.records import BLOCK_ROWS, Records, sensitive_positive


def boolean_records(rows: int, seed: int = 5) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.choice([-ONE, ONE], size=(rows, 3)).astype(np.int32)
    labels = generator.choice([-1, 1], size=rows).astype(np.int8)
    return Records(features, labels, np.ones(rows, dtype=np.bool_))


def dp_feat(epsilon: Fraction | None, *sensitive: int) -> DpFeatDesign:
    return DpFeatDesign(tuple(SensitiveFeature(j, f"f{j}") for j in sensitive or (0,)), epsilon)


CLIP = Clip(Fraction(2), bias=False)
FIXED = FixedSupportDesign(Fraction(1, 2), CLIP, 0)


def drawn(design, held, rados, seed=1) -> np.ndarray:
    return whole(signatures_of(design, held, rados, SeededRandom(seed)))


def test_signatures_that_no_truncation_admits_are_refused():
    with pytest.raises(EmptyTruncationError):
        signatures_of(dp_feat(Fraction(1, 1000)), boolean_records(1000), 1, SeededRandom(1))


@given(st.integers(1, 70), st.integers(1, 9), st.integers(0, 2**16), st.data())
def test_counts_agree_with_their_definition(rows, rados, seed, data):
    generator = np.random.default_rng(seed)
    chosen = generator.integers(0, 2, size=(rados, rows)).astype(np.uint8)
    positive = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    naive = (chosen * positive).sum(axis=1) + ((1 - chosen) * ~positive).sum(axis=1)
    packed = np.packbits(chosen, axis=1, bitorder="little")
    counts = sensitive_counts(packed, np.packbits(positive, bitorder="little"), rows)
    assert counts.tolist() == naive.tolist()


@pytest.mark.parametrize(
    ("rows", "design"),
    [
        (rows, design)
        for rows in (1, 7, 8, 9, 64, 65, 4096, 4105)
        for design in (
            PlainDesign(),
            PlainDesign((0, 2)),
            dp_feat(None),
            dp_feat(None, 0, 2),
            dp_feat(Fraction(3)),
            JointDesign("c", (0, 1), 2, 3),
            GaussianDesign(CLIP, 3),
            GaussianDesign(CLIP, 3, Fraction(1, 2)),
            FIXED,
        )
        # One row admits no truncated signature and no support.
        if rows > 1 or not (getattr(design, "epsilon_per_rado", None) or getattr(design, "fraction", None))
    ],
)
def test_draws_have_the_right_shape_and_no_stray_bits(rows, design):
    bits = drawn(design, boolean_records(rows), 33)
    assert bits.shape == (33, packed_width(rows))
    assert bits.dtype == np.uint8
    if rows % 8:
        assert not (bits[:, -1] >> (rows % 8)).any()
    assert len(np.unique(bits, axis=0)) > 1


@pytest.mark.parametrize("rows", [5, 4096, 10_001])
@pytest.mark.parametrize("name", ["uniform", "kept", "given", "subset"])
def test_any_block_can_be_drawn_at_any_time_by_any_process(name, rows):
    held = boolean_records(rows)
    narrow = dp_feat(Fraction(3, 200) if rows > 100 else Fraction(2))
    design = {"kept": narrow, "subset": FIXED}.get(name, PlainDesign())
    description = signatures_of(design, held, 20, SeededRandom(3))
    if name == "given":
        description = GivenSignatures(rows, whole(description))
    assert type(description).__name__.lower().startswith(name)
    assert (description.rows, description.rados) == (rows, 20)
    everything = whole(description)
    elsewhere = pickle.loads(pickle.dumps(description))
    for first in reversed(range(0, rows, BLOCK_ROWS)):
        bits = everything[:, first // 8 : packed_width(min(rows, first + BLOCK_ROWS))]
        block = elsewhere.block(first)
        assert block.flags.c_contiguous
        assert block.dtype == np.uint8
        assert np.array_equal(block.T, bits)
        # The caller owns the result.
        description.block(first)[:] = 0
        assert np.array_equal(description.block(first).T, bits)
    for nowhere in (-BLOCK_ROWS, 8, BLOCK_ROWS - 8, -(-rows // BLOCK_ROWS) * BLOCK_ROWS):
        with pytest.raises(ShapeError, match="no block"):
            description.block(nowhere)


@pytest.mark.parametrize("design", [PlainDesign(), FIXED, dp_feat(Fraction(3, 400))])
def test_nothing_is_drawn_twice(design):
    """No block, round or rado repeats 8 bytes of another: one of the 2^28 pairs does so with probability 2^-36."""
    everything = drawn(design, boolean_records(20_000), 64)
    pieces = np.ascontiguousarray(everything[:, :2496]).view(np.uint64)
    assert len(np.unique(pieces)) == pieces.size


def test_bits_are_the_streams_of_one_key():
    """The layout: block b is the key's stream b, byte [g, j] at g n + j, so that others can draw the same."""
    key = bytes(range(32))
    description = UniformSignatures(2 * BLOCK_ROWS + 13, 3, key)
    for number in (0, 1):
        raw = np.frombuffer(KeyedRandom(key, number).bytes(512 * 3), np.uint8).reshape(512, 3)
        assert np.array_equal(description.block(number * BLOCK_ROWS), raw)
    last = np.frombuffer(KeyedRandom(key, 2).bytes(6), np.uint8).reshape(2, 3) & np.array([[0xFF], [0x1F]], np.uint8)
    assert np.array_equal(description.block(2 * BLOCK_ROWS), last)
    assert repr(key) not in repr(description)


@given(st.integers(1, 5000), st.integers(1, 40), st.integers(0, 2**32))
def test_packed_bits_are_counted(rows, rados, seed):
    bits = np.random.default_rng(seed).integers(0, 2, size=(rows, rados)).astype(np.uint8)
    assert ones_per_rado(np.packbits(bits, axis=0, bitorder="little")).tolist() == bits.sum(axis=0).tolist()
    assert int(last_byte(rows)).bit_count() == (rows - 1) % 8 + 1
    assert rows_of_block(0, rows) == min(rows, BLOCK_ROWS)


def test_a_full_block_is_counted():
    assert ones_per_rado(np.full((512, 2), 0xFF, np.uint8)).tolist() == [4096, 4096]


class TestTruncation:
    """Rejection in rounds: how many candidates, and which of them are kept."""

    held = boolean_records(5000)
    positive = np.packbits(sensitive_positive(held, 0), bitorder="little")

    def draw(self, epsilon, rados):
        """The kept signatures, and the k of all candidates of each round, from whole signatures."""
        seen = []

        def by_hand(candidates):
            seen.append(sensitive_counts(whole(candidates), self.positive, 5000))
            return seen[-1]

        admitted = Truncation.of(dp_feat(epsilon), 5000)
        return admitted, admitted.draw(rados, SeededRandom(5), by_hand), seen

    @pytest.mark.parametrize("epsilon", [Fraction(1, 200), Fraction(1, 50), Fraction(1)])
    def test_the_first_admitted_ones_are_kept_in_order(self, epsilon):
        admitted, kept, seen = self.draw(epsilon, 50)
        expected = []
        for (candidates, _), k in zip(kept.rounds, seen, strict=True):
            expected += list(whole(candidates)[(k >= admitted.low) & (k <= 5000 - admitted.low)])
        assert kept.rados == 50
        assert np.array_equal(whole(kept), expected[:50])

    def test_a_truncation_that_rejects_nothing_draws_nothing_more(self):
        _, kept, (k,) = self.draw(Fraction(1), 1000)
        assert len(k) == 1000
        assert np.array_equal(whole(kept), whole(kept.rounds[0][0]))

    def test_what_is_missing_is_drawn_in_further_rounds(self, monkeypatch):
        monkeypatch.setattr(signatures, "CANDIDATE_BYTES", 512 * 40)
        admitted, kept, seen = self.draw(Fraction(1, 100), 30)
        assert 1.5 < admitted.expected_draws < 100
        assert len(seen) > 1
        assert all(len(k) <= 40 for k in seen)
        assert len({candidates.key for candidates, _ in kept.rounds}) == len(seen)
        assert kept.rados == 30

    def test_enough_are_drawn_at_first(self):
        admitted, _, seen = self.draw(Fraction(1, 200), 200)
        assert admitted.expected_draws > 2
        assert len(seen) == 1
        assert len(seen[0]) < 1.5 * 200 * admitted.expected_draws

    def test_k_is_counted_block_by_block_as_by_definition(self):
        candidates = UniformSignatures(5000, 30, bytes(32))
        k = sum_on_threads(AgreeingRows(candidates, 0), self.held)
        assert k.tolist() == sensitive_counts(whole(candidates), self.positive, 5000).tolist()


def test_a_round_that_keeps_none_gives_none():
    candidates = UniformSignatures(20, 5, bytes(32))
    none, two = np.array([], np.int64), np.array([1, 4])
    kept = KeptSignatures(((candidates, none), (candidates, two)))
    assert np.array_equal(whole(kept), whole(candidates)[[1, 4]])


def test_given_signatures_are_of_the_rows():
    for shape in ((1, 1), (1, 3), (2,)):
        with pytest.raises(ShapeError, match="selection has shape"):
            GivenSignatures(9, np.zeros(shape, dtype=np.uint8))


def test_truncated_counts_stay_inside():
    held = boolean_records(101)
    low, high = truncation(101, Fraction(1, 5))
    bits = drawn(dp_feat(Fraction(1, 5)), held, 500)
    k = sensitive_counts(bits, np.packbits(sensitive_positive(held, 0), bitorder="little"), 101)
    assert low <= k.min() <= k.max() <= high
    # Both ends occur: the range drawn from is not narrower than Algorithm 2's.
    assert {int(k.min()), int(k.max())} == {low, high}


def test_expected_draws_is_the_reciprocal_of_the_acceptance():
    exact = Fraction(sum(math.comb(40, k) for k in range(18, 23)), 2**40)
    assert expected_draws(40, 18) == pytest.approx(float(1 / exact), rel=1e-12)
    assert expected_draws(40, 21) == math.inf


def test_too_narrow_a_range_is_refused(monkeypatch):
    monkeypatch.setattr(signatures, "MOST_EXPECTED_DRAWS", 10)
    with pytest.raises(RejectionError, match="tries") as caught:
        signatures_of(dp_feat(Fraction(1, 200)), boolean_records(1000), 1, SeededRandom(1))
    assert caught.value.expected_draws > 10


def test_bad_requests_are_refused_before_anything_is_drawn():
    held = boolean_records(10)
    with pytest.raises(PlanError):
        signatures_of(PlainDesign(), held, 0, SeededRandom(1))
    with pytest.raises(ShapeError):
        signatures_of(dp_feat(None, 3), held, 1, SeededRandom(1))
    features = held.features.copy()
    features[0, 0] = 5
    odd = Records(features, held.labels, held.usable)
    # The accounting of its marginal assumes -1/+1, in any design and at any place.
    for design in (dp_feat(None), dp_feat(None, 1, 0), dp_feat(Fraction(3)), PlainDesign((0, 1))):
        with pytest.raises(SchemaError, match="not coded"):
            signatures_of(design, odd, 1, SeededRandom(1))
    for design in (dp_feat(None, 1), PlainDesign((1, 2)), PlainDesign()):
        signatures_of(design, odd, 1, SeededRandom(1))
    with pytest.raises(ShapeError):
        signatures_of(PlainDesign((3,)), held, 1, SeededRandom(1))


@pytest.mark.parametrize(
    "fields",
    [
        {"sensitive": ()},
        {"sensitive": (SensitiveFeature(0, "smoker"), SensitiveFeature(0, "again"))},
        {"sensitive": (SensitiveFeature(0, "smoker"), SensitiveFeature(1, "drinker"))},
        {"epsilon_per_rado": Fraction(0)},
        {"epsilon_per_rado": Fraction(-1, 2)},
        {"epsilon_per_rado": 0.5},
        {"epsilon_per_rado": Fraction(1, 2**63)},
        {"split": "pooled"},
    ],
)
def test_designs_that_are_not_valid_are_refused(fields):
    good = {"sensitive": (SensitiveFeature(0, "smoker"),), "epsilon_per_rado": Fraction(1, 2)}
    DpFeatDesign(**good)
    with pytest.raises(PlanError):
        DpFeatDesign(**(good | fields))


@pytest.mark.parametrize(("coordinate", "name"), [(-1, "smoker"), (0, "")])
def test_sensitive_features_that_are_not_valid_are_refused(coordinate, name):
    with pytest.raises(PlanError):
        SensitiveFeature(coordinate, name)


@pytest.mark.parametrize("design", [replace(dp_feat(Fraction(3)), split="exact"), replace(FIXED, split="exact")])
def test_a_party_does_not_draw_what_a_coordinator_divides(design):
    with pytest.raises(PlanError, match="'local'"):
        signatures_of(design, boolean_records(10), 1, SeededRandom(1))


def test_a_support_that_a_party_cannot_give_is_refused_before_anything_is_drawn():
    for design in (FIXED, GaussianDesign(CLIP, 3, Fraction(1, 2))):
        with pytest.raises(SupportError):
            signatures_of(design, boolean_records(1), 1, SeededRandom(1))
