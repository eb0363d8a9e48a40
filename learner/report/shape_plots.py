"""Coordinates of the plots of shapes: curves with bands, bars of values, and heat maps of pairs."""

from dataclasses import dataclass
from itertools import groupby

from learner.shapes.shapes import At, Curve, Shape, Surface, Values
from radobase.report.plots import Frame, Tick

MOST_SIDE = 14
"""Values on a side of a heat map. A larger one is not drawn: its figures could not be read."""

MOST_BARS = 60

NOT_MEASURABLE = "not measurable"
"""Of what the answers say too little: in pages, pictures and reports."""

_WIDTH, _ROW, _NAME, _FIGURE = 440, 20, 168, 100
_TOP, _CELL = 24, 24
_LONGEST = 26
_SHOWN = 0.005
_EXACT, _LARGE = 1e4, 1e8
# Tints on which dark text has enough contrast.
_BLANK, _UNKNOWN = "#ffffff", "?"
_UP, _DOWN = (238, 160, 90), (120, 176, 226)


@dataclass(frozen=True)
class PointMark:
    """A point mass of a curve, with the ends of its band; None if it has none."""

    x: float
    y: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class CurvePlot:
    """The curve of a number. bands: outlines of its band where it is measurable, none if it is not known.

    strokes: of tenths of values.
    """

    shape: Curve
    frame: Frame
    line: str
    bands: tuple[str, ...]
    points: tuple[PointMark, ...]
    strokes: tuple[float, ...]
    zero: float
    words: str
    kind: str = "curve"

    @property
    def ticks(self) -> tuple[Tick, ...] | None:
        """Dates below the plot; None for the frame's numbers."""
        if not self.shape.group.is_named:
            return None
        ends = self.shape.lower, self.shape.upper
        middle = float(round(sum(ends) / 2))
        return tuple(Tick(self.frame.x(at), self.shape.group.written(at)) for at in (ends[0], middle, ends[1]))


@dataclass(frozen=True)
class ValueBar:
    """What one value adds, as a level bar. low, high: ends of its band, None if there is none. figure: in words."""

    name: str
    figure: str
    x: float
    width: float
    y: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ValuesPlot:
    """Bars of a category or a flag. hidden: how many values are left out."""

    shape: Values
    bars: tuple[ValueBar, ...]
    zero: float
    width: int
    height: int
    hidden: int
    words: str
    kind: str = "values"


@dataclass(frozen=True)
class Cell:
    """A cell of a heat map. is_sure: whether its band leaves out 0; None if bands are not known."""

    x: float
    y: float
    fill: str
    text: str
    is_sure: bool | None


@dataclass(frozen=True)
class Head:
    """A value beside a row or below a column of a heat map."""

    at: float
    text: str


@dataclass(frozen=True)
class SurfacePlot:
    """A heat map; without cells if it is too large to be read."""

    shape: Surface
    cells: tuple[Cell, ...]
    rows: tuple[Head, ...]
    columns: tuple[Head, ...]
    left: float
    cell_width: float
    cell_height: int
    bottom: float
    width: int
    height: int
    words: str
    kind: str = "surface"


ShapePlot = CurvePlot | ValuesPlot | SurfacePlot


def plot_of(shape: Shape) -> ShapePlot:
    """The plot of a shape."""
    if isinstance(shape, Curve):
        return _curve(shape)
    if isinstance(shape, Values):
        return _values(shape)
    assert isinstance(shape, Surface), "there are three sorts"
    return _surface(shape)


def _ends(at: At) -> tuple[float, float]:
    return at.adds - (at.band or 0.0), at.adds + (at.band or 0.0)


def _curve(shape: Curve) -> CurvePlot:
    ends = [end for at in (*shape.line, *shape.points) for end in _ends(at)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    room = 0.05 * (high - low) or 1.0
    frame = Frame(shape.lower, shape.upper, low - room, high + room)
    at = [(float(each.value), each) for each in shape.line]
    marks = tuple(
        PointMark(frame.x(float(each.value)), frame.y(each.adds), *_marked(frame, each)) for each in shape.points
    )
    strokes = tuple(frame.x(value) for value in shape.deciles)
    line = frame.line((x, each.adds) for x, each in at)
    return CurvePlot(shape, frame, line, _outlines(frame, shape), marks, strokes, frame.y(0.0), _curve_words(shape))


def _outlines(frame: Frame, shape: Curve) -> tuple[str, ...]:
    """The outlines of a curve's band, one for each run of values that are measurable."""
    runs = [list(run) for known, run in groupby(shape.line, key=lambda at: at.band is not None) if known]
    ends = [[(float(at.value), *_ends(at)) for at in run] for run in runs if len(run) > 1]
    return tuple(
        frame.line([*((x, high) for x, _, high in run), *((x, low) for x, low, _ in reversed(run))]) for run in ends
    )


def _marked(frame: Frame, at: At) -> tuple[float | None, float | None]:
    if at.band is None:
        return None, None
    low, high = _ends(at)
    return frame.y(low), frame.y(high)


def _curve_words(shape: Curve) -> str:
    wanted = [shape.lower, *(shape.deciles or _parts(shape))[::4], shape.upper]
    chosen = [min(shape.line, key=lambda at: abs(float(at.value) - each)) for each in wanted]
    steps = "; ".join(f"{value_text(shape.named(at.value))}: {_adds(at)}" for at in chosen)
    points = "".join(
        f" Exactly {value_text(shape.named(at.value))}{_of_100(at.share)} adds {_adds(at)} instead, marked by a square."
        for at in shape.points
    )
    return f"What {shape.title} adds to the score, for some values. {steps}.{points}"


def _parts(shape: Curve) -> list[float]:
    """Where ten equal parts of the column's range meet."""
    return [shape.lower + (shape.upper - shape.lower) * part / 10 for part in range(1, 10)]


def _values(shape: Values) -> ValuesPlot:
    shown = shape.values[:MOST_BARS]
    ends = [end for at in shown for end in _ends(at)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    start, end = _NAME, _WIDTH - _FIGURE
    scale = (end - start) / ((high - low) or 1.0)
    zero = round(start - low * scale, 1)

    def place(value: float) -> float:
        return round(zero + value * scale, 1)

    bars = tuple(
        ValueBar(
            _short(str(at.value)),
            NOT_MEASURABLE if at.measurable is False else f"{at.adds:+.3f}",
            min(zero, place(at.adds)),
            round(abs(at.adds) * scale, 1),
            float(_ROW * number),
            None if at.band is None else place(_ends(at)[0]),
            None if at.band is None else place(_ends(at)[1]),
        )
        for number, at in enumerate(shown)
    )
    words = "; ".join(f"{at.value}: {_adds(at)}" for at in shown)
    hidden = len(shape.values) - len(shown)
    return ValuesPlot(shape, bars, zero, _WIDTH, _ROW * len(shown) + 4, hidden, f"What {shape.title} adds. {words}.")


def _surface(shape: Surface) -> SurfacePlot:
    first, second = shape.features
    cells = [(at, row, column) for row, each in enumerate(shape.cells) for column, at in enumerate(each)]
    least, most = (find(cells, key=lambda cell: cell[0].adds) for find in (min, max))
    said = [
        f"{_adds(at)} where {first} is {value_text(shape.rows[row])} and {second} is {value_text(foot)}"
        for at, row, foot in ((at, row, shape.columns_at[column]) for at, row, column in (least, most))
    ]
    words = f"What the pair adds beside its two columns: least {said[0]}; most {said[1]}."
    rows, columns = len(shape.rows), len(shape.columns_at)
    left, width = 76.0, (_WIDTH - 76 - 6) / columns
    bottom = float(_TOP + _CELL * rows)
    if max(rows, columns) > MOST_SIDE:
        return SurfacePlot(shape, (), (), (), left, width, _CELL, bottom, _WIDTH, _TOP, words)
    largest = max(abs(shape.low), abs(shape.high)) or 1.0
    # Like a plot's upright axis, the first column's values rise from the bottom.
    drawn = tuple(
        Cell(
            round(left + column * width, 2),
            bottom - _CELL * (row + 1),
            _BLANK if at.measurable is False else _tint(at.adds / largest),
            _UNKNOWN if at.measurable is False else _cell_text(at.adds),
            None if at.measurable is None else at.band is not None and abs(at.adds) > at.band,
        )
        for at, row, column in cells
    )
    heads = tuple(Head(bottom - _CELL * row - 8, _short(value_text(value), 11)) for row, value in enumerate(shape.rows))
    feet = tuple(
        Head(round(left + (column + 0.5) * width, 2), _short(value_text(value), max(4, int(width / 6))))
        for column, value in enumerate(shape.columns_at)
    )
    return SurfacePlot(shape, drawn, heads, feet, left, round(width, 2), _CELL, bottom, _WIDTH, int(bottom) + 42, words)


def _cell_text(adds: float) -> str:
    return "0.00" if abs(adds) < _SHOWN else f"{adds:+.2f}"


def _tint(share: float) -> str:
    """Orange for what raises the score, blue for what lowers it; the nearer to 0, the whiter."""
    full = _UP if share > 0 else _DOWN
    return "#" + "".join(f"{round(255 + (each - 255) * min(1.0, abs(share))):02x}" for each in full)


def value_text(value: float | str) -> str:
    """A value in its column's units, in few digits."""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if _EXACT <= abs(value) < _LARGE else f"{value:.4g}"


def _adds(at: At) -> str:
    if at.measurable is False:
        return f"{at.adds:+.3g}, {NOT_MEASURABLE}"
    return f"{at.adds:+.3g}" + ("" if at.band is None else f" plus or minus {at.band:.2g}")


def _of_100(share: float | None) -> str:
    return "" if share is None else f" ({100 * share:.0f} of 100 values)"


def _short(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
