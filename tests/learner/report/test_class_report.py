"""Reports and pictures of models of several classes."""

import json
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.evaluation.class_evaluation import evaluate_classes
from learner.model import Model
from learner.report.gathering import Sources, gather
from learner.report.measured import OwnRows, measure, read_evaluation
from learner.report.page import document, picture_page
from learner.report.pictures import MOST_OF_CLASS, draw, usual
from learner.report.sentences import BESIDE_AVERAGE
from learner.shapes import every_shapes
from radofed.cli.entry_point import run
from tests.html_page import Page, check_that_it_can_be_followed, check_that_it_loads_nothing
from tests.learner.class_models import HTML, NAMES, class_model
from tests.learner.test_class_scores import frame

MANY = tuple(f"kind {number:02}" for number in range(20))


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "own.csv"
    frame(300).drop(index=3).to_csv(file, index=False)
    return file


def reported(made: Model, tmp_path, **sources):
    made.save(tmp_path / "model.json")
    return gather(Sources(tmp_path / "model.json", **sources), 0.0, "1.0")


def checked(text: str) -> Page:
    check_that_it_loads_nothing(text)
    assert HTML not in text
    return check_that_it_can_be_followed(text)


def printed(made: Model, own, tmp_path, **changes):
    """What `rado learner evaluate` prints of a model, in a file."""
    found = evaluate_classes(made.theta, OwnRows(made.schema, own), unseen=True, feature_map=made.feature_map)
    data = {"model_digest": made.digest.hex(), **found.to_dict(), "privacy": made.statement.to_dict()}
    file = tmp_path / "evaluation.json"
    file.write_text(json.dumps({"schema_version": 1, "status": "ok", "data": data | changes}))
    return file, found


@pytest.mark.more
def test_a_report_has_coefficients_of_each_class_and_what_was_measured(own, tmp_path):
    made = class_model(mapped=False)
    file, figures = printed(made, own, tmp_path)
    report = reported(made, tmp_path, evaluation=file, test=own)
    text = document(report).saved()
    page, counts = checked(text), re.findall(r">(\d+)</td>", text)
    assert f"for each class of the label {made.schema.label.column}, and says the class of the largest" in page.words
    assert BESIDE_AVERAGE in page.words
    assert HTML in page.words
    for which in ("on the learner's own rows", "on the parties' rows"):
        assert f"Rows by class and predicted class {which}" in page.words
    assert f"about {100 * figures.error.estimate:.1f} %" in page.words
    whole = [str(count) for row in figures.confusion.astype(int).tolist() for count in row]
    assert " ".join(counts).count(" ".join(whole)) == 2
    by_class = report.to_dict()["coefficients"]["by_class"]
    assert list(by_class) == list(NAMES)
    values = np.array([[row["value"] for row in each["rows"]] for each in by_class.values()])
    assert np.abs(values.sum(axis=0)).max() < 1e-9
    json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.parametrize("names", [NAMES, MANY])
def test_a_report_has_shapes_of_each_class(names, tmp_path):
    report = reported(class_model(names=names, estimator="additive"), tmp_path)
    page = checked(document(report).saved())
    assert "The model's coefficients" not in page.words
    assert all(f"The score of {name}" in page.words for name in names)
    most = 2 if len(names) == 3 else 1
    assert f"These are the {most} largest shapes of each class." in page.words
    assert len(page.named("svg")) == most * len(names)
    assert list(report.to_dict()["shapes"]["by_class"]) == list(names)


def test_coefficients_of_many_classes_are_in_several_tables(tmp_path):
    page = checked(document(reported(class_model(mapped=False, names=MANY), tmp_path)).saved())
    for first, last in ((0, 5), (6, 11), (12, 17), (18, 19)):
        assert f"What each change of a column adds to the scores, from {MANY[first]} to {MANY[last]}" in page.words
    assert all(name in page.words for name in MANY)


@pytest.mark.parametrize("names", [NAMES, MANY])
def test_a_picture_has_the_largest_shapes_of_each_class(names):
    made = class_model(names=names)
    every = every_shapes(made)
    page = checked(picture_page(made, "model.json", usual(every), "1.0").saved())
    assert len(page.named("svg")) == MOST_OF_CLASS * len(names)
    assert BESIDE_AVERAGE in page.words
    assert "--of, --top and --column choose others" in page.words
    one = checked(picture_page(made, "model.json", usual(every[1:2]), "1.0").saved())
    assert len(one.named("svg")) == 7


def test_a_drawing_of_classes_names_them_and_is_not_cut(tmp_path):
    made = class_model()
    draw(usual(every_shapes(made)), tmp_path / "some.svg")
    text = (tmp_path / "some.svg").read_text()
    assert HTML not in text
    assert "ant: " in text
    many = every_shapes(class_model(names=MANY))
    with pytest.raises(ConfigurationError, match="at most 60 shapes: choose a class by --of"):
        draw(usual(many), tmp_path / "many.svg")


def test_the_command_shows_a_class(tmp_path, capsys):
    class_model().save(tmp_path / "model.json")
    asked = ["learner", "picture", str(tmp_path / "model.json")]
    assert run([*asked, "--format", "json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["data"]["by_class"]) == list(NAMES)
    assert run([*asked, "--of", "cow", "-o", str(tmp_path / "cow.html")]) == 0
    assert "adds to the score of 'cow'" in capsys.readouterr().out
    assert run([*asked, "--of", "cows"]) == 4
    assert "no score for 'cows'; did you mean 'cow'" in capsys.readouterr().err
    assert run([*asked, "-o", str(tmp_path / "all.svg")]) == 0
    assert run(["learner", "report", str(tmp_path / "model.json"), "--output", str(tmp_path / "report.html")]) == 0
    assert "largest shapes of 'ant'" in capsys.readouterr().out


def test_an_evaluation_is_read_as_it_was_printed(own, tmp_path):
    made = class_model(mapped=False)
    file, figures = printed(made, own, tmp_path)
    found = read_evaluation(file, made).figures
    assert found.to_dict() == figures.to_dict()
    assert found.sentences() == figures.sentences()
    assert 0 < found.usable <= found.rows
    measured = measure(made, own).figures
    assert np.array_equal(measured.confusion, figures.confusion)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classes": {}}, "its classes are not those of the model"),
        ({"confusion": {"ant": {"ant": 1.0}}}, "its classes are not those of the model"),
        ({"unseen": False}, "a model that may have seen the rows"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(own, tmp_path, changes, said):
    made = class_model(mapped=False)
    file, _ = printed(made, own, tmp_path, **changes)
    with pytest.raises(ConfigurationError, match=said):
        read_evaluation(file, made)


def test_an_evaluation_of_two_classes_is_not_one_of_several(own, tmp_path):
    made = class_model(mapped=False)
    file, _ = printed(made, own, tmp_path, confusion=[[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(ConfigurationError, match="not an evaluation: confusion is missing or out of range"):
        read_evaluation(file, made)
    file, _ = printed(replace(made, held_back=Fraction(1, 3)), own, tmp_path)
    with pytest.raises(ConfigurationError, match="another model was measured"):
        read_evaluation(file, made)
