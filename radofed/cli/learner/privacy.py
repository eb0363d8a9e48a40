"""`rado learner privacy`: the privacy cost of the composition of several releases."""

from pathlib import Path
from typing import Annotated

import typer

from dpcore.declared import number_text
from radobase.printing import in_lines
from radofed.cli.output import Output, Result
from wire.request_fields import USUAL_DELTA


def privacy(
    _output: Output,
    releases: Annotated[list[Path], typer.Argument(help="The directories of releases.", show_default=False)],
    feature: Annotated[
        str | None, typer.Option(help="Protect this feature's own values, instead of whole records.")
    ] = None,
    column: Annotated[str | None, typer.Option(help="Protect this source column, instead of whole records.")] = None,
    delta: Annotated[str, typer.Option(help="The delta of epsilon, exact.")] = number_text(USUAL_DELTA),
) -> Result:
    """Compute the privacy cost of several releases.

    The figure is computed for the composition of releases over the same records, which costs less than the sum of their
    epsilons. Under collusion it counts every attempt of each query that may have a total. Lower bounds are given where
    one is known: for counts.
    """
    from dpcore.errors import ConfigurationError
    from learner.composition import composed_privacy, sentences
    from learner.release import Release
    from radobase.options import exact

    if feature is not None and column is not None:
        raise ConfigurationError("give --feature or --column, not both")
    budget = exact(delta, "--delta")
    loaded = [Release.load(each) for each in releases]
    cost = composed_privacy(loaded, budget, feature=feature, column=column)
    what = "one record"
    if feature is not None:
        what = f"one record's value of {feature!r}, within that coordinate's own values where a release bounds no more,"
    elif column is not None:
        what = f"one record's value in the column {column!r}"
    data = {
        "releases": len(releases),
        "attempts": sum(release.attempts for release in loaded),
        "scope": cost.scope,
        "unit": what.split(",", maxsplit=1)[0],
        "epsilon": cost.epsilon,
        "epsilon_lower": cost.epsilon_lower,
        "epsilon_if_others_collude": cost.epsilon_if_others_collude,
        "delta": cost.delta,
    }
    return Result(data, in_lines(sentences(cost, loaded, what)))
