"""A linear model's scores as predicates: integer weights, and comparisons with fixed edges."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.predicates.expressions import MOST_FORM, Affine, And, LabelIs, NonNegative, Not, Predicate
from dpcore.predicates.forms import FormCoordinates
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import BIAS, Schema


@dataclass(frozen=True)
class LinearScores:
    """The score sum_j w_j z_j + constant of a record, in units of 2^-exponent, z_j its coordinates except the bias.

    With a feature map, z_j are the coordinates of the mapped record.
    """

    weights: tuple[tuple[str, int], ...]
    constant: int
    edges: tuple[int, ...]
    """Increasing integers in that unit, 0 among them."""
    exponent: int
    rounding: float
    """The most that a score may differ from theta . x, for any record: the rounding of theta, plus that of stored
    coordinates."""

    def positive(self, *, predicted: bool) -> Predicate:
        """The prediction is +1, or is -1: a score of exactly 0 is predicted -1."""
        return Not(self._at_most(0)) if predicted else self._at_most(0)

    def cells(self) -> tuple[Predicate, ...]:
        """Label and prediction: (-1, -1), (-1, +1), (+1, -1), (+1, +1); mutually exclusive."""
        return tuple(
            And((LabelIs(positive=label), self.positive(predicted=predicted)))
            for label in (False, True)
            for predicted in (False, True)
        )

    def bins(self) -> tuple[Predicate, ...]:
        """Label -1 and then +1, each with the scores (edge, next edge] from low to high; mutually exclusive."""
        return tuple(
            And((LabelIs(positive=label), *self._between(place)))
            for label in (False, True)
            for place in range(len(self.edges) + 1)
        )

    def _between(self, place: int) -> tuple[Predicate, ...]:
        above = (Not(self._at_most(self.edges[place - 1])),) if place else ()
        below = (self._at_most(self.edges[place]),) if place < len(self.edges) else ()
        return (*above, *below)

    def _at_most(self, edge: int) -> NonNegative:
        # All comparisons have the same weights, so that bins are recognised as disjoint.
        return NonNegative(Affine(tuple((name, -weight) for name, weight in self.weights), edge - self.constant))


def linear_scores(
    theta: ArrayLike, schema: Schema, edges: NDArray[np.float64], feature_map: FeatureMap | None = None
) -> LinearScores:
    """The scores theta . x with integer weights: theta times the largest power of two that fits, rounded to integers.

    theta: (d,), the bias last if the schema has one; with a feature map, over its coordinates. edges: increasing
    scores, 0 among them. A theta of few binary digits is exact.

    Raises ShapeError if theta does not fit the schema or the map, ConfigurationError if it is no array, is not finite
    or is too large compared with the edges.
    """
    try:
        weights = np.asarray(theta, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"theta is a {type(theta).__name__}, not an array of numbers: give a model's weights and its feature map, "
            "evaluate(model.theta, oracle, feature_map=model.feature_map)"
        ) from error
    names = FormCoordinates(schema, feature_map).names
    if weights.shape != (len(names),):
        whose = "schema" if feature_map is None else "feature map"
        curves = "; for a model of curves feature_map=model.feature_map too" if feature_map is None else ""
        raise ShapeError(f"theta has shape {weights.shape} and the {whose} {len(names)} coordinates: give (d,){curves}")
    # Half a unit of rounding for each coordinate, and room for the edge.
    room = MOST_FORM - len(names) - 4
    with np.errstate(over="ignore"):
        size = float(np.abs(weights).sum() + np.abs(edges).max())
    if not math.isfinite(size):
        raise ConfigurationError("theta is not finite, or its sum is not: train again, or scale it down")
    exponent = math.frexp(room / size)[1] - 1
    integers = np.rint(np.ldexp(weights, exponent)).astype(np.int64)
    bounds = np.rint(np.ldexp(edges, exponent)).astype(np.int64)
    if not (np.diff(bounds) > 0).all():
        raise ConfigurationError(
            f"theta's magnitudes add up to {size:.3g}, so rounding makes edges of the bins equal: raise scale, or "
            "scale theta down"
        )
    rounding = np.abs(np.ldexp(integers.astype(np.float64), -exponent) - weights).sum()
    stored = np.abs(weights[: len(names) - schema.bias]).sum()
    # Predictions compute mapped coordinates in doubles, within 2^-28 of the integers (`FeatureMap.of`).
    stored_bits = STORED_FRACTION_BITS if feature_map is None else STORED_FRACTION_BITS - 2
    named = dict(zip(names, integers.tolist(), strict=True))
    constant = named.pop(BIAS) if schema.bias else 0
    return LinearScores(
        weights=tuple(named.items()),
        constant=constant,
        edges=tuple(bounds.tolist()),
        exponent=exponent,
        rounding=float(rounding + math.ldexp(float(stored), -stored_bits)),
    )
