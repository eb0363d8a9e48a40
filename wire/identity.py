"""Identity on the connection: mutual TLS with a URI subject alternative name, and the certificate files for it."""

import datetime as dt
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from dpcore.errors import ConfigurationError
from radobase.configuration import ConfigPath, Configuration
from radobase.logs import Daily, Log
from radobase.printing import amount
from radobase.reading import FileKind, read_bytes, state_of, with_remedy
from wire.envelopes import PEM_BYTES, load_private_key, passphrase_for, private_key_pem, sha256
from wire.roster import EXPIRY_WARNING_DAYS, Role, certificate_san

SAN_FORM = re.compile(r"rado://(?P<federation>[a-z][a-z0-9-]{0,62})/(?P<role>[a-z]+)/(?P<name>[a-z][a-z0-9-]{0,62})")

_PEM = FileKind(
    with_remedy("give the PEM file that the operator made for this member"), limit_bytes=PEM_BYTES, decides=True
)
_KEY = replace(_PEM, secret=True, private=True)


@dataclass(frozen=True)
class Certificate:
    """The fields of an X.509 certificate that radofed reads. Times are in UTC."""

    san: str
    not_before: dt.datetime
    not_after: dt.datetime
    public_key_der: bytes
    dns_and_addresses: tuple[str, ...]

    @classmethod
    def load(cls, path: Path) -> "Certificate":
        """Raises ConfigurationError if the file is not a certificate with exactly one rado:// name."""
        return cls.of_pem(read_bytes(path, _PEM), path)

    @classmethod
    def of_pem(cls, pem: bytes, path: Path) -> "Certificate":
        """Like `load`, with the content of the file."""
        try:
            certificate = x509.load_pem_x509_certificate(pem)
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            public_key_der = _public_der(certificate.public_key())
        except Exception as error:
            raise _PEM.error(path, f"is not a readable member certificate ({error})") from error
        uris = [uri for uri in names.get_values_for_type(x509.UniformResourceIdentifier) if SAN_FORM.fullmatch(uri)]
        if len(uris) != 1:
            raise _PEM.error(path, f"a member certificate must have exactly one rado:// name, this one has {len(uris)}")
        return cls(
            uris[0],
            certificate.not_valid_before_utc,
            certificate.not_valid_after_utc,
            public_key_der,
            tuple(names.get_values_for_type(x509.DNSName))
            + tuple(str(address) for address in names.get_values_for_type(x509.IPAddress)),
        )

    def check_time(self, now: dt.datetime) -> None:
        """Raise ConfigurationError outside the validity period."""
        if now < self.not_before:
            raise ConfigurationError(
                f"the certificate is valid from {self.not_before:%Y-%m-%d %H:%M} UTC; check the clock"
            )
        if now > self.not_after:
            raise ConfigurationError(
                f"the certificate expired on {self.not_after:%Y-%m-%d %H:%M} UTC; ask the operator for a new one"
            )

    @property
    def renew_from(self) -> dt.datetime:
        """When two thirds of its life are over: the last third is for people who must still act."""
        return self.not_before + (self.not_after - self.not_before) * 2 / 3

    def needs_renewal(self, now: dt.datetime) -> bool:
        """Whether two thirds of its life are over."""
        return now >= self.renew_from

    def expiry_warning(self, now: dt.datetime) -> str:
        """One sentence for operators, empty if it is valid for EXPIRY_WARNING_DAYS or longer."""
        left = self.not_after - now
        if left >= dt.timedelta(days=EXPIRY_WARNING_DAYS):
            return ""
        when = (
            "has expired"
            if left < dt.timedelta()
            else f"expires in {amount(left.days, 'day')}, on {self.not_after:%Y-%m-%d}"
        )
        return f"the certificate {when}; ask the operator to renew it with `rado provision renew`"

    def status(self, now: dt.datetime) -> dict[str, Any]:
        """For the status of a node, in JSON types. warning: empty if there is nothing to do."""
        return {
            "not_after_unix_s": int(self.not_after.timestamp()),
            "expires": f"{self.not_after:%Y-%m-%d %H:%M} UTC",
            "warning": self.expiry_warning(now),
        }


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of one node: the federation's certificate authority, its own certificate, its own TLS key.

    The authority's file may have several certificates, while the operator replaces one authority by another. Any of
    them may have issued a certificate.
    """

    ca: Path
    certificate: Path
    key: Path

    def check(self, federation: str, role: Role, name: str, now: dt.datetime) -> Certificate:
        """The certificate, after checking its member, its key, its issuer and the validity periods of both.

        Raises ConfigurationError with cause and fix.
        """
        certificate = Certificate.load(self.certificate)
        expected = certificate_san(federation, role, name)
        if certificate.san != expected:
            raise ConfigurationError(
                f"{self.certificate}: belongs to {certificate.san}, but this node is {expected}; "
                "use its own certificate"
            )
        if self._public_key_der() != certificate.public_key_der:
            raise ConfigurationError(f"{self.key}: is not the key of {self.certificate}; use a matching pair")
        pem = read_bytes(self.certificate, _PEM)
        authority = issuer_of(x509.load_pem_x509_certificate(pem), self.authorities())
        if authority is None:
            raise ConfigurationError(
                f"{self.certificate}: was not issued by {self.ca}; use the authority and certificate of one federation"
            )
        try:
            certificate.check_time(now)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self.certificate}: {error}") from error
        begins, ends = authority.not_valid_before_utc, authority.not_valid_after_utc
        if not begins <= now <= ends:
            raise ConfigurationError(
                f"{self.ca}: the federation's authority is valid from {begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} "
                "UTC; check the clock, then ask the operator for a new authority"
            )
        return certificate

    def authorities(self) -> tuple[x509.Certificate, ...]:
        """The authority's certificates, at least one. Raises ConfigurationError if the file holds none."""
        pem = read_bytes(self.ca, _PEM)
        try:
            return tuple(x509.load_pem_x509_certificates(pem))
        except Exception as error:
            raise _PEM.error(self.ca, f"is not a readable certificate ({error})") from error

    def _public_key_der(self) -> bytes:
        return _public_der(load_private_key(self.key, _KEY).public_key())

    def passphrase(self) -> bytes | None:
        """The passphrase of the key's file; None if it has none. Raises ConfigurationError."""
        return passphrase_for(self.key, read_bytes(self.key, _KEY))

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Credentials for a client. Raises ConfigurationError if a file cannot be read."""
        ca, certificate, key = self.read()
        return grpc.ssl_channel_credentials(ca, key, certificate)

    def read(self) -> tuple[bytes, bytes, bytes]:
        """The content of the three files, the key without its passphrase. Raises ConfigurationError."""
        return read_bytes(self.ca, _PEM), read_bytes(self.certificate, _PEM), private_key_pem(self.key, _KEY)


def issuer_of(certificate: x509.Certificate, authorities: Sequence[x509.Certificate]) -> x509.Certificate | None:
    """The authority that issued a certificate, by its signature; None if it is none of these. Dates do not count."""
    for authority in authorities:
        # cryptography raises several types; each means that another one issued it.
        with suppress(Exception):
            certificate.verify_directly_issued_by(authority)
            return authority
    return None


class TlsConfiguration(Configuration):
    """PEM files of a node's connection."""

    ca: ConfigPath
    """Certificate of the federation's certificate authority, PEM. Several while one replaces another."""
    certificate: ConfigPath
    """This member's certificate, PEM."""
    key: ConfigPath
    """Private key of the certificate, PEM."""

    @property
    def files(self) -> TlsFiles:
        """The files, for the transport."""
        return TlsFiles(self.ca, self.certificate, self.key)


def tls_key_hash(key: Any) -> bytes:
    """SHA-256 of a public key's DER SubjectPublicKeyInfo, by which a roster knows a member's TLS key."""
    return sha256(_public_der(key))


def _public_der(key: Any) -> bytes:
    encoded: bytes = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return encoded


class OwnCertificate:
    """The certificate of a running node, as its files held it when they were last looked at.

    certificate: the one in use. version: grows when another one is in use. Construction raises ConfigurationError as
    TlsFiles.check does. One thread looks at the files; any may read.
    """

    def __init__(self, files: TlsFiles, federation: str, role: Role, name: str, log: Log) -> None:
        self._files, self._member, self._log = files, (federation, role, name), log
        self.version, self._warnings = 0, Daily()
        # Before the files are read: what is replaced meanwhile is looked at again.
        self._states = self._states_now()
        self.certificate, self._configuration = self._read()

    def look(self) -> None:
        """Read the files again if one was replaced. Never raises.

        Files that do not belong together, or are not this member's, leave the certificate that is in use, and are
        logged once: a key and its certificate cannot be replaced at the same instant.
        """
        states = self._states_now()
        if states == self._states:
            return
        self._states = states
        try:
            found, configuration = self._read()
        except ConfigurationError as error:
            self._log.warning("certificate refused", reason=f"{error}; the one in use stays")
            return
        self.certificate, self._configuration = found, configuration
        self.version, self._warnings = self.version + 1, Daily()
        self._log.info("certificate read", expires=f"{found.not_after:%Y-%m-%d %H:%M} UTC")

    def warn(self, now_unix_s: float) -> None:
        """Log, at most once a day, that the certificate in use expires soon or has expired."""
        sentence = self.certificate.expiry_warning(dt.datetime.fromtimestamp(now_unix_s, dt.UTC))
        if sentence and self._warnings.is_due(now_unix_s):
            self._log.warning("certificate expiry", reason=sentence)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials for a server, which refuses clients without a certificate of the same authority.

        Each connection that begins after `look` found another certificate uses that one.
        """
        served = self.version

        def newer() -> grpc.ServerCertificateConfiguration | None:
            nonlocal served
            if served == self.version:
                return None
            served = self.version
            return self._configuration

        return grpc.dynamic_ssl_server_credentials(
            self._configuration,
            newer,  # type: ignore[arg-type]  # by gRPC's documentation, None keeps the configuration
            require_client_authentication=True,
        )

    def _states_now(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(state_of, (self._files.ca, self._files.certificate, self._files.key)))

    def _read(self) -> tuple[Certificate, grpc.ServerCertificateConfiguration]:
        found = self._files.check(*self._member, dt.datetime.now(dt.UTC))
        ca, certificate, key = self._files.read()
        return found, grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=ca)
