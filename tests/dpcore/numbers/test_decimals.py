"""Printed bounds: upper ones are not below the exact bound, lower ones not above it, neither without need."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.mixed import PureLoss
from dpcore.numbers.rationals import (
    greatest_decimal,
    least_decimal,
    lower,
    lower_digits,
    lower_percent,
    rounded_up,
    up,
    upper,
    upper_digits,
    upper_percent,
)


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
    assert [upper_digits(figure, 2) for figure in (0.1, 0.1 + 0.2, 0.101)] == ["0.1", "0.3", "0.11"]


# Huge, small and subnormal ones too.
_FIGURES = st.floats(allow_nan=False, allow_infinity=False)
_POSITIVE = st.floats(min_value=0, allow_infinity=False)


def below(figure, count=1):
    for _ in range(count):
        figure = math.nextafter(figure, -math.inf)
    return Fraction(figure)


def above(figure):
    return -below(-figure)


@given(_FIGURES, st.integers(0, 12))
def test_a_printed_end_is_outside_and_near(figure, places):
    unit = Fraction(1, 10**places)
    high, low = Fraction(upper(figure, places)), Fraction(lower(figure, places))
    assert below(figure) < high < Fraction(figure) + unit
    assert Fraction(figure) - unit < low < above(figure)
    assert low <= high


@given(_FIGURES.filter(bool), st.integers(1, 8))
def test_a_printed_end_of_some_digits_is_outside_and_near(figure, digits):
    high, low = Fraction(upper_digits(figure, digits)), Fraction(lower_digits(figure, digits))
    # A unit of the last digit is at most this share of the figure.
    unit = abs(Fraction(figure)) / 10 ** (digits - 1)
    assert below(figure) < high < Fraction(figure) + unit
    assert Fraction(figure) - unit < low < above(figure)


@given(st.floats(0, 1), st.integers(0, 3))
def test_a_printed_share_is_outside_and_near(share, places):
    high, low = (Fraction(each(share, places)) / 100 for each in (upper_percent, lower_percent))
    unit = Fraction(1, 10 ** (places + 2))
    assert below(share) < high < Fraction(share) + unit
    assert Fraction(share) - unit < low < above(share)


@given(_POSITIVE)
def test_a_printed_privacy_parameter_is_no_smaller(figure):
    for text in (rounded_up(figure), up(figure)):
        assert Fraction(text) > below(figure)
    assert Fraction(rounded_up(figure)) <= Fraction(figure) * Fraction(1001, 1000) or figure > 1000


@given(_FIGURES, st.integers(-330, 300))
def test_lower_ends_mirror_upper_ones(figure, exponent):
    assert greatest_decimal(figure, exponent) == -least_decimal(-figure, exponent)


def test_printed_ends():
    assert [upper(each, 2) for each in (0.0, 0.1, 1 / 3, -1 / 3, 1e22, 5e-324)] == [
        "0.00", "0.10", "0.34", "-0.33", "10000000000000000000000.00", "0.01",
    ]  # fmt: skip
    assert [lower(each, 2) for each in (0.0, 0.3, 1 / 3, -1 / 3, 5e-324)] == ["0.00", "0.30", "0.33", "-0.34", "0.00"]
    assert [upper_digits(each, 3) for each in (0.0, 0.1, 12345.6, 2e-7, 1e300, 5e-324, 99.96, math.inf)] == [
        "0", "0.1", "12400", "2e-07", "1e+300", "4.95e-324", "100", "inf",
    ]  # fmt: skip
    assert [lower_digits(each, 3) for each in (12345.6, 1 / 3, 5e-324, -1234.5)] == [
        "12300", "0.333", "4.94e-324", "-1240",
    ]  # fmt: skip
    assert (lower_percent(0.12345, 1), upper_percent(0.12345, 1)) == ("12.3", "12.4")
    assert (lower_percent(0.95, 1), upper_percent(1.0, 1), lower_percent(0.0, 1)) == ("95.0", "100.0", "0.0")
