"""Keywords that a function does not know: refused with the nearest name that it does, before anything is done."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar, get_args

from dpcore.declared import whole
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
        return function(*values, **with_integers(function, keywords))

    return checked


def with_integers(function: Callable[..., object], given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords, with integers for floats such as 4.0 where the function takes an integer, as R writes."""
    found = dict(given)
    for name, parameter in inspect.signature(function).parameters.items():
        kinds = get_args(parameter.annotation) or (parameter.annotation,)
        if name in found and int in kinds and float not in kinds:
            found[name] = whole(found[name])
    return found
