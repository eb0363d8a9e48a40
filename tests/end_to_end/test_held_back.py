"""Rows that parties hold back, over real processes: training without them, and evaluation on them alone."""

import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpcore.records.held_back import HeldBack, Part, RowKey
from dpcore.records.schema import Schema
from learner.config import LearnerConfig
from learner.federation import Federation
from learner.journal import SessionSource
from learner.model import Model
from learner.release import Release
from learner.session import Session
from parties.config import PartyConfig
from parties.data.dataset import load
from radofed.cli.entry_point import run
from radofed.node_config import PolicyChoices
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import wait_until

pytestmark = pytest.mark.more

ROWS = {"a": 900, "b": 1300, "c": 700}
ALLOWING = PolicyChoices(designs=("statistic", "gradient", "moments", "gaussian"), epsilon="300", delta="1e-3")
SHARE = Fraction(1, 5)
ASKED = ["y == 1", 'x["smoker"]', '(x["age"] >= 65536) & (y == 1)']


def with_ids(text: str, party: str) -> list[str]:
    """The table with a column that the schema does not name: two rows in three have an id of their own."""
    header, *rows = text.splitlines()
    return [
        f"patient,{header}",
        *(f"{party}-{number // 3 * 2 + number % 3 % 2},{row}" for number, row in enumerate(rows)),
    ]


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("held-back")
    parties = {name: "\n".join(with_ids(table(rows, seed), name)) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(root, parties=parties, schema=SCHEMA, policy=ALLOWING, rows_at_least=ROWS) as federation:
        # Party b goes by the places of its rows, the others by their ids.
        for name in "ac":
            config = federation.member(name).config
            config.write_text(config.read_text().replace("\n[tls]", '\nid_column = "patient"\n[tls]'))
        federation.serve("--bits", "2048")
        yield federation


def divided(federation, name: str, share: Fraction = SHARE) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A party's coordinates and labels, and which rows it holds back: by its secret, which only a test may read."""
    config = PartyConfig.load(federation.member(name).config)
    key = RowKey((config.state_directory / "secret").read_bytes(), config.federation, name, config.source)
    records = load(config.data, Schema.from_toml(SCHEMA)).records
    ids = [line.split(",")[0] for line in config.data.read_text().splitlines()[1:]]
    numbers = key.of_ids(ids) if config.id_column else key.of_places(records.rows)
    return records.features * 2.0**-30, records.labels, HeldBack(share, Part.HELD_BACK).contains(numbers)


def true_counts(federation, *, held_back: bool) -> np.ndarray:
    """The number of rows of one side for which each of ASKED holds."""
    found = np.zeros(len(ASKED))
    for name in ROWS:
        x, labels, held = divided(federation, name)
        old, smoker = x[:, 0] >= 0, x[:, 2] > 0
        side = held if held_back else ~held
        found += [np.sum(side & fits) for fits in (labels > 0, smoker, old & (labels > 0))]
    return found


def spent(federation, name: str) -> float:
    shown = rado("ledger", "show", "--config", str(federation.member(name).config))["data"]
    return next((scope["spent"]["epsilon"] for scope in shown["scopes"] if scope["scope"] == "record"), 0.0)


def counts(federation, *, epsilon: int = 8):
    """(noisy counts, the most that noise moves them, releases) over all rows, the training part, the held-back part."""
    with Session(LearnerConfig.load(federation.learner.config)) as session:
        everything = Federation(SessionSource(session, asks_again=True), Schema.from_toml(SCHEMA), cohort_min=3)
        asked = (everything, *everything.hold_back(SHARE))
        found = [part.statistic(ASKED, epsilon=Fraction(epsilon), confidence=0.999999) for part in asked]
        releases = [part.answers[0] for part in asked]
        files = [session.release_directory(release.query_id) for release in releases]
    assert all(Release.load(file).query == release.query for file, release in zip(files, releases, strict=True))
    return [one.values * one.rows for one in found], [one.noise * one.rows for one in found], releases


@pytest.mark.more
def test_the_totals_of_both_parts_add_up_to_that_of_all_rows(federation):
    (every, training, held_back), noise, releases = counts(federation)
    assert np.abs(training - true_counts(federation, held_back=False)).max() <= noise[1] < 20
    assert np.abs(held_back - true_counts(federation, held_back=True)).max() <= noise[2] < 20
    assert np.abs(training + held_back - every).max() <= sum(noise)
    assert true_counts(federation, held_back=True).min() > 2 * sum(noise)
    # The signed row counts say nothing about the sizes of the parts.
    assert [release.party_rows for release in releases] == [ROWS] * 3
    assert [release.query.held_back and release.query.held_back.part for release in releases] == [None, *Part]


@pytest.mark.more
def test_where_ids_decide_both_parts_cost_less_than_twice_all_rows(federation):
    """Where places do, each part costs what all rows cost."""
    costs = []
    with Session(LearnerConfig.load(federation.learner.config)) as session:
        everything = Federation(SessionSource(session, asks_again=True), Schema.from_toml(SCHEMA), cohort_min=3)
        for part in (everything, *everything.hold_back(SHARE)):
            before = {name: spent(federation, name) for name in ROWS}
            part.statistic(["y == 1", "y == -1"], epsilon=Fraction(2))
            costs.append({name: round(spent(federation, name) - before[name], 9) for name in ROWS})
    whole, *parts = costs
    assert [each["b"] for each in parts] == [whole["b"]] * 2
    for name in "ac":
        both = sum(each[name] for each in parts)
        assert max(each[name] for each in parts) <= whole[name]
        assert 0.6 * whole[name] < both < 1.6 * whole[name]


def test_rows_with_ids_keep_their_side_when_the_table_is_sorted(federation):
    """And rows without ids do not: which are held back then is another choice."""
    before = {name: divided(federation, name) for name in ROWS}
    for name in "ab":
        data = federation.directory(name) / "data.csv"
        header, *rows = data.read_text().splitlines()
        data.write_text("\n".join([header, *sorted(rows, key=lambda row: row.split(",")[1])]) + "\n")
        federation.stop(name)
        federation.start(name)
    wait_until(lambda: all(federation.log(name).count("started") == 2 for name in "ab"), what="the parties")
    (_, _, held_back), noise, _ = counts(federation)
    assert np.abs(held_back - true_counts(federation, held_back=True)).max() <= noise[2]

    def held_rows(name, found):
        x, labels, held = found
        return sorted(map(tuple, np.column_stack([x, labels])[held].tolist()))

    after = {name: divided(federation, name) for name in ROWS}
    assert held_rows("a", after["a"]) == held_rows("a", before["a"])
    assert held_rows("b", after["b"]) != held_rows("b", before["b"])


def test_a_model_is_evaluated_on_the_rows_that_it_was_not_trained_on(federation, capsys):
    model = federation.root / "newton.json"
    made = rado(
        "learner", "train", "--estimator", "newton", *federation.asking, "--epsilon", "20", "--rounds", "3",
        "--hold-back", "0.2", "-o", str(model), "--cohort-min", "3", "--class-weight", "positive=2",
    )["data"]  # fmt: skip
    assert made["class_weights"] == [1, 2]
    assert (made["held_back"], json.loads(model.read_text())["held_back"]) == ("1/5", "1/5")
    options = ("--config", str(federation.learner.config), "--epsilon", "8", "--confidence", "0.9999")
    found = rado("learner", "evaluate", str(model), *options, "--cohort-min", "3")["data"]
    assert (found["rows"], found["unseen"]) == (sum(ROWS.values()), True)
    assert found["part"] == {"share": "1/5", "part": "held-back"}
    theta = np.array([value for _, value in json.loads(model.read_text())["theta"]])
    wrong, held = [], []
    for name in ROWS:
        x, labels, own = divided(federation, name)
        wrong.append(np.where(x @ theta > 0, 1, -1) != labels)
        held.append(own)
    wrong, held = np.concatenate(wrong), np.concatenate(held)
    lower, upper = found["error"]["on_rows"]
    assert lower <= wrong[held].mean() <= upper
    assert abs(found["usable"] - held.sum()) <= found["usable_half_width"] < held.sum() / 4
    low, high = found["error"]["on_distribution"]
    assert low < lower <= upper < high
    # The other rows are drawn from the same distribution, and the model has few coordinates to follow them with.
    assert low <= wrong[~held].mean() <= high
    better = federation.root / "better.json"
    cost = ("--cost", "false-negative=5:false-positive=1", "--at-threshold", str(better))
    assert run(["learner", "evaluate", str(model), *options, "--cohort-min", "3", "--reuse", *cost]) == 0
    printed = capsys.readouterr().out
    assert f"{better}: the model that decides so" in printed
    threshold = json.loads(better.read_text())["threshold"]
    assert f"what costs least calls rows positive whose score is above {threshold['score']:.4g}." in printed
    assert threshold["costs"] == {"false_negative": "5", "false_positive": "1"}
    data = str(federation.directory("a") / "data.csv")
    called = [rado("learner", "predict", str(each), data)["data"]["positive"] for each in (model, better)]
    # Which threshold it is depends on the noise; below 0 more rows are called positive.
    assert np.sign(called[1] - called[0]) in (0, -np.sign(threshold["score"]))
    assert "the usable rows that the parties hold back" in printed
    assert "on new rows of the same kind" in printed
    assert "drawn as these were" in printed


@pytest.mark.more
def test_a_model_of_curves_is_evaluated_on_the_rows_that_it_was_not_trained_on(federation, tmp_path):
    path, units = tmp_path / "additive.json", tmp_path / "units.json"
    rado(
        "learner", "train", "--estimator", "additive", *federation.asking, "--epsilon", "20", "--rounds", "3",
        "--hold-back", "0.2", "-o", str(path), "--cohort-min", "3",
    )  # fmt: skip
    options = ("--config", str(federation.learner.config), "--epsilon", "8", "--confidence", "0.9999")
    found = rado("learner", "evaluate", str(path), *options, "--cohort-min", "3")["data"]
    assert (found["unseen"], found["part"]) == (True, {"share": "1/5", "part": "held-back"})
    assert found["privacy"]["epsilon_if_others_collude"] <= 8
    model = Model.load(path)
    wrong = []
    for name in ROWS:
        x, labels, held = divided(federation, name)
        wrong.append((np.where(model.scores(x) > 0, 1, -1) != labels)[held])
    lower, upper = found["error"]["on_rows"]
    assert lower <= np.concatenate(wrong).mean() <= upper
    # A party sees the functions of its columns, in its history and in the predicates.
    shown = rado("ledger", "history", "--config", str(federation.member("a").config))["data"]["queries"]
    asked = [query["asked"] for query in shown if query["kind"] == "statistic" and "mapped" in query["asked"]]
    # Where the scores are, and the rows by label and score; before both, whether the latter would be accepted.
    assert len(asked) == 3
    for words in asked:
        pattern = r'statistics with Laplace noise: .* \* z\["1: age~.* >= 0\).*of records mapped to .* hats'
        assert re.search(pattern, words)
        assert words.endswith("about the part of the rows that each party holds back, a share of 0.2")
    evaluation, page = tmp_path / "evaluation.json", tmp_path / "report.html"
    evaluation.write_text(json.dumps({"schema_version": 1, "status": "ok", "data": found}))
    report = ("learner", "report", str(path), "--config", str(federation.learner.config), "--output", str(page))
    measured = rado(*report, "--evaluation", str(evaluation))["data"]["report"]["evaluations"]
    assert [each["error"] for each in measured] == [found["error"]]
    rado("learner", "export", str(path), "--output", str(units))
    assert len(json.loads(units.read_text())["terms"]) == len(model.feature_map.terms)


@pytest.mark.more
def test_a_release_about_the_training_part_makes_such_a_model(federation):
    for design, estimator, more in (
        ("moments", "moments-discriminant", ()),
        ("gaussian", "mean-variance", ("--rados", "200")),
    ):
        fetched = rado(
            "learner", "query", *federation.asking, "--design", design, "--epsilon", "20", "--hold-back", "0.2", *more,
            "--ask-again",
            "--cohort-min", "3",
        )["data"]  # fmt: skip
        assert fetched["rows"] == sum(ROWS.values())
        directory = Path(fetched["release"])
        release = Release.load(directory)
        assert (release.rows, release.cohort_rows) == (round(0.8 * sum(ROWS.values())), sum(ROWS.values()))
        model = federation.root / f"{design}.json"
        made = rado("learner", "train", str(directory), "--estimator", estimator, "-o", str(model))["data"]
        assert made["held_back"] == "1/5"
        content = json.loads((directory / "release.json").read_text())
        assert content["part"] == fetched["part"] == {"share": "1/5", "part": "training"}


@pytest.mark.more
def test_a_report_finds_the_model_s_release_verifies_it_and_shows_its_evaluation(federation, tmp_path):
    config = ("--config", str(federation.learner.config))
    fetched = rado(
        "learner", "query", *federation.asking, "--design", "moments", "--epsilon", "20", "--hold-back", "0.2",
        "--ask-again",
        "--cohort-min", "3",
    )["data"]  # fmt: skip
    model, evaluation, page = (tmp_path / name for name in ("model.json", "evaluation.json", "report.html"))
    rado("learner", "train", fetched["release"], "--estimator", "moments-discriminant", "-o", str(model))
    evaluation.write_text(json.dumps(rado("learner", "evaluate", str(model), *config, "--epsilon", "8")))
    test = tmp_path / "test.csv"
    test.write_text(table(200, 9))
    options = ("--evaluation", str(evaluation), "--test", str(test), "--output", str(page))
    found = rado("learner", "report", str(model), *config, *options)["data"]["report"]
    assert found["signatures_verified"] is True
    (answer,) = found["answers"]
    assert (answer["rows"], answer["asked"]["kind"]) == (ROWS, "moments")
    # Three rows have the third ward, and more than noise can hide the others.
    hidden = {
        row["change"]: row["measurable"] is False for row in found["coefficients"]["rows"] if row["column"] == "ward"
    }
    assert hidden == {"south instead of north": False, "canaryward instead of north": True}
    assert found["coefficients"]["without"] == ""
    assert [each["own_rows"] for each in found["evaluations"]] == [False, True]
    assert found["evaluations"][0]["unseen"] is True
    text = page.read_text()
    assert "were held back from training" in text
    assert "were verified for this report" in text
    assert {curve["id"] for curve in found["curves"]} == {"answers", "colluders"}


@pytest.mark.more
def test_a_model_without_held_back_rows_claims_nothing_about_new_rows(federation, capsys):
    model = federation.root / "bayes.json"
    rado("learner", "train", "--estimator", "naive-bayes", *federation.asking, "--epsilon", "6", "-o", str(model))
    options = ("--config", str(federation.learner.config), "--epsilon", "4")
    found = rado("learner", "evaluate", str(model), *options)["data"]
    assert found["unseen"] is False
    assert found["error"]["on_distribution"] is None
    assert run(["learner", "evaluate", str(model), *options, "--reuse"]) == 0
    printed = capsys.readouterr().out
    assert "that it was trained on" in printed
    assert "Nothing is claimed about new rows" in printed
    assert "on new rows" not in printed


REFUSED = [
    (("query", "--design", "plain", "--rados", "9", "--hold-back", "0.2"), "rows that are held back would count"),
    (("query", "--design", "moments", "--epsilon", "1", "--hold-back", "1"), "choose one between 0 and 1"),
    (("query", "--design", "moments", "--epsilon", "1", "--hold-back", "0"), "make it positive"),
    (("query", "--design", "moments", "--epsilon", "1", "--hold-back", "a fifth"), "is not a number"),
    (("train", "--estimator", "newton", "--epsilon", "1", "--hold-back", "-0.2", "-o", "x.json"), "make it positive"),
    (("train", "--estimator", "conjunction", "--epsilon", "1", "--hold-back", "0.2", "-o", "x.json"), "a guarantee"),
    (("train", "r", "--estimator", "mean-variance", "--hold-back", "0.2", "-o", "x.json"), "takes no --hold-back"),
]


@pytest.mark.more
def test_what_cannot_be_asked_about_a_part_is_refused_before_anything_is_sent(federation, tmp_path, capsys):
    before = federation.queries()
    for arguments, says in REFUSED:
        given = [str(tmp_path / "x.json") if text == "x.json" else text for text in arguments]
        more = () if "r" in arguments else federation.asking
        assert run(["learner", *given, *more, "--format", "json"]) in (4, 6), arguments
        assert says in json.loads(capsys.readouterr().out)["error"]["message"]
    assert federation.queries() == before
