"""Coordinates of plots that a page draws as SVG: a frame with two scales, and round marks on its axes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

TICKS = 4


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: where, and its words."""

    at: float
    label: str


@dataclass(frozen=True)
class Frame:
    """The area of a plot in units of its own view box: values from `low` to `high` of either axis fill it."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    width: int = 440
    height: int = 250
    """Of the view box."""
    left: int = 52
    top: int = 24
    right: int = field(init=False)
    bottom: int = field(init=False)
    """Of the area, from the view box's corner."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "right", self.width - 14)
        object.__setattr__(self, "bottom", self.height - 46)

    def x(self, value: float) -> float:
        """Where a value stands from left to right; one outside of the scale stands on the edge."""
        share = (value - self.x_low) / (self.x_high - self.x_low)
        return round(self.left + min(1.0, max(0.0, share)) * (self.right - self.left), 2)

    def y(self, value: float) -> float:
        """Where a value stands from top to bottom."""
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return round(self.bottom - min(1.0, max(0.0, share)) * (self.bottom - self.top), 2)

    def line(self, points: Iterable[tuple[float, float]]) -> str:
        """Points (x, y) in the units of the axes, as SVG writes those of a line."""
        return " ".join(f"{self.x(x):g},{self.y(y):g}" for x, y in points)

    @property
    def y_ticks(self) -> tuple[Tick, ...]:
        """Round numbers of the upright axis."""
        return tuple(Tick(self.y(value), f"{value:g}") for value in round_numbers(self.y_low, self.y_high))

    @property
    def x_ticks(self) -> tuple[Tick, ...]:
        """Round numbers of the level axis."""
        return tuple(Tick(self.x(value), f"{value:g}") for value in round_numbers(self.x_low, self.x_high))


def round_numbers(low: float, high: float) -> list[float]:
    """About `TICKS` round numbers from low to high, low < high."""
    step = round_step((high - low) / TICKS)
    first = math.ceil(round(low / step, 9))
    return [n * step for n in range(first, math.floor(round(high / step, 9)) + 1)]


def round_step(least: float) -> float:
    """The least of 1, 2 or 5 times a power of ten that is at least this."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
