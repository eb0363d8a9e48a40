"""Weights over real processes: a party with weights answers with them and without them, as the query's schema says."""

import numpy as np
import pytest

from learner.model import Model
from radofed.node_config import PolicyChoices
from tests.federation.processes import ProcessFederation, rado
from tests.radofed.test_weights import ALIKE, SCHEMA, TOML

pytestmark = pytest.mark.more

ROWS = {"a": 1500, "b": 1700, "c": 1300}
ALLOWING = PolicyChoices(designs=("moments", "gradient", "statistic"), smallest_cohort=3, epsilon="600", delta="1e-3")


def table(rows: int, seed: int) -> str:
    random = np.random.default_rng(seed)
    lines = ["age,w,ill"]
    for _ in range(rows):
        age, weight = random.uniform(0, 100), random.choice([1, 4, 9])
        risk = 1 / (1 + np.exp((-1 if weight > 1 else 1) * (age - 50) / 10))
        lines.append(f"{age:.2f},{weight},{'yes' if random.random() < risk else 'no'}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("weights")
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(root, parties=parties, schema=TOML, policy=ALLOWING, rows_at_least=ROWS) as federation:
        (root / "weighed.toml").write_text(TOML)
        (root / "alike.toml").write_text(SCHEMA.unweighted.to_toml())
        federation.serve()
        yield federation


def test_models_differ_by_the_weights(federation):
    config, made = ("--config", str(federation.learner.config)), {}
    for name in ("weighed", "alike"):
        model = federation.root / f"{name}.json"
        rado("learner", "train", "--estimator", "newton", *config, "--schema", str(federation.root / f"{name}.toml"),
             "--epsilon", "80", "--rounds", "4", "-o", str(model))  # fmt: skip
        made[name] = Model.load(model)
    # Two thirds of the rows say that age is a risk, and nine tenths of the weights do, up to the bound.
    assert made["weighed"].theta[0] > 1.3 * made["alike"].theta[0] > 0
    assert made["weighed"].schema == SCHEMA
    with pytest.warns(UserWarning, match=ALIKE):
        measured = rado("learner", "evaluate", str(federation.root / "weighed.json"), *config, "--epsilon", "30")[
            "data"
        ]
    assert measured["rows"] == sum(ROWS.values())


def test_a_statistic_says_that_rows_count_alike(federation):
    asked = ("--config", str(federation.learner.config), "--schema", str(federation.root / "weighed.toml"))
    with pytest.warns(UserWarning, match=ALIKE):
        found = rado("learner", "statistic", "true", *asked, "--epsilon", "30")["data"]
    assert found["estimates"][0]["estimate"] == pytest.approx(1, abs=0.01)


def test_people_see_the_weight_and_what_was_clipped(federation):
    config = str(federation.member("a").config)
    checks = {each["name"]: each for each in rado("party", "check", "--config", config)["data"]["findings"]}
    assert 'weight.out_of_bounds = "clip" moves them to the nearest bound' in str(checks["data"])
    asked = ("--config", str(federation.learner.config), "--schema", str(federation.root / "weighed.toml"))
    query = rado("learner", "query", "--design", "moments", *asked, "--epsilon", "5")["data"]["query_id"]
    assert "schema.weight" in str(rado("ledger", "history", query, "--config", config)["data"])
