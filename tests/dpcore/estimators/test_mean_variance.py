import itertools

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import RadoSample, draw_plain_rados
from dpcore.estimators.mean_variance import RIDGES, TARGETS, MeanVariance
from dpcore.rados.distribution import CentralCount, Moments, RadoDistribution


def make_table(m, d, seed, *, bias=True):
    random = np.random.default_rng(seed)
    rows = random.uniform(-1, 1, size=(m, d))
    if bias:
        rows[:, -1] = 1.0
    labels = np.where(rows @ random.normal(size=d) + random.normal(scale=0.7, size=m) > 0, 1, -1)
    return rows, labels, rows * labels[:, np.newaxis]


def all_rados(edges):
    signatures = np.array(list(itertools.product([0.0, 1.0], repeat=len(edges))))
    return signatures @ edges


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_all_rados_without_a_bias_give_the_direction_of_least_squares():
    """The logistic loss of one Gaussian has the direction of least squares, except for the penalty."""
    rows, labels, edges = make_table(13, 4, 1, bias=False)
    sample = RadoSample(rados=all_rados(edges), rows=13, bias=False)
    wanted = np.linalg.lstsq(rows, labels.astype(float), rcond=None)[0]
    assert cosine(MeanVariance(ridge=0.0, penalty=1e-6).fit_release(sample).theta_, wanted) > 1 - 1e-6
    assert cosine(MeanVariance(ridge=1.0, penalty=1e-6).fit_release(sample).theta_, wanted) < 1 - 1e-4


@pytest.mark.slow
def test_from_many_rados_it_predicts_like_logistic_regression():
    rows, labels, edges = make_table(600, 6, 2)
    rados = draw_plain_rados(edges, 20_000, np.random.RandomState(0))
    theta = MeanVariance().fit_release(RadoSample(rados=rados, rows=len(rows))).theta_
    logistic = LogisticRegression().fit(rows[:, :-1], labels)
    wanted = np.append(logistic.coef_[0], logistic.intercept_)
    assert cosine(theta, wanted) > 0.99
    assert 0.7 < np.linalg.norm(theta) / np.linalg.norm(wanted) < 1.4


def test_the_validated_loss_is_the_square_loss_on_the_rows():
    rows, labels, edges = make_table(400, 6, 2)
    rados = draw_plain_rados(edges, 4000, np.random.RandomState(0))
    fitted = MeanVariance().fit_release(RadoSample(rados=rados, rows=len(rows)))
    least = np.linalg.lstsq(rows, labels.astype(float), rcond=None)[0]
    on_rows = np.mean((1.0 - edges @ least) ** 2)
    assert abs(fitted.mean_square_loss_.min() / on_rows - 1.0) < 0.05
    assert fitted.mean_square_loss_.shape == (len(TARGETS), len(RIDGES))


@pytest.mark.more
def test_the_ridge_follows_the_information_in_the_rados():
    """Few rados need a large ridge, many a small one; and the ridge chosen beats none."""
    excess = []
    for seed in range(5):
        rows, _labels, edges = make_table(600, 40, seed)
        chosen = {}
        for count in (60, 6000):
            sample = RadoSample(rados=draw_plain_rados(edges, count, np.random.RandomState(seed)), rows=len(rows))
            fitted = MeanVariance().fit_release(sample)
            chosen[count] = fitted.ridge_
            if count == 60:
                unshrunk = MeanVariance(ridge=0.0).fit_release(sample).theta_
                excess.append(np.mean(edges @ fitted.theta_ <= 0) - np.mean(edges @ unshrunk <= 0))
        assert chosen[60] > 5 * chosen[6000]
    assert np.mean(excess) < -0.03


def test_classes_of_unequal_spread_move_the_threshold():
    """The rarer class has a wide spread, the other is near a bound: least squares puts the threshold too far out."""
    random = np.random.default_rng(4)
    m = 2000
    labels = np.where(random.random(m) < 0.35, 1, -1)
    scaled = np.where(labels > 0, random.beta(2.0, 2.0, size=m), random.beta(1.0, 15.0, size=m))
    rows = np.column_stack([2 * scaled - 1, np.ones(m)])
    rados = draw_plain_rados(rows * labels[:, np.newaxis], 1000, np.random.RandomState(0))
    theta = MeanVariance().fit_release(RadoSample(rados=rados, rows=m)).theta_
    least = np.linalg.lstsq(rows, labels.astype(float), rcond=None)[0]
    logistic = LogisticRegression().fit(rows[:, :-1], labels)
    error = np.mean(np.sign(rows @ theta) != labels)
    assert error < np.mean(np.sign(rows @ least) != labels) - 0.01
    assert abs(error - np.mean(logistic.predict(rows[:, :-1]) != labels)) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    "distribution",
    [
        RadoDistribution(rado_noise=np.array([900.0, 0.0, 0.0, 0.0, 0.0])),
        RadoDistribution(edge_noise=np.array([1.0, 0.0, 0.0, 0.0, 0.0])),
        RadoDistribution(inclusion=0.2, fixed_support=True, edge_noise=np.array([1.0, 0.0, 0.0, 0.0, 0.0])),
        RadoDistribution(inclusion=0.2, rado_noise=np.array([600.0, 0.0, 0.0, 0.0, 0.0])),
    ],
)
def test_correcting_for_known_noise_beats_ignoring_it(distribution):
    """Noise on one coordinate makes it seem useless; corrected for, theta is close to that without noise."""
    rows, labels, edges = make_table(1500, 5, 9)
    random = np.random.default_rng(0)
    aware, unaware = [], []
    logistic = LogisticRegression().fit(rows[:, :-1], labels)
    wanted = np.append(logistic.coef_[0], logistic.intercept_)
    for _ in range(5):
        noised = (
            edges
            if distribution.edge_noise is None
            else edges + random.normal(size=edges.shape) * np.sqrt(distribution.edge_noise)
        )
        if distribution.fixed_support:
            chosen = np.argsort(random.random((1500, len(rows))), axis=1) < round(distribution.inclusion * len(rows))
        else:
            chosen = random.random((1500, len(rows))) < distribution.inclusion
        rados = chosen.astype(float) @ noised
        if distribution.rado_noise is not None:
            rados += random.normal(size=rados.shape) * np.sqrt(distribution.rado_noise)
        ignorant = RadoDistribution(inclusion=distribution.inclusion, fixed_support=distribution.fixed_support)
        for known, cosines in ((distribution, aware), (ignorant, unaware)):
            sample = RadoSample(rados=rados, rows=len(rows), distribution=known)
            cosines.append(cosine(MeanVariance().fit_release(sample).theta_, wanted))
    assert np.mean(aware) > 0.97
    assert np.mean(aware) > np.mean(unaware) + 0.02


def redundant_table(random, m=800):
    """Coordinate 0 is one of four measurements of what decides the class, so it is redundant."""
    hidden = random.normal(size=m)
    rows = np.clip((hidden[:, np.newaxis] + random.normal(scale=0.6, size=(m, 4))) / 3.0, -1, 1)
    rows = np.column_stack([np.sign(rows[:, 0]), rows[:, 1:], random.uniform(-1, 1, size=(m, 4)), np.ones(m)])
    return rows, np.where(hidden + random.normal(scale=0.3, size=m) > 0, 1, -1)


@pytest.mark.more
@pytest.mark.parametrize("noise", [100.0, 10.0])
def test_a_drowned_column_is_not_worse_than_no_column(noise):
    """For a redundant column. noise: of a rado's coordinate, over its variance m / 4."""
    random = np.random.default_rng(12)
    aware, unaware, dropped = [], [], []
    for seed in range(12):
        rows, labels = redundant_table(random)
        rados = draw_plain_rados(rows * labels[:, np.newaxis], 400, np.random.RandomState(seed))
        variances = np.append(noise * len(rows) / 4, np.zeros(rows.shape[1] - 1))
        rados = rados + random.normal(size=rados.shape) * np.sqrt(variances)
        for distribution, errors in ((RadoDistribution(rado_noise=variances), aware), (RadoDistribution(), unaware)):
            fitted = MeanVariance().fit_release(RadoSample(rados=rados, rows=len(rows), distribution=distribution))
            errors.append(np.mean(fitted.predict(rows) != labels))
        fitted = MeanVariance().fit_release(RadoSample(rados=rados[:, 1:], rows=len(rows)))
        dropped.append(np.mean(fitted.predict(rows[:, 1:]) != labels))
    assert abs(np.mean(aware) - np.mean(dropped)) < 0.008
    assert np.mean(aware) < np.mean(unaware) + 0.008


def test_a_noised_column_that_matters_is_used():
    """It gets more weight than no column, and more than if the noise is ignored."""
    random = np.random.default_rng(15)
    aware, unaware, dropped = [], [], []
    for seed in range(12):
        rows = np.column_stack(
            [random.choice([-1.0, 1.0], size=800), random.uniform(-1, 1, size=(800, 4)), np.ones(800)]
        )
        # Of equal sign, so that without the one the other misleads.
        rows[:, 1] = np.clip(0.5 * rows[:, 0] + 0.5 * rows[:, 1], -1, 1)
        labels = np.where(rows @ [1.0, -1.5, 0.4, 0.0, 0.0, 0.0] + random.normal(scale=0.2, size=800) > 0, 1, -1)
        rados = draw_plain_rados(rows * labels[:, np.newaxis], 400, np.random.RandomState(seed))
        variances = np.array([3.0 * 800 / 4, 0, 0, 0, 0, 0])
        rados = rados + random.normal(size=rados.shape) * np.sqrt(variances)
        for distribution, errors in ((RadoDistribution(rado_noise=variances), aware), (RadoDistribution(), unaware)):
            fitted = MeanVariance().fit_release(RadoSample(rados=rados, rows=800, distribution=distribution))
            errors.append(np.mean(fitted.predict(rows) != labels))
        fitted = MeanVariance().fit_release(RadoSample(rados=rados[:, 1:], rows=800))
        dropped.append(np.mean(fitted.predict(rows[:, 1:]) != labels))
    assert np.mean(aware) < np.mean(unaware) - 0.01
    assert np.mean(aware) < np.mean(dropped) - 0.05


@pytest.mark.parametrize(
    "distribution", [RadoDistribution(rado_noise=np.full(6, 2000.0)), RadoDistribution(edge_noise=np.full(6, 10.0))]
)
def test_noise_on_everything_does_not_make_one_class_of_two(distribution):
    """The threshold is between the classes, not where noise would favour the larger class."""
    random = np.random.default_rng(13)
    aware, unaware = [], []
    for seed in range(10):
        rows, _labels, _edges = make_table(800, 6, 30 + seed)
        margins = rows @ random.normal(size=6) + random.normal(scale=0.3, size=800)
        labels = np.where(margins > np.quantile(margins, 0.65), 1, -1)
        edges = rows * labels[:, np.newaxis]
        if distribution.edge_noise is not None:
            edges = edges + random.normal(size=edges.shape) * np.sqrt(distribution.edge_noise)
        rados = draw_plain_rados(edges, 100, np.random.RandomState(seed))
        if distribution.rado_noise is not None:
            rados = rados + random.normal(size=rados.shape) * np.sqrt(distribution.rado_noise)
        for known, errors in ((distribution, aware), (RadoDistribution(), unaware)):
            fitted = MeanVariance().fit_release(RadoSample(rados=rados, rows=800, distribution=known))
            errors.append(np.mean(fitted.predict(rows) != labels))
    assert np.mean(aware) < np.mean(unaware) - 0.03
    assert np.mean(aware) < 0.35 - 0.05


@pytest.mark.more
def test_a_truncated_count_does_not_spoil_the_model():
    random = np.random.default_rng(14)
    aware, unaware = [], []
    for _ in range(6):
        rows, labels = redundant_table(random)
        edges = rows * labels[:, np.newaxis]
        heads = np.argsort(random.random((400, 800)), axis=1) < random.integers(395, 406, size=(400, 1))
        rados = (heads == (edges[:, 0] > 0)).astype(float) @ edges
        # Var(k) is 10, that of eleven equally likely counts.
        truncated = RadoDistribution(central=CentralCount(0, (4 * 10 - 800) / 799 / 800))
        for distribution, errors in ((truncated, aware), (RadoDistribution(), unaware)):
            fitted = MeanVariance().fit_release(RadoSample(rados=rados, rows=800, distribution=distribution))
            errors.append(np.mean(fitted.predict(rows) != labels))
    assert np.mean(aware) < np.mean(unaware) - 0.03
    assert 0.02 < np.mean(aware) < 0.2


def exact_moments(rows, labels, noise=0.0, seed=0):
    d = rows.shape[1]
    error = noise * np.random.default_rng(seed).normal(size=(d, d))
    return Moments(
        edge_sum=rows.T @ labels,
        product_sum=rows.T @ rows + np.triu(error) + np.triu(error, 1).T,
        rows=len(rows),
        bias=True,
        norm_bound=float(np.sqrt(d)),
        edge_noise=noise,
        product_noise=np.full((d, d), noise),
    )


def test_moments_give_the_result_of_all_rados():
    rows, labels, _edges = make_table(600, 6, 10)
    fitted = MeanVariance().fit_moments(exact_moments(rows, labels))
    logistic = LogisticRegression().fit(rows[:, :-1], labels)
    assert fitted.ridge_ == 0.0
    assert fitted.mean_square_loss_ is None
    assert cosine(fitted.theta_, np.append(logistic.coef_[0], logistic.intercept_)) > 0.99
    assert fitted.classes_.tolist() == [-1, 1]
    assert np.mean(fitted.predict(rows) != labels) < np.mean(logistic.predict(rows[:, :-1]) != labels) + 0.01


def test_noisy_moments_get_a_ridge():
    rows, labels, _edges = make_table(600, 30, 11)
    wanted = MeanVariance().fit_moments(exact_moments(rows, labels)).theta_
    better = 0
    for seed in range(10):
        noisy = exact_moments(rows, labels, noise=40.0, seed=seed)
        shrunk, plain = MeanVariance().fit_moments(noisy), MeanVariance(ridge=0.0).fit_moments(noisy)
        assert shrunk.ridge_ > 0
        better += cosine(shrunk.theta_, wanted) > cosine(plain.theta_, wanted)
    assert better >= 8


def test_the_bias_is_not_penalised():
    """For any penalty, theta still shows which class is larger."""
    rows, _labels, _edges = make_table(300, 5, 5)
    labels = np.where(np.arange(300) % 4 == 0, 1, -1)
    rados = draw_plain_rados(rows * labels[:, np.newaxis], 150, np.random.RandomState(3))
    theta = MeanVariance(penalty=1e9).fit_release(RadoSample(rados=rados, rows=300)).theta_
    assert np.abs(theta[:-1]).max() < 1e-6
    assert -1.3 < theta[-1] < -0.9  # log(1 / 3) = -1.1
    penalised = MeanVariance(penalty=1e9).fit_release(RadoSample(rados=rados, rows=300, bias=False)).theta_
    assert abs(penalised[-1]) < 1e-6


@pytest.mark.parametrize(
    "distribution", [RadoDistribution(), RadoDistribution(inclusion=0.25, fixed_support=True, rado_noise=None)]
)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("ridge", [None, 0.0])
def test_degenerate_rados_leave_theta_finite(bias, ridge, distribution):
    random = np.random.default_rng(6)
    cases = [
        np.zeros((5, 3)),
        np.ones((5, 3)),
        random.normal(size=(2, 6)),
        random.normal(size=(5, 1)),
        np.column_stack([random.normal(size=20), np.zeros(20), np.full(20, 7.0)]),
        np.repeat(random.normal(size=(20, 1)), 4, axis=1),
        1e6 * random.normal(size=(20, 4)),
    ]
    for rados, rows in itertools.product(cases, (1, 40)):
        fitted = MeanVariance(ridge=ridge).fit_release(
            RadoSample(rados=rados, rows=rows, bias=bias, distribution=distribution)
        )
        assert fitted.theta_.shape == (rados.shape[1],)
        assert np.isfinite(fitted.theta_).all()


def test_noise_larger_than_all_signal_leaves_theta_finite():
    random = np.random.default_rng(8)
    distribution = RadoDistribution(rado_noise=np.full(4, 1e8), edge_noise=np.full(4, 10.0))
    theta = (
        MeanVariance()
        .fit_release(RadoSample(1e4 * random.normal(size=(50, 4)), rows=100, distribution=distribution))
        .theta_
    )
    assert np.isfinite(theta).all()


@pytest.mark.parametrize(
    "parameters",
    [
        {"ridge": -0.1},
        {"ridge": float("nan")},
        {"ridge": float("inf")},
        {"n_folds": 1},
        {"penalty": 0.0},
        {"penalty": float("nan")},
    ],
)
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ConfigurationError, match=next(iter(parameters))):
        MeanVariance(**parameters).fit_release(RadoSample(rados=np.eye(3), rows=4))
    with pytest.raises(ConfigurationError, match=next(iter(parameters))):
        MeanVariance(**parameters).fit_moments(exact_moments(np.eye(3), np.ones(3)))


@pytest.mark.more
def test_handwritten_digits_are_learned_from_500_rados():
    """Even or odd: within 3 points of logistic regression on the rows, averaged over five splits."""
    pixels, digits = load_digits(return_X_y=True)
    rows = np.column_stack([pixels / 8.0 - 1.0, np.ones(len(pixels))])
    labels = np.where(digits % 2 == 0, 1, -1)
    excess = []
    for seed in range(5):
        train, test, train_labels, test_labels = train_test_split(
            rows, labels, test_size=0.2, stratify=digits, random_state=seed
        )
        rados = draw_plain_rados(train * train_labels[:, np.newaxis], 500, np.random.RandomState(seed))
        fitted = MeanVariance().fit_release(RadoSample(rados=rados, rows=len(train)))
        logistic = LogisticRegression(max_iter=3000).fit(train[:, :-1], train_labels)
        excess.append(
            np.mean(fitted.predict(test) != test_labels) - np.mean(logistic.predict(test[:, :-1]) != test_labels)
        )
    assert -0.01 < np.mean(excess) < 0.03
