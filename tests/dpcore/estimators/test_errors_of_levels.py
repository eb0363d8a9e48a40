"""Ratios of levels: what no row tells of a category, the sum of its weights, is in none of their errors.

The indicators of a category have the sum 1 in every row, so its weights may all be moved alike if the baseline is moved
back. The error of that sum is the prior's. It was in ratios too, up to seven times their own.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.coefficient_coverage import Noisy
from dpcore.estimators.curvatures import PRIOR_DEVIATION, OfLogOdds, prior_deviation
from dpcore.estimators.errors_of_weights import Answer, Released, errors_of_weights
from dpcore.estimators.hazards import ProportionalHazards, stretched
from dpcore.estimators.oracle import RowOracle
from dpcore.records.encoding import store
from dpcore.records.features import CategoryFeature, EventTime, Label, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema

BORDERS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
FEATURES = (
    RealFeature(name="age", lower=-1.0, upper=1.0),
    CategoryFeature(name="stage", values=("I", "II", "III")),
    CategoryFeature(name="arm", values=("old", "new")),
)
STUDY = Schema(
    name="study", label=EventTime(column="t", event="e", happened=("1",), borders=BORDERS), features=FEATURES
)
CLASSES = Schema(name="study", label=Label(column="ill", positive=("1",)), features=FEATURES)
THETA = np.array([0.7, 0.0, 0.6, 0.2, 0.4, 0.0, 0.0])
RATIOS = {
    "II to I": np.array([0, -1, 1, 0, 0, 0, 0]),
    "III to I": np.array([0, -1, 0, 1, 0, 0, 0]),
    "new to old": np.array([0, 0, 0, 0, -1, 1, 0]),
}
SUMS = np.array([[0, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0]])


def encoded(rows: int, random: np.random.Generator) -> np.ndarray:
    levels = [
        np.eye(len(shares))[random.choice(len(shares), rows, p=shares)] for shares in ([0.55, 0.4, 0.05], [0.5] * 2)
    ]
    return np.column_stack([random.uniform(-1, 1, rows), *levels, np.ones(rows)])


def patients(rows: int, seed: int) -> Noisy:
    """Their noisy answers at epsilon 2."""
    random = np.random.default_rng(seed)
    x = encoded(rows, random)
    times = random.exponential(8.0 / np.exp(x @ THETA))
    last = random.uniform(0.5, 12.0, rows)
    place = np.searchsorted(BORDERS, np.minimum(times, last))
    codes = np.where(place >= 6, 12, np.where(times <= last, place, 6 + place)).astype(np.int8)
    held = Records(store(x), codes, np.ones(rows, bool), coding=STUDY.label.coding)
    return Noisy(held, STUDY, Fraction(2), random)


def deviations(covariance: np.ndarray) -> np.ndarray:
    return np.array([np.sqrt(ratio @ covariance @ ratio) for ratio in RATIOS.values()])


def test_no_prior_of_the_sum_of_levels_is_in_a_contrast():
    random = np.random.default_rng(1)
    x = encoded(8_000, random)
    y = np.where(random.random(8_000) < 1.0 / (1.0 + np.exp(-(x @ THETA))), 1.0, -1.0)
    rows = RowOracle(x * y[:, np.newaxis])
    released = Released(CLASSES, rows.moments(), np.eye(7), 2.0)
    # Weights whose sums are far from zero, as those of a minimum are that began there.
    stated = THETA + np.array([0.0, 1.5, 1.5, 1.5, -2.0, -2.0, 0.5])
    answer = Answer(stated, np.zeros(7), 1e-3, np.eye(7))
    found = [
        errors_of_weights(stated, [answer], replace(released, loss=OfLogOdds(2.0, prior=prior))).covariance
        for prior in (2.0, 20.0)
    ]
    near, far = (deviations(each) for each in found)
    np.testing.assert_allclose(far, near, rtol=0.1)
    assert far.max() < 0.25
    # The sums are as unknown as the prior says.
    assert (np.sqrt(np.einsum("ij,jk,ik->i", SUMS, found[1], SUMS)) > 10.0).all()


@pytest.mark.more
def test_the_error_of_a_ratio_of_levels_is_that_of_its_rows_where_there_is_little_noise():
    noisy = patients(6_000, 1)
    noisy._mu *= 20.0
    fitted = ProportionalHazards().fit_queries(noisy)
    both, of_rows = deviations(fitted.covariance_), deviations(fitted.sampling_)
    assert (both < 1.7 * of_rows).all()
    assert (both > 0.8 * of_rows).all()
    # Columns vary as they are released and a little more; the root of 4 over the events is what arms of one size have.
    assert of_rows[2] == pytest.approx(np.sqrt(4.0 / (6_000 * 0.45)), rel=0.25)


@pytest.mark.more
def test_intervals_of_ratios_of_levels_are_as_wide_as_the_ratios_move():
    errors, stated = [], []
    for seed in range(40):
        fitted = ProportionalHazards().fit_queries(patients(6_000, seed))
        errors.append([ratio @ (fitted.theta_ - THETA) for ratio in RATIOS.values()])
        stated.append(deviations(fitted.covariance_))
    moved, said = np.sqrt(np.square(errors).mean(axis=0)), np.median(stated, axis=0)
    assert (said / moved < 1.7).all()
    assert np.mean(np.abs(errors) <= 1.96 * np.array(stated)) >= 0.93


def test_what_all_levels_add_alike_stretches_no_interval():
    moments = patients(2_000, 1).number_moments(norm_bound=Fraction(3))
    steep = THETA + np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    found = [stretched(steep + shift @ SUMS, moments, STUDY, 9.0) for shift in np.array([[0.0, 0.0], [2.0, -3.0]])]
    found[1][-1] = found[0][-1] = 0.0
    np.testing.assert_allclose(found[1], found[0], atol=1e-9)
    # Both arms are as far from their mean as the other: nobody is far out.
    assert np.sqrt(found[0][[4, 5], [4, 5]]).max() < 0.01
    assert np.sqrt(found[0][3, 3]) > 0.1


def test_a_weight_of_which_nothing_is_known_has_the_prior_of_its_label():
    assert prior_deviation(CLASSES.label.coding) == PRIOR_DEVIATION
    assert prior_deviation(STUDY.label.coding) < PRIOR_DEVIATION / 2.0
