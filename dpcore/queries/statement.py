"""Privacy statements: what a release protects, for people and programs.

A statement claims only what was counted for the design, rows and rados of the release.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Self, get_args

from dpcore.accounting.protection import Scope, Setting
from dpcore.errors import ConfigurationError, PlanError
from dpcore.numbers.rationals import rounded_up
from dpcore.queries.kind import QueryKind
from dpcore.queries.several_releases import CountedRelease, composed_cost
from dpcore.records.schema import Schema

NO_RECORD = (
    "No record is protected as a whole: there is no bound for any other column, for the label, or for whether a record "
    "took part."
)
ROW_NOT_PERSON = "A record is one row: a person with several rows is not covered as a person."
MASKS = (
    "Contributions are masked in pairs (X25519, HKDF, AES-256): a sum over a part of the cohort is uniformly random to "
    "anyone who lacks the mask keys of one member inside the part and of one outside it, so that the learner sees the "
    "whole sum or nothing, whatever the coordinator does, unless parties of the cohort collude with it."
)
COORDINATOR = (
    "The coordinator is kept from the total by Paillier encryption alone (decisional composite residuosity), not by "
    "differential privacy."
)


ATTEMPTS = (
    "The figure for the learner alone counts the total that it opened. The figure under collusion counts {attempts} "
    "attempts of the query: coordinator, learner and the members of a cohort that did not upload can complete the "
    "total of a lost attempt. How many attempts there were is taken not to depend on the records, and the parties of a "
    "lost attempt to be no smaller than those of the release."
)

LARGE_EPSILON = 10.0

_WITHIN = {
    "record": "the whole release",
    "joint": "the whole release",
    "marginal": "that coordinate's own values",
}
_COLLUSION = {
    "record": "If other parties collude with the learner and the coordinator, as many as stated below",
    "joint": "If other parties collude with the learner and the coordinator, as many as stated below",
    "marginal": "If the learner, the coordinator and all other parties collude",
}


@dataclass(frozen=True)
class PrivacyStatement:
    """The bound that goes with a release, and its limits.

    Raises ConfigurationError if the fields contradict one another.
    """

    unit: str
    """The unit of privacy, in which neighbouring data sets differ."""
    scope: Scope
    """"record" and "joint", the bound covers the unit within the whole release; "marginal", within one coordinate's
    values alone; "none", there is no bound."""
    epsilon: float | None
    delta: float | None
    """Against the learner alone (a delta of 0 is pure differential privacy)."""
    epsilon_if_others_collude: float | None
    """Against learner, coordinator and colluding parties, at the same delta."""
    theorem_epsilon: float | None
    """n epsilon of the paper's Theorem 6, for comparison. All are None if scope is "none"; theorem_epsilon is also None
    without truncation."""
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    releases: int = 1
    """How many releases the bound is for, in composition."""

    def __post_init__(self) -> None:
        if type(self.releases) is not int or self.releases < 1:
            raise ConfigurationError(f"a statement is for {self.releases!r} releases: give an integer from 1 on")
        figures = (self.epsilon, self.delta, self.epsilon_if_others_collude)
        if self.scope not in get_args(Scope):
            raise ConfigurationError(f"scope is {self.scope!r}: choose one of {', '.join(get_args(Scope))}")
        if self.scope == "none" and any(figure is not None for figure in (*figures, self.theorem_epsilon)):
            raise ConfigurationError("a statement of scope 'none' has figures: leave them out, as nothing is bounded")
        if self.scope != "none" and any(figure is None for figure in figures):
            raise ConfigurationError("a statement lacks epsilon, delta or epsilon_if_others_collude: give all three")
        for figure in (*figures, self.theorem_epsilon):
            if figure is not None and not (math.isfinite(figure) and figure >= 0):
                raise ConfigurationError(f"a figure of a statement is {figure}: give a finite number of at least 0")
        if self.delta is not None and not 0 <= self.delta < 1:
            raise ConfigurationError(f"delta is {self.delta}: choose a number from 0 to below 1")

    def to_dict(self) -> dict[str, Any]:
        """Every field by name, in types of JSON."""
        found = {**asdict(self), "assumptions": list(self.assumptions), "warnings": list(self.warnings)}
        # As in statements of older versions: only where it says more.
        return found if self.releases > 1 else {name: found[name] for name in found if name != "releases"}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`. Raises ConfigurationError if a field is missing, unknown or of the wrong type."""
        names = set(cls.__dataclass_fields__)
        if set(fields) | {"releases"} != names:
            odd = ", ".join(sorted((set(fields) | {"releases"}) ^ names))
            raise ConfigurationError(f"a privacy statement has missing or unknown fields: correct {odd}")
        for name in ("unit", "scope"):
            if not isinstance(fields[name], str):
                raise ConfigurationError(f"{name} of a privacy statement is not a text: give a string")
        figures: dict[str, float | None] = {}
        for name in ("epsilon", "delta", "epsilon_if_others_collude", "theorem_epsilon"):
            figure = fields[name]
            if figure is not None and (isinstance(figure, bool) or not isinstance(figure, int | float)):
                raise ConfigurationError(f"{name} of a privacy statement is not a number: give a number or null")
            try:
                figures[name] = None if figure is None else float(figure)
            except OverflowError as error:
                raise ConfigurationError(f"{name} of a privacy statement is beyond doubles: give a number") from error
        texts: dict[str, tuple[str, ...]] = {}
        for name in ("assumptions", "warnings"):
            if not isinstance(fields[name], list | tuple) or not all(isinstance(text, str) for text in fields[name]):
                raise ConfigurationError(
                    f"{name} of a privacy statement is not a list of texts: give a list of strings"
                )
            texts[name] = tuple(fields[name])
        return cls(
            unit=fields["unit"],
            scope=fields["scope"],
            epsilon=figures["epsilon"],
            delta=figures["delta"],
            epsilon_if_others_collude=figures["epsilon_if_others_collude"],
            theorem_epsilon=figures["theorem_epsilon"],
            assumptions=texts["assumptions"],
            warnings=texts["warnings"],
            releases=fields.get("releases", 1),
        )

    def sentences(self) -> list[str]:
        """The statement in words: the bound, its assumptions, then the warnings."""
        assumed = (f"Assumed: {text}" for text in self.assumptions)
        return [*self._bound(), *assumed, *(f"Warning: {text}" for text in self.warnings)]

    def short_sentences(self) -> list[str]:
        """The bound and the warnings, and where the assumptions are, for output that repeats those of a plan."""
        where = (
            f"It holds under {len(self.assumptions)} assumptions: `rado plan` states them before a query, --format "
            "json lists them, and docs/threat-model.md, section 5, explains them."
        )
        return [*self._bound(), *([where] if self.assumptions else []), *(f"Warning: {text}" for text in self.warnings)]

    def _bound(self) -> list[str]:
        """What epsilon is, and against whom."""
        if self.epsilon is None or self.delta is None or self.epsilon_if_others_collude is None:
            bound = [f"No differential privacy is claimed: nothing bounds what this release reveals about {self.unit}."]
        else:
            what, within = "release", _WITHIN[self.scope]
            if self.releases > 1:
                what, within = f"composition of {self.releases} releases", "all of them"
            bound = [
                (
                    f"Against the learner alone, the {what} is ({rounded_up(self.epsilon)}, {self.delta!r})-"
                    f"differentially private for {self.unit}, within {within}."
                ),
                (
                    f"{_COLLUSION[self.scope]}, epsilon is at most {rounded_up(self.epsilon_if_others_collude)} at "
                    "the same delta."
                ),
            ]
            if self.theorem_epsilon is not None:
                bound.append(f"Theorem 6 of Nock, Patrini and Friedman (2015) would say {self.theorem_epsilon:.6g}.")
        return bound


def statement_for(
    kind: QueryKind,
    party_rows: Sequence[int],
    delta: Fraction | float | None,
    *,
    schema: Schema,
    setting: Setting,
    attempts: int = 1,
) -> PrivacyStatement:
    """The statement of a release of this kind over a cohort with `party_rows` rows.

    delta: for the whole release, in (0, 1); ignored if nothing is bounded. attempts: those of the query that may have a
    total; the figure under collusion counts them all. Raises PlanError if delta is missing, and what
    `dpcore.accounting.protection.Protection.cost` raises.
    """
    if kind.scope == "none":
        return without_bound(kind, schema)
    if delta is None:
        raise PlanError("privacy is counted at a delta: give one between 0 and 1, such as 1e-6")
    cost = kind.protection(setting).cost(party_rows, delta)
    if cost is None:
        return without_bound(kind, schema)
    collude = cost.epsilon_if_others_collude
    if attempts > 1:
        collude = cost_of_attempts(kind, party_rows, delta, schema=schema, setting=setting, attempts=attempts)
    return PrivacyStatement(
        unit=_unit(kind, schema),
        scope=cost.scope,
        epsilon=min(cost.epsilon, collude),
        delta=cost.delta,
        epsilon_if_others_collude=collude,
        theorem_epsilon=cost.theorem_epsilon,
        assumptions=(
            *assumptions_of(kind, kind.features(schema), len(party_rows), setting),
            *([ATTEMPTS.format(attempts=attempts)] if attempts > 1 else []),
        ),
        warnings=(*_delta_warnings(sum(party_rows), cost.delta), *_warnings(kind, schema, cost.epsilon)),
    )


def cost_of_attempts(
    kind: QueryKind,
    party_rows: Sequence[int],
    delta: Fraction | float,
    *,
    schema: Schema,
    setting: Setting,
    attempts: int,
) -> float:
    """Epsilon at `delta` under collusion, if each of `attempts` attempts of a query may have a total.

    Raises PlanError as `dpcore.queries.several_releases.composed_cost` does.
    """
    rows = {str(place): count for place, count in enumerate(party_rows)}
    release = CountedRelease(kind, rows, schema, setting, attempts)
    match kind.scope:
        case "marginal":
            # Each protected coordinate costs the same.
            cost = composed_cost([release], delta, feature=kind.features(schema)[0])
        case "joint":
            cost = composed_cost([release], delta, column=kind.protected_column)
        case _:
            cost = composed_cost([release], delta)
    return cost.epsilon_if_others_collude


def without_bound(kind: QueryKind, schema: Schema, reason: str = "") -> PrivacyStatement:
    """The statement of a release without a privacy bound.

    reason: why there is no bound, if the design alone does not say it. It becomes the first warning.
    """
    return PrivacyStatement(
        unit=_unit(kind, schema) if kind.is_promised else "one record",
        scope="none",
        epsilon=None,
        delta=None,
        epsilon_if_others_collude=None,
        theorem_epsilon=None,
        assumptions=(MASKS, COORDINATOR),
        warnings=(*([reason] if reason else []), *kind.leaks),
    )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _unit(kind: QueryKind, schema: Schema) -> str:
    names = kind.features(schema)
    if names:
        return f"one record's value of {'any one of ' if len(names) > 1 else ''}{_quoted(names)}"
    return f"one record's value in the column {kind.protected_column!r}" if kind.scope == "joint" else "one record"


def _delta_warnings(rows: int, delta: float) -> tuple[str, ...]:
    """A warning if delta allows publishing records: publishing a random one in 1/delta is (0, delta)-private."""
    if delta * rows < 1:
        return ()
    warning = (
        f"With {rows} records, a delta of {delta!r} allows some of them to be disclosed: choose one well "
        f"below {1 / rows:.1g}."
    )
    return (warning,)


def _warnings(kind: QueryKind, schema: Schema, epsilon: float) -> tuple[str, ...]:
    weak = (
        (
            (
                f"An epsilon of {rounded_up(epsilon)} bounds little: it lets the odds of a guess about one record grow "
                "by a factor of e^epsilon."
            ),
        )
        if epsilon > LARGE_EPSILON
        else ()
    )
    names = kind.features(schema)
    if names:
        alone = "each on its own" if len(names) > 1 else "on their own"
        covered = (
            f"The bound covers the released values of {_quoted(names)} {alone}; the other coordinates are released "
            "with them, and anyone who knows a record's other columns can read the value from the release."
        )
        return (*weak, covered, NO_RECORD, *kind.leaks)
    return weak if kind.scope == "record" else (*weak, NO_RECORD, *kind.leaks)


def assumptions_of(kind: QueryKind, names: Sequence[str], parties: int, setting: Setting) -> tuple[str, ...]:
    """What a bound for a release of this kind assumes. names: of a "marginal" scope, the protected coordinates."""
    if kind.scope == "marginal":
        return _marginal_assumptions(names, parties)
    return (
        _neighbours(kind),
        kind.noise_words(parties, min(setting.honest_parties, parties)),
        *([] if parties == 1 else [MASKS]),
        ROW_NOT_PERSON,
        COORDINATOR,
        *kind.assumptions,
    )


def _neighbours(kind: QueryKind) -> str:
    if kind.scope == "joint":
        return (
            f"Neighbouring data sets differ in the cell of {kind.protected_column!r} in one record, both being cells "
            "that the schema takes and uses; labels, all other columns and row counts stay as they are."
        )
    return (
        "Neighbouring data sets differ in one record, which is replaced by any other record that the schema takes; row "
        "counts are public. A record that the schema refuses keeps its party from taking part, which others can see."
    )


def _marginal_assumptions(names: Sequence[str], parties: int) -> tuple[str, ...]:
    alone = (
        "There is one party, so the figure for the learner alone and the one under collusion are the same."
        if parties == 1
        else "The figure for the learner alone holds if the learner sees only the total, and every "
        "party draws its signatures as the design says and keeps them to itself; the figure under collusion needs "
        "that of the record's own party alone."
    )
    return (
        alone,
        *([] if parties == 1 else [MASKS]),
        (
            f"Neighbouring data sets differ in the value of {' or '.join(repr(name) for name in names)} in one record, "
            "both being values that the schema takes; labels, all other columns and row counts stay as they are."
        ),
        ROW_NOT_PERSON,
        COORDINATOR,
    )
