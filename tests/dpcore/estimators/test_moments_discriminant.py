import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.utils.estimator_checks import check_estimator

from dpcore.errors import ConfigurationError
from dpcore.estimators.moments_discriminant import MomentsDiscriminant, log_odds, raise_eigenvalues
from dpcore.rados.distribution import Moments


@pytest.mark.parametrize("estimator", [MomentsDiscriminant()], ids=str)
def test_scikit_learn_accepts_the_estimator(estimator):
    check_estimator(estimator, on_skip=None)


def make_rows(m, d, seed, *, positive=0.5):
    """Two Gaussian classes of one covariance; the share of the second is `positive`."""
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(d, d)) / np.sqrt(d)
    labels = np.where(random.uniform(size=m) < positive, 1, -1)
    rows = random.normal(size=(m, d)) @ mixing + labels[:, np.newaxis] * random.normal(scale=0.3, size=d)
    return rows / np.abs(rows).max(), labels


def release(rows, labels, noise, seed, *, edge_noise=None):
    """Moments of rows with a bias, noise of standard deviation `noise` off the diagonal, sqrt 2 times it on it."""
    random = np.random.default_rng(seed)
    with_bias = np.column_stack([rows, np.ones(len(rows))])
    d = with_bias.shape[1]
    product_noise = np.full((d, d), float(noise))
    np.fill_diagonal(product_noise, np.sqrt(2) * noise)
    product_noise[-1, -1] = 0.0
    upper = np.triu(random.normal(size=(d, d)) * product_noise)
    products = with_bias.T @ with_bias + upper + np.triu(upper, 1).T
    edge_noise = 2.0 * noise if edge_noise is None else edge_noise
    return Moments(
        edge_sum=with_bias.T @ labels + random.normal(size=d) * edge_noise,
        product_sum=(products + products.T) / 2,
        rows=len(rows),
        bias=True,
        norm_bound=float(np.linalg.norm(with_bias, axis=1).max()),
        edge_noise=edge_noise,
        product_noise=product_noise,
    )


@pytest.mark.parametrize("positive", [0.5, 0.15])
def test_without_noise_it_is_the_linear_discriminant(positive):
    """scikit-learn's LinearDiscriminantAnalysis pools with m - 2, and adds the log odds of the class sizes as here."""
    rows, labels = make_rows(4000, 5, 1, positive=positive)
    wanted = LinearDiscriminantAnalysis(solver="lsqr").fit(rows, labels)
    fitted = MomentsDiscriminant().fit(rows, labels)
    assert np.allclose(fitted.coef_, wanted.coef_, rtol=2e-3)
    assert np.allclose(fitted.intercept_, wanted.intercept_, rtol=5e-3, atol=2e-3)
    by_moments = MomentsDiscriminant().fit_moments(release(rows, labels, 0.0, 0))
    assert np.allclose(by_moments.theta_, fitted.theta_, rtol=1e-8)


def test_the_threshold_follows_the_size_of_the_classes():
    """Least squares on rows of unequal classes puts it elsewhere and errs more."""
    errors = []
    for seed in range(5):
        rows, labels = make_rows(6000, 4, seed, positive=0.2)
        with_bias = np.column_stack([rows, np.ones(len(rows))])
        squares = np.linalg.lstsq(with_bias, labels.astype(float), rcond=None)[0]
        fitted = MomentsDiscriminant().fit_moments(release(rows, labels, 0.0, 0))
        errors.append(
            [np.mean((with_bias @ squares > 0) != (labels > 0)), np.mean(fitted.predict(with_bias) != labels)]
        )
    squares_error, error = np.mean(errors, axis=0)
    assert error < squares_error
    assert error > 0.7 * squares_error


def test_eigenvalues_solve_their_equation():
    """Each is the positive root of u (u - w) = shrinkage tau^2: the minimiser in the module's step 1."""
    values = np.array([-900.0, -3.0, 0.0, 2.0, 1e6])
    noise = np.full((5, 5), 7.0)
    level = 0.8 * 49.0 * 5
    raised = raise_eigenvalues(values, noise, 0.8)
    assert (raised > 0).all()
    assert np.allclose(raised * (raised - values), level, rtol=1e-5)
    # Far from the noise eigenvalues stay; at zero they become sqrt(shrinkage) tau.
    assert raised[-1] == pytest.approx(1e6, rel=1e-6)
    assert raised[2] == pytest.approx(np.sqrt(level), rel=1e-12)
    assert np.array_equal(raise_eigenvalues(values, np.zeros((5, 5)), 0.8), np.maximum(values, 0.0))
    assert np.array_equal(raise_eigenvalues(values, noise, 0.0), np.maximum(values, 0.0))


def test_the_matrix_is_the_minimiser_that_the_docstring_names():
    random = np.random.default_rng(3)
    noisy = random.normal(scale=20.0, size=(4, 4))
    noisy = noisy + noisy.T
    noise = np.full((4, 4), 5.0)
    level = 0.8 * 25.0 * 4
    values, vectors = np.linalg.eigh(noisy)
    best = (vectors * raise_eigenvalues(values, noise, 0.8)) @ vectors.T

    def objective(matrix):
        return 0.5 * np.sum((matrix - noisy) ** 2) - level * np.linalg.slogdet(matrix)[1]

    for _ in range(200):
        step = random.normal(scale=0.05, size=(4, 4))
        assert objective(best + step + step.T) > objective(best)


def test_under_noise_it_beats_least_squares_and_a_clipped_inverse():
    """Mean test error over 20 draws: 'clipped' inverts what a projection to semi-definite matrices leaves."""
    errors = {"solved": [], "clipped": [], "shrunk": [], "tenfold": []}
    for seed in range(20):
        rows, labels = make_rows(9000, 12, seed)
        train, test = slice(0, 6000), slice(6000, None)
        with_bias = np.column_stack([rows[test], np.ones(3000)])
        moments = release(rows[train], labels[train], 60.0, 100 + seed)
        thetas = {
            "solved": np.linalg.solve(moments.product_sum, moments.edge_sum),
            "clipped": MomentsDiscriminant(shrinkage=1e-4).fit_moments(moments).theta_,
            "shrunk": MomentsDiscriminant().fit_moments(moments).theta_,
            "tenfold": MomentsDiscriminant(shrinkage=1e4).fit_moments(moments).theta_,
        }
        for way, theta in thetas.items():
            errors[way].append(np.mean((with_bias @ theta > 0) != (labels[test] > 0)))
    mean = {way: float(np.mean(values)) for way, values in errors.items()}
    assert mean["shrunk"] < mean["clipped"] - 0.01
    assert mean["shrunk"] < mean["solved"] - 0.01
    assert mean["shrunk"] < mean["tenfold"]
    assert mean["shrunk"] > 0.02


def test_without_a_bias_it_is_the_shrunk_least_squares_solution():
    rows, labels = make_rows(500, 4, 5)
    moments = Moments(
        edge_sum=rows.T @ labels,
        product_sum=rows.T @ rows,
        rows=500,
        bias=False,
        norm_bound=2.0,
        edge_noise=0.0,
        product_noise=np.zeros((4, 4)),
    )
    fitted = MomentsDiscriminant().fit_moments(moments)
    assert np.allclose(fitted.theta_, np.linalg.lstsq(rows, labels.astype(float), rcond=None)[0], rtol=1e-8)
    assert fitted.predict(rows).shape == (500,)


def test_a_class_lost_in_the_noise_leaves_the_threshold_alone():
    """40 rows of the smaller class: six standard errors of its size are 30 at edge noise 10, and 60 at 20."""
    rows, labels = make_rows(2000, 3, 7)
    labels = np.where(np.arange(2000) < 40, 1, -1)
    theta = np.array([1.0, 0.5, -0.2, 0.1])
    for edge_noise, kept in ((10.0, False), (20.0, True)):
        moments = release(rows + 0.1 * labels[:, np.newaxis], labels, 0.0, 0)
        moments = Moments(
            edge_sum=moments.edge_sum,
            product_sum=moments.product_sum,
            rows=2000,
            bias=True,
            norm_bound=2.0,
            edge_noise=edge_noise,
            product_noise=moments.product_noise,
        )
        assert np.array_equal(log_odds(theta, moments.product_sum, moments), theta) is kept


def test_scores_in_the_wrong_order_leave_theta_alone():
    rows, labels = make_rows(2000, 3, 8)
    moments = release(rows, labels, 0.0, 0)
    theta = MomentsDiscriminant().fit_moments(moments).theta_
    assert np.array_equal(log_odds(-theta, moments.product_sum, moments), -theta)
    assert not np.array_equal(log_odds(2.0 * theta, moments.product_sum, moments), 2.0 * theta)
    assert np.allclose(log_odds(2.0 * theta, moments.product_sum, moments), theta, rtol=1e-9)


@pytest.mark.parametrize("noise", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("labelling", ["mixed", "one class", "constant features"])
def test_degenerate_releases_leave_theta_finite(noise, labelling):
    rows, labels = make_rows(50, 6, 9)
    if labelling == "one class":
        labels = np.ones(50, dtype=int)
    if labelling == "constant features":
        rows = np.zeros_like(rows)
    fitted = MomentsDiscriminant().fit_moments(release(rows, labels, noise, 4))
    assert np.isfinite(fitted.theta_).all()
    if labelling == "one class" and noise == 0.0:
        assert (fitted.predict(np.column_stack([rows, np.ones(50)])) == 1).all()


def test_a_release_without_information_raises_no_error():
    moments = Moments(np.zeros(3), np.zeros((3, 3)), 10, bias=False, norm_bound=1.0, edge_noise=0.0,
                      product_noise=np.zeros((3, 3)))  # fmt: skip
    assert MomentsDiscriminant().fit_moments(moments).theta_.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("shrinkage", [-0.1, float("nan"), float("inf")])
def test_a_shrinkage_out_of_range_is_refused(shrinkage):
    rows, labels = make_rows(50, 3, 2)
    with pytest.raises(ConfigurationError, match="shrinkage"):
        MomentsDiscriminant(shrinkage=shrinkage).fit_moments(release(rows, labels, 1.0, 0))
    with pytest.raises(ConfigurationError, match="shrinkage"):
        MomentsDiscriminant(shrinkage=shrinkage).fit(rows, labels)


def test_after_a_release_predict_takes_encoded_rows():
    rows, labels = make_rows(800, 4, 6)
    with_bias = np.column_stack([rows, np.ones(800)])
    fitted = MomentsDiscriminant().fit_moments(release(rows, labels, 3.0, 1))
    assert fitted.coef_.shape == (1, 5)
    assert fitted.intercept_.tolist() == [0.0]
    assert fitted.classes_.tolist() == [-1, 1]
    assert np.allclose(fitted.decision_function(with_bias), with_bias @ fitted.theta_, rtol=1e-12)
