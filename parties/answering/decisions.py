"""The party's decisions on a query and on a cohort, and its refusals. Pure: no network, no files, no clock."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from dpcore.records.computation import PartySecret, RowSums, sum_on_threads
from dpcore.records.held_back import RowNumbers
from dpcore.records.persons import PersonRows
from dpcore.records.records import Records
from dpcore.records.schema import Schema, differences
from parties.data.epochs import Epochs
from parties.ledger.charges import Charge, Division, charge_for
from parties.ledger.row_epochs import EpochRows
from parties.policy import Policy, check_cohort, check_masks, check_query
from radobase.printing import amount
from wire.envelopes import Envelope, MessageType, SigningKey
from wire.errors import Code, WireError
from wire.features import check_known
from wire.query import MAX_QUERY_BYTES, MAX_RETRY_BYTES, OpenedQuery, Query, Retry, open_retry
from wire.roster import Role, Roster, open_from
from wire.statements import Acceptance, Cohort, Refusal, check_roster_version
from wire.status import PartyState, Work


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
    """Of all rows, by PartySecret.data_digest; empty where rows never change."""
    epochs: Epochs | None = None
    """Of the rows; None if no column names them."""
    load: str = ""
    """The random name of the load of the rows; empty if there is none, and then parts of the rows count in full."""
    others: tuple[tuple[Schema, Records], ...] = ()
    """The same rows under each further label of the party's schema file."""

    def under(self, schema: Schema) -> "Party":
        """The party as if it had this schema's label alone, and no weight if the schema has none; and a secret for it.

        If it has no such label, under the one whose schema differs least, which `check_schema` then refuses.
        """
        if (not self.others and self.schema.weight is None) or schema.digest == self.schema.digest:
            return self
        known = [(self.schema, self.records), *self.others]
        if schema.weight is None:
            known = [(own.unweighted, records.unweighted) for own, records in known]
        own, records = min(known, key=lambda each: len(differences(each[0], schema)))
        # What repeats its draws under one label must not repeat another's.
        secret = replace(self.secret, schema_digest=own.digest)
        return replace(self, schema=own, records=records, secret=secret, others=())

    def about(self, epoch: str | None) -> "Party":
        """The party as if it had the rows of this epoch only, and a secret for them; itself for all rows.

        Raises WireError(EPOCH_EMPTY) if it has none.
        """
        if epoch is None:
            return self
        places = np.empty(0, dtype=np.intp) if self.epochs is None else self.epochs.places(epoch)
        if not len(places):
            has = "has no epochs" if self.epochs is None else f"has none of epoch {epoch}"
            raise WireError(Code.EPOCH_EMPTY, f"Its table {has}.")
        assert self.numbers is not None, "rows with epochs have ids"
        assert self.numbers.by_id is not None, "rows with epochs have ids"
        return replace(
            self,
            records=self.records.at(places),
            secret=self.secret.of_epoch(epoch),
            numbers=RowNumbers(self.numbers.key, self.numbers.by_id[places]),
        )

    def rows_about(self, epoch: str | None) -> int:
        """The number of rows that a query about this epoch, or about all rows, is about."""
        if epoch is None:
            return self.records.rows
        return 0 if self.epochs is None else len(self.epochs.places(epoch))

    def units(self, query: Query) -> int:
        """What this party states of its size to a query: rows, or persons if these are the unit of privacy.

        Raises WireError(PERSONS_UNKNOWN) if its table does not say whose its rows are.
        """
        if query.persons is None:
            return self.records.rows
        if self.numbers is None or self.numbers.by_id is None:
            raise WireError(Code.PERSONS_UNKNOWN, "It names no id_column.")
        if self._without_id:
            raise WireError(Code.PERSONS_UNKNOWN, f"{amount(self._without_id, 'row')} of its table have no id.")
        return self._persons

    def rows_left_out(self, query: Query) -> int:
        """How many usable rows count for nothing in a query about persons: those of persons with more than W."""
        if query.persons is None or self.numbers is None or self.numbers.by_id is None:
            return 0
        weights = PersonRows(self.numbers.by_id).weights(self.records.usable)
        return int(np.count_nonzero(self.records.usable & (weights == 0)))

    @cached_property
    def _without_id(self) -> int:
        assert self.numbers is not None, "rows have ids"
        return int(np.count_nonzero(self.numbers.by_id == self.numbers.key.of_ids([""])[0]))

    @cached_property
    def _persons(self) -> int:
        assert self.numbers is not None, "rows have ids"
        assert self.numbers.by_id is not None, "rows have ids"
        return PersonRows(self.numbers.by_id).count

    def epoch_rows(self, epoch: str | None) -> EpochRows | None:
        """The rows of an epoch, for the ledger; None for all rows."""
        return None if epoch is None or self.epochs is None else self.epochs.rows(epoch)

    @property
    def division(self) -> Division | None:
        """What divides the rows by their ids; None without ids: places may depend on values."""
        if self.numbers is None or self.numbers.by_id is None or not self.load:
            return None
        return Division(self.load, self.numbers.key.name)


def decide(
    opened: OpenedQuery, attempt: int, party: Party, roster: Roster, retry: Envelope | None = None, *, now_unix_s: float
) -> tuple[Party, Charge]:
    """The party with the rows that are asked about, and the cost of one attempt.

    If policy, schema and design allow it, on a day of its study, and from attempt 2 on the learner's signed retry. An
    attempt that is accepted on the last day of a study is completed.

    Raises WireError with the code of the refusal: one of the policy's, STUDY_DATES, FEATURE_MISSING, SEED_MISMATCH,
    SCHEMA_MISMATCH, ATTEMPT_MISMATCH, EPOCH_EMPTY, PERSONS_UNKNOWN or PLAN_INFEASIBLE.
    """
    query = opened.query
    check_known(query.features)
    check_seed(query, party)
    check_query(party.policy, opened, roster, party.name)
    if query.study is not None:
        query.study.check_day(now_unix_s)
    if not 1 <= attempt <= query.max_attempts:
        raise WireError(Code.ATTEMPT_MISMATCH, f"Attempt {attempt} of {query.max_attempts}.")
    if attempt > 1:
        check_retry(opened, attempt, roster, retry)
    party = party.under(query.schema)
    check_schema(query, party.schema)
    if party.records.are_elsewhere and query.kind.needs_rows:
        raise WireError(
            Code.PLAN_INFEASIBLE, f"{query.kind.name} needs single rows, and this party's table gives sums alone."
        )
    party = party.about(query.epoch)
    rows = party.units(query)
    if rows > query.max_rows:
        has = amount(rows, "row" if query.persons is None else "person")
        raise WireError(Code.PLAN_INFEASIBLE, f"This party has {has} and max_rows is {query.max_rows}.")
    return party, charge_for(query, rows, epoch_of(query, party), party.division)


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
    open_from(work.query, MessageType.QUERY, learner, roster.federation)
    if work.attempt == 1:
        return
    if work.retry is None:
        raise WireError(Code.ATTEMPT_MISMATCH, f"The learner has not signed attempt {work.attempt}.")
    if len(work.retry.payload) > MAX_RETRY_BYTES:
        raise WireError(Code.MESSAGE_TOO_LARGE, f"A retry may have at most {MAX_RETRY_BYTES} bytes.")
    retry = Retry.from_bytes(open_from(work.retry, MessageType.RETRY, learner, roster.federation))
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

    rows, reserved, data_digest: of the acceptance. party: with the rows that the query is about. A noised table other
    than the reserved one would be an uncounted release. Raises WireError(SCHEMA_MISMATCH or UNAVAILABLE).
    """
    check_schema(query, party.schema)
    if data_digest != party.data_digest:
        raise WireError(Code.UNAVAILABLE, "The data changed after this party accepted the query.")
    if rows != party.units(query):
        raise WireError(Code.UNAVAILABLE, "The number of rows changed after this party accepted the query.")
    present = charge_for(query, rows, epoch_of(query, party), party.division)
    if reserved is not None and reserved.side is not None and present.side is not None:
        # The same rows were loaded again since, and keep the name that they were accepted with.
        same_key = reserved.side.division.key == present.side.division.key
        reserved = replace(reserved, side=present.side) if same_key else reserved
    if reserved != present:
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

    If the noise follows the cohort, its size decides how much noise this party adds. A coordinator can show a larger
    cohort than real only with acceptances that parties signed for this attempt, and each of them that this party has
    not accepted counts as colluding (`check_cohort`).

    If members share masks with some others only, the cohort's digest decides with which. A coordinator can choose among
    cohorts, and so among orders; what `check_masks` checks holds in the order that this one has.

    Raises WireError(ATTEMPT_MISMATCH, COHORT_EXCLUDED, PARTY_NOT_ASKED, QUERY_INVALID, or what check_query,
    check_cohort, check_masks, Cohort.open and check_roster_version raise).
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
    members = tuple(acceptance.party for acceptance in acceptances)
    check_cohort(party.policy, roster, party.name, members, query)
    check_masks(party.policy, roster, party.name, members, query, cohort.digest)
    return acceptances


# Refusals that this party signed lately: a coordinator that shows a query again gets the same bytes again.
#
# Without this, every time that it shows a refused query would cost a decision, a signature and a write. Kept in
# memory: after a restart the party decides again, once.


MOST_KEPT: Final = 1024
"""The newest refusals are kept, about 400 bytes each."""


@dataclass(frozen=True)
class _Sent:
    """A signed refusal."""

    party: Party
    """As it was when it refused; with another policy or other rows it decides again."""
    refusal: Envelope


class SentRefusals:
    """The newest signed refusals, by query and attempt. Threads share it: each operation is one of the dictionary."""

    def __init__(self) -> None:
        self._sent: dict[tuple[bytes, int], _Sent] = {}

    def add(self, work: Work, party: Party, refusal: Envelope) -> None:
        """Keep a refusal. Discards the oldest if there are more than MOST_KEPT."""
        self._sent[work.query_id, work.attempt] = _Sent(party, refusal)
        for oldest in list(self._sent)[:-MOST_KEPT]:
            self._sent.pop(oldest, None)

    def of(self, work: Work, party: Party) -> Envelope | None:
        """The refusal of the same attempt by the party as it is now, or None."""
        sent = self._sent.get((work.query_id, work.attempt))
        return sent.refusal if sent is not None and sent.party is party else None


# Attempts that this party accepted and gave up: it refuses them, so that the others need not wait for it.
#
# A party refuses with the message that it also answers with.


_COUNTED_ON = (PartyState.ACCEPTED, PartyState.READY, PartyState.UPLOADING)
"""What the coordinator says of a party whose contribution it waits for."""
"""Attempts that are kept; a party has accepted each. Of an older one it may refuse again."""


class Withdrawals:
    """What this process gave up, and what the coordinator knows of it. Kept in memory: the disk may be what failed."""

    def __init__(self, party: str) -> None:
        self._party = party
        self._codes: dict[tuple[bytes, int], Code] = {}
        # Only the keys matter: a dictionary keeps the order.
        self._arrived: dict[tuple[bytes, int], None] = {}

    def add(self, query_id: bytes, attempt: int, code: Code) -> None:
        """Give an attempt up. code: why."""
        self._codes[query_id, attempt] = code
        for oldest in list(self._codes)[:-MOST_KEPT]:
            self.forget(*oldest)

    def has(self, query_id: bytes, attempt: int) -> bool:
        """Whether this process gave the attempt up."""
        return (query_id, attempt) in self._codes

    def due(self, work: Work, *, delivered: bool) -> Refusal | None:
        """The refusal of an attempt that is over at this party, if the coordinator waits for the party.

        delivered: whether this process delivered the acceptance, so that the coordinator may know more than `work`
        says. A party that was restarted no longer knows why it gave up, and says UNAVAILABLE.
        """
        key = (work.query_id, work.attempt)
        is_counted_on = work.state in _COUNTED_ON or (delivered and work.state.awaits_answer)
        if not is_counted_on or key in self._arrived:
            return None
        return Refusal(*key, self._party, self._codes.get(key, Code.UNAVAILABLE))

    def arrived(self, work: Work) -> None:
        """The coordinator took the refusal, or will never take it."""
        self._arrived[work.query_id, work.attempt] = None
        for oldest in list(self._arrived)[:-MOST_KEPT]:
            self.forget(*oldest)

    def queries(self) -> set[bytes]:
        """The queries of the attempts that are kept here."""
        return {query_id for query_id, _ in {*self._codes, *self._arrived}}

    def forget(self, query_id: bytes, attempt: int) -> None:
        """Discard an attempt that ended at the coordinator."""
        self._codes.pop((query_id, attempt), None)
        self._arrived.pop((query_id, attempt), None)

    def discard(self, query_ids: AbstractSet[bytes]) -> None:
        """Discard all attempts at these queries."""
        for key in {*self._codes, *self._arrived}:
            if key[0] in query_ids:
                self.forget(*key)
