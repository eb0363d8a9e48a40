"""What regressions do where noise hides the label's variance: residuals are not taken for small."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.noise_shares import number_moments_squared
from dpcore.estimators.column_covariances import ColumnCovariances
from dpcore.estimators.least_squares import LeastSquares, exact_moments, inverse, solve
from dpcore.estimators.number_newton import NumberSettings, curvature_spread, shortened, shown_variance
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


def start_of(moments: NumberMoments) -> np.ndarray:
    """Of rounds whose coordinates are centred and twice as long."""
    basis = 2.0 * np.eye(moments.d)
    basis[:-1, -1], basis[-1, -1] = -2.0 * moments.product_sum[-1, :-1] / moments.rows, 1.0
    return shortened(solve(moments, 5.0), inverse(moments, 5.0), moments, basis)


def test_rounds_start_from_least_squares_without_what_its_noise_explains():
    x, labels = rows(4000, 1)
    exact = exact_moments(x, labels)
    assert start_of(exact) == pytest.approx(np.linalg.lstsq(x, labels, rcond=None)[0])
    assert not start_of(replace(exact, sum_noise=1e6))[:-1].any()
    # Where there is nothing to learn, what is left of the slopes is far shorter than least squares.
    nothing = exact_moments(x, np.random.default_rng(2).permutation(labels))
    released = [noisy(nothing, 60.0, seed) for seed in range(20)]
    plain, left = (np.mean([np.linalg.norm(of(one)[:-1]) for one in released]) for of in (_plain, start_of))
    assert left < 0.4 * plain


def _plain(moments: NumberMoments) -> np.ndarray:
    return solve(moments, 5.0)


def test_curvature_may_be_as_far_off_as_noise_and_clipping_move_it():
    random = np.random.default_rng(0)
    k, deviations = 6, random.uniform(0.05, 0.3, size=(6, 6))
    deviations = (deviations + deviations.T) / 2.0
    np.fill_diagonal(deviations, 0.0)
    basis = np.eye(k + 1)
    basis[:k, :k] += 0.2 * np.ones((k, k))
    columns = ColumnCovariances(np.zeros(k), np.eye(k), deviations)
    upper = np.triu(random.normal(size=(4000, k, k)), 1) * deviations
    drawn = basis[:k, :k] @ (upper + upper.transpose(0, 2, 1)) @ basis[:k, :k].T
    expected = np.square(drawn).sum(axis=(1, 2)).mean() / (k + 1) + 0.1**2 * (k + 1)
    assert curvature_spread(columns, basis) ** 2 == pytest.approx(expected, rel=0.05)
    wide = ColumnCovariances(np.zeros(k), np.eye(k), 100.0 * deviations)
    assert curvature_spread(wide, basis) == 3.0
