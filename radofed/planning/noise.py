"""Plans with Gaussian noise: joint dp-feat, fixed support over a noised table, noised totals, moments."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from dpcore.accounting.composition import LARGEST_EPSILON
from dpcore.accounting.gaussian import WeakNoiseError, subsampled_rados
from dpcore.accounting.integer_noise import IntegerNoise
from dpcore.accounting.protection import GaussianProtection, ReleaseCost, Setting
from dpcore.accounting.sensitivity import SQUARE_WEIGHT
from dpcore.errors import ConfigurationError, PlanError
from dpcore.numbers.decimals import up, upper_digits
from dpcore.queries.base import MAX_VALUES, QueryLimits
from dpcore.queries.fraction_bits import FractionBits
from dpcore.queries.kind import QueryKind
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.norms import edge_multiplier, norm_bound_of
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statement import assumptions_of
from dpcore.rados.designs import FixedSupportDesign, GaussianDesign, JointDesign
from dpcore.rados.schema_designs import joint_design
from dpcore.rados.support import SupportError, check_support
from dpcore.randomness.discrete_gaussian import LARGEST_SIGMA, SMALLEST_SHARE_SIGMA
from dpcore.records.clipping import Clip
from dpcore.records.schema import Schema
from learner.requests import EDGE_FRACTION_BITS, HALF, MOMENT_FRACTION_BITS, protected_column
from radofed.planning.cost import Cost, Noise
from radofed.planning.request import PlanRequest
from radofed.planning.signal import Signal, moments_signal
from radofed.planning.sizes import Sizes, sizes_of

# The largest squared distance between two codings of a cell.
_SQUARED_RANGE = {"boolean": 4, "numeric": 4, "category": 2}


def noised_cost(request: PlanRequest) -> Cost:
    """The cost of a design with noise, which is given or calibrated to the request's epsilon.

    Raises ConfigurationError if the norm bound leaves no room for features beyond the bias.
    """
    if not request.joint:
        _clip(request)
    cost = Cost(request, feasible=False, scope="joint" if request.joint else "record", delta=float(request.delta))
    try:
        _check_supports(request)
        share = _share(request)
        kind = _kind(request, share)
        counted = kind.protection(_setting(request)).cost(request.party_rows, request.delta)
        if counted is None:
            return replace(cost, feasible=True, scope="none", delta=None, sizes=_sizes(request, kind))
        noise = _noise(request, share)
        cost = replace(cost, noise=noise, signal=_signal(request, noise), largest_rados=_largest_rados(request, share))
        sizes = _sizes(request, kind)
    except PlanError as error:
        return _refused(request, cost, error)
    assumptions = assumptions_of(kind, (), len(request.party_rows), _setting(request))
    cost = replace(cost, assumptions=assumptions)
    others = counted.epsilon_if_others_collude
    given = request.share_sd is not None
    if request.epsilon is not None and Fraction(others) > request.epsilon:
        return _too_dear(request, replace(cost, smallest_epsilon=others, sizes=sizes), counted)
    return replace(
        cost,
        feasible=True,
        epsilon=counted.epsilon,
        epsilon_if_others_collude=others,
        smallest_epsilon=others if given else None,
        sizes=sizes,
    )


def _check_supports(request: PlanRequest) -> None:
    """Raise SupportError if a party is too small for its set: a fast check, before noise is chosen."""
    fraction = request.support or (HALF if request.design == "fixed-support" else None)
    if fraction is not None:
        for rows in set(request.party_rows):
            check_support(rows, fraction)


def _bits(request: PlanRequest) -> int:
    if request.fraction_bits is not None:
        return request.fraction_bits
    return MOMENT_FRACTION_BITS if request.design == "moments" else EDGE_FRACTION_BITS


def _setting(request: PlanRequest) -> Setting:
    return Setting(request.coordinates or _noised(request), _bits(request), request.honest_parties)


def _clip(request: PlanRequest) -> Clip:
    # Without a schema, all coordinates except the bias count as real-valued.
    reals = (request.coordinates or 1) - int(request.bias)
    if reals < 1:
        raise ConfigurationError("one coordinate, the bias, leaves no feature: give more coordinates, or no bias")
    try:
        usual = request.norm_bound or norm_bound_of(real_features=reals, unit_features=0, bias=request.bias)
        return Clip(usual, request.bias)
    except PlanError as error:
        raise ConfigurationError(str(error)) from error


def _multiplier(request: PlanRequest) -> int:
    """The integer weight of edges, as in a learner's query."""
    return edge_multiplier(_clip(request).norm_bound, _bits(request), request.edge_weight)


def _noised(request: PlanRequest) -> int:
    """The number of a record's coordinates with noise."""
    if request.joint and request.schema is not None:
        return len(_joint(request, request.schema, SMALLEST_SHARE_SIGMA).coordinates)
    if request.joint and request.source != "category":
        return 1
    assert request.coordinates is not None
    return request.coordinates


def _kind(request: PlanRequest, share: int) -> QueryKind:
    """The query with this noise share; 0 is no noise. Raises PlanError."""
    match request.kind_name:
        case "moments":
            return _moments(request, share)
        case "joint" if request.schema is not None:
            return RadosQuery(request.n, _joint(request, request.schema, share))
        case "joint":
            squared = _SQUARED_RANGE[request.source]
            return RadosQuery(
                request.n, JointDesign("the sensitive column", tuple(range(_noised(request))), squared, share)
            )
        case "fixed-support":
            return RadosQuery(request.n, FixedSupportDesign(request.support or HALF, _clip(request), share))
        case _:
            return RadosQuery(request.n, GaussianDesign(_clip(request), share, request.support))


def _moments(request: PlanRequest, share: int) -> MomentsQuery:
    return MomentsQuery(_clip(request), _multiplier(request), share)


def _joint(request: PlanRequest, schema: Schema, share: int) -> JointDesign:
    return joint_design(schema, protected_column(schema, request.sensitive), share)


def _protection(request: PlanRequest, share: int) -> GaussianProtection:
    protection = _kind(request, share).protection(_setting(request))
    assert isinstance(protection, GaussianProtection), "a plan of these designs has Gaussian noise"
    return protection


def _share(request: PlanRequest) -> int:
    """The request's share, or the least one within its epsilon; 0 for no noise. Raises PlanError."""
    if request.share_sd is not None:
        return request.share_sd
    return 0 if request.epsilon is None else _least_share(request, request.epsilon)


def _least_share(request: PlanRequest, epsilon: Fraction | float) -> int:
    least = _protection(request, SMALLEST_SHARE_SIGMA)
    return least.least_share(request.party_rows, epsilon, request.delta)


def _sizes(request: PlanRequest, kind: QueryKind) -> Sizes | None:
    if request.coordinates is None:
        return None
    limits = QueryLimits(request.rows, len(request.party_rows), request.coordinates)
    return sizes_of(kind, limits, FractionBits.exactly(_bits(request)), request.key_bits)


def _noise(request: PlanRequest, share: int) -> Noise:
    bits, rows = _bits(request), request.rows
    units = share * math.sqrt(len(request.party_rows))
    products = None
    if request.design == "moments":
        noise_sd = math.ldexp(units, -bits) / _multiplier(request)
        products = math.ldexp(units, -2 * bits) / SQUARE_WEIGHT
        spread = math.sqrt(rows)
    else:
        inclusion = float(request.support or HALF)
        noise_sd = math.ldexp(units, -bits)
        spread = math.sqrt(rows * inclusion * (1 - inclusion))
        if request.design == "fixed-support":
            noise_sd = math.ldexp(share, -bits) * math.sqrt(rows * inclusion)
    return Noise(share, _protection(request, share).shares(request.honest_parties), bits, noise_sd, products, spread)


def _signal(request: PlanRequest, noise: Noise) -> Signal:
    """See radofed.planning.signal."""
    coordinates = _noised(request)
    match request.kind_name:
        case "moments":
            kind = _moments(request, noise.share_sd)
            parties, bits = len(request.party_rows), noise.fraction_bits
            return moments_signal(kind, coordinates, bits, rows=request.rows, parties=parties)[0]
        case "joint":
            # The other coordinates of a rado have no noise.
            return replace(_of_rados(request, noise, coordinates), numbers="every value of the sensitive column")
        case "fixed-support":
            # All rados are of one table, whose noise of every row they share: more rados do not reduce it.
            return Signal(math.ldexp(noise.share_sd, -noise.fraction_bits), request.rows, coordinates)
        case _:
            return _of_rados(request, noise, coordinates)


def _of_rados(request: PlanRequest, noise: Noise, coordinates: int) -> Signal:
    return Signal(noise.noise_sd / noise.spread, request.n, coordinates, "rados")


def _largest_rados(request: PlanRequest, share: int) -> int | None:
    """The most rados within epsilon with this noise; None if their number does not matter or determines the noise."""
    if request.share_sd is None or request.epsilon is None or request.kind_name not in ("joint", "gaussian"):
        return None
    protection = _protection(request, share)
    noise = IntegerNoise(share, request.honest_parties, MAX_VALUES)
    inclusion = max(map(protection.inclusion_of, request.party_rows))
    found = subsampled_rados(noise.mu(protection.squared), inclusion, request.epsilon, request.delta)
    return min(found, MAX_VALUES // (request.coordinates or 1))


def _too_dear(request: PlanRequest, cost: Cost, counted: ReleaseCost) -> Cost:
    """A plan whose given noise is too small for its epsilon."""
    assert request.epsilon is not None
    others = up(counted.epsilon_if_others_collude)
    ways = [f"ask for at most {cost.largest_rados} rados"] if cost.largest_rados else []
    with contextlib.suppress(PlanError):
        ways.append(f"give a share of {_least_share(request, request.epsilon)} units")
    ways.append(f"allow an epsilon of {others}")
    return replace(
        cost,
        reason=f"with this noise epsilon is {others} if others collude, and the plan allows "
        f"{float(request.epsilon):.6g}",
        suggestion=", or ".join(ways),
    )


def _refused(request: PlanRequest, cost: Cost, error: PlanError) -> Cost:
    """A plan that is not possible, with what would work."""
    reason, _, own = str(error).partition(": ")
    # Only the set's fraction has a range that certainly works; other errors know one limit of several.
    suggestion = own if isinstance(error, SupportError) and min(request.party_rows) > 1 else None
    if isinstance(error, WeakNoiseError):
        with contextlib.suppress(PlanError):
            target = LARGEST_EPSILON if request.epsilon is None else request.epsilon
            least = _least_share(request, target)
            suggestion = f"give a share of at least {least} units; that gives an epsilon of {float(target):.6g}"
    elif request.epsilon is not None and request.share_sd is None:
        smallest = _smallest_epsilon(request)
        if smallest is not None and Fraction(smallest) > request.epsilon:
            reason = f"the noise for an epsilon of {float(request.epsilon):.6g} does not fit"
            return replace(
                cost,
                smallest_epsilon=smallest,
                reason=reason,
                suggestion=f"allow an epsilon of {upper_digits(smallest, 2)}",
            )
    return replace(cost, noise=None, signal=None, reason=reason, suggestion=suggestion)


def _smallest_epsilon(request: PlanRequest) -> float | None:
    """The figure under collusion with the most noise that a share and a slot can hold; None if no noise fits."""

    def fits(share: int) -> bool:
        try:
            _sizes(request, _kind(request, share))
        except PlanError:
            return False
        return True

    if not fits(SMALLEST_SHARE_SIGMA):
        return None
    share = _last(SMALLEST_SHARE_SIGMA, LARGEST_SIGMA + 1, fits)
    try:
        counted = _kind(request, share).protection(_setting(request)).cost(request.party_rows, request.delta)
    except PlanError:
        return None
    return None if counted is None else counted.epsilon_if_others_collude


def _last(below: int, above: int, fits: Callable[[int], bool]) -> int:
    """The last integer that fits, given that `below` does and `above` does not."""
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if fits(middle) else (below, middle)
    return below
