"""Probes the coordinator's address with plain TLS, the way that gRPC goes, to find causes that gRPC does not report."""

import datetime as dt
import re
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509

from dpcore.errors import ConfigurationError
from radobase.configuration import split_target
from radobase.printing import printable
from wire.errors import PROXY_OPENS_TLS, ConnectionLostError
from wire.identity import TlsFiles, issuer_of
from wire.roster import Role
from wire.transport import HttpProxy, proxy_of, through_proxy

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
        where = "coordinator" if proxy is None else "proxy"
        raise ConnectionLostError(target, f"{error.strerror or error}; is the {where} running there?{way}") from error


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
