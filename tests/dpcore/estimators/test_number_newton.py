"""What regressions do where noise hides the label's variance: residuals are not taken for small."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.noise_shares import number_moments_squared
from dpcore.estimators.least_squares import LeastSquares, exact_moments
from dpcore.estimators.number_newton import NumberSettings, shown_variance
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.queries.moments import label_multiplier
from dpcore.rados.distribution import NumberMoments
from dpcore.records.clipping import Clip


def rows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Twelve columns of a spread of 0.3; a line explains a quarter of the label, whose spread is 0.2."""
    generator = np.random.default_rng(seed)
    x = np.column_stack([np.clip(0.3 * generator.normal(size=(count, 12)), -1, 1), np.ones(count)])
    score = x[:, :4].sum(axis=1) / 6.0
    return x, np.clip(score + 0.17 * generator.normal(size=count), -1, 1)


def noisy(moments: NumberMoments, deviation: float, seed: int) -> NumberMoments:
    generator = np.random.default_rng(seed)
    noise = np.triu(generator.normal(size=moments.product_sum.shape)) * deviation
    noise[-1, -1] = 0.0
    deviations = np.full(noise.shape, deviation)
    deviations[-1, -1] = 0.0
    return replace(
        moments,
        label_sum=moments.label_sum + deviation * generator.normal(size=moments.d),
        square_sum=moments.square_sum + deviation * generator.normal(),
        product_sum=moments.product_sum + noise + np.triu(noise, 1).T,
        sum_noise=deviation,
        square_noise=deviation,
        product_noise=deviations,
    )


def test_without_noise_the_variance_of_residuals_is_exact():
    x, labels = rows(500, 0)
    theta = np.full(13, 0.05)
    expected = float(np.square(labels - x @ theta).mean())
    assert shown_variance(exact_moments(x, labels), theta) == pytest.approx(min(expected, labels.var()))


@pytest.mark.parametrize("theta", [np.zeros(13), np.full(13, 0.1)], ids=["zero", "some"])
def test_a_variance_that_noise_hides_is_neither_small_nor_far_too_large(theta):
    x, labels = rows(500, 0)
    exact = exact_moments(x, labels)
    deviation = 2.0 * 500 * float(labels.var())
    found = [shown_variance(noisy(exact, deviation, seed), theta) for seed in range(200)]
    assert min(found) > 0.02 * float(labels.var())
    assert np.median(found) > 0.3 * float(labels.var())
    assert max(found) < 4.0 * deviation / 500


def test_little_signal_is_shrunk_where_noise_is_large():
    x, labels = rows(4000, 1)
    exact = exact_moments(x, labels)

    def explained(**options) -> list[float]:
        models = [LeastSquares(**options).fit_moments(noisy(exact, 120.0, seed)) for seed in range(20)]
        return [1.0 - np.square(labels - x @ model.theta_).mean() / labels.var() for model in models]

    assert np.mean(explained()) > np.mean(explained(shrinkage=0.8)) + 0.1


def released(rows: int, epsilon_mu: float) -> NumberMoments:
    """Moments with the noise of half of a budget of this mu, R = 2 and the usual weight of labels."""
    clip, multiplier = Clip(Fraction(2), bias=True), label_multiplier(Fraction(2))
    x, labels = np.column_stack([np.zeros((rows, 4)), np.ones(rows)]), np.zeros(rows)
    share = int(np.sqrt(float(number_moments_squared(clip, 10, multiplier)) * 2.0) / epsilon_mu)
    query = NumberMomentsQuery(clip, multiplier, share)
    total = np.zeros(query.length(5), dtype=np.int64)
    found = query.moments(total, 10, rows=rows, parties=1)
    return replace(
        exact_moments(x, labels),
        **{name: getattr(found, name) for name in ("sum_noise", "square_noise", "product_noise", "norm_bound")},
    )


def test_gradients_are_clipped_as_widely_as_noise_allows():
    settings = NumberSettings(Fraction(1, 2), None, 1.6, 8, 1.5)
    # d (2 k sqrt(d) / (mu sqrt(1/2) m))^2 = 0.003
    expected = np.sqrt(0.003 / 2) * 0.5 * 800 / (2 * 5)
    assert 1.5 < expected < 4
    assert settings.clip_for(released(800, 0.5)) == pytest.approx(expected, rel=1e-3)
    assert settings.clip_for(released(8, 0.5)) == 1.5
    assert settings.clip_for(released(80_000, 0.5)) == settings.widest_clip
    assert replace(settings, clip=7.0).clip_for(released(800, 0.5)) == 7.0
