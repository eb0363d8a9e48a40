"""What scores of hazards say of rows, against closed forms and counts by hand."""

import numpy as np
import pytest

from dpcore.estimators.hazard_scores import brier_score, concordance, restricted_means, survival


def test_survival_is_the_exponential_of_the_cumulative_hazard():
    found = survival(np.log([0.1, 0.2]), np.array([0.0, np.log(2.0), 2_000.0]))
    assert found[0] == pytest.approx(np.exp([-0.1, -0.3]))
    assert found[1] == pytest.approx(np.exp([-0.2, -0.6]))
    assert found[2].tolist() == [0.0, 0.0]


def test_a_restricted_mean_is_the_area_under_the_curve():
    chances = np.array([[1.0, 1.0], [0.5, 0.5], [0.0, 0.0]])
    assert restricted_means(chances, (2.0, 5.0)).tolist() == [5.0, 1.5 + 1.5, 1.0]


def test_without_censoring_the_brier_score_is_the_mean_squared_difference():
    random = np.random.default_rng(1)
    times, chances = random.exponential(2.0, 500), random.uniform(size=500)
    found = brier_score(chances, times, np.ones(500, dtype=bool), 1.5)
    assert found == pytest.approx(np.square(chances - (times > 1.5)).mean())


def test_rows_that_were_censored_count_through_those_that_stay():
    """At time 2 one of the two rows at risk is censored, an event of the same time before it."""
    times, happened = np.array([1.0, 2.0, 2.0, 9.0]), np.array([True, True, False, False])
    # By hand: both events weigh 1; the row beyond weighs 1 / (1 - 1/2).
    assert brier_score(np.array([0.3, 0.4, 0.9, 0.5]), times, happened, 5.0) == pytest.approx(
        (0.3**2 + 0.4**2 + 2 * 0.5**2) / 4
    )


def test_censoring_by_chance_does_not_move_the_brier_score():
    random = np.random.default_rng(2)
    x = random.uniform(-1, 1, 40_000)
    times, last = random.exponential(3.0 / np.exp(x)), random.uniform(0.0, 8.0, 40_000)
    chances = np.exp(-2.0 * np.exp(x) / 3.0)
    exact = brier_score(chances, times, np.ones(40_000, dtype=bool), 2.0)
    found = brier_score(chances, np.minimum(times, last), times <= last, 2.0)
    assert found == pytest.approx(exact, abs=0.005)
    naive = np.square(chances - (np.minimum(times, last) > 2.0)).mean()
    assert abs(naive - exact) > 0.01


def test_nothing_is_said_where_no_row_can_tell():
    times, happened = np.array([1.0, 2.0]), np.array([True, False])
    assert np.isnan(brier_score(np.array([0.5, 0.5]), times, happened, 2.0))
    assert np.isnan(concordance(np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool)))
