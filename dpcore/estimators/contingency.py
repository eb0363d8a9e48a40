"""Counts of every feature against the label, in a region: one batch of mutually exclusive predicates per feature.

A boolean or threshold feature has two cells, a category one for each listed value, a real feature `bins` of equal
width. Each cell is counted among positive and among negative labels. A record is in one cell of a feature, so a feature
adds 2 to the batch's sensitivity, as does the pair of class counts.
"""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from dpcore.estimators.base import Matrix, Vector
from dpcore.estimators.query_learner import CLASSES, all_of
from dpcore.predicates.expressions import AtLeast, Equals, Flag, Not, Predicate
from dpcore.records.features import BooleanFeature, CategoryFeature, Group, RealFeature, ThresholdFeature

_GRID_BITS = 24
"""A cut is rounded to this many bits of its feature's range, so that its fraction is short."""


@dataclass(frozen=True)
class Contingency:
    """The batch for `features` among rows of `region` (predicates that must all hold; () for every usable row)."""

    features: tuple[Group, ...]
    """At least one."""
    region: tuple[Predicate, ...] = ()
    bins: int = 16
    """Of a real feature, at least 2."""

    def predicates(self) -> tuple[Predicate, ...]:
        """The region's positive and negative rows, then those in each cell of each feature."""
        batch = [all_of((*self.region, label)) for label in CLASSES]
        for feature in self.features:
            for cell in cells(feature, self.bins):
                batch += [all_of((*self.region, cell, label)) for label in CLASSES]
        return tuple(batch)

    def split(self, values: NDArray[np.float64]) -> tuple[Vector, tuple[Matrix, ...]]:
        """The answers as class totals (2,) and a table (cells, 2) for each feature; positive labels first.

        If a feature's cells cover all rows, they sum to totals too: k cells give a class total with k times the noise's
        variance. The totals returned are the means of all these, weighted by the inverse variances.
        """
        pairs = values.reshape(-1, 2)
        totals, weight, start, tables = pairs[0].copy(), 1.0, 1, []
        for feature in self.features:
            count = len(cells(feature, self.bins))
            table = pairs[start : start + count]
            start += count
            tables.append(table)
            # A value that is not listed is in no cell of a category.
            if not feature.is_one_hot:
                totals += table.sum(axis=0) / count
                weight += 1.0 / count
        return totals / weight, tuple(tables)


def cells(feature: Group, bins: int) -> tuple[Predicate, ...]:
    """A feature's cells, mutually exclusive; a real feature's from low to high."""
    match feature:
        case CategoryFeature():
            return tuple(Equals(feature.name, value) for value in feature.values)
        case BooleanFeature() | ThresholdFeature():
            return Flag(feature.name), Not(Flag(feature.name))
        case RealFeature():
            return _bins(feature, bins)
        case _:
            assert_never(feature)


def _bins(feature: RealFeature, bins: int) -> tuple[Predicate, ...]:
    edges = [AtLeast(feature.name, feature.bound(at)) for at in cuts(feature, bins - 1)]
    inner = [all_of((low, Not(high))) for low, high in itertools.pairwise(edges)]
    return Not(edges[0]), *inner, edges[-1]


def cuts(feature: RealFeature, count: int) -> tuple[Fraction, ...]:
    """`count` bounds that divide a real feature's declared range almost evenly: each is a short dyadic fraction."""
    lower, upper = Fraction(feature.lower), Fraction(feature.upper)
    unit = Fraction(2) ** (math.frexp(feature.upper - feature.lower)[1] - _GRID_BITS)
    return tuple(round((lower + (upper - lower) * k / (count + 1)) / unit) * unit for k in range(1, count + 1))


def encoded(feature: RealFeature, bound: Fraction) -> float:
    """The encoded coordinate, in [-1, 1], of a bound in the feature's units."""
    lower, upper = Fraction(feature.lower), Fraction(feature.upper)
    return float(2 * (bound - lower) / (upper - lower) - 1)
