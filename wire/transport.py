"""Calls between nodes: channels, retries with full jitter, error codes, and the roles allowed for each call."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TypeVar

import grpc
import grpc.aio
from cryptography import x509
from google.protobuf.message import DecodeError

from dpcore.errors import RadofedError
from radofed.common.logs import Log
from radofed.common.watching.metrics import RECEIVED, SENT, Counts
from wire.errors import (
    CATALOGUE,
    CODE_METADATA_KEY,
    PROXY_OPENS_TLS,
    Code,
    ConnectionLostError,
    TimedOutError,
    WireError,
)
from wire.identity import TlsFiles, tls_key_hash
from wire.roster import Member, Role, Roster

MAX_MESSAGE_BYTES = 1024 * 1024
"""The most bytes of a request. A coordinator receives from every member at once."""
MAX_RESPONSE_BYTES = 4 * 1024 * 1024
"""The most bytes of a response: the statements of a cohort of a thousand parties, and the longest query."""
MESSAGES_AT_ONCE = 32
"""The most incomplete messages that a server receives from one member at a time. A party node sends at most 17."""
MESSAGE_WITHIN_S = 120.0
"""How long a server waits for a message to be complete: as long as the longest timeout of our callers."""
LONG_POLL_S = 25
"""The longest wait that a party or a learner asks for and the coordinator grants; docs/protocol.md states it."""
# A long poll must end before its deadline, also over a slow line.
LONG_POLL_GRACE_S = 15
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 20.0

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # gRPC's default is two minutes: a member could come back that long after its coordinator.
    ("grpc.max_reconnect_backoff_ms", 10_000),
    # Our own retries have full jitter and know which codes are final.
    ("grpc.enable_retries", 0),
]
SERVER_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_RESPONSE_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    # Clients ping between calls too. Without this the server disconnects a learner that is idle for a minute.
    ("grpc.keepalive_permit_without_calls", 1),
    # Bytes that a caller sends before it is refused wait in memory: at most this many streams times a window of 64 KiB
    # for each connection. gRPC's bandwidth probe would raise the window to many megabytes, even for unknown callers.
    # Without the probe a chunk takes one more round trip.
    ("grpc.max_concurrent_streams", 64),
    ("grpc.http2.bdp_probe", 0),
    # Two coordinators on one port would split a federation.
    ("grpc.so_reuseport", 0),
]

_EVERYONE = frozenset(Role)
_PARTIES = frozenset({Role.PARTY})
_LEARNERS = frozenset({Role.LEARNER})

ALLOWED_ROLES: dict[str, frozenset[Role]] = {
    "/grpc.health.v1.Health/Check": _EVERYONE,
    "/grpc.health.v1.Health/List": _EVERYONE,
    "/grpc.health.v1.Health/Watch": _EVERYONE,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _EVERYONE,
    "/rado.v1.MemberService/FetchRoster": _EVERYONE,
    "/rado.v1.MemberService/FetchFeatures": _EVERYONE,
    "/rado.v1.MemberService/FetchAdmission": _EVERYONE,
    "/rado.v1.PartyService/SubmitFeatures": _PARTIES,
    "/rado.v1.PartyService/AskWitnesses": _PARTIES,
    "/rado.v1.PartyService/SubmitWitness": _PARTIES,
    "/rado.v1.PartyService/FetchWitnesses": _PARTIES,
    "/rado.v1.PartyService/FetchWork": _PARTIES,
    "/rado.v1.PartyService/SubmitAnswer": _PARTIES,
    "/rado.v1.PartyService/SubmitReady": _PARTIES,
    "/rado.v1.PartyService/UploadChunk": _PARTIES,
    "/rado.v1.PartyService/SubmitReceipt": _PARTIES,
    "/rado.v1.LearnerService/SubmitQuery": _LEARNERS,
    "/rado.v1.LearnerService/WatchQuery": _LEARNERS,
    "/rado.v1.LearnerService/ListQueries": _LEARNERS,
    "/rado.v1.LearnerService/CancelQuery": _LEARNERS,
    "/rado.v1.LearnerService/RetryQuery": _LEARNERS,
    "/rado.v1.LearnerService/FetchTotal": _LEARNERS,
    "/rado.v1.LearnerService/FetchTotalChunk": _LEARNERS,
}

Response = TypeVar("Response")


def open_channel(target: str, tls: TlsFiles) -> grpc.Channel:
    """A channel to the coordinator at "host:port". It always uses mutual TLS."""
    return grpc.secure_channel(target, tls.channel_credentials(), options=CHANNEL_OPTIONS)


class Caller:
    """Makes calls to one target. All RPCs of radofed are idempotent, so all are retried."""

    def __init__(
        self,
        target: str,
        *,
        give_up_after_s: float,
        stopping: Callable[[], bool] = lambda: False,
        retrying: Callable[[float], None] = lambda _: None,
    ) -> None:
        """stopping: no call is repeated once it is true. retrying: gets the seconds since a failing call began."""
        self.target = target
        self.give_up_after_s = give_up_after_s
        self._stopping, self._retrying = stopping, retrying
        # Jitter is not for security; it spreads load.
        self._jitter = random.Random()  # noqa: S311

    def __call__(
        self,
        method: Callable[..., Response],
        request: Any,
        *,
        timeout_s: float = 30.0,
        give_up_after_s: float | None = None,
    ) -> Response:
        """Call, and retry transient failures for up to `give_up_after_s` seconds.

        Raises WireError for a code of the catalogue, ConnectionLostError or TimedOutError otherwise.
        """
        patience_s = self.give_up_after_s if give_up_after_s is None else give_up_after_s
        begun = time.monotonic()
        end = begun + patience_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return method(request, timeout=timeout_s)
            except grpc.RpcError as failure:
                error, may_pass = translate(failure, self.target)
                if not may_pass or self._stopping() or time.monotonic() >= end:
                    raise error from failure
            self._retrying(time.monotonic() - begun)
            time.sleep(min(self._jitter.uniform(0, pause_s), max(0.0, end - time.monotonic())))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


def translate(failure: grpc.RpcError, target: str) -> tuple[RadofedError, bool]:
    """The error of a failed call, and whether a retry may succeed."""
    metadata: Iterable[Any] = failure.trailing_metadata() or ()
    name = next((value for key, value in metadata if key == CODE_METADATA_KEY), None)
    details = failure.details() or ""
    if name is not None and name in set(Code):
        code = Code(name)
        return WireError(code, _detail(details, code)), CATALOGUE[code].retry
    match failure.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return TimedOutError(f"{target} did not answer in time; check its load and the network"), True
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return WireError(Code.MESSAGE_TOO_LARGE, details), False
        case status:
            return ConnectionLostError(target, _cause(details) or status.name), status is grpc.StatusCode.UNAVAILABLE


def _cause(details: str) -> str:
    """What gRPC says of a lost connection, and what to do where a proxy answered in the coordinator's place."""
    # The first: a certificate that another authority issued. The second: an answer of HTTP that is none of gRPC.
    is_foreign = "CERTIFICATE_VERIFY_FAILED" in details and "expired" not in details
    if is_foreign or "Received http2 header with status" in details:
        return f"{details}; if the address is right, {PROXY_OPENS_TLS}"
    return details


def _detail(details: str, code: Code) -> str:
    """A status message without the code's sentence, which a peer of another version may word differently."""
    sentence = CATALOGUE[code].sentence
    if details.startswith(sentence):
        return details.removeprefix(sentence).strip()
    # No sentence of the catalogue has a full stop inside. A message without a detail has only the sentence.
    return details.partition(". ")[2].strip()


_caller: ContextVar[Member] = ContextVar("caller")


def current_caller() -> Member:
    """The member whose certificate authenticated the call that is being served."""
    return _caller.get()


def peer_san(context: grpc.ServicerContext | grpc.aio.ServicerContext[Any, Any]) -> str | None:
    """The rado:// name in the peer's certificate, which TLS has verified against the authority; None without one."""
    names: Iterable[Any] = context.auth_context().get("x509_subject_alternative_name", ())
    return next((name.decode() for name in names if name.startswith(b"rado://")), None)


def peer_tls_key_hash(context: grpc.ServicerContext | grpc.aio.ServicerContext[Any, Any]) -> bytes:
    """What a roster lists of a member's TLS key, for the key of this connection; empty without a certificate."""
    pems: Iterable[Any] = context.auth_context().get("x509_pem_cert", ())
    return next((_hash_of_key(pem) for pem in pems), b"")


@lru_cache(maxsize=4096)
def _hash_of_key(pem: bytes) -> bytes:
    """Of a certificate that TLS has verified against the authority, so that there are few."""
    return tls_key_hash(x509.load_pem_x509_certificate(pem).public_key())


_UNREADABLE = object()
"""Stands for a message that does not parse. gRPC would log a trace for each, before the caller is authenticated."""


def _leniently(deserialize: Callable[[bytes], Any], counts: Counts) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        counts.add(RECEIVED, len(data))
        try:
            return deserialize(data)
        except DecodeError:
            return _UNREADABLE

    return read


def _counted(serialize: Callable[[Any], bytes], counts: Counts) -> Callable[[Any], bytes]:
    def write(message: Any) -> bytes:
        data = serialize(message)
        counts.add(SENT, len(data))
        return data

    return write


class _Call:
    """A call that is being served. It ends early if its member leaves the roster."""

    def __init__(self, method: str, context: Any, san: str, key_hash: bytes, member: Member) -> None:
        """san: the rado:// name in the member's certificate. key_hash: of its TLS key."""
        self.method, self.context, self.san, self.key_hash, self.member = method, context, san, key_hash, member
        self.expelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def until_expelled(self, work: Awaitable[Any], *, timeout_s: float | None = None) -> Any:
        """The result of `work`, which is cancelled if the call ends first.

        Raises WireError(PEER_UNKNOWN) once the member is expelled, TimeoutError after timeout_s.
        """
        task = asyncio.ensure_future(work)
        # Retrieve the exception: asyncio logs those that no one retrieves.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait({task, self.expelled}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if self.expelled.done():
                raise WireError(Code.PEER_UNKNOWN)
            if not task.done():
                raise TimeoutError
            return task.result()
        finally:
            task.cancel()


def may_connect(member: Member, key_hash: bytes) -> bool:
    """Whether a roster admits a member with this TLS key: a key that was replaced is out at once."""
    return member.tls_key_hash in {b"", key_hash}


class Gate(grpc.aio.ServerInterceptor):
    """Admits a call if the certificate's member may make it, and turns errors into codes.

    Checks a caller when its headers arrive, before its message is received: an expelled member cannot fill the server's
    memory with incomplete messages.
    """

    def __init__(
        self,
        roster: Callable[[], Roster],
        log: Log,
        on_seen: Callable[[Member], None] = lambda _: None,
        counts: Counts | None = None,
    ) -> None:
        """on_seen: called at the beginning and at the end of a member's call. counts: of the bytes of all messages."""
        self._roster = roster
        self._log = log
        self._on_seen = on_seen
        self._counts = counts or Counts()
        self._calls: set[_Call] = set()
        self._incomplete: Counter[str] = Counter()

    def expel(self) -> None:
        """End the calls of all callers that are no longer in the roster. Call this when the roster has changed."""
        roster = self._roster()
        for call in self._calls:
            listed = roster.find_certificate(call.san)
            stays = listed is not None and may_connect(listed, call.key_hash)
            if not stays and not call.expelled.done():
                self._log.refused("call ended", peer=call.san, code=Code.PEER_UNKNOWN, method=call.method)
                call.expelled.set_result(None)

    def _admit(self, method: str, context: Any) -> _Call:
        san = peer_san(context)
        member = None if san is None else self._roster().find_certificate(san)
        key_hash = peer_tls_key_hash(context)
        if san is None or member is None or not may_connect(member, key_hash):
            self._log.refused("call refused", peer=san or "no name", code=Code.PEER_UNKNOWN, method=method)
            raise WireError(Code.PEER_UNKNOWN)
        if member.role not in ALLOWED_ROLES.get(method, frozenset()):
            self._log.refused("call refused", peer=member.name, code=Code.ROLE_FORBIDDEN, method=method)
            raise WireError(Code.ROLE_FORBIDDEN)
        return _Call(method, context, san, key_hash, member)

    def _refusal(self, call: _Call, code: Code, detail: str) -> WireError:
        self._log.refused("call refused", peer=call.member.name, code=code, method=call.method)
        return WireError(code, detail)

    @asynccontextmanager
    async def _serving(self, method: str, context: Any) -> AsyncIterator[_Call]:
        """A call from its headers to its end. An exception inside ends it with a code."""
        call = None
        try:
            call = self._admit(method, context)
            self._calls.add(call)
            self._on_seen(call.member)
            _caller.set(call.member)
            yield call
        except WireError as error:
            await _abort(context, error)
        except (grpc.aio.AbortError, grpc.RpcError):
            raise
        except Exception as error:  # noqa: BLE001 - a bug must not print its insides to a peer
            self._log.exception("call failed", method=method, error=type(error).__name__)
            await context.abort(
                grpc.StatusCode.INTERNAL,
                CATALOGUE[Code.INTERNAL].sentence,
                ((CODE_METADATA_KEY, Code.INTERNAL.value),),
            )
        finally:
            if call is not None:
                self._calls.discard(call)
                self._on_seen(call.member)

    async def _receive(self, call: _Call) -> Any:
        """The next message, or grpc.aio.EOF after the last.

        Raises WireError(CALLS_TOO_MANY) if MESSAGES_AT_ONCE of this member are incomplete already,
        WireError(MESSAGE_MALFORMED) if the message is not complete within MESSAGE_WITHIN_S seconds,
        WireError(PEER_UNKNOWN) once the member is expelled.
        """
        if self._incomplete[call.san] >= MESSAGES_AT_ONCE:
            raise self._refusal(call, Code.CALLS_TOO_MANY, f"The limit is {MESSAGES_AT_ONCE}.")
        self._incomplete[call.san] += 1
        try:
            # gRPC ends the read when the call ends. Cancelling it earlier would leak a message that has just completed.
            return await call.until_expelled(asyncio.shield(call.context.read()), timeout_s=MESSAGE_WITHIN_S)
        except TimeoutError:
            late = f"The message was not complete within {MESSAGE_WITHIN_S} s."
            raise self._refusal(call, Code.MESSAGE_MALFORMED, late) from None
        finally:
            self._incomplete[call.san] -= 1
            if not self._incomplete[call.san]:
                del self._incomplete[call.san]

    async def _messages(self, call: _Call) -> AsyncIterator[Any]:
        """The messages of a stream. Raises WireError, MESSAGE_MALFORMED if one does not parse."""
        while (message := await self._receive(call)) is not grpc.aio.EOF:
            if message is _UNREADABLE:
                raise WireError(Code.MESSAGE_MALFORMED, "The message does not parse.")
            yield message

    async def _only_message(self, call: _Call) -> Any:
        """The message of a call that has exactly one. Raises WireError, MESSAGE_MALFORMED if it does not parse."""
        message = await self._receive(call)
        if message is grpc.aio.EOF:
            raise WireError(Code.MESSAGE_MALFORMED, "The call has no message.")
        if message is _UNREADABLE:
            raise self._refusal(call, Code.MESSAGE_MALFORMED, "The message does not parse.")
        return message

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap every handler, ours and those of health and reflection.

        All become handlers of request streams: gRPC calls other handlers only after it received the whole message.
        """
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        parts = {
            "request_deserializer": _leniently(handler.request_deserializer, self._counts),
            "response_serializer": _counted(handler.response_serializer, self._counts),
        }
        if handler.unary_unary is not None:
            return grpc.stream_unary_rpc_method_handler(self._unary(method, handler.unary_unary), **parts)
        return grpc.stream_stream_rpc_method_handler(self._stream(method, handler), **parts)

    def _unary(self, method: str, serve: Callable[..., Any]) -> Callable[..., Any]:
        async def unary(_requests: Any, context: Any) -> Any:
            async with self._serving(method, context) as call:
                request = await self._only_message(call)
                return await call.until_expelled(serve(request, context))

        return unary

    def _stream(self, method: str, handler: Any) -> Callable[..., Any]:
        async def stream(_requests: Any, context: Any) -> Any:
            async with self._serving(method, context) as call:
                if handler.unary_stream is not None:
                    responses = handler.unary_stream(await self._only_message(call), context)
                else:
                    responses = handler.stream_stream(self._messages(call), context)
                if not hasattr(responses, "__aiter__"):
                    # Health's Watch writes to the context itself.
                    await call.until_expelled(responses)
                    return
                while (response := await call.until_expelled(anext(responses, _END))) is not _END:
                    yield response

        return stream


_END = object()
"""Marks the end of a stream of responses."""


async def _abort(context: grpc.aio.ServicerContext[Any, Any], error: WireError) -> None:
    """End a call with an error of the catalogue."""
    await context.abort(error.status, error.public_sentence, ((CODE_METADATA_KEY, error.code.value),))
