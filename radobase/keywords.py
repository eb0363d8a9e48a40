"""Keywords that a function does not know, or lacks: refused by a sentence, before anything is done."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar, get_args

from dpcore.declared import is_bool, whole
from dpcore.errors import ConfigurationError

Given = ParamSpec("Given")
Found = TypeVar("Found")


def check_keywords(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise ConfigurationError if `what` is given a keyword that is not known."""
    for name in given:
        if name not in known:
            from dpcore.records.features import nearest  # noqa: PLC0415  (slow to import, and only an error needs it)

            raise ConfigurationError(f"{what} has no option {name!r}; {nearest(name, known)}")


def keywords_of(function: Callable[..., Any]) -> list[str]:
    """The names that a function takes by keyword only."""
    parameters = inspect.signature(function).parameters
    return [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]


def knows_keywords(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """The function, which raises ConfigurationError in place of a TypeError for a keyword that it does not have.

    The same for one that it needs and is not given.
    """
    named = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD) and name != "self"
    }
    known = list(named)
    needed = [name for name in known if named[name].default is inspect.Parameter.empty]

    @wraps(function)
    def checked(*values: Given.args, **keywords: Given.kwargs) -> Found:
        check_keywords(function.__name__, keywords, known)
        try:
            given = inspect.signature(function).bind_partial(*values, **keywords).arguments
        except TypeError as error:  # such as too many arguments
            raise ConfigurationError(f"{function.__name__}: {error}; it takes {', '.join(known)}") from error
        check_needed(function.__name__, [name for name in needed if name not in given])
        return function(*values, **with_integers(function, keywords))

    return checked


def check_needed(what: str, missing: Sequence[str]) -> None:
    """Raise ConfigurationError if `what` lacks a keyword that it needs."""
    if "epsilon" in missing:
        raise ConfigurationError(
            f"{what}: give the epsilon that it may cost at most, such as {what}(..., epsilon=1); a smaller one "
            "protects more, and tells less"
        )
    if missing:
        raise ConfigurationError(f"{what} needs {missing[0]!r}: give {what}(..., {missing[0]}=...)")


def with_integers(function: Callable[..., object], given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords, with integers for floats such as 4.0 where the function takes an integer, as R writes.

    Raises ConfigurationError for anything but True and False where it takes one of these: a text would count as True.
    """
    found = dict(given)
    for name, parameter in inspect.signature(function).parameters.items():
        kinds = get_args(parameter.annotation) or (parameter.annotation,)
        if name in found and int in kinds and float not in kinds:
            found[name] = whole(found[name])
        if name in found and kinds == (bool,) and not is_bool(found[name]):
            raise ConfigurationError(f"{name} is {found[name]!r}: give True or False")
    return found
