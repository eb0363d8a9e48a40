"""gRPC client of a party. The only file of this package that uses the wire messages."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from parties.answering.coordinator_calls import MOST_CHALLENGES, WorkBatch
from rado.v1 import member_service_pb2, member_service_pb2_grpc, party_service_pb2, party_service_pb2_grpc
from radobase.watching.metrics import RECEIVED, SENT, Counts
from wire.envelopes import Envelope
from wire.errors import ConnectionLostError, WireError
from wire.identity import TlsFiles
from wire.status import MOST_WORK, Work
from wire.transport import LONG_POLL_GRACE_S, Caller, open_channel
from wire.upload import Chunk

GIVE_UP_AFTER_S = 60.0
LONGEST_CALL_S = 120.0

Response = TypeVar("Response")
M = TypeVar("M")
T = TypeVar("T")


def _readable(messages: Iterable[M], read: Callable[[M], T]) -> Iterator[T]:
    """Those that can be read: one that cannot must not hide the others."""
    for message in messages:
        with suppress(WireError):
            yield read(message)


class CoordinatorClient:
    """A connection to the coordinator, with mutual TLS. Threads may share it.

    Implements parties.answering.coordinator_calls.CoordinatorCalls.
    """

    def __init__(
        self,
        target: str,
        tls: TlsFiles,
        *,
        give_up_after_s: float = GIVE_UP_AFTER_S,
        stopping: Callable[[], bool] = lambda: False,
        counts: Counts | None = None,
    ) -> None:
        """Connects at first use. target: "host:port". stopping: no call is repeated once it returns True.

        counts: of the bytes of all messages.

        Raises ConfigurationError if a file cannot be read.
        """
        self._caller = Caller(target, give_up_after_s=give_up_after_s, stopping=stopping)
        self._tls, self._counts = tls, counts or Counts()
        self._former: list[grpc.Channel] = []
        self._open()

    def _open(self) -> None:
        self._channel = open_channel(self._caller.target, self._tls)
        # The generated stub types cover both gRPC interfaces and match neither exactly.
        channel: Any = self._channel
        self._members: Any = member_service_pb2_grpc.MemberServiceStub(channel)
        self._party: Any = party_service_pb2_grpc.PartyServiceStub(channel)
        self._health: Any = health_pb2_grpc.HealthStub(channel)

    def reconnect(self) -> None:
        """Read the files again, and use a new connection for all further calls. A running call ends on the former one.

        Raises ConfigurationError, and keeps the connection, if a file cannot be read.
        """
        former = self._channel
        self._open()
        self._former.append(former)
        closing = threading.Timer(LONGEST_CALL_S, former.close)
        closing.daemon = True
        closing.start()

    def close(self) -> None:
        """Close the connection. A running call fails immediately."""
        for channel in (self._channel, *self._former):
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fetch_roster(self) -> tuple[Envelope, float]:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        response = self._call(self._members.FetchRoster, member_service_pb2.FetchRosterRequest())
        return Envelope.from_proto(response.roster), response.server_time_unix_ms / 1000

    def state_features(self, features: Envelope) -> None:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        self._call(self._party.SubmitFeatures, party_service_pb2.SubmitFeaturesRequest(features=features.to_proto()))

    def ask_witnesses(self, challenge: Envelope) -> None:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        self._call(self._party.AskWitnesses, party_service_pb2.AskWitnessesRequest(challenge=challenge.to_proto()))

    def witness(self, witness: Envelope) -> None:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        self._call(self._party.SubmitWitness, party_service_pb2.SubmitWitnessRequest(witness=witness.to_proto()))

    def fetch_witnesses(self, nonce: bytes) -> tuple[tuple[Envelope, ...], Envelope | None]:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        response = self._call(self._party.FetchWitnesses, party_service_pb2.FetchWitnessesRequest(nonce=nonce))
        newest = Envelope.from_proto(response.newest) if response.HasField("newest") else None
        return tuple(_readable(response.witnesses[:MOST_CHALLENGES], Envelope.from_proto)), newest

    def fetch_work(self, cursor: int, wait_s: int) -> WorkBatch:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        response = self._call(
            self._party.FetchWork,
            party_service_pb2.FetchWorkRequest(cursor=cursor, wait_s=wait_s),
            timeout_s=wait_s + LONG_POLL_GRACE_S,
            give_up_after_s=0.0,
        )
        work = tuple(_readable(response.work[:MOST_WORK], Work.from_proto))
        challenges = tuple(_readable(response.challenges[:MOST_CHALLENGES], Envelope.from_proto))
        unreadable = len(response.work) - len(work) + len(response.challenges) - len(challenges)
        return WorkBatch(work, response.cursor, unreadable, challenges)

    def answer(self, answer: Envelope, *, accepts: bool) -> None:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        signed = answer.to_proto()
        request = party_service_pb2.SubmitAnswerRequest(
            acceptance=signed if accepts else None, refusal=None if accepts else signed
        )
        self._call(self._party.SubmitAnswer, request)

    def pending(self, pending: Envelope) -> None:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        self._call(self._party.SubmitAnswer, party_service_pb2.SubmitAnswerRequest(pending=pending.to_proto()))

    def ready(self, ready: Envelope) -> None:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        self._call(self._party.SubmitReady, party_service_pb2.SubmitReadyRequest(ready=ready.to_proto()))

    def upload_chunk(self, query_id: bytes, attempt: int, chunk: Chunk) -> None:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        request = party_service_pb2.UploadChunkRequest(query_id=query_id, attempt=attempt, chunk=chunk.to_proto())
        self._call(self._party.UploadChunk, request, timeout_s=LONGEST_CALL_S)

    def receipt(self, receipt: Envelope) -> None:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        self._call(self._party.SubmitReceipt, party_service_pb2.SubmitReceiptRequest(receipt=receipt.to_proto()))

    def is_serving(self) -> bool:
        """Whether the coordinator's health service reports that it is serving."""
        response = self._call(self._health.Check, health_pb2.HealthCheckRequest(), timeout_s=10.0)
        return bool(response.status == health_pb2.HealthCheckResponse.SERVING)

    def _call(self, method: Callable[..., Any], request: Any, **options: float) -> Any:
        try:
            self._counts.add(SENT, request.ByteSize())
            response = self._caller(method, request, **options)
            self._counts.add(RECEIVED, response.ByteSize())
            return response
        except ValueError as error:
            # gRPC raises this on a channel that another thread closed.
            raise ConnectionLostError(self._caller.target, "the connection was closed") from error
        except grpc.RpcError as error:
            raise ConnectionLostError(self._caller.target, str(error)) from error
