import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import RadoSample
from dpcore.estimators.boosting import LARGEST_EDGE, log_rado_loss
from dpcore.estimators.radoboost import RadoBoost


def boost(rados, **parameters):
    return RadoBoost(**parameters).fit_release(RadoSample(rados=rados, rows=50))


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
