"""Privacy statements: what a release protects, for people and programs.

A statement claims only what was counted for the design, rows and rados of the release.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Self, get_args

from dpcore.accounting import words
from dpcore.accounting.composition import Bracket
from dpcore.accounting.gaussian import ShiftDistribution
from dpcore.accounting.mixed import CountRelease, PureLoss, mixed_epsilon
from dpcore.accounting.protection import WHOLE, CountProtection, ReleaseCost, Scope, Setting
from dpcore.errors import ConfigurationError, PlanError
from dpcore.numbers.rationals import rounded_up
from dpcore.queries.kind import QueryKind
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.persons import Persons
from dpcore.records.schema import Schema

# The exact composition of several releases over the same records, all read by one learner.
#
# Their parameters must be fixed without looking at earlier answers; a party's ledger does not assume that and charges
# more (dpcore.accounting.filters). A bound of a scope holds for every narrower one: record, column, marginal.
#
# The learner alone opens the total of at most one attempt of a query. Under collusion every attempt counts, for every
# party, also of a query that ended without a total.


@dataclass(frozen=True, eq=False)
class CountedRelease:
    """One of several releases: its query, parties and encoding. Raises PlanError if there is no attempt."""

    kind: QueryKind
    party_rows: Mapping[str, int]
    """m_p by party of the cohort; of a query that ended without a total, of the parties that may have been in one."""
    schema: Schema
    setting: Setting
    attempts: int = 1
    """How many of its attempts may have a total that a coalition can complete."""
    is_opened: bool = True
    """Whether the learner opened the total of one of them."""
    part: HeldBack | None = None
    """The part of the rows that it is about; None for all."""
    epoch: str | None = None
    """The epoch of rows that it is about; None for all rows. A record is in one epoch."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise PlanError(f"a query has {self.attempts} attempts: count at least the first one")

    def totals(self, party: str, *, colluding: bool) -> int:
        """The number of totals that a party's record may be in and that the learner, or a coalition, can see."""
        if not colluding:
            return int(self.is_opened and party in self.party_rows)
        # The total that was opened is of a known cohort; that of a lost attempt may be of any.
        return self.attempts if party in self.party_rows or not self.is_opened else self.attempts - 1


def composed_cost(
    releases: Sequence[CountedRelease],
    delta: Fraction | float,
    *,
    feature: str | None = None,
    column: str | None = None,
    by_ids: bool = False,
) -> ReleaseCost:
    """The cost of the composition of all releases: for records, or for one source column, or one feature's marginal.

    It is counted at `delta`, or at 0 if all releases have Laplace noise. feature: the name of a -1/+1 or rounded
    coordinate; column: the name of a source column; at most one of them. The cost is that of the worst party. Against
    the learner alone each total that was opened counts, under collusion every attempt of every query.

    by_ids: whether ids decide at every party which rows are held back, and rows keep their ids; then a record's cost is
    the largest of that within either part and that of a change of sides (`_cases`).

    Releases about different epochs of rows compose in parallel: the cost is that of the worst epoch.

    Raises PlanError if there is no release, if one of them (named by its place) has no bound for that scope, or if no
    finite epsilon holds.
    """
    if not releases or (feature is not None and column is not None):
        raise PlanError("name at least one release, and at most one of a feature and a column")
    scope: Scope = (
        _common(releases) if feature is None and column is None else "joint" if feature is None else "marginal"
    )
    for place, release in enumerate(releases, start=1):
        if not _bounds(release, feature, column):
            wanted = {
                "record": "records",
                "person": "persons",
                "joint": f"the column {column!r}",
                "marginal": f"{feature!r}",
            }[scope]
            raise PlanError(f"release {place} bounds nothing about {wanted}, so neither does the composition")
    alone: list[Bracket] = []
    others: list[Bracket] = []
    for about in _of_one_record(releases):
        rows = _rows_of_parties(about)
        for case in _cases(about) if by_ids else [[(release, False) for release in about]]:
            alone += [_epsilon(case, party, rows, delta, colluding=False) for party in rows]
            others += [_epsilon(case, party, rows, delta, colluding=True) for party in rows]
    collude = max(bracket.upper for bracket in others)
    return ReleaseCost(
        scope=scope,
        epsilon=min(collude, max(bracket.upper for bracket in alone)),
        epsilon_lower=max(bracket.lower for bracket in alone) if all(map(_is_exact, releases)) else None,
        delta=0.0 if all(release.kind.is_pure for release in releases) else float(delta),
        epsilon_if_others_collude=collude,
    )


def _common(releases: Sequence[CountedRelease]) -> Scope:
    """Persons, if all releases protect them; a bound for a person holds for each of the person's records too."""
    return "person" if all(release.kind.scope == "person" for release in releases) else "record"


def _of_one_record(releases: Sequence[CountedRelease]) -> list[Sequence[CountedRelease]]:
    """The releases that a record of each epoch may be in: those about all rows, and about its epoch."""
    epochs = dict.fromkeys(release.epoch for release in releases if release.epoch is not None)
    return [[each for each in releases if each.epoch in (None, epoch)] for epoch in epochs] or [releases]


def _rows_of_parties(releases: Sequence[CountedRelease]) -> dict[str, int]:
    """The rows of each party that can have the largest cost; of several parties that cost the same, of one."""
    last: dict[str, int] = {}
    for release in releases:
        last.update(release.party_rows)
    seen = {
        (rows, *(release.party_rows.get(party) for release in releases)): (party, rows)
        for party, rows in sorted(last.items())
    }
    return dict(seen.values())


def _is_exact(release: CountedRelease) -> bool:
    """Whether the lower ends of brackets are lower bounds on what the release itself reveals."""
    return isinstance(release.kind.protection(release.setting), CountProtection)


def _bounds(release: CountedRelease, feature: str | None, column: str | None) -> bool:
    kind, schema = release.kind, release.schema
    if kind.scope == "joint":
        return kind.protected_column == (column if feature is None else schema.sources(feature))
    return kind.scope in WHOLE or feature in kind.features(schema)


def _cases(releases: Sequence[CountedRelease]) -> list[list[tuple[CountedRelease, bool]]]:
    """Releases that a pair of neighbours may differ in, each with whether its record leaves or joins the rows.

    Both records are in one part of the rows, or one is in each. Releases about another share than the most frequent
    count as of all rows. Proof: as of a ledger's charges for both parts of a table (docs/explanation/proofs.md).
    """
    shares = Counter(release.part.share for release in releases if release.part is not None)
    divided = shares.most_common(1)[0][0] if shares else None
    sides = [_side(release, divided) for release in releases]
    known = list(zip(releases, sides, strict=True))
    within = [[(release, False) for release, side in known if side in (None, part)] for part in Part]
    return [case for case in (*within, [(release, side is not None) for release, side in known]) if case]


def _side(release: CountedRelease, divided: Fraction | None) -> Part | None:
    """The part of rows divided by this share that a release is about, if it depends on that part alone."""
    if release.part is None or release.part.share != divided:
        return None
    return release.part.part if release.kind.protection(release.setting).is_of_part else None


def _epsilon(
    case: Sequence[tuple[CountedRelease, bool]],
    party: str,
    rows: Mapping[str, int],
    delta: Fraction | float,
    *,
    colluding: bool,
) -> Bracket:
    counts: list[CountRelease] = []
    shifts: list[ShiftDistribution] = []
    pure: list[PureLoss] = []
    for release, is_presence in case:
        times = release.totals(party, colluding=colluding)
        if not times:
            continue
        members, own = tuple(release.party_rows.values()), release.party_rows.get(party, rows[party])
        protection = release.kind.protection(release.setting)
        protection = protection.of_presence() if is_presence else protection
        distribution = protection.distribution_for(members, own, delta, colluding=colluding)
        if isinstance(distribution, CountRelease):
            counts.append(CountRelease(distribution.distribution, times * distribution.n))
        elif isinstance(distribution, PureLoss):
            pure.append(PureLoss(times * distribution.bound))
        else:
            shifts += times * [distribution]
    # Basic composition of an (e, 0)-private and an (epsilon, delta)-private release.
    mixed = mixed_epsilon(counts, shifts, delta) if counts or shifts else Bracket(0.0, 0.0)
    if not pure:
        return mixed
    alone = PureLoss(sum((distribution.bound for distribution in pure), Fraction(0))).epsilon(delta)
    if not (counts or shifts):
        return alone
    return Bracket(max(alone.lower, mixed.lower), math.nextafter(alone.upper + mixed.upper, math.inf))


NO_RECORD = (
    "No record is protected as a whole: there is no bound for any other column, for the label, or for whether a record "
    "took part."
)
MASKS = (
    "Contributions are masked in pairs (X25519, HKDF, AES-256): a sum over a part of the cohort is uniformly random to "
    "anyone who lacks the mask keys of the members that do not collude, if some of these are inside the part and some "
    "outside it, so that the learner sees the whole sum or nothing, whatever the coordinator does, unless parties of "
    "the cohort collude with it."
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

PERSON_IDS = (
    "A person is all rows of one id at a party, which each party names for itself (id_column): a person with two ids "
    "is not covered as one. Ids are told apart by 64 bits of HMAC-SHA256."
)
EPOCH = (
    "The release is about the rows of epoch {epoch} only. A record is in one epoch, which is public, for good: neither "
    "the epoch of a record nor the number of rows in each is protected."
)
PERSON_EPOCH = (
    "The release is about the rows of epoch {epoch} only. All rows of a person are in one epoch, which is public, for "
    "good: neither the epoch of a person nor the number of persons in each is protected."
)
LARGE_EPSILON = 10.0

_COLLUSION = {
    "record": "If other parties collude with the learner and the coordinator, as many as stated below",
    "person": "If other parties collude with the learner and the coordinator, as many as stated below",
    "joint": "If other parties collude with the learner and the coordinator, as many as stated below",
    "marginal": "If the learner, the coordinator and all other parties collude",
}


@dataclass(frozen=True)
class PrivacyStatement:
    """The bound that goes with a release, and its limits. Raises ConfigurationError."""

    unit: str
    """The unit of privacy, in which neighbouring data sets differ."""
    scope: Scope
    """"person", "record" and "joint": within the whole release; "marginal": within one coordinate's values; "none": no
    bound."""
    epsilon: float | None
    delta: float | None
    """Against the learner alone (a delta of 0 is pure differential privacy)."""
    epsilon_if_others_collude: float | None
    """Against learner, coordinator and colluding parties, at the same delta."""
    theorem_epsilon: float | None
    """n epsilon of the paper's Theorem 6, for comparison; None without truncation. All are None if scope is "none"."""
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

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

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
            what = "the release is" if self.releases == 1 else f"the composition of {self.releases} releases is"
            unit = f"{self.unit}, within {words.within(self.scope, self.releases)}"
            figures = (self.epsilon, self.epsilon_if_others_collude, self.delta)
            bound = words.definition(*figures, what, unit, _COLLUSION[self.scope])
            if self.theorem_epsilon is not None:
                bound.append(f"{words.theorem(self.theorem_epsilon)}.")
        return bound


def statement_for(
    kind: QueryKind,
    party_rows: Sequence[int],
    delta: Fraction | float | None,
    *,
    schema: Schema,
    setting: Setting,
    attempts: int = 1,
    epoch: str | None = None,
) -> PrivacyStatement:
    """The statement of a release of this kind over a cohort with `party_rows` rows.

    delta: in (0, 1), if anything is bounded. attempts: those that may have a total, all counted under collusion. epoch:
    of rows that it is about. Raises PlanError if delta is missing, and as `Protection.cost`.
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
        unit=unit_of(kind, schema),
        scope=cost.scope,
        epsilon=min(cost.epsilon, collude),
        delta=cost.delta,
        epsilon_if_others_collude=collude,
        theorem_epsilon=cost.theorem_epsilon,
        assumptions=(
            *assumptions_of(kind, kind.features(schema), len(party_rows), setting),
            *([ATTEMPTS.format(attempts=attempts)] if attempts > 1 else []),
            *([] if epoch is None else [(EPOCH if kind.persons is None else PERSON_EPOCH).format(epoch=epoch)]),
        ),
        warnings=(*_delta_warnings(sum(party_rows), cost.delta, kind), *_warnings(kind, schema, cost.epsilon)),
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
    """Epsilon at `delta` under collusion, if each attempt may have a total. Raises as `composed_cost`."""
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
    """The statement of a release without a privacy bound; reason, if the design alone does not say it: a warning."""
    return PrivacyStatement(
        unit=unit_of(kind, schema) if kind.is_promised else "one record",
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


def unit_of(kind: QueryKind, schema: Schema) -> str:
    """The unit of privacy of a release of this kind, with the names of its columns."""
    names = kind.features(schema)
    if names:
        return f"one record's value of {'any one of ' if len(names) > 1 else ''}{_quoted(names)}"
    if kind.persons is not None:
        return words.person(kind.persons.parties)
    return f"one record's value in the column {kind.protected_column!r}" if kind.scope == "joint" else "one record"


def _delta_warnings(units: int, delta: float, kind: QueryKind) -> tuple[str, ...]:
    """A warning if delta allows publishing records: publishing a random one in 1/delta is (0, delta)-private.

    units: how many records, or persons, there are.
    """
    if delta * units < 1:
        return ()
    noun = "records" if kind.persons is None else "persons"
    warning = (
        f"With {units} {noun}, a delta of {delta!r} allows some of them to be disclosed: choose one well "
        f"below {1 / units:.1g}."
    )
    return (warning,)


def _warnings(kind: QueryKind, schema: Schema, epsilon: float) -> tuple[str, ...]:
    weak = (
        (
            (
                f"An epsilon of {rounded_up(epsilon)} bounds little: it lets the odds of a guess about one "
                f"{'record' if kind.persons is None else 'person'} grow "
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
    return weak if kind.scope in WHOLE else (*weak, NO_RECORD, *kind.leaks)


def assumptions_of(kind: QueryKind, names: Sequence[str], parties: int, setting: Setting) -> tuple[str, ...]:
    """What a bound for a release of this kind assumes. names: of a "marginal" scope, the protected coordinates."""
    if kind.scope == "marginal":
        return _marginal_assumptions(names, parties)
    return (
        _neighbours(kind),
        kind.noise_words(parties, min(setting.honest_parties, parties)),
        *([] if parties == 1 else [MASKS]),
        *([words.ROW_NOT_PERSON] if kind.persons is None else [PERSON_IDS]),
        COORDINATOR,
        *kind.assumptions,
    )


def _neighbours(kind: QueryKind) -> str:
    if kind.scope == "joint":
        return (
            f"Neighbouring data sets differ in the cell of {kind.protected_column!r} in one record, both being cells "
            "that the schema takes and uses; labels, all other columns and row counts stay as they are."
        )
    if kind.persons is not None:
        return _neighbouring_persons(kind.persons)
    return (
        "Neighbouring data sets differ in one record, which is replaced by any other record that the schema takes; row "
        "counts are public. A record that the schema refuses keeps its party from taking part, which others can see."
    )


def _neighbouring_persons(persons: Persons) -> str:
    where = (
        "all rows that the person has at one party are"
        if persons.parties == 1
        else f"all rows that the person has are, at up to {persons.parties} parties,"
    )
    known = "" if persons.parties == 1 else " What a person has at a party that colludes is known there."
    return (
        f"Neighbouring data sets differ in one person: {where} replaced by those of any other person, which the schema "
        "takes, however many each of them has. The number of persons at each party is public; how many rows a person "
        f"has, and how many there are in all, is not released.{known} Rows that the schema refuses keep their party "
        "from taking part, which others can see."
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
        words.ROW_NOT_PERSON,
        COORDINATOR,
    )
