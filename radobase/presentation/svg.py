"""Plots as SVG: axes, lines, bands, bars, marks and legends.

A drawing has classes and no colours. Its colours are those of the page that shows it, or of its own file, from
`templates/plots.css`, for light and dark screens. Lines of several sorts differ in dashes and marks, too.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from dpcore.errors import ConfigurationError
from radobase.printing import printable
from radobase.writing import BY_UMASK, write_durably

WIDTH, HEIGHT = 440, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 24, 46
_LEGEND = 18
_INTERVALS_WIDTH = 640
_MARK = 4.0
_TICKS = 4
SORTS = 6
"""How many sorts of lines differ from one another."""
# A picture is for others to look at.
_MODE = BY_UMASK

Point = tuple[float, float]
Estimate = tuple[str, str, float, tuple[float, float]]
"""Name, figure in words, value, the ends of its interval, which may be infinite."""


@dataclass(frozen=True)
class Tick:
    """A mark of an axis."""

    value: float
    label: str


@dataclass(frozen=True)
class Scale:
    """One axis: values from `low` to `high`, low < high. Values outside stand at its ends."""

    low: float
    high: float
    is_log: bool = False

    @classmethod
    def over(cls, values: Iterable[float], *, is_log: bool = False) -> "Scale":
        """The scale from the least to the largest value, widened if they are one."""
        known = [value for value in values if not is_log or value > 0]
        low, high = min(known), max(known)
        if low == high:
            low, high = (low / 2, high * 2) if is_log else (low, low + 1)
        return cls(low, high, is_log)

    def share(self, value: float) -> float:
        """Where a value stands, from 0 at `low` to 1 at `high`."""
        low, high, at = (math.log(max(each, 5e-324)) if self.is_log else each for each in (self.low, self.high, value))
        return min(1.0, max(0.0, (at - low) / (high - low)))

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """Round numbers."""
        return tuple(Tick(value, f"{value:g}") for value in (self._decades() if self.is_log else self._steps()))

    def _steps(self) -> list[float]:
        least = (self.high - self.low) / _TICKS
        power = 10.0 ** math.floor(math.log10(least))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
        first, last = math.ceil(round(self.low / step, 9)), math.floor(round(self.high / step, 9))
        return [n * step for n in range(first, last + 1)]

    def _decades(self) -> list[float]:
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            found = [float(f"{factor}e{power}") for power in powers for factor in factors]
            within = [value for value in found if self.low * 0.999 <= value <= self.high * 1.001]
            if len(within) <= 2 * _TICKS:
                break
        return within[:: -(-len(within) // (2 * _TICKS))] if within else [self.low, self.high]


class Drawing:
    """An SVG. Every text in it is escaped.

    id: of this drawing on its page. title, words: what a screen reader reads. Jinja inserts it as markup.
    """

    def __init__(self, id_: str, title: str, words: str, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._id, self._title, self._words = id_, title, words
        self.parts: list[str] = []

    def add(self, tag: str, content: str = "", **attributes: object) -> None:
        """An element. Names of attributes have `_` for `-`; `class_` is class."""
        written = "".join(f' {key.rstrip("_").replace("_", "-")}="{_text(value)}"' for key, value in attributes.items())
        self.parts.append(f"<{tag}{written}>{_text(content)}</{tag}>" if content else f"<{tag}{written}/>")

    def text(self, x: float, y: float, content: str, *, anchor: str = "start", class_: str = "") -> None:
        """A line of text. anchor: start, middle or end."""
        self.add("text", content or " ", x=x, y=y, text_anchor=anchor, **({"class_": class_} if class_ else {}))

    def stroke(self, path: str, class_: str) -> None:
        """A path that is not filled."""
        self.add("path", d=path, class_=class_)

    def mark(self, x: float, y: float, *, square: bool = False, class_: str = "mark") -> None:
        """A round or a square mark."""
        if square:
            self.add("rect", x=x - _MARK, y=y - _MARK, width=2 * _MARK, height=2 * _MARK, class_=class_)
        else:
            self.add("circle", cx=x, cy=y, r=_MARK, class_=class_)

    def put(self, other: "Drawing", x: float, y: float) -> None:
        """Another drawing as a part of this one."""
        size = f'x="{_text(x)}" y="{_text(y)}" width="{_text(other.width)}" height="{_text(other.height)}"'
        self.parts.append(f"<svg {size}>{''.join(other.parts)}</svg>")

    def file(self) -> str:
        """As a file of its own."""
        size = f'width="{_text(self.width)}" height="{_text(self.height)}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_text(self.width)} {_text(self.height)}" {size}>\n'
            f"<title>{_text(self._title)}</title>\n<style>\n{colours()}</style>\n"
            f'<rect class="paper" width="100%" height="100%"/>\n{"".join(self.parts)}\n</svg>\n'
        )

    def __html__(self) -> str:
        """As a picture of a page, with its title and description."""
        return (
            f'<svg viewBox="0 0 {_text(self.width)} {_text(self.height)}" role="img" '
            f'aria-labelledby="{self._id}-title {self._id}-words">\n<title id="{self._id}-title">{_text(self._title)}'
            f'</title>\n<desc id="{self._id}-words">{_text(self._words)}</desc>\n{"".join(self.parts)}\n</svg>'
        )


class Plot(Drawing):
    """A drawing with two axes. Coordinates of its methods are values of the axes.

    heading: what the upright axis shows. label: what the level axis shows. ticks: of the level axis; default: round
    numbers. whole: whether it counts, so that only whole numbers are marked.
    """

    def __init__(
        self,
        id_: str,
        title: str,
        words: str,
        x: Scale,
        y: Scale,
        *,
        heading: str,
        label: str,
        ticks: Sequence[Tick] | None = None,
        whole: bool = False,
        width: int = WIDTH,
        height: int = HEIGHT,
    ) -> None:
        super().__init__(id_, title, words, width, height)
        self.x_scale, self.y_scale = x, y
        self.left, self.right, self.top, self.bottom = _LEFT, width - _RIGHT, _TOP, height - _BOTTOM
        for tick in y.ticks:
            self.stroke(f"M{self.left} {self.y(tick.value):g} H{self.right}", "grid")
            self.text(self.left - 6, self.y(tick.value) + 4, tick.label, anchor="end")
        self.stroke(f"M{self.left} {self.top} V{self.bottom} H{self.right}", "axis")
        self.text(self.left, 14, heading, class_="soft")
        shown = [each for each in x.ticks if not whole or each.label.isdigit()] if ticks is None else ticks
        for place, tick in enumerate(shown):
            ends = "middle" if ticks is None else ("start", *["middle"] * (len(shown) - 2), "end")[place]
            self.text(self.x(tick.value), self.bottom + 18, tick.label, anchor=ends)
        self.text((self.left + self.right) / 2, self.bottom + 38, label, anchor="middle", class_="soft")

    def x(self, value: float) -> float:
        """Where a value stands from left to right, in units of the drawing."""
        return round(self.left + self.x_scale.share(value) * (self.right - self.left), 2)

    def y(self, value: float) -> float:
        """Where a value stands from top to bottom."""
        return round(self.bottom - self.y_scale.share(value) * (self.bottom - self.top), 2)

    def _points(self, points: Iterable[Point]) -> str:
        return " ".join(f"{self.x(x):g},{self.y(y):g}" for x, y in points)

    def line(self, points: Iterable[Point], sort: int = 0, *, marks: bool = False) -> None:
        """A line through points. sort: which colour and dashes it has. marks: whether each point is marked."""
        points = list(points)
        self.add("polyline", points=self._points(points), class_=f"line s{sort % SORTS}")
        for x, y in points if marks else ():
            self.mark(self.x(x), self.y(y), square=sort % 2 == 1, class_=f"dot s{sort % SORTS}")

    def band(self, ends: Sequence[tuple[float, float, float]]) -> None:
        """The area between two lines: (x, low, high)."""
        outline = [*((x, high) for x, _, high in ends), *((x, low) for x, low, _ in reversed(ends))]
        self.add("polygon", points=self._points(outline), class_="band")

    def point(self, x: float, y: float, *, square: bool = False) -> None:
        """A marked point."""
        self.mark(self.x(x), self.y(y), square=square)

    def whisker(self, x: float, low: float, high: float, sort: int | None = None) -> None:
        """An upright interval."""
        self.stroke(
            f"M{self.x(x):g} {self.y(low):g} V{self.y(high):g}",
            "whisker" + ("" if sort is None else f" s{sort % SORTS}"),
        )

    def level(self, y: float, class_: str = "limit") -> None:
        """A level line over the whole width."""
        self.stroke(f"M{self.left} {self.y(y):g} H{self.right}", class_)

    def upright(self, x: float, class_: str = "chosen") -> None:
        """An upright line over the whole height."""
        self.stroke(f"M{self.x(x):g} {self.top} V{self.bottom}", class_)

    def strokes(self, values: Iterable[float]) -> None:
        """Short strokes on the level axis."""
        for value in values:
            self.stroke(f"M{self.x(value):g} {self.bottom} v-7", "whisker")

    def legend(self, entries: Sequence[tuple[str, str]]) -> None:
        """Samples of lines with their names, below the plot: (class of the line, name)."""
        for place, (class_, name) in enumerate(entries):
            y = self.bottom + 54 + _LEGEND * place
            self.stroke(f"M{self.left} {y} h28", class_)
            if class_.startswith("line s"):
                sort = int(class_[-1])
                self.mark(self.left + 14, y, square=sort % 2 == 1, class_=f"dot s{sort}")
            self.text(self.left + 36, y + 4, name)
        self.height += _LEGEND * len(entries)


def bars(
    id_: str,
    title: str,
    words: str,
    values: Sequence[tuple[str, str, float, tuple[float, float] | None]],
    *,
    width: int = WIDTH,
) -> Drawing:
    """Level bars from a line at 0: (name, figure in words, value, the ends of its interval)."""
    row, name_width, figure_width = 20, 168, 100
    drawing = Drawing(id_, title, words, width, row * len(values) + 4)
    ends = [0.0, *(value for _, _, value, _ in values), *(end for *_, ends in values if ends for end in ends)]
    low, high = min(ends), max(ends)
    scale = (width - figure_width - name_width) / ((high - low) or 1.0)

    def place(value: float) -> float:
        return round(name_width + (value - low) * scale, 1)

    for number, (name, figure, value, interval) in enumerate(values):
        y = row * number
        drawing.text(name_width - 8, y + 15, shortened(name, 26), anchor="end")
        left = min(place(0.0), place(value))
        size = round(abs(value) * scale, 1)
        drawing.add("rect", x=left, y=y + 4, width=size, height=13, class_="bar down" if value < 0 else "bar")
        if interval is not None:
            start, end = map(place, interval)
            path = f"M{start:g} {y + 10.5} H{end:g} M{start:g} {y + 7.5} v6 M{end:g} {y + 7.5} v6"
            drawing.stroke(path, "whisker")
        drawing.text(width - 2, y + 15, figure, anchor="end")
    drawing.stroke(f"M{place(0.0):g} 0 V{drawing.height:g}", "axis")
    return drawing


def intervals(
    id_: str, title: str, words: str, values: Sequence[Estimate], *, line: float | None = None, is_log: bool = False
) -> Drawing:
    """Estimates below one another, each a mark on its interval. line: where nothing differs, such as a ratio of 1."""
    row, name_width, figure_width, width, heading = 20, 230, 200, _INTERVALS_WIDTH, 22
    drawing = Drawing(id_, title, words, width, row * len(values) + heading + 4)
    known = [end for _, _, value, ends in values for end in (value, *ends) if math.isfinite(end)]
    scale = Scale.over(known if line is None else [*known, line], is_log=is_log)

    def place(value: float) -> float:
        return round(name_width + scale.share(value) * (width - figure_width - name_width), 1)

    drawing.text(2, 15, title, class_="b")
    if line is not None:
        drawing.stroke(f"M{place(line):g} {heading} V{drawing.height:g}", "zero")
    for number, (name, figure, value, ends) in enumerate(values):
        y = heading + row * number + 10.5
        drawing.text(name_width - 8, y + 4.5, shortened(name, 36), anchor="end")
        caps = "".join(f" M{place(end):g} {y - 3} v6" for end in ends if math.isfinite(end))
        drawing.stroke(f"M{place(ends[0]):g} {y} H{place(ends[1]):g}{caps}", "whisker s0")
        drawing.mark(place(value), y)
        drawing.text(width - 2, y + 4.5, figure, anchor="end")
    return drawing


def shortened(text: str, longest: int) -> str:
    """The start of a text that is too long to be drawn."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _text(value: object) -> str:
    return f"{round(value, 2):g}" if isinstance(value, float) else escape(printable(str(value)))


def colours() -> str:
    """The style of drawings: `plots.css`."""
    return files("radobase.presentation").joinpath("templates", "plots.css").read_text("utf-8")


def check_picture(file: Path) -> None:
    """Raise ConfigurationError if no picture can be drawn to `file`, before anything is computed."""
    if file.suffix.lower() != ".svg":
        raise ConfigurationError(f"{file}: a picture is an SVG file; give a name that ends in .svg")
    if not file.parent.is_dir():
        raise ConfigurationError(f"{file.parent}: not a directory; make it first")


def write_picture(title: str, drawings: Sequence[Drawing], file: Path, *, across: int = 3) -> None:
    """Write drawings as one SVG file, `across` of them in a row. Raises ConfigurationError if it cannot be written."""
    write_drawing(sheet(title, drawings, across=across), file)


def write_drawing(drawing: Drawing, file: Path) -> None:
    """Write a drawing as an SVG file. Raises ConfigurationError if it cannot be written."""
    try:
        write_durably(file, drawing.file().encode(), mode=_MODE)
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be written ({error.strerror}); choose another place") from error


def sheet(title: str, drawings: Sequence[Drawing], *, across: int = 3) -> Drawing:
    """Drawings on one sheet, `across` of them in a row, under a title."""
    lines, gap = _wrapped(title, across, drawings), 16
    width, y = max(drawing.width for drawing in drawings), 18.0 * len(lines) + 10
    made = Drawing("", title, "", min(across, len(drawings)) * (width + gap) + gap, 0)
    for place, line in enumerate(lines):
        made.text(gap, 18 * place + 20, line)
    for start in range(0, len(drawings), across):
        row = drawings[start : start + across]
        for place, each in enumerate(row):
            made.put(each, gap + place * (width + gap), y)
        y += max(each.height for each in row) + gap
    made.height = y
    return made


def _wrapped(title: str, across: int, drawings: Sequence[Drawing]) -> list[str]:
    """A title in lines that fit the picture."""
    most = int(max(each.width for each in drawings) * min(across, len(drawings)) / 6.2)
    lines = [""]
    for word in title.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
