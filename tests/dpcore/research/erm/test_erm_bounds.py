"""Lower bounds on every private algorithm, beside what an exact mechanism loses at 10,000 rows; times; orders."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.gaussian import gaussian_mu
from dpcore.errors import PlanError
from dpcore.records.losses import HINGE
from dpcore.research.erm import GridSampling
from dpcore.research.erm_bounds import (
    StronglyConvex,
    codewords,
    hard_rows,
    lower_bound_approximate,
    lower_bound_lipschitz,
    lower_bound_strongly_convex,
    moved_records,
    sampling_time,
    spread_code,
)
from dpcore.research.mechanisms import ExponentialMechanism

N, P = 10_000, 48


@pytest.fixture(scope="module")
def code():
    return spread_code(P, 64, np.random.default_rng(1))


def test_as_many_codewords_as_promised_exist_and_differ():
    for p in (1, 2, 5, 9, 12):
        near = sum(math.comb(p, j) for j in range(math.ceil(p / 4)))
        assert codewords(p) == math.ceil(2**p / near)
    found = spread_code(12, codewords(12), np.random.default_rng(2))
    assert len(found) == codewords(12) == 52
    apart = [np.count_nonzero(a != b) for i, a in enumerate(found) for b in found[:i]]
    assert min(apart) >= 3
    with pytest.raises(PlanError, match="promised"):
        spread_code(12, 53, np.random.default_rng(2))


def test_no_theta_is_good_for_two_codewords(code):
    """The regions of the proof do not meet: the best theta for a pair is outside of one of them."""
    unit, lost = code / math.sqrt(P), 1 - math.sqrt(3) / 2
    for i in range(0, 64, 7):
        for j in range(i):
            between = unit[i] + unit[j]
            best = between / np.linalg.norm(between)
            assert min(best @ unit[i], best @ unit[j]) <= 1 - lost + 1e-12
            assert np.linalg.norm(unit[i] - unit[j]) >= 1 - 1e-12


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1)])
def test_an_exact_mechanism_loses_more_than_the_lower_bound_and_less_than_its_upper_one(code, epsilon):
    """Linear losses, Theorems 3.2 and 5.2: what must be lost, is lost, and need not be lost, at 10,000 rows."""
    candidates = code / math.sqrt(P)
    plan, moved = GridSampling(candidates, epsilon, Fraction(1), HINGE), moved_records(N, P, epsilon)
    least = lower_bound_lipschitz(N, P, epsilon)
    mechanism = ExponentialMechanism(epsilon, Fraction(plan.width))
    worst, expected = 0.0, 0.0
    for word in code[:8]:
        edges = hard_rows(word, N, moved)
        losses = HINGE.value(edges @ candidates.T).sum(axis=0)
        chances = mechanism.probabilities([-score for score in plan.scores(edges).tolist()])
        worst = max(worst, float(chances[losses - losses.min() >= least].sum()))
        expected = max(expected, float(chances @ (losses - losses.min())))
    assert worst > 0.5
    assert least / 2 < expected <= plan.excess_bound


def test_an_algorithm_without_privacy_beats_the_lower_bound(code):
    edges = hard_rows(code[0], N, moved_records(N, P, Fraction(1)))
    best = edges.sum(axis=0) / np.linalg.norm(edges.sum(axis=0))
    assert (
        np.linalg.norm(edges.sum(axis=0)) - edges.sum(axis=0) @ best < 1e-9 < lower_bound_lipschitz(N, P, Fraction(1))
    )


def test_lower_bounds_are_of_the_papers_orders():
    one = Fraction(1)
    # p / epsilon, until n records are not enough.
    assert lower_bound_lipschitz(N, 400, one) == pytest.approx(4 * lower_bound_lipschitz(N, 100, one), rel=0.15)
    assert lower_bound_lipschitz(N, 100, one / 10) == pytest.approx(10 * lower_bound_lipschitz(N, 100, one), rel=0.1)
    assert lower_bound_lipschitz(50, 10_000, one) == pytest.approx((1 - math.sqrt(3) / 2) * 50)
    # p^2 / (epsilon^2 n).
    ratio = lower_bound_strongly_convex(N, 400, one) / lower_bound_strongly_convex(2 * N, 400, one)
    assert ratio == pytest.approx(2)
    assert lower_bound_strongly_convex(N, 400, one) == pytest.approx(moved_records(N, 400, one) ** 2 / (8 * N))


@pytest.mark.parametrize("p", [2, 10, 100])
def test_lower_bounds_are_below_upper_ones_for_every_size(p):
    for n in (100, 10_000, 10**6):
        for epsilon in (Fraction(1, 100), Fraction(1), Fraction(5)):
            # The unit ball, L = 1: d / k, and losing everything.
            assert lower_bound_lipschitz(n, p, epsilon) <= min(2 * n, p * 4 / float(epsilon))
            curved = StronglyConvex(n, p, 1.0, 1.0, epsilon)
            assert lower_bound_strongly_convex(n, p, epsilon) <= min(2 * n, curved.output_perturbation(0.0))


def test_a_private_mean_loses_more_than_fingerprints_demand_and_less_than_its_noise():
    """Theorem 5.5 beside the Gaussian mechanism: the rows' mean with noise, which loses n / 2 times its square."""
    epsilon, delta = Fraction(1), Fraction(1, 10**8)
    for n, p in ((1000, 20_000), (10_000, 20_000), (10_000, 200_000)):
        least = lower_bound_approximate(n, p, epsilon, delta)
        # Two rows of length 1 are 2 apart; noise beyond the ball is projected, so no more than 2 n is lost.
        sigma = 2 / n / gaussian_mu(epsilon, delta)
        assert 0 < least <= min(2 * n, n / 2 * p * sigma**2)
        # Of the paper's order, within a constant that the proof and the mechanism share.
        assert least > min(n, p / n) / 2000
    # Without privacy nothing is lost, and with a large delta nothing need be.
    assert lower_bound_approximate(1000, 20_000, epsilon, Fraction(1, 20)) < lower_bound_approximate(
        1000, 20_000, epsilon, delta
    )
    assert lower_bound_approximate(10_000, 50, epsilon, delta) < 50 / 10_000


def test_the_fingerprinting_lemma_holds_for_any_answer():
    """E[f sum (x_i - P)] + E[(f - P)^2] >= 1/3, exactly, over all inputs of three rows and the moments of P."""
    random, points = np.random.default_rng(3), np.polynomial.legendre.leggauss(8)
    signs = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T
    answers = [random.uniform(-1, 1, 8), np.sign(signs.sum(axis=1)), signs.mean(axis=1), np.zeros(8)]
    for answer in answers:
        total = 0.0
        for mean, weight in zip(*points, strict=True):
            chances = np.prod((1 + signs * mean) / 2, axis=1)
            moment = answer * (signs - mean).sum(axis=1) + (answer - mean) ** 2
            total += weight / 2 * float(chances @ moment)
        assert total >= 1 / 3 - 1e-12
    # It is reached by an answer that is always 0.
    assert total == pytest.approx(1 / 3)


def test_strongly_convex_bounds_have_their_orders_in_n():
    small, large = (StronglyConvex(n, 5, 1.0, 0.1, Fraction(1)) for n in (10_000, 40_000))
    assert small.output_perturbation(0.25) == pytest.approx(4 * large.output_perturbation(0.25))
    assert small.localised(0.01) == pytest.approx(4 * large.localised(0.01))
    assert small.output_perturbation_lipschitz(2.0) == pytest.approx(large.output_perturbation_lipschitz(2.0))
    # Localised sampling beats sampling in the whole ball from some n on: p / k with |C| = 2.
    whole = 5 * 2 * 1.0 * 2
    assert large.localised(0.01) < whole * 4
    assert StronglyConvex(10**6, 5, 1.0, 0.1, Fraction(1)).localised(0.01) < whole


def test_gamma_tails_and_moments_are_those_of_the_noise():
    bounds = StronglyConvex(1000, 6, 1.0, 0.1, Fraction(2))
    lengths = np.random.default_rng(3).gamma(6, bounds.sensitivity / 2, 40_000)
    assert 0.001 < (lengths > bounds.distance(2, 0.05)).mean() <= 0.05
    expected = (0.1 + 0.25) * 1000 / 2 * np.mean(lengths**2)
    assert expected == pytest.approx(bounds.output_perturbation(0.25), rel=0.03)


def test_equation_nine_grows_as_it_says_and_is_far_beyond_rejection():
    assert sampling_time(20_000, 3, 1.0, 2.0) == pytest.approx(16 * sampling_time(10_000, 3, 1.0, 2.0))
    assert sampling_time(100, 60, 1e-3, 2.0) == pytest.approx(4 * 60**3 * 1e6 * 60 * math.log(2 * 60 * 100))
    # 10,000 rows and 3 coordinates: 10^18 steps, where rejection takes a few proposals over all rows.
    assert sampling_time(10_000, 3, 1.0, 2.0) > 1e18


def test_sizes_out_of_range_are_refused():
    for wrong in (
        lambda: codewords(0),
        lambda: moved_records(10, 3, Fraction(0)),
        lambda: StronglyConvex(10, 3, 1.0, 0.0, Fraction(1)),
        lambda: StronglyConvex(0, 3, 1.0, 1.0, Fraction(1)),
        lambda: sampling_time(0, 1, 1.0, 1.0),
        lambda: lower_bound_approximate(0, 1, Fraction(1), Fraction(0)),
        lambda: lower_bound_approximate(1, 1, Fraction(1), Fraction(1)),
    ):
        with pytest.raises(PlanError):
            wrong()
