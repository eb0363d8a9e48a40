"""Exact parameters: what may travel as a pair of 64-bit integers."""

import re
from fractions import Fraction

from dpcore.errors import PlanError

# A longer one could also make its exact evaluation slow.
LARGEST_INTEGER = (1 << 63) - 1


def exact_number(text: str) -> Fraction:
    """The number that a decimal or a fraction such as "1e-6" or "1/2" stands for.

    Raises ValueError or ZeroDivisionError where it is none, OverflowError where its exponent has four digits or more:
    written out, such a number may not fit in memory.
    """
    if re.search(r"[eE][+-]?[0-9_]{4,}", text):
        raise OverflowError(f"the exponent of {text!r} is too long")
    return Fraction(text)


def check_rational(name: str, value: Fraction) -> None:
    """Raise PlanError where `value` is no positive exact fraction of two 63-bit integers."""
    if not isinstance(value, Fraction):
        raise PlanError(f"{name} must be an exact fraction: write Fraction(1, 2), not 0.5")
    if value <= 0:
        raise PlanError(f"{name} is {value}: make it positive, or leave it out")
    if max(value.numerator, value.denominator) > LARGEST_INTEGER:
        raise PlanError(f"{name} has more than 63 bits above or below the line: write it shorter")
