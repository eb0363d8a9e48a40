"""Private peers: each learns without noise, and has the noise that its privacy needs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.optimize import brentq
from scipy.special import ndtr

from benchmarks import private_trees
from benchmarks.private_peers import (
    ObjectiveSetting,
    Paired,
    SecondOrderSetting,
    Split,
    objective_perturbation,
    second_order,
)

pytestmark = pytest.mark.more


def test_no_record_changes_a_tree_s_sums_by_more_than_they_are_noised_for():
    """In one leaf or in two, over all pairs of scores and labels; and the worst pair reaches the bound."""
    p = np.linspace(0, 1, 201)
    records = [(g, p * (1 - p)) for g in (p, p - 1)]
    same = max(
        ((g[:, None] - other_g[None]) ** 2 + (h[:, None] - other_h[None]) ** 2).max()
        for g, h in records
        for other_g, other_h in records
    )
    apart = 2 * max((g**2 + h**2).max() for g, h in records)
    assert max(same, apart) == pytest.approx(private_trees.LEAF_SENSITIVITY**2)
    assert 2 * max(h.max() for _, h in records) ** 2 == pytest.approx(private_trees.HISTOGRAM_SENSITIVITY**2)


@pytest.mark.parametrize("one_feature", [False, True])
def test_private_trees_learn_what_no_line_can(one_feature):
    random = np.random.default_rng(1)
    x = random.uniform(-1, 1, (3000, 2))
    setting = private_trees.TreesSetting(30, one_feature)
    for epsilon, least, most in ((50.0, 0.0, 0.15), (0.01, 0.25, 0.75)):
        margins = private_trees.trees_margins(x, np.abs(x[:, 0]) < 0.5, x, epsilon, 1e-6, setting, random)
        assert least < np.mean((margins > 0) != (np.abs(x[:, 0]) < 0.5)) < most


def test_errors_are_paired_over_folds():
    apart = Paired.of([3.0, 2.0, 4.0], [1.0, 1.0, 1.0])
    assert (apart.mean, apart.error) == (2.0, pytest.approx(1 / np.sqrt(3)))
    assert str(apart) == "+2.00 +- 0.58"


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_objective_perturbation_is_private_and_with_less_noise_would_not_be(share):
    """One row of one coordinate, reversed: the density of theta is exact, and delta its integral."""
    setting, delta = ObjectiveSetting(share, 1.0), 1e-4

    def excess(epsilon, noise=1.0):
        ridge, sigma = setting.ridge(epsilon, 1.0), noise * setting.sigma(epsilon, delta, 1.0)
        b = np.linspace(-12 * sigma, 12 * sigma, 200_001)
        theta = b / ridge

        def log_density(edge):
            weight = 1 / (1 + np.exp(edge * theta))
            slope = ridge + weight * (1 - weight)
            return np.log(slope) - np.square(weight * edge - ridge * theta) / (2 * sigma**2) - np.log(sigma)

        first, second = np.exp(log_density(1.0)), np.exp(log_density(-1.0))
        step = (theta[1] - theta[0]) / np.sqrt(2 * np.pi)
        assert first.sum() * step == pytest.approx(1, abs=1e-3)
        return float(np.maximum(first - np.exp(epsilon) * second, 0).sum() * step)

    for epsilon in (0.5, 2.0):
        assert excess(epsilon) <= delta
        # These rows move b by R, not by 2 R as others may.
        assert excess(epsilon, noise=0.2) > delta


def test_objective_perturbation_without_noise_is_ridge_regression_on_the_logistic_loss():
    random = np.random.default_rng(1)
    rows = np.column_stack([random.uniform(-1, 1, size=(500, 2)), np.ones(500)])
    labels = np.where(rows @ np.array([3.0, -1.0, 0.2]) + random.logistic(size=500) > 0, 1.0, -1.0)
    split, setting = Split(rows, labels, rows, labels, np.sqrt(3.0)), ObjectiveSetting(0.3, 1.0)

    class Quiet:
        def standard_normal(self, size):
            return np.zeros(size)

    theta = objective_perturbation(split, 1.0, 1e-6, setting, Quiet())
    gradient = setting.ridge(1.0, split.norm) * theta - (labels / (1 + np.exp(labels * (rows @ theta)))) @ rows
    assert np.abs(gradient).max() < 1e-3
    assert split.error(theta) < split.error(-theta) / 2


SECOND_ORDER = [
    SecondOrderSetting(1, curvature, change, 1.0) for curvature in ("hessian", "bound") for change in ("add", "clip")
]


class Scripted:
    """Draws of a normal generator: zeros, or what is set for the draw of that number."""

    def __init__(self, **draws):
        self.draws, self.count = draws, 0

    def standard_normal(self, size):
        self.count += 1
        return np.zeros(size) + self.draws.get(f"draw{self.count}", 0.0)


@pytest.mark.parametrize("setting", SECOND_ORDER, ids=lambda setting: f"{setting.curvature}, {setting.change}")
def test_the_curvatures_weights_are_those_of_the_loss_and_never_above_a_quarter(setting):
    margins = np.array([-700.0, -3.0, -1e-9, 0.0, 1e-7, 0.4, 20.0])
    weights = setting.weights(margins)
    assert (weights <= 0.25).all()
    a = np.array([-3.0, 0.4])
    loss = lambda z: np.logaddexp(0, -z)  # noqa: E731
    if setting.curvature == "hessian":
        second = (loss(a + 1e-4) - 2 * loss(a) + loss(a - 1e-4)) / 1e-8
        assert setting.weights(a) == pytest.approx(second, rel=1e-5)
    else:
        # The parabola of this curvature touches the loss at a and stays above it, and a flatter one does not.
        z, slope = np.linspace(-20, 20, 4001)[:, np.newaxis], -1 / (1 + np.exp(a))
        above = loss(a) + slope * (z - a) + setting.weights(a) / 2 * (z - a) ** 2 - loss(z)
        assert above.min() >= -1e-12
        assert (above - 0.001 * (z - a) ** 2).min() < -1e-6


@pytest.mark.parametrize("setting", SECOND_ORDER[:2], ids=lambda setting: setting.change)
def test_no_replaced_record_moves_the_inverse_curvature_by_more_than_its_sensitivity(setting):
    random, most = np.random.default_rng(3), 0.0
    for trial in range(3000):
        d, weight, least = int(random.integers(1, 5)), 10 ** random.uniform(-3, 0), 10 ** random.uniform(-2, 0)
        others = random.normal(size=(d, d)) * 10 ** random.uniform(-3, 0)
        others = others @ others.T if trial % 3 else np.eye(d) * least * (setting.change == "clip")
        one, other = random.normal(size=(2, d))
        one, other = one / np.linalg.norm(one), other / np.linalg.norm(other)
        first, second = (
            setting.inverse(others + weight * share * np.outer(u, u), least)
            for u, share in ((one, 1.0), (other, random.uniform()))
        )
        moved = float(np.linalg.norm(first - second, 2)) / setting.sensitivity(least, weight)
        most = max(most, moved)
    assert 0.6 < most <= 1 + 1e-9


@pytest.mark.parametrize("setting", SECOND_ORDER, ids=lambda setting: f"{setting.curvature}, {setting.change}")
def test_a_step_of_second_order_descent_has_the_noise_of_its_epsilon(setting):
    """From the released step itself: its three noises, against the change of the exact sums for a reversed record."""
    rows, labels = np.array([[0.9, 1.0], [-0.4, 1.0], [0.2, 1.0]]), np.array([1.0, 1.0, -1.0])
    split = Split(rows, labels, rows, labels, 1.5)
    edges, n, epsilon, delta = rows * labels[:, np.newaxis] / 1.5, 3, 1.0, 1e-5
    run = lambda **draws: second_order(split, epsilon, delta, setting, Scripted(**draws))  # noqa: E731
    gradient = -edges.mean(axis=0) / 2
    curvature = edges.T @ edges / (4 * n)

    def least_of(trace):
        direction_mu = np.sqrt(0.27) * mu
        return max(np.cbrt(0.5 * trace / (n**2 * direction_mu**2 / 2)), 1 / n)

    # mu by the formula of Gaussian differential privacy, independently of the accounting.
    deltas = lambda mu: ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)  # noqa: E731
    mu = brentq(lambda mu: deltas(mu) - delta, 1e-3, 10)
    least = least_of(np.trace(curvature))
    if setting.change == "add":
        changed = curvature + least * np.eye(2)
    else:
        # |A| is the root of A^2.
        above = curvature - least * np.eye(2)
        changed = (curvature + least * np.eye(2) + sqrtm(above @ above).real) / 2
    assert run() == pytest.approx(-np.linalg.solve(changed, gradient), rel=1e-6)
    # The noise on the gradient.
    noisy = setting.inverse(curvature, least) @ (gradient + 2 / n / (np.sqrt(0.7) * mu) * np.array([1.0, 1.0]))
    assert run(draw1=1.0) == pytest.approx(-noisy, rel=1e-6)
    # On the trace, whose sensitivity is a weight.
    lower = least_of(np.trace(curvature) + 0.25 / n / (np.sqrt(0.03) * mu))
    assert run(draw2=1.0) == pytest.approx(-setting.inverse(curvature, lower) @ gradient, rel=1e-6)
    # On the direction.
    moved = setting.sensitivity(least, 0.25 / n) * np.linalg.norm(gradient) / (np.sqrt(0.27) * mu)
    assert run(draw3=1.0) - run() == pytest.approx(np.full(2, -moved), rel=1e-6)


@pytest.mark.parametrize("setting", SECOND_ORDER, ids=lambda setting: f"{setting.curvature}, {setting.change}")
def test_second_order_descent_without_noise_minimises_the_logistic_loss(setting):
    random = np.random.default_rng(1)
    rows = np.column_stack([random.uniform(-1, 1, size=(2000, 2)), np.ones(2000)])
    labels = np.where(rows @ np.array([3.0, -1.0, 0.2]) + random.logistic(size=2000) > 0, 1.0, -1.0)
    split = Split(rows, labels, rows, labels, np.sqrt(3.0))
    theta = second_order(split, 10.0, 1e-6, replace(setting, steps=60), Scripted()) / np.sqrt(3.0)
    gradient = (labels / (1 + np.exp(labels * (rows @ theta)))) @ rows / 2000
    assert np.abs(gradient).max() < 1e-3
