"""Plans from what people give: options of `rado plan`, and fields of the console's page, by the same names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpcore.errors import ConfigurationError
from dpcore.records.schema import Schema
from learner.design_options import taken_options
from radobase.files.feature_maps import load_feature_map
from radobase.files.schemas import load_schema
from radobase.options import exact, exact_or_none, named_options
from radofed.planning.backwards import MOST, smallest_epsilon, worth_by_epsilon
from radofed.planning.cost import Cost
from radofed.planning.designs import bare_cost, plan_cost
from radofed.planning.request import PlanRequest, split_equally

if TYPE_CHECKING:
    from radofed.planning.asked_cost import AskedCost
    from radofed.planning.asking import AskRequest

# ruff: noqa: PLC0415  (plans of what is asked take longer to import, and designs do without)

# The options that only one of the three plans takes, by the parameters of `plan`, with what they are if not given.
_ONLY: dict[str, dict[str, Any]] = {
    "a design": {
        "rados": None, "design": None, "epsilon_per_rado": None, "joint": False, "source": "boolean", "share_sd": None,
        "norm_bound": None, "support": None, "edge_weight": None, "fraction_bits": None, "split": "local",
        "sensitive": None, "rounded": None, "picture": None, "map_file": None,
    },
    "an --estimator": {"option": None, "rounds": None},
    "a --statistic": {"tolerance": None, "confidence": 0.95, "noise_rate": 0.0},
}  # fmt: skip


_SPELLED = {"map_file": "map"}


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


def request_of(given: Mapping[str, Any]) -> "PlanRequest | AskRequest":
    """The request of a plan. given: the parameters of `rado plan`, as parsed. Its schema is a file's path, or a schema.

    Without an epsilon, but with a worth or a tolerance, the request has the largest epsilon that `cost_of` tries.
    Raises ConfigurationError or SchemaError if the options contradict each other or make no sense for any plan.
    """
    schema: Path | Schema | None = given["schema"]
    shared = load_schema(schema) if isinstance(schema, Path) else schema
    held = party_rows(given["rows"], given["parties"], given["party_rows"])
    if given["estimator"] is not None and given["statistic"]:
        raise ConfigurationError("give either an --estimator or a --statistic: they are planned separately")
    asks, asked = given["estimator"] is not None, bool(given["statistic"])
    planned = "an --estimator" if asks else "a --statistic" if asked else "a design"
    for what, options in _ONLY.items():
        for name, usual in options.items():
            if what != planned and given[name] and given[name] != usual:
                spelled = _SPELLED.get(name, name.replace("_", "-"))
                raise ConfigurationError(f"--{spelled} is of {what}, and {planned} is planned: leave it out")
    if given["worth"] is not None and (given["epsilon"] is not None or given["share_sd"] is not None):
        raise ConfigurationError("--worth asks for the epsilon that is needed: leave --epsilon and --share-sd out")
    return (_design if planned == "a design" else _asking)(given, shared, held)


def cost_of(request: "PlanRequest | AskRequest", given: Mapping[str, Any]) -> Planned:
    """The cost of a request, at the smallest epsilon if only an accuracy is given. given: as of `request_of`.

    Raises ConfigurationError if no epsilon gives that accuracy.
    """
    worth, tolerance = given["worth"], given["tolerance"]
    is_backwards = given["epsilon"] is None and (worth is not None or tolerance is not None)
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


def _design(given: Mapping[str, Any], schema: Schema | None, held: tuple[int, ...]) -> PlanRequest:
    same = ("rados", "joint", "source", "share_sd", "honest", "fraction_bits", "split", "coordinates", "key_bits")
    figures = ("epsilon_per_rado", "epsilon", "norm_bound", "support", "edge_weight")
    fields: dict[str, Any] = {
        **{name: given[name] for name in same},
        **{name: exact_or_none(given[name], name.replace("_", "-")) for name in figures},
        "design": given["design"] or "dp-feat",
        "party_rows": held,
        "delta": exact(given["delta"], "delta"),
        "bias": not given["no_bias"],
        "sensitive": tuple(given["sensitive"] or ()),
        "rounded": tuple(given["rounded"] or ()),
    }
    if (file := given["map_file"]) is not None:
        if schema is None:
            raise ConfigurationError("a feature map is of the columns of a schema: give --schema")
        fields["feature_map"] = load_feature_map(file, schema)
    if given["worth"] is not None:
        if "epsilon" not in taken_options(fields["design"], joint=given["joint"]):
            raise ConfigurationError(f"{fields['design']} has no noise, so no epsilon follows: leave --worth out")
        fields["epsilon"] = MOST
    # The request checks the words of design, split and source.
    return PlanRequest(**fields) if schema is None else PlanRequest.over(schema, **fields)


def _asking(given: Mapping[str, Any], schema: Schema | None, held: tuple[int, ...]) -> "AskRequest":
    from radofed.planning.asking import AskRequest
    from radofed.planning.made_up import made_up_schema

    if schema is None:
        if given["coordinates"] is None or given["statistic"]:
            raise ConfigurationError(
                "what is asked depends on the schema: give --schema, or for an estimator of numbers their --coordinates"
            )
        schema = made_up_schema(given["coordinates"], bias=not given["no_bias"])
    elif given["coordinates"] is not None or given["no_bias"]:
        raise ConfigurationError("the schema says what the coordinates are: leave --coordinates and --no-bias out")
    is_backwards = given["worth"] is not None or given["tolerance"] is not None
    if given["epsilon"] is None and not is_backwards:
        raise ConfigurationError(
            "answers have noise: give the --epsilon of all answers in total, or the accuracy that is wanted"
        )
    options = named_options(given["option"] or ())
    if given["rounds"] is not None:
        options["rounds"] = given["rounds"]
    return AskRequest(
        party_rows=held,
        schema=schema,
        epsilon=MOST if given["epsilon"] is None else exact(given["epsilon"], "epsilon"),
        delta=exact(given["delta"], "delta"),
        estimator=given["estimator"],
        options=options,
        predicates=tuple(given["statistic"] or ()),
        tolerance=given["tolerance"],
        confidence=given["confidence"],
        noise_rate=given["noise_rate"],
        honest=given["honest"],
        key_bits=given["key_bits"],
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
