"""Pairs that a learner chooses from a federation's answer, and a run that goes on from there, over real processes."""

import json
from pathlib import Path

import numpy as np
import pytest

from radofed.node_config import PolicyChoices
from tests.federation.processes import ProcessFederation, rado

NAMES = tuple(f"x{n}" for n in range(22))
"""The products of all their pairs do not fit into 256 terms."""

FEATURES = "".join(f'[[features]]\nname = "{name}"\ntype = "real"\nlower = -1.0\nupper = 1.0\n' for name in NAMES)
SCHEMA = f"""
schema_version = 1
name = "crossed"
[label]
column = "y"
positive = ["1"]
negative = ["0"]
{FEATURES}"""


def table(rows: int, seed: int) -> str:
    """The label is whether x3 and x7 have one sign."""
    values = np.random.default_rng(seed).uniform(-1, 1, (rows, len(NAMES)))
    lines = [f"{','.join(f'{x:.4f}' for x in row)},{int(row[3] * row[7] > 0)}" for row in values]
    return "\n".join([",".join([*NAMES, "y"]), *lines]) + "\n"


@pytest.fixture
def federation(tmp_path):
    parties = {name: table(600, seed) for seed, name in enumerate("abc")}
    allowing = PolicyChoices(designs=("statistic", "gradient", "moments"), epsilon="900", delta="1e-4")
    with ProcessFederation(tmp_path, parties=parties, schema=SCHEMA, policy=allowing) as federation:
        federation.serve("--bits", "2048")
        yield federation


@pytest.mark.slow
def test_a_run_goes_on_after_the_choice_of_pairs(federation):
    """The choice is an answer like others: it is read again, and so are the terms that follow from it."""
    config, model = str(federation.learner.config), federation.root / "model.json"
    options = (
        "--estimator", "additive", "--config", config, "--schema", str(federation.root / "schema.toml"),
        "--epsilon", "60", "--rounds", "4", "--option", "pairs=true", "--option", "knots=1", "-o", str(model),
    )  # fmt: skip
    made = rado("learner", "train", *options)["data"]
    assert made["answers"] == 4
    first = json.loads(model.read_text())
    assert "product" in {term["function"] for term in first["feature_map"]}
    held_out = federation.root / "held_out.csv"
    held_out.write_text(table(1000, 99))
    assert rado("learner", "predict", str(model), str(held_out))["data"]["error_rate"] < 0.2

    journal = Path(f"{model}.journal")
    content = json.loads(journal.read_text())
    # As if it had been killed after the choice.
    journal.write_text(json.dumps({**content, "rounds": content["rounds"][:2]}))
    model.unlink()
    rado("learner", "train", *options)
    assert json.loads(model.read_text())["feature_map"] == first["feature_map"]
    assert json.loads(journal.read_text())["rounds"][:2] == content["rounds"][:2]
    queries = rado("learner", "list", "--config", config)["data"]["queries"]
    assert len(queries) == 4 + 2
