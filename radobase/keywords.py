"""Keywords that a function does not know: refused with the nearest name that it does, before anything is done."""

import inspect
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from typing import ParamSpec, TypeVar

from dpcore.errors import ConfigurationError

Given = ParamSpec("Given")
Found = TypeVar("Found")


def check_keywords(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise ConfigurationError if `what` is given a keyword that is not known."""
    for name in given:
        if name not in known:
            from dpcore.records.features import nearest  # noqa: PLC0415  (slow to import, and only an error needs it)

            raise ConfigurationError(f"{what} has no option {name!r}; {nearest(name, known)}")


def knows_keywords(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """The function, which raises ConfigurationError in place of a TypeError for a keyword that it does not have."""
    known = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD) and name != "self"
    ]

    @wraps(function)
    def checked(*values: Given.args, **keywords: Given.kwargs) -> Found:
        check_keywords(function.__name__, keywords, known)
        return function(*values, **keywords)

    return checked
