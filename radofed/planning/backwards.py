"""Plans backwards: from a wanted accuracy to the smallest epsilon that gives it.

Every epsilon that is tried is planned as if it had been given, so that what holds for a plan holds here. More epsilon
means less noise, so the search halves a list of epsilons. For a tolerance the one that it returns is enough, and the
one below it is not. What an answer is worth is known from above only (`radofed.planning.signal`): for that, every
epsilon below the one that it returns is too small, and that one may be too.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from dpcore.errors import ConfigurationError
from dpcore.queries.statement import LARGE_EPSILON
from radofed.planning.signal import Signal

MOST = Fraction(LARGE_EPSILON)
"""The largest epsilon that is looked for: a larger one bounds little."""
_SMALLEST_POWER = -4

# Two digits each, from 0.0001 on, in order.
_EPSILONS = tuple(
    epsilon
    for power in range(_SMALLEST_POWER, 2)
    for digits in range(10, 100)
    if (epsilon := Fraction(digits, 10) * Fraction(10) ** power) <= MOST
)

Request = TypeVar("Request", bound=Any)


class Bare(Protocol):
    """A plan without advice, of a design or of what is asked."""

    @property
    def feasible(self) -> bool:
        """Whether it can be asked."""
        ...

    @property
    def signal(self) -> Signal | None:
        """The noise against the signal; None without noise."""
        ...

    @property
    def reason(self) -> str | None:
        """Why it cannot be asked."""
        ...

    @property
    def suggestion(self) -> str | None:
        """What would work."""
        ...


def with_smallest_epsilon(request: Request, worth: float | None, bare_cost: Callable[[Request], Bare]) -> Request:
    """The request with the smallest epsilon, of two digits, that gives the wanted tolerance, or may give the worth.

    worth: what an answer could be worth at least, in rows (of rados, in rados) without noise
    (`radofed.planning.signal.Signal`); None if only the request's own tolerance counts. bare_cost: plans a request,
    without advice. Raises ConfigurationError if the request has no noise, or if not even `MOST` is enough; the error
    says what that gives.
    """
    if worth is not None and not worth > 0:
        raise ConfigurationError(f"a worth of {worth:g} is no number of rows: give a positive one")

    def is_enough(cost: Bare) -> bool:
        # A tolerance that the rows do not keep is not feasible.
        if not cost.feasible:
            return False
        return worth is None or (cost.signal is not None and cost.signal.worth >= worth)

    most = bare_cost(replace(request, epsilon=MOST))
    if not is_enough(most):
        raise ConfigurationError(_refusal(most, worth))
    low, high = -1, len(_EPSILONS) - 1
    while high - low > 1:
        middle = (low + high) // 2
        enough = is_enough(bare_cost(replace(request, epsilon=_EPSILONS[middle])))
        low, high = (low, middle) if enough else (middle, high)
    found: Request = replace(request, epsilon=_EPSILONS[high])
    return found


def _refusal(cost: Bare, worth: float | None) -> str:
    if not cost.feasible:
        less = "" if cost.suggestion is None else f". What would work: {cost.suggestion}"
        return f"not possible with any epsilon up to {float(MOST):g}: {cost.reason}{less}"
    if cost.signal is None:
        return "this design has no noise, so no epsilon follows from what an answer is worth: give --epsilon"
    signal = cost.signal
    return (
        f"an answer is not worth {worth:,g} {signal.what} with any epsilon up to {float(MOST):g}: with that one it is "
        f"worth at most {signal.worth:,.0f} of {signal.draws:,}; want less, or have more {signal.what}"
    )


_SHOWN = tuple(Fraction(text) for text in ("0.1", "0.2", "0.5", "1", "2", "5", "10"))


def worth_by_epsilon(request: Request, bare_cost: Callable[[Request], Bare]) -> list[tuple[float, float]]:
    """Of epsilons from 0.1 to 10 that are possible: each with the most that an answer is worth, as a share of draws."""
    found = []
    for epsilon in _SHOWN:
        cost = bare_cost(replace(request, epsilon=epsilon))
        if cost.feasible and cost.signal is not None:
            found.append((float(epsilon), cost.signal.worth / cost.signal.draws))
    return found
