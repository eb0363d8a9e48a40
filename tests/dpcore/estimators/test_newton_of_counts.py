"""The last round of counts: it corrects the intercept alone, hardly clips a row, and its noise counts in the errors."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.estimators import number_newton
from dpcore.estimators.column_covariances import ColumnCovariances
from dpcore.estimators.number_newton import CountMoments, NumberSettings, learn
from tests.dpcore.estimators.test_additive_values import COUNT, ROWS, ExactOracle, counts, drawn

ROUNDS = 4
SETTINGS = NumberSettings(Fraction(1, 2), None, 1.0, ROUNDS, 1.5)


class LastMoved:
    """Answers exactly, but adds `moved` to the last intercept, and says that its noise has this deviation."""

    def __init__(self, oracle: ExactOracle, deviation: float = 0.0, moved: float = 0.0) -> None:
        self._oracle, self._deviation, self._moved, self._asked = oracle, deviation, moved, 0
        self.epsilon, self.delta, self.rows, self.schema = oracle.epsilon, oracle.delta, oracle.rows, oracle.schema
        self.number_moments = oracle.number_moments

    def number_gradient(self, theta, **options):
        found = self._oracle.number_gradient(theta, **options)
        self._asked += 1
        if self._asked < ROUNDS - 1:
            return found
        return replace(
            found, mean=found.mean + self._moved * (np.arange(len(theta)) == len(theta) - 1), deviation=self._deviation
        )


def learned(**options):
    oracle, _, found = counts()
    return learn(LastMoved(oracle, **options), SETTINGS, Fraction(2)), float(found.mean())


def test_the_noise_of_the_last_round_is_in_the_error_of_the_intercept_alone():
    (exact, mean), (noisy, _) = learned(), learned(deviation=0.5)
    assert exact.rounds == noisy.rounds == ROUNDS - 1
    added = noisy.errors.covariance - exact.errors.covariance
    assert added[-1, -1] == pytest.approx((0.5 / mean) ** 2, rel=0.05)
    added[-1, -1] = 0.0
    assert not added.any()


def test_the_last_round_moves_the_intercept_by_what_the_rate_is_too_high():
    (exact, mean), (moved, _) = learned(), learned(moved=0.2)
    assert moved.theta[:-1].tolist() == exact.theta[:-1].tolist()
    assert exact.theta[-1] - moved.theta[-1] == pytest.approx(np.log1p(0.2 / mean), rel=0.1)


def test_a_rate_that_is_too_high_is_taken_off():
    oracle, *_ = counts()
    moments = oracle.number_moments(norm_bound=Fraction(2))
    of = CountMoments(moments, ColumnCovariances.of(moments, oracle.schema), COUNT)
    theta = np.array([0.1, 0.2, 0.1, 1.4])
    assert of.with_less(of.mean, theta).tolist() == pytest.approx([0.1, 0.2, 0.1, 1.4 - np.log(2)])
    # Noise may say that less than nothing is left.
    assert of.with_less(-5.0 * of.mean, theta)[-1] == pytest.approx(1.4 - np.log(0.1))


def test_rates_add_up_because_the_last_round_hardly_clips(monkeypatch):
    """Counts of a long tail lose much of it where all coordinates of a row are clipped at once."""
    random, x, score = drawn()
    found = np.minimum(random.poisson(np.exp(0.6 * score - 0.5) * random.gamma(0.5, 2.0, ROWS)), 30).astype(np.int32)

    def share_of_rates() -> float:
        theta = learn(ExactOracle(COUNT, found, x), SETTINGS, Fraction(2)).theta
        return float(np.exp(x @ theta).mean() / found.mean())

    assert 0.98 < share_of_rates() < 1.0
    monkeypatch.setattr(number_newton, "_SHORTENED", 1)
    assert share_of_rates() < 0.94
