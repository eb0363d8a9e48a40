"""Coordinates of a report's plots: epsilon against what was asked, calibration, and ROC."""

from dataclasses import dataclass

from dpcore.evaluation.evaluation import Evaluation
from dpcore.numbers.decimals import rounded_up
from learner.report.curves import Curve, Point
from radobase.report.plots import Frame, Tick

_SQUARE = 400


@dataclass(frozen=True)
class EpsilonPlot:
    """Lines and marked points of a curve. alone, alone_y: empty and None if the curve is about collusion only."""

    curve: Curve
    frame: Frame
    alone: str
    colluding: str
    marked_x: float
    alone_y: float | None
    colluding_y: float
    x_ticks: tuple[Tick, ...]
    words: str


@dataclass(frozen=True)
class Bar:
    """A point with its interval, upright."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class SharePlot:
    """A plot of one share against another, both from 0 to 1. line: through the points, empty if there is none."""

    frame: Frame
    bars: tuple[Bar, ...]
    line: str
    words: str


def epsilon_plot(curve: Curve) -> EpsilonPlot:
    """The plot of a curve, this release or model marked."""
    shown = (*curve.points, curve.marked)
    top = max(max(point.colluding, point.alone or 0.0) for point in shown) * 1.05 or 1.0
    numbers = [point.at for point in shown]
    frame = Frame(min(numbers), max(*numbers, min(numbers) + 1), 0.0, top)
    marked = curve.marked
    return EpsilonPlot(
        curve=curve,
        frame=frame,
        alone=frame.line((point.at, point.alone) for point in curve.points if point.alone is not None),
        colluding=frame.line((point.at, point.colluding) for point in curve.points),
        marked_x=frame.x(marked.at),
        alone_y=None if marked.alone is None else frame.y(marked.alone),
        colluding_y=frame.y(marked.colluding),
        x_ticks=tuple(tick for tick in frame.x_ticks if tick.label.isdigit()),
        words=f"{curve.title}. {_ends(curve)} Marked: {_said(marked, curve.axis)}.",
    )


def _ends(curve: Curve) -> str:
    first, last = curve.points[0], curve.points[-1]
    return f"From {_said(first, curve.axis)} to {_said(last, curve.axis)}."


def _said(point: Point, axis: str) -> str:
    alone = "" if point.alone is None else f"{rounded_up(point.alone)} against the learner alone, "
    return f"{alone}{rounded_up(point.colluding)} under collusion ({axis}: {point.at})"


def calibration_plot(figures: Evaluation) -> SharePlot:
    """The share of positive rows against the predicted probability, in each bin where it is measured."""
    frame = _square()
    bars = tuple(
        Bar(
            frame.x((part.predicted.lower + part.predicted.upper) / 2),
            frame.y(part.observed.estimate),
            frame.y(part.observed.strongest.lower),
            frame.y(part.observed.strongest.upper),
        )
        for part in figures.calibration
        if part.is_measured
    )
    return SharePlot(frame, bars, "", f"Calibration. {figures.calibration_in_words()}")


def roc_plot(figures: Evaluation) -> SharePlot:
    """The true positive rate against the false positive rate, from high thresholds to low."""
    frame = _square()
    points = [(point.false_positive_rate, point.true_positive_rate) for point in figures.roc]
    return SharePlot(
        frame,
        tuple(
            Bar(
                frame.x(fpr.estimate),
                frame.y(tpr.estimate),
                frame.y(tpr.strongest.lower),
                frame.y(tpr.strongest.upper),
            )
            for fpr, tpr in points
        ),
        frame.line([(0.0, 0.0), *((fpr.estimate, tpr.estimate) for fpr, tpr in points), (1.0, 1.0)]),
        f"ROC curve. {figures.area_in_words()}",
    )


def _square() -> Frame:
    return Frame(0.0, 1.0, 0.0, 1.0, height=_SQUARE)
