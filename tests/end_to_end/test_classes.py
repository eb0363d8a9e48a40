"""A label of several classes over real processes: moments, rounds of newton, evaluation, predictions, exports.

No party has all classes, one has a class alone, and no party has the last one.
"""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dpcore.records.schema import Schema
from learner.model import Model
from learner.release import Release
from parties.data.dataset import load
from radofed.cli.entry_point import run
from radofed.node_config import PolicyChoices
from tests.end_to_end.test_main_job import SCHEMA as TWO_CLASSES
from tests.federation.processes import ProcessFederation, rado
from tests.html_page import check_that_it_can_be_followed, check_that_it_loads_nothing
from tests.waiting import HANG_S, wait_until

pytestmark = pytest.mark.more

NAMES = ("cold", "flu", "sound", "plague")
SCHEMA = """
schema_version = 4
name = "ailments"
texts = []
[label]
type = "classes"
column = "ailment"
values = ["cold", "flu", "sound", "plague"]
[[features]]
name = "age"
type = "real"
unreadable = "refuse"
lower = 0.0
upper = 100.0
[[features]]
name = "fever"
type = "real"
unreadable = "refuse"
lower = 36.0
upper = 42.0
[[features]]
name = "smoker"
type = "boolean"
true = ["yes"]
false = ["no"]
"""
HELD = {"a": ("cold", "flu"), "b": ("cold", "flu"), "c": ("sound",), "d": ("cold", "flu")}
"""The classes of each party's rows: only c has sound people."""
ROWS = {"a": 500, "b": 700, "c": 400, "d": 400}
ALLOWING = PolicyChoices(designs=("moments", "gradient", "statistic"), epsilon="400", delta="1e-3")
MEANS = {"cold": (30.0, 37.4), "flu": (60.0, 39.5), "sound": (45.0, 36.4), "plague": (50.0, 41.0)}


def table(rows: int, seed: int, classes=NAMES[:3]) -> str:
    random = np.random.default_rng(seed)
    lines = ["age,fever,smoker,ailment"]
    for name in random.choice(classes, rows):
        age, fever = MEANS[name]
        smoker = "yes" if random.random() < 0.4 else "no"
        shown = np.clip(age + random.normal(0, 8), 0, 100), np.clip(fever + random.normal(0, 0.4), 36, 42)
        lines.append(f"{shown[0]:.2f},{shown[1]:.3f},{smoker},{name}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("classes")
    parties = {name: table(rows, seed, HELD[name]) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(root, parties=parties, schema=SCHEMA, policy=ALLOWING, rows_at_least=ROWS) as federation:
        (root / "new.csv").write_text(table(600, 99))
        assert federation.serve()["bits"] == 3072
        yield federation


@pytest.fixture(scope="module")
def newton(federation):
    """A model of three rounds, trained without a fifth of the rows, and what the training printed."""
    model = federation.root / "newton.json"
    options = ("--estimator", "newton", *federation.asking, "--epsilon", "30", "--rounds", "3", "--hold-back", "1/5")
    made = rado("learner", "train", *options, "-o", str(model))["data"]
    return model, options, made


def confusion(federation, model: Model) -> np.ndarray:
    """The true one over all parties' rows, by class and predicted class, which only a test may count."""
    found = np.zeros((len(NAMES), len(NAMES)))
    for name in ROWS:
        records = load(federation.directory(name) / "data.csv", Schema.from_toml(SCHEMA)).records
        predicted = model.predicted(model.scores(records.features * 2.0**-30))
        np.add.at(found, (records.labels, predicted), 1)
    return found


def test_classes_that_no_party_has_all_of_are_learned_in_rounds(federation, newton):
    model, options, made = newton
    assert made["answers"] == 3
    assert 0 < made["privacy"]["epsilon"] < made["privacy"]["epsilon_if_others_collude"] <= 30
    assert "'plague'" in made["warning"]
    assert "'sound'" not in made["warning"]
    before = federation.queries()
    predicted = rado("learner", "predict", str(model), str(federation.root / "new.csv"))["data"]
    assert predicted["error_rate"] < 0.2
    assert list(predicted["confusion"]) == list(NAMES)
    assert sum(predicted["predicted"].values()) == predicted["rows"] == 600
    # A training that is repeated reads its answers.
    first = json.loads(model.read_text())
    model.rename(federation.root / "first.json")
    assert run(["learner", "train", *options, "-o", str(model)]) == 0
    assert json.loads(model.read_text())["theta"] == first["theta"]
    assert federation.queries() == before


def test_one_release_of_moments_has_a_sum_for_each_class(federation):
    asked = rado("learner", "query", *federation.asking, "--design", "moments", "--epsilon", "40")["data"]
    release = Release.load(Path(asked["release"]))
    sums = release.moments.class_sums
    assert sums.shape == (len(NAMES), 4)
    held = [np.sum([text.count(f",{name}\n") for text in tables(federation)]) for name in NAMES]
    assert sums[:, -1] == pytest.approx(held, abs=6 * release.moments.sum_noise + 1)
    model, scores = federation.root / "gaussian.json", federation.root / "scores.csv"
    made = rado("learner", "train", asked["release"], "--estimator", "mean-variance", "-o", str(model))["data"]
    assert "'plague'" in made["warning"]
    new = str(federation.root / "new.csv")
    predicted = rado("learner", "predict", str(model), new, "-o", str(scores), "--id-column", "age")["data"]
    assert predicted["error_rate"] < 0.2
    assert "softmax" in predicted["probability"]
    with scores.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 600
    chances = np.array([[float(row[f"probability {name}"]) for name in NAMES] for row in rows])
    assert chances.sum(axis=1) == pytest.approx(1.0, abs=1e-4)
    # Of a model whose scores are log odds the most probable class is predicted.
    assert [NAMES[code] for code in chances.argmax(axis=1)] == [row["label_text"] for row in rows]


def tables(federation) -> list[str]:
    return [(federation.directory(name) / "data.csv").read_text() for name in ROWS]


def test_an_evaluation_counts_rows_by_class_and_predicted_class(federation, newton):
    model, _, _ = newton
    options = (*federation.config, "--epsilon", "20", "--confidence", "0.9999")
    calibrated, file = federation.root / "calibrated.json", federation.root / "evaluation.json"
    printed = rado("learner", "evaluate", str(model), *options, "--calibrated", str(calibrated))
    file.write_text(json.dumps(printed))
    found = printed["data"]
    assert found["unseen"] is True
    assert found["part"] == {"share": "1/5", "part": "held-back"}
    counted = np.array([[found["confusion"][name][other] for other in NAMES] for name in NAMES])
    # A fifth of the rows, by chance.
    true = confusion(federation, Model.load(model))
    slack = 5 * np.sqrt(true * 0.16) + found["cell_half_width"] + 1
    assert (np.abs(counted - true / 5) <= slack).all()
    lower, upper = found["error"]["on_rows"]
    assert lower <= upper < 0.3
    # Nothing is claimed of a class without rows.
    assert found["classes"]["plague"]["recall"]["on_distribution"] == [0.0, 1.0]
    # newton has probabilities once they are measured.
    new, scores = str(federation.root / "new.csv"), federation.root / "calibrated.csv"
    assert "weights are clipped" in rado("learner", "predict", str(model), new)["data"]["probability"]
    predicted = rado("learner", "predict", str(calibrated), new, "-o", str(scores))["data"]
    assert "for each predicted class the shares of all 4 classes" in predicted["probability"]
    with scores.open(newline="") as lines:
        for row in csv.DictReader(lines):
            assert sum(float(row[f"probability {name}"]) for name in NAMES) == pytest.approx(1.0, abs=1e-4)
    # The same evaluation is part of a report, which asks nothing.
    before, page = federation.queries(), federation.root / "report.html"
    rado(
        "learner", "report", str(model), *federation.config, "--evaluation", str(file), "--test", new,
        "--output", str(page),
    )  # fmt: skip
    text = page.read_text()
    check_that_it_loads_nothing(text)
    words = check_that_it_can_be_followed(text).words
    assert "3 queries were answered" in words
    assert "Rows by class and predicted class on the parties' rows" in words
    assert federation.queries() == before


def test_an_exported_model_scores_rows_without_this_program(federation, newton):
    model, _, _ = newton
    to = federation.root / "units.json"
    rado("learner", "export", str(model), "-o", str(to))
    page = (Path(__file__).resolve().parents[2] / "docs/how-to/use-a-model-elsewhere.md").read_text()
    names: dict = {}
    exec("\n".join(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def " in block), names)
    exported, fitted = json.loads(to.read_text()), Model.load(model)
    with (federation.root / "new.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))[:50]
    found = [names["score"](exported, row) for row in rows]
    for row, (scores, said, chances) in zip(rows, found, strict=True):
        explained = fitted.explain({**row, "age": float(row["age"]), "fever": float(row["fever"])})
        assert said == NAMES[explained.label] == explained.of
        assert explained.score == pytest.approx(max(scores), abs=1e-9)
        assert chances is None
    pictured = rado("learner", "picture", str(model), "--of", "flu", "-o", str(federation.root / "flu.html"))["data"]
    assert pictured["positive"] == "flu"
    assert "fever" in {name for shape in pictured["ranking"] for name in shape["columns"]}


REFUSED = [
    (("train", "--estimator", "naive-bayes", "-o", "x.json", "--epsilon", "1"), "naive-bayes learns a label of two"),
    (("query", "--design", "plain", "--rados", "20"), "needs a label of two classes"),
    (("statistic", "y == 1", "--epsilon", "1"), "has 4 classes"),
    (("statistic", 'y == "fluu"', "--epsilon", "1"), "did you mean 'flu'"),
]


@pytest.mark.more
def test_what_is_about_two_classes_is_refused_before_anything_is_sent(federation, newton, tmp_path, capsys):
    before, model = federation.queries(), str(newton[0])
    evaluating = ("evaluate", model, *federation.config, "--epsilon", "1", "--bins", "10")
    cases = [((*arguments, *federation.asking), said) for arguments, said in REFUSED]
    for arguments, says in [*cases, (evaluating, "--bins is about bins of the one score")]:
        given = [str(tmp_path / "x.json") if text == "x.json" else text for text in arguments]
        assert run(["learner", *given, "--format", "json"]) in (4, 6)
        assert says in json.loads(capsys.readouterr().out)["error"]["message"]
    assert federation.queries() == before


@pytest.mark.more
def test_a_statistic_and_a_selection_are_about_classes(federation, newton):
    asked = ('y == "sound"', 'y == "plague"')
    found = rado("learner", "statistic", *asked, *federation.asking, "--epsilon", "10", "--delta", "0")["data"]
    sound, plague = (each["estimate"] for each in found["estimates"])
    assert sound == pytest.approx(ROWS["c"] / sum(ROWS.values()), abs=found["noise"] + 1e-9)
    assert abs(plague) <= found["noise"] + 1e-9 < 0.05
    would = rado("learner", "evaluate", str(newton[0]), *federation.config, "--epsilon", "2", "--would-accept")["data"]
    assert "rows by class and predicted class" in json.dumps(would)
    # A model with its classes the other way round is right far less often.
    model = Model.load(newton[0])
    worse = federation.root / "worse.json"
    type(model)(model.theta[::-1], model.schema, "newton", bytes(32), model.statement, model.held_back).save(worse)
    files = ("--model", str(worse), "--model", str(newton[0]))
    chosen = rado("learner", "select", *files, *federation.config, "--epsilon", "20")["data"]
    assert chosen["chosen"] == str(newton[0])


@pytest.mark.more
def test_the_console_trains_on_a_release_of_classes(federation, tmp_path):
    pytest.importorskip("uvicorn", reason="the console is not installed")
    from tests.radofed.console.consoles import console, sent
    from tests.radofed.console.serving import Caller

    asked = rado("learner", "query", *federation.asking, "--design", "moments", "--epsilon", "35")["data"]
    name = Path(asked["release"]).name
    with console(federation.learner.config, tmp_path / "log") as opening:
        caller = Caller(opening.link)
        assert caller.enter() == 303
        page = sent(caller, f"releases/{name}")
        assert page.text("option").split() == ["mean-variance"]
        form = {"csrf": page.values["csrf"], "estimator": "mean-variance", "option": ""}
        status, headers, _ = caller.ask(f"releases/{name}", method="POST", form=form)
        assert status == 303
        made = sent(caller, f"models/{headers['location'].rsplit('/', 1)[1]}")
        text = made.text("main")
        assert "'plague' at most about" in text
        assert "for each class of the label ailment, and says the class of the largest" in text
        assert "epsilon" in sent(caller, f"releases/{name}/report").text("main")


MAP = """map_version = 1
[[terms]]
name = "ages"
hats = "age"
knots = [0, 30, 60, 100]
[[terms]]
column = "fever"
[[terms]]
name = "smokes"
column = "smoker"
[[terms]]
product = ["ages", "smokes"]
"""


@pytest.mark.more
def test_a_model_over_a_feature_map_has_all_that_a_linear_one_has(federation):
    file, model = federation.root / "map.toml", federation.root / "mapped.json"
    file.write_text(MAP)
    asked = rado(
        "learner", "query", *federation.asking, "--map", str(file), "--design", "moments", "--epsilon", "30"
    )["data"]  # fmt: skip
    rado("learner", "train", asked["release"], "--estimator", "mean-variance", "-o", str(model))
    made, new = Model.load(model), str(federation.root / "new.csv")
    assert made.theta.shape == (len(NAMES), made.feature_map.d)
    assert rado("learner", "predict", str(model), new)["data"]["error_rate"] < 0.2
    # It was trained on these rows, so nothing is said about new ones.
    found = rado("learner", "evaluate", str(model), *federation.config, "--epsilon", "20")["data"]
    counted = np.array([[found["confusion"][name][other] for other in NAMES] for name in NAMES])
    assert np.abs(counted - confusion(federation, made)).max() <= found["cell_half_width"] + 1
    assert found["error"]["on_distribution"] is None
    exported = federation.root / "mapped-units.json"
    rado("learner", "export", str(model), "-o", str(exported))
    assert [len(score["weights"]) for score in json.loads(exported.read_text())["scores"]] == [6] * len(NAMES)
    shown = rado("learner", "picture", str(model), "--of", "cold", "-o", str(federation.root / "cold.html"))["data"]
    assert ["age", "smoker"] in [shape["features"] for shape in shown["ranking"]]
    pipeline = made.to_sklearn()
    with (federation.root / "new.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    frame = pa.table({name: [row[name] for row in rows] for name in ("age", "fever", "smoker")})
    codes = made.predicted(made.scores(made.schema.encode(frame).x))
    assert pipeline.predict(frame).tolist() == [NAMES[code] for code in codes]


def checked(federation, name: str, text: str) -> str:
    """What `rado party check` says of another table of a party, and its exit code before it."""
    member = federation.member(name)
    data, kept = federation.directory(name) / "data.csv", (federation.directory(name) / "data.csv").read_text()
    data.write_text(text)
    try:
        printed = rado("party", "check", "--config", str(member.config), code=1)
    finally:
        data.write_text(kept)
    return json.dumps(printed)


def test_a_party_says_which_classes_its_rows_have(federation):
    shown = {name: federation.log(name) for name in ROWS}
    assert "all 400 usable rows are of class 'sound': this party can take part but cannot learn alone" in shown["c"]
    assert "no usable row is of class 'sound', 'plague'" in shown["a"]


def test_a_class_that_the_schema_does_not_list_stops_a_party_before_it_answers(federation):
    text = table(50, 7, HELD["d"]).replace(",cold\n", ",chill\n", 1)
    assert "is a class that the schema's label does not list in values" in checked(federation, "d", text)
    federation.stop("d")
    data, before = federation.directory("d") / "data.csv", len(federation.log("d"))
    kept = data.read_text()
    try:
        data.write_text(text)
        federation.start("d")
        process = federation.processes.pop("d")
        assert process.wait(HANG_S) == 4
        assert "does not list in values; add it, set label.unlisted" in federation.log("d")[before:]
    finally:
        data.write_text(kept)
        before = len(federation.log("d"))
        federation.start("d")
        wait_until(lambda: "started" in federation.log("d")[before:], what="the party")


def test_a_party_with_another_label_takes_no_part(federation):
    """Its schema has another digest."""
    assert Schema.from_toml(TWO_CLASSES).digest != Schema.from_toml(SCHEMA).digest
    swapped = SCHEMA.replace('"cold", "flu"', '"flu", "cold"')
    assert Schema.from_toml(swapped).digest != Schema.from_toml(SCHEMA).digest
    other = federation.root / "other.toml"
    other.write_text(swapped)
    refused = rado(
        "learner", "query", *federation.config, "--schema", str(other), "--design", "moments", "--epsilon", "1",
        "--timeout-s", "60", code=6,
    )  # fmt: skip
    assert "schema" in refused["error"]["message"].lower()
