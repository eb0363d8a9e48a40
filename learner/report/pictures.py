"""Pictures of a model's shapes: each one drawn, and all of them on one sheet."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from dpcore.errors import ConfigurationError
from learner.shapes import At, Curve, Shape, Shapes, Surface, Values
from radobase.presentation.svg import WIDTH, Drawing, Plot, Scale, Tick, bars, sheet, shortened, write_drawing

MOST_PAIRS = 10
"""Pairs that are drawn if nothing else is asked for."""
MOST_OF_CLASS = 4
"""Shapes of a class that are drawn beside those of other classes, if nothing else is asked for."""
MOST_PANELS = 60
MOST_SIDE = 14
"""Values on a side of a heat map. A larger one is not drawn: its figures could not be read."""
MOST_BARS = 60
NOT_MEASURABLE = "not measurable"
"""Of what the answers say too little: in pages, pictures and reports."""

_LEFT, _TOP, _CELL = 76, 24, 24
_SHOWN = 0.005
_EXACT, _LARGE = 1e4, 1e8
_DARKEST = 0.75


Drawn: TypeAlias = Sequence[tuple[Shapes, Sequence[Shape]]]
"""The shapes of scores, and those of each that are drawn."""


def usual(every: Sequence[Shapes]) -> Drawn:
    """What is drawn if nothing else is asked for: every column, and the largest pairs; of several classes the largest.

    every: of each score.
    """
    if len(every) == 1:
        return [(every[0], _columns_and_pairs(every[0]))]
    return [(shapes, shapes.ranked[:MOST_OF_CLASS]) for shapes in every]


def _columns_and_pairs(shapes: Shapes) -> tuple[Shape, ...]:
    pairs = [shape for shape in shapes.ranked if isinstance(shape, Surface)]
    hidden = set(map(id, pairs[MOST_PAIRS:]))
    return tuple(shape for shape in shapes.ranked if id(shape) not in hidden)


def draw(scores: Drawn, file: Path) -> None:
    """Write the shapes as an SVG file, at most `MOST_PANELS` of one score. Raises ConfigurationError."""
    write_drawing(drawn_sheet(scores), file)


def drawn_sheet(scores: Drawn) -> Drawing:
    """The shapes on one sheet. Raises ConfigurationError as `draw` does."""
    if len(scores) > 1 and sum(len(drawn) for _, drawn in scores) > MOST_PANELS:
        raise ConfigurationError(
            f"a picture has at most {MOST_PANELS} shapes: choose a class by --of, or fewer shapes by --top or --column"
        )
    shapes = scores[0][0]
    bands = (
        f"shaded, or thin lines: 1.96 standard deviations; without them, and question marks: {NOT_MEASURABLE}"
        if shapes.has_bands
        else "bands are not known for this model"
    )
    panels = []
    for each, shape in [(each, shape) for each, drawn in scores for shape in drawn[:MOST_PANELS]]:
        panel = drawing(shape, "")[0] or Drawing("", "", "", WIDTH, 60)
        framed = Drawing("", "", "", panel.width, panel.height + 24)
        of = f"{each.label}: " if len(scores) > 1 else ""
        framed.text(4, 14, f"{of}{shape.title}, size {shape.size:.2f}", class_="b")
        framed.put(panel, 0, 24)
        panels.append(framed)
    what = f"the score of {shapes.label!r}" if len(scores) == 1 else "the score of each class"
    what = what if shapes.units is None else shapes.adds_to
    return sheet(f"What columns add to {what}; {bands}", panels)


def drawing(shape: Shape, id_: str) -> tuple[Drawing | None, str]:
    """A shape as a drawing, None if it is too large to be read, and its caption."""
    if isinstance(shape, Curve):
        return _curve(shape, id_)
    if isinstance(shape, Values):
        return _values(shape, id_)
    assert isinstance(shape, Surface), "there are three sorts"
    return _surface(shape, id_)


def _ends(at: At) -> tuple[float, float]:
    return at.adds - (at.band or 0.0), at.adds + (at.band or 0.0)


def _curve(shape: Curve, id_: str) -> tuple[Drawing, str]:
    ends = [end for at in (*shape.line, *shape.points) for end in _ends(at)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    room = 0.05 * (high - low) or 1.0
    runs = [list(run) for known, run in groupby(shape.line, key=lambda at: at.band is not None) if known]
    runs = [run for run in runs if len(run) > 1]
    words = _curve_words(shape)
    plot = Plot(
        id_,
        f"Shape of {shape.title}",
        words,
        Scale(shape.lower, shape.upper),
        Scale(low - room, high + room),
        heading=f"adds to {shape.adds_to}" + (", with its band" if runs else ""),
        label=shape.title,
        ticks=_dates(shape),
    )
    for run in runs:
        plot.band([(float(at.value), *_ends(at)) for at in run])
    plot.level(0.0, "zero")
    plot.line((float(at.value), at.adds) for at in shape.line)
    for at in shape.points:
        if at.band is not None:
            plot.whisker(float(at.value), *_ends(at))
        plot.point(float(at.value), at.adds, square=True)
    plot.strokes(shape.deciles)
    hidden = shape.measurable is not None and any(at.measurable is False for at in shape.line)
    return plot, words + (" Where there is no shaded band, what it adds is not measurable." if hidden else "")


def _dates(shape: Curve) -> list[Tick] | None:
    """The marks of a level axis of dates; None for an axis of numbers."""
    if not shape.group.is_named:
        return None
    middle = float(round((shape.lower + shape.upper) / 2))
    return [Tick(at, shape.group.written(at)) for at in (shape.lower, middle, shape.upper)]


def _curve_words(shape: Curve) -> str:
    parts = [shape.lower + (shape.upper - shape.lower) * part / 10 for part in range(1, 10)]
    wanted = [shape.lower, *(shape.deciles or parts)[::4], shape.upper]
    chosen = [min(shape.line, key=lambda at: abs(float(at.value) - each)) for each in wanted]
    steps = "; ".join(f"{value_text(shape.named(at.value))}: {_adds(at)}" for at in chosen)
    points = "".join(
        f" Exactly {value_text(shape.named(at.value))}"
        f"{'' if at.share is None else f' ({100 * at.share:.0f} of 100 values)'} adds {_adds(at)} "
        "instead, marked by a square."
        for at in shape.points
    )
    return f"What {shape.title} adds to {shape.adds_to}, for some values. {steps}.{points}"


def _values(shape: Values, id_: str) -> tuple[Drawing, str]:
    shown, hidden = shape.values[:MOST_BARS], len(shape.values) - MOST_BARS
    words = f"What {shape.title} adds. {'; '.join(f'{at.value}: {_adds(at)}' for at in shown)}."
    made = bars(
        id_,
        f"Shape of {shape.title}",
        words,
        [
            (
                str(at.value),
                NOT_MEASURABLE if at.measurable is False else f"{at.adds:+.3f}",
                at.adds,
                None if at.band is None else _ends(at),
            )
            for at in shown
        ],
    )
    caption = (
        f"What each value adds to {shape.adds_to}: to the right of the line it raises it, to the left it lowers it."
    )
    caption += " The thin lines are the bands." if any(at.band is not None for at in shown) else ""
    return made, caption + (f" {hidden} more values are left out." if hidden > 0 else "")


def _surface(shape: Surface, id_: str) -> tuple[Drawing | None, str]:
    rows, columns = len(shape.rows), len(shape.columns_at)
    words = _surface_words(shape)
    if max(rows, columns) > MOST_SIDE:
        return None, f"{words} It has more values than a heat map shows here: --format json prints all of them."
    width, bottom = (WIDTH - _LEFT - 6) / columns, _TOP + _CELL * rows
    made = Drawing(id_, f"Shape of {shape.title}", words, WIDTH, bottom + 42)
    made.text(0, 14, f"{shape.features[0]}, upwards", class_="soft")
    largest = max(map(abs, shape.ends or ())) if shape.ends and any(shape.ends) else 1.0
    for row, each in enumerate(shape.cells):
        # Like a plot's upright axis, the first column's values rise from the bottom.
        y = bottom - _CELL * (row + 1)
        made.text(_LEFT - 6, y + 16, shortened(value_text(shape.rows[row]), 11), anchor="end", class_="small")
        for column, at in enumerate(each):
            x = round(_LEFT + column * width, 2)
            tint = 0.0 if at.measurable is False else abs(at.adds) / largest
            sort = "cell up" if at.adds > 0 else "cell down"
            made.add("rect", x=x, y=y, width=width, height=_CELL, class_="cell")
            made.add("rect", x=x, y=y, width=width, height=_CELL, class_=sort, fill_opacity=_DARKEST * tint)
            is_sure = at.band is not None and abs(at.adds) > at.band
            made.text(x + width / 2, y + 16, _cell_text(at), anchor="middle", class_="small b" if is_sure else "small")
    for column, value in enumerate(shape.columns_at):
        foot = shortened(value_text(value), max(4, int(width / 6)))
        made.text(_LEFT + (column + 0.5) * width, bottom + 16, foot, anchor="middle", class_="small")
    made.text((_LEFT + WIDTH) / 2, bottom + 34, shape.features[1], anchor="middle", class_="soft")
    cells = [at for row in shape.cells for at in row]
    known = " In bold: the band of the cell leaves out 0." if cells[0].measurable is not None else ""
    unknown = " A question mark: not measurable." if any(at.measurable is False for at in cells) else ""
    return made, (
        f"{words} Orange with a plus raises {shape.adds_to}, blue with a minus lowers it.{known}{unknown} Values are "
        "not equally far apart."
    )


def _surface_words(shape: Surface) -> str:
    first, second = shape.features
    cells = [
        (at, row, foot)
        for row, each in zip(shape.rows, shape.cells, strict=True)
        for at, foot in zip(each, shape.columns_at, strict=True)
    ]
    least, most = (
        f"{_adds(at)} where {first} is {value_text(row)} and {second} is {value_text(foot)}"
        for at, row, foot in (find(cells, key=lambda cell: cell[0].adds) for find in (min, max))
    )
    return f"What the pair adds beside its two columns: least {least}; most {most}."


def _cell_text(at: At) -> str:
    if at.measurable is False:
        return "?"
    return "0.00" if abs(at.adds) < _SHOWN else f"{at.adds:+.2f}"


def value_text(value: float | str) -> str:
    """A value in its column's units, in few digits."""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if _EXACT <= abs(value) < _LARGE else f"{value:.4g}"


def _adds(at: At) -> str:
    if at.measurable is False:
        return f"{at.adds:+.3g}, {NOT_MEASURABLE}"
    return f"{at.adds:+.3g}" + ("" if at.band is None else f" plus or minus {at.band:.2g}")
