"""Text for people, on a terminal or in a file."""

import datetime as dt
import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from dpcore.errors import ConfigurationError

_MOST_NAMES = 6
DIGEST_DIGITS = 16
"""Digits of a digest that people read."""


class Escaped(str):
    """Text whose lines are those of the program: everything else that `printable` escapes was escaped in each line."""

    __slots__ = ()


def printable(text: str) -> str:
    r"""One line of text in which each character is seen: others are written out, such as \n, \x1b or \u202e.

    A peer or a file chooses the text of messages, names of columns, categories and predicates. It must not control the
    terminal, change the direction of text, or print lines that look like the program's own.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else _written_out(c) for c in text)


def in_lines(lines: Iterable[str]) -> Escaped:
    """Text of several lines, each `printable`. Lines of an Escaped text stay lines."""
    return Escaped("\n".join(line if isinstance(line, Escaped) else printable(line) for line in lines))


def json_text(content: Any, **options: Any) -> str:
    """JSON that people can read: characters of any script, and escapes for those that `printable` escapes."""
    made = json.dumps(content, ensure_ascii=False, **options)
    # Outside of texts JSON has printable characters and line breaks alone, and texts have no line break.
    return (
        made
        if made.isprintable()
        else "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in made)
    )


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode()


def listed(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def amount(count: int, unit: str) -> str:
    """A count with its unit, such as "1 row", "2 rows" and "2 parties"."""
    if count == 1:
        return f"1 {unit}"
    return f"{count} {unit[:-1]}ies" if re.search("[^aeiou]y$", unit) else f"{count} {unit}s"


def local_time(unix_s: float) -> str:
    """A time in this machine's zone, with the zone, such as "2026-11-23 04:12:01 CET"."""
    try:
        return f"{dt.datetime.fromtimestamp(unix_s, dt.UTC).astimezone():%Y-%m-%d %H:%M:%S %Z}"
    except (ValueError, OverflowError, OSError):
        return "no valid time"  # a peer's number


def moment(text: str | None, default: float) -> float:
    """Unix seconds of a date or time; local time unless it names a zone. default: if there is no text.

    Raises ConfigurationError.
    """
    if text is None:
        return default
    try:
        return dt.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigurationError(f"{text!r} is no date or time: write 2026-11-01 or 2026-11-01T09:00") from error


def duration(seconds: float) -> str:
    """A time in at most two units: "45 s", "12 min 5 s", "3 h 20 min", "2 d 4 h"."""
    whole = int(seconds)
    for larger, smaller, name, part in ((86_400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= larger:
            rest = whole % larger // smaller
            return f"{whole // larger} {name}" + (f" {rest} {part}" if rest else "")
    return f"{whole} s"


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Lines of a table. right: the columns whose cells end at the right."""
    cells = [tuple(map(printable, row)) for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
