"""Plots that a page draws as SVG, without styles of their own: coordinates in units of the view box."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from radobase.report.plots import Frame


@dataclass(frozen=True)
class Mark:
    """A point, and its value in words."""

    x: float
    y: float
    words: str


@dataclass(frozen=True)
class Curve:
    """Shares from 0 to 1 against a logarithmic scale. chosen: the place of one value, or None."""

    frame: Frame
    marks: tuple[Mark, ...]
    line: str
    chosen: float | None


def curve(points: Sequence[tuple[float, float]], chosen: float | None) -> Curve | None:
    """A curve through points (value, share) with positive values; None if there are fewer than two."""
    if len(points) < 2:
        return None
    places = [(math.log(value), share) for value, share in points]
    frame = Frame(places[0][0], places[-1][0], 0.0, 1.0)
    marks = tuple(
        Mark(frame.x(place), frame.y(share), f"{value:g}")
        for (value, _), (place, share) in zip(points, places, strict=True)
    )
    return Curve(frame, marks, frame.line(places), None if chosen is None else frame.x(math.log(chosen)))


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
