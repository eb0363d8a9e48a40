"""Counts: noise makes no slopes and no rates, and the last round corrects the intercept by what its noise allows.

That round hardly clips a row, and its noise counts in the error of the intercept.
"""

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
    (exact, mean), (noisy, _) = learned(), learned(deviation=0.05)
    assert exact.rounds == noisy.rounds == ROUNDS - 1
    added = noisy.errors.covariance - exact.errors.covariance
    assert added[-1, -1] == pytest.approx((0.05 / mean) ** 2, rel=0.05)
    added[-1, -1] = 0.0
    assert not added.any()


def test_the_last_round_moves_the_intercept_by_what_the_rate_is_too_high():
    (exact, mean), (moved, _) = learned(), learned(moved=0.2)
    assert moved.theta[:-1].tolist() == exact.theta[:-1].tolist()
    assert exact.theta[-1] - moved.theta[-1] == pytest.approx(np.log1p(0.2 / mean), rel=0.1)


def count_moments(**released):
    """Of counts; released: fields of the moments that are others."""
    oracle, *_ = counts()
    moments = replace(oracle.number_moments(norm_bound=Fraction(2)), **released)
    return CountMoments(moments, ColumnCovariances.of(moments, oracle.schema), COUNT)


def test_a_last_round_of_much_noise_hardly_moves_the_intercept():
    of = count_moments()
    exact, left = of.correction(0.2, 0.0, 0.0)
    assert (exact, left) == (pytest.approx(np.log1p(0.2 / of.mean)), 0.0)
    # What clipping may have taken off has a prior deviation of 0.2, and the noise of earlier rounds adds to it.
    for noise, prior in ((0.0, 0.04), (0.12, 0.16)):
        moved, left = of.correction(0.2, 10.0 * of.mean, noise)
        assert abs(moved) < 0.2
        assert left == pytest.approx(prior, rel=0.1)
        variance = (0.3 / of.mean / (1.0 + 0.2 / of.mean)) ** 2
        moved, left = of.correction(0.2, 0.3, noise)
        assert left == pytest.approx(1.0 / (1.0 / prior + 1.0 / variance), rel=0.1)
        assert 0.0 < moved < np.log1p(0.2 / of.mean) * 1.2
    # Noise may say that less than nothing is left.
    assert 0.0 > of.correction(-5.0 * of.mean, of.mean, 0.0)[0] > -0.5


def test_a_mean_that_noise_hides_is_neither_nothing_nor_far_too_large():
    label_sum = count_moments().moments.label_sum.copy()
    exact = float((label_sum[-1] / ROWS + 1.0) * COUNT.upper / 2.0)
    assert count_moments().mean == pytest.approx(exact)
    for mean in (-4.0, 0.0, exact):
        label_sum[-1] = ROWS * (2.0 * mean / COUNT.upper - 1.0)
        # Noise of 3 in the mean.
        found = count_moments(label_sum=label_sum, sum_noise=ROWS * 3.0 / (COUNT.upper / 2.0)).mean
        assert 0.25 * 3.0 < found < exact + 3.0


class Noisy:
    """Answers with noise: on sums of moments of this share of the rows, and on gradients of this share of the clip."""

    def __init__(self, oracle: ExactOracle, random: np.random.Generator, of_sums: float, of_clip: float) -> None:
        self._oracle, self._random, self._of_sums, self._of_clip = oracle, random, of_sums, of_clip
        self.epsilon, self.delta, self.rows, self.schema = Fraction(1), oracle.delta, oracle.rows, oracle.schema

    def number_moments(self, **options):
        found, noise = self._oracle.number_moments(**options), self._of_sums * ROWS
        drawn = np.triu(self._random.normal(size=found.product_sum.shape)) * noise
        drawn[-1, -1] = 0.0
        return replace(
            found,
            label_sum=found.label_sum + noise * self._random.normal(size=found.d),
            square_sum=found.square_sum + noise * self._random.normal(),
            product_sum=found.product_sum + drawn + np.triu(drawn, 1).T,
            sum_noise=noise,
            square_noise=noise,
            product_noise=np.full(drawn.shape, noise),
        )

    def number_gradient(self, theta, *, clip, **options):
        found, noise = self._oracle.number_gradient(theta, clip=clip, **options), self._of_clip * float(clip)
        return replace(found, mean=found.mean + noise * self._random.normal(size=len(theta)), deviation=noise)


def slopes_of(seed: int, monkeypatch) -> float:
    """The variance of scores that are learned of counts without any signal, under much noise."""
    random = np.random.default_rng(seed)
    x = np.column_stack([random.uniform(-1, 1, (ROWS, 2)), random.choice([-1.0, 1.0], ROWS), np.ones(ROWS)])
    oracle = ExactOracle(COUNT, random.poisson(2.0, ROWS).astype(np.int32), x)
    settings = replace(SETTINGS, rounds=8)
    monkeypatch.setattr(number_newton, "errors_of_weights", lambda *_: None)
    theta = learn(Noisy(oracle, random, 0.1, 0.3), settings, Fraction(2)).theta
    return float((x[:, :-1] @ theta[:-1]).var())


def test_shortening_each_step_ends_where_one_shortening_would():
    root, noise = np.array([0.6, -0.8]), 0.3
    once = number_newton._signal(root, noise)
    assert once == pytest.approx(0.7 * root)
    found = np.zeros(2)
    for _ in range(60):
        step = found + (root - found) / 2.0
        found = number_newton._signal(step, noise * float(step @ step), 2.0)
    assert found == pytest.approx(once)
    assert not number_newton._signal(root, 1.1, 2.0).any()


def test_noise_makes_no_slopes(monkeypatch):
    shortened = [slopes_of(seed, monkeypatch) for seed in range(12)]
    monkeypatch.setattr(number_newton, "_signal", lambda slopes, *_: slopes)
    plain = [slopes_of(seed, monkeypatch) for seed in range(12)]
    assert np.mean(shortened) < 0.3 * np.mean(plain)
    assert sum(not variance for variance in shortened) >= 3


def test_rounds_start_no_further_from_one_rate_than_a_step(monkeypatch):
    oracle, x, _ = counts()
    asked = []

    class Seen(LastMoved):
        def number_gradient(self, theta, *, basis, **options):
            asked.append(basis.matrix.T @ theta)
            return super().number_gradient(theta, basis=basis, **options)

    monkeypatch.setattr(number_newton, "shortened", lambda *_: np.array([9.0, -9.0, 9.0, 0.0]))
    learn(Seen(oracle), SETTINGS, Fraction(2))
    assert (x @ asked[0]).std() == pytest.approx(1.0, rel=0.1)
    assert (x @ asked[0]).mean() == pytest.approx(np.log(count_moments().mean), abs=0.05)


def test_a_rate_that_is_too_high_is_taken_off():
    of = count_moments()
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
