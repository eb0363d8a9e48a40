"""Calls to the coordinator: the only file of the learner that uses the messages of rado.v1."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from rado.v1 import ciphertext_pb2, member_service_pb2, release_pb2
from rado.v1 import learner_service_pb2 as messages
from rado.v1.learner_service_pb2_grpc import LearnerServiceStub
from rado.v1.member_service_pb2_grpc import MemberServiceStub
from radobase.logs import Log
from wire.envelopes import Envelope, SigningKey
from wire.errors import Code, WireError
from wire.identity import TlsFiles
from wire.query import Cancel
from wire.statements import Chunk
from wire.status import QueryStatus, Total
from wire.transport import LONG_POLL_GRACE_S, LONG_POLL_S, Caller, open_channel

# A learner's calls, which say when the coordinator is out of reach, and when it is not any more.


Note = Callable[[str], None]
Response = TypeVar("Response")
warn: Note = Log("learner").warning
TRYING_AFTER_S = 2.0
"""A coordinator that has not been reached for this long is worth a sentence."""


class NotingCaller:
    """A `Caller` with notes. A call that waits for an answer of a coordinator that answered before is not noted.

    note: receives the sentences, also from another thread. Several threads may call.
    """

    def __init__(self, target: str, give_up_after_s: float, note: Note) -> None:
        self._caller = Caller(target, give_up_after_s=give_up_after_s, retrying=self._retrying)
        self._trying = f"trying to reach the coordinator at {target}, for at most {give_up_after_s:g} s"
        self._note, self._lock = note, threading.Lock()
        self._was_reached = self._said = False

    def __call__(self, method: Callable[..., Response], request: Any, **options: float) -> Response:
        """See `Caller`."""
        # The first attempt may take many seconds to fail, and nothing else tells it from one that waits for an answer.
        timer = None if self._was_reached else threading.Timer(TRYING_AFTER_S, self._never_reached)
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            response = self._caller(method, request, **options)
        except WireError:
            self._reached()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        self._reached()
        return response

    def _never_reached(self) -> None:
        with self._lock:
            if not self._was_reached:
                self._say()

    def _retrying(self, failing_s: float) -> None:
        with self._lock:
            if failing_s >= TRYING_AFTER_S:
                self._say()

    def _say(self) -> None:
        if not self._said:
            self._said = True
            self._note(self._trying)

    def _reached(self) -> None:
        with self._lock:
            self._was_reached = True
            if self._said:
                self._said = False
                self._note("connected to the coordinator")


GIVE_UP_AFTER_S = 60.0
ANSWERS_AT_ONCE = 20
"""Statuses without a pause, besides those of parties."""
ANSWERS_PER_PARTY = 4
"""Further ones for each party, which accepts, computes, uploads and completes: more than an honest coordinator sends at
once, except for the chunks of large uploads."""
WATCH_EVERY_S = 0.2
"""A learner asks this often for a status if the coordinator answers at once, instead of when something changed."""


@dataclass
class _Came:
    """What came with the status of a complete query, not yet verified. Each part is used once."""

    query_id: bytes
    total: release_pb2.Total | None
    first_chunk: ciphertext_pb2.Chunk | None


class Coordinator:
    """A learner's client of the coordinator. Every call is retried for `give_up_after_s`.

    Every method raises WireError with a code of the catalogue, ConnectionLostError or TimedOutError.
    """

    def __init__(
        self,
        target: str,
        tls: TlsFiles,
        *,
        give_up_after_s: float = GIVE_UP_AFTER_S,
        note: Note = warn,
    ) -> None:
        """note: receives a sentence when the coordinator has been out of reach for a while (learner.client)."""
        self._call = NotingCaller(target, give_up_after_s, note)
        self._channel = open_channel(target, tls)
        self._members = MemberServiceStub(self._channel)
        self._learner = LearnerServiceStub(self._channel)
        self._came: _Came | None = None

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fetch_roster(self) -> Envelope:
        """The signed roster, not yet verified."""
        answer = self._call(self._members.FetchRoster, member_service_pb2.FetchRosterRequest())
        return Envelope.from_proto(answer.roster)

    def fetch_members(self) -> tuple[Envelope, tuple[Envelope, ...], tuple[str, ...]]:
        """The signed roster, and what every party stated of its node, not yet verified; the coordinator's features."""
        answer = self._call(self._members.FetchFeatures, member_service_pb2.FetchFeaturesRequest())
        # An older coordinator sends the roster in its own call only.
        roster = Envelope.from_proto(answer.roster) if answer.HasField("roster") else self.fetch_roster()
        return roster, tuple(Envelope.from_proto(stated) for stated in answer.parties), tuple(answer.coordinator)

    def retry_query(self, retry: Envelope) -> None:
        """Start another attempt of a query of this learner whose last attempt was lost."""
        self._call(self._learner.RetryQuery, messages.RetryQueryRequest(retry=retry.to_proto()))

    def submit_query(self, query: Envelope) -> None:
        """Send a query. Raises WireError(MESSAGE_MALFORMED) if the coordinator returns an id that is not its hash."""
        answer = self._call(self._learner.SubmitQuery, messages.SubmitQueryRequest(query=query.to_proto()))
        if answer.query_id != query.payload_hash:
            raise WireError(Code.MESSAGE_MALFORMED, "The coordinator returned a query id that is not the query's hash.")

    def watch_query(
        self, query_id: bytes, cursor: int, wait_s: float = LONG_POLL_S, *, ends_only: bool = False
    ) -> tuple[QueryStatus, int]:
        """The status when it differs from the cursor's, or after `wait_s` at the latest; with the next cursor.

        ends_only: only a total, a failure or a lost attempt ends the wait; an older coordinator tells every change. A
        total that comes with its status is what `fetch_total` and `fetch_chunk` return next.
        """
        request = messages.WatchQueryRequest(
            query_id=query_id, cursor=cursor, wait_s=max(0, math.ceil(wait_s)), ends_only=ends_only
        )
        answer = self._call(self._learner.WatchQuery, request, timeout_s=wait_s + LONG_POLL_GRACE_S)
        if answer.HasField("total"):
            self._came = _Came(query_id, answer.total, answer.first_chunk if answer.HasField("first_chunk") else None)
        return QueryStatus.from_proto(answer.status), answer.cursor

    def list_queries(self) -> tuple[QueryStatus, ...]:
        """All queries of this learner that the coordinator knows, newest first."""
        answer = self._call(self._learner.ListQueries, messages.ListQueriesRequest())
        return tuple(QueryStatus.from_proto(status) for status in answer.queries)

    def cancel_query(self, query_id: bytes, learner: str, signing_key: SigningKey) -> None:
        """Cancel a query of this learner that has no total yet."""
        cancel = Cancel(query_id, learner).sign(signing_key)
        self._call(self._learner.CancelQuery, messages.CancelQueryRequest(cancel=cancel.to_proto()))

    def fetch_total(self, query_id: bytes) -> Total:
        """A complete total without its ciphertexts, not yet verified."""
        if self._came is not None and self._came.query_id == query_id and self._came.total is not None:
            came, self._came.total = self._came.total, None
            return Total.from_proto(came)
        answer = self._call(self._learner.FetchTotal, messages.FetchTotalRequest(query_id=query_id))
        return Total.from_proto(answer.total)

    def fetch_chunk(self, query_id: bytes, index: int) -> bytes:
        """The ciphertexts of one chunk of a total, with a verified hash.

        Raises WireError(CHUNK_MALFORMED) if the answer is another chunk.
        """
        came = self._came
        if came is not None and came.query_id == query_id and index == 0 and came.first_chunk is not None:
            self._came = None
            chunk = Chunk.from_proto(came.first_chunk)
        else:
            request = messages.FetchTotalChunkRequest(query_id=query_id, index=index)
            chunk = Chunk.from_proto(self._call(self._learner.FetchTotalChunk, request).chunk)
        if chunk.index != index:
            raise WireError(Code.CHUNK_MALFORMED, f"The coordinator sent chunk {chunk.index} instead of chunk {index}.")
        return chunk.ciphertexts


class StatusPolls:
    """Long polls for one query's status. A coordinator that answers all of them at once does not wear out the learner.

    Use it from one thread.
    """

    def __init__(self, coordinator: Coordinator, query_id: bytes, parties: int, *, ends_only: bool = False) -> None:
        """parties: how many the learner knows. ends_only: see `Coordinator.watch_query`."""
        self._coordinator, self._query_id = coordinator, query_id
        self._options = {"ends_only": True} if ends_only else {}
        self._most_at_once = ANSWERS_AT_ONCE + ANSWERS_PER_PARTY * parties
        self._cursor = self._at_once = 0

    def next(self, wait_s: float) -> QueryStatus:
        """The status when it differs from the last, or after `wait_s` at the latest.

        After ANSWERS_AT_ONCE answers in less than WATCH_EVERY_S each, and ANSWERS_PER_PARTY for each party, an answer
        is followed by a pause of WATCH_EVERY_S. Raises what Coordinator.watch_query raises.
        """
        begun = time.monotonic()
        status, self._cursor = self._coordinator.watch_query(self._query_id, self._cursor, wait_s, **self._options)
        self._at_once = self._at_once + 1 if time.monotonic() - begun < WATCH_EVERY_S else 0
        if self._at_once > self._most_at_once and not status.phase.is_terminal:
            time.sleep(WATCH_EVERY_S)
        return status
