"""Intervals of inquiries hold as often as they say, and the test of independence keeps its level, with noise.

The population is made up here: tests/shared_data/test_descriptive_coverage.py has public tables.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, chi2_contingency

from dpcore.evaluation.descriptive import crosstab
from dpcore.evaluation.descriptive.comparison import Compare
from dpcore.evaluation.descriptive.correlation import Correlate
from dpcore.evaluation.descriptive.crosstab import Crosstab
from dpcore.evaluation.descriptive.description import Describe
from dpcore.evaluation.descriptive.independence import _noise, independence
from dpcore.evaluation.intervals import CellNoise
from dpcore.records.encoding import store
from dpcore.records.records import Records
from dpcore.records.schema import BooleanFeature, Label, RealFeature, Schema
from tests.statistical.descriptive_trials import Population, held_by_quantity

SCHEMA = Schema(
    name="patients",
    label=Label(column="ill", positive=("yes",), negative=("no",)),
    features=(
        RealFeature(name="age", lower=0.0, upper=120.0),
        RealFeature(name="dose", lower=0.0, upper=50.0),
        BooleanFeature(name="smoker", true=("yes",), false=("no",)),
    ),
)
SIZE, ROWS = 30_000, 4000
FALSE_ALARM = 1e-6
INQUIRIES = (
    Describe(columns=("age", "dose", "smoker"), levels=()),
    Describe(columns=("age", "dose"), by="smoker", levels=()),
    Crosstab(down="smoker", across="ill"),
    Compare(column="dose", by="ill"),
    Correlate(),
)


@pytest.fixture(scope="module")
def population():
    """Skewed doses, and an outcome that depends on all columns."""
    random = np.random.default_rng(1)
    age, dose = random.normal(50, 12, SIZE).clip(0, 120), random.exponential(6.0, SIZE).clip(0, 50)
    smoker = random.random(SIZE) < 0.25
    ill = random.random(SIZE) < 0.05 + 0.2 * smoker + 0.01 * dose + 0.002 * age
    z = np.column_stack([age / 60 - 1, dose / 25 - 1, 2.0 * smoker - 1, np.ones(SIZE)])
    labels = np.where(ill, 1, -1).astype(np.int8)
    return Population(SCHEMA, Records(store(z), labels, np.ones(SIZE, dtype=np.bool_)))


@pytest.mark.more
@pytest.mark.parametrize("inquiry", INQUIRIES, ids=lambda inquiry: inquiry.name)
def test_intervals_hold_at_epsilon_1(population, inquiry, monkeypatch):
    # Its p-value is no interval, and takes most of the time.
    monkeypatch.setattr(crosstab, "independence", lambda *_: None)
    runs = 40
    found = held_by_quantity(population.truth(inquiry), population.trials(inquiry, ROWS, Fraction(1), runs))
    measured = {name: each for name, each in found.items() if each.stated}
    assert measured
    for name, each in measured.items():
        # Figures of one trial are not independent: so many as if each trial had one.
        assert binom.cdf(round(each.held / each.stated * runs), runs, 0.95) > FALSE_ALARM, name


@pytest.mark.more
@pytest.mark.parametrize(
    ("rows", "down", "across"),
    [
        (5000, (0.5, 0.5), (0.5, 0.5)),
        (5000, (0.97, 0.03), (0.98, 0.02)),
        (2000, (0.9, 0.1), (0.6, 0.3, 0.06, 0.03, 0.01)),
        (1000, (0.6, 0.3, 0.06, 0.03, 0.01), (0.6, 0.3, 0.06, 0.03, 0.01)),
    ],
)
@pytest.mark.parametrize(("deviation", "copies"), [(2.0, 1.25), (9.0, math.inf), (30.0, math.inf)])
def test_the_test_of_independence_keeps_its_level(rows, down, across, deviation, copies):
    """At 0.05 a usual chi-square test of the same noisy counts rejects up to all of them."""
    random, noise, runs = np.random.default_rng(4), CellNoise(deviation, copies), 200
    rejected = usual = 0
    for _ in range(runs):
        table = random.multinomial(rows, np.outer(down, across).ravel()).reshape(len(down), len(across))
        noisy = table + _noise(noise, table.shape, random)
        found = independence(noisy, noise, tables=199)
        rejected += found is not None and found.p_value <= 0.05
        usual += chi2_contingency(np.maximum(noisy, 0.5), correction=False)[1] <= 0.05
    assert binom.sf(rejected - 1, runs, 0.06) > FALSE_ALARM
    if deviation == 30.0:
        assert usual > 2 * rejected


def test_the_test_of_independence_finds_dependence():
    random, noise = np.random.default_rng(4), CellNoise(20.0, math.inf)
    shares = np.array([[0.3, 0.2], [0.2, 0.3]])
    found = 0
    for _ in range(20):
        table = random.multinomial(4000, shares.ravel()).reshape(2, 2) + _noise(noise, (2, 2), random)
        found += independence(table, noise, tables=199).p_value <= 0.05
    assert found == 20
