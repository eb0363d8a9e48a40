"""The page and the picture of a model's shapes, and the command that writes them."""

import json
import re
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given

from learner.report.page import picture_page
from learner.report.pictures import MOST_PAIRS, MOST_SIDE, NOT_MEASURABLE, draw, drawing, usual, value_text
from learner.report.sentences import BANDS, NO_BANDS
from learner.shapes import Surface, every_shapes, shapes_of
from radofed.cli.entry_point import run
from tests.html_page import Page, check_that_it_can_be_followed, check_that_it_loads_nothing
from tests.learner.shapes.mapped import HTML, model, models


def page_of(made, **chosen) -> str:
    every = every_shapes(made)
    drawn = [(shapes, shapes.chosen(**chosen)) for shapes in every] if chosen else usual(every)
    return picture_page(made, "model.json", drawn, "1.0").saved()


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("covariance", [True, False])
def test_the_page_loads_nothing_and_can_be_followed(mapped, covariance):
    made = model(mapped=mapped, covariance=covariance)
    text = page_of(made)
    check_that_it_loads_nothing(text)
    page = check_that_it_can_be_followed(text)
    assert len(page.named("svg")) == (7 if mapped else 5)
    assert HTML not in text
    assert HTML in page.words
    for sentence in made.statement.sentences():
        assert sentence in page.words


@pytest.mark.more
@given(made=models())
def test_any_model_is_drawn(made):
    shapes = shapes_of(made)
    check_that_it_can_be_followed(page_of(made))
    json.dumps(shapes.to_dict(shapes.ranked), allow_nan=False)


def test_every_figure_is_there():
    made = model(covariance=True)
    shapes, words = shapes_of(made), Page(page_of(made)).words
    for place, shape in enumerate(shapes.ranked, 1):
        low, high = shape.ends
        sizes = f"{shape.size:.3f}{low:+.3f} to {high:+.3f}{shape.noise:.3f}"
        assert f"{place}. {shape.title}{sizes}" in words
        if shape.kind == "values":
            for at in shape.values:
                assert f"{at.value}: {at.adds:+.3g} plus or minus {at.band:.2g}" in words
    assert "Exactly 0 (60 of 100 values) adds" in words
    assert "paid (column fee)" in words


def test_bands_are_explained_and_never_claimed_without_a_covariance():
    known, unknown = Page(page_of(model(covariance=True))), Page(page_of(model()))
    for sentence in BANDS:
        assert sentence in known.words
        assert sentence not in unknown.words
    assert NO_BANDS not in known.words
    assert NO_BANDS in unknown.words
    assert "plus or minus" not in unknown.words
    assert known.named("polygon")
    assert not unknown.named("polygon")
    # The first thing that is said.
    assert [mark["class"] for mark in unknown.named("p") if "class" in mark] == ["who", "warning"]
    assert [mark["class"] for mark in known.named("p") if "class" in mark] == ["who"]


def test_a_cell_is_bold_where_its_band_leaves_out_zero():
    known = model(covariance=True)
    made = replace(known, covariance=known.covariance * 0.02)
    (pair,) = (shape for shape in shapes_of(made).ranked if shape.features == ("age", "paid"))
    sure = [abs(at.adds) > at.band for row in pair.cells for at in row]
    texts = re.findall(r'<text x="([^"]*)" y="([^"]*)" text-anchor="([^"]*)" class="small( b)?">([^<]*)<', drawn(pair))
    assert [bool(bold) for _, _, _, bold, text in texts if re.fullmatch(r"[+-]?\d\.\d\d", text)] == sure
    # The first value of the first column is at the bottom.
    heads = [(float(y), text) for _, y, anchor, _, text in texts if anchor == "end"]
    assert [text for _, text in heads] == [value_text(value) for value in pair.rows]
    assert heads == sorted(heads, reverse=True)
    assert 0 < sum(sure) < len(sure)


def drawn(shape) -> str:
    return drawing(shape, "shape")[0].__html__()


def test_the_picture_of_a_curve_is_at_its_values():
    (age,) = (shape for shape in shapes_of(model()).ranked if shape.features == ("age",))
    plot = drawing(age, "age")[0]
    (line,) = re.findall('<polyline points="([^"]*)"', plot.__html__())
    places = [tuple(map(float, point.split(","))) for point in line.split()]
    assert places == [(plot.x(at.value), plot.y(at.adds)) for at in age.line]
    assert places[0][0] == plot.left
    assert places[-1][0] == plot.right


@pytest.mark.more
def test_large_heat_maps_and_many_pairs_are_left_out():
    made = model()
    shapes = shapes_of(made)
    (pair,) = (shape for shape in shapes.ranked if shape.features == ("age", "paid"))
    rows = (*pair.rows, *map(float, range(MOST_SIDE)))
    large = replace(pair, rows=rows, cells=(pair.cells * MOST_SIDE)[: len(rows)])
    assert drawing(large, "large")[0] is None
    many = replace(shapes, ranked=(*shapes.ranked, *[replace(pair, size=0.0) for _ in range(20)]))
    assert sum(isinstance(shape, Surface) for shape in usual([many])[0][1]) == MOST_PAIRS
    text = picture_page(made, "model.json", [(many, [*usual([many])[0][1], large])], "1.0").saved()
    assert "more values than a heat map shows here" in Page(text).words
    assert "shapes are not drawn" in Page(text).words


def test_a_model_that_adds_nothing_is_drawn():
    nothing = replace(model(covariance=True), theta=np.zeros(17), covariance=np.zeros((17, 17)))
    check_that_it_can_be_followed(page_of(nothing))


@pytest.mark.parametrize(
    ("value", "text"), [(99999.0, "99,999"), (0.12345, "0.1235"), (-12345.6, "-12,346"), ("a", "a")]
)
def test_values_are_short(value, text):
    assert value_text(value) == text


@pytest.fixture
def file(tmp_path) -> Path:
    model(covariance=True).save(tmp_path / "model.json")
    return tmp_path / "model.json"


def picture(*arguments) -> list[str]:
    return ["learner", "picture", *map(str, arguments)]


def test_the_command_writes_a_page_and_prints_the_ranking(file, tmp_path, capsys):
    assert run(picture(file, "--out", tmp_path / "shapes.html")) == 0
    said = capsys.readouterr().out
    largest = shapes_of(model()).ranked[0]
    assert said.splitlines()[1] == f"{largest.size:8.3f}  {largest.title}"
    assert f"wrote {tmp_path / 'shapes.html'}" in said
    assert (tmp_path / "shapes.html").read_text().startswith("<!DOCTYPE html>")
    assert stat.S_IMODE((tmp_path / "shapes.html").stat().st_mode) == 0o600
    assert run(picture(file, "--output", tmp_path / "age.html", "--column", "age")) == 0
    titles = [
        " ".join(part.split()) for part in re.findall("<h3><bdi>(.*?)</bdi>", (tmp_path / "age.html").read_text())
    ]
    assert sorted(titles) == ["age", "age and paid", "age and ward"]


def test_the_command_draws_a_picture(file, tmp_path, capsys):
    assert run(picture(file, "--out", tmp_path / "shapes.svg", "--top", "4")) == 0
    parts = list(ET.parse(tmp_path / "shapes.svg").iter())
    titles = [part.text for part in parts if part.get("class") == "b"]
    assert titles == [f"{shape.title}, size {shape.size:.2f}" for shape in shapes_of(model(covariance=True)).ranked[:4]]
    capsys.readouterr()


def test_json_has_the_ranking_and_the_values(file, capsys):
    assert run([*picture(file, "--column", "fee", "--top", "1"), "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert [each["features"] for each in data["ranking"]] == [
        list(shape.features) for shape in shapes_of(model(covariance=True)).ranked
    ]
    (shape,) = data["shapes"]
    assert shape["columns"] in (["fee"], ["age", "fee"])
    assert data["bands"] is True
    assert data["file"] is None
    assert data["positive"] == "yes"


def test_what_cannot_be_drawn_is_refused_before_anything_is_written(file, tmp_path, capsys):
    (tmp_path / "text.json").write_text("{}")
    (tmp_path / "mine.html").write_text("mine")
    for arguments, says in (
        ((tmp_path / "away.json", "--out", tmp_path / "a.html"), "away.json"),
        ((tmp_path / "text.json",), "not a model of radofed"),
        ((file, "--out", tmp_path / "a.pdf"), "give a name that ends in .html or .svg"),
        ((file, "--out", tmp_path / "a"), "give a name that ends in .html or .svg"),
        ((file, "--out", tmp_path / "mine.html"), "already exists"),
        ((file, "--out", tmp_path / "away" / "a.html"), "away"),
        ((file, "--out", tmp_path / "a.html", "--column", "agee"), "no column 'agee'; did you mean 'age'?"),
        ((file, "--out", tmp_path / "a.html", "--top", "0"), "at least 1"),
    ):
        assert run(picture(*arguments)) in (1, 4)
        assert says in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.html", "model.json", "text.json"]
    assert (tmp_path / "mine.html").read_text() == "mine"


def test_a_model_that_was_changed_is_refused(file, tmp_path, capsys):
    shutil.copy(file, tmp_path / "other.json")
    text = (tmp_path / "other.json").read_text()
    (tmp_path / "other.json").write_text(text.replace('"learner": "additive"', '"learner": "newton"'))
    assert run(picture(tmp_path / "other.json")) != 0
    assert "was changed" in capsys.readouterr().err


@pytest.mark.more
@pytest.mark.parametrize("mapped", [True, False])
def test_what_is_not_measurable_is_said_and_has_no_band(mapped, tmp_path):
    known = model(mapped=mapped, covariance=True)
    made = replace(known, covariance=100.0 * np.eye(len(known.theta)))
    shapes, page = shapes_of(made), Page(page_of(made))
    check_that_it_can_be_followed(page_of(made))
    assert "the intercept" in page.words
    assert page.words.count(NOT_MEASURABLE) > len(shapes.ranked)
    assert "(not measurable), the intercept" in page.words
    assert "plus or minus 1.96" not in page.words
    assert not page.named("polygon")
    assert shapes.ranked[0].ends is None
    assert shapes.to_dict(shapes.ranked)["shapes"][0]["low"] is None
    for shape in shapes.ranked:
        if isinstance(shape, Surface):
            assert not re.search(r">[+-]?\d\.\d\d<", drawn(shape))
            assert 'small b"' not in drawn(shape)
    draw([(shapes, shapes.ranked)], tmp_path / "shapes.svg")
    assert "<polygon" not in (tmp_path / "shapes.svg").read_text()


def test_the_ends_of_a_shape_are_those_of_its_measurable_values():
    (shape,) = (each for each in shapes_of(model(covariance=True)).ranked if each.features == ("ward",))
    first, *others = shape.values
    hidden = replace(shape, values=(replace(first, adds=99.0, band=None, measurable=False), *others))
    assert hidden.ends == (min(at.adds for at in others), max(at.adds for at in others))


def test_a_band_ends_where_its_curve_is_not_measurable():
    known = shapes_of(model(covariance=True))
    (age,) = (shape for shape in known.ranked if shape.features == ("age",))
    unknown = [replace(at, band=None, measurable=False) for at in age.line[10:20]]
    text = drawn(replace(age, line=(*age.line[:10], *unknown, *age.line[20:])))
    bands = re.findall('<polygon points="([^"]*)"', text)
    assert sum(len(band.split()) for band in bands) == 2 * (len(age.line) - 10)
    assert (len(bands), drawn(age).count("<polygon")) == (2, 1)
