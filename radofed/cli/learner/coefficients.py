"""`rado learner coefficients`: a model's coefficients with standard errors, p-values, intervals and ratios."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from radobase.options import named_options
from radobase.printing import in_lines
from radofed.cli.output import Output, Result


class Adjust(StrEnum):
    """How p-values count that there are several."""

    none = "none"
    holm = "holm"
    benjamini_hochberg = "benjamini-hochberg"


def coefficients(
    _output: Output,
    model: Annotated[Path, typer.Argument(help="A model that train wrote.", show_default=False)],
    adjust: Annotated[
        Adjust,
        typer.Option(help="Adjust p-values for their number: against any false one, or a share of false ones."),
    ] = Adjust.none,
    reference: Annotated[
        str | None,
        typer.Option(
            help="Of several classes: the one that others are compared with.", show_default="the one that is known best"
        ),
    ] = None,
    release: Annotated[
        list[Path] | None,
        typer.Option(help="The release of moments that a model of moments-discriminant was trained on."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the estimator, NAME=VALUE, as in the training; repeatable.")
    ] = None,
) -> Result:
    """Print a model's coefficients in the units of the columns, with standard errors, p-values, intervals and ratios.

    Standard errors count the noise, the choice of the rows, clipping and shrinkage. Where the answers say too little, a
    coefficient is not measurable. Models of linear, newton and hazards state their errors in the file; for a model of
    moments-discriminant or linear-regression, give the release. Asks nothing and charges nothing.
    """
    from dpcore.errors import ConfigurationError
    from learner.coefficient_table import coefficient_tables
    from learner.model import Model
    from learner.release import Release

    loaded = Model.load(model)
    if loaded.feature_map is not None:
        raise ConfigurationError(
            "the model has curves and not one coefficient for each column: draw its shapes with rado learner picture"
        )
    releases = tuple(Release.load(each) for each in release or ())
    tables = coefficient_tables(
        loaded, releases, named_options(option or ()), adjustment=adjust.value, reference=reference
    )
    lines = [line for table in tables for line in (*table.lines(), "")]
    return Result({"coefficients": [table.to_dict() for table in tables]}, in_lines(lines[:-1]))
