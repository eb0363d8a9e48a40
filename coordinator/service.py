"""The coordinator's rado.v1 services: convert messages, and nothing more.

wire.transport.Gate has authenticated the caller and checked its role before a method here runs.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import grpc.aio

from coordinator.core import Core
from coordinator.intake import Intake
from coordinator.membership import Admissions, Membership, WitnessExchange
from coordinator.open_queries import LiveQuery
from rado.v1 import (
    learner_service_pb2,
    learner_service_pb2_grpc,
    member_service_pb2,
    member_service_pb2_grpc,
    party_service_pb2,
    party_service_pb2_grpc,
)
from wire.envelopes import Envelope
from wire.errors import Code, WireError
from wire.features import OWN_FEATURES
from wire.gate import current_caller
from wire.roster import Member
from wire.statements import CHUNK_BYTES, Chunk
from wire.status import MOST_WORK, Phase, QueryStatus, Total, Work
from wire.transport import LONG_POLL_S, MAX_MESSAGE_BYTES

# Views of members. A long poll ends at a change, at its timeout, or when the coordinator drains.


# Every change wakes all waiting calls. A learner may follow its open queries from several windows.
WAITING_PER_MEMBER = 32

T = TypeVar("T")


class Views:
    """The core as a party or a learner sees it, each only its own part. `caller` is the certificate's member.

    At most WAITING_PER_MEMBER long polls of a member wait at one time; further ones return immediately.
    """

    def __init__(self, core: Core, witnesses: WitnessExchange) -> None:
        self._core = core
        self._witnesses = witnesses
        self._waiting: Counter[str] = Counter()

    async def work(self, caller: Member, cursor: int, wait_s: float) -> tuple[tuple[tuple[Work, int], ...], int]:
        """A party's changed work since the cursor, each entry with the cursor after it; and the next cursor.

        The wait also ends once another party's challenge is due.

        Cursor 0 gives all open queries. A cursor above the current one (the coordinator lost its state) counts as 0.
        """
        since = cursor if cursor <= self._core.revision else 0

        def changed() -> tuple[LiveQuery, ...]:
            return tuple(
                live
                for live in self._core.queries
                if live.revisions.work_revision > since
                and (since or live.is_open)
                and caller.name in live.round.rules.parties
            )

        def look() -> tuple[tuple[LiveQuery, ...], tuple[str, ...]] | None:
            seen = changed(), self._witnesses.due(caller)
            return seen if any(seen) else None

        await self._wait(caller, self._core.work_changed, look, wait_s)
        in_order = sorted(changed(), key=lambda live: live.revisions.work_revision)
        items = tuple((self._work(live, caller.name), live.revisions.work_revision) for live in in_order)
        # There was no await since the queries were read: no change is between them and this revision.
        return items, self._core.revision

    async def wake(self) -> None:
        """Let the long polls of parties look again."""
        async with self._core.work_changed:
            self._core.work_changed.notify_all()

    def _work(self, live: LiveQuery, party: str) -> Work:
        uploading = live.round.phase is Phase.UPLOADING and party in live.round.cohort
        held = self._core.spool.held(live.query_id, live.round.attempt, party) if uploading else {}
        return live.work_for(party, frozenset(held))

    async def watch(
        self, caller: Member, query_id: bytes, cursor: int, wait_s: float, *, ends_only: bool = False
    ) -> tuple[QueryStatus, int]:
        """A query's status and cursor, once the cursor changes or the wait ends. Raises WireError.

        ends_only: only a change to a total, a failure or a lost attempt ends the wait.
        """

        def changed() -> bool:
            live = self._own(caller, query_id)
            return (not ends_only or live.round.phase.ends_attempt) and self._cursor(live) != cursor

        await self._wait(caller, self._core.status_changed, changed, wait_s)
        live = self._own(caller, query_id)
        return self._status(live), self._cursor(live)

    def statuses(self, caller: Member) -> tuple[QueryStatus, ...]:
        """All queries of a learner that are not forgotten, newest first."""
        return tuple(self._status(live) for live in reversed(self._core.queries) if live.learner == caller.name)

    def total(self, caller: Member, query_id: bytes) -> Total:
        """A complete total without its ciphertexts. Raises WireError."""
        return self._own(caller, query_id).total

    async def total_chunk(self, caller: Member, query_id: bytes, index: int) -> Chunk:
        """One chunk of a complete total. Raises WireError."""
        live = self._own(caller, query_id)
        _ = live.total, live.opened.chunk_bytes(index)
        return Chunk.of(index, await asyncio.to_thread(self._core.spool.read_total, query_id, index))

    def _own(self, caller: Member, query_id: bytes) -> LiveQuery:
        live = self._core.find(query_id)
        if live.learner != caller.name:
            raise WireError(Code.QUERY_UNKNOWN)
        return live

    def _status(self, live: LiveQuery) -> QueryStatus:
        return live.status(self._core.chunk_count(live), self._core.clock())

    def _cursor(self, live: LiveQuery) -> int:
        return live.status_cursor(self._core.chunk_count(live))

    async def _wait(self, caller: Member, condition: asyncio.Condition, look: Callable[[], T], wait_s: float) -> T:
        """The first true result of `look`, or its result at the timeout or when the coordinator drains."""
        if wait_s <= 0 or self._waiting[caller.name] >= WAITING_PER_MEMBER:
            return look()
        self._waiting[caller.name] += 1
        try:
            async with asyncio.timeout(min(wait_s, LONG_POLL_S)), condition:
                while not (seen := look()) and not self._core.draining:
                    await condition.wait()
                return seen
        except TimeoutError:
            return look()
        finally:
            self._waiting[caller.name] -= 1


# ruff: noqa: ARG002, N802 - gRPC fixes the names and the arguments of these methods.


Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

SERVICES = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in (
        (member_service_pb2, "MemberService"),
        (party_service_pb2, "PartyService"),
        (learner_service_pb2, "LearnerService"),
    )
)
# Several entries fill a response up to this size. A single entry may be larger: a query with a cohort of a thousand.
RESPONSE_BYTES = MAX_MESSAGE_BYTES - 16 * 1024


class MemberService(member_service_pb2_grpc.MemberServiceServicer):
    """Calls of every member."""

    def __init__(
        self,
        membership: Membership,
        witnesses: WitnessExchange,
        admissions: Admissions,
        wall_clock: Callable[[], float],
    ) -> None:
        self._membership = membership
        self._witnesses = witnesses
        self._admissions = admissions
        self._wall_clock = wall_clock

    async def FetchRoster(
        self, request: member_service_pb2.FetchRosterRequest, context: Context
    ) -> member_service_pb2.FetchRosterResponse:
        """The newest roster, and the coordinator's time."""
        return member_service_pb2.FetchRosterResponse(
            roster=self._membership.envelope.to_proto(), server_time_unix_ms=int(self._wall_clock() * 1000)
        )

    async def FetchFeatures(
        self, request: member_service_pb2.FetchFeaturesRequest, context: Context
    ) -> member_service_pb2.FetchFeaturesResponse:
        """What every party stated of its node, the features of this one, and the newest roster."""
        stated = await asyncio.to_thread(self._witnesses.features)
        return member_service_pb2.FetchFeaturesResponse(
            parties=[envelope.to_proto() for envelope in stated],
            coordinator=OWN_FEATURES,
            roster=self._membership.envelope.to_proto(),
        )

    async def FetchAdmission(
        self, request: member_service_pb2.FetchAdmissionRequest, context: Context
    ) -> member_service_pb2.FetchAdmissionResponse:
        """The caller's own admission. No member gets another one's."""
        found = await asyncio.to_thread(self._admissions.of, current_caller().name)
        return member_service_pb2.FetchAdmissionResponse(admission=found)


class PartyService(party_service_pb2_grpc.PartyServiceServicer):
    """Calls of parties."""

    def __init__(self, intake: Intake, views: Views, witnesses: WitnessExchange) -> None:
        self._intake = intake
        self._views = views
        self._witnesses = witnesses

    async def SubmitFeatures(
        self, request: party_service_pb2.SubmitFeaturesRequest, context: Context
    ) -> party_service_pb2.SubmitFeaturesResponse:
        """Store what the party states of its node."""
        envelope = Envelope.from_proto(request.features)
        await asyncio.to_thread(self._witnesses.state_features, envelope, current_caller())
        return party_service_pb2.SubmitFeaturesResponse()

    async def AskWitnesses(
        self, request: party_service_pb2.AskWitnessesRequest, context: Context
    ) -> party_service_pb2.AskWitnessesResponse:
        """Show the party's challenge to the others."""
        self._witnesses.ask(Envelope.from_proto(request.challenge), current_caller())
        await self._views.wake()
        return party_service_pb2.AskWitnessesResponse()

    async def SubmitWitness(
        self, request: party_service_pb2.SubmitWitnessRequest, context: Context
    ) -> party_service_pb2.SubmitWitnessResponse:
        """Take answers to other parties' challenges."""
        messages = (request.witness, *request.more)
        await self._witnesses.answer_each([Envelope.from_proto(message) for message in messages], current_caller())
        return party_service_pb2.SubmitWitnessResponse()

    async def FetchWitnesses(
        self, request: party_service_pb2.FetchWitnessesRequest, context: Context
    ) -> party_service_pb2.FetchWitnessesResponse:
        """The answers to the party's own challenge so far."""
        caller = current_caller()
        answers = self._witnesses.answers(request.nonce, caller, request.known)
        newest = await asyncio.to_thread(self._witnesses.newest, caller)
        return party_service_pb2.FetchWitnessesResponse(
            witnesses=[answer.to_proto() for answer in answers], newest=None if newest is None else newest.to_proto()
        )

    async def FetchWork(
        self, request: party_service_pb2.FetchWorkRequest, context: Context
    ) -> party_service_pb2.FetchWorkResponse:
        """Changes, oldest first, as many as fit into one response. The next call returns the rest."""
        items, cursor = await self._views.work(current_caller(), request.cursor, request.wait_s)
        challenges = [challenge.to_proto() for challenge in self._witnesses.show(current_caller())]
        response = party_service_pb2.FetchWorkResponse(cursor=cursor, challenges=challenges)
        size_bytes, reached = 0, 0
        for work, stands_after in items:
            message = work.to_proto()
            size_bytes += message.ByteSize()
            if response.work and (size_bytes > RESPONSE_BYTES or len(response.work) >= MOST_WORK):
                response.cursor = reached
                break
            response.work.append(message)
            reached = stands_after
        return response

    async def SubmitAnswer(
        self, request: party_service_pb2.SubmitAnswerRequest, context: Context
    ) -> party_service_pb2.SubmitAnswerResponse:
        """Submit an acceptance or a refusal, or say that a person has to decide first."""
        match request.WhichOneof("answer"):
            case "acceptance":
                await self._intake.acceptance(Envelope.from_proto(request.acceptance), current_caller())
            case "refusal":
                await self._intake.refusal(Envelope.from_proto(request.refusal), current_caller())
            case "pending":
                await self._intake.pending(Envelope.from_proto(request.pending), current_caller())
            case _:
                raise WireError(Code.MESSAGE_MALFORMED, "An answer is an acceptance, a refusal or a pending.")
        return party_service_pb2.SubmitAnswerResponse()

    async def SubmitReady(
        self, request: party_service_pb2.SubmitReadyRequest, context: Context
    ) -> party_service_pb2.SubmitReadyResponse:
        """Report that a contribution is spooled."""
        key_shares = Envelope.from_proto(request.key_shares) if request.HasField("key_shares") else None
        await self._intake.ready(Envelope.from_proto(request.ready), current_caller(), key_shares)
        return party_service_pb2.SubmitReadyResponse()

    async def UploadChunk(
        self, request: party_service_pb2.UploadChunkRequest, context: Context
    ) -> party_service_pb2.UploadChunkResponse:
        """Store one chunk, and take the receipt that comes with the last. Both are on disk on return."""
        chunk = Chunk.from_proto(request.chunk)
        receipt = Envelope.from_proto(request.receipt) if request.HasField("receipt") else None
        await self._intake.chunk(request.query_id, request.attempt, chunk, current_caller(), receipt)
        return party_service_pb2.UploadChunkResponse(receipt_taken=receipt is not None)

    async def SubmitReceipt(
        self, request: party_service_pb2.SubmitReceiptRequest, context: Context
    ) -> party_service_pb2.SubmitReceiptResponse:
        """Complete an upload."""
        await self._intake.receipt(Envelope.from_proto(request.receipt), current_caller())
        return party_service_pb2.SubmitReceiptResponse()

    async def SubmitUnmasking(
        self, request: party_service_pb2.SubmitUnmaskingRequest, context: Context
    ) -> party_service_pb2.SubmitUnmaskingResponse:
        """Reveal shares of keys for the total of the survivors."""
        await self._intake.unmasking(Envelope.from_proto(request.unmasking), current_caller())
        return party_service_pb2.SubmitUnmaskingResponse()


class LearnerService(learner_service_pb2_grpc.LearnerServiceServicer):
    """Calls of learners. Each learner sees only its own queries."""

    def __init__(self, intake: Intake, views: Views) -> None:
        self._intake = intake
        self._views = views

    async def SubmitQuery(
        self, request: learner_service_pb2.SubmitQueryRequest, context: Context
    ) -> learner_service_pb2.SubmitQueryResponse:
        """Submit a query."""
        query_id = await self._intake.query(Envelope.from_proto(request.query), current_caller())
        return learner_service_pb2.SubmitQueryResponse(query_id=query_id)

    async def WatchQuery(
        self, request: learner_service_pb2.WatchQueryRequest, context: Context
    ) -> learner_service_pb2.WatchQueryResponse:
        """Wait for a change of a query's status, or for its end, which brings the total with it."""
        caller, ends_only = current_caller(), request.ends_only
        status, cursor = await self._views.watch(
            caller, request.query_id, request.cursor, request.wait_s, ends_only=ends_only
        )
        response = learner_service_pb2.WatchQueryResponse(status=status.to_proto(), cursor=cursor)
        if ends_only and status.phase is Phase.COMPLETE:
            response.total.CopyFrom(self._views.total(caller, request.query_id).to_proto())
            if response.ByteSize() + CHUNK_BYTES < RESPONSE_BYTES:
                chunk = await self._views.total_chunk(caller, request.query_id, 0)
                response.first_chunk.CopyFrom(chunk.to_proto())
        return response

    async def ListQueries(
        self, request: learner_service_pb2.ListQueriesRequest, context: Context
    ) -> learner_service_pb2.ListQueriesResponse:
        """All known queries, newest first, as many as fit into one response."""
        response = learner_service_pb2.ListQueriesResponse()
        size_bytes = 0
        for status in self._views.statuses(current_caller()):
            message = status.to_proto()
            size_bytes += message.ByteSize()
            if response.queries and size_bytes > RESPONSE_BYTES:
                break
            response.queries.append(message)
        return response

    async def CancelQuery(
        self, request: learner_service_pb2.CancelQueryRequest, context: Context
    ) -> learner_service_pb2.CancelQueryResponse:
        """Cancel a query. The request is signed, so that only the learner can cancel."""
        await self._intake.cancel(Envelope.from_proto(request.cancel), current_caller())
        return learner_service_pb2.CancelQueryResponse()

    async def RetryQuery(
        self, request: learner_service_pb2.RetryQueryRequest, context: Context
    ) -> learner_service_pb2.RetryQueryResponse:
        """Start another attempt of a query whose last one was lost."""
        await self._intake.retry(Envelope.from_proto(request.retry), current_caller())
        return learner_service_pb2.RetryQueryResponse()

    async def FetchTotal(
        self, request: learner_service_pb2.FetchTotalRequest, context: Context
    ) -> learner_service_pb2.FetchTotalResponse:
        """The total without its ciphertexts."""
        total = self._views.total(current_caller(), request.query_id)
        return learner_service_pb2.FetchTotalResponse(total=total.to_proto())

    async def FetchTotalChunk(
        self, request: learner_service_pb2.FetchTotalChunkRequest, context: Context
    ) -> learner_service_pb2.FetchTotalChunkResponse:
        """One chunk of the total."""
        chunk = await self._views.total_chunk(current_caller(), request.query_id, request.index)
        return learner_service_pb2.FetchTotalChunkResponse(chunk=chunk.to_proto())


def register(
    server: grpc.aio.Server,
    member: member_service_pb2_grpc.MemberServiceServicer,
    party: party_service_pb2_grpc.PartyServiceServicer,
    learner: learner_service_pb2_grpc.LearnerServiceServicer,
) -> None:
    """Register the three services with a server."""
    member_service_pb2_grpc.add_MemberServiceServicer_to_server(member, server)
    party_service_pb2_grpc.add_PartyServiceServicer_to_server(party, server)
    learner_service_pb2_grpc.add_LearnerServiceServicer_to_server(learner, server)
