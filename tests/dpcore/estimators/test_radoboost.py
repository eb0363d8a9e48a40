import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import RadoSample, draw_plain_rados
from dpcore.estimators.boosting import LARGEST_EDGE, log_rado_loss
from dpcore.estimators.radoboost import RadoBoost


def boost(rados, *, recentre=None, **parameters):
    return RadoBoost(recentre=recentre, **parameters).fit_release(RadoSample(rados=rados, rows=50))


def log_loss(theta, rados):
    """Equation 2 from its definition, in nats."""
    return float(np.log(np.mean(np.exp(-(rados @ theta)))))


def iterates(fitted, d):
    """theta_1 .. theta_T from the trace, (T, d)."""
    steps = np.zeros((len(fitted.rounds_.alpha), d))
    steps[np.arange(len(steps)), fitted.rounds_.feature] = fitted.rounds_.alpha
    return np.cumsum(steps, axis=0)


@pytest.fixture(scope="module")
def ordinary_rados():
    random = np.random.default_rng(2)
    return random.normal(loc=3.0, scale=10.0, size=(60, 7))


def test_a_step_twice_as_long_breaks_lemma_4():
    """With rados at +-5 only, alpha without its factor 1/2 brings the loss back to 1: a test of the bound can fail."""
    rados = np.array([[5.0], [5.0], [5.0], [-5.0]])
    trace = boost(rados, n_rounds=1).rounds_
    bound = -(trace.r[0] ** 2) / 2
    assert trace.r[0] == 0.5
    assert abs(trace.log_loss[0] - np.log(np.sqrt(0.75))) < 1e-12
    assert trace.log_loss[0] < bound < log_loss(2.0 * trace.alpha, rados) + 1e-12


def test_kappa_divides_every_step(ordinary_rados):
    plain, slow = boost(ordinary_rados, n_rounds=30), boost(ordinary_rados, n_rounds=30, kappa=3.0)
    assert np.array_equal(plain.rounds_.feature, slow.rounds_.feature)
    assert np.allclose(plain.rounds_.alpha, 3.0 * slow.rounds_.alpha, rtol=1e-12)


def test_the_trace_holds_the_loss_of_every_iterate_and_the_lowest_is_kept(ordinary_rados):
    fitted = boost(ordinary_rados, n_rounds=150)
    losses = [log_loss(theta, ordinary_rados) for theta in iterates(fitted, 7)]
    assert np.allclose(fitted.rounds_.log_loss, losses, rtol=0, atol=1e-10)
    best = int(np.argmin(losses))
    assert fitted.best_round_ == best + 1
    assert np.allclose(fitted.theta_, iterates(fitted, 7)[best], rtol=1e-12, atol=1e-15)
    assert abs(fitted.log_rado_loss_ - losses[best]) < 1e-10
    assert abs(fitted.log_rado_loss_ - log_rado_loss(fitted.theta_, ordinary_rados)) < 1e-10
    assert fitted.stopped_because_ is None


def test_the_lowest_iterate_is_kept_where_the_last_is_worse():
    # Few rados that no theta separates: late rounds fluctuate, and the last is not the best.
    random = np.random.default_rng(0)
    for _ in range(200):
        rados = random.integers(-9, 10, size=(6, 3)).astype(np.float64)
        fitted = boost(rados, n_rounds=60)
        if fitted.best_round_ < len(fitted.rounds_.r):
            break
    assert fitted.best_round_ < len(fitted.rounds_.r)
    last = iterates(fitted, 3)[-1]
    assert log_loss(fitted.theta_, rados) < log_loss(last, rados)


def test_weights_stay_a_distribution(ordinary_rados):
    weights = boost(ordinary_rados, n_rounds=1000).weights_
    assert np.all(weights >= 0)
    assert abs(weights.sum() - 1.0) < 1e-9


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_constant_coordinate_separates_and_stops(sign):
    rados = np.column_stack([np.array([1.0, -2.0, 3.0, -1.0]), sign * np.full(4, 20.0)])
    fitted = boost(rados, n_rounds=500)
    assert len(fitted.rounds_.r) == 1
    assert "feature 1" in fitted.stopped_because_
    assert fitted.rounds_.r[0] == sign * LARGEST_EDGE
    assert np.isfinite(fitted.theta_).all()
    assert np.all(rados @ fitted.theta_ > 0)
    assert fitted.rounds_.log_loss[0] <= -0.5


def test_rados_of_one_sign_but_not_one_value_stay_finite():
    rados = np.random.default_rng(1).uniform(5.0, 9.0, size=(30, 3))
    fitted = boost(rados, n_rounds=1000)
    assert np.isfinite(fitted.theta_).all()
    assert np.isfinite(fitted.rounds_.log_loss).all()
    assert np.all(rados @ fitted.theta_ > 0)


def test_coordinates_that_are_always_zero_are_never_picked(ordinary_rados):
    rados = np.column_stack([np.zeros(60), ordinary_rados, np.zeros(60)])
    fitted = boost(rados, n_rounds=200)
    assert set(fitted.rounds_.feature) <= set(range(1, 8))
    assert fitted.theta_[0] == 0.0
    assert fitted.theta_[-1] == 0.0


def test_no_edge_at_all_stops_before_the_first_round():
    fitted = boost(np.array([[1.0, 0.0], [-1.0, 0.0]]))
    assert len(fitted.rounds_.r) == 0
    assert fitted.best_round_ == 0
    assert np.array_equal(fitted.theta_, np.zeros(2))
    assert fitted.stopped_because_.startswith("after 0 rounds")


def test_boosting_stops_when_no_edge_is_left(ordinary_rados):
    fitted = boost(ordinary_rados, n_rounds=5000, smallest_edge=1e-3)
    assert 0 < len(fitted.rounds_.r) < 5000
    assert np.abs(fitted.rounds_.r).min() > 1e-3
    assert "smallest_edge = 0.001" in fitted.stopped_because_


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_rounds": 0},
        {"kappa": 0.99},
        {"kappa": float("nan")},
        {"kappa": float("inf")},
        {"smallest_edge": -1e-9},
        {"smallest_edge": 1.0},
        {"oracle": "weak"},
        {"lambda_p": 0.0},
        {"clip": 2.0},
        {"floor": 1.0},
        {"selection": "best"},
        {"patience": 0},
    ],
)
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ConfigurationError, match=next(iter(parameters))):
        boost(np.eye(3), **parameters)


@pytest.mark.parametrize(
    ("name", "value"),
    [("oracle", "median"), ("clip", 0.05), ("floor", 0.2), ("smallest_edge", 0.3)],
)
def test_every_parameter_reaches_the_boosting(ordinary_rados, name, value):
    plain = boost(ordinary_rados, n_rounds=150)
    fitted = boost(ordinary_rados, n_rounds=150, **{name: value})
    assert not np.array_equal(fitted.theta_, plain.theta_)


def test_patience_reaches_the_boosting():
    rados = np.random.default_rng(2).integers(-9, 10, size=(6, 3)).astype(np.float64)
    fitted = boost(rados, patience=7)
    assert len(fitted.rounds_.r) == fitted.best_round_ + 7 < len(boost(rados).rounds_.r)


def test_lambda_p_bounds_the_edges_of_the_prudential_oracle(ordinary_rados):
    prudent = boost(ordinary_rados, n_rounds=150, oracle="prudential", lambda_p=0.1)
    assert np.abs(prudent.rounds_.edge).max() <= 0.1 < np.abs(boost(ordinary_rados).rounds_.edge).max()


def test_a_score_of_the_users_own_chooses_the_iterate(ordinary_rados):
    """For experiments that chose the iterate on rows: any function of theta is accepted."""
    target = iterates(boost(ordinary_rados, n_rounds=150), 7)[70]
    fitted = boost(ordinary_rados, n_rounds=150, selection=lambda theta: float(np.abs(theta - target).sum()))
    assert fitted.best_round_ == 71


def test_separated_rados_give_a_warning_and_ordinary_ones_none(ordinary_rados):
    assert boost(ordinary_rados, n_rounds=50).warning_ is None
    one_sign = np.random.default_rng(1).uniform(5.0, 9.0, size=(30, 3))
    fitted = boost(one_sign, n_rounds=50)
    assert "no minimum" in fitted.warning_
    assert fitted.log_rado_loss_ < -1


def cigar_edges(m=2000):
    """Edge vectors (m, 5): one coordinate of large spread hides the others that predict."""
    random = np.random.default_rng(4)
    rows = random.normal(size=(m, 4)) * [1.0, 0.3, 0.1, 2.0]
    rows[:, 0] += rows[:, 3]
    labels = np.where(rows[:, 0] - rows[:, 3] + 3 * rows[:, 1] + random.normal(scale=0.3, size=m) > 0, 1.0, -1.0)
    return np.column_stack([rows, np.ones(m)]) * labels[:, np.newaxis]


@pytest.fixture(scope="module")
def recentred():
    edges = cigar_edges()
    rados = draw_plain_rados(edges, 1000, np.random.RandomState(0))
    return edges, rados, RadoBoost(3000).fit_release(RadoSample(rados=rados, rows=len(edges)))


@pytest.mark.more
def test_recentred_rados_have_the_stated_share_of_their_mean(recentred):
    _, rados, fitted = recentred
    moved = rados - rados.mean(axis=0) * (1 - 1 / np.sqrt(2000))
    by_hand = RadoBoost(3000, recentre=None).fit_release(RadoSample(rados=moved, rows=2000))
    assert np.allclose(fitted.theta_, by_hand.theta_, rtol=1e-9)
    assert np.allclose(fitted.rounds_.log_loss, by_hand.rounds_.log_loss, rtol=1e-9)
    assert not np.allclose(fitted.theta_, RadoBoost(3000, recentre=2.0).fit_release(RadoSample(rados, 2000)).theta_)


def test_the_minimum_over_recentred_rados_points_where_the_records_moments_do(recentred):
    """V^-1 mu, computed from the records: within 10 degrees. Algorithm 1 on the rados as they are is far from it."""
    edges, rados, fitted = recentred
    direction = np.linalg.solve(edges.T @ edges, edges.sum(axis=0))
    as_they_are = RadoBoost(3000, recentre=None).fit_release(RadoSample(rados=rados, rows=len(edges)))

    def cosine(theta):
        return theta @ direction / np.linalg.norm(theta) / np.linalg.norm(direction)

    assert cosine(fitted.theta_) > np.cos(np.radians(10)) > np.cos(np.radians(20)) > cosine(as_they_are.theta_)
    assert fitted.warning_ is None
    assert as_they_are.warning_ is not None


@pytest.mark.parametrize("separable", [False, True])
def test_margins_at_the_minimum_vary_by_at_most_t(separable):
    """mu . V^-1 mu <= m for the mean and covariance of all 2^m rados, with equality where one theta fits every edge."""
    edges = cigar_edges(300)
    edges = edges / (edges @ [1, 3, 0, -1, 0.1])[:, np.newaxis] if separable else edges
    mean, covariance = edges.sum(axis=0) / 2, edges.T @ edges / 4
    largest = mean @ np.linalg.solve(covariance, mean)
    assert largest <= 300 * (1 + 1e-9)
    assert (largest > 300 * (1 - 1e-6)) == separable
