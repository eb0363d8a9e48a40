"""The shapes of a model as one page of HTML, and as a picture."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from learner.report import shape_sentences
from learner.report.shape_plots import NOT_MEASURABLE, plot_of, value_text
from learner.shapes.shapes import At, Curve, Shape, Shapes, Surface, Values
from radobase.pictures import write_picture

if TYPE_CHECKING:
    from learner.model import Model

MOST_RANKED = 40
MOST_PAIRS = 10
"""Pairs that are drawn if nothing else is asked for."""

MOST_PANELS = 60
_ACROSS = 3


def usual(shapes: Shapes) -> tuple[Shape, ...]:
    """What is drawn if nothing else is asked for: every column, and the largest pairs."""
    pairs = [shape for shape in shapes.ranked if isinstance(shape, Surface)]
    hidden = set(map(id, pairs[MOST_PAIRS:]))
    return tuple(shape for shape in shapes.ranked if id(shape) not in hidden)


def render(model: "Model", file: str, shapes: Shapes, drawn: Sequence[Shape], version: str) -> str:
    """The page. file: the model's name. Raises ModuleNotFoundError without the extra `report`."""
    from radobase.pages import environment  # noqa: PLC0415  (of an extra that the ranking does not need)

    columns = [plot_of(shape) for shape in drawn if not isinstance(shape, Surface)]
    pairs = [plot_of(shape) for shape in drawn if isinstance(shape, Surface)]
    sections = [("columns", "Columns", columns), ("pairs", "Pairs of columns", pairs)]
    sections = [section for section in sections if section[2]]
    links = [(anchor, title) for anchor, title, _ in sections]
    return (
        environment("learner.report")
        .get_template("shapes.html")
        .render(
            model=model,
            file=file,
            shapes=shapes,
            drawn=sections,
            sections=[
                ("ranking", "What contributes most"),
                *links,
                ("bands", "How sure that is"),
                ("reveals", "What it reveals"),
            ],
            has_pairs=any(isinstance(shape, Surface) for shape in shapes.ranked),
            has_strokes=any(isinstance(shape, Curve) and shape.deciles for shape in drawn),
            left_out=len(shapes.ranked) - len(drawn),
            most=MOST_RANKED,
            sizes=shape_sentences.SIZES,
            spread=shape_sentences.spread(shapes),
            bands=shape_sentences.BANDS,
            no_bands=shape_sentences.NO_BANDS,
            version=version,
        )
    )


def draw(shapes: Shapes, drawn: Sequence[Shape], file: Path) -> None:
    """Write the shapes as a PNG, at most `MOST_PANELS` of them.

    Raises ModuleNotFoundError without matplotlib, ConfigurationError if the file cannot be written.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  (an extra, and slow to import)

    shown = drawn[:MOST_PANELS]
    across = min(_ACROSS, len(shown))
    down = -(-len(shown) // across)
    figure = Figure(figsize=(4.2 * across, 3.2 * down), layout="constrained")
    bands = (
        f"grey, or thin lines: 1.96 standard deviations; values without them, and grey cells: {NOT_MEASURABLE}"
        if shapes.has_bands
        else "bands are not known for this model"
    )
    figure.suptitle(f"What columns add to the score of {shapes.label!r}; {bands}", fontsize=10, parse_math=False)
    for place, shape in enumerate(shown, 1):
        axes = figure.add_subplot(down, across, place)
        axes.tick_params(labelsize=7)
        if isinstance(shape, Curve):
            _draw_curve(axes, shape)
        elif isinstance(shape, Values):
            _draw_values(axes, shape)
        elif isinstance(shape, Surface):
            _draw_surface(axes, shape)
        axes.set_title(f"{shape.title}, size {shape.size:.2f}", fontsize=9, parse_math=False)
    write_picture(figure, file)


def _draw_curve(axes: Any, shape: Curve) -> None:
    x, y = [at.value for at in shape.line], [at.adds for at in shape.line]
    if shape.measurable is not None:
        ends = [[at.adds + sign * _half_width(at) for at in shape.line] for sign in (-1, 1)]
        axes.fill_between(x, *ends, color="0.85")
    axes.axhline(0.0, color="0.4", linewidth=0.8, linestyle=":")
    axes.plot(x, y, color="tab:blue")
    axes.errorbar(
        [at.value for at in shape.points],
        [at.adds for at in shape.points],
        yerr=[_half_width(at) for at in shape.points],
        fmt="ks",
        markersize=4,
    )
    if shape.group.is_named:
        axes.set_xticks([shape.lower, shape.upper], [shape.group.written(end) for end in (shape.lower, shape.upper)])
    axes.plot(shape.deciles, [0.0] * len(shape.deciles), "k|", markersize=6, transform=axes.get_xaxis_transform())


def _half_width(at: At) -> float:
    """Of a band; not a number, which is not drawn, if there is none."""
    return math.nan if at.band is None else at.band


def _draw_values(axes: Any, shape: Values) -> None:
    shown = shape.values[:MOST_RANKED]
    places = range(len(shown))
    band = [_half_width(at) for at in shown] if shape.measurable is not None else None
    axes.barh(places, [at.adds for at in shown], xerr=band, color="0.7", edgecolor="black", linewidth=0.5)
    names = [str(at.value)[:24] + (f" ({NOT_MEASURABLE})" if at.measurable is False else "") for at in shown]
    axes.set_yticks(places, names, parse_math=False)
    axes.invert_yaxis()
    axes.axvline(0.0, color="0.4", linewidth=0.8, linestyle=":")


def _draw_surface(axes: Any, shape: Surface) -> None:
    largest = max(abs(shape.low), abs(shape.high)) or 1.0
    values = [[math.nan if at.measurable is False else at.adds for at in row] for row in shape.cells]
    axes.set_facecolor("0.85")
    image = axes.imshow(values, cmap="PuOr_r", vmin=-largest, vmax=largest, origin="lower", aspect="auto")
    for set_ticks, ticks in ((axes.set_yticks, shape.rows), (axes.set_xticks, shape.columns_at)):
        words = [value_text(tick)[:12] for tick in ticks]
        set_ticks(range(len(ticks)), words, fontsize=6, parse_math=False)
    axes.tick_params(axis="x", rotation=45)
    axes.set_ylabel(shape.features[0], fontsize=7, parse_math=False)
    axes.set_xlabel(shape.features[1], fontsize=7, parse_math=False)
    axes.figure.colorbar(image, ax=axes).ax.tick_params(labelsize=6)
