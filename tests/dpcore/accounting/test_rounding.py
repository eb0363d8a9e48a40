"""Exact numbers become doubles on the side where the bound stays valid."""

import math
from fractions import Fraction

import pytest

from dpcore.accounting import concentrated, dp_feat, gaussian, pure

NUMBERS = [Fraction(1, 3), Fraction(2, 3), Fraction(3, 8), Fraction(1, 10**20), Fraction(10**17 - 1, 10**17)]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "down", [gaussian.check_delta, gaussian.check_epsilon, dp_feat._delta, concentrated._down], ids=str
)
def test_what_is_granted_is_rounded_down(down, number):
    assert Fraction(down(number)) <= number < Fraction(math.nextafter(down(number), math.inf))
    assert down(float(down(number))) == down(number)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("up", [pure._up, concentrated._rho], ids=str)
def test_what_is_spent_is_rounded_up(up, number):
    assert Fraction(up(number)) >= number > Fraction(math.nextafter(up(number), 0))
    assert up(Fraction(up(number))) == up(number)
