"""Dates from training to explanation: models over their groups, exported in days, and shown as dates."""

import datetime as dt
import itertools
import re
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.estimators.additive_terms import additive_terms
from dpcore.estimators.conjunction import PrivateThreshold
from dpcore.estimators.private_histograms import histograms
from dpcore.estimators.statistical_queries import DecisionStump, NaiveBayes, cuts
from dpcore.evaluation.histograms import column_histograms
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.moments import norm_bound_of, usual_norm
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.encoding import Texts, encode, source_of
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Term, in_steps
from dpcore.records.feature_map_in_units import FeatureMapError, map_in_units
from dpcore.records.features import DateFeature, Label, RealFeature
from dpcore.records.schema import Schema
from learner.export import to_original_units
from learner.model import Model
from learner.predictions import predict
from learner.report.coefficients import effects
from learner.report.pictures import drawing
from learner.shapes import Curve, Values, shapes_of
from tests.dpcore.estimators.oracle_world import divided

FEATURE = DateFeature(
    name="day", column="admitted", first="2020-01-01", last="2023-12-31", since="2000-01-01", parts=("month", "weekday")
)
SCHEMA = Schema(name="stays", label=Label(column="y", positive=("1",)), features=(FEATURE,))
FIRST, LAST = dt.date(2020, 1, 1), dt.date(2023, 12, 31)
DAYS = [FIRST + dt.timedelta(at) for at in range((LAST - FIRST).days + 1)]
STATEMENT = PrivacyStatement("one record's 'smoker'", "marginal", 1.5, 1e-6, 2.5, None, ("Counted.",), ("Marginal.",))


def coded(days):
    cells = {source_of(FEATURE): Texts(np.arange(len(days)), tuple(map(str, days)))}
    return encode(SCHEMA, cells, len(days), label=False).x


def oracle(positive, schema=SCHEMA, x=None):
    """Rows of every day, positive where the rule says so."""
    return divided(schema, coded(DAYS) if x is None else x, [1 if positive(day) else -1 for day in DAYS])


def model(theta=None, feature_map=None):
    d = SCHEMA.d if feature_map is None else feature_map.d
    weights = np.random.default_rng(3).normal(size=d) if theta is None else np.array(theta, dtype=float)
    return Model(weights, SCHEMA, "mean-variance", bytes(range(32)), STATEMENT, feature_map=feature_map)


def errors(theta, positive):
    return np.mean((coded(DAYS) @ theta > 0) != [positive(day) for day in DAYS])


def in_winter(day):
    return day.month in (12, 1, 2)


def late(day):
    return day >= dt.date(2022, 5, 17)


def test_the_clipping_norm_counts_each_group():
    assert usual_norm(SCHEMA) == norm_bound_of(real_features=1, unit_features=2, bias=True)


@pytest.mark.more
def test_estimators_learn_from_days_and_from_their_parts():
    winter = NaiveBayes().fit_queries(oracle(in_winter)).theta_
    assert errors(winter, in_winter) < 0.01
    after = NaiveBayes().fit_queries(oracle(late)).theta_
    assert errors(after, late) < 0.1
    stump = DecisionStump().fit_queries(oracle(late))
    assert errors(stump.theta_, late) < 0.05
    assert "day >= 2022-0" in str(vars(stump))
    threshold = PrivateThreshold("day", cuts=1024, require_rows=False).fit_queries(oracle(late))
    assert errors(threshold.theta_, late) < 0.005
    # Finer than a day: the cuts of a grid are between days too, and each is another predicate.
    week = [day for day in DAYS if day.year == 2020][:7]
    assert len(set(cuts(DateFeature(name="d", first=str(week[0]), last=str(week[-1])).days, 63))) == 63


def test_an_additive_model_bends_at_dates():
    (histogram,) = histograms(oracle(late), SCHEMA.numbers, part=Fraction(1), cells=32)
    made = additive_terms(SCHEMA, {0: histogram}, knots=3, pairs=())
    names = made.feature_map.names(SCHEMA)
    assert {"day", "day~2021-01-01", "day.month=May", "day.weekday=Sunday"} <= set(names)


def test_a_histogram_of_dates_has_dates_for_ends():
    edges = {"day": ["2020-07-01", "2021-01-01", "2022-05-17"]}
    (column,) = column_histograms(["day"], oracle(late), edges=edges).columns
    parts = column.to_dict()["parts"]
    shown = [(part["lower"], part["upper"]) for part in parts if not part["is_point"]]
    bounds = ["2020-01-01", *edges["day"], "2023-12-31"]
    assert shown == list(itertools.pairwise(bounds))
    shares = [part["estimate"] for part in parts if not part["is_point"]]
    assert shares[1] == pytest.approx((dt.date(2021, 1, 1) - dt.date(2020, 7, 1)).days / len(DAYS))
    median = column.quantile(0.5).to_dict(column.feature)
    assert median["on_rows"][0] <= str(DAYS[len(DAYS) // 2]) <= median["on_rows"][1]
    assert median["on_rows"][0] <= median["estimate"] <= median["on_rows"][1]
    assert set(median["on_rows"]) <= set(bounds)
    (crowded,) = column_histograms(["day"], oracle(late), edges={"day": ["2020-02-01"]}).columns
    assert "--edges day=2020-02-01:2023-12-31:32" in str(crowded.advice())
    for wrong, says in (
        (["1.1.2021"], "'1.1.2021' is no date"),
        ([3.5], "3.5 is no date"),
        (["2019-01-01"], "edge 2019-01-01 of 'day' is beyond the schema's bounds, 2020-01-01 to 2023-12-31"),
        (["2021-01-01", "2020-07-01"], "edges 2021-01-01 and 2020-07-01"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            column_histograms(["day"], oracle(late), edges={"day": wrong})
    with pytest.raises(ConfigurationError, match="histograms are of real ones"):
        column_histograms(["day.month"], oracle(late))


def test_an_exported_model_gives_the_margins_in_days_after_the_stated_one():
    made = model()
    found = to_original_units(made)
    (feature,) = found["features"]
    assert (feature["type"], feature["since"], feature["first"], feature["column"]) == (
        "date",
        "2000-01-01",
        "2020-01-01",
        "admitted",
    )
    days, months, weekdays = feature["groups"]
    assert [each["name"] for each in feature["groups"]] == ["day", "day.month", "day.weekday"]
    assert any("the number of days after `since`" in rule for rule in found["rules"])
    expected = coded(DAYS) @ made.theta
    margins = [
        found["intercept"]
        + days["weight"] * (day - dt.date(2000, 1, 1)).days
        + dict(months["weights"])[f"{day:%B}"]
        + dict(weekdays["weights"])[f"{day:%A}"]
        for day in DAYS
    ]
    assert margins == pytest.approx(expected, abs=1e-9)
    # A model without dates says nothing of them.
    other = Schema(name="o", label=SCHEMA.label, features=(RealFeature(name="a", lower=0, upper=1),))
    plain = to_original_units(Model(np.ones(2), other, "mean-variance", bytes(32), STATEMENT))
    assert "date" not in str(plain["rules"])


def test_a_model_predicts_on_frames_with_dates():
    pandas = pytest.importorskip("pandas")
    made = model()
    frame = pandas.DataFrame({"admitted": pandas.to_datetime(pandas.Series(DAYS)), "other": 1})
    scores = coded(DAYS) @ made.theta
    assert (predict(made, frame).labels == np.where(scores > 0, 1, -1)).all()
    assert predict(made, frame).scores == pytest.approx(scores)
    pipeline = made.to_sklearn(classes="signs")
    assert (pipeline.predict(frame) == np.where(scores > 0, 1, -1)).all()


def mapped():
    place = [in_steps(SCHEMA, 0, (day - dt.date(2000, 1, 1)).days) for day in (FIRST, dt.date(2021, 7, 1), LAST)]
    terms = [Column(at) for at in range(SCHEMA.d - 1)]
    return FeatureMap(
        (*map(Term, terms), Term(Hat(0, *place)), Term(PointMass(0, ONE))),
        bias=True,
    )


def test_a_map_of_dates_is_named_and_described_with_dates():
    feature_map = mapped()
    assert feature_map.names(SCHEMA)[-3:] == ("day~2021-07-01", "day=2023-12-31", "bias")
    hat = feature_map.described(SCHEMA.d - 1, SCHEMA)
    assert hat == "day rising from 2020-01-01 to 2021-07-01, falling to 2023-12-31"


def test_a_map_is_written_with_dates():
    hats = {"hats": "day", "knots": [FIRST, "2021-07-01", LAST]}
    found = map_in_units({"map_version": 1, "terms": [hats, {"point": "day", "at": "2023-12-31"}]}, SCHEMA)
    assert [term.function for term in found.terms] == [mapped().terms[-2].function, PointMass(0, ONE)]
    for knots, says in (
        ([FIRST, 7500, LAST], "knot '7500' is no date"),
        ([FIRST, "1.7.2021", LAST], "knot '1.7.2021' is no date"),
        (["2019-01-01", "2021-07-01", LAST], "beyond the schema's bounds, 2020-01-01 to 2023-12-31"),
        ([FIRST, "2022-07-01", "2021-07-01"], "not in ascending order"),
    ):
        with pytest.raises(FeatureMapError, match=says):
            map_in_units({"map_version": 1, "terms": [{"hats": "day", "knots": knots}]}, SCHEMA)


@pytest.mark.parametrize("feature_map", [None, mapped()], ids=["linear", "mapped"])
def test_shapes_of_dates_are_one_for_each_group_with_dates_on_its_axis(feature_map):
    shapes = {shape.title: shape for shape in shapes_of(model(feature_map=feature_map)).ranked}
    assert set(shapes) == {"day", "day.month", "day.weekday"}
    assert {shape.columns for shape in shapes.values()} == {("admitted",)}
    months, curve = shapes["day.month"], shapes["day"]
    assert isinstance(months, Values)
    assert [at.value for at in months.values][:2] == ["January", "February"]
    assert isinstance(curve, Curve)
    found = curve.to_dict()
    assert (found["lower"], found["upper"], found["x"][0], found["x"][-1]) == (
        "2020-01-01",
        "2023-12-31",
        "2020-01-01",
        "2023-12-31",
    )
    assert all(isinstance(value, str) for value in found["x"])
    plot, words = drawing(curve, "day")
    marked = re.findall(r'<text x="([^"]*)"[^>]*>(20[-0-9]*)</text>', "".join(plot.parts))
    assert [date for _, date in marked] == ["2020-01-01", "2021-12-31", "2023-12-31"]
    assert float(marked[0][0]) == plot.left
    assert "2020-01-01: " in words


def test_effects_of_a_date_are_those_of_its_groups():
    found = [(name, words) for name, words, _ in effects(SCHEMA)]
    assert found[1] == ("day", "for each day more")
    assert found[2] == ("day.month", "February instead of January")
    assert found[-1] == ("day.weekday", "Sunday instead of Monday")
