"""Rational numbers as messages."""

from fractions import Fraction

from dpcore.errors import ConfigurationError
from rado.v1 import query_pb2
from wire.errors import Code, WireError


def rational_to_proto(value: Fraction) -> query_pb2.Rational:
    """Raises ConfigurationError if the numerator or denominator has more than 63 bits."""
    if max(abs(value.numerator), value.denominator) >= 1 << 63:
        raise ConfigurationError(f"{float(value)} needs more than 63 bits as a fraction; give fewer digits")
    return query_pb2.Rational(numerator=value.numerator, denominator=value.denominator)


def rational_from_proto(message: query_pb2.Rational) -> Fraction:
    """Raises WireError(QUERY_INVALID) if it is not in lowest terms with a positive denominator."""
    if message.denominator < 1:
        raise WireError(Code.QUERY_INVALID, "A rational's denominator must be positive.")
    value = Fraction(message.numerator, message.denominator)
    if value.denominator != message.denominator:
        raise WireError(Code.QUERY_INVALID, "A rational must be in lowest terms.")
    return value
