"""Private additive models: a curve for each column, and products of pairs, within one budget.

    histograms of the real features (private_histograms)   -> knots, point masses, centres
    moments of the mapped records (additive_terms)         -> a basis in which they are white
    gradients of the mapped records, round by round        -> weights, shrunk group by group (empirical_bayes)

The rounds are those of dpcore.estimators.private_newton, which says why they converge; only the terms, and the
shrinking after each round, are added. A curve is straight where noise rules, because its bends share one variance that
is estimated from the answers. All parts of the budget, histograms included, add up to one.

Noise on the weights grows with the number of terms. If the budget and the rows are too small for that many, which is
known before anything is asked, the model is straight: `PrivateNewton` asks, with the whole budget.

The score can be held to rise or fall with columns (dpcore.estimators.monotone).
"""

from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import validate_data

from dpcore.accounting.gaussian import gaussian_mu
from dpcore.errors import ConfigurationError, OracleRefusedError, PlanError
from dpcore.estimators.additive_terms import AdditiveTerms, additive_terms
from dpcore.estimators.base import LinearClassifier, Matrix, Vector
from dpcore.estimators.empirical_bayes import Prior
from dpcore.estimators.monotone import conditions, directions_of, nearest, ordered_features
from dpcore.estimators.oracle import Oracle
from dpcore.estimators.private_histograms import Histogram, histograms
from dpcore.estimators.private_newton import (
    CURVATURE,
    PrivateNewton,
    Seen,
    Whitening,
    bounded_step,
    clip_of,
    covariance_of,
    root,
    variance_of,
)
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import RealFeature
from dpcore.records.schema import Schema

Directions = Mapping[int, int]
"""RISING or FALLING for coordinates of the schema (dpcore.estimators.monotone)."""

Pairs = tuple[tuple[int, int], ...]
"""Pairs of coordinates of the schema, each ascending."""

CELLS = 32
"""Cells of a histogram: enough for five quantiles, and few enough for the noise on their sums."""

NORM_SHARE = 0.8
"""R^2 of the moments is 1 plus this share of the mean squared length that the histograms suggest: on the measured
tables, clipping longer records costs less than the noise of a larger R."""

LEAST_INFORMATION = 5.0
"""mu times rows, for each term, from which on terms are worth their noise, on the measured tables."""

MOST_TERMS = 256
"""A basis of so many coordinates fits a query, whose size is limited (wire.query.MAX_QUERY_BYTES)."""


class PrivateAdditive(LinearClassifier):
    """An additive model with pairs from histograms, moments and `rounds` - 2 gradients; see the module's docstring.

    knots: inner knots of each real feature; fewer if there would be more than `MOST_TERMS` terms. pairs: whether it has
    products of all pairs of real features; None if there are then at most `MOST_TERMS` terms; or which pairs of real
    features and flags, such as "age*dose, age*smoker". rounds: at least 3.
    information: mu of the budget times rows over the number of terms; with less, the model is straight; 0 for never.
    knots_part, moments_part: of the budget's squared mu; the gradients share the rest equally. clip, shrinkage: as in
    `PrivateNewton`. increasing, decreasing: real and boolean features with which the score never falls, or never
    rises: names, separated by commas. They are in no product, and have no point mass inside their range.

    After `fit_queries`: `theta_` (d,) over the terms of `feature_map_`, the bias last; `covariance_` (d, d), the
    noise's and the sampling's, without shrinkage, which lowers it; None without an answer to a gradient; `groups_`,
    the names of groups of terms with the variance that each was given; `rounds_done_`, `warning_` as in
    `PrivateNewton`. For a straight model theta_ and covariance_ are over the schema's coordinates, feature_map_ is
    None, and warning_ says why.
    """

    def __init__(
        self,
        *,
        knots: int = 4,
        pairs: bool | str | None = None,
        rounds: int = 8,
        knots_part: float = 0.05,
        moments_part: float = 0.25,
        clip: float = 0.32,
        shrinkage: float = 0.2,
        information: float = LEAST_INFORMATION,
        increasing: str = "",
        decreasing: str = "",
    ) -> None:
        self.knots = knots
        self.pairs = pairs
        self.rounds = rounds
        self.knots_part = knots_part
        self.moments_part = moments_part
        self.clip = clip
        self.shrinkage = shrinkage
        self.information = information
        self.increasing = increasing
        self.decreasing = decreasing

    def fit_queries(self, oracle: Oracle) -> Self:
        """Fit by querying; returns self. If a query after the moments is refused, the result so far is kept.

        Raises ConfigurationError if a parameter is out of range, and what the oracle raises; OracleRefusedError if it
        does not answer the histograms or the moments.
        """
        self._check()
        directions = directions_of(oracle.schema, self.increasing, self.decreasing)
        reason = self._too_many(oracle.schema, directions) or self._too_little(oracle, directions)
        if reason is None:
            return self._fit_curves(oracle, directions)
        return self._fit_straight(oracle, directions, reason)

    def _fit_straight(self, oracle: Oracle, directions: Directions, reason: str) -> Self:
        straight = PrivateNewton(rounds=self.rounds).fit_queries(oracle)
        self.feature_map_: FeatureMap | None = None
        self.covariance_: Matrix | None = straight.covariance_
        self.groups_: dict[str, float] = {}
        self.rounds_done_ = straight.rounds_done_
        self.warning_: str | None = "; ".join(filter(None, (reason, straight.warning_)))
        rows = conditions(directions, None, len(straight.theta_))
        self._keep_encoded(_nearest(straight.theta_, rows, straight.covariance_))
        self.n_features_in_ = oracle.schema.d
        return self

    def _fit_curves(self, oracle: Oracle, directions: Directions) -> Self:
        first, second = (Fraction(part).limit_denominator(10**6) for part in (self.knots_part, self.moments_part))
        if not _real_features(oracle.schema):
            first = Fraction(0)
        terms = self._terms(oracle, first, directions)
        self.feature_map_ = terms.feature_map
        norm = Fraction(float(np.sqrt(NORM_SHARE * terms.mean_square + 1.0))).limit_denominator(100)
        moments = oracle.moments(part=second, norm_bound=norm, feature_map=terms.feature_map)
        whitening = Whitening.of(moments, self.shrinkage)
        prior = Prior.of(terms.groups, whitening.basis.matrix)
        clip = clip_of(self.clip, whitening)
        ordered = conditions(directions, terms.feature_map, moments.d) @ whitening.basis.matrix.T
        phi = nearest(2.0 * (whitening.basis.matrix @ moments.edge_sum) / moments.rows, ordered)
        seen: list[Seen] = []
        self.warning_ = None
        self.groups_ = {}
        variance: float | None = None
        for _ in range(self.rounds - 2):
            part = (1 - first - second) / (self.rounds - 2)
            try:
                answer = oracle.gradient(
                    phi, clip=clip, part=part, basis=whitening.basis, feature_map=terms.feature_map
                )
            except (OracleRefusedError, PlanError) as error:
                self.warning_ = f"received {2 + len(seen)} of {self.rounds} releases: {error}"
                break
            seen.append(Seen(phi, phi - answer.mean / CURVATURE, answer.deviation / CURVATURE))
            variance = variance_of(seen, self.clip, moments.rows)
            found, sizes = prior.shrunk(root(seen), variance)
            self.groups_ = {group.name: float(size) for group, size in zip(terms.groups, sizes, strict=True)}
            phi = nearest(bounded_step(phi, found), ordered)
        self.rounds_done_ = 2 + len(seen)
        self.covariance_ = None if variance is None else covariance_of(variance, whitening)
        self._keep_encoded(np.asarray(whitening.basis.matrix.T @ phi))
        self.n_features_in_ = oracle.schema.d
        return self

    def decision_function(self, X: ArrayLike) -> Vector:
        """Margins, shape (rows,): positive means classes_[1]. X: (rows, n_features_in_), as the schema encodes rows.

        Raises as `LinearClassifier.decision_function`.
        """
        if not hasattr(self, "theta_"):
            raise NotFittedError("this PrivateAdditive has no theta_: fit it to answers first")
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        margins: Vector = (rows if self.feature_map_ is None else self.feature_map_.of(rows)) @ self.theta_
        return margins

    def _too_many(self, schema: Schema, directions: Directions) -> str | None:
        """Why the columns leave no room for curves; None if they do. Raises ConfigurationError for too many pairs."""
        _, pairs = self._sizes(schema, directions)
        terms = _count(schema, 0, pairs)
        if terms <= MOST_TERMS:
            return None
        if pairs:
            raise ConfigurationError(
                f"the {schema.d} coordinates and {len(pairs)} pairs are {terms} terms, and a model has at most "
                f"{MOST_TERMS}: name fewer pairs"
            )
        return (
            f"the model is straight: there are {schema.d} coordinates, and a model of curves has at most {MOST_TERMS}"
        )

    def _too_little(self, oracle: Oracle, directions: Directions) -> str | None:
        """Why the budget and the rows are too small for curves; None if they are not, or the rows are not known."""
        real = len(_real_features(oracle.schema))
        if not (real and oracle.rows and oracle.delta):
            return None
        knots, pairs = self._sizes(oracle.schema, directions)
        terms = _count(oracle.schema, knots, pairs)
        least = self.information * terms / oracle.rows
        if gaussian_mu(oracle.epsilon, oracle.delta) >= least:
            return None
        return (
            f"the model is straight: for curves with {terms} terms, epsilon {float(oracle.epsilon):g} is too "
            f"little for {oracle.rows} rows; give more of either, or fewer knots"
        )

    def _terms(self, oracle: Oracle, part: Fraction, directions: Directions) -> AdditiveTerms:
        schema: Schema = oracle.schema
        real = _real_features(schema)
        found = histograms(oracle, real, part=part, cells=CELLS) if real else []
        by_coordinate = {
            schema.coordinate(feature.name): histogram for feature, histogram in zip(real, found, strict=True)
        }
        _, pairs = self._sizes(schema, directions)
        by_coordinate = _with_fewer_points(by_coordinate, MOST_TERMS - _count(schema, 0, pairs))
        points = sum(len(histogram.points) for histogram in by_coordinate.values())
        knots, pairs = self._sizes(schema, directions, points)
        return additive_terms(schema, by_coordinate, knots=knots, pairs=pairs, directions=directions)

    def _sizes(self, schema: Schema, directions: Directions, points: int = 0) -> tuple[int, Pairs]:
        """How many knots, and the pairs of coordinates that have products. points: point masses."""
        free = [schema.coordinate(each.name) for each in _real_features(schema)]
        every = tuple(combinations([coordinate for coordinate in free if coordinate not in directions], 2))
        if isinstance(self.pairs, str):
            pairs = _pairs_of(schema, self.pairs, directions)
        elif self.pairs is None:
            pairs = every if points + _count(schema, self.knots, every) <= MOST_TERMS else ()
        else:
            pairs = every if self.pairs else ()
        knots = self.knots
        while knots and points + _count(schema, knots, pairs) > MOST_TERMS:
            knots -= 1
        return knots, pairs

    def _check(self) -> None:
        if not (isinstance(self.knots, int | np.integer) and 0 <= self.knots <= 32):
            raise ConfigurationError(f"knots is {self.knots}: give 0 to 32")
        if not (isinstance(self.rounds, int | np.integer) and self.rounds >= 3):
            raise ConfigurationError(f"rounds is {self.rounds}: histograms and moments are two, give at least 3")
        if not (self.pairs is None or isinstance(self.pairs, bool | np.bool_ | str)):
            raise ConfigurationError(
                f"pairs is {self.pairs!r}: give true, false, names such as age*dose, or null to decide by the number "
                "of terms"
            )
        for name in ("knots_part", "moments_part"):
            if not 1e-3 <= getattr(self, name) <= 1 - 1e-3:
                raise ConfigurationError(f"{name} is {getattr(self, name)}: give a number from 0.001 to 0.999")
        if self.knots_part + self.moments_part > 1 - 1e-3:
            raise ConfigurationError("knots_part and moments_part leave nothing for gradients: lower one of them")
        if not self.information >= 0:
            raise ConfigurationError(f"information is {self.information}: give a number from 0 on")
        for name in ("clip", "shrinkage"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ConfigurationError(f"{name} is {getattr(self, name)}: it must be finite and positive")


def _count(schema: Schema, knots: int, pairs: Pairs) -> int:
    """Terms of a model and the bias, point masses left out."""
    real = {schema.coordinate(each.name) for each in _real_features(schema)}
    ramps = real & {coordinate for pair in pairs for coordinate in pair}
    return schema.d + len(real) * knots + len(ramps) + len(pairs)


def _with_fewer_points(found: Mapping[int, Histogram], most: int) -> dict[int, Histogram]:
    """The histograms with the `most` point masses that have the largest shares."""
    shares = [(share, coordinate, at) for coordinate, each in found.items() for at, share in each.points.items()]
    largest = sorted(shares, reverse=True)[:most]
    return {
        coordinate: each.with_points({at for _, where, at in largest if where == coordinate})
        for coordinate, each in found.items()
    }


def _pairs_of(schema: Schema, text: str, directions: Directions) -> Pairs:
    """The pairs that a text names. Raises ConfigurationError if it is not of pairs of different features, each once."""
    found: dict[tuple[int, int], None] = {}
    known = {each.name: schema.coordinate(each.name) for each in ordered_features(schema)}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        names = [name.strip() for name in pair.split("*")]
        if len(names) != 2 or not set(names) <= known.keys() or names[0] == names[1]:
            raise ConfigurationError(
                f"pairs names {pair!r}: write pairs of two different real or boolean features, such as "
                f"age*dose, separated by commas; here {', '.join(known) or 'none'}"
            )
        low, high = sorted(known[name] for name in names)
        if (low, high) in found:
            raise ConfigurationError(f"the pair {pair!r} is given twice: give it once")
        if {low, high} & directions.keys():
            raise ConfigurationError(
                f"the pair {pair!r} has a feature with a direction, whose slope depends on no other: leave one out"
            )
        found[low, high] = None
    return tuple(found)


def _nearest(theta: Vector, rows: Matrix, covariance: Matrix | None) -> Vector:
    """The nearest weights with rows @ theta >= 0, in the metric of their covariance; without one, in their own."""
    if covariance is None or (rows @ theta >= 0).all():
        return nearest(theta, rows)
    factor = np.linalg.cholesky(covariance)
    found: Vector = factor @ nearest(np.linalg.solve(factor, theta), rows @ factor)
    return found


def _real_features(schema: Schema) -> list[RealFeature]:
    return [feature for feature in schema.features if isinstance(feature, RealFeature)]
