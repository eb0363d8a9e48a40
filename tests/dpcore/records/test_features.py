"""Every type of feature answers what other modules ask of it, and the answers agree with how its cells are encoded."""

import itertools
import typing

import numpy as np
import pytest

from dpcore.records.encoding import Cells, Numbers, Texts, encode, source_of
from dpcore.records.features import (
    FEATURE_TYPES,
    BooleanFeature,
    CategoryFeature,
    DescribedFeature,
    Feature,
    Label,
    RealFeature,
    ThresholdFeature,
)
from dpcore.records.schema import Schema

NUMBERS = (-3.0, -1.0, 0.0, 0.5, 2.0, 7.0)
TEXTS = ("yes", "no", "a", "b", "c", "other")
FEATURES: tuple[Feature, ...] = (
    RealFeature(name="age", lower=-1.0, upper=2.0, out_of_bounds="clip"),
    BooleanFeature(name="smoker", true=("yes", "a"), false=("no",), unknown="zero-vector"),
    CategoryFeature(name="ward", values=("a", "b", "c"), unknown="zero"),
    CategoryFeature(name="one", values=("a",), unknown="zero-vector"),
    ThresholdFeature(name="high", threshold=0.5),
)
by_name = pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)


def schema_of(*features: Feature) -> Schema:
    return Schema(name="s", label=Label(column="label", positive=("1",)), features=features, bias=False)


def cells_of(feature: Feature) -> Cells:
    if source_of(feature).kind == "numbers":
        return Numbers(np.array(NUMBERS), np.zeros(len(NUMBERS), dtype=np.bool_))
    return Texts(np.arange(len(TEXTS)), TEXTS)


def codings(feature: Feature) -> np.ndarray:
    """The codings of cells whose rows are usable: (cells, coordinates)."""
    cells = cells_of(feature)
    rows = len(cells.values) if isinstance(cells, Numbers) else len(cells.codes)
    found = encode(schema_of(feature), {source_of(feature): cells}, rows, label=False)
    return found.x[found.usable]


def test_every_type_is_among_these_examples():
    assert {feature.type for feature in FEATURES} == set(FEATURE_TYPES) == {kind.type for kind in FEATURES}


def test_every_type_answers_everything_itself():
    stated = [
        name for name, hint in DescribedFeature.__annotations__.items() if typing.get_origin(hint) is typing.ClassVar
    ]
    assert len(stated) >= 8
    for kind in FEATURE_TYPES.values():
        assert isinstance(kind, type)
        assert issubclass(kind, DescribedFeature)
        assert set(stated) <= kind.__dict__.keys(), f"{kind.__name__} does not state all of {stated}"


def test_a_type_that_leaves_an_answer_out_cannot_be_used():
    class Half(DescribedFeature):
        """Has coordinates, and no squared range."""

        @property
        def coordinates(self):
            return ("half",)

    with pytest.raises(TypeError, match=r"abstract methods.*squared_range"):
        Half()  # type: ignore[abstract]  # what the test is about


@by_name
def test_no_two_codings_are_further_apart_than_the_squared_range(feature):
    x = codings(feature)
    furthest = max((float(np.square(a - b).sum()) for a, b in itertools.combinations(x, 2)), default=0.0)
    assert furthest <= feature.squared_range
    # A range that is too large would only be a waste.
    assert furthest == feature.squared_range or feature.name == "one"


@by_name
def test_coordinates_are_of_the_stated_form(feature):
    x = codings(feature)
    assert x.shape[1] == len(feature.coordinates)
    if feature.is_one_hot:
        assert set(np.unique(x)) <= {0.0, 1.0}
        assert x.sum(axis=1).max() <= 1.0
    if not feature.scaled_coordinates:
        assert np.square(x).sum(axis=1).max() <= feature.unit_groups
    assert len(feature.coordinates) * feature.mean_square == pytest.approx(
        feature.scaled_coordinates / 3 + feature.unit_groups
    )


@by_name
def test_each_feature_is_in_one_group_of_its_schema(feature):
    schema = schema_of(feature)
    groups = (schema.numbers, schema.flags, schema.categories)
    assert sorted(map(len, groups)) == [0, 0, 1]
    assert [bool(group) for group in groups] == [feature.comparison == each for each in ("number", "flag", "value")]
    assert (feature.bounds is not None) == bool(schema.numbers)


def test_groups_keep_the_schemas_order():
    schema = schema_of(*reversed(FEATURES))
    assert [feature.name for feature in schema.flags] == ["high", "smoker"]
    assert [feature.name for feature in schema.categories] == ["one", "ward"]


@by_name
def test_levels_are_codings_of_cells(feature):
    words, codes = feature.levels
    assert (len(words) == 0) == (feature.bounds is not None)
    assert codes.shape == (len(words), len(feature.coordinates))
    assert {tuple(code) for code in codes} <= {tuple(code) for code in codings(feature)}
    assert {tuple(code) for code in feature.codes} <= {tuple(code) for code in codes}


def test_changes_lead_from_one_cell_to_another():
    expected = {
        "age": [("for each unit more", {"age": 2 / 3})],
        "smoker": [("true instead of false", {"smoker": 2.0})],
        "ward": [
            ("b instead of a", {"ward=b": 1.0, "ward=a": -1.0}),
            ("c instead of a", {"ward=c": 1.0, "ward=a": -1.0}),
        ],
        "one": [],
        "high": [("at least 0.5", {"high": 2.0})],
    }
    found = {feature.name: [(words, dict(weights)) for words, weights in feature.changes] for feature in FEATURES}
    assert found == expected
    # A real feature's start is its coordinate at 0.
    starts = {feature.name: dict(feature.start) for feature in FEATURES}
    assert starts == {
        "age": {"age": pytest.approx(-1 / 3)},
        "smoker": {"smoker": -1.0},
        "ward": {"ward=a": 1.0},
        "one": {"one=a": 1.0},
        "high": {"high": -1.0},
    }


@by_name
def test_made_up_cells_have_codings_of_cells(feature):
    drawn = feature.draw(np.random.default_rng(1), 500)
    assert drawn.shape == (500, len(feature.coordinates))
    if feature.bounds is None:
        possible = {tuple(code) for code in feature.codes} | (
            {(0.0,) * drawn.shape[1]} if feature.is_one_hot else set()
        )
        assert {tuple(row) for row in drawn} == possible
    else:
        assert (drawn.min() < -0.9, drawn.max() > 0.9, np.abs(drawn).max() <= 1.0) == (True, True, True)


@by_name
def test_policies_are_fields_with_their_choices(feature):
    assert feature.policies[0].cells == "missing"
    for policy in feature.policies:
        assert getattr(feature, policy.key) in (policy.choice, None)
