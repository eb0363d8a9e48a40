"""The federation's certificate authority: members make requests, the operator signs certificates.

A member's private key never needs to travel: `make_request` runs at the member, `sign_request` at the operator, who
uses only the public key of the request. `rado provision init` makes everything in one place with the same functions.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpcore.errors import ConfigurationError
from radobase.printing import amount
from radobase.reading import FileKind, read_bytes, with_remedy
from wire.envelopes import load_private_key
from wire.identity import tls_key_hash
from wire.roster import NAME, Role, certificate_san

AUTHORITY_DAYS = 3650
AUTHORITY_WARNING_DAYS = 365
"""How long before its end the operator is warned: every member has to install a new authority before it."""
MEMBER_DAYS = 365
# Members whose clocks are a little behind must not find a fresh certificate "not yet valid".
BACKDATED = dt.timedelta(minutes=5)
_COMMON_NAME_LENGTH = 64
_AUTHORITY_NAME = "radofed "
LONGEST_FEDERATION = _COMMON_NAME_LENGTH - len(_AUTHORITY_NAME)
"""The longest name that an authority's certificate holds whole."""
_CERTIFICATE = FileKind(
    with_remedy("give the operator's directory, with ca.key and ca.pem"), limit_bytes=1 << 20, decides=True
)
_KEY = replace(_CERTIFICATE, secret=True, private=True)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as unencrypted PKCS #8 PEM; write it with `radobase.writing.create_durably`."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@dataclass(frozen=True)
class Request:
    """A member's new TLS key and the request for its certificate, both PEM. The key stays where it was made."""

    key_pem: bytes
    request_pem: bytes

    def __repr__(self) -> str:
        return "Request(...)"


def make_request(federation: str, role: Role, name: str) -> Request:
    """Make an EC P-256 key and the request that proves its possession and names the member. Runs at the member."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_subject(name))
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(certificate_san(federation, role, name))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return Request(private_pem(key), request.public_bytes(serialization.Encoding.PEM))


@dataclass(frozen=True)
class Authority:
    """Held by the operator only, offline. Issues the certificates of one federation.

    others: further authorities that members are to accept, while one replaces another.
    """

    federation: str
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    others: tuple[x509.Certificate, ...] = ()

    def __repr__(self) -> str:
        return f"Authority({self.federation!r})"

    @classmethod
    def create(cls, federation: str, now: dt.datetime) -> "Authority":
        """Make an EC P-256 authority that may sign members' certificates, but no further authority.

        Raises ConfigurationError if `federation` is not a valid name.
        """
        if not NAME.fullmatch(federation):
            raise ConfigurationError(f"{federation!r} is not a federation name; use a-z, 0-9 and '-', a letter first")
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(f"{_AUTHORITY_NAME}{federation}")
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(now + dt.timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(federation, certificate, key)

    @classmethod
    def load(cls, directory: Path) -> "Authority":
        """Read the operator's ca.key and ca.pem. Raises ConfigurationError, also if others can read the key.

        ca.pem may have several certificates. The one of ca.key signs.
        """
        pem, key = read_bytes(directory / "ca.pem", _CERTIFICATE), load_private_key(directory / "ca.key", _KEY)
        try:
            found = x509.load_pem_x509_certificates(pem)
            (name,) = found[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            public = [each.public_key() for each in found]
        except Exception as error:
            # The message leaves out the cause, which could reveal something about the secret.
            raise _KEY.error(directory, "has no readable certificate authority") from error
        own = [each for each, key_of in zip(found, public, strict=True) if key_of == key.public_key()]
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not own:
            raise ConfigurationError(f"{directory}: ca.key is not the key of ca.pem; use files of one federation")
        others = tuple(each for each in found if each not in own)
        return cls(str(name.value).removeprefix(_AUTHORITY_NAME), own[0], key, others)

    @property
    def certificate_pem(self) -> bytes:
        """The public certificate, which every member gets, and after it those of the other authorities."""
        return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in (self.certificate, *self.others))

    @property
    def not_after(self) -> dt.datetime:
        """When it ends, in UTC."""
        return self.certificate.not_valid_after_utc

    def expiry_warning(self, now: dt.datetime) -> str:
        """One sentence for the operator, empty if it is valid for AUTHORITY_WARNING_DAYS or longer."""
        left = self.not_after - now
        if left >= dt.timedelta(days=AUTHORITY_WARNING_DAYS):
            return ""
        when = (
            "has expired"
            if left < dt.timedelta()
            else f"expires in {amount(left.days, 'day')}, on {self.not_after:%Y-%m-%d}"
        )
        return (
            f"the federation's authority {when}, and every member's certificate with it; replace it as "
            'docs/operating.md says under "A new authority"'
        )

    def sign_request(
        self, request_pem: bytes, role: Role, name: str, now: dt.datetime, *, hosts: Sequence[str] = ()
    ) -> bytes:
        """Return the PEM certificate of one member, valid for a year from `now`, or to the end of the authority.

        hosts: the DNS names and IP addresses at which a coordinator is dialled. The operator decides role, name and
        hosts; the request contributes its public key and must name the same member. Raises ConfigurationError if it
        does not, if its signature fails, if its key is not EC P-256, or if the authority has expired.
        """
        if now >= self.not_after:
            raise ConfigurationError(f"nothing can be signed: {self.expiry_warning(now)}")
        public_key = self._check(request_pem, role, name)
        served = role is Role.COORDINATOR
        if served != bool(hosts):
            raise ConfigurationError(
                "a coordinator's certificate, and no other, names the hosts at which members dial it"
            )
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH] + [ExtendedKeyUsageOID.SERVER_AUTH] * served
        authority_key = self.key.public_key()
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_subject(name))
            .issuer_name(self.certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(min(now + dt.timedelta(days=MEMBER_DAYS), self.not_after))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.SubjectAlternativeName(
                    [
                        x509.UniformResourceIdentifier(certificate_san(self.federation, role, name)),
                        *(_host_name(host) for host in hosts),
                    ]
                ),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    def _check(self, request_pem: bytes, role: Role, name: str) -> ec.EllipticCurvePublicKey:
        try:
            request = x509.load_pem_x509_csr(request_pem)
            names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            key = request.public_key()
        except (ValueError, x509.ExtensionNotFound) as error:
            raise ConfigurationError(f"not a certificate request of a member ({error}); make a new one") from error
        if not request.is_signature_valid:
            raise ConfigurationError("the certificate request was altered after it was signed; ask for it again")
        expected = certificate_san(self.federation, role, name)
        named = names.get_values_for_type(x509.UniformResourceIdentifier)
        if named != [expected]:
            raise ConfigurationError(
                f"the request is for {', '.join(named) or 'no member'}, not for {expected}: ask that member for one"
            )
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ConfigurationError("the request's key is not on the curve P-256; make a new request")
        return key


def request_key_hash(request_pem: bytes) -> bytes:
    """What the roster lists of a request's TLS key. Raises ConfigurationError if it is no request."""
    try:
        return tls_key_hash(x509.load_pem_x509_csr(request_pem).public_key())
    except ValueError as error:
        raise ConfigurationError(f"not a certificate request of a member ({error}); make a new one") from error


def _subject(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_COMMON_NAME_LENGTH])])


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
