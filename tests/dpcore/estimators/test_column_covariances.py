"""Covariances that know the schema: what it implies is exact, and correlations are shrunk by their noise."""

from dataclasses import replace

import numpy as np
import pytest

from dpcore.estimators.column_covariances import ColumnCovariances
from dpcore.estimators.least_squares import exact_moments
from dpcore.estimators.whitened_rounds import Whitening
from dpcore.records.features import BooleanFeature, CategoryFeature, Number, RealFeature
from dpcore.records.schema import Schema

LEVELS = tuple("abcdefgh")
ROWS = 4000
SCHEMA = Schema(
    name="covariances",
    label=Number(column="t", lower=-1, upper=1),
    features=(
        RealFeature(name="age", lower=0, upper=1),
        RealFeature(name="size", lower=0, upper=1),
        BooleanFeature(name="ill", true=("yes",), false=("no",)),
        CategoryFeature(name="place", values=LEVELS),
    ),
)


def encoded() -> np.ndarray:
    generator = np.random.default_rng(0)
    age = np.clip(0.4 * generator.normal(size=ROWS), -1, 1)
    size = np.clip(0.8 * age + 0.2 * generator.normal(size=ROWS), -1, 1)
    ill = np.where(generator.random(ROWS) < 0.2, 1.0, -1.0)
    places = np.eye(len(LEVELS))[generator.choice(len(LEVELS), ROWS, p=np.arange(1, 9) / 36)]
    return np.column_stack([age, size, ill, places, np.ones(ROWS)])


def noisy(deviation: float, seed: int):
    x = encoded()
    exact = exact_moments(x, x[:, 0])
    noise = np.triu(np.random.default_rng(seed).normal(size=exact.product_sum.shape)) * deviation
    noise[-1, -1] = 0.0
    deviations = np.full(noise.shape, deviation)
    deviations[-1, -1] = 0.0
    return replace(exact, product_sum=exact.product_sum + noise + np.triu(noise, 1).T, product_noise=deviations)


def test_without_noise_covariances_are_those_of_the_rows():
    x = encoded()
    found = ColumnCovariances.of(exact_moments(x, x[:, 0]), SCHEMA)
    expected = np.cov(x[:, :-1].T, bias=True)
    assert found.means == pytest.approx(x[:, :-1].mean(axis=0))
    assert found.covariance == pytest.approx(expected, abs=0.002)


def test_levels_exclude_one_another_and_flags_are_as_wide_as_their_means_say():
    found = ColumnCovariances.of(noisy(300.0, 1), SCHEMA)
    places = found.means[3:]
    apart = ~np.eye(len(places), dtype=bool)
    assert found.covariance[3:, 3:][apart] == pytest.approx(-np.outer(places, places)[apart])
    assert not found.deviations[3:, 3:][apart].any()
    assert found.covariance[2, 2] == pytest.approx(1 - found.means[2] ** 2, abs=0.01)


def test_a_correlation_within_its_noise_is_small_and_a_clear_one_stays():
    deviation = 100.0
    found = [ColumnCovariances.of(noisy(deviation, seed), SCHEMA) for seed in range(10)]
    exact = np.cov(encoded()[:, :-1].T, bias=True)
    wrong = [noisy(deviation, seed).product_sum[2, 3:11] / ROWS for seed in range(10)]
    assert np.mean([np.square(one.covariance[2, 3:]).mean() for one in found]) < 0.3 * np.square(wrong).mean()
    assert np.mean([one.covariance[0, 1] for one in found]) > 0.6 * exact[0, 1]


def test_more_directions_are_whitened_than_by_eigenvalues_alone():
    """Of exactly white records all lengths are d, and a direction that noise hides has next to none."""
    moments = noisy(150.0, 2)
    second = encoded().T @ encoded() / ROWS

    def least(whitening: Whitening) -> float:
        basis = whitening.basis.matrix
        return float(np.sort(np.linalg.eigvalsh(basis @ second @ basis.T))[1])

    by_columns = least(Whitening.of_columns(ColumnCovariances.of(moments, SCHEMA), 0.4))
    assert by_columns > 2 * least(Whitening.of(moments, 1.6))
