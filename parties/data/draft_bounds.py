"""Bounds of the domain in a drafted schema, in place of those that its data suggest."""

from collections.abc import Mapping
from fractions import Fraction

from dpcore.errors import ConfigurationError
from dpcore.records.features import Day, Feature, Limit, close_match
from dpcore.records.schema import Schema


def parsed(text: str) -> tuple[str, Limit, Limit]:
    """The column, the lower and the upper bound of "COLUMN=LOWER:UPPER". Raises ConfigurationError."""
    column, _, bounds = text.rpartition("=")
    lower, _, upper = bounds.partition(":")
    try:
        return column, _limit(lower), _limit(upper)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise ConfigurationError(
            f"bounds {text!r}: write COLUMN=LOWER:UPPER, such as age=0:120 or admitted=2019-01-01:2024-12-31"
        ) from error


def _limit(text: str) -> Limit:
    return float(Fraction(text)) if Day.of(text) is None else text


def bounded(draft: Schema, bounds: Mapping[str, tuple[Limit, Limit]]) -> Schema:
    """The draft with these bounds, by column. A value that it imputes is moved to the nearest within them.

    Raises ConfigurationError for a column that is no number or date of the draft, or has bounds of the other type,
    SchemaFieldError for bounds that are none.
    """
    numbers = {group.column for group in draft.numbers}
    for column in bounds:
        if column not in numbers:
            near = close_match(column, numbers)
            hint = "look at the draft without bounds" if near is None else f"did you mean {near!r}?"
            raise ConfigurationError(f"bounds of {column!r}: the draft has no such number; {hint}")

    def with_bounds(feature: Feature) -> Feature:
        try:
            return feature.with_bounds(*bounds[feature.column])
        except TypeError as error:
            raise ConfigurationError(f"bounds of {feature.column!r}: {error}") from error

    changed = (with_bounds(feature) if feature.column in bounds else feature for feature in draft.features)
    return Schema(name=draft.name, label=draft.label, features=tuple(changed), bias=draft.bias, texts=draft.texts)
