"""Base of the estimators by statistical queries: they query an oracle, and give a linear classifier over its schema.

`fit_queries(oracle)` asks for counts only. Afterwards `theta_` (d,) is over the schema's coordinates, the bias last;
`coef_` = theta_ as (1, d), `intercept_` zero, `classes_` [-1, 1]. A row that is not usable is encoded as zero and
predicted -1. `fit(X, y)` queries rows like a federation without noise (dpcore.estimators.oracle).
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self, assert_never

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.errors import ConfigurationError, OracleRefusedError, SchemaError
from dpcore.estimators.base import LinearClassifier
from dpcore.estimators.oracle import RowOracle, StatisticOracle, check_left
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.predicates.expressions import And, AtLeast, Equals, Flag, LabelIs, Not, Or, Predicate
from dpcore.records.features import BooleanFeature, CategoryFeature, Group, RealFeature, ThresholdFeature
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

CLASSES = (LabelIs(positive=True), LabelIs(positive=False))
"""The two classes, positive first; they exclude each other."""


class QueryClassifier(LinearClassifier):
    """A linear classifier sign(theta . x) estimated by querying an oracle; a subclass defines the queries."""

    @abstractmethod
    def _learn(self, oracle: StatisticOracle) -> Vector:
        """Theta (d,), finite, over the coordinates of oracle.schema, which has a bias."""

    def fit_queries(self, oracle: StatisticOracle) -> Self:
        """Fit by querying; returns self.

        Raises SchemaError without a bias or a usable feature, ConfigurationError, and what `oracle.statistic` raises.
        """
        schema = oracle.schema
        if not schema.bias:
            raise SchemaError(
                f"schema {schema.name!r} has no bias, which this estimator needs for its threshold: set bias = true"
            )
        self._keep_encoded(self._learn(oracle))
        return self

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to rows, without noise, not private; returns self. A column of two values is boolean.

        As `RadoClassifier.fit`.
        """
        rows = RowOracle(self._edges(X, y))
        self._keep(rows.in_given_units(self._learn(rows)))
        return self


@dataclass(frozen=True)
class SignedLiteral:
    """A condition that is affine in one encoded coordinate: scale z + offset is 1 if it holds, else 0."""

    text: str
    """Its description."""
    predicate: Predicate
    """The condition."""
    position: int
    """Of the coordinate."""
    scale: float
    offset: float

    def negated(self) -> "SignedLiteral":
        """The complement; a category's also holds for values that are not listed."""
        return SignedLiteral(f"not {self.text}", Not(self.predicate), self.position, -self.scale, 1.0 - self.offset)


def flags(schema: Schema) -> tuple[SignedLiteral, ...]:
    """One literal for each boolean and threshold feature, in order."""
    return tuple(
        SignedLiteral(each.name, Flag(each.name), schema.coordinate(each.name), 0.5, 0.5) for each in schema.flags
    )


def indicators(schema: Schema) -> tuple[SignedLiteral, ...]:
    """One literal for each listed value of each category feature, in order."""
    return tuple(
        SignedLiteral(f"{feature.name} = {value}", Equals(feature.name, value), schema.coordinate(coordinate), 1.0, 0.0)
        for feature in schema.categories
        for value, coordinate in zip(feature.values, feature.coordinates, strict=True)
    )


def add_literal(theta: Vector, literal: SignedLiteral, weight: float) -> None:
    """Add `weight` to the score theta (d,), the bias last, for rows where the literal holds; in place."""
    theta[literal.position] += weight * literal.scale
    theta[-1] += weight * literal.offset


def all_of(parts: Sequence[Predicate]) -> Predicate:
    """The conjunction of one or more predicates, flattened, so that mutually exclusive atoms are recognised."""
    flat = [atom for part in parts for atom in (part.parts if isinstance(part, And) else (part,))]
    return flat[0] if len(flat) == 1 else And(tuple(flat))


# Counts of every feature against the label, in a region: one batch of mutually exclusive predicates per feature. A
# feature adds 2 to the batch's sensitivity, as does the pair of class counts.


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

        Totals are means of all the sums of cells that cover all rows, weighted by their inverse variances.
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


# Naive Bayes from sums (Chu et al., NIPS 2006): every feature's counts by class, in one batch.
#
# The log odds of a class are linear in the encoded coordinates:
#
#     log(N+ / N-) + sum over features of
#         discrete, in cell v:  log(c+_v / N+ + t) - log(c-_v / N- + t)
#         real, at z:           (delta / v) (z - (mean+ + mean-) / 2),     delta = mean+ - mean-
#
# - t = 2 (smoothing + s) / (N+ + N-), s the standard deviation of the noise on a count (a Dirichlet prior of smoothing
#   + s rows a cell, shared by the classes' sizes). Negative counts are taken as 0.
# - v is the variance of the cells' centres within classes, less a twelfth of the squared cell width (Sheppard) and at
#   least that, plus the standard deviation of the noise in that sum.
# - delta is multiplied by max(0, 1 - (its noise's variance) / delta^2), as in positive-part James-Stein shrinkage.
# - if a class has fewer than 3 s rows, theta is the prior only.


CERTAIN_CLASS = 3.0
"""A class must have this many standard deviations of a count's noise."""


class NaiveBayes(QueryClassifier):
    """Naive Bayes with a linear log odds.

    bins: of a real feature's histogram, at least 2. smoothing: rows added to each cell, above 0. noise_rate: eta in [0,
    1/2). After `fit_queries`: `class_shares_` (2,), of usable positive and negative rows among all.
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
    """Theta (d,) from rows of either class (2,), positive first, and of each feature's cells by class, (cells, 2).

    noise: standard deviation on a count, in rows.
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


# Decision lists: "if l1 then b1, else if l2 then b2, ..., else b" (Rivest, Machine Learning 2, 1987; by statistical
# queries Kearns 1998).
#
# A round counts, for each literal, the remaining rows of each class that it covers, in one release. The rule added has
# the largest score right - kappa wrong beyond what chance explains, for kappa = 19, else 4, else 1, and then only if it
# overrules the larger remaining class. Chance is the sample's variance, (right + kappa^2 wrong) / m, plus the noise's,
# 1 + kappa^2 times its square, times a logarithm of the number of candidates.
#
# A list of J rules is linear: the sign of sum_j b_j 2^(J+1-j) u_j + b, u_j = 1 if l_j holds, is that of the first rule
# that applies. Every score is a sum of multiples of 1/2 below 2^(J+2), so it is exact.


MOST_RULES = 40
"""Double precision represents weights up to 2^40, together with halves, exactly."""

STRICTNESS = (19.0, 4.0, 1.0)
"""Values of kappa, in the order in which they are tried."""


@dataclass(frozen=True)
class Candidate:
    """A rule and the estimated shares of all rows that it would get right and wrong."""

    literal: SignedLiteral
    positive: bool
    right: float
    wrong: float
    terms: int = 1
    """The number of answers, the class totals among them, that `wrong` is a sum of."""


class DecisionList(QueryClassifier):
    """A decision list over boolean features and values of categories.

    max_rules: from 1 to 40, each with an equal share of `part`. noise_rate: eta in [0, 1/2). After `fit_queries`:
    `rules_`, (condition, label) in order; `default_`; `warning_` if a round was refused or no rule found, else None.
    """

    warning_: str | None

    def __init__(self, *, max_rules: int = 8, noise_rate: float = 0.0, part: Fraction | int = 1) -> None:
        self.max_rules = max_rules
        self.noise_rate = noise_rate
        self.part = part

    def _learn(self, oracle: StatisticOracle) -> Vector:
        if not 1 <= self.max_rules <= MOST_RULES:
            raise ConfigurationError(f"max_rules is {self.max_rules}: give 1 to {MOST_RULES}")
        if not flags(oracle.schema) + indicators(oracle.schema):
            raise SchemaError(
                f"schema {oracle.schema.name!r} has neither a boolean nor a category feature for rules: add one, "
                "such as a threshold of a real feature"
            )
        check_left(oracle, Fraction(self.part), shrinks=True)
        rules: list[Candidate] = []
        default, refused = False, None
        while len(rules) < self.max_rules:
            contingency = Contingency(
                literal_features(oracle.schema), tuple(rule.literal.negated().predicate for rule in rules)
            )
            try:
                estimates = oracle.statistic(
                    contingency.predicates(), part=Fraction(self.part) / self.max_rules, noise_rate=self.noise_rate
                )
            except OracleRefusedError as error:
                if not rules:
                    raise
                refused = f"kept the rules of {len(rules)} of {self.max_rules} rounds: {error}"
                break
            totals, tables = contingency.split(estimates.values)
            default = bool(totals[0] > totals[1])
            rule = _best(list(candidates(oracle.schema, totals, tables)), estimates, default=default)
            if rule is None:
                break
            rules.append(rule)
            covered = np.array([rule.right, rule.wrong] if rule.positive else [rule.wrong, rule.right])
            default = bool(np.subtract(*(totals - covered)) > 0)
        self.rules_ = tuple((rule.literal.text, 1 if rule.positive else -1) for rule in rules)
        self.default_ = 1 if default else -1
        constant = f"no rule exceeds what chance explains, so the classifier predicts {self.default_:+d} everywhere"
        self.warning_ = refused if rules else constant
        return list_theta(oracle.schema, rules, self.default_)


def literal_features(schema: Schema) -> tuple[Group, ...]:
    """The features that have literals."""
    literals = {feature.name for feature in (*schema.flags, *schema.categories)}
    return tuple(feature for feature in schema.groups if feature.name in literals)


def candidates(schema: Schema, totals: Vector, tables: tuple[Matrix, ...]) -> Iterator[Candidate]:
    """Every literal with either label. A category's negated literal covers the totals minus the rows of its value."""
    literals = iter(flags(schema)), iter(indicators(schema))
    for feature, table in zip(literal_features(schema), tables, strict=True):
        if feature.is_one_hot:
            pairs = [(next(literals[1]), row, totals - row) for row in table]
        else:
            pairs = [(next(literals[0]), table[0], table[1])]
        for literal, inside, outside in pairs:
            for candidate, row in ((literal, inside), (literal.negated(), outside)):
                terms = 2 if feature.is_one_hot and row is outside else 1
                yield Candidate(candidate, positive=True, right=float(row[0]), wrong=float(row[1]), terms=terms)
                yield Candidate(candidate, positive=False, right=float(row[1]), wrong=float(row[0]), terms=terms)


def _best(candidates: list[Candidate], estimates: Estimates, *, default: bool) -> Candidate | None:
    """The rule to add, or None if chance explains all of them; `default` is the larger remaining class."""
    level = math.sqrt(2.0 * math.log(2.0 * len(candidates)))
    right = np.array([candidate.right for candidate in candidates])
    wrong = np.array([candidate.wrong for candidate in candidates])
    positive = np.array([candidate.positive for candidate in candidates])
    least = 1.0 / estimates.rows
    for kappa in STRICTNESS:
        sample = (np.maximum(right, least) + kappa**2 * np.maximum(wrong, least)) / estimates.rows
        chance = level * np.sqrt(sample + (1.0 + kappa**2) * estimates.deviation**2)
        scores = right - kappa * wrong
        # A rule no purer than the rest, and of its majority, changes no prediction.
        allowed = (scores > chance) & ((kappa > 1.0) | (positive != default))
        if allowed.any():
            return candidates[int(np.argmax(np.where(allowed, scores, -np.inf)))]
    return None


def list_theta(schema: Schema, rules: list[Candidate], default: int) -> Vector:
    """The linear classifier of a list."""
    theta = np.zeros(schema.d)
    theta[-1] = default
    for place, rule in enumerate(rules, start=1):
        add_literal(theta, rule.literal, (1.0 if rule.positive else -1.0) * 2.0 ** (len(rules) + 1 - place))
    return theta


# The best rule on one feature: a flag, a value of a category, or one of `cuts` even bounds, each also reversed; or a
# class.
#
# Each condition c is one query, phi = [c(x) != (y = 1)], the rule's error; the reversed rule errs where phi is 0 on a
# usable row. Label flips at a rate eta below 1/2 turn an error e into eta + (1 - 2 eta) e, so the best rule stays the
# best. If answers are within tau, the chosen rule's error is at most 2 tau above the least.


_HALF_UNIT = 2.0**-31
"""Half of the unit in which coordinates are stored, so that a coordinate exactly at a bound counts as at least it."""


@dataclass(frozen=True)
class _Rule:
    """A condition, in words and as a predicate, and a theta whose score is positive exactly where it holds."""

    text: str
    condition: Predicate
    theta: Vector


class DecisionStump(QueryClassifier):
    """The best rule on one feature. cuts: bounds for each real feature, at least 1.

    After `fit_queries`: `rule_`, in words, and `error_`, the least of many estimates, so more likely too low.
    """

    def __init__(self, *, cuts: int = 16, part: Fraction | int = 1) -> None:
        self.cuts = cuts
        self.part = part

    def _learn(self, oracle: StatisticOracle) -> Vector:
        if self.cuts < 1:
            raise ConfigurationError(f"cuts is {self.cuts}: give each real feature at least one")
        rules = _rules(oracle.schema, self.cuts)
        estimates = oracle.statistic(
            [*CLASSES, *(_disagreement(rule.condition) for rule in rules)], part=Fraction(self.part)
        )
        positive, negative = estimates.values[:2]
        always = np.zeros(oracle.schema.d)
        always[-1] = 1.0
        wrong = estimates.values[2:]
        errors = np.concatenate([[negative, positive], wrong, positive + negative - wrong])
        thetas = [always, -always, *(rule.theta for rule in rules), *(-rule.theta for rule in rules)]
        texts = ["true", "false", *(rule.text for rule in rules), *(f"not {rule.text}" for rule in rules)]
        best = int(np.argmin(errors))
        self.rule_, self.error_ = texts[best], float(errors[best])
        return np.array(thetas[best])


def _disagreement(condition: Predicate) -> Predicate:
    positive, negative = CLASSES
    return Or((And((condition, negative)), And((Not(condition), positive))))


def _rules(schema: Schema, count: int) -> list[_Rule]:
    rules = []
    for literal in flags(schema) + indicators(schema):
        theta = np.zeros(schema.d)
        add_literal(theta, literal, 2.0)
        theta[-1] -= 1.0
        rules.append(_Rule(literal.text, literal.predicate, theta))
    for feature in schema.numbers:
        for bound in cuts(feature, count):
            theta = np.zeros(schema.d)
            theta[schema.coordinate(feature.name)] = 1.0
            theta[-1] = _HALF_UNIT - encoded(feature, bound)
            rules.append(
                _Rule(
                    f"{feature.name} >= {feature.written(float(bound), 6)}",
                    AtLeast(feature.name, feature.bound(bound)),
                    theta,
                )
            )
    return rules
