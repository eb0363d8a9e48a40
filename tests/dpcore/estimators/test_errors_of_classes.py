"""Intervals of several classes against a reference, where columns determine one another."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.coefficient_coverage import Noisy
from dpcore.estimators.curvatures import PRIOR_DEVIATION, OfLogOdds
from dpcore.estimators.errors_of_classes import MOST_WEIGHTS, ClassAnswer, errors_of_classes
from dpcore.estimators.errors_of_weights import Released
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.records.encoding import store
from dpcore.records.features import CategoryFeature, Classes, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema

SCHEMA = Schema(
    name="stones",
    label=Classes(column="cut", values=("fair", "good", "ideal")),
    features=(
        *(RealFeature(name=name, lower=-1.0, upper=1.0) for name in ("length", "width", "table")),
        CategoryFeature(name="colour", values=("D", "E", "F")),
    ),
)
THETA = np.array([[0.0, 0.0, 1.0, -0.5, 0.5, 0.0, 0.0], [0.0, 0.0, -1.0, 0.5, 0.0, -0.5, 0.2], np.zeros(7)])
D = len(THETA[0])


def stones(rows: int, seed: int, epsilon: int = 3, apart: float = 0.01) -> Noisy:
    """Noisy answers about stones as long as they are wide, but for a deviation of `apart`."""
    random = np.random.default_rng(seed)
    length = random.uniform(-0.8, 0.8, rows)
    width = np.clip(length + apart * random.normal(size=rows), -1.0, 1.0)
    colours = np.eye(3)[random.choice(3, rows, p=[0.6, 0.3, 0.1])]
    x = np.column_stack([length, width, random.uniform(-1, 1, rows), colours, np.ones(rows)])
    scores = x @ THETA.T + random.gumbel(size=(rows, 3))
    codes = scores.argmax(axis=1).astype(np.int8)
    held = Records(store(x), codes, np.ones(rows, bool), coding=SCHEMA.label.coding)
    return Noisy(held, SCHEMA, Fraction(epsilon), random)


def contrast(first: int, **weights: float) -> np.ndarray:
    """Of a class against the last one."""
    places = {name: place for place, name in enumerate(SCHEMA.coordinates)}
    row = np.zeros(D)
    for name, weight in weights.items():
        row[places[name]] = weight
    return np.kron(np.eye(3)[first] - np.eye(3)[2], row)


def deviation(covariance: np.ndarray, row: np.ndarray) -> float:
    return float(np.sqrt(row @ covariance @ row))


def released(rows: int, apart: float, prior: float = PRIOR_DEVIATION) -> Released:
    moments = stones(rows, 1, apart=apart).class_moments(part=Fraction(1, 2))
    return Released(SCHEMA, moments, np.eye(D), 6.0, loss=OfLogOdds(6.0, prior=prior))


def levels() -> tuple[np.ndarray, np.ndarray]:
    names = [name for name in SCHEMA.coordinates if name.startswith("colour")]
    row = np.zeros(D)
    row[[SCHEMA.coordinate(names[1]), SCHEMA.coordinate(names[0])]] = 1.0, -1.0
    return np.kron([1.0, 0.0, -1.0], row), row


def test_no_prior_of_the_sum_of_levels_is_in_a_contrast_of_classes():
    answer = ClassAnswer(THETA, np.zeros((3, D)), 1e-3)
    near, far = (
        deviation(errors_of_classes(THETA, [answer], released(8_000, 0.3, prior)).covariance, levels()[0])
        for prior in (2.0, 20.0)
    )
    assert far == pytest.approx(near, rel=0.15)
    assert far < 0.3


def test_no_answer_tells_apart_columns_whose_difference_the_noise_hides():
    """Any one estimate of how they differ is sure of their weights."""
    answer = ClassAnswer(THETA, np.zeros((3, D)), 1e-4)
    hidden, shown = (
        deviation(errors_of_classes(THETA, [answer], released(8_000, apart)).covariance, contrast(0, length=1.0))
        for apart in (0.01, 0.3)
    )
    assert shown < 0.4
    assert hidden > 0.5 * PRIOR_DEVIATION


def test_errors_are_stated_of_weights_of_a_multinomial_regression_alone():
    assert PrivateNewton(rounds=3).fit_queries(stones(2_000, 2)).covariance_ is None
    assert PrivateNewton(rounds=3, clip=1.5, class_weight="balanced").fit_queries(stones(2_000, 2)).covariance_ is None
    fitted = PrivateNewton(rounds=3, clip=1.5).fit_queries(stones(2_000, 2))
    assert fitted.covariance_.shape == fitted.sampling_.shape == (3 * D, 3 * D)
    # The average of all classes has no error.
    average = np.kron(np.ones(3), np.eye(D))
    assert np.abs(average @ fitted.covariance_).max() < 1e-9


def test_too_many_weights_have_no_errors():
    wide = np.zeros((3, MOST_WEIGHTS))
    assert errors_of_classes(wide, [], replace(released(500, 0.3))) is None


@pytest.mark.more
def test_intervals_against_a_reference_hold():
    rows = [contrast(first, table=1.0) for first in (0, 1)] + [levels()[0], np.roll(levels()[0], D)]
    held, widths = [], []
    for seed in range(12):
        fitted = PrivateNewton(clip=1.5).fit_queries(stones(6_000, seed))
        for row in rows:
            widths.append(1.96 * deviation(fitted.covariance_, row))
            held.append(abs(row @ (fitted.theta_ - THETA).ravel()) <= widths[-1])
    assert np.mean(held) >= 0.95
    assert np.median(widths) < 1.0
