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
    DateFeature,
    DescribedFeature,
    Feature,
    Group,
    Label,
    RealFeature,
    ThresholdFeature,
)
from dpcore.records.features.described import DescribedGroup, OneGroup
from dpcore.records.schema import Schema

NUMBERS = (-3.0, -1.0, 0.0, 0.5, 2.0, 7.0)
TEXTS = ("yes", "no", "a", "b", "c", "other")
DATES = ("2019-12-30", "2020-02-29", "2021-08-04", "2020-01-01", "2020-07-17", "1999-01-01")
SINGLE: tuple[Group, ...] = (
    RealFeature(name="age", lower=-1.0, upper=2.0, out_of_bounds="clip"),
    BooleanFeature(name="smoker", true=("yes", "a"), false=("no",), unknown="zero-vector"),
    CategoryFeature(name="ward", values=("a", "b", "c"), unknown="zero"),
    CategoryFeature(name="one", values=("a",), unknown="zero-vector"),
    ThresholdFeature(name="high", threshold=0.5),
)
STAY = {"first": "2019-12-30", "last": "2021-08-04", "out_of_bounds": "clip"}
FEATURES: tuple[Feature, ...] = (
    *SINGLE,
    DateFeature(name="day", **STAY),
    DateFeature(name="days", parts=("year", "month", "weekday"), **STAY),
    DateFeature(name="season", parts=("month",), **STAY),
)
GROUPS = tuple((feature, group) for feature in FEATURES for group in feature.groups)
by_name = pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
by_group = pytest.mark.parametrize(("feature", "group"), GROUPS, ids=lambda each: each.name)


def schema_of(*features: Feature) -> Schema:
    return Schema(name="s", label=Label(column="label", positive=("1",)), features=features, bias=False)


def cells_of(feature: Feature) -> Cells:
    if source_of(feature).kind == "numbers":
        return Numbers(np.array(NUMBERS), np.zeros(len(NUMBERS), dtype=np.bool_))
    texts = DATES if feature.type == "date" else TEXTS
    return Texts(np.arange(len(texts)), texts)


def codings(feature: Feature) -> np.ndarray:
    """The codings of cells whose rows are usable: (cells, coordinates)."""
    cells = cells_of(feature)
    rows = len(cells.values) if isinstance(cells, Numbers) else len(cells.codes)
    found = encode(schema_of(feature), {source_of(feature): cells}, rows, label=False)
    return found.x[found.usable]


def codings_of(feature: Feature, group: Group) -> np.ndarray:
    """The same over the group's coordinates."""
    places = [feature.coordinates.index(name) for name in group.coordinates]
    return codings(feature)[:, places]


def test_every_type_is_among_these_examples():
    assert {feature.type for feature in FEATURES} == set(FEATURE_TYPES) == {kind.type for kind in FEATURES}


def test_every_type_answers_everything_itself():
    of_feature, of_group = (
        {name for name, hint in kind.__annotations__.items() if typing.get_origin(hint) is typing.ClassVar}
        for kind in (DescribedFeature, DescribedGroup)
    )
    assert len(of_feature | of_group) >= 10
    for kind in FEATURE_TYPES.values():
        assert isinstance(kind, type)
        assert issubclass(kind, DescribedFeature)
        stated = of_feature - {"cell_rules"} | (of_group if issubclass(kind, OneGroup) else set())
        assert stated <= kind.__dict__.keys(), f"{kind.__name__} does not state all of {stated}"


def test_a_type_that_leaves_an_answer_out_cannot_be_used():
    class Half(OneGroup):
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


@by_group
def test_coordinates_are_of_the_stated_form(feature, group):
    x = codings_of(feature, group)
    if group.is_one_hot:
        assert set(np.unique(x)) <= {0.0, 1.0}
        assert x.sum(axis=1).max() <= 1.0
    if not group.scaled_coordinates:
        assert np.square(x).sum(axis=1).max() <= group.unit_groups
    assert len(group.coordinates) * group.mean_square == pytest.approx(group.scaled_coordinates / 3 + group.unit_groups)


@by_name
def test_the_coordinates_of_a_feature_are_those_of_its_groups_in_order(feature):
    assert codings(feature).shape[1] == len(feature.coordinates)
    assert feature.coordinates == sum((group.coordinates for group in feature.groups), ())
    assert schema_of(feature).groups == feature.groups
    assert {group.column for group in feature.groups} == {feature.column}
    assert feature.squared_range == sum(group.squared_range for group in feature.groups)
    # A feature that is one group is that group, so that old schemas have the same groups as features.
    assert feature.groups == (feature,) or not isinstance(feature, OneGroup)


@by_group
def test_no_two_codings_of_a_group_are_further_apart_than_its_squared_range(feature, group):
    x = codings_of(feature, group)
    furthest = max((float(np.square(a - b).sum()) for a, b in itertools.combinations(x, 2)), default=0.0)
    assert furthest == group.squared_range or (furthest < group.squared_range and len(group.coordinates) == 1)


@by_group
def test_each_group_is_in_one_list_of_its_schema(feature, group):
    schema = schema_of(feature)
    lists = (schema.numbers, schema.flags, schema.categories)
    assert [group in each for each in lists] == [group.comparison == each for each in ("number", "flag", "value")]
    assert (group.bounds is not None) == (group in schema.numbers)


def test_groups_keep_the_schemas_order():
    schema = schema_of(*reversed(FEATURES))
    assert [group.name for group in schema.flags] == ["high", "smoker"]
    of_dates = ["season.month", "days.year", "days.month", "days.weekday"]
    assert [group.name for group in schema.categories] == [*of_dates, "one", "ward"]
    assert [group.name for group in schema.numbers] == ["season", "days", "day", "age"]


@by_group
def test_levels_are_codings_of_cells(feature, group):
    words, codes = group.levels
    assert (len(words) == 0) == (group.bounds is not None)
    assert codes.shape == (len(words), len(group.coordinates))
    if feature is group:
        assert {tuple(code) for code in codes} <= {tuple(code) for code in codings(feature)}
    assert {tuple(code) for code in group.codes} <= {tuple(code) for code in codes}


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
    found = {feature.name: [(words, dict(weights)) for words, weights in feature.changes] for feature in SINGLE}
    assert found == expected
    # A real feature's start is its coordinate at 0.
    starts = {feature.name: dict(feature.start) for feature in SINGLE}
    assert starts == {
        "age": {"age": pytest.approx(-1 / 3)},
        "smoker": {"smoker": -1.0},
        "ward": {"ward=a": 1.0},
        "one": {"one=a": 1.0},
        "high": {"high": -1.0},
    }


@by_group
def test_made_up_cells_have_codings_of_cells(feature, group):
    drawn = group.draw(np.random.default_rng(1), 500)
    assert drawn.shape == (500, len(group.coordinates))
    if group.bounds is None:
        possible = {tuple(code) for code in group.codes} | ({(0.0,) * drawn.shape[1]} if group.is_one_hot else set())
        assert {tuple(row) for row in drawn} == possible
    else:
        assert (drawn.min() < -0.9, drawn.max() > 0.9, np.abs(drawn).max() <= 1.0) == (True, True, True)


@by_name
def test_policies_are_fields_with_their_choices(feature):
    assert feature.policies[0].cells == "missing"
    for policy in feature.policies:
        assert getattr(feature, policy.key) in (policy.choice, None)
