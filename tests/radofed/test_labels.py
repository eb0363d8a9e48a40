"""A schema of several labels in plans, simulations and Python: a query names the label that it is about."""

import json

import numpy as np
import pyarrow as pa
import pytest

import radofed
from dpcore.errors import SchemaError
from radobase.schema_files import load_shared
from radofed.cli.entry_point import run

SCHEMA = """
schema_version = 5
name = "stays"
texts = []
[[labels]]
name = "death"
column = "died"
positive = ["yes"]
missing = "zero-vector"
[[labels]]
type = "number"
column = "days"
lower = 0.0
upper = 40.0
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 100.0
"""


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(3)
    age = random.uniform(20, 95, 1200)
    died = np.where(random.random(1200) < age / 120, "yes", "no").astype(object)
    died[::7] = None
    return pa.table({"age": age, "died": died, "days": np.clip(age / 4 + random.normal(0, 2, 1200), 0, 40)})


@pytest.fixture
def schema(tmp_path):
    (tmp_path / "s.toml").write_text(SCHEMA)
    return tmp_path / "s.toml"


@pytest.mark.filterwarnings("ignore:.*rows are not usable")
def test_each_label_is_asked_about_its_own_usable_rows(table, schema):
    parties = {"north": table.slice(0, 600), "south": table.slice(600)}
    death = radofed.simulate_federation(parties, schema=schema, label="death")
    days = radofed.simulate_federation(parties, schema=schema, label="days")
    with pytest.raises(SchemaError, match="has 2 labels, 'death', 'days': name one"):
        radofed.simulate_federation(parties, schema=schema)
    found = death.statistic(["y == 1", "true"], epsilon=50).values
    assert found[1] == pytest.approx(1 - 1 / 7, abs=0.01)
    assert 0.3 < found[0] < 0.6
    assert days.statistic(["y >= 10", "true"], epsilon=50).values[1] == pytest.approx(1, abs=0.01)
    model = days.train("newton", epsilon=20, rounds=3)
    assert model.schema == load_shared(schema).about("days")


def test_a_simulation_is_about_one_label(table, schema):
    with pytest.raises(SchemaError, match="name one"):
        radofed.simulate(table, schema=schema, parties=3, folds=2, workers=0)
    found = radofed.simulate(
        table, schema=schema, label="days", parties=3, folds=2, estimators="linear", epsilon=5, workers=0
    )
    assert found.to_dict()["results"]["linear"]["r2_mean"] > 0.5


def test_a_plan_is_about_one_label(schema, capsys):
    def plan(*options):
        sizes = ("--rows", "9000", "--parties", "3", "--epsilon", "1")
        code = run(["plan", "--design", "moments", *sizes, *options, "--format", "json"])
        return code, json.loads(capsys.readouterr().out)

    code, found = plan("--schema", str(schema))
    assert code != 0
    assert "name one by --label" in json.dumps(found)
    of = {}
    for name in ("death", "days"):
        code, found = plan("--schema", str(schema), "--label", name)
        assert code == 0
        of[name] = found["data"]
    assert of["death"] != of["days"]
    code, found = plan("--label", "death")
    assert code != 0
    assert "a label is one of a schema" in json.dumps(found)
