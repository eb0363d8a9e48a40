"""A plan as a picture: epsilon against the number of rados, and error against epsilon."""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from radobase.pictures import check_picture, write_picture
from radofed.planning.cost import Cost
from radofed.planning.designs import bare_cost
from radofed.planning.request import PlanRequest

# Points of a curve.
_POINTS = 13
_EPSILONS = tuple(Fraction(f) for f in ("0.1", "0.2", "0.5", "1", "2", "5", "10"))


def draw_plan(cost: Cost, file: Path) -> None:
    """Write the picture of a plan, a PNG or SVG. Raises ConfigurationError as `check_picture` does."""
    check_picture(file)
    from matplotlib.figure import Figure  # noqa: PLC0415  (an extra, and slow to import)

    request = cost.request
    # A noised table costs the same for any number of rados, moments have no rados, and plain rados have no epsilon.
    panels_wanted = [
        *([_epsilon_panel] if request.kind_name not in ("moments", "fixed-support") else []),
        *([_error_panel] if request.design_name != "plain" else []),
    ]
    figure = Figure(figsize=(4.8 * len(panels_wanted), 3.6), layout="constrained")
    figure.suptitle(
        f"{request.words}, {request.rows:,} rows, {len(request.party_rows)} parties, delta {float(request.delta):.2g}",
        fontsize=10,
    )
    for place, panel in enumerate(panels_wanted, 1):
        panel(figure.add_subplot(1, len(panels_wanted), place), cost)
    write_picture(figure, file)


def _epsilon_panel(axes: Any, cost: Cost) -> None:
    """Epsilon of fewer and of more rados, with the same noise."""
    request = cost.request
    if cost.noise is not None:
        request = replace(request, share_sd=cost.noise.share_sd)
    request = replace(request, epsilon=None, coordinates=request.coordinates if request.joint or cost.noise else None)
    many = sorted({max(1, round(request.n * 10 ** (step / 6 - 1))) for step in range(_POINTS)})
    costs = [bare_cost(replace(request, rados=n)) for n in many]
    plain = request.design_name == "plain"
    curves: dict[str, Callable[[Cost], float | None]] = {
        "learner alone": lambda c: c.marginal_epsilon if plain else c.epsilon,
        "if others collude": lambda c: c.marginal_epsilon_if_others_collude if plain else c.epsilon_if_others_collude,
        "Theorem 6": lambda c: c.theorem_epsilon,
    }
    for name, figure_of in curves.items():
        points = [(n, value) for n, c in zip(many, costs, strict=True) if (value := figure_of(c)) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
    axes.axvline(request.n, color="grey", linewidth=0.8, linestyle=":", label="as planned")
    axes.set(
        xscale="log", yscale="log", xlabel="rados n", ylabel="epsilon, one -1/+1 coordinate" if plain else "epsilon"
    )
    axes.legend(fontsize=8)


def _error_panel(axes: Any, cost: Cost) -> None:
    """The relative error for each epsilon: from noise, or from the number of rados that it allows."""
    base = replace(cost.request, share_sd=None, epsilon_per_rado=None)
    costs = {float(epsilon): bare_cost(replace(base, epsilon=epsilon)) for epsilon in _EPSILONS}
    errors = _errors(base, costs)
    if not errors:
        axes.text(0.5, 0.5, "no epsilon from 0.1 to 10 is possible", ha="center", transform=axes.transAxes)
        return
    for name, points in errors.items():
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
    axes.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="relative error")
    axes.legend(fontsize=8)


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
