"""Exact parameters: rationals that fit in a pair of 64-bit integers."""

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

from dpcore.errors import ConfigurationError, PlanError

# A longer integer could also make exact evaluation slow.
LARGEST_INTEGER = (1 << 63) - 1

_TINY = Fraction(1, 10**300)

Exact: TypeAlias = Fraction | int | float | str
"""A number as people write it, such as 1, 0.5, "1e-6" or "1/3"; `exact` makes a fraction of it."""


def exact_number(text: str) -> Fraction:
    """The exact value of a decimal or a fraction, such as "1e-6" or "1/2".

    Raises ValueError or ZeroDivisionError, OverflowError if its exponent has four digits or more.
    """
    # Fraction reads the digits of every script, as \d does.
    if re.search(r"[eE][+-]?[\d_]{4,}", text):
        raise OverflowError(f"the exponent of {text!r} is too long")
    # 1_0 is Python's notation for 10, and a slip of the hand for 1.0: a budget is not guessed at.
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r} has characters that numbers do not have")
    return Fraction(text)


def within_doubles(value: Fraction) -> Fraction:
    """The value itself. Raises OverflowError if it is nearer to 0 than 1e-300 or further than 1e300, and not 0."""
    if value and not _TINY <= abs(value) <= 1 / _TINY:
        raise OverflowError("beyond the range of doubles")
    return value


def exact(value: Exact, what: str) -> Fraction:
    """A decimal or a fraction as an exact number; a float counts as its shortest decimal.

    what: who has it, such as --epsilon. Raises ConfigurationError if it is neither.
    """
    if isinstance(value, Fraction):
        return value
    try:
        return within_doubles(exact_number(str(value)))
    except OverflowError as error:
        raise ConfigurationError(f"{what} {value!r} is too large or too small; write, say, 1e-6 or 1/2") from error
    except (ValueError, ZeroDivisionError) as error:
        how = "write a decimal point, as in 0.5" if "," in str(value) else "write, say, 1e-6 or 1/2"
        raise ConfigurationError(f"{what} {value!r} is not a number; {how}") from error


def check_rational(name: str, value: Fraction) -> None:
    """Raise PlanError unless `value` is a positive exact fraction of two 63-bit integers."""
    if not isinstance(value, Fraction):
        raise PlanError(f"{name} is not an exact fraction: write Fraction(1, 2), not 0.5")
    if value <= 0:
        raise PlanError(f"{name} is {value}: make it positive, or leave it out")
    if max(value.numerator, value.denominator) > LARGEST_INTEGER:
        raise PlanError(f"{name} has a numerator or denominator of more than 63 bits: give fewer digits")


# Decimals of bounds, for people, rounded outwards, made from integers. A double stands for a bound that it was rounded
# outwards from, so 0.1 becomes 0.100, and 0.30000000000000004 becomes 0.300.


_FEWEST, _MOST = -5, 15
"""Powers of ten of a number that is written without an exponent."""
_THOUSANDTH = 1e-3


def least_decimal(figure: float, exponent: int) -> Fraction:
    """The least multiple of 10^exponent that is not below the bound for which `figure` stands. figure: finite."""
    unit, before = Fraction(10) ** exponent, math.nextafter(figure, -math.inf)
    least = math.ceil(Fraction(figure) / unit)
    is_decimal = unit > math.ulp(figure) and (least - 1) * unit > before
    return (least - is_decimal) * unit


def greatest_decimal(figure: float, exponent: int) -> Fraction:
    """The greatest multiple of 10^exponent that is not above the bound for which `figure` stands. figure: finite."""
    return -least_decimal(-figure, exponent)


def upper(figure: float, places: int) -> str:
    """An upper bound with so many digits after the point."""
    return _text(least_decimal(figure, -places), places)


def lower(figure: float, places: int) -> str:
    """A lower bound with so many digits after the point."""
    return _text(greatest_decimal(figure, -places), places)


def upper_percent(share: float, places: int) -> str:
    """An upper bound on a share, in percent, without the sign."""
    return _text(100 * least_decimal(share, -places - 2), places)


def lower_percent(share: float, places: int) -> str:
    """A lower bound on a share, in percent, without the sign."""
    return _text(100 * greatest_decimal(share, -places - 2), places)


def upper_digits(figure: float, digits: int) -> str:
    """An upper bound with so many significant digits; zeros at the end are left out. "inf" if it is infinite."""
    if figure == 0 or math.isinf(figure):
        return f"{figure:g}"
    return _short(least_decimal(figure, _power(figure) + 1 - digits))


def lower_digits(figure: float, digits: int) -> str:
    """A lower bound with so many significant digits; zeros at the end are left out. "-inf" if it is infinite."""
    if figure == 0 or math.isinf(figure):
        return f"{figure:g}"
    return _short(greatest_decimal(figure, _power(figure) + 1 - digits))


def rounded_up(figure: float) -> str:
    """A privacy parameter, as statements print it: four significant digits or more, rounded up. figure: at least 0."""
    if figure == 0:
        return "0"
    return upper(figure, max(3 - _power(figure), 0))


def up(epsilon: float) -> str:
    """A privacy parameter, as plans print it: rounded up to a thousandth, a smaller one to two digits."""
    if 0 < epsilon < _THOUSANDTH:
        return upper_digits(epsilon, 2)
    return upper(epsilon, 3)


def _power(figure: float) -> int:
    """That of ten of the first digit."""
    return Decimal(figure).adjusted()


def _short(value: Fraction) -> str:
    """All digits of a decimal, with an exponent if it is very small or very large."""
    power, shifted = 0, value
    while abs(shifted) >= 10:
        power, shifted = power + 1, shifted / 10
    while 0 < abs(shifted) < 1:
        power, shifted = power - 1, shifted * 10
    if _FEWEST <= power < _MOST:
        return _text(value, max(0, _places(value)))
    return f"{_text(shifted, _places(shifted))}e{power:+03d}"


def _places(value: Fraction) -> int:
    """How many digits a decimal has after the point."""
    places = 0
    while value.denominator != 1:
        value, places = value * 10, places + 1
    return places


def _text(value: Fraction, places: int) -> str:
    """A multiple of 10^-places."""
    digits = f"{abs(int(value * 10**places)):0{places + 1}d}"
    point = f".{digits[-places:]}" if places else ""
    return f"{'-' * (value < 0)}{digits[: len(digits) - places]}{point}"
