"""Coordinates of a plot of one budget over time: a line that rises at each charge, below the line of the limit."""

import datetime as dt
import math
from dataclasses import dataclass

from dpcore.numbers.decimals import upper_digits
from parties.report.budgets import Period, ScopeBudget
from radobase.report.plots import Frame, Tick

_SHORT_S = 4 * 86_400


@dataclass(frozen=True)
class Plot:
    """A plot of a budget. line: points of the step line, as SVG writes them. limit_y: of the limit. x_ticks: dates."""

    frame: Frame
    line: str
    limit_y: float
    end_x: float
    end_y: float
    x_ticks: tuple[Tick, ...]
    words: str


def budget_plot(budget: ScopeBudget, period: Period, as_of_unix_s: float) -> Plot | None:
    """The plot of a budget, None if a figure is infinite: then no line is true."""
    values = [budget.before, *(value for _, value in budget.steps)]
    if not all(map(math.isfinite, values)):
        return None
    top = max(budget.limit_epsilon, *values) * 1.05 or 1.0
    frame = Frame(period.since_unix_s, period.until_unix_s, 0.0, top)
    length_s = period.until_unix_s - period.since_unix_s
    points = [(period.since_unix_s, values[0])]
    for (at, _), before, after in zip(budget.steps, values[:-1], values[1:], strict=True):
        points += [(at, before), (at, after)]
    points.append((as_of_unix_s, values[-1]))
    first, last = upper_digits(values[0], 4), upper_digits(values[-1], 4)
    return Plot(
        frame=frame,
        line=frame.line(points),
        limit_y=frame.y(budget.limit_epsilon),
        end_x=frame.x(as_of_unix_s),
        end_y=frame.y(values[-1]),
        x_ticks=tuple(
            Tick(frame.x(at), _date(at, length_s))
            for at in (period.since_unix_s, period.since_unix_s + length_s / 2, period.until_unix_s)
        ),
        words=(
            f"Epsilon spent for {budget.scope}: {first} on {_date(period.since_unix_s, length_s)}, "
            f"{last} on {_date(as_of_unix_s, length_s)}. The limit is {budget.limit_epsilon:.4g}."
        ),
    )


def _date(unix_s: float, length_s: float) -> str:
    """A local date; in a short period with the time."""
    moment = dt.datetime.fromtimestamp(unix_s, dt.UTC).astimezone()
    return f"{moment:%Y-%m-%d}" if length_s > _SHORT_S else f"{moment:%m-%d %H:%M}"
