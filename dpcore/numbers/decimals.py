"""Decimals of counted figures, for people."""

import math
from fractions import Fraction


def least_decimal(figure: float, exponent: int) -> Fraction:
    """The least multiple of 10^exponent that is not below the bound for which `figure` stands.

    figure: at least 0. Accounting rounds an exact bound up to the next double, which is a little above a bound such as
    1/10 or 3/10. So a multiple that lies between the figure and the double before it is large enough: 0.1 becomes
    0.100, and 0.30000000000000004 becomes 0.300. All other figures are rounded up.
    """
    unit, before = Fraction(10) ** exponent, math.nextafter(figure, 0.0)
    least = math.ceil(Fraction(figure) / unit)
    is_decimal = unit > math.ulp(figure) and (least - 1) * unit > before
    return (least - is_decimal) * unit
