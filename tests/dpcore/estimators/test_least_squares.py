"""Least squares from moments: exact without noise, with the ridge that noise asks for, and its own figures."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import check_estimator

from dpcore.errors import ConfigurationError
from dpcore.estimators.least_squares import LeastSquares, exact_moments, residuals, solve
from dpcore.rados.distribution import NumberMoments


def rows(count: int = 400, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, (count, 3))
    return x, np.clip(x @ [0.3, -0.2, 0.1] - 0.5 + 0.1 * generator.normal(size=count), -1, 1)


@pytest.mark.more
def test_it_is_an_estimator_of_scikit_learn():
    check_estimator(LeastSquares(), on_skip=None)


def test_without_noise_it_is_ordinary_least_squares():
    x, y = rows()
    found, exact = LeastSquares().fit(x, y), LinearRegression().fit(x, y)
    assert found.coef_ == pytest.approx(exact.coef_)
    assert found.intercept_ == pytest.approx(exact.intercept_)
    assert found.r2_ == pytest.approx(exact.score(x, y))
    assert found.residual_variance_ == pytest.approx(np.square(exact.predict(x) - y).mean())


def noisy(x: np.ndarray, y: np.ndarray, noise: float, seed: int) -> NumberMoments:
    exact, generator = exact_moments(np.column_stack([x, np.ones(len(x))]), y), np.random.default_rng(seed)
    added = np.triu(noise * generator.normal(size=(exact.d, exact.d)))
    added = added + np.triu(added, 1).T
    added[-1, -1] = 0.0
    deviations = np.full((exact.d, exact.d), noise)
    deviations[-1, -1] = 0.0
    return NumberMoments(
        exact.label_sum + noise * generator.normal(size=exact.d),
        exact.square_sum + noise * generator.normal(),
        exact.product_sum + added,
        exact.rows,
        True,
        exact.norm_bound,
        noise,
        noise,
        deviations,
    )


def test_with_noise_a_ridge_is_better_than_none_and_shrinks_no_mean():
    x, y = rows(2000)
    full = np.column_stack([x, np.ones(len(x))])
    errors = {shrinkage: [] for shrinkage in (0.0, 0.8)}
    for seed in range(30):
        moments = noisy(x, y, 400.0, seed)
        for shrinkage, found in errors.items():
            found.append(np.square(full @ solve(moments, shrinkage) - y).mean())
    assert np.mean(errors[0.8]) < 0.7 * np.mean(errors[0.0])
    # A ridge on labels that are not centred would predict far less than the mean of -0.5.
    predicted = np.mean([(full @ solve(noisy(x, y, 100.0, seed), 0.8)).mean() for seed in range(10)])
    assert predicted == pytest.approx(y.mean(), abs=0.05)


def test_figures_are_within_their_range_whatever_the_noise():
    x, y = rows()
    for seed in range(20):
        moments = noisy(x, y, 300.0, seed)
        variance, r2 = residuals(moments, solve(moments, 0.8))
        assert variance > 0
        assert 0.0 <= r2 <= 1.0


def test_wrong_use_is_refused():
    x, y = rows(20)
    with pytest.raises(ConfigurationError, match="finite and at least 0"):
        LeastSquares(shrinkage=-1.0).fit(x, y)
    with pytest.raises(NotFittedError, match="has no theta_"):
        LeastSquares().predict(x)
    with pytest.raises(ValueError, match="values as large as"):
        LeastSquares().fit(x * 1e60, y)
