"""Targets: the archive of a backup, its manifest, a ledger in it, and files that a backup is made of."""

import io
import json
import tarfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from dpcore.errors import RadofedError
from parties.database import PartyDatabase
from radofed import node_config
from radofed.backup.archive import FileRole, Item, Manifest, Missing, write_archive
from radofed.backup.making import Contents
from radofed.backup.restoring import Expected, restore, verify_backup
from tests.fuzz import world
from tests.fuzz.databases import OWNER, make_ledger, template
from tests.fuzz.mutation import json_octets, octets_near
from tests.fuzz.target import Target, scratch, written

MEBIBYTE = 1 << 20
CONFIGURATION = "party.toml"


@cache
def small() -> bytes:
    """The backup of a party without state."""
    config = node_config.party_toml(world.FEDERATION, "ann", "hub:7443").encode()
    items = [Item(CONFIGURATION, config, 0), Item("ca.pem", b"a certificate", 0), Item("k.key", b"k", 0, FileRole.KEY)]
    missing = (Missing("the rows", "no backup has them"),)
    manifest = Manifest("party", "ann", world.FEDERATION, world.NOW, "0.2", CONFIGURATION, (), {}, missing)
    path = scratch("backup") / "seed"
    path.unlink(missing_ok=True)
    write_archive(path, manifest, items)
    return path.read_bytes()


def parts() -> tuple[dict, dict[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(small())) as archive:
        found = {member.name: archive.extractfile(member).read() for member in archive}
    return json.loads(found.pop("manifest.json")), found


def packed(manifest: bytes, members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    for name, content in {"manifest.json": manifest, **members}.items():
        info = tarfile.TarInfo(name)
        info.size = len(content)
        out.write(info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512))
    return out.getvalue() + bytes(1024)


def read_backup(data: bytes) -> None:
    """What is accepted is restored as a directory below the one that was named, and nowhere else."""
    path = written("backup", "archive", data)
    verify_backup(path, Expected())
    place = scratch("backup-restored")
    back = place / f"{sha256(data).hexdigest()[:16]}"
    with suppress(RadofedError):
        manifest = restore(path, back, Expected())
        assert {f.relative_to(back).as_posix() for f in back.rglob("*") if f.is_file()} == {
            entry.path for entry in manifest.files
        }
    assert {found.parent for found in place.iterdir()} <= {place}
    for found in sorted(place.rglob("*"), reverse=True):
        found.rmdir() if found.is_dir() else found.unlink()


def read_manifest(data: bytes) -> None:
    read_backup(packed(data, parts()[1]))


def read_ledger(data: bytes) -> None:
    """A ledger in a backup whose digests are right."""
    manifest, members = parts()
    digest = sha256(data).hexdigest()
    entry = {"path": "ledger.sqlite", "bytes": len(data), "sha256": digest, "role": "ledger", "modified_at_unix_s": 0}
    manifest["files"].append(entry)
    read_backup(packed(json.dumps(manifest).encode(), {**members, "files/ledger.sqlite": data}))


def read_contents(data: bytes) -> None:
    """Files of any content are saved, except keys that others can read."""
    directory = scratch("backup-contents")
    written("backup-contents", "signing.key", data)
    written("backup-contents", "party.toml", data)
    contents = Contents(directory, directory / "archive", with_keys=True)
    contents.add_beside()
    assert {item.path: item.content for item in contents.items} == {"party.toml": data, "signing.key": data}


@cache
def ledger_seed() -> bytes:
    path = Path(template(make_ledger))
    database = PartyDatabase(path, OWNER, create=False)
    try:
        return database.backup()
    finally:
        database.close()


def targets() -> list[Target]:
    return [
        Target("backup", read_backup, octets_near([small()]), 4 * MEBIBYTE,
               ("radofed.backup.archive._ARCHIVE",), examples=12),
        Target("backup-manifest", read_manifest, json_octets([parts()[0]]), 4 * MEBIBYTE,
               ("radofed.backup.archive._MANIFEST",), examples=10),
        Target("backup-ledger", read_ledger, octets_near([ledger_seed()]), 4 * MEBIBYTE, (), examples=12),
        Target("backup-contents", read_contents, octets_near([b"-----BEGIN PRIVATE KEY-----"]), 1 << 16,
               ("radofed.backup.making._PLAIN", "radofed.backup.making._SMALL", "radofed.backup.making._KEY"),
               examples=10),
    ]  # fmt: skip
