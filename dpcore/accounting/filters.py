"""Privacy filters: a limit that holds where each release, and its bound, is chosen after the answers to earlier ones.

Two kinds of filter enforce a limit (epsilon, delta); a release is admitted if one of them admits it.

- Basic: the sums of the releases' epsilons and deltas are at most epsilon and delta / 2 (Rogers, Roth, Ullman and
  Vadhan, NIPS 2016).
- Renyi, one for each order a of a set that the limit alone decides: the sum A of the releases' bounds on D_a satisfies
  A + c(a, w delta) <= epsilon, c the conversion (dpcore.accounting.concentrated.conversion), w the order's share of
  delta (Feldman and Zrnic, NeurIPS 2021; Whitehouse, Ramdas, Rogers and Wu, ICML 2023).

A release adds a rho to D_a, or, where its noise is pure, the value of its curve at a.

The orders are the one at which all of epsilon may be used for rho, with a share of 1/4, and those of STEPS above it,
with 3/16 in equal parts. Shares must be fixed in advance. All sums are exact rationals.

A run that an earlier version began is counted by the basic filter and the first order alone, with the shares that it
had. Proof: docs/explanation/proofs.md, "Filters".
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Self

from dpcore.accounting import words
from dpcore.accounting.concentrated import (
    STEPS,
    Concentrated,
    Curve,
    added,
    at_order,
    concentrated_epsilon,
    conversion,
    largest_pure,
    of_epsilon,
    pure_curve,
    rho_and_step,
)
from dpcore.errors import PlanError

BASIC_SHARE = Fraction(1, 2)
CONVERSION_SHARE = Fraction(1, 4)
MIXED_SHARE = Fraction(3, 16)
FAILURE_SHARE = Fraction(1, 16)
EARLIER_FAILURE_SHARE = Fraction(1, 4)
_HALVINGS = 40

# A ledger converts the same few sums many times.
_epsilon, _rho_and_step = lru_cache(maxsize=256)(concentrated_epsilon), lru_cache(maxsize=256)(rho_and_step)


@dataclass(frozen=True)
class Loss:
    """The privacy loss of one or several releases in one scope: bounds, all valid; no part is negative.

    For several releases each part is a sum. D_a is at most a (rho - curved) + curve at a. Raises PlanError if a part is
    negative.
    """

    epsilon: Fraction
    delta: Fraction
    """With `epsilon`: (epsilon, delta)-differential privacy."""
    rho: Fraction
    failure: Fraction
    """With `rho`: failure-approximate rho-zCDP."""
    curve: Curve = ()
    """Sum of the Renyi curves of those releases that have one of their own."""
    curved: Fraction = Fraction(0)
    """Their part of rho."""
    is_earlier: bool = False
    """Whether an earlier version charged any of it."""

    def __post_init__(self) -> None:
        if min(self.epsilon, self.delta, self.rho, self.failure, self.curved, *self.curve) < 0:
            raise PlanError(f"a privacy loss is negative: {self}; give parts of 0 or more")
        if self.curved > self.rho or len(self.curve) not in (0, len(STEPS) + 1):
            raise PlanError(f"a privacy loss has a curve of {len(self.curve)} orders, or of more than its rho")

    @classmethod
    def of_epsilon(cls, epsilon: Fraction, delta: Fraction) -> Self:
        """The loss of a release of which only (epsilon, delta) is known."""
        bound = of_epsilon(epsilon, delta)
        if delta == 0 and bound.failure == 0:
            return cls(epsilon, delta, bound.rho, bound.failure, pure_curve(epsilon), bound.rho)
        return cls(epsilon, delta, bound.rho, bound.failure)

    @classmethod
    def of_concentrated(cls, bound: Concentrated, delta: Fraction, epsilon: float | None = None) -> Self:
        """The loss of a release with this bound; epsilon: an upper end at `delta`, if a better one is known.

        Raises PlanError if none is given and the failure is not below delta.
        """
        if epsilon is None:
            if bound.failure >= delta:
                raise PlanError(
                    f"the bound fails with probability {float(bound.failure):.3g} and delta is {float(delta):.3g}: "
                    "choose a larger delta, or fewer rados"
                )
            epsilon = _epsilon(bound.rho, delta - bound.failure)
        # A double is a rational, so the conversion is exact.
        return cls(Fraction(epsilon), delta, Fraction(bound.rho), bound.failure)

    @property
    def linear(self) -> Fraction:
        """The part of rho of the releases without a curve of their own."""
        return self.rho - self.curved

    def divergence(self, s: Fraction) -> Fraction:
        """A bound on D_(1+s)."""
        return (1 + s) * self.linear + min((1 + s) * self.curved, at_order(self.curve, s))

    def __add__(self, other: "Loss") -> "Loss":
        return Loss(
            self.epsilon + other.epsilon,
            self.delta + other.delta,
            self.rho + other.rho,
            self.failure + other.failure,
            added(self.curve, other.curve),
            self.curved + other.curved,
            self.is_earlier or other.is_earlier,
        )

    def times(self, count: int) -> "Loss":
        """The loss of `count` releases with this bound."""
        return total_loss([(self, count)])

    def largest(self, other: "Loss") -> "Loss":
        """The maximum of both in each part."""
        curved = max(self.curved, other.curved)
        return Loss(
            max(self.epsilon, other.epsilon),
            max(self.delta, other.delta),
            max(self.linear, other.linear) + curved,
            max(self.failure, other.failure),
            tuple(map(max, self.curve, other.curve)) if self.curve and other.curve else self.curve or other.curve,
            curved,
            self.is_earlier or other.is_earlier,
        )

    def less(self, other: "Loss") -> "Loss":
        """What is missing to `other` in each part, at least 0."""
        curve = tuple(map(_positive, self.curve, other.curve or [Fraction(0)] * len(self.curve)))
        curved = _positive(self.curved, other.curved)
        return Loss(
            _positive(self.epsilon, other.epsilon),
            _positive(self.delta, other.delta),
            _positive(self.linear, other.linear) + curved,
            _positive(self.failure, other.failure),
            curve,
            curved,
            self.is_earlier,
        )

    def __str__(self) -> str:
        return words.limit(self.epsilon, self.delta)


def _positive(more: Fraction, less: Fraction) -> Fraction:
    return max(Fraction(0), more - less)


def total_loss(losses: Iterable[tuple[Loss, int]]) -> Loss:
    """The sum of losses, each `count` times: what `times` and + give, exactly, with far fewer fractions reduced."""
    known = list(losses)
    curves = [(loss.curve, count) for loss, count in known if loss.curve]
    return Loss(
        _total((loss.epsilon, count) for loss, count in known),
        _total((loss.delta, count) for loss, count in known),
        _total((loss.rho, count) for loss, count in known),
        _total((loss.failure, count) for loss, count in known),
        tuple(_total((curve[n], count) for curve, count in curves) for n in range(len(STEPS) + 1)) if curves else (),
        _total((loss.curved, count) for loss, count in known),
        any(loss.is_earlier for loss, count in known),
    )


def _total(terms: Iterable[tuple[Fraction, int]]) -> Fraction:
    """The sum of fractions, each with its count. Those of one denominator are added as integers."""
    numerators: dict[int, int] = {}
    for value, count in terms:
        numerators[value.denominator] = numerators.get(value.denominator, 0) + count * value.numerator
    return sum((Fraction(numerator, denominator) for denominator, numerator in numerators.items()), Fraction(0))


NO_LOSS = Loss(Fraction(0), Fraction(0), Fraction(0), Fraction(0))


@dataclass(frozen=True)
class PrivacyLimit:
    """The limit on all releases' loss: (epsilon, delta), enforced by the module's filters. Raises PlanError."""

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        if self.epsilon < 0 or not 0 <= self.delta < 1:
            raise PlanError(f"a limit of {self}: give epsilon >= 0 and a delta from 0 to below 1")

    @cached_property
    def largest_rho(self) -> Fraction:
        """r: the largest sum of rho that is admitted if there is nothing else; 0 if delta is 0."""
        return Fraction(self._first[0]) if self.delta else Fraction(0)

    @cached_property
    def _first(self) -> tuple[float, float]:
        return _rho_and_step(self.epsilon, CONVERSION_SHARE * self.delta)

    @cached_property
    def _orders(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """The pair (s, c) of each order 1 + s, the first one first; none if delta is 0."""
        if not self.delta:
            return ()
        rho, first = self.largest_rho, Fraction(self._first[1])
        # All orders give epsilon at the first one's rho; this one exactly, if there is any.
        orders = [(first, self.epsilon - (1 + first) * rho)] if rho else []
        others = [s for s in STEPS if s > first]
        share = MIXED_SHARE * self.delta / max(1, len(others))
        return (*orders, *((s, conversion(s, share)) for s in others))

    def orders_for(self, total: Loss) -> tuple[tuple[Fraction, Fraction], ...]:
        """The orders that may admit more besides `total`."""
        if total.failure > (EARLIER_FAILURE_SHARE if total.is_earlier else FAILURE_SHARE) * self.delta:
            return ()
        if total.is_earlier:
            return self._orders[:1] if self.largest_rho else ()
        return self._orders

    def admits(self, total: Loss) -> bool:
        """Whether a total loss is within the limit."""
        if total.epsilon <= self.epsilon and total.delta <= BASIC_SHARE * self.delta:
            return True
        return any(total.divergence(s) + constant <= self.epsilon for s, constant in self.orders_for(total))

    def spent(self, total: Loss) -> float:
        """The epsilon at this limit's delta that `total` is shown to have; inf if none."""
        exact = total.epsilon if total.delta <= BASIC_SHARE * self.delta else None
        if total.is_earlier:
            return _least_limit(self.delta, total, math.inf if exact is None else float(exact))
        bounds = [total.divergence(s) + constant for s, constant in self.orders_for(total)]
        found = min((bound for bound in (*bounds, exact) if bound is not None), default=None)
        return math.inf if found is None else max(0.0, float(found))

    def remaining(self, total: Loss, delta: Fraction) -> float:
        """The largest epsilon at `delta` of one more release that is admitted in addition to `total`.

        delta: 0 for a pure release, of which only its epsilon is known. Above 0 and below 1 for a Gaussian-like one:
        its epsilon at `delta` is what its rho gives, without a failure.
        """
        if delta == 0:
            return _remaining_pure(self, total)
        epsilon = 0.0
        if total.delta + delta <= BASIC_SHARE * self.delta:
            epsilon = max(0.0, float(self.epsilon - total.epsilon))
        rho = self._remaining_rho(total)
        return max(epsilon, _epsilon(rho, delta)) if rho > 0 else epsilon

    def _remaining_rho(self, total: Loss) -> Fraction:
        """The rho of one more release, without a curve or a failure, that the orders admit in addition to `total`."""
        rooms = ((self.epsilon - total.divergence(s) - constant) / (1 + s) for s, constant in self.orders_for(total))
        return max((Fraction(0), *rooms))

    def left(self, total: Loss) -> "Left":
        """What is left after `total`, by kind of release."""
        rho = self._remaining_rho(total)
        alone = Loss(self.epsilon + 1, BASIC_SHARE * self.delta + 1, rho, Fraction(0), is_earlier=total.is_earlier)
        gaussian = min(self.spent(alone), float(self.epsilon)) if rho > 0 else 0.0
        if total.delta < BASIC_SHARE * self.delta:
            gaussian = max(gaussian, float(self.epsilon - total.epsilon))
        return Left(_remaining_pure(self, total), gaussian)

    def __str__(self) -> str:
        return words.limit(self.epsilon, self.delta)


@dataclass(frozen=True)
class Left:
    """The largest epsilon, at the limit's delta, of one more release that is admitted: by the kind of its noise."""

    pure: float
    """Of any release with delta 0, such as by Laplace noise."""
    gaussian: float
    """Of one by Gaussian noise."""

    @property
    def epsilon(self) -> float:
        """That of the kind of which more is left."""
        return max(self.pure, self.gaussian)


@lru_cache(maxsize=4096)
def _remaining_pure(limit: PrivacyLimit, total: Loss) -> float:
    """The largest epsilon of one more pure release, rounded down: found in doubles, then checked by the filters."""
    sure = [Fraction(0)]
    if total.delta <= BASIC_SHARE * limit.delta:
        sure.append(limit.epsilon - total.epsilon)
    found = list(sure)
    for s, constant in limit.orders_for(total):
        room = limit.epsilon - total.divergence(s) - constant
        if room > 0:
            # No order adds more than epsilon.
            sure.append(room)
            found.append(Fraction(largest_pure(s, float(room), float(limit.epsilon))))
    for least in (Fraction(1, 10**12), Fraction(1, 10**6)):
        largest = max(found) * (1 - least)
        if largest <= max(sure):
            break
        if limit.admits(total + Loss.of_epsilon(largest, Fraction(0))):
            return _down(largest)
    return _down(max(sure))


@lru_cache(maxsize=4096)
def _least_limit(delta: Fraction, total: Loss, high: float) -> float:
    """The least epsilon of a limit that admits `total`, at most `high`: a larger epsilon allows more."""
    if not delta or total.failure > EARLIER_FAILURE_SHARE * delta:
        return high
    low, high = 0.0, min(high, _epsilon(total.rho, CONVERSION_SHARE * delta))
    if not total.curve:
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fits = PrivacyLimit(Fraction(middle), delta).admits(total)
        low, high = (low, middle) if fits else (middle, high)
    return high


def _down(value: Fraction) -> float:
    rounded = float(value)
    return rounded if Fraction(rounded) <= value else math.nextafter(rounded, -math.inf)
