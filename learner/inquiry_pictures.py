"""Pictures of what inquiries found: curves of survival with bands, and of other inquiries intervals by column."""

import math
from collections.abc import Iterator
from typing import cast

from dpcore.evaluation.descriptive.correlation import CORRELATION
from dpcore.evaluation.descriptive.crosstab import ODDS_RATIO, Crosstab
from dpcore.evaluation.descriptive.description import MISSING
from dpcore.evaluation.descriptive.measured_columns import DIFFERENCE
from dpcore.evaluation.descriptive.result import Figure, Result
from dpcore.evaluation.descriptive.survival import SURVIVAL, Survival
from radobase.presentation.svg import SORTS, Drawing, Estimate, Plot, Scale, intervals, sheet

MOST_INTERVALS = 40
"""On one scale; the rest is left out, which the heading says."""
_SHOWS = "each estimate with its interval"


def inquiry_picture(found: Result) -> Drawing | None:
    """The picture of a result; None if nothing of it has an interval."""
    drawn = inquiry_drawing(found)
    return None if drawn is None else drawn[0]


def inquiry_drawing(found: Result) -> tuple[Drawing, str] | None:
    """The same with what it shows, in words."""
    if found.inquiry == Survival.name:
        return survival_plot(found)
    panels = list(_panels(found))
    return (sheet(f"{found.inquiry}: {_SHOWS}", panels, across=1), f"{_SHOWS.capitalize()}.") if panels else None


def _panels(found: Result) -> Iterator[Drawing]:
    """Intervals on a scale for each column and quantity; its values, such as mean and median, share one."""
    scales: dict[tuple[str, str], list[Figure]] = {}
    for each in found.figures:
        if each.kind != "rows" and each.quantity != MISSING and _has_interval(each):
            column = "" if each.quantity == CORRELATION else each.column
            scales.setdefault((column, "" if each.kind == "value" else each.quantity), []).append(each)
    for (column, quantity), figures in scales.items():
        shown = figures[:MOST_INTERVALS]
        left_out = [f"{len(figures) - len(shown)} left out"] if len(figures) > len(shown) else []
        is_log = quantity == ODDS_RATIO
        yield intervals(
            f"{column}-{quantity}",
            ", ".join([*filter(None, (column, quantity)), *left_out]),
            f"{_SHOWS.capitalize()}.",
            [_row(each, found) for each in shown],
            line=1.0 if is_log else 0.0 if quantity in (CORRELATION, DIFFERENCE) else None,
            is_log=is_log,
        )


def _has_interval(figure: Figure) -> bool:
    ends = [end for end in (figure.estimate, figure.lower, figure.upper) if end is not None]
    return len(ends) == 3 and any(map(math.isfinite, ends[1:]))


def _row(figure: Figure, found: Result) -> Estimate:
    by = found.facts["down"]["name"] if found.inquiry == Crosstab.name else found.facts.get("by")
    group = f"{by} {figure.group}" if by and figure.group else figure.group
    own = figure.column if figure.quantity == CORRELATION else figure.quantity if figure.kind == "value" else ""
    value, low, high = (cast("float", each) for each in (figure.estimate, figure.lower, figure.upper))
    estimate, interval = figure.words
    return ", ".join(filter(None, (group, own, figure.level))), f"{estimate} ({interval})", value, (low, high)


def survival_plot(found: Result) -> tuple[Plot, str] | None:
    """The plot with its words; None if the inquiry is another one, or no curve was measured."""
    if found.inquiry != Survival.name:
        return None
    curves = {}
    for group in found.facts["groups"]:
        figures = [found.one(SURVIVAL, group=group, level=f"{border:g}") for border in found.facts["borders"]]
        known = [
            (border, each.estimate, each.lower or 0.0, 1.0 if each.upper is None else each.upper)
            for border, each in zip(found.facts["borders"], figures, strict=True)
            if each.estimate is not None
        ]
        if known:
            curves[group] = [(0.0, 1.0, 1.0, 1.0), *known]
    if not curves:
        return None
    shown = list(curves.items())[:SORTS]
    left_out = f" Left out: {len(curves) - SORTS} more groups." if len(curves) > SORTS else ""
    words = (
        "The share of the rows that are without the event at each end of an interval, between them on a line, with the "
        f"interval of each by itself.{left_out}"
    )
    plot = Plot(
        "survival",
        "Survival",
        words,
        Scale(0.0, float(found.facts["borders"][-1])),
        Scale(0.0, 1.0),
        heading="without the event",
        label=str(found.facts["time"]),
    )
    for _, points in shown:
        plot.band([(time, low, high) for time, _, low, high in points])
    for place, (_, points) in enumerate(shown):
        plot.line([(time, share) for time, share, _, _ in points], place, marks=True)
    named = f"{by}: " if (by := found.facts.get("by")) else ""
    plot.legend(
        [(f"line s{place}", f"{named}{group}" if group else "all rows") for place, (group, _) in enumerate(shown)]
    )
    return plot, words
