"""A time to an event over real processes: survival by group, rounds of hazards, predictions, bad rows.

One party has no smoker, and nobody lives in the east.
"""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from dpcore.records.schema import Schema
from learner.model import Model
from parties.data.dataset import load
from radofed.cli.entry_point import run
from radofed.node_config import PolicyChoices
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import HANG_S, wait_until

pytestmark = pytest.mark.more

BORDERS = (1.0, 2.0, 3.0, 4.0)
SCHEMA = """
schema_version = 5
name = "patients"
texts = []
[label]
type = "event"
column = "years"
event = "died"
happened = ["yes"]
censored = ["no"]
borders = [1.0, 2.0, 3.0, 4.0]
[[features]]
name = "age"
type = "real"
unreadable = "refuse"
lower = 40.0
upper = 80.0
[[features]]
name = "smoker"
type = "boolean"
true = ["yes"]
false = ["no"]
[[features]]
name = "city"
type = "category"
values = ["north", "east"]
"""
ROWS = {"a": 700, "b": 600, "c": 500}
SMOKERS = {"a": 0.5, "b": 0.6, "c": 0.0}
ALLOWING = PolicyChoices(designs=("moments", "gradient", "statistic"), epsilon="400", delta="1e-3")
RATE, AGE, SMOKER = 0.25, 0.04, 0.9


def table(rows: int, seed: int, smokers: float = 0.4) -> str:
    random = np.random.default_rng(seed)
    age, smoker = random.uniform(40.0, 80.0, rows), random.random(rows) < smokers
    times = random.exponential(1.0 / (RATE * np.exp(AGE * (age - 60.0) + SMOKER * smoker)))
    last = random.uniform(0.5, 9.0, rows)
    lines = ["age,smoker,city,years,died"]
    for a, s, t, e in zip(age, smoker, times, last, strict=True):
        lines.append(f"{a:.2f},{'yes' if s else 'no'},north,{min(t, e):.4f},{'yes' if t <= e else 'no'}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("times")
    parties = {name: table(rows, seed, SMOKERS[name]) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(root, parties=parties, schema=SCHEMA, policy=ALLOWING, rows_at_least=ROWS) as federation:
        (root / "new.csv").write_text(table(600, 99))
        federation.serve()
        yield federation


def people(federation) -> tuple[np.ndarray, np.ndarray]:
    """The cell of each row of all parties, and whether the person smokes, which only a test may read."""
    held = [load(federation.directory(name) / "data.csv", Schema.from_toml(SCHEMA)).records for name in ROWS]
    return np.concatenate([each.labels for each in held]), np.concatenate([each.features[:, 1] > 0 for each in held])


def test_survival_by_group_is_that_of_all_parties_rows(federation):
    asked = ("survival", "--by", "smoker", *federation.asking, "--epsilon", "20", "--confidence", "0.999")
    found = rado("learner", *asked)["data"]
    codes, smoker = people(federation)
    figures = {(each["quantity"], each["group"], each["level"]): each for each in found["figures"]}
    for group, rows in (("yes", smoker), ("no", ~smoker)):
        later, alive = float(rows.sum()), 1.0
        for place, border in enumerate(BORDERS):
            died, left = ((codes[rows] == code).sum() for code in (place, 4 + place))
            alive *= 1.0 - died / (later - left / 2.0)
            risk, survival = (figures[quantity, group, f"{border:g}"] for quantity in ("at risk", "survival"))
            assert risk["lower"] - 1 <= later - left / 2.0 <= risk["upper"] + 1
            assert survival["lower"] - 1e-3 <= alive <= survival["upper"] + 1e-3
            later -= died + left
    assert figures["log-rank", "", ""]["p_value"] < 0.01
    assert found["privacy"]["epsilon_if_others_collude"] <= 20
    # The page of the release has the curves and tables, at no cost, for those who sign for them.
    page = federation.root / "survival.html"
    reported = rado("learner", "report", found["release"], *federation.config, "--output", str(page))["data"]["report"]
    assert reported["found"]["figures"] == found["figures"]
    shown = page.read_text()
    assert '<h2 id="found">What was found</h2>' in shown
    assert "<svg" in shown.partition('id="found"')[2].partition('id="privacy"')[0]
    assert "og-rank" in shown


def test_a_group_without_rows_is_not_measured(federation):
    asked = ("survival", "--by", "city", *federation.asking, "--epsilon", "20")
    found = rado("learner", *asked)["data"]
    figures = {(each["quantity"], each["group"], each["level"]): each for each in found["figures"]}
    assert figures["survival", "north", "4"]["estimate"] is not None
    assert figures["survival", "east", "4"]["estimate"] is None
    assert figures["median", "east", ""]["estimate"] is None
    assert any("The curve of 'east' ends at" in sentence for sentence in found["sentences"])


@pytest.fixture(scope="module")
def trained(federation):
    """A model of hazards, and what the training printed."""
    model = federation.root / "hazards.json"
    options = ("--estimator", "hazards", *federation.asking, "--epsilon", "30", "--rounds", "3", "--option", "clip=2")
    return model, options, rado("learner", "train", *options, "-o", str(model))["data"]


def test_hazards_are_learned_in_rounds_and_predict_survival(federation, trained):
    model, options, made = trained
    assert made["answers"] == 5
    assert made["privacy"]["epsilon_if_others_collude"] <= 30
    before, scores = federation.queries(), federation.root / "scores.csv"
    found = rado("learner", "predict", str(model), str(federation.root / "new.csv"), "-o", str(scores))["data"]
    assert found["labelled"] == found["rows"] == 600
    assert found["concordance"] > 0.6
    assert found["brier"] < found["brier_of_equal"]
    ratios = {each["column"]: each["ratio"] for each in found["hazard_ratios"]}
    assert ratios["age"] > 1.0
    assert ratios["smoker"] > 1.2
    with scores.open(newline="") as file:
        rows = list(csv.DictReader(file))
    chances = np.array([[float(row[f"survival {border:g}"]) for border in BORDERS] for row in rows])
    assert (np.diff(chances, axis=1) <= 0.0).all()
    # On average about as many as there are without the event, of rows like the parties'.
    codes, _ = people(federation)
    assert 0.0 < chances[:, 0].mean() < 1.0
    assert chances[:, 0].mean() == pytest.approx(1.0 - (codes == 0).mean(), abs=0.1)
    # A training that is repeated reads its answers.
    first = json.loads(model.read_text())
    model.rename(federation.root / "first.json")
    assert run(["learner", "train", *options, "-o", str(model)]) == 0
    again = json.loads(model.read_text())
    assert (again["theta"], again["log_hazards"]) == (first["theta"], first["log_hazards"])
    assert Model.load(model).log_hazards.shape == (4,)
    assert federation.queries() == before


@pytest.mark.more
def test_an_additive_model_asks_over_a_feature_map_and_reads_its_answers_again(federation, capsys):
    model = federation.root / "additive.json"
    options = ("--estimator", "additive", *federation.asking, "--epsilon", "40", "--rounds", "5")
    made = rado("learner", "train", *options, "--option", "information=1", "-o", str(model))["data"]
    assert made["answers"] == 5
    first, before = Model.load(model), federation.queries()
    assert first.feature_map is not None
    found = rado("learner", "predict", str(model), str(federation.root / "new.csv"))["data"]
    assert found["concordance"] > 0.6
    assert found["hazard_ratios"] == []
    drawn = rado("learner", "picture", str(model))["data"]
    assert drawn["adds_to"] == "the logarithm of the hazard of died"
    # A training that is repeated reads its answers.
    model.rename(federation.root / "first-additive.json")
    assert run(["learner", "train", *options, "--option", "information=1", "-o", str(model)]) == 0
    assert "standard deviation of what each adds to the logarithm of the hazard" in capsys.readouterr().out
    again = Model.load(model)
    assert (again.theta == first.theta).all()
    assert (again.log_hazards == first.log_hazards).all()
    assert federation.queries() == before


def test_a_model_is_measured_on_the_parties_rows_and_reported(federation, trained, tmp_path):
    model, page = trained[0], tmp_path / "report.html"
    printed = rado("learner", "evaluate", str(model), *federation.config, "--epsilon", "40")
    found, (codes, _), loaded = printed["data"], people(federation), Model.load(model)
    held = [load(federation.directory(name) / "data.csv", Schema.from_toml(SCHEMA)).records for name in ROWS]
    scores = np.concatenate([loaded.scores(np.ldexp(each.features.astype(float), -30)) for each in held])
    # Every pair of rows of which one had the event in an earlier interval.
    interval, ordered, pairs = np.where(codes == 8, 4, codes % 4), 0.0, 0
    for one in np.flatnonzero(codes < 4):
        later = scores[interval > interval[one]]
        ordered += (later < scores[one]).sum() + (later == scores[one]).sum() / 2
        pairs += len(later)
    concordance = found["concordance"]
    assert concordance["lower"] - 0.01 <= ordered / pairs <= concordance["upper"] + 0.01
    assert concordance["upper"] - concordance["lower"] < 0.2
    assert [each["border"] for each in found["brier"]] == list(BORDERS)
    assert all(each["score"]["lower"] <= each["of_equal"] for each in found["brier"])
    assert found["privacy"]["epsilon_if_others_collude"] <= 40
    (tmp_path / "evaluation.json").write_text(json.dumps(printed))
    given = ("--evaluation", str(tmp_path / "evaluation.json"), "--test", str(federation.root / "new.csv"))
    rado("learner", "report", str(model), *given, *federation.config, "--output", str(page))
    assert "Survival by predicted risk" in page.read_text()


REFUSED = [
    (("train", "--estimator", "newton", "-o", "x.json", "--epsilon", "1"), "newton does not learn a time to an event"),
    (("query", "--design", "plain", "--rados", "20"), "needs a label of two classes"),
    (("survival", "--by", "died", "--epsilon", "1"), "is of the label, whose times are estimated"),
    (("survival", "--by", "smokers", "--epsilon", "1"), "did you mean 'smoker'"),
]


@pytest.mark.more
def test_what_is_not_about_times_is_refused_before_anything_is_sent(federation, trained, tmp_path, capsys):
    before, model = federation.queries(), str(trained[0])
    evaluating = ("evaluate", model, *federation.config, "--epsilon", "1", "--scale", "2")
    cases = [((*arguments, *federation.asking), said) for arguments, said in REFUSED]
    for arguments, says in [*cases, (evaluating, "--scale is about scores of classes")]:
        given = [str(tmp_path / "x.json") if text == "x.json" else text for text in arguments]
        assert run(["learner", *given, "--format", "json"]) in (4, 6)
        assert says in json.loads(capsys.readouterr().out)["error"]["message"]
    assert federation.queries() == before


@pytest.mark.more
def test_the_console_shows_the_ratios_of_a_model_and_the_curves_of_a_release(federation, trained, tmp_path):
    pytest.importorskip("uvicorn", reason="the console is not installed")
    from tests.radofed.console.consoles import console, sent
    from tests.radofed.console.serving import Caller

    models = federation.learner.directory / "models"
    models.mkdir(exist_ok=True)
    (models / "hazards-1.json").write_bytes(trained[0].read_bytes())
    asked = ("survival", "--by", "smoker", *federation.asking, "--epsilon", "20", "--ask-again")
    name = Path(rado("learner", *asked)["data"]["release"]).name
    with console(federation.learner.config, tmp_path / "log") as opening:
        caller = Caller(opening.link)
        assert caller.enter() == 303
        text = sent(caller, "models/hazards-1").text("main")
        assert "count noise, choice of rows, clipping and shrinkage" in text
        assert "yes instead of no" in text
        assert "rado learner predict" in text
        assert "hazards-1" in sent(caller, "models").text("main")
        text = sent(caller, f"releases/{name}").text("main")
        assert "Log-rank with noise" in text
        assert "with the interval of each by itself" in text


BAD = [
    (",0.0000,yes", "is not a positive number"),
    (",-1.5,no", "is not a positive number"),
    (",2.0,lost", "is in neither happened nor censored"),
    (",2.0,", "there is a time without an event"),
    (",,yes", "there is no time"),
]


def test_rows_that_the_schema_does_not_know_are_named_before_a_party_answers(federation):
    data = federation.directory("c") / "data.csv"
    kept = data.read_text()
    try:
        for cells, says in BAD:
            data.write_text(f"{kept}50,no,north{cells}\n")
            printed = json.dumps(rado("party", "check", "--config", str(federation.member("c").config), code=1))
            assert says in printed
            # After the header.
            assert f"line {ROWS['c'] + 2}" in printed
    finally:
        data.write_text(kept)


def test_a_party_with_a_time_of_zero_does_not_start(federation):
    federation.stop("c")
    data, before = federation.directory("c") / "data.csv", len(federation.log("c"))
    kept = data.read_text()
    try:
        data.write_text(f"{kept}50,no,north,0,yes\n")
        federation.start("c")
        process = federation.processes.pop("c")
        assert process.wait(HANG_S) == 4
        assert "a person whose time is 0 was never followed" in federation.log("c")[before:]
    finally:
        data.write_text(kept)
        before = len(federation.log("c"))
        federation.start("c")
        wait_until(lambda: "started" in federation.log("c")[before:], what="the party")
