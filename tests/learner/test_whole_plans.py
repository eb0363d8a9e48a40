"""An estimator that cannot finish within what is left of its budget asks nothing; the advice works."""

import re
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError, PlanError
from learner.estimators import make_estimator
from learner.federation import Federation
from tests.federation.learner import SCHEMA, Memory, World, patients

ROWS = {"a": 1000, "b": 1000, "c": 1000}
EPSILON, DELTA = Fraction(2), Fraction(1, 10**6)
SEVERAL_ROUNDS = ("newton", "additive", "logistic-gd", "hinge-gd", "logistic-regression", "decision-list")


@pytest.fixture
def memory(learner_key) -> Memory:
    records = {name: patients(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    return Memory(World(learner_key, dict(ROWS)), records)


@pytest.mark.parametrize("name", SEVERAL_ROUNDS)
def test_a_training_after_a_batch_checks_all_of_its_queries_before_the_first(memory, name):
    oracle = Federation(memory, SCHEMA).within(EPSILON, DELTA)
    oracle.statistic(["y == 1"], part=Fraction(1, 2))
    with pytest.raises(ConfigurationError, match=r"take 1 of the budget, and 0\.5 of it is left, so it asks nothing"):
        make_estimator(name).fit_queries(oracle)
    assert len(memory.asked) == 1
    assert oracle.left == Fraction(1, 2)


@pytest.mark.parametrize("name", SEVERAL_ROUNDS)
def test_the_advice_of_an_oracle_of_its_own_works(memory, name):
    federation = Federation(memory, SCHEMA)
    spent = federation.within(EPSILON, DELTA)
    spent.statistic(["y == 1"], part=Fraction(1, 2))
    with pytest.raises(ConfigurationError, match=r"federation\.within\(epsilon, delta\)"):
        make_estimator(name).fit_queries(spent)
    estimator = make_estimator(name).fit_queries(federation.within(EPSILON, DELTA))
    assert len(estimator.theta_) >= SCHEMA.d


def test_the_advice_of_a_smaller_part_works(memory):
    oracle = Federation(memory, SCHEMA).within(EPSILON, DELTA)
    oracle.statistic(["y == 1"], part=Fraction(1, 3))
    with pytest.raises(ConfigurationError, match="set part to") as refused:
        make_estimator("decision-list").fit_queries(oracle)
    part = re.search("set part to ([0-9/]+) or less", str(refused.value)).group(1)
    make_estimator("decision-list", part=Fraction(part)).fit_queries(oracle)
    assert oracle.left >= 0


@pytest.mark.more
def test_a_training_that_would_be_straight_stops_before_it_spends(memory):
    """The advice: without the option there is a straight model; with the stated rows there are curves."""
    oracle = Federation(memory, SCHEMA).within(Fraction(1, 20), DELTA)
    with pytest.raises(PlanError, match=r"the model is straight: .* Nothing was asked") as refused:
        make_estimator("additive", stop_if_straight=True).fit_queries(oracle)
    assert (memory.asked, oracle.left) == ([], 1)
    assert make_estimator("additive").fit_queries(oracle).feature_map_ is None
    needed = int(re.search(r"from ([0-9,]+) rows on", str(refused.value)).group(1).replace(",", ""))
    memory.world.rows["a"] += needed - sum(ROWS.values())
    larger = Federation(memory, SCHEMA).within(Fraction(1, 20), DELTA)
    fitted = make_estimator("additive", stop_if_straight=True).fit_queries(larger)
    assert fitted.feature_map_ is not None
