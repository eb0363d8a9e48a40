"""Plans from what people give: options of `rado plan`, and fields of the console's page, by the same names."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from dpcore.declared import declarations, first_changed, values_of
from dpcore.errors import ConfigurationError
from dpcore.numbers.rationals import upper_digits
from dpcore.queries.statement import LARGE_EPSILON
from dpcore.records.schema import Schema
from radobase.options import estimator_options
from radobase.schema_files import load_feature_map, load_schema
from radofed.planning.design_cost import Cost, PlanRequest, split_equally
from radofed.planning.designs import bare_cost, plan_cost
from radofed.planning.plan_options import DesignFields, PlanOptions
from wire.design_options import AUTO, taken_options
from wire.request_fields import ReleaseFields, UnitFields

if TYPE_CHECKING:
    from radofed.planning.asked_cost import AskedCost
    from radofed.planning.asked_queries import AskRequest


# Plans backwards: from a wanted accuracy to the smallest epsilon that gives it.
#
# Every epsilon that is tried is planned as if it had been given. If the same is asked, more epsilon means less noise,
# so the search halves a list of epsilons. An estimator may ask more at a larger epsilon, such as for curves. So the
# search divides the list where what is asked changes (dpcore.estimators.additive_pairs.Sizes.affords), and looks at
# all its pieces.
#
# For a tolerance the epsilon that it returns is enough, and the one before it in the list is not. What an answer is
# worth is known from above only (`radofed.planning.signal`). So there the one before it is a lower bound of what is
# needed, and the returned one may be too small.

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
Bare: TypeAlias = "Cost | AskedCost"
"""A plan without advice."""


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


# ruff: noqa: PLC0415  (plans of what is asked take longer to import, and designs do without)

# The options that only one of the three plans takes.
_ONLY: dict[str, tuple[str, ...]] = {
    "a design": (
        *(field.name for field in declarations(ReleaseFields) if field.name != "epsilon"),
        *("source", "share_sd", "fraction_bits", "split", "picture", "map_file"),
    ),
    "an --estimator": ("option", "rounds", "class_weight"),
    "a --statistic": ("tolerance", "confidence", "noise_rate", "local"),
}


@dataclass(frozen=True)
class Planned:
    """A plan, at its own epsilon or at the smallest that can give the wanted accuracy."""

    cost: "Cost | AskedCost"
    needed_epsilon: str | None = None
    """Two digits; None if an epsilon was given."""
    needed_epsilon_is_at_least: str | None = None
    """A lower bound on what a wanted worth needs; None for a tolerance, which the needed epsilon keeps."""

    def to_dict(self) -> dict[str, Any]:
        """Every figure by name, in JSON's types."""
        names = ("needed_epsilon", "needed_epsilon_is_at_least")
        needed = {name: value for name in names if (value := getattr(self, name)) is not None}
        return {**self.cost.to_dict(), **needed}

    def sentences(self) -> list[str]:
        """The plan as sentences."""
        needed, least = self.needed_epsilon, self.needed_epsilon_is_at_least
        if needed is None:
            return self.cost.sentences()
        if least is None:
            said = f"An epsilon of {needed} in total, under collusion, is enough for what is wanted."
        else:
            said = (
                f"What is wanted needs an epsilon of more than {least} in total, under collusion. This plan is for "
                f"{needed}, which may be too little."
            )
        return [said, *self.cost.sentences()]


def request_of(options: PlanOptions, schema: Schema | None = None) -> "PlanRequest | AskRequest":
    """The request of a plan. schema: in place of that of the options' file.

    Without an epsilon, but with a worth or a tolerance, the request has the largest epsilon that `cost_of` tries.
    Raises ConfigurationError or SchemaError if the options contradict each other or make no sense for any plan.
    """
    if options.label is not None and options.schema is None and schema is None:
        raise ConfigurationError("a label is one of a schema: give --schema, or leave --label out")
    is_read = schema is None and options.schema is not None
    shared = load_schema(options.schema, options.label) if is_read and options.schema is not None else schema
    held = party_rows(options.rows, options.parties, options.party_rows)
    if options.estimator is not None and options.statistic:
        raise ConfigurationError("give either an --estimator or a --statistic: they are planned separately")
    planned = (
        "an --estimator" if options.estimator is not None else "a --statistic" if options.statistic else "a design"
    )
    for what, names in _ONLY.items():
        if what != planned and (odd := first_changed(options, names)):
            raise ConfigurationError(f"{odd} is of {what}, and {planned} is planned: leave it out")
    if options.worth is not None and (options.epsilon is not None or options.share_sd is not None):
        raise ConfigurationError("--worth asks for the epsilon that is needed: leave --epsilon and --share-sd out")
    return _design(options, shared, held) if planned == "a design" else _asking(options, shared, held)


def cost_of(request: "PlanRequest | AskRequest", options: PlanOptions) -> Planned:
    """The cost of a request, at the smallest epsilon if only an accuracy is given.

    Raises ConfigurationError if no epsilon gives that accuracy.
    """
    worth, tolerance = options.worth, options.tolerance
    is_backwards = options.epsilon is None and (worth is not None or tolerance is not None)
    cost: Cost | AskedCost
    needed = too_little = Fraction(0)
    if isinstance(request, PlanRequest):
        if is_backwards:
            needed, too_little = smallest_epsilon(request, worth, bare_cost)
            request = replace(request, epsilon=needed)
        cost = plan_cost(request)
    else:
        from radofed.planning.asked_cost import ask_cost, bare_ask_cost

        if is_backwards:
            needed, too_little = smallest_epsilon(request, worth, bare_ask_cost)
            request = replace(request, epsilon=needed)
        cost = ask_cost(request)
    if not is_backwards:
        return Planned(cost)
    return Planned(cost, f"{float(needed):g}", None if worth is None else f"{float(too_little):g}")


def worth_curve(request: "PlanRequest | AskRequest") -> list[tuple[float, float]]:
    """`radofed.planning.from_options.worth_by_epsilon`; empty if the noise does not follow from an epsilon."""
    if isinstance(request, PlanRequest):
        is_calibrated = request.epsilon is not None and request.share_sd is None
        return worth_by_epsilon(request, bare_cost) if is_calibrated else []
    from radofed.planning.asked_cost import bare_ask_cost

    return worth_by_epsilon(request, bare_ask_cost)


def _design(options: PlanOptions, schema: Schema | None, held: tuple[int, ...]) -> PlanRequest:
    fields = values_of(options, DesignFields)
    fields |= {"party_rows": held, "bias": not options.no_bias}
    if options.map_file is not None:
        if schema is None:
            raise ConfigurationError("a feature map is of the columns of a schema: give --schema")
        fields["feature_map"] = load_feature_map(options.map_file, schema)
    if options.worth is not None:
        if options.design_name == AUTO:
            raise ConfigurationError("--worth compares plans of one design: give its name in place of auto")
        if "epsilon" not in taken_options(options.design_name, joint=options.joint):
            raise ConfigurationError(f"{options.design_name} has no noise, so no epsilon follows: leave --worth out")
        fields["epsilon"] = MOST
    return PlanRequest(**fields) if schema is None else PlanRequest.over(schema, **fields)


def _asking(options: PlanOptions, schema: Schema | None, held: tuple[int, ...]) -> "AskRequest":
    from radofed.planning.asked_queries import AskRequest
    from radofed.planning.made_up import made_up_schema

    if schema is None:
        if options.coordinates is None or options.statistic:
            raise ConfigurationError(
                "what is asked depends on the schema: give --schema, or for an estimator of numbers their --coordinates"
            )
        schema = made_up_schema(options.coordinates, bias=not options.no_bias)
    elif options.coordinates is not None or options.no_bias:
        raise ConfigurationError("the schema says what the coordinates are: leave --coordinates and --no-bias out")
    if options.epsilon is None and options.worth is None and options.tolerance is None:
        raise ConfigurationError(
            "answers have noise: give the --epsilon of all answers in total, or the accuracy that is wanted"
        )
    return AskRequest(
        party_rows=held,
        schema=schema,
        epsilon=options.epsilon or MOST,
        delta=options.delta,
        estimator=options.estimator,
        options=estimator_options(options.option, rounds=options.rounds, class_weight=options.class_weight),
        predicates=options.statistic,
        tolerance=options.tolerance,
        confidence=options.confidence,
        noise_rate=options.noise_rate,
        adaptive=options.adaptive,
        local=options.local,
        honest=options.honest,
        may_vanish=options.may_vanish,
        **values_of(options, UnitFields),
        key_bits=options.key_bits,
    )


def party_rows(rows: int | None, parties: int | None, party_rows: str | None) -> tuple[int, ...]:
    """Each party's rows, from the three options of these names. Raises ConfigurationError."""
    if (rows is None) == (party_rows is None):
        raise ConfigurationError("give either --rows with --parties, or --party-rows M1,M2,...")
    if party_rows is None:
        if rows is None or parties is None:
            raise ConfigurationError("--rows needs --parties, the number of parties that share the rows")
        return split_equally(rows, parties)
    if not re.fullmatch(r"[0-9]{1,18}(,[0-9]{1,18})*", party_rows):
        raise ConfigurationError(f"--party-rows {party_rows!r}: write each party's rows, such as 1200,900,400")
    stated = tuple(int(text) for text in party_rows.split(","))
    if parties not in (None, len(stated)):
        raise ConfigurationError(f"--party-rows has {len(stated)} parties and --parties says {parties}: leave one out")
    return stated
