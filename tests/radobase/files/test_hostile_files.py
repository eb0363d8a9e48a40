"""For any content of a file, a reader raises only one of radofed's errors, which names the file."""

import datetime as dt
import io
import json
import os
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from coordinator import status
from coordinator.config import CoordinatorConfig
from coordinator.membership import Membership
from coordinator.store import Store
from coordinator.uploads import SpoolDamagedError, SpoolUnreadableError, UploadSpool
from dpcore.errors import RadofedError
from dpcore.randomness.sources import SystemRandom
from learner.accepted_parties import AcceptedParties
from learner.config import LearnerConfig
from learner.decryption import load_key
from learner.journal import SessionSource
from learner.model import Model
from learner.release import Release
from learner.state import LearnerState
from parties.answering.spool import Spools
from parties.client import probe
from parties.config import PartyConfig
from parties.members import Rosters
from parties.policy import Policy
from parties.state_directory import load_or_create
from radobase import ray_cluster
from radobase.logs import Log
from radobase.schema_files import load_schema
from radobase.tables.tables import open_table
from radofed.certificates import Authority, make_request
from wire.envelopes import MessageType, SigningKey, load_public_key
from wire.identity import Certificate, TlsFiles
from wire.roster import Role
from wire.statements import Chunk

NOW = dt.datetime.now(dt.UTC)
QUERY = b"q" * 32
FEDERATION_KEY = SigningKey.generate("clinics").public_bytes


def npy(shape, *, header_bytes=0):
    """A .npy file that declares a shape but has no values."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": shape})
    return file.getvalue() + b" " * header_bytes


def truncated_zip():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("rados.npy", npy((1,)) + bytes(8))
    return file.getvalue()[:-30]


CONTENTS = {
    "empty": b"",
    "brackets": b"[" * 20_000,
    "objects": b'{"a":' * 20_000,
    "an object of brackets": b'{"format":' + b"[" * 20_000,
    "brackets in TOML": b"a = " + b"[" * 20_000,
    "tables in TOML": b"a = " + b"{a=" * 20_000,
    "a number of 5,000 digits": b"1" * 5000,
    "an object with one": b'{"format": ' + b"1" * 5000 + b"}",
    "TOML with one": b"a = " + b"1" * 5000,
    "TOML with a hexadecimal one": b"schema_version = 0x" + b"f" * 20_000,
    "a number beyond doubles": b'{"chunks": [], "values": "", "ciphertexts": 1e999}',
    "not a number": b"NaN",
    "invalid UTF-8": b"\xff\xfe\x80" * 100,
    "half a character": b'name = "\xc3',
    "NUL bytes": bytes(5000),
    "a truncated zip": truncated_zip(),
    "a shape without values": npy((1 << 45,)),
    "a shape beyond 64 bits": npy((10**30,)),
    "an empty shape beyond 64 bits": npy((0, 10**30)),
    "a header of 4 GiB": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
    "a header of brackets": b"\x93NUMPY\x01\x00\x00\x20" + b"(" * 8192,
    "a header that is no dictionary": b"\x93NUMPY\x01\x00\x10\x00" + b"'''             \n",
    "PEM of nothing": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "a private key of nothing": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
}


def directory(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_itself(path: Path) -> None:
    """Even the superuser, who may read everything, cannot read this."""
    path.symlink_to(path)


def terabyte(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


PLACES = (directory, pipe, link_to_itself, terabyte)


class Readers:
    """Everything that reads a file. Each method prepares the file's place and returns the function that reads it."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self.root, self.monkeypatch = root, monkeypatch

    def policy(self):
        return self.root / "policy.toml", Policy.load

    def party_configuration(self):
        return self.root / "party.toml", PartyConfig.load

    def coordinator_configuration(self):
        return self.root / "coordinator.toml", CoordinatorConfig.load

    def learner_configuration(self):
        return self.root / "learner.toml", LearnerConfig.load

    def accepted_parties(self):
        return self.root / "parties.toml", AcceptedParties.load

    def schema(self):
        return self.root / "schema.toml", load_schema

    def model(self):
        return self.root / "model.json", Model.load

    def release(self):
        return self.root / "release.json", lambda path: Release.load(path.parent)

    def array(self):
        content = {"format": "radofed-release", "format_version": 1, "digest": ""}
        (self.root / "release.json").write_text(json.dumps(content))
        return self.root / "rados.npy", lambda path: Release.load(path.parent)

    def paillier_key(self):
        return self.root / "paillier.jwk", load_key

    def journal(self):
        return self.root / "journal", lambda path: SessionSource(None, path)

    def learner_roster(self):
        return self.root / "roster.signed", lambda path: LearnerState(path.parent, FEDERATION_KEY).newest_roster()

    def learner_query(self):
        place = self.root / "queries" / QUERY.hex()
        place.mkdir(parents=True)
        return place / "query.signed", lambda _: LearnerState(self.root, FEDERATION_KEY).find(QUERY)

    def secret(self):
        return self.root / "secret", lambda path: load_or_create(path, SystemRandom())

    def party_roster(self):
        return self.root / "roster.signed", lambda path: Rosters(
            path.parent, federation="f", federation_key=FEDERATION_KEY, log=Log("test")
        )

    def coordinator_roster(self):
        return self.root / "given.signed", lambda path: Membership(
            path,
            federation="f",
            name="coordinator",
            federation_key=FEDERATION_KEY,
            store=Store(self.root / "store.sqlite", "f"),
            log=Log("test"),
        )

    def _spooled(self, name):
        spools = Spools(self.root / "spool", 1 << 30)
        spool = spools.write(QUERY, 1, [b"c" * 100], needed_bytes=100, width=10, values=np.arange(3))
        (spool.path / name).unlink()
        return spool.path / name, spools

    def spool_manifest(self):
        path, spools = self._spooled("manifest.json")
        return path, lambda _: spools.open(QUERY, 1)

    def spool_chunk(self):
        path, spools = self._spooled("chunk-000000.bin")
        return path, lambda _: spools.open(QUERY, 1).chunk(0)

    def spool_values(self):
        path, spools = self._spooled("values.bin")
        return path, lambda _: spools.open(QUERY, 1).values()

    def uploaded_chunk(self):
        spool = UploadSpool(self.root / "spool", 1 << 30)
        spool.put(QUERY, 1, "ann", Chunk.of(0, b"c" * 100))
        (path,) = (path for path in (self.root / "spool").rglob("0-*"))
        path.unlink()
        return path, lambda _: spool.read(QUERY, 1, "ann", 0)

    def coordinator_address(self):
        config = CoordinatorConfig.model_construct(state_directory=self.root, listen="127.0.0.1:7443")
        return config.address_file, lambda _: status._address(config)

    def certificate(self):
        return self.root / "certificate.pem", Certificate.load

    def _tls(self, name):
        authority, request = Authority.create("f", NOW), make_request("f", Role.PARTY, "ann")
        certificate = authority.sign_request(request.request_pem, Role.PARTY, "ann", NOW)
        contents = {"ca": authority.certificate_pem, "certificate": certificate, "key": request.key_pem}
        for each, content in contents.items():
            if each != name:
                (self.root / each).write_bytes(content)
        return self.root / name, TlsFiles(*(self.root / each for each in contents))

    def authority(self):
        path, tls = self._tls("ca")
        return path, lambda _: tls.check("f", Role.PARTY, "ann", NOW)

    def tls_key(self):
        path, tls = self._tls("key")
        return path, lambda _: tls.check("f", Role.PARTY, "ann", NOW)

    def probed_authority(self):
        path, tls = self._tls("ca")
        return path, lambda _: probe("127.0.0.1:9", tls, timeout_s=1)

    def probed_certificate(self):
        path, tls = self._tls("certificate")
        return path, lambda _: probe("127.0.0.1:9", tls, timeout_s=1)

    def _stored(self):
        """A store with one query, whose round is the content."""
        path = self.root / "coordinator.sqlite"
        Store(path, "f").add_query(
            SigningKey.generate("clinics").sign(MessageType.QUERY, b"q"),
            "lea",
            submitted_at_unix_s=1,
            not_after_unix_s=2,
            round_data={},
        )

        def put(content):
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("UPDATE queries SET round = CAST(? AS TEXT)", (content.read_bytes(),))

        return path, put

    def stored_round(self):
        path, put = self._stored()
        return self.root / "round.json", lambda content: (put(content), Store(path, "f").load())

    def shown_round(self):
        path, put = self._stored()
        return self.root / "round.json", lambda content: (put(content), status._queries(path, {}))

    def signing_key(self):
        return self.root / "signing.key", lambda path: SigningKey.load(path, "clinics")

    def federation_key(self):
        return self.root / "federation.pub", load_public_key

    def ray_note(self):
        self.monkeypatch.setenv("RAY_TMPDIR", str(self.root))
        self.monkeypatch.delenv("RAY_ADDRESS", raising=False)
        (self.root / "ray").mkdir()
        return self.root / "ray" / "ray_current_cluster", lambda _: ray_cluster._this_machines_cluster()

    def ray_token(self):
        self.monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
        self.monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(self.root / "token"))
        return self.root / "token", lambda _: ray_cluster._require_token()

    def csv(self):
        return self.root / "rows.csv", read_table

    def compressed_csv(self):
        return self.root / "rows.csv.gz", read_table

    def parquet(self):
        return self.root / "rows.parquet", read_table


def read_table(path):
    table = open_table(path)
    return [batch.num_rows for batch in table.batches(table.columns)]


NAMES = [name for name in vars(Readers) if not name.startswith("_")]
# Tables have no limit: they are streamed.
UNLIMITED = {"csv", "compressed_csv", "parquet"}
# The content is in a database.
IN_ROWS = {"stored_round", "shown_round"}
# A fault in them stops nothing: nothing is remembered, or the configured address is used.
FORGIVING = {"coordinator_address"}
# A dangling link counts as a file that does not exist yet.
MADE_WHERE_ABSENT = {"journal", "secret", "party_roster", "learner_roster", "learner_query"}
# The coordinator handles these itself, by the party and the chunk that they name.
OF_THE_SPOOL = (SpoolDamagedError, SpoolUnreadableError)


def error_of(path, read, what):
    """What reading raises, which is one of radofed's errors, or None. It names the file and says what to do."""
    if path.is_file():
        path.chmod(0o600)
    try:
        read(path)
    except (RadofedError, *OF_THE_SPOOL) as error:
        return error
    except Exception as error:
        raise AssertionError(f"{what}: a foreign error") from error
    return None


def assert_helpful(error, path):
    if not isinstance(error, OF_THE_SPOOL):
        assert str(path.parent) in str(error)
        assert ";" in str(error), "it says what to do"


def places_of(name):
    """What a reader is tried with in a file's place. What is in a database is no file; tables have no limit."""
    return [] if name in IN_ROWS else [place for place in PLACES if place is not terabyte or name not in UNLIMITED]


@pytest.mark.variants(10)
@pytest.mark.parametrize("name", NAMES)
def test_hostile_contents(name, tmp_path, monkeypatch):
    for number, (what, content) in enumerate(CONTENTS.items()):
        (root := tmp_path / str(number)).mkdir()
        path, read = getattr(Readers(root, monkeypatch), name)()
        path.write_bytes(content)
        error = error_of(path, read, what)
        if error is not None:
            assert name not in FORGIVING, what
            assert_helpful(error, path)


@pytest.mark.parametrize("name", [name for name in NAMES if places_of(name)])
def test_what_is_no_file_of_a_reasonable_size(name, tmp_path, monkeypatch):
    for place in places_of(name):
        (root := tmp_path / place.__name__).mkdir()
        path, read = getattr(Readers(root, monkeypatch), name)()
        place(path)
        error = error_of(path, read, place.__name__)
        if name in FORGIVING:
            assert error is None
        elif place is not link_to_itself or name not in MADE_WHERE_ABSENT:
            assert error is not None, place.__name__
            assert_helpful(error, path)
