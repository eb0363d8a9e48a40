"""The cost of a design's query: that of the learner's own plan (learner.planning), for made-up parties.

What is refused is planned once more with other options, for the figures and the changes that the cost names. Over the
plan go only figures that no query has: what is left without truncation, of a single rado, and of the most rados.
"""

import contextlib
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

from dpcore.accounting.composition import LARGEST_EPSILON, DeltaTooSmallError, InfiniteEpsilonError, VoidEpsilonError
from dpcore.accounting.dp_feat import (
    EmptyTruncationError,
    admissible_range,
    delta_per_rado,
    epsilon_for,
    last_that_fits,
    theorem_epsilon,
)
from dpcore.accounting.gaussian import WeakNoiseError, subsampled_rados
from dpcore.accounting.noise_shares import IntegerNoise
from dpcore.accounting.protection import ReleaseCost, Scope, Setting
from dpcore.errors import ConfigurationError, PlanError, SlotOverflowError
from dpcore.numbers.distributions import binomial_mass
from dpcore.numbers.rationals import LARGEST_INTEGER, up, upper_digits
from dpcore.queries.kind import MAX_VALUES, QueryKind
from dpcore.queries.moments import norm_bound_of
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statement import assumptions_of
from dpcore.rados.designs import dp_feat_design
from dpcore.rados.support import SupportError
from dpcore.randomness.noise import LARGEST_SIGMA, SMALLEST_SHARE_SIGMA
from dpcore.records.schema import Schema
from learner.number_of_rados import most_rados
from learner.planning import Plan
from learner.requests import ChosenRequest, MomentsRequest, RadosRequest, clip_of
from radofed.planning.design_cost import MOST_LOOKED_FOR, MOST_PLANNED_ROWS, Cost, PlanRequest, Sizes, many_rados
from radofed.planning.made_up import SENSITIVE_COLUMN, SENSITIVE_FEATURE, MadeUpFederation, cohort_terms, short_schema
from radofed.planning.remedies import fewer_coordinates, first_that_helps, larger_epsilon, more_rows, what_works
from radofed.planning.signal import Signal, gaussian_of, noise_of, signal_of
from wire.design_options import AUTO
from wire.errors import WireError
from wire.query import setting_of
from wire.request_fields import USUAL_RADOS

DIVIDED = (
    "One draw over the pool is divided by the coordinator, which knows every party's part. It does so honestly and "
    "tells no one. The figure under collusion is for the learner and all other parties, not for the coordinator."
)

_NOTHING_WORKS = "no single option makes this possible: ask for moments, or use more rows"
_SCOPES: dict[str, Scope] = {"plain": "none", "dp-feat": "marginal", "joint": "joint"}
# An epsilon that a request has to have although its noise is stated.
_ANY_EPSILON = Fraction(1)
_UNBOUNDED = (InfiniteEpsilonError, VoidEpsilonError, DeltaTooSmallError, EmptyTruncationError)

Kind = TypeVar("Kind", bound=QueryKind)


@dataclass(frozen=True, kw_only=True)
class _RadosOfNoise(RadosRequest):
    """A request whose noise is stated, not calibrated."""

    share_sd: int

    def calibrated(self, kind: RadosQuery, honest_parties: int, party_rows: object) -> RadosQuery:  # noqa: ARG002
        return kind.with_noise(self.share_sd)


@dataclass(frozen=True, kw_only=True)
class _MomentsOfNoise(MomentsRequest):
    """A request whose noise is stated, not calibrated."""

    share_sd: int

    def calibrated(self, kind: Kind, honest_parties: int) -> Kind:  # noqa: ARG002
        return kind.with_noise(self.share_sd)


def plan_cost(request: PlanRequest) -> Cost:
    """The cost of a request. A query that is not possible is no error: the cost says why, and what would work.

    Raises ConfigurationError if arguments contradict each other, SchemaError if a name is of nothing in the schema.
    """
    cost = bare_cost(request)
    if cost.feasible:
        return replace(_warned(cost), coefficients_warning=_few_coefficients(cost))
    if cost.suggestion:
        return cost
    # The cost's request has the number of rados that was refused.
    found = what_works(cost.request, _tried) or _own_remedy(cost.request)
    return replace(cost, suggestion=found or _NOTHING_WORKS)


def _few_coefficients(cost: Cost) -> str | None:
    """The warning that least squares of a number from these moments will state few coefficients."""
    request = cost.request
    if request.schema is None or request.kind_name != "moments" or request.schema.label.coding.kind != "number":
        return None
    if cost.noise is None or request.feature_map is not None or request.epsilon is None:
        return None
    from learner.expected_coefficients import few_coefficients  # noqa: PLC0415  (scikit-learn takes a second)

    honest = cost.noise.honest_parties / len(request.party_rows)
    rows = sum(request.party_rows)
    return few_coefficients("linear", None, request.schema, rows, request.epsilon, request.delta, honest=honest)


def bare_cost(request: PlanRequest) -> Cost:
    """The cost without advice that takes other plans: some suggestions, and what would help against noise."""
    try:
        plan = planned(request)
    except PlanError as error:
        return _refused(replace(request, design="moments") if request.design == AUTO else request, error)
    cost = bare_cost(_as_chosen(request, plan)) if request.design == AUTO else _cost_of(request, plan)
    return replace(cost, choice=plan.chosen) if plan.chosen else cost


def _as_chosen(request: PlanRequest, plan: Plan) -> PlanRequest:
    """The request of the design and the number of rados that were chosen in its plan."""
    kind = plan.query.kind
    return replace(request, design=kind.name, rados=kind.amounts.get("rados"))


def planned(request: PlanRequest) -> Plan:
    """The plan of the request's query, as its learner would have it. Raises PlanError, ConfigurationError, SchemaError.

    A draw over the pool has no query: its plan is that of plain rados, with the design and the cost of the divided one.
    """
    if max(request.delta.numerator, request.delta.denominator) > LARGEST_INTEGER:
        raise PlanError("a query states delta with at most 63 bits above and below the line: choose a larger one")
    if request.split == "exact":
        return _divided(request)
    try:
        return _federation(request.party_rows, request.key_bits).plan(_asked(request))
    except WireError as error:
        raise PlanError(str(error)) from error


def _divided(request: PlanRequest) -> Plan:
    """The plan of a divided draw. Raises PlanError, SchemaError."""
    epsilon, rados = request.epsilon, request.rados
    if rados is None:
        assert epsilon is not None, "rados are chosen to stay within an epsilon"
        # If not even one fits, one is planned, and is too dear.
        rados = max(1, most_rados(request.party_rows, None, epsilon, request.delta, most=USUAL_RADOS))
    free: dict[str, Any] = {"epsilon": None, "epsilon_per_rado": None, "sensitive": (), "rounded": (), "split": "local"}
    plan = planned(replace(request, design="plain", rados=rados, **free))
    schema = request.schema or _schema(request)
    names = request.sensitive or (SENSITIVE_FEATURE,)
    kind = RadosQuery(
        rados, dp_feat_design(schema, names, request.epsilon_per_rado, rounded=request.rounded_names, split="exact")
    )
    query = replace(plan.query, kind=kind)
    return replace(plan, query=query, cost=kind.protection(setting_of(query)).cost(request.party_rows, request.delta))


@lru_cache(maxsize=64)
def _federation(party_rows: tuple[int, ...], key_bits: int) -> MadeUpFederation:
    return MadeUpFederation(party_rows, key_bits)


def _asked(request: PlanRequest) -> RadosRequest | MomentsRequest | ChosenRequest:
    """What a learner asks for."""
    terms: dict[str, Any] = {
        "delta": request.delta,
        "fraction_bits": request.fraction_bits,
        "feature_map": request.feature_map,
        "unit": request.unit,
        "persons_may_repeat": request.persons_may_repeat,
        **cohort_terms(len(request.party_rows), request.honest, request.may_vanish),
    }
    schema = request.schema or _schema(request)
    share, epsilon = request.share_sd, request.epsilon or (request.share_sd and _ANY_EPSILON)
    norm_bound, clips = request.norm_bound, request.kind_name not in _SCOPES
    if clips and norm_bound is None and request.schema is None:
        # All coordinates except the bias count as real-valued.
        norm_bound = norm_bound_of(real_features=schema.d - int(schema.bias), unit_features=0, bias=schema.bias)
    asked: RadosRequest | MomentsRequest | ChosenRequest
    if request.design_name == AUTO:
        assert request.epsilon is not None, "a choice needs an epsilon"
        asked = ChosenRequest(schema, epsilon=request.epsilon, norm_bound=norm_bound, **terms)
    elif request.design_name == "moments":
        terms |= {"epsilon": epsilon, "norm_bound": norm_bound, "edge_weight": request.edge_weight}
        terms["products_of_each_class"] = request.products_of_each_class
        asked = MomentsRequest(schema, **terms) if share is None else _MomentsOfNoise(schema, share_sd=share, **terms)
    else:
        default = {"dp-feat": (SENSITIVE_FEATURE,), "joint": (SENSITIVE_COLUMN,)}
        terms |= {
            "rados": request.rados,
            "design": request.design_name,
            "joint": request.joint,
            "sensitive": request.sensitive or default.get(request.kind_name),
            "rounded": request.rounded,
            "epsilon": epsilon,
            "epsilon_per_rado": request.epsilon_per_rado,
            "norm_bound": norm_bound,
            "support": request.support,
        }
        asked = RadosRequest(schema, **terms) if share is None else _RadosOfNoise(schema, share_sd=share, **terms)
    if clips:
        try:
            clip_of(asked)
        except PlanError as error:  # a norm that is none for any plan
            raise ConfigurationError(str(error)) from error
    return asked


def _schema(request: PlanRequest) -> Schema:
    """A made-up schema: for designs that clip records, or with a coordinate to protect."""
    clips = request.kind_name not in _SCOPES
    source = None if clips else request.source
    return short_schema(request.coordinates or 1, source=source, bias=clips and request.bias)


def _cost_of(request: PlanRequest, plan: Plan) -> Cost:
    """The cost of a plan, which is too dear if it is not within the request's epsilon."""
    query, counted = plan.query, plan.cost
    if request.chooses_rados:
        request = replace(request, rados=query.kind.amounts["rados"])
    sizes = None if request.coordinates is None else Sizes.of(plan)
    cost = replace(_about(request), feasible=True, sizes=sizes, vanishing=plan.vanishing)
    if counted is None:
        return replace(cost, scope="none", delta=None)
    if request.design_name == "plain":
        return replace(
            cost, marginal_epsilon=counted.epsilon, marginal_epsilon_if_others_collude=counted.epsilon_if_others_collude
        )
    cost = replace(cost, assumptions=_assumptions(request, query.kind, query.schema, setting_of(query)))
    if request.kind_name == "dp-feat":
        figure, has_choice = counted.epsilon, True
        smallest = figure if request.epsilon_per_rado is None else _untruncated(request)
    else:
        noise = noise_of(plan)
        cost = replace(cost, noise=noise, signal=signal_of(plan, noise), largest_rados=_largest_rados(request, plan))
        figure, has_choice = counted.epsilon_if_others_collude, request.share_sd is not None
        smallest = figure
    if request.epsilon is not None and Fraction(figure) > request.epsilon:
        return _too_dear(request, replace(cost, feasible=False, smallest_epsilon=figure), figure)
    return replace(
        cost,
        epsilon=counted.epsilon,
        epsilon_if_others_collude=counted.epsilon_if_others_collude,
        smallest_epsilon=smallest if has_choice else None,
    )


def _about(request: PlanRequest) -> Cost:
    """What holds whether or not the query is possible."""
    whole: Scope = "person" if request.unit == "person" else "record"
    scope = _SCOPES.get(request.kind_name, whole)
    cost = Cost(request, feasible=False, scope=scope, delta=None if scope == "none" else float(request.delta))
    if request.kind_name != "dp-feat":
        return cost
    per_rado, pools = request.epsilon_per_rado, _pools(request)
    least = min(pools)
    return replace(
        cost,
        theorem_epsilon=None if per_rado is None else theorem_epsilon(request.n, per_rado),
        delta_per_rado=_delta_per_rado(pools, per_rado),
        acceptance_rate=1.0 if per_rado is None else binomial_mass(least, admissible_range(least, per_rado)[0]),
        largest_rados=None
        if request.epsilon is None
        else most_rados(request.party_rows, None, request.epsilon, request.delta, most=max(MOST_LOOKED_FOR, request.n)),
    )


def _pools(request: PlanRequest) -> tuple[int, ...]:
    """The rows over which each draw is made."""
    return (request.rows,) if request.split == "exact" else request.party_rows


def _delta_per_rado(pools: tuple[int, ...], epsilon_per_rado: Fraction | None) -> float | None:
    """The mass of the pool's least admitted count: the product of the parties' masses if each truncates its own.

    None if a truncation admits nothing.
    """
    product = 1.0
    for rows, parties in Counter(pools).items():
        if epsilon_per_rado is not None:
            low, high = admissible_range(rows, epsilon_per_rado)
            if low > high:
                return None
            # Hoeffding: p(low) <= 2 exp(-2 (m/2 - low)^2 / m) (m + 1), below the range of doubles. The exact
            # figure would take a loop over all counts.
            if (rows - 2 * low) ** 2 > 2 * 800 * rows:
                return 0.0
        product *= delta_per_rado(rows, epsilon_per_rado) ** parties
    return product


def _assumptions(request: PlanRequest, kind: QueryKind, schema: Schema, setting: Setting) -> tuple[str, ...]:
    parties = len(request.party_rows)
    first, *others = assumptions_of(kind, kind.features(schema), parties, setting)
    # The first says who draws signatures.
    return (DIVIDED if request.split == "exact" and parties > 1 else first, *others)


def _largest_rados(request: PlanRequest, plan: Plan) -> int | None:
    """The most rados within epsilon with this noise; None if their number does not matter or determines the noise."""
    if request.share_sd is None or request.epsilon is None or request.kind_name not in ("joint", "gaussian"):
        return None
    protection = gaussian_of(plan)
    noise = IntegerNoise(request.share_sd, plan.query.honest_parties, MAX_VALUES)
    inclusion = max(map(protection.inclusion_of, request.party_rows))
    found = subsampled_rados(noise.mu(protection.squared), inclusion, request.epsilon, request.delta)
    return min(found, MAX_VALUES // plan.query.d)


def _too_dear(request: PlanRequest, cost: Cost, figure: float) -> Cost:
    """A plan whose rados, or whose given noise, cost more than its epsilon."""
    assert request.epsilon is not None
    allowed = f"and the plan allows {float(request.epsilon):.6g}"
    ways = [f"ask for at most {many_rados(cost.largest_rados)}"] if cost.largest_rados else []
    if request.share_sd is None:
        reason = f"{many_rados(request.n)} cost{'s' if request.n == 1 else ''} an epsilon of {up(figure)}, {allowed}"
    else:
        reason = f"with this noise epsilon is {up(figure)} if others collude, {allowed}"
        share = _least_share(request, request.epsilon)
        ways += [] if share is None else [f"give a share of {share} units"]
    ways.append(f"allow an epsilon of {up(figure)}")
    return replace(cost, reason=reason, suggestion=", or ".join(ways))


def _least_share(request: PlanRequest, epsilon: Fraction) -> int | None:
    """The share of a plan for an epsilon; None if it is not possible."""
    with contextlib.suppress(PlanError):
        return gaussian_of(planned(replace(request, share_sd=None, epsilon=epsilon))).share_sigma
    return None


def _refused(request: PlanRequest, error: PlanError) -> Cost:
    """A plan that is not possible, with what would work if it takes no search."""
    if request.chooses_rados:
        # Not even one fits, and its refusal says what would work.
        request = replace(request, rados=1)
    reason, _, own = str(error).partition(": ")
    if request.kind_name in ("plain", "dp-feat"):
        if request.epsilon is not None:
            with contextlib.suppress(PlanError):
                return _cost_of(request, planned(replace(request, epsilon=None)))
        return _refused_count(request, error, reason)
    cost = _about(request)
    if isinstance(error, WeakNoiseError):
        target = request.epsilon or Fraction(LARGEST_EPSILON)
        if (least := _least_share(request, target)) is not None:
            own = f"give a share of at least {least} units; that gives an epsilon of {float(target):.6g}"
            return replace(cost, reason=reason, suggestion=own)
    if isinstance(error, SupportError):
        # Only the set's fraction has a range that certainly works; other errors know one limit of several.
        return replace(cost, reason=reason, suggestion=own if min(request.party_rows) > 1 else None)
    if request.epsilon is not None and request.share_sd is None:
        smallest = _smallest_epsilon(request)
        if smallest is not None and Fraction(smallest) > request.epsilon:
            return replace(
                cost,
                smallest_epsilon=smallest,
                reason=f"the noise for an epsilon of {float(request.epsilon):.6g} does not fit",
                suggestion=f"allow an epsilon of {upper_digits(smallest, 2)}",
            )
    return replace(cost, reason=reason)


def _refused_count(request: PlanRequest, error: PlanError, reason: str) -> Cost:
    """Rados whose bound is that of a count, if it is not finite, or if their values cannot be packed."""
    cost = _about(request)
    alone, others = None, "if the other parties collude with the learner, "
    if isinstance(error, _UNBOUNDED) and len(request.party_rows) > 1:
        if request.epsilon is None:
            alone = _learner_alone(request)
        if alone is not None:
            reason = f"parties refuse it, since {others}{reason}"
        elif request.split == "local" and isinstance(error, InfiniteEpsilonError):
            # Each of several parties counts its own distribution first: the others may reveal theirs.
            reason = others + reason
    if request.design_name == "dp-feat":
        with contextlib.suppress(PlanError):
            asked = _asked(replace(request, epsilon=None, split="local"))
            kind, setting = asked.kind(1, request.party_rows), asked.setting(1)
            cost = replace(cost, assumptions=_assumptions(request, kind, asked.schema, setting))
    smallest = None if request.epsilon_per_rado is None else _untruncated(request)
    return replace(cost, epsilon=alone, smallest_epsilon=smallest, reason=reason)


def _untruncated(request: PlanRequest) -> float | None:
    """The learner's figure without truncation, a lower bound with truncation; None if it is not possible."""
    with contextlib.suppress(PlanError):
        counted = planned(replace(request, epsilon_per_rado=None, epsilon=None)).cost
        return None if counted is None else counted.epsilon
    return None


def _learner_alone(request: PlanRequest) -> float | None:
    """The learner's own figure for several parties, None if it is not finite."""
    with contextlib.suppress(PlanError):
        return epsilon_for(_pools(request), request.n, request.epsilon_per_rado, request.delta).upper
    return None


def _smallest_epsilon(request: PlanRequest) -> float | None:
    """The figure under collusion with the most noise that a share and a slot can hold; None if no noise fits."""

    def cost_of(share: int) -> ReleaseCost | None:
        return planned(replace(request, share_sd=share, epsilon=None)).cost

    def fits(share: int) -> bool:
        try:
            cost_of(share)
        except SlotOverflowError:
            return False
        except PlanError:  # weak noise, or what no noise remedies
            return True
        return True

    if not fits(SMALLEST_SHARE_SIGMA):
        return None
    with contextlib.suppress(PlanError):
        counted = cost_of(last_that_fits(SMALLEST_SHARE_SIGMA, LARGEST_SIGMA + 1, fits))
        return None if counted is None else counted.epsilon_if_others_collude
    return None


def _own_remedy(request: PlanRequest) -> str | None:
    """What the refusal itself names, such as other features of the schema."""
    try:
        planned(request)
    except PlanError as error:
        return str(error).partition(": ")[2] or None
    return None


def _tried(request: PlanRequest) -> Cost | None:
    """The cost of a plan that is possible, None for another: without what would make that possible."""
    with contextlib.suppress(PlanError):
        cost = _cost_of(request, planned(request))
        return cost if cost.feasible else None
    return None


def _warned(cost: Cost) -> Cost:
    """The cost with its alarm if the noise exceeds the signal, and with what was found to help."""
    request, lost = cost.request, cost.signal
    if lost is None or not lost.is_lost:
        return cost

    def signal(changed: PlanRequest) -> Signal | None:
        return bare_cost(changed).signal

    changes = (more_rows(request, MOST_PLANNED_ROWS), larger_epsilon(request), fewer_coordinates(request))
    helps = [words for each in changes for words in first_that_helps(each, signal)]
    if request.design_name in ("gaussian", "fixed-support") and request.epsilon is not None:
        instead = replace(request, design="moments", rados=None, support=None, fraction_bits=None)
        helps += first_that_helps([("moments in place of rados", instead)], signal)
    return replace(cost, warning=lost.warning(helps))
