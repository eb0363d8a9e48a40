"""A party verifies the certificate of its database server: the authority, and the name."""

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dpcore.errors import DataError
from parties.data.dataset import check
from radobase.tables.database_source import DatabaseSource
from tests.parties.data.test_databases import CLINIC
from tests.postgresql import needs_postgresql

pytestmark = needs_postgresql
NAME = "localhost"
QUERY = "SELECT 50.0::float8 AS age, 1.0::float8 AS dose, 1::int2 AS ill"


class Authority:
    """An authority that certifies servers. Its certificate is in `file`."""

    def __init__(self, file) -> None:
        self.file, self._key = file, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, file.name)])
        file.write_bytes(self._made(self._name, self._key.public_key(), is_authority=True))

    def _made(self, name, public_key, *, is_authority=False, host=None) -> bytes:
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if host is not None:
            made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        return made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def certify(self, host: str) -> tuple[bytes, bytes]:
        """A key and a certificate for a host's name, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        return (
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            self._made(name, key.public_key(), host=host),
        )


@pytest.fixture
def served(postgresql, tmp_path):
    """Makes the server show a certificate for a name. Yields the authority and a function of the name."""
    authority = Authority(tmp_path / "ca.pem")

    def show(host: str) -> None:
        for name, content in zip(("server.key", "server.crt"), authority.certify(host), strict=True):
            postgresql.write(name, content)
        postgresql.configure("ALTER SYSTEM SET ssl = on")

    yield authority, show
    postgresql.configure("ALTER SYSTEM RESET ssl")


def rows(server, **options) -> int:
    given = "&".join(f"{name}={value}" for name, value in ({"sslmode": "verify-full"} | options).items())
    return check(CLINIC, DatabaseSource.of(f"postgresql://postgres@{NAME}:{server.port}/postgres?{given}", QUERY)).rows


@pytest.mark.more
def test_a_server_shows_a_certificate_of_the_authority_for_its_name(postgresql, served, tmp_path):
    authority, show = served
    show(NAME)
    assert rows(postgresql, sslrootcert=authority.file) == 1
    with pytest.raises(DataError, match=r"certificate verify failed.*sslrootcert"):
        rows(postgresql, sslrootcert=Authority(tmp_path / "other.pem").file)
    show("another.example")
    with pytest.raises(DataError, match=r'"another\.example" does not match host name "localhost"'):
        rows(postgresql, sslrootcert=authority.file)


@pytest.mark.more
def test_a_server_without_a_certificate_is_refused(postgresql, served):
    authority, _ = served
    with pytest.raises(DataError, match="server does not support SSL"):
        rows(postgresql, sslrootcert=authority.file)
