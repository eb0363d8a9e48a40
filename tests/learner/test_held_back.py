"""Training on the rows that are not held back, and evaluation on those that are: plans, estimates, models."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, ModelError, PlanError
from dpcore.estimators.conjunction import MonotoneConjunction, PrivateThreshold
from dpcore.estimators.moments_discriminant import MomentsDiscriminant
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.evaluation.evaluation import evaluate
from dpcore.evaluation.options import EvaluationOptions
from dpcore.predicates.frontend import x, y
from dpcore.records.held_back import HeldBack, Part, RowKey, RowNumbers
from learner.federation import Federation
from learner.history import question_digest
from learner.model import Model
from learner.model_file import digest_of
from learner.requests import MomentsRequest, RadosRequest
from learner.training import held_back_from, model_of_answers
from tests.federation.learner import SCHEMA, Memory, World, patients

ROWS = {"a": 4000, "b": 3000, "c": 5000, "d": 2000}
ALL = sum(ROWS.values())
EPSILON, DELTA = Fraction(2), Fraction(1, 10**6)
FIFTH = Fraction(1, 5)
KEYS = 120


@pytest.fixture
def memory(learner_key) -> Memory:
    records = {name: patients(rows, seed, 0.1) for seed, (name, rows) in enumerate(ROWS.items())}
    return Memory(World(learner_key, dict(ROWS)), records)


@pytest.fixture
def parts(memory) -> tuple[Federation, Federation]:
    return Federation(memory, SCHEMA).hold_back(FIFTH)


def inside(memory, part: Part) -> np.ndarray:
    """Which of all rows are in the part, as the parties of `Memory` number them."""
    numbers = (memory.numbers(name).key.of_places(rows) for name, rows in ROWS.items())
    return np.concatenate([HeldBack(FIFTH, part).contains(own) for own in numbers])


def pooled(memory) -> tuple[np.ndarray, np.ndarray]:
    tables = memory.records.values()
    return np.vstack([own.features * 2.0**-30 for own in tables]), np.concatenate([own.labels for own in tables])


# Plans.


@pytest.mark.parametrize("part", Part)
def test_a_plan_says_which_rows_and_costs_what_all_rows_cost(memory, part):
    asked = MomentsRequest(SCHEMA, epsilon=Fraction(1), held_back=HeldBack(FIFTH, part))
    plan, about_all = memory.world.plan(asked), memory.world.plan(replace(asked, held_back=None))
    assert plan.cost == about_all.cost
    assert plan.query.kind == about_all.query.kind
    said = [text for text in plan.sentences() if "share of 0.2" in text]
    assert len(said) == 1
    assert not [text for text in about_all.sentences() if "each party holds back" in text]


@pytest.mark.parametrize(
    ("design", "options"),
    [
        ("plain", {}),
        ("dp-feat", {"sensitive": "smoker"}),
        ("dp-feat", {"sensitive": "smoker", "joint": True, "epsilon": Fraction(1)}),
        ("fixed-support", {}),
        ("fixed-support", {"epsilon": Fraction(1)}),
        ("gaussian", {"epsilon": Fraction(1), "support": Fraction(1, 2)}),
    ],
)
def test_designs_without_zero_vectors_are_refused_with_what_would_work(memory, design, options):
    request = RadosRequest(SCHEMA, 20, design=design, held_back=HeldBack(FIFTH, Part.TRAINING), **options)
    with pytest.raises(PlanError, match="ask moments, gaussian without a support, statistics or gradients"):
        memory.world.plan(request)
    memory.world.plan(replace(request, held_back=None))


def test_rounds_of_a_journal_are_about_the_same_part(memory):
    asked = MomentsRequest(SCHEMA, epsilon=Fraction(1))
    held_back = [HeldBack(share, part) for share in (FIFTH, Fraction(1, 4)) for part in Part]
    digests = {question_digest(memory.world.plan(replace(asked, held_back=part)).query) for part in (None, *held_back)}
    assert len(digests) == 5


# Estimates.


@pytest.mark.parametrize("part", Part)
def test_statistics_of_a_part_are_unbiased_estimates_within_their_widths(memory, parts, part):
    features, labels = pooled(memory)
    federation = parts[list(Part).index(part)]
    found = federation.statistic([y == 1, x["age"] >= 50], epsilon=Fraction(20), confidence=0.999)
    true = np.array([np.mean(labels > 0), np.mean(features[:, 0] >= 0)])
    chance = float(HeldBack(FIFTH, part).chance)
    mask = inside(memory, part)
    counts = np.array([(mask & (labels > 0)).sum(), (mask & (features[:, 0] >= 0)).sum()])
    assert (found.rows, found.most_rows) == (round(chance * ALL), ALL)
    assert np.abs(found.values * found.rows - counts).max() <= found.noise * found.rows < 20
    assert np.abs(found.values - true).max() < found.tolerance
    # Divided by all rows they would be far off.
    assert np.abs(found.values * chance - true).max() > found.tolerance / 2
    about_all = Federation(memory, SCHEMA).statistic([y == 1, x["age"] >= 50], epsilon=Fraction(20), confidence=0.999)
    assert found.noise == pytest.approx(about_all.noise / chance, rel=1e-3)
    # The count of a part of less than half the rows has a variance below 1/4 a row.
    least = about_all.sampling / chance * (1 if chance >= 0.5 else 2 * (chance * (1 - chance)) ** 0.5)
    assert least * 0.999 <= found.sampling <= about_all.sampling / chance * 1.001
    assert found.deviation == pytest.approx(about_all.deviation / chance, rel=1e-3)


@pytest.mark.slow
def test_over_all_keys_the_mean_of_a_part_is_that_of_all_rows(memory, parts):
    """Unbiased: over the keys, sums divided by the average number of rows have the mean over all rows as their mean."""
    labels = pooled(memory)[1]
    found = []
    for number in range(KEYS):
        memory.secret = number.to_bytes(32, "big")
        found.append(parts[1].statistic([y == 1], epsilon=Fraction(100)).values[0])
    true = np.mean(labels > 0)
    error = np.sqrt(true * 0.8 / (0.2 * ALL))
    # The seeds are fixed.
    assert abs(np.mean(found) - true) < 4 * error / math.sqrt(KEYS)
    assert 0.85 < np.std(found) / error < 1.15


def test_a_tolerance_counts_the_rows_of_the_part(memory, parts):
    federation = Federation(memory, SCHEMA)
    tolerance = 1.5 * federation.statistic([y == 1], epsilon=EPSILON).tolerance
    assert federation.statistic([y == 1], epsilon=EPSILON, tolerance=tolerance).rows == ALL
    asked = len(memory.asked)
    with pytest.raises(PlanError, match="rows would") as refused:
        parts[1].statistic([y == 1], epsilon=EPSILON, tolerance=tolerance)
    assert len(memory.asked) == asked
    needed = int(str(refused.value).split(": ")[1].split()[0])
    assert needed > ALL
    memory.world.rows["a"] += needed - ALL
    parts[1].statistic([y == 1], epsilon=EPSILON, tolerance=tolerance)


def test_moments_and_gradients_of_the_training_part(memory, parts):
    features, labels = pooled(memory)
    mask = inside(memory, Part.TRAINING)
    edges = (features * labels[:, None])[mask]
    oracle = parts[0].within(EPSILON, DELTA)
    assert oracle.rows == round(0.8 * ALL)
    moments = oracle.moments(part=Fraction(1, 2), norm_bound=Fraction(2))
    assert np.abs(moments.edge_sum - edges.sum(0)).max() < 6 * moments.edge_noise
    assert moments.rows == moments.product_sum[-1, -1] == round(0.8 * ALL)
    # The square of the bias is the number of rows of the part, which is known but for its deviation.
    deviation = moments.product_noise[-1, -1]
    assert deviation == pytest.approx(math.sqrt(0.8 * 0.2 * ALL))
    assert 0 < abs(mask.sum() - moments.rows) < 4.5 * deviation
    theta = np.array([0.3, -0.2, 0.1])
    gradient = oracle.gradient(theta, clip=Fraction(2), part=Fraction(1, 2))
    true = -(edges / (1 + np.exp(edges @ theta))[:, None]).sum(0) / round(0.8 * ALL)
    assert gradient.rows == round(0.8 * ALL)
    assert np.abs(gradient.mean - true).max() < 6 * gradient.deviation + 1e-3


def test_what_is_charged_for_both_parts_is_what_two_queries_about_all_rows_cost(memory, parts):
    def cost(*federations):
        answers = []
        for federation in federations:
            federation.statistic([y == 1], epsilon=EPSILON)
            answers.append(federation.answers[-1])
        return [answer.statement.epsilon_if_others_collude for answer in answers]

    assert cost(*parts) == cost(Federation(memory, SCHEMA), Federation(memory, SCHEMA))


@pytest.mark.parametrize("estimator", [MonotoneConjunction(), PrivateThreshold(feature="age")])
def test_a_guarantee_for_a_number_of_rows_is_not_given_for_a_part(memory, parts, estimator):
    with pytest.raises(ConfigurationError, match="a guarantee needs a known number of rows"):
        estimator.fit_queries(parts[0].within(EPSILON, DELTA))
    assert memory.asked == []


# Models and their evaluation.


def trained(federation) -> Model:
    oracle = federation.within(EPSILON, DELTA)
    return model_of_answers(PrivateNewton(rounds=3).fit_queries(oracle), oracle, "newton")


def test_a_model_remembers_the_share_and_is_evaluated_on_the_rest(memory, parts, tmp_path):
    model = trained(parts[0])
    assert model.held_back == FIFTH
    assert {query.held_back for query in memory.asked} == {HeldBack(FIFTH, Part.TRAINING)}
    path = tmp_path / "model.json"
    model.save(path)
    assert json.loads(path.read_text())["held_back"] == "1/5"
    assert Model.load(path).held_back == FIFTH
    found = evaluate(model.theta, parts[1].within(EPSILON, DELTA), EvaluationOptions(confidence=0.999))
    assert memory.asked[-1].held_back == HeldBack(FIFTH, Part.HELD_BACK)
    features, labels = pooled(memory)
    mask = inside(memory, Part.HELD_BACK)
    wrong = np.where(features @ model.theta > 0, 1, -1) != labels
    assert np.mean(wrong[mask]) in found.error.on_rows
    assert np.mean(wrong[~mask]) in found.error.on_distribution
    assert abs(found.usable - mask.sum()) <= found.usable_half_width < 0.1 * mask.sum()
    assert (found.rows, found.unseen) == (ALL, True)


def test_only_a_model_whose_every_query_left_out_the_share_has_it(memory, parts):
    training, held_back = parts
    about_all = Federation(memory, SCHEMA)
    assert trained(about_all).held_back is None
    assert trained(held_back).held_back is None
    queries = [federation.statistic([y == 1], epsilon=EPSILON) and memory.asked[-1] for federation in parts]
    about_all.statistic([y == 1], epsilon=EPSILON)
    queries.append(memory.asked[-1])
    other = Federation(memory, SCHEMA).hold_back(Fraction(1, 4))[0]
    other.statistic([y == 1], epsilon=EPSILON)
    queries.append(memory.asked[-1])
    assert held_back_from(queries[:1]) == FIFTH
    assert [held_back_from(queries[:count]) for count in (2, 3, 4)] == [None] * 3
    assert held_back_from([queries[0], queries[2]]) is None
    assert held_back_from([queries[0], queries[3]]) is None
    assert training.held_back != other.held_back


def test_a_model_without_the_field_was_trained_on_all_rows(memory, tmp_path):
    path = tmp_path / "model.json"
    trained(Federation(memory, SCHEMA)).save(path)
    assert "held_back" not in json.loads(path.read_text())
    assert Model.load(path).held_back is None


@pytest.mark.variants(3)
@pytest.mark.parametrize("share", ["0", "1", "-1/5", "1/0", "a fifth", 0.2, None, "1e-9999", [1]])
def test_a_model_with_another_share_is_refused(memory, tmp_path, share):
    path = tmp_path / "model.json"
    trained(Federation(memory, SCHEMA)).save(path)
    content = json.loads(path.read_text())
    del content["digest"]
    content["held_back"] = share
    path.write_text(json.dumps({**content, "digest": digest_of(content)}))
    with pytest.raises(ModelError):
        Model.load(path)


@pytest.mark.more
def test_descent_on_the_training_part_learns_what_it_learns_on_all_rows(memory, parts):
    """Sums over a part that were divided by all rows would shrink the model, or tilt it at the bias."""
    features, labels = pooled(memory)
    budget = (Fraction(50), DELTA)
    errors = []
    for federation in (Federation(memory, SCHEMA), parts[0]):
        model = PrivateNewton(rounds=4).fit_queries(federation.within(*budget))
        errors.append(np.mean(np.where(features @ model.theta_ > 0, 1, -1) != labels))
    assert abs(errors[0] - errors[1]) < 0.01
    moments = [federation.within(*budget).moments() for federation in (Federation(memory, SCHEMA), parts[0])]
    thetas = [MomentsDiscriminant().fit_moments(found).theta_ for found in moments]
    assert np.abs(thetas[0] - thetas[1]).max() < 0.1 * np.abs(thetas[0]).max()


def test_numbers_of_the_memory_are_those_of_a_party(memory):
    assert memory.numbers("a") == RowNumbers(RowKey(memory.secret, "clinics", "a", "data.csv"))
