"""What people type for options of commands and fields of pages, as values."""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dpcore.declared import Declaration, Declared, declarations, names_of

if TYPE_CHECKING:
    from dpcore.records.features import Limit
    from dpcore.records.held_back import HeldBack

_MOST_CELLS = 1000
"""The most cells that one option divides a column into."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?")

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)

Given = TypeVar("Given", bound=Declared)


def from_texts(cls: type[Given], given: Mapping[str, Any]) -> Given:
    """Declared fields from what people type. given: by name; None and an empty list are not given.

    Raises ConfigurationError if a text is no value of its field, or a value is out of its bounds.
    """
    values: dict[str, Any] = {}
    for field in declarations(cls):
        value = given.get(field.name)
        if value is not None and not (isinstance(value, list) and not value):
            values[field.name] = _value(field, value)
        elif field.is_required:
            from dpcore.errors import ConfigurationError

            raise ConfigurationError(f"{field.flag} is missing: give it")
    return cls(**values)


def _value(field: Declaration, value: Any) -> Any:
    from dpcore.errors import ConfigurationError

    if field.is_list:
        return names_of(value)
    if value == "" == field.default:
        return " "  # was given, and is no text: a shell's variable may not be set
    if field.kind is Fraction:
        from dpcore.numbers.rationals import exact

        return exact(value, field.flag)
    if field.kind in (bool, Path):
        return field.kind(value)
    if field.kind is str or not isinstance(value, str):
        return value
    try:
        return whole_number(value) if field.kind is int else decimal_number(value)
    except ConfigurationError as error:
        raise ConfigurationError(f"Invalid value for '{field.flag}': {error}") from error


def whole_number(text: str) -> int:
    """Digits, with a sign or without, as an integer. Raises ConfigurationError for anything else.

    40.000 and 40,000 are forty thousand in some countries, and 1_000 is Python's notation: none of them is guessed at.
    """
    from dpcore.errors import ConfigurationError

    if not _WHOLE.fullmatch(text):
        raise ConfigurationError(f"{text!r} is not a whole number: write digits only, such as 40000")
    return int(text)


def decimal_number(text: str) -> float:
    """A decimal with a point, as a double. Raises ConfigurationError for anything else, such as 1_000 or nan."""
    from dpcore.errors import ConfigurationError
    from dpcore.numbers.rationals import exact_number, within_doubles

    try:
        if _DECIMAL.fullmatch(text):
            return float(within_doubles(exact_number(text)))
    except (OverflowError, ValueError):
        pass
    raise ConfigurationError(f"{text!r} is not a number: write digits with a point, such as 0.5 or 1e-6")


def training_part(share: Fraction | None) -> "HeldBack | None":
    """The rows to train on, if a share is held back. Raises PlanError."""
    from dpcore.records.held_back import HeldBack, Part

    return None if share is None else HeldBack(share, Part.TRAINING)


def named_option(text: str) -> tuple[str, Any]:
    """Split NAME=VALUE. VALUE is read as JSON or as Python's True, False or None; anything else is a text."""
    import json

    from dpcore.errors import ConfigurationError

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"--option {text!r}: write NAME=VALUE")
    constants = {"True": True, "False": False, "None": None}
    if value in constants:
        return name.replace("-", "_"), constants[value]
    try:
        return name.replace("-", "_"), json.loads(value)
    except (ValueError, RecursionError):
        return name.replace("-", "_"), value


def named_options(texts: Iterable[str]) -> dict[str, Any]:
    """The values of several NAME=VALUE by name, as `named_option` reads each. Raises ConfigurationError.

    A name that is given twice is refused: of two values, one would be dropped without a word.
    """
    from dpcore.errors import ConfigurationError

    found: dict[str, Any] = {}
    for name, value in map(named_option, texts):
        if name in found:
            raise ConfigurationError(f"option {name} is given twice: give it once (for names: separated by commas)")
        found[name] = value
    return found


def estimator_options(
    texts: Iterable[str], *, rounds: int | None = None, class_weight: str | None = None
) -> dict[str, Any]:
    """The options of an estimator: `named_options`, and those that have an option of their own.

    Raises ConfigurationError, also if one is given in both ways.
    """
    from dpcore.errors import ConfigurationError

    found = named_options(texts)
    for name, value in (("rounds", rounds), ("class_weight", class_weight)):
        if value is not None and name in found:
            raise ConfigurationError(f"{name} is given twice: leave it out of --option")
        if value is not None:
            found[name] = value
    return found


def named_edges(text: str) -> tuple[str, list["Limit"]]:
    """Split NAME=E1,E2,... or NAME=FROM:TO:CELLS, for equal cells, which begin with a day between dates.

    Raises ConfigurationError.
    """
    from dpcore.errors import ConfigurationError
    from dpcore.records.features import Day

    name, equals, value = text.partition("=")
    try:
        if not equals or not name:
            raise ValueError(text)
        if ":" not in value:
            return name, [edge if Day.of(edge) is not None else _edge(edge) for edge in value.split(",")]
        lower, upper, cells = value.split(":")
        first, last, count = Day.of(lower), Day.of(upper), whole_number(cells)
        if not 1 <= count <= _MOST_CELLS:
            raise ConfigurationError(f"--edges {text!r}: give 1 to {_MOST_CELLS} cells")
        if first is not None and last is not None:
            days = last.number - first.number
            return name, [str(Day(first.number + round(days * at / count))) for at in range(count + 1)]
        low, high = _edge(lower), _edge(upper)
        return name, [*(low + (high - low) * at / count for at in range(count)), high]
    except ValueError as error:
        raise ConfigurationError(f"--edges {text!r}: write NAME=E1,E2,... or NAME=FROM:TO:CELLS") from error


def _edge(text: str) -> float:
    """A number between commas or colons. Raises ValueError for anything else."""
    from dpcore.errors import ConfigurationError

    try:
        return decimal_number(text.strip())
    except ConfigurationError as error:
        raise ValueError(text) from error
