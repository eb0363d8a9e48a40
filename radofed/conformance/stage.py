"""The coordinator's server of the kit: a real coordinator's gate, with services that say what the kit wants them to.

Every call of the member under test is recorded. Nothing here checks or decides: cases do.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from coordinator.server import Node, Services
from dpcore.errors import RadofedError
from rado.v1 import (
    learner_service_pb2_grpc,
    member_service_pb2,
    member_service_pb2_grpc,
    party_service_pb2,
    party_service_pb2_grpc,
)
from radofed.conformance.kit import Kit
from wire.envelopes import Envelope, sha256
from wire.errors import Code, WireError
from wire.features import OWN_FEATURES
from wire.statements import Challenge, Witness, name_of
from wire.status import Phase
from wire.transport import LONG_POLL_S

T = TypeVar("T")
_LOOK_EVERY_S = 0.02
_START_WITHIN_S = 30.0

# ruff: noqa: ARG001, ARG002, N802 - gRPC fixes the names and the arguments of these methods.


@dataclass(frozen=True)
class Call:
    """A call of the member under test."""

    method: str
    request: Any
    """The message."""


class Stage:
    """The running server; a context manager. Its methods may be called from any thread."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.roster = kit.envelope
        """What FetchRoster returns."""
        self.features: Sequence[Envelope] = ()
        """What FetchFeatures returns of the parties."""
        self.takes_receipts = True
        """Whether a receipt that comes with a chunk is taken."""
        self.slowest_s = 0.0
        """What the party took at most to accept a query, or to upload for a cohort."""
        self.withholds_witnesses = False
        """Whether the other parties' answers to a challenge are held back."""
        self.newest: Envelope | None = None
        """The acceptance of the party that the other parties say they have seen."""
        self.has_another_answer = False
        """Whether answers get ANSWER_CONFLICT, as if another copy of the party had answered."""
        self.answers: dict[str, Callable[[Any], Any]] = {}
        """What calls of a learner return, by method."""
        self.refused = ""
        """The last call of a learner that was refused, and why."""
        self.fault: Exception | None = None
        """Of the kit itself, in answering a call."""
        self._calls: list[Call] = []
        self._changed = threading.Condition()
        self._work: dict[bytes, tuple[int, party_service_pb2.Work]] = {}
        self._challenges: list[Envelope] = []
        self._revision = self._fetched = 1
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="kit", daemon=True)
        self._started = threading.Event()
        self._failure: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait(_START_WITHIN_S)
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except (RadofedError, OSError) as error:
            self._failure = error
        finally:
            self._started.set()
            self._loop.close()

    async def _serve(self) -> None:
        async with Node(self.kit.config, self._around):
            self._started.set()
            await self._stop.wait()

    def _around(self, own: Services) -> Services:
        return _Members(self, own[0]), _Parties(self), _Learners(self)  # type: ignore[abstract]  # its methods are added below

    # For cases.

    def show(self, work: party_service_pb2.Work) -> int:
        """Let the party see this work, in place of what it saw of the query before. Returns what `is_seen` takes."""
        with self._changed:
            self._revision += 1
            self._work[sha256(work.query.payload)] = self._revision, work
            return self._revision

    def is_seen(self, revision: int) -> bool:
        """Whether the party has fetched what was shown."""
        return self._fetched >= revision

    def forget(self) -> None:
        """Show no query any more."""
        with self._changed:
            self._work.clear()

    def challenge(self, envelope: Envelope) -> None:
        """Show a challenge with the next work."""
        with self._changed:
            self._challenges.append(envelope)

    def calls(self, *methods: str) -> list[Call]:
        """The calls of these methods so far, oldest first."""
        with self._changed:
            return [call for call in self._calls if call.method in methods]

    def wait(self, look: Callable[[], T | None], timeout_s: float) -> T | None:
        """The first result of `look` that is neither None nor false; None if there is none in time."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not (found := look()) and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
        return found or None

    # For the services.

    def note(self, method: str, request: Any) -> None:
        """Record a call."""
        with self._changed:
            self._calls.append(Call(method, request))
            self._changed.notify_all()

    def news(self, cursor: int) -> tuple[list[party_service_pb2.Work], list[Envelope], int]:
        """Work after the cursor, the challenges, and the next cursor."""
        with self._changed:
            since = cursor if cursor <= self._revision else 0
            ended = (Phase.COMPLETE.value, Phase.FAILED.value)
            fresh = sorted(((at, work) for at, work in self._work.values() if at > since), key=lambda each: each[0])
            work = [each for _, each in fresh if since or each.phase not in ended]
            challenges, self._challenges = self._challenges, []
            self._fetched = self._revision
            self._changed.notify_all()
            return work, challenges, self._revision


class _Members(member_service_pb2_grpc.MemberServiceServicer):
    def __init__(self, stage: Stage, own: member_service_pb2_grpc.MemberServiceServicer) -> None:
        self._stage, self._own = stage, own

    async def FetchRoster(
        self, request: member_service_pb2.FetchRosterRequest, context: Any
    ) -> member_service_pb2.FetchRosterResponse:
        self._stage.note("FetchRoster", request)
        now_ms = int(time.time() * 1000)
        return member_service_pb2.FetchRosterResponse(roster=self._stage.roster.to_proto(), server_time_unix_ms=now_ms)

    async def FetchFeatures(
        self, request: member_service_pb2.FetchFeaturesRequest, context: Any
    ) -> member_service_pb2.FetchFeaturesResponse:
        self._stage.note("FetchFeatures", request)
        return member_service_pb2.FetchFeaturesResponse(
            parties=[each.to_proto() for each in self._stage.features],
            coordinator=OWN_FEATURES,
            roster=self._stage.roster.to_proto(),
        )

    async def FetchAdmission(
        self, request: member_service_pb2.FetchAdmissionRequest, context: Any
    ) -> member_service_pb2.FetchAdmissionResponse:
        return member_service_pb2.FetchAdmissionResponse()


class _Parties(party_service_pb2_grpc.PartyServiceServicer):
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._challenge: Envelope | None = None

    async def FetchWork(
        self, request: party_service_pb2.FetchWorkRequest, context: Any
    ) -> party_service_pb2.FetchWorkResponse:
        self._stage.note("FetchWork", request)
        deadline = time.monotonic() + min(request.wait_s, LONG_POLL_S)
        while True:
            work, challenges, cursor = self._stage.news(request.cursor)
            if work or challenges or time.monotonic() >= deadline:
                return party_service_pb2.FetchWorkResponse(
                    work=work, cursor=cursor, challenges=[each.to_proto() for each in challenges]
                )
            await asyncio.sleep(_LOOK_EVERY_S)

    async def SubmitFeatures(
        self, request: party_service_pb2.SubmitFeaturesRequest, context: Any
    ) -> party_service_pb2.SubmitFeaturesResponse:
        self._stage.note("SubmitFeatures", request)
        return party_service_pb2.SubmitFeaturesResponse()

    async def AskWitnesses(
        self, request: party_service_pb2.AskWitnessesRequest, context: Any
    ) -> party_service_pb2.AskWitnessesResponse:
        self._challenge = Envelope.from_proto(request.challenge)
        self._stage.note("AskWitnesses", request)
        return party_service_pb2.AskWitnessesResponse()

    async def FetchWitnesses(
        self, request: party_service_pb2.FetchWitnessesRequest, context: Any
    ) -> party_service_pb2.FetchWitnessesResponse:
        self._stage.note("FetchWitnesses", request)
        if self._challenge is None or Challenge.from_bytes(self._challenge.payload).nonce != request.nonce:
            raise WireError(Code.QUERY_UNKNOWN, "The challenge is not known: ask again.")
        kit, newest = self._stage.kit, self._stage.newest
        names = () if newest is None else (name_of(newest),)
        said = [
            Witness(kit.roster.federation, peer, kit.subject.name, request.nonce, newest, names).sign(
                kit.signing_key(peer)
            )
            for peer in (() if self._stage.withholds_witnesses else kit.peers)
        ]
        response = party_service_pb2.FetchWitnessesResponse(witnesses=[each.to_proto() for each in said])
        if newest is not None:
            response.newest.CopyFrom(newest.to_proto())
        return response

    async def SubmitWitness(
        self, request: party_service_pb2.SubmitWitnessRequest, context: Any
    ) -> party_service_pb2.SubmitWitnessResponse:
        self._stage.note("SubmitWitness", request)
        return party_service_pb2.SubmitWitnessResponse()

    async def SubmitAnswer(
        self, request: party_service_pb2.SubmitAnswerRequest, context: Any
    ) -> party_service_pb2.SubmitAnswerResponse:
        self._stage.note("SubmitAnswer", request)
        if self._stage.has_another_answer:
            raise WireError(Code.ANSWER_CONFLICT)
        return party_service_pb2.SubmitAnswerResponse()

    async def SubmitReady(
        self, request: party_service_pb2.SubmitReadyRequest, context: Any
    ) -> party_service_pb2.SubmitReadyResponse:
        self._stage.note("SubmitReady", request)
        return party_service_pb2.SubmitReadyResponse()

    async def UploadChunk(
        self, request: party_service_pb2.UploadChunkRequest, context: Any
    ) -> party_service_pb2.UploadChunkResponse:
        taken = request.HasField("receipt") and self._stage.takes_receipts
        self._stage.note("UploadChunk", request)
        return party_service_pb2.UploadChunkResponse(receipt_taken=taken)

    async def SubmitReceipt(
        self, request: party_service_pb2.SubmitReceiptRequest, context: Any
    ) -> party_service_pb2.SubmitReceiptResponse:
        self._stage.note("SubmitReceipt", request)
        return party_service_pb2.SubmitReceiptResponse()

    async def SubmitUnmasking(
        self, request: party_service_pb2.SubmitUnmaskingRequest, context: Any
    ) -> party_service_pb2.SubmitUnmaskingResponse:
        self._stage.note("SubmitUnmasking", request)
        return party_service_pb2.SubmitUnmaskingResponse()


def _learner_s(method: str) -> Any:
    async def serve(self: "_Learners", request: Any, context: Any) -> Any:
        return await self.answered(method, request)

    return serve


class _Learners(learner_service_pb2_grpc.LearnerServiceServicer):
    """Each call goes to what the case put into `Stage.answers`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def answered(self, method: str, request: Any) -> Any:
        self._stage.note(method, request)
        handler = self._stage.answers.get(method)
        if handler is None:
            raise WireError(Code.QUERY_UNKNOWN)
        try:
            return await asyncio.to_thread(handler, request)
        except WireError as error:
            self._stage.refused = f"{method} with {error.public_sentence}"
            raise
        except Exception as error:
            # Of the kit: the one under test is not to blame.
            self._stage.fault = error
            raise


for _method in (
    *("SubmitQuery", "WatchQuery", "ListQueries", "CancelQuery", "RetryQuery"),
    *("FetchTotal", "FetchTotalChunk"),
):
    setattr(_Learners, _method, _learner_s(_method))
