"""The composition of several releases over the same records, counted exactly and not by adding up their epsilons.

The same learner reads all releases. Their parameters (designs, number of rados, noise) must be fixed without looking at
earlier answers. A party's ledger does not assume that and charges more (dpcore.accounting.filters). A release bounds a
scope if it bounds that scope or a wider one: a bound for a record holds for each of its columns, a bound for a column
holds for the marginals of its features.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting.composition import Bracket
from dpcore.accounting.gaussian import ShiftDistribution
from dpcore.accounting.mixed import CountRelease, mixed_epsilon
from dpcore.accounting.protection import ReleaseCost, Scope, Setting
from dpcore.accounting.pure import PureLoss
from dpcore.errors import PlanError
from dpcore.queries.kind import QueryKind
from dpcore.records.schema import Schema


@dataclass(frozen=True, eq=False)
class CountedRelease:
    """One of several releases: its query, parties and encoding. party_rows: m_p by party."""

    kind: QueryKind
    party_rows: Mapping[str, int]
    schema: Schema
    setting: Setting


def composed_cost(
    releases: Sequence[CountedRelease],
    delta: Fraction | float,
    *,
    feature: str | None = None,
    column: str | None = None,
) -> ReleaseCost:
    """The cost of the composition of all releases: for records, or for one source column, or one feature's marginal.

    It is counted at `delta`, or at 0 if all releases have Laplace noise. feature: the name of a -1/+1 or rounded
    coordinate; column: the name of a source column; at most one of them. The cost is that of the worst party: each
    record belongs to one party, and a release without that party reveals nothing about the record.

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
    parties = sorted({party for release in releases for party in release.party_rows})
    alone = [_epsilon(releases, party, delta, colluding=False) for party in _distinct(parties, releases)]
    others = [_epsilon(releases, party, delta, colluding=True) for party in _distinct(parties, releases)]
    collude = max(bracket.upper for bracket in others)
    return ReleaseCost(
        scope=scope,
        epsilon=min(collude, max(bracket.upper for bracket in alone)),
        epsilon_lower=max(bracket.lower for bracket in alone),
        delta=0.0 if all(release.kind.is_pure for release in releases) else float(delta),
        epsilon_if_others_collude=collude,
    )


def _distinct(parties: Sequence[str], releases: Sequence[CountedRelease]) -> list[str]:
    """One of the parties with the same rows in every release: they cost the same."""
    seen = {tuple(release.party_rows.get(party) for release in releases): party for party in parties}
    return list(seen.values())


def _bounds(release: CountedRelease, feature: str | None, column: str | None) -> bool:
    kind, schema = release.kind, release.schema
    if kind.scope == "joint":
        return kind.protected_column == (column if feature is None else schema.sources(feature))
    return kind.scope == "record" or feature in kind.features(schema)


def _epsilon(releases: Sequence[CountedRelease], party: str, delta: Fraction | float, *, colluding: bool) -> Bracket:
    counts: list[CountRelease] = []
    shifts: list[ShiftDistribution] = []
    pure: list[PureLoss] = []
    for release in releases:
        rows = release.party_rows.get(party)
        if rows is None:
            continue
        members = tuple(release.party_rows.values())
        protection = release.kind.protection(release.setting)
        distribution = protection.distribution_for(members, rows, delta, colluding=colluding)
        if isinstance(distribution, CountRelease):
            counts.append(distribution)
        elif isinstance(distribution, PureLoss):
            pure.append(distribution)
        else:
            shifts.append(distribution)
    # Basic composition of an (e, 0)-private and an (epsilon, delta)-private release.
    mixed = mixed_epsilon(counts, shifts, delta) if counts or shifts or not pure else Bracket(0.0, 0.0)
    if not pure:
        return mixed
    alone = PureLoss(sum((distribution.bound for distribution in pure), Fraction(0))).epsilon(delta)
    if not (counts or shifts):
        return alone
    return Bracket(max(alone.lower, mixed.lower), math.nextafter(alone.upper + mixed.upper, math.inf))
