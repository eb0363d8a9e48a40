"""Rows that arrive over time, over real processes: each epoch is asked once, and has its own budget."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpcore.records.schema import Schema
from learner.config import LearnerConfig
from learner.federation import Federation
from learner.journal import SessionSource
from learner.model import Model
from learner.release import Release
from learner.session import Session
from parties.data.dataset import load
from radofed.cli.entry_point import run
from radofed.node_config import PolicyChoices
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation.processes import ProcessFederation, rado
from wire.errors import CATALOGUE, Code

NOVEMBER, DECEMBER = "2026-11", "2026-12"
ROWS = {"a": (300, 500), "b": (400, 200), "c": (250, 350)}
ALLOWING = PolicyChoices(designs=("statistic", "moments", "gradient"), epsilon="5", delta="1e-3")


def rows_of(name: str, epoch: int, month: str) -> list[str]:
    """New rows of a party, with a number of their own."""
    _, *rows = table(ROWS[name][epoch], 7 * epoch + "abc".index(name)).splitlines()
    return [f"{name}{epoch}-{number},{month},{row}" for number, row in enumerate(rows)]


def text(rows: list[str]) -> str:
    return "\n".join(["visit,month,age,dose,smoker,ward,ill", *rows]) + "\n"


def started(root, bits: int) -> ProcessFederation:
    parties = {name: text(rows_of(name, 0, NOVEMBER)) for name in ROWS}
    federation = ProcessFederation(
        root, parties=parties, schema=SCHEMA, policy=ALLOWING, rows_at_least=dict.fromkeys(ROWS, 100)
    )
    for name in ROWS:
        config = federation.member(name).config
        columns = '\nid_column = "visit"\nepoch_column = "month"\n[tls]'
        config.write_text(config.read_text().replace("\n[tls]", columns))
    federation.serve("--bits", str(bits))
    return federation


def at(federation, name: str) -> tuple[str, str]:
    return "--config", str(federation.member(name).config)


def arrive(federation, name: str, rows: list[str]) -> None:
    """The party's table gets these rows, and its node reads them."""
    (federation.directory(name) / "data.csv").write_text(text(rows))
    rado("party", "reload", *at(federation, name))


def ask(federation, *options: str) -> tuple[str, ...]:
    asking = "--config", str(federation.learner.config), "--schema", str(federation.root / "schema.toml")
    return "learner", "query", *asking, "--epsilon", "2", "--cohort-min", "3", *options


def spent(federation, name: str) -> float:
    shown = rado("ledger", "show", *at(federation, name))["data"]
    return next(scope["spent"]["epsilon"] for scope in shown["scopes"] if scope["scope"] == "record")


def release_of(found) -> Release:
    return Release.load(Path(found["data"]["release"]))


def true_sums(federation, month: str) -> np.ndarray:
    """Of the labels and of the first coordinate times the label, over the rows of a month."""
    total = np.zeros(2)
    for name in ROWS:
        data = federation.directory(name) / "data.csv"
        records = load(data, Schema.from_toml(SCHEMA)).records
        own = np.array([line.split(",")[1] == month for line in data.read_text().splitlines()[1:]])
        labels = records.labels[own].astype(float)
        total += [labels.sum(), (labels * records.features[own, 0] * 2.0**-30).sum()]
    return total


@pytest.mark.more
def test_two_months_of_rows(tmp_path):
    with started(tmp_path, 3072) as federation:
        first = release_of(rado(*ask(federation, "--epoch", NOVEMBER)))
        assert first.party_rows == {name: rows[0] for name, rows in ROWS.items()}
        after_one = {name: spent(federation, name) for name in ROWS}

        # A month later.
        for name in ROWS:
            arrive(federation, name, [*rows_of(name, 0, NOVEMBER), *rows_of(name, 1, DECEMBER)])
        second = release_of(rado(*ask(federation, "--epoch", DECEMBER)))
        assert second.party_rows == {name: rows[1] for name, rows in ROWS.items()}
        # The budget of the new rows is their own: nothing was added to what is spent.
        assert {name: spent(federation, name) for name in ROWS} == after_one
        for release, month in ((first, NOVEMBER), (second, DECEMBER)):
            sums, noise = release.moments.edge_sum, release.moments.edge_noise
            assert np.abs(sums[[-1, 0]] - true_sums(federation, month)).max() < 6 * noise + 1
            assert month in " ".join(release.statement.assumptions)

        # A model of all rows, by two releases; the composition costs what the costlier one does.
        made = tmp_path / "model.json"
        with Session(LearnerConfig.load(federation.learner.config)) as session:
            directories = [str(session.release_directory(release.query_id)) for release in (first, second)]
        rado("learner", "train", *directories, "--forgetting", "1/2", "-o", str(made))
        statement = Model.load(made).statement
        assert statement.releases == 2
        alone = max(release.statement.epsilon_if_others_collude for release in (first, second))
        assert statement.epsilon_if_others_collude == pytest.approx(alone, rel=1e-6)
        assert run(["learner", "train", directories[0], directories[0], "-o", f"{made}.2"]) != 0

        # A statistic of one month counts its rows only.
        with Session(LearnerConfig.load(federation.learner.config)) as session:
            asked = Federation(SessionSource(session), Schema.from_toml(SCHEMA), cohort_min=3, epoch=DECEMBER)
            oracle = asked.within(Fraction(1, 10), Fraction(0))
            found = oracle.statistic(["y == 1"])
        assert (found.rows, oracle.rows) == (1050, 1050)
        positive = (true_sums(federation, DECEMBER)[0] / 1050 + 1) / 2
        assert abs(found.values[0] - positive) <= found.noise + found.quantisation < 0.2

        # A question about all rows is charged to the rows of every month.
        rado(*ask(federation, "--epsilon", "1"))
        assert all(spent(federation, name) > after_one[name] + 0.5 for name in ROWS)
        assert "about the rows of epoch 2026-12 only" in json.dumps(rado("ledger", "history", *at(federation, "a")))


@pytest.mark.more
def test_a_month_s_training_starts_from_the_model_of_the_month_before(tmp_path):
    with started(tmp_path, 2048) as federation:
        for name in ROWS:
            arrive(federation, name, [*rows_of(name, 0, NOVEMBER), *rows_of(name, 1, DECEMBER)])
        asking = ("--config", str(federation.learner.config), "--schema", str(federation.root / "schema.toml"))
        train = ("learner", "train", "--estimator", "newton", *asking, "--epsilon", "2", "--rounds", "2")
        cold, warm = tmp_path / "november.json", tmp_path / "december.json"
        first = rado(*train, "--cohort-min", "3", "--epoch", NOVEMBER, "-o", str(cold))["data"]
        before = {name: spent(federation, name) for name in ROWS}
        # Nothing is asked from a file that is no model.
        assert run([*train, "--epoch", DECEMBER, "--start-from", str(asking[1]), "-o", str(warm)]) != 0
        assert {name: spent(federation, name) for name in ROWS} == pytest.approx(before, rel=1e-7)
        start = ("--start-from", str(cold), "--cohort-min", "3", "--epoch", DECEMBER)
        second = rado(*train, *start, "-o", str(warm))["data"]
        assert (first["started_from"], first["epochs"]) == (None, [NOVEMBER])
        assert (second["started_from"], second["epochs"]) == (Model.load(cold).digest.hex(), [NOVEMBER, DECEMBER])
        assert second["privacy"]["releases"] == 4
        assert second["privacy"]["epsilon_if_others_collude"] <= 2
        assert {name: spent(federation, name) for name in ROWS} == pytest.approx(before, rel=1e-7)


@pytest.mark.more
def test_a_month_without_rows_and_a_row_in_two_months_are_refused_before_a_charge(tmp_path):
    with started(tmp_path, 2048) as federation:
        rado(*ask(federation, "--epoch", NOVEMBER))
        before = {name: spent(federation, name) for name in ROWS}
        refused = CATALOGUE[Code.COHORT_TOO_SMALL].exit_code
        assert run(list(ask(federation, "--epoch", "2027-01"))) == refused
        assert "EPOCH_EMPTY" in federation.log("a")
        # One visit moves to the next month.
        moved = rows_of("a", 0, NOVEMBER)
        moved[5] = moved[5].replace(NOVEMBER, DECEMBER)
        arrive(federation, "a", [*moved, *rows_of("a", 1, DECEMBER)])
        assert "epoch changed" in federation.log("a")
        for name in "bc":
            arrive(federation, name, [*rows_of(name, 0, NOVEMBER), *rows_of(name, 1, DECEMBER)])
        assert run(list(ask(federation, "--epoch", DECEMBER))) == refused
        assert "EPOCH_CHANGED" in federation.log("a")
        assert "1 id with rows in epoch 2026-12 was answered about in epoch 2026-11" in federation.log("a")
        assert {name: spent(federation, name) for name in ROWS} == pytest.approx(before, rel=1e-7)
        # Two rows of one visit in two months are no table.
        twice = [*rows_of("b", 0, NOVEMBER), rows_of("b", 0, DECEMBER)[0]]
        (federation.directory("b") / "data.csv").write_text(text(twice))
        assert run(["party", "reload", *at(federation, "b")]) != 0
        assert "in epoch 2026-11 and in epoch 2026-12" in federation.log("b")
