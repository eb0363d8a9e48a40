"""Naive Bayes by statistical queries: every feature's counts by class, in one release.

Chu et al., Map-reduce for machine learning on multicore (NIPS 2006): naive Bayes needs only sums. One batch
(dpcore.estimators.query_learner) gives the class counts, each boolean and category by class, and a histogram of each
real feature by class. Its sensitivity is 2 for each feature and 2 for the classes, for any number of cells.

The log odds of a class, given features that are independent within it, are linear in the encoded coordinates:

    log(N+ / N-) + sum over features of
        discrete, in cell v:  log(c+_v / N+ + t) - log(c-_v / N- + t)
        real, at z:           (delta / v) (z - (mean+ + mean-) / 2),     delta = mean+ - mean-

the latter for two normal distributions of one variance v. Counts with noise:

* t = 2 (smoothing + s) / (N+ + N-), s the standard deviation of the noise on a count: each cell has smoothing + s more
  rows, shared among the classes by their sizes (a Dirichlet prior of that strength). A cell lost in the noise has
  little effect. Negative counts are taken as 0.
* v is the variance of the cells' centres within classes, less a twelfth of the squared cell width (Sheppard), plus the
  standard deviation of the noise in that sum. It is at least a twelfth of the squared width.
* delta is multiplied by max(0, 1 - (its noise's variance) / delta^2), as in positive-part James-Stein shrinkage.
* if a class has fewer than 3 s rows, its means are not used: theta is the prior only.

All of this is post-processing of the release.
"""

import math
from fractions import Fraction
from typing import assert_never

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import Matrix, Vector
from dpcore.estimators.oracle import StatisticOracle
from dpcore.estimators.query_learner import Contingency, QueryClassifier, cuts, encoded
from dpcore.records.features import BooleanFeature, CategoryFeature, RealFeature, ThresholdFeature
from dpcore.records.schema import Schema

CERTAIN_CLASS = 3.0
"""A class must have this many standard deviations of a count's noise."""


class NaiveBayes(QueryClassifier):
    """Naive Bayes with a linear log odds; the module's docstring describes it.

    bins: cells of a real feature's histogram, at least 2. smoothing: rows added to each cell, above 0. noise_rate: eta
    in [0, 1/2). part: of the oracle's budget. After `fit_queries`: `class_shares_` (2,), of usable positive and
    negative rows among all.
    """

    def __init__(
        self, *, bins: int = 16, smoothing: float = 1.0, noise_rate: float = 0.0, part: Fraction | int = 1
    ) -> None:
        self.bins = bins
        self.smoothing = smoothing
        self.noise_rate = noise_rate
        self.part = part

    def _learn(self, oracle: StatisticOracle) -> Vector:
        if self.bins < 2:
            raise ConfigurationError(f"bins is {self.bins}: give a real feature's histogram at least 2")
        if not (math.isfinite(self.smoothing) and self.smoothing > 0):
            raise ConfigurationError(f"smoothing is {self.smoothing}: it must be finite and above 0")
        contingency = Contingency(oracle.schema.groups, bins=self.bins)
        estimates = oracle.statistic(contingency.predicates(), part=Fraction(self.part), noise_rate=self.noise_rate)
        shares, tables = contingency.split(estimates.values)
        self.class_shares_ = shares
        noise = estimates.deviation * estimates.rows
        return log_odds(
            oracle.schema, shares * estimates.rows, [table * estimates.rows for table in tables], noise, self.smoothing
        )


def log_odds(schema: Schema, classes: Vector, tables: list[Matrix], noise: float, smoothing: float) -> Vector:
    """Theta (d,) of the module's docstring.

    classes: (2,), rows of either class, positive first. tables: for each feature, rows in each cell by class, (cells,
    2). noise: standard deviation on a count, in rows.
    """
    theta = np.zeros(schema.d)
    sizes = np.maximum(classes, 0.0)
    theta[-1] = math.log((sizes[0] + smoothing + noise) / (sizes[1] + smoothing + noise))
    if sizes.min() < max(1.0, CERTAIN_CLASS * noise):
        return theta
    added = 2.0 * (smoothing + noise) / float(sizes.sum())
    for feature, table in zip(schema.groups, tables, strict=True):
        first = schema.coordinate(feature.coordinates[0])
        match feature:
            case RealFeature():
                slope, middle = _normal(table, _centres(feature, len(table)), sizes, noise)
                theta[first] = slope
                theta[-1] -= slope * middle
            case CategoryFeature():
                theta[first : first + len(table)] = _odds(table, sizes, added)
            case BooleanFeature() | ThresholdFeature():
                true, false = _odds(table, sizes, added)
                theta[first] = (true - false) / 2.0
                theta[-1] += (true + false) / 2.0
            case _:
                assert_never(feature)
    return theta


def _odds(table: Matrix, sizes: Vector, added: float) -> Vector:
    """The log odds of each of a feature's cells. added: to each share."""
    odds: Vector = np.subtract(*np.log(np.maximum(table, 0.0) / sizes + added).T)
    return odds


def _centres(feature: RealFeature, bins: int) -> Vector:
    """The middles of a real feature's cells, encoded: (bins,)."""
    edges = np.array([-1.0, *(encoded(feature, bound) for bound in cuts(feature, bins - 1)), 1.0])
    centres: Vector = (edges[:-1] + edges[1:]) / 2.0
    return centres


def _normal(table: Matrix, centres: Vector, sizes: Vector, noise: float) -> tuple[float, float]:
    """The slope of a real feature's log odds, and the coordinate at which they are 0."""
    column = centres[:, np.newaxis]
    means = (column * table).sum(axis=0) / sizes
    squares = np.square(column - means)
    within, rows = float((squares * table).sum()), float(sizes.sum())
    least = (2.0 / len(centres)) ** 2 / 12.0
    variance = max(within / rows - least, least) + noise * math.sqrt(float(np.square(squares).sum())) / rows
    delta = float(means[0] - means[1])
    lost = float((noise**2 * squares.sum(axis=0) / np.square(sizes)).sum())
    kept = max(0.0, 1.0 - lost / delta**2) if delta else 0.0
    return kept * delta / variance, float(means.sum()) / 2.0
