"""`rado learner picture`: what a model adds to the score for each value of each column."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radobase.printing import in_lines
from radofed.cli.framework import check_directory, check_new
from radofed.cli.output import Output, Result

if TYPE_CHECKING:
    from learner.shapes.shapes import Shapes

MOST_LINES = 20
ENDINGS = (".html", ".svg")


def picture(
    _output: Output,
    model: Annotated[Path, typer.Argument(help="A model that train wrote.", show_default=False)],
    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--output",
            "-o",
            help="Write a page (.html) or a picture (.svg) to this new file. Default: print the ranking.",
            show_default=False,
        ),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="A column to show, with its pairs; repeatable. Default: all.")
    ] = None,
    top: Annotated[int | None, typer.Option(help="Show the largest shapes only, so many of them.")] = None,
) -> Result:
    """Show the shapes of a model: what each value of each column adds to the score, in the column's units.

    Also ranks columns and pairs by what they add. The page is one file without scripts and loads nothing from
    elsewhere. Asks nothing and charges nothing.
    """
    from learner.model import Model
    from learner.report.picture import document, draw, usual
    from learner.shapes.shapes import shapes_of
    from radobase.files.writing import create_durably
    from radofed import __version__

    if to is not None:
        _check(to)
    loaded = Model.load(model)
    shapes = shapes_of(loaded)
    chosen = shapes.chosen(column or (), top)
    if not column and top is None and to is not None:
        chosen = usual(shapes)
    if to is not None and to.suffix == ".svg":
        draw(shapes, chosen, to)
    elif to is not None:
        create_durably(to, document(loaded, model.name, shapes, chosen, __version__).saved().encode())
    data = {"model": model, "model_digest": loaded.digest, **shapes.to_dict(chosen), "file": to}
    return Result(data, in_lines([*_ranking(shapes), *([] if to is None else [f"wrote {to}"])]))


def _check(to: Path) -> None:
    """Raise ConfigurationError if nothing can be drawn to this file, before anything is computed."""
    from dpcore.errors import ConfigurationError

    if to.suffix not in ENDINGS:
        raise ConfigurationError(f"{to}: shapes are a page or a picture: give a name that ends in .html or .svg")
    check_directory(to)
    check_new(to)


def _ranking(shapes: "Shapes") -> list[str]:
    lines = [f"{shape.size:8.3f}  {shape.title}" for shape in shapes.ranked[:MOST_LINES]]
    if len(shapes.ranked) > MOST_LINES:
        lines.append(f"and {len(shapes.ranked) - MOST_LINES} smaller ones")
    return ["standard deviation of what each adds to the score:", *lines]
