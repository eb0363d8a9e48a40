import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import PlanError, SchemaError, ShapeError
from dpcore.rados import signatures
from dpcore.rados.clipping import Clip
from dpcore.rados.designs import (
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    JointDesign,
    PlainDesign,
    SensitiveFeature,
)
from dpcore.rados.edges import ONE, Records, sensitive_positive
from dpcore.rados.signatures import RejectionError, draw, expected_draws, packed_width, sensitive_counts
from dpcore.rados.support import SupportError
from dpcore.rados.truncation import EmptyTruncationError, admissible_range, smallest_epsilon_per_rado, truncation
from dpcore.randomness import SeededRandom

VECTORS = Path(__file__).resolve().parents[2] / ".." / "shared" / "vectors" / "dp_feat_exact.json"


def boolean_records(rows: int, seed: int = 5) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.choice([-ONE, ONE], size=(rows, 3)).astype(np.int32)
    labels = generator.choice([-1, 1], size=rows).astype(np.int8)
    return Records(features, labels, np.ones(rows, dtype=np.bool_))


def dp_feat(epsilon: Fraction | None, *sensitive: int) -> DpFeatDesign:
    return DpFeatDesign(tuple(SensitiveFeature(j, f"f{j}") for j in sensitive or (0,)), epsilon)


CLIP = Clip(Fraction(2), bias=False)
FIXED = FixedSupportDesign(Fraction(1, 2), CLIP, 0)


def drawn(design, held, rados, seed=1, **options) -> np.ndarray:
    return np.concatenate(list(draw(design, held, rados, SeededRandom(seed), **options)))


def test_truncation_agrees_with_the_vectors():
    if not VECTORS.exists():
        pytest.skip("the shared vectors are not beside this checkout")
    for vector in json.loads(VECTORS.read_text()):
        epsilon = Fraction(str(vector["epsilon_per_rado"]))
        assert admissible_range(vector["m"], epsilon) == (vector["k_low"], vector["k_high"])


@given(st.integers(1, 10**7), st.fractions(min_value=Fraction(1, 10**6), max_value=50, max_denominator=10**6))
def test_truncation_is_the_least_integer_inside(rows, epsilon):
    low, high = admissible_range(rows, epsilon)
    beta_times = (rows + 1) / (1 + math.exp(float(epsilon) / 2))
    assert high == rows - low
    assert low >= 1
    # Doubles carry 53 bits: the exact integers can differ from theirs only where beta (m + 1) is this close to one.
    assert beta_times - 1e-6 <= low <= max(beta_times + 1 + 1e-6, 1)


def test_truncation_where_doubles_would_be_too_wide():
    # The double nearest log 2 is below it, so beta (m + 1) is just above 10^6; in doubles it is 10^6 exactly.
    rows, epsilon = 2_999_999, 2 * Fraction(math.log(2))
    assert math.ceil((rows + 1) / (1 + math.exp(float(epsilon) / 2))) == 1_000_000
    assert admissible_range(rows, epsilon) == (1_000_001, rows - 1_000_001)


def test_truncation_at_extreme_epsilons():
    assert admissible_range(1_999_999, Fraction(1, 10**18)) == (1_000_000, 999_999)
    assert admissible_range(1_999_999, Fraction(10**18)) == (1, 1_999_998)


@pytest.mark.parametrize("rows", [2, 3, 10, 11, 1000, 1001])
def test_smallest_epsilon_is_where_the_range_opens(rows):
    smallest = Fraction(smallest_epsilon_per_rado(rows))
    low, high = admissible_range(rows, smallest)
    assert low <= high
    low, high = admissible_range(rows, smallest * (1 - Fraction(1, 10**6)))
    assert low > high


def test_an_empty_range_is_refused_with_what_works():
    with pytest.raises(EmptyTruncationError) as caught:
        truncation(1000, Fraction(1, 1000))
    assert caught.value.smallest_epsilon == pytest.approx(0.003996, rel=1e-3)
    assert "without truncation" in str(caught.value)
    with pytest.raises(EmptyTruncationError, match="without truncation"):
        truncation(1, Fraction(10))
    with pytest.raises(EmptyTruncationError):
        draw(dp_feat(Fraction(1, 1000)), boolean_records(1000), 1, SeededRandom(1))


def test_no_truncation_admits_everything():
    assert truncation(7, None) == (0, 7)
    for arguments in ((0, None), (0, Fraction(1))):
        with pytest.raises(PlanError):
            truncation(*arguments)


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
        for rows in (1, 7, 8, 9, 64, 65)
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
        # One row admits no truncated signature, and is no support.
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


def test_blocks_are_bounded_and_complete():
    sizes = [len(block) for block in draw(PlainDesign(), boolean_records(80), 25, SeededRandom(2), block_bytes=100)]
    assert sizes == [10, 10, 5]
    tiny = [len(block) for block in draw(dp_feat(Fraction(1)), boolean_records(80), 3, SeededRandom(2), block_bytes=1)]
    assert tiny == [1, 1, 1]


def test_truncated_counts_stay_inside():
    held = boolean_records(101)
    low, high = truncation(101, Fraction(1, 5))
    bits = drawn(dp_feat(Fraction(1, 5)), held, 500)
    k = sensitive_counts(bits, np.packbits(sensitive_positive(held, 0), bitorder="little"), 101)
    assert low <= k.min() <= k.max() <= high
    # Both ends are reached: the range that is drawn from is not narrower than Algorithm 2's.
    assert {int(k.min()), int(k.max())} == {low, high}


def test_expected_draws_is_the_reciprocal_of_the_acceptance():
    exact = Fraction(sum(math.comb(40, k) for k in range(18, 23)), 2**40)
    assert expected_draws(40, 18) == pytest.approx(float(1 / exact), rel=1e-12)
    assert expected_draws(40, 21) == math.inf


def test_too_narrow_a_range_is_refused(monkeypatch):
    monkeypatch.setattr(signatures, "MOST_EXPECTED_DRAWS", 10)
    with pytest.raises(RejectionError, match="tries") as caught:
        draw(dp_feat(Fraction(1, 200)), boolean_records(1000), 1, SeededRandom(1))
    assert caught.value.expected_draws > 10


def test_bad_requests_are_refused_before_anything_is_drawn():
    held = boolean_records(10)
    with pytest.raises(PlanError):
        draw(PlainDesign(), held, 0, SeededRandom(1))
    with pytest.raises(ShapeError):
        draw(PlainDesign(), held, 1, SeededRandom(1), block_bytes=0)
    with pytest.raises(ShapeError):
        draw(dp_feat(None, 3), held, 1, SeededRandom(1))
    features = held.features.copy()
    features[0, 0] = 5
    odd = Records(features, held.labels, held.usable)
    # Its marginal is counted for -1/+1, whichever design names it and in whatever place.
    for design in (dp_feat(None), dp_feat(None, 1, 0), dp_feat(Fraction(3)), PlainDesign((0, 1))):
        with pytest.raises(SchemaError, match="not coded"):
            draw(design, odd, 1, SeededRandom(1))
    for design in (dp_feat(None, 1), PlainDesign((1, 2)), PlainDesign()):
        draw(design, odd, 1, SeededRandom(1))
    with pytest.raises(ShapeError):
        draw(PlainDesign((3,)), held, 1, SeededRandom(1))


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
        draw(design, boolean_records(10), 1, SeededRandom(1))


@pytest.mark.parametrize("design", [FIXED, GaussianDesign(CLIP, 3, Fraction(1, 3))])
def test_a_support_is_met_exactly_in_every_block(design):
    held, size = boolean_records(101), round(design.fraction * 101)
    blocks = list(draw(design, held, 25, SeededRandom(2), block_bytes=130))
    assert [len(block) for block in blocks] == [10, 10, 5]
    assert np.bitwise_count(np.concatenate(blocks)).sum(axis=1).tolist() == [size] * 25


def test_a_support_that_a_party_cannot_give_is_refused_before_anything_is_drawn():
    for design in (FIXED, GaussianDesign(CLIP, 3, Fraction(1, 2))):
        with pytest.raises(SupportError):
            draw(design, boolean_records(1), 1, SeededRandom(1))
