"""Printed bounds: decimals that are not below the exact bound, and not above it without need."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.pure import PureLoss
from dpcore.numbers.decimals import least_decimal
from dpcore.queries.statement import rounded_up
from radofed.planning.cost import two_digits_up, up


@given(st.integers(1, 99_999), st.integers(-8, -3))
def test_an_exact_decimal_is_printed_as_it_is(digits, exponent):
    """The accounting's figure is the next double from the decimal on, such as 0.30000000000000004."""
    exact = digits * Fraction(10) ** exponent
    assert least_decimal(PureLoss(exact).epsilon(Fraction(0)).upper, exponent) == exact


@given(st.floats(1e-12, 1e12), st.integers(-14, 2))
def test_a_figure_is_rounded_up_by_less_than_a_unit(figure, exponent):
    found, unit = least_decimal(figure, exponent), Fraction(10) ** exponent
    assert found % unit == 0
    assert math.nextafter(figure, 0) < found < Fraction(figure) + unit


@pytest.mark.parametrize("bound", [Fraction(1, 3), Fraction(2, 3), Fraction("0.10001"), Fraction("0.1000000000001")])
def test_what_is_no_decimal_of_so_many_digits_is_rounded_up(bound):
    figure = PureLoss(bound).epsilon(Fraction(0)).upper
    assert bound < least_decimal(figure, -4) < bound + Fraction(1, 10**4)


def test_printed_figures():
    # One double above a quarter may stand for a bound above it.
    quarter = math.nextafter(0.25, 1)
    texts = [rounded_up(figure) for figure in (0, 0.1, 0.1 + 0.2, quarter, 0.09999999981960173, 1e-7, 12.0, 123456.5)]
    assert texts == ["0", "0.1000", "0.3000", "0.2501", "0.10000", "0.00000010000", "12.00", "123457"]
    assert [up(figure) for figure in (0.1, 0.1 + 0.2, quarter, 0.0001)] == ["0.100", "0.300", "0.251", "0.0001"]
    assert [two_digits_up(figure) for figure in (0.1, 0.1 + 0.2, 0.101)] == ["0.1", "0.3", "0.11"]
