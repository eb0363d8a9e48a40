"""Text for people, on a terminal or in a file."""

import datetime as dt
from collections.abc import Collection, Sequence

from dpcore.errors import ConfigurationError

_MOST_NAMES = 6
DIGEST_DIGITS = 16
"""Digits of a digest that people read."""


def printable(text: str) -> str:
    """Escape control characters: text of a peer or a file must not control the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def listed(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


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
