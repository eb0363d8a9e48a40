"""`rado plan`: the cost of a query, before it is sent."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpcore.declared import first_changed, values_of
from radobase.failure import EXIT_FAILED
from radobase.options import named_options
from radobase.printing import in_lines
from radofed.cli.framework import check_directory, check_new
from radofed.cli.output import Output, Result
from radofed.demo.options import DemoCommandOptions, DemoFields, DemoOptions
from radofed.planning.plan_options import PlanOptions
from radofed.simulation.simulate_options import SimulateOptions, SimulationFields

if TYPE_CHECKING:
    from dpcore.records.schema import Schema
    from radofed.simulation.results import SimulationResult


def plan(_output: Output, options: PlanOptions) -> Result:
    """Compute the cost of a query before it is sent.

    Plans a design, or with --estimator what an estimator asks, or with --statistic a batch of statistics. Prints
    privacy, noise, bytes and seconds; contacts no one. If a query is not possible, the exit code is 1 and the plan says
    what is.

    A warning says so if the noise exceeds the signal. Epsilons and deltas are exact decimals or fractions. --worth, or
    --tolerance without --epsilon, finds the epsilon that an accuracy needs.
    """
    from radobase.presentation.svg import check_picture
    from radofed.planning.design_cost import Cost
    from radofed.planning.from_options import cost_of, request_of
    from radofed.planning.picture import draw_plan

    request, picture = request_of(options), options.picture
    if picture is not None:
        check_new(picture)
        check_picture(picture)
    found = cost_of(request, options)
    if picture is not None:
        assert isinstance(found.cost, Cost), "--picture is of a design"
        draw_plan(found.cost, picture)
    text = in_lines(found.sentences())
    return Result(found.to_dict(), text, exit_code=0 if found.cost.feasible else EXIT_FAILED)


# `rado simulate`: measure designs and estimators on a table, over a simulated federation.


def simulate(output: Output, options: SimulateOptions) -> Result:
    """Measure estimators over a simulated federation, by cross-validation.

    Prints the figures at --epsilon. --picture shows how they change with it. With --epochs rows arrive over time.
    """
    picture, per_fold = options.picture, options.per_fold
    if per_fold is not None:
        check_new(per_fold)
        check_directory(per_fold)
    drawn = _drawn(options)
    if options.epochs is not None:
        return _over_epochs(output, options)
    from radofed.simulation.run import simulate as run_simulate

    simulated = partial(
        run_simulate,
        options.data,
        **values_of(options, SimulationFields),
        schema=options.schema,
        feature_map=options.map_file,
        estimators=",".join(options.estimator) or None,
        options=named_options(options.option),
        note=output.note,
    )
    if picture is None or drawn is None:
        return _result(simulated(), per_fold)
    return _with_picture(simulated, *drawn, picture, per_fold)


_OF_FOLDS = ("folds", "rounds", "hold_back", "evaluation_epsilon", "map_file", "picture", "per_fold", "split")


def _over_epochs(output: Output, options: SimulateOptions) -> Result:
    """The simulation with --epochs. Raises ConfigurationError for options of folds."""
    from dpcore.errors import ConfigurationError
    from radofed.simulation.epochs import simulate_table

    if odd := first_changed(options, _OF_FOLDS):
        raise ConfigurationError(f"with --epochs models are tested on the next epoch: leave {odd} out")
    result = simulate_table(options, named_options(options.option), output.note)
    return Result(result.to_dict(), in_lines(result.sentences()))


def _drawn(options: SimulateOptions) -> tuple[Fraction, list[Fraction]] | None:
    """The epsilon that is printed and all that are drawn; None without a picture. Raises ConfigurationError."""
    from dpcore.errors import ConfigurationError

    picture, epsilon, epsilons = options.picture, options.epsilon, options.epsilons
    if picture is None:
        if epsilons is not None:
            raise ConfigurationError("--epsilons are drawn in a --picture: give its file, or leave them out")
        return None
    from radobase.presentation.svg import check_picture
    from radofed.simulation.results import USUAL_EPSILONS, epsilons_of

    check_new(picture)
    check_picture(picture)
    if epsilon is None:
        raise ConfigurationError("a picture is of error against epsilon: give the --epsilon whose figures are printed")
    return epsilon, epsilons_of(USUAL_EPSILONS if epsilons is None else epsilons)


def _with_picture(
    simulated: "Callable[..., SimulationResult]",
    epsilon: "Fraction",
    epsilons: "list[Fraction]",
    picture: Path,
    per_fold: Path | None,
) -> Result:
    from radofed.simulation.results import draw_curves, error_curves

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


# `rado demo`: a whole federation on this machine, from keys to trained models.


def demo(output: Output, options: DemoCommandOptions) -> Result:
    """Run a whole federation on this machine.

    A coordinator, parties and a learner train models without sharing a row. The first part trains newton on synthetic
    patients and protects whole records at epsilon 1. The second trains on rados by DP-FEAT, from handwritten digits.
    With --data both parts use your own table.
    """
    if options.write_data is not None:
        return _written(options.write_data)

    from radofed.demo.run import report, run_demo

    demonstrated = DemoOptions(**values_of(options, DemoFields), schema=_schema(output, options))
    if demonstrated.keep is not None:
        demonstrated = replace(demonstrated, keep=demonstrated.keep.absolute())
    result = run_demo(demonstrated, output.note)
    return Result(result.to_dict(), report(result))


def _schema(output: Output, options: DemoCommandOptions) -> "Schema | None":
    """The schema of the user's table: its file's, or a draft, whose notes are printed; None without a table."""
    from dpcore.errors import ConfigurationError
    from parties.data.schema_draft import infer
    from radobase.schema_files import load_schema

    if options.schema is not None or options.data is None:
        if options.label is not None or options.positive:
            raise ConfigurationError("--label and --positive are for a table without a schema: leave them out")
        return None if options.schema is None else load_schema(options.schema)
    draft, notes = infer(options.data, options.label, options.positive or None)
    for note in notes:
        output.note(note)
    return draft


def _written(to: Path) -> Result:
    from radofed.demo.tables import schema, table

    check_new(to)
    check_directory(to)
    table().write(None, to)
    label = schema().label
    data = {"file": to, "label": label.column, "positive": label.positive}
    return Result(data, f"{to}: made-up patients; the label is {label.column}, positive {', '.join(label.positive)}")
