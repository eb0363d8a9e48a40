"""Designs for a schema, errors if the schema does not allow one, and errors for fields out of range."""

import time
from fractions import Fraction

import pytest

from dpcore.errors import PlanError, SchemaError
from dpcore.rados.designs import (
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    JointDesign,
    PlainDesign,
    SensitiveFeature,
    dp_feat_design,
    joint_design,
    plain_design,
    squared_range,
)
from dpcore.randomness.noise import LARGEST_SIGMA
from dpcore.records.clipping import Clip
from dpcore.records.schema import BooleanFeature, CategoryFeature, Label, RealFeature, Schema, ThresholdFeature

SCHEMA = Schema(
    name="stays",
    label=Label(column="stayed", positive=("yes",)),
    features=(
        RealFeature(name="age", lower=0, upper=100),
        CategoryFeature(name="ward", values=("a", "b", "c")),
        BooleanFeature(name="smoker", true=("y",), false=("n",)),
        ThresholdFeature(name="heavy", column="weight", threshold=90),
        RealFeature(name="pulse", lower=0, upper=200),
        BooleanFeature(name="fast", column="rhythm", true=("f",), false=("s",)),
        CategoryFeature(name="rhythm", values=("f", "s")),
    ),
)
# age 0, ward 1 to 3, smoker 4, heavy 5, pulse 6, fast 7, rhythm 8 and 9, bias 10.
CLIP = Clip(Fraction(2), bias=True)


def test_designs_of_thousands_of_features_are_quickly_made():
    """A schema may come from a peer: no step may take time quadratic in its size."""
    names = [f"b{i:x}" for i in range(4000)]
    features = [BooleanFeature(name=name, true=("y",), false=("n",)) for name in names]
    schema = Schema(name="wide", label=SCHEMA.label, features=tuple(features))
    begun = time.process_time()
    assert plain_design(schema).booleans == tuple(range(4000))
    assert dp_feat_design(schema, names).names == tuple(names)
    assert time.process_time() - begun < 0.5
    for call in (lambda: joint_design(schema, "none", 5), lambda: dp_feat_design(schema, ["bias"])):
        with pytest.raises(PlanError, match=r"bb, \.\.\.") as caught:
            call()
        assert len(str(caught.value)) < 300


def test_plain_rados_know_the_boolean_coordinates():
    # Not "fast", which the one-hot coding of its column reveals.
    assert plain_design(SCHEMA) == PlainDesign((4, 5))
    reals = Schema(name="s", label=SCHEMA.label, features=SCHEMA.features[:2])
    assert plain_design(reals) == PlainDesign(())


def test_sensitive_features_stand_in_the_order_of_their_coordinates():
    design = dp_feat_design(SCHEMA, ["pulse", "smoker", "age"], rounded=["age", "pulse"])
    assert design.names == ("age", "smoker", "pulse")
    assert design.coordinates == (0, 4, 6)
    assert design.rounded == (0, 6)
    assert design.epsilon_per_rado is None
    assert dp_feat_design(SCHEMA, ["smoker"], Fraction(1, 2), split="exact") == DpFeatDesign(
        (SensitiveFeature(4, "smoker"),), Fraction(1, 2), "exact"
    )
    assert dp_feat_design(SCHEMA, ["heavy"]).coordinates == (5,)


@pytest.mark.parametrize(
    ("sensitive", "rounded", "words"),
    [
        (["age"], [], "rounded to a sign"),
        (["ward=a"], [], "cannot protect it"),
        (["ward=a"], ["ward=a"], "not real-valued"),
        (["smoker"], ["smoker"], "not real-valued"),
        (["smoker"], ["age"], "not named as sensitive"),
        (["bias"], [], "cannot protect it"),
        (["bias"], ["bias"], "not real-valued"),
        # The column's one-hot coding would reveal it.
        (["fast"], [], "rhythm=f, rhythm=s derives from 'rhythm'"),
        (["smoker", "smoker"], [], "twice"),
        ([], [], "at least one"),
    ],
)
def test_features_that_cannot_be_protected_are_refused(sensitive, rounded, words):
    with pytest.raises(PlanError, match=words):
        dp_feat_design(SCHEMA, sensitive, rounded=rounded)


def test_a_name_that_is_no_coordinate_is_refused_with_the_nearest():
    with pytest.raises(SchemaError, match="did you mean 'smoker'"):
        dp_feat_design(SCHEMA, ["smokr"])
    with pytest.raises(SchemaError):
        dp_feat_design(SCHEMA, ["ward"])


def test_a_real_feature_that_shares_its_column_is_refused():
    twice = Schema(
        name="s",
        label=SCHEMA.label,
        features=(
            RealFeature(name="age", lower=0, upper=100),
            RealFeature(name="old", column="age", lower=60, upper=100, out_of_bounds="clip"),
        ),
    )
    with pytest.raises(PlanError, match="old derives from 'age' too"):
        dp_feat_design(twice, ["age"], rounded=["age"])
    assert joint_design(twice, "age", 5).coordinates == (0, 1)
    assert squared_range(twice, "age") == 8


def test_a_truncation_is_for_one_feature():
    with pytest.raises(PlanError, match="one feature"):
        dp_feat_design(SCHEMA, ["smoker", "heavy"], Fraction(1, 2))
    assert dp_feat_design(SCHEMA, ["smoker", "heavy"]).names == ("smoker", "heavy")


@pytest.mark.parametrize(
    ("column", "coordinates", "square"),
    [
        ("age", (0,), 4),
        ("ward", (1, 2, 3), 2),
        ("smoker", (4,), 4),
        ("weight", (5,), 4),
        ("rhythm", (7, 8, 9), 6),
    ],
)
def test_a_joint_design_has_every_coordinate_of_its_column(column, coordinates, square):
    assert joint_design(SCHEMA, column, 7) == JointDesign(column, coordinates, square, 7)


@pytest.mark.parametrize("column", ["heavy", "stayed", "bias", "ward=a", ""])
def test_a_column_that_gives_no_feature_is_refused(column):
    with pytest.raises(PlanError, match="no feature derives"):
        joint_design(SCHEMA, column, 7)


BAD_SHARES = [0, 2, -3, LARGEST_SIGMA + 1, 3.5, True, Fraction(7, 2)]


@pytest.mark.parametrize("sigma", BAD_SHARES)
def test_noise_that_is_not_counted_is_refused(sigma):
    for make in (
        lambda: GaussianDesign(CLIP, sigma),
        lambda: JointDesign("c", (0,), 4, sigma),
        # 0 is a table without noise.
        lambda: FixedSupportDesign(Fraction(1, 2), CLIP, sigma or 1),
    ):
        with pytest.raises(PlanError, match="standard deviation"):
            make()


def test_the_ends_of_what_is_counted_are_allowed():
    for sigma in (3, LARGEST_SIGMA):
        assert GaussianDesign(CLIP, sigma).share_sigma == sigma
        assert FixedSupportDesign(Fraction(1, 2), CLIP, sigma).edge_sigma == sigma
    assert FixedSupportDesign(Fraction(1, 2), CLIP, 0).edge_sigma == 0


@pytest.mark.parametrize("fraction", [Fraction(0), Fraction(-1, 2), Fraction(1), Fraction(3, 2), 0.5])
def test_fractions_that_no_rado_can_take_are_refused(fraction):
    with pytest.raises(PlanError):
        FixedSupportDesign(fraction, CLIP, 3)
    with pytest.raises(PlanError):
        GaussianDesign(CLIP, 3, fraction)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PlainDesign((2, 1)),
        lambda: PlainDesign((1, 1)),
        lambda: PlainDesign((-1, 1)),
        lambda: JointDesign("", (0,), 4, 3),
        lambda: JointDesign("c", (), 4, 3),
        lambda: JointDesign("c", (1, 0), 4, 3),
        lambda: JointDesign("c", (1, 1), 4, 3),
        lambda: JointDesign("c", (-1,), 4, 3),
        lambda: JointDesign("c", (0,), 0, 3),
        lambda: FixedSupportDesign(Fraction(1, 2), CLIP, 3, "pooled"),
        lambda: DpFeatDesign((SensitiveFeature(1, "a"),), None, "pooled"),
    ],
)
def test_other_fields_out_of_range_are_refused(make):
    with pytest.raises(PlanError):
        make()
