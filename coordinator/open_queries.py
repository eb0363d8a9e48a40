"""A query in the coordinator's memory, and the parts that each role may see."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from coordinator.round_state import Round, Rules
from coordinator.store import Revisions, Statement, StoredQuery
from dpcore.errors import RadofedError
from wire.envelopes import Envelope, MessageType
from wire.errors import Code, WireError
from wire.query import OpenedQuery, PaillierKey, Query
from wire.statements import Cohort, KeyShares
from wire.status import PartyProgress, Phase, QueryStatus, Total, Work

_CHUNK_BITS = 32


@dataclass(frozen=True)
class LiveQuery:
    """A query with its round and the envelopes of the current attempt, as in the store."""

    opened: OpenedQuery
    round: Round
    submitted_at_unix_s: int
    revisions: Revisions
    finished_at_unix_s: float | None = None
    acceptances: Mapping[str, Envelope] = field(default_factory=dict)
    receipts: Mapping[str, Envelope] = field(default_factory=dict)
    retry: Envelope | None = None
    """The learner's decision on this attempt, None in attempt 1 and without signed retries."""
    of_keys: Mapping[MessageType, Mapping[str, Envelope]] = field(default_factory=dict)
    """Ready, KeyShares and Unmasking of the current attempt, by party, if members may vanish."""

    @cached_property
    def query_id(self) -> bytes:
        """SHA-256 of the payload."""
        return self.opened.query_id

    @property
    def learner(self) -> str:
        """Name of the learner that sent the query."""
        return self.opened.query.learner

    @property
    def is_open(self) -> bool:
        """Whether the query is not in a terminal phase."""
        return not self.round.phase.is_terminal

    @cached_property
    def ciphertexts(self) -> int:
        """Number of ciphertexts of each upload and of the total."""
        return self.opened.ciphertexts

    @cached_property
    def chunks(self) -> int:
        """Number of chunks of each upload and of the total."""
        return self.opened.chunks

    @property
    def most_upload_bytes(self) -> int:
        """Bytes of all uploads of the largest cohort that this query allows."""
        return most_upload_bytes(self.opened, self.round.rules)

    @cached_property
    def cohort(self) -> Cohort | None:
        """The cohort of the current attempt, or None before it is fixed."""
        members = self.round.cohort
        if not members:
            return None
        sharing = self.sharing
        digest = b"" if sharing is None else sharing.digest
        return Cohort(self.query_id, self.round.attempt, tuple(self.acceptances[party] for party in members), digest)

    @cached_property
    def sharing(self) -> Cohort | None:
        """All that had accepted when parties began to prepare, if members may vanish."""
        members = self.round.sharing
        if not members:
            return None
        return Cohort(self.query_id, self.round.attempt, tuple(self.acceptances[party] for party in members))

    def of_kind(self, kind: MessageType, parties: Iterable[str]) -> tuple[Envelope, ...]:
        """Those of these parties that gave such a statement, in order."""
        given = self.of_keys.get(kind, {})
        return tuple(given[party] for party in parties if party in given)

    @property
    def total(self) -> Total:
        """The total without its ciphertexts. Raises WireError if there is no total."""
        if self.round.phase is Phase.FAILED:
            raise WireError(Code(self.round.code), self.round.detail)
        if self.round.phase is not Phase.COMPLETE:
            raise WireError(Code.TOTAL_UNAVAILABLE)
        assert self.cohort is not None, "a complete query has a cohort"
        receipts = tuple(self.receipts[party] for party in self.round.summed)
        return Total(
            self.cohort,
            receipts,
            self.chunks,
            self.ciphertexts,
            self.sharing,
            self.round.survivors,
            self.of_kind(MessageType.KEY_SHARES, self.round.cohort) if self.round.survivors else (),
            self.of_kind(MessageType.UNMASKING, self.round.survivors),
        )

    def moved(
        self, to: Round, revisions: Revisions, finished_at: float | None, statement: Statement | None
    ) -> "LiveQuery":
        """The same query after a commit."""
        same_attempt = to.attempt == self.round.attempt
        acceptances = dict(self.acceptances) if same_attempt else {}
        receipts = {party: receipt for party, receipt in self.receipts.items() if same_attempt and party in to.receipts}
        retry = self.retry if same_attempt else None
        of_keys = self.of_keys if same_attempt else {}
        if statement is not None and statement.attempt == to.attempt:
            _file(statement, acceptances, receipts)
            retry = statement.envelope if statement.kind is MessageType.RETRY else retry
            of_keys = _with_keys(of_keys, statement) if self.round.rules.may_vanish else of_keys
        return replace(
            self,
            round=to,
            revisions=revisions,
            finished_at_unix_s=finished_at,
            acceptances=acceptances,
            receipts=receipts,
            retry=retry,
            of_keys=of_keys,
        )

    def work_for(self, party: str, chunks_held: frozenset[int]) -> Work:
        """The query as a party of the roster sees it."""
        state = self.round.party_state(party)
        member = party in self.round.cohort
        work = Work(
            self.opened.envelope,
            self.round.attempt,
            self.round.phase,
            state,
            self.cohort if member else None,
            chunks_held,
            self.retry,
        )
        return self._with_keys_for(party, work) if party in self.round.sharing else work

    def _with_keys_for(self, party: str, work: Work) -> Work:
        """What a party needs to share and to unmask, if members may vanish."""
        if work.phase not in (Phase.PREPARING, Phase.UPLOADING, Phase.UNMASKING):
            return work
        work = replace(work, sharing=self.sharing)
        if work.cohort is None:
            return work
        if work.phase is Phase.UPLOADING:
            return replace(work, ready=self.of_kind(MessageType.READY, self.round.cohort))
        place = self.round.sharing.index(party)
        dealt = self.of_kind(MessageType.KEY_SHARES, self.round.cohort)
        sealed = tuple(KeyShares.from_bytes(envelope.payload).sealed[place] for envelope in dealt)
        return replace(work, survivors=self.round.survivors, sealed_shares=sealed)

    def status(self, count: Callable[[str], int], now: float) -> QueryStatus:
        """The query as the learner sees it. count: number of stored chunks of a party."""
        round_ = self.round
        return QueryStatus(
            query_id=self.query_id,
            attempt=round_.attempt,
            phase=round_.phase,
            parties=tuple(self._progress(party, count) for party in round_.rules.parties),
            code=round_.code,
            detail=round_.detail,
            # Rounded up: 0 is for a phase that cannot time out.
            remaining_s=int(-(-round_.remaining_s(now) // 1)),
            chunks_expected=self.chunks if round_.cohort else 0,
            submitted_at_unix_s=self.submitted_at_unix_s,
            answering_ended_early=round_.answering_ended_early,
        )

    def _progress(self, party: str, count: Callable[[str], int]) -> PartyProgress:
        round_ = self.round
        answer = round_.answers.get(party)
        # Uploads are deleted once the query is terminal. A party with a receipt had uploaded all its chunks.
        chunks = self.chunks if party in round_.receipts else count(party) if party in round_.cohort else 0
        return PartyProgress(
            party,
            round_.party_state(party),
            answer.code if answer else "",
            chunks,
            answer.rows if answer else 0,
            self.acceptances.get(party) if round_.rules.only_asks else None,
        )

    def status_cursor(self, count: Callable[[str], int]) -> int:
        """Changes whenever the status (except the remaining time) changes: the revision, and chunks since then."""
        uploading = self.round.cohort if self.round.phase is Phase.UPLOADING else ()
        chunks = sum(count(party) for party in uploading)
        return (self.revisions.revision << _CHUNK_BITS) | (chunks & ((1 << _CHUNK_BITS) - 1))


def restore(stored: StoredQuery, *, now: float, now_unix_s: float) -> LiveQuery:
    """A query after a restart. Its phase keeps the remaining time; its expiry follows the wall clock.

    Its signatures and times were checked when it was accepted and are not checked again.
    """
    query = Query.from_bytes(stored.envelope.payload)
    opened = OpenedQuery(stored.envelope, query, PaillierKey.from_bytes(query.paillier_key.payload).public_key)
    expires_at = now + query.not_after_unix_s - now_unix_s
    acceptances: dict[str, Envelope] = {}
    receipts: dict[str, Envelope] = {}
    of_keys: Mapping[MessageType, Mapping[str, Envelope]] = {}
    for statement in stored.statements:
        _file(statement, acceptances, receipts)
        of_keys = _with_keys(of_keys, statement) if query.may_vanish else of_keys
    return LiveQuery(
        opened,
        Round.from_dict(stored.round_data, now=now, expires_at=expires_at),
        stored.submitted_at_unix_s,
        stored.revisions,
        stored.finished_at_unix_s,
        acceptances,
        receipts,
        next((statement.envelope for statement in stored.statements if statement.kind is MessageType.RETRY), None),
        of_keys,
    )


def most_upload_bytes(opened: OpenedQuery, rules: Rules) -> int:
    """Bytes of all uploads of the largest cohort that a query allows."""
    if opened.query.is_question:
        return 0
    return opened.ciphertexts * opened.public_key.ciphertext_bytes * min(rules.max_parties, len(rules.parties))


def check_size(opened: OpenedQuery) -> None:
    """Raise WireError(ENCODING_OVERFLOW) if the key is too small for the query's slots."""
    try:
        _ = opened.chunks
    except WireError:
        raise
    except RadofedError as error:
        raise WireError(Code.ENCODING_OVERFLOW, str(error)) from error


def _with_keys(
    of_keys: Mapping[MessageType, Mapping[str, Envelope]], statement: Statement
) -> Mapping[MessageType, Mapping[str, Envelope]]:
    kind = statement.kind
    if kind not in (MessageType.READY, MessageType.KEY_SHARES, MessageType.UNMASKING):
        return of_keys
    return {**of_keys, kind: {**of_keys.get(kind, {}), statement.party: statement.envelope}}


def _file(statement: Statement, acceptances: dict[str, Envelope], receipts: dict[str, Envelope]) -> None:
    if statement.kind is MessageType.ACCEPTANCE:
        acceptances[statement.party] = statement.envelope
    elif statement.kind is MessageType.RECEIPT:
        receipts[statement.party] = statement.envelope
