"""Plots that a page draws as SVG, without styles of their own: coordinates in units of the view box."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 440, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 46


@dataclass(frozen=True)
class Mark:
    """Something at a place. words: beside it."""

    x: float
    y: float
    words: str


@dataclass(frozen=True)
class Curve:
    """Shares from 0 to 1 against a logarithmic scale. marks: the points. chosen: the place of one value, or None."""

    marks: tuple[Mark, ...]
    chosen: float | None
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM

    @property
    def line(self) -> str:
        """The points of the line."""
        return " ".join(f"{mark.x:g},{mark.y:g}" for mark in self.marks)


def curve(points: Sequence[tuple[float, float]], chosen: float | None) -> Curve | None:
    """A curve through points (value, share) with positive values; None if there are fewer than two."""
    if len(points) < 2:
        return None
    values = [value for value, _ in points]
    low, high = math.log(min(values)), math.log(max(values))

    def x(value: float) -> float:
        place = min(1.0, max(0.0, (math.log(value) - low) / (high - low)))
        return round(_LEFT + place * (WIDTH - _LEFT - _RIGHT), 1)

    def y(share: float) -> float:
        return round(_TOP + (1.0 - share) * (HEIGHT - _TOP - _BOTTOM), 1)

    marks = tuple(Mark(x(value), y(share), f"{value:g}") for value, share in points)
    return Curve(marks, None if chosen is None else x(chosen))


@dataclass(frozen=True)
class Bar:
    """A bar from the zero line to the left or right. x, width: where; y: its upper edge."""

    name: str
    value: float
    x: float
    width: float
    y: float


@dataclass(frozen=True)
class Bars:
    """Level bars on both sides of a zero line."""

    bars: tuple[Bar, ...]
    zero: float
    width: int
    height: int
    row: int


def bars(values: Sequence[tuple[str, float]], *, width: int = 320, row: int = 22) -> Bars:
    """Bars for named numbers, on one scale."""
    low, high = (extreme([0.0, *(value for _, value in values)]) for extreme in (min, max))
    scale = width / ((high - low) or 1.0)
    zero = round(-low * scale, 1)
    found = tuple(
        Bar(name, value, round(min(zero, zero + value * scale), 1), round(abs(value) * scale, 1), float(row * place))
        for place, (name, value) in enumerate(values)
    )
    return Bars(found, zero, width, row * len(found), row)
