"""Descriptions, cross tables, comparisons and correlations: against the rows without noise, and what they refuse."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, PlanError, SchemaError
from dpcore.estimators.oracle import RowOracle
from dpcore.evaluation.descriptive.comparison import Compare, p_value
from dpcore.evaluation.descriptive.correlation import Correlate
from dpcore.evaluation.descriptive.crosstab import Crosstab, odds_ratio
from dpcore.evaluation.descriptive.description import Describe
from dpcore.evaluation.descriptive.independence import independence
from dpcore.evaluation.descriptive.spread import Spread, difference
from dpcore.evaluation.intervals import CellNoise
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import PredicateError
from dpcore.predicates.ranges import readable
from dpcore.predicates.squares import TANGENTS, square
from dpcore.records.encoding import store
from dpcore.records.records import Records
from dpcore.records.schema import BooleanFeature, CategoryFeature, Classes, Label, RealFeature, Schema
from dpcore.statistics.accuracy import Estimates
from learner.inquiries import KINDS

SCHEMA = Schema(
    name="patients",
    label=Label(column="ill", positive=("yes",), negative=("no",)),
    features=(
        RealFeature(name="age", lower=0.0, upper=100.0, missing="impute", impute=50.0),
        BooleanFeature(name="smoker", true=("yes",), false=("no",)),
        CategoryFeature(name="city", values=("north", "south", "east"), missing="zero-vector", unknown="zero"),
    ),
)
ROWS = 3000
EXACT = CellNoise(0.0, math.inf)


@pytest.fixture(scope="module")
def patients():
    """Columns of made-up patients; smokers and the old are ill more often."""
    random = np.random.default_rng(5)
    age, smoker, city = random.normal(45, 15, ROWS).clip(0, 100), random.random(ROWS) < 0.3, random.integers(0, 3, ROWS)
    ill = random.random(ROWS) < 0.1 + 0.3 * smoker + 0.004 * age
    return {"age": age, "smoker": smoker, "city": city, "ill": ill}


@pytest.fixture(scope="module")
def answered(patients):
    """Reads an inquiry without noise."""
    z = np.column_stack(
        [patients["age"] / 50 - 1, 2.0 * patients["smoker"] - 1, np.eye(3)[patients["city"]], np.ones(ROWS)]
    )
    labels = np.where(patients["ill"], 1, -1).astype(np.int8)
    records = Records(store(z), labels, np.ones(ROWS, dtype=np.bool_))

    def answer(inquiry, deviation=0.0):
        batch = inquiry.layout(SCHEMA).batch
        means = np.ldexp(sums(batch, SCHEMA, records, 20).astype(float), -20) / ROWS
        return inquiry.read(SCHEMA, Estimates(means, ROWS, 0.95, 0.0, 2.0**-20, 0.0, deviation))

    return answer


def test_a_description_is_that_of_the_rows(answered, patients):
    found = answered(Describe())
    age = patients["age"]
    assert found.one("rows").estimate == ROWS
    assert found.one("mean", "age").estimate == pytest.approx(age.mean(), abs=0.01)
    assert found.one("standard deviation", "age").estimate == pytest.approx(age.std(), rel=0.01)
    assert found.one("median", "age").lower <= np.median(age) <= found.one("median", "age").upper
    assert found.one("share", "smoker", level="yes").estimate == pytest.approx(patients["smoker"].mean())
    assert found.one("share", "city", level="any other value").upper < 0.01
    half = found.one("mean", "age").half_width
    assert half == pytest.approx(1.96 * age.std() / math.sqrt(ROWS), rel=0.1)


def test_a_description_by_group_is_that_of_its_rows(answered, patients):
    found = answered(Describe(columns=("age", "ill"), by='x["age"] >= 40'))
    old = patients["age"] >= 40
    assert found.one("rows", group='x["age"] >= 40').estimate == pytest.approx(old.sum())
    for group, rows in (('x["age"] >= 40', old), ('not x["age"] >= 40', ~old)):
        assert found.one("mean", "age", group=group).estimate == pytest.approx(patients["age"][rows].mean(), abs=0.01)
        share = found.one("share", "ill", group=group, level="yes")
        assert share.estimate == pytest.approx(patients["ill"][rows].mean())


def test_missing_cells_are_bounded_by_what_the_schema_does_with_them(answered):
    found = answered(Describe())
    assert found.one("missing cells", "smoker").upper == 0.0  # refused
    at_fifty = found.one("missing cells", "age")  # imputed, so below the share around 50
    assert at_fifty.estimate is None
    assert 0.0 < at_fifty.upper < 0.1
    assert found.one("missing cells", "city").upper == 0.0  # left out, and no row is


@pytest.mark.more
def test_a_group_without_rows_is_counted_and_not_measured(answered):
    found = answered(Describe(columns=("age",), by="city"), deviation=10 / ROWS)
    rows = found.one("rows", group="any other value")
    assert rows.lower == 0.0
    assert rows.upper > 10
    assert found.one("mean", "age", group="any other value").estimate is None
    assert "not measured" in found.text


def test_the_square_is_a_predicate_close_below_the_square():
    z = np.linspace(-1, 1, 4001)
    stored = store(np.column_stack([z, -np.ones(4001), np.zeros((4001, 3)), np.ones(4001)]))
    for at in range(0, 4001, 97):
        one = Records(stored[at : at + 1], np.ones(1, dtype=np.int8), np.ones(1, dtype=np.bool_))
        value = sums([square("age")], SCHEMA, one, 20)[0] / 2**20
        assert -(2.0**-20) <= z[at] ** 2 - value <= 1 / TANGENTS**2 + 2.0**-20


def test_people_who_decide_read_what_a_batch_asks():
    texts = [readable(each, SCHEMA) for each in Describe(columns=("age",), by="smoker").layout(SCHEMA).batch]
    assert texts[0] == 'x["smoker"]'
    assert 'x["smoker"] and z["age"]^2, or up to 1/4096 less' in texts
    assert 'x["smoker"] and age = 0' in texts
    assert max(map(len, texts)) < 80


def test_groups_and_levels_are_seen_to_exclude_one_another():
    """A number costs 1 by its mean, 1 by its square and 2 by its cells, twice the first two by group; a category 2."""
    age, city = Describe(columns=("age",)), Describe(columns=("city",))
    assert batch_sensitivity(age.layout(SCHEMA).batch).l1 == 1 + 1 + 1 + 2
    assert batch_sensitivity(city.layout(SCHEMA).batch).l1 == 1 + 2
    assert batch_sensitivity(replace(age, by="city").layout(SCHEMA).batch).l1 == 2 + 2 + 2 + 2
    crossed = Crosstab(down="city", across="age", edges={"age": (30, 60)})
    assert batch_sensitivity(crossed.layout(SCHEMA).batch).l1 == 2


def test_a_cross_table_has_every_cell_and_the_odds_ratio(answered, patients):
    found = answered(Crosstab(down="smoker", across="ill"))
    smoker, ill = patients["smoker"], patients["ill"]
    for group, rows in (("yes", smoker), ("no", ~smoker)):
        assert found.one("rows", "ill", group=group, level="yes").estimate == pytest.approx((rows & ill).sum())
        share = found.one("share of the row", "ill", group=group, level="yes")
        assert share.estimate == pytest.approx(ill[rows].mean())
        assert share.lower < share.estimate < share.upper
    odds = [ill[rows].mean() / (1 - ill[rows].mean()) for rows in (smoker, ~smoker)]
    assert found.one("odds ratio").estimate == pytest.approx(odds[0] / odds[1])
    assert found.one("odds ratio").lower > 1
    assert found.one("chi-square").p_value < 0.001
    assert answered(Crosstab(down="city", across="smoker")).one("chi-square").p_value > 0.001
    assert len(found.tables) == 4


def test_an_odds_ratio_of_an_empty_cell_is_open_on_one_side():
    estimate, (low, high) = odds_ratio(np.array([[50.0, -1.0], [30.0, 40.0]]), CellNoise(2.0), 0.05, 120)
    assert (estimate, high) == (None, math.inf)
    assert low > 1
    found = Crosstab(down="smoker", across="ill").read(
        SCHEMA, Estimates(np.array([0.5, 0.0, 0.3, 0.2]), 100, 0.95, 0.0, 0.0, 0.0, 0.02)
    )
    assert json.loads(json.dumps(found.to_dict()))["figures"][-1]["upper"] is None
    assert "no limit" in found.text


def test_a_comparison_of_means_and_of_shares(answered, patients):
    age, ill, smoker = patients["age"], patients["ill"], patients["smoker"]
    found = answered(Compare(column="age", by="ill")).one("difference", "age", group="yes, less no")
    assert found.estimate == pytest.approx(age[ill].mean() - age[~ill].mean(), abs=0.01)
    assert found.lower < found.estimate < found.upper
    shares = answered(Compare(column="ill", by="smoker", reference="yes"))
    found = shares.one("difference", "ill", group="no, less yes", level="yes")
    assert found.estimate == pytest.approx(ill[~smoker].mean() - ill[smoker].mean())
    assert found.p_value == 1e-6
    nothing = answered(Compare(column="smoker", by="city"))
    assert all(each.p_value > 0.001 for each in nothing.figures if each.p_value is not None)


def test_a_p_value_is_the_failure_at_which_the_interval_ends_at_0():
    first, second = Spread(400, 200, 130, CellNoise(5.0)), Spread(500, 225, 160, CellNoise(5.0))

    def within(failure):
        return difference(first.mean, first.mean_interval(failure), second.mean, second.mean_interval(failure))

    found = p_value(within)
    assert 1e-6 < found < 1
    assert within(found / 1.01)[0] < 0 < within(found * 1.01)[0]


def test_correlations_are_those_of_the_rows_and_a_constant_has_none():
    random = np.random.default_rng(2)
    x = random.uniform(-1, 1, (500, 3))
    x[:, 1] += x[:, 0]
    y = np.where(random.random(500) < 0.5 + 0.3 * x[:, 0], 1.0, -1.0)
    x[:, 2] = 0.5
    oracle = RowOracle(np.column_stack([x, np.ones(500)]) * y[:, np.newaxis])
    found = Correlate(components=3).ask(oracle)
    exact = np.corrcoef(np.column_stack([x[:, :2], y]).T)
    assert found.one("correlation", "x1", level="x0").estimate == pytest.approx(exact[0, 1])
    assert found.one("correlation", "label", level="x0").estimate == pytest.approx(exact[0, 2])
    assert found.one("correlation", "x2", level="x0").estimate is None
    shares = [each.estimate for each in found.figures if each.quantity == "component"]
    assert sum(filter(None, shares)) == pytest.approx(1.0)
    alone = Correlate(columns=("x0", "x1")).ask(oracle)
    assert alone.one("correlation", "x1").estimate == pytest.approx(exact[0, 1])


def test_noise_lengthens_every_interval_and_ends_no_test():
    table = np.array([[400.0, 300.0], [350.0, 260.0]])
    exact, noisy = independence(table, EXACT), independence(table, CellNoise(40.0, math.inf))
    assert exact.p_value > 0.5
    assert noisy.statistic < exact.statistic
    assert independence(table, CellNoise(2000.0)) is None
    strong = np.array([[500.0, 100.0], [100.0, 500.0]])
    assert independence(strong, CellNoise(40.0, math.inf)).p_value < 0.01
    assert independence(strong, CellNoise(20.0, 1.25)).p_value == independence(strong, CellNoise(20.0, 1.25)).p_value


REFUSED = (
    (Describe(columns=("agee",)), "did you mean 'age'"),
    (Describe(columns=("age", "age")), "given twice"),
    (Describe(columns=("city",), by="city"), "nothing is left"),
    (Describe(by="cty"), "did you mean 'city'"),
    (Describe(by='x["agee"] >= 3'), "did you mean 'age'"),
    (Describe(edges={"city": (1.0,)}), "not divided into ranges"),
    (Describe(columns=("smoker",), edges={"age": (1.0,)}), "not divided into ranges"),
    (Crosstab(down="city", across="age", edges={"age": (0.0,)}), "at a bound"),
    (Crosstab(down="city", across="height"), "no column 'height', and it is no predicate, such as x"),
    (Compare(column="age", by="city", reference="nroth"), "did you mean 'north'"),
    (Compare(column="agee", by="city"), "did you mean 'age'"),
    (Correlate(columns=("age", "city")), "is a category"),
    (Correlate(columns=("age",)), "two columns"),
)


def test_what_does_not_fit_the_schema_is_refused():
    for inquiry, words in REFUSED:
        with pytest.raises((ConfigurationError, PredicateError), match=words):
            inquiry.check(SCHEMA)
    with pytest.raises(SchemaError, match="two classes"):
        Correlate().check(replace(SCHEMA, label=Classes(column="ill", values=("a", "b", "c"))))
    with pytest.raises(SchemaError, match="bias"):
        Correlate().check(replace(SCHEMA, bias=False))
    one = replace(SCHEMA, features=(CategoryFeature(name="city", values=("north",)),))
    for inquiry in (Crosstab(down="city", across="ill"), Compare(column="ill", by="city")):
        with pytest.raises(ConfigurationError, match="has one level"):
            inquiry.check(one)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Describe, ({"cells": 0}, {"levels": (1.0,)}, {"columns": "age"}, {"confidence": 1.0})),
        (Crosstab, ({"down": "age", "across": "age"},)),
        (Correlate, ({"components": 0}, {"columns": "age"})),
    ],
)
def test_what_is_out_of_range_is_refused(kind, wrong):
    for fields in wrong:
        with pytest.raises(ConfigurationError):
            kind(**fields)


def test_cells_within_the_noise_are_refused_with_the_epsilon_that_would_do():
    noise = CellNoise(200.0, math.inf)
    for inquiry in (
        Describe(columns=("city",)),
        Describe(columns=("age",), by="city"),
        Crosstab(down="city", across="ill"),
        Compare(column="ill", by="city"),
    ):
        with pytest.raises(PlanError, match="nothing was asked") as refused:
            inquiry.check_measurable(SCHEMA, noise, 1000, 0.1)
        enough = float(str(refused.value).split("--epsilon ")[1])
        inquiry.check_measurable(SCHEMA, CellNoise(200.0 * 0.1 / enough, math.inf), 1000, enough)
        inquiry.check_measurable(SCHEMA, noise, 0, 0.1)  # no party states its rows


def test_an_inquiry_is_the_same_after_json():
    for inquiry, _ in REFUSED[5:]:
        content = json.loads(json.dumps(inquiry.to_dict()))
        kind = KINDS[content.pop("inquiry")]
        fields = {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
        assert kind(**fields) == inquiry


def test_together_intervals_are_longer(answered):
    alone, together = answered(Describe()), answered(Describe(together=True))
    assert together.one("mean", "age").half_width > 1.2 * alone.one("mean", "age").half_width
    assert "hold together" in together.text


def test_a_result_is_a_table_of_pandas(answered):
    pandas = pytest.importorskip("pandas")
    found = answered(Describe(columns=("age",))).to_pandas()
    assert isinstance(found, pandas.DataFrame)
    assert set(found["quantity"]) >= {"mean", "median", "rows"}


def test_what_names_no_single_figure_is_refused_with_what_there_is(answered):
    found = answered(Describe(columns=("age",), by="smoker"))
    for asked_for, says in (
        ({"quantity": "medain"}, "there is no 'medain' here; did you mean 'median'"),
        ({"quantity": "mean", "column": "weight"}, "no figure of 'mean' fits.*column: 'age'"),
        ({"quantity": "mean", "group": "maybe"}, "no figure of 'mean' fits.*group: '"),
        ({"quantity": "mean"}, "2 figures of 'mean' fit: choose one by its column: 'age'; group: 'yes', 'no'"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            found.one(**asked_for)
