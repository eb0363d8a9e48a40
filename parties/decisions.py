"""What the party decides of a query and of a cohort. Pure: no network, no files, no clock."""

import math
from fractions import Fraction
from functools import lru_cache

from dpcore.errors import PlanError
from dpcore.privacy.dp_feat import own_epsilon
from dpcore.rados.designs import DpFeatDesign, PlainDesign
from dpcore.schema import Schema, differences
from parties.ledger import UNBOUNDED, Budget, Charge
from parties.policy import Policy, check_cohort, check_query
from wire.cohort import Acceptance, Cohort
from wire.envelopes import Envelope
from wire.errors import Code, WireError
from wire.query import OpenedQuery, Query
from wire.roster import Roster


def decide(
    opened: OpenedQuery, attempt: int, *, policy: Policy, roster: Roster, own_name: str, schema: Schema, rows: int
) -> Charge:
    """What taking part in one attempt costs, once policy, schema and design allow it.

    rows: m_p. Raises WireError with the code that the party refuses with: the policy's, SCHEMA_MISMATCH,
    ATTEMPT_MISMATCH or PLAN_INFEASIBLE.
    """
    query = opened.query
    check_query(policy, opened, roster, own_name)
    if not 1 <= attempt <= query.max_attempts:
        raise WireError(Code.ATTEMPT_MISMATCH, f"Attempt {attempt} of {query.max_attempts}.")
    if query.schema.digest != schema.digest:
        fields = ", ".join(difference.field for difference in differences(schema, query.schema))
        raise WireError(Code.SCHEMA_MISMATCH, f"These differ: {fields}.")
    if rows > query.max_rows:
        raise WireError(Code.PLAN_INFEASIBLE, f"This party has {rows} rows and max_rows is {query.max_rows}.")
    return charge_for(query, rows)


def charge_for(query: Query, rows: int) -> Charge:
    """The charge of one attempt for a party of `rows` rows: its own law's, whoever else takes part or colludes.

    Raises WireError(PLAN_INFEASIBLE) where the design is empty or has no finite bound at this size.
    """
    match query.kind.design:
        case PlainDesign():
            return Charge("none", UNBOUNDED)
        case DpFeatDesign() as design:
            try:
                epsilon = _own_epsilon(rows, query.kind.rados, design.epsilon_per_rado, query.delta)
            except PlanError as error:
                raise WireError(Code.PLAN_INFEASIBLE, str(error)) from error
            if not math.isfinite(epsilon):
                raise WireError(Code.PLAN_INFEASIBLE, "The design has no finite bound.")
            # own_epsilon is rounded up already; a double is a rational, so the conversion is exact.
            return Charge(f"marginal:{design.sensitive_name}", Budget(Fraction(epsilon), query.delta))


@lru_cache(maxsize=64)
def _own_epsilon(rows: int, rados: int, epsilon_per_rado: Fraction | None, delta: Fraction) -> float:
    return own_epsilon(rows, rados, epsilon_per_rado, delta)


def verify_cohort(
    cohort: Cohort,
    opened: OpenedQuery,
    attempt: int,
    *,
    policy: Policy,
    roster: Roster,
    own_name: str,
    own_acceptance: Envelope,
) -> tuple[Acceptance, ...]:
    """What the members of a cohort signed; a cohort that this party must not upload for is refused, whoever formed it.

    The policy must still admit the query: it may have changed since the party accepted. Every acceptance must be signed
    by a party of the roster, for this attempt; this party's own must stand in it byte for byte; the query's and the
    policy's sizes must hold.

    Raises WireError(ATTEMPT_MISMATCH, COHORT_EXCLUDED, QUERY_INVALID, or what check_query, check_cohort and Cohort.open
    raise).
    """
    query = opened.query
    check_query(policy, opened, roster, own_name)
    if (cohort.query_id, cohort.attempt) != (opened.query_id, attempt):
        raise WireError(Code.ATTEMPT_MISMATCH, "The cohort is for another attempt.")
    acceptances = cohort.open(roster)
    if own_acceptance not in cohort.acceptances:
        raise WireError(Code.COHORT_EXCLUDED, "This party's acceptance is not in the cohort as it was given.")
    rows = sum(acceptance.rows for acceptance in acceptances)
    if not query.cohort_min <= len(acceptances) <= query.max_parties or rows > query.max_rows:
        raise WireError(
            Code.QUERY_INVALID, f"The cohort has {len(acceptances)} parties and {rows} rows, which the query excludes."
        )
    check_cohort(policy, roster, own_name, (acceptance.party for acceptance in acceptances), query.honest_parties)
    return acceptances
