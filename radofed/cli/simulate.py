"""`rado simulate`: measure designs and estimators on a table, over a simulated federation."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radobase.options import exact, named_options
from radobase.printing import in_lines
from radofed.cli.arguments import (
    EpsilonPerRado,
    KeyBits,
    LabelColumn,
    MapFile,
    Positive,
    Rounded,
    Support,
)
from radofed.cli.framework import check_directory, check_new, command
from radofed.cli.output import Output, Result

if TYPE_CHECKING:
    from radofed.simulation.results import SimulationResult

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)


def add_to(app: typer.Typer) -> None:
    """Make `simulate` a command of a group."""
    command(app, "simulate")(simulate)


# The options of `simulate`.
_Data = Annotated[Path, typer.Option(help="A CSV (also gzipped) or Parquet file.", show_default=False)]
_Parties = Annotated[int, typer.Option(help="Number of parties, 2 to 1,000.", show_default=False)]
_Schema = Annotated[Path | None, typer.Option(help="A schema file. Default: inferred from the table, not privately.")]
_Partition = Annotated[
    str, typer.Option(help="How rows are split over parties: iid, size-skew, label-skew or by-column:NAME.")
]
_Design = Annotated[
    str | None,
    typer.Option(help="Design of the release: plain, dp-feat, fixed-support, gaussian or moments. Default: plain."),
]
_Rados = Annotated[int | None, typer.Option(help="Number of rados. Default: min(1000, m/2) for m rows.")]
_Sensitive = Annotated[list[str] | None, typer.Option(help="dp-feat: a feature to protect; repeatable.")]
_Joint = Annotated[bool, typer.Option("--joint", help="dp-feat: protect its column in the whole release.")]
_Epsilon = Annotated[
    str | None,
    typer.Option(help="Total epsilon of a release, and of each estimator that queries; exact."),
]
_Delta = Annotated[str, typer.Option(help="The delta of epsilon, exact; may be 0 if all estimators query.")]
_Split = Annotated[str, typer.Option(help="local: each party draws; exact: one draw over the pool.")]
_NormBound = Annotated[str | None, typer.Option(help="The clipping norm R of records; exact. Default: by the schema.")]
_Estimator = Annotated[
    list[str] | None,
    typer.Option(
        help="A name of `rado learner train`, or adaboost; repeatable, or several with commas. Default: newton at "
        "--epsilon 1; mean-variance if options describe a release."
    ),
]
_Rounds = Annotated[
    int | None, typer.Option(help="Rounds of estimators that query in rounds. Default: the estimator's.")
]
_Option = Annotated[list[str] | None, typer.Option(help="An option of the only estimator, NAME=VALUE; repeatable.")]
_Folds = Annotated[int, typer.Option(help="Number of stratified folds.")]
_Seed = Annotated[int, typer.Option(help="Seed of folds, partition and draws.")]
_Encrypt = Annotated[bool, typer.Option("--encrypt", help="Encrypt and mask. Changes no figure.")]
_Workers = Annotated[
    int | None,
    typer.Option(help="Ray workers that share the parties; 0: this process alone. Default: one for each CPU."),
]
_TimeoutS = Annotated[float, typer.Option(help="Longest wait for a worker, in seconds.")]
_HoldBack = Annotated[
    str | None,
    typer.Option(
        help="Share of its rows that each party holds back; exact. Estimators learn from the others, and a query "
        "evaluates each on these."
    ),
]
_EvaluationEpsilon = Annotated[
    str | None, typer.Option(help="Epsilon of each evaluation on rows that are held back; exact. Default: --epsilon.")
]
_Picture = Annotated[
    Path | None,
    typer.Option(
        help="Repeat the simulation for every one of --epsilons, and draw error against epsilon into this new PNG or "
        "SVG file."
    ),
]
_Epsilons = Annotated[
    str | None, typer.Option(help="With --picture: the epsilons, exact, E1,E2,... Default: 0.1,0.3,1,3.")
]
_PerFold = Annotated[Path | None, typer.Option(help="Write a row for each fold and estimator to this Parquet file.")]


def simulate(
    output: Output,
    data: _Data,
    parties: _Parties,
    label: LabelColumn = None,
    positive: Positive = None,
    schema: _Schema = None,
    partition: _Partition = "iid",
    design: _Design = None,
    rados: _Rados = None,
    sensitive: _Sensitive = None,
    rounded: Rounded = None,
    joint: _Joint = False,
    epsilon: _Epsilon = None,
    delta: _Delta = "1e-6",
    epsilon_per_rado: EpsilonPerRado = None,
    split: _Split = "local",
    norm_bound: _NormBound = None,
    support: Support = None,
    map_file: MapFile = None,
    estimator: _Estimator = None,
    rounds: _Rounds = None,
    option: _Option = None,
    folds: _Folds = 10,
    seed: _Seed = 0,
    encrypt: _Encrypt = False,
    key_bits: KeyBits = 3072,
    workers: _Workers = None,
    timeout_s: _TimeoutS = 3600.0,
    hold_back: _HoldBack = None,
    evaluation_epsilon: _EvaluationEpsilon = None,
    picture: _Picture = None,
    epsilons: _Epsilons = None,
    per_fold: _PerFold = None,
) -> Result:
    """Measure estimators over a simulated federation, by cross-validation.

    Prints the figures at --epsilon. --picture shows how they change with it.
    """
    from radofed.simulation.limits import check_parties

    check_parties(parties)
    if per_fold is not None:
        check_new(per_fold)
        check_directory(per_fold)
    drawn = _drawn(picture, epsilon, epsilons)
    from radofed.simulation.run import simulate as run_simulate

    simulated = partial(
        run_simulate,
        data,
        label=label,
        positive=positive or None,
        schema=schema,
        parties=parties,
        partition=partition,
        design=design,
        rados=rados,
        sensitive=tuple(sensitive or ()),
        rounded=tuple(rounded or ()),
        joint=joint,
        delta=delta,
        epsilon_per_rado=epsilon_per_rado,
        split=split,
        norm_bound=norm_bound,
        support=support,
        feature_map=map_file,
        estimators=",".join(estimator or ()) or None,
        rounds=rounds,
        options=named_options(option or ()),
        folds=folds,
        seed=seed,
        encrypt=encrypt,
        key_bits=key_bits,
        workers=workers,
        timeout_s=timeout_s,
        hold_back=hold_back,
        evaluation_epsilon=evaluation_epsilon,
        note=output.note,
    )
    if picture is None or drawn is None:
        return _result(simulated(epsilon=epsilon), per_fold)
    return _with_picture(simulated, *drawn, picture, per_fold)


def _drawn(picture: Path | None, epsilon: str | None, epsilons: str | None) -> "tuple[Fraction, list[Fraction]] | None":
    """The epsilon that is printed and all that are drawn; None without a picture. Raises ConfigurationError."""
    from dpcore.errors import ConfigurationError

    if picture is None:
        if epsilons is not None:
            raise ConfigurationError("--epsilons are drawn in a --picture: give its file, or leave them out")
        return None
    from radobase.presentation.svg import check_picture
    from radofed.simulation.picture import USUAL_EPSILONS, epsilons_of

    check_new(picture)
    check_picture(picture)
    if epsilon is None:
        raise ConfigurationError("a picture is of error against epsilon: give the --epsilon whose figures are printed")
    return exact(epsilon, "epsilon"), epsilons_of(USUAL_EPSILONS if epsilons is None else epsilons)


def _with_picture(
    simulated: "Callable[..., SimulationResult]",
    epsilon: "Fraction",
    epsilons: "list[Fraction]",
    picture: Path,
    per_fold: Path | None,
) -> Result:
    from radofed.simulation.picture import draw_curves, error_curves

    found = error_curves(lambda each: simulated(epsilon=each), epsilons, first=epsilon)
    draw_curves(found, picture)
    result = _result(found.results[epsilon], per_fold)
    left_out = [f"epsilon {each} is not in the picture: {reason}" for each, reason in found.left_out.items()]
    text = in_lines(
        [*found.results[epsilon].sentences(), *left_out, *found.notes, f"{picture}: test error against epsilon"]
    )
    return Result({**result.data, "picture": picture, **found.to_dict()}, text)


def _result(result: "SimulationResult", per_fold: Path | None) -> Result:
    if per_fold is not None:
        result.write_rows(per_fold)
    return Result({**result.to_dict(), "per_fold": per_fold}, in_lines(result.sentences()))
