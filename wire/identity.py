"""Identity on the connection: mutual TLS with a URI subject alternative name, and the certificate files behind it."""

import datetime as dt
import re
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from dpcore.errors import ConfigurationError
from radofed.common.configuration import ConfigPath, Configuration
from wire.roster import Role, certificate_san

SAN_FORM = re.compile(r"rado://(?P<federation>[a-z][a-z0-9-]{0,62})/(?P<role>[a-z]+)/(?P<name>[a-z][a-z0-9-]{0,62})")


@dataclass(frozen=True)
class Certificate:
    """What radofed reads in an X.509 certificate. Times are in UTC."""

    san: str
    not_before: dt.datetime
    not_after: dt.datetime
    public_key_der: bytes
    dns_and_addresses: tuple[str, ...]

    @classmethod
    def load(cls, path: Path) -> "Certificate":
        """Raises ConfigurationError where the file is not a certificate with one rado:// name."""
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (OSError, ValueError, x509.ExtensionNotFound) as error:
            raise ConfigurationError(f"{path}: not a readable member certificate ({error})") from error
        uris = [uri for uri in names.get_values_for_type(x509.UniformResourceIdentifier) if SAN_FORM.fullmatch(uri)]
        if len(uris) != 1:
            raise ConfigurationError(f"{path}: a member certificate has exactly one rado:// name, this has {len(uris)}")
        return cls(
            uris[0],
            certificate.not_valid_before_utc,
            certificate.not_valid_after_utc,
            certificate.public_key().public_bytes(
                serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
            tuple(names.get_values_for_type(x509.DNSName))
            + tuple(str(address) for address in names.get_values_for_type(x509.IPAddress)),
        )

    def check_time(self, now: dt.datetime) -> None:
        """Raise ConfigurationError outside the validity."""
        if now < self.not_before:
            raise ConfigurationError(
                f"the certificate is valid from {self.not_before:%Y-%m-%d %H:%M} UTC; check the clock"
            )
        if now > self.not_after:
            raise ConfigurationError(
                f"the certificate expired on {self.not_after:%Y-%m-%d %H:%M} UTC; ask the operator for a new one"
            )


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of one node: the federation's certificate authority, its own certificate, its own TLS key."""

    ca: Path
    certificate: Path
    key: Path

    def check(self, federation: str, role: Role, name: str, now: dt.datetime) -> Certificate:
        """The certificate, once it belongs to this member and key, is in time and was issued by the authority.

        Raises ConfigurationError with the cause and its mend.
        """
        certificate = Certificate.load(self.certificate)
        expected = certificate_san(federation, role, name)
        if certificate.san != expected:
            raise ConfigurationError(
                f"{self.certificate}: belongs to {certificate.san}, this node is {expected}; use its own certificate"
            )
        try:
            key = serialization.load_pem_private_key(self.key.read_bytes(), password=None)
            public = key.public_key().public_bytes(
                serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            authority = x509.load_pem_x509_certificate(self.ca.read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise ConfigurationError(f"{self.key} or {self.ca}: not readable ({error})") from error
        if public != certificate.public_key_der:
            raise ConfigurationError(f"{self.key}: is not the key of {self.certificate}; use the pair made together")
        try:
            x509.load_pem_x509_certificate(self.certificate.read_bytes()).verify_directly_issued_by(authority)
        except Exception as error:
            raise ConfigurationError(
                f"{self.certificate}: was not issued by {self.ca}; use the authority and certificate of one federation"
            ) from error
        try:
            certificate.check_time(now)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self.certificate}: {error}") from error
        return certificate

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a client; raises ConfigurationError where a file cannot be read."""
        ca, certificate, key = self._read()
        return grpc.ssl_channel_credentials(ca, key, certificate)

    def server_credentials(self) -> grpc.ServerCredentials:
        """For the coordinator: a client without a certificate of the same authority gets no connection."""
        ca, certificate, key = self._read()
        return grpc.ssl_server_credentials([(key, certificate)], root_certificates=ca, require_client_auth=True)

    def _read(self) -> tuple[bytes, bytes, bytes]:
        try:
            return self.ca.read_bytes(), self.certificate.read_bytes(), self.key.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"{error.filename}: cannot be read ({error.strerror})") from error


class TlsConfiguration(Configuration):
    """PEM files of a node's connection."""

    ca: ConfigPath
    """Certificate of the federation's certificate authority, PEM."""
    certificate: ConfigPath
    """This member's certificate, PEM."""
    key: ConfigPath
    """Private key of the certificate, PEM."""

    @property
    def files(self) -> TlsFiles:
        """The same, for the transport."""
        return TlsFiles(self.ca, self.certificate, self.key)
