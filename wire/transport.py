"""Calls between nodes: channels, retries with full jitter, errors as codes, and the table of who may call what."""

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from dpcore.errors import RadofedError
from radofed.common.logs import Log
from wire.errors import CATALOGUE, CODE_METADATA_KEY, Code, ConnectionLostError, TimedOutError, WireError
from wire.identity import TlsFiles
from wire.roster import Member, Role, Roster

MAX_MESSAGE_BYTES = 1024 * 1024
LONG_POLL_S = 25
# A long poll must end by itself before its deadline, also over a slow line.
LONG_POLL_GRACE_S = 15
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 20.0

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Our own retries have full jitter and know which codes are final.
    ("grpc.enable_retries", 0),
]
SERVER_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    # Clients ping between calls too: without this a learner that is idle for a minute is cut off for its pings.
    ("grpc.keepalive_permit_without_calls", 1),
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
    "/rado.v1.PartyService/FetchWork": _PARTIES,
    "/rado.v1.PartyService/SubmitAnswer": _PARTIES,
    "/rado.v1.PartyService/SubmitReady": _PARTIES,
    "/rado.v1.PartyService/UploadChunk": _PARTIES,
    "/rado.v1.PartyService/SubmitReceipt": _PARTIES,
    "/rado.v1.LearnerService/SubmitQuery": _LEARNERS,
    "/rado.v1.LearnerService/WatchQuery": _LEARNERS,
    "/rado.v1.LearnerService/ListQueries": _LEARNERS,
    "/rado.v1.LearnerService/CancelQuery": _LEARNERS,
    "/rado.v1.LearnerService/FetchTotal": _LEARNERS,
    "/rado.v1.LearnerService/FetchTotalChunk": _LEARNERS,
}

Response = TypeVar("Response")


def open_channel(target: str, tls: TlsFiles) -> grpc.Channel:
    """A channel to the coordinator at "host:port", with mutual TLS; there is no other kind."""
    return grpc.secure_channel(target, tls.channel_credentials(), options=CHANNEL_OPTIONS)


class Caller:
    """Makes calls on one target. Every RPC of radofed may be repeated, so every one is retried."""

    def __init__(self, target: str, *, give_up_after_s: float, stopping: Callable[[], bool] = lambda: False) -> None:
        self.target = target
        self.give_up_after_s = give_up_after_s
        self._stopping = stopping
        # Jitter protects nobody; it spreads load.
        self._jitter = random.Random()  # noqa: S311

    def __call__(
        self,
        method: Callable[..., Response],
        request: Any,
        *,
        timeout_s: float = 30.0,
        give_up_after_s: float | None = None,
    ) -> Response:
        """Call, and call again while the failure may pass and `give_up_after_s` is not over.

        Raises WireError for a code of the catalogue, ConnectionLostError or TimedOutError otherwise.
        """
        patience_s = self.give_up_after_s if give_up_after_s is None else give_up_after_s
        end = time.monotonic() + patience_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return method(request, timeout=timeout_s)
            except grpc.RpcError as failure:
                error, may_pass = translate(failure, self.target)
                if not may_pass or self._stopping() or time.monotonic() >= end:
                    raise error from failure
            time.sleep(min(self._jitter.uniform(0, pause_s), max(0.0, end - time.monotonic())))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


def translate(failure: grpc.RpcError, target: str) -> tuple[RadofedError, bool]:
    """The error that a failed call means, and whether it may pass by itself."""
    metadata: Iterable[Any] = failure.trailing_metadata() or ()
    name = next((value for key, value in metadata if key == CODE_METADATA_KEY), None)
    details = failure.details() or ""
    if name is not None and name in set(Code):
        code = Code(name)
        detail = details.removeprefix(CATALOGUE[code].sentence).strip()
        return WireError(code, detail), CATALOGUE[code].retry
    match failure.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return TimedOutError(f"{target} did not answer in time; it may be overloaded or unreachable"), True
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return WireError(Code.MESSAGE_TOO_LARGE, details), False
        case status:
            return ConnectionLostError(target, details or status.name), status is grpc.StatusCode.UNAVAILABLE


_caller: ContextVar[Member] = ContextVar("caller")


def current_caller() -> Member:
    """The member whose certificate made the call that is being served."""
    return _caller.get()


def peer_san(context: grpc.ServicerContext | grpc.aio.ServicerContext[Any, Any]) -> str | None:
    """The rado:// name in the peer's certificate, which TLS has verified against the authority."""
    names: Iterable[Any] = context.auth_context().get("x509_subject_alternative_name", ())
    return next((name.decode() for name in names if name.startswith(b"rado://")), None)


_UNREADABLE = object()
"""In place of a message that does not parse: gRPC itself would log a trace for each, before it is known who calls."""


def _leniently(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            return _UNREADABLE

    return read


async def _readable(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """The messages of a stream. Raises WireError(MESSAGE_MALFORMED) at one that does not parse."""
    async for request in requests:
        if request is _UNREADABLE:
            raise WireError(Code.MESSAGE_MALFORMED, "It does not parse.")
        yield request


class Gate(grpc.aio.ServerInterceptor):
    """Lets a call through where the certificate's member may make it, and turns errors into codes."""

    def __init__(self, roster: Callable[[], Roster], log: Log) -> None:
        self._roster = roster
        self._log = log

    def _admit(self, method: str, context: grpc.aio.ServicerContext[Any, Any]) -> Member:
        san = peer_san(context)
        member = None if san is None else self._roster().find_certificate(san)
        if member is None:
            self._log.refused("call refused", peer=san or "no name", code=Code.PEER_UNKNOWN, method=method)
            raise WireError(Code.PEER_UNKNOWN)
        if member.role not in ALLOWED_ROLES.get(method, frozenset()):
            self._log.refused("call refused", peer=member.name, code=Code.ROLE_FORBIDDEN, method=method)
            raise WireError(Code.ROLE_FORBIDDEN)
        return member

    async def _answer(
        self, method: str, context: grpc.aio.ServicerContext[Any, Any], request: Any, serve: Callable[[], Any]
    ) -> Any:
        try:
            member = self._admit(method, context)
            _caller.set(member)
            if request is _UNREADABLE:
                self._log.refused("call refused", peer=member.name, code=Code.MESSAGE_MALFORMED, method=method)
                raise WireError(Code.MESSAGE_MALFORMED, "It does not parse.")
            return await serve()
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

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap every handler, ours and those of health and reflection."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        parts = {
            "request_deserializer": _leniently(handler.request_deserializer),
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._unary(method, handler.unary_unary), **parts)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(self._stream(method, handler.unary_stream), **parts)
        serve = handler.stream_stream
        return grpc.stream_stream_rpc_method_handler(
            self._stream(method, lambda requests, context: serve(_readable(requests), context)), **parts
        )

    def _unary(self, method: str, serve: Callable[..., Any]) -> Callable[..., Any]:
        async def unary(request: Any, context: Any) -> Any:
            return await self._answer(method, context, request, lambda: serve(request, context))

        return unary

    def _stream(self, method: str, serve: Callable[..., Any]) -> Callable[..., Any]:
        async def nothing() -> None:
            return None

        async def stream(request: Any, context: Any) -> Any:
            await self._answer(method, context, request, nothing)
            responses = serve(request, context)
            if hasattr(responses, "__aiter__"):
                try:
                    async for response in responses:
                        yield response
                except WireError as error:
                    await _abort(context, error)
            else:
                # Health's Watch writes to the context itself.
                await responses

        return stream


async def _abort(context: grpc.aio.ServicerContext[Any, Any], error: WireError) -> None:
    """End a call with an error of the catalogue."""
    await context.abort(error.status, error.public_sentence, ((CODE_METADATA_KEY, error.code.value),))
