"""Histograms of real features: what is counted, its sensitivity, and what noise does to point masses and quantiles."""

import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from dpcore.estimators.oracle import RowOracle
from dpcore.estimators.private_histograms import Histogram, histograms
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import sums
from dpcore.records.encoding import store
from dpcore.records.features import RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Label, Schema

WIDE = RealFeature(name="wide", lower=-3.0, upper=1.0)
SCHEMA = Schema(
    name="two", label=Label(column="y", positive=("1",)), features=(WIDE, RealFeature(name="age", lower=0.0, upper=9.0))
)


class Answers:
    """Exact counts of encoded rows, plus noise."""

    def __init__(self, x: np.ndarray, deviation: float = 0.0) -> None:
        features = store(np.column_stack([x, np.ones(len(x))]))
        self.records = Records(features, np.ones(len(x), np.int8), np.ones(len(x), bool))
        self.deviation, self.schema = deviation, SCHEMA

    def statistic(self, predicates, *, part):
        self.predicates, self.part = predicates, part
        counted = sums(predicates, SCHEMA, self.records, 0) / self.records.rows
        noise = np.random.default_rng(1).normal(scale=self.deviation, size=len(predicates))
        return SimpleNamespace(values=counted + noise, deviation=self.deviation)


def rows(count: int = 3000) -> np.ndarray:
    x = np.random.default_rng(5).uniform(-1, 1, (count, 2)) ** 3
    # 0 of `wide` is 0.5 in coordinates of the schema.
    x[: count // 2, 0] = 0.5
    x[: count // 3, 1] = -1.0
    return x


def test_every_row_is_in_one_cell_of_each_feature():
    x = rows()
    found = histograms(Answers(x), SCHEMA.features, part=Fraction(1, 20), cells=7)
    for column, histogram in zip(x.T, found, strict=True):
        assert histogram.shares.sum() + sum(histogram.points.values()) == pytest.approx(1.0)
        rest = column[~np.isin(column, [at / ONE for at in histogram.points])]
        counted, _ = np.histogram(rest, bins=histogram.edges)
        np.testing.assert_allclose(histogram.shares, counted / len(column), atol=1e-9)
    assert found[0].points == {ONE // 2: pytest.approx(0.5)}
    assert found[1].points == {-ONE: pytest.approx(1 / 3, abs=1e-3)}


def test_a_record_changes_two_counts_of_each_feature():
    """However many cells: so more cells cost nothing."""
    for cells in (2, 7, 32):
        answers = Answers(rows(10))
        histograms(answers, SCHEMA.features, part=Fraction(1), cells=cells)
        found = batch_sensitivity(answers.predicates)
        assert (found.l1, found.l2_squared) == (4, 4)


def test_a_value_with_few_rows_is_no_point_mass():
    x = rows()
    x[:, 0] = np.random.default_rng(1).uniform(-1, 1, len(x))
    x[:30, 0], x[30:60, 0] = 1.0, 0.5
    (wide, _) = histograms(Answers(x), SCHEMA.features, part=Fraction(1), cells=8)
    assert wide.points == {}
    counted, _ = np.histogram(x[:, 0], bins=wide.edges)
    np.testing.assert_allclose(wide.shares, counted / len(x), atol=1e-9)


def test_noise_makes_no_point_masses():
    x = np.random.default_rng(1).uniform(-1, 1, (3000, 2))
    for histogram in histograms(Answers(x, deviation=0.04), SCHEMA.features, part=Fraction(1), cells=16):
        assert histogram.points == {}
        assert (histogram.shares >= 0).all()
        assert histogram.shares.sum() == pytest.approx(1.0)


def test_quantiles_are_those_of_the_rows():
    x = np.random.default_rng(6).normal(scale=0.3, size=(20_000, 2)).clip(-1, 1)
    (_, age) = histograms(Answers(x), SCHEMA.features, part=Fraction(1), cells=32)
    levels = [0.1, 0.25, 0.5, 0.9]
    np.testing.assert_allclose(age.quantiles(levels), np.quantile(x[:, 1], levels), atol=0.02)
    values, weights = age.values()
    assert weights.sum() == pytest.approx(1.0)
    assert weights @ values**2 == pytest.approx(np.mean(x[:, 1] ** 2), rel=0.02)


def test_without_any_row_a_feature_is_as_if_uniform():
    found = Histogram(np.array([-1.0, 0.0, 1.0]), np.zeros(2), {5: 1.0})
    np.testing.assert_allclose(found.quantiles([0.25, 0.5]), [-0.5, 0.0])
    (wide, _) = histograms(Answers(np.zeros((1, 2))), SCHEMA.features, part=Fraction(1), cells=2)
    assert wide.shares.sum() + sum(wide.points.values()) == pytest.approx(1.0)


def test_it_asks_rows_too():
    x = np.random.default_rng(5).uniform(-1, 1, (500, 1))
    oracle = RowOracle(np.column_stack([x, np.ones(500)]))
    (found,) = histograms(oracle, oracle.schema.features, part=Fraction(1), cells=16)
    np.testing.assert_allclose(found.shares, 1 / 16, atol=0.04)


@pytest.mark.parametrize("wider", [1, 10, 200])
@pytest.mark.parametrize("lower", [-1.0, 0.0], ids=["around zero", "from a bound on"])
def test_quantiles_are_known_within_bounds_that_are_far_too_wide(lower, wider):
    random = np.random.default_rng(7)
    values = random.normal(scale=1 / 3, size=20_000) if lower else random.exponential(0.2, 20_000) ** 2
    values = values.clip(lower, 1) / wider
    x = values if lower else 2 * values - 1
    feature = RealFeature(name="wide", lower=lower, upper=1.0)
    answers = Answers(np.column_stack([x, x]))
    answers.schema = Schema(name="s", label=SCHEMA.label, features=(feature, SCHEMA.features[1]))
    (found,) = histograms(answers, [feature], part=Fraction(1), cells=32)
    levels = [0.2, 0.4, 0.6, 0.8]
    spread = np.quantile(x, 0.9) - np.quantile(x, 0.1)
    np.testing.assert_allclose(found.quantiles(levels), np.quantile(x, levels), atol=0.1 * spread)


def test_values_that_crowd_far_from_zero_are_coarse():
    x = np.random.default_rng(7).normal(loc=-0.28, scale=1e-3, size=(3000, 2))
    assert all(found.is_coarse for found in histograms(Answers(x), SCHEMA.features, part=Fraction(1), cells=32))


def test_what_stands_for_missing_cells_may_be_a_point_mass():
    feature = RealFeature(name="wide", lower=-1.0, upper=1.0, missing="impute", impute=0.3)
    x = np.random.default_rng(7).uniform(-1, 1, (3000, 2))
    x[:900, 0] = 0.3
    answers = Answers(x)
    answers.schema = Schema(name="s", label=SCHEMA.label, features=(feature, SCHEMA.features[1]))
    (found,) = histograms(answers, [feature], part=Fraction(1), cells=32)
    assert found.points == {round(0.3 * ONE): pytest.approx(0.3)}
    assert batch_sensitivity(answers.predicates).l2_squared == 2


def test_noise_beside_zero_makes_no_records_where_there_are_few():
    """The parts of a cell are added up there, and only then is what is below zero raised."""
    x = np.random.default_rng(1).uniform(0.6, 0.9, (3000, 2))
    for found in histograms(Answers(x, deviation=0.004), SCHEMA.features, part=Fraction(1), cells=32):
        # Two cells of six parts and a value each.
        assert found.shares[0] + found.shares[-1] < 2 * 3 * math.sqrt(7) * 0.004
        assert len(found.shares) <= 33
