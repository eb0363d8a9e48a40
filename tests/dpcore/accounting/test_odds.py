"""Chances before and after: against exact distributions, whose odds are computed outcome by outcome."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.odds import EXCEPTIONS, Chance, chance_after, exceptions, right_guesses
from dpcore.errors import PlanError


def tight_pair(epsilon: float, delta: float) -> tuple[list[float], list[float]]:
    """The pair of distributions that every (epsilon, delta)-private pair is a function of (Kairouz and others 2015)."""
    e = math.exp(epsilon)
    high, low = (1 - delta) * e / (1 + e), (1 - delta) / (1 + e)
    return [delta, high, low, 0.0], [0.0, low, high, delta]


@given(st.floats(0.01, 8), st.floats(0.01, 0.99))
def test_without_delta_the_chance_after_is_that_of_randomized_response(epsilon, before):
    p, q = tight_pair(epsilon, 0.0)
    reached = before * p[1] / (before * p[1] + (1 - before) * q[1])
    stated = chance_after(before, epsilon, 0.0).probability
    assert reached - 1e-9 <= stated <= reached + 1e-9


@given(st.floats(0.1, 8), st.floats(1e-8, 1e-3), st.floats(0.01, 0.99))
def test_with_delta_it_is_exceeded_as_seldom_as_stated(epsilon, delta, before):
    p, q = tight_pair(epsilon, delta)
    stated = chance_after(before, epsilon, delta).probability
    exceeded = [
        outcome
        for outcome in range(4)
        if before * p[outcome] > stated * (before * p[outcome] + (1 - before) * q[outcome])
    ]
    assert exceeded == [0]
    assert max(sum(p[o] for o in exceeded), sum(q[o] for o in exceeded)) <= exceptions(delta)


def test_the_exceptions_are_needed_where_delta_is_spread():
    # On a set of probability 50 delta the ratio of the densities is e^epsilon / (1 - 1/50): that is private, and it
    # exceeds the stated chance with that probability. A claim of fewer exceptions would be false.
    epsilon, delta, k = 1.0, 1e-4, 0.5 * EXCEPTIONS
    mass = k * delta
    ratio = math.exp(epsilon) / (1 - 1 / k)
    assert mass - math.exp(epsilon) * (mass / ratio) == pytest.approx(delta)
    assert mass / (mass + mass / ratio) > chance_after(0.5, epsilon, delta).probability
    assert mass <= exceptions(delta)


@given(st.floats(0.0, 8), st.floats(0.0, 0.5))
def test_the_best_guess_is_right_as_often_as_stated(epsilon, delta):
    p, q = tight_pair(epsilon, delta)
    best = sum(max(a, b) for a, b in zip(p, q, strict=True)) / 2
    assert best - 1e-9 <= right_guesses(epsilon, delta).probability <= best + 1e-9


@pytest.mark.parametrize(
    ("epsilon", "delta", "said"),
    [(0, 0, "50 of 100"), (1, 0, "73.2 of 100"), (1, 1e-6, "73.4 of 100"), (10, 1e-5, "99.996 of 100")],
)
def test_words_for_an_epsilon(epsilon, delta, said):
    assert chance_after(0.5, epsilon, delta).of_100() == said


@given(st.fractions(0, 1, max_denominator=10**9))
def test_words_are_never_below_the_chance(doubt):
    text, of, hundred = Chance(float(doubt)).of_100().partition(" of 100")
    assert (of, hundred) == (" of 100", "")
    above = Fraction(text) - (100 - 100 * doubt)
    assert Fraction(-1, 10**8) <= above <= Fraction(11, 100)
    if 100 * doubt >= 1e-9:
        assert Fraction(text) < 100 + Fraction(1, 10**9)


def test_no_figure_claims_certainty_unless_nothing_is_left():
    assert chance_after(0.5, 20, 0).of_100() == "99.9999998 of 100"
    assert chance_after(0.5, 1000, 0).of_100() == "100 of 100"
    assert chance_after(0.5, 0, 0.01).of_100() == "100 of 100"


@pytest.mark.parametrize(
    "arguments", [(0, 1, 0), (1, 1, 0), (0.5, -1, 0), (0.5, math.nan, 0), (0.5, 1, 1), (0.5, 1, -1)]
)
def test_arguments_out_of_range(arguments):
    with pytest.raises(PlanError):
        chance_after(*arguments)


@pytest.mark.parametrize("arguments", [(-1, 0), (math.nan, 0), (1, 1), (1, -1)])
def test_arguments_of_guesses_out_of_range(arguments):
    with pytest.raises(PlanError):
        right_guesses(*arguments)
