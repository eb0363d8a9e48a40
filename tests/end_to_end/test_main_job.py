"""The main job over real processes: mutual TLS, a 3072-bit key, an encrypted total, a model; and what it logs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from dpcore.records.schema import Schema
from parties.data.dataset import load
from radofed.node_config import PolicyChoices
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import wait_until

SCHEMA = """
schema_version = 1
name = "canary"
[label]
column = "ill"
positive = ["yes"]
negative = ["no"]
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 131072.0
[[features]]
name = "dose"
type = "real"
lower = 0.0
upper = 10.0
[[features]]
name = "smoker"
type = "boolean"
true = ["yes"]
false = ["no"]
[[features]]
name = "ward"
type = "category"
values = ["north", "south", "canaryward"]
"""
# One row of every party has these; they must be in no log and in no answer.
CANARY = ("98765.4321", "7.31941", "canaryward")
ALLOWING = PolicyChoices(
    designs=("plain", "dp-feat"),
    allow_unprotected=True,
    smallest_cohort=3,
    epsilon="100",
    delta="1e-4",
    unbounded_queries=10,
)


def table(rows: int, seed: int) -> str:
    random = np.random.RandomState(seed)
    lines = ["age,dose,smoker,ward,ill"]
    for _ in range(rows - 1):
        age, dose = random.uniform(1, 130000), random.uniform(0.5, 9.5)
        smoker = random.rand() < 0.4
        ill = age / 131072 + dose / 10 + smoker * 0.5 + random.normal(0, 0.2) > 1.2
        ward = random.choice(["north", "south"])
        lines.append(f"{age:.3f},{dose:.4f},{'yes' if smoker else 'no'},{ward},{'yes' if ill else 'no'}")
    return "\n".join([*lines, f"{CANARY[0]},{CANARY[1]},yes,{CANARY[2]},yes"]) + "\n"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("main_job")
    parties = {
        name: table(rows, seed) for seed, (name, rows) in enumerate({"a": 150, "b": 220, "c": 90, "d": 60}.items())
    }
    with ProcessFederation(root, parties=parties, schema=SCHEMA, policy=ALLOWING, fresh=True) as federation:
        (root / "schema.toml").write_text(SCHEMA)
        federation.start_all()
        wait_until(lambda: "listening" in federation.log("coordinator"), what="the coordinator")
        yield federation


def test_a_model_from_rows_that_never_left(federation):
    config = str(federation.learner.config)
    schema = str(federation.root / "schema.toml")
    made = rado("learner", "keygen", "--config", config)
    assert made["data"]["bits"] == 3072
    asked = rado(
        "learner", "query", "--config", config, "--schema", schema, "--design", "dp-feat", "--sensitive", "smoker",
        "--rados", "200", "--delta", "1e-6",
    )["data"]  # fmt: skip
    assert asked["rados"] == {"n": 200, "d": 7, "unit": "2^-15"}
    assert asked["parties"] == 4
    privacy = asked["privacy"]
    assert privacy["scope"] == "marginal"
    assert "smoker" in privacy["unit"]
    assert 0 < privacy["epsilon"] < privacy["epsilon_if_others_collude"]
    model = federation.root / "model.json"
    rado("learner", "train", asked["release"], "--estimator", "mean-variance", "--output", str(model))
    held_out = federation.root / "held_out.csv"
    held_out.write_text(table(400, 99))
    predicted = rado("learner", "predict", str(model), str(held_out))["data"]
    majority = (
        min(predicted["positive_fraction"], 1 - predicted["positive_fraction"])
        if "positive_fraction" in predicted
        else 0.5
    )
    assert predicted["error_rate"] < 0.5 * max(majority, 0.2)


def test_the_documented_python_runs(federation, monkeypatch):
    """Unchanged, in a learner's directory."""
    examples = (Path(__file__).resolve().parents[2] / "docs/how-to/use-python.md").read_text()
    (snippet,) = (part for part in re.findall(r"```python\n(.*?)```", examples, re.DOTALL) if "RadosRequest(" in part)
    directory = federation.learner.directory
    (directory / "schema.toml").write_text(SCHEMA)
    (directory / "new.csv").write_text(table(20, 7))
    monkeypatch.chdir(directory)
    names: dict = {}
    exec(compile(snippet, "use-python.md", "exec"), names)
    assert names["release"].rados.shape == (200, 7)
    assert names["model"].estimator == "mean-variance"


def test_the_released_numbers_are_sums_of_the_parties_edges(federation):
    """Every rado lies in the span that the parties' rows allow, coordinate by coordinate."""
    from learner.release import Release

    releases = list((federation.learner.directory / "releases").iterdir())
    release = Release.load(releases[0])
    schema = Schema.from_toml(SCHEMA)
    edges = []
    for name in "abcd":
        records = load(federation.directory(name) / "data.csv", schema).records
        edges.append(records.features.astype(np.float64) / 2**30 * records.labels[:, None])
    edges = np.vstack(edges)
    low, high = np.minimum(edges, 0).sum(0), np.maximum(edges, 0).sum(0)
    slack = 520 * 2.0**-16
    assert (release.rados >= low - slack).all()
    assert (release.rados <= high + slack).all()
    # Their mean is half the sum of all edges, within five standard errors.
    error = release.rados.mean(0) - edges.sum(0) / 2
    standard_error = np.sqrt((edges**2).sum(0) / 4 / len(release.rados))
    assert (np.abs(error) <= 5 * standard_error + slack).all()
    assert release.rows == 520


def test_no_row_and_no_key_in_any_log_or_state(federation):
    """Runs after the job: what the nodes wrote holds nothing of the canary row, and no private key."""
    secrets = {
        f"{m.name} signing": (m.directory / "signing.key")
        for m in federation.made.members
        if (m.directory / "signing.key").exists()
    }
    bodies = {name: "".join(path.read_text().splitlines()[1:-1]) for name, path in secrets.items()}
    for name in ["coordinator", *"abcd"]:
        log = federation.log(name)
        assert log, f"{name} logged nothing"
        for value in CANARY:
            assert value not in log, f"{value} is in the log of {name}"
        for owner, body in bodies.items():
            assert body not in log, f"the key of {owner} is in the log of {name}"
        for line in log.splitlines():
            assert {"time", "level", "node", "event"} <= json.loads(line).keys(), line
    state = federation.directory("coordinator") / "state"
    for path in state.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            # The schema names the ward; its other values are the canary's.
            assert not any(value.encode() in content for value in CANARY[:2]), path


def test_status_names_the_phase(federation):
    status = rado("coordinator", "status", "--config", str(federation.member("coordinator").config))
    assert status["data"]["health"] == "SERVING"
    listed = rado("learner", "list", "--config", str(federation.learner.config))["data"]["queries"]
    assert [q["phase"] for q in listed] == ["complete", "complete"]


def test_a_party_without_scikit_learn_ray_or_a_secret_key(federation):
    """What `rado party start` has loaded, asked of the running process itself through its memory map."""
    process = federation.processes["a"]
    maps = open(f"/proc/{process.pid}/maps").read()  # noqa: PTH123, SIM115 - a pseudo-file
    assert "cygrpc" in maps
    for forbidden in ("sklearn", "/ray/"):
        assert forbidden not in maps


def test_every_process_ends_on_a_signal(federation):
    for name in ["a", "b", "c", "d", "coordinator"]:
        assert federation.stop(name) == 0, federation.log(name)[-2000:]
