"""From a request to the query's kind: designs for the schema, and noise calibrated to the epsilon asked for."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from dpcore.accounting.dp_feat import largest_rados
from dpcore.accounting.integer_noise import smallest_share
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares, NoiseShares, smallest_scale
from dpcore.accounting.sensitivity import edge_squared, gradient_squared, joint_squared, moments_squared
from dpcore.errors import PlanError
from dpcore.predicates.checking import check
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.expressions import is_boolean
from dpcore.queries.base import MAX_VALUES
from dpcore.queries.fraction_bits import FractionBits
from dpcore.queries.gradient import THETA_BITS, GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.norms import edge_multiplier, usual_norm
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import (
    Design,
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    PlainDesign,
    check_fraction,
)
from dpcore.rados.schema_designs import dp_feat_design, joint_design, plain_design, squared_range
from dpcore.rados.support import check_support
from dpcore.records.clipping import Clip
from learner.requests import (
    USUAL_RADOS,
    GradientRequest,
    MomentsRequest,
    NoisyTerms,
    RadosRequest,
    Request,
    StatisticRequest,
)
from wire.query_kinds import Kind

# Of kinds with noise, whose grain they are; rados without any have as many as their number asks for.
EDGE_FRACTION_BITS = 16
MOMENT_FRACTION_BITS = 10
GRADIENT_FRACTION_BITS = 12
VALUE_FRACTION_BITS = 10
COUNT_FRACTION_BITS = 6
HALF = Fraction(1, 2)
# A party states at least how many rows it has; its table may grow before it answers.
GROWTH = 4
# At which Laplace's and Gaussian noise are compared: the failure probability of a batch's half-width.
_COMPARED_AT = 0.05
# Parts are this much smaller than asked for: each release is counted with the slack of its own integer noise, and the
# sum of them must not be above the whole by a rounding.
_PART_MARGIN = 1 - Fraction(1, 1 << 30)


def fraction_bits_of(request: Request) -> int:
    """Those asked for, or what is plenty for the kind: what noise is calibrated in."""
    if request.fraction_bits is not None:
        return request.fraction_bits
    match request:
        case MomentsRequest():
            return MOMENT_FRACTION_BITS
        case GradientRequest():
            return GRADIENT_FRACTION_BITS
        case StatisticRequest(predicates=predicates, pure=pure):
            if not all(map(is_boolean, predicates)):
                return VALUE_FRACTION_BITS
            # Counts are exact without any; a Gaussian share of few integer units would be counted less well.
            return 0 if pure else COUNT_FRACTION_BITS
        case RadosRequest():
            return EDGE_FRACTION_BITS


def fraction_bits_within(request: Request, kind: Kind) -> FractionBits:
    """The fraction bits among which a plan of this kind chooses those of fewest ciphertexts."""
    if request.fraction_bits is None and isinstance(kind, RadosQuery) and chooses_bits(kind.design):
        return FractionBits.for_rados(kind.rados)
    return FractionBits.exactly(fraction_bits_of(request))


def chooses_bits(design: Design) -> bool:
    """Whether the fraction bits change neither noise nor clipping."""
    return isinstance(design, PlainDesign | DpFeatDesign)


def kind_of(request: Request, honest_parties: int, party_rows: Sequence[int]) -> Kind:
    """The kind of query, its noise calibrated for the shares of `honest_parties`.

    party_rows: those that are known; for the worst of them a support is counted, and for the pool of them the rados
    that an epsilon allows: parties that state no rows only add to it. Raises PlanError or SchemaError where
    the schema, the rows or the sizes do not allow it, with what would work.
    """
    match request:
        case MomentsRequest():
            return _moments(request, honest_parties)
        case StatisticRequest():
            return _statistic(request, honest_parties)
        case GradientRequest():
            return _gradient(request, honest_parties)
    d = request.schema.d
    rados = _rados(request, party_rows)
    if rados > MAX_VALUES // d:
        raise PlanError(
            f"{rados} rados of {d} coordinates are more than the {MAX_VALUES} values that one query may ask "
            f"for; ask for at most {MAX_VALUES // d} rados"
        )
    return RadosQuery(rados, _design(request, rados, honest_parties, party_rows))


def _rados(request: RadosRequest, party_rows: Sequence[int]) -> int:
    """The number asked for, or as epsilon allows where dp-feat is to stay within a total."""
    if request.design != "dp-feat" or request.joint or request.epsilon is None:
        assert request.rados is not None, "a request without a number of rados stays within an epsilon"
        return request.rados
    if not party_rows:
        raise PlanError("no party's rows are known, so rados cannot be counted; give their number, and no epsilon")
    most = rados_within(request.epsilon, request.delta, [party_rows], request.epsilon_per_rado, asked=request.rados)
    return request.rados or min(most, USUAL_RADOS)


def rados_within(
    epsilon: Fraction,
    delta: Fraction,
    pools: Iterable[Sequence[int]],
    epsilon_per_rado: Fraction | None,
    *,
    asked: int | None,
    fewest: int = 1,
) -> int:
    """The most dp-feat rados that stay within a total, whichever of the pools (each a sequence of m_p) is asked.

    asked: a number that was asked for; fewest: what makes sense. Raises PlanError where the most is below either.
    """
    most = min(largest_rados(pool, epsilon_per_rado, float(epsilon), delta) for pool in pools)
    least = asked or fewest
    if most < least:
        fewer = f"ask for at most {most}, " if most >= fewest else ""
        raise PlanError(
            f"{least} rados cost more than epsilon {float(epsilon):g} at delta {float(delta):g}: {fewer}"
            "raise epsilon, or have more rows"
        )
    return most


def _design(request: RadosRequest, rados: int, honest: int, party_rows: Sequence[int]) -> Design:
    schema = request.schema
    match request.design:
        case "plain":
            return plain_design(schema)
        case "fixed-support":
            return _fixed_support(request, party_rows)
        case "gaussian":
            return _gaussian(request, rados, honest, party_rows)
        case "dp-feat" if request.joint:
            return _joint(request, rados, honest)
        case _:
            return dp_feat_design(schema, request.sensitive_names, request.epsilon_per_rado, rounded=request.rounded)


def _joint(request: RadosRequest, rados: int, honest: int) -> Design:
    assert request.epsilon is not None
    (name,) = request.sensitive_names
    schema = request.schema
    # A feature's name stands for the column that it derives from.
    column = name if schema.derived_from(name) else schema.sources(name)
    if column is None:
        raise PlanError(f"{name!r} derives from no column, so there is nothing to protect; name a source column")
    squared = joint_squared(squared_range(schema, column), fraction_bits_of(request))
    noised = rados * len(schema.derived_from(column))
    share = smallest_share(squared, honest, noised, request.epsilon, request.delta, rados, HALF)
    return joint_design(schema, column, share)


def _clip(request: RadosRequest | MomentsRequest) -> Clip:
    return Clip(request.norm_bound or usual_norm(request.schema), request.schema.bias)


def _fixed_support(request: RadosRequest, party_rows: Sequence[int]) -> Design:
    clip, fraction = _clip(request), request.support or HALF
    check_fraction(fraction)
    for rows in party_rows:
        check_support(rows, fraction)
    if request.epsilon is None:
        return FixedSupportDesign(fraction, clip, 0)
    squared = edge_squared(clip, fraction_bits_of(request))
    sigma = smallest_share(squared, 1, request.schema.d, request.epsilon, request.delta)
    return FixedSupportDesign(fraction, clip, sigma)


def _gaussian(request: RadosRequest, rados: int, honest: int, party_rows: Sequence[int]) -> Design:
    assert request.epsilon is not None
    clip, fraction = _clip(request), request.support
    inclusion = HALF if fraction is None else fraction
    check_fraction(inclusion)
    if fraction is not None and party_rows:
        inclusion = max(Fraction(check_support(rows, fraction), rows) for rows in party_rows)
    squared = edge_squared(clip, fraction_bits_of(request))
    noised = rados * request.schema.d
    share = smallest_share(squared, honest, noised, request.epsilon, request.delta, rados, inclusion)
    return GaussianDesign(clip, share, fraction)


def _moments(request: MomentsRequest, honest: int) -> MomentsQuery:
    clip, bits = _clip(request), fraction_bits_of(request)
    multiplier = edge_multiplier(clip.norm_bound, bits, request.edge_weight)
    least = MomentsQuery(clip, multiplier, 3)
    squared = moments_squared(clip, bits, multiplier)
    share = _share(request, squared, honest, least.length(request.schema.d))
    return MomentsQuery(clip, multiplier, share)


def _statistic(request: StatisticRequest, honest: int) -> StatisticQuery:
    check(request.predicates, request.schema)
    bits, sensitivity = fraction_bits_of(request), batch_sensitivity(request.predicates)
    laplace = LaplaceShares(smallest_scale(sensitivity.l1 << bits, request.epsilon * _part(request)), honest)
    if request.pure:
        return StatisticQuery(request.predicates, request.schema, laplace)
    values = len(request.predicates)
    gaussian = GaussianShares(_share(request, sensitivity.l2_squared << 2 * bits, honest, values))
    # A part of a budget of squared mus is not a part of an epsilon.
    choices: tuple[NoiseShares, ...] = (gaussian,) if request.part < 1 else (laplace, gaussian)
    noise = min(choices, key=lambda shares: shares.half_width(honest, values, _COMPARED_AT))
    return StatisticQuery(request.predicates, request.schema, noise)


def _gradient(request: GradientRequest, honest: int) -> GradientQuery:
    assert request.clip is not None, "a request without a clip is refused"
    theta = tuple(round(value * (1 << THETA_BITS)) for value in request.theta)
    squared = gradient_squared(request.clip, fraction_bits_of(request))
    share = _share(request, squared, honest, len(theta))
    return GradientQuery(request.loss, theta, request.clip, share, request.basis)


def _share(request: NoisyTerms, squared: Fraction | int, honest: int, values: int) -> int:
    """The least share for the request's part: mu^2 = Delta^2 / sigma^2 times 1 / part is what the whole would take."""
    return smallest_share(Fraction(squared) / _part(request), honest, values, request.epsilon, request.delta)


def _part(request: NoisyTerms) -> Fraction:
    return request.part if request.part == 1 else request.part * _PART_MARGIN
