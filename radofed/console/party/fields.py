"""What people type into a page's fields."""

from dataclasses import dataclass
from urllib.parse import urlencode

from dpcore.errors import ConfigurationError
from radobase.printing import moment
from radofed.console.pages import Visit


def whole(text: str | None, name: str, *, default: int, least: int = 0, most: int = 1 << 31) -> int:
    """A whole number. Raises ConfigurationError if it is none, or out of range."""
    if not text:
        return default
    # int() reads signs, spaces and underscores, too.
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise ConfigurationError(f"{name} is a whole number from {least} to {most}")
    return int(text)


@dataclass(frozen=True)
class PeriodFields:
    """The fields `since` and `until` of a form, as typed and as Unix seconds; None if a field is empty."""

    since: str
    until: str
    since_unix_s: float | None
    until_unix_s: float | None

    @classmethod
    def of(cls, visit: Visit) -> "PeriodFields":
        """Raises ConfigurationError if a field is no date or time."""
        since, until = (visit.query.get(name, "").strip() for name in ("since", "until"))
        return cls(since, until, moment(since, 0.0) if since else None, moment(until, 0.0) if until else None)


def address(path: str, **query: str | int) -> str:
    """A path of the console with what follows "?", without empty fields."""
    given = {name: value for name, value in query.items() if value not in {"", 0}}
    return f"{path}?{urlencode(given)}" if given else path
