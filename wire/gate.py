"""The gate of a server: who calls, which calls a role may make, and how much of the server one member may use.

A member's limits hold over all its connections. A server without them keeps what a single member asks it to keep:
messages that are never complete, and responses that are never read.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import grpc
import grpc.aio
from cryptography import x509
from google.protobuf.message import DecodeError

from radobase.logs import Log
from radobase.metrics import RECEIVED, SENT, Counts
from wire.errors import CODE_METADATA_KEY, Code, WireError
from wire.identity import tls_key_hash
from wire.roster import Member, Role, Roster

CALLS_AT_ONCE = 64
"""The most calls of one member at a time, from their headers until their response is sent."""
MESSAGES_AT_ONCE = 32
"""The most incomplete messages that a server receives from one member at a time. A party node sends at most 17."""
MESSAGE_WITHIN_S = 120.0
"""How long a server waits for a message to be complete: as long as the longest timeout of our callers."""
HELD_BYTES = 12 * 1024 * 1024
"""The most bytes that a server keeps for one member: requests that it works on, and responses that are not yet sent.

A party's uploads take 8 MiB, and its largest response 4 MiB.
"""

_EVERYONE = frozenset(Role)
_PARTIES = frozenset({Role.PARTY})
_LEARNERS = frozenset({Role.LEARNER})

ALLOWED_ROLES: dict[str, frozenset[Role]] = {
    "/grpc.health.v1.Health/Check": _EVERYONE,
    "/grpc.health.v1.Health/List": _EVERYONE,
    "/grpc.health.v1.Health/Watch": _EVERYONE,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": _EVERYONE,
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
    "/rado.v1.PartyService/SubmitUnmasking": _PARTIES,
    "/rado.v1.LearnerService/SubmitQuery": _LEARNERS,
    "/rado.v1.LearnerService/WatchQuery": _LEARNERS,
    "/rado.v1.LearnerService/ListQueries": _LEARNERS,
    "/rado.v1.LearnerService/CancelQuery": _LEARNERS,
    "/rado.v1.LearnerService/RetryQuery": _LEARNERS,
    "/rado.v1.LearnerService/FetchTotal": _LEARNERS,
    "/rado.v1.LearnerService/FetchTotalChunk": _LEARNERS,
}


def calls_of(method: str) -> str:
    """The name of the count of a method's calls, once their callers were admitted."""
    return f"calls of {method}"


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


class _Received(NamedTuple):
    """A request as it arrived. message: None if it does not parse.

    gRPC would log a trace for each that does not parse, before the caller is authenticated.
    """

    message: Any
    size_bytes: int


def _leniently(deserialize: Callable[[bytes], Any], counts: Counts) -> Callable[[bytes], _Received]:
    def read(data: bytes) -> _Received:
        counts.add(RECEIVED, len(data))
        try:
            return _Received(deserialize(data), len(data))
        except DecodeError:
            return _Received(None, len(data))

    return read


def _counted(serialize: Callable[[Any], bytes], counts: Counts) -> Callable[[Any], bytes]:
    """Also takes bytes: a response is serialised before it is written, for its size, except that of health's Watch."""

    def write(message: Any) -> bytes:
        data = message if isinstance(message, bytes) else serialize(message)
        counts.add(SENT, len(data))
        return data

    return write


@dataclass
class _Use:
    """What one member uses of the server, over all its connections."""

    calls: int = 0
    incomplete: int = 0
    held_bytes: int = 0


class _Call:
    """A call that is being served. It ends early if its member leaves the roster."""

    def __init__(self, method: str, context: Any, san: str, key_hash: bytes, member: Member, use: _Use) -> None:
        """san: the rado:// name in the member's certificate. key_hash: of its TLS key. use: of the member."""
        self.method, self.context, self.san, self.key_hash, self.member = method, context, san, key_hash, member
        self.use = use
        self.request_bytes = 0
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
            # An exception of the task keeps this frame. Without this they would keep each other, and the request.
            del task


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
        on_connection: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        """on_seen: called at the beginning and at the end of a member's call.

        counts: of the bytes of all messages, and of the calls of each method.

        on_connection: gets the address, in gRPC's form, and the rado:// name of each call of a member; it may raise
        WireError to refuse the call.
        """
        self._roster = roster
        self._log = log
        self._on_seen, self._on_connection = on_seen, on_connection
        self._counts = counts or Counts()
        self._calls: set[_Call] = set()
        self._uses: dict[str, _Use] = {}

    def peers(self) -> set[str]:
        """The addresses, in gRPC's form, of connections with a call in progress."""
        return {call.context.peer() for call in self._calls}

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
        try:
            self._on_connection(context.peer(), san)
        except WireError as error:
            self._log.refused("call refused", peer=member.name, code=error.code, method=method)
            raise
        if member.role not in ALLOWED_ROLES.get(method, frozenset()):
            self._log.refused("call refused", peer=member.name, code=Code.ROLE_FORBIDDEN, method=method)
            raise WireError(Code.ROLE_FORBIDDEN)
        call = _Call(method, context, san, key_hash, member, self._uses.get(san) or _Use())
        if call.use.calls >= CALLS_AT_ONCE:
            raise self._refusal(call, Code.CALLS_TOO_MANY, f"The limit is {CALLS_AT_ONCE} calls.")
        return call

    def _refusal(self, call: _Call, code: Code, detail: str) -> WireError:
        self._log.refused("call refused", peer=call.member.name, code=code, method=call.method)
        return WireError(code, detail)

    async def _serve(self, method: str, context: Any, handler: Any) -> WireError | None:
        """Serve a call from its headers to its last response. Returns the error that it ends with."""
        call = None
        try:
            call = self._admit(method, context)
            self._begin(call)
            await self._respond(call, handler)
        except WireError as error:
            # A new one: the frames of this one have the request.
            return WireError(error.code, error.detail)
        except (grpc.aio.AbortError, grpc.RpcError):
            raise
        except Exception as error:  # noqa: BLE001 - a bug must not print its insides to a peer
            self._log.exception("call failed", method=method, error=type(error).__name__)
            return WireError(Code.INTERNAL)
        finally:
            if call is not None:
                self._end(call)
        return None

    def _begin(self, call: _Call) -> None:
        self._uses[call.san] = call.use
        call.use.calls += 1
        self._calls.add(call)
        self._on_seen(call.member)
        self._counts.add(calls_of(call.method))
        _caller.set(call.member)

    def _end(self, call: _Call) -> None:
        call.use.calls -= 1
        call.use.held_bytes -= call.request_bytes
        if not call.use.calls:
            del self._uses[call.san]
        self._calls.discard(call)
        self._on_seen(call.member)

    async def _respond(self, call: _Call, handler: Any) -> None:
        """Receive what the handler needs, and send its responses."""
        if handler.request_streaming:
            responses = handler.stream_stream(self._messages(call), call.context)
        else:
            request = await self._only_message(call)
            if not handler.response_streaming:
                await call.until_expelled(self._respond_once(call, handler, request))
                return
            responses = handler.unary_stream(request, call.context)
        if not hasattr(responses, "__aiter__"):
            # Health's Watch writes to the context itself.
            await call.until_expelled(responses)
            return
        while (response := await call.until_expelled(anext(responses, _END))) is not _END:
            await call.until_expelled(self._send(call, handler.response_serializer(response)))

    async def _respond_once(self, call: _Call, handler: Any, request: Any) -> None:
        # In one task, so that no other response is made between this one and its limit.
        response = await handler.unary_unary(request, call.context)
        await self._send(call, handler.response_serializer(response))

    async def _send(self, call: _Call, response: bytes) -> None:
        """Send a response, and wait until gRPC has passed all of it to the connection.

        Raises WireError(CALLS_TOO_MANY) if HELD_BYTES are exceeded.
        """
        self._hold(call, len(response))
        try:
            await call.context.write(response)
        finally:
            call.use.held_bytes -= len(response)

    def _hold(self, call: _Call, size_bytes: int) -> None:
        """Count bytes that are kept for the call's member. Raises WireError(CALLS_TOO_MANY) beyond HELD_BYTES."""
        if call.use.held_bytes + size_bytes > HELD_BYTES:
            raise self._refusal(call, Code.CALLS_TOO_MANY, f"The limit is {HELD_BYTES} bytes.")
        call.use.held_bytes += size_bytes

    async def _receive(self, call: _Call) -> Any:
        """The next message, or grpc.aio.EOF after the last.

        Raises WireError(CALLS_TOO_MANY) if MESSAGES_AT_ONCE of this member are incomplete already or HELD_BYTES are
        exceeded, WireError(MESSAGE_MALFORMED) if the message does not parse or is not complete within MESSAGE_WITHIN_S
        seconds, WireError(PEER_UNKNOWN) once the member is expelled.
        """
        if call.use.incomplete >= MESSAGES_AT_ONCE:
            raise self._refusal(call, Code.CALLS_TOO_MANY, f"The limit is {MESSAGES_AT_ONCE} messages.")
        call.use.incomplete += 1
        try:
            # gRPC ends the read when the call ends. Cancelling it earlier would leak a message that has just completed.
            received = await call.until_expelled(asyncio.shield(call.context.read()), timeout_s=MESSAGE_WITHIN_S)
        except TimeoutError:
            late = f"The message was not complete within {MESSAGE_WITHIN_S} s."
            raise self._refusal(call, Code.MESSAGE_MALFORMED, late) from None
        finally:
            call.use.incomplete -= 1
        # The message before this one has been worked on.
        call.use.held_bytes, call.request_bytes = call.use.held_bytes - call.request_bytes, 0
        if received is grpc.aio.EOF:
            return received
        self._hold(call, received.size_bytes)
        call.request_bytes = received.size_bytes
        if received.message is None:
            raise self._refusal(call, Code.MESSAGE_MALFORMED, "The message does not parse.")
        return received.message

    async def _messages(self, call: _Call) -> AsyncIterator[Any]:
        """The messages of a stream. Raises WireError."""
        while (message := await self._receive(call)) is not grpc.aio.EOF:
            yield message

    async def _only_message(self, call: _Call) -> Any:
        """The message of a call that has exactly one. Raises WireError."""
        message = await self._receive(call)
        if message is grpc.aio.EOF:
            raise WireError(Code.MESSAGE_MALFORMED, "The call has no message.")
        return message

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap every handler, ours and those of health and reflection.

        All become handlers of streams in both directions. gRPC calls other handlers only after it received the whole
        message, and ends them before it has sent the response.
        """
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method

        async def serve(_requests: Any, context: Any) -> None:
            # Ended outside of the handler of the exception, whose frames keep the request in memory.
            if (error := await self._serve(method, context, handler)) is not None:
                metadata = ((CODE_METADATA_KEY, error.code.value),)
                await context.abort(error.status, error.public_sentence, metadata)

        return grpc.stream_stream_rpc_method_handler(
            serve,
            request_deserializer=_leniently(handler.request_deserializer, self._counts),
            response_serializer=_counted(handler.response_serializer, self._counts),
        )


_END = object()
"""Marks the end of a stream of responses."""
