"""Exact sampling by rejection: the distribution and no other, its envelope, its epsilon, 10,000 rows and more."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.errors import DataError, PlanError, ShapeError
from dpcore.randomness.sources import SeededRandom
from dpcore.records.losses import LOGISTIC
from dpcore.research.erm import SCORE_BITS
from dpcore.research.erm_bounds import Problem
from dpcore.research.exact_sampling import _UNIT, LatticeSampling, _Envelope, localised, perturbed_minimum

PLAN = LatticeSampling(Fraction(3), 1, Fraction(1), Fraction(2))
ONE = Fraction(1)


def rows(n, d, seed=1):
    """Rows of all lengths up to 1, labels by a logistic model."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, d))
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    return x * np.where(random.random(n) < 1 / (1 + np.exp(-x @ np.ones(d))), 1, -1)[:, np.newaxis]


def by_quadrature(plan, edges, cuts):
    """Probabilities of the intervals between cuts in one dimension, from the density of the continuum."""
    middle, radius = plan.middle[0] * _UNIT, float(plan.radius)
    theta = np.linspace(middle - radius, middle + radius, 40_001)
    exponents = -plan.rate * np.array([plan.objective(np.array([at]), edges) for at in theta])
    density = np.exp(exponents - exponents.max())
    return np.histogram(theta, cuts, weights=density)[0] / density.sum()


@pytest.mark.parametrize(
    ("plan", "n"),
    [
        (PLAN, 40),
        (replace(PLAN, radius=Fraction(1, 4)), 25),
        (replace(PLAN, curvature=0.3), 60),
        (replace(PLAN, centre=(1 << 20,), radius=ONE), 40),
    ],
    ids=["inside", "at the boundary", "with curvature", "off the centre"],
)
def test_draws_have_the_distribution_and_no_other(plan, n):
    edges, random = rows(n, 1, seed=5), SeededRandom(2)
    drawn = plan.draws(edges, 1200, random)[0][:, 0] * _UNIT
    middle, radius = plan.middle[0] * _UNIT, float(plan.radius)
    assert np.abs(drawn - middle).max() <= radius
    cuts = np.linspace(middle - radius, middle + radius, 7)
    counts, expected = np.histogram(drawn, cuts)[0], by_quadrature(plan, edges, cuts) * len(drawn)
    assert stats.chisquare(counts, expected).pvalue > 1e-4
    for scale in (Fraction(1, 2), Fraction(2)):
        other = by_quadrature(replace(plan, epsilon=plan.epsilon * scale), edges, cuts) * len(drawn)
        assert stats.chisquare(counts, other).pvalue < 1e-4


def test_another_envelope_gives_the_same_distribution():
    """The envelope depends on the rows, and is not part of what is released."""
    edges, cuts = rows(40, 1, seed=5), np.linspace(-2, 2, 7)
    wide = _Envelope.of(PLAN, edges)
    wide = replace(wide, sigma=2 * wide.sigma, middle=wide.middle + 50_000, margin=wide.margin + 1)
    wide = replace(wide, score=PLAN.scores(wide.middle[np.newaxis], edges)[0])
    random, drawn = np.random.default_rng(1), []
    while len(drawn) < 1200:
        step = np.rint(random.normal(size=(200, 1)) * wide.sigma).astype(np.int64)
        step = step[[PLAN.contains(wide.middle + one) for one in step]]
        scored = zip(step, PLAN.scores(wide.middle + step, edges), strict=True)
        gammas = np.array([float(wide.gamma(*each)) for each in scored])
        drawn += ((wide.middle + step)[random.random(len(step)) < np.exp(-gammas), 0] * _UNIT).tolist()
    counts = np.histogram(drawn, cuts)[0]
    assert stats.chisquare(counts, by_quadrature(PLAN, edges, cuts) * len(drawn)).pvalue > 1e-4


@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize("curvature", [0.0, 0.5])
@pytest.mark.parametrize("radius", [Fraction(1, 3), Fraction(3)])
def test_the_envelope_is_above_the_density_everywhere_and_close_at_the_middle(d, curvature, radius):
    plan = LatticeSampling(ONE, d, ONE, radius, curvature)
    random = np.random.default_rng(3)
    for edges in (rows(300, d), np.repeat(rows(1, d), 300, axis=0), np.zeros((5, d))):
        envelope = _Envelope.of(plan, edges)
        points = random.normal(size=(300, d))
        points *= (random.random((300, 1)) ** (1 / d)) * float(radius) / np.linalg.norm(points, axis=1, keepdims=True)
        steps = np.trunc(points / _UNIT).astype(np.int64) - envelope.middle
        assert min(map(envelope.gamma, steps, plan.scores(envelope.middle + steps, edges))) >= 0
        # The most that is lost at the middle itself.
        assert envelope.gamma(np.zeros(d, dtype=np.int64), envelope.score) < 0.6


def test_no_replaced_record_moves_a_score_by_more_than_the_width_and_some_do_almost():
    plan = LatticeSampling(ONE, 2, ONE, Fraction(3), centre=(1 << 20, 0))
    random, most = np.random.default_rng(2), 0
    ends = np.array([[4 << 20, 0], [-2 << 20, 0], [1 << 20, 3 << 20]])
    for _ in range(300):
        first, second = (record / max(1, np.linalg.norm(record)) for record in random.normal(size=(2, 2)) * 3)
        moves = [a - b for a, b in zip(*(plan.scores(ends, one[np.newaxis]) for one in (first, second)), strict=True)]
        most = max(most, *map(abs, moves))
    assert most <= plan.width == 6 << SCORE_BITS
    assert most > 0.5 * plan.width


@pytest.mark.parametrize(("n", "d"), [(10_000, 3), (10_000, 6), (40_000, 3)])
def test_at_ten_thousand_rows_the_excess_is_within_the_papers_bound_and_not_far_below(n, d):
    """At most d / k: equation 8 of the slides with its constant, by a sampler whose epsilon is proved."""
    plan, edges, random = LatticeSampling(ONE, d, ONE, Fraction(5, 2)), rows(n, d), SeededRandom(4)
    least = plan.objective(plan.minimum(edges), edges)
    excess = np.mean([plan.objective(point * _UNIT, edges) - least for point in plan.draws(edges, 40, random)[0]])
    assert 0.25 * plan.excess_bound < excess <= plan.excess_bound
    assert plan.excess_bound == pytest.approx(d * 2 * 5.0, rel=1e-6)


def test_the_minimum_is_that_of_a_general_solver():
    from scipy.optimize import minimize

    edges = rows(500, 3)
    for radius in (Fraction(1, 2), Fraction(4)):
        plan = LatticeSampling(ONE, 3, ONE, radius, 0.01)
        inside = {"type": "ineq", "fun": lambda theta, radius=radius: float(radius) ** 2 - theta @ theta}
        found = minimize(plan.objective, np.zeros(3), args=(edges,), constraints=inside, tol=1e-12)
        assert plan.objective(plan.minimum(edges), edges) <= found.fun + 1e-6


@pytest.mark.parametrize("n", [10_000, 40_000])
def test_strongly_convex_losses_output_perturbation_and_localisation_keep_their_bounds(n):
    d, mu, edges, random = 4, 0.05, rows(n, 4), SeededRandom(7)
    whole = LatticeSampling(ONE, d, ONE, Fraction(20), mu)
    least = whole.objective(whole.minimum(edges), edges)
    bounds = Problem(n, d, 5.0, 1.0, mu)
    smooth = bounds.output_bound(1.0, 0.25 + mu)

    def excess(draw):
        return np.mean([whole.objective(draw(), edges) - least for _ in range(8)])

    perturbed = excess(lambda: perturbed_minimum(edges, ONE, ONE, mu, random).theta)
    near = excess(lambda: localised(edges, ONE, ONE, mu, random, Fraction(1, 100)).theta)
    anywhere = excess(lambda: replace(whole, radius=Fraction(5, 2)).draw(edges, random).theta)
    # Noise on each coordinate by the L1 sensitivity is at most twice the Euclidean noise of the bound.
    assert 0.02 * smooth < perturbed <= 4 * smooth
    assert 0.001 < near <= bounds.localisation(1.0)[1]
    # Both fall with n, where sampling in a fixed ball does not.
    assert max(perturbed, near) < anywhere


def test_the_noise_of_the_minimum_has_its_scale():
    edges, random = rows(2000, 3), SeededRandom(3)
    exact = LatticeSampling(ONE, 3, ONE, Fraction(30), 0.1).minimum(edges)
    drawn = [perturbed_minimum(edges, ONE, ONE, 0.1, random) for _ in range(150)]
    scale = math.sqrt(3) * (2 / (2000 * 0.1))
    assert float(drawn[0].noise.scale) * _UNIT == pytest.approx(scale, rel=1e-3)
    noise = np.array([each.theta for each in drawn]) - exact
    assert 0.85 < noise.std() / (math.sqrt(2) * scale) < 1.2
    lengths = np.linalg.norm(noise, axis=1)
    assert (lengths > drawn[0].distance(Fraction(1, 20)) * _UNIT).mean() <= 0.1


def test_neighbours_minima_are_no_further_apart_than_the_sensitivity_and_some_are_almost():
    """Rows that repeat make all losses steep: the largest distance is within a third of 2 R / (n mu)."""
    n, mu, plan = 50, 1.0, LatticeSampling(ONE, 1, ONE, Fraction(30), 1.0)
    most = 0.0
    for sign in (-1.0, 1.0):
        others = np.tile([[0.05], [-0.05]], (n // 2, 1))[: n - 1] * sign
        ends = [plan.minimum(np.vstack([others, [[end]]]))[0] for end in (-1.0, 1.0)]
        most = max(most, abs(ends[0] - ends[1]))
    assert 0.3 * 2 / (n * mu) < most <= 2 / (n * mu)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": Fraction(0)},
        {"radius": Fraction(0)},
        {"norm_bound": 1.0},
        {"d": 0},
        {"curvature": -1.0},
        {"curvature": math.nan},
        {"centre": (1, 2)},
    ],
)
def test_invalid_plans_are_refused(change):
    with pytest.raises(PlanError):
        replace(PLAN, **change)


def test_rows_that_do_not_fit_are_refused():
    wrong = (
        (np.zeros((3, 2)), ShapeError),
        (np.zeros((0, 1)), ShapeError),
        (np.full((3, 1), 2.0), DataError),
    )
    for edges, error in wrong:
        with pytest.raises(error):
            PLAN.draw(edges, SeededRandom(1))
    with pytest.raises(PlanError, match="curvature"):
        perturbed_minimum(rows(10, 2), ONE, ONE, 0.0, SeededRandom(1))


def test_a_result_states_its_epsilon_and_how_many_proposals_were_accepted():
    drawn = PLAN.draw(rows(40, 1), SeededRandom(1))
    assert (drawn.epsilon, drawn.theta.shape) == (3, (1,))
    assert 0 < drawn.accepted <= 1
    assert drawn.statement.startswith("3-differentially private when one row is replaced: exact draws")
    near = localised(rows(200, 2), Fraction(2), ONE, 0.1, SeededRandom(1), Fraction(1, 100))
    assert near.epsilon == 2
    assert near.statement.startswith("2-differentially private")


def test_objective_is_the_summed_loss():
    edges = rows(50, 2)
    plan = LatticeSampling(ONE, 2, ONE, ONE, 0.2)
    theta = np.array([0.3, -0.1])
    assert plan.objective(theta, edges) == pytest.approx(LOGISTIC.total(theta, edges) + 50 * 0.1 * 0.1)
    step = np.array([1e-6, 0.0])
    slope = (plan.objective(theta + step, edges) - plan.objective(theta - step, edges)) / 2e-6
    assert plan.gradient(theta, edges)[0] == pytest.approx(slope, rel=1e-5)
