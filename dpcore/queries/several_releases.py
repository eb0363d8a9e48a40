"""The composition of several releases over the same records, counted exactly and not by adding up their epsilons.

The same learner reads all releases. Their parameters must be fixed without looking at earlier answers; a party's ledger
does not assume that and charges more (dpcore.accounting.filters).

A release bounds a scope if it bounds that scope or a wider one: a bound for a record holds for each of its columns, a
bound for a column for the marginals of its features.

Attempts. The learner alone opens the total of at most one attempt of a query. In one that was lost, members may have
uploaded, and coordinator, learner and the members that did not upload can complete its total.

So under collusion every attempt counts, also of a query that ended without a total. Its cohort is not known to the
learner, so it counts for every party.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting.composition import Bracket
from dpcore.accounting.gaussian import ShiftDistribution
from dpcore.accounting.mixed import CountRelease, PureLoss, mixed_epsilon
from dpcore.accounting.protection import CountProtection, ReleaseCost, Scope, Setting
from dpcore.errors import PlanError
from dpcore.queries.kind import QueryKind
from dpcore.records.schema import Schema


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
) -> ReleaseCost:
    """The cost of the composition of all releases: for records, or for one source column, or one feature's marginal.

    It is counted at `delta`, or at 0 if all releases have Laplace noise. feature: the name of a -1/+1 or rounded
    coordinate; column: the name of a source column; at most one of them. The cost is that of the worst party. Against
    the learner alone each total that was opened counts, under collusion every attempt of every query.

    Raises PlanError if there is no release, if one of them (named by its place) has no bound for that scope, or if no
    finite epsilon holds.
    """
    if not releases or (feature is not None and column is not None):
        raise PlanError("name at least one release, and at most one of a feature and a column")
    scope: Scope = "record" if feature is None and column is None else "joint" if feature is None else "marginal"
    for place, release in enumerate(releases, start=1):
        if not _bounds(release, feature, column):
            wanted = {"record": "records", "joint": f"the column {column!r}", "marginal": f"{feature!r}"}[scope]
            raise PlanError(f"release {place} bounds nothing about {wanted}, so neither does the composition")
    rows = _rows_of_parties(releases)
    alone = [_epsilon(releases, party, rows, delta, colluding=False) for party in rows]
    others = [_epsilon(releases, party, rows, delta, colluding=True) for party in rows]
    collude = max(bracket.upper for bracket in others)
    return ReleaseCost(
        scope=scope,
        epsilon=min(collude, max(bracket.upper for bracket in alone)),
        epsilon_lower=max(bracket.lower for bracket in alone) if all(map(_is_exact, releases)) else None,
        delta=0.0 if all(release.kind.is_pure for release in releases) else float(delta),
        epsilon_if_others_collude=collude,
    )


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
    return kind.scope == "record" or feature in kind.features(schema)


def _epsilon(
    releases: Sequence[CountedRelease],
    party: str,
    rows: Mapping[str, int],
    delta: Fraction | float,
    *,
    colluding: bool,
) -> Bracket:
    counts: list[CountRelease] = []
    shifts: list[ShiftDistribution] = []
    pure: list[PureLoss] = []
    for release in releases:
        times = release.totals(party, colluding=colluding)
        if not times:
            continue
        members, own = tuple(release.party_rows.values()), release.party_rows.get(party, rows[party])
        protection = release.kind.protection(release.setting)
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
