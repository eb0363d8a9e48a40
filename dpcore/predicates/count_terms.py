"""Terms of the Poisson likelihood of counts as predicates: their values, and the bounds that divide them.

A count y, at most a stated bound, over an exposure e has the rate exp(s) for an exposure of 1 (e is 1 without a column
of exposures). Bounds follow from those of the schema's label, so that every value is in [0, 1] whatever the record.

    gain        y (s - c) - e (exp(s) - exp(c))        how much likelier y is at the rate exp(s) than at exp(c)
    loss        less the gain; both are 0 where they would be negative, so a record has at most one of them
    deviance    y log(y / (e exp(c))) - y + e exp(c)   half of the Poisson deviance of y from one rate
"""

import math
from fractions import Fraction

import numpy as np

from dpcore.numbers.fixed_point import Vector
from dpcore.records.features import Count


def exposures(label: Count) -> tuple[float, float]:
    """The bounds of the exposure: both 1 without one."""
    if label.exposure_lower is None or label.exposure_upper is None:
        return 1.0, 1.0
    return label.exposure_lower, label.exposure_upper


def gain_bound(most: int, largest_exposure: float, centre: Fraction, reach: Fraction) -> float:
    """No gain of a score within `reach` of `centre` is beyond this, in either direction.

    A gain is linear in y, so its extremes are at y = 0 and y = most. At 0 it is -e (exp(s) - exp(c)), whose size is at
    most e (exp(c + reach) - exp(c)). At `most`, most (s - c) and that have opposite signs, so the size is at most the
    larger one's.
    """
    middle = math.exp(centre)
    return max(most * float(reach), largest_exposure * middle * math.expm1(float(reach)))


def deviance_bound(label: Count, centre: Fraction, most: int) -> float:
    """The largest deviance term: it is convex in y and in e, so it is at a bound of both."""
    found = [
        float(deviance_terms(np.array([float(count)]), np.array([exposure]), centre)[0])
        for count in (0, most)
        for exposure in exposures(label)
    ]
    return max(found)


def gain_terms(counts: Vector, over: Vector, scores: Vector, centre: Fraction) -> Vector:
    """(rows,). over: exposures. scores: logarithms of rates."""
    middle = float(centre)
    found: Vector = counts * (scores - middle) - over * (np.exp(scores) - math.exp(middle))
    return found


def deviance_terms(counts: Vector, over: Vector, centre: Fraction) -> Vector:
    """(rows,). over: exposures."""
    means = over * math.exp(centre)
    found: Vector = np.where(counts > 0, counts * np.log(np.maximum(counts, 1.0) / means), 0.0) - counts + means
    return found
