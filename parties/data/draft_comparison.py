"""Compares the drafts of parties: which fields differ, and where a column seems to be in another unit.

Drafts state bounds that depend on data, so those of two parties never agree exactly. Bounds of which one pair is a
known factor times the other may be in two units. It is a question to people: nothing is converted.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dpcore.records.features import Number
from dpcore.records.shared_schema import SharedSchema, shared_differences
from dpcore.records.units import are_same, conversion, unit_in_header

_POWERS = {10.0: "10", 100.0: "100", 1000.0: "1,000", 1e6: "1,000,000"}
_OTHERS = {2.20462: "2.2, as pounds are of kilograms", 2.54: "2.54, as centimetres are of inches"}
_NEAR_POWER, _NEAR_OTHER = math.log(1.6), math.log(1.13)
"""By how much the ratio of bounds may miss a factor: quantiles of two parties' rows differ."""
_DEGREES, _MOST_DEGREES = 0.15, 60.0
"""Of the distance of bounds; and of bounds that may be degrees Celsius, of people or of the weather."""


@dataclass(frozen=True)
class _Column:
    lower: float
    upper: float
    unit: str | None


def compared(mine: SharedSchema, theirs: SharedSchema) -> tuple[list[str], list[str]]:
    """Sentences about units, and then every field that differs."""
    fields = [f"{each.field}: {each.mine} and {each.theirs}" for each in shared_differences(mine, theirs)]
    return list(_units(_numbers(mine), _numbers(theirs))), fields


def _numbers(schema: SharedSchema) -> dict[str, _Column]:
    """Features and labels that are numbers, by column."""
    labels = (each.label for each in schema.schemas)
    features = (each for each in schema.first.numbers if not each.is_named)
    found = {each.column: _Column(each.lower, each.upper, each.unit) for each in features}
    own = {each.column: _Column(each.lower, each.upper, each.unit) for each in labels if isinstance(each, Number)}
    return {**found, **own}


def _units(mine: Mapping[str, _Column], theirs: Mapping[str, _Column]) -> Iterator[str]:
    for name, own in mine.items():
        other = theirs.get(name)
        if other is None:
            yield from _renamed(name, theirs)
            continue
        if own.unit is not None and other.unit is not None:
            if not are_same(own.unit, other.unit):
                yield f"{name!r} is in {own.unit} and in {other.unit}: {_advice(name, name, other.unit, own.unit)}"
            continue
        if (times := _factor(own, other)) is not None:
            bounds = f"{own.lower:g} to {own.upper:g}, and {other.lower:g} to {other.upper:g}"
            yield (
                f"{name!r} may be in two units: its bounds are {bounds}, which is {times}. Ask both parties; agree on "
                "one unit, write it as unit in the schema, and convert at the other party by a recode file"
            )


def _renamed(name: str, theirs: Mapping[str, _Column]) -> Iterator[str]:
    """A column of the other that has the same name but for the unit."""
    own = unit_in_header(name)
    for other in theirs:
        found = unit_in_header(other)
        stem = other if found is None else found[0]
        if own is not None and stem == own[0] and (found is None or not are_same(found[1], own[1])):
            unit = "no unit" if found is None else found[1]
            advice = "ask for its unit" if found is None else _advice(name, other, found[1], own[1])
            yield f"{name!r} and {other!r} have one name but for the unit ({own[1]} and {unit}): {advice}"


def _advice(name: str, other: str, first: str, second: str) -> str:
    """What the other party writes in its recode file."""
    known = conversion(first, second)
    how = f"factor and offset from {first} to {second}" if known is None else known.words
    column = "" if name == other else f'column = "{other}", '
    entry = f'[columns.{name}] with {column}unit = "{first}", {how}'
    return f"agree on one; the other converts by its recode file, as {entry}"


def _factor(own: _Column, other: _Column) -> str | None:
    """In words, how many times as large one pair of bounds is; None if they are alike, or unlike any factor."""
    if _is_fahrenheit(own, other) or _is_fahrenheit(other, own):
        return "near degrees Fahrenheit and Celsius"
    sizes = [max(abs(each.lower), abs(each.upper)) for each in (own, other)]
    if min(sizes) <= 0.0:
        return None
    ratio = abs(math.log(sizes[1] / sizes[0]))
    known = {**dict.fromkeys(_POWERS, _NEAR_POWER), **dict.fromkeys(_OTHERS, _NEAR_OTHER)}
    found = min(known, key=lambda factor: abs(ratio - math.log(factor)))
    if abs(ratio - math.log(found)) > known[found]:
        return None
    return f"near a factor of {_POWERS.get(found) or _OTHERS[found]}"


def _is_fahrenheit(celsius: _Column, fahrenheit: _Column) -> bool:
    if max(abs(celsius.lower), abs(celsius.upper)) > _MOST_DEGREES:
        return False
    reach = _DEGREES * (fahrenheit.upper - fahrenheit.lower)
    pairs = ((celsius.lower, fahrenheit.lower), (celsius.upper, fahrenheit.upper))
    return all(abs(1.8 * first + 32.0 - second) <= reach for first, second in pairs)
