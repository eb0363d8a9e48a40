"""A running node's certificate: read again when its files are replaced, so that a renewal needs no restart."""

import datetime as dt

import grpc

from dpcore.errors import ConfigurationError
from radobase.files.reading import state_of
from radobase.logs import Daily, Log
from wire.identity import Certificate, TlsFiles
from wire.roster import Role


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
