"""Models of a time to an event: training by queries, their files, survival of rows, errors, and what they refuse."""

import csv
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, DataError, ModelError, SchemaError, ShapeError
from dpcore.estimators.hazards import ProportionalHazards
from dpcore.records.encoding import store
from dpcore.records.features import BooleanFeature, EventTime, Number, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from learner.federation import Federation
from learner.hazard_models import hazard_errors, ranked_ratios
from learner.model import Model
from learner.predictions import predict
from learner.training import model_of_answers
from learner.warm_start import load_start
from radofed.cli.entry_point import run
from radofed.cli.learner.prediction_files import survival_csv
from tests.federation.learner import Memory, World
from tests.learner.test_models import STATEMENT

BORDERS = (1.0, 2.0, 3.0, 4.0)
SCHEMA = Schema(
    name="s",
    label=EventTime(column="years", event="died", happened=("yes",), censored=("no",), borders=BORDERS),
    features=(
        RealFeature(name="age", lower=40.0, upper=80.0),
        BooleanFeature(name="smoker", true=("yes",), false=("no",)),
    ),
)
ROWS = {"a": 2700, "b": 2500, "c": 2600}
RATE, AGE, SMOKER = 0.3, 0.03, 0.6
"""The hazard at 60 of one who does not smoke, its logarithm's rise each year of age, and with smoking."""


def people(rows: int, seed: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seed)
    age, smoker = random.uniform(40.0, 80.0, rows), random.random(rows) < 0.5
    times = random.exponential(1.0 / (RATE * np.exp(AGE * (age - 60.0) + SMOKER * smoker)))
    last = random.uniform(0.5, 10.0, rows)
    return age, smoker, np.minimum(times, last), times <= last


def records(rows: int, seed: int) -> Records:
    age, smoker, times, happened = people(rows, seed)
    place = np.searchsorted(BORDERS, times)
    codes = np.where(place >= 4, 8, np.where(happened, place, 4 + place)).astype(np.int8)
    x = np.column_stack([age / 20.0 - 3.0, 2.0 * smoker - 1.0, np.ones(rows)])
    return Records(store(x), codes, np.ones(rows, bool), coding=SCHEMA.label.coding)


def table(path: Path, rows: int = 800, seed: int = 9) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        written = csv.writer(file)
        written.writerow(["id", "age", "smoker", "years", "died"])
        for number, (age, smoker, years, died) in enumerate(zip(*people(rows, seed), strict=True)):
            texts = ("yes" if smoker else "no", f"{years:.4f}", "yes" if died else "no")
            written.writerow([number, f"{age:.2f}", *texts])
    return path


@pytest.fixture(scope="module")
def model() -> Model:
    """The model that the rows were drawn with."""
    theta = np.array([20.0 * AGE, SMOKER / 2.0, 0.0])
    log_hazards = np.full(4, np.log(RATE) + SMOKER / 2.0)
    return Model(theta, SCHEMA, "hazards", bytes(32), STATEMENT, log_hazards=log_hazards)


def test_hazards_are_learned_with_their_baseline_and_kept(learner_key, tmp_path):
    held = {name: records(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    oracle = Federation(Memory(World(learner_key, dict(ROWS)), held), SCHEMA).within(Fraction(20), Fraction(1, 10**6))
    found = model_of_answers(ProportionalHazards(clip=3.0).fit_queries(oracle), oracle, "hazards")
    ratios = {each.column: each.ratio for each in ranked_ratios(found)}
    assert ratios["age"] == pytest.approx(np.exp(AGE), abs=0.01)
    assert ratios["smoker"] == pytest.approx(np.exp(SMOKER), rel=0.15)
    found.save(tmp_path / "model.json")
    loaded = Model.load(tmp_path / "model.json")
    assert loaded.digest == found.digest
    assert loaded.log_hazards.tolist() == found.log_hazards.tolist()
    # Survival of one who is 60 and does not smoke.
    chances = loaded.survival(loaded.scores(np.array([[0.0, -1.0, 1.0]])))
    assert chances[0] == pytest.approx(np.exp(-RATE * np.array(BORDERS)), abs=0.04)


def test_a_changed_baseline_is_noticed(model, tmp_path):
    path = tmp_path / "model.json"
    model.save(path)
    content = json.loads(path.read_text())
    content["log_hazards"][0] += 1e-9
    path.write_text(json.dumps(content))
    with pytest.raises(ModelError, match="changed after it was saved"):
        Model.load(path)


def test_a_baseline_fits_its_label(model):
    with pytest.raises(ModelError, match="if, and only if"):
        replace(model, log_hazards=None)
    with pytest.raises(ShapeError, match="for 4 intervals"):
        replace(model, log_hazards=np.zeros(3))
    with pytest.raises(ModelError, match="not finite"):
        replace(model, log_hazards=np.array([0.0, 0.0, 0.0, np.inf]))
    number = replace(SCHEMA, label=Number(column="years", lower=0.0, upper=1.0))
    with pytest.raises(ModelError, match="if, and only if"):
        replace(model, schema=number)
    with pytest.raises(SchemaError, match="survival needs a label that is a time to an event"):
        replace(model, schema=number, log_hazards=None).survival(np.zeros(1))


def test_predictions_are_survival_and_a_mean(model, tmp_path):
    path = table(tmp_path / "new.csv")
    found = predict(model, path)
    age, smoker, _, _ = people(800, 9)
    exact = RATE * np.exp(AGE * (age - 60.0) + SMOKER * smoker)
    assert found.survival == pytest.approx(np.exp(-np.outer(exact, BORDERS)), abs=1e-3)
    assert ((found.values > 0.0) & (found.values < 4.0)).all()
    lines = list(csv.DictReader(survival_csv(SCHEMA.label, found, path, "id").splitlines()))
    assert list(lines[0]) == [
        "row", "id", "score", "survival 1", "survival 2", "survival 3", "survival 4", "mean years to 4"
    ]  # fmt: skip
    assert float(lines[7]["survival 4"]) == found.survival[7, -1]
    assert float(lines[7]["mean years to 4"]) == found.values[7]


def test_errors_are_from_exact_times_up_to_the_horizon(model, tmp_path):
    found = hazard_errors(model, table(tmp_path / "new.csv", 3_000))
    assert (found.rows, found.compared, found.horizon) == (3_000, 3_000, 4.0)
    assert 0.6 < found.concordance < 0.75
    assert found.brier < found.brier_of_equal < 0.26
    worse = hazard_errors(replace(model, theta=-model.theta), table(tmp_path / "again.csv", 3_000))
    assert worse.concordance == pytest.approx(1.0 - found.concordance, abs=1e-3)
    assert worse.brier > found.brier_of_equal
    first, second = found.sentences()
    assert first.startswith("concordance 0.")
    assert "the best equal chance for all rows has" in second


def lines(*rows: str) -> str:
    return "\n".join(["age,smoker,years,died", *rows]) + "\n"


def test_rows_that_the_schema_does_not_know_are_not_compared(model, tmp_path):
    """A time of zero, a negative one, an event in neither list, a time without an event, an event without a time."""
    path = tmp_path / "new.csv"
    odd = ("50,yes,0,yes", "50,yes,-1,no", "50,yes,2,lost", "50,yes,2,", "50,yes,,yes")
    path.write_text(lines("60,no,1.5,yes", "50,no,3,no", *odd))
    found = hazard_errors(model, path)
    assert (found.rows, found.compared, found.events) == (7, 2, 1)
    # The older one died first; nobody was followed beyond the horizon.
    assert found.concordance == 1.0
    assert np.isnan(found.brier)
    assert found.to_dict()["brier"] is None
    assert "no row was followed beyond the horizon, 4" in found.sentences()[1]
    path.write_text(lines("60,no,9,yes"))
    assert "no row had the event before another's time" in hazard_errors(model, path).sentences()[0]
    path.write_text(lines(*odd))
    with pytest.raises(DataError, match="no row has both a prediction and a time"):
        hazard_errors(model, path)


def test_predict_prints_ratios_in_words_and_writes_a_file(model, tmp_path, capsys):
    file, to = tmp_path / "model.json", tmp_path / "predicted.csv"
    model.save(file)
    new = table(tmp_path / "new.csv")
    assert run(["learner", "predict", str(file), str(new), "-o", str(to)]) == 0
    said = capsys.readouterr().out
    assert "age, for each unit more: hazard ratio 1.03" in said
    assert "not comparable to Cox's" in said
    assert "concordance 0." in said
    assert len(to.read_text().splitlines()) == 801
    # Without the event's column there is nothing to compare.
    new.write_text("age,smoker,years\n50,no,2\n")
    assert run(["learner", "predict", str(file), str(new), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["data"]
    assert "concordance" not in found
    assert found["survival_mean"] == pytest.approx(float(np.exp(-4.0 * RATE * np.exp(-10.0 * AGE))), abs=1e-6)


def test_what_needs_classes_refuses_a_time(model, tmp_path, capsys):
    with pytest.raises(ModelError, match="has predictions and no probabilities of classes"):
        model.probabilities(np.zeros(1))
    with pytest.raises(SchemaError, match="say a number and no class"):
        model.predicted(np.zeros(1))
    file = tmp_path / "model.json"
    model.save(file)
    options = ("--config", "none.toml", "--epsilon", "1", "--format", "json")
    for asked, says in (
        (("--scale", "2"), "--scale is about scores of classes"),
        (("--cost", "false-negative=5"), "--cost is about scores of classes"),
        (("--edges-part", "0"), "give an edges_part above 0"),
        (("--calibrated", str(tmp_path / "better.json")), "without probabilities: leave --calibrated out"),
    ):
        assert run(["learner", "evaluate", str(file), *options, *asked]) == 4
        assert says in json.loads(capsys.readouterr().out)["error"]["message"]
    number = replace(SCHEMA, label=Number(column="n", lower=0.0, upper=1.0))
    with pytest.raises(SchemaError, match="a hazard ratio needs a label that is a time to an event"):
        ranked_ratios(replace(model, schema=number, log_hazards=None))
    with pytest.raises(ConfigurationError, match="does not start from a model"):
        load_start(file, "hazards", SCHEMA, None, Fraction(0))
