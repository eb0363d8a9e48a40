"""Privacy filters: a limit that holds where each release, and its bound, is chosen after the answers to earlier ones.

Two filters enforce a limit (epsilon, delta); a release is admitted if either admits it.

- Basic: the sums of the releases' epsilons and deltas are at most epsilon and delta / 2 (Rogers, Roth, Ullman and
  Vadhan, NIPS 2016: basic composition with adaptively chosen parameters).
- Concentrated: the sums of their rho and failures are at most r and delta / 4, where r is the largest rho that is
  (epsilon, delta / 4)-private (dpcore.accounting.concentrated). It is valid for adaptively chosen parameters: this is
  the filter of Whitehouse, Ramdas, Rogers and Wu (ICML 2023) for approximate zCDP, after Feldman and Zrnic (NeurIPS
  2021) for Renyi's divergence.

Proof of the second. Fix neighbours, and let a step, given the previous ones, have distributions P_i and Q_i with
failure d_i and rho_i: P_i is at least (1 - d_i) P'_i, and Q_i at least (1 - d_i) Q'_i, with divergences between P'_i
and Q'_i of at most a rho_i. Let P' and Q' be the distributions of a whole run by the P'_i and Q'_i. The expectation
under Q' of (dP'/dQ')^a exp(-a (a-1) sum rho_i) does not grow with a step, so D_a(P' to Q') <= a r, as no run has a sum
above r. So the integral of (dP' - e^epsilon dQ')_+ is at most delta / 4. Let w be the product of the 1 - d_i along a
run: at most 1, and the same under both neighbours. For runs S, P(S) <= integral over S of w dP' + D, where D, the
probability that some step fails, is at most the largest sum of d_i of a run, delta / 4. So P(S) <= e^epsilon integral
of w dQ' + delta / 2 <= e^epsilon Q(S) + delta / 2.

Proof that either may admit. Sums only grow, so a run that satisfies one filter at its end did so at every step, and is
the same run as if that filter alone decided. Split any S into the runs that satisfy the basic filter and the others,
which satisfy the concentrated one. Each filter bounds its own part: P(S) <= e^epsilon Q(S) + delta/2 + delta/2.

The four parts of delta must be fixed in advance: if a release could exchange the unused part of rho for delta, it could
do so in exactly those runs in which the likelihood ratio is low, and the sum of both would exceed delta.

All numbers are exact rationals.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Self

from dpcore.accounting.concentrated import Concentrated, concentrated_epsilon, concentrated_rho, of_epsilon
from dpcore.errors import PlanError

BASIC_SHARE = Fraction(1, 2)
FAILURE_SHARE = Fraction(1, 4)
CONVERSION_SHARE = Fraction(1, 4)

# A ledger converts the same few sums many times.
_epsilon, _rho = lru_cache(maxsize=256)(concentrated_epsilon), lru_cache(maxsize=256)(concentrated_rho)


@dataclass(frozen=True)
class Loss:
    """The privacy loss of one or several releases in one scope: two bounds, both valid; no part is negative.

    epsilon, delta: (epsilon, delta)-differential privacy. rho, failure: failure-approximate rho-zCDP. For several
    releases these are sums. Raises PlanError if a part is negative.
    """

    epsilon: Fraction
    delta: Fraction
    rho: Fraction
    failure: Fraction

    def __post_init__(self) -> None:
        if min(self.epsilon, self.delta, self.rho, self.failure) < 0:
            raise PlanError(f"a privacy loss is negative: {self}; give parts of 0 or more")

    @classmethod
    def of_epsilon(cls, epsilon: Fraction, delta: Fraction) -> Self:
        """The loss of a release of which only (epsilon, delta) is known."""
        bound = of_epsilon(epsilon, delta)
        return cls(epsilon, delta, bound.rho, bound.failure)

    @classmethod
    def of_concentrated(cls, bound: Concentrated, delta: Fraction, epsilon: float | None = None) -> Self:
        """The loss of a release with this bound.

        epsilon: an upper end at `delta`, if a better one than the bound's is known. Raises PlanError if none is given
        and the failure is not below delta.
        """
        if epsilon is None:
            if bound.failure >= delta:
                raise PlanError(
                    f"the bound fails with probability {float(bound.failure):.3g} and delta is {float(delta):.3g}: "
                    "choose a larger delta, or fewer rados"
                )
            epsilon = _epsilon(bound.rho, delta - bound.failure)
        # A double is a rational, so the conversion is exact.
        return cls(Fraction(epsilon), delta, bound.rho, bound.failure)

    def __add__(self, other: "Loss") -> "Loss":
        return Loss(
            self.epsilon + other.epsilon, self.delta + other.delta, self.rho + other.rho, self.failure + other.failure
        )

    def times(self, count: int) -> "Loss":
        """The loss of `count` releases with this bound."""
        return Loss(count * self.epsilon, count * self.delta, count * self.rho, count * self.failure)

    def largest(self, other: "Loss") -> "Loss":
        """The maximum of both in each part."""
        return Loss(
            max(self.epsilon, other.epsilon),
            max(self.delta, other.delta),
            max(self.rho, other.rho),
            max(self.failure, other.failure),
        )

    def __str__(self) -> str:
        return f"epsilon {float(self.epsilon):.6g} at delta {float(self.delta):.6g}"


def total_loss(losses: Iterable[tuple[Loss, int]]) -> Loss:
    """The sum of losses, each `count` times: what `times` and + give, exactly, with far fewer fractions reduced."""
    known = list(losses)
    return Loss(
        _total((loss.epsilon, count) for loss, count in known),
        _total((loss.delta, count) for loss, count in known),
        _total((loss.rho, count) for loss, count in known),
        _total((loss.failure, count) for loss, count in known),
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
    """The limit on the total privacy loss of all releases: (epsilon, delta), enforced by the module's filters.

    Raises PlanError if epsilon is negative or delta is not in [0, 1).
    """

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        if self.epsilon < 0 or not 0 <= self.delta < 1:
            raise PlanError(f"a limit of {self}: give epsilon >= 0 and a delta from 0 to below 1")

    @cached_property
    def largest_rho(self) -> Fraction:
        """r: the largest sum of rho that the concentrated filter admits; 0 if delta is 0."""
        if self.delta == 0:
            return Fraction(0)
        return Fraction(_rho(self.epsilon, CONVERSION_SHARE * self.delta))

    def admits(self, total: Loss) -> bool:
        """Whether a total loss is within the limit."""
        if total.epsilon <= self.epsilon and total.delta <= BASIC_SHARE * self.delta:
            return True
        return self.delta > 0 and total.rho <= self.largest_rho and total.failure <= FAILURE_SHARE * self.delta

    def spent(self, total: Loss) -> float:
        """The least epsilon of a limit at this delta that admits `total`; inf if none does."""
        epsilon = math.inf
        if total.delta <= BASIC_SHARE * self.delta:
            epsilon = float(total.epsilon)
        if self.delta > 0 and total.failure <= FAILURE_SHARE * self.delta:
            epsilon = min(epsilon, _epsilon(total.rho, CONVERSION_SHARE * self.delta))
        return epsilon

    def remaining(self, total: Loss, delta: Fraction) -> float:
        """The largest epsilon at `delta` of one more Gaussian-like release that is admitted in addition to `total`.

        Gaussian-like: its epsilon at `delta` is what its rho gives, without a failure. delta: in [0, 1).
        """
        epsilon = 0.0
        if total.delta + delta <= BASIC_SHARE * self.delta:
            epsilon = max(0.0, float(self.epsilon - total.epsilon))
        rho = self.largest_rho - total.rho
        if delta > 0 and rho > 0 and total.failure <= FAILURE_SHARE * self.delta:
            epsilon = max(epsilon, _epsilon(rho, delta))
        return epsilon

    def left(self, total: Loss) -> float:
        """The epsilon left after `total`: the largest `spent` of one more release alone that is admitted."""
        epsilon = max(0.0, float(self.epsilon - total.epsilon)) if total.delta < BASIC_SHARE * self.delta else 0.0
        rho = self.largest_rho - total.rho
        if rho > 0 and total.failure < FAILURE_SHARE * self.delta:
            epsilon = max(epsilon, _epsilon(rho, CONVERSION_SHARE * self.delta))
        return epsilon

    def __str__(self) -> str:
        return f"epsilon {float(self.epsilon):.6g} at delta {float(self.delta):.6g}"
