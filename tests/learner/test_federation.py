"""Queries within a budget: the answers, the cost of their composition, and refusals before anything is sent."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.gaussian import gaussian_epsilon, gaussian_mu
from dpcore.errors import ConfigurationError, OracleRefusedError, PlanError
from dpcore.numbers.rationals import rounded_up
from dpcore.predicates.frontend import x, y, z
from dpcore.queries.statement import CountedRelease, PrivacyStatement, composed_cost
from dpcore.records.feature_map import Column, FeatureMap, Term
from learner.answer_source import RoundEndedError, RoundLostError
from learner.budgeted_oracle import BudgetedOracle
from learner.composition import ALL_ATTEMPTS, FIXED_NOISE, WHOLE_BUDGET
from learner.federation import Federation
from tests.federation.learner import SCHEMA, Memory, World, patients
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
    # Laplace noise of scale 1 on two counts, in four shares of a third.
    assert found.deviation == pytest.approx(math.sqrt(2 * 4 / 3) * 1.0 / found.rows, rel=0.02)
    assert found.distribution is not None
    assert found.distribution.deviation == pytest.approx(found.deviation * found.rows)
    assert found.distribution.copies == pytest.approx(4 / 3)


def test_flipped_labels_are_corrected(memory):
    clean = Federation(memory, SCHEMA).statistic([y == 1], epsilon=EPSILON).values[0]
    memory.records = {name: patients(rows, seed, 0.3) for seed, (name, rows) in enumerate(ROWS.items())}
    seen = Federation(memory, SCHEMA).statistic([y == 1], epsilon=EPSILON)
    corrected = Federation(memory, SCHEMA).statistic([y == 1], epsilon=EPSILON, noise_rate=0.3)
    assert abs(seen.values[0] - clean) > 0.1
    assert abs(corrected.values[0] - clean) < corrected.tolerance < 0.06
    assert corrected.sampling == pytest.approx(seen.sampling / 0.4)
    assert seen.distribution is not None
    # Its noise is that of two answers with different weights.
    assert corrected.distribution is None
    assert len(memory.asked[-1].kind.predicates) == 2


def test_too_few_rows_are_refused_with_the_number_needed(memory):
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


def test_a_tolerance_needs_stated_rows(memory):
    """Otherwise parties would be charged for an answer that turns out to be useless."""
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
    # 2 C over mu of a quarter of the budget, for three honest parties of four.
    mu = gaussian_mu(EPSILON, DELTA) * math.sqrt(1 / 4)
    assert gradient.deviation == pytest.approx(math.sqrt(4 / 3) * 2 * 2 / mu / gradient.rows, rel=1e-3)
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


def test_a_smaller_weight_of_edges_takes_noise_off_products_at_the_same_cost(memory):
    costs, found = [], []
    for weight in (None, Fraction(2, 3)):
        oracle = Federation(memory, SCHEMA).within(EPSILON, DELTA)
        found.append(oracle.moments(norm_bound=Fraction(2), edge_weight=weight))
        costs.append(oracle.cost().epsilon_if_others_collude)
    usual, light = found
    # The sensitivity is R^2 + a^2 / 2 up to a factor: 1 + 1/4 for a = R / sqrt(2), and 1 + 1/18 for a third of R.
    assert light.product_noise.max() / usual.product_noise.max() == pytest.approx((1 + 1 / 18) / (1 + 1 / 4), rel=1e-3)
    assert light.edge_noise > 1.5 * usual.edge_noise
    assert costs == pytest.approx([float(EPSILON)] * 2, rel=1e-3)


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
    with pytest.raises(OracleRefusedError, match="2 answers were released: in total epsilon is at most") as refused:
        oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(1, 4))
    assert "Two parties of three" in str(refused.value)
    assert len(oracle.answers) == 2
    # Against the learner alone only the releases count; under collusion also the attempt of the refused query.
    assert oracle.cost().epsilon < 0.7 * oracle.cost().epsilon_if_others_collude < 0.9 * EPSILON
    counted = [CountedRelease(query.kind, ROWS, SCHEMA, setting_of(query)) for query in memory.asked]
    assert oracle.cost().epsilon == composed_cost(counted, DELTA).epsilon
    # The refused query may have been charged, so its part of the budget is used up.
    with pytest.raises(ConfigurationError, match=r"0\.25 of it is left"):
        oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(1, 2))


def test_other_errors_are_not_refusals(memory):
    memory.refusal, memory.refuse_from = WireError(Code.SIGNATURE_INVALID), 0
    with pytest.raises(WireError):
        Federation(memory, SCHEMA).within(EPSILON, DELTA).gradient(np.zeros(3), clip=Fraction(1))


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [("1 %", DELTA, "not a number"), (Fraction(0), DELTA, "positive"), (EPSILON, Fraction(1), "in .0, 1.")],
)
def test_invalid_budgets_are_refused(memory, epsilon, delta, words):
    with pytest.raises(ConfigurationError, match=words):
        Federation(memory, SCHEMA).within(epsilon, delta)


@pytest.mark.parametrize("options", [{"confidence": 1.0}, {"tolerance": 0.0}, {"tolerance": 2}, {"noise_rate": 0.5}])
def test_bad_options_are_refused(memory, options):
    with pytest.raises(ConfigurationError):
        Federation(memory, SCHEMA).statistic([y == 1], epsilon=EPSILON, **options)
    assert memory.asked == []


def test_an_estimator_that_stops_early_is_charged_the_whole_budget(memory):
    """The stopping time may depend on the records, and a smaller figure for an early stop would reveal it."""
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


BUDGET = (Fraction(1), Fraction(1, 10**6))


def lost_after(memory, parts, *, lost_attempts=3) -> BudgetedOracle:
    """An oracle with a budget of (1, 1e-6): rounds with these parts, the last of which exhausts its attempts."""
    memory.refusal, memory.lost_attempts = WireError(Code.ATTEMPTS_EXHAUSTED), lost_attempts
    memory.refuse_from = len(parts) - 1
    oracle = Federation(memory, SCHEMA).within(*BUDGET)
    for part in parts[:-1]:
        oracle.gradient(np.zeros(3), clip=Fraction(1), part=part)
    with pytest.raises(OracleRefusedError):
        oracle.gradient(np.zeros(3), clip=Fraction(1), part=parts[-1])
    return oracle


NEWTON = [Fraction(1, 4), Fraction(3, 28), Fraction(3, 28)]


@pytest.mark.parametrize(
    ("parts", "without_lost", "true"),
    [
        (NEWTON, 0.575, 0.812),
        ([Fraction(1, 4), Fraction(3, 4)], 0.475, 1.642),
        ([Fraction(1, 100), Fraction(99, 100)], 0.085, 1.807),
    ],
)
def test_attempts_that_were_lost_count_under_collusion(memory, parts, without_lost, true):
    """The figures of the totals that coordinator, learner and a member that never finished hold; by mu alone."""
    oracle = lost_after(memory, parts)
    cost = oracle.cost()
    held = sum(parts[:-1]) + 3 * parts[-1]
    mu = gaussian_mu(*BUDGET)
    assert cost.epsilon_if_others_collude == pytest.approx(true, abs=1e-3)
    assert cost.epsilon_if_others_collude == pytest.approx(
        gaussian_epsilon(mu * math.sqrt(held), BUDGET[1]).upper, rel=1e-4
    )
    # What was stated before: the answers alone.
    assert gaussian_epsilon(mu * math.sqrt(sum(parts[:-1])), BUDGET[1]).upper == pytest.approx(without_lost, abs=1e-3)
    # Four shares of the noise count against the learner alone, which sees the answers, and three of them otherwise.
    alone = gaussian_epsilon(mu * math.sqrt(sum(parts[:-1]) * 3 / 4), BUDGET[1]).upper
    assert cost.epsilon == pytest.approx(alone, rel=1e-4)
    stated = oracle.statement()
    assert (stated.epsilon, stated.epsilon_if_others_collude) == (cost.epsilon, cost.epsilon_if_others_collude)
    assert ALL_ATTEMPTS.format(lost="3 attempts without an opened total") in stated.assumptions


def test_what_was_spent_is_said_with_the_lost_attempts(memory):
    memory.refusal, memory.lost_attempts, memory.refuse_from = WireError(Code.ATTEMPTS_EXHAUSTED), 3, 0
    oracle = Federation(memory, SCHEMA).within(*BUDGET)
    with pytest.raises(
        OracleRefusedError, match="no answers were released: in total epsilon is at most 0 at"
    ) as refused:
        oracle.gradient(np.zeros(3), clip=Fraction(1))
    # Three attempts of the whole budget, and not "nothing".
    spent = gaussian_epsilon(gaussian_mu(*BUDGET) * math.sqrt(3), BUDGET[1]).upper
    assert oracle.cost().epsilon_if_others_collude == pytest.approx(spent, rel=1e-4)
    assert f"{rounded_up(oracle.cost().epsilon_if_others_collude)} under collusion, which counts 3 attempts" in str(
        refused.value
    )


def test_an_answer_of_a_later_attempt_counts_every_attempt(memory, monkeypatch):
    oracle = Federation(memory, SCHEMA).within(*BUDGET)
    answer = memory.answer
    monkeypatch.setattr(memory, "answer", lambda plan: replace(answer(plan), attempts=2))
    oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(1, 2))
    oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(1, 2))
    twice = gaussian_epsilon(gaussian_mu(*BUDGET) * math.sqrt(2), BUDGET[1]).upper
    assert oracle.cost().epsilon_if_others_collude == pytest.approx(twice, rel=1e-4)
    assert oracle.cost().epsilon < 0.9
    assert ALL_ATTEMPTS.format(lost="2 attempts without an opened total") in oracle.statement().assumptions


@pytest.mark.parametrize("waits", [RoundLostError, RoundEndedError])
def test_a_retry_beyond_the_budget_is_announced_before_it_is_made(memory, waits):
    """An attempt that waits for a decision ends the run with the cost of another one, which was not asked for."""
    memory.refusal, memory.refuse_from = waits("attempt 1 of query 00 was lost", 1), 1
    oracle = Federation(memory, SCHEMA).within(*BUDGET)
    oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(1, 4))
    with pytest.raises(waits, match=r"attempt 1 of query 00 was lost\. With another attempt") as lost:
        oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(1, 4))
    # 1/4, twice 1/4, and the half that is left.
    after = gaussian_epsilon(gaussian_mu(*BUDGET) * math.sqrt(Fraction(5, 4)), BUDGET[1]).upper
    assert lost.value.cost.epsilon_if_others_collude == pytest.approx(after, rel=2e-3)
    figure = rounded_up(lost.value.cost.epsilon_if_others_collude)
    assert f"becomes {figure} at delta 1e-06, above the budget of 1" in str(lost.value)
    assert lost.value.exit_code == 6


def test_a_run_of_several_answers_is_called_a_composition(memory):
    oracle = Federation(memory, SCHEMA).within(*BUDGET)
    oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(1, 2))
    assert oracle.statement().releases == 1
    oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(1, 2))
    stated = oracle.statement()
    assert stated.releases == 2
    assert stated.sentences()[0].startswith("Against the learner alone, the composition of 2 releases is (")
    assert PrivacyStatement.from_dict(stated.to_dict()) == stated
    assert "the whole release" not in stated.sentences()[0]
    # A statement of one release has the keys that it always had.
    assert "releases" not in oracle.answers[0].statement.to_dict()


@pytest.mark.parametrize("refused", ["predicates", "feature map"])
def test_a_refusal_that_answers_may_have_caused_counts_the_whole_budget(memory, refused):
    """A party's limits on terms and predicates decide whether a run goes on, and answers decided how many there are."""
    memory.refusal, memory.refuse_from = WireError(Code.COHORT_TOO_SMALL), 1
    oracle = Federation(memory, SCHEMA).within(*BUDGET)
    oracle.gradient(np.zeros(3), clip=Fraction(1), part=Fraction(1, 8))
    with pytest.raises(OracleRefusedError) as error:
        if refused == "predicates":
            oracle.statistic([y == 1], part=Fraction(1, 8))
        else:
            mapped = FeatureMap((Term(Column(0)),), bias=True)
            oracle.gradient(np.zeros(2), clip=Fraction(1), part=Fraction(1, 8), feature_map=mapped)
    stated = oracle.statement()
    assert 0.999 * BUDGET[0] < stated.epsilon_if_others_collude <= BUDGET[0]
    assert WHOLE_BUDGET in stated.assumptions
    assert rounded_up(stated.epsilon_if_others_collude) in str(error.value)
