"""What members say: each statement is verified, its sender compared with the caller, and made an event."""

import asyncio
from collections.abc import Callable

from coordinator.aggregate import check_chunk
from coordinator.core import Core
from coordinator.events import Answer, Answered, BecameReady, Cancelled, ReceiptGiven
from coordinator.live import LiveQuery, check_size
from coordinator.rounds import Rules
from coordinator.store import Statement
from wire.cohort import Acceptance, Ready, Receipt, Refusal, check_receipt, open_statement
from wire.envelopes import Envelope
from wire.errors import Code, WireError
from wire.logs import Log
from wire.query import open_query
from wire.roster import Member, Roster
from wire.status import Phase
from wire.upload import Chunk, upload_digest


class Intake:
    """Checks what callers send before it reaches the core. `caller` is the certificate's member."""

    def __init__(self, core: Core, roster: Callable[[], Roster], log: Log) -> None:
        self._core = core
        self._roster = roster
        self._log = log

    async def query(self, envelope: Envelope, caller: Member) -> bytes:
        """Take a learner's query; its id. The same bytes again give the same id, also after it ended.

        Raises WireError.
        """
        known = next((live for live in self._core.queries if live.query_id == envelope.payload_hash), None)
        if known is not None:
            _check_sender(known.learner, caller)
            return known.query_id
        roster = self._roster()
        opened = open_query(envelope, roster, now_unix_s=self._core.wall_clock())
        query = opened.query
        _check_sender(query.learner, caller)
        check_size(opened)
        rules = Rules(
            tuple(member.name for member in roster.parties),
            query.cohort_min,
            query.max_parties,
            query.max_rows,
            query.answer_within_s,
            query.prepare_within_s,
            query.upload_within_s,
            query.max_attempts,
        )
        await self._core.take(opened, rules)
        return opened.query_id

    async def cancel(self, query_id: bytes, learner: str, caller: Member) -> None:
        """End a query of this learner's. Raises WireError(QUERY_UNKNOWN, QUERY_CLOSED or SENDER_MISMATCH)."""
        _check_sender(learner, caller)
        if self._core.find(query_id).learner != caller.name:
            raise WireError(Code.QUERY_UNKNOWN)
        await self._core.move(query_id, Cancelled())

    async def acceptance(self, envelope: Envelope, caller: Member) -> None:
        """Take a party's acceptance. Raises WireError."""
        said, _ = open_statement(Acceptance, envelope, self._roster())
        _check_sender(said.party, caller)
        await self._answer(said, Answer(envelope.payload_hash.hex(), rows=said.rows), envelope)

    async def refusal(self, envelope: Envelope, caller: Member) -> None:
        """Take a party's refusal. Raises WireError."""
        said, _ = open_statement(Refusal, envelope, self._roster())
        _check_sender(said.party, caller)
        await self._answer(said, Answer(envelope.payload_hash.hex(), code=said.code.value), envelope)

    async def _answer(self, said: Acceptance | Refusal, answer: Answer, envelope: Envelope) -> None:
        statement = Statement(said.attempt, said.party, said.KIND, envelope)
        await self._core.move(said.query_id, Answered(said.attempt, said.party, answer), statement=statement)

    async def ready(self, envelope: Envelope, caller: Member) -> None:
        """Take a party's word that it is ready. Raises WireError."""
        said, _ = open_statement(Ready, envelope, self._roster())
        _check_sender(said.party, caller)
        statement = Statement(said.attempt, said.party, said.KIND, envelope)
        await self._core.move(said.query_id, BecameReady(said.attempt, said.party), statement=statement)

    async def receipt(self, envelope: Envelope, caller: Member) -> None:
        """Take a party's receipt, once every chunk is there and it is the receipt for exactly these.

        Raises WireError, CHUNK_MISSING or RECEIPT_INVALID among others.
        """
        said, _ = open_statement(Receipt, envelope, self._roster())
        _check_sender(said.party, caller)
        statement = Statement(said.attempt, said.party, said.KIND, envelope)
        event = ReceiptGiven(said.attempt, said.party, envelope.payload_hash.hex())
        await self._core.move(
            said.query_id, event, statement=statement, check=lambda live: self._check_receipt(live, said)
        )

    def _check_receipt(self, live: LiveQuery, receipt: Receipt) -> None:
        held = self._core.spool.held(live.query_id, receipt.attempt, receipt.party)
        missing = next((index for index in range(live.chunks) if index not in held), None)
        if missing is not None:
            raise WireError(
                Code.CHUNK_MISSING, f"{live.chunks - len(held)} of {live.chunks} are, the first is {missing}."
            )
        assert live.cohort is not None, "a receipt fits a round that has a cohort"
        check_receipt(receipt, live.cohort, chunks=live.chunks, ciphertexts=live.ciphertexts)
        if receipt.upload_digest != upload_digest([held[index].content_hash for index in range(live.chunks)]):
            raise WireError(Code.RECEIPT_INVALID, "Its digest is not that of the chunks that arrived.")

    async def chunk(self, query_id: bytes, attempt: int, chunk: Chunk, caller: Member) -> None:
        """Store a cohort member's chunk; it is on disk when this returns. The same bytes again are harmless.

        Raises WireError.
        """
        _check_uploading(self._core.find(query_id), attempt, caller.name)
        await self._core.carry(self._store_chunk(query_id, attempt, chunk, caller.name))

    async def _store_chunk(self, query_id: bytes, attempt: int, chunk: Chunk, party: str) -> None:
        live = self._core.find(query_id)

        def check_and_store() -> bool:
            if self._core.spool.is_repeat(query_id, attempt, party, chunk):
                return False
            check_chunk(live.opened, chunk)
            return self._core.spool.put(query_id, attempt, party, chunk)

        about = {"query": query_id, "attempt": attempt, "party": party, "chunk": chunk.index}
        try:
            is_new = await asyncio.to_thread(check_and_store)
        except WireError as error:
            self._log.warning("chunk refused", **about, code=error.code)
            raise
        except OSError:
            # An attempt that ends takes its directories away under a late writer.
            _check_uploading(self._core.find(query_id), attempt, party)
            raise
        if not is_new:
            return
        try:
            _check_uploading(self._core.find(query_id), attempt, party)
        except WireError:
            # The attempt ended while the chunk was being written: what was dropped then must not come back.
            await asyncio.to_thread(self._core.spool.drop_attempt, query_id, attempt)
            raise
        self._log.debug("chunk", **about, of=live.chunks)
        await self._core.chunk_stored()


def _check_sender(named: str, caller: Member) -> None:
    if named != caller.name:
        raise WireError(Code.SENDER_MISMATCH)


def _check_uploading(live: LiveQuery, attempt: int, party: str) -> None:
    round_ = live.round
    if party not in round_.rules.parties:
        raise WireError(Code.QUERY_UNKNOWN)
    if round_.phase.is_terminal:
        raise WireError(Code.QUERY_CLOSED)
    if attempt != round_.attempt:
        raise WireError(Code.ATTEMPT_MISMATCH, f"Attempt {round_.attempt} is running.")
    if round_.phase is not Phase.UPLOADING:
        raise WireError(Code.PHASE_MISMATCH, f"It is in {round_.phase.name}.")
    if party not in round_.cohort:
        raise WireError(Code.COHORT_EXCLUDED)
