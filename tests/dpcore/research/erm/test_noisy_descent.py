"""Noisy descent: the paper's noise, its theorem confirmed by accounting, its output near the minimum, its errors."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

from dpcore.errors import ConfigurationError, DataError, PlanError, ShapeError
from dpcore.randomness.sources import SeededRandom
from dpcore.records.losses import HINGE, LOGISTIC, Ball, Box
from dpcore.research import erm
from dpcore.research.erm import GRADIENT_BITS, MOST_ROWS, NoisyDescent, integer_edges, sampled_epsilon

DELTA = Fraction(1, 10**6)
PLAN = NoisyDescent(rows=60, d=3, epsilon=Fraction(1), delta=DELTA, norm_bound=Fraction(2), convex_set=Ball(2.0))


def edges_of(plan, seed=1):
    """Rows of all lengths up to the bound, mostly on one side."""
    random = np.random.default_rng(seed)
    edges = random.normal(size=(plan.rows, plan.d)) + 0.7
    lengths = np.linalg.norm(edges, axis=1, keepdims=True)
    return edges / lengths * float(plan.norm_bound) * random.uniform(0.3, 1, size=lengths.shape)


def least_loss(plan, edges):
    """Of the ball about 0, by a general solver."""
    radius = plan.convex_set.radius
    found = minimize(
        plan.loss.total,
        np.zeros(plan.d),
        args=(edges,),
        constraints={"type": "ineq", "fun": lambda theta: radius**2 - theta @ theta},
    )
    return found.fun


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(7)])
@pytest.mark.parametrize("rows", [2, 60, 2000])
def test_the_noise_is_the_papers_and_accounting_confirms_its_theorem(rows, epsilon):
    plan = replace(PLAN, rows=rows, epsilon=epsilon)
    variance = 32 * 2**2 * rows**2 * math.log(rows / DELTA) * math.log(1 / DELTA) / float(epsilon) ** 2
    assert plan.sigma**2 == pytest.approx(variance, rel=1e-6)
    assert plan.sigma**2 >= variance
    assert plan.steps == rows**2 - 1
    # The constants of the paper leave a factor of about ten.
    assert 0 < plan.counted_epsilon < epsilon / 5
    # Two gradients differ by 2 n L, not by n L.
    assert plan.counted_epsilon >= sampled_epsilon(2 * rows * 2 / plan.sigma * 0.999, rows, plan.steps, DELTA)


@pytest.mark.more
def test_counted_noise_is_the_least_that_accounting_allows():
    plan = replace(PLAN, noise="counted", epsilon=Fraction(20))
    for epsilon in (Fraction(1, 2), Fraction(20)):
        plan = replace(plan, epsilon=epsilon)
        assert 0.97 * epsilon < plan.counted_epsilon <= epsilon
    assert "Theorem" not in plan._statement()
    assert replace(plan, epsilon=Fraction(1)).sigma < PLAN.sigma / 5


def test_epsilon_beyond_the_proof_is_refused():
    most = 2 * math.sqrt(math.log(10**6))
    replace(PLAN, epsilon=Fraction(most * 0.999))
    with pytest.raises(PlanError, match="proved up to"):
        replace(PLAN, epsilon=Fraction(most * 1.001))


def test_the_noise_of_a_step_has_the_planned_scale():
    """Without a projection the output is the noise of all steps, each times its rate."""

    class Open(Ball):
        def project(self, theta):
            return theta

    plan = replace(PLAN, rows=2, d=2000, convex_set=Open(1.0))
    edges = np.zeros((2, 2000))
    edges[:, 0] = 1.0
    rate = plan.convex_set.diameter(2000) / math.hypot(2 * 2, math.sqrt(2000) * plan.sigma)
    moved = plan.run(edges, SeededRandom(4)).theta[1:] / rate
    # Three steps of rates 1, 1/sqrt 2 and 1/sqrt 3.
    ratio = moved.std() / (plan.sigma * math.sqrt(1 + 1 / 2 + 1 / 3))
    assert 0.93 < ratio < 1.07


def test_no_integer_gradient_is_longer_than_accounted_for():
    edges = edges_of(PLAN)
    edges[0] = np.array([1.0, 1.0, 1.0]) * 2 / math.sqrt(3)
    integers = integer_edges(edges, edges.shape, PLAN.norm_bound)
    squares = np.square(integers.astype(object)).sum(axis=1)
    assert max(squares) <= 1 << 2 * GRADIENT_BITS
    assert max(squares) > 0.999 * (1 << 2 * GRADIENT_BITS)
    assert np.allclose(np.ldexp(integers, -GRADIENT_BITS) * 2, edges, atol=1e-6)
    for loss in (LOGISTIC, HINGE):
        assert (
            np.abs(np.trunc(loss.weight(edges @ np.array([-9.0, 3, 1]))[:, np.newaxis] * integers)) <= abs(integers)
        ).all()


@pytest.mark.slow
@pytest.mark.parametrize("loss", [LOGISTIC, HINGE])
@pytest.mark.parametrize("output", ["last", "average"])
def test_the_excess_is_within_the_theorems_bound_and_shrinks_with_the_noise(loss, output, monkeypatch):
    plan = replace(PLAN, loss=loss, output=output, noise="counted", epsilon=Fraction(20))
    edges = edges_of(plan)
    least = least_loss(plan, edges)
    excess = [loss.total(plan.run(edges, SeededRandom(seed)).theta, edges) - least for seed in range(2)]
    worst = max(loss.total(np.array(theta), edges) - least for theta in ([-2.0, 0, 0], [0, -2.0, 0], [0, 0, -2.0]))
    assert -1e-3 < np.mean(excess) <= plan.excess_bound
    assert np.mean(excess) < 0.2 * worst
    # The bound is not vacuous with almost no noise, and then it holds as well.
    monkeypatch.setattr(erm, "discrete_gaussian", lambda sigma, count, random: np.zeros(count, dtype=np.int64))
    quiet = replace(plan)
    quiet.__dict__["share_sigma"] = 3
    exact = loss.total(quiet.run(edges, SeededRandom(1)).theta, edges) - least
    assert -1e-3 < exact <= quiet.excess_bound < 20 * plan.rows * plan.convex_set.diameter(3)
    assert exact < 0.05 * worst


@pytest.mark.parametrize("rows", [10_000, 30_000])
def test_at_ten_thousand_rows_fewer_draws_keep_the_bound_and_the_budget(rows):
    plan = replace(PLAN, rows=rows, draws=20_000, noise="counted")
    assert 0.97 < plan.counted_epsilon <= 1
    edges = edges_of(plan)
    least = least_loss(plan, edges)
    excess = plan.loss.total(plan.run(edges, SeededRandom(3)).theta, edges) - least
    worst = plan.loss.total(np.array([-2.0, 0, 0]), edges) - least
    assert 0 < excess <= plan.excess_bound
    # Below n L |C|, which any theta keeps, and smaller with more draws; what is measured is far below both.
    assert excess < 0.1 * worst
    assert plan.excess_bound < 0.7 * rows * 2 * 4
    assert replace(plan, draws=2_000_000).excess_bound < 0.2 * plan.excess_bound


def test_draws_of_the_papers_number_are_the_paper():
    same = replace(PLAN, draws=PLAN.rows**2 - 1, noise="counted")
    assert same.excess_bound == pytest.approx(replace(PLAN, noise="counted").excess_bound, rel=1e-12)
    assert same.counted_epsilon == replace(PLAN, noise="counted").counted_epsilon
    with pytest.raises(ConfigurationError, match="leave draws out"):
        replace(PLAN, draws=100)


def test_theta_stays_in_the_set():
    box = Box((-0.1, 0.0, -1.0), (0.1, 0.5, 1.0))
    assert box.contains(replace(PLAN, convex_set=box).run(edges_of(PLAN), SeededRandom(1)).theta)


def test_a_result_states_its_privacy():
    result = replace(PLAN, rows=5).run(edges_of(replace(PLAN, rows=5)), SeededRandom(1))
    assert result.delta == DELTA
    assert f"({result.epsilon:.4g}, 1e-06)-differentially private" in result.statement
    assert "the paper's theorem states epsilon 1." in result.statement
    again = replace(PLAN, rows=5).run(edges_of(replace(PLAN, rows=5)), SeededRandom(1))
    assert np.array_equal(result.theta, again.theta)


def test_progress_counts_up_to_the_steps():
    seen = []
    PLAN.run(edges_of(PLAN), SeededRandom(1), lambda done, total: seen.append((done, total)))
    assert seen[-1] == (PLAN.steps, PLAN.steps)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"rows": 1}, PlanError),
        ({"rows": MOST_ROWS + 1}, PlanError),
        ({"rows": 10_000, "draws": 0, "noise": "counted"}, PlanError),
        ({"rows": 10_000, "draws": MOST_ROWS**2 + 1, "noise": "counted"}, PlanError),
        ({"epsilon": Fraction(0)}, PlanError),
        ({"delta": Fraction(0)}, PlanError),
        ({"norm_bound": 2.0}, PlanError),
        ({"convex_set": Box((0.0,), (1.0,))}, ShapeError),
        ({"output": "best"}, ConfigurationError),
        ({"noise": "none"}, ConfigurationError),
        ({"epsilon": Fraction(1, 10**9)}, PlanError),
    ],
)
def test_invalid_plans_are_refused(change, error):
    with pytest.raises(error):
        replace(PLAN, **change)


@pytest.mark.parametrize(
    ("edges", "error"),
    [
        (np.zeros((59, 3)), ShapeError),
        (np.full((60, 3), 1.2), DataError),
        (np.full((60, 3), np.nan), DataError),
    ],
)
def test_rows_that_do_not_fit_the_plan_are_refused(edges, error):
    with pytest.raises(error):
        PLAN.run(edges, SeededRandom(1))
