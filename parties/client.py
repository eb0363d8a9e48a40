"""gRPC client of a party. The only file of this package that uses the wire messages."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from parties.answering.coordinator_calls import MOST_CHALLENGES, WorkBatch
from rado.v1 import member_service_pb2, member_service_pb2_grpc, party_service_pb2, party_service_pb2_grpc
from radobase.watching.metrics import RECEIVED, SENT, Counts
from wire.envelopes import Envelope
from wire.errors import ConnectionLostError, WireError
from wire.identity import TlsFiles
from wire.status import MOST_WORK, Phase, Work
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


# How often a party polls: a coordinator cannot keep its processor or its log busy.
#
# An honest coordinator answers a long poll when something changes, so a few answers come quickly, one after another,
# and then a party waits. The pauses here are for a coordinator that never lets it wait.
#
# A learner may ask many short queries, one after another, and each answers several polls. So a charge pays for the
# polls of its attempt: the ledger limits the number of charges, and none is returned.


POLLS_AT_ONCE: Final = 20
"""Polls without a pause: more than an honest coordinator answers at once, also after a restart."""
POLLS_PER_ATTEMPT: Final = len(Phase)
"""Polls without a pause that a charge adds: an honest coordinator answers one for each phase of its attempt."""
POLL_EVERY_S: Final = 0.5
"""A party polls this often, over a long time, if the coordinator answers at once."""
BUSY_AT_ONCE_S: Final = 5.0
"""Processor time without a pause: of polls, what they answered, and steps of queries."""
BUSY_PER_ATTEMPT_S: Final = 1.0
"""Processor time without a pause that a charge adds."""
BUSY_SHARE: Final = 0.04
"""The share of one processor that polls and steps of queries may take over a long time, without charges."""
LONGEST_BUSY_PAUSE_S: Final = 30.0
"""Queries of other learners do not wait longer for the next poll, whatever one costs."""
FIRST_JUNK_PAUSE_S: Final = 0.5
LONGEST_JUNK_PAUSE_S: Final = 8.0


class PollingPace:
    """The pauses between polls. Use it from one thread, except for `charged` and `worked`.

    Polls and processor time are paid from allowances. They grow with time up to POLLS_AT_ONCE and BUSY_AT_ONCE_S, and
    with each charge. Answers with junk are followed by pauses that double, up to LONGEST_JUNK_PAUSE_S.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: monotonic seconds."""
        self._clock = clock
        self._polls, self._busy_s, self._counted_at = float(POLLS_AT_ONCE), BUSY_AT_ONCE_S, clock()
        self._junk_pauses = _doubling()
        self._lock, self._charges, self._worked_s = threading.Lock(), 0, 0.0

    def charged(self) -> None:
        """Count a charge. Call it from any thread."""
        with self._lock:
            self._charges += 1

    def worked(self, seconds: float) -> None:
        """Count processor time that a step of a query took. Call it from any thread."""
        with self._lock:
            self._worked_s += seconds

    def pause_s(self, *, handling_s: float, is_junk: bool) -> float:
        """Seconds until the next poll may start.

        handling_s: processor time that the last poll and its answer took. is_junk: whether an entry of the answer could
        not be read, or was signed by no member.
        """
        now = self._clock()
        with self._lock:
            charges, self._charges = self._charges, 0
            worked_s, self._worked_s = self._worked_s, 0.0
        passed_s, self._counted_at = now - self._counted_at, now
        gained = passed_s / POLL_EVERY_S + charges * POLLS_PER_ATTEMPT
        gained_s = passed_s * BUSY_SHARE + charges * BUSY_PER_ATTEMPT_S
        self._polls = min(float(POLLS_AT_ONCE), self._polls + gained) - 1
        left_s = min(BUSY_AT_ONCE_S, self._busy_s + gained_s) - handling_s - worked_s
        self._busy_s = max(left_s, -LONGEST_BUSY_PAUSE_S * BUSY_SHARE)
        pause_s = max(0.0, -self._polls * POLL_EVERY_S, -self._busy_s / BUSY_SHARE)
        if not is_junk:
            self._junk_pauses = _doubling()
            return pause_s
        return max(pause_s, next(self._junk_pauses))


def _doubling() -> Iterator[float]:
    pause_s = FIRST_JUNK_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_JUNK_PAUSE_S)
