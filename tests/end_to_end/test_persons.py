"""Persons as the unit of privacy over real processes: their counts, averages of each one's rows, and the ledger."""

import json
from fractions import Fraction

import numpy as np
import pytest

from dpcore.records.schema import Schema
from learner.config import LearnerConfig
from learner.federation import Federation
from learner.journal import SessionSource
from learner.model import Model
from learner.session import Session
from radofed.cli.entry_point import run
from radofed.node_config import PolicyChoices
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation.processes import ProcessFederation, rado

ROWS = {"a": 900, "b": 1300, "c": 700}
PERSONS = {"a": 300, "b": 434, "c": 234}
ALLOWING = PolicyChoices(designs=("statistic", "gradient", "moments"), epsilon="300", delta="1e-3")
ASKED = ["y == 1", 'x["smoker"]']


def with_ids(text: str) -> list[str]:
    """The table with a column that the schema does not name: three rows are of one person, and the last of fewer."""
    header, *rows = text.splitlines()
    return [f"patient,{header}", *(f"p{number // 3},{row}" for number, row in enumerate(rows))]


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("persons")
    parties = {name: "\n".join(with_ids(table(rows, seed))) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(root, parties=parties, schema=SCHEMA, policy=ALLOWING, rows_at_least=ROWS) as federation:
        for name in ROWS:
            config = federation.member(name).config
            config.write_text(config.read_text().replace("\n[tls]", '\nid_column = "patient"\n[tls]'))
        federation.serve("--bits", "3072")
        yield federation


def true_means() -> np.ndarray:
    """Over persons, the mean of the shares of each one's rows for which ASKED holds."""
    found = []
    for seed, rows in enumerate(ROWS.values()):
        header, *lines = table(rows, seed).splitlines()
        cells = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
        holds = np.array([[cell["ill"] == "yes", cell["smoker"] == "yes"] for cell in cells], dtype=float)
        found += [holds[first : first + 3].mean(axis=0) for first in range(0, rows, 3)]
    return np.mean(found, axis=0)


def spent(federation, name: str) -> dict[str, float]:
    shown = rado("ledger", "show", "--config", str(federation.member(name).config))["data"]
    return {scope["scope"]: scope["spent"]["epsilon"] for scope in shown["scopes"]}


@pytest.mark.more
def test_persons_are_counted_averaged_charged_and_stated(federation, capsys):
    with Session(LearnerConfig.load(federation.learner.config)) as session:
        asked = Federation(SessionSource(session), Schema.from_toml(SCHEMA), unit="person", cohort_min=3)
        found = asked.statistic(ASKED, epsilon=Fraction(4), confidence=0.999999)
        release = asked.answers[0]
    assert dict(release.party_rows) == PERSONS
    assert np.abs(np.array(found.values) - true_means()).max() <= found.noise < 0.05
    assert release.statement.unit == "one person, with all rows at one party"
    for name in ROWS:
        costs = spent(federation, name)
        assert costs["person"] == costs["record"] > 0


@pytest.mark.more
def test_a_model_of_persons_is_trained_and_says_whom_it_protects(federation, tmp_path, capsys):
    to = tmp_path / "model.json"
    train = ("learner", "train", "--estimator", "newton", "--rounds", "3", "--output", str(to), "--epsilon", "8")
    where = ("--config", str(federation.learner.config), "--schema", str(federation.root / "schema.toml"))
    assert run([*train, *where, "--unit", "person", "--cohort-min", "3", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    model = Model.load(to)
    assert model.statement.scope == "person"
    assert "one person, with all rows at one party" in json.dumps(said)


@pytest.mark.more
def test_a_limit_for_persons_refuses_queries_of_records(federation, capsys):
    for name in ROWS:
        policy = federation.member(name).directory / "policy.toml"
        policy.write_text(f'{policy.read_text()}\n[limits.person]\nepsilon = "300"\ndelta = "1e-3"\n')
        rado("party", "reload", "--config", str(federation.member(name).config))
    query = ("learner", "query", "--config", str(federation.learner.config), "--epsilon", "1", "--cohort-min", "3")
    schema = ("--schema", str(federation.root / "schema.toml"))
    assert run([*query, *schema]) == 6
    # The query ends with the first refusals: the others may not have seen it.
    assert any("UNIT_REFUSED" in federation.log(name) for name in ROWS)
    assert run([*query, *schema, "--unit", "person"]) == 0
    capsys.readouterr()
