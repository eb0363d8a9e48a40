"""Decision lists by statistical queries, with a guarantee on the error (after Kearns, J. ACM 45(6), 1998).

A round asks, for each literal l and label b, for the share of rows in the region R, where no rule applies yet, that l
covers with the other label: what the rule "if l then b" gets wrong. All rules are added whose answer is at most the
tolerance, or twice it for a difference of two.

For labels of a list of b blocks of rules of one label, b + 1 rounds leave a region of one label, and the error is at
most `error`. For any labels it is at most `error_bound_`, the sum of what rules and the last region get wrong, with
tolerances. Proof: docs/explanation/proofs.md, "Decision lists".
"""

from fractions import Fraction

import numpy as np

from dpcore.errors import ConfigurationError, SchemaError
from dpcore.estimators.oracle import StatisticOracle, check_left
from dpcore.estimators.statistical_queries import (
    MOST_RULES,
    Candidate,
    Contingency,
    QueryClassifier,
    candidates,
    cells,
    list_theta,
    literal_features,
)
from dpcore.numbers.fixed_point import Vector
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import CHOSEN_BEFORE


class KearnsList(QueryClassifier):
    """A decision list over boolean features and values of categories, with a bound on its error.

    - error, failure: in (0, 1); what labels of a list are learned to, and the probability that the bound fails.
    - rounds: at least 1, each with an equal share of `part`: one more than the blocks of rules of one label.
    - require_rows: refuse an oracle whose answers do not keep the tolerance that `error` needs, as adaptive questions.

    After `fit_queries`: `rules_`, (condition, label) in order; `default_`; `error_bound_`, None where it is not known
    for new rows; `guarantee_` in words or None; `warning_` if a region of both labels is left, else None.
    """

    warning_: str | None
    guarantee_: str | None

    def __init__(
        self,
        *,
        error: float = 0.1,
        failure: float = 0.05,
        rounds: int = 4,
        part: Fraction | int = 1,
        require_rows: bool = True,
    ) -> None:
        self.error = error
        self.failure = failure
        self.rounds = rounds
        self.part = part
        self.require_rows = require_rows

    def _learn(self, oracle: StatisticOracle) -> Vector:
        schema = oracle.schema
        self._check(schema)
        check_left(oracle, Fraction(self.part), shrinks=True)
        if self.require_rows and self.rounds > 1 and getattr(oracle, "adaptive", self.rounds) is None:
            raise ConfigurationError(
                f"the list's bound counts on {self.rounds} rounds of questions that answers choose: ask with adaptive "
                f"= {self.rounds} (--adaptive {self.rounds}), or set require_rows to False to go without the bound"
            )
        rules: list[Candidate] = []
        bound, used, premise = 0.0, set[str](), CHOSEN_BEFORE
        for number in range(self.rounds):
            region = tuple(rule.literal.negated().predicate for rule in rules)
            contingency = Contingency(literal_features(schema), region)
            estimates = oracle.statistic(
                contingency.predicates(),
                part=Fraction(self.part) / self.rounds,
                tolerance=tolerance_for(schema, self.error) if self.require_rows else None,
                confidence=1.0 - self.failure,
            )
            premise = estimates.premise if number else premise
            classes, width = estimates.values[:2], estimates.tolerance
            default, added = bool(classes[0] > classes[1]), list[Candidate]()
            if classes.min() <= width:
                break
            found = candidates(schema, classes, contingency.split(estimates.values)[1])
            for rule in sorted(found, key=lambda each: -each.right):
                slack = width * rule.terms
                if rule.wrong > slack or rule.literal.text in used or len(rules) + len(added) == MOST_RULES:
                    continue
                added.append(rule)
                used.add(rule.literal.text)
                bound += max(0.0, rule.wrong) + slack
            rules += added
            right = sum((rule.right if rule.positive else -rule.right for rule in added), 0.0)
            default = bool(classes[0] - classes[1] > right)
            if not added:
                break
        self.rules_ = tuple((rule.literal.text, 1 if rule.positive else -1) for rule in rules)
        self.default_ = 1 if default else -1
        # Rows that no rule covers are in the region of the last question.
        self._promise(bound + max(0.0, float(classes[int(default)])) + width, premise)
        left = (
            f"a region of both labels is left: the labels are of no list, or of one with {self.rounds} blocks or more"
        )
        self.warning_ = left if added or classes.min() > width else None
        return list_theta(schema, rules, self.default_)

    def _promise(self, bound: float, premise: str) -> None:
        """Keep the bound, unless answers chose questions whose tolerance does not hold then."""
        self.error_bound_ = None if premise == CHOSEN_BEFORE and len(self.rules_) else min(1.0, bound)
        self.guarantee_ = (
            None
            if self.error_bound_ is None
            else f"the list errs on at most {self.error_bound_:.4g} of new rows, with probability {1 - self.failure:g}"
        )

    def _check(self, schema: Schema) -> None:
        for name in ("error", "failure"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}: it must be between 0 and 1")
        if self.rounds < 1:
            raise ConfigurationError(f"rounds is {self.rounds}: give at least 1")
        if not literal_features(schema):
            raise SchemaError(
                f"schema {schema.name!r} has neither a boolean nor a category feature for rules: add one, such as a "
                "threshold of a real feature"
            )


def tolerance_for(schema: Schema, error: float) -> float:
    """The tolerance of each answer at which labels of a list are learned to `error`: error / (2 (1 + sum of terms))."""
    tables = tuple(np.zeros((len(cells(feature, 2)), 2)) for feature in literal_features(schema))
    terms = {rule.literal.text: rule.terms for rule in candidates(schema, np.zeros(2), tables)}
    return error / (2.0 * (1.0 + sum(terms.values())))
