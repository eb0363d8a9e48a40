"""The explained deviance of counts from predicates: against scikit-learn's, and how often its interval holds."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import d2_tweedie_score

from dpcore.errors import ConfigurationError
from dpcore.evaluation.count_evaluation import evaluate_counts, planned_terms
from dpcore.evaluation.options import EvaluationOptions
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.records.coding import OFFSET_BITS
from dpcore.records.encoding import store
from dpcore.records.features import Count, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from tests.dpcore.evaluation.noisy_rows import NoisyRows

FEATURES = tuple(RealFeature(name=name, lower=-1.0, upper=1.0) for name in "ab")
OVER = Schema(
    name="v",
    label=Count(column="n", upper=30, exposure="t", exposure_lower=0.5, exposure_upper=4.0),
    features=FEATURES,
)
BARE = Schema(name="v", label=Count(column="n", upper=30), features=FEATURES)
THETA = np.array([0.8, -0.4, 0.5])


def made(schema, rows: int = 4_000, seed: int = 1, unusable: float = 0.1):
    random = np.random.default_rng(seed)
    x = np.column_stack([random.uniform(-1, 1, (rows, 2)), np.ones(rows)])
    over = random.uniform(0.5, 4.0, rows) if schema.label.coding.has_exposure else np.ones(rows)
    counts = np.minimum(random.poisson(over * np.exp(x @ [0.6, -0.5, 0.6])), 30)
    labels = counts.astype(np.int32)
    if schema.label.coding.has_exposure:
        labels = np.column_stack([labels, np.rint(np.log(over) * 2**OFFSET_BITS)]).astype(np.int32)
    usable, stored = random.random(rows) >= unusable, store(x)
    stored[~usable], labels[~usable] = 0, 1
    return Records(stored, labels, usable, coding=schema.label.coding), x[usable], counts[usable], over[usable]


def explained(x, counts, over, theta=THETA) -> float:
    """By scikit-learn: rates, weighted by exposures."""
    return d2_tweedie_score(counts / over, np.exp(x @ theta), sample_weight=over, power=1)


def clipped(found, x, counts, over, theta=THETA) -> float:
    """The same of what the evaluation says that it measures."""
    rates = np.clip(np.exp(x @ theta), found.least_rate, found.largest_rate)
    return d2_tweedie_score(np.minimum(counts, found.most) / over, rates, sample_weight=over, power=1)


@pytest.mark.parametrize("schema", [OVER, BARE])
def test_without_noise_it_is_the_explained_deviance(schema):
    records, x, counts, over = made(schema)
    found = evaluate_counts(THETA, NoisyRows(schema, records))
    exact = clipped(found, x, counts, over)
    assert found.explained.estimate == pytest.approx(exact, abs=2e-4)
    assert found.explained.lower <= exact <= found.explained.upper
    assert exact == pytest.approx(explained(x, counts, over), abs=0.01)
    assert found.explained.upper - found.explained.lower < 2e-3
    assert found.rate.estimate == pytest.approx(counts.sum() / over.sum(), abs=1e-3)
    # Every bin: its rows, and counts over exposures.
    rates = np.exp(x @ THETA)
    assert np.mean((rates < found.least_rate) | (rates > found.largest_rate)) <= 0.01
    ends = [0.0, *(each.upper for each in found.bins[:-1]), np.inf]
    assert len(found.bins) == 8
    for place, each in enumerate(found.bins):
        inside = (rates > ends[place]) & (rates <= ends[place + 1])
        assert each.rows == pytest.approx(inside.sum(), abs=1)
        assert each.observed.estimate == pytest.approx(counts[inside].sum() / over[inside].sum(), rel=0.01)
    sizes = [each.rows for each in found.bins]
    assert max(sizes) < 2 * min(sizes)


def test_a_model_that_is_worse_than_one_rate_explains_less_than_nothing():
    records, x, counts, over = made(OVER)
    found = evaluate_counts(-THETA, NoisyRows(OVER, records))
    assert found.explained.estimate == pytest.approx(clipped(found, x, counts, over, -THETA), abs=1e-3)
    assert found.explained.upper < 0
    assert sum(each.is_off for each in found.bins) >= 4
    assert "outside of what is predicted" in found.sentences()[2]


@pytest.mark.more
def test_intervals_hold_as_often_as_they_say():
    """60 draws of noise at a budget that leaves an interval of about a tenth."""
    records, x, counts, over = made(OVER, 6_000)
    held, widths, rates_held = 0, [], 0
    scores = x @ THETA
    for seed in range(60):
        found = evaluate_counts(THETA, NoisyRows(OVER, records, 2.0, seed))
        held += found.explained.lower <= clipped(found, x, counts, over) <= found.explained.upper
        widths.append(found.explained.upper - found.explained.lower)
        of_bins = []
        ends = [0.0, *(each.upper for each in found.bins[:-1]), np.inf]
        for place, each in enumerate(found.bins):
            inside = (np.exp(scores) > ends[place]) & (np.exp(scores) <= ends[place + 1])
            if inside.any() and each.observed is not None:
                rate = counts[inside].sum() / over[inside].sum()
                of_bins.append(each.observed.lower <= rate <= each.observed.upper)
        rates_held += all(of_bins)
    assert held >= 55
    assert rates_held >= 55
    assert 0.01 < np.mean(widths) < 0.4


@pytest.mark.more
def test_too_much_noise_is_said_and_a_series_is_refused():
    records, *_ = made(BARE, 200)
    found = evaluate_counts(THETA, NoisyRows(BARE, records, 0.01, 3))
    assert found.explained is None
    assert "not measured" in found.sentences()[0]
    assert found.to_dict()["explained"] is None
    series = NoisyRows(BARE, records)
    series.adaptive = object()
    with pytest.raises(ConfigurationError, match="leave adaptive out"):
        evaluate_counts(THETA, series)
    with pytest.raises(ConfigurationError, match="its rates are none of counts"):
        evaluate_counts(np.array([0.1, 0.1, 50.0]), NoisyRows(BARE, records))


def test_what_is_planned_is_what_is_asked():
    records, *_ = made(OVER)
    rows = NoisyRows(OVER, records)
    options = EvaluationOptions(bins=5)
    evaluate_counts(THETA, rows, options)
    planned = planned_terms(THETA, OVER, options)
    assert [part for _, part in rows.asked] == [part for _, part, *_ in planned]
    assert sum(part for _, part in rows.asked) == 1
    sizes = [len(predicates) for predicates, _ in rows.asked]
    assert sizes == [len(predicates) for predicates, *_ in planned] == [256 + 9, 5, 15]
    # A record is in one bin, and has a gain or a loss.
    assert [batch_sensitivity(predicates).l1 for predicates, _ in rows.asked] == [4, 5, 6]
    assert rows.asked[0][0] == planned[0][0]
    assert len(planned_terms(THETA, replace(BARE), options)[2][0]) == 10
