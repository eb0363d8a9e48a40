"""`rado plan`: the cost of a query, before it is sent."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radofed.cli.arguments import (
    EdgeWeight,
    EpsilonPerRado,
    FractionBits,
    KeyBits,
    Rados,
    Rounded,
    Support,
    exact,
    exact_or_none,
    named_option,
)
from radofed.cli.framework import check_new, command
from radofed.cli.output import Output, Result
from radofed.common.failure import EXIT_FAILED

if TYPE_CHECKING:
    from dpcore.records.schema import Schema
    from radofed.planning import Cost
    from radofed.planning.asked_cost import AskedCost

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
    Path | None, typer.Option(help="Draw epsilon against n, and error against epsilon, into this new PNG file.")
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
_Tolerance = Annotated[float | None, typer.Option(help="With --statistic: the largest tolerance allowed.")]
_Confidence = Annotated[float, typer.Option(help="With --statistic: confidence of all tolerances together.")]
_NoiseRate = Annotated[float, typer.Option(help="With --statistic: known rate of flipped labels.")]

# The options that only one of the three plans takes, by the parameters of `plan`, with what they are if not given.
_ONLY: dict[str, dict[str, Any]] = {
    "a design": {
        "rados": None, "design": None, "epsilon_per_rado": None, "joint": False, "source": "boolean", "share_sd": None,
        "norm_bound": None, "support": None, "edge_weight": None, "fraction_bits": None, "split": "local",
        "sensitive": None, "rounded": None, "picture": None,
    },
    "an --estimator": {"option": None, "rounds": None},
    "a --statistic": {"tolerance": None, "confidence": 0.95, "noise_rate": 0.0},
}  # fmt: skip


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
    """
    given = dict(locals())
    from dpcore.errors import ConfigurationError
    from radofed.common.files.schemas import load_schema

    shared = None if schema is None else load_schema(schema)
    held = _party_rows(rows, parties, party_rows)
    if estimator is not None and statistic:
        raise ConfigurationError("give either an --estimator or a --statistic: they are planned separately")
    planned = "an --estimator" if estimator is not None else "a --statistic" if statistic else "a design"
    for what, options in _ONLY.items():
        for name, usual in options.items():
            if what != planned and given[name] and given[name] != usual:
                raise ConfigurationError(
                    f"--{name.replace('_', '-')} is of {what}, and {planned} is planned: leave it out"
                )
    return (_planned_design if planned == "a design" else _planned_asking)(given, shared, held)


def _planned_design(given: dict[str, Any], schema: "Schema | None", held: tuple[int, ...]) -> Result:
    from radofed.planning import PlanRequest, plan_cost
    from radofed.planning.picture import check_picture, draw_plan

    same = ("rados", "joint", "source", "share_sd", "honest", "fraction_bits", "split", "coordinates", "key_bits")
    figures = ("epsilon_per_rado", "epsilon", "norm_bound", "support", "edge_weight")
    fields: dict[str, Any] = {
        **{name: given[name] for name in same},
        **{name: exact_or_none(given[name], name.replace("_", "-")) for name in figures},
        "design": given["design"] or "dp-feat",
        "party_rows": held,
        "delta": exact(given["delta"], "delta"),
        "bias": not given["no_bias"],
        "sensitive": tuple(given["sensitive"] or ()),
        "rounded": tuple(given["rounded"] or ()),
    }
    # The request checks the words of design, split and source.
    request = PlanRequest(**fields) if schema is None else PlanRequest.over(schema, **fields)
    picture: Path | None = given["picture"]
    if picture is not None:
        check_new(picture)
        check_picture(picture)
    cost = plan_cost(request)
    if picture is not None:
        draw_plan(cost, picture)
    return _result(cost)


def _planned_asking(given: dict[str, Any], schema: "Schema | None", held: tuple[int, ...]) -> Result:
    from dpcore.errors import ConfigurationError
    from radofed.planning.asked_cost import ask_cost
    from radofed.planning.asking import AskRequest, made_up_schema

    if schema is None:
        if given["coordinates"] is None or given["statistic"]:
            raise ConfigurationError(
                "what is asked depends on the schema: give --schema, or for an estimator of numbers their --coordinates"
            )
        schema = made_up_schema(given["coordinates"], bias=not given["no_bias"])
    elif given["coordinates"] is not None or given["no_bias"]:
        raise ConfigurationError("the schema says what the coordinates are: leave --coordinates and --no-bias out")
    if given["epsilon"] is None:
        raise ConfigurationError("answers have noise: give the --epsilon of all answers in total")
    options = dict(named_option(text) for text in given["option"] or ())
    if given["rounds"] is not None:
        options["rounds"] = given["rounds"]
    request = AskRequest(
        party_rows=held,
        schema=schema,
        epsilon=exact(given["epsilon"], "epsilon"),
        delta=exact(given["delta"], "delta"),
        estimator=given["estimator"],
        options=options,
        predicates=tuple(given["statistic"] or ()),
        tolerance=given["tolerance"],
        confidence=given["confidence"],
        noise_rate=given["noise_rate"],
        honest=given["honest"],
        key_bits=given["key_bits"],
    )
    return _result(ask_cost(request))


def _result(cost: "Cost | AskedCost") -> Result:
    """What was planned; the exit code is that of a failure if it is not possible."""
    return Result(cost.to_dict(), "\n".join(cost.sentences()), exit_code=0 if cost.feasible else EXIT_FAILED)


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
