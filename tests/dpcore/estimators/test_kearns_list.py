"""Kearns' decision lists: labels of a list are learned to the error that is asked for, and the printed bound holds."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.estimators.kearns_list import KearnsList, tolerance_for
from dpcore.predicates.evaluation import sums
from dpcore.statistics.accuracy import CHOSEN_BEFORE, Estimates
from tests.dpcore.estimators.oracle_world import (
    category,
    divided,
    flag,
    flag_rows,
    flags_schema,
    real,
    records,
    schema_of,
)
from tests.dpcore.estimators.test_decision_list import SCHEMA, TRUTH, rows_of


class Table:
    """An oracle about a distribution over all rows of d booleans: answers are off by the tolerance, at either end."""

    epsilon, delta, rows = Fraction(1), Fraction(0), 10**9

    def __init__(self, truths, weights, labels, off):
        self.schema = flags_schema(truths.shape[1])
        self.each = [records(flag_rows(truths[[place]]), labels[[place]]) for place in range(len(labels))]
        self.weights, self.off, self.asked = weights, off, 0

    def statistic(self, predicates, *, part, tolerance, confidence):
        assert tolerance == tolerance_for(self.schema, 0.1)
        assert confidence == 0.95
        self.asked += 1
        exact = self.weights @ np.array([sums(predicates, self.schema, row, 0) for row in self.each])
        premise = "in a test" if self.asked > 1 else CHOSEN_BEFORE
        values = exact + tolerance * self.off(len(predicates))
        return Estimates(values, self.rows, confidence, tolerance, 0.0, 0.0, 0.0, premise=premise)


def labels_of(truths, rules, default):
    labels = np.full(len(truths), default)
    for place, sense, label in reversed(rules):
        labels = np.where(truths[:, place] == sense, label, labels)
    return labels


@pytest.mark.variants(3)
@pytest.mark.parametrize("seed", range(8))
def test_labels_of_a_list_are_learned_to_the_error_whatever_the_answers_within_the_tolerance(seed):
    """Any distribution: random weights over all rows, random lists, answers at the ends of their tolerance."""
    random = np.random.default_rng(seed)
    d, tolerance = 4, tolerance_for(flags_schema(4), 0.1)
    assert tolerance == pytest.approx(0.1 / (2 * (1 + 8)))
    rules = [(place, random.random() < 0.5, random.choice([-1, 1])) for place in random.permutation(d)]
    truths = np.array(list(product([False, True], repeat=d)))
    weights = random.dirichlet(np.full(len(truths), 0.3))
    labels = labels_of(truths, rules, random.choice([-1, 1]))
    table = Table(truths, weights, labels, lambda count: random.choice([-1.0, 1.0], count))
    learner = KearnsList(rounds=d + 1).fit_queries(table)
    error = float(weights[learner.predict(flag_rows(truths)) != labels].sum())
    assert error - 1e-12 <= learner.error_bound_ <= 0.1 + 1e-12
    assert learner.warning_ is None
    assert "of new rows, with probability 0.95" in learner.guarantee_


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_holds_for_any_labels(seed):
    random = np.random.default_rng(50 + seed)
    d = 3
    truths = np.array(list(product([False, True], repeat=d)))
    weights, labels = random.dirichlet(np.ones(8)), random.choice([-1, 1], 8)
    table = Table(truths, weights, labels, lambda count: -np.ones(count))
    learner = KearnsList(rounds=2).fit_queries(table)
    assert float(weights[learner.predict(flag_rows(truths)) != labels].sum()) <= learner.error_bound_ + 1e-12


def test_a_list_with_categories_is_learned_from_rows():
    x, labels, clean, _ = rows_of(20_000, 2)
    learner = KearnsList(rounds=5, require_rows=False).fit_queries(divided(SCHEMA, x, labels))
    assert (learner.predict(x) != clean).mean() < 0.02
    assert {text for text, _ in TRUTH} - {"f0"} <= {text for text, _ in learner.rules_}


def test_without_a_series_of_adaptive_questions_nothing_is_promised_about_new_rows():
    x, labels, _, _ = rows_of(20_000, 2)
    oracle = divided(SCHEMA, x, labels)
    assert KearnsList(rounds=5, require_rows=False).fit_queries(oracle).guarantee_ is None
    oracle.adaptive = None
    with pytest.raises(ConfigurationError, match="--adaptive 3"):
        KearnsList(rounds=3).fit_queries(oracle)


@pytest.mark.parametrize("options", [{"error": 0.0}, {"failure": 1.0}, {"rounds": 0}])
def test_impossible_options_are_refused(options):
    x, labels, _, _ = rows_of(100, 2)
    with pytest.raises(ConfigurationError):
        KearnsList(**options).fit_queries(divided(SCHEMA, x, labels))


def test_a_negated_value_of_a_category_counts_twice():
    schema = schema_of(flag("f"), category("job", "abc"), real("age"))
    assert tolerance_for(schema, 0.3) == pytest.approx(0.3 / (2 * (1 + 2 + 3 + 6)))
