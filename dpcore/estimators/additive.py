"""Private additive models: a curve for each column, and products of pairs, within one budget.

    histograms of the real features (private_histograms)   -> knots, point masses, centres
    signs of pairs of them, if not all fit (additive_pairs) -> which pairs have products
    moments of the mapped records (additive_terms)         -> a basis in which they are white
    gradients of the mapped records (additive_rounds)      -> weights, shrunk group by group

What gradients are of: dpcore.estimators.additive_losses. Directions that do not pay for their noise are left out of
later ones. All parts of the budget add up to one. If budget and rows are too small, which is known before anything is
asked, the model has no pairs, or is straight: then `PrivateNewton` asks, with the whole budget.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import islice
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import validate_data

from dpcore.errors import ConfigurationError, OracleRefusedError, PlanError
from dpcore.estimators.additive_losses import CELLS_PART, HazardRounds, LossSettings, rounds_of
from dpcore.estimators.additive_pairs import (
    LEAST_INFORMATION,
    Pairs,
    PlannedPairs,
    Sizes,
    choose,
    count,
    term_limit,
    usual_knots,
)
from dpcore.estimators.additive_terms import (
    AdditiveTerms,
    Directions,
    additive_terms,
    conditions,
    conditions_of_classes,
    directions_of,
    nearest,
    ordered_features,
)
from dpcore.estimators.base import LinearClassifier
from dpcore.estimators.class_weights import check_asked
from dpcore.estimators.hazards import ProportionalHazards
from dpcore.estimators.oracle import Oracle, check_left
from dpcore.estimators.private_histograms import Histogram, histograms
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.records.feature_map import Column, FeatureMap, Hat, Product
from dpcore.records.schema import Schema

CELLS = 32
"""Cells of a histogram: enough for five quantiles, and few enough for the noise on their sums."""

STRAIGHT = "the model is straight"
"""How `warning_` begins if it is."""

_MOST_NAMES = 5

LARGEST_FACTOR = 1024
"""The largest `clip` and `shrinkage`: far beyond what is useful, and far from what overflows."""


class PrivateAdditive(LinearClassifier):
    """An additive model with pairs from `rounds` answers: histograms, moments, gradients; see the module's docstring.

    - knots: inner knots of each real feature; None: as many as `usual_knots`; fewer if there would be more than
      `MOST_TERMS` terms. rounds: at least 3, and 4 to choose pairs.
    - information: mu of the budget times rows over the root of coordinates times terms. With less, the model is
      straight; with less than `PAIRS_INFORMATION` times that, it has no pairs if pairs is None; 0 for never. Nor are
      pairs chosen then if noise hides scores as large as `LARGEST_NOISE`.
    - knots_part, pairs_part, moments_part: of the budget's squared mu; pairs_part only if pairs are chosen. The
      gradients share the rest equally.
    - clip: as in `PrivateNewton`, by default 0.28, of several classes 0.4, of numbers and counts 1.5, of times as in
      `ProportionalHazards`, 1. shrinkage: as for `Whitening.cleaned`, by default 0.03; of several classes as for
      `Whitening.of`, by default 0.5. Both are at most `LARGEST_FACTOR`.
    - increasing, decreasing: real and boolean features with which the score never falls, or never rises, up to rounding
      (some 1e-15): names, separated by commas, or a list. They are in no product, and have no point mass inside their
      range.
    - stop_if_straight: whether to ask nothing if budget and rows are too small for curves.
    - class_weight, and `class_weights_` after fitting: as of `PrivateNewton`.

    pairs: which pairs have products.

    - True: all pairs of real features, if they fit into `MOST_TERMS` terms, perhaps with fewer knots. Otherwise one of
      the `rounds`, in place of a gradient, asks F^2 + F + 1 predicates about the signs of F features. The pairs are
      chosen whose scores are above the noise, as many as fit (dpcore.estimators.additive_pairs).
    - None: all, if they fit beside all knots, or chosen ones, if `FEWEST_PAIRS` fit beside `KNOTS_BESIDE_PAIRS` knots;
      but only if the budget and the rows are enough. Otherwise nothing is asked or spent for them. Pairs are chosen of
      two classes only, and of counts and times None means none.
    - Text, such as "age*dose, age*smoker", or a list such as [("age", "dose, mg")]: these, of real features and flags.

    After `fit_queries`:

    - `theta_` (d,) over the terms of `feature_map_`, the bias last.
    - `covariance_` (d, d), None without an answer to a gradient: the second moment of theta_'s errors given all
      answers, also of directions that were left out later (dpcore.estimators.errors_of_weights). Orders of columns are
      not used for it.
    - `groups_`, names of groups of terms with the variance that each was given; `directions_`, how many directions each
      gradient was about; `pairs_`, names of the pairs that have products, chosen ones from the largest score on.
    - `rounds_done_`, `warning_` as in `PrivateNewton`. warning_ also says why pairs were left out, and which columns
      have bounds that are too wide for their knots.
    - `left_out_`, its sentences that the schema, the rows and the budget alone decide.

    For a straight model theta_ and covariance_ are those of `PrivateNewton` over the schema's coordinates, feature_map_
    is None, and warning_ says why.

    Of a label of several classes there is a curve of each column for each class: theta_ (k, d), by
    dpcore.estimators.class_additive, with at most dpcore.estimators.class_newton.MOST_WEIGHTS weights. covariance_ is
    then None, groups_ has mean variances over the classes, and all directions are kept.

    - pairs None means none, and True all of them, if they fit: signs choose pairs of two classes only.
    - increasing and decreasing are about classes in the schema's order: the log odds of each class against the one
      before never fall, or never rise. So with an increasing feature a class or a later one never becomes less likely.

    Of a number, a count or a time scores are as of `PrivateNewton` and `ProportionalHazards`, and `rounds` is at
    least 4 for a time or an exposure, which take a query more.

    Their covariance_ is of the errors from a fit of the same
    terms without noise, clipping and shrinkage; of a time it needs a bias, whose place is that of the baseline's level.
    A time has `log_hazards_` (J,), too. `sampling_` is None, but for a straight model.
    """

    several_classes: ClassVar[bool] = True
    measured_labels: ClassVar[bool] = True
    event_times: ClassVar[bool] = True

    def __init__(
        self,
        *,
        knots: int | None = None,
        pairs: bool | str | list[tuple[str, str]] | None = None,
        rounds: int = 10,
        knots_part: float = 0.03,
        pairs_part: float = 0.05,
        moments_part: float = 0.25,
        clip: float | None = None,
        shrinkage: float | None = None,
        information: float = LEAST_INFORMATION,
        increasing: str | list[str] = "",
        decreasing: str | list[str] = "",
        stop_if_straight: bool = False,
        class_weight: str | dict[str, Any] | None = None,
    ) -> None:
        self.knots = knots
        self.pairs = pairs
        self.rounds = rounds
        self.knots_part = knots_part
        self.pairs_part = pairs_part
        self.moments_part = moments_part
        self.clip = clip
        self.shrinkage = shrinkage
        self.information = information
        self.increasing = increasing
        self.decreasing = decreasing
        self.stop_if_straight = stop_if_straight
        self.class_weight = class_weight

    def fit_queries(self, oracle: Oracle) -> Self:
        """Fit by querying; returns self. If a query after the moments is refused, the result so far is kept.

        Raises ConfigurationError, PlanError if the model would be straight and `stop_if_straight` is set,
        OracleRefusedError.
        """
        self._check()
        check_asked(self.class_weight, oracle.schema)
        check_left(oracle)
        self._check_label(oracle.schema)
        directions = directions_of(oracle.schema, self.increasing, self.decreasing)
        sizes = Sizes(oracle, self._wanted(oracle.schema), self.rounds, self.information, _exact(self.pairs_part))
        planned = sizes.planned(self.pairs, directions)
        reason = self._too_many(oracle, planned) or self._too_little(sizes, planned)
        if reason is None:
            return self._fit_curves(oracle, directions, planned)
        if self.stop_if_straight:
            raise PlanError(f"{reason}. Nothing was asked: without stop_if_straight, the straight model is trained")
        return self._fit_straight(oracle, directions, reason)

    def _fit_straight(self, oracle: Oracle, directions: Directions, reason: str) -> Self:
        is_time = bool(oracle.schema.label.coding.intervals)
        straight = ProportionalHazards() if is_time else PrivateNewton(class_weight=self.class_weight)
        straight.set_params(rounds=min(self.rounds, straight.rounds)).fit_queries(oracle)
        self.feature_map_: FeatureMap | None = None
        self.covariance_: Matrix | None = getattr(straight, "covariance_", None)
        self.sampling_: Matrix | None = getattr(straight, "sampling_", None)
        self.groups_: dict[str, float] = {}
        self.directions_: list[int] = []
        self.pairs_: list[str] = []
        self.rounds_done_ = straight.rounds_done_
        self.class_weights_: tuple[int, ...] = getattr(straight, "class_weights_", ())
        self.left_out_: list[str] = [reason]
        self.warning_: str | None = "; ".join(filter(None, (reason, straight.warning_)))
        rows = conditions(directions, None, oracle.schema.d)
        if classes := oracle.schema.label.classes:
            found = _nearest(straight.theta_.ravel(), conditions_of_classes(rows, classes), self.covariance_)
            self._keep_classes(found.reshape(straight.theta_.shape))
        else:
            self._keep_encoded(_nearest(straight.theta_, rows, self.covariance_))
        if isinstance(straight, ProportionalHazards):
            self.log_hazards_ = straight.log_hazards_
        self.n_features_in_ = oracle.schema.d
        return self

    def _fit_curves(self, oracle: Oracle, directions: Directions, planned: PlannedPairs) -> Self:
        # All parts are known before anything is asked.
        first = _exact(self.knots_part) if oracle.schema.numbers else Fraction(0)
        choice = _exact(self.pairs_part) if planned.most else Fraction(0)
        second = _exact(self.moments_part)
        cells = CELLS_PART if oracle.schema.label.coding.intervals else Fraction(0)
        before = 2 + bool(planned.most) + bool(cells)
        part = (1 - first - choice - cells - second) / (self.rounds - before)
        notes = [planned.left_out] if planned.left_out else []
        self.left_out_ = list(notes)
        terms = self._terms(oracle, first, choice, directions, planned, notes)
        self.feature_map_ = terms.feature_map
        self.pairs_ = _products(oracle.schema, terms.feature_map, planned.given)
        settings = LossSettings(second, self.clip, self.shrinkage, directions, self.class_weight)
        rounds, covariance, weighing = rounds_of(oracle, terms, settings)
        self.class_weights_ = weighing.weights
        notes += filter(None, [weighing.note])
        for left in reversed(range(self.rounds - before)):
            try:
                rounds.ask(part, left)
            except (OracleRefusedError, PlanError) as error:
                notes.append(f"received {before + len(rounds.asked)} of {self.rounds} releases: {error}")
                break
        self.warning_ = "; ".join(notes) or None
        self.groups_, self.directions_ = rounds.groups, rounds.asked
        self.rounds_done_ = before + len(rounds.asked)
        self.covariance_, self.sampling_ = covariance(), None
        if oracle.schema.label.classes:
            self._keep_classes(rounds.theta)
        else:
            self._keep_encoded(rounds.theta)
        if isinstance(rounds, HazardRounds):
            self.log_hazards_ = rounds.log_hazards
        self.n_features_in_ = oracle.schema.d
        return self

    def decision_function(self, X: ArrayLike) -> Vector | Matrix:
        """Margins, shape (rows,): positive means classes_[1]; of several classes their scores, (rows, k).

        X: (rows, n_features_in_), as the schema encodes rows.
        """
        if not hasattr(self, "theta_"):
            raise NotFittedError("this PrivateAdditive has no theta_: fit it to answers first")
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        scores: Vector | Matrix = (rows if self.feature_map_ is None else self.feature_map_.of(rows)) @ self.theta_.T
        return scores

    @staticmethod
    def _too_many(oracle: Oracle, planned: PlannedPairs) -> str | None:
        """Why the columns leave no room for curves; None if they do. Raises ConfigurationError for too many pairs."""
        schema: Schema = oracle.schema
        terms, most = count(schema, 0, planned.given), term_limit(schema)
        if terms <= most:
            return None
        if planned.given:
            raise ConfigurationError(
                f"the {schema.d} coordinates and {len(planned.given)} pairs are {terms} terms, and a model has at most "
                f"{most}: name fewer pairs"
            )
        return f"{STRAIGHT}: there are {schema.d} coordinates, and a model of curves has at most {most}"

    def _too_little(self, sizes: Sizes, planned: PlannedPairs) -> str | None:
        """Why the budget and the rows are too small for curves; None if they are not, or the rows are not known."""
        oracle = sizes.oracle
        terms = count(oracle.schema, self._knots(oracle.schema, planned.given), planned.given)
        if not oracle.schema.numbers or sizes.affords(terms, self.information):
            return None
        enough = sizes.enough(terms, self.information)
        fewer = (
            knots
            for knots in range(self._knots(oracle.schema, planned.given) - 1, 0, -1)
            if sizes.affords(count(oracle.schema, knots, planned.given), self.information)
        )
        enough += [f"with {knots} knot{'s' * (knots > 1)}" for knots in islice(fewer, 1)]
        advice = f"there would be curves {', or '.join(enough)}" if enough else "lower information"
        return (
            f"{STRAIGHT}: for curves with {terms} terms, epsilon {float(oracle.epsilon):g} is too little for "
            f"{oracle.rows} rows; {advice}"
        )

    def _terms(
        self,
        oracle: Oracle,
        part: Fraction,
        choice: Fraction,
        directions: Directions,
        planned: PlannedPairs,
        notes: list[str],
    ) -> AdditiveTerms:
        """The terms, from histograms that take `part` and pairs that take `choice`. Adds to the notes."""
        schema: Schema = oracle.schema
        real = schema.numbers
        histograms_of = histograms(oracle, real, part=part, cells=CELLS) if real else []
        found = {schema.coordinate(each.name): got for each, got in zip(real, histograms_of, strict=True)}
        notes += _too_wide([each.name for each, got in zip(real, histograms_of, strict=True) if got.is_coarse])
        pairs = planned.given
        if planned.most:
            names = {schema.coordinate(each.name): each.name for each in real}
            compared = {coordinate: names[coordinate] for coordinate in planned.compared}
            chosen = choose(oracle, compared, found, part=choice, most=planned.most)
            pairs = chosen.kept
            notes += filter(None, [chosen.left_out])
        found = _with_fewer_points(found, term_limit(schema) - count(schema, 0, pairs))
        points = sum(len(histogram.points) for histogram in found.values())
        knots = self._knots(schema, pairs, points)
        return additive_terms(schema, found, knots=knots, pairs=pairs, directions=directions)

    def _wanted(self, schema: Schema) -> int:
        """How many knots each real feature has if all fit."""
        return usual_knots(schema) if self.knots is None else self.knots

    def _knots(self, schema: Schema, pairs: Pairs, points: int = 0) -> int:
        """How many knots fit beside pairs and point masses."""
        knots = self._wanted(schema)
        while knots and points + count(schema, knots, pairs) > term_limit(schema):
            knots -= 1
        return knots

    def _check(self) -> None:
        if not (self.knots is None or (_is_integer(self.knots) and 0 <= self.knots <= 32)):
            raise ConfigurationError(f"knots is {self.knots!r}: give 0 to 32, or null for the usual number")
        if not (_is_integer(self.rounds) and self.rounds >= 3):
            raise ConfigurationError(f"rounds is {self.rounds!r}: histograms and moments are two, give at least 3")
        pairs = self.pairs
        if not (pairs is None or isinstance(pairs, bool | np.bool_ | str) or _is_list(pairs, _is_list)):
            raise ConfigurationError(
                f"pairs is {pairs!r}: give true, false, names such as age*dose, a list of pairs of names, or null for "
                "pairs if they pay"
            )
        for name in ("increasing", "decreasing"):
            if not (isinstance(value := getattr(self, name), str) or _is_list(value)):
                raise ConfigurationError(f"{name} is {value!r}: give names, separated by commas, or a list of names")
        self._check_parts()
        if not self._number("information") >= 0:
            raise ConfigurationError(f"information is {self.information}: give a number from 0 on")
        for name in ("clip", "shrinkage"):
            if getattr(self, name) is not None and not 0 < self._number(name) <= LARGEST_FACTOR:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)}: give a positive number, at most {LARGEST_FACTOR}"
                )

    def _check_label(self, schema: Schema) -> None:
        """Raise ConfigurationError if a model of this label cannot be had, before anything is asked."""
        coding = schema.label.coding
        if coding.is_measured and not schema.bias:
            raise ConfigurationError("a model of a number needs an intercept: set bias = true in the schema")
        least = 4 if coding.intervals or coding.has_exposure else 3
        if self.rounds < least:
            raise ConfigurationError(
                f"rounds is {self.rounds}: a model of {schema.label.words} asks for one thing more, give at least 4"
            )

    def _check_parts(self) -> None:
        for name in ("knots_part", "pairs_part", "moments_part"):
            if not 1e-3 <= self._number(name) <= 1 - 1e-3:
                raise ConfigurationError(f"{name} is {getattr(self, name)}: give a number from 0.001 to 0.999")
        may_choose = self.pairs is None or (isinstance(self.pairs, bool | np.bool_) and bool(self.pairs))
        without = self.knots_part + self.moments_part
        if without > 1 - 1e-3:
            raise ConfigurationError("knots_part and moments_part leave nothing for gradients: lower one of them")
        if may_choose and without + self.pairs_part > 1 - 1e-3:
            raise ConfigurationError(
                "knots_part, pairs_part and moments_part leave nothing for gradients: give a smaller pairs_part, which "
                "is kept for choosing pairs, or set pairs to false"
            )

    def _number(self, name: str) -> float:
        """A parameter that is a real number, and a double. Raises ConfigurationError if it is not."""
        value = getattr(self, name)
        try:
            if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
                return float(value)
        except OverflowError:
            pass
        raise ConfigurationError(f"{name} is {value!r}: give a number")


def _exact(part: float) -> Fraction:
    return Fraction(float(part)).limit_denominator(10**6)


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_list(value: object, is_part: Callable[[object], bool] = lambda part: isinstance(part, str)) -> bool:
    """Whether it is a list or a tuple of such parts, by default of texts."""
    return isinstance(value, list | tuple) and all(map(is_part, value))


def _products(schema: Schema, feature_map: FeatureMap, named: Pairs) -> list[str]:
    """The names of the pairs that have a product, such as "age*dose"; of the named pairs in their order."""
    orders = {frozenset(pair): pair for pair in named}
    functions = [term.function for term in feature_map.terms]
    names = {schema.coordinate(each.name): each.name for each in ordered_features(schema)}
    pairs = []
    for function in functions:
        if isinstance(function, Product):
            both = functions[function.first], functions[function.second]
            found = tuple(each.coordinate for each in both if isinstance(each, Hat | Column))
            pairs.append("*".join(names[coordinate] for coordinate in orders.get(frozenset(found), found)))
    return pairs


def _too_wide(names: list[str]) -> list[str]:
    """The note on features of which most values are in one cell, if there are any."""
    if not names:
        return []
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    named = ", ".join(map(repr, names[:_MOST_NAMES])) + more
    return [
        f"most values of {named} are in one cell of the histogram, so knots are not known well: give narrower bounds"
    ]


def _with_fewer_points(found: Mapping[int, Histogram], most: int) -> dict[int, Histogram]:
    """The histograms with the `most` point masses that have the largest shares."""
    shares = [(share, coordinate, at) for coordinate, each in found.items() for at, share in each.points.items()]
    largest = sorted(shares, reverse=True)[:most]
    return {
        coordinate: each.with_points({at for _, where, at in largest if where == coordinate})
        for coordinate, each in found.items()
    }


def _nearest(theta: Vector, rows: Matrix, covariance: Matrix | None) -> Vector:
    """The nearest weights with rows @ theta >= 0, in the metric of their covariance; without one, in their own."""
    if covariance is None or (rows @ theta >= 0).all():
        return nearest(theta, rows)
    factor = np.linalg.cholesky(covariance)
    found: Vector = factor @ nearest(np.linalg.solve(factor, theta), rows @ factor)
    return found
