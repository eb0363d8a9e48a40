"""Coordinates of a plot of one budget over time: a line that rises at each charge, below the line of the limit."""

import datetime as dt
import math
from dataclasses import dataclass

from parties.report.gathering import Period, ScopeBudget

WIDTH, HEIGHT = 440, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 24, 46
_TICKS = 4
_SHORT_S = 4 * 86_400


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: where, and its words."""

    at: float
    label: str


@dataclass(frozen=True)
class Plot:
    """A plot in units of its own view box. line: points of the step line, as SVG writes them. limit_y: of the limit."""

    line: str
    limit_y: float
    end_x: float
    end_y: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    words: str
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    top: float = _TOP
    bottom: float = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


def budget_plot(budget: ScopeBudget, period: Period, as_of_unix_s: float) -> Plot | None:
    """The plot of a budget, None if a figure is infinite: then no line is true."""
    values = [budget.before, *(value for _, value in budget.steps)]
    if not all(map(math.isfinite, values)):
        return None
    top = max(budget.limit_epsilon, *values) * 1.05 or 1.0
    length_s = period.until_unix_s - period.since_unix_s

    def x(at_unix_s: float) -> float:
        share = (at_unix_s - period.since_unix_s) / length_s
        return round(_LEFT + min(1.0, max(0.0, share)) * (WIDTH - _LEFT - _RIGHT), 2)

    def y(value: float) -> float:
        return round(HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM), 2)

    points = [(x(period.since_unix_s), y(values[0]))]
    for (at, _), before, after in zip(budget.steps, values[:-1], values[1:], strict=True):
        points += [(x(at), y(before)), (x(at), y(after))]
    points.append((x(as_of_unix_s), y(values[-1])))
    step = _round_step(top / _TICKS)
    return Plot(
        line=" ".join(f"{a:g},{b:g}" for a, b in points),
        limit_y=y(budget.limit_epsilon),
        end_x=points[-1][0],
        end_y=points[-1][1],
        x_ticks=tuple(
            Tick(x(at), _date(at, length_s))
            for at in (period.since_unix_s, period.since_unix_s + length_s / 2, period.until_unix_s)
        ),
        y_ticks=tuple(Tick(y(n * step), f"{n * step:g}") for n in range(int(top / step) + 1)),
        words=(
            f"Epsilon spent for {budget.scope}: {values[0]:.4g} on {_date(period.since_unix_s, length_s)}, "
            f"{values[-1]:.4g} on {_date(as_of_unix_s, length_s)}. The limit is {budget.limit_epsilon:.4g}."
        ),
    )


def _round_step(least: float) -> float:
    """The least of 1, 2 or 5 times a power of ten that is at least this."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def _date(unix_s: float, length_s: float) -> str:
    """A local date; in a short period with the time."""
    moment = dt.datetime.fromtimestamp(unix_s, dt.UTC).astimezone()
    return f"{moment:%Y-%m-%d}" if length_s > _SHORT_S else f"{moment:%m-%d %H:%M}"
