"""The public API under one import: `radofed` alone, as user code has it, over parties in this process."""

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import radofed

pd = pytest.importorskip("pandas")

SIZES = {"north": 2000, "south": 3000, "west": 2500}
SCHEMA = """
schema_version = 2
name = "<patients>"
bias = true
texts = []

[label]
column = "ill"
positive = ["yes"]
negative = ["no"]
missing = "refuse"

[[features]]
name = "age"
type = "real"
lower = 20
upper = 95
missing = "refuse"
out_of_bounds = "clip"
unreadable = "refuse"

[[features]]
name = "smoker"
type = "boolean"
true = ["true"]
false = ["false"]
missing = "refuse"
unknown = "refuse"
"""
COST = """
schema_version = 5
name = "costs"
bias = true
texts = []

[label]
column = "cost"
type = "number"
lower = 0
upper = 100
missing = "refuse"
out_of_bounds = "clip"

[[features]]
name = "age"
type = "real"
lower = 20
upper = 95
missing = "refuse"
out_of_bounds = "clip"
unreadable = "refuse"
"""
OLD = 'x["age"] >= 65'


def patients(rows: int, seed: int) -> Any:
    random = np.random.default_rng(seed)
    age, smoker = random.integers(20, 95, rows), random.random(rows) < 0.3
    risk = 1 / (1 + np.exp(-(age - 60) / 6 - smoker))
    cost = np.clip(age + random.normal(0, 5, rows), 0, 100)
    ill = np.where(random.random(rows) < risk, "yes", "no")
    return pd.DataFrame({"age": age, "smoker": smoker, "ill": ill, "cost": cost})


FRAMES = {name: patients(rows, seed) for seed, (name, rows) in enumerate(SIZES.items())}
NEW = patients(400, 99)


def federation(schema: str = SCHEMA, **options) -> radofed.Federation:
    return radofed.simulate_federation(FRAMES, schema=radofed.Schema.from_toml(schema), **options)


@pytest.fixture(scope="module")
def asked() -> radofed.Federation:
    return federation()


@pytest.fixture(scope="module")
def model(asked) -> radofed.Model:
    return asked.train("newton", epsilon=2, rounds=3, hold_back=0.2)


def test_parties_have_their_own_rows_from_frames_and_files(tmp_path, asked):
    FRAMES["south"].to_csv(tmp_path / "south.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA.replace('true = ["true"]', 'true = ["true", "True"]'))
    tables = {**FRAMES, "south": str(tmp_path / "south.csv")}
    text = (tmp_path / "schema.toml").read_text().replace('["false"]', '["false", "False"]')
    (tmp_path / "schema.toml").write_text(text)
    with radofed.simulate_federation(tables, schema=tmp_path / "schema.toml", seed=7) as found:
        rows = found.statistic([OLD], epsilon=1)
        assert found.answers[0].party_rows == SIZES
    true = np.mean(np.concatenate([frame["age"] for frame in FRAMES.values()]) >= 65)
    assert abs(rows[OLD] - true) <= rows.noise


def test_statistics_answer_by_name(asked):
    found = asked.statistic({"old": OLD, "smoker": radofed.x["smoker"]}, epsilon=0.5, delta="1e-6")
    assert found.names == ("old", "smoker")
    assert found["old"] == found.to_dict()["estimates"]["old"]
    frame = found.to_pandas()
    assert list(frame.index) == ["old", "smoker"]
    assert frame.loc["old", "upper"] == pytest.approx(found["old"] + found.tolerance)
    assert found.privacy is not None
    assert found.privacy.epsilon_if_others_collude <= 0.5
    with pytest.raises(radofed.ConfigurationError, match=r"'old'"):
        _ = found["olds"]
    unnamed = asked.statistic([radofed.x["age"] >= 65], epsilon=1)
    assert unnamed.names == (OLD,)


@pytest.mark.parametrize("number", [0.5, "1e-6", np.float64(0.1)])
def test_numbers_are_exact_as_people_write_them(asked, number):
    oracle = asked.within(number)
    assert oracle.epsilon == Fraction(str(number))
    assert radofed.MomentsRequest(asked.schema, epsilon=number).epsilon == oracle.epsilon


@pytest.mark.parametrize("number", ["one", True, float("nan")])
def test_what_is_no_number_is_refused(asked, number):
    with pytest.raises(radofed.ConfigurationError, match="is not a number"):
        asked.statistic([OLD], epsilon=number)


def test_a_budget_shows_what_is_left(asked):
    oracle = asked.within(1, 0)
    oracle.statistic({"old": OLD}, part="1/4")
    oracle.statistic([OLD], part=0.25)
    assert repr(oracle) == "<epsilon 1 and delta 0: 50 % of it is left after 2 answers>"
    assert "50 % of it is left" in oracle._repr_html_()
    with pytest.raises(radofed.ConfigurationError, match=r"0\.5 of it is left"):
        oracle.statistic([OLD], part=0.6)


CALLS = {
    "describe": lambda asked: asked.describe(epsilom=1),
    "train": lambda asked: asked.train("newton", epsilom=1),
    "plan": lambda asked: asked.plan("statistic", [OLD], epsilom=1),
}


@pytest.mark.parametrize("call", CALLS)
def test_unknown_keywords_are_refused_with_the_nearest_name(asked, call):
    before = len(asked.answers)
    with pytest.raises(radofed.ConfigurationError, match=r"'epsilom'.*'epsilon'"):
        CALLS[call](asked)
    assert len(asked.answers) == before


def test_what_is_asked_wrongly_is_refused_before_anything_is_asked(asked, model):
    before = len(asked.answers)
    with pytest.raises(radofed.ConfigurationError, match=r"'purpse'.*'purpose'"):
        federation(purpse="study")
    with pytest.raises(radofed.ConfigurationError, match=r"'ids_column'.*'id_column'"):
        radofed.simulate_federation(FRAMES, schema=asked.schema, ids_column="who")
    with pytest.raises(radofed.ConfigurationError, match=r"'lable'.*'label'"):
        radofed.simulated_federation(NEW, lable="ill")
    with pytest.raises(radofed.ConfigurationError, match=r"no type of label is called 'clases'.*'classes'"):
        radofed.simulated_federation(NEW, label="ill", target="clases")
    with pytest.raises(radofed.ConfigurationError, match="give the schema that the parties share"):
        radofed.simulate_federation(FRAMES)
    with pytest.raises(radofed.ConfigurationError, match=r"'adjust'.*'adjustment'"):
        model.coefficients(adjust="holm")
    with pytest.raises(radofed.ConfigurationError, match="unit 'patient' is not known"):
        federation(unit="patient")
    with pytest.raises(radofed.ConfigurationError, match=r"'descibe'.*'describe'"):
        asked.plan("descibe", epsilon=1)
    with pytest.raises(radofed.ConfigurationError, match="give the epsilon"):
        asked.train("newton")
    with pytest.raises(radofed.ConfigurationError, match="give the epsilon"):
        model.evaluate(asked)
    for without in (asked.describe, lambda: asked.crosstab("age", "ill"), lambda: asked.compare("age", by="ill")):
        with pytest.raises(radofed.ConfigurationError, match="give the epsilon"):
            without()
    with pytest.raises(radofed.ConfigurationError, match="compare needs 'by'"):
        asked.compare("age", epsilon=1)
    for misspelt in (asked.within, asked.hold_back, lambda **given: model.evaluate(asked, **given)):
        with pytest.raises(radofed.ConfigurationError, match="has no option 'epsilom'"):
            misspelt(epsilom=1)
    with pytest.raises(radofed.ConfigurationError, match="learns from a release"):
        asked.train("mean-variance", epsilon=1)
    with pytest.raises(radofed.ConfigurationError, match="keeps no journal"):
        asked.train("newton", epsilon=1, journal="newton.journal")
    with pytest.raises(radofed.ConfigurationError, match="leave hold_back out"):
        asked.hold_back(0.2)[0].train("newton", epsilon=1, hold_back=0.1)
    with pytest.raises(radofed.ConfigurationError, match="table of each party by its name"):
        radofed.simulate_federation([NEW, NEW], schema=asked.schema)
    with pytest.raises(radofed.DataError, match="north: "):
        radofed.simulate_federation({**FRAMES, "north": NEW.drop(columns="age")}, schema=asked.schema)
    with pytest.raises(radofed.ConfigurationError, match="another one than the federation's"):
        model.evaluate(federation(COST), epsilon=1)
    assert len(asked.answers) == before


@pytest.mark.more
def test_inquiries_and_plans_are_shown_as_tables(asked):
    before = len(asked.answers)
    plan = asked.plan("describe", ["age"], epsilon=1)
    assert "mean" in plan._repr_html_()
    assert "y == 1" in asked.plan("statistic", {"ill": "y == 1"}, epsilon=1)._repr_html_()
    request = radofed.MomentsRequest(asked.schema, epsilon="1/2")
    assert "Each party uploads" in asked.plan(request)._repr_html_()
    assert len(asked.answers) == before
    found = asked.describe(["age"], epsilon=1)
    assert "<td>mean</td>" in found._repr_html_()
    assert found.one("mean", "age").estimate == pytest.approx(57, abs=2)


@pytest.mark.more
def test_a_training_and_an_evaluation_are_planned_as_they_are_asked(asked, model):
    before = len(asked.answers)
    plan = asked.plan("train", "newton", epsilon=1, rounds=2, hold_back=0.2)
    measured = asked.plan("evaluate", model, epsilon=1)
    assert len(asked.answers) == before
    assert plan.statement.epsilon_if_others_collude <= 1
    assert plan.left == 0
    assert plan.sentences()[-1].endswith("Nothing was asked.")
    assert "It asks the gradient of the logistic loss" in plan._repr_html_()
    assert plan.to_dict()["queries"] == [each.query.words for each in plan.plans]
    with federation() as other:
        trained = other.train("newton", epsilon=1, rounds=2, hold_back=0.2)
        other.evaluate(trained, epsilon=1)
        asked_for = [each.query for each in other.known]
    planned = [each.query for each in (*plan.plans, *measured.plans)]
    assert [(each.kind.name, each.held_back) for each in planned] == [
        (each.kind.name, each.held_back) for each in asked_for
    ]
    # How many bins the second batch has follows from the answers to the first.
    assert [each.length for each in planned[:3]] == [each.length for each in asked_for[:3]]
    assert plan.statement.epsilon == pytest.approx(trained.statement.epsilon, rel=1e-6)


def test_what_cannot_be_planned_is_refused(asked):
    for values, options, says in (
        (("train",), {}, "name the estimator"),
        (("newton",), {}, 'plan."train", .newton.'),
        (("evaluate",), {}, "give the model"),
        (("evaluate", "newton"), {}, "give what train.. returned"),
        (("train", "newtn"), {}, "did you mean 'newton'"),
        (("train", "newton"), {"journal": "x"}, "keeps no journal"),
        (("train", "newton"), {"epsilom": 1}, "'epsilon'"),
    ):
        with pytest.raises(radofed.ConfigurationError, match=says):
            asked.plan(*values, **{"epsilon": 1, **options})


def test_a_model_predicts_says_and_is_measured(asked, model, tmp_path):
    predicted = model.predict(NEW)
    assert set(predicted) == {"yes", "no"}
    assert np.mean(predicted == NEW["ill"].to_numpy()) > 0.75
    with pytest.raises(radofed.ModelError, match="calibrated"):
        model.predict_proba(NEW)
    found = model.evaluate(asked, epsilon="1/2")
    assert "hold back" in found.sentences()[0]
    calibrated = model.calibrated(found)
    chances = calibrated.predict_proba(NEW)
    assert calibrated.classes == ("no", "yes")
    assert chances.shape == (400, 2)
    assert np.allclose(chances.sum(axis=1), 1)
    told = model.summary()
    assert re.search(r"age +for each unit more +[+]0[.]", told)
    assert all(sentence in told for sentence in model.statement.sentences())
    model.save(tmp_path / "model.json")
    assert radofed.Model.load(str(tmp_path / "model.json")).summary() == told
    again = asked.train("newton", epsilon=1, rounds=2, hold_back=0.2, start_from=model)
    assert again.started_from == model.digest


def test_rows_without_a_prediction_have_none(model):
    odd = NEW.head(3).assign(age=[np.nan, 50, 60])
    lenient = radofed.Schema.from_toml(
        SCHEMA.replace('upper = 95\nmissing = "refuse"', 'upper = 95\nmissing = "zero-vector"')
    )
    with pytest.warns(UserWarning, match="no prediction"):
        found = replace(model, schema=lenient).predict(odd.head(1))
    assert list(found) == [None]


def test_what_notebooks_show_is_escaped_and_small(model, tmp_path):
    shown, picture = model._repr_html_(), model.plot()
    drawn = picture._repr_html_()
    assert "&lt;patients&gt;" in shown
    for text in (shown, drawn):
        assert "<patients>" not in text
        assert "<script" not in text
        assert "http" not in text
        assert len(text) < 20_000
    assert "prefers-color-scheme: dark" in drawn
    # Styles of a piece reach nothing else of the page.
    style = re.search(r"<style>(.*?)</style>", drawn, re.DOTALL)[1]
    assert all(rule.strip().startswith((".radofed", "@media")) for rule in re.findall(r"(?:^|})([^{}]+){", style))
    picture.save(tmp_path / "model.svg")
    assert (tmp_path / "model.svg").read_text().startswith("<svg")
    with pytest.raises(radofed.ConfigurationError, match="SVG"):
        picture.save("model.png")


@pytest.mark.more
def test_a_model_of_a_number_predicts_in_units_and_says_them(tmp_path):
    with federation(COST) as asked:
        model = asked.train("newton", epsilon=4)
        found = model.evaluate(asked, epsilon=2)
        described = asked.describe(["cost"], epsilon=4)
        correlated = asked.correlate(epsilon=20)
        assert asked.plan("correlate", ["age", "cost"], epsilon=20).widths().rows
    costs = pd.concat(FRAMES.values())
    for quantity, true in (("mean", costs["cost"].mean()), ("standard deviation", costs["cost"].std())):
        figure = described.one(quantity, "cost")
        assert figure.lower - 1 < true < figure.upper + 1
        assert 0 < figure.half_width < 5
    pair = correlated.one("correlation", "cost", level="age")
    assert pair.lower - 0.05 < costs["cost"].corr(costs["age"]) < pair.upper + 0.05
    assert np.abs(model.predict(NEW) - NEW["age"]).mean() < 5
    assert float(re.search(r"age +for each unit more +[+]([0-9.]+)", model.summary())[1]) == pytest.approx(1, abs=0.15)
    assert found.sentences()
    assert "adds to " in model.plot()._repr_html_()
    with pytest.raises(radofed.RadofedError):
        model.predict_proba(NEW)
    assert found.absolute_error.lower < found.absolute_error.estimate < found.absolute_error.upper
    assert len(found.bins) > 1
    with pytest.raises(radofed.ConfigurationError, match="is about scores of classes"):
        model.evaluate(asked, epsilon=1, cost="false-negative=2")
    with pytest.raises(radofed.ModelError, match="evaluation of a label of classes"):
        model.calibrated(found)


def test_a_model_of_several_classes_predicts_their_names():
    wards = {"cold": 25, "warm": 55, "hot": 80}
    text = SCHEMA.replace("schema_version = 2", "schema_version = 4")
    before, _, after = text.partition("[label]")
    features = after.partition("[[features]]")[2]
    label = f'[label]\ncolumn = "ward"\ntype = "classes"\nvalues = {list(wards)}\nmissing = "refuse"\n\n[[features]]'
    random = np.random.default_rng(5)
    tables = {}
    for name in SIZES:
        ward = random.choice(list(wards), 2500)
        age = np.clip(np.vectorize(wards.get)(ward) + random.normal(0, 6, len(ward)), 20, 95)
        tables[name] = pd.DataFrame({"age": age, "smoker": random.random(len(ward)) < 0.3, "ward": ward})
    schema = radofed.Schema.from_toml(f"{before}{label}{features}")
    asked = radofed.simulate_federation(tables, schema=schema)
    model = asked.train("newton", epsilon=4, rounds=4)
    predicted = model.predict(tables["north"])
    assert np.mean(predicted == tables["north"]["ward"].to_numpy()) > 0.8
    assert model.classes == tuple(wards)
    assert all(f"the score of {name!r}" in model.summary() for name in wards)
    assert model.evaluate(asked, epsilon=1).sentences()
    assert "<svg" in model.plot()._repr_html_()


@pytest.mark.more
def test_a_model_of_a_time_to_an_event_predicts_means_and_says_ratios():
    head, _, features = SCHEMA.partition("[label]")
    label = """[label]
type = "event"
column = "years"
event = "died"
happened = ["yes"]
censored = ["no"]
borders = [1, 2, 3, 4]
missing = "refuse"
unreadable = "refuse"
unlisted = "refuse"

"""
    text = head.replace("schema_version = 2", "schema_version = 5") + label + features[features.index("[[features]]") :]
    random, tables = np.random.default_rng(4), {}
    for name, frame in FRAMES.items():
        times = random.exponential(1 / (0.3 * np.exp(0.03 * (frame["age"] - 60))))
        last = random.uniform(0.5, 10, len(frame))
        died = np.where(times <= last, "yes", "no")
        tables[name] = frame.assign(years=np.minimum(times, last), died=died)[["age", "smoker", "years", "died"]]
    asked = radofed.simulate_federation(tables, schema=radofed.Schema.from_toml(text))
    model = asked.train("hazards", epsilon=4, rounds=4)
    means = model.predict(NEW)
    assert ((means > 0) & (means < 4)).all()
    assert np.corrcoef(means, NEW["age"])[0, 1] < -0.8
    assert re.search(r"age +for each unit more +[+]0[.]0", model.summary())
    assert {each.column: each.ratio for each in model.ratios()}["age"] == pytest.approx(np.exp(0.03), rel=0.03)
    assert "concordance" in str(model.errors(tables["north"]))
    assert model.evaluate(asked, epsilon=1).sentences()
    planned = asked.plan("survival", by="smoker", epsilon=1)
    assert "at delta 0 " in planned.sentences()[2] + planned.sentences()[3]
    assert "1e-06" not in " ".join(planned.sentences())
    assert planned.to_dict()["delta"] == 0
    curves = asked.survival(by="smoker", epsilon=1)
    assert curves.privacy.delta == 0
    columns = curves.to_columns()
    assert {len(column) for column in columns.values()} == {len(curves.figures)}
    assert all(isinstance(value, float) for value in columns["estimate"] + columns["p_value"])
    assert "<svg" in curves.plot()._repr_html_()
    assert "<svg" in curves._repr_html_()
    assert repr(curves) == curves.text
    assert "adds to the logarithm of the hazard of died" in model.plot()._repr_html_()
    with pytest.raises(radofed.RadofedError):
        model.predict_proba(NEW)


@pytest.mark.more
def test_a_number_that_is_learned_by_its_logarithm_has_ratios():
    tables = {
        name: frame.assign(cost=np.exp(1 + 0.02 * frame["age"] + 0.4 * frame["smoker"]))
        for name, frame in FRAMES.items()
    }
    schema = COST.replace("lower = 0\nupper = 100", "lower = 1\nupper = 100\nlog = true", 1)
    asked = radofed.simulate_federation(tables, schema=radofed.Schema.from_toml(schema))
    model = asked.train("newton", epsilon=4, rounds=4)
    (ratio,) = model.ratios()
    assert ratio.ratio == pytest.approx(np.exp(0.02), rel=0.005)
    younger, older = model.predict(pd.DataFrame({"age": [50, 51]}))
    assert ratio.ratio == pytest.approx(older / younger)
    assert f"{ratio.ratio:.4g} ({ratio.lower:.4g} to {ratio.upper:.4g})" in model.summary()
    assert "R^2" in str(model.errors(tables["north"]))


@pytest.mark.more
def test_effects_that_add_up_have_no_ratios(asked, model):
    with pytest.raises(radofed.SchemaError, match="train newton with a clip of at least 1"):
        model.ratios()
    added = federation(COST).train("newton", epsilon=4, rounds=3)
    with pytest.raises(radofed.SchemaError, match="is no ratio"):
        added.ratios()
    assert "wrong on" in str(model.errors(FRAMES["north"]))
    assert repr(model) == "<model of newton, for the label 'ill' of schema '<patients>'>"
    assert "mean" in asked.describe("age", epsilon=1).plot()._repr_html_()
    one_row = federation().describe("age", by="ill", epsilon=1)
    nothing = replace(one_row, figures=tuple(replace(each, estimate=None) for each in one_row.figures))
    with pytest.raises(radofed.ConfigurationError, match="nothing was measured"):
        nothing.plot()


@pytest.mark.more
def test_whole_numbers_may_be_floats_and_one_column_stands_alone(asked):
    found = federation(seed=1.0).train("newton", epsilon=1.0, rounds=2.0)
    assert found.statement.releases == 2
    assert len(federation(cohort_min=3.0).within(1.0, adaptive=2.0).statistic([OLD]).values) == 1
    assert len(radofed.simulated_federation(NEW, label="ill", positive="yes", parties=4.0).source._parts) == 4
    assert asked.describe("age", cells=16.0, epsilon=1).one("mean", "age").estimate == pytest.approx(57, abs=3)
    assert asked.crosstab("age", "smoker", edges={"age": 60.0}, epsilon=1).facts["down"]["levels"] == [
        "below 60",
        "60 or more",
    ]
    with pytest.raises(radofed.ConfigurationError, match="rounds"):
        asked.train("newton", epsilon=1, rounds=2.5)


def test_the_privacy_of_a_federation_counts_all_that_it_was_asked():
    asked = federation()
    with pytest.raises(radofed.ConfigurationError, match="nothing was answered"):
        asked.privacy()
    asked.statistic([OLD], epsilon=0.5)
    first = asked.privacy()
    training, held_back = asked.hold_back(0.2)
    training.statistic([OLD], epsilon=0.5)
    both = asked.privacy()
    assert first.epsilon_if_others_collude < both.epsilon_if_others_collude <= 1
    assert held_back.privacy().epsilon == both.epsilon
    # Of a budget that was begun, the rest counts as well: it may be left because of what was answered.
    asked.within(2).statistic([OLD], part=0.1)
    begun = asked.privacy()
    assert begun.epsilon_if_others_collude > both.epsilon_if_others_collude + 1
    assert begun.releases == 3
