"""Digits that owners of keys read out over the telephone: given with --fingerprint, or typed in a terminal."""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import typer

from dpcore.errors import ConfigurationError
from radobase.printing import printable

MOST_TRIES = 3
"""How often a terminal asks for the digits of one key."""

ReadOut = Annotated[
    list[str] | None,
    typer.Option(
        help="The digits that its owner read out over the telephone; of several members NAME=DIGITS, once for each. "
        "Default: ask, in a terminal.",
        show_default=False,
    ),
]
Found = TypeVar("Found")


def confirmed(names: Sequence[str], given: Sequence[str] | None, find: Callable[[str, str], Found]) -> list[Found]:
    """What `find` returns for each name with the digits of its key.

    find: raises ConfigurationError if the digits are not those of the key. All are asked for and compared before any is
    returned. A terminal is asked again after a typing error. Raises what `find` raises, and ConfigurationError if no
    digits are given.
    """
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigurationError(f"{twice} is named twice; name each member once")
    digits = _by_name(names, given or ())
    return [_confirmed(name, digits.get(name), find) for name in names]


def _confirmed(name: str, digits: str | None, find: Callable[[str, str], Found]) -> Found:
    if digits is not None:
        return find(name, digits)
    if not sys.stdin.isatty():
        raise ConfigurationError(f"call the owner of {name}, and give the digits that are read out with --fingerprint")
    for _ in range(MOST_TRIES - 1):
        try:
            return find(name, _typed(name))
        except ConfigurationError as error:
            typer.echo(printable(str(error)), err=True)
    return find(name, _typed(name))


def _typed(name: str) -> str:
    return str(typer.prompt(printable(f"Digits that the owner of {name} reads out"), err=True))


def _by_name(names: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    """The digits of each name. Raises ConfigurationError if an entry is of no name."""
    if len(names) == len(given) == 1 and "=" not in given[0]:
        return {names[0]: given[0]}
    found = {}
    for entry in given:
        name, _, digits = entry.partition("=")
        if name not in names or not digits:
            raise ConfigurationError(f"--fingerprint {entry}: write NAME=DIGITS, with one of the names that you give")
        found[name] = digits
    return found
