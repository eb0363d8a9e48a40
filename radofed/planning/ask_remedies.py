"""What makes a plan of an estimator, or of statistics, possible that is not; each change was planned first."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dpcore.accounting.composition import LARGEST_EPSILON
from learner.estimators import class_of
from radofed.planning.asking import AskRequest
from radofed.planning.changes import first_in, larger_delta, larger_epsilon, more_rows
from radofed.planning.made_up import made_up_schema
from radofed.planning.request import MOST_PLANNED_ROWS

Works = Callable[[AskRequest], bool]
Change = tuple[str, AskRequest]


def what_can_be_asked(request: AskRequest, works: Works, tolerance: str | None) -> str | None:
    """The changes that make the request possible, in words, joined by ", or "; None if none was found.

    works: plans a request, and says whether it is possible. tolerance: one that the rows keep, for statistics.
    """
    ways = [words for changes in _changes(request, tolerance) for words in first_in(changes, works)]
    # Below the least that an option takes, nothing works, so these are tried in order.
    smaller = (_smaller_option(request, name) for name in request.options)
    for changes in smaller:
        ways += next(([words] for words, changed in changes if works(changed)), [])
    return ", or ".join(ways) or None


def _changes(request: AskRequest, tolerance: str | None) -> Iterator[Iterator[Change]]:
    """Several ways, each as changes in the order in which they should be tried; what works, works from there on."""
    yield _other_tolerance(request, tolerance)
    yield _without_guarantee(request)
    yield _other_epsilon(request)
    yield ((f"choose {words}", changed) for words, changed in larger_delta(request))
    yield ((f"have {words}", changed) for words, changed in more_rows(request, MOST_PLANNED_ROWS))
    yield _fewer_coordinates(request)


def _other_tolerance(request: AskRequest, tolerance: str | None) -> Iterator[Change]:
    if tolerance is not None:
        yield f"accept a tolerance of {tolerance}", replace(request, tolerance=float(tolerance))


def _without_guarantee(request: AskRequest) -> Iterator[Change]:
    if request.estimator is not None and "require_rows" in class_of(request.estimator)._get_param_names():  # noqa: SLF001
        options = {**request.options, "require_rows": False}
        yield "give --option require_rows=false, which goes without the guarantee", replace(request, options=options)


def _smaller_option(request: AskRequest, name: str) -> Iterator[Change]:
    value: Any = request.options[name]
    while isinstance(value, int) and not isinstance(value, bool) and value > 1:
        value //= 2
        yield f"give --option {name}={value}", replace(request, options={**request.options, name: value})


def _other_epsilon(request: AskRequest) -> Iterator[Change]:
    if request.epsilon > LARGEST_EPSILON:
        yield f"allow an epsilon of {LARGEST_EPSILON:g}", replace(request, epsilon=Fraction(LARGEST_EPSILON))
    for words, changed in larger_epsilon(request):
        yield f"allow {words}", changed


def _fewer_coordinates(request: AskRequest) -> Iterator[Change]:
    schema = request.schema
    fewer = schema.d // 2
    while request.is_made_up and fewer >= 2:
        yield f"use at most {fewer} coordinates", replace(request, schema=made_up_schema(fewer, bias=schema.bias))
        fewer //= 2
