"""For any content of a file, and anything in its place, a reader raises only our own errors, which name the file."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from coordinator.uploads import SpoolDamagedError, SpoolUnreadableError
from dpcore.errors import RadofedError
from dpcore.records.feature_map_in_units import FeatureMapError
from parties.client import probe
from radobase import ray_cluster
from tests.fuzz.files import beside_tls
from tests.fuzz.target import InFile, all_targets
from wire.identity import TlsFiles


def npy(shape):
    """A .npy file that declares a shape but has no values."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": shape})
    return file.getvalue()


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


def probed(path: Path) -> None:
    """As `rado party check` asks a coordinator for its certificate."""
    probe("127.0.0.1:9", TlsFiles(*(path.with_name(each) for each in ("ca", "certificate", "key"))), timeout_s=1)


def of_ray(variable: str, read):
    def use(path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for each in ("RAY_ADDRESS", "RAY_AUTH_TOKEN"):
                patch.delenv(each, raising=False)
            patch.setenv(variable, str(path.parents[1] if variable == "RAY_TMPDIR" else path))
            read()

    return use


READERS = {name: target.read for name, target in all_targets().items() if isinstance(target.read, InFile)} | {
    "probed authority": InFile("", beside_tls("ca"), probed),
    "probed certificate": InFile("", beside_tls("certificate"), probed),
    "ray note": InFile("", "ray/ray_current_cluster", of_ray("RAY_TMPDIR", ray_cluster._this_machines_cluster)),
    "ray token": InFile("", "token", of_ray("RAY_AUTH_TOKEN_PATH", ray_cluster._require_token)),
}
IN_CELLS = ("store-round", "history-details", "ledger-attempt")
"""Contents of a database, which no error can name as a file."""
# Tables have no limit: they are streamed.
UNLIMITED = {"csv", "csv-gz", "parquet"}
# A fault in them stops nothing: nothing is remembered, or the configured address is used.
FORGIVING = {"address-file"}
# A dangling link counts as a file that does not exist yet.
MADE_WHERE_ABSENT = {
    "journal", "party-secret", "party-roster", "learner-roster", "learner-query", "opening-key", "installed-roster",
    "rows-stated", "rows-loaded", "attempts-signed", "query-end",
}  # fmt: skip
# The coordinator handles these itself, by the party and the chunk that they name.
OF_THE_SPOOL = (SpoolDamagedError, SpoolUnreadableError)


def error_of(path, read, what):
    """What reading raises, which is one of radofed's errors, or None. It names the file and says what to do."""
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
        assert ";" in str(error) or isinstance(error, FeatureMapError), "it says what to do"


@pytest.mark.parametrize("name", READERS)
def test_hostile_contents(name, tmp_path):
    for number, (what, content) in enumerate(CONTENTS.items()):
        (root := tmp_path / str(number)).mkdir()
        path = READERS[name].place(root)
        path.write_bytes(content)
        path.chmod(0o600)
        error = error_of(path, READERS[name].use, what)
        if error is not None:
            assert name not in FORGIVING, what
            assert_helpful(error, path)


@pytest.mark.parametrize("name", IN_CELLS)
def test_hostile_contents_of_databases(name):
    for content in CONTENTS.values():
        all_targets()[name].check(content)


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_of_a_reasonable_size(name, tmp_path):
    for put in PLACES:
        if put is terabyte and name in UNLIMITED:
            continue
        (root := tmp_path / put.__name__).mkdir()
        path = READERS[name].place(root)
        path.unlink(missing_ok=True)
        put(path)
        if path.is_file():
            path.chmod(0o600)
        error = error_of(path, READERS[name].use, put.__name__)
        if name in FORGIVING:
            assert error is None
        elif put is not link_to_itself or name not in MADE_WHERE_ABSENT:
            assert error is not None, put.__name__
            assert_helpful(error, path)
