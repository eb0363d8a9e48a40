"""Looks at who answers at the coordinator's address, before gRPC, which would only say that it failed."""

import datetime as dt
import socket
import ssl
from dataclasses import dataclass

from cryptography import x509

from dpcore.errors import ConfigurationError
from parties.config import split_target
from wire.errors import ConnectionLostError
from wire.identity import TlsFiles
from wire.roster import Role


@dataclass(frozen=True)
class Served:
    """The certificate that was served at an address, not yet believed. issued: whether our authority issued it."""

    target: str
    version: str
    certificate: x509.Certificate
    issued: bool

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
        """The certificate's rado:// name, or its subject where it has none."""
        uris = (name for name in self.names if name.startswith("rado://"))
        return next(uris, self.certificate.subject.rfc4514_string())

    def check(self, federation: str, now: dt.datetime) -> None:
        """Raise ConfigurationError where this is not the federation's coordinator at this address and time."""
        issuer = self.certificate.issuer.rfc4514_string()
        if not self.issued:
            raise ConfigurationError(
                f"{self.target} served a certificate issued by {issuer!r}, not by this federation's authority: "
                "something in between opens TLS; have it let this address through, or correct `ca`"
            )
        if not self.san.startswith(f"rado://{federation}/{Role.COORDINATOR.value}/"):
            raise ConfigurationError(
                f"{self.target} is {self.san}, not the coordinator of {federation!r}; correct the address"
            )
        host, _ = split_target(self.target)
        if host.lower() not in (name.lower() for name in self.names):
            raise ConfigurationError(
                f"the coordinator's certificate is for {', '.join(self.names)}, and this party dials {host!r}; "
                "dial a name that is in it, or ask the operator for a certificate with this one"
            )
        begins, ends = self.certificate.not_valid_before_utc, self.certificate.not_valid_after_utc
        if not begins <= now <= ends:
            raise ConfigurationError(
                f"the coordinator's certificate is valid from {begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC; "
                "check this clock, then ask the operator for a new one"
            )


def probe(target: str, tls: TlsFiles, *, timeout_s: float) -> Served:
    """Open a connection, shake hands without believing anything, and say whose certificate was served.

    Raises ConnectionLostError with the step that failed, ConfigurationError where a file cannot be read.
    """
    host, port = split_target(target)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Only to look: nothing is sent on this connection, and gRPC verifies its own.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    authority = tls.authority()
    # OpenSSL would read whatever is in the files' place.
    tls.read()
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ValueError) as error:
        sentence = f"{tls.certificate} or {tls.key}: not usable ({error}); give the pair that the operator made"
        raise ConfigurationError(sentence) from error
    try:
        with socket.create_connection((host, port), timeout_s) as plain:
            return _shake_hands(plain, host, target, context, authority)
    except socket.gaierror as error:
        raise ConnectionLostError(target, f"the name {host!r} has no address ({error.strerror})") from error
    except TimeoutError as error:
        raise ConnectionLostError(
            target, f"nothing answered within {timeout_s:g} s; a firewall may be closed"
        ) from error
    except ssl.SSLError as error:
        raise ConnectionLostError(target, f"what listens there does not speak TLS as expected ({error})") from error
    except OSError as error:
        raise ConnectionLostError(target, f"{error.strerror or error}; is the coordinator running there?") from error


def _shake_hands(
    plain: socket.socket, host: str, target: str, context: ssl.SSLContext, authority: x509.Certificate
) -> Served:
    with context.wrap_socket(plain, server_hostname=host) as secured:
        encoded = secured.getpeercert(binary_form=True)
        version = secured.version() or "TLS"
    if encoded is None:
        raise ConnectionLostError(target, "no certificate was served")
    certificate = x509.load_der_x509_certificate(encoded)
    try:
        certificate.verify_directly_issued_by(authority)
        issued = True
    except Exception:  # noqa: BLE001 - cryptography raises several kinds; each means no
        issued = False
    return Served(target, version, certificate, issued)
