"""Exact numbers become doubles on the side where the bound stays valid."""

import math
from fractions import Fraction
from operator import attrgetter

import mpmath as mp
import pytest

from dpcore.accounting import concentrated, dp_feat, gaussian, mixed

NUMBERS = [Fraction(1, 3), Fraction(2, 3), Fraction(3, 8), Fraction(1, 10**20), Fraction(10**17 - 1, 10**17)]
DOWN = [gaussian.check_delta, gaussian.check_epsilon, dp_feat._delta, concentrated._down]
UP = [mixed._up, concentrated._rho]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("down", DOWN, ids=attrgetter("__name__"))
def test_what_is_granted_is_rounded_down(down, number):
    assert Fraction(down(number)) <= number < Fraction(math.nextafter(down(number), math.inf))
    assert down(float(down(number))) == down(number)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("up", UP, ids=attrgetter("__name__"))
def test_what_is_spent_is_rounded_up(up, number):
    assert Fraction(up(number)) >= number > Fraction(math.nextafter(up(number), 0))
    assert up(Fraction(up(number))) == up(number)


@pytest.mark.parametrize("delta", [*NUMBERS, Fraction(3**900, 7**900), Fraction(1, 10**400)])
def test_the_logarithm_of_a_delta_is_rounded_down(delta):
    unit = math.ulp(math.log(delta.denominator))
    with mp.workdps(60):
        below = (mp.log(delta.numerator) - mp.log(delta.denominator)) - concentrated._log_delta(delta)
        assert 0 <= below <= 4 * unit
