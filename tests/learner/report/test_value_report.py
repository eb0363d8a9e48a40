"""Reports and pictures of models of numbers, counts and times: own rows, evaluations, and files that contradict."""

import json

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from dpcore.errors import ConfigurationError
from dpcore.evaluation.options import EvaluationOptions
from learner.hazard_models import hazard_errors
from learner.measured_models import measured_errors
from learner.model import Model
from learner.report.gathering import Sources, gather
from learner.report.measured import OwnRows, measure, read_evaluation
from learner.report.page import document, picture_page
from learner.report.pictures import usual
from learner.shapes import every_shapes
from radofed.cli.entry_point import run
from tests.html_page import check_that_it_can_be_followed, check_that_it_loads_nothing
from tests.learner.test_value_exports import LABELS, model

GROUP = {"lower": 0.0, "upper": 1.0, "rows": 3.0, "predicted": [0.5], "observed": []}
MEASURES = {"number": "R^2", "logarithm": "R^2", "count": "Explained deviance", "rate": "Explained deviance"}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A file with the columns of every label."""
    random, rows = np.random.default_rng(4), 600
    age, smoker, city = random.uniform(20, 80, rows), random.random(rows) < 0.5, random.choice(["north", "south"], rows)
    score = 0.3 * (age - 50) / 30 - 0.2 * np.where(smoker, 1, -1) + np.where(city == "north", 0.45, 0.05)
    years, last = random.uniform(0.5, 4.0, rows), random.uniform(0.5, 12.0, rows)
    times = random.exponential(4.0 / np.exp(score))
    frame = pd.DataFrame(
        {
            "age": age,
            "smoker": np.where(smoker, "yes", "no"),
            "city": city,
            "wage": np.clip(105 + 95 * score + random.normal(size=rows) * 10, 10, 200),
            "n": np.minimum(random.poisson(years * np.exp(score)), 40),
            "years": years,
            "t": np.minimum(times, last),
            "died": np.where(times <= last, "yes", "no"),
        }
    )
    path = tmp_path_factory.mktemp("own") / "own.csv"
    frame.to_csv(path, index=False)
    return path


def evaluated(made: Model, own):
    """As the parties' rows would be, without noise."""
    return made.scoring.evaluate(made, OwnRows(made.schema, own), EvaluationOptions(), unseen=True)


def printed(made: Model, own, tmp_path, **changes):
    found = evaluated(made, own).to_dict()
    data = {"model_digest": made.digest.hex(), **found, "privacy": made.statement.to_dict()}
    file = tmp_path / "evaluation.json"
    file.write_text(json.dumps({"schema_version": 1, "status": "ok", "data": data | changes}))
    return file


def test_a_page_says_what_was_learned_and_how_good_it_is(own, tmp_path):
    for name in LABELS:
        made = model(name)
        made.save(tmp_path / "model.json")
        file = printed(made, own, tmp_path)
        report = gather(Sources(tmp_path / "model.json", evaluation=file, test=own), 0.0, "1.0")
        text = document(report).saved()
        check_that_it_loads_nothing(text)
        words = check_that_it_can_be_followed(text).words
        assert "On the parties' rows" in words
        assert "On the learner's own rows" in words
        assert made.scoring.effect.capitalize() in words
        if name == "time":
            assert "rado learner coefficients prints intervals and p-values" in words
            assert "Survival by predicted risk" in words
        else:
            assert MEASURES[name] in words
            assert "Observed beside predicted" in words
        assert json.dumps(report.to_dict(), allow_nan=False)
        shapes = every_shapes(made)
        picture = picture_page(made, "model.json", usual(shapes), "1.0").saved()
        assert "the larger the odds" not in check_that_it_can_be_followed(picture).words


def test_figures_of_own_rows_are_those_that_predict_prints(own):
    for name in ("number", "logarithm", "count", "rate"):
        made = model(name)
        found = measure(made, own).figures
        assert found.errors.explained == measured_errors(made, own).explained
        frame = pd.read_csv(own)
        assert sum(each.rows for each in found.bins) == len(frame)
        column, over = frame[made.schema.label.column], frame["years"] if name == "rate" else pd.Series(np.ones(600))
        ordered = np.argsort(made.predict(frame[["age", "smoker", "city"]]), kind="stable")[:60]
        lowest = np.log(column.iloc[ordered]).mean() if name == "logarithm" else None
        expected = column.iloc[ordered].sum() / over.iloc[ordered].sum() if lowest is None else np.exp(lowest)
        assert found.bins[0].observed == pytest.approx(expected, rel=1e-4)
    made = model("time")
    found, exact = measure(made, own).figures, hazard_errors(made, own)
    # Pairs within an interval count there and not here.
    assert found.concordance.estimate == pytest.approx(exact.concordance, abs=0.05)
    assert found.brier[-1].score.lower - 5e-3 <= exact.brier <= found.brier[-1].score.upper + 5e-3


@pytest.mark.more
def test_a_file_of_an_evaluation_is_read_back(own, tmp_path):
    for name in LABELS:
        made = model(name)
        found = read_evaluation(printed(made, own, tmp_path), made)
        assert json.dumps(found.figures.to_dict()) == json.dumps(evaluated(made, own).to_dict())
        assert found.privacy is not None
        assert found.of_classes is None


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("rate", {"explained": {"estimate": 0.5, "lower": 0.6, "upper": 0.7}}, "interval without its estimate"),
        ("rate", {"rows": 0}, "rows is missing or out of range"),
        ("time", {"borders": [1.0, 2.0]}, "borders are not those of the model"),
        (
            "time",
            {"groups": [{"lower": 0, "upper": 1, "rows": 3, "predicted": [0.5], "observed": []}]},
            "survival is not",
        ),
        ("number", {"r2": {"estimate": 0.5, "lower": 0.9, "upper": 1.0}}, "interval without its estimate"),
    ],
)
@pytest.mark.variants(3)
def test_a_file_that_contradicts_itself_or_the_model_is_refused(name, changes, says, own, tmp_path):
    with pytest.raises(ConfigurationError, match=says):
        read_evaluation(printed(model(name), own, tmp_path, **changes), model(name))


def test_a_count_whose_scores_are_no_rates_has_no_rates(own, tmp_path):
    file = printed(model("rate"), own, tmp_path)
    with pytest.raises(ConfigurationError, match="not an evaluation"):
        read_evaluation(file, model("count"))


def test_the_command_sums_up(own, tmp_path, capsys):
    for name, says in (
        ("rate", "the explained deviance is 0."),
        ("number", "R^2 is"),
        ("time", "concordance is about"),
    ):
        file = tmp_path / f"{name}.json"
        model(name).save(file)
        assert run(["learner", "report", str(file), "--test", str(own)]) == 0
        assert says in capsys.readouterr().out
        assert run(["learner", "picture", str(file)]) == 0
        assert "age" in capsys.readouterr().out
