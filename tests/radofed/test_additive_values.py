"""Additive models of numbers, counts and times: private ones follow bends, are kept, and have shapes in units."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from learner.model import Model
from learner.predictions import predict
from learner.report.page import picture_page
from learner.shapes import shapes_of
from radofed.cli.entry_point import run
from radofed.console.learner.releases import _weights_of
from radofed.simulation.entry import simulate
from radofed.simulation.oracles import simulated_federation

pytestmark = pytest.mark.more

ROWS = 4_000
OPTIONS = {
    "wage": {"label": "wage", "target": "number"},
    "visits": {"label": "visits", "target": "count"},
    "years": {"label": "years", "target": "event", "event": "died"},
}
ADDS_TO = {
    "wage": "the logarithm of wage",
    "visits": "the logarithm of the rate of visits",
    "years": "the logarithm of the hazard of died",
}


def written(path: Path, heading: list[str], rows) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([heading, *rows])
    return path


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, Path]:
    """A label of each type that depends on |age - 50| and on a flag."""
    random, root = np.random.default_rng(8), tmp_path_factory.mktemp("values")
    age, smoker = random.integers(20, 81, ROWS), random.random(ROWS) < 0.4
    score = np.abs(age - 50) / 15 + 0.5 * smoker
    flag = np.where(smoker, "yes", "no")
    wages = np.exp(3.0 + 0.8 * score + 0.4 * random.normal(size=ROWS)).round(2)
    visits = random.poisson(np.exp(0.7 * score - 0.5))
    times, last = random.exponential(8.0 / np.exp(score)), random.uniform(0.5, 12.0, ROWS)
    ends = np.maximum(np.minimum(times, last), 0.01).round(3)
    shared = list(zip(age.tolist(), flag.tolist(), strict=True))
    columns = {"wage": [wages], "visits": [visits], "years": [ends, (times <= last).astype(int)]}
    return {
        name: written(
            root / f"{name}.csv",
            ["age", "smoker", *(["years", "died"] if name == "years" else [name])],
            [[*each, *cells] for each, cells in zip(shared, zip(*found, strict=True), strict=True)],
        )
        for name, found in columns.items()
    }


@pytest.fixture(scope="module")
def models(tables) -> dict[str, Model]:
    return {
        name: simulated_federation(str(table), parties=3, seed=2, **OPTIONS[name]).train("additive", epsilon=6)
        for name, table in tables.items()
    }


@pytest.mark.more
@pytest.mark.parametrize(("name", "measure", "least"), [
    ("wage", "r2_mean", 0.4), ("visits", "deviance_explained_mean", 0.15), ("years", "concordance_mean", 0.05),
])  # fmt: skip
def test_a_simulation_shows_that_curves_explain_more_than_lines(tables, name, measure, least):
    straight = "hazards" if name == "years" else "newton"
    options = {"parties": 3, "folds": 2, "workers": 0, "epsilon": "4", **OPTIONS[name]}
    found = simulate(tables[name], estimators=f"additive,{straight}", **options).to_dict()["results"]
    assert found["additive"][measure] > found[straight][measure] + least
    assert found["additive"][measure] > found["pooled"][measure] + least


@pytest.mark.parametrize("name", OPTIONS)
def test_shapes_and_the_intercept_add_up_to_the_prediction_in_its_units(tables, models, name):
    model = models[name]
    shapes = shapes_of(model)
    assert shapes.adds_to == ADDS_TO[name]
    assert shapes.has_bands
    assert all(each.noise is not None and each.measurable > 0.5 for each in shapes.ranked if len(each.columns) == 1)
    (age,) = shapes.chosen(["age"])[:1]
    (smoker,) = [shape for shape in shapes.ranked if shape.columns == ("smoker",)]
    assert age.adds_to == ADDS_TO[name]
    # Far from the knots' noise: the ends are higher than the middle by 0.8, 0.7 and 1 for each 15 years.
    at = {round(float(each.value)): each.adds for each in age.line}
    bend = (at[min(at)] + at[max(at)]) / 2.0 - min(at.values())
    assert bend == pytest.approx({"wage": 1.6, "visits": 1.4, "years": 2.0}[name], rel=0.35)
    if name == "years":
        return
    found = predict(model, str(tables[name])).values
    with tables[name].open(newline="") as file:
        row = next(csv.DictReader(file))
    near = np.interp(float(row["age"]), [each.value for each in age.line], [each.adds for each in age.line])
    flag = (max if row["smoker"] == "yes" else min)(each.adds for each in smoker.values)
    products = [shape for shape in shapes.ranked if len(shape.columns) > 1]
    if not products and not age.points:
        assert np.log(found[0]) == pytest.approx(shapes.intercept + near + flag, abs=0.02)


def test_models_are_kept_and_drawn(models, tmp_path, capsys):
    for name, model in models.items():
        file = tmp_path / f"{name}.json"
        model.save(file)
        assert Model.load(file).digest == model.digest
        assert not model.coefficients()[0].rows
        assert run(["learner", "picture", str(file), "--out", str(tmp_path / f"{name}.svg"), "--format", "json"]) == 0
        data = json.loads(capsys.readouterr().out)["data"]
        assert (data["adds_to"], data["is_logarithm"]) == (ADDS_TO[name], True)
        assert f"adds to {ADDS_TO[name]}" in (tmp_path / f"{name}.svg").read_text()
        page = picture_page(model, file.name, [(shapes_of(model), shapes_of(model).ranked)], "1").saved()
        assert "To add 0.1 is to multiply by 1.105." in page
        assert "The larger the score" not in page
        assert ADDS_TO[name] in model.summary()
        ((label, words, sizes),) = _weights_of(model)
        assert (label, ADDS_TO[name] in words, {title for title, _ in sizes}) == (name, True, {"age", "smoker"})
        with pytest.raises(ConfigurationError, match="has no classes: leave of="):
            shapes_of(model, "yes")


def test_a_number_that_is_no_logarithm_has_shapes_in_its_own_units(models):
    model = models["wage"]
    label = model.schema.label
    linear = replace(model, schema=replace(model.schema, label=replace(label, log=False, lower=-50.0, upper=150.0)))
    shapes = shapes_of(linear)
    assert (shapes.adds_to, shapes.to_dict([])["is_logarithm"]) == ("wage", False)
    logged = shapes_of(model)
    half = (np.log(label.upper) - np.log(label.lower)) / 2.0
    assert shapes.ranked[0].size == pytest.approx(logged.ranked[0].size / half * 100.0)
    middle = (np.log(label.upper) + np.log(label.lower)) / 2.0
    assert shapes.intercept == pytest.approx((logged.intercept - middle) / half * 100.0 + 50.0)
