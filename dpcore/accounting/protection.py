"""What a release protects, and its cost: by noise, by a count that does not depend on the data, or not at all.

Unit of privacy: one person or one record is replaced, within a scope. "person": with all rows at a party, by another
person with any number of rows (dpcore.records.persons). "record": all of one record. "joint": only its cell of one
source column. "marginal": only its value of one coordinate, and only that coordinate's released values are covered.
"none": no bound.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.composition import Bracket, DeltaTooSmallError, InfiniteEpsilonError, VoidEpsilonError
from dpcore.accounting.concentrated import laplace_curve, of_count, of_shift, pure_curve, up
from dpcore.accounting.dp_feat import account, account_of_exact_split, delta_for, own_epsilon, truncation
from dpcore.accounting.filters import Loss, pure_shift
from dpcore.accounting.gaussian import ShiftDistribution
from dpcore.accounting.mixed import CountRelease, PureLoss
from dpcore.accounting.noise_shares import IntegerNoise, LaplaceShares, smallest_share
from dpcore.errors import PlanError
from dpcore.numbers.distributions import binomial_distribution, pooled_distribution

Scope = Literal["none", "marginal", "joint", "record", "person"]
WHOLE: tuple[Scope, ...] = ("record", "person")
"""The scopes in which whole records are protected."""

NoiseDistribution = ShiftDistribution | PureLoss
"""The effect of replacing one record on a release with noise."""

CHARGE_FAILURE_SHARE = Fraction(1, 1024)
"""The failure probability of a charge's concentrated bound, as a share of its delta, where it can be chosen."""


@dataclass(frozen=True)
class Setting:
    """The parameters of a release's cost, apart from its kind."""

    d: int
    """Coordinates of a record."""
    fraction_bits: int
    """The encoding's."""
    honest_parties: int
    """h, the parties whose noise shares are counted under collusion."""


@dataclass(frozen=True)
class ReleaseCost:
    """The figures of one release at `delta`, which is 0 if the noise is Laplace's."""

    scope: Scope
    epsilon: float
    """The figure to state: the least epsilon against the learner alone is not above it."""
    epsilon_lower: float | None
    """A lower bound on that least epsilon, None if none is known: for noise that of the assumed mechanism."""
    delta: float
    epsilon_if_others_collude: float
    """Against learner, coordinator and colluding parties."""
    theorem_epsilon: float | None = None
    """n epsilon of the paper's Theorem 6, if there is a truncation."""


class Protection(ABC):
    """What a release protects, and its cost. delta: in (0, 1), for the whole release; party_rows: the m_p."""

    scope: Scope

    @property
    def is_of_part(self) -> bool:
        """Whether an answer about a part of the rows depends on these alone, so that both parts are disjoint."""
        return True

    @property
    def is_pure(self) -> bool:
        """Whether delta is 0, as with Laplace noise."""
        return False

    @abstractmethod
    def cost(self, party_rows: Sequence[int], delta: Fraction | float) -> ReleaseCost | None:
        """The cost of the release; None if nothing is bounded.

        Raises PlanError (SupportError, EmptyTruncationError, InfiniteEpsilonError, WeakNoiseError, RareInclusionError
        and others) where the design cannot be met by these rows or has no finite epsilon.
        """

    @abstractmethod
    def least_delta(self, party_rows: Sequence[int], epsilon: float) -> Bracket | None:
        """The least delta against the learner alone at which the release is (epsilon, delta)-private; None if none is.

        State the upper end. Raises PlanError if epsilon is out of range, the design cannot be met by these rows, or one
        draw over the pool was divided (split = exact).
        """

    def of_presence(self) -> "Protection":
        """The protection where the record leaves or joins the rows, as a replaced one does that may be left out."""
        return self

    @abstractmethod
    def loss(self, rows: int, delta: Fraction) -> Loss | None:
        """What a ledger charges a party of `rows` rows; None if unbounded. Only honest shares count. PlanError."""

    @abstractmethod
    def distribution_for(
        self, party_rows: Sequence[int], rows: int, delta: Fraction | float, *, colluding: bool
    ) -> NoiseDistribution | CountRelease:
        """The effect of replacing a record of a party with `rows` rows, for composition with other releases.

        colluding: against learner, coordinator and parties, else the learner alone. Raises PlanError, and as `cost`.
        """


@dataclass(frozen=True)
class Unprotected(Protection):
    """No protection: nothing is bounded."""

    scope: Scope = field(default="none", init=False)

    def cost(self, party_rows: Sequence[int], delta: Fraction | float) -> None:
        """None."""

    def least_delta(self, party_rows: Sequence[int], epsilon: float) -> None:
        """None."""

    def loss(self, rows: int, delta: Fraction) -> Loss | None:
        """None."""
        return None

    def distribution_for(
        self, party_rows: Sequence[int], rows: int, delta: Fraction | float, *, colluding: bool
    ) -> NoiseDistribution | CountRelease:
        """Raises PlanError."""
        raise PlanError("the release bounds nothing: leave it out")


@dataclass(frozen=True)
class CountProtection(Protection):
    """Coordinates coded -1/+1, each separately: a count of known distribution (dpcore.accounting.dp_feat)."""

    rados: int
    """n."""
    epsilon_per_rado: Fraction | None = None
    """Algorithm 2's, None for uniform signatures."""
    is_pooled: bool = False
    """One truncation of the pool is divided (split = exact)."""
    is_promised: bool = True
    """Whether the design requires a bound. If these rows give none, such a design fails; others have no bound."""
    scope: Scope = field(default="marginal", init=False)

    def cost(self, party_rows: Sequence[int], delta: Fraction | float) -> ReleaseCost | None:
        """The cost for each protected coordinate separately: the same for all, for any values."""
        count = account_of_exact_split if self.is_pooled else account
        try:
            counted = count(party_rows, self.rados, self.epsilon_per_rado, delta)
        except (InfiniteEpsilonError, VoidEpsilonError, DeltaTooSmallError):
            if self.is_promised:
                raise
            return None
        return ReleaseCost(
            scope=self.scope,
            epsilon=counted.epsilon,
            epsilon_lower=counted.epsilon_lower,
            delta=counted.delta,
            epsilon_if_others_collude=counted.epsilon_if_others_collude,
            theorem_epsilon=counted.theorem_epsilon,
        )

    def least_delta(self, party_rows: Sequence[int], epsilon: float) -> Bracket:
        """See `Protection`."""
        if self.is_pooled:
            raise PlanError(
                "a draw over the pool, split = exact, has a bound at a given delta only: give a delta instead"
            )
        return delta_for(party_rows, self.rados, self.epsilon_per_rado, epsilon)

    def loss(self, rows: int, delta: Fraction) -> Loss | None:
        """The loss from the party's own count, against any collusion of others."""
        if self.is_promised:
            return _count_loss(rows, self.rados, self.epsilon_per_rado, delta)
        try:
            return plain_loss(rows, self.rados, delta)
        except PlanError:
            return None

    def distribution_for(
        self,
        party_rows: Sequence[int],
        rows: int,
        delta: Fraction | float,
        *,
        colluding: bool,
    ) -> CountRelease:
        """The party's own count under collusion, the pool's against the learner alone."""
        if self.is_pooled:
            raise PlanError(
                "a draw over the pool, split = exact, does not compose with other releases: leave that release out"
            )

        def low(count: int) -> int:
            return truncation(count, self.epsilon_per_rado)[0]

        pool = [(count, low(count)) for count in party_rows]
        return CountRelease(
            binomial_distribution(rows, low(rows)) if colluding else pooled_distribution(pool), self.rados
        )


@lru_cache(maxsize=64)
def plain_loss(rows: int, rados: int, delta: Fraction) -> Loss:
    """The cost of plain rados to each boolean coordinate's own values. Raises PlanError if no bound holds at delta."""
    return Loss.of_concentrated(of_count(binomial_distribution(rows), rados, CHARGE_FAILURE_SHARE * delta), delta)


@lru_cache(maxsize=64)
def _count_loss(rows: int, rados: int, epsilon_per_rado: Fraction | None, delta: Fraction) -> Loss:
    """The same for a design that requires a bound, with the exact epsilon of the releases."""
    epsilon = own_epsilon(rows, rados, epsilon_per_rado, delta)
    if not math.isfinite(epsilon):
        raise PlanError("the design has no finite bound: ask for fewer rados, or truncate less")
    distribution = binomial_distribution(rows, truncation(rows, epsilon_per_rado)[0])
    return Loss.of_concentrated(of_count(distribution, rados, CHARGE_FAILURE_SHARE * delta), delta, epsilon)


@dataclass(frozen=True)
class NoiseProtection(Protection):
    """Protection of whole records, or one source column of them, within the whole release, by noise shares."""

    scope: Scope
    honest_parties: int
    """h, whose shares are counted under collusion."""

    @abstractmethod
    def distribution(self, rows: int, *, shares: int) -> NoiseDistribution:
        """The effect of replacing a record of a party with `rows` rows, if `shares` shares count. PlanError."""

    def of_whole_cohort(self, rows: int, *, members: int) -> NoiseDistribution:
        """The same, if the shares of all members of a cohort of so many count."""
        return self.distribution(rows, shares=members)

    def most_exposed(self, party_rows: Sequence[int]) -> int:
        """The rows of a party whose record costs most. Raises SupportError if one is too small for its set."""
        return min(party_rows)

    def check_inclusion(self, rows: int, delta: Fraction | float) -> None:
        """Raise PlanError if delta could pay for releasing one of `rows` records without noise."""

    def cost(self, party_rows: Sequence[int], delta: Fraction | float) -> ReleaseCost:
        """The cost with all shares against the learner alone, and with the honest parties' shares under collusion."""
        if not party_rows or min(party_rows) < 1:
            raise PlanError(f"the parties have {list(party_rows)} rows: give at least one party, and one row for each")
        for size in set(party_rows):
            self.check_inclusion(size, delta)
        rows = self.most_exposed(party_rows)
        alone = _epsilon(self, rows, None, len(party_rows), delta)
        others = _epsilon(self, rows, min(self.honest_parties, len(party_rows)), 0, delta)
        return ReleaseCost(
            scope=self.scope,
            epsilon=alone.upper,
            epsilon_lower=None,
            delta=0.0 if self.is_pure else float(delta),
            epsilon_if_others_collude=others.upper,
        )

    def least_delta(self, party_rows: Sequence[int], epsilon: float) -> Bracket:
        """See `Protection`."""
        return self.of_whole_cohort(self.most_exposed(party_rows), members=len(party_rows)).delta(epsilon)

    def loss(self, rows: int, delta: Fraction) -> Loss:
        """See `Protection`."""
        self.check_inclusion(rows, delta)
        return _loss(self, rows, delta)

    def distribution_for(
        self, party_rows: Sequence[int], rows: int, delta: Fraction | float, *, colluding: bool
    ) -> NoiseDistribution:
        """See `Protection`."""
        self.check_inclusion(rows, delta)
        members = len(party_rows)
        if not colluding:
            return self.of_whole_cohort(rows, members=members)
        return self.distribution(rows, shares=min(self.honest_parties, members))


def _epsilon_of(
    protection: NoiseProtection, rows: int, shares: int | None, members: int, delta: Fraction | float
) -> Bracket:
    """shares: how many count; None for those of a whole cohort of so many members."""
    if shares is None:
        return protection.of_whole_cohort(rows, members=members).epsilon(delta)
    return protection.distribution(rows, shares=shares).epsilon(delta)


def _loss_of(protection: NoiseProtection, rows: int, delta: Fraction) -> Loss:
    return loss_of(protection.distribution(rows, shares=protection.honest_parties), delta)


# A plan, its alternatives, a party's decision and a release's statement need the same figures.
_epsilon, _loss = lru_cache(maxsize=256)(_epsilon_of), lru_cache(maxsize=64)(_loss_of)
_smallest_share = lru_cache(maxsize=256)(smallest_share)


def loss_of(distribution: NoiseDistribution, delta: Fraction) -> Loss:
    """The charge for a release with this noise. delta: that of epsilon; pure noise uses none. Raises PlanError."""
    if isinstance(distribution, PureLoss):
        # Rounded up to doubles they are short fractions, which a ledger adds fast.
        rho = up(distribution.concentrated.rho)
        epsilon = Fraction(distribution.epsilon(0).upper)
        return Loss(epsilon, Fraction(0), rho, Fraction(0), pure_curve(epsilon), rho, shift=pure_shift(epsilon))
    concentrated = of_shift(distribution, CHARGE_FAILURE_SHARE * delta)
    loss = Loss.of_concentrated(concentrated, delta, distribution.epsilon(delta).upper)
    if distribution.sure_shift is None:
        return loss
    return replace(loss, shift=distribution.sure_shift, slack=Fraction(distribution.slack))


@dataclass(frozen=True)
class GaussianProtection(NoiseProtection):
    """Discrete Gaussian noise on every value that a record can move."""

    share_sigma: int
    """Each share's standard deviation, in integer units."""
    squared: Fraction | int
    """Delta^2, the squared L2 sensitivity of one rado, or of what one public coin decides about, in squared units."""
    values: int
    """D, the number of a record's values that get noise, over all rados."""
    rados: int = 1
    """n, how often a record enters."""
    inclusion: Fraction | int = 1
    """p, the probability of a coin that may be public; 1 without one."""
    is_shared: bool = True
    """Whether the noise is the sum of the parties' shares; otherwise the record's own party adds all of it."""
    squared_alone: Fraction | int | None = None
    """`squared` where a record leaves or joins the rows; None if no better bound is known than that."""
    cohorts: Cohorts | None = None
    """Those that the query admits if its noise is for the one that answers; share_sigma is that of the smallest."""

    def of_presence(self) -> "GaussianProtection":
        """See `Protection`."""
        return self if self.squared_alone is None else replace(self, squared=self.squared_alone)

    def inclusion_of(self, rows: int) -> Fraction | int:
        """The inclusion p at a party of `rows` rows. Raises SupportError if it is too small for its set."""
        return self.inclusion

    def most_exposed(self, party_rows: Sequence[int]) -> int:
        """The rows of the party with the largest inclusion p, the fewest among equals: a larger p raises delta."""
        return max(sorted(set(party_rows)), key=self.inclusion_of)

    def shares(self, parties: int) -> int:
        """The number of noise shares from `parties` parties that protect one record."""
        return parties if self.is_shared else 1

    def distribution(self, rows: int, *, shares: int) -> ShiftDistribution:
        """The distribution of the squared shift, in units of the noise's variance.

        With `cohorts` and shares = h it holds in every one of them: the honest ones' noise has a variance of h s^2 or
        more (dpcore.accounting.cohorts). Of fewer shares, each has at least the variance of the largest cohort's.
        """
        return self._shift(self._noise(shares), rows)

    def of_whole_cohort(self, rows: int, *, members: int) -> ShiftDistribution:
        """See `NoiseProtection`."""
        if self.cohorts is None or not self.is_shared:
            return self.distribution(rows, shares=members)
        return self._shift(self._noise_in(self.cohorts, members, members), rows)

    def _shift(self, noise: IntegerNoise, rows: int) -> ShiftDistribution:
        return noise.distribution(self.squared, self.rados, self.inclusion_of(rows))

    def _noise(self, shares: int) -> IntegerNoise:
        """That of `shares` shares, in any cohort, or in the one that answered if it is known."""
        cohorts = self.cohorts
        if cohorts is None or not self.is_shared:
            return IntegerNoise(self.share_sigma, self.shares(shares), self.values)
        if cohorts.answered is not None:
            return self._noise_in(cohorts, cohorts.answered, shares)
        if shares < cohorts.honest:
            return IntegerNoise(cohorts.first_share(self.share_sigma), shares, self.values, unequal=2 * cohorts.largest)
        return IntegerNoise(self.share_sigma, cohorts.honest, self.values, unequal=2 * cohorts.largest)

    def _noise_in(self, cohorts: Cohorts, members: int, shares: int) -> IntegerNoise:
        """That of `shares` shares in a cohort of so many members; a plan for fewer than the smallest counts as it."""
        more = cohorts.top_up(self.share_sigma, cohorts.nearest(members))
        first = cohorts.first_share(self.share_sigma)
        return IntegerNoise(first, shares, self.values, more)

    def least_share(
        self,
        party_rows: Sequence[int],
        epsilon: Fraction | float,
        delta: Fraction | float,
        part: Fraction = Fraction(1),
    ) -> int:
        """The least share at which the release stays within (epsilon, delta) under collusion; its own is ignored.

        part: of (epsilon, delta), as a fraction of its squared mu. Raises PlanError if it is beyond 2^48.
        """
        inclusion = max(map(self.inclusion_of, party_rows), default=self.inclusion)
        squared, shares = Fraction(self.squared) / part, self.shares(self.honest_parties)
        return _smallest_share(squared, shares, self.values, epsilon, delta, self.rados, inclusion)


@dataclass(frozen=True)
class LaplaceProtection(NoiseProtection):
    """Discrete Laplace noise on integers that a record moves by at most l1 in total: pure differential privacy."""

    noise: LaplaceShares
    l1: int
    largest: int
    """By how much it moves each of them at most."""
    l1_alone: int | None = None
    """`l1` where a record leaves or joins the rows; None if no better bound is known than that."""

    def of_presence(self) -> "LaplaceProtection":
        """See `Protection`."""
        return self if self.l1_alone is None else replace(self, l1=self.l1_alone)

    @property
    def is_pure(self) -> bool:
        """True."""
        return True

    def distribution(self, rows: int, *, shares: int) -> PureLoss:
        """The pure epsilon; shares beyond those that make up the noise are post-processing."""
        cohorts = self.noise.cohorts
        answered = None if cohorts is None else cohorts.answered
        needed = self.noise.shares if answered is None else self.noise.needed(answered)
        if shares < needed:
            raise PlanError(f"{shares} shares of noise count and the noise needs {needed}: have more honest parties")
        return PureLoss(self.noise.epsilon(self.l1))

    def loss(self, rows: int, delta: Fraction) -> Loss:
        """See `Protection`. By the noise's own curve: values that a record moves a little each cost less than a bit."""
        whole = super().loss(rows, delta)
        curve, rho = laplace_curve(self.noise.scale, self.l1, self.largest)
        least = min(rho, whole.rho)
        return Loss(whole.epsilon, whole.delta, least, whole.failure, curve, least, shift=whole.shift)


@dataclass(frozen=True)
class LocalProtection(NoiseProtection):
    """Randomised response of bits, each answer epsilon-private by itself (dpcore.accounting.local_response)."""

    epsilon: Fraction
    """Of each bit."""
    bits: int
    """How many of a record's bits differ from another record's, at most."""

    @property
    def is_of_part(self) -> bool:
        """False: rows outside the part answer too, as if their bits were 0."""
        return False

    @property
    def is_pure(self) -> bool:
        """True."""
        return True

    def distribution(self, rows: int, *, shares: int) -> PureLoss:
        """The pure epsilon, also under collusion: only the record's own coins count."""
        return PureLoss(self.epsilon * self.bits)
