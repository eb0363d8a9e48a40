"""The errors of weights: they are those of runs, and what the answers do not determine is not measurable."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.interval_coverage import Population, coefficients_of, drawn_at
from dpcore.estimators.additive import PrivateAdditive
from dpcore.estimators.curvatures import PRIOR_DEVIATION
from dpcore.estimators.errors_of_weights import Answer, Released, errors_of_weights, may_be_constant
from dpcore.estimators.oracle import RowOracle
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.records.features import CategoryFeature, Label, RealFeature
from dpcore.records.schema import Schema
from learner.report.coefficients import effects
from learner.shapes import shapes_of

ROWS, RARE = 20_000, 24
SCHEMA = Schema(
    name="wards",
    label=Label(column="ill", positive=("1",)),
    features=(
        RealFeature(name="age", lower=-1.0, upper=1.0),
        CategoryFeature(name="ward", values=("east", "west", "north", "rare")),
    ),
)


def table() -> Population:
    """Rows of which 24 are in a ward where nobody is ill."""
    random = np.random.default_rng(1)
    wards = random.choice(3, size=ROWS, p=[0.5, 0.3, 0.2])
    wards[:RARE] = 3
    age = random.uniform(-1, 1, ROWS)
    scores = 1.5 * age + np.array([0.5, -0.5, 0.0, -30.0])[wards]
    y = np.where(random.random(ROWS) < 1 / (1 + np.exp(-scores)), 1.0, -1.0)
    return Population(SCHEMA, np.column_stack([age, np.eye(4)[wards], np.ones(ROWS)]), y)


@pytest.mark.more
def test_a_rare_level_is_not_measurable_and_the_intervals_of_others_hold():
    """The interval of the rare level was narrow around 0, and its weight is far below."""
    population = table()
    rare = [change.startswith("rare") for _, change, _ in effects(SCHEMA)]
    stated, holds = [], []
    for seed in range(6):
        made, true = population.trained(PrivateNewton(), 1.0, seed)
        found = coefficients_of(population, made, true)
        assert not found[0][rare].any()
        stated.append(found[0][np.logical_not(rare)])
        holds.append(found[1][np.logical_not(rare)])
    assert np.mean(stated) > 0.8
    assert np.mean(np.array(holds)[np.array(stated)]) >= 0.95


@pytest.mark.parametrize("estimator", [PrivateNewton(), PrivateAdditive(pairs=False)])
def test_the_noise_of_a_rare_level_moves_no_other(estimator):
    population = table()
    made, true = population.trained(estimator, 1.0, 1)
    (ward, other) = (
        next(each for each in shapes_of(model).ranked if each.features == ("ward",)) for model in (made, true)
    )
    assert [at.measurable for at in ward.values] == [True, True, True, False]
    assert ward.values[3].band is None
    assert ward.measurable == pytest.approx(1.0)
    for at, best in zip(drawn_at(ward)[:3], drawn_at(other)[:3], strict=True):
        assert abs(at.adds - best.adds) <= at.band < 2.0


def test_without_information_the_prior_is_left():
    moments = RowOracle(table().x * table().y[:, np.newaxis]).moments()
    released = Released(RowOracle(table().x * table().y[:, np.newaxis]).schema, moments, np.eye(6), 0.5)
    answers = [Answer(np.zeros(6), np.zeros(6), 1e9, np.eye(6))]
    found = errors_of_weights(np.zeros(6), answers, released).covariance
    np.testing.assert_allclose(found, 1.35 * PRIOR_DEVIATION**2 * np.eye(6), atol=0.02)


def test_directions_that_no_answer_was_about_keep_the_prior():
    random = np.random.default_rng(3)
    x = np.column_stack([random.uniform(-1, 1, (ROWS, 3)), np.ones(ROWS)])
    rows = RowOracle(x * np.where(random.random(ROWS) < 0.5, 1.0, -1.0)[:, np.newaxis])
    released = Released(rows.schema, rows.moments(), np.eye(4), 2.0)
    # A first answer in all directions that says nothing, and one that says much about these.
    vague = Answer(np.zeros(4), np.zeros(4), 1e3, np.eye(4))
    every, without = (
        errors_of_weights(np.zeros(4), [vague, Answer(np.zeros(4), np.zeros(4), 1e-3, axes)], released).covariance
        for axes in (np.eye(4), np.eye(4)[:, 1:])
    )
    assert np.sqrt(np.diag(every)).max() < 0.1
    assert np.sqrt(without[0, 0] / 1.35) == pytest.approx(PRIOR_DEVIATION, rel=0.02)
    assert np.sqrt(np.diag(without)[1:]).max() < 0.1


def test_scores_that_decide_nearly_every_label_leave_no_weight_measurable():
    rows = RowOracle(table().x * table().y[:, np.newaxis])
    released = Released(rows.schema, rows.moments(), np.eye(6), 0.5)
    answers = [Answer(np.zeros(6), np.zeros(6), 1e-4, np.eye(6))]
    steep = np.array([12.0, 0, 0, 0, 0, 0])
    assert np.diag(errors_of_weights(steep, answers, released).covariance).min() > PRIOR_DEVIATION**2
    assert np.diag(errors_of_weights(steep / 6.0, answers, released).covariance)[0] < PRIOR_DEVIATION**2


def test_a_number_that_may_be_the_same_in_all_rows_is_not_measurable():
    """Noise alone made it vary, so a quarter of the intervals that were stated of constants did not hold 0."""
    random = np.random.default_rng(5)
    x = np.column_stack([np.full(ROWS, 0.5), random.uniform(-1, 1, ROWS), np.ones(ROWS)])
    rows = RowOracle(x * np.where(random.random(ROWS) < 0.5, 1.0, -1.0)[:, np.newaxis])
    moments, noise = rows.moments(), np.full((3, 3), 0.05 * ROWS)
    noisy = replace(moments, product_sum=moments.product_sum + np.diag([0.08 * ROWS, 0, 0]), product_noise=noise)
    answers = [Answer(np.zeros(3), np.zeros(3), 1e-3, np.eye(3))]
    left, other, _ = np.diag(
        errors_of_weights(np.zeros(3), answers, Released(rows.schema, noisy, np.eye(3), 2.0)).covariance
    )
    assert left > PRIOR_DEVIATION**2
    assert other < 0.1
    assert may_be_constant(Released(rows.schema, moments, np.eye(3), 2.0)).tolist() == [True, False, False]


def test_errors_are_symmetric_and_repeatable():
    rows = RowOracle(table().x * table().y[:, np.newaxis])
    first, again = (PrivateNewton().fit_queries(rows).covariance_ for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, first.T)
    assert np.linalg.eigvalsh(first).min() > 0
