"""The discriminant of several classes: the scores of its definition, and what noise does not break."""

from dataclasses import replace

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, DataError, ShapeError
from dpcore.estimators import class_discriminant
from dpcore.estimators.class_discriminant import GaussianClasses
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.estimators.moments_discriminant import MomentsDiscriminant
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.rados.distribution import ClassMoments


def moments_of(
    x: np.ndarray, y: np.ndarray, k: int, noise: float = 0.0, seed: int = 0, *, each: bool = False
) -> ClassMoments:
    """each: with products of each class, whose noise is 1 / sqrt(k) of that of their sum."""
    rows = np.column_stack([x, np.ones(len(x))])
    sums = np.array([rows[y == code].sum(axis=0) for code in range(k)])
    generator, d = np.random.default_rng(seed), rows.shape[1]
    added = generator.normal(size=(d, d)) * noise
    added = (added + added.T) / np.sqrt(2)
    added[-1, -1] = 0.0
    products, level = rows.T @ rows + added, np.full((d, d), noise)
    level[-1, -1] = 0.0
    own = None
    if each:
        own = np.array([(part := rows[y == code]).T @ part for code in range(k)])
        wide = np.random.default_rng(seed + 1).normal(size=own.shape) * noise / np.sqrt(k)
        own += (wide + wide.transpose(0, 2, 1)) / np.sqrt(2)
        products = own.sum(axis=0)
        products[-1, -1] = len(x)
    return ClassMoments(
        class_sums=sums + noise * generator.normal(size=sums.shape),
        product_sum=(products + products.T) / 2,
        rows=len(x),
        bias=True,
        norm_bound=2.0,
        sum_noise=noise,
        product_noise=level,
        class_products=own,
    )


def of_two_shapes(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A narrow class beside a wide one, and a third one across both: where they meet depends on how each varies."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, rows)
    shapes = np.array([[[0.04, 0.0], [0.0, 0.3]], [[0.3, 0.25], [0.25, 0.3]], [[0.3, -0.2], [-0.2, 0.2]]])
    means = np.array([[-0.25, 0.0], [0.25, 0.1], [0.1, 0.4]])
    away = np.einsum("njk,nk->nj", shapes[y], generator.normal(size=(rows, 2)))
    return 0.4 * (means[y] + away), y


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


@pytest.mark.more
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


@pytest.mark.more
def test_products_of_each_class_bring_the_scores_to_those_of_the_rows():
    """The multinomial logistic regression of the rows themselves has the least loss of all linear scores."""
    from sklearn.linear_model import LogisticRegression

    x, y = of_two_shapes(6000, 2)
    rows = np.column_stack([x, np.ones(len(x))])

    def loss(scores: np.ndarray) -> float:
        return float(np.mean(np.log(np.exp(scores - scores[np.arange(len(y)), y][:, np.newaxis]).sum(axis=1))))

    least = loss(LogisticRegression(max_iter=500).fit(x, y).decision_function(x))
    of_all, of_each = (
        loss(MeanVariance().fit_moments(moments_of(x, y, 3, each=each)).decision_function(rows))
        for each in (False, True)
    )
    assert of_each - least < 0.002
    assert of_all - least > 0.01
    of_rows = MeanVariance().fit(x, np.array(["ant", "bee", "cow"])[y])
    assert loss(of_rows.decision_function(x)) - least < 0.002


def test_a_classs_covariance_is_its_own_where_rows_and_noise_allow_and_else_the_common_one():
    x, y = of_two_shapes(6000, 2)
    usual = np.eye(2) * 0.008
    exact = GaussianClasses.of(moments_of(x, y, 3, each=True), 0.8).products
    for code in range(3):
        own = np.cov(x[y == code].T, bias=True)
        assert exact.covariances[code] == pytest.approx(own, abs=1e-9)
        assert exact.covariance(code, usual) == pytest.approx(own, abs=3e-3)
        assert np.array_equal(exact.covariance(code, own), own)
    loud = GaussianClasses.of(moments_of(x, y, 3, noise=2e5, each=True), 0.8).products
    shares = [
        np.abs(loud.covariance(code, usual) - usual).max() / np.abs(loud.covariances[code]).max() for code in (0, 1)
    ]
    assert max(shares) < 0.8
    few = GaussianClasses.of(moments_of(x[:9], np.arange(9) % 3, 3, each=True), 0.8).products
    assert np.abs(few.covariance(0, usual) - usual).max() < np.abs(few.covariances[0] - usual).max()
    assert GaussianClasses.of(moments_of(x, y, 3), 0.8).products is None


def test_noise_in_products_of_each_class_leaves_finite_scores_and_scores_add_up_to_zero():
    x, y = made()
    rows = np.column_stack([x, np.ones(len(x))])
    found = MeanVariance().fit_moments(moments_of(x, y, 4, noise=30.0, each=True))
    assert float(np.mean(found.predict(rows) != y)) < 0.1
    assert found.theta_.sum(axis=0) == pytest.approx(np.zeros(3), abs=1e-9)
    assert np.isfinite(MeanVariance().fit_moments(moments_of(x, y, 4, noise=1e5, each=True)).theta_).all()


def test_products_of_another_shape_or_not_finite_are_refused():
    known = moments_of(*made(), 3, each=True)
    with pytest.raises(ShapeError, match="d by d matrix for each class"):
        replace(known, class_products=known.class_products[:2])
    with pytest.raises(DataError, match="class_products is not finite"):
        replace(known, class_products=known.class_products * np.nan)


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
