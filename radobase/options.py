"""What people type for options of commands and fields of pages, as values."""

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpcore.records.features import Limit
    from dpcore.records.held_back import HeldBack

_MOST_CELLS = 1000
"""The most cells that one option divides a column into."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?")

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)


def exact(text: str, option: str) -> Fraction:
    """A decimal or a fraction as an exact number. Raises ConfigurationError if it is neither."""
    from dpcore.errors import ConfigurationError
    from dpcore.numbers.rationals import exact_number, within_doubles

    try:
        return within_doubles(exact_number(text))
    except OverflowError as error:
        raise ConfigurationError(f"--{option} {text!r} is too large or too small; write, say, 1e-6 or 1/2") from error
    except (ValueError, ZeroDivisionError) as error:
        raise ConfigurationError(f"--{option} {text!r} is not a number; write, say, 1e-6 or 1/2") from error


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


def exact_or_none(text: str | None, option: str) -> Fraction | None:
    """`exact` of an option that may be left out."""
    return None if text is None else exact(text, option)


def training_part(text: str | None) -> "HeldBack | None":
    """The rows to train on, if --hold-back is given. Raises ConfigurationError or PlanError."""
    from dpcore.records.held_back import HeldBack, Part

    return None if text is None else HeldBack(exact(text, "hold-back"), Part.TRAINING)


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
            return name, [edge if Day.of(edge) is not None else float(edge) for edge in value.split(",")]
        lower, upper, cells = value.split(":")
        first, last, count = Day.of(lower), Day.of(upper), whole_number(cells)
        if not 1 <= count <= _MOST_CELLS:
            raise ConfigurationError(f"--edges {text!r}: give 1 to {_MOST_CELLS} cells")
        if first is not None and last is not None:
            days = last.number - first.number
            return name, [str(Day(first.number + round(days * at / count))) for at in range(count + 1)]
        low, high = float(lower), float(upper)
        return name, [*(low + (high - low) * at / count for at in range(count)), high]
    except ValueError as error:
        raise ConfigurationError(f"--edges {text!r}: write NAME=E1,E2,... or NAME=FROM:TO:CELLS") from error
