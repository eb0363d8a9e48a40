"""Every design over real processes, with a 3072-bit key: asked, charged, opened, and what its noise is."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from dpcore.records.schema import Schema
from learner.release import Release
from parties.data.dataset import load
from radofed.cli.entry_point import run
from radofed.node_config import PolicyChoices
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import wait_until
from wire.envelopes import load_public_key

pytestmark = pytest.mark.more

ROWS = {"a": 150, "b": 220, "c": 90}
ALLOWING = PolicyChoices(
    designs=("plain", "dp-feat", "dp-feat-joint", "fixed-support", "gaussian", "moments"),
    allow_unprotected=True,
    epsilon="200",
    delta="1e-4",
    unbounded_queries=20,
)
# Enough for a test to see the noise; such an epsilon protects little, and the statement says so.
EPSILON = "12"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("every_design")
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(root, parties=parties, schema=SCHEMA, policy=ALLOWING) as federation:
        (root / "schema.toml").write_text(SCHEMA)
        federation.start_all()
        wait_until(lambda: "listening" in federation.log("coordinator"), what="the coordinator")
        assert rado("learner", "keygen", "--config", str(federation.learner.config))["data"]["bits"] == 3072
        yield federation


@pytest.fixture(scope="module")
def edges(federation):
    """All parties' edges, (m, d), which only a test may see."""
    schema = Schema.from_toml(SCHEMA)
    held = [load(federation.directory(name) / "data.csv", schema).records for name in ROWS]
    return np.vstack([part.features * 2.0**-30 * part.labels[:, None] for part in held])


def ask(federation, *options: str) -> Release:
    config, schema = str(federation.learner.config), str(federation.root / "schema.toml")
    answer = rado("learner", "query", "--config", config, "--schema", schema, *options, "--ask-again")["data"]
    release = Release.load(Path(answer["release"]))
    release.verify(load_public_key(federation.learner.directory / "federation.pub"))
    assert answer["privacy"] == release.statement.to_dict()
    return release


def spent(federation, name: str) -> dict[str, float]:
    shown = rado("ledger", "show", "--config", str(federation.member(name).config))["data"]
    return {scope["scope"]: scope["spent"]["epsilon"] for scope in shown["scopes"]}


def mean_error(release: Release, edges: np.ndarray, inclusion: float = 0.5) -> np.ndarray:
    """How far the rados' mean is from what it must be, in standard errors, (d,)."""
    distribution = release.distribution
    variance = inclusion * (1 - inclusion) * (edges**2).sum(0)
    for noise, times in ((distribution.rado_noise, 1), (distribution.edge_noise, inclusion * len(edges))):
        variance = variance + (0 if noise is None else noise * times)
    return (release.rados.mean(0) - inclusion * edges.sum(0)) / np.sqrt(variance / len(release.rados))


def test_several_features(federation, edges):
    release = ask(
        federation,
        "--design",
        "dp-feat",
        "--rados",
        "50",
        "--sensitive",
        "smoker",
        "--sensitive",
        "age",
        "--rounded",
        "age",
    )
    assert release.statement.scope == "marginal"
    assert "any one of 'age', 'smoker'" in release.statement.unit
    # The rounded coordinate is a sum of signs.
    assert (release.integers[:, 0] % (1 << release.query.encoding.fraction_bits) == 0).all()
    assert release.distribution.rounding.tolist() == [True, *[False] * 6]


def test_joint(federation, edges):
    release = ask(
        federation, "--design", "dp-feat", "--rados", "400", "--sensitive", "ward", "--joint", "--epsilon", EPSILON
    )  # fmt: skip
    assert (release.statement.scope, release.statement.unit) == ("joint", "one record's value in the column 'ward'")
    assert release.statement.epsilon < release.statement.epsilon_if_others_collude <= float(EPSILON)
    assert np.abs(mean_error(release, edges)).max() < 5
    noise = release.distribution.rado_noise
    assert (noise[3:6] > 0).all()
    assert (noise[[0, 1, 2, 6]] == 0).all()
    plain = (edges**2).sum(0) / 4
    # The variance is the signatures' and the noise's: neither alone.
    found = release.rados.var(0, ddof=1)
    assert (np.abs(found / (plain + noise) - 1) < 0.4).all()


def test_gaussian(federation, edges):
    release = ask(federation, "--rados", "300", "--design", "gaussian", "--epsilon", EPSILON, "--norm-bound", "3")
    assert (release.statement.scope, release.statement.unit) == ("record", "one record")
    assert any("bounds little" in warning for warning in release.statement.warnings) == (release.statement.epsilon > 10)
    assert np.abs(mean_error(release, edges)).max() < 5
    found, noise = release.rados.var(0, ddof=1), release.distribution.rado_noise
    assert (np.abs(found / (noise + (edges**2).sum(0) / 4) - 1) < 0.4).all()


def test_a_noised_table_is_paid_once(federation, edges):
    options = ("--design", "fixed-support", "--epsilon", EPSILON, "--support", "1/3", "--norm-bound", "3")
    before = spent(federation, "a")
    first = ask(federation, "--rados", "100", *options)
    once = spent(federation, "a")
    assert once["record"] > before.get("record", 0)
    second = ask(federation, "--rados", "300", *options)
    assert spent(federation, "a") == once
    assert first.statement.epsilon == second.statement.epsilon <= float(EPSILON)
    # One table: the means differ by the signatures alone; over another table they would differ by the noise.
    table_noise = np.sqrt(first.distribution.edge_noise * len(edges)) / 3
    drawn = np.sqrt(2 / 9 * ((edges**2).sum(0) + first.distribution.edge_noise * len(edges)) * (1 / 100 + 1 / 300))
    assert (np.abs(first.rados.mean(0) - second.rados.mean(0)) < 5 * drawn).all()
    assert (drawn < 0.2 * table_noise).all()
    other = ask(federation, "--rados", "100", *options[:-1], "4")
    assert spent(federation, "a")["record"] > once["record"]
    assert (np.abs(first.rados.mean(0) - other.rados.mean(0)) > 5 * drawn).any()


def test_moments(federation, edges):
    release = ask(federation, "--design", "moments", "--epsilon", EPSILON, "--norm-bound", "3")
    assert release.statement.scope == "record"
    moments = release.moments
    assert moments.rows == sum(ROWS.values())
    assert np.abs((moments.edge_sum - edges.sum(0)) / moments.edge_noise).max() < 5
    noise = np.where(moments.product_noise > 0, moments.product_noise, 1)
    assert np.abs((moments.product_sum - edges.T @ edges) / noise).max() < 5
    model = federation.root / "moments.json"
    where = str(federation.learner.directory / "releases" / release.query_id.hex()[:16])
    rado("learner", "train", where, "--estimator", "mean-variance", "--output", str(model))
    held_out = federation.root / "held_out.csv"
    held_out.write_text(table(400, 99))
    assert rado("learner", "predict", str(model), str(held_out))["data"]["error_rate"] < 0.3
    refused = rado("learner", "train", where, "--estimator", "radoboost", "--output", str(model) + "2", code=4)
    assert "does not learn from moments" in refused["error"]["message"]
    assert "synthetic_rados=1000" in refused["error"]["message"]
    drawn = federation.root / "synthetic.json"
    rado("learner", "train", where, "--estimator", "radoboost", "--option", "synthetic_rados=500", "-o", str(drawn))
    assert rado("learner", "predict", str(drawn), str(held_out))["data"]["error_rate"] < 0.45
    composed = rado("learner", "privacy", where)["data"]
    assert composed["epsilon"] == pytest.approx(release.statement.epsilon)


@pytest.mark.variants(4)
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--design", "moments"), "give the epsilon"),
        (("--design", "moments", "--epsilon", "1", "--rados", "3"), "takes no rados"),
        (("--design", "gaussian", "--rados", "3"), "give the epsilon"),
        (("--design", "gaussian", "--rados", "3", "--epsilon", "nan"), "is not a number"),
        (("--design", "gaussian", "--rados", "3", "--epsilon", "-1"), "make it positive"),
        (("--design", "gaussian", "--rados", "0", "--epsilon", "1"), "must be at least 1"),
        (("--design", "fixed-support", "--rados", "3", "--norm-bound", "1", "--epsilon", "1"), "choose more"),
        (("--design", "dp-feat", "--rados", "3", "--sensitive", "nobody"), "no coordinate 'nobody'"),
        (
            ("--design", "dp-feat", "--rados", "3", "--sensitive", "nobody", "--joint", "--epsilon", "1"),
            "no coordinate 'nobody'",
        ),
        (("--design", "dp-feat", "--rados", "3", "--sensitive", "ward=north"), "not coded -1/+1"),
    ],
)
def test_an_impossible_plan_is_refused_before_anything_is_sent(federation, options, says, capsys):
    config, schema = str(federation.learner.config), str(federation.root / "schema.toml")
    before = rado("learner", "list", "--config", config)["data"]["queries"]
    code = run(["learner", "query", "--config", config, "--schema", schema, *options, "--format", "json"])
    printed = capsys.readouterr().out
    assert code in (4, 6), printed
    assert says in json.loads(printed)["error"]["message"]
    assert rado("learner", "list", "--config", config)["data"]["queries"] == before


def test_a_party_too_small_for_its_set_refuses(federation):
    """The roster does not say how many rows there are, so the parties do, unless they have stated them before."""
    config, schema = str(federation.learner.config), str(federation.root / "schema.toml")
    options = ("--design", "fixed-support", "--rados", "3", "--support", "1/1000")
    refused = rado("learner", "query", "--config", config, "--schema", schema, *options, code=6)
    assert re.search("PLAN_INFEASIBLE|takes 0 of 150 rows", refused["error"]["message"])


def test_designs_and_numbers_that_follow_from_the_rows(federation):
    """Of the rows that the parties stated: a member's own figure, or the roster's."""
    assert ask(federation, "--design", "auto", "--epsilon", EPSILON).query.kind.name == "moments"
    release = ask(federation, "--design", "gaussian", "--epsilon", EPSILON)
    d = release.query.d
    assert 4 * d <= len(release.rados) <= 100 * d
