"""Precision, recall and F1 by threshold, and the threshold of the least cost: against scikit-learn, and with noise."""

import math
from fractions import Fraction

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_score, recall_score

from dpcore.errors import ConfigurationError
from dpcore.evaluation.evaluation import evaluate
from dpcore.evaluation.intervals import CellNoise, Judge
from dpcore.evaluation.options import Costs, EvaluationOptions
from dpcore.evaluation.scores import Curve
from dpcore.evaluation.thresholds import LeastCost, Thresholds, is_measurable
from tests.dpcore.estimators import oracle_world as world
from tests.dpcore.evaluation.test_evaluation import SCHEMA, rows_of

THETA = np.array([2.0, -1.0, 0.5, -2.5])
FIVE = Costs.parse("false-negative=5")
EDGES = np.array([-3.0, -2.0, -1.0, 0.0, 1.0])


def rare(rows: int = 3000):
    return rows_of(rows, THETA, seed=3)


def mean_cost(scores, labels, threshold: float, costs: Costs = FIVE) -> float:
    called = scores > threshold
    missed, wrong = np.mean(~called & (labels > 0)), np.mean(called & (labels < 0))
    return float(costs.false_negative) * missed + float(costs.false_positive) * wrong


def counted(scores, labels, *, deviation: float = 0.0, copies: float = 1.0, seed: int = 0, unseen: bool = True):
    """The histogram of scores by label, with noise as that of `copies` pairs of exponentials on each cell."""
    bins = np.searchsorted(EDGES, scores)
    histogram = np.array([np.bincount(bins[labels == label], minlength=len(EDGES) + 1) for label in (-1, 1)], float)
    if deviation:
        histogram += np.random.default_rng(seed).laplace(scale=deviation / math.sqrt(2), size=histogram.shape)
    judge = Judge(CellNoise(deviation, copies), 0.05, len(scores), unseen=unseen)
    return Thresholds(histogram, EDGES, Curve.of(histogram, 4, None), judge)


def least(scores, labels, **options) -> LeastCost:
    return counted(scores, labels, **options).least_cost(FIVE)


@pytest.mark.parametrize("edges_part", [Fraction(0), Fraction(1, 8)], ids=["even", "found"])
def test_without_noise_they_are_those_of_scikit_learn(edges_part):
    x, labels = rare()
    options = EvaluationOptions(edges_part=edges_part, cost="false-negative=5:false-positive=1")
    found = evaluate(THETA, world.divided(SCHEMA, x, labels), options, unseen=True)
    scores = x @ THETA
    for point in found.points:
        called = np.where(scores > point.threshold, 1, -1)
        assert point.recall.estimate == pytest.approx(recall_score(labels, called))
        assert point.f1.estimate == pytest.approx(f1_score(labels, called))
        if (called > 0).any():
            assert point.precision.estimate == pytest.approx(precision_score(labels, called))
        for share in (point.recall, point.f1):
            assert share.on_rows.lower == pytest.approx(share.estimate) == pytest.approx(share.on_rows.upper)
            assert (share.on_distribution is None) == bool(edges_part)
    assert found.f1.estimate == pytest.approx(f1_score(labels, np.where(scores > 0, 1, -1)))
    assert found.positive_share.estimate == pytest.approx(np.mean(labels > 0))
    least = found.least_cost
    candidates = [point.threshold for point in found.points] + [-math.inf, math.inf]
    costs = {threshold: mean_cost(scores, labels, threshold) for threshold in candidates}
    assert costs[least.threshold] == min(costs.values())
    assert least.cost.estimate == pytest.approx(min(costs.values()))
    assert least.at_zero.estimate == pytest.approx(costs[0.0])
    assert least.none_positive.estimate == pytest.approx(5 * np.mean(labels > 0))
    assert (len(least.possible), least.better_than_zero, least.warning()) == (1, True, None)
    assert found.cheapest("false-negative=5").to_dict() == least.to_dict()


@pytest.mark.more
def test_intervals_of_costs_hold_with_noise_and_those_without_the_noise_do_not():
    """Over 200 draws of rows and noise; the distribution's cost is that of very many rows."""
    x, labels = rare(400_000)
    truth = mean_cost(x @ THETA, labels, -1.0)
    on_rows = on_distribution = without = 0
    for draw in range(200):
        rows = slice(2000 * draw, 2000 * (draw + 1))
        scores, held = x[rows] @ THETA, labels[rows]
        noisy = counted(scores, held, deviation=20.0, seed=draw)
        decision = next(each for each in noisy._decisions if each.threshold == -1.0)
        cost = decision.cost(FIVE, noisy.judge, 1)
        on_rows += cost.on_rows[0] <= mean_cost(scores, held, -1.0) <= cost.on_rows[1]
        on_distribution += cost.on_distribution[0] <= truth <= cost.on_distribution[1]
        exact = decision.cost(FIVE, Judge(CellNoise(0.0), 0.05, 2000, unseen=True), 1).on_distribution
        without += exact[0] <= truth <= exact[1]
    assert on_rows >= 185
    assert on_distribution >= 190
    assert without < on_distribution - 20


def test_the_true_best_threshold_is_among_the_possible_ones():
    x, labels = rare(2000)
    scores = x @ THETA
    ends = [-math.inf, *EDGES, math.inf]
    best = min(ends, key=lambda threshold: mean_cost(scores, labels, threshold))
    kept = [least(scores, labels, deviation=15.0, seed=draw, unseen=False) for draw in range(100)]
    assert sum(best in each.possible for each in kept) >= 95
    assert sum(each.threshold != best for each in kept) > 5
    for each in kept:
        assert ("within the noise" in " ".join(each.sentences())) == (len(each.possible) > 1)


def test_where_the_noise_hides_the_positive_rows_nothing_is_measurable():
    x, labels = rare(2000)
    few = labels.copy()
    few[np.flatnonzero(labels > 0)[20:]] = -1
    found = counted(x @ THETA, few, deviation=40.0)
    assert not any(is_measurable(point.recall) for point in found.points())
    hidden = found.least_cost(FIVE)
    assert not hidden.is_measurable
    (said,) = hidden.sentences()
    assert said.startswith("The threshold of the least cost is not measurable at this epsilon")
    assert counted(x @ THETA, labels, deviation=4.0).least_cost(FIVE).is_measurable


def test_a_model_that_tells_nothing_calls_all_rows_the_same():
    random = np.random.default_rng(1)
    scores, labels = random.uniform(-4, 2, 5000), np.where(random.random(5000) < 0.1, 1, -1)
    none, every = least(scores, labels), counted(scores, labels).least_cost(Costs.parse("false-negative=50"))
    assert (none.calls, none.threshold) == ("none", None)
    assert (every.calls, every.threshold) == ("all", None)
    assert every.to_dict()["possible"] == [None]
    assert "calls no row positive" in none.sentences()[0]
    assert none.cost.estimate == pytest.approx(5 * np.mean(labels > 0))


@pytest.mark.parametrize(
    "text",
    [
        "",
        5,
        "false-positive=1234567890",
        "false-negative",
        "false-negative=0",
        "false-negative=1:false-negative=2",
        "false-positive=-1",
    ],
)
def test_malformed_costs_are_refused(text):
    words = r"write false-negative=5:false-positive=1.* at most 9 before|a cost is 0"
    with pytest.raises(ConfigurationError, match=words):
        EvaluationOptions(cost=text)


def test_costs_are_exact_and_said():
    costs = Costs.parse("false-positive=0.1 : false-negative=5")
    assert costs == Costs(Fraction(5), Fraction(1, 10))
    assert costs.words == "5 for a positive row that is missed and 0.1 for a negative row called positive"
