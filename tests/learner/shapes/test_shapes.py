"""Shapes in the columns' units, their bands, and their ranking."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, ModelError
from learner.shapes import shapes_of
from learner.uncertainty import FACTOR
from tests.learner.shapes.mapped import HTML, SCHEMA, model


def encoded(**cells) -> np.ndarray:
    """A row as the schema encodes it, from coordinates; others are 0."""
    x = np.zeros((1, SCHEMA.d))
    for name, value in cells.items():
        x[0, SCHEMA.coordinate(name)] = value
    return x


def shape(shapes, *features):
    (found,) = (each for each in shapes.ranked if each.features == features)
    return found


def test_a_curve_is_in_the_units_of_its_column():
    made = model()
    age = shape(shapes_of(made), "age")
    assert age.kind == "curve"
    assert (age.lower, age.upper) == (0.0, 100.0)
    assert [at.value for at in age.line] == sorted({at.value for at in age.line})
    assert {0.0, 37.5, 75.0, 100.0} <= {at.value for at in age.line}
    contributed = [made.contributions(encoded(age=at.value / 50 - 1))["age",][0] for at in age.line]
    apart = np.array([at.adds for at in age.line]) - contributed
    np.testing.assert_allclose(apart, apart[0], atol=1e-7)
    assert age.points == ()
    assert shape(shapes_of(made), "paid").columns == ("fee",)


def test_a_point_mass_is_apart_from_the_line():
    made = model()
    paid = shape(shapes_of(made), "paid")
    (free,) = paid.points
    assert (free.value, free.share) == (0.0, pytest.approx(0.6))
    (beside,) = (at for at in paid.line if at.value == 0.0)
    weight = made.theta[10]
    assert free.adds - beside.adds == pytest.approx(weight, abs=1e-6)
    assert abs(weight) > 0.1
    # The line does not jump.
    assert max(abs(np.diff([at.adds for at in paid.line]))) < 0.5


def test_flags_and_categories_have_values():
    made = model()
    shapes = shapes_of(made)
    ward, smoker, tall = shape(shapes, "ward"), shape(shapes, "smoker"), shape(shapes, "tall")
    assert [at.value for at in ward.values] == ["east", HTML, "north", "any other value"]
    mean = made.theta[3:6].mean()
    assert [at.adds for at in ward.values] == pytest.approx([*(made.theta[3:6] - mean), -mean])
    assert [(at.value, at.adds) for at in smoker.values] == [("1 or yes", made.theta[2]), ("no", -made.theta[2])]
    assert [at.value for at in tall.values] == ["at least 180", "below 180"]
    assert smoker.size == pytest.approx(abs(made.theta[2]))


def test_a_surface_is_on_both_columns_values():
    made = model()
    pair = shape(shapes_of(made), "age", "paid")
    assert pair.rows[0] == 0.0
    assert pair.rows[-1] == 100.0
    assert {25.0, 75.0} <= set(pair.rows)
    assert {-500.0, 0.0, 250.0, 750.0, 1500.0} <= set(pair.columns_at)
    apart = [
        at.adds - made.contributions(encoded(age=age / 50 - 1, paid=(fee + 500) / 1000 - 1))[columns][0]
        for age, row in zip(pair.rows, pair.cells, strict=True)
        for fee, at in zip(pair.columns_at, row, strict=True)
        for columns in [("age", "fee")]
    ]
    # Both orders of the operands are one pair here, and two in `contributions`.
    others = [
        made.contributions(encoded(age=age / 50 - 1, paid=(fee + 500) / 1000 - 1))["fee", "age"][0]
        for age in pair.rows
        for fee in pair.columns_at
    ]
    left = np.array(apart) - others
    np.testing.assert_allclose(left, left[0], atol=1e-7)
    ward = shape(shapes_of(made), "age", "ward")
    assert ward.columns_at == ("east", HTML, "north", "any other value")


def test_the_ranking_is_by_the_standard_deviation():
    made = model()
    shapes = shapes_of(made)
    sizes = [each.size for each in shapes.ranked]
    assert sizes == sorted(sizes, reverse=True)
    larger = made.theta.copy()
    larger[2] = 50.0
    assert shapes_of(replace(made, theta=larger)).ranked[0].features == ("smoker",)
    straight = shapes_of(model(mapped=False))
    assert shape(straight, "age").size == pytest.approx(abs(model(mapped=False).theta[0]) / np.sqrt(3))
    assert (shapes.mapped, straight.mapped, shapes.is_stated, straight.is_stated) == (True, False, True, False)


@pytest.mark.slow
@pytest.mark.parametrize("mapped", [True, False])
def test_bands_are_the_spread_of_models_with_that_covariance(mapped):
    """Over 200 draws of theta a standard deviation is known within 5 %, and the worst of some hundred within 25 %."""
    made = model(mapped=mapped, covariance=True)
    drawn = np.random.default_rng(3).multivariate_normal(made.theta, made.covariance, 200, method="cholesky")
    shapes = [shapes_of(replace(made, theta=theta, covariance=None)) for theta in drawn]
    known = shapes_of(made)
    assert FACTOR * np.std([each.intercept for each in shapes]) == pytest.approx(known.intercept_band, rel=0.2)
    for one in known.ranked:
        bands = np.array([at.band for at in drawn_at(one)])
        values = [[at.adds for at in drawn_at(shape(each, *one.features))] for each in shapes]
        spread = FACTOR * np.std(values, axis=0)
        np.testing.assert_allclose(spread, bands, rtol=0.25, atol=1e-9)
        np.testing.assert_allclose(np.mean(spread), np.mean(bands), rtol=0.15)


def drawn_at(one):
    match one.kind:
        case "curve":
            return (*one.line, *one.points)
        case "values":
            return one.values
        case _:
            return [at for row in one.cells for at in row]


def test_without_a_covariance_there_are_no_bands():
    shapes = shapes_of(model())
    assert not shapes.has_bands
    assert {shape.noise for shape in shapes.ranked} == {None}
    text = json.dumps(shapes.to_dict(shapes.ranked), allow_nan=False)
    assert '"bands": false' in text
    known = shapes_of(model(covariance=True))
    assert known.has_bands
    assert all(shape.noise > 0 for shape in known.ranked)
    content = json.loads(json.dumps(known.to_dict(known.ranked), allow_nan=False))
    first = next(each for each in content["shapes"] if each["kind"] == "curve")
    assert len(first["x"]) == len(first["y"]) == len(first["band"])


def test_weights_too_large_to_draw_are_refused():
    made = model()
    with pytest.raises(ModelError, match="too large"):
        shapes_of(replace(made, theta=made.theta * 1e307))


def test_columns_are_chosen_by_their_name_or_their_features():
    shapes = shapes_of(model())
    assert {each.features for each in shapes.chosen(["fee"])} == {("paid",), ("age", "paid")}
    assert shapes.chosen(["paid"]) == shapes.chosen(["fee"])
    assert shapes.chosen() == shapes.ranked
    assert shapes.chosen(top=2) == shapes.ranked[:2]
    with pytest.raises(ConfigurationError, match="no column 'pai'; did you mean 'paid'"):
        shapes.chosen(["age", "pai"])
    with pytest.raises(ConfigurationError, match="at least 1"):
        shapes.chosen(top=0)


@pytest.mark.parametrize("mapped", [True, False])
def test_what_is_not_measurable_has_no_band_and_moves_no_other_level(mapped):
    known = model(mapped=mapped, covariance=True)
    # The second level of the ward is unknown: its weight has the variance of the prior.
    errors = known.covariance.copy()
    errors[4, 4] += 25.0
    made = replace(known, covariance=errors, theta=np.where(np.arange(len(errors)) == 4, 50.0, known.theta))
    found, content = shapes_of(made), shapes_of(made).to_dict(shapes_of(made).ranked)
    ward = shape(found, "ward")
    assert [at.measurable for at in ward.values[:3]] == [True, False, True]
    assert [at.band is None for at in ward.values[:3]] == [False, True, False]
    # The mean is over the levels that are known, so that the others do not have its 50.
    assert ward.values[0].adds + ward.values[2].adds == pytest.approx(0.0, abs=1e-9)
    assert ward.measurable == pytest.approx(1.0)
    (stated,) = (each for each in content["shapes"] if each["features"] == ["ward"])
    assert [each["measurable"] for each in stated["values"][:3]] == [True, False, True]
    assert [each["band"] is None for each in stated["values"][:3]] == [False, True, False]
    # What is known of nothing is nowhere measurable, and the key is null, not a number.
    nothing = shapes_of(replace(known, covariance=100.0 * np.eye(len(errors))))
    assert {each.noise for each in nothing.ranked} == {None}
    assert {each.measurable for each in nothing.ranked if each.kind != "surface"} == {0.0}
    assert (nothing.has_bands, nothing.intercept_band) == (True, None)
    assert '"measurable": null' in json.dumps(shapes_of(model()).to_dict(shapes_of(model()).ranked))
