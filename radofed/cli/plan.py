"""`rado plan`: the cost of a query, before it is sent."""

import re
from pathlib import Path
from typing import Annotated, cast

import typer

from radofed.cli.arguments import (
    Design,
    EdgeWeight,
    EpsilonPerRado,
    FractionBits,
    KeyBits,
    Rados,
    Support,
    exact,
    exact_or_none,
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
        help="Limit of the total epsilon. For designs with noise: the noise is calibrated to it, if other parties "
        "collude."
    ),
]
_Delta = Annotated[str, typer.Option(help="The delta of every epsilon.")]
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
    Path | None, typer.Option(help="Draw epsilon against n, and error against epsilon, into this new PNG file.")
]


def plan(
    _output: Output,
    rados: Rados = None,
    design: Design = "dp-feat",
    rows: _Rows = None,
    parties: _Parties = None,
    party_rows: _PartyRows = None,
    epsilon_per_rado: EpsilonPerRado = None,
    epsilon: _Epsilon = None,
    delta: _Delta = "1e-6",
    joint: _Joint = False,
    source: _Source = ("boolean"),
    share_sd: _ShareSd = None,
    honest: _Honest = None,
    norm_bound: _NormBound = None,
    support: Support = None,
    edge_weight: EdgeWeight = None,
    no_bias: _NoBias = False,
    fraction_bits: FractionBits = None,
    split: _Split = "local",
    coordinates: _Coordinates = None,
    key_bits: KeyBits = 3072,
    picture: _Picture = None,
) -> Result:
    """Compute the cost of a query before it is sent.

    Prints privacy, bytes and seconds; contacts no one. If a query is not possible, the error says what is. Epsilons
    and deltas are exact decimals or fractions.
    """
    from radofed.planning import PlannedDesign, PlanRequest, Source, Split, plan_cost
    from radofed.planning.picture import check_picture, draw_plan

    request = PlanRequest(
        design=cast("PlannedDesign", design),  # the request checks the word, also for split and source
        party_rows=_party_rows(rows, parties, party_rows),
        rados=rados,
        joint=joint,
        source=cast("Source", source),
        epsilon_per_rado=exact_or_none(epsilon_per_rado, "epsilon-per-rado"),
        epsilon=exact_or_none(epsilon, "epsilon"),
        share_sd=share_sd,
        delta=exact(delta, "delta"),
        honest=honest,
        norm_bound=exact_or_none(norm_bound, "norm-bound"),
        support=exact_or_none(support, "support"),
        edge_weight=exact_or_none(edge_weight, "edge-weight"),
        bias=not no_bias,
        fraction_bits=fraction_bits,
        split=cast("Split", split),
        coordinates=coordinates,
        key_bits=key_bits,
    )
    if picture is not None:
        check_new(picture)
        check_picture(picture)
    cost = plan_cost(request)
    if picture is not None:
        draw_plan(cost, picture)
    return Result(cost.to_dict(), "\n".join(cost.sentences()))


def _party_rows(rows: int | None, parties: int | None, party_rows: str | None) -> tuple[int, ...]:
    from dpcore.errors import ConfigurationError
    from radofed.planning import split_equally

    if (rows is None) == (party_rows is None):
        raise ConfigurationError("give either --rows with --parties, or --party-rows M1,M2,...")
    if party_rows is None:
        if rows is None or parties is None:
            raise ConfigurationError("--rows needs --parties, the number of parties that share the rows")
        return split_equally(rows, parties)
    if not re.fullmatch(r"[0-9]{1,18}(,[0-9]{1,18})*", party_rows):
        raise ConfigurationError(f"--party-rows {party_rows!r}: write each party's rows, such as 1200,900,400")
    stated = tuple(int(text) for text in party_rows.split(","))
    if parties not in (None, len(stated)):
        raise ConfigurationError(f"--party-rows has {len(stated)} parties and --parties says {parties}: leave one out")
    return stated
