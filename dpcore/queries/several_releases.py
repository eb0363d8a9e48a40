"""What several releases over the same records cost together, counted exactly and not by adding up their epsilons.

All of them are read by the same learner. Their parameters (which designs, how many rados, which noise) must have been
fixed without looking at earlier answers; a party's ledger does not assume that and charges more
(dpcore.accounting.filters). A release bounds a scope where it bounds that or a wider one: a record's bound holds for
every column of it, a column's for the marginals of its features.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting.composition import Bracket
from dpcore.accounting.gaussian import ShiftLaw
from dpcore.accounting.mixed import CountRelease, mixed_epsilon
from dpcore.accounting.pure import PureLaw
from dpcore.accounting.truncation import truncation
from dpcore.errors import PlanError
from dpcore.numbers.count_distributions import CountLaw, binomial_law, pooled_law
from dpcore.queries.rados import RadosQuery
from dpcore.queries.release_cost import (
    Kind,
    ReleaseCost,
    Scope,
    Setting,
    check_inclusion,
    is_pure,
    noise_law_of,
    scope_of,
)
from dpcore.rados.designs import DpFeatDesign, JointDesign, PlainDesign
from dpcore.records.schema import Schema


@dataclass(frozen=True, eq=False)
class CountedRelease:
    """One of several releases: what was asked, of whom, and with what encoding. party_rows: m_p by party."""

    kind: Kind
    party_rows: Mapping[str, int]
    schema: Schema
    setting: Setting


def cost_together(
    releases: Sequence[CountedRelease],
    delta: Fraction | float,
    *,
    feature: str | None = None,
    column: str | None = None,
) -> ReleaseCost:
    """The cost of all releases together: for records, or for one source column, or one feature's marginal.

    It is counted at `delta`, or at 0 where the noise of all is Laplace's.
    feature: the name of a -1/+1 or rounded coordinate; column: of a source column; at most one of them. The figure is
    that of the worst party: a record is one party's, and a release in which that party had no part tells nothing of it.

    Raises PlanError where there is no release, where one of them (it is named by its place) bounds nothing of that
    scope, or where no finite epsilon holds.
    """
    if not releases or (feature is not None and column is not None):
        raise PlanError("name at least one release, and at most one of a feature and a column")
    scope: Scope = "record" if feature is None and column is None else "joint" if feature is None else "marginal"
    for place, release in enumerate(releases, start=1):
        if not _bounds(release, feature, column):
            wanted = {"record": "records", "joint": f"the column {column!r}", "marginal": f"{feature!r}"}[scope]
            raise PlanError(f"release {place} bounds nothing about {wanted}, so the releases together do not either")
    parties = sorted({party for release in releases for party in release.party_rows})
    alone = [_epsilon(releases, party, delta, colluding=False) for party in _distinct(parties, releases)]
    others = [_epsilon(releases, party, delta, colluding=True) for party in _distinct(parties, releases)]
    collude = max(bracket.upper for bracket in others)
    return ReleaseCost(
        scope=scope,
        epsilon=min(collude, max(bracket.upper for bracket in alone)),
        epsilon_lower=max(bracket.lower for bracket in alone),
        delta=0.0 if all(is_pure(release.kind) for release in releases) else float(delta),
        epsilon_if_others_collude=collude,
    )


def _distinct(parties: Sequence[str], releases: Sequence[CountedRelease]) -> list[str]:
    """One party of each kind: those with the same rows in every release cost the same."""
    seen = {tuple(release.party_rows.get(party) for release in releases): party for party in parties}
    return list(seen.values())


def _bounds(release: CountedRelease, feature: str | None, column: str | None) -> bool:
    if scope_of(release.kind) == "record":
        return True
    match release.kind:
        case RadosQuery(design=JointDesign() as joint):
            return joint.column == (column if feature is None else release.schema.sources(feature))
        case RadosQuery(design=DpFeatDesign() as dp_feat):
            return feature in dp_feat.names
        case RadosQuery(design=PlainDesign() as plain):
            return feature is not None and release.schema.coordinate(feature) in plain.booleans
        case _:
            return False


def _epsilon(releases: Sequence[CountedRelease], party: str, delta: Fraction | float, *, colluding: bool) -> Bracket:
    counts: list[CountRelease] = []
    shifts: list[ShiftLaw] = []
    pure: list[PureLaw] = []
    for release in releases:
        rows = release.party_rows.get(party)
        if rows is None:
            continue
        if scope_of(release.kind) == "marginal":
            assert isinstance(release.kind, RadosQuery)
            counts.append(CountRelease(_count_law(release, rows, colluding=colluding), release.kind.rados))
        else:
            members = len(release.party_rows)
            check_inclusion(release.kind, rows, delta)
            shares = min(release.setting.honest_parties, members) if colluding else members
            law = noise_law_of(release.kind, rows, release.setting, shares=shares)
            if isinstance(law, PureLaw):
                pure.append(law)
            else:
                shifts.append(law)
    # Basic composition: an (e, 0)-private release beside an (epsilon, delta)-private one.
    mixed = mixed_epsilon(counts, shifts, delta) if counts or shifts or not pure else Bracket(0.0, 0.0)
    if not pure:
        return mixed
    alone = PureLaw(sum((law.bound for law in pure), Fraction(0))).epsilon(delta)
    if not (counts or shifts):
        return alone
    return Bracket(max(alone.lower, mixed.lower), math.nextafter(alone.upper + mixed.upper, math.inf))


def _count_law(release: CountedRelease, rows: int, *, colluding: bool) -> CountLaw:
    assert isinstance(release.kind, RadosQuery)
    design = release.kind.design
    epsilon = design.epsilon_per_rado if isinstance(design, DpFeatDesign) else None
    if isinstance(design, DpFeatDesign) and design.split == "exact":
        raise PlanError("a draw over the pool, split = exact, is counted by itself only: leave that release out")

    def low(count: int) -> int:
        return 0 if epsilon is None else truncation(count, epsilon)[0]

    if colluding:
        return binomial_law(rows, low(rows))
    return pooled_law([(count, low(count)) for count in release.party_rows.values()])
