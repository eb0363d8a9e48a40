"""Intervals of coefficients: their coverage on made rows, what makes them fail, and when there are none."""

from dataclasses import replace

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.federated_descent import SummationLinear
from dpcore.estimators.moments_discriminant import MomentsDiscriminant
from dpcore.evaluation.uncertainty import hidden, intervals, noisy, world_of
from dpcore.rados.distribution import Moments

CONFIDENCE = 0.9
# Each value of a category adds up to the bias; only differences are determined.
MIXED = np.array(
    [
        [1, 0, 0, 0, 0, 0, 0],
        [0, 2, 0, 0, 0, 0, 0],
        [0, 0, -1, 1, 0, 0, 0],
        [0, 0, -1, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 1, 0],
        [0, 0, 1, 0, 0, 0, 1],
    ],
    dtype=float,
)
NULL = np.array([[0, 0, 1, 1, 1, 0, -1.0]])


def normal_rows(m, random):
    """Two classes of normal rows of one covariance: (m, 4), labels."""
    labels = np.where(random.random(m) < 0.4, 1, -1)
    root = np.array([[0.3, 0, 0], [0.1, 0.25, 0], [0, 0.1, 0.3]])
    x = random.standard_normal((m, 3)) @ root.T + np.outer(labels, [0.1, -0.05, 0.03])
    return np.column_stack([x, np.ones(m)]), labels


def mixed_rows(m, random, *, rare=0.1):
    """A skewed column, a boolean, a category of three and a uniform column, with logistic labels: (m, 7), labels.

    rare: the share of the third value.
    """
    skewed = 2 * np.minimum(random.exponential(0.2, m), 1) - 1
    boolean = np.where(random.random(m) < 0.2, 1.0, -1.0)
    category = random.choice(3, m, p=[0.5, 0.5 - rare, rare])
    uniform = random.uniform(-1, 1, m)
    score = 1 + 1.5 * skewed + 0.5 * boolean + np.array([0, 0.5, -1])[category] + 0.3 * uniform
    labels = np.where(random.random(m) < 1 / (1 + np.exp(-score)), 1, -1)
    return np.column_stack([skewed, boolean, np.eye(3)[category], uniform, np.ones(m)]), labels


def moments(x, labels, noise=0.0, **changes):
    """The exact moments of rows, with the stated noise."""
    d, products = x.shape[1], x.T @ x
    sizes = np.full((d, d), noise)
    sizes[-1, -1] = 0
    fields = {"edge_sum": x.T @ labels, "product_sum": (products + products.T) / 2, "rows": len(x), "bias": True}
    fields |= {"norm_bound": np.sqrt(d), "edge_noise": noise, "product_noise": sizes}
    return Moments(**fields | changes)


def exact(found):
    return replace(found, edge_noise=0.0, product_noise=np.zeros((found.d, found.d)))


def fit(estimator):
    return lambda found: estimator().fit_moments(found).theta_


def coverage(rows, combinations, learn, *, noise, m=3000, times=50, draws=99, stated=1.0, seed=3):
    """The share of intervals that contain the truth: for the noise, and for both. stated: noise that is claimed."""
    random = np.random.default_rng(seed)
    far = combinations @ learn(moments(*rows(1_000_000, random)))
    hits = []
    for _ in range(times):
        x, labels = rows(m, random)
        true = moments(x, labels, noise)
        released = noisy(exact(true), true, random)
        claimed = replace(released, edge_noise=stated * noise, product_noise=stated * true.product_noise)
        found = intervals(claimed, learn, combinations, random, confidence=CONFIDENCE, draws=draws)
        for ends, truth in ((found.noise, combinations @ learn(exact(true))), (found.both, far)):
            hits.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    return np.mean(hits[::2], axis=0), np.mean(hits[1::2], axis=0)


@pytest.mark.slow
def test_intervals_cover_what_they_say():
    for_noise, for_both = coverage(normal_rows, np.eye(4), fit(MomentsDiscriminant), noise=4.0)
    assert 0.88 <= for_noise.mean() <= 0.98
    assert 0.88 <= for_both.mean() <= 0.98


@pytest.mark.slow
def test_intervals_for_half_of_the_noise_do_not():
    for_noise, _ = coverage(normal_rows, np.eye(4), fit(MomentsDiscriminant), noise=4.0, stated=0.5)
    assert for_noise.mean() < 0.8


@pytest.mark.slow
@pytest.mark.parametrize("noise", [4.0, 20.0])
def test_a_value_of_four_rows_is_hidden_and_the_others_are_covered(noise):
    def rows(m, random):
        return mixed_rows(m, random, rare=0.001)

    found = coverage(rows, MIXED, fit(MomentsDiscriminant), noise=noise, m=4000, times=150)
    for shares in found:
        assert np.delete(shares, 3).min() >= 0.82
    assert found[0][3] < 0.75


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [MomentsDiscriminant, SummationLinear])
@pytest.mark.parametrize(
    ("rows", "combinations", "m", "noise"),
    [(normal_rows, np.eye(4), 4000, 4.0), (mixed_rows, MIXED, 4000, 4.0), (mixed_rows, MIXED, 4000, 20.0)],
)
def test_each_coefficient_is_covered(estimator, rows, combinations, m, noise):
    """Also where rows are not normal, and where two coordinates are not determined but their difference is."""
    found = coverage(rows, combinations, fit(estimator), noise=noise, m=m, times=150, draws=199)
    for shares in found:
        assert shares.min() >= 0.86
        assert 0.9 <= shares.mean() <= 0.98


def test_without_noise_nothing_is_uncertain_but_the_choice_of_rows():
    random = np.random.default_rng(1)
    true = moments(*normal_rows(2000, random))
    found = intervals(true, fit(MomentsDiscriminant), np.eye(4), random, draws=39)
    theta = fit(MomentsDiscriminant)(true)
    assert np.allclose(found.noise, theta[:, np.newaxis], atol=1e-9)
    assert (found.both[:, 0] < theta).all()
    assert (theta < found.both[:, 1]).all()


@pytest.mark.more
def test_twice_the_noise_makes_intervals_twice_as_wide():
    random = np.random.default_rng(2)
    x, labels = normal_rows(20_000, random)
    widths = []
    for noise in (4.0, 8.0):
        found = intervals(moments(x, labels, noise), fit(SummationLinear), np.eye(4), random, draws=399)
        widths.append(found.noise[:, 1] - found.noise[:, 0])
    assert np.allclose(widths[1] / widths[0], 2.0, rtol=0.2)


def test_fresh_noise_has_the_stated_size_and_is_symmetric():
    random = np.random.default_rng(5)
    true = moments(*normal_rows(500, random), noise=3.0)
    drawn = [noisy(exact(true), true, random) for _ in range(2000)]
    products = np.array([each.product_sum for each in drawn]) - true.product_sum
    assert np.allclose(products, products.transpose(0, 2, 1))
    assert np.allclose(products.std(axis=0), true.product_noise, rtol=0.1, atol=1e-9)
    assert np.allclose(np.array([each.edge_sum for each in drawn]).std(axis=0), 3.0, rtol=0.1)


def test_without_a_bias_or_with_a_small_class_the_rows_are_not_simulated():
    random = np.random.default_rng(1)
    x, labels = normal_rows(2000, random)
    assert intervals(moments(x, labels, bias=False), fit(SummationLinear), np.eye(4), random, draws=39).both is None
    labels[:] = -1
    labels[:29] = 1
    assert intervals(moments(x, labels), fit(SummationLinear), np.eye(4), random, draws=39).both is None
    labels[29] = 1
    assert intervals(moments(x, labels), fit(SummationLinear), np.eye(4), random, draws=39).both is not None


def test_what_the_noise_hides_is_named_and_known_empty_directions_are_not():
    random = np.random.default_rng(1)
    rows = [moments(*mixed_rows(4000, random, rare=rare), 4.0) for rare in (0.1, 0.0005)]
    none, third = np.zeros(6, dtype=bool), np.arange(6) == 3
    assert (hidden(rows[0], MIXED, NULL) == none).all()
    assert (hidden(rows[1], MIXED, NULL) == third).all()
    # Without that knowledge each weight of the category would be hidden; their differences are not.
    assert hidden(rows[0], np.eye(7), np.zeros((0, 7))).tolist() == [False, False, True, True, True, False, True]
    assert (hidden(rows[0], MIXED, np.zeros((0, 7))) == none).all()
    assert hidden(moments(*mixed_rows(4000, random), 1e6), MIXED, NULL).all()
    assert not hidden(moments(*mixed_rows(4000, random), 0.0), MIXED, NULL).any()


def test_the_world_has_no_noise_and_is_positive():
    random = np.random.default_rng(1)
    true = moments(*normal_rows(500, random), noise=200.0)
    released = noisy(exact(true), true, random)
    assert np.linalg.eigvalsh(released.product_sum).min() < 0
    found = world_of(released)
    assert np.linalg.eigvalsh(found.product_sum).min() > 0
    assert (found.edge_noise, found.product_noise.max()) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"combinations": np.eye(3)}, ShapeError, r"give \(k, 4\)"),
        ({"confidence": 1.0}, ConfigurationError, "between 0 and 1"),
        ({"draws": 18}, ConfigurationError, "too few"),
    ],
)
def test_arguments_out_of_range(changes, error, said):
    random = np.random.default_rng(1)
    arguments = {"combinations": np.eye(4), "confidence": 0.9, "draws": 19} | changes
    with pytest.raises(error, match=said):
        intervals(
            moments(*normal_rows(100, random)),
            fit(SummationLinear),
            arguments["combinations"],
            random,
            confidence=arguments["confidence"],
            draws=arguments["draws"],
        )
