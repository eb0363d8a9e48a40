"""Exact parameters: rationals that fit in a pair of 64-bit integers."""

import re
from fractions import Fraction

from dpcore.errors import PlanError

# A longer integer could also make exact evaluation slow.
LARGEST_INTEGER = (1 << 63) - 1

_TINY = Fraction(1, 10**300)


def exact_number(text: str) -> Fraction:
    """The exact value of a decimal or a fraction, such as "1e-6" or "1/2".

    Raises ValueError or ZeroDivisionError if the text is not a number, OverflowError if its exponent has four digits or
    more: written out, such a number may not fit in memory.
    """
    # Fraction reads the digits of every script, as \d does.
    if re.search(r"[eE][+-]?[\d_]{4,}", text):
        raise OverflowError(f"the exponent of {text!r} is too long")
    # 1_0 is Python's notation for 10, and a slip of the hand for 1.0: a budget is not guessed at.
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r} has characters that numbers do not have")
    return Fraction(text)


def within_doubles(value: Fraction) -> Fraction:
    """The value itself. Raises OverflowError if it is nearer to 0 than 1e-300 or further than 1e300, and not 0.

    Such a number is 0 or infinite where it meets a double.
    """
    if value and not _TINY <= abs(value) <= 1 / _TINY:
        raise OverflowError("beyond the range of doubles")
    return value


def check_rational(name: str, value: Fraction) -> None:
    """Raise PlanError unless `value` is a positive exact fraction of two 63-bit integers."""
    if not isinstance(value, Fraction):
        raise PlanError(f"{name} is not an exact fraction: write Fraction(1, 2), not 0.5")
    if value <= 0:
        raise PlanError(f"{name} is {value}: make it positive, or leave it out")
    if max(value.numerator, value.denominator) > LARGEST_INTEGER:
        raise PlanError(f"{name} has a numerator or denominator of more than 63 bits: give fewer digits")
