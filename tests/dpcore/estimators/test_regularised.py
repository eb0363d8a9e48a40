import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy.optimize import isotonic_regression, minimize
from sklearn.linear_model import LogisticRegression

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import RadoSample, draw_plain_rados
from dpcore.estimators.boosting import log_rado_loss
from dpcore.estimators.rado_dual import lowest_value
from dpcore.estimators.radoboost import RadoBoost, centre_of
from dpcore.estimators.regularised import (
    RadoBoostL1,
    RadoBoostL2,
    RadoBoostLinf,
    RadoBoostSlope,
    Rounds,
    all_alike,
    boost_regularised,
)
from dpcore.estimators.regularisers import Ridge, SortedNorm

D = 5
REGULARISERS = {
    "l1": SortedNorm(np.ones(D)),
    "l2": Ridge(),
    "linf": SortedNorm(np.eye(D)[0]),
    "slope": SortedNorm(np.array([2.0, 1.5, 1.5, 1.0, 0.2])),
}
KINDS = [RadoBoostL1, RadoBoostL2, RadoBoostLinf, RadoBoostSlope]


@pytest.fixture(scope="module")
def rados():
    random = np.random.default_rng(1)
    mean = np.array([3.0, -1.0, 0.5, 0.0, 2.0])
    return mean + random.normal(size=(60, D)) * np.array([2.0, 1.0, 3.0, 1.0, 4.0])


def boosted_on(rados, regulariser, strength, n_rounds, smallest_edge):
    return boost_regularised(rados, all_alike(len(rados)), regulariser, strength, Rounds(n_rounds, smallest_edge))


def objective(theta, rados, regulariser, strength):
    return log_rado_loss(theta, rados) + strength * regulariser.value(theta)


@pytest.mark.parametrize("name", REGULARISERS)
@pytest.mark.parametrize("strength", [0.0, 0.05, 0.5, 1.5])
def test_the_objective_is_the_regularised_loss_and_never_rises(rados, name, strength):
    regulariser = REGULARISERS[name]
    for rounds in (1, 2, 3, 10, 100):
        boosted = boosted_on(rados, regulariser, strength, rounds, 1e-8)
        steps = np.diff(boosted.objective)
        assert steps.max(initial=-1.0) <= 1e-12
        assert math.isclose(
            boosted.objective[-1], objective(boosted.theta, rados, regulariser, strength), rel_tol=1e-9, abs_tol=1e-12
        )
    assert boosted.objective[-1] < 0 or strength == 1.5


@pytest.mark.parametrize("strength", [0.0, 0.2, 0.8])
def test_the_first_round_falls_by_half_the_square_of_the_edge_that_is_left(rados, strength):
    """The bound of the module with a constant slope, as the lasso has; with strength 0 it is Lemma 4."""
    largest = np.abs(rados).max(axis=0)
    left = np.abs(rados.mean(axis=0)) / largest - strength / largest
    fallen = boosted_on(rados, REGULARISERS["l1"], strength, 1, 0.0).objective[1]
    assert fallen <= -(left.max() ** 2) / 2
    # The bound is not vacuous: twice the fall is more than the step gave.
    assert fallen > -4 * left.max() ** 2


@pytest.mark.more
@pytest.mark.parametrize(("name", "strength"), [("l1", 0.3), ("l1", 1.0), ("l2", 0.3), ("l2", 5.0)])
def test_separable_regularisers_reach_the_minimum(rados, name, strength):
    """Coordinate by coordinate ends at the minimum where Omega is a sum over coordinates and F has one."""
    regulariser = REGULARISERS[name]
    boosted = boosted_on(rados, regulariser, strength, 20_000, 1e-9)
    assert boosted.finished
    found = [
        minimize(objective, start, args=(rados, regulariser, strength), method="Powell", options={"ftol": 1e-14})
        for start in (np.zeros(D), boosted.theta + 0.01)
    ]
    assert boosted.objective[-1] <= min(result.fun for result in found) + 1e-7


def by_proximal_descent(rados, weights, strength):
    """The minimiser under a sorted norm by accelerated proximal steps, the prox by isotonic regression."""
    theta = ahead = np.zeros(rados.shape[1])
    step = 4.0 / (rados**2).sum(axis=1).max()
    for count in range(3000):
        margins = rados @ ahead
        shares = np.exp(margins.min() - margins)
        moved = ahead + step * (shares / shares.sum()) @ rados
        order = np.argsort(-np.abs(moved))
        sizes = isotonic_regression(np.abs(moved)[order] - step * strength * weights, increasing=False).x
        before, theta = theta, np.zeros_like(theta)
        theta[order] = np.sign(moved[order]) * np.maximum(sizes, 0.0)
        ahead = theta + (count % 100) / (count % 100 + 3) * (theta - before)
    return theta


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "strength"), [("linf", 1.5), ("slope", 0.5), ("l1", 1.0), ("linf", 0.6), ("linf", 4.0), ("slope", 1.0)]
)
def test_sorted_norms_reach_the_minimum_by_groups(rados, name, strength):
    """Single coordinates stop short of it for the l-infinity norm and SLOPE."""
    regulariser = REGULARISERS[name]
    boosted = boosted_on(rados, regulariser, strength, 20_000, 1e-9)
    assert boosted.finished
    other = objective(by_proximal_descent(rados, regulariser.weights, strength), rados, regulariser, strength)
    assert boosted.objective[-1] == pytest.approx(other, abs=1e-7)
    assert boosted.objective[-1] < -1e-3
    lowest = lowest_value(rados, all_alike(len(rados)), boosted.weights, regulariser, strength)
    assert other >= lowest - 1e-12
    assert boosted.objective[-1] - lowest <= 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_the_gap_is_at_least_the_distance_to_the_minimum_and_is_said(rados, kind):
    sample = RadoSample(rados, rows=120, bias=False)
    late = kind(20_000, recentre=None, strength=1.0, smallest_edge=1e-9).fit_release(sample)
    assert late.gap_ <= 1e-6
    assert late.warning_ is None
    for n_rounds in (2, 5, 20):
        early = kind(n_rounds, recentre=None, strength=1.0).fit_release(sample)
        distance = early.objective_[-1] - late.objective_[-1]
        assert distance - 1e-6 <= early.gap_
        if early.gap_ > 0.01 and not early.finished_:
            assert f"within {early.gap_:.3g} nats" in early.warning_
    assert kind(2, recentre=None, strength=1.0).fit_release(sample).warning_ is not None
    # All rados on one side of a plane: a small strength leaves no minimum.
    apart = kind(20, recentre=None, strength=1e-3).fit_release(RadoSample(np.abs(rados) + 1.0, rows=120, bias=False))
    assert math.isinf(apart.gap_) == (kind is not RadoBoostL2)
    assert ("no minimum" in apart.warning_) == (kind is not RadoBoostL2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strength", [0.05, pytest.param(None, marks=pytest.mark.more)])
def test_recentred_rados_are_boosted_as_if_their_mean_had_been_moved(rados, kind, strength):
    """By hand, their gap included; far rados show a mean that is subtracted in one place and not in another."""
    far = rados + np.array([400.0, -100.0, 0.0, 50.0, 900.0])
    mean = far.mean(axis=0)
    moved = far - mean * (1 - 1.5 / np.sqrt(120))
    for n_rounds in (5, 300):
        ours = kind(n_rounds, recentre=1.5, strength=strength).fit_release(RadoSample(far, rows=120, bias=False))
        given = kind(n_rounds, recentre=None, strength=ours.strength_).fit_release(RadoSample(moved, 120, bias=False))
        assert ours.theta_ == pytest.approx(given.theta_, rel=1e-6, abs=1e-9)
        assert ours.objective_ == pytest.approx(given.objective_, rel=1e-6, abs=1e-9)
        assert ours.gap_ == pytest.approx(given.gap_, rel=1e-4, abs=1e-7)
        if ours.strength_:
            arguments = (moved, ours._regulariser(D), ours.strength_)
            least = minimize(objective, ours.theta_, args=arguments, method="Nelder-Mead").fun
            assert ours.objective_[-1] - ours.gap_ <= least + 1e-9


@pytest.mark.parametrize("name", REGULARISERS)
def test_it_stops_when_no_single_coordinate_improves(rados, name):
    regulariser, strength = REGULARISERS[name], 0.6
    boosted = boosted_on(rados, regulariser, strength, 20_000, 1e-9)
    assert boosted.finished
    for axis, step in itertools.product(np.eye(D), (-1e-2, -1e-4, 1e-4, 1e-2)):
        assert objective(boosted.theta + step * axis, rados, regulariser, strength) >= boosted.objective[-1] - 1e-9


@pytest.mark.parametrize("name", REGULARISERS)
def test_a_rado_with_share_zero_has_no_effect(rados, name):
    """Even if it is far larger than the others, and far on their wrong side."""
    kept = np.arange(len(rados) + 20) % 4 != 0
    everything = np.full((len(kept), D), -1e4)
    everything[kept] = rados
    rounds = Rounds(50, 1e-8)
    found = boost_regularised(everything, kept / len(rados), REGULARISERS[name], 0.3, rounds)
    without = boosted_on(rados, REGULARISERS[name], 0.3, rounds.n_rounds, rounds.smallest_edge)
    assert np.allclose(found.theta, without.theta, rtol=1e-9, atol=1e-12)
    assert np.allclose(found.objective, without.objective, rtol=1e-9, atol=1e-12)
    assert REGULARISERS[name].unit(everything, kept / len(rados), np.zeros(D)) == pytest.approx(
        REGULARISERS[name].unit(rados, all_alike(len(rados)), np.zeros(D))
    )


def test_without_strength_a_round_is_that_of_radoboost(rados):
    sample = RadoSample(rados=rados, rows=120)
    for kind in KINDS:
        for recentre in (None, 1.0):
            ours = kind(1, recentre=recentre, strength=0.0).fit_release(sample).theta_
            assert np.allclose(ours, RadoBoost(1, recentre=recentre).fit_release(sample).theta_, rtol=1e-9)


@pytest.mark.more
def test_over_all_rados_the_ridge_is_logistic_regression():
    """Lemma 2 of ICML 2015 with a regulariser: F is m times the regularised logistic loss, minus m log 2."""
    random = np.random.default_rng(2)
    rows = random.normal(size=(12, 3))
    labels = np.where(rows[:, 0] + random.normal(size=12) > 0, 1, -1)
    signatures = np.array(list(itertools.product([0.0, 1.0], repeat=12)))
    rados = signatures @ (rows * labels[:, np.newaxis])
    fitted = RadoBoostL2(20_000, recentre=None, strength=0.5, smallest_edge=1e-10).fit_release(
        RadoSample(rados, rows=12, bias=False)
    )
    logistic = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-10).fit(rows, labels)
    assert np.allclose(fitted.theta_, logistic.coef_[0], atol=1e-4)
    other = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10).fit(rows, labels)
    assert not np.allclose(fitted.theta_, other.coef_[0], atol=1e-2)


@pytest.mark.parametrize("name", REGULARISERS)
def test_slopes_are_the_derivatives_of_the_value(name):
    regulariser = REGULARISERS[name]
    random = np.random.default_rng(3)
    ties = np.array([0.5, -0.5, 0.5, 0.0, -1.0])
    for theta in [*random.normal(size=(20, D)), ties, np.zeros(D), np.full(D, 2.0)]:
        below, above = regulariser.slopes(theta)
        for k, axis in enumerate(np.eye(D)):
            sign = np.sign(theta[k]) or 1.0
            outward = (regulariser.value(theta + 1e-7 * sign * axis) - regulariser.value(theta)) / 1e-7
            assert math.isclose(outward, above[k], abs_tol=1e-5)
            along = regulariser.along(theta, np.array([k]))
            assert math.isclose(along(abs(theta[k])), above[k], abs_tol=1e-12)
            if theta[k] != 0:
                inward = (regulariser.value(theta) - regulariser.value(theta - 1e-7 * sign * axis)) / 1e-7
                assert math.isclose(inward, below[k], abs_tol=1e-5)


def test_the_norms_are_what_their_names_say():
    theta = np.array([3.0, -4.0, 0.0])
    sample = RadoSample(np.random.default_rng(4).normal(size=(9, 3)) + 1.0, rows=20)
    value = {kind: kind()._regulariser(3).value(theta) for kind in KINDS}
    assert value[RadoBoostL1] == 7.0
    assert value[RadoBoostL2] == 12.5
    assert value[RadoBoostLinf] == 4.0
    quantile = NormalDist().inv_cdf
    wanted = 4 * quantile(1 - 0.1 / 6) + 3 * quantile(1 - 0.2 / 6)
    assert math.isclose(value[RadoBoostSlope], wanted)
    # At its unit of strength a norm leaves theta at zero, just below it does not.
    for kind in (RadoBoostL1, RadoBoostLinf, RadoBoostSlope):
        for recentre, centre in ((None, np.zeros(3)), (0.5, centre_of(sample, 0.5))):
            unit = kind()._regulariser(3).unit(sample.rados, all_alike(len(sample.rados)), centre)
            assert not kind(recentre=recentre, strength=(1 + 1e-12) * unit).fit_release(sample).theta_.any()
            assert kind(recentre=recentre, strength=0.999 * unit).fit_release(sample).theta_.any()


@pytest.mark.slow
def test_the_strength_is_chosen_from_the_rados_and_helps():
    """Few rados of many coordinates: the ridge chosen beats none on the records."""
    excess = []
    for seed in range(5):
        random = np.random.default_rng(seed)
        rows = np.column_stack([random.uniform(-1, 1, size=(400, 30)), np.ones(400)])
        labels = np.where(rows[:, :30] @ random.normal(size=30) + random.normal(scale=0.5, size=400) > 0, 1, -1)
        edges = rows * labels[:, np.newaxis]
        sample = RadoSample(draw_plain_rados(edges, 100, np.random.RandomState(seed)), rows=400)
        chosen = RadoBoostL2().fit_release(sample)
        assert chosen.strength_ in [
            f * Ridge().unit(sample.rados, all_alike(len(sample.rados)), centre_of(sample, 1.0))
            for f in RadoBoostL2.FRACTIONS
        ]
        assert chosen.correlation_.shape == (len(RadoBoostL2.FRACTIONS),)
        none = RadoBoostL2(strength=0.0).fit_release(sample)
        excess.append(np.mean(edges @ chosen.theta_ <= 0) - np.mean(edges @ none.theta_ <= 0))
    assert np.mean(excess) < -0.02


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strength", [None, 0.0, 1.0])
def test_degenerate_rados_leave_theta_finite(kind, strength):
    random = np.random.default_rng(6)
    cases = [
        np.zeros((5, 3)),
        np.ones((5, 3)),
        random.normal(size=(2, 6)),
        np.abs(random.normal(size=(5, 1))) + 1.0,
        1e6 * random.normal(size=(20, 4)),
        np.array([[1.0, 0.0], [-1.0, 0.0]]),
    ]
    for rados in cases:
        fitted = kind(50, strength=strength).fit_release(RadoSample(rados=rados, rows=40))
        assert np.isfinite(fitted.theta_).all()
        assert np.isfinite(fitted.objective_).all()


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_rounds": 0},
        {"strength": -1.0},
        {"strength": float("nan")},
        {"n_folds": 1},
        {"smallest_edge": 1.0},
        {"slope_rate": 0.0},
        {"slope_rate": 1.0},
    ],
)
def test_parameters_out_of_range_are_refused(parameters):
    kind = RadoBoostSlope if "slope_rate" in parameters else RadoBoostL1
    with pytest.raises(ConfigurationError, match=next(iter(parameters))):
        kind(**parameters).fit_release(RadoSample(rados=np.eye(3), rows=4))


@pytest.mark.more
@pytest.mark.parametrize("kind", KINDS)
def test_recentring_lowers_the_error_on_records(kind):
    random = np.random.default_rng(8)
    common = random.uniform(-1, 1, size=(3000, 1))
    rows = np.column_stack([0.3 * random.uniform(-1, 1, size=(3000, 6)) + 0.7 * common, np.ones(3000)])
    labels = np.where(
        rows @ np.array([2.0, -2.0, 1.5, -1.0, 1.0, -1.0, 0.1]) + random.normal(scale=0.3, size=3000) > 0, 1, -1
    )
    edges = rows * labels[:, np.newaxis]
    sample = RadoSample(draw_plain_rados(edges, 400, np.random.RandomState(2)), rows=3000)
    recentred, as_they_are = (
        float(np.mean(edges @ kind(200, recentre=t).fit_release(sample).theta_ <= 0)) for t in (1.0, None)
    )
    assert recentred < as_they_are - 0.03
