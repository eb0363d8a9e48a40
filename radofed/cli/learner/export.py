"""`rado learner export`: write a model for use without radofed."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from radobase.printing import json_text
from radofed.cli.framework import check_new
from radofed.cli.output import Output, Result


class Target(StrEnum):
    """The format of an exported model."""

    JSON = "json"
    SKLEARN = "sklearn"


def export(
    _output: Output,
    model: Annotated[Path, typer.Argument(help="A model that train wrote.", show_default=False)],
    to: Annotated[Path, typer.Option("--output", "-o", help="Write the JSON to this new file.", show_default=False)],
    target: Annotated[
        Target, typer.Option("--to", help="json; sklearn prints how to make an estimator in Python.")
    ] = Target.JSON,
) -> Result:
    """Write a model as JSON, in the units of its columns.

    The file has the rules for its use, too. For a scikit-learn estimator use Python: Model.load(...).to_sklearn(). A
    file of one would be a pickle, and loading a pickle runs its author's code.
    """
    from dpcore.errors import ConfigurationError, ModelError
    from learner.model import Model
    from radobase.files.writing import write_durably

    if target is Target.SKLEARN:
        raise ConfigurationError(
            "a scikit-learn estimator in a file is a pickle, unsafe to load; in Python, write "
            "radofed.Model.load(pathlib.Path(FILE)).to_sklearn()"
        )
    check_new(to)
    exported = Model.load(model).to_original_units()
    content = json_text(exported, indent=2, allow_nan=False) + "\n"
    try:
        write_durably(to, content.encode())
    except OSError as error:
        raise ModelError(f"{to}: cannot be written ({error.strerror}); choose another place") from error
    data = {"model": model, "file": to, "format": exported["format"], "features": len(exported["features"])}
    return Result(data, f"{to}: {len(exported['features'])} features in the units of their columns")
