"""A plan as plots: epsilon against the number of rados, error against epsilon, and what an answer is worth."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from radobase.presentation.svg import Plot, Scale, Tick, check_picture, write_picture
from radobase.presentation.words import counted
from radobase.printing import amount
from radofed.planning.design_cost import Cost, PlanRequest
from radofed.planning.designs import bare_cost

if TYPE_CHECKING:
    from radofed.planning.from_options import Planned

# Points of a curve.
_POINTS = 13
_EPSILONS = tuple(Fraction(f) for f in ("0.1", "0.2", "0.5", "1", "2", "5", "10"))
_HEIGHT = 300


def draw_plan(cost: Cost, file: Path) -> None:
    """Write the picture of a plan, an SVG. Raises ConfigurationError as `check_picture` does."""
    check_picture(file)
    request = cost.request
    # A noised table costs the same for any number of rados, moments have no rados, and plain rados have no epsilon.
    plots = [
        *([_epsilon_plot(cost)] if request.kind_name not in ("moments", "fixed-support") else []),
        *([_error_plot(cost)] if request.design_name != "plain" else []),
    ]
    parties = amount(len(request.party_rows), "party")
    title = f"{request.words}, {counted(request.rows, 'row')}, {parties}, delta {float(request.delta):.2g}"
    write_picture(title, plots, file)


def worth_plot(points: Sequence[tuple[float, float]], planned: "Planned") -> tuple[Plot, str] | None:
    """What an answer is worth at each epsilon, with its words; None if fewer than two points are known.

    points: (epsilon, share of the rows).
    """
    if len(points) < 2:
        return None
    chosen, signal = planned.cost.request.epsilon, planned.cost.signal
    words = (
        f"What an answer is worth at most at each epsilon: the share of the {signal.what if signal else 'rows'} over "
        "which an answer without noise is as exact." + ("" if chosen is None else " The dotted line is this plan.")
    )
    plot = Plot(
        "worth",
        "What an answer is worth",
        words,
        Scale.over((epsilon for epsilon, _ in points), is_log=True),
        Scale(0.0, 100.0),
        heading="worth, % of the rows",
        label="epsilon",
        ticks=[Tick(epsilon, f"{epsilon:g}") for epsilon, _ in points],
    )
    if chosen is not None:
        plot.upright(float(chosen))
    plot.line([(epsilon, 100 * share) for epsilon, share in points], marks=True)
    return plot, words


def _plot(curves: dict[str, list[tuple[float, float]]], heading: str, label: str) -> Plot:
    """Curves on two logarithmic scales, with their legend."""
    points = [point for curve in curves.values() for point in curve]
    x, y = (Scale.over((point[axis] for point in points), is_log=True) for axis in (0, 1))
    plot = Plot("", heading, "", x, y, heading=heading, label=label, height=_HEIGHT)
    for sort, curve in enumerate(curves.values()):
        plot.line(curve, sort, marks=True)
    plot.legend([(f"line s{sort}", name) for sort, name in enumerate(curves)])
    return plot


def _epsilon_plot(cost: Cost) -> Plot:
    """Epsilon of fewer and of more rados, with the same noise."""
    request = cost.request
    if cost.noise is not None:
        request = replace(request, share_sd=cost.noise.share_sd)
    request = replace(request, epsilon=None, coordinates=request.coordinates if request.joint or cost.noise else None)
    many = sorted({max(1, round(request.n * 10 ** (step / 6 - 1))) for step in range(_POINTS)})
    costs = [bare_cost(replace(request, rados=n)) for n in many]
    plain = request.design_name == "plain"
    figures: dict[str, Callable[[Cost], float | None]] = {
        "learner alone": lambda c: c.marginal_epsilon if plain else c.epsilon,
        "if others collude": lambda c: c.marginal_epsilon_if_others_collude if plain else c.epsilon_if_others_collude,
        "Theorem 6": lambda c: c.theorem_epsilon,
    }
    curves = {
        name: [(float(n), value) for n, c in zip(many, costs, strict=True) if (value := figure_of(c)) is not None]
        for name, figure_of in figures.items()
    }
    known = {name: [point for point in points if point[1] > 0] for name, points in curves.items()}
    known = {name: points for name, points in known.items() if points}
    if not known:
        return _nothing("epsilon", "no epsilon is bounded")
    plot = _plot(known, "epsilon, one -1/+1 coordinate" if plain else "epsilon", "rados n; dotted: as planned")
    plot.upright(request.n)
    return plot


def _error_plot(cost: Cost) -> Plot:
    """The relative error for each epsilon: from noise, or from the number of rados that it allows."""
    base = replace(cost.request, share_sd=None, epsilon_per_rado=None)
    errors = _errors(base, {float(epsilon): bare_cost(replace(base, epsilon=epsilon)) for epsilon in _EPSILONS})
    if not errors:
        return _nothing("relative error", "no epsilon from 0.1 to 10 is possible")
    return _plot(errors, "relative error", "epsilon")


def _nothing(heading: str, words: str) -> Plot:
    plot = Plot("", heading, "", Scale(0, 1), Scale(0, 1), heading=heading, label="", ticks=(), height=_HEIGHT)
    plot.text((plot.left + plot.right) / 2, plot.bottom / 2, words, anchor="middle")
    return plot


def _errors(request: PlanRequest, costs: dict[float, Cost]) -> dict[str, list[tuple[float, float]]]:
    """Curves of an error against epsilon.

    Without noise, the relative error of a variance that is estimated from n rados is sqrt(2/n) (a Gaussian's). With
    noise, the error is its standard deviation relative to the spread of a rado, and to the rows for moments.
    """
    if request.kind_name == "dp-feat":
        counts = {epsilon: cost.largest_rados for epsilon, cost in costs.items()}
        points = [(epsilon, math.sqrt(2 / n)) for epsilon, n in counts.items() if n]
        return {"of a variance, from the most rados": points} if points else {}
    noises = [(epsilon, cost.noise) for epsilon, cost in costs.items() if cost.feasible and cost.noise is not None]
    if not noises:
        return {}
    if request.design_name == "moments":
        return {
            "noise of a mean edge": [(e, noise.noise_sd / request.rows) for e, noise in noises],
            "noise of a mean product": [(e, (noise.product_noise_sd or 0) / request.rows) for e, noise in noises],
            "sampling error of a mean": [(e, noise.spread / request.rows) for e, noise in noises],
        }
    return {"noise / spread of a rado": [(e, noise.noise_sd / noise.spread) for e, noise in noises]}
