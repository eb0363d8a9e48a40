"""`rado simulate`: measure designs and estimators on a table, over a simulated federation."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpcore.declared import first_changed, values_of
from radobase.options import named_options
from radobase.printing import in_lines
from radofed.cli.framework import check_directory, check_new
from radofed.cli.output import Output, Result
from radofed.cli.party_rehearse import rehearsed_result
from radofed.simulation.simulate_options import EpochFields, SimulateOptions, SimulationFields

if TYPE_CHECKING:
    from radofed.simulation.results import SimulationResult


def simulate(output: Output, options: SimulateOptions) -> Result:
    """Measure estimators over a simulated federation, by cross-validation.

    Prints the figures at --epsilon. --picture shows how they change with it. With --epochs rows arrive over time.
    """
    picture, per_fold = options.picture, options.per_fold
    if options.attack:
        return _attacked(output, options)
    if per_fold is not None:
        check_new(per_fold)
        check_directory(per_fold)
    drawn = _drawn(options)
    if options.epochs is not None or options.forgetting is not None:
        return _over_epochs(output, options)
    from radofed.simulation.entry import simulate as run_simulate

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


def _attacked(output: Output, options: SimulateOptions) -> Result:
    from radobase.presentation.svg import check_picture
    from radofed.simulation.attacks import attacked

    if options.picture is not None:
        check_new(options.picture)
        check_picture(options.picture)
    return rehearsed_result(attacked(options, output.note), options.picture)


def _over_epochs(output: Output, options: SimulateOptions) -> Result:
    """The simulation with --epochs. Raises ConfigurationError for options of folds."""
    from dpcore.errors import ConfigurationError
    from radofed.simulation.over_epochs import simulate_over_epochs

    if odd := first_changed(options, ("map_file", "picture", "per_fold")):
        raise ConfigurationError(f"with --epochs models are tested on the next epoch: leave {odd} out")
    result = simulate_over_epochs(
        options.data,
        options,
        EpochFields(epochs=options.epochs, forgetting=options.forgetting),
        schema=options.schema,
        estimators=",".join(options.estimator) or None,
        parameters=named_options(options.option),
        note=output.note,
    )
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
