"""The report as a page, its plots (epsilon against what was asked, calibration, ROC), and pictures of shapes."""

import importlib.metadata
import platform
import shlex
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from dpcore.accounting.odds import EXCEPTIONS
from dpcore.errors import ConfigurationError
from dpcore.evaluation.class_evaluation import ClassEvaluation
from dpcore.evaluation.evaluation import Evaluation
from dpcore.numbers.rationals import rounded_up
from learner.composition import EpsilonCurve, Point
from learner.estimators import FROM_RELEASES
from learner.report import sentences
from learner.report.gathering import MOST_PREDICATES, Report
from learner.report.sentences import registry_entry
from learner.shapes import At, Curve, Shape, Shapes, Surface, Values
from radobase.presentation.page import Document
from radobase.presentation.svg import WIDTH, Drawing, Plot, Scale, Tick, bars, shortened, write_picture
from radobase.presentation.words import GUARANTEE, NO_PURPOSE, explained

if TYPE_CHECKING:
    from learner.model import Model


# The shapes of a model: each one drawn, all of them as a page, and as a picture.


MOST_RANKED = 40
MOST_PAIRS = 10
"""Pairs that are drawn if nothing else is asked for."""
MOST_OF_CLASS = 4
"""Shapes of a class that are drawn beside those of other classes, if nothing else is asked for."""
MOST_RANKED_OF_CLASS = 10
MOST_PANELS = 60
MOST_SIDE = 14
"""Values on a side of a heat map. A larger one is not drawn: its figures could not be read."""
MOST_BARS = 60
NOT_MEASURABLE = "not measurable"
"""Of what the answers say too little: in pages, pictures and reports."""

_LEFT, _TOP, _CELL = 76, 24, 24
_SHOWN = 0.005
_EXACT, _LARGE = 1e4, 1e8
_DARKEST = 0.75


Drawn: TypeAlias = Sequence[tuple[Shapes, Sequence[Shape]]]
"""The shapes of scores, and those of each that are drawn."""


def usual(every: Sequence[Shapes]) -> Drawn:
    """What is drawn if nothing else is asked for: every column, and the largest pairs; of several classes the largest.

    every: of each score.
    """
    if len(every) == 1:
        return [(every[0], _columns_and_pairs(every[0]))]
    return [(shapes, shapes.ranked[:MOST_OF_CLASS]) for shapes in every]


def _columns_and_pairs(shapes: Shapes) -> tuple[Shape, ...]:
    pairs = [shape for shape in shapes.ranked if isinstance(shape, Surface)]
    hidden = set(map(id, pairs[MOST_PAIRS:]))
    return tuple(shape for shape in shapes.ranked if id(shape) not in hidden)


def picture_page(model: "Model", file: str, scores: Drawn, version: str) -> "Document":
    """The page. file: the model's name. Raises ModuleNotFoundError without the extra `report`."""
    from radobase.presentation.page import Document  # noqa: PLC0415  (of an extra that the ranking does not need)

    shapes, every = scores[0][0], [shape for _, some in scores for shape in some]
    sections = [section for place in range(len(scores)) for section in _drawn_sections(scores, place)]
    values = {
        "model": model,
        "file": file,
        "shapes": shapes,
        "scores": [each for each, _ in scores],
        "is_one": len(model.scoring.names) == 1,
        "drawn": sections,
        "sections": [
            ("ranking", "What contributes most"),
            *((name, title) for name, title, _ in sections),
            ("bands", "How sure that is"),
            ("reveals", "What it reveals"),
        ],
        "has_pairs": any(isinstance(shape, Surface) for shape in shapes.ranked),
        "has_strokes": any(isinstance(shape, Curve) and shape.deciles for shape in every),
        "left_out": sum(len(each.ranked) for each, _ in scores) - len(every),
        "most": MOST_RANKED if len(scores) == 1 else MOST_RANKED_OF_CLASS,
        "said": sentences,
        "spread": sentences.spread(shapes),
        "version": version,
    }
    return Document("learner.report", "shapes.html", f"Shapes of the model {file}", values)


def _drawn_sections(scores: Drawn, place: int) -> list[tuple[str, str, list[tuple[Shape, Drawing | None, str]]]]:
    """Sections of the shapes of one score: id, title, and what is drawn."""
    shapes, drawn = scores[place]
    of, number = ("", "") if len(scores) == 1 else (f', for "{shapes.label}"', f"-{place + 1}")
    columns = [shape for shape in drawn if not isinstance(shape, Surface)]
    pairs = [shape for shape in drawn if isinstance(shape, Surface)]
    return [
        (f"{name}{number}", f"{title}{of}", [(each, *drawing(each, f"{name}{number}-{at}")) for at, each in some])
        for name, title, some in (
            ("columns", "Columns", list(enumerate(columns, 1))),
            ("pairs", "Pairs of columns", list(enumerate(pairs, 1))),
        )
        if some
    ]


def draw(scores: Drawn, file: Path) -> None:
    """Write the shapes as an SVG file, at most `MOST_PANELS` of one score. Raises ConfigurationError."""
    if len(scores) > 1 and sum(len(drawn) for _, drawn in scores) > MOST_PANELS:
        raise ConfigurationError(
            f"a picture has at most {MOST_PANELS} shapes: choose a class by --of, or fewer shapes by --top or --column"
        )
    shapes = scores[0][0]
    bands = (
        f"shaded, or thin lines: 1.96 standard deviations; without them, and question marks: {NOT_MEASURABLE}"
        if shapes.has_bands
        else "bands are not known for this model"
    )
    panels = []
    for each, shape in [(each, shape) for each, drawn in scores for shape in drawn[:MOST_PANELS]]:
        panel = drawing(shape, "")[0] or Drawing("", "", "", WIDTH, 60)
        framed = Drawing("", "", "", panel.width, panel.height + 24)
        of = f"{each.label}: " if len(scores) > 1 else ""
        framed.text(4, 14, f"{of}{shape.title}, size {shape.size:.2f}", class_="b")
        framed.put(panel, 0, 24)
        panels.append(framed)
    what = f"the score of {shapes.label!r}" if len(scores) == 1 else "the score of each class"
    write_picture(f"What columns add to {what}; {bands}", panels, file)


def drawing(shape: Shape, id_: str) -> tuple[Drawing | None, str]:
    """A shape as a drawing, None if it is too large to be read, and its caption."""
    if isinstance(shape, Curve):
        return _curve(shape, id_)
    if isinstance(shape, Values):
        return _values(shape, id_)
    assert isinstance(shape, Surface), "there are three sorts"
    return _surface(shape, id_)


def _ends(at: At) -> tuple[float, float]:
    return at.adds - (at.band or 0.0), at.adds + (at.band or 0.0)


def _curve(shape: Curve, id_: str) -> tuple[Drawing, str]:
    ends = [end for at in (*shape.line, *shape.points) for end in _ends(at)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    room = 0.05 * (high - low) or 1.0
    runs = [list(run) for known, run in groupby(shape.line, key=lambda at: at.band is not None) if known]
    runs = [run for run in runs if len(run) > 1]
    words = _curve_words(shape)
    plot = Plot(
        id_,
        f"Shape of {shape.title}",
        words,
        Scale(shape.lower, shape.upper),
        Scale(low - room, high + room),
        heading="adds to the score" + (", with its band" if runs else ""),
        label=shape.title,
        ticks=_dates(shape),
    )
    for run in runs:
        plot.band([(float(at.value), *_ends(at)) for at in run])
    plot.level(0.0, "zero")
    plot.line((float(at.value), at.adds) for at in shape.line)
    for at in shape.points:
        if at.band is not None:
            plot.whisker(float(at.value), *_ends(at))
        plot.point(float(at.value), at.adds, square=True)
    plot.strokes(shape.deciles)
    hidden = shape.measurable is not None and any(at.measurable is False for at in shape.line)
    return plot, words + (" Where there is no shaded band, what it adds is not measurable." if hidden else "")


def _dates(shape: Curve) -> list[Tick] | None:
    """The marks of a level axis of dates; None for an axis of numbers."""
    if not shape.group.is_named:
        return None
    middle = float(round((shape.lower + shape.upper) / 2))
    return [Tick(at, shape.group.written(at)) for at in (shape.lower, middle, shape.upper)]


def _curve_words(shape: Curve) -> str:
    parts = [shape.lower + (shape.upper - shape.lower) * part / 10 for part in range(1, 10)]
    wanted = [shape.lower, *(shape.deciles or parts)[::4], shape.upper]
    chosen = [min(shape.line, key=lambda at: abs(float(at.value) - each)) for each in wanted]
    steps = "; ".join(f"{value_text(shape.named(at.value))}: {_adds(at)}" for at in chosen)
    points = "".join(
        f" Exactly {value_text(shape.named(at.value))}"
        f"{'' if at.share is None else f' ({100 * at.share:.0f} of 100 values)'} adds {_adds(at)} "
        "instead, marked by a square."
        for at in shape.points
    )
    return f"What {shape.title} adds to the score, for some values. {steps}.{points}"


def _values(shape: Values, id_: str) -> tuple[Drawing, str]:
    shown, hidden = shape.values[:MOST_BARS], len(shape.values) - MOST_BARS
    words = f"What {shape.title} adds. {'; '.join(f'{at.value}: {_adds(at)}' for at in shown)}."
    made = bars(
        id_,
        f"Shape of {shape.title}",
        words,
        [
            (
                str(at.value),
                NOT_MEASURABLE if at.measurable is False else f"{at.adds:+.3f}",
                at.adds,
                None if at.band is None else _ends(at),
            )
            for at in shown
        ],
    )
    caption = "What each value adds to the score: to the right of the line it raises it, to the left it lowers it."
    caption += " The thin lines are the bands." if any(at.band is not None for at in shown) else ""
    return made, caption + (f" {hidden} more values are left out." if hidden > 0 else "")


def _surface(shape: Surface, id_: str) -> tuple[Drawing | None, str]:
    rows, columns = len(shape.rows), len(shape.columns_at)
    words = _surface_words(shape)
    if max(rows, columns) > MOST_SIDE:
        return None, f"{words} It has more values than a heat map shows here: --format json prints all of them."
    width, bottom = (WIDTH - _LEFT - 6) / columns, _TOP + _CELL * rows
    made = Drawing(id_, f"Shape of {shape.title}", words, WIDTH, bottom + 42)
    made.text(0, 14, f"{shape.features[0]}, upwards", class_="soft")
    largest = max(map(abs, shape.ends or ())) if shape.ends and any(shape.ends) else 1.0
    for row, each in enumerate(shape.cells):
        # Like a plot's upright axis, the first column's values rise from the bottom.
        y = bottom - _CELL * (row + 1)
        made.text(_LEFT - 6, y + 16, shortened(value_text(shape.rows[row]), 11), anchor="end", class_="small")
        for column, at in enumerate(each):
            x = round(_LEFT + column * width, 2)
            tint = 0.0 if at.measurable is False else abs(at.adds) / largest
            sort = "cell up" if at.adds > 0 else "cell down"
            made.add("rect", x=x, y=y, width=width, height=_CELL, class_="cell")
            made.add("rect", x=x, y=y, width=width, height=_CELL, class_=sort, fill_opacity=_DARKEST * tint)
            is_sure = at.band is not None and abs(at.adds) > at.band
            made.text(x + width / 2, y + 16, _cell_text(at), anchor="middle", class_="small b" if is_sure else "small")
    for column, value in enumerate(shape.columns_at):
        foot = shortened(value_text(value), max(4, int(width / 6)))
        made.text(_LEFT + (column + 0.5) * width, bottom + 16, foot, anchor="middle", class_="small")
    made.text((_LEFT + WIDTH) / 2, bottom + 34, shape.features[1], anchor="middle", class_="soft")
    cells = [at for row in shape.cells for at in row]
    known = " In bold: the band of the cell leaves out 0." if cells[0].measurable is not None else ""
    unknown = " A question mark: not measurable." if any(at.measurable is False for at in cells) else ""
    return made, (
        f"{words} Orange with a plus raises the score, blue with a minus lowers it.{known}{unknown} Values are not "
        "equally far apart."
    )


def _surface_words(shape: Surface) -> str:
    first, second = shape.features
    cells = [
        (at, row, foot)
        for row, each in zip(shape.rows, shape.cells, strict=True)
        for at, foot in zip(each, shape.columns_at, strict=True)
    ]
    least, most = (
        f"{_adds(at)} where {first} is {value_text(row)} and {second} is {value_text(foot)}"
        for at, row, foot in (find(cells, key=lambda cell: cell[0].adds) for find in (min, max))
    )
    return f"What the pair adds beside its two columns: least {least}; most {most}."


def _cell_text(at: At) -> str:
    if at.measurable is False:
        return "?"
    return "0.00" if abs(at.adds) < _SHOWN else f"{at.adds:+.2f}"


def value_text(value: float | str) -> str:
    """A value in its column's units, in few digits."""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if _EXACT <= abs(value) < _LARGE else f"{value:.4g}"


def _adds(at: At) -> str:
    if at.measurable is False:
        return f"{at.adds:+.3g}, {NOT_MEASURABLE}"
    return f"{at.adds:+.3g}" + ("" if at.band is None else f" plus or minus {at.band:.2g}")


MOST_DRAWN = 6
"""Shapes that a report draws, of one score or of all; `rado learner picture` draws more."""

_LIBRARIES = ("numpy", "scipy", "scikit-learn")
_SQUARE = 400
_SHARE = Scale(0.0, 1.0)


def document(report: Report) -> Document:
    """The page of a report."""
    is_model, several = report.model is not None, len(report.shapes) > 1
    most = max(1, MOST_DRAWN // len(report.shapes)) if report.shapes else 0
    values = {
        "report": report,
        "statement": report.statement,
        "plots": [(curve, epsilon_plot(curve), curve_words(curve)) for curve in report.curves],
        "measured": [(each, *_quality(each.figures, each.own)) for each in report.measured],
        "shapes": report.shapes,
        "most_shapes": MOST_RANKED_OF_CLASS if several else MOST_RANKED,
        "shape_plots": [
            [
                (each, *drawing(each, f"shape-{number}-{place}" if several else f"shape-{place}"))
                for place, each in enumerate(shapes.ranked[:most], 1)
            ]
            for number, shapes in enumerate(report.shapes, 1)
        ],
        "shape_sentences": sentences.about_shapes(report.shapes[0]) if report.shapes else [],
        "coefficient_rows": [
            (rows[0].column, rows[0].change, [row.value for row in rows])
            for rows in zip(*(each.rows for each in report.coefficients), strict=True)
        ],
        "chance_rows": [(each.before, each.alone, each.colluding) for each in report.chances],
        "sections": _sections(report),
        "explained": explained((*(answer.asked.words for answer in report.answers), *report.statement.sentences())),
        "assumptions": sentences.assumptions(report),
        "not_protected": sentences.not_protected(report),
        "registry": registry_entry(report),
        "said": sentences,
        "guarantee": GUARANTEE,
        "no_purpose": NO_PURPOSE,
        "exceptions_of": EXCEPTIONS,
        "most_predicates": MOST_PREDICATES,
        "versions": _versions(report),
        "commands": _commands(report),
    }
    title = f"Report on the {'model' if is_model else 'release'} {report.subject_file}"
    return Document("learner.report", "learner_report.html", title, values)


def _quality(figures: Evaluation | ClassEvaluation, own: bool) -> tuple[str, tuple[tuple[Plot, str], ...]]:
    """The template that shows an evaluation, and its plots."""
    if isinstance(figures, ClassEvaluation):
        return "class_quality.html", ()
    return "quality.html", (calibration_plot(figures, own), roc_plot(figures, own))


def epsilon_plot(curve: EpsilonCurve) -> Plot:
    """The plot of a curve, this release or model marked."""
    marked, shown = curve.marked, (*curve.points, curve.marked)
    x = Scale.over(point.at for point in shown)
    plot = Plot(
        f"curve-{curve.id}",
        curve.title,
        curve_words(curve),
        x,
        Scale(0.0, max(max(point.colluding, point.alone or 0.0) for point in shown) * 1.05 or 1.0),
        heading="epsilon",
        label=curve.axis,
        whole=True,
    )
    alone = [(point.at, point.alone) for point in curve.points if point.alone is not None]
    if marked.alone is not None:
        plot.line(alone)
    plot.line(((point.at, point.colluding) for point in curve.points), 1)
    plot.upright(marked.at)
    if marked.alone is not None:
        plot.point(marked.at, marked.alone)
    plot.point(marked.at, marked.colluding, square=True)
    plot.legend([*([("line s0", "learner alone")] if marked.alone is not None else []), ("line s1", "under collusion")])
    return plot


def curve_words(curve: EpsilonCurve) -> str:
    """What a plot of a curve shows."""
    first, last = (_said(point, curve.axis) for point in (curve.points[0], curve.points[-1]))
    return f"{curve.title}. From {first} to {last}. Marked: {_said(curve.marked, curve.axis)}."


def _said(point: Point, axis: str) -> str:
    alone = "" if point.alone is None else f"{rounded_up(point.alone)} against the learner alone, "
    return f"{alone}{rounded_up(point.colluding)} under collusion ({axis}: {point.at})"


def calibration_plot(figures: Evaluation, own: bool) -> tuple[Plot, str]:
    """The share of positive rows against the predicted probability, in each bin where it is measured."""
    words = f"Calibration. {figures.calibration_in_words()}"
    plot = _square("calibration", own, words, "share of positive rows, with its interval", "predicted probability")
    for part in figures.calibration:
        if part.is_measured:
            interval = part.observed.strongest
            at = (part.predicted.lower + part.predicted.upper) / 2
            plot.whisker(at, interval.lower, interval.upper)
            plot.point(at, part.observed.estimate)
    return plot, words


def roc_plot(figures: Evaluation, own: bool) -> tuple[Plot, str]:
    """The true positive rate against the false positive rate, from high thresholds to low."""
    words = f"ROC curve. {figures.area_in_words()}"
    plot = _square(
        "ROC", own, words, "found, of the positive rows, with its interval", "wrongly positive, of the negative rows"
    )
    rates = [(each.false_positive_rate.estimate, each.true_positive_rate) for each in figures.roc]
    plot.line([(0.0, 0.0), *((x, y.estimate) for x, y in rates), (1.0, 1.0)])
    for x, y in rates:
        plot.whisker(x, y.strongest.lower, y.strongest.upper)
        plot.point(x, y.estimate)
    return plot, words


def _square(name: str, own: bool, words: str, heading: str, label: str) -> Plot:
    """A plot of one share against another, with the line where both are equal."""
    id_ = f"{name.lower()}-{'own' if own else 'asked'}"
    plot = Plot(
        id_,
        f"{name} curve" if name == "ROC" else name.capitalize(),
        words,
        _SHARE,
        _SHARE,
        heading=heading,
        label=label,
        height=_SQUARE,
    )
    plot.stroke(f"M{plot.left} {plot.bottom} L{plot.right} {plot.top}", "zero")
    return plot


def _sections(report: Report) -> list[tuple[str, str]]:
    """The page's sections after the first: id and title."""
    shown = ("shapes", "The model's shapes") if report.shapes else ("coefficients", "The model's coefficients")
    about_model = [shown, ("evaluation", "How good the model is")]
    return [
        ("asked", "Who took part, and what was asked"),
        ("privacy", "What it reveals"),
        *(about_model if report.model is not None else []),
        ("not-protected", "What is not protected"),
        ("assumed", "What is assumed"),
        ("reproduce", "How to reproduce it"),
        ("counted", "How it was counted"),
        ("sign", "Sign-off"),
    ]


def _versions(report: Report) -> list[tuple[str, str]]:
    """What made this report, by name."""
    found = [("radofed", report.version), ("Python", platform.python_version())]
    for name in _LIBRARIES:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _commands(report: Report) -> list[str]:
    """The commands that make the model again from what was released; empty if what is needed is not here."""
    if report.model is None or not report.answers:
        return []
    options = " ".join(f"--option {shlex.quote(f'{name}={value}')}" for name, value in report.options.items())
    start = f"rado learner train{' RELEASE' if _is_from_release(report) else ''} --estimator {report.model.estimator}"
    if _is_from_release(report):
        return [f"{start} {options} --output again.json".replace("  ", " ")]
    return [
        f"{start} {options} --config learner.toml --schema schema.toml --epsilon EPSILON --delta DELTA "
        f"--journal {shlex.quote(f'{report.subject_file}.journal')} --output again.json".replace("  ", " ")
    ]


def _is_from_release(report: Report) -> bool:
    return report.model is not None and report.model.estimator in FROM_RELEASES
