"""`rado plan`: what a query would cost, before anybody is asked."""

import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated, cast

import typer

from radofed.cli.framework import check_new, command
from radofed.cli.output import Output, Result

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help comes at once)


def add_to(app: typer.Typer) -> None:
    """Make `plan` a command of a group."""
    command(app, "plan")(plan)


def plan(
    _output: Output,
    rados: Annotated[
        int | None,
        typer.Option(help="How many rados. Moments take none, dp-feat by default as many as --epsilon allows."),
    ] = None,
    design: Annotated[str, typer.Option(help="plain, dp-feat, fixed-support, gaussian or moments.")] = "dp-feat",
    rows: Annotated[int | None, typer.Option(help="Rows of all parties, split as equally as can be.")] = None,
    parties: Annotated[
        int | None, typer.Option(help="With --rows: how many parties; 1 is a pool, for accounting only.")
    ] = None,
    party_rows: Annotated[str | None, typer.Option(help="Each party's rows instead, as M1,M2,...")] = None,
    epsilon_per_rado: Annotated[
        str | None, typer.Option(help="dp-feat: Algorithm 2's epsilon, an exact decimal; by default no truncation.")
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="A total to stay within, an exact decimal; noise is calibrated to it.")
    ] = None,
    delta: Annotated[str, typer.Option(help="What epsilon is counted at, an exact decimal.")] = "1e-6",
    joint: Annotated[bool, typer.Option("--joint", help="dp-feat: protect a whole source column, by noise.")] = False,
    source: Annotated[str, typer.Option(help="--joint: the sensitive column is boolean, numeric or category.")] = (
        "boolean"
    ),
    share_sd: Annotated[
        int | None,
        typer.Option(help="Instead of --epsilon: the standard deviation of a party's noise, in integer units."),
    ] = None,
    honest: Annotated[
        int | None, typer.Option(help="Parties whose noise counts under collusion; by default as a query would.")
    ] = None,
    norm_bound: Annotated[
        str | None, typer.Option(help="Records are clipped to this length; by default as for real-valued features.")
    ] = None,
    support: Annotated[
        str | None, typer.Option(help="gaussian, fixed-support: the part of its rows that a party draws.")
    ] = None,
    edge_weight: Annotated[
        str | None, typer.Option(help="moments: how much more precise edges are than products.")
    ] = None,
    no_bias: Annotated[bool, typer.Option("--no-bias", help="Records have no constant coordinate.")] = False,
    fraction_bits: Annotated[int | None, typer.Option(help="Of an edge's coordinate.")] = None,
    split: Annotated[str, typer.Option(help="local: each party truncates; exact: the pool, in simulation.")] = "local",
    coordinates: Annotated[
        int | None, typer.Option(help="Coordinates of a row; for noise on all of them, for bytes and for seconds.")
    ] = None,
    key_bits: Annotated[int, typer.Option(help="Size of the Paillier modulus.")] = 3072,
    picture: Annotated[
        Path | None, typer.Option(help="Draw epsilon against n, and error against epsilon, to this new PNG.")
    ] = None,
) -> Result:
    """Say what a query would cost, before anyone is asked. A plan that cannot be asked says what would work."""
    from radofed.planning import PlannedDesign, PlanRequest, Source, Split, plan_cost
    from radofed.planning.picture import check_picture, draw_plan

    request = PlanRequest(
        design=cast("PlannedDesign", design),  # the request refuses any other word, and so for split and source
        party_rows=_party_rows(rows, parties, party_rows),
        rados=rados,
        joint=joint,
        source=cast("Source", source),
        epsilon_per_rado=_optional(epsilon_per_rado, "epsilon-per-rado"),
        epsilon=_optional(epsilon, "epsilon"),
        share_sd=share_sd,
        delta=_exact(delta, "delta"),
        honest=honest,
        norm_bound=_optional(norm_bound, "norm-bound"),
        support=_optional(support, "support"),
        edge_weight=_optional(edge_weight, "edge-weight"),
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
            raise ConfigurationError("--rows needs --parties: say over how many the rows are split")
        return split_equally(rows, parties)
    if not re.fullmatch(r"[0-9]{1,18}(,[0-9]{1,18})*", party_rows):
        raise ConfigurationError(f"--party-rows {party_rows!r}: write each party's rows, such as 1200,900,400")
    stated = tuple(int(text) for text in party_rows.split(","))
    if parties not in (None, len(stated)):
        raise ConfigurationError(f"--party-rows has {len(stated)} parties and --parties says {parties}: leave one out")
    return stated


def _optional(text: str | None, option: str) -> Fraction | None:
    return None if text is None else _exact(text, option)


def _exact(text: str, option: str) -> Fraction:
    from radofed.cli.arguments import exact

    return exact(text, option)
