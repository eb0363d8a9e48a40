"""How the values of a feature are taken to spread, without rows: what shapes are centred and ranked under.

A category's listed values have equal shares, those that are not measurable left out (learner.shapes.parts), and so have
the two values of a flag.

A real feature is uniform within its bounds, unless the model's feature map states more: terms are centred at the means
of their functions, so a centre above 0 is the share of a point mass, or a mean of a hat function.

Then values have the shares of their point masses, and are otherwise uniform between neighbouring knots, with shares
that reproduce the hats' means as well as possible. Features are taken to be independent of one another.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import FeatureMap, Hat, PointMass, Term
from dpcore.records.features import Group

# Weight of the demand for equal shares between knots against that for a hat's mean: it decides what means leave open.
_EQUAL = 0.03

# Nodes of Gauss and Legendre, which are exact for cubic polynomials: so for squares of what is linear between knots.
_NODES = np.array([-1.0, 1.0]) / np.sqrt(3.0)


@dataclass(frozen=True, eq=False)
class Spread:
    """Values of a feature's coordinates, (n, width), and their shares, (n,), which add up to 1.

    Averages over them are exact for squares of functions that are linear between `knots`. knots: of a real feature, in
    units of 2^-30, ascending, both bounds included; shares_between: of neighbouring ones, without point masses. points:
    values of point masses in units of 2^-30, with their shares. is_stated: whether the feature map states the shares.
    """

    coordinates: NDArray[np.float64]
    shares: NDArray[np.float64]
    knots: tuple[int, ...] = ()
    shares_between: tuple[float, ...] = ()
    points: tuple[tuple[int, float], ...] = ()
    is_stated: bool = False

    def quantiles(self, levels: list[float]) -> list[int]:
        """Values of a real feature that are no point masses at these levels from 0 to 1, in units of 2^-30."""
        reached = np.concatenate([[0.0], np.cumsum(self.shares_between)])
        if reached[-1] <= 0.0:
            reached = np.array(self.knots, dtype=np.float64) + ONE
        # Between knots without values the inverse is not unique.
        places = np.interp(levels, reached / reached[-1] + np.arange(len(reached)) * 1e-12, self.knots)
        return [round(float(place)) for place in places]


def spread_of(group: Group, coordinate: int, feature_map: FeatureMap | None) -> Spread:
    """The spread of a group whose first coordinate has this place in the schema."""
    if group.bounds is not None:
        return _of_real(coordinate, feature_map)
    count = len(group.codes)
    return Spread(group.codes, np.full(count, 1.0 / count))


def _of_real(coordinate: int, feature_map: FeatureMap | None) -> Spread:
    terms = [
        term
        for term in (() if feature_map is None else feature_map.terms)
        if isinstance(term.function, Hat | PointMass) and term.function.coordinate == coordinate
    ]
    is_stated = any(term.centre for term in terms)
    hats = [(term.function, term.centre / ONE) for term in terms if isinstance(term.function, Hat)]
    given = {hat.peak for hat, _ in hats} | {hat.left for hat, _ in hats} | {hat.right for hat, _ in hats}
    knots = sorted({-ONE, ONE, *(knot for knot in given if knot is not None)})
    points = {term.function.at: term.centre / ONE for term in terms if isinstance(term.function, PointMass)}
    # Centres are noisy, and their sum may be above 1.
    points = {at: share / max(1.0, sum(points.values())) for at, share in sorted(points.items())}
    rest = 1.0 - sum(points.values())
    between = _between(hats, knots, points, rest) if is_stated else np.diff(knots) / (2.0 * ONE) * rest
    middle, half = np.array([(low + high, high - low) for low, high in pairwise(knots)]).T / (2.0 * ONE)
    inside = (middle[:, np.newaxis] + half[:, np.newaxis] * _NODES).reshape(-1)
    values = np.concatenate([inside, [at / ONE for at in points]])
    shares = np.concatenate([np.repeat(between / len(_NODES), len(_NODES)), list(points.values())])
    return Spread(
        values[:, np.newaxis],
        shares / shares.sum(),
        tuple(knots),
        tuple(between.tolist()),
        tuple(points.items()),
        is_stated,
    )


def _between(
    hats: list[tuple[Hat, float]], knots: list[int], points: dict[int, float], rest: float
) -> NDArray[np.float64]:
    """The shares of neighbouring knots, (knots - 1,), which add up to `rest`. hats: with the means of all values."""
    count = len(knots) - 1
    if not hats or rest <= 0.0:
        return np.diff(knots) / (2.0 * ONE) * max(rest, 0.0)
    from scipy.optimize import nnls  # noqa: PLC0415  (slow to import, and no command that only predicts needs it)

    at_knots = np.array([_values(hat, knots) for hat, _ in hats])
    # A hat is linear between neighbouring knots.
    averages = (at_knots[:, 1:] + at_knots[:, :-1]) / 2.0
    means = [mean - sum(_values(hat, list(points)) * list(points.values())) for hat, mean in hats]
    demands = np.vstack([averages, np.ones((1, count)), _EQUAL * np.eye(count)])
    wanted = np.concatenate([means, [rest], np.full(count, _EQUAL * rest / count)])
    found = np.asarray(nnls(demands, wanted)[0])
    total = float(found.sum())
    return found * (rest / total) if total > 0.0 else np.full(count, rest / count)


def _values(hat: Hat, at: list[int]) -> NDArray[np.float64]:
    alone = FeatureMap((Term(replace(hat, coordinate=0)),), bias=False)
    return alone.of(np.array(at, dtype=np.float64)[:, np.newaxis] / ONE)[:, 0]
