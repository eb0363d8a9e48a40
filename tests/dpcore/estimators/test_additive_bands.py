"""Bands of numbers, counts and times: they hold the shape of a fit without noise, and tell what is there."""

import numpy as np
import pytest

from benchmarks.coefficient_coverage import Population, _pooled
from benchmarks.interval_coverage import bands_of
from dpcore.estimators.additive_products import products_of_terms
from dpcore.estimators.additive_terms import additive_terms
from dpcore.estimators.least_squares import exact_moments
from dpcore.estimators.private_histograms import Histogram
from dpcore.numbers.fixed_point import ONE
from dpcore.records.features import BooleanFeature, CategoryFeature, Count, EventTime, Number, RealFeature
from dpcore.records.schema import Schema
from learner.shapes import shapes_of
from learner.uncertainty import Limits, measurable

ROWS = 20_000
FEATURES = (
    RealFeature(name="age", lower=-1.0, upper=1.0),
    BooleanFeature(name="smoker", true=("1",), false=("0",)),
    CategoryFeature(name="ward", values=("east", "west")),
)
LABELS = {
    "number": Number(column="y", lower=-4.0, upper=4.0),
    "count": Count(column="y", upper=20),
    "event": EventTime(column="y", event="died", happened=("1",), borders=(1.0, 2.0, 4.0, 8.0)),
}


def population(kind: str) -> Population:
    """Rows whose label bends with age and depends on the flag."""
    random = np.random.default_rng(4)
    age, smoker = random.uniform(-1, 1, ROWS), np.where(random.random(ROWS) < 0.4, 1.0, -1.0)
    ward = random.integers(2, size=ROWS)
    x = np.column_stack([age, smoker, ward == 0, ward == 1, np.ones(ROWS)]).astype(np.float64)
    score = 2.0 * np.abs(age) - 1.0 + 0.3 * smoker
    times = np.zeros(ROWS)
    if kind == "number":
        labels = np.rint(np.clip(score + 0.5 * random.normal(size=ROWS), -4, 4) / 4 * ONE)
    elif kind == "count":
        labels = np.minimum(random.poisson(np.exp(score)), 20)
    else:
        times = random.exponential(6.0 / np.exp(score))
        borders = np.array(LABELS["event"].borders)
        labels = np.where(times <= 8.0, np.searchsorted(borders, times), 2 * len(borders))
    schema = Schema(name=kind, label=LABELS[kind], features=FEATURES)
    usable = np.ones(ROWS, dtype=np.bool_)
    return Population(schema, x, labels, usable, np.minimum(times, 8.0), _pooled(schema, x, labels, times))


@pytest.mark.parametrize("kind", LABELS)
def test_bands_hold_the_shape_without_noise_and_tell_the_bend(kind):
    found = population(kind)
    made, true = found.shapes(1.0, 1)
    for _, stated, hold in bands_of(made, true):
        assert stated > 0.9
        assert hold > 0.9
    (age,) = shapes_of(made).chosen(["age"])[:1]
    assert age.noise < age.size
    assert shapes_of(made).has_bands


def test_products_of_terms_are_those_of_rows():
    random = np.random.default_rng(2)
    schema = Schema(name="s", label=LABELS["number"], features=FEATURES)
    edges = np.linspace(-1.0, 1.0, 33)
    age, smoker, ward = random.uniform(-1, 1, ROWS), np.sign(random.random(ROWS) - 0.7), random.random(ROWS) < 0.2
    x = np.column_stack([age, smoker, ward, ~ward, np.ones(ROWS)]).astype(np.float64)
    counts = np.histogram(age, edges)[0] / ROWS
    histogram = Histogram(edges, counts, {})
    terms = additive_terms(schema, {0: histogram}, knots=3, pairs=())
    mapped = terms.feature_map.of(x)
    exact = mapped.T @ mapped / ROWS
    noisy = exact_moments(mapped, np.zeros(ROWS))
    noise = np.full(exact.shape, 0.02 * ROWS)
    noise[-1, -1] = 0.0
    drawn = np.triu(random.normal(size=noise.shape) * noise)
    noisy = type(noisy)(
        **{**vars(noisy), "product_sum": noisy.product_sum + drawn + np.triu(drawn, 1).T, "product_noise": noise}
    )
    found = products_of_terms(terms, noisy, schema)
    block = list(terms.blocks[0].places)
    np.testing.assert_allclose(found[np.ix_(block, block)], exact[np.ix_(block, block)], atol=5e-3)
    assert np.linalg.eigvalsh(found).min() > 0
    np.testing.assert_allclose(np.diag(found), np.diag(exact), atol=0.08)


def test_what_is_measurable_does_not_depend_on_the_unit():
    """A price in thousands was never measurable, as its band was compared with five."""
    row, narrow = np.eye(2)[:1], np.diag([0.01, 4.0])
    for unit in (1.0, 1e5):
        limits = Limits.of(LABELS["number"], is_rate=False, unit=unit)
        assert measurable(row, unit**2 * narrow, limits).all()
        assert not measurable(np.eye(2)[1:], unit**2 * narrow, limits).any()
    assert not measurable(row, np.diag([0.3, 1.0]), Limits.of(LABELS["count"], is_rate=True)).any()
