"""Text for people, on a terminal or in a file."""

from collections.abc import Sequence

_MOST_NAMES = 6


def printable(text: str) -> str:
    """Escape control characters: text of a peer or a file must not control the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def listed(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
