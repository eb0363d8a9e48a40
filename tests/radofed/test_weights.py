"""Weights over simulated federations: training by weights is training on repeated rows, and what has none says so."""

import json

import numpy as np
import pyarrow as pa
import pytest

import radofed
from dpcore.errors import ConfigurationError, DataError, SchemaError
from learner.requests import ChosenRequest, RadosRequest, StatisticRequest
from radofed.cli.entry_point import run

TOML = """
schema_version = 5
name = "survey"
texts = []
[label]
column = "ill"
positive = ["yes"]
[weight]
column = "w"
upper = 4.0
missing = "no-weight"
unreadable = "no-weight"
out_of_bounds = "clip"
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 100.0
"""
SCHEMA = radofed.Schema.from_toml(TOML)
ALIKE = "statistics count all rows alike"


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    rows = 3000
    age, weight = random.uniform(0, 100, rows), np.where(random.random(rows) < 0.5, 1.0, 4.0)
    # The rows that count four times say the opposite of the others.
    risk = 1 / (1 + np.exp(-np.where(weight == 4, 1, -1) * (age - 50) / 12))
    return pa.table({"age": age, "w": weight, "ill": np.where(random.random(rows) < risk, "yes", "no")})


def parties(table):
    half = len(table) // 2
    return {"north": table.slice(0, half), "south": table.slice(half)}


@pytest.mark.more
def test_training_by_weights_is_training_on_repeated_rows(table):
    big = table.take(np.repeat(np.arange(len(table)), table["w"].to_numpy().astype(int)))
    made = {
        name: radofed.simulate_federation(parties(rows), schema=schema, seed=1).train("newton", epsilon=60, rounds=4)
        for name, rows, schema in (
            ("weights", table, SCHEMA),
            ("repeated", big, SCHEMA.unweighted),
            ("alike", table, SCHEMA.unweighted),
        )
    }
    assert made["weights"].theta == pytest.approx(made["repeated"].theta, abs=0.06)
    assert made["weights"].theta[0] > 1 > abs(made["alike"].theta[0])
    assert made["weights"].schema == SCHEMA


@pytest.mark.parametrize("kind", ["number", "count"])
def test_a_regression_of_rows_that_all_have_the_weight_0_stops_after_one_answer(kind):
    random = np.random.default_rng(0)
    rows = pa.table({"age": random.uniform(0, 100, 900), "w": np.zeros(900), "ill": random.integers(0, 20, 900)})
    bounds = "lower = 0\nupper = 20" if kind == "number" else "upper = 20"
    schema = radofed.Schema.from_toml(TOML.replace('positive = ["yes"]', f'type = "{kind}"\n{bounds}'))
    federation = radofed.simulate_federation(parties(rows), schema=schema, seed=1)
    with pytest.raises(DataError, match="the rows' weights 'w' add up to"):
        federation.train("newton", epsilon=5)
    assert len(federation.answers) == 1


def test_statistics_count_rows_alike_and_say_so(table):
    federation = radofed.simulate_federation(parties(table), schema=SCHEMA, seed=1)
    with pytest.warns(UserWarning, match=ALIKE):
        found = federation.statistic(["y == 1"], epsilon=50).values
    alike = np.mean(table["ill"].to_numpy(zero_copy_only=False) == "yes")
    assert found[0] == pytest.approx(alike, abs=0.01)
    assert StatisticRequest(SCHEMA, (), epsilon=1).schema == SCHEMA.unweighted


def test_what_cannot_count_by_weights_is_refused_before_anything_is_asked(table):
    federation = radofed.simulate_federation(parties(table), schema=SCHEMA, seed=1)
    for name in ("additive", "logistic-gd"):
        with pytest.raises(ConfigurationError, match="cannot count rows by the weight 'w'"):
            federation.train(name, epsilon=5)
    with pytest.raises(SchemaError, match="counts all rows alike"):
        federation.correlate(epsilon=5)
    for request, options in ((RadosRequest, {"design": "gaussian", "rados": 5}), (ChosenRequest, {})):
        with pytest.raises(ConfigurationError, match="cannot count rows by the weight 'w'"):
            request(SCHEMA, epsilon=1, **options)
    oracle = federation.within(5, "1e-6")
    with pytest.raises(ConfigurationError, match="ask for moments first"):
        oracle.gradient(np.zeros(2), clip=1)


@pytest.mark.more
def test_simulations_count_by_weights_and_name_what_does_not(table):
    found = radofed.simulate(table, schema=SCHEMA, parties=3, folds=2, estimators="mean-variance", epsilon=5, workers=0)
    assert any("Weights count in moments and gradients" in note for note in found.to_dict()["notes"])
    with pytest.raises(ConfigurationError, match="cannot count rows by the weight"):
        radofed.simulate(table, schema=SCHEMA, parties=3, folds=2, estimators="additive", epsilon=5, workers=0)


def test_a_plan_counts_a_value_more(tmp_path, capsys):
    (tmp_path / "weighed.toml").write_text(TOML)
    (tmp_path / "alike.toml").write_text(SCHEMA.unweighted.to_toml())
    epsilon = {}
    for name in ("weighed", "alike"):
        sizes = ("--rows", "9000", "--parties", "3", "--epsilon", "1", "--schema", str(tmp_path / f"{name}.toml"))
        assert run(["plan", "--design", "moments", *sizes, "--format", "json"]) == 0
        epsilon[name] = json.loads(capsys.readouterr().out)["data"]["epsilon_if_others_collude"]
    assert epsilon == pytest.approx({"weighed": 1, "alike": 1}, abs=1e-3)
    newton = ("--estimator", "newton", "--rows", "9000", "--parties", "3", "--epsilon", "1")
    assert run(["plan", *newton, "--schema", str(tmp_path / "weighed.toml")]) == 0
