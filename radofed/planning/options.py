"""Plans from what people give: options of `rado plan`, and fields of the console's page, by the same names."""

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpcore.declared import declarations, first_changed, values_of
from dpcore.errors import ConfigurationError
from dpcore.records.schema import Schema
from learner.design_options import taken_options
from radobase.files.schemas import load_feature_map, load_schema
from radobase.options import named_options
from radofed.planning.backwards import MOST, smallest_epsilon, worth_by_epsilon
from radofed.planning.cost import Cost
from radofed.planning.designs import bare_cost, plan_cost
from radofed.planning.fields import DesignFields, PlanOptions
from radofed.planning.request import PlanRequest, split_equally
from wire.request_fields import ReleaseFields

if TYPE_CHECKING:
    from radofed.planning.asked_cost import AskedCost
    from radofed.planning.asking import AskRequest

# ruff: noqa: PLC0415  (plans of what is asked take longer to import, and designs do without)

# The options that only one of the three plans takes.
_ONLY: dict[str, tuple[str, ...]] = {
    "a design": (
        *(field.name for field in declarations(ReleaseFields) if field.name != "epsilon"),
        *("source", "share_sd", "fraction_bits", "split", "picture", "map_file"),
    ),
    "an --estimator": ("option", "rounds"),
    "a --statistic": ("tolerance", "confidence", "noise_rate"),
}


@dataclass(frozen=True)
class Planned:
    """A plan. needed_epsilon: the plan's own, the smallest of two digits that can give the wanted accuracy.

    needed_epsilon_is_at_least: a lower bound on what a wanted worth needs; None for a tolerance alone, which is kept
    with the plan's epsilon. Both are None if an epsilon was given.
    """

    cost: "Cost | AskedCost"
    needed_epsilon: str | None = None
    needed_epsilon_is_at_least: str | None = None

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
    shared = load_schema(options.schema) if schema is None and options.schema is not None else schema
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
    """`radofed.planning.backwards.worth_by_epsilon`; empty if the noise does not follow from an epsilon."""
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
        if "epsilon" not in taken_options(options.design_name, joint=options.joint):
            raise ConfigurationError(f"{options.design_name} has no noise, so no epsilon follows: leave --worth out")
        fields["epsilon"] = MOST
    return PlanRequest(**fields) if schema is None else PlanRequest.over(schema, **fields)


def _asking(options: PlanOptions, schema: Schema | None, held: tuple[int, ...]) -> "AskRequest":
    from radofed.planning.asking import AskRequest
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
        options=named_options(options.option) | ({} if options.rounds is None else {"rounds": options.rounds}),
        predicates=options.statistic,
        tolerance=options.tolerance,
        confidence=options.confidence,
        noise_rate=options.noise_rate,
        honest=options.honest,
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
