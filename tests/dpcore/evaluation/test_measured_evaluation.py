"""Errors of predicted numbers from predicates: against those on the rows, and how often their intervals hold."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

from dpcore.errors import ConfigurationError
from dpcore.evaluation.measured_evaluation import evaluate_numbers, planned_errors
from dpcore.evaluation.options import EvaluationOptions
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.records.encoding import store
from dpcore.records.features import Count, Number, RealFeature
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from tests.dpcore.evaluation import noisy_rows
from tests.dpcore.evaluation.noisy_rows import NoisyRows

FEATURES = tuple(RealFeature(name=name, lower=-1.0, upper=1.0) for name in "ab")
PLAIN = Schema(name="v", label=Number(column="n", lower=10.0, upper=30.0), features=FEATURES)
LOGS = Schema(name="v", label=Number(column="n", lower=1.0, upper=1000.0, log=True), features=FEATURES)
COUNTS = Schema(name="v", label=Count(column="n", upper=40), features=FEATURES)
THETA = np.array([0.3, -0.15, 0.12])
FIGURES = ("r2", "bias", "absolute_error", "squared_error")


def made(schema, rows: int = 4_000, seed: int = 1, unusable: float = 0.1):
    """Records, and the places of their labels and predictions where they are usable."""
    random = np.random.default_rng(seed)
    x = np.column_stack([random.uniform(-1, 1, (rows, 2)), np.ones(rows)])
    t = np.clip(x @ [0.3, -0.2, 0.1] + random.normal(size=rows) * 0.1, -1, 1)
    if schema is COUNTS:
        labels = np.rint((t + 1) * 20).astype(np.int32)
        t = labels / 20 - 1
    else:
        labels = store(t)
    usable, stored = random.random(rows) >= unusable, store(x)
    stored[~usable], labels[~usable] = 0, 1
    return Records(stored, labels, usable, coding=schema.label.coding), t[usable], (x @ THETA)[usable]


def exact(t, predicted, half: float) -> dict[str, float]:
    """By scikit-learn; half: what 1 is in the label's units."""
    return {
        "r2": r2_score(t, predicted),
        "bias": half * float((predicted - t).mean()),
        "absolute_error": half * mean_absolute_error(t, predicted),
        "squared_error": half**2 * mean_squared_error(t, predicted),
    }


@pytest.mark.parametrize(("schema", "half"), [(PLAIN, 10.0), (LOGS, np.log(1000) / 2), (COUNTS, 20.0)])
def test_without_noise_they_are_the_errors_on_the_rows(schema, half):
    records, t, predicted = made(schema)
    found = evaluate_numbers(THETA, NoisyRows(schema, records))
    for name, true in exact(t, predicted, half).items():
        figure = getattr(found, name)
        assert figure.estimate == pytest.approx(true, rel=1e-3, abs=1e-4)
        assert figure.lower <= true <= figure.upper
        assert figure.upper - figure.lower < 0.01 * abs(true) + 2e-3
    assert found.root.estimate == pytest.approx(found.squared_error.estimate**0.5)
    assert found.of_logarithms == (schema is LOGS)
    # Every bin: its rows, and their mean label, of logarithms the geometric one.
    ends = [-np.inf, *(each.upper for each in found.bins[:-1]), np.inf]
    in_units = schema.label.in_units
    assert len(found.bins) == 8
    for place, each in enumerate(found.bins):
        inside = (in_units(predicted) > ends[place]) & (in_units(predicted) <= ends[place + 1])
        assert each.rows == pytest.approx(inside.sum(), abs=1)
        assert each.observed.estimate == pytest.approx(float(in_units(t[inside].mean())), rel=1e-3)
        assert each.lower <= each.predicted <= each.upper
        assert each.predicted == pytest.approx(float(in_units(predicted[inside].mean())), rel=0.02)
    assert (found.bins[0].lower, found.bins[-1].upper) == pytest.approx(tuple(in_units(np.array([-1.0, 1.0]))))


@pytest.mark.more
def test_intervals_hold_as_often_as_they_say():
    records, t, predicted = made(PLAIN)
    true, draws = exact(t, predicted, 10.0), 60
    held, bins_held, widths = dict.fromkeys(FIGURES, 0), 0, []
    units = 20.0 + 10.0 * predicted
    for seed in range(draws):
        found = evaluate_numbers(THETA, NoisyRows(PLAIN, records, 2.0, seed))
        for name in FIGURES:
            held[name] += getattr(found, name).lower <= true[name] <= getattr(found, name).upper
        widths.append(found.r2.upper - found.r2.lower)
        ends = [-np.inf, *(each.upper for each in found.bins[:-1]), np.inf]
        of_bins = []
        for place, each in enumerate(found.bins):
            inside = (units > ends[place]) & (units <= ends[place + 1])
            if inside.any() and each.observed is not None:
                of_bins.append(each.observed.lower <= 20.0 + 10.0 * t[inside].mean() <= each.observed.upper)
        bins_held += all(of_bins)
    # Of 60 intervals that hold with probability 0.95 fewer than 54 do in 3 of 100 runs.
    assert min(*held.values(), bins_held) >= 0.9 * draws
    assert 0.01 < np.mean(widths) < 0.3


@pytest.mark.more
def test_few_rows_are_enough_for_r2():
    records, t, predicted = made(PLAIN)
    true, widths = exact(t, predicted, 10.0)["r2"], []
    for seed in range(5):
        r2 = evaluate_numbers(THETA, NoisyRows(PLAIN, records, 1.0, seed)).r2
        assert r2.lower <= true <= r2.upper
        widths.append(r2.upper - r2.lower)
    # With the label's sum from the bins, and reaches of three times what noise did not hide, it was 0.5.
    assert np.median(widths) < 0.25


class HeldBackRows(NoisyRows):
    """A fifth of rows, of which the others are not usable, as a federation answers about them."""

    held_back = HeldBack(Fraction(1, 5), Part.HELD_BACK)

    def statistic(self, predicates, **terms):
        found = super().statistic(predicates, **terms)
        values, step = found.values * 5, found.quantisation * 5
        return replace(found, values=values, rows=self.rows // 5, quantisation=step, deviation=found.deviation * 5)


def test_rounding_is_that_of_the_rows_that_are_asked_about(monkeypatch):
    monkeypatch.setattr(noisy_rows, "BITS", 8)
    records, t, predicted = made(PLAIN, 10_000, unusable=0.8)
    for oracle in (NoisyRows(PLAIN, records), HeldBackRows(PLAIN, records)):
        found = evaluate_numbers(THETA, oracle)
        true = exact(t, predicted, 10.0)["r2"]
        assert found.r2.lower <= true <= found.r2.upper
        # With the rounding of all 10,000 rows no variance is surely above 0.
        assert found.r2.upper - found.r2.lower < 0.5


def test_a_shifted_model_is_off_in_every_bin():
    records, _, _ = made(PLAIN)
    found = evaluate_numbers(THETA + np.array([0.0, 0.0, 0.4]), NoisyRows(PLAIN, records))
    assert found.bias.estimate == pytest.approx(4.2, abs=0.1)
    # The first bin reaches down to the label's lower bound.
    assert [each.is_off for each in found.bins] == [False, *[True] * 7]
    assert "7 are outside of what is predicted" in " ".join(found.sentences())
    assert found.r2.upper < 0


def test_too_much_noise_is_said_and_a_series_is_refused():
    records, *_ = made(PLAIN, 100)
    found = evaluate_numbers(THETA, NoisyRows(PLAIN, records, 0.01, 3))
    assert found.r2 is None
    assert found.bias is None
    assert "R^2 is not measured" in found.sentences()[0]
    assert "not measured" in found.sentences()[1]
    assert found.to_dict()["r2"] is None
    series = NoisyRows(PLAIN, records)
    series.adaptive = object()
    with pytest.raises(ConfigurationError, match="leave adaptive out"):
        evaluate_numbers(THETA, series)


def test_a_label_that_does_not_vary_has_no_r2():
    records, *_ = made(PLAIN, 2_000)
    labels = np.where(records.usable, 77, 1).astype(np.int32)
    same = Records(records.features, labels, records.usable, coding=PLAIN.label.coding)
    found = evaluate_numbers(THETA, NoisyRows(PLAIN, same, 1.0, 2))
    assert found.r2 is None
    assert found.absolute_error is not None


def test_what_is_planned_is_what_is_asked():
    records, *_ = made(PLAIN)
    rows = NoisyRows(PLAIN, records)
    options = EvaluationOptions(bins=5)
    evaluate_numbers(THETA, rows, options)
    planned = planned_errors(THETA, PLAIN, options)
    assert [part for _, part in rows.asked] == [part for _, part, *_ in planned]
    assert sum(part for _, part in rows.asked) == Fraction(1)
    sizes = [len(predicates) for predicates, _ in rows.asked]
    assert sizes == [len(predicates) for predicates, *_ in planned] == [256 + 41 + 32, 6, 10]
    # A record is in one cell of scores, of sizes of errors, and of labels.
    assert [batch_sensitivity(predicates).l1 for predicates, _ in rows.asked] == [6, 6, 4]
    assert rows.asked[0][0] == planned[0][0]
