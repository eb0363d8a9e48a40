"""What several releases say about a record together: exact figures, in words."""

from collections.abc import Sequence
from fractions import Fraction

from dpcore.errors import ConfigurationError
from dpcore.privacy.release_cost import ReleaseCost
from dpcore.privacy.several_releases import CountedRelease, cost_together
from dpcore.privacy.statement import rounded_up
from learner.release import Release
from wire.query import setting_of

ASSUMED = (
    "Assumed: the releases are all that the learner saw of these records, each of one attempt; what was asked later "
    "did not depend on earlier answers (a party's ledger does not assume that, and charges more); and what each "
    "release's own statement assumes."
)


def privacy_together(
    releases: Sequence[Release], delta: Fraction, *, feature: str | None = None, column: str | None = None
) -> ReleaseCost:
    """The cost of all these releases together, for records, or a source column, or the marginal of one feature.

    Parties are told apart by name. Raises ConfigurationError where a release is given twice or is not of the first
    attempt, PlanError as `cost_together` does.
    """
    if len({release.query_id for release in releases}) < len(releases):
        raise ConfigurationError("a release is given twice; it tells nothing more the second time, so name it once")
    if late := [release for release in releases if release.cohort.attempt > 1]:
        raise ConfigurationError(
            f"the release of query {late[0].query_id.hex()[:16]} is of attempt {late[0].cohort.attempt}, and what was "
            "seen of earlier attempts is not known here; see the parties' ledgers"
        )
    counted = [
        CountedRelease(release.query.kind, release.party_rows, release.schema, setting_of(release.query))
        for release in releases
    ]
    return cost_together(counted, delta, feature=feature, column=column)


def sentences(cost: ReleaseCost, releases: int, what: str) -> list[str]:
    """The figures in words. what: whose protection they are, such as "one record"."""
    who = f"Together the {releases} releases are" if releases > 1 else "The release by itself is"
    figures = f"({rounded_up(cost.epsilon)}, {cost.delta!r})"
    alone = f"{who} {figures}-differentially private for {what} against the learner alone."
    collusion = (
        "Under the collusion that their statements assume, epsilon is at most "
        f"{rounded_up(cost.epsilon_if_others_collude)} at the same delta."
    )
    return [alone, collusion, ASSUMED]
