"""split = exact: the distribution against an adversary who knows the other parties' counts, by enumeration."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.composition import InfiniteEpsilonError, delta_bracket, epsilon_bracket, infinite_mass
from dpcore.accounting.dp_feat import (
    account,
    account_of_exact_split,
    epsilon_for,
    known_rest_distribution,
    sliding_sums,
    truncation,
)
from dpcore.errors import PlanError

HALF = Fraction(1, 2)


def joint(rows, others, low):
    """P(s, j), exactly, from the signatures: uniform over those whose pooled count is admitted."""
    ways = {
        (s, j): math.comb(others, s) * math.comb(rows, j)
        for s in range(others + 1)
        for j in range(rows + 1)
        if low <= s + j <= rows + others - low
    }
    whole = sum(ways.values())
    return {place: Fraction(count, whole) for place, count in ways.items()}


def exact_delta(rows, others, low, n, epsilon, *, reverse):
    """Hockey-stick divergence of n releases for the pair (P(s, j), P(s, j - 1)), or its reverse."""
    p = joint(rows, others, low)
    q = {(s, j + 1): mass for (s, j), mass in p.items()}
    if reverse:
        p, q = q, p
    places = sorted(p.keys() | q.keys())
    pairs = [(float(p.get(place, 0)), float(q.get(place, 0))) for place in places]
    delta = 0.0
    for outcome in itertools.product(pairs, repeat=n):
        delta += max(0.0, math.prod(a for a, _ in outcome) - math.exp(epsilon) * math.prod(b for _, b in outcome))
    return delta


SMALL = [(4, 5, 3), (5, 4, 1), (6, 6, 5), (3, 9, 4), (1, 7, 2), (7, 1, 3), (6, 5, 0)]


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(("rows", "others", "low"), SMALL)
def test_brackets_hold_the_enumerated_delta_in_both_directions(rows, others, low, n):
    distribution = known_rest_distribution(rows, others, low)
    for epsilon in (0.0, 0.4, 1.0, 2.5):
        deltas = [exact_delta(rows, others, low, n, epsilon, reverse=reverse) for reverse in (False, True)]
        assert deltas[0] == pytest.approx(deltas[1], rel=1e-9)
        bracket = delta_bracket(distribution, n, epsilon)
        assert bracket.lower <= deltas[0] * (1 + 1e-12)
        assert deltas[0] <= bracket.upper * (1 + 1e-12)
        assert bracket.upper - bracket.lower <= 0.01 * bracket.upper
        if epsilon > 0 and deltas[0] > 1.001 * infinite_mass(distribution, n):
            back = epsilon_bracket(distribution, n, deltas[0])
            assert back.lower <= epsilon * (1 + 1e-9)
            assert epsilon <= back.upper * (1 + 1e-9)


@pytest.mark.parametrize(("rows", "others", "low"), [*SMALL, (40, 31, 30), (12, 90, 45)])
def test_masses_are_the_exact_ones(rows, others, low):
    distribution, p = known_rest_distribution(rows, others, low), joint(rows, others, low)
    infinite = sum(mass for (s, j), mass in p.items() if (s, j - 1) not in p)
    assert float(distribution.masses[0]) == pytest.approx(float(infinite), rel=1e-12)
    finite = {j: float(sum(m for (s, i), m in p.items() if i == j and (s, j - 1) in p)) for j in range(1, rows + 1)}
    first = distribution.low + 1
    assert distribution.masses[1:].tolist() == pytest.approx(
        [finite[first + i] for i in range(len(distribution.losses))], rel=1e-12
    )
    assert sum(finite.values()) == pytest.approx(float(distribution.masses[1:].sum()), rel=1e-12)
    ratios = [math.log((rows - j + 1) / j) for j in range(first, first + len(distribution.losses))]
    assert distribution.losses.tolist() == pytest.approx(ratios, abs=1e-12)


def test_one_admitted_count_reveals_everything():
    distribution = known_rest_distribution(5, 5, 5)
    assert distribution.masses.tolist() == [1.0]
    assert infinite_mass(distribution, 1) == 1
    assert delta_bracket(distribution, 1, 1.0).lower == 1


def test_large_pools_are_cut_and_agree_with_what_is_not_truncated():
    # So mild a truncation changes nothing, and then the others' counts reveal nothing about the party's own.
    distribution = known_rest_distribution(3000, 50_000, 15_000)
    assert distribution.low > 0
    found, free = epsilon_bracket(distribution, 10, 1e-6), epsilon_for([3000], 10, None, 1e-6)
    assert found.upper == pytest.approx(free.upper, rel=0.01)
    assert found.lower <= free.upper
    assert free.lower <= found.upper


@pytest.mark.parametrize("n", [1, 2])
def test_the_smallest_party_has_the_largest_delta(n):
    for low in (1, 3, 4):
        for epsilon in (0.0, 0.5, 1.5):
            deltas = [exact_delta(m, 10 - m, low, n, epsilon, reverse=False) for m in range(1, 10)]
            assert all(later <= before + 1e-12 for before, later in itertools.pairwise(deltas))
            assert deltas[0] > deltas[-1]


def test_account():
    rows = [418] * 9 + [415]
    found = account_of_exact_split(rows, 100, HALF, 1e-6)
    pool = epsilon_for([4177], 100, HALF, 1e-6)
    assert (found.epsilon, found.epsilon_lower) == (pool.upper, pool.lower)
    low = truncation(4177, HALF)[0]
    assert found.epsilon_if_others_collude == epsilon_bracket(known_rest_distribution(415, 3762, low), 100, 1e-6).upper
    assert (
        found.epsilon < found.epsilon_if_others_collude < account(rows, 100, None, 1e-6).epsilon_if_others_collude * 2
    )
    assert found.theorem_epsilon == 50
    assert (found.rados, found.party_rows, found.delta) == (100, tuple(rows), 1e-6)


def test_splits_are_one_without_truncation_and_for_one_party():
    assert account_of_exact_split([900, 400], 20, None, 1e-6) == account([900, 400], 20, None, 1e-6)
    assert account_of_exact_split([4177], 100, HALF, 1e-6) == account([4177], 100, HALF, 1e-6)


def test_one_pool_truncates_less_than_its_parties():
    # Each of ten parties would reveal too much; the pool's own window is wide.
    rows = [418] * 10
    with pytest.raises(InfiniteEpsilonError):
        account(rows, 100, Fraction(2, 5), 1e-6)
    assert account_of_exact_split(rows, 100, Fraction(2, 5), 1e-6).epsilon < 2


@pytest.mark.parametrize(
    ("rows", "n", "epsilon", "delta"),
    [
        ([], 1, HALF, 1e-6),
        ([0, 5], 1, HALF, 1e-6),
        ([500, 500], 0, HALF, 1e-6),
        ([500, 500], 1, HALF, 0),
        ([500, 500], 1, HALF, math.nan),
        ([500, 500], 1, Fraction(0), 1e-6),
        ([500, 500], 1, Fraction(1, 1000), 1e-6),
        ([500, 500], 1, Fraction(1, 100), 1e-6),
        ([4000, 3], 1, HALF, 1e-6),
    ],
)
def test_bad_and_infinite_plans_are_refused(rows, n, epsilon, delta):
    with pytest.raises(PlanError):
        account_of_exact_split(rows, n, epsilon, delta)


@pytest.mark.parametrize("length", [-1, 0, 1, 2, 3, 6, 7, 8, 30, 10**17])
def test_sliding_sums(length):
    values = np.arange(1.0, 8.0) ** 2
    starts = np.array([-(10**17), -31, -8, -7, -3, -1, 0, 1, 3, 6, 7, 8, 40, 10**17])
    expected = [sum(values[max(0, s) : max(0, s + max(0, length))].tolist()) for s in starts.tolist()]
    assert sliding_sums(values, length, starts).tolist() == expected
