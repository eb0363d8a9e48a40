"""Error against epsilon: a simulation repeated for several budgets, as curves and as a picture."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError, RadofedError
from dpcore.estimators.additive import STRAIGHT
from radobase.options import exact
from radobase.presentation.svg import SORTS, Plot, Scale, check_picture, write_picture
from radobase.presentation.words import counted
from radobase.printing import amount
from radofed.simulation.results import SimulationResult, Summary

USUAL_EPSILONS = "0.1,0.3,1,3"
MOST_EPSILONS = 30

_FEDERATED = ("rados", "moments", "answers")
_PERCENT = 100


@dataclass(frozen=True)
class ErrorCurves:
    """Results for several epsilons, ascending, of one table, estimators, folds and seed.

    left_out: the epsilons that could not be simulated, each with the reason.
    """

    results: Mapping[Fraction, SimulationResult]
    left_out: Mapping[Fraction, str]

    @property
    def curves(self) -> dict[str, list[tuple[float, Summary]]]:
        """(epsilon, summary) for each estimator that learns from the federation's answers or releases."""
        found: dict[str, list[tuple[float, Summary]]] = {}
        for epsilon, result in self.results.items():
            for summary in result.summaries:
                if summary.sees in _FEDERATED:
                    found.setdefault(summary.learner, []).append((float(epsilon), summary))
        return found

    @property
    def compared(self) -> tuple[Summary, ...]:
        """Those that see the pooled rows or labels: the same for every epsilon."""
        (*_, last) = self.results.values()
        return tuple(each for each in last.summaries if each.sees not in _FEDERATED)

    @property
    def notes(self) -> list[str]:
        """At which epsilons, and in how many folds, an estimator of curves has a straight model."""
        return [
            f"epsilon {epsilon}: {name}, in {count} of {result.folds} folds: {STRAIGHT}"
            for epsilon, result in self.results.items()
            for name, count in Counter(
                row.learner for row in result.rows if (row.warning or "").startswith(STRAIGHT)
            ).items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        curves = {
            name: [
                {
                    "epsilon": epsilon,
                    "test_error_mean": each.test_error_mean,
                    "test_error_std": each.test_error_std,
                    "auc_mean": each.auc_mean,
                }
                for epsilon, each in points
            ]
            for name, points in self.curves.items()
        }
        return {
            "curves": curves,
            "left_out": {str(epsilon): reason for epsilon, reason in self.left_out.items()},
            "picture_notes": self.notes,
        }


def epsilons_of(text: str) -> list[Fraction]:
    """The exact epsilons of a text such as "0.1,1", ascending, each once. Raises ConfigurationError."""
    found = sorted({exact(each.strip(), "--epsilons") for each in text.split(",")})
    if found[0] <= 0:
        raise ConfigurationError(f"--epsilons {text!r}: give positive numbers")
    if len(found) > MOST_EPSILONS:
        raise ConfigurationError(f"there are {len(found)} epsilons: give at most {MOST_EPSILONS}")
    return found


def error_curves(
    simulated: Callable[[Fraction], SimulationResult], epsilons: Sequence[Fraction], *, first: Fraction
) -> ErrorCurves:
    """Simulate at every epsilon. simulated: the result at one; first: the epsilon that must be possible.

    Raises what `simulated` raises at `first`; another epsilon that raises an error of this project's is left out.
    """
    results, left_out = {first: simulated(first)}, {}
    for epsilon in epsilons:
        if epsilon == first:
            continue
        try:
            results[epsilon] = simulated(epsilon)
        except RadofedError as error:
            left_out[epsilon] = str(error)
    return ErrorCurves(dict(sorted(results.items())), left_out)


def draw_curves(found: ErrorCurves, file: Path) -> None:
    """Write the picture, an SVG: the mean error of the folds, and one standard error to either side.

    Raises ConfigurationError as `check_picture` does.
    """
    check_picture(file)
    (*_, result) = found.results.values()
    curves = {
        name: [
            (epsilon, _PERCENT * each.test_error_mean, _PERCENT * each.test_error_std / math.sqrt(result.folds))
            for epsilon, each in points
        ]
        for name, points in found.curves.items()
    }
    levels = {f"{each.learner} (sees {each.sees})": _PERCENT * each.test_error_mean for each in found.compared}
    ends = [end for points in curves.values() for _, mean, error in points for end in (mean - error, mean + error)]
    plot = Plot(
        "",
        "Test error against epsilon",
        "",
        Scale.over((epsilon for points in curves.values() for epsilon, *_ in points), is_log=True),
        Scale.over([*ends, *levels.values()]),
        heading="test error, %",
        label="epsilon of each estimator",
        width=640,
        height=380,
    )
    for sort, points in enumerate(curves.values()):
        plot.line([(epsilon, mean) for epsilon, mean, _ in points], sort, marks=True)
        for epsilon, mean, error in points:
            plot.whisker(epsilon, mean - error, mean + error, sort)
    kinds = ("zero", "chosen", "grid")
    for place, level in enumerate(levels.values()):
        plot.level(level, kinds[place % len(kinds)])
    plot.legend(
        [
            *((f"line s{sort % SORTS}", name) for sort, name in enumerate(curves)),
            *((kinds[place % len(kinds)], name) for place, name in enumerate(levels)),
        ]
    )
    title = (
        f"{counted(result.table_rows, 'row')}, {amount(result.federation.parties, 'party')}, "
        f"{amount(result.folds, 'fold')}, seed {result.seed}; mean and one standard error"
    )
    write_picture(title, [plot], file)
