"""Statements from members: verifies each one, compares its sender with the caller, and turns it into an event."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from coordinator.core import Core
from coordinator.events import (
    Answered,
    BecamePending,
    BecameReady,
    Cancelled,
    KeysShared,
    PartyAnswer,
    ReceiptGiven,
    Retried,
    UnmaskingGiven,
)
from coordinator.membership import check_sender
from coordinator.open_queries import LiveQuery, check_size
from coordinator.round_state import Rules
from coordinator.store import Statement
from coordinator.uploads import check_chunk
from dpcore.paillier.masks import CohortAttempt
from dpcore.paillier.survivors import MOST_SHARERS, survivors_digest
from radobase.logs import Log
from wire.envelopes import Envelope, MessageType
from wire.errors import Code, WireError
from wire.features import check_known
from wire.query import Cancel, OpenedQuery, Retry, open_query, open_retry
from wire.roster import Member, Roster, open_from
from wire.statements import (
    MAX_SEALED_BYTES,
    Acceptance,
    Chunk,
    KeyShares,
    Pending,
    Ready,
    Receipt,
    Refusal,
    S,
    Unmasking,
    check_receipt,
    check_roster_version,
    open_statement,
    upload_digest,
)
from wire.status import Phase

# A statement needs at most 185, and its ledger head 45 and the sealed sums. A payload may repeat fields without limit,
# and every member receives the cohort's.
STATEMENT_BYTES = 400 + MAX_SEALED_BYTES
_BYTES_A_SHARER = 150
"""Of shares of keys: a sealed pair has 94, its commitments 32."""
CHUNKS_AT_ONCE = 16
QUERIES_AT_ONCE = 4


class Intake:
    """Checks what callers send before it reaches the core. `caller` is the certificate's member."""

    def __init__(self, core: Core, roster: Callable[[], Roster], log: Log) -> None:
        self._core = core
        self._roster = roster
        self._log = log
        self._uploads = Turns(CHUNKS_AT_ONCE, Code.SPOOL_FULL)
        self._openings = Turns(QUERIES_AT_ONCE, Code.QUERIES_TOO_MANY)

    async def query(self, envelope: Envelope, caller: Member) -> bytes:
        """Accept a learner's query and return its id. The same bytes give the same id, also after the query ended.

        Raises WireError.
        """
        known = self._core.get(envelope.payload_hash)
        if known is not None:
            check_sender(known.learner, caller)
            return known.query_id
        return await self._core.carry(self._open_and_take(envelope, caller))

    def _valid_roster(self) -> Roster:
        """The roster, for whatever begins or continues an attempt. Raises WireError(ROSTER_EXPIRED).

        Refusals and the uploads of a cohort do without: parties verified and paid for that cohort under a valid roster.
        """
        roster = self._roster()
        roster.check_unexpired(self._core.wall_clock())
        return roster

    async def _open_and_take(self, envelope: Envelope, caller: Member) -> bytes:
        roster = self._roster()

        def open_it() -> OpenedQuery:
            opened = open_query(envelope, roster, now_unix_s=self._core.wall_clock())
            check_known(opened.query.features)
            check_size(opened)
            return opened

        # A schema of thousands of columns takes a tenth of a second to read.
        async with self._openings.take(caller.name):
            opened = await asyncio.to_thread(open_it)
        query = opened.query
        check_sender(query.learner, caller)
        rules = Rules(
            tuple(member.name for member in roster.parties if query.asks(member.name)),
            query.cohort_min,
            query.max_parties,
            query.max_rows,
            query.answer_within_s,
            query.prepare_within_s,
            query.upload_within_s,
            query.max_attempts,
            query.quorum_wait_s or None,
            query.is_question,
            query.may_vanish,
        )
        await self._core.take(opened, rules)
        return opened.query_id

    async def cancel(self, envelope: Envelope, caller: Member) -> None:
        """Cancel a query by its learner's decision. Raises WireError."""
        cancel = Cancel.from_bytes(open_from(envelope, MessageType.CANCEL, caller, self._roster().federation))
        check_sender(cancel.learner, caller)
        if self._core.find(cancel.query_id).learner != caller.name:
            raise WireError(Code.QUERY_UNKNOWN)
        await self._core.move(cancel.query_id, Cancelled())

    async def retry(self, envelope: Envelope, caller: Member) -> None:
        """Start another attempt by its learner's decision. Raises WireError."""
        query_id = Retry.from_bytes(envelope.payload).query_id
        live = self._core.find(query_id)
        if live.learner != caller.name:
            raise WireError(Code.QUERY_UNKNOWN)
        retry = open_retry(envelope, live.opened, self._valid_roster())
        statement = Statement(retry.attempt, retry.learner, MessageType.RETRY, envelope)
        await self._core.move(
            query_id, Retried(retry.attempt), statement=statement, check=lambda _: self._core.drain.check()
        )
        await self._core.expel(self._roster())

    async def acceptance(self, envelope: Envelope, caller: Member) -> None:
        """Process a party's acceptance. Raises WireError."""
        roster = self._valid_roster()
        said = self._open(Acceptance, envelope, caller)
        check_roster_version(said, roster.version)
        await self._answer(said, PartyAnswer(envelope.payload_hash.hex(), rows=said.rows), envelope)

    async def refusal(self, envelope: Envelope, caller: Member) -> None:
        """Process a party's refusal. Raises WireError."""
        said = self._open(Refusal, envelope, caller)
        await self._answer(said, PartyAnswer(envelope.payload_hash.hex(), code=said.code.value), envelope)

    async def pending(self, envelope: Envelope, caller: Member) -> None:
        """Process a party's statement that a person has to decide. Raises WireError."""
        said = self._open(Pending, envelope, caller)
        statement = Statement(said.attempt, said.party, said.KIND, envelope)
        await self._core.move(said.query_id, BecamePending(said.attempt, said.party), statement=statement)

    def _open(
        self, statement_type: type[S], envelope: Envelope, caller: Member, most_bytes: int = STATEMENT_BYTES
    ) -> S:
        if len(envelope.payload) > most_bytes:
            raise WireError(Code.MESSAGE_TOO_LARGE, f"A statement has at most {most_bytes} bytes.")
        said, _ = open_statement(statement_type, envelope, self._roster())
        check_sender(said.party, caller)
        return said

    async def _answer(self, said: Acceptance | Refusal, answer: PartyAnswer, envelope: Envelope) -> None:
        head = said.ledger_head if isinstance(said, Acceptance) else None
        statement = Statement(said.attempt, said.party, said.KIND, envelope, head.entries if head else 0)
        await self._core.move(said.query_id, Answered(said.attempt, said.party, answer), statement=statement)

    async def ready(self, envelope: Envelope, caller: Member, key_shares: Envelope | None = None) -> None:
        """Process a party's statement that it is ready, and the shares of its keys. Raises WireError."""
        self._valid_roster()
        said = self._open(Ready, envelope, caller)
        if key_shares is not None:
            await self._key_shares(key_shares, caller)
        statement = Statement(said.attempt, said.party, said.KIND, envelope)
        event = BecameReady(said.attempt, said.party)
        await self._core.move(
            said.query_id, event, statement=statement, check=lambda live: _check_sharing(live, said.sharing_digest)
        )

    async def _key_shares(self, envelope: Envelope, caller: Member) -> None:
        said = self._open(KeyShares, envelope, caller, STATEMENT_BYTES + MOST_SHARERS * _BYTES_A_SHARER)
        statement = Statement(said.attempt, said.party, said.KIND, envelope)
        event = KeysShared(said.attempt, said.party, envelope.payload_hash.hex())

        def check(live: LiveQuery) -> None:
            _check_sharing(live, said.sharing_digest)
            if len(said.sealed) != len(live.round.sharing):
                raise WireError(Code.MESSAGE_MALFORMED, "There are not shares of keys for each that accepted.")

        await self._core.move(said.query_id, event, statement=statement, check=check)

    async def unmasking(self, envelope: Envelope, caller: Member) -> None:
        """Process what a survivor reveals of keys. Raises WireError."""
        said = self._open(Unmasking, envelope, caller, STATEMENT_BYTES + MOST_SHARERS * _BYTES_A_SHARER)
        statement = Statement(said.attempt, said.party, said.KIND, envelope)
        event = UnmaskingGiven(said.attempt, said.party, envelope.payload_hash.hex())
        await self._core.move(
            said.query_id, event, statement=statement, check=lambda live: _check_unmasking(live, said)
        )

    async def receipt(self, envelope: Envelope, caller: Member) -> None:
        """Process a party's receipt. Every chunk must be stored, and the receipt must match the stored chunks.

        Raises WireError, CHUNK_MISSING or RECEIPT_INVALID among others.
        """
        said = self._open(Receipt, envelope, caller)
        head = said.ledger_head
        statement = Statement(said.attempt, said.party, said.KIND, envelope, head.entries if head else 0)
        event = ReceiptGiven(said.attempt, said.party, envelope.payload_hash.hex())
        await self._core.move(
            said.query_id, event, statement=statement, check=lambda live: self._check_receipt(live, said)
        )

    def _check_receipt(self, live: LiveQuery, receipt: Receipt) -> None:
        held = self._core.spool.held(live.query_id, receipt.attempt, receipt.party)
        missing = next((index for index in range(live.chunks) if index not in held), None)
        if missing is not None:
            raise WireError(
                Code.CHUNK_MISSING, f"{live.chunks - len(held)} of {live.chunks} are missing, the first is {missing}."
            )
        assert live.cohort is not None, "a receipt fits a round that has a cohort"
        check_receipt(receipt, live.cohort, chunks=live.chunks, ciphertexts=live.ciphertexts)
        if receipt.upload_digest != upload_digest([held[index].content_hash for index in range(live.chunks)]):
            raise WireError(Code.RECEIPT_INVALID, "Its digest is not that of the chunks that arrived.")

    async def chunk(
        self, query_id: bytes, attempt: int, chunk: Chunk, caller: Member, receipt: Envelope | None = None
    ) -> None:
        """Store a cohort member's chunk. It is on disk on return. Repeating the same bytes is harmless.

        receipt: taken after it, as `receipt` does. If the party's is there, as in a repeated call, no chunk is stored.

        Chunks of one party are stored one at a time, so that a party that sends many in parallel uses one thread.
        Raises WireError, SPOOL_FULL among others, also if CHUNKS_AT_ONCE calls of this party are already in progress.
        """
        live = self._core.find(query_id)
        if receipt is None or not _has_receipt(live, attempt, caller.name):
            _check_uploading(live, attempt, caller.name)
            await self._core.carry(self._store_chunk(query_id, attempt, chunk, caller.name))
        if receipt is not None:
            await self.receipt(receipt, caller)

    async def _store_chunk(self, query_id: bytes, attempt: int, chunk: Chunk, party: str) -> None:
        about: dict[str, Any] = {"query": query_id, "attempt": attempt, "chunk": chunk.index}
        try:
            async with self._uploads.take(party):
                is_new = await self._store_in_turn(query_id, attempt, chunk, party)
        except WireError as error:
            self._log.refused("chunk refused", peer=party, code=error.code, **about)
            raise
        if is_new:
            self._log.debug("chunk", party=party, **about)
            await self._core.chunk_stored()

    async def _store_in_turn(self, query_id: bytes, attempt: int, chunk: Chunk, party: str) -> bool:
        """Store a chunk. Returns whether it is new. If the attempt has ended, deletes it. Raises WireError."""
        live = self._core.find(query_id)
        _check_uploading(live, attempt, party)

        def check_and_store() -> bool:
            if self._core.spool.is_repeat(query_id, attempt, party, chunk):
                return False
            check_chunk(live.opened, chunk)
            return self._core.spool.put(query_id, attempt, party, chunk)

        try:
            is_new = await asyncio.to_thread(check_and_store)
        except OSError:
            # An attempt that ends deletes its directories, also during a late write.
            _check_uploading(self._core.find(query_id), attempt, party)
            raise
        if is_new:
            try:
                _check_uploading(self._core.find(query_id), attempt, party)
            except WireError:
                # Deleted uploads must not reappear through this write.
                await asyncio.to_thread(self._core.spool.drop_attempt, query_id, attempt)
                raise
        return is_new


class Turns:
    """Runs one member's calls one at a time, with few waiting, so that no member takes the others' threads.

    Use it from one event loop. at_once: largest number of calls of one member, the running one included.

    code: refuses a call above this number.
    """

    def __init__(self, at_once: int, code: Code) -> None:
        self._at_once = at_once
        self._code = code
        self._here: Counter[str] = Counter()
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def take(self, member: str) -> AsyncIterator[None]:
        """Wait for this member's turn and hold it. Raises WireError if it has too many calls in progress."""
        if self._here[member] >= self._at_once:
            raise WireError(
                self._code, f"{self._at_once} calls of {member} are already in progress; send fewer in parallel."
            )
        self._here[member] += 1
        try:
            async with self._locks.setdefault(member, asyncio.Lock()):
                yield
        finally:
            self._here[member] -= 1
            if not self._here[member]:
                del self._here[member], self._locks[member]


def _check_sharing(live: LiveQuery, digest: bytes) -> None:
    """Raise WireError(PHASE_MISMATCH) if a statement is about another sharing than the attempt's."""
    if digest != (b"" if live.sharing is None else live.sharing.digest):
        raise WireError(Code.PHASE_MISMATCH, "It is about another sharing.")


def _check_unmasking(live: LiveQuery, said: Unmasking) -> None:
    """Raise WireError(PHASE_MISMATCH) if it is for other survivors, and so of no use."""
    assert live.cohort is not None, "survivors are of a cohort"
    about = CohortAttempt(live.query_id, said.attempt, live.cohort.digest)
    if (said.cohort_digest, said.survivors_digest) != (
        live.cohort.digest,
        survivors_digest(live.round.survivors, about),
    ):
        raise WireError(Code.PHASE_MISMATCH, "It is for other survivors.")


def _has_receipt(live: LiveQuery, attempt: int, party: str) -> bool:
    return attempt == live.round.attempt and party in live.round.receipts


def _check_uploading(live: LiveQuery, attempt: int, party: str) -> None:
    round_ = live.round
    if party not in round_.rules.parties:
        raise WireError(Code.QUERY_UNKNOWN)
    if round_.phase.is_terminal:
        raise WireError(Code.QUERY_CLOSED)
    if attempt != round_.attempt:
        raise WireError(Code.ATTEMPT_MISMATCH, f"Attempt {round_.attempt} is running.")
    if round_.phase is not Phase.UPLOADING:
        raise WireError(Code.PHASE_MISMATCH, f"It is in phase {round_.phase.word}.")
    if party not in round_.awaited:
        raise WireError(Code.COHORT_EXCLUDED)
