"""Composition: basic, strong and optimal compared, and optimal against every outcome of k mechanisms."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import PlanError
from dpcore.research.mechanisms import (
    MOST_MECHANISMS,
    basic,
    optimal_delta,
    optimal_epsilon,
    strong,
)

EPSILONS = st.fractions(min_value=Fraction(1, 1000), max_value=5, max_denominator=1000)
DELTAS = st.sampled_from([Fraction(0), Fraction(1, 10**9), Fraction(1, 100)])


def hockey_stick(epsilon: Fraction, delta: Fraction, mechanisms: int, total: float) -> float:
    """By every outcome of the dominating pair: (0 revealed, 1, 2, 3 revealed), for each mechanism."""
    p = (1 - float(delta)) / (1 + math.exp(-epsilon))
    first = (float(delta), p, 1 - float(delta) - p, 0.0)
    found = 0.0
    for outcome in itertools.product(range(4), repeat=mechanisms):
        one, other = (math.prod(distribution[i] for i in outcome) for distribution in (first, first[::-1]))
        found += max(0.0, one - math.exp(total) * other)
    return found


@given(EPSILONS, DELTAS, st.integers(1, 5), st.floats(0, 1.1))
def test_optimal_delta_is_that_of_all_outcomes(epsilon, delta, mechanisms, share):
    total = share * mechanisms * float(epsilon)
    exact = hockey_stick(epsilon, delta, mechanisms, total)
    found = optimal_delta(epsilon, delta, mechanisms, total)
    assert found == pytest.approx(exact, rel=1e-9, abs=1e-13)


@given(EPSILONS, DELTAS, st.integers(1, 40))
def test_optimal_delta_is_the_theorems_where_it_states_one(epsilon, delta, mechanisms):
    """Theorem 3.3, as printed: delta_i at (k - 2i) epsilon, i = 0, ..., floor(k/2)."""
    e, k = float(epsilon), mechanisms
    for i in range(k // 2 + 1):
        terms = (
            math.comb(k, left)
            * math.exp((k - left) * e - k * math.log1p(math.exp(e)))
            * -math.expm1((left - i) * 2 * e)
            for left in range(i)
        )
        printed = 1 - (1 - delta) ** k * (1 - Fraction(math.fsum(terms)))
        assert optimal_delta(epsilon, delta, k, (k - 2 * i) * epsilon) == pytest.approx(
            float(printed), rel=1e-9, abs=1e-12
        )


@given(EPSILONS, DELTAS, st.integers(1, 60), st.fractions(min_value=Fraction(1, 10**8), max_value=Fraction(1, 2)))
def test_optimal_epsilon_inverts_optimal_delta(epsilon, delta, mechanisms, spare):
    total_delta = 1 - (1 - delta) ** mechanisms * (1 - spare)
    total = optimal_epsilon(epsilon, delta, mechanisms, total_delta)
    assert optimal_delta(epsilon, delta, mechanisms, total) <= total_delta * (1 + Fraction(1, 2**50))
    if total > 0:
        assert optimal_delta(epsilon, delta, mechanisms, total * (1 - 1e-6)) > total_delta


@given(EPSILONS, DELTAS, st.integers(1, 200), st.fractions(min_value=Fraction(1, 10**8), max_value=Fraction(1, 2)))
def test_optimal_is_no_worse_than_strong_and_basic(epsilon, delta, mechanisms, slack):
    bound, total_delta = strong(epsilon, delta, mechanisms, slack)
    if total_delta < 1:
        assert optimal_epsilon(epsilon, delta, mechanisms, total_delta) <= bound
    summed, summed_delta = basic([(epsilon, delta)] * mechanisms)
    if summed_delta < 1:
        assert optimal_epsilon(epsilon, delta, mechanisms, summed_delta) <= float(summed) * (1 + 1e-15)


def test_without_a_delta_nothing_is_better_than_basic():
    for mechanisms in (1, 2, 7, 100):
        found = optimal_epsilon(Fraction(1, 10), Fraction(0), mechanisms, Fraction(0))
        assert Fraction(found) >= Fraction(mechanisms, 10)
        assert found == pytest.approx(mechanisms / 10, rel=1e-15)


def test_the_three_bounds_of_a_hundred_mechanisms():
    """Two-sided: strong is far below basic here, optimal a quarter below strong; close to the Gaussian limit."""
    total_delta = Fraction(1, 10**5)
    assert basic([(Fraction(1, 10), Fraction(0))] * 100) == (10, 0)
    bound, stated = strong(Fraction(1, 10), Fraction(0), 100, total_delta)
    assert stated == total_delta
    assert bound == pytest.approx(math.sqrt(200 * math.log(1e5)) / 10 + 10 * math.expm1(0.1), rel=1e-15)
    found = optimal_epsilon(Fraction(1, 10), Fraction(0), 100, total_delta)
    assert 0.7 * bound < found < 0.8 * bound


def test_basic_sums_exactly():
    losses = [(Fraction(1, 3), Fraction(1, 10**6)), (Fraction(2, 3), Fraction(0)), (Fraction(1, 7), Fraction(1, 10**6))]
    assert basic(losses) == (Fraction(8, 7), Fraction(2, 10**6))
    assert basic([]) == (0, 0)
    assert basic([(Fraction(1), Fraction(2, 3))] * 2) == (2, 1)


def test_many_mechanisms_are_composed():
    found = optimal_epsilon(Fraction(1, 200), Fraction(1, 10**12), 20_000, Fraction(1, 10**5))
    # The central limit: epsilon of mu = epsilon sqrt(k) = 0.707, delta 1e-5.
    assert found == pytest.approx(2.93, abs=0.05)


def test_a_total_delta_below_the_revealed_probability_is_refused():
    delta = Fraction(1, 100)
    assert optimal_epsilon(Fraction(1), delta, 1, delta) == pytest.approx(1, rel=1e-15)
    for total in (delta, 1 - (1 - delta) ** 2 - Fraction(1, 10**20), Fraction(1), Fraction(2), Fraction(-1)):
        with pytest.raises(PlanError, match="total delta"):
            optimal_epsilon(Fraction(1), delta, 2, total)
    assert optimal_epsilon(Fraction(1), delta, 2, 1 - (1 - delta) ** 2) == pytest.approx(2, rel=1e-15)


@pytest.mark.parametrize(
    ("epsilon", "delta", "mechanisms"),
    [
        (Fraction(0), Fraction(0), 1),
        (Fraction(151), Fraction(0), 1),
        (0.5, Fraction(0), 1),
        (Fraction(1), Fraction(1), 1),
        (Fraction(1), Fraction(-1), 1),
        (Fraction(1), Fraction(0), 0),
        (Fraction(1), Fraction(0), MOST_MECHANISMS + 1),
    ],
)
def test_losses_out_of_range_are_refused(epsilon, delta, mechanisms):
    for call in (
        lambda: strong(epsilon, delta, mechanisms, Fraction(1, 2)),
        lambda: optimal_delta(epsilon, delta, mechanisms, 1),
        lambda: optimal_epsilon(epsilon, delta, mechanisms, Fraction(1, 2)),
    ):
        with pytest.raises(PlanError, match=r"give|choose"):
            call()


def test_other_arguments_out_of_range_are_refused():
    for slack in (0, 1, -1):
        with pytest.raises(PlanError, match="slack"):
            strong(Fraction(1), Fraction(0), 3, Fraction(slack))
    for total in (-1, math.nan, math.inf):
        with pytest.raises(PlanError, match="total epsilon"):
            optimal_delta(Fraction(1), Fraction(0), 3, total)
    for loss in ((Fraction(-1), Fraction(0)), (Fraction(1), Fraction(2)), (Fraction(1), Fraction(-1))):
        with pytest.raises(PlanError, match="a loss of"):
            basic([loss])
