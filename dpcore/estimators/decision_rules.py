"""Decision lists by statistical queries: "if l1 then b1, else if l2 then b2, ..., else b".

Rivest, Learning decision lists (Machine Learning 2, 1987): take a literal whose rows all have one label, remove those
rows, and repeat. Kearns (1998) does this by statistical queries.

Here a round counts, for each literal, the remaining rows of each class that it covers, in one release
(dpcore.estimators.query_learner). The literals are boolean and threshold features, values of categories, and their
negations.

The rule added has the largest score right - kappa wrong beyond what chance explains, for kappa = 19 (rules that are
right 95 % of the time), else for 4 (80 %), else for 1, and then only if it overrules the larger remaining class.

The list ends when no rule is left, at `max_rules`, or when the oracle refuses.

Chance is the sample's variance, (right + kappa^2 wrong) / m, plus the noise's, 1 + kappa^2 times its square, times a
logarithm of the number of candidates.

A list of J rules is linear: let u_j in {0, 1} be 1 if l_j holds. The sign of sum_j b_j 2^(J+1-j) u_j + b is that of the
first rule that applies, since each weight exceeds the sum of all later ones. Every score is a sum of multiples of 1/2
below 2^(J+2), so it is exact.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpcore.errors import ConfigurationError, OracleRefusedError, SchemaError
from dpcore.estimators.base import Matrix, Vector
from dpcore.estimators.oracle import StatisticOracle, check_left
from dpcore.estimators.query_learner import (
    CLASSES,
    Contingency,
    Literal,
    QueryClassifier,
    add_literal,
    cuts,
    encoded,
    flags,
    indicators,
)
from dpcore.predicates.expressions import And, AtLeast, Not, Or, Predicate
from dpcore.records.features import Group
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

MOST_RULES = 40
"""Double precision represents weights up to 2^40, together with halves, exactly."""

STRICTNESS = (19.0, 4.0, 1.0)
"""Values of kappa, in the order in which they are tried."""


@dataclass(frozen=True)
class _Candidate:
    """A rule and the estimated shares of all rows that it would get right and wrong."""

    literal: Literal
    positive: bool
    right: float
    wrong: float


class DecisionList(QueryClassifier):
    """A decision list over boolean features and values of categories; the module's docstring describes the algorithm.

    max_rules: from 1 to 40; each round takes an equal share of `part` of the oracle's budget, used or not. noise_rate:
    eta in [0, 1/2). After `fit_queries`: `rules_`, (condition, label) in order; `default_`, the label if none applies;
    `warning_`, a sentence if a round was refused or no rule was found, else None.
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
        rules: list[_Candidate] = []
        default, refused = False, None
        while len(rules) < self.max_rules:
            contingency = Contingency(
                _features(oracle.schema), tuple(rule.literal.negated().predicate for rule in rules)
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
            rule = _best(list(_candidates(oracle.schema, totals, tables)), estimates, default=default)
            if rule is None:
                break
            rules.append(rule)
            covered = np.array([rule.right, rule.wrong] if rule.positive else [rule.wrong, rule.right])
            default = bool(np.subtract(*(totals - covered)) > 0)
        self.rules_ = tuple((rule.literal.text, 1 if rule.positive else -1) for rule in rules)
        self.default_ = 1 if default else -1
        constant = f"no rule exceeds what chance explains, so the classifier predicts {self.default_:+d} everywhere"
        self.warning_ = refused if rules else constant
        return _theta(oracle.schema, rules, self.default_)


def _features(schema: Schema) -> tuple[Group, ...]:
    literals = {feature.name for feature in (*schema.flags, *schema.categories)}
    return tuple(feature for feature in schema.groups if feature.name in literals)


def _candidates(schema: Schema, totals: Vector, tables: tuple[Matrix, ...]) -> Iterator[_Candidate]:
    """Every literal with either label. A category's negated literal covers the totals minus the rows of its value."""
    literals = iter(flags(schema)), iter(indicators(schema))
    for feature, table in zip(_features(schema), tables, strict=True):
        if feature.is_one_hot:
            pairs = [(next(literals[1]), row, totals - row) for row in table]
        else:
            pairs = [(next(literals[0]), table[0], table[1])]
        for literal, inside, outside in pairs:
            for candidate, row in ((literal, inside), (literal.negated(), outside)):
                yield _Candidate(candidate, positive=True, right=float(row[0]), wrong=float(row[1]))
                yield _Candidate(candidate, positive=False, right=float(row[1]), wrong=float(row[0]))


def _best(candidates: list[_Candidate], estimates: Estimates, *, default: bool) -> _Candidate | None:
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


def _theta(schema: Schema, rules: list[_Candidate], default: int) -> Vector:
    theta = np.zeros(schema.d)
    theta[-1] = default
    for place, rule in enumerate(rules, start=1):
        add_literal(theta, rule.literal, (1.0 if rule.positive else -1.0) * 2.0 ** (len(rules) + 1 - place))
    return theta


# The best rule on one feature, by statistical queries: the errors of each rule are a count.
#
# The rules: a boolean or threshold feature is true; a category has a listed value; a real feature is at least one of
# `cuts` bounds that divide its declared range evenly; each of them reversed; and either class always.
#
# For each condition c one query is asked, phi = [c(x) != (y = 1)], the rule's error. The reversed rule errs where phi
# is 0 on a usable row. Random flips of labels at a rate eta below 1/2 turn an error e into eta + (1 - 2 eta) e, so the
# best rule stays the best.
#
# With M conditions and answers within tau, the error of the chosen rule is at most 2 tau above the least.


_HALF_UNIT = 2.0**-31
"""Half of the unit in which coordinates are stored, so that a coordinate exactly at a bound counts as at least it."""


@dataclass(frozen=True)
class _Rule:
    """A condition, in words and as a predicate, and a theta whose score is positive exactly where it holds."""

    text: str
    condition: Predicate
    theta: Vector


class DecisionStump(QueryClassifier):
    """The best rule on one feature; the module's docstring lists the rules.

    cuts: bounds for each real feature, at least 1. part: of the oracle's budget. After `fit_queries`: `rule_`, in
    words, and `error_`, the least of many estimates, so more likely too low than too high.
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
