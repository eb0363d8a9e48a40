"""The page and the picture of a model's shapes, and the command that writes them."""

import json
import re
import shutil
import stat
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from learner.report.picture import MOST_PAIRS, draw, render, usual
from learner.report.shape_plots import MOST_SIDE, NOT_MEASURABLE, plot_of, value_text
from learner.report.shape_sentences import BANDS, NO_BANDS
from learner.shapes.shapes import Surface, shapes_of
from radofed.cli.entry_point import run
from tests.html_page import Page, check_that_it_can_be_followed, check_that_it_loads_nothing
from tests.learner.shapes.mapped import HTML, model, models


def page_of(made, **chosen) -> str:
    shapes = shapes_of(made)
    drawn = shapes.chosen(**chosen) if chosen else usual(shapes)
    return render(made, "model.json", shapes, drawn, "1.0")


@pytest.mark.variants(1)
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
    check_that_it_can_be_followed(render(made, "model.json", shapes, usual(shapes), "1.0"))
    json.dumps(shapes.to_dict(shapes.ranked), allow_nan=False)


def test_every_figure_is_there():
    made = model(covariance=True)
    shapes, words = shapes_of(made), Page(page_of(made)).words
    for place, shape in enumerate(shapes.ranked, 1):
        sizes = f"{shape.size:.3f}{shape.low:+.3f} to {shape.high:+.3f}{shape.noise:.3f}"
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
    assert [mark["class"] for mark in unknown.named("p") if "class" in mark] == ["warning"]
    assert not [mark for mark in known.named("p") if "class" in mark]


def test_a_cell_is_bold_where_its_band_leaves_out_zero():
    known = model(covariance=True)
    made = replace(known, covariance=known.covariance * 0.02)
    (pair,) = (shape for shape in shapes_of(made).ranked if shape.features == ("age", "paid"))
    plot = plot_of(pair)
    sure = [abs(at.adds) > at.band for row in pair.cells for at in row]
    assert [cell.is_sure for cell in plot.cells] == sure
    # The first value of the first column is at the bottom.
    assert {cell.y + plot.cell_height for cell in plot.cells[: len(pair.columns_at)]} == {plot.bottom}
    assert min(cell.y for cell in plot.cells) == plot.bottom - len(pair.rows) * plot.cell_height > 14
    assert [head.text for head in plot.rows] == [value_text(value) for value in pair.rows]
    assert plot.rows[0].at > plot.rows[-1].at
    text = page_of(made, columns=["paid"])
    assert text.count('class="small b"') == sum(sure)
    assert 0 < sum(sure) < len(sure)


def test_the_picture_of_a_curve_is_at_its_values():
    (age,) = (shape for shape in shapes_of(model()).ranked if shape.features == ("age",))
    plot = plot_of(age)
    places = [tuple(map(float, point.split(","))) for point in plot.line.split()]
    assert len(places) == len(age.line)
    for (x, y), at in zip(places, age.line, strict=True):
        assert x == pytest.approx(plot.frame.x(at.value), abs=0.01)
        assert y == pytest.approx(plot.frame.y(at.adds), abs=0.01)
    assert places[0][0] == plot.frame.left
    assert places[-1][0] == plot.frame.right


@pytest.mark.more
def test_large_heat_maps_and_many_pairs_are_left_out():
    made = model()
    shapes = shapes_of(made)
    (pair,) = (shape for shape in shapes.ranked if shape.features == ("age", "paid"))
    large = replace(pair, rows=(*pair.rows, *map(float, range(MOST_SIDE))), cells=pair.cells * 3)
    assert plot_of(large).cells == ()
    many = replace(shapes, ranked=(*shapes.ranked, *[replace(pair, size=0.0) for _ in range(20)]))
    assert sum(isinstance(shape, Surface) for shape in usual(many)) == MOST_PAIRS
    text = render(made, "model.json", many, [*usual(many), large], "1.0")
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


@pytest.mark.more
def test_the_command_draws_a_png(file, tmp_path, capsys):
    image = pytest.importorskip("matplotlib.image", reason="pictures need the extra bench")
    assert run(picture(file, "--out", tmp_path / "shapes.png", "--top", "4")) == 0
    pixels = image.imread(tmp_path / "shapes.png")
    assert pixels.shape[:2] == (960, 1890)
    assert (pixels[:, :, :3].max(axis=2) < 0.2).sum() > 1000
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


def test_what_cannot_be_drawn_is_refused_before_anything_is_written(file, tmp_path, capsys, monkeypatch):
    (tmp_path / "text.json").write_text("{}")
    (tmp_path / "mine.html").write_text("mine")
    for arguments, says in (
        ((tmp_path / "away.json", "--out", tmp_path / "a.html"), "away.json"),
        ((tmp_path / "text.json",), "not a model of radofed"),
        ((file, "--out", tmp_path / "a.pdf"), "give a name that ends in .html or .png"),
        ((file, "--out", tmp_path / "a"), "give a name that ends in .html or .png"),
        ((file, "--out", tmp_path / "mine.html"), "already exists"),
        ((file, "--out", tmp_path / "away" / "a.html"), "away"),
        ((file, "--out", tmp_path / "a.html", "--column", "agee"), "no column 'agee'; did you mean 'age'?"),
        ((file, "--out", tmp_path / "a.html", "--top", "0"), "at least 1"),
    ):
        assert run(picture(*arguments)) in (1, 4)
        assert says in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(picture(file, "--out", tmp_path / "a.png")) == 4
    assert "deploy/install.py bench" in capsys.readouterr().err
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
    pairs = [plot_of(shape) for shape in shapes.ranked if isinstance(shape, Surface)]
    assert {cell.text for pair in pairs for cell in pair.cells} <= {"?"}
    assert not any(cell.is_sure for pair in pairs for cell in pair.cells)
    draw(shapes, shapes.ranked, tmp_path / "shapes.png")
    assert (tmp_path / "shapes.png").stat().st_size > 1000


def test_a_band_ends_where_its_curve_is_not_measurable():
    known = shapes_of(model(covariance=True))
    (age,) = (shape for shape in known.ranked if shape.features == ("age",))
    unknown = [replace(at, band=None, measurable=False) for at in age.line[10:20]]
    plot = plot_of(replace(age, line=(*age.line[:10], *unknown, *age.line[20:])))
    assert len(plot.bands) == 2
    assert sum(len(band.split()) for band in plot.bands) == 2 * (len(age.line) - 10)
    assert len(plot_of(age).bands) == 1
