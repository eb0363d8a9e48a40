"""Asking within a budget: what answers say, what they cost together, and what is refused before anybody is asked."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.gaussian import gaussian_mu
from dpcore.errors import ConfigurationError, OracleRefusedError, PlanError
from dpcore.predicates.frontend import x, y, z
from dpcore.queries.several_releases import CountedRelease, composed_cost
from learner.composition import FIXED_NOISE, WHOLE_BUDGET
from learner.federation import Federation
from tests.learner.memory import Memory, patients
from tests.learner.totals import SCHEMA, World
from wire.errors import Code, WireError
from wire.query import setting_of

ROWS = {"a": 4000, "b": 3000, "c": 5000, "d": 2000}
EPSILON, DELTA = Fraction(2), Fraction(1, 10**6)


@pytest.fixture
def memory(learner_key) -> Memory:
    records = {name: patients(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    return Memory(World(learner_key, dict(ROWS)), records)


def pooled(memory: Memory) -> tuple[np.ndarray, np.ndarray]:
    """(features, labels) of all rows in real units."""
    parts = memory.records.values()
    return np.vstack([part.features * 2.0**-30 for part in parts]), np.concatenate([part.labels for part in parts])


def test_statistics_are_as_near_as_they_say(memory):
    features, labels = pooled(memory)
    asked = (x["age"] >= 50) & (y == 1)
    found = Federation(memory, SCHEMA).statistic([asked, 'x["smoker"]'], epsilon=EPSILON, confidence=0.99)
    true = [np.mean((features[:, 0] >= 0) & (labels > 0)), np.mean(features[:, 1] > 0)]
    assert np.abs(found.values - true).max() <= found.noise
    assert found.rows == sum(ROWS.values())
    assert found.sampling == pytest.approx(math.sqrt(math.log(2 * 2 / 0.005) / (2 * found.rows)))
    assert found.quantisation == 0
    assert found.tolerance == pytest.approx(found.sampling + found.noise)
    # Laplace noise of scale 1 on two counts, in four shares of a half.
    assert found.deviation == pytest.approx(math.sqrt(2 * 2) * 1.0 / found.rows, rel=0.02)
    assert found.distribution is not None
    assert found.distribution.deviation == pytest.approx(found.deviation * found.rows)
    assert found.distribution.copies == 2


def test_flipped_labels_are_corrected(memory):
    clean = Federation(memory, SCHEMA).statistic([y == 1], epsilon=EPSILON).values[0]
    memory.records = {name: patients(rows, seed, 0.3) for seed, (name, rows) in enumerate(ROWS.items())}
    seen = Federation(memory, SCHEMA).statistic([y == 1], epsilon=EPSILON)
    corrected = Federation(memory, SCHEMA).statistic([y == 1], epsilon=EPSILON, noise_rate=0.3)
    assert abs(seen.values[0] - clean) > 0.1
    assert abs(corrected.values[0] - clean) < corrected.tolerance < 0.06
    assert corrected.sampling == pytest.approx(seen.sampling / 0.4)
    assert seen.distribution is not None
    # Its noise is of two answers, of different weights.
    assert corrected.distribution is None
    assert len(memory.asked[-1].kind.predicates) == 2


def test_too_few_rows_are_refused_with_the_number_that_would_do(memory):
    federation = Federation(memory, SCHEMA)
    with pytest.raises(PlanError, match="rows would") as refused:
        federation.statistic([y == 1], epsilon=EPSILON, tolerance=0.005)
    needed = int(str(refused.value).split(": ")[1].split()[0])
    assert memory.asked == []
    assert needed > sum(ROWS.values())
    memory.world.rows["a"] = needed - (sum(ROWS.values()) - ROWS["a"])
    assert Federation(memory, SCHEMA).statistic([y == 1], epsilon=EPSILON, tolerance=0.005).rows == sum(ROWS.values())
    memory.world.rows["a"] -= 1
    with pytest.raises(PlanError):
        Federation(memory, SCHEMA).statistic([y == 1], epsilon=EPSILON, tolerance=0.005)


def test_a_tolerance_needs_rows_that_are_stated(memory):
    """Or parties would be charged for what turns out too late to be of no use."""
    memory.world.rows = dict.fromkeys(ROWS)
    with pytest.raises(PlanError, match="NAME=ROWS"):
        Federation(memory, SCHEMA).statistic([y == 1], epsilon=EPSILON, tolerance=0.1)
    assert memory.asked == []
    assert Federation(memory, SCHEMA).statistic([y == 1], epsilon=EPSILON).tolerance > 0


@pytest.mark.parametrize("batch", ["y == 1", y == 1, x["smoker"]])
def test_a_batch_is_a_list(memory, batch):
    with pytest.raises(ConfigurationError, match="even for a single one"):
        Federation(memory, SCHEMA).statistic(batch, epsilon=EPSILON)


def test_gradients_and_moments_within_one_budget(memory):
    features, labels = pooled(memory)
    edges = features * labels[:, None]
    theta = np.array([0.3, -0.2, 0.1])
    oracle = Federation(memory, SCHEMA).within(EPSILON, DELTA)
    moments = oracle.moments(part=Fraction(1, 2), norm_bound=Fraction(2))
    assert np.abs(moments.edge_sum - edges.sum(0)).max() < 6 * moments.edge_noise
    gradient = oracle.gradient(theta, clip=Fraction(2), part=Fraction(1, 4))
    true = -(edges / (1 + np.exp(edges @ theta))[:, None]).mean(0)
    assert np.abs(gradient.mean - true).max() < 6 * gradient.deviation + 1e-3
    # 2 C over mu of a quarter of the budget, against two honest parties of four: in all, sqrt 2 times that.
    mu = gaussian_mu(EPSILON, DELTA) * math.sqrt(1 / 4)
    assert gradient.deviation == pytest.approx(math.sqrt(4 / 2) * 2 * 2 / mu / gradient.rows, rel=1e-3)
    counts = oracle.statistic([z["age"] >= 0], part=Fraction(1, 4))
    assert abs(counts.values[0] - np.mean(features[:, 0] >= 0)) <= counts.noise
    with pytest.raises(ConfigurationError, match="parts that add up to 1"):
        oracle.gradient(theta, clip=Fraction(2), part=Fraction(1, 1000))
    cost = oracle.cost()
    assert 0.999 * EPSILON < cost.epsilon_if_others_collude <= EPSILON
    counted = [CountedRelease(query.kind, ROWS, SCHEMA, setting_of(query)) for query in memory.asked]
    assert cost == composed_cost(counted, DELTA)
    statement = oracle.statement()
    assert statement.assumptions[0] == FIXED_NOISE.format(count="3 releases")
    assert (statement.epsilon, statement.delta) == (cost.epsilon, 1e-6)


def test_one_answer_has_its_own_statement(memory):
    oracle = Federation(memory, SCHEMA).within(EPSILON, Fraction(0))
    with pytest.raises(ConfigurationError, match="nothing was answered"):
        oracle.statement()
    oracle.statistic([y == 1])
    assert oracle.statement() is oracle.answers[0].statement
    assert (oracle.statement().epsilon, oracle.statement().delta) == (2.0, 0.0)


@pytest.mark.parametrize("what", ["moments", "gradient"])
def test_a_pure_budget_has_no_gaussian_noise(memory, what):
    oracle = Federation(memory, SCHEMA).within(EPSILON, Fraction(0))
    arguments = (np.zeros(3),) if what == "gradient" else ()
    options = {"clip": Fraction(1)} if what == "gradient" else {}
    with pytest.raises(ConfigurationError, match="no delta of 0"):
        getattr(oracle, what)(*arguments, **options)
    assert memory.asked == []


def test_a_pure_budget_is_divided_as_epsilons(memory):
    oracle = Federation(memory, SCHEMA).within(EPSILON, Fraction(0))
    for _ in range(4):
        oracle.statistic([y == 1], part=Fraction(1, 4))
    assert 1.999 < oracle.cost().epsilon <= 2
    assert oracle.cost().delta == 0


def test_a_refusal_says_what_was_spent(memory):
    memory.refusal, memory.refuse_from = WireError(Code.COHORT_TOO_SMALL, "Two parties of three are ready."), 2
    oracle = Federation(memory, SCHEMA).within(EPSILON, DELTA)
    for _ in range(2):
        oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(1, 4))
    with pytest.raises(OracleRefusedError, match="2 answers were released, at a total cost of epsilon") as refused:
        oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(1, 4))
    assert "Two parties of three" in str(refused.value)
    assert len(oracle.answers) == 2
    # The parties refused, whatever the records are: what was released is what is counted.
    assert oracle.cost().epsilon_if_others_collude < 0.8 * EPSILON
    # It may have been charged: what it was to take is gone.
    with pytest.raises(ConfigurationError, match=r"0\.25 of it is left"):
        oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(1, 2))


def test_other_errors_are_not_refusals(memory):
    memory.refusal, memory.refuse_from = WireError(Code.SIGNATURE_INVALID), 0
    with pytest.raises(WireError):
        Federation(memory, SCHEMA).within(EPSILON, DELTA).gradient(np.zeros(3), clip=Fraction(1))


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [(1.0, DELTA, "exact fractions"), (Fraction(0), DELTA, "positive"), (EPSILON, Fraction(1), "in .0, 1.")],
)
def test_a_budget_is_a_budget(memory, epsilon, delta, words):
    with pytest.raises(ConfigurationError, match=words):
        Federation(memory, SCHEMA).within(epsilon, delta)


@pytest.mark.parametrize("options", [{"confidence": 1.0}, {"tolerance": 0.0}, {"tolerance": 2}, {"noise_rate": 0.5}])
def test_bad_options_are_refused(memory, options):
    with pytest.raises(ConfigurationError):
        Federation(memory, SCHEMA).statistic([y == 1], epsilon=EPSILON, **options)
    assert memory.asked == []


def test_a_learner_that_stops_by_itself_is_counted_whole(memory):
    """Where it ends may depend on the records: a smaller figure for those that made it end early would say so."""
    oracle = Federation(memory, SCHEMA).within(EPSILON, DELTA)
    oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(1, 8))
    assert 0.999 * EPSILON < oracle.cost().epsilon_if_others_collude <= EPSILON
    assert WHOLE_BUDGET in oracle.statement().assumptions
    oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(7, 8))
    assert 0.999 * EPSILON < oracle.cost().epsilon_if_others_collude <= EPSILON
    assert WHOLE_BUDGET not in oracle.statement().assumptions
    pure = Federation(memory, SCHEMA).within(EPSILON, Fraction(0))
    pure.statistic([y == 1], part=Fraction(1, 8))
    assert (pure.cost().epsilon, pure.cost().delta) == (pytest.approx(2), 0)


def test_a_lone_flag_is_a_predicate(memory):
    assert Federation(memory, SCHEMA).statistic([x["smoker"]], epsilon=EPSILON).values.shape == (1,)
