"""Survival by group as an inquiry: against the rows without noise, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, SchemaError
from dpcore.evaluation.descriptive.survival import Survival
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import PredicateError
from dpcore.records.encoding import store
from dpcore.records.features import EventTime
from dpcore.records.records import Records
from dpcore.records.schema import BooleanFeature, CategoryFeature, Label, RealFeature, Schema
from dpcore.statistics.accuracy import Estimates

BORDERS = (1.0, 2.0, 4.0, 8.0)
SCHEMA = Schema(
    name="patients",
    label=EventTime(column="years", event="died", happened=("yes",), borders=BORDERS),
    features=(
        RealFeature(name="age", lower=0.0, upper=100.0),
        BooleanFeature(name="smoker", true=("yes",), false=("no",)),
        CategoryFeature(name="city", values=("north", "south"), missing="zero-vector", unknown="zero"),
    ),
)
ROWS = 4_000


@pytest.fixture(scope="module")
def patients():
    """Columns of made-up patients; smokers die twice as fast."""
    random = np.random.default_rng(8)
    smoker, age, city = random.random(ROWS) < 0.4, random.uniform(0, 100, ROWS), random.integers(0, 2, ROWS)
    times, last = random.exponential(np.where(smoker, 3.0, 6.0)), random.uniform(0.5, 14.0, ROWS)
    return {"smoker": smoker, "age": age, "city": city, "years": np.minimum(times, last), "died": times <= last}


@pytest.fixture(scope="module")
def answered(patients):
    """Reads an inquiry, without noise or as if there was some."""
    x = (patients["age"] / 50 - 1, 2.0 * patients["smoker"] - 1, np.eye(2)[patients["city"]], np.ones(ROWS))
    place = np.searchsorted(BORDERS, patients["years"])
    codes = np.where(place >= 4, 8, np.where(patients["died"], place, 4 + place)).astype(np.int8)
    records = Records(store(np.column_stack(x)), codes, np.ones(ROWS, np.bool_), coding=SCHEMA.label.coding)

    def answer(inquiry, deviation=0.0):
        batch = inquiry.layout(SCHEMA).batch
        means = np.ldexp(sums(batch, SCHEMA, records, 20).astype(float), -20) / ROWS
        return inquiry.read(SCHEMA, Estimates(means, ROWS, 0.95, 0.0, 2.0**-20, 0.0, deviation))

    return answer


def at_risk_and_survival(years, died):
    """By hand: those who were censored in an interval count half."""
    alive, found = 1.0, []
    for start, end in zip((0.0, *BORDERS), BORDERS, strict=False):
        inside = (years > start) & (years <= end)
        risk = (years > start).sum() - (inside & ~died).sum() / 2
        alive *= 1 - (inside & died).sum() / risk
        found.append((risk, alive))
    return found


def test_curves_by_group_are_those_of_the_rows(answered, patients):
    found = answered(Survival(by="smoker"))
    for group, rows in (("yes", patients["smoker"]), ("no", ~patients["smoker"])):
        by_hand = at_risk_and_survival(patients["years"][rows], patients["died"][rows])
        for border, (risk, alive) in zip(BORDERS, by_hand, strict=True):
            figures = {
                name: found.one(name, "years", group=group, level=f"{border:g}") for name in ("at risk", "survival")
            }
            assert figures["at risk"].estimate == pytest.approx(risk, abs=0.1)
            assert figures["survival"].estimate == pytest.approx(alive, abs=1e-4)
            assert figures["survival"].lower < alive < figures["survival"].upper


def test_medians_and_means_are_near_those_that_the_times_were_drawn_with(answered):
    found = answered(Survival(by="smoker"))
    for group, mean in (("yes", 3.0), ("no", 6.0)):
        median = found.one("median", "years", group=group)
        # Survival is taken to be a line between 2 and 4, and 4 and 8.
        assert median.estimate == pytest.approx(mean * np.log(2.0), abs=0.35)
        restricted = found.one("restricted mean", "years", group=group, level="8")
        assert restricted.estimate == pytest.approx(mean * (1 - np.exp(-8.0 / mean)), abs=0.2)
        assert restricted.lower < restricted.estimate < restricted.upper


def test_the_groups_are_compared(answered):
    found = answered(Survival(by="smoker"))
    assert found.one("log-rank", "smoker").p_value < 1e-6
    # That of the draw is 0.5; more than half of the smokers have the event in the last interval.
    ratio = found.one("hazard ratio", "smoker", level="no to yes")
    assert ratio.lower < 0.5 < ratio.estimate < ratio.upper
    said = f"Hazard ratio, no to yes: {ratio.estimate:.4g} ({ratio.lower:.4g} to {ratio.upper:.4g}). It is slightly too"
    assert said in found.text
    by_age = 'x["age"] > 50'
    assert answered(Survival(by=by_age)).one("log-rank", by_age).p_value > 1e-3
    assert "No log-rank test was made" in answered(Survival(by="city")).text
    # Of all rows there is nothing to compare.
    assert not [each for each in answered(Survival()).figures if each.quantity in ("log-rank", "hazard ratio")]


def test_a_group_without_rows_has_no_curve_and_does_not_spoil_the_test(answered):
    found = answered(Survival(by="city"), deviation=5 / ROWS)
    level = "any other value"
    assert found.one("survival", "years", group=level, level="1").estimate is None
    assert found.one("median", "years", group=level).estimate is None
    assert found.one("restricted mean", "years", group=level).estimate is None
    assert found.one("survival", "years", group="north", level="1").estimate is not None
    assert f"The curve of '{level}' ends at 0" in found.text
    # Its noise is in the variance of the test.
    assert found.one("log-rank", "city").p_value > 1e-3


def test_noise_widens_the_intervals(answered):
    exact, noisy = (
        answered(Survival(), deviation).one("survival", "years", level="4") for deviation in (0.0, 10 / ROWS)
    )
    assert noisy.upper - noisy.lower > exact.upper - exact.lower


def test_a_row_is_in_one_cell():
    """Replacing a row changes two cells, however many groups and intervals there are."""
    for inquiry in (Survival(), Survival(by="smoker"), Survival(by="age", edges={"age": (30.0, 60.0)})):
        assert batch_sensitivity(inquiry.layout(SCHEMA).batch).l1 == 2
    assert len(Survival(by="age", edges={"age": (30.0, 60.0)}).layout(SCHEMA).batch) == 3 * 9


def test_what_is_no_question_about_times_is_refused():
    classes = replace(SCHEMA, label=Label(column="died", positive=("yes",), negative=("no",)))
    with pytest.raises(SchemaError, match="survival needs a label that is a time to an event"):
        Survival().layout(classes)
    for by in ("years", "died"):
        with pytest.raises(ConfigurationError, match=f"'{by}' is of the label"):
            Survival(by=by).layout(SCHEMA)
    with pytest.raises((ConfigurationError, PredicateError, SchemaError), match="smoker"):
        Survival(by="smokers").layout(SCHEMA)
    with pytest.raises(ConfigurationError, match="edges"):
        Survival(by="smoker", edges={"age": (30.0,)}).layout(SCHEMA)
