"""gRPC client of a party, and the probe that finds why it cannot connect. Only this file uses the wire messages."""

import datetime as dt
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dpcore.errors import ConfigurationError
from parties.answering.coordinator_calls import MOST_CHALLENGES, WorkBatch
from rado.v1 import member_service_pb2, member_service_pb2_grpc, party_service_pb2, party_service_pb2_grpc
from radobase.configuration import split_target
from radobase.metrics import RECEIVED, SENT, Counts
from radobase.printing import printable
from wire.envelopes import Envelope
from wire.errors import PROXY_OPENS_TLS, ConnectionLostError, WireError
from wire.identity import TlsFiles, issuer_of
from wire.roster import Role
from wire.statements import Chunk
from wire.status import MOST_WORK, Phase, Work
from wire.transport import LONG_POLL_GRACE_S, Caller, HttpProxy, open_channel, proxy_of, through_proxy

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
        self._poll_lock, self._is_poll_ended = threading.Lock(), False
        self._running_poll: Any = None
        self._open()

    def _open(self) -> None:
        self._channel = open_channel(self._caller.target, self._tls)
        # The generated stub types cover both gRPC interfaces and match neither exactly.
        channel: Any = self._channel
        self._members: Any = member_service_pb2_grpc.MemberServiceStub(channel)
        self._party: Any = party_service_pb2_grpc.PartyServiceStub(channel)
        self._health: Any = health_pb2_grpc.HealthStub(channel)

    @property
    def target(self) -> str:
        """Where the coordinator is dialled."""
        return self._caller.target

    def reconnect(self, target: str | None = None) -> None:
        """Read the files again, and use a new connection for all further calls. A running call ends on the former one.

        target: another address of the coordinator, which moved.

        Raises ConfigurationError, and keeps the connection, if a file cannot be read.
        """
        former = self._channel
        self._caller.target = target or self._caller.target
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

    def witness(self, witnesses: Sequence[Envelope]) -> None:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        first, *more = (witness.to_proto() for witness in witnesses)
        self._call(self._party.SubmitWitness, party_service_pb2.SubmitWitnessRequest(witness=first, more=more))

    def fetch_witnesses(self, nonce: bytes, known: int) -> tuple[tuple[Envelope, ...], Envelope | None]:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        request = party_service_pb2.FetchWitnessesRequest(nonce=nonce, known=known)
        response = self._call(self._party.FetchWitnesses, request)
        newest = Envelope.from_proto(response.newest) if response.HasField("newest") else None
        return tuple(_readable(response.witnesses[:MOST_CHALLENGES], Envelope.from_proto)), newest

    def fetch_work(self, cursor: int, wait_s: int) -> WorkBatch:
        """See parties.answering.coordinator_calls.CoordinatorCalls. `end_poll` ends it, with nothing."""
        try:
            response = self._call(
                self._poll,
                party_service_pb2.FetchWorkRequest(cursor=cursor, wait_s=wait_s),
                timeout_s=wait_s + LONG_POLL_GRACE_S,
                give_up_after_s=0.0,
            )
        except grpc.FutureCancelledError:
            return WorkBatch((), cursor, was_ended=True)
        work = tuple(_readable(response.work[:MOST_WORK], Work.from_proto))
        challenges = tuple(_readable(response.challenges[:MOST_CHALLENGES], Envelope.from_proto))
        unreadable = len(response.work) - len(work) + len(response.challenges) - len(challenges)
        return WorkBatch(work, response.cursor, unreadable, challenges)

    def end_poll(self) -> None:
        """End the `fetch_work` that runs, or else the next one. What it would have shown, the next one shows."""
        with self._poll_lock:
            self._is_poll_ended = True
            if self._running_poll is not None:
                self._running_poll.cancel()

    def _poll(self, request: Any, timeout: float) -> Any:
        """Raises grpc.FutureCancelledError if it was ended."""
        with self._poll_lock:
            if self._is_poll_ended:
                self._is_poll_ended = False
                raise grpc.FutureCancelledError
            call = self._running_poll = self._party.FetchWork.future(request, timeout=timeout)
        try:
            return call.result()
        finally:
            with self._poll_lock:
                self._running_poll, self._is_poll_ended = None, False

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

    def ready(self, ready: Envelope, key_shares: Envelope | None = None) -> None:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        request = party_service_pb2.SubmitReadyRequest(
            ready=ready.to_proto(), key_shares=None if key_shares is None else key_shares.to_proto()
        )
        self._call(self._party.SubmitReady, request)

    def upload_chunk(self, query_id: bytes, attempt: int, chunk: Chunk, receipt: Envelope | None = None) -> bool:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        request = party_service_pb2.UploadChunkRequest(
            query_id=query_id,
            attempt=attempt,
            chunk=chunk.to_proto(),
            receipt=None if receipt is None else receipt.to_proto(),
        )
        return bool(self._call(self._party.UploadChunk, request, timeout_s=LONGEST_CALL_S).receipt_taken)

    def receipt(self, receipt: Envelope) -> None:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        self._call(self._party.SubmitReceipt, party_service_pb2.SubmitReceiptRequest(receipt=receipt.to_proto()))

    def unmask(self, unmasking: Envelope) -> None:
        """See parties.answering.coordinator_calls.CoordinatorCalls."""
        request = party_service_pb2.SubmitUnmaskingRequest(unmasking=unmasking.to_proto())
        self._call(self._party.SubmitUnmasking, request)

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


# Probes the coordinator's address with plain TLS, the way that gRPC goes, to find causes that gRPC does not report.


_LONGEST_ANSWER_BYTES = 8192


@dataclass(frozen=True)
class Served:
    """The certificate served at an address, not yet verified."""

    target: str
    version: str
    certificate: x509.Certificate
    issued: bool
    """Whether this federation's authority issued it."""

    @property
    def names(self) -> tuple[str, ...]:
        """The URI, DNS and address names of the certificate."""
        try:
            names = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (x509.ExtensionNotFound, ValueError):
            return ()
        return (
            *names.get_values_for_type(x509.UniformResourceIdentifier),
            *names.get_values_for_type(x509.DNSName),
            *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
        )

    @property
    def san(self) -> str:
        """The certificate's rado:// name, or its subject if it has none."""
        uris = (name for name in self.names if name.startswith("rado://"))
        return next(uris, self.certificate.subject.rfc4514_string())

    def check(self, federation: str, now: dt.datetime) -> None:
        """Raise ConfigurationError if this is not the federation's coordinator at this address and time."""
        issuer = self.certificate.issuer.rfc4514_string()
        if not self.issued:
            raise ConfigurationError(
                f"{self.target} served a certificate issued by {issuer!r}, not by this federation's authority: "
                f"{PROXY_OPENS_TLS}, or correct `ca`"
            )
        if not self.san.startswith(f"rado://{federation}/{Role.COORDINATOR.value}/"):
            raise ConfigurationError(
                f"{self.target} is {self.san}, not the coordinator of {federation!r}; correct the address"
            )
        host, _ = split_target(self.target)
        if host.lower() not in (name.lower() for name in self.names):
            raise ConfigurationError(
                f"the coordinator's certificate is for {', '.join(self.names)}, and this party connects to {host!r}; "
                "use a name in the certificate, or ask the operator for a certificate with this name"
            )
        begins, ends = self.certificate.not_valid_before_utc, self.certificate.not_valid_after_utc
        if not begins <= now <= ends:
            raise ConfigurationError(
                f"the coordinator's certificate is valid from {begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC; "
                "check this machine's clock, then ask the operator for a new certificate"
            )


def probe(target: str, tls: TlsFiles, *, timeout_s: float) -> Served:
    """Connect, complete a TLS handshake without verification, and return the served certificate.

    Raises ConnectionLostError with the step that failed, ConfigurationError if a file cannot be read.
    """
    host, port = split_target(target)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Diagnosis only: this connection sends nothing, and gRPC verifies its own.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    authorities = tls.authorities()
    # Checked first: OpenSSL would read any kind of file in their place.
    tls.read()
    try:
        # OpenSSL would ask the terminal for a passphrase that is not given.
        context.load_cert_chain(tls.certificate, tls.key, password=tls.passphrase() or b"")
    except (OSError, ValueError) as error:
        sentence = f"{tls.certificate} or {tls.key}: not usable ({error}); use the pair that the operator issued"
        raise ConfigurationError(sentence) from error
    proxy = proxy_of(target)
    dialled = (host, port) if proxy is None else (proxy.host, proxy.port)
    way = through_proxy(target)
    try:
        with socket.create_connection(dialled, timeout_s) as plain:
            if proxy is not None:
                _ask_for_tunnel(plain, proxy, target)
            return _shake_hands(plain, host, target, context, authorities)
    except socket.gaierror as error:
        sentence = f"the name {dialled[0]!r} has no address ({error.strerror}){way}"
        raise ConnectionLostError(target, sentence) from error
    except TimeoutError as error:
        sentence = f"no answer within {timeout_s:g} s; a firewall may block the port{way}"
        raise ConnectionLostError(target, sentence) from error
    except ssl.SSLError as error:
        sentence = f"the server there does not speak TLS as expected ({error}){way}"
        raise ConnectionLostError(target, sentence) from error
    except OSError as error:
        raise ConnectionLostError(target, f"{error.strerror or error}{way}") from error


def _ask_for_tunnel(plain: socket.socket, proxy: HttpProxy, target: str) -> None:
    """Raises ConnectionLostError with the proxy's status if it gives none."""
    plain.sendall(proxy.request(target))
    answer = b""
    # A byte at a time: what follows is the coordinator's.
    while not answer.endswith(b"\r\n\r\n"):
        if not (more := plain.recv(1)) or len(answer) > _LONGEST_ANSWER_BYTES:
            raise ConnectionLostError(target, f"the proxy did not answer as one does; {proxy.advice(target)}")
        answer += more
    status = printable(answer.partition(b"\r\n")[0].decode(errors="replace"))
    if not re.match(r"HTTP/1\.[01] 2\d\d\b", status):
        raise ConnectionLostError(target, f"the proxy answered {status!r}; {proxy.advice(target)}")


def _shake_hands(
    plain: socket.socket, host: str, target: str, context: ssl.SSLContext, authorities: Sequence[x509.Certificate]
) -> Served:
    with context.wrap_socket(plain, server_hostname=host) as secured:
        encoded = secured.getpeercert(binary_form=True)
        version = secured.version() or "TLS"
    if encoded is None:
        raise ConnectionLostError(target, "the server sent no certificate")
    certificate = x509.load_der_x509_certificate(encoded)
    return Served(target, version, certificate, issuer_of(certificate, authorities) is not None)
