"""Epsilon against what was asked: the curves pass through the statement's figures."""

import re
from itertools import pairwise

import pytest

from dpcore.numbers.rationals import rounded_up
from dpcore.queries.statement import PrivacyStatement
from learner.composition import curves
from learner.model import Model
from learner.release import Release
from learner.report.page import curve_words, epsilon_plot
from learner.requests import RadosRequest
from tests.learner.report.report_world import ROWS, SCHEMA


def drawn(reported, *, several: bool):
    places = reported.answers if several else reported.releases
    releases = [Release.load(place) for place in places]
    statement = Model.load(reported.newton).statement if several else releases[0].statement
    return {curve.id: curve for curve in curves(releases, statement)}, statement


@pytest.mark.parametrize("several", [False, True])
def test_the_mark_is_on_the_curve(reported, several):
    found, statement = drawn(reported, several=several)
    assert set(found) == {"answers", "colluders"}
    marked = {name: next(p for p in curve.points if p.at == curve.marked.at) for name, curve in found.items()}
    assert marked["answers"].at == (3 if several else 1)
    assert marked["answers"].alone == pytest.approx(statement.epsilon, rel=1e-3)
    for point in marked.values():
        assert point.colluding == pytest.approx(statement.epsilon_if_others_collude, rel=1e-3)
    assert marked["colluders"].at == len(ROWS) - 2


@pytest.mark.parametrize("several", [False, True])
def test_more_answers_and_more_colluders_cost_more(reported, several):
    found, _ = drawn(reported, several=several)
    for curve in found.values():
        assert all(a.colluding < b.colluding for a, b in pairwise(curve.points))
    assert all(a.alone < b.alone for a, b in pairwise(found["answers"].points))
    assert [point.at for point in found["colluders"].points] == [0, 1, 2]
    assert not found["colluders"].has_alone


@pytest.mark.more
def test_a_bound_for_one_column_has_a_curve_and_does_not_depend_on_colluders(reported):
    release = reported.asked(RadosRequest(SCHEMA, 20, design="dp-feat", sensitive="smoker"))
    (curve,) = curves([release], release.statement)
    assert curve.id == "answers"
    assert curve.points[0].alone == pytest.approx(release.statement.epsilon, rel=1e-3)
    plain = reported.asked(RadosRequest(SCHEMA, 20, design="fixed-support"))
    assert plain.statement.epsilon is None
    assert curves([plain], plain.statement) == ()


def test_what_bounds_nothing_has_no_curve(reported):
    nothing = PrivacyStatement("one record", "none", None, None, None, None, (), ())
    assert curves([Release.load(reported.releases[0])], nothing) == ()
    assert curves([], Model.load(reported.model).statement) == ()


def test_a_plot_has_its_lines_and_marks_where_the_figures_are(reported):
    found, statement = drawn(reported, several=False)
    curve = found["answers"]
    plot = epsilon_plot(curve)
    alone, colluding = re.findall('<polyline points="([^"]*)"', plot.__html__())
    for line, name in ((alone, "alone"), (colluding, "colluding")):
        assert line.split() == [f"{plot.x(p.at):g},{plot.y(getattr(p, name)):g}" for p in curve.points]
    assert f'<circle cx="{plot.x(1):g}" cy="{plot.y(statement.epsilon):g}"' in plot.__html__()
    assert f"Marked: {rounded_up(statement.epsilon)} against the learner alone" in curve_words(curve)
    words = epsilon_plot(found["colluders"]).__html__()
    assert words.count("<polyline") == 1
    assert "<circle" not in words
    assert "learner alone" not in words
