"""Labels that are numbers and counts, over real processes: trainings, predictions, evaluations and reports."""

import csv
import json

import numpy as np
import pytest

from radofed.node_config import PolicyChoices
from tests.federation.processes import ProcessFederation, rado

pytestmark = pytest.mark.more

SCHEMA = """
schema_version = 5
name = "pay"
texts = ["nfc", "trim"]
[label]
type = "number"
column = "wage"
lower = 1.0
upper = 1000.0
log = true
out_of_bounds = "clip"
missing = "zero-vector"
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 100.0
[[features]]
name = "trained"
type = "boolean"
true = ["yes"]
false = ["no"]
"""
ROWS = {"a": 900, "b": 1300, "c": 700}
ALLOWING = PolicyChoices(designs=("statistic", "gradient", "moments"), epsilon="200", delta="1e-4")


def table(rows: int, seed: int) -> str:
    generator = np.random.default_rng(seed)
    age, trained = generator.uniform(0, 100, rows), generator.random(rows) < 0.5
    wage = np.exp(2 + 0.02 * age + 0.8 * trained + 0.3 * generator.normal(size=rows))
    cells = zip(age, trained, wage, strict=True)
    return "age,trained,wage\n" + "".join(f"{a:.2f},{'yes' if t else 'no'},{w:.3f}\n" for a, t, w in cells)


VISITS = """
type = "count"
column = "visits"
upper = 60
exposure = "years"
exposure_lower = 0.5
exposure_upper = 4.0
[[features]]"""
OF_COUNTS = SCHEMA[: SCHEMA.index("type = ")].rstrip() + VISITS + SCHEMA.split("[[features]]", 1)[1]


def visits(rows: int, seed: int) -> str:
    generator = np.random.default_rng(seed)
    age, trained = generator.uniform(0, 100, rows), generator.random(rows) < 0.5
    years = generator.uniform(0.5, 4.0, rows)
    counts = np.minimum(generator.poisson(years * np.exp(0.012 * age + 0.6 * trained - 0.3)), 60)
    cells = zip(age, trained, years, counts, strict=True)
    rows_of = "".join(f"{a:.2f},{'yes' if t else 'no'},{y:.3f},{n}\n" for a, t, y, n in cells)
    return f"age,trained,years,visits\n{rows_of}"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    yield from started(tmp_path_factory.mktemp("numbers"), SCHEMA, table)


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    yield from started(tmp_path_factory.mktemp("counts"), OF_COUNTS, visits)


def started(root, schema: str, made):
    parties = {name: made(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(root, parties=parties, schema=schema, policy=ALLOWING, rows_at_least=ROWS) as federation:
        federation.serve("--bits", "2048")
        yield federation


def test_a_release_of_moments_trains_linear(federation, tmp_path):
    schema = str(federation.root / "schema.toml")
    asked = rado("learner", "query", "--epsilon", "8", "--schema", schema, *federation.config)["data"]
    model = tmp_path / "linear.json"
    rado("learner", "train", "--estimator", "linear", str(asked["release"]), "--output", str(model))
    new = tmp_path / "new.csv"
    new.write_text(table(500, 9))
    found = rado("learner", "predict", str(model), str(new), "--output", str(tmp_path / "scores.csv"))["data"]
    assert found["r2"] > 0.7
    with (tmp_path / "scores.csv").open() as file:
        predicted = [float(row["predicted wage"]) for row in csv.DictReader(file)]
    with new.open() as file:
        wages = [float(row["wage"]) for row in csv.DictReader(file)]
    assert np.corrcoef(np.log(predicted), np.log(wages))[0, 1] > 0.85


def test_newton_asks_and_is_evaluated_on_rows_that_are_held_back(federation, tmp_path):
    schema, model = str(federation.root / "schema.toml"), tmp_path / "newton.json"
    rado(
        "learner", "train", "--estimator", "newton", "--epsilon", "20", "--schema", schema, "--hold-back", "1/4",
        "--output", str(model), *federation.config,
    )  # fmt: skip
    assert json.loads(model.read_text())["learner"] == "newton"
    options = ("--epsilon", "40", *federation.config)
    found = rado("learner", "evaluate", str(model), *options)["data"]
    assert found["r2"]["estimate"] == pytest.approx(0.8, abs=0.2)
    assert found["r2"]["lower"] < found["r2"]["estimate"] < found["r2"]["upper"]


def test_additive_asks_over_a_feature_map_and_is_evaluated_over_it(federation, tmp_path):
    schema, model = str(federation.root / "schema.toml"), tmp_path / "additive.json"
    rado(
        "learner", "train", "--estimator", "additive", "--epsilon", "60", "--rounds", "5", "--schema", schema,
        "--hold-back", "1/4", "--output", str(model), *federation.config,
    )  # fmt: skip
    assert "feature_map" in json.loads(model.read_text())
    options = ("--epsilon", "40", *federation.config)
    found = rado("learner", "evaluate", str(model), *options)["data"]
    assert found["r2"]["estimate"] == pytest.approx(0.8, abs=0.2)
    drawn = rado("learner", "picture", str(model))["data"]
    assert drawn["adds_to"] == "the logarithm of wage"
    assert {each["columns"][0] for each in drawn["ranking"]} == {"age", "trained"}


def test_a_rate_is_learned_measured_and_reported(counting, tmp_path):
    schema, model, page = str(counting.root / "schema.toml"), tmp_path / "rates.json", tmp_path / "report.html"
    options = ("--estimator", "newton", "--epsilon", "20", "--schema", schema, "--output", str(model))
    rado("learner", "train", *options, *counting.config)
    printed = rado("learner", "evaluate", str(model), "--epsilon", "40", *counting.config)
    found, every = printed["data"], tmp_path / "every.csv"
    lines = [line for name in ROWS for line in (counting.directory(name) / "data.csv").read_text().split()[1:]]
    every.write_text("\n".join(["age,trained,years,visits", *lines]) + "\n")
    exact = rado("learner", "predict", str(model), str(every))["data"]["deviance_explained"]
    explained = found["explained"]
    assert explained["lower"] - 0.01 <= exact <= explained["upper"] + 0.01
    assert explained["upper"] - explained["lower"] < 0.5
    cells = np.array([[float(cell) for cell in line.split(",")[2:]] for line in lines])
    assert found["rate"]["lower"] <= cells[:, 1].sum() / cells[:, 0].sum() <= found["rate"]["upper"]
    (tmp_path / "evaluation.json").write_text(json.dumps(printed))
    given = ("--evaluation", str(tmp_path / "evaluation.json"), "--test", str(every))
    rado("learner", "report", str(model), *given, *counting.config, "--output", str(page))
    assert "Observed beside predicted rates" in page.read_text()


def test_statistics_are_in_the_label_s_units(federation):
    schema = str(federation.root / "schema.toml")
    options = ("--schema", schema, "--epsilon", "20", *federation.config)
    found = rado("learner", "statistic", "y >= 20", "y", *options)["data"]
    lines = [line for name in ROWS for line in (federation.directory(name) / "data.csv").read_text().split()[1:]]
    wages = np.array([float(line.split(",")[2]) for line in lines])
    values = [each["estimate"] for each in found["estimates"]]
    assert values == pytest.approx([np.mean(wages >= 20), np.mean(np.log(wages) / np.log(1000))], abs=0.02)
