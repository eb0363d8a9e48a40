"""Backups that are damaged, made up, of a newer version, or that meet a full disk or a kill: nothing is restored."""

import gzip
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from dpcore.errors import ConfigurationError
from parties.database import LedgerOwner, LedgerSetBackError, PartyDatabase
from radobase.writing import copy_of, kept_file
from radofed.backup import restoring
from radofed.backup.archive import BackupError, Entry, Item, Manifest, path_fault, write_archive
from radofed.backup.making import back_up, back_up_operator
from radofed.backup.restoring import Expected, restore, verify_backup
from radofed.joining.operator import found
from tests.federation.faults import fill
from tests.radofed.backup.nodes import RECORDED, config_of, make_federation
from tests.radofed.test_ledger_backup import make_party
from tests.waiting import HANG_S

ANY = Expected()
Members = dict[str, bytes]


@pytest.fixture(scope="module")
def party(tmp_path_factory):
    directory = make_party(tmp_path_factory.mktemp("party"))
    (directory / "schema.toml").write_text("")
    return directory


@pytest.fixture(scope="module")
def good(party) -> bytes:
    back_up(party / "party.toml", party.parent / "good", with_keys=True)
    return (party.parent / "good").read_bytes()


def members_of(content: bytes) -> tuple[dict, Members]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found = {member.name: archive.extractfile(member).read() for member in archive}
    return json.loads(found.pop("manifest.json")), found


def packed(manifest: dict, members: Members, edit: Callable[[tarfile.TarInfo], None] = lambda _: None) -> bytes:
    """An archive of these members, as a person would write who knows the format."""
    out = io.BytesIO()
    for name, content in {"manifest.json": json.dumps(manifest).encode(), **members}.items():
        info = tarfile.TarInfo(name)
        info.size = len(content)
        edit(info)
        out.write(info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512))
    return out.getvalue() + bytes(1024)


def refused(content: bytes, place: Path, match: str) -> None:
    file = place / "made-up"
    file.write_bytes(content)
    with pytest.raises(BackupError, match=match):
        verify_backup(file, ANY)
    with pytest.raises(BackupError, match=match):
        restore(file, place / "back", ANY)
    assert [path.name for path in place.iterdir()] == ["made-up"]


def test_what_is_packed_here_is_accepted(good, tmp_path):
    (tmp_path / "same").write_bytes(packed(*members_of(good)))
    assert verify_backup(tmp_path / "same", ANY).name == "ada"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda data: data[:-1], "cut off"),
        (lambda data: data[: len(data) // 2], "cut off"),
        (lambda data: data[:600], "it is cut off;"),
        (lambda data: b"", "no backup"),
        (lambda data: b"x" * 5000, "no backup"),
        (lambda data: data + bytes(512), "longer than it says"),
        (lambda data: data[:-1] + b"x", "something follows"),
        (lambda data: b"x" + data[1:], "no backup"),
    ],
)
def test_damage_of_the_whole_is_found(good, tmp_path, change, match):
    refused(change(good), tmp_path, match)


def test_every_changed_file_is_found(good, tmp_path):
    manifest, members = members_of(good)
    for name in members:
        changed = members | {name: members[name][:-1] + bytes([members[name][-1] ^ 1]) if members[name] else b""}
        if changed != members:
            refused(packed(manifest, changed), tmp_path, f"{name.removeprefix('files/')} is not what was saved")


def made_up(good: bytes, path: str, content: bytes = b"x") -> bytes:
    """A backup with one more file, whose size and digest are right."""
    manifest, members = members_of(good)
    entry = {"path": path, "bytes": len(content), "sha256": sha256(content).hexdigest(), "role": "file"}
    manifest["files"].append(entry | {"modified_at_unix_s": 0})
    return packed(manifest, members | {f"files/{path}": content})


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("/etc/passwd", "absolute path"),
        ("../elsewhere", r"leaves the directory"),
        ("state/../../elsewhere", r"leaves the directory"),
        ("state//x", "empty part"),
        ("./x", "empty part"),
        ("x/", "empty part"),
        ("", "empty part"),
        ("a\\b", "has a character"),
        ("a\nb", "has a character"),
        ("a" * 91, "more than"),
        ("a/" * 80 + "b", "more than"),
        ("party.toml", "same place"),
        ("party.toml/x", "same place"),
        ("state", "same place"),
        ("state/ledger.sqlite-journal", "would change a database"),
        ("state/ledger.sqlite-wal", "would change a database"),
    ],
)
def test_paths_that_could_leave_the_directory_are_refused(good, tmp_path, path, match):
    refused(made_up(good, path) if path != "party.toml" else twice(good), tmp_path, match)


def twice(good: bytes) -> bytes:
    manifest, members = members_of(good)
    manifest["files"].append(manifest["files"][0])
    return packed(manifest, members)


def test_a_path_of_a_null_character_or_surrogate_is_refused():
    assert path_fault("a\0b")
    assert path_fault("a\udc00b")
    assert not path_fault("state/ledger.sqlite")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE, b"x"])
def test_only_plain_files_are_read(good, tmp_path, kind):
    def edit(info: tarfile.TarInfo) -> None:
        if info.name == "files/ca.pem":
            info.type, info.linkname = kind, "/etc/passwd"

    refused(packed(*members_of(good), edit), tmp_path, "where")


def changed(good: bytes, path: str, content: bytes) -> bytes:
    """A backup with another content of a file, whose size and digest are right."""
    manifest, members = members_of(good)
    (entry,) = (each for each in manifest["files"] if each["path"] == path)
    entry |= {"bytes": len(content), "sha256": sha256(content).hexdigest()}
    return packed(manifest, members | {f"files/{path}": content})


def edited(good: bytes, path: str, statement: str) -> bytes:
    """A backup with another content of a database, whose size and digest are right."""
    _, members = members_of(good)
    file = sqlite3.connect(":memory:", isolation_level=None)
    file.deserialize(members[f"files/{path}"])
    file.execute(statement)
    content = copy_of(file)
    file.close()
    return changed(good, path, content)


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("DELETE FROM identity WHERE key = 'copied'", "not marked as a copy"),
        ("UPDATE attempts SET mask_key = x'00'", "has a mask key"),
        ("UPDATE identity SET value = 'bo' WHERE key = 'party'", "is the ledger of 'bo'"),
        ("PRAGMA application_id = 1", "is no ledger"),
        ("PRAGMA user_version = 99", "has format 99"),
        ("DELETE FROM events WHERE state = 'charged'", "is damaged"),
        ("DROP TABLE events", "is damaged|no readable"),
        ("DELETE FROM identity", "is the ledger of None"),
    ],
)
def test_a_ledger_that_would_forget_is_refused(good, tmp_path, statement, match):
    """A party that starts with it must notice, so it is checked as a ledger, not only as bytes."""
    refused(edited(good, "state/ledger.sqlite", statement), tmp_path, match)


@pytest.fixture(scope="module")
def recorded() -> bytes:
    """The backup of a party of clinics with a history."""
    return gzip.decompress((RECORDED / "ada.backup.gz").read_bytes())


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("UPDATE identity SET value = 'bo' WHERE key = 'party'", "history.sqlite is the history of another party"),
        ("PRAGMA application_id = 1", "history.sqlite is no history"),
    ],
)
def test_a_history_of_another_party_is_refused(recorded, tmp_path, statement, match):
    refused(edited(recorded, "state/history.sqlite", statement), tmp_path, match)


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("UPDATE facts SET value = 'other' WHERE name = 'federation'", "is the store of another federation"),
        ("PRAGMA user_version = 3", "has version 3 of a store"),
        ("DROP TABLE facts", "no readable database"),
    ],
)
def test_a_store_of_another_federation_is_refused(tmp_path, statement, match):
    federation = make_federation(tmp_path / "made")
    back_up(config_of(federation, "coordinator"), tmp_path / "made/b")
    content = edited((tmp_path / "made/b").read_bytes(), "state/coordinator.sqlite", statement)
    (tmp_path / "place").mkdir()
    refused(content, tmp_path / "place", match)


def test_a_ledger_of_an_older_format_is_restored_and_noticed(recorded, tmp_path):
    """As in a backup that an older version made."""
    older = tmp_path / "ledger.sqlite"
    older.write_bytes(gzip.decompress((RECORDED.parent / "older/ledger-0.2-format-2.sqlite.gz").read_bytes()))
    owner = LedgerOwner("clinics", "ada", "data.csv")
    PartyDatabase(older, owner).close()
    copy = kept_file(older, 2).read_bytes()
    (tmp_path / "b").write_bytes(changed(recorded, "state/ledger.sqlite", copy))
    restore(tmp_path / "b", tmp_path / "back", ANY)
    with pytest.raises(LedgerSetBackError, match="it is a copy"):
        PartyDatabase(tmp_path / "back/state/ledger.sqlite", owner)
    # Its charges are checked in today's format.
    refused_place = tmp_path / "place"
    refused_place.mkdir()
    damaged = edited(changed(recorded, "state/ledger.sqlite", copy), "state/ledger.sqlite", "DROP TABLE events")
    refused(damaged, refused_place, "state/ledger.sqlite")


def test_a_ledger_that_is_no_database_is_refused(good, tmp_path):
    refused(changed(good, "state/ledger.sqlite", b"no database at all"), tmp_path, "no readable database")
    refused(changed(good, "state/ledger.sqlite", b""), tmp_path, "no ledger|no readable database")


def test_a_ledger_that_is_called_a_file_is_refused(good, tmp_path):
    """A ledger that the manifest names otherwise would not be checked."""
    manifest, members = members_of(good)
    for entry in manifest["files"]:
        entry["role"] = "file" if entry["role"] == "ledger" else entry["role"]
    refused(packed(manifest, members), tmp_path, "state/ledger.sqlite is a database")


def test_the_configuration_of_another_member_is_refused(good, tmp_path):
    _, members = members_of(good)
    content = members["files/party.toml"].replace(b'name = "ada"', b'name = "bo"')
    refused(changed(good, "party.toml", content), tmp_path, "not that of party ada of test")
    refused(changed(good, "party.toml", b"unknown = 1\n"), tmp_path, "cannot be used")


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        ({"format_version": 2}, "a newer version of radofed made it .*restore it with that version"),
        ({"format": "tar"}, "not that of a backup"),
        ({"format_version": "1"}, "not that of a backup"),
        ({"role": "king"}, "unknown role"),
        ({"role": "learner"}, "not that of learner ada"),
        ({"role": "operator"}, "configuration"),
        ({"configuration": "x.toml"}, "no configuration"),
        ({"files": 3}, "malformed"),
        ({"program": 3}, "malformed"),
        ({"program": "\ud800"}, "malformed"),
        ({"created_at_unix_s": 1.5}, "malformed"),
        ({"created_at_unix_s": True}, "malformed"),
        ({"created_at_unix_s": -1}, "malformed"),
        ({"created_at_unix_s": 1 << 40}, "impossible time"),
        ({"outside": {"../x": "/etc"}}, "impossible directory"),
        ({"missing": [{}]}, "malformed"),
    ],
)
def test_impossible_manifests(good, tmp_path, edit, match):
    manifest, members = members_of(good)
    refused(packed(manifest | edit, members), tmp_path, match)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"{" * 5000, b"\xff", b'{"format": 1e999}'])
def test_manifests_that_are_none(tmp_path, content):
    info = tarfile.TarInfo("manifest.json")
    info.size = len(content)
    file = info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512) + bytes(1024)
    refused(file, tmp_path, "give another copy of this backup")


def test_a_full_disk_leaves_no_backup_and_no_restored_file(good, party, small_disk, tmp_path):
    archive = tmp_path / "good"
    archive.write_bytes(good)
    fill(small_disk)
    filling = small_disk / "filling-65536"
    os.truncate(filling, filling.stat().st_size - 3 * 4096)
    before = sorted(path.name for path in small_disk.iterdir())
    with pytest.raises(ConfigurationError, match=r"No space left on device; free space there\); nothing was restored"):
        restore(archive, small_disk / "back", ANY)
    assert sorted(path.name for path in small_disk.iterdir()) == before
    with pytest.raises(ConfigurationError, match="No space left on device; free space there"):
        back_up(party / "party.toml", small_disk / "another")
    assert sorted(path.name for path in small_disk.iterdir()) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from parties.database import LedgerOwner, LedgerSetBackError, PartyDatabase
from radofed.backup import restoring
from radofed.backup.restoring import Expected, restore

restoring.publish_directory = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
restore(Path(sys.argv[1]), Path(sys.argv[2]), Expected())
"""


@pytest.mark.more
def test_a_restore_that_is_killed_leaves_no_directory(good, tmp_path):
    archive, back = tmp_path / "good", tmp_path / "back"
    archive.write_bytes(good)
    root = Path(__file__).resolve().parents[3]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(archive), str(back)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "protos")])},
        capture_output=True,
        check=False,
        timeout=HANG_S,
    )
    assert killed.returncode == -signal.SIGKILL
    assert not back.exists()
    left = [path for path in tmp_path.iterdir() if path != archive]
    # What is left is hidden, for its owner only, and in no one's way.
    assert all(path.name.startswith(".back-") and path.stat().st_mode & 0o077 == 0 for path in left)
    restore(archive, back, ANY)
    assert (back / "state/ledger.sqlite").exists()


def test_what_no_backup_can_hold_is_refused_before_it_is_written(tmp_path):
    manifest = Manifest("operator", "operator", "clinics", 0, "0", "", (), {}, ())

    class Large(Item):
        def entry(self):
            return Entry(self.path, 1 << 33, bytes(32), self.role, 0)

    with pytest.raises(ConfigurationError, match="large: has 8 GiB or more"):
        write_archive(tmp_path / "b", manifest, [Large("large", b"", 0)])
    with pytest.raises(ConfigurationError, match="more than 100000 files"):
        write_archive(tmp_path / "b", manifest, [Item("x", b"", 0)] * 100_001)
    assert not (tmp_path / "b").exists()


def test_a_header_that_differs_from_the_manifest_is_refused(good, tmp_path):
    def longer(info: tarfile.TarInfo) -> None:
        info.size += info.name == "files/ca.pem"

    def renamed(info: tarfile.TarInfo) -> None:
        info.name = info.name.replace("ca.pem", "ca.pim")

    refused(packed(*members_of(good), longer), tmp_path, "ca.pem has another size")
    refused(packed(*members_of(good), renamed), tmp_path, "'files/ca.pim' where the file files/ca.pem should be")


def test_a_manifest_that_is_too_long_is_not_read(tmp_path):
    info = tarfile.TarInfo("manifest.json")
    info.size = (32 << 20) + 1
    refused(info.tobuf(tarfile.USTAR_FORMAT) + bytes(1024), tmp_path, "manifest is too long")


def test_an_operators_backup_is_of_the_federation_that_it_says(tmp_path):
    founded = tmp_path / "operator"
    found(founded, "clinics")
    back_up_operator(founded, tmp_path / "good")
    manifest, members = members_of((tmp_path / "good").read_bytes())
    (tmp_path / "made-up").write_bytes(packed(manifest | {"federation": "other"}, members))
    with pytest.raises(BackupError, match="of the federation 'clinics'"):
        restore(tmp_path / "made-up", tmp_path / "back", ANY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good", "made-up", "operator"]


def test_a_directory_that_appears_meanwhile_is_not_overwritten(good, tmp_path, monkeypatch):
    (tmp_path / "good").write_bytes(good)
    real = restoring.publish_directory

    def late(draft: Path, directory: Path) -> None:
        (directory / "mine").mkdir(parents=True)
        real(draft, directory)

    monkeypatch.setattr(restoring, "publish_directory", late)
    with pytest.raises(ConfigurationError, match="nothing was restored"):
        restore(tmp_path / "good", tmp_path / "back", ANY)
    assert [path.name for path in (tmp_path / "back").iterdir()] == ["mine"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "good"]
