"""Exponential sampling: the exact draw and its epsilon, the walk, bounds on the excess, statements."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.errors import ConfigurationError, DataError, PlanError, ShapeError
from dpcore.randomness.sources import SeededRandom
from dpcore.records.losses import HINGE, LOGISTIC, Ball, Box
from dpcore.research.erm import SCORE_BITS, ExponentialSampling, GridSampling, line

RADIUS = 2.0
PLAN = ExponentialSampling(Fraction(3), 1, Fraction(1), Ball(RADIUS))
GRID = GridSampling(line(RADIUS, 9), Fraction(3), Fraction(1))
EDGES = np.random.default_rng(5).uniform(-0.4, 1.0, size=(40, 1))


def grid_distribution(plan, edges):
    """Probabilities of the candidates, by the definition."""
    exponents = -float(plan.epsilon) * plan.scores(edges) / (2 * plan.width)
    weights = np.exp(exponents - exponents.max())
    return weights / weights.sum()


def walk_distribution(plan, edges, cuts):
    """Probabilities of the intervals between cuts, by quadrature of the density."""
    theta = np.linspace(-RADIUS, RADIUS, 40_001)
    losses = plan.loss.value(theta[:, np.newaxis] * edges[:, 0]).sum(axis=1)
    density = np.exp(-plan.rate * (losses - losses.min()))
    return np.histogram(theta, cuts, weights=density)[0] / density.sum()


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE])
def test_the_exact_draw_has_the_distribution_and_no_other(loss):
    plan, random = replace(GRID, loss=loss), SeededRandom(2)
    drawn = np.concatenate([plan.draw(EDGES, random).theta for _ in range(1500)])
    counts = np.array([(drawn == candidate).sum() for candidate in plan.candidates[:, 0]])
    distribution = grid_distribution(plan, EDGES)
    assert distribution.max() > 1.5 * distribution.min()
    assert stats.chisquare(counts, distribution * len(drawn)).pvalue > 1e-4
    for scale in (0.4, 1.8):
        other = grid_distribution(replace(plan, epsilon=plan.epsilon * Fraction(scale)), EDGES)
        assert stats.chisquare(counts, other * len(drawn)).pvalue < 1e-4


@pytest.mark.parametrize("loss", [LOGISTIC, HINGE])
@pytest.mark.parametrize("candidates", [line(RADIUS, 9), np.array([[0.0, 1.0], [0.3, -0.2], [-2.0, 0.5]])])
def test_no_replaced_record_changes_the_distribution_by_more_than_epsilon(loss, candidates):
    plan = replace(GRID, loss=loss, candidates=candidates)
    d, random = candidates.shape[1], np.random.default_rng(1)
    ends = candidates / np.linalg.norm(candidates, axis=1).max()
    worst = 0.0
    for trial in range(200):
        # Other records that concentrate the distribution at one end, and two of opposite effect there.
        others = np.repeat(ends[[trial % len(ends)]], trial % 12 * 5, axis=0) if trial % 2 else np.zeros((3, d))
        first, second = (
            x / max(1, np.linalg.norm(x)) for x in (ends[0] * random.choice([-1, 1]), random.normal(size=d) * 2)
        )
        distributions = [grid_distribution(plan, np.vstack([others, record])) for record in (first, second)]
        worst = max(worst, np.abs(np.log(distributions[0] / distributions[1])).max())
    assert worst <= float(plan.epsilon) * (1 + 1e-9)
    # Linear where margins are below 1 only, so less than all is reached; half of epsilon at least.
    assert worst > 0.4 * float(plan.epsilon)


def test_linear_losses_need_the_factor_two():
    """Hinge losses of margins up to 1 are linear: with many records at one end, a replaced one moves all of epsilon."""
    plan = replace(GRID, loss=HINGE, candidates=line(1.0, 3), epsilon=Fraction(2))
    others = np.ones((400, 1))
    distributions = [grid_distribution(plan, np.vstack([others, [[edge]]])) for edge in (-1.0, 1.0)]
    ratio = np.log(distributions[0] / distributions[1]).max()
    assert 0.999 * 2 < ratio <= 2 * (1 + 1e-9)


@pytest.mark.slow
def test_the_walk_agrees_with_the_density_in_one_dimension():
    cuts = np.linspace(-RADIUS, RADIUS, 6)
    drawn = [PLAN.walk(EDGES, 40, SeededRandom(seed)).theta[0] for seed in range(600)]
    counts = np.histogram(drawn, cuts)[0]
    assert stats.chisquare(counts, walk_distribution(PLAN, EDGES, cuts) * len(drawn)).pvalue > 1e-4
    for scale in (0.4, 1.8):
        other = replace(PLAN, epsilon=PLAN.epsilon * Fraction(scale))
        assert stats.chisquare(counts, walk_distribution(other, EDGES, cuts) * len(drawn)).pvalue < 1e-3


def test_the_walk_agrees_with_the_exact_draw():
    """On many candidates, with the epsilon at which both have the same rate."""
    fine = GridSampling(line(RADIUS, 401), PLAN.epsilon / 2, Fraction(1))
    assert fine.width == pytest.approx(2**SCORE_BITS * RADIUS, rel=1e-3)
    cuts = np.linspace(-RADIUS, RADIUS, 6)
    exact = np.histogram(fine.candidates[:, 0], cuts, weights=grid_distribution(fine, EDGES))[0]
    assert np.allclose(exact, walk_distribution(PLAN, EDGES, cuts), atol=0.01)


def test_the_rate_is_the_papers():
    plan = ExponentialSampling(Fraction(1, 2), 2, Fraction(3), Box((0.0, 0.0), (3.0, 4.0)))
    assert plan.rate == pytest.approx(0.5 / (2 * 3 * 5))


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 3])
def test_the_excess_is_within_its_bound(d):
    """Of the exact distribution in one dimension, of the walk in three."""
    plan = replace(PLAN, d=d, epsilon=Fraction(10))
    random = np.random.default_rng(2)
    edges = random.normal(size=(60, d)) * 0.3 + 0.2
    edges /= np.maximum(1, np.linalg.norm(edges, axis=1, keepdims=True))
    if d == 1:
        theta = np.linspace(-RADIUS, RADIUS, 10_001)
        losses = LOGISTIC.value(theta[:, np.newaxis] * edges[:, 0]).sum(axis=1)
        weights = np.exp(-plan.rate * (losses - losses.min()))
        excess = weights @ losses / weights.sum() - losses.min()
    else:
        grid = np.stack(np.meshgrid(*[np.linspace(-2, 2, 21)] * 3), axis=-1).reshape(-1, 3)
        inside = grid[np.linalg.norm(grid, axis=1) <= RADIUS]
        least = LOGISTIC.value(inside @ edges.T).sum(axis=1).min()
        drawn = [plan.walk(edges, 150, SeededRandom(seed)).theta for seed in range(60)]
        assert all(plan.convex_set.contains(theta) for theta in drawn)
        excess = np.mean([LOGISTIC.total(theta, edges) for theta in drawn]) - least
    assert 0.2 * plan.excess_bound < excess <= plan.excess_bound
    assert plan.excess_bound == pytest.approx(d * 2 * 1 * 2 * RADIUS / 10)


def test_the_exact_draws_excess_is_within_its_bound():
    for epsilon in (Fraction(1), Fraction(30)):
        plan = replace(GRID, epsilon=epsilon)
        scores = np.ldexp(plan.scores(EDGES).astype(float), -SCORE_BITS)
        excess = grid_distribution(plan, EDGES) @ scores - scores.min()
        assert 0 < excess <= plan.excess_bound
    assert plan.excess_bound == pytest.approx(math.log(9) * 2 * 2.0 / 30, rel=1e-3)


def test_results_claim_only_what_is_proved():
    walked, drawn = PLAN.walk(EDGES, 30, SeededRandom(1)), GRID.draw(EDGES, SeededRandom(1))
    assert walked.epsilon is None
    assert walked.statement.startswith("No epsilon is claimed for this output.")
    assert "not bounded here" in walked.statement
    assert 0 < walked.accepted < 1
    assert drawn.epsilon == 3
    assert drawn.statement.startswith("3-differentially private when one row is replaced: an exact draw from 9")


def test_scores_are_integers_within_the_width():
    scores = GRID.scores(EDGES[:1])
    assert scores.dtype == np.int64
    assert np.ptp(scores) <= GRID.width
    assert np.allclose(np.ldexp(scores, -SCORE_BITS), LOGISTIC.value(GRID.candidates[:, 0] * EDGES[0, 0]), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: replace(PLAN, epsilon=Fraction(0)), PlanError),
        (lambda: replace(PLAN, norm_bound=1.0), PlanError),
        (lambda: replace(PLAN, convex_set=Box((0.0, 0.0), (1.0, 1.0))), ShapeError),
        (lambda: PLAN.walk(EDGES, 0, SeededRandom(1)), PlanError),
        (lambda: PLAN.walk(EDGES * 5, 5, SeededRandom(1)), DataError),
        (lambda: PLAN.walk(EDGES[:, 0], 5, SeededRandom(1)), ShapeError),
        (lambda: replace(GRID, candidates=np.zeros((1, 1))), ShapeError),
        (lambda: replace(GRID, candidates=np.zeros((4, 1)), loss=HINGE), ConfigurationError),
        (lambda: replace(GRID, candidates=np.full((4, 1), np.inf)), DataError),
        (lambda: replace(GRID, epsilon=0.5), PlanError),
        (lambda: GRID.scores(EDGES * np.nan), DataError),
    ],
)
def test_invalid_samplers_are_refused(make, error):
    with pytest.raises(error):
        make()


def test_candidates_are_a_frozen_copy():
    given = line(1.0, 3)
    plan = GridSampling(given, Fraction(1), Fraction(1))
    given[0] = 9
    assert plan.candidates[0, 0] == -1
    with pytest.raises(ValueError, match="read-only"):
        plan.candidates[0] = 2
