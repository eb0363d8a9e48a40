"""What a report shows of how good a model of a number, a count or a time to an event is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from dpcore.evaluation.class_evaluation import ClassEvaluation
from dpcore.evaluation.count_evaluation import CountEvaluation
from dpcore.evaluation.evaluation import Evaluation
from dpcore.evaluation.event_evaluation import EventEvaluation, RiskGroup
from dpcore.evaluation.intervals import Bounded
from dpcore.evaluation.measured_evaluation import MeasuredEvaluation
from dpcore.evaluation.observed_bins import ObservedBin, table
from dpcore.numbers.rationals import lower_percent, rounded_up
from dpcore.records.features import Number
from learner.measured_models import MeasuredValues, ValueBin
from learner.model import Model
from learner.report.measured import Measured
from radobase.presentation.svg import Plot, Scale
from radobase.printing import amount

NOT_MEASURED = "not measured"
_SQUARE = 400
_SEEN = "The model may have been trained on these rows, so nothing is claimed about new ones."
_OWN = (
    "These rows are not protected by this report's statement: the figures and this page are computed from them without "
    "noise. Assumed: they were drawn independently from where new rows will come, and the model was neither trained on "
    "them nor chosen by them."
)
_RISKS = ("low", "middle", "high")


@dataclass(frozen=True)
class Table:
    """Cells as texts; the first of each row is its head."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Quality:
    """What is shown of one evaluation."""

    headline: str
    about: tuple[str, ...]
    """Whose rows, how many, and what asking cost."""
    tables: tuple[Table, ...]
    plots: tuple[tuple[Plot, str], ...]


def quality_of(model: Model, measured: Measured) -> Quality:
    """What is shown of an evaluation of a model of a label without classes."""
    figures, about = measured.figures, _about(model, measured)
    where = "own" if measured.own else "asked"
    match figures:
        case MeasuredValues():
            return _of_values(model, figures, about, where)
        case MeasuredEvaluation():
            return _of_numbers(model, figures, about, where)
        case CountEvaluation():
            return _of_counts(model, figures, about, where)
        case EventEvaluation():
            return _of_times(model, figures, about, where)
        case Evaluation() | ClassEvaluation():
            raise AssertionError("the label has classes")
        case _:
            assert_never(figures)


def _about(model: Model, measured: Measured) -> tuple[str, ...]:
    figures = measured.figures
    if measured.own:
        rows = figures.errors.compared if isinstance(figures, MeasuredValues) else figures.rows
        return f"Computed from {amount(rows, 'labelled row')} of the learner's own.", _OWN
    assert not isinstance(figures, MeasuredValues), "these are of own rows"
    held = " that were held back from training" if model.held_back is not None else ""
    first = f"Measured by noisy sums over {amount(figures.rows, 'row')} of the parties{held}."
    assert measured.privacy is not None, "asking cost something"
    epsilon, colluding = measured.privacy.epsilon, measured.privacy.epsilon_if_others_collude
    cost = (
        "Nothing bounds what that revealed."
        if epsilon is None
        else f"Asking cost epsilon {rounded_up(epsilon)} against the learner alone and "
        f"{rounded_up(colluding or epsilon)} under collusion, in addition to the model."
    )
    return (first, cost) if model.held_back is not None else (first, cost, _SEEN)


def _range(each: ValueBin) -> str:
    return f"{_figure(each.lower)} to {_figure(each.upper)}"


def _figure(value: float) -> str:
    return f"{value:.4g}"


def _share(value: float | None) -> str:
    return "not defined, as all rows have the same label" if value is None else f"{value:.4f}"


def _span(bounded: Bounded | None) -> tuple[str, str]:
    if bounded is None:
        return NOT_MEASURED, ""
    return _share(bounded.estimate), f"{_share(bounded.lower)} to {_share(bounded.upper)}"


def _of_numbers(model: Model, figures: MeasuredEvaluation, about: tuple[str, ...], where: str) -> Quality:
    factor, column = " as a factor" if figures.of_logarithms else "", model.schema.label.column
    errors = (
        (f"Mean absolute error{factor}", figures.absolute_error),
        (f"Root of the mean squared error{factor}", figures.root),
        (f"Bias, predicted {'by' if factor else 'less'} observed{factor}", figures.bias),
    )
    in_units = [(name, None if found is None else figures.factor(found)) for name, found in errors]
    largest = figures.factor(Bounded(*3 * (figures.largest_error,))).estimate
    quality = Table(
        "Quality on the parties' rows",
        ("Measure", "Estimate", "For the noise"),
        (("R^2", *_span(figures.r2)), *((name, *_values(found)) for name, found in in_units)),
        "R^2 is the share of the label's variance that the model explains, on the scale that is learned: 0 is as good "
        "as one value for all rows. Errors are "
        + ("of logarithms: a factor of 1 is none" if factor else "in the label's units")
        + f". Predictions are clipped to the label's bounds, and errors to {_figure(largest)}. Intervals hold with a "
        f"probability of at least {lower_percent(figures.confidence, 1)} % each, over the noise, and those of all bins "
        "together.",
    )
    known = figures.r2
    headline = "R^2 is " + (
        NOT_MEASURED
        if known is None
        else f"about {_share(known.estimate)}, for the noise alone {_share(known.lower)} to {_share(known.upper)}"
    )
    mean = "geometric mean of " if figures.of_logarithms else ""
    return Quality(
        headline, about, (quality, *_observed(figures.bins, "values")), _plot(figures.bins, where, mean + column)
    )


def _values(bounded: Bounded | None) -> tuple[str, str]:
    if bounded is None:
        return NOT_MEASURED, ""
    return _figure(bounded.estimate), f"{_figure(bounded.lower)} to {_figure(bounded.upper)}"


def _observed(bins: Sequence[ObservedBin], what: str) -> tuple[Table]:
    """The table of bins of predictions."""
    _, rows = table(bins)
    head = (f"Predicted {what}", "About", "Rows", "Observed", "Interval")
    return (Table(f"Observed beside predicted {what}, on the parties' rows", head, tuple(rows)),)


def _plot(bins: Sequence[ObservedBin], where: str, what: str) -> tuple[tuple[Plot, str], ...]:
    points = [(each.predicted, each.observed) for each in bins if each.observed is not None]
    return _beside(f"observed-{where}", what, points, "Rows in bins of predictions, with intervals for the noise.")


def _of_values(model: Model, figures: MeasuredValues, about: tuple[str, ...], where: str) -> Quality:
    errors, is_rate = figures.errors, model.link == "log"
    name = "R^2" if errors.measure == "r2" else "Explained deviance"
    what = "rate" if is_rate else model.schema.label.column
    quality = Table(
        "Quality on the learner's own rows",
        ("Measure", "Value"),
        (
            (name, _share(errors.explained)),
            ("Mean absolute error, in the label's units", _figure(errors.absolute_error)),
            ("Root of the mean squared error, in the label's units", _figure(errors.root_squared_error)),
            ("Bias, predicted less observed, in the label's units", _figure(errors.bias)),
        ),
    )
    label = model.schema.label
    mean = "Geometric mean" if isinstance(label, Number) and label.log else "Mean"
    head = ("Predicted", "Rows", f"{mean}, predicted {what}", f"{mean}, observed {what}")
    rows = tuple(
        (
            _range(each),
            str(each.rows),
            _figure(each.predicted),
            _figure(each.observed),
        )
        for each in figures.bins
    )
    observed = Table("Observed beside predicted, on the learner's own rows", head, rows)
    points = [(each.predicted, Bounded(each.observed, each.observed, each.observed)) for each in figures.bins]
    plot = _beside(f"observed-{where}", what, points, "Rows in ten bins of predictions, each a point.")
    return Quality(
        f"{'R^2' if errors.measure == 'r2' else 'the explained deviance'} is {_share(errors.explained)}",
        about,
        (quality, observed),
        plot,
    )


def _of_counts(model: Model, figures: CountEvaluation, about: tuple[str, ...], where: str) -> Quality:
    quality = Table(
        "Quality on the parties' rows",
        ("Measure", "Estimate", "For the noise"),
        (("Explained deviance", *_span(figures.explained)), ("Mean rate", *_span(figures.rate))),
        "The explained deviance is beside the best rate that is the same for all rows: 0 is as good as that, 1 is "
        f"without error. Predictions are clipped to rates from {_figure(figures.least_rate)} to "
        f"{_figure(figures.largest_rate)}, and counts to {figures.most}. Intervals hold with a probability of at least "
        f"{lower_percent(figures.confidence, 1)} %, over the noise: the deviance's, and all rates together.",
    )
    known = figures.explained
    headline = "the explained deviance is " + (
        NOT_MEASURED
        if known is None
        else f"about {_share(known.estimate)}, for the noise alone {_share(known.lower)} to {_share(known.upper)}"
    )
    tables = (quality, *_observed(figures.bins, "rates"))
    return Quality(headline, about, tables, _plot(figures.bins, where, f"rate of {model.schema.label.column}"))


def _beside(id_: str, what: str, points: Sequence[tuple[float, Bounded]], words: str) -> tuple[tuple[Plot, str], ...]:
    """Observed against predicted, with the line where both are equal; nothing without points."""
    if not points:
        return ()
    shown = [end for at, each in points for end in (at, each.estimate)]
    # An interval that is far wider than the predictions leaves the drawing.
    least, most = min(shown), max(shown)
    room = 0.1 * (most - least) or abs(most) * 0.1 or 1.0
    scale = Scale(least - room, most + room)
    said = "; ".join(f"predicted {_figure(at)}, observed {_figure(each.estimate)}" for at, each in points)
    caption = f"{words} On the dashed line what is observed is what is predicted. {said}."
    plot = Plot(
        id_,
        f"Observed beside predicted {what}",
        caption,
        scale,
        scale,
        heading=f"observed {what}",
        label=f"predicted {what}",
        height=_SQUARE,
    )
    plot.stroke(f"M{plot.left} {plot.bottom} L{plot.right} {plot.top}", "zero")
    for at, each in points:
        if each.lower < each.upper:
            plot.whisker(at, max(each.lower, scale.low), min(each.upper, scale.high))
        plot.point(at, each.estimate)
    return ((plot, caption),)


def _of_times(model: Model, figures: EventEvaluation, about: tuple[str, ...], where: str) -> Quality:
    of = "the learner's own rows" if where == "own" else "the parties' rows"
    briers = tuple(
        (
            f"Brier score of survival to {each.border:g}",
            *_span(each.score),
            NOT_MEASURED if each.of_equal is None else _share(each.of_equal),
        )
        for each in figures.brier
    )
    quality = Table(
        f"Quality on {of}",
        ("Measure", "Estimate", "Interval", "Of equal predictions"),
        (("Concordance", *_span(figures.concordance), _share(0.5)), *briers),
        "Concordance: of all pairs of rows of which one had the event in an earlier interval, the share whose scores "
        "are in that order. The Brier score is the mean squared error of survival. Rows are in "
        f"{figures.bins} bins of scores: intervals are for the noise, and for what the order and the chances within a "
        "bin leave open.",
    )
    head = ("Survival to", *(f"{risk} risk, {what}" for risk in _names(figures) for what in ("predicted", "observed")))
    rows = tuple(
        (f"{border:g}", *(cell for group in figures.groups for cell in _at(group, place)))
        for place, border in enumerate(figures.borders)
    )
    table = Table(f"Survival by predicted risk, on {of}", head, rows)
    known = figures.concordance
    headline = "concordance is " + (NOT_MEASURED if known is None else f"about {_share(known.estimate)}")
    return Quality(headline, about, (quality, table), _curves(model, figures, where))


def _names(figures: EventEvaluation) -> tuple[str, ...]:
    count = len(figures.groups)
    return _RISKS if count == len(_RISKS) else (_RISKS[0], _RISKS[-1])[:count]


def _at(group: RiskGroup, place: int) -> tuple[str, str]:
    observed = group.observed[place] if place < len(group.observed) else None
    return _share(group.predicted[place]), NOT_MEASURED if observed is None else "{} ({})".format(*_span(observed))


def _curves(model: Model, figures: EventEvaluation, where: str) -> tuple[tuple[Plot, str], ...]:
    """Observed survival of each group with its intervals, and predicted survival as a line without."""
    label = model.schema.label
    caption = (
        "Survival of the rows with the lowest, middle and highest scores. Lines: what the model predicts. Points with "
        "whiskers: what was observed, with intervals for rows and noise."
    )
    plot = Plot(
        f"survival-{where}",
        "Survival by predicted risk",
        caption,
        Scale(0.0, figures.borders[-1]),
        Scale(0.0, 1.0),
        heading="share without the event",
        label=label.column,
    )
    for sort, group in enumerate(figures.groups):
        plot.line([(0.0, 1.0), *zip(figures.borders, group.predicted, strict=True)], sort)
        for border, each in zip(figures.borders, group.observed, strict=False):
            plot.whisker(border, each.lower, each.upper)
            plot.point(border, each.estimate, square=sort % 2 == 1)
    plot.legend([(f"line s{sort}", f"{name} risk") for sort, name in enumerate(_names(figures))])
    return ((plot, caption),)
