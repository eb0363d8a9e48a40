"""The picture of a release of survival: a curve of each group, with its intervals as a band."""

from dpcore.evaluation.descriptive.result import Result
from dpcore.evaluation.descriptive.survival import SURVIVAL, Survival
from radobase.presentation.svg import SORTS, Plot, Scale


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
