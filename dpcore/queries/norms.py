"""Clipping norms from a schema, and the weight of edges relative to products in a `moments` query.

Both depend on the schema alone, never on data, so they cost no privacy. A smaller R means less noise and more clipping.
Both rules were chosen by the test error of dpcore.estimators.moments_discriminant over fourteen tasks at epsilon 0.3, 1
and 3, which varies little near the choice.
"""

import math
from fractions import Fraction

from dpcore.accounting.noise_shares import SQUARE_WEIGHT
from dpcore.errors import PlanError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product
from dpcore.records.schema import Schema

_HUNDREDTHS = 100


def usual_norm(schema: Schema, feature_map: FeatureMap | None = None) -> Fraction:
    """R of `norm_bound_of` for a schema: every feature that is not real adds 1, as does a one-hot category.

    With a feature map, R^2 is the mean squared length of a mapped record whose real features are uniform over their
    bounds and independent: as without one, from public figures alone.
    """
    if feature_map is not None:
        return _mapped_norm(schema, feature_map)
    return norm_bound_of(
        real_features=sum(group.scaled_coordinates for group in schema.groups),
        unit_features=sum(group.unit_groups for group in schema.groups),
        bias=schema.bias,
    )


def norm_bound_of(*, real_features: int, unit_features: int, bias: bool) -> Fraction:
    """R with R^2 = (real features) / 3 + (unit features) + (bias), rounded up to hundredths.

    real_features: number of features scaled to [-1, 1]; if x is uniform, x^2 is 1/3 on average. unit_features: number
    of features that add 1 to every record's squared norm: a column coded -1/+1, or all categories of a one-hot coded
    column. Raises PlanError if there is no feature.
    """
    if real_features < 0 or unit_features < 0 or real_features + unit_features == 0:
        raise PlanError(f"{real_features} real and {unit_features} unit features: give at least one")
    square = real_features / 3 + unit_features + int(bias)
    return Fraction(math.ceil(_HUNDREDTHS * math.sqrt(square)), _HUNDREDTHS)


def _mapped_norm(schema: Schema, feature_map: FeatureMap) -> Fraction:
    squares: list[float] = []
    for term in feature_map.terms:
        match term.function:
            case Column(coordinate):
                squares.append(_square(schema, schema.coordinates[coordinate]))
            case Hat() as hat:
                squares.append(_hat_square(hat, term.centre / ONE))
            case PointMass():
                centre = term.centre / ONE
                squares.append(centre * (1 - centre))
            case Product(first, second):
                squares.append(squares[first] * squares[second])
    halved = sum(square * 0.25**term.halvings for square, term in zip(squares, feature_map.terms, strict=True))
    return Fraction(max(math.ceil(_HUNDREDTHS * math.sqrt(halved + feature_map.bias)), _HUNDREDTHS + 1), _HUNDREDTHS)


def _square(schema: Schema, coordinate: str) -> float:
    """The mean square of a coordinate: 1/3 for a real feature, and 1 for all coordinates of another one together."""
    (group,) = (each for each in schema.groups if coordinate in each.coordinates)
    return group.mean_square


def _hat_square(hat: Hat, centre: float) -> float:
    """The mean of (hat - centre)^2 over a uniform coordinate in [-1, 1]."""
    left, right = (None if knot is None else knot / ONE for knot in (hat.left, hat.right))
    peak = hat.peak / ONE
    # A slope of length l has the integral l / 2, and that of its square is l / 3; a flat side of length l has l and l.
    below = (peak + 1, peak + 1) if left is None else ((peak - left) / 2, (peak - left) / 3)
    above = (1 - peak, 1 - peak) if right is None else ((right - peak) / 2, (right - peak) / 3)
    mean, square = ((low + high) / 2 for low, high in zip(below, above, strict=True))
    return square - 2 * centre * mean + centre**2


def edge_multiplier(norm_bound: Fraction, fraction_bits: int, weight: Fraction | None = None) -> int:
    """The k of a `MomentsQuery` that weights edges by a = `weight`, in units of its products' weight.

    None means R / sqrt(2): the sensitivity, sqrt(2) (R^2 + a^2 / 2), is then 5/4 of that of products alone. From
    a^2 = R^2 / 4 to R^2 the error changes little.
    """
    a = float(norm_bound) / math.sqrt(2) if weight is None else float(weight)
    return max(1, round(SQUARE_WEIGHT * (1 << fraction_bits) * a))
