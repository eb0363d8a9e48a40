"""`rado learner export`: a model for use without radofed."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from radofed.cli.framework import check_new, command
from radofed.cli.output import Output, Result

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help comes at once)


class Target(StrEnum):
    """What a model becomes."""

    JSON = "json"
    SKLEARN = "sklearn"


def add_to(app: typer.Typer) -> None:
    """Make `export` a command of `app`."""
    command(app, "export")(export)


def export(
    _output: Output,
    model: Annotated[Path, typer.Argument(help="A model that train wrote.", show_default=False)],
    to: Annotated[Path, typer.Option("--output", "-o", help="Write it there.", show_default=False)],
    target: Annotated[Target, typer.Option("--to", help="json; sklearn only says how to get one.")] = Target.JSON,
) -> Result:
    """Write a model as JSON in the units of the original columns, with the rules for using it.

    A scikit-learn estimator is made in Python, by Model.load(...).to_sklearn(): a file of one would be a pickle, which
    runs whatever its author wrote into it when it is loaded.
    """
    import json

    from dpcore.errors import ConfigurationError, ModelError
    from learner.model import Model
    from radofed.common.files.writing import write_durably

    if target is Target.SKLEARN:
        raise ConfigurationError(
            "a file with a scikit-learn estimator is a pickle, unsafe to load; in Python, write "
            "radofed.Model.load(pathlib.Path(FILE)).to_sklearn()"
        )
    check_new(to)
    exported = Model.load(model).to_original_units()
    content = json.dumps(exported, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        write_durably(to, content.encode())
    except OSError as error:
        raise ModelError(f"{to}: cannot be written ({error.strerror}); choose another place") from error
    data = {"model": model, "file": to, "format": exported["format"], "features": len(exported["features"])}
    return Result(data, f"{to}: {len(exported['features'])} features in the units of their columns")
