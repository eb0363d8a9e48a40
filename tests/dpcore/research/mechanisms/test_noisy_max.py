"""Report-noisy-max: its cost if the index alone is released, by its exact distribution, and that of the scores."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import DataError, PlanError
from dpcore.randomness.sources import SeededRandom
from dpcore.research.mechanisms import NoisyMax

EPSILON = Fraction(1)
REACH = 80


def distribution(scores: list[int], scale: float) -> np.ndarray:
    """The probability of each index, by sums over the noisy score of the winner; ties go to the first."""
    q = math.exp(-1 / scale)
    values = np.arange(min(scores) - REACH, max(scores) + REACH + 1)
    masses = [(1 - q) / (1 + q) * q ** np.abs(values - score) for score in scores]
    below = [np.cumsum(mass) for mass in masses]
    found = []
    for i, mass in enumerate(masses):
        # An earlier candidate must be strictly below, a later one at most equal.
        others = [below[j] - masses[j] * (j < i) for j in range(len(scores)) if j != i]
        found.append(float(mass @ np.prod(others, axis=0)))
    return np.array(found)


def worst(scale: float) -> float:
    """The largest log ratio over neighbours in which candidates rise or fall by 1, the chosen one against the rest."""
    found = 0.0
    for k in (2, 3, 8, 30):
        for gap in range(-25, 26, 5):
            for place in (0, k - 1):
                scores, moved = [0] * k, [1] * k
                scores[place], moved[place] = gap + 1, gap
                ratios = np.log(distribution(scores, scale) / distribution(moved, scale))
                found = max(found, float(np.abs(ratios).max()))
    return found


def test_the_index_alone_costs_epsilon_whatever_the_number_of_candidates():
    scale = float(NoisyMax(EPSILON, 1).shares.scale)
    assert scale == 2.0
    assert 0.98 < worst(scale) <= 1 + 1e-9
    # With a smaller scale the claim is false: the test can fail.
    assert worst(0.95 * scale) > 1.02


def test_noisy_scores_of_the_same_noise_cost_half_as_many_times_as_there_are_candidates():
    """A federation's learner sees them: this is why `select` does not count the index alone."""
    scale = float(NoisyMax(EPSILON, 1).shares.scale)
    for k in (3, 10):
        first, second, outcome = np.zeros(k), np.ones(k), np.full(k, -1.0)
        log_ratio = (np.abs(outcome - second) - np.abs(outcome - first)).sum() / scale
        assert log_ratio == pytest.approx(k / 2 * float(EPSILON))


def test_choices_have_this_distribution():
    mechanism, scores, draws = NoisyMax(EPSILON, 1), [3, 0, 3, 5], 4000
    random = SeededRandom(5)
    chosen = np.bincount([mechanism.release(np.array(scores), random) for _ in range(draws)], minlength=4)
    expected = draws * distribution(scores, 2.0)
    chi_squared = float(((chosen - expected) ** 2 / expected).sum())
    # The 1e-4 quantile of three degrees of freedom; a scale of 1.3 times has 40 or more.
    assert chi_squared < 21.1
    other = draws * distribution(scores, 2.6)
    assert float(((chosen - other) ** 2 / other).sum()) > 21.1


def test_bad_input_is_refused():
    with pytest.raises(PlanError):
        NoisyMax(Fraction(0), 1)
    with pytest.raises(PlanError):
        NoisyMax(EPSILON, 0)
    with pytest.raises(DataError, match="no candidate"):
        NoisyMax(EPSILON, 1).release(np.array([], dtype=np.int64), SeededRandom(0))
    with pytest.raises(DataError, match="integers"):
        NoisyMax(EPSILON, 1).release(np.array([0.5]), SeededRandom(0))
