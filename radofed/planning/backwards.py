"""Plans backwards: from a wanted accuracy to the smallest epsilon that gives it.

Every epsilon that is tried is planned as if it had been given. If the same is asked, more epsilon means less noise, so
the search halves a list of epsilons. An estimator may ask more at a larger epsilon, such as for curves. So the search
divides the list where what is asked changes (dpcore.estimators.additive_pairs.Sizes.affords), and looks at all its
pieces.

For a tolerance the epsilon that it returns is enough, and the one before it in the list is not. What an answer is worth
is known from above only (`radofed.planning.signal`). So there the one before it is a lower bound of what is needed, and
the returned one may be too small.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from dpcore.errors import ConfigurationError
from dpcore.numbers.rationals import upper_digits
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
    def questions(self) -> tuple[Any, ...]:
        """What is asked, whatever the noise."""
        ...

    @property
    def reason(self) -> str | None:
        """Why it cannot be asked."""
        ...

    @property
    def suggestion(self) -> str | None:
        """What would work."""
        ...


def smallest_epsilon(
    request: Request, worth: float | None, bare_cost: Callable[[Request], Bare]
) -> tuple[Fraction, Fraction]:
    """The smallest epsilon, of two digits, that gives the wanted tolerance, or may give the worth; and the one before.

    Every epsilon up to the second one is too small. It is 0 if there is none before.

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

    costs: dict[int, Bare] = {}

    def cost_at(place: int) -> Bare:
        if place not in costs:
            costs[place] = bare_cost(replace(request, epsilon=_EPSILONS[place]))
        return costs[place]

    def first(low: int, high: int) -> int | None:
        """The first place after `low`, up to `high`, that is enough; `low` is not."""
        least, most = cost_at(low), cost_at(high)
        is_same = (least.feasible, least.questions) == (most.feasible, most.questions)
        if high - low <= 1 or (is_same and not is_enough(most)):
            return high if is_enough(most) else None
        middle = (low + high) // 2
        if is_enough(cost_at(middle)):
            return first(low, middle)
        found = first(low, middle)
        return first(middle, high) if found is None else found

    last = len(_EPSILONS) - 1
    found = 0 if is_enough(cost_at(0)) else first(0, last)
    if found is None:
        raise ConfigurationError(_refusal(cost_at(last), worth))
    return _EPSILONS[found], _EPSILONS[found - 1] if found else Fraction(0)


def _refusal(cost: Bare, worth: float | None) -> str:
    if not cost.feasible:
        less = "" if cost.suggestion is None else f". What would work: {cost.suggestion}"
        return f"not possible with any epsilon up to {float(MOST):g}: {cost.reason}{less}"
    if cost.signal is None:
        return "this design has no noise, so no epsilon follows from what an answer is worth: give --epsilon"
    signal = cost.signal
    return (
        f"an answer is not worth {worth:,g} {signal.what} with any epsilon up to {float(MOST):g}: with that one it is "
        f"worth at most {upper_digits(signal.worth, 6)} of {signal.draws:,}; want less, or have more {signal.what}"
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
