"""What a release costs, whatever its kind and design: epsilon at delta, for the learner alone and under collusion.

Unit: one record is replaced, within the scope. "record": anything of it. "joint": its cell of one source column alone.
"marginal": its value of one boolean coordinate alone, and only that coordinate's released values are covered.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dpcore.accounting.composition import Bracket, DeltaTooSmallError, InfiniteEpsilonError, VoidEpsilonError
from dpcore.accounting.dp_feat import DpFeatAccount, account, account_of_exact_split, delta_for
from dpcore.accounting.gaussian import ShiftLaw
from dpcore.accounting.integer_noise import IntegerNoise
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares
from dpcore.accounting.pure import PureLaw
from dpcore.accounting.sensitivity import edge_squared, gradient_squared, joint_squared, moments_squared
from dpcore.errors import PlanError
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import DpFeatDesign, FixedSupportDesign, GaussianDesign, JointDesign, PlainDesign
from dpcore.rados.support import check_support

LEAST_CHANCE = 1000
"""Times delta: how likely a record must be to enter some rado (`check_inclusion`)."""

Kind = RadosQuery | MomentsQuery | StatisticQuery | GradientQuery
NoiseLaw = ShiftLaw | PureLaw
Scope = Literal["none", "marginal", "joint", "record"]


class RareInclusionError(PlanError):
    """A support so small that delta could pay for releasing what it takes without noise."""

    def __init__(self, *, chance: float, delta: float) -> None:
        self.chance, self.delta = chance, delta
        most = chance / LEAST_CHANCE
        super().__init__(
            f"a record enters some rado with probability {chance:.3g} and delta is {delta:.3g}, which would hide a "
            f"record that is released as it is: choose a larger support, or a delta of at most {most:.1g}"
        )


@dataclass(frozen=True)
class ReleaseCost:
    """The figures of one release at `delta`, which is 0 where the noise is Laplace's.

    epsilon lies at or above the least one of the learner alone, which is at least epsilon_lower; it is the one to
    state. epsilon_if_others_collude: against learner, coordinator and colluding parties. theorem_epsilon: n epsilon of
    the paper's Theorem 6, where there is a truncation.
    """

    scope: Scope
    epsilon: float
    epsilon_lower: float
    delta: float
    epsilon_if_others_collude: float
    theorem_epsilon: float | None = None


@dataclass(frozen=True)
class Setting:
    """What a release's cost depends on beside its kind.

    d: coordinates of a record. fraction_bits: the encoding's. honest_parties: h, the parties whose noise shares are
    counted under collusion.
    """

    d: int
    fraction_bits: int
    honest_parties: int


def scope_of(kind: Kind) -> Scope:
    """What a kind of query bounds, at most."""
    if not isinstance(kind, RadosQuery):
        return "record"
    match kind.design:
        case GaussianDesign():
            return "record"
        case FixedSupportDesign() as design:
            return "record" if design.edge_sigma else "none"
        case JointDesign():
            return "joint"
        case DpFeatDesign():
            return "marginal"
        case PlainDesign() as design:
            return "marginal" if design.booleans else "none"


def is_pure(kind: Kind) -> bool:
    """Whether its noise is Laplace's: then delta is 0."""
    return isinstance(kind, StatisticQuery) and isinstance(kind.noise, LaplaceShares)


def release_cost(
    kind: Kind, party_rows: Sequence[int], delta: Fraction | float, setting: Setting
) -> ReleaseCost | None:
    """The cost of a release over parties with `party_rows` rows; None where nothing is bounded.

    Plain rados ask for no bound, so they have none where these rows give none; a design that asks for one fails there.
    delta: in (0, 1), for the whole release. Raises PlanError (SupportError, EmptyTruncationError, InfiniteEpsilonError,
    WeakNoiseError, RareInclusionError and others) where the design cannot be met by these rows or has no finite
    epsilon.
    """
    scope = scope_of(kind)
    if scope == "none":
        return None
    if scope == "marginal":
        return _marginal(kind, party_rows, delta)
    if not party_rows or min(party_rows) < 1:
        raise PlanError(f"the parties have {list(party_rows)} rows: give at least one party, and one row for each")
    for size in set(party_rows):
        check_inclusion(kind, size, delta)
    rows = _most_exposed(kind, party_rows)
    alone = noise_law_of(kind, rows, setting, shares=len(party_rows)).epsilon(delta)
    honest = min(setting.honest_parties, len(party_rows))
    others = noise_law_of(kind, rows, setting, shares=honest).epsilon(delta)
    return ReleaseCost(
        scope=scope,
        epsilon=alone.upper,
        epsilon_lower=alone.lower,
        delta=0.0 if is_pure(kind) else float(delta),
        epsilon_if_others_collude=others.upper,
    )


def release_delta(kind: Kind, party_rows: Sequence[int], epsilon: float, setting: Setting) -> Bracket | None:
    """The least delta of the learner alone at which a release is (epsilon, delta)-private; None where none is bounded.

    The other way round of `release_cost`; the upper end is the one to state. Raises PlanError where epsilon is out of
    range, the design cannot be met by these rows, or one draw over the pool was divided (split = exact).
    """
    match scope_of(kind), kind:
        case "none", _:
            return None
        case "marginal", RadosQuery(design=DpFeatDesign(split="exact")):
            raise PlanError("a draw over the pool, split = exact, is counted at a delta only")
        case "marginal", RadosQuery(design=DpFeatDesign() as design):
            return delta_for(party_rows, kind.rados, design.epsilon_per_rado, epsilon)
        case "marginal", RadosQuery():
            return delta_for(party_rows, kind.rados, None, epsilon)
    rows = _most_exposed(kind, party_rows)
    return noise_law_of(kind, rows, setting, shares=len(party_rows)).delta(epsilon)


def _most_exposed(kind: Kind, party_rows: Sequence[int]) -> int:
    """The rows of a party whose record costs most.

    A party's size matters through the chance p that a rado takes a record, and through nothing else. The larger p is,
    the more coins fall "in" (K ~ Binomial(n, p) grows stochastically), and each one that does raises delta
    (dpcore.accounting.gaussian). Raises SupportError where any party is too small for its set.
    """
    match kind:
        case RadosQuery(design=GaussianDesign(fraction=Fraction() as fraction)):
            return max(set(party_rows), key=lambda rows: Fraction(check_support(rows, fraction), rows))
        case RadosQuery(design=FixedSupportDesign(split="local", fraction=fraction)):
            for rows in set(party_rows):
                check_support(rows, fraction)
    return min(party_rows)


def noise_law_of(kind: Kind, rows: int, setting: Setting, *, shares: int) -> NoiseLaw:
    """What replacing one record, of a party with `rows` rows, can do to a release with noise.

    A ShiftLaw, the law of the squared shift in units of the noise's variance, where the noise is Gaussian. shares:
    noise shares that are counted; a noised table's noise is the party's own and has one. Raises PlanError where
    the kind has no noise or too few shares, SupportError where the party is too small for its set.
    """
    bits = setting.fraction_bits
    match kind:
        case StatisticQuery(noise=laplace) if isinstance(laplace, LaplaceShares):
            # Shares beyond those that make up the noise only blur what has it already.
            if shares < laplace.shares:
                raise PlanError(f"{shares} shares of noise are counted, and {laplace.shares} make up the noise")
            return PureLaw(laplace.epsilon(kind.sensitivity.l1 << bits))
        case StatisticQuery(noise=gaussian):
            assert isinstance(gaussian, GaussianShares), "shares that are not Laplace's"
            noise = IntegerNoise(gaussian.share_sigma, shares, kind.length(setting.d))
            return noise.law(kind.sensitivity.l2_squared << 2 * bits)
        case GradientQuery(share_sigma=sigma):
            noise = IntegerNoise(sigma, shares, kind.length(setting.d))
            return noise.law(gradient_squared(kind.clip, bits))
        case MomentsQuery(share_sigma=sigma):
            noise = IntegerNoise(sigma, shares, kind.length(setting.d))
            return noise.law(moments_squared(kind.clip, bits, kind.edge_multiplier))
        case RadosQuery():
            return _law_of_rados(kind, rows, setting, shares)


def _law_of_rados(kind: RadosQuery, rows: int, setting: Setting, shares: int) -> ShiftLaw:
    bits = setting.fraction_bits
    match kind:
        case RadosQuery(design=JointDesign() as joint):
            noise = IntegerNoise(joint.share_sigma, shares, kind.rados * len(joint.coordinates))
            return noise.law(joint_squared(joint.squared_range, bits), kind.rados, Fraction(1, 2))
        case RadosQuery(design=GaussianDesign() as gaussian):
            inclusion = Fraction(1, 2)
            if gaussian.fraction is not None:
                inclusion = Fraction(check_support(rows, gaussian.fraction), rows)
            noise = IntegerNoise(gaussian.share_sigma, shares, kind.length(setting.d))
            return noise.law(edge_squared(gaussian.clip, bits), kind.rados, inclusion)
        case RadosQuery(design=FixedSupportDesign() as fixed) if fixed.edge_sigma:
            # Rados over one noised table are post-processing of it: their number does not matter.
            if fixed.split == "local":
                check_support(rows, fixed.fraction)
            return IntegerNoise(fixed.edge_sigma, 1, setting.d).law(edge_squared(fixed.clip, bits))
        case _:
            raise PlanError("this design adds no noise: count its marginals")


def check_inclusion(kind: Kind, rows: int, delta: Fraction | float) -> None:
    """Raise RareInclusionError where a fixed support hardly ever takes a given one of `rows` rows.

    To publish a record drawn at random is (0, 1/rows)-private. Were delta so large, an epsilon of 0 would be counted
    for rados of one record without noise. Where the chance is LEAST_CHANCE delta, noise must hold the loss of a record
    that is in below epsilon but for one time in LEAST_CHANCE. Raises SupportError too.
    """
    match kind:
        case RadosQuery(design=GaussianDesign(fraction=Fraction() as fraction)):
            inclusion = check_support(rows, fraction) / rows
            chance = -math.expm1(kind.rados * math.log1p(-inclusion))
            # Where it is likely to be in, thinning takes little from the noise.
            if chance < min(0.5, LEAST_CHANCE * delta):
                raise RareInclusionError(chance=chance, delta=float(delta))


def _marginal(kind: Kind, party_rows: Sequence[int], delta: Fraction | float) -> ReleaseCost | None:
    """The same law for every protected coordinate, whatever its values: each is bounded by itself."""
    assert isinstance(kind, RadosQuery)
    counted: DpFeatAccount
    match kind.design:
        case DpFeatDesign(split="exact") as design:
            counted = account_of_exact_split(party_rows, kind.rados, design.epsilon_per_rado, delta)
        case DpFeatDesign() as design:
            counted = account(party_rows, kind.rados, design.epsilon_per_rado, delta)
        case _:
            try:
                counted = account(party_rows, kind.rados, None, delta)
            except (InfiniteEpsilonError, VoidEpsilonError, DeltaTooSmallError):
                return None
    return ReleaseCost(
        scope="marginal",
        epsilon=counted.epsilon,
        epsilon_lower=counted.epsilon_lower,
        delta=counted.delta,
        epsilon_if_others_collude=counted.epsilon_if_others_collude,
        theorem_epsilon=counted.theorem_epsilon,
    )
