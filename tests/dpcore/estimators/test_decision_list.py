"""Decision lists: scores agree with the list, true lists are found, and refusals and noise are handled."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError, OracleRefusedError, SchemaError
from dpcore.estimators.statistical_queries import MOST_RULES, Candidate, DecisionList, flags, indicators, list_theta
from tests.dpcore.estimators.oracle_world import category, divided, flag, real, schema_of

SCHEMA = schema_of(*(flag(f"f{i}") for i in range(6)), category("job", "abc"), real("age"))
LITERALS = {literal.text: literal for literal in flags(SCHEMA) + indicators(SCHEMA)}
LITERALS |= {f"not {text}": literal.negated() for text, literal in LITERALS.items()}
TRUTH = [("f1", 1), ("not f4", -1), ("job = b", 1), ("f0", -1)]


def rows_of(m, seed, *, rules=TRUTH, default=1, eta=0.0):
    random = np.random.default_rng(seed)
    truths, job = random.uniform(size=(m, 6)) < 0.35, random.integers(0, 4, m)
    truths[:, 4] = random.uniform(size=m) < 0.65
    holds = {f"f{i}": truths[:, i] for i in range(6)} | {f"job = {v}": job == i for i, v in enumerate("abc")}
    holds |= {f"not {text}": ~column for text, column in holds.items()}
    labels = apply(rules, default, holds, m)
    indicator = np.column_stack([job == i for i in range(3)])
    x = np.column_stack([np.where(truths, 1.0, -1.0), indicator, random.uniform(-1, 1, m), np.ones(m)])
    return x, np.where(random.uniform(size=m) < eta, -labels, labels), labels, holds


def apply(rules, default, holds, m):
    """The list itself, from its last rule to its first."""
    labels = np.full(m, default)
    for text, label in reversed(rules):
        labels = np.where(holds[text], label, labels)
    return labels


@given(
    st.lists(st.tuples(st.sampled_from(sorted(LITERALS)), st.booleans()), max_size=MOST_RULES),
    st.sampled_from([-1, 1]),
)
def test_the_score_has_the_sign_of_the_first_rule_that_applies(rules, default):
    """Also for 40 rules, the last with 2^-40 of the first's weight, and for repeated literals."""
    x, _, _, holds = rows_of(300, 4)
    theta = list_theta(SCHEMA, [Candidate(LITERALS[text], label, 0.0, 0.0) for text, label in rules], default)
    listed = [(text, 1 if label else -1) for text, label in rules]
    assert np.array_equal(np.sign(x @ theta), apply(listed, default, holds, len(x)))


def test_exact_sums_carry_the_longest_list():
    """Alternating labels, all literals false except the last: its weight decides, despite rounding."""
    one = LITERALS["f0"]
    rules = [Candidate(one, i % 2 == 0, 0.0, 0.0) for i in range(MOST_RULES - 1)]
    theta = list_theta(SCHEMA, [*rules, Candidate(LITERALS["f1"], positive=True, right=0.0, wrong=0.0)], -1)
    x = np.zeros(SCHEMA.d)
    x[[0, 1, -1]] = -1, 1, 1
    assert x @ theta == 1.0


@pytest.mark.parametrize(("eta", "epsilon", "delta"), [(0.0, None, 0), (0.25, None, 0), (0.0, 4, Fraction(1, 10**6))])
def test_a_true_list_is_learned(eta, epsilon, delta):
    x, labels, clean, _ = rows_of(20_000, 2, eta=eta)
    oracle = divided(SCHEMA, x, labels, epsilon=epsilon, delta=delta)
    learner = DecisionList(max_rules=6, noise_rate=eta).fit_queries(oracle)
    assert (learner.predict(x) != clean).mean() < 0.02
    assert len(learner.rules_) <= 6
    assert all(part == Fraction(1, 6) for _, part in oracle.releases)


def test_an_unknown_label_noise_still_gives_a_list_near_the_best():
    x, labels, _, _ = rows_of(20_000, 3, eta=0.15)
    learner = DecisionList().fit_queries(divided(SCHEMA, x, labels))
    assert (learner.predict(x) != labels).mean() < 0.15 + 0.03


def test_a_value_can_be_ruled_out():
    x, labels, clean, _ = rows_of(10_000, 8, rules=[("not job = a", -1), ("f0", 1)], default=-1)
    learner = DecisionList().fit_queries(divided(SCHEMA, x, labels))
    assert learner.rules_[0] == ("not job = a", -1)
    assert np.array_equal(learner.predict(x), clean)


def test_the_list_in_words_agrees_with_predict():
    x, labels, _, holds = rows_of(5000, 5, eta=0.1)
    learner = DecisionList().fit_queries(divided(SCHEMA, x, labels, epsilon=8, delta=Fraction(1, 10**5)))
    assert learner.rules_
    assert np.array_equal(learner.predict(x), apply(learner.rules_, learner.default_, holds, len(x)))


def test_a_refusal_keeps_the_rules_so_far_and_the_first_is_passed_on():
    x, labels, clean, _ = rows_of(20_000, 6)
    whole = DecisionList().fit_queries(divided(SCHEMA, x, labels))
    cut = DecisionList().fit_queries(divided(SCHEMA, x, labels, answers=2))
    assert cut.rules_ == whole.rules_[:2]
    assert cut.warning_ == "kept the rules of 2 of 8 rounds: the budget is spent"
    assert whole.warning_ is None
    wrong = [(learner.predict(x) != clean).mean() for learner in (cut, whole)]
    assert wrong[1] < wrong[0] < 0.4
    # The default of a list cut short is the larger class of what remains.
    rest = apply([(text, 0) for text, _ in cut.rules_], 1, rows_of(20_000, 6)[3], len(x)) == 1
    assert cut.default_ == np.sign(labels[rest].sum())
    with pytest.raises(OracleRefusedError):
        DecisionList().fit_queries(divided(SCHEMA, x, labels, answers=0))


@pytest.mark.slow
def test_chance_alone_makes_no_rule_and_noise_costs_accuracy():
    x, _, _, _ = rows_of(3000, 7)
    coins = np.where(np.random.default_rng(1).uniform(size=3000) < 0.5, 1, -1)
    learner = DecisionList().fit_queries(divided(SCHEMA, x, coins))
    assert learner.rules_ == ()
    assert "no rule exceeds what chance explains" in learner.warning_
    assert f"predicts {learner.default_:+d} everywhere" in learner.warning_
    assert set(learner.predict(x)) == {learner.default_}
    wrong = {}
    for epsilon in (20, 1):
        found = []
        for seed in range(5):
            x, labels, clean, _ = rows_of(4000, seed)
            oracle = divided(SCHEMA, x, labels, epsilon=epsilon, delta=Fraction(1, 10**5), seed=seed)
            found.append((DecisionList().fit_queries(oracle).predict(x) != clean).mean())
        wrong[epsilon] = np.mean(found)
    assert wrong[20] + 0.02 < wrong[1] < 0.45


def test_a_warning_does_not_outlive_its_training():
    x, labels, _, _ = rows_of(20_000, 6)
    learner = DecisionList().fit_queries(divided(SCHEMA, x, labels, answers=2))
    assert learner.warning_ is not None
    assert learner.fit_queries(divided(SCHEMA, x, labels)).warning_ is None
    assert DecisionList(max_rules=2).fit_queries(divided(SCHEMA, x, labels, answers=2)).warning_ is None


def test_unusable_schemas_and_parameters_are_refused():
    x, labels, _, _ = rows_of(20, 1)
    for bad in (0, MOST_RULES + 1):
        with pytest.raises(ConfigurationError, match="max_rules"):
            DecisionList(max_rules=bad).fit_queries(divided(SCHEMA, x, labels))
    with pytest.raises(SchemaError, match="neither a boolean nor a category"):
        DecisionList().fit_queries(divided(schema_of(real("age")), np.ones((4, 2)), np.ones(4), parties=1))
