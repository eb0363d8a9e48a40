"""Many rows: batch descent measured beside its bound, and a walk whose epsilon follows from its coins alone."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from dpcore.accounting.concentrated import concentrated_epsilon
from dpcore.accounting.gaussian import gaussian_mu
from dpcore.errors import DataError, PlanError, ShapeError
from dpcore.randomness.sources import SeededRandom
from dpcore.records.losses import HINGE, LOGISTIC, Ball
from dpcore.research import erm_at_scale
from dpcore.research.erm_at_scale import BatchDescent, PrivateWalk
from dpcore.research.erm_bounds import Problem, fingerprint_bound, sampling_time

DELTA = Fraction(1, 10**6)
RADIUS = 2.0
DESCENT = BatchDescent(10_000, 5, Fraction(1), DELTA, Fraction(1), Ball(RADIUS))
WALK = PrivateWalk(Fraction(1), DELTA, 5, Fraction(1), Ball(RADIUS), 2000, Fraction(1, 20))


def edges_of(rows, d, seed=1):
    """Rows of all lengths up to 1, mostly on one side."""
    edges = np.random.default_rng(seed).normal(size=(rows, d)) + 0.5
    return edges / np.linalg.norm(edges, axis=1, keepdims=True).max()


def least_loss(edges, loss=LOGISTIC):
    """Of the ball of RADIUS, by a general solver."""
    found = minimize(
        lambda theta: loss.total(theta, edges) / len(edges),
        np.zeros(edges.shape[1]),
        constraints={"type": "ineq", "fun": lambda theta: RADIUS**2 - theta @ theta},
        options={"ftol": 1e-12},
    )
    return found.fun * len(edges)


@pytest.mark.parametrize(("rows", "d", "epsilon"), [(10_000, 5, Fraction(1)), (20_000, 20, Fraction(1, 4))])
def test_batch_descent_stays_within_its_bound(rows, d, epsilon):
    plan = replace(DESCENT, rows=rows, d=d, epsilon=epsilon)
    edges = edges_of(rows, d)
    least = least_loss(edges)
    excess = LOGISTIC.total(plan.run(edges, SeededRandom(1)).theta, edges) - least
    start = LOGISTIC.total(np.zeros(d), edges) - least
    assert -1e-3 * rows < excess <= plan.excess_bound
    assert excess < start / 3
    # The bound says something, and it has the order of the theorem, without the logarithms.
    assert plan.excess_bound < Problem(rows, d, 2 * RADIUS, 1.0).trivial / 5
    order = 2 * RADIUS * 2 * math.sqrt(d) / gaussian_mu(epsilon, DELTA)
    assert order < plan.excess_bound < 1.3 * order
    assert plan.excess_bound > fingerprint_bound(rows, d, float(epsilon), float(DELTA)).excess


def test_a_batch_descent_spends_its_epsilon_and_not_a_hundredth_more():
    for epsilon in (Fraction(1, 4), Fraction(3)):
        plan = replace(DESCENT, epsilon=epsilon)
        assert 0.999 * epsilon < plan.counted_epsilon <= epsilon
        less = replace(plan)
        less.__dict__["share_sigma"] = plan.share_sigma * 99 // 100
        assert less.counted_epsilon > epsilon


def test_the_noise_of_batch_steps_has_the_planned_scale():
    class Open(Ball):
        def project(self, theta):
            return theta

    plan = replace(DESCENT, rows=1, d=4000, convex_set=Open(1.0))
    edges = np.zeros((1, 4000))
    edges[0, 0] = 1.0
    assert plan.steps == 1
    noise = plan.share_sigma * 2.0**-24
    rate = 1 / (1 / 4 + math.sqrt(4000) * noise / 2)
    ratio = plan.run(edges, SeededRandom(4)).theta[1:].std() / (rate * noise)
    assert 0.95 < ratio < 1.05


def test_without_noise_batch_descent_reaches_the_minimum(monkeypatch):
    monkeypatch.setattr(erm_at_scale, "discrete_gaussian", lambda sigma, count, random: np.zeros(count, dtype=np.int64))
    edges = edges_of(10_000, 5)
    excess = LOGISTIC.total(DESCENT.run(edges, SeededRandom(1)).theta, edges) - least_loss(edges)
    far = 10_000 / 4 * (2 * RADIUS) ** 2 / (2 * DESCENT.steps)
    assert -1e-3 < excess < far + 4 * math.sqrt(5) * 10_000 * 2.0**-23 + DESCENT.excess_bound / 2


@pytest.mark.parametrize("delta", [Fraction(0), DELTA])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(8)])
def test_a_walk_spends_its_epsilon_and_not_a_hundredth_more(epsilon, delta):
    plan = replace(WALK, epsilon=epsilon, delta=delta)
    assert 0.999 * epsilon < plan.counted_epsilon <= epsilon
    hotter = replace(plan)
    hotter.__dict__["rate"] = plan.rate * Fraction(101, 100)
    assert hotter.counted_epsilon > epsilon


def walk_logs(plan, edges, proposals):
    """Log probabilities of the coins' outcomes along all paths of fixed proposals: {path: log chance}, by recursion."""
    logs = {}

    def follow(theta, step, path, log):
        if step == len(proposals):
            logs[path] = log
            return
        proposal = theta + proposals[step]
        change = np.rint(np.ldexp(plan.loss.value(edges @ proposal) - plan.loss.value(edges @ theta), 16))
        exponent = float(plan.rate) * float(np.clip(change, -plan.width, plan.width).sum())
        follow(proposal, step + 1, (*path, 1), log - np.logaddexp(0, exponent))
        follow(theta, step + 1, (*path, 0), log - np.logaddexp(0, -exponent))

    follow(np.zeros(plan.d), 0, (), 0.0)
    return logs


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE])
def test_no_replaced_row_changes_the_distribution_of_a_walk_by_more(loss):
    """Of its whole path, summed over all outcomes; the hinge with a row reversed attains the bound nearly."""
    plan = PrivateWalk(Fraction(1), Fraction(0), 1, Fraction(1), Ball(RADIUS), 8, Fraction(1, 10), loss)
    found, divergences = [], []
    for edges in (np.array([[1.0], [-0.2]]), np.array([[1.0], [-1.0]])):
        other = edges.copy()
        other[0] = -edges[0]
        first, second = (walk_logs(plan, rows, [np.array([0.1])] * 8) for rows in (edges, other))
        assert sum(map(math.exp, first.values())) == pytest.approx(1)
        found.append(max(abs(first[path] - second[path]) for path in first))
        divergences.append(math.log(sum(math.exp(2 * first[path] - second[path]) for path in first)))
    assert max(found) <= plan.counted_epsilon
    # As the plan counts it: half of it would not cover the divergence.
    logit = plan.counted_epsilon / 8
    assert max(divergences) <= 2 * 8 * logit**2 / 8
    if loss is HINGE:
        assert max(divergences) > 0.9 * 2 * 8 * logit**2 / 8
        # Each outcome of a fair coin moves by half the logit: twice as much is only spent with coins that are unfair.
        assert max(found) > 0.45 * plan.counted_epsilon


def test_the_concentrated_cost_is_that_of_an_exact_draw_for_a_walk_across_the_set():
    """At T s^2 = |C|^2 the rate is that of exponential sampling at the epsilon' with epsilon'^2 / 8 as its cost."""
    plan = replace(WALK, steps=6400, length=Fraction(1, 20))
    k = math.ldexp(float(plan.rate), 16)
    exact = 2 * k * 2 * RADIUS
    assert concentrated_epsilon(exact**2 / 8, DELTA) == pytest.approx(1.0, rel=1e-3)
    assert plan.stationary_excess == pytest.approx(Problem(10_000, 5, 2 * RADIUS, 1.0).sampling_bound(exact))


@pytest.mark.parametrize("change", [-1_300_000, 0, 900_000])
def test_a_coin_has_barkers_probability(change):
    random, flips = SeededRandom(change & 7), 4000
    heads = sum(WALK.coin(change, random) for _ in range(flips))
    for factor, right in ((1.0, True), (0.6, False), (1.6, False)):
        chance = 1 / (1 + math.exp(factor * float(WALK.rate) * change + (0 if right else 0.2)))
        assert (stats.binomtest(heads, flips, chance).pvalue > 1e-4) == right


def test_a_walk_has_the_distribution_it_approaches_as_its_stationary_one():
    """One dimension and steps of 1: the last points of many walks against the density on five places."""
    plan = PrivateWalk(Fraction(140), Fraction(0), 1, Fraction(1), Ball(RADIUS), 40, Fraction(1))
    edges = np.full((6, 1), 0.8)
    random = SeededRandom(3)
    drawn = np.array([plan.run(edges, random).theta[0] for _ in range(400)])
    # Steps of one length stay on a lattice through 0: -2 ... 2.
    places = np.arange(-2, 3)
    weights = np.exp(-float(plan.rate) * 65536 * LOGISTIC.value(places * 0.8) * 6)
    counts = np.array([(np.abs(drawn - place) < 0.01).sum() for place in places])
    assert counts.sum() == 400
    assert stats.chisquare(counts, weights / weights.sum() * 400).pvalue > 1e-4
    assert stats.chisquare(counts, np.full(5, 80)).pvalue < 1e-4


def test_a_private_walk_over_10_000_rows_finds_a_good_classifier():
    edges = edges_of(10_000, 5)
    least = least_loss(edges)
    walked = WALK.run(edges, SeededRandom(1))
    excess = LOGISTIC.total(walked.theta, edges) - least
    start = LOGISTIC.total(np.zeros(5), edges) - least
    # One draw, beside a bound on the average of the distribution approached.
    assert 0 < excess < 2 * WALK.stationary_excess < start / 3
    assert walked.epsilon is None
    assert f"({WALK.counted_epsilon:.4g}, 1e-06)-differentially private" in walked.statement
    assert "neither proved nor needed" in walked.statement
    # Work of the walk against the order of equation 9.
    assert WALK.steps * edges.size < 1e-8 * sampling_time(10_000, 5, 2 * RADIUS, 1.0)


def test_a_pure_walk_states_a_pure_epsilon():
    plan = replace(WALK, delta=Fraction(0), steps=10)
    walked = plan.run(edges_of(50, 5), SeededRandom(1))
    assert walked.epsilon == 1
    assert walked.statement.startswith("1-differentially private")


@pytest.mark.parametrize(
    ("plan", "change", "error"),
    [
        (DESCENT, {"rows": 0}, PlanError),
        (DESCENT, {"rows": 1 << 28}, PlanError),
        (DESCENT, {"epsilon": Fraction(0)}, PlanError),
        (DESCENT, {"delta": Fraction(0)}, PlanError),
        (DESCENT, {"norm_bound": 1.0}, PlanError),
        (WALK, {"steps": 0}, PlanError),
        (WALK, {"length": Fraction(0)}, PlanError),
        (WALK, {"epsilon": Fraction(0)}, PlanError),
        (WALK, {"delta": Fraction(2)}, PlanError),
    ],
)
def test_plans_that_cannot_be_are_refused(plan, change, error):
    with pytest.raises(error):
        replace(plan, **change)


@pytest.mark.parametrize("plan", [replace(DESCENT, rows=50), WALK])
def test_other_rows_than_planned_are_refused(plan):
    with pytest.raises(ShapeError):
        plan.run(np.zeros((50, 4)), SeededRandom(1))
    with pytest.raises(DataError):
        plan.run(np.ones((50, 5)), SeededRandom(1))
