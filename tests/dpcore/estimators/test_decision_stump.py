"""The best rule on one feature is found, agrees with `predict`, and gets worse with noise."""

from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, SchemaError
from dpcore.estimators.statistical_queries import DecisionStump, cuts, encoded
from tests.dpcore.estimators.oracle_world import category, divided, flag, real, schema_of

SCHEMA = schema_of(flag("smoker"), category("job", "abc"), real("age", 20.0, 90.0))


def table(m, seed, *, rule, error=0.1):
    """Rows of all kinds of features; the label is `rule(truths, job, age)` except in a share `error` of rows."""
    random = np.random.default_rng(seed)
    truths, job, age = random.uniform(size=m) < 0.4, random.integers(0, 4, m), random.uniform(20, 90, m)
    x = np.column_stack([np.where(truths, 1, -1), *(job == i for i in range(3)), (age - 20) / 35 - 1, np.ones(m)])
    flipped = random.uniform(size=m) < error
    return x, np.where(rule(truths, job, age) ^ flipped, 1, -1)


BOUND = float(cuts(SCHEMA.features[2], 16)[4])
RULES = {
    "smoker": lambda truths, _job, _age: truths,
    "not smoker": lambda truths, _job, _age: ~truths,
    "job = b": lambda _truths, job, _age: job == 1,
    "not job = c": lambda _truths, job, _age: job != 2,
    f"age >= {BOUND:g}": lambda _truths, _job, age: age >= BOUND,
    f"not age >= {BOUND:g}": lambda _truths, _job, age: age < BOUND,
    "true": lambda truths, _job, _age: truths | True,
    "false": lambda truths, _job, _age: truths & False,
}


@pytest.mark.parametrize("text", RULES)
@pytest.mark.parametrize("epsilon", [None, 2])
def test_the_rule_behind_the_labels_is_found(text, epsilon):
    x, labels = table(4000, 1, rule=RULES[text])
    learner = DecisionStump().fit_queries(divided(SCHEMA, x, labels, epsilon=epsilon))
    assert learner.rule_ == text
    wrong = (learner.predict(x) != labels).mean()
    assert wrong == pytest.approx(0.1, abs=0.02)
    assert learner.error_ == pytest.approx(wrong, abs=1e-12 if epsilon is None else 0.04)


def test_a_value_exactly_at_a_bound_counts_as_at_least_it():
    schema = schema_of(real("age", 0.0, 16.0))
    # Cuts at 1, 2, ..., 15.
    ages = np.array([3.0, 4.0, 5.0] * 4)
    x = np.column_stack([ages / 8 - 1, np.ones(12)])
    learner = DecisionStump(cuts=15).fit_queries(divided(schema, x, np.where(ages >= 4, 1, -1), parties=2))
    assert learner.rule_ == "age >= 4"
    assert np.array_equal(learner.predict(x), np.where(ages >= 4, 1, -1))


@pytest.mark.parametrize(("lower", "upper"), [(0.1, 0.7), (-1e-6, 3e-6), (1e9, 1e9 + 7), (-3e15, 1e15)])
def test_cuts_are_short_fractions_that_divide_the_range(lower, upper):
    feature = real("x", lower, upper)
    bounds = cuts(feature, 9)
    assert np.allclose([encoded(feature, bound) for bound in bounds], np.linspace(-1, 1, 11)[1:-1], atol=1e-6)
    assert all(max(abs(bound.numerator), bound.denominator) < 2**63 for bound in bounds)
    assert list(bounds) == sorted(set(bounds))


@pytest.mark.slow
def test_noise_costs_accuracy():
    errors = {epsilon: [] for epsilon in (None, 10, 0.02)}
    for epsilon, found in errors.items():
        for seed in range(6):
            x, labels = table(1500, seed, rule=RULES["job = b"])
            learner = DecisionStump().fit_queries(divided(SCHEMA, x, labels, epsilon=epsilon, seed=seed))
            found.append((learner.predict(x) != labels).mean())
    exact, little, much = map(np.mean, errors.values())
    assert exact == pytest.approx(0.1, abs=0.02)
    assert little == pytest.approx(exact, abs=0.02)
    assert much > exact + 0.1


def test_one_release_takes_the_part_it_is_given():
    x, labels = table(100, 1, rule=RULES["smoker"])
    oracle = divided(SCHEMA, x, labels)
    DecisionStump(cuts=5, part=Fraction(1, 4)).fit_queries(oracle)
    ((asked, part),) = oracle.releases
    assert (len(asked), part) == (2 + 1 + 3 + 5, Fraction(1, 4))


def test_unusable_schemas_and_parameters_are_refused():
    x, labels = table(20, 1, rule=RULES["smoker"])
    with pytest.raises(ConfigurationError, match="cuts"):
        DecisionStump(cuts=0).fit_queries(divided(SCHEMA, x, labels))
    with pytest.raises(SchemaError, match="bias"):
        DecisionStump().fit_queries(divided(schema_of(*SCHEMA.features, bias=False), x[:, :-1], labels))
