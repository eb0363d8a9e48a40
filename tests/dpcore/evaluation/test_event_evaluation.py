"""Concordance and Brier scores from a histogram: against all pairs of rows, and how often their intervals hold."""

from dataclasses import replace

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.estimators.hazard_scores import survival
from dpcore.evaluation.event_evaluation import evaluate_times, planned_histograms
from dpcore.evaluation.options import EvaluationOptions
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.records.encoding import store
from dpcore.records.features import EventTime, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from tests.dpcore.evaluation.noisy_rows import NoisyRows

BORDERS = (1.0, 2.0, 3.0, 4.0)
SCHEMA = Schema(
    name="s",
    label=EventTime(column="years", event="died", happened=("yes",), borders=BORDERS),
    features=tuple(RealFeature(name=name, lower=-1.0, upper=1.0) for name in "ab"),
)
MANY = replace(SCHEMA, label=replace(SCHEMA.label, borders=tuple(map(float, range(1, 20)))))
THETA, LOG_HAZARDS = np.array([1.0, -0.5, 0.0]), np.log(np.full(4, 0.25))


def made(rows: int = 1_500, seed: int = 1):
    """Records, the scores and codes of those that are usable."""
    random = np.random.default_rng(seed)
    x = np.column_stack([random.uniform(-1, 1, (rows, 2)), np.ones(rows)])
    times, last = random.exponential(4.0 / np.exp(x @ [1.0, -0.4, 0.0])), random.uniform(0.3, 9.0, rows)
    place = np.searchsorted(BORDERS, np.minimum(times, last))
    codes = np.where(place >= 4, 8, np.where(times <= last, place, 4 + place)).astype(np.int8)
    usable, stored = random.random(rows) >= 0.1, store(x)
    stored[~usable], codes[~usable] = 0, 1
    return Records(stored, codes, usable, coding=SCHEMA.label.coding), x[usable] @ THETA, codes[usable]


def of_pairs(scores, codes, ties: float = 0.5) -> float:
    """Every pair of rows, one by one: an event in an earlier interval than the other's time."""
    interval, is_event = np.where(codes == 8, 4, codes % 4), codes < 4
    ordered = pairs = 0.0
    for one in np.flatnonzero(is_event):
        for score, later in zip(scores, interval, strict=True):
            if later > interval[one]:
                pairs += 1
                ordered += ties if score == scores[one] else score < scores[one]
    return ordered / pairs


def graf(chances, codes, at: int) -> float:
    """The Brier score to the end of interval `at`, row by row, with times rounded up."""
    interval, is_event = np.where(codes == 8, 4, codes % 4), codes < 4
    kept = [1.0]
    for place in range(4):
        still = ((interval > place) | ((interval == place) & ~is_event)).sum()
        kept.append(kept[-1] * (1 - ((interval == place) & ~is_event).sum() / still))
    total = 0.0
    for chance, place, happened in zip(chances, interval, is_event, strict=True):
        if place > at:
            total += (1 - chance) ** 2 / kept[at + 1]
        elif happened:
            total += chance**2 / kept[place]
    return total / len(codes)


def test_without_noise_the_interval_has_the_concordance_of_all_pairs():
    records, scores, codes = made()
    exact = of_pairs(scores, codes)
    found = evaluate_times(THETA, LOG_HAZARDS, NoisyRows(SCHEMA, records))
    assert found.concordance.lower <= exact <= found.concordance.upper
    assert found.concordance.estimate == pytest.approx(exact, abs=0.005)
    assert 0.02 < found.concordance.upper - found.concordance.lower < 0.1
    finer = evaluate_times(THETA, LOG_HAZARDS, NoisyRows(SCHEMA, records), EvaluationOptions(bins=100))
    assert finer.concordance.upper - finer.concordance.lower < 0.02
    assert finer.concordance.estimate == pytest.approx(exact, abs=0.001)


@pytest.mark.more
def test_without_noise_the_interval_has_the_brier_score_of_the_rows():
    records, scores, codes = made()
    chances = survival(LOG_HAZARDS, scores)
    found = evaluate_times(THETA, LOG_HAZARDS, NoisyRows(SCHEMA, records), EvaluationOptions(bins=40))
    assert [each.border for each in found.brier] == list(BORDERS)
    for at, each in enumerate(found.brier):
        exact = graf(chances[:, at], codes, at)
        assert each.score.lower <= exact <= each.score.upper
        assert each.score.estimate == pytest.approx(exact, abs=2e-3)
        equal = min(graf(np.full(len(codes), chance), codes, at) for chance in np.linspace(0, 1, 501))
        assert each.of_equal == pytest.approx(equal, abs=1e-5)
        assert each.score.estimate < each.of_equal


def test_survival_of_groups_of_risk_is_near_what_is_predicted():
    records, *_ = made(6_000)
    found = evaluate_times(THETA, LOG_HAZARDS, NoisyRows(SCHEMA, records))
    assert sum(each.rows for each in found.groups) == pytest.approx(5_400, rel=0.02)
    for each in found.groups:
        assert len(each.observed) == 4
        for predicted, observed in zip(each.predicted, each.observed, strict=True):
            assert observed.estimate == pytest.approx(predicted, abs=0.05)
            assert observed.lower < observed.estimate < observed.upper
    low, _, high = found.groups
    assert low.predicted[-1] > high.predicted[-1] + 0.2


@pytest.mark.more
def test_intervals_hold_as_often_as_they_say():
    """60 draws of noise."""
    records, scores, codes = made(3_000)
    exact, chances = of_pairs(scores, codes), survival(LOG_HAZARDS, scores)
    briers = [graf(chances[:, at], codes, at) for at in range(4)]
    held, of_briers, widths = 0, np.zeros(4), []
    for seed in range(60):
        found = evaluate_times(THETA, LOG_HAZARDS, NoisyRows(SCHEMA, records, 1.0, seed))
        held += found.concordance.lower <= exact <= found.concordance.upper
        widths.append(found.concordance.upper - found.concordance.lower)
        of_briers += [
            each.score.lower <= known <= each.score.upper for each, known in zip(found.brier, briers, strict=True)
        ]
    assert held >= 56
    assert (of_briers >= 56).all()
    assert np.mean(widths) < 0.25


def test_too_much_noise_is_said():
    records, *_ = made(150)
    found = evaluate_times(THETA, LOG_HAZARDS, NoisyRows(SCHEMA, records, 0.02, 5))
    assert found.concordance is None
    assert found.brier[-1].score is None
    assert sum("not measured" in line for line in found.sentences()) >= 2
    assert found.to_dict()["concordance"] is None


def test_what_is_planned_is_what_is_asked():
    records, *_ = made()
    rows, options = NoisyRows(SCHEMA, records), EvaluationOptions(bins=5)
    evaluate_times(THETA, LOG_HAZARDS, rows, options)
    planned = planned_histograms(THETA, SCHEMA, options)
    assert [part for _, part in rows.asked] == [part for _, part, *_ in planned]
    assert [len(asked) for asked, _ in rows.asked] == [len(asked) for asked, *_ in planned] == [256, 45]
    assert [batch_sensitivity(asked).l1 for asked, _ in rows.asked] == [2, 2]
    with pytest.raises(ConfigurationError, match="more than 4096 counts: give fewer bins"):
        planned_histograms(THETA, MANY, EvaluationOptions(bins=128))
