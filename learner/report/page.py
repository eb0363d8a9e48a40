"""The report as a page, its plots (epsilon against what was asked, calibration, ROC), and pictures of shapes."""

import importlib.metadata
import math
import platform
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpcore.accounting.odds import EXCEPTIONS
from dpcore.evaluation.class_evaluation import ClassEvaluation
from dpcore.evaluation.evaluation import Evaluation
from dpcore.evaluation.thresholds import is_measurable
from dpcore.numbers.rationals import rounded_up
from dpcore.records.features import EventTime
from learner.clipped_weights import what_clipping_does
from learner.composition import EpsilonCurve, Point
from learner.estimators import FROM_RELEASES
from learner.inquiry_pictures import inquiry_drawing
from learner.report import sentences
from learner.report.gathering import MOST_PREDICATES, Report
from learner.report.measured import Measured
from learner.report.pictures import Drawn, drawing
from learner.report.sentences import registry_entry
from learner.report.value_quality import quality_of
from learner.shapes import Curve, Shape, Shapes, Surface
from radobase.presentation.page import Document
from radobase.presentation.svg import Drawing, Plot, Scale
from radobase.presentation.words import GUARANTEE, NO_PURPOSE, OF_STUDIES, explained

if TYPE_CHECKING:
    from learner.model import Model


MOST_RANKED = 40
MOST_RANKED_OF_CLASS = 10
MOST_DRAWN = 6
"""Shapes that a report draws, of one score or of all; `rado learner picture` draws more."""

_LIBRARIES = ("numpy", "scipy", "scikit-learn")
_SQUARE = 400
_SHARE = Scale(0.0, 1.0)


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
        "is_one": model.theta.ndim == 1,
        "rule": _rule(model, shapes),
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


def _rule(model: "Model", shapes: Shapes) -> str:
    """What a model makes of the sum, after "It"."""
    if (units := shapes.units) is None:
        return f"{model.scoring.rule}."
    adds = f"predicts {units.words} by the sum"
    if isinstance(model.schema.label, EventTime):
        adds = f"says by the sum how large {units.words} is beside that of the baseline"
    return f"{adds}. To add 0.1 is to multiply by {math.exp(0.1):.4g}." if units.is_logarithm else f"{adds}."


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


def document(report: Report) -> Document:
    """The page of a report."""
    is_model, several = report.model is not None, len(report.shapes) > 1
    is_of_classes = report.model is None or report.model.scoring.has_classes
    most = max(1, MOST_DRAWN // len(report.shapes)) if report.shapes else 0
    values = {
        "report": report,
        "statement": report.statement,
        "found_sentences": [] if report.found is None else [*report.found.sentences],
        "found_drawn": None if report.found is None else inquiry_drawing(report.found),
        "plots": [(curve, epsilon_plot(curve), curve_words(curve)) for curve in report.curves],
        "measured": [(each, *_quality(report.model, each)) for each in report.measured],
        "effect": report.model.scoring.effect if report.model is not None else "",
        "effect_note": "" if is_of_classes else "the command rado learner coefficients prints intervals and p-values",
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
        "clipping": () if report.model is None else what_clipping_does(report.model),
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
        "no_purpose": OF_STUDIES if report.studies else NO_PURPOSE,
        "exceptions_of": EXCEPTIONS,
        "most_predicates": MOST_PREDICATES,
        "versions": _versions(report),
        "commands": _commands(report),
        "to_sign": sentences.sign_off(report),
    }
    title = f"Report on the {'model' if is_model else 'release'} {report.subject_file}"
    return Document("learner.report", "learner_report.html", title, values)


def evaluation_page(model: "Model", name: str, measured: Measured, said: Sequence[str], version: str) -> Document:
    """The page of one evaluation. name: the model's. said: it in words, as the command prints it."""
    part, drawings = _quality(model, measured)
    values = {
        "model": name,
        "digest": model.digest.hex(),
        "measured": [(measured, part, drawings)],
        "sentences": said,
        "statement": measured.privacy,
        "version": version,
    }
    return Document("learner.report", "evaluation.html", f"Evaluation of the model {name}", values)


def _quality(model: "Model | None", measured: Measured) -> tuple[str, Any]:
    """The template that shows an evaluation, and its plots, or what is shown of a label without classes."""
    figures, own = measured.of_classes, measured.own
    if figures is None:
        assert model is not None, "a model was measured"
        return "value_quality.html", quality_of(model, measured)
    if isinstance(figures, ClassEvaluation):
        return "class_quality.html", ()
    plots = calibration_plot(figures, own), roc_plot(figures, own)
    return "quality.html", (*plots, precision_plot(figures, own)) if figures.points else plots


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


def precision_plot(figures: Evaluation, own: bool) -> tuple[Plot, str]:
    """Precision against recall, from high thresholds to low, where the noise leaves it measurable."""
    known = [point for point in figures.points if is_measurable(point.precision)]
    hidden = len(figures.points) - len(known)
    words = "Precision and recall. Each point is a threshold: right of the rows said to be positive, by found."
    if hidden:
        words += f" At {hidden} of {len(figures.points)} thresholds precision is not measurable at this epsilon."
    plot = _square("precision", own, words, "right, of the rows said to be positive", "found, of the positive rows")
    plot.line([(point.recall.estimate, point.precision.estimate) for point in known])
    for point in known:
        interval = point.precision.strongest
        plot.whisker(point.recall.estimate, interval.lower, interval.upper)
        plot.point(point.recall.estimate, point.precision.estimate)
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
    if name != "precision":
        plot.stroke(f"M{plot.left} {plot.bottom} L{plot.right} {plot.top}", "zero")
    return plot


def _sections(report: Report) -> list[tuple[str, str]]:
    """The page's sections after the first: id and title."""
    shown = ("shapes", "The model's shapes") if report.shapes else ("coefficients", "The model's coefficients")
    about_model = [shown, ("evaluation", "How good the model is")]
    return [
        ("asked", "Who took part, and what was asked"),
        *([("found", "What was found")] if report.found is not None else []),
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
