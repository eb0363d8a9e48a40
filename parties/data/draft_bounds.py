"""Bounds of the domain in a drafted schema, in place of those that its data suggest."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from dpcore.errors import ConfigurationError
from dpcore.records.features import RealFeature, close_match
from dpcore.records.schema import Schema


def parsed(text: str) -> tuple[str, float, float]:
    """The column, the lower and the upper bound of "COLUMN=LOWER:UPPER". Raises ConfigurationError."""
    column, _, numbers = text.rpartition("=")
    lower, _, upper = numbers.partition(":")
    try:
        return column, float(Fraction(lower)), float(Fraction(upper))
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise ConfigurationError(f"bounds {text!r}: write COLUMN=LOWER:UPPER, such as age=0:120") from error


def bounded(draft: Schema, bounds: Mapping[str, tuple[float, float]]) -> Schema:
    """The draft with these bounds, by column. A value that it imputes is moved to the nearest within them.

    Raises ConfigurationError for a column that is no number of the draft, SchemaFieldError for bounds that are none.
    """
    numbers = {feature.column for feature in draft.numbers}
    for column in bounds:
        if column not in numbers:
            near = close_match(column, numbers)
            hint = "look at the draft without bounds" if near is None else f"did you mean {near!r}?"
            raise ConfigurationError(f"bounds of {column!r}: the draft has no such number; {hint}")

    def with_bounds(feature: RealFeature) -> RealFeature:
        lower, upper = bounds[feature.column]
        impute = None if feature.impute is None else min(max(feature.impute, lower), upper)
        return replace(feature, lower=lower, upper=upper, impute=impute)

    changed = {feature.name: with_bounds(feature) for feature in draft.numbers if feature.column in bounds}
    return replace(draft, features=tuple(changed.get(feature.name, feature) for feature in draft.features))
