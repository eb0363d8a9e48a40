"""The discriminant of several classes: the scores of its definition, and what noise does not break."""

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.estimators import class_discriminant
from dpcore.estimators.class_discriminant import GaussianClasses
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.estimators.moments_discriminant import MomentsDiscriminant
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.rados.distribution import ClassMoments


def moments_of(x: np.ndarray, y: np.ndarray, k: int, noise: float = 0.0, seed: int = 0) -> ClassMoments:
    rows = np.column_stack([x, np.ones(len(x))])
    sums = np.array([rows[y == code].sum(axis=0) for code in range(k)])
    generator, d = np.random.default_rng(seed), rows.shape[1]
    added = generator.normal(size=(d, d)) * noise
    added = (added + added.T) / np.sqrt(2)
    added[-1, -1] = 0.0
    products, level = rows.T @ rows + added, np.full((d, d), noise)
    level[-1, -1] = 0.0
    return ClassMoments(
        class_sums=sums + noise * generator.normal(size=sums.shape),
        product_sum=(products + products.T) / 2,
        rows=len(x),
        bias=True,
        norm_bound=2.0,
        sum_noise=noise,
        product_noise=level,
    )


def made(rows: int = 3000, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, rows)
    means = np.array([[0.4, 0.0], [-0.4, 0.3], [0.0, -0.4]])
    return np.clip(means[y] + 0.15 * generator.normal(size=(rows, 2)), -1, 1), y


def test_scores_are_the_linear_discriminant_of_scikit_learn():
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    x, y = made()
    theta = GaussianClasses.of(moments_of(x, y, 3), 0.8).scores(1e-9)
    # Ours adds d / m = 1/1500 of the mean diagonal to W.
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(x, y)
    ours = theta - theta.mean(axis=0)
    expected = np.column_stack([theirs.coef_, theirs.intercept_])
    assert ours == pytest.approx(expected - expected.mean(axis=0), rel=3e-3, abs=3e-3)


def test_mean_variance_knows_that_bounded_features_vary_less_near_their_bounds():
    """Beta features: the class near the bound is narrow, so the best threshold is nearer to it."""
    generator = np.random.default_rng(5)
    y = generator.integers(0, 3, 6000)
    means = np.array([[-0.95, 0.0], [0.0, 0.9], [0.0, -0.1]])[y]
    x = 2.0 * generator.beta(3.0 * (1 + means) / 2, 3.0 * (1 - means) / 2) - 1.0
    rows, moments = np.column_stack([x, np.ones(len(x))]), moments_of(x, y, 3)
    line = GaussianClasses.of(moments, 0.8).scores(1.0)
    fitted = MeanVariance().fit_moments(moments)
    assert float(np.mean(fitted.predict(rows) != y)) < float(np.mean((rows @ line.T).argmax(axis=1) != y)) - 0.01
    again = MeanVariance().fit_moments(moments)
    assert np.array_equal(fitted.theta_, again.theta_)


def test_many_weights_are_those_of_the_discriminant(monkeypatch):
    monkeypatch.setattr(class_discriminant, "MOST_WEIGHTS", 8)
    classes = GaussianClasses.of(moments_of(*made(), 3), 0.8)
    assert np.array_equal(classes.logistic_scores(1.0), classes.scores(1.0))


def test_rows_of_several_classes_can_be_fitted_for_comparison():
    from sklearn.linear_model import LogisticRegression

    x, y = made()
    names = np.array(["ant", "bee", "cow"])[y]
    pooled = LogisticRegression(max_iter=500).fit(x, names).predict(x)
    for estimator in (MeanVariance(), PrivateNewton(rounds=5)):
        fitted = estimator.fit(3 * x + 1, names)
        assert fitted.coef_.shape == (3, 2)
        assert fitted.classes_.tolist() == ["ant", "bee", "cow"]
        assert float(np.mean(fitted.predict(3 * x + 1) == pooled)) > 0.97


def test_a_class_without_rows_and_noise_leave_finite_scores():
    x, y = made()
    found = MeanVariance().fit_moments(moments_of(x, y, 4, noise=30.0))
    assert found.theta_.shape == (4, 3)
    assert np.isfinite(found.theta_).all()
    rows = np.column_stack([x, np.ones(len(x))])
    assert found.decision_function(rows).shape == (len(x), 4)
    assert float(np.mean(found.predict(rows) != y)) < 0.1


def test_means_are_moved_to_the_overall_mean_where_noise_explains_their_spread():
    x, y = made()
    exact = GaussianClasses.of(moments_of(x, y, 3), 0.8)
    loud = GaussianClasses.of(moments_of(x, y, 3, noise=2000.0), 0.8)
    assert float(np.ptp(exact.means, axis=0).min()) > 0.5
    assert np.isfinite(loud.means).all()
    assert loud.sizes.sum() == pytest.approx(3000)


def test_what_cannot_be_is_refused():
    x, y = made()
    with pytest.raises(ConfigurationError, match="takes no ridge"):
        MeanVariance(ridge=0.1).fit_moments(moments_of(x, y, 3))
    assert not MomentsDiscriminant.several_classes
    assert MeanVariance.several_classes
