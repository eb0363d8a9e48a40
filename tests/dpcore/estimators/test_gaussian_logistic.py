import numpy as np
import pytest

from dpcore.estimators.mean_variance import EdgeGroup, fit_gaussian_logistic


@pytest.fixture(scope="module")
def groups():
    random = np.random.default_rng(2)
    factors = random.normal(size=(2, 4, 4)) * 0.6
    return [
        EdgeGroup(70.0, np.array([0.8, -0.2, 0.1, 1.0]), factors[0] @ factors[0].T),
        EdgeGroup(30.0, np.array([0.3, 0.5, 0.0, -1.0]), factors[1] @ factors[1].T),
    ]


def test_the_loss_is_the_expectation_over_gaussian_edges(groups):
    random = np.random.default_rng(3)
    theta = np.array([0.7, -0.4, 0.9, 0.2])
    for group in groups:
        edges = random.multivariate_normal(group.mean, group.covariance, size=400_000)
        losses = group.weight * np.logaddexp(0.0, -edges @ theta)
        assert abs(group.loss(theta) - losses.mean()) < 4.5 * losses.std() / np.sqrt(len(losses))


@pytest.mark.parametrize("theta", [np.zeros(4), np.array([0.7, -0.4, 0.9, 0.2]), np.array([9.0, 3.0, -6.0, 2.0])])
def test_derivatives_are_those_of_the_loss(groups, theta):
    step = 1e-4
    for group in groups:
        gradient, hessian = group.derivatives(theta)
        for axis in np.eye(4):
            ahead, behind = group.loss(theta + step * axis), group.loss(theta - step * axis)
            assert np.isclose(gradient @ axis, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-4)
            ahead, behind = group.derivatives(theta + step * axis)[0], group.derivatives(theta - step * axis)[0]
            if theta.any():  # at zero sqrt(theta . C theta) turns within far less than a step
                assert np.allclose(hessian @ axis, (ahead - behind) / (2 * step), rtol=1e-4, atol=1e-4)
        assert np.linalg.eigvalsh(hessian).min() > -1e-9 * group.weight


def test_the_quadrature_is_convex_where_margins_are_large(groups):
    random = np.random.default_rng(4)
    for _ in range(200):
        first, second = random.normal(scale=20.0, size=(2, 4))
        for group in groups:
            middle = group.loss((first + second) / 2)
            assert middle <= (group.loss(first) + group.loss(second)) / 2 + 1e-9 * group.weight


def test_the_result_is_a_minimum(groups):
    penalties = np.array([1.0, 1.0, 1.0, 0.0])
    theta = fit_gaussian_logistic(groups, penalties)

    def objective(candidate):
        return sum(group.loss(candidate) for group in groups) + 0.5 * penalties @ candidate**2

    least = objective(theta)
    random = np.random.default_rng(5)
    for size in (1e-2, 1e-1, 1.0):
        for _ in range(50):
            assert objective(theta + random.normal(scale=size, size=4)) > least
    gradient = penalties * theta + sum(group.derivatives(theta)[0] for group in groups)
    assert np.abs(gradient).max() < 1e-3


def test_equal_covariances_give_fisher_s_direction_and_the_log_odds():
    """On Gaussian classes of one covariance C it is C^-1 (c+ - c-), with the threshold of Bayes' rule."""
    covariance = np.array([[0.5, 0.2], [0.2, 0.3]])
    positive, negative = np.array([0.4, 0.1]), np.array([-0.5, 0.3])
    padded = np.zeros((3, 3))
    padded[:2, :2] = covariance
    groups = [
        EdgeGroup(3e6, np.append(positive, 1.0), padded),
        EdgeGroup(1e6, -np.append(negative, 1.0), padded),
    ]
    slope = np.linalg.solve(covariance, positive - negative)
    wanted = np.append(slope, np.log(3.0) - slope @ (positive + negative) / 2)
    assert np.allclose(fit_gaussian_logistic(groups, np.array([1.0, 1.0, 0.0])), wanted, rtol=2e-3)


def test_separated_classes_and_a_single_class_give_finite_results():
    tight = np.diag([1e-9, 0.0])
    apart = [EdgeGroup(50.0, np.array([1.0, 1.0]), tight), EdgeGroup(50.0, np.array([1.0, -1.0]), tight)]
    theta = fit_gaussian_logistic(apart, np.array([1.0, 0.0]))
    assert 1.0 < theta[0] < 20.0
    assert abs(theta[1]) < 1e-6
    single = fit_gaussian_logistic([EdgeGroup(50.0, np.array([0.0, 1.0]), tight)], np.array([1.0, 0.0]))
    assert np.isfinite(single).all()
    assert single[1] > 3.0
