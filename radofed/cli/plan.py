"""`rado plan`: the cost of a query, before it is sent."""

from pathlib import Path
from typing import Annotated

import typer

from radobase.failure import EXIT_FAILED
from radobase.printing import in_lines
from radofed.cli.arguments import (
    EdgeWeight,
    EpsilonPerRado,
    FractionBits,
    KeyBits,
    MapFile,
    Rados,
    Rounded,
    Support,
)
from radofed.cli.framework import check_new, command
from radofed.cli.output import Output, Result

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)


def add_to(app: typer.Typer) -> None:
    """Make `plan` a command of a group."""
    command(app, "plan")(plan)


# The options of `plan`.
_Rows = Annotated[int | None, typer.Option(help="Rows of all parties, split equally over --parties.")]
_Parties = Annotated[int | None, typer.Option(help="With --rows: number of parties; 1 is a pool, for accounting only.")]
_PartyRows = Annotated[str | None, typer.Option(help="Instead of --rows: each party's rows, M1,M2,...")]
_Epsilon = Annotated[
    str | None,
    typer.Option(
        help="Limit of the total epsilon. For noise: it is calibrated to it, if other parties collude. Required for "
        "--estimator and --statistic."
    ),
]
_Worth = Annotated[
    float | None,
    typer.Option(
        help="Instead of --epsilon: find the one, up to 10, below which no released number is as exact as one without "
        "noise over this many rows; for rados, over this many rados. More is needed where values vary less than they "
        "could."
    ),
]
_Delta = Annotated[str, typer.Option(help="The delta of every epsilon; 0 allows Laplace noise only, for statistics.")]
_Joint = Annotated[bool, typer.Option("--joint", help="dp-feat: protect a whole source column, by noise.")]
_Source = Annotated[str, typer.Option(help="With --joint: the column's type, boolean, numeric or category.")]
_ShareSd = Annotated[
    int | None,
    typer.Option(help="Instead of --epsilon: standard deviation of each party's noise, in integer units."),
]
_Honest = Annotated[
    int | None,
    typer.Option(
        help="Number of parties whose noise counts under collusion. Default: those of the smallest cohort of a "
        "query that are not assumed to collude."
    ),
]
_NormBound = Annotated[
    str | None, typer.Option(help="The clipping norm R of records. Default: that of real-valued features.")
]
_NoBias = Annotated[bool, typer.Option("--no-bias", help="Records have no constant coordinate.")]
_Split = Annotated[str, typer.Option(help="local: each party truncates; exact: the pool does, in simulation only.")]
_Coordinates = Annotated[
    int | None,
    typer.Option(help="Coordinates of a row, for noise, bytes and seconds. Default: leave bytes and seconds out."),
]
_Picture = Annotated[
    Path | None, typer.Option(help="Draw epsilon against n, and error against epsilon, into this new SVG file.")
]
_Design = Annotated[
    str | None,
    typer.Option(help="plain, dp-feat, fixed-support, gaussian or moments.", show_default="dp-feat"),
]
_Schema = Annotated[
    Path | None,
    typer.Option(help="The schema that the parties share: it says coordinates, clipping norm and names."),
]
_Sensitive = Annotated[
    list[str] | None,
    typer.Option(help="With --schema, dp-feat: a sensitive feature; with --joint a source column; repeatable."),
]
_Estimator = Annotated[
    str | None, typer.Option(help="Plan what this estimator asks, instead of a design: a name of `rado learner train`.")
]
_Option = Annotated[list[str] | None, typer.Option(help="An option of the estimator, NAME=VALUE; repeatable.")]
_Rounds = Annotated[int | None, typer.Option(help="Number of rounds of the estimator. Default: the estimator's.")]
_Statistic = Annotated[
    list[str] | None,
    typer.Option(help="Plan a statistic, a predicate as of `rado learner statistic`; several make one batch."),
]
_Tolerance = Annotated[
    float | None,
    typer.Option(help="With --statistic: the largest tolerance allowed. Without --epsilon, the smallest one is found."),
]
_Confidence = Annotated[float, typer.Option(help="With --statistic: confidence of all tolerances together.")]
_NoiseRate = Annotated[float, typer.Option(help="With --statistic: known rate of flipped labels.")]


def plan(
    _output: Output,
    rados: Rados = None,
    design: _Design = None,
    estimator: _Estimator = None,
    option: _Option = None,
    rounds: _Rounds = None,
    statistic: _Statistic = None,
    rows: _Rows = None,
    parties: _Parties = None,
    party_rows: _PartyRows = None,
    schema: _Schema = None,
    sensitive: _Sensitive = None,
    rounded: Rounded = None,
    epsilon_per_rado: EpsilonPerRado = None,
    epsilon: _Epsilon = None,
    worth: _Worth = None,
    delta: _Delta = "1e-6",
    joint: _Joint = False,
    source: _Source = ("boolean"),
    share_sd: _ShareSd = None,
    honest: _Honest = None,
    norm_bound: _NormBound = None,
    support: Support = None,
    edge_weight: EdgeWeight = None,
    map_file: MapFile = None,
    no_bias: _NoBias = False,
    fraction_bits: FractionBits = None,
    split: _Split = "local",
    coordinates: _Coordinates = None,
    tolerance: _Tolerance = None,
    confidence: _Confidence = 0.95,
    noise_rate: _NoiseRate = 0.0,
    key_bits: KeyBits = 3072,
    picture: _Picture = None,
) -> Result:
    """Compute the cost of a query before it is sent.

    Plans a design, or with --estimator what an estimator asks, or with --statistic a batch of statistics. Prints
    privacy, noise, bytes and seconds; contacts no one. If a query is not possible, the exit code is 1 and the plan says
    what is. A warning says so if the noise exceeds the signal. Epsilons and deltas are exact decimals or fractions.
    Plans backwards, too: --worth, or --tolerance without --epsilon, finds the epsilon that an accuracy needs.
    """
    given = dict(locals())
    from radobase.presentation.svg import check_picture
    from radofed.planning.cost import Cost
    from radofed.planning.options import cost_of, request_of
    from radofed.planning.picture import draw_plan

    request = request_of(given)
    if picture is not None:
        check_new(picture)
        check_picture(picture)
    found = cost_of(request, given)
    if picture is not None:
        assert isinstance(found.cost, Cost), "--picture is of a design"
        draw_plan(found.cost, picture)
    text = in_lines(found.sentences())
    return Result(found.to_dict(), text, exit_code=0 if found.cost.feasible else EXIT_FAILED)
