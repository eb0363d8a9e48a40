"""The best rule on one feature, by statistical queries: the errors of each rule are a count.

The rules: a boolean or threshold feature is true; a category has a listed value; a real feature is at least one of
`cuts` bounds that divide its declared range evenly; each of them reversed; and either class always.

For each condition c one query is asked, phi = [c(x) != (y = 1)], the rule's error. The reversed rule errs where phi is
0 on a usable row. Random flips of labels at a rate eta below 1/2 turn an error e into eta + (1 - 2 eta) e, so the best
rule stays the best.

With M conditions and answers within tau, the error of the chosen rule is at most 2 tau above the least.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import Vector
from dpcore.estimators.contingency import cuts, encoded
from dpcore.estimators.oracle import StatisticOracle
from dpcore.estimators.query_learner import CLASSES, QueryClassifier, add_literal, flags, indicators
from dpcore.predicates.expressions import And, AtLeast, Not, Or, Predicate
from dpcore.records.schema import Schema

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
