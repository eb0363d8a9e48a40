"""How good a model is: on own rows exactly what is counted there, and from a file only of the same model."""

import copy
import json
import re
from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.evaluation.evaluation import evaluate
from dpcore.evaluation.options import EvaluationOptions
from learner.predictions import error_rate
from learner.report.measured import _FORMAT, measure, read_evaluation
from learner.report.page import calibration_plot, precision_plot, roc_plot
from radofed.cli.output import OUTPUT_VERSION, json_ready
from tests.learner.report.report_world import SCHEMA, table


@pytest.fixture(scope="module")
def printed(reported):
    """What `rado learner evaluate --format json` prints."""
    model = reported.loaded()
    oracle = reported.federation.within(Fraction(1), Fraction(1, 10**6))
    found = evaluate(model.theta, oracle, EvaluationOptions(bins=10))
    data = {"model": "m.json", "model_digest": model.digest, **found.to_dict(), "privacy": oracle.statement().to_dict()}
    return {"schema_version": 1, "status": "ok", "data": json_ready(data)}


def written(tmp_path, content):
    file = tmp_path / "evaluation.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "own.csv"
    file.write_text(table(500, 8))
    return file


def test_own_rows_are_counted_exactly(reported, own):
    model = reported.loaded()
    found = measure(model, own)
    assert found.own
    assert found.privacy is None
    figures = found.figures
    assert (figures.rows, figures.usable) == (500, 500)
    assert figures.error.estimate == pytest.approx(error_rate(model, own))
    assert (figures.error.on_rows.lower, figures.error.on_rows.upper) == pytest.approx([figures.error.estimate] * 2)
    new = figures.error.on_distribution
    assert new.lower < figures.error.estimate < new.upper
    assert sum(part.rows for part in figures.calibration) == 500
    assert figures.auc.estimate > 0.7


def test_rows_without_one_that_can_be_used(reported, tmp_path):
    file = tmp_path / "own.csv"
    file.write_text("age,smoker,ward,stayed\n")
    with pytest.raises(DataError):
        measure(reported.loaded(), file)
    schema = replace(SCHEMA, label=replace(SCHEMA.label, missing="zero-vector"))
    model = replace(reported.loaded(), schema=schema)
    file.write_text("age,smoker,ward,stayed\n" + "50,yes,east,\n" * 2)
    with pytest.raises(DataError, match=r"no row is usable: in column 'stayed' 2 of 2 cells are empty.*correct the"):
        measure(model, file)
    file.write_text(file.read_text() + "50,yes,east,yes\n")
    with pytest.warns(UserWarning, match="2 of 3 rows are not usable: in column 'stayed'") as warned:
        measure(model, file)
    assert warned[0].filename == __file__


def test_what_the_schema_changed_in_own_rows_is_counted(reported, own):
    features = [replace(each, unknown="zero") if each.name == "ward" else each for each in SCHEMA.features]
    model = replace(reported.loaded(), schema=replace(SCHEMA, features=tuple(features)))
    assert measure(model, own).changes == ()
    rows = own.read_text().split("\n")
    own.write_text("\n".join([rows[0], *(row.replace("east", "East") for row in rows[1:])]))
    with pytest.warns(UserWarning, match="In column 'ward' .* are not among the schema's values") as warned:
        found = measure(model, own)
    assert warned[0].filename == __file__
    (change,) = found.changes
    assert (change.column, change.policy, change.alike) == ("ward", "unknown", change.cells)
    assert found.to_dict()["changes"] == [change.to_dict()]


@pytest.mark.more
def test_a_file_is_read_with_what_asking_cost(reported, printed, tmp_path):
    found = read_evaluation(written(tmp_path, printed), reported.loaded())
    assert not found.own
    assert found.privacy.to_dict() == printed["data"]["privacy"]
    assert found.to_dict()["own_rows"] is False
    figures = found.figures.to_dict()
    assert figures == {name: printed["data"][name] for name in figures}


def test_a_file_of_another_model_is_refused(reported, printed, tmp_path):
    from learner.model import Model

    with pytest.raises(ConfigurationError, match="another model was measured"):
        read_evaluation(written(tmp_path, printed), Model.load(reported.newton))


def without(content, *path):
    changed = copy.deepcopy(content)
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return changed


def changed(content, value, *path):
    made = copy.deepcopy(content)
    inner = made
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return made


def test_what_is_no_evaluation_is_refused_with_what_to_give(reported, printed, tmp_path):
    model = reported.loaded()
    wrong = [
        "no json",
        "[]",
        {"status": "ok"},
        {"status": "error", "data": {}},
        without(printed, "data", "auc"),
        without(printed, "data", "privacy", "epsilon"),
        changed(printed, "text", "data", "privacy"),
        changed(printed, 1.5, "data", "error", "estimate"),
        changed(printed, "0.5", "data", "error", "estimate"),
        changed(printed, [0.1], "data", "error", "on_rows"),
        changed(printed, None, "data", "calibration", 0, "rows"),
        changed(printed, [printed["data"]["roc"][0]] * 300, "data", "roc"),
        without(printed, "schema_version"),
        changed(printed, 2, "schema_version"),
        changed(printed, [0.4, 0.3], "data", "auc", "on_rows"),
        changed(printed, [0.1, 0.9], "data", "error", "on_distribution"),
        changed(printed, printed["data"]["rows"] + 1.0, "data", "usable"),
        changed(printed, 1.0, "data", "confidence"),
        changed(printed, 0.6, "data", "auc_half_width"),
        changed(printed, 1.5, "data", "largest_bin"),
        changed(printed, [[1.0, 2.0]], "data", "confusion"),
        changed(printed, {"share": "1/0", "part": "held-back"}, "data", "part"),
        changed(printed, {"share": "3/2", "part": "held-back"}, "data", "part"),
        changed(printed, {"share": "1/2", "part": "some"}, "data", "part"),
        changed(printed, printed["data"]["roc"][1:], "data", "roc"),
        changed(printed, printed["data"]["roc"][::-1], "data", "roc"),
        changed(printed, printed["data"]["calibration"][::-1], "data", "calibration"),
        *(
            changed(printed, value, "data", name)
            for name in ("usable", "usable_half_width", "cell_half_width", "auc_half_width", "rounding", "deviation")
            for value in (-1.0, float("nan"), float("inf"), "1")
        ),
    ]
    for content in wrong:
        with pytest.raises(ConfigurationError, match="rado learner evaluate MODEL"):
            read_evaluation(written(tmp_path, content), model)
    with pytest.raises(ConfigurationError, match="evaluate it again"):
        read_evaluation(written(tmp_path, without(printed, "data", "model_digest")), model)
    with pytest.raises(ConfigurationError, match="rado learner evaluate MODEL"):
        read_evaluation(tmp_path / "missing.json", model)


def test_the_format_that_is_read_is_the_one_that_commands_print():
    assert _FORMAT == OUTPUT_VERSION


def test_a_file_of_version_0_2_1_is_read(reported, printed, tmp_path):
    """It states neither the noise on the area nor how rows are spread over the bins: its intervals and bins do."""
    old = printed
    for name in ("auc_half_width", "largest_bin", "edges_found"):
        old = without(old, "data", name)
    now, then = (read_evaluation(written(tmp_path, each), reported.loaded()).figures for each in (printed, old))
    assert then.auc_half_width >= now.auc_half_width
    assert then.largest_bin == pytest.approx(now.largest_bin)
    assert then.edges_found is None


def test_plots_show_the_figures(reported, own):
    figures = measure(reported.loaded(), own).figures
    plot, words = calibration_plot(figures, own=True)
    known = [part for part in figures.calibration if part.is_measured]
    marks = re.findall('cy="([^"]*)"', plot.__html__())
    assert [float(y) for y in marks] == [plot.y(part.observed.estimate) for part in known]
    whiskers = re.findall(r'd="M\S+ (\S+) V(\S+)" class="whisker"', plot.__html__())
    ends = [(plot.y(p.observed.strongest.lower), plot.y(p.observed.strongest.upper)) for p in known]
    assert [tuple(map(float, each)) for each in whiskers] == ends
    assert words == f"Calibration. {figures.calibration_in_words()}"
    curve, words = roc_plot(figures, own=True)
    (line,) = re.findall('<polyline points="([^"]*)"', curve.__html__())
    assert line.startswith(f"{curve.left},{curve.bottom} ")
    assert line.endswith(f" {curve.right},{curve.top}")
    assert len(line.split()) == len(figures.roc) + 2
    assert f"{100 * figures.auc.estimate:.1f} %" in words
    decided, words = precision_plot(figures, own=True)
    shown = [point for point in figures.points if point.precision.on_rows.width <= 0.5]
    marks = re.findall('cy="([^"]*)"', decided.__html__())
    assert [float(y) for y in marks] == [decided.y(point.precision.estimate) for point in shown]
    hidden = len(figures.points) - len(shown)
    assert ("not measurable" in words) == bool(hidden)
