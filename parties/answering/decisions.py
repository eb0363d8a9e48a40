"""The party's decisions on a query and on a cohort. Pure: no network, no files, no clock."""

from dataclasses import dataclass

from dpcore.records.computation import PartySecret, RowSums, sum_on_threads
from dpcore.records.held_back import RowNumbers
from dpcore.records.records import Records
from dpcore.records.schema import Schema, differences
from parties.ledger.charges import Charge, charge_for
from parties.policy import Policy, check_cohort, check_query
from radobase.printing import amount
from wire.cohort import Acceptance, Cohort, check_roster_version
from wire.envelopes import Envelope, Kind, SigningKey
from wire.errors import Code, WireError
from wire.features import check_known
from wire.query import (
    MAX_QUERY_BYTES,
    MAX_RETRY_BYTES,
    OpenedQuery,
    Query,
    Retry,
    open_retry,
)
from wire.roster import Role, Roster, open_from
from wire.status import Work


@dataclass(frozen=True)
class Party:
    """A party as its own node knows it: name and key, policy, rows, how to sum and to number them, secret."""

    name: str
    signing_key: SigningKey
    policy: Policy
    schema: Schema
    records: Records
    secret: PartySecret
    row_sums: RowSums = sum_on_threads
    numbers: RowNumbers | None = None
    data_digest: str = ""
    """Of the rows, by PartySecret.data_digest; empty where rows never change."""


def decide(opened: OpenedQuery, attempt: int, party: Party, roster: Roster, retry: Envelope | None = None) -> Charge:
    """Cost of one attempt, if policy, schema and design allow it, and from attempt 2 on the learner's signed retry.

    Raises WireError with the code of the refusal: one of the policy's, FEATURE_MISSING, SEED_MISMATCH, SCHEMA_MISMATCH,
    ATTEMPT_MISMATCH or PLAN_INFEASIBLE.
    """
    query, rows = opened.query, party.records.rows
    check_known(query.features)
    check_seed(query, party)
    check_query(party.policy, opened, roster, party.name)
    if not 1 <= attempt <= query.max_attempts:
        raise WireError(Code.ATTEMPT_MISMATCH, f"Attempt {attempt} of {query.max_attempts}.")
    if attempt > 1:
        check_retry(opened, attempt, roster, retry)
    check_schema(query, party.schema)
    if rows > query.max_rows:
        raise WireError(Code.PLAN_INFEASIBLE, f"This party has {amount(rows, 'row')} and max_rows is {query.max_rows}.")
    return charge_for(query, rows, epoch_of(query, party))


def check_seed(query: Query, party: Party) -> None:
    """Refuse a query that has no seed for this party, or another seed than the query commits to.

    Before it is accepted: masking checks the seed again, but then the other members wait for this party. Raises
    WireError(PARTY_NOT_ASKED or SEED_MISMATCH).
    """
    query.binding.unseal(party.name, party.signing_key, query.nonce)


def check_signed(work: Work, roster: Roster) -> None:
    """Refuse work that no learner of the roster signed: its query, and from attempt 2 on the retry.

    It reads no content and costs at most four signatures, so it is the first check: nothing is stored, signed or sent
    for what does not pass it. The signed query may still be wrong, expired or for another federation.

    Raises WireError(PEER_UNKNOWN, MESSAGE_TOO_LARGE, SIGNATURE_INVALID or ATTEMPT_MISMATCH).
    """
    learner = roster.find_key(work.query.key_id, Role.LEARNER)
    if learner is None:
        raise WireError(Code.PEER_UNKNOWN, "The query is signed with no learner's key in the roster.")
    if len(work.query.payload) > MAX_QUERY_BYTES:
        raise WireError(Code.MESSAGE_TOO_LARGE, f"A query may have at most {MAX_QUERY_BYTES} bytes.")
    open_from(work.query, Kind.QUERY, learner, roster.federation)
    if work.attempt == 1:
        return
    if work.retry is None:
        raise WireError(Code.ATTEMPT_MISMATCH, f"The learner has not signed attempt {work.attempt}.")
    if len(work.retry.payload) > MAX_RETRY_BYTES:
        raise WireError(Code.MESSAGE_TOO_LARGE, f"A retry may have at most {MAX_RETRY_BYTES} bytes.")
    retry = Retry.from_bytes(open_from(work.retry, Kind.RETRY, learner, roster.federation))
    if (retry.query_id, retry.attempt) != (work.query_id, work.attempt):
        raise WireError(Code.ATTEMPT_MISMATCH, "The learner signed another attempt.")


def check_retry(opened: OpenedQuery, attempt: int, roster: Roster, retry: Envelope | None) -> None:
    """Refuse an attempt that the learner did not sign: every attempt is charged, and a coordinator could start more.

    Raises WireError(ATTEMPT_MISMATCH), and what open_retry raises.
    """
    if retry is None:
        raise WireError(Code.ATTEMPT_MISMATCH, f"The learner has not signed attempt {attempt}.")
    if (signed := open_retry(retry, opened, roster).attempt) != attempt:
        raise WireError(Code.ATTEMPT_MISMATCH, f"The learner has signed attempt {signed}, not attempt {attempt}.")


def check_schema(query: Query, schema: Schema) -> None:
    """Raise WireError(SCHEMA_MISMATCH) if the query's schema differs from the party's."""
    if query.schema.digest != schema.digest:
        fields = ", ".join(difference.field for difference in differences(schema, query.schema))
        raise WireError(Code.SCHEMA_MISMATCH, f"These differ: {fields}.")


def check_unchanged(query: Query, rows: int, reserved: Charge | None, party: Party, data_digest: str) -> None:
    """Refuse to compute what was not reserved: data, schema or secret may have changed while the party was down.

    rows, reserved, data_digest: of the acceptance. A noised table other than the reserved one would be an uncounted
    release. Raises WireError(SCHEMA_MISMATCH or UNAVAILABLE).
    """
    check_schema(query, party.schema)
    if data_digest != party.data_digest:
        raise WireError(Code.UNAVAILABLE, "The data changed after this party accepted the query.")
    if rows != party.records.rows:
        raise WireError(Code.UNAVAILABLE, "The number of rows changed after this party accepted the query.")
    if reserved != charge_for(query, rows, epoch_of(query, party)):
        raise WireError(Code.UNAVAILABLE, "Its cost now differs from the reserved cost.")


def epoch_of(query: Query, party: Party) -> bytes | None:
    """The name of the noised table that answers a query, or None if no such table does."""
    return query.kind.epoch(query.seen(party.records), query.encoding.fraction_bits, party.secret)


def verify_cohort(
    cohort: Cohort, opened: OpenedQuery, attempt: int, party: Party, roster: Roster, own_acceptance: Envelope
) -> tuple[Acceptance, ...]:
    """Verify a cohort from an untrusted coordinator and return its members' acceptances.

    The policy must still allow the query, and this version of the node: both may have changed since the party accepted.
    A party of the roster must have
    signed each acceptance, for this attempt. This party's own acceptance must be in the cohort byte for byte. The
    cohort's size must satisfy the query and the policy.

    No member may have a newer roster than this party: the coordinator would be withholding it. A member with an older
    one is accepted: this roster lists it, and that member refuses the cohort itself until it has this roster too.

    Every member must be asked: the learner opens no other total.

    Raises WireError(ATTEMPT_MISMATCH, COHORT_EXCLUDED, PARTY_NOT_ASKED, QUERY_INVALID, or what check_query,
    check_cohort, Cohort.open and check_roster_version raise).
    """
    query = opened.query
    if query.is_question:
        raise WireError(Code.QUERY_INVALID, "It is a question, which has no cohort.")
    check_known(query.features)
    check_seed(query, party)
    check_query(party.policy, opened, roster, party.name)
    if (cohort.query_id, cohort.attempt) != (opened.query_id, attempt):
        raise WireError(Code.ATTEMPT_MISMATCH, "The cohort is for another attempt.")
    acceptances = cohort.open(roster)
    if own_acceptance not in cohort.acceptances:
        raise WireError(Code.COHORT_EXCLUDED, "The cohort does not contain this party's acceptance unchanged.")
    if any(not query.asks(acceptance.party) for acceptance in acceptances):
        raise WireError(Code.PARTY_NOT_ASKED, "The cohort has a member that the query does not ask.")
    for acceptance in acceptances:
        check_roster_version(acceptance, roster.version)
    rows = sum(acceptance.rows for acceptance in acceptances)
    if not query.cohort_min <= len(acceptances) <= query.max_parties or rows > query.max_rows:
        raise WireError(
            Code.QUERY_INVALID,
            f"The cohort has {len(acceptances)} parties and {rows} rows, which the query does not allow.",
        )
    members = (acceptance.party for acceptance in acceptances)
    check_cohort(party.policy, roster, party.name, members, query.honest_parties)
    return acceptances
