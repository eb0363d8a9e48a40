"""The frequent levels of a column of codes, found over real processes; then a schema with them, and a model."""

import csv
import json

import numpy as np
import pytest

from dpcore.records.schema import Schema
from learner.model import Model
from radofed.node_config import PolicyChoices
from tests.federation.processes import ProcessFederation, rado

pytestmark = pytest.mark.more

CODES = [f"{letter}{number:02}" for letter in "EIJ" for number in range(100)]
FEATURES = """
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 100.0
"""
SCHEMA = f"""
schema_version = 5
name = "stays"
texts = ["nfc", "trim"]
[[labels]]
column = "died"
positive = ["yes"]
missing = "zero-vector"
[[labels]]
type = "classes"
column = "diagnosis"
prefix = 3
values = {json.dumps(CODES)}
missing = "zero-vector"
unlisted = "zero-vector"
{FEATURES}"""
ROWS = {"a": 700, "b": 500, "c": 600}
FREQUENT = {"E11": 0.3, "I10": 0.25, "J18": 0.2}
ALLOWING = PolicyChoices(designs=("moments", "gradient", "statistic"), smallest_cohort=3, epsilon="400", delta="1e-3")


def write_table(rows: int, seed: int) -> str:
    random = np.random.default_rng(seed)
    lines = ["age,diagnosis,died"]
    rest = 1 - sum(FREQUENT.values())
    for code in random.choice([*FREQUENT, "E99", "unknown"], rows, p=[*FREQUENT.values(), 0.001, rest - 0.001]):
        died = "yes" if random.random() < (0.7 if code == "J18" else 0.2) else "no"
        lines.append(f"{random.uniform(0, 100):.1f},{code}.{random.integers(10)},{died}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("levels")
    parties = {name: write_table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(root, parties=parties, schema=SCHEMA, policy=ALLOWING, rows_at_least=ROWS) as federation:
        federation.serve()
        yield federation


def asking(federation) -> tuple[str, ...]:
    return *federation.asking, "--label", "diagnosis"


def test_a_plan_says_from_how_many_rows_on_a_level_is_found_and_asks_nothing(federation):
    planned = rado("learner", "levels", *asking(federation), "--epsilon", "1", "--plan")["data"]["plan"]
    assert planned["predicates"] == len(CODES)
    assert planned["delta"] == 0
    assert "for all 300 candidates" in " ".join(planned["promises"])
    refused = rado("learner", "levels", *asking(federation), "--epsilon", "1", "--at-least", "3", code=6)["error"]
    assert "cannot be told from none" in refused["message"]
    assert not rado("learner", "list", "--config", str(federation.learner.config))["data"]["queries"]


def test_the_piece_that_is_found_is_the_schema_of_a_model(federation):
    """Each party reads its table by the new schema, and a model of it uses the levels."""
    piece = federation.root / "piece.toml"
    asked = rado("learner", "levels", *asking(federation), "--epsilon", "2", "--output", str(piece))["data"]
    assert set(asked["levels"]) == set(FREQUENT)
    truth = dict.fromkeys(FREQUENT, 0)
    for name in ROWS:
        with (federation.directory(name) / "data.csv").open() as file:
            for row in csv.DictReader(file):
                truth[row["diagnosis"][:3]] = truth.get(row["diagnosis"][:3], 0) + 1
    for figure in asked["figures"][:-1]:
        assert figure["lower"] <= truth[figure["level"]] <= figure["upper"]
    assert asked["privacy"]["epsilon"] <= 2
    assert asked["privacy"]["unit"] == "one record"
    again = rado("learner", "levels", "--release", asked["release"])["data"]
    assert again["schema"] == asked["schema"]
    text = (
        SCHEMA.split("[[labels]]", maxsplit=1)[0]
        + '[label]\ncolumn = "died"\npositive = ["yes"]\nmissing = "zero-vector"\n'
    )
    text += f"{FEATURES}\n{piece.read_text()}"
    assert Schema.from_toml(text).coordinates == ("age", "diagnosis=E11", "diagnosis=I10", "diagnosis=J18", "bias")
    (federation.root / "next.toml").write_text(text)
    for name in ROWS:
        (federation.directory(name) / "schema.toml").write_text(text)
        rado("party", "reload", "--config", str(federation.member(name).config))
    config, model = str(federation.learner.config), str(federation.root / "model.json")
    rado("learner", "train", "--estimator", "newton", "--config", config, "--schema",
         str(federation.root / "next.toml"), "--epsilon", "40", "--rounds", "2", "-o", model)  # fmt: skip
    weights = dict(zip(Schema.from_toml(text).coordinates, Model.load(model).theta.tolist(), strict=True))
    assert weights["diagnosis=J18"] > weights["diagnosis=E11"] + 0.3
