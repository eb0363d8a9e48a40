"""Calls between nodes: options of channels and servers, and a caller that retries with full jitter.

What a server lets its callers do is in wire.gate.
"""

import os
import random
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import grpc

from dpcore.errors import RadofedError
from radobase.configuration import split_target
from radobase.printing import printable
from wire.errors import (
    CATALOGUE,
    CODE_METADATA_KEY,
    PROXY_OPENS_TLS,
    Code,
    ConnectionLostError,
    TimedOutError,
    WireError,
)
from wire.identity import TlsFiles
from wire.roster import coordinator_addresses

MAX_MESSAGE_BYTES = 1024 * 1024
"""The most bytes of a request. A coordinator receives from every member at once."""
MAX_RESPONSE_BYTES = 4 * 1024 * 1024
"""The most bytes of a response: the statements of a cohort of a thousand parties, and the longest query."""
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
    # gRPC looks a name up again after half a minute by default: the coordinator may have another address before.
    ("grpc.dns_min_time_between_resolutions_ms", 5_000),
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
    # Bytes that a caller sends before it is refused wait in memory: at most this many streams times this window for
    # each connection. gRPC's bandwidth probe would raise the window to many megabytes, even for unknown callers.
    # Without the probe a chunk takes one more round trip. wire.gate limits what a member uses over all its connections.
    ("grpc.max_concurrent_streams", 64),
    ("grpc.http2.lookahead_bytes", 16_384),
    ("grpc.http2.bdp_probe", 0),
    # Two coordinators on one port would split a federation.
    ("grpc.so_reuseport", 0),
]

Response = TypeVar("Response")


def open_channel(target: str, tls: TlsFiles) -> grpc.Channel:
    """A channel to the coordinator at "host:port". It always uses mutual TLS, also through a proxy."""
    return grpc.secure_channel(target, tls.channel_credentials(), options=CHANNEL_OPTIONS)


def answering(addresses: Sequence[str], timeout_s: float = 2.0) -> str:
    """The first of these addresses that takes a connection, else the first: where to dial a node that may have moved.

    Whether it is that node is shown by its certificate.
    """
    for address in addresses if len(addresses) > 1 else ():
        with suppress(OSError), socket.create_connection(split_target(address), timeout_s):
            return address
    return addresses[0]


class _Member(Protocol):
    """What a member's configuration says of where its coordinator is."""

    @property
    def coordinator(self) -> str: ...
    @property
    def state_directory(self) -> Path: ...
    @property
    def federation_key(self) -> Path: ...


def coordinator_of(member: _Member) -> str:
    """Where a member dials its coordinator now: where it moved to, by the roster that the member has, or as configured.

    Raises ConfigurationError if the stored roster cannot be read.
    """
    return answering(coordinator_addresses(member.coordinator, member.state_directory, member.federation_key))


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
    details = printable(failure.details() or "")
    if name is not None and name in set(Code):
        code = Code(name)
        return WireError(code, _detail(details, code)), CATALOGUE[code].retry
    match failure.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return TimedOutError(
                f"{target} did not answer in time; check its load and the network{through_proxy(target)}"
            ), True
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return WireError(Code.MESSAGE_TOO_LARGE, details), False
        case status:
            cause = f"{_cause(details) or status.name}{through_proxy(target)}"
            return ConnectionLostError(target, cause), status is grpc.StatusCode.UNAVAILABLE


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


_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
_DIRECT = ("no_grpc_proxy", "no_proxy")
_DEFAULT_PORT = 80


@dataclass(frozen=True)
class HttpProxy:
    """An HTTP proxy of the environment, as gRPC finds it.

    gRPC's C core (src/core/handshaker/http_connect/http_proxy_mapper.cc, 1.85) asks the first one that is set, by
    CONNECT. TLS goes through such a tunnel unopened.
    """

    variable: str
    """Of the environment, which names it."""
    host: str
    port: int
    credentials: str = field(default="", repr=False)
    """"user:password", or empty."""

    def advice(self, target: str) -> str:
        """For the error of a connection that goes this way."""
        host, _ = split_target(target)
        return (
            f"the connection goes through the proxy {self.host}:{self.port}, which {self.variable} in the environment "
            f"names: have it pass CONNECT {target}, or add {host} to no_proxy if no proxy is needed"
        )

    def request(self, target: str) -> bytes:
        """What asks the proxy for a tunnel to a target."""
        lines = [f"CONNECT {target} HTTP/1.0", f"Host: {target}"]
        if self.credentials:
            lines.append(f"Proxy-Authorization: Basic {b64encode(self.credentials.encode()).decode()}")
        return "\r\n".join([*lines, "", ""]).encode()


def proxy_of(target: str, environment: Mapping[str, str] | None = None) -> HttpProxy | None:
    """The proxy for a target; None if the connection is direct. environment: default: this process's."""
    environment = os.environ if environment is None else environment
    variable = next((name for name in _VARIABLES if name in environment), None)
    if variable is None:
        return None
    try:
        parts = urlsplit(environment[variable])
        host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
    except ValueError:
        return None
    # gRPC goes directly if it cannot use what is given.
    if parts.scheme != "http" or not host or _is_direct(split_target(target)[0], environment):
        return None
    credentials = unquote(parts.netloc.rpartition("@")[0])
    return HttpProxy(variable, host, port, credentials)


def through_proxy(target: str) -> str:
    """What an error of a connection adds if a proxy is on the way: "; the connection goes through ..."."""
    try:
        proxy = proxy_of(target)
    except ValueError:
        return ""
    return "" if proxy is None else f"; {proxy.advice(target)}"


def _is_direct(host: str, environment: Mapping[str, str]) -> bool:
    """Whether an entry is the host's address, a network with it, or an end of its name."""
    name = next((name for name in _DIRECT if name in environment), None)
    entries = [] if name is None else [entry.strip() for entry in environment[name].split(",")]
    return any(_names(entry, host) for entry in entries if entry)


def _names(entry: str, host: str) -> bool:
    try:
        network = ip_network(entry, strict=False)
    except ValueError:
        return host.lower().endswith(entry.lower())
    try:
        return ip_address(host) in network
    except ValueError:
        return False
