"""Checks the backup of a node or operator, and restores it: all of it or nothing, and never over other files."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dpcore.errors import ConfigurationError
from radobase.failure import in_words
from radobase.files.databases import opened_copy
from radobase.files.writing import OWNER_ONLY, new_file, publish_directory, sync_directory
from radofed.backup.archive import Archive, opened_archive
from radofed.backup.making import federation_of
from radofed.backup.manifest import OPERATOR, BackupError, Entry, FileRole, Manifest, damaged
from radofed.node_config import load_node_config, role_of
from wire.roster import Role

# ruff: noqa: PLC0415  (a role's own modules are imported where a backup is of that role)


@dataclass(frozen=True)
class Expected:
    """Whose backup it must be. None: anyone's."""

    role: str | None = None
    name: str | None = None
    federation: str | None = None

    def check(self, archive: Path, found: Manifest) -> None:
        """Raise BackupError if a backup is of another."""
        for key in ("role", "name", "federation"):
            wanted, held = getattr(self, key), getattr(found, key)
            if wanted is not None and wanted != held:
                raise BackupError(f"{archive}: is of {found.whose}, and the {key} {wanted!r} was asked for")


def verify_backup(path: Path, expected: Expected) -> Manifest:
    """Read and check all of a backup, and return its manifest. Writes nothing but its configuration, for a moment.

    Raises BackupError if it is damaged, of another member than expected, or made by a newer version.
    """
    with opened_archive(path) as archive:
        _verify(archive, expected)
        return archive.manifest


def restore(path: Path, directory: Path, expected: Expected) -> Manifest:
    """Restore a backup as a new directory, and return its manifest. Each file is for its owner only.

    Raises BackupError as `verify_backup` does, and ConfigurationError if the directory is not empty or cannot be
    written. Then nothing is left.
    """
    directory = directory.absolute()
    _check_absent(directory)
    with opened_archive(path) as archive:
        _verify(archive, expected)
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
            try:
                _extract(archive, draft)
                if archive.manifest.role == OPERATOR:
                    _check_operator(archive, draft)
                # This fails if something has appeared there meanwhile.
                publish_directory(draft, directory)
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
        except OSError as error:
            raise ConfigurationError(
                f"{directory}: cannot be written ({in_words(error)}); nothing was restored"
            ) from error
        return archive.manifest


def _check_absent(directory: Path) -> None:
    """Raise ConfigurationError unless there is nothing, or an empty directory."""
    if directory.is_symlink() or (directory.exists() and (not directory.is_dir() or any(os.scandir(directory)))):
        raise ConfigurationError(
            f"{directory}: is there already, and a restore overwrites nothing; give a new directory, or move this one "
            "aside"
        )


def _extract(archive: Archive, draft: Path) -> None:
    directories = {draft}

    def write(entry: Entry, pieces: Iterator[bytes]) -> None:
        place = draft / entry.path
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directories.update(parent for parent in place.parents if parent.is_relative_to(draft))
        with new_file(place, OWNER_ONLY) as file:
            for piece in pieces:
                file.write(piece)
        # A learner lists its queries by these times.
        os.utime(place, (entry.modified_at_unix_s, entry.modified_at_unix_s))

    archive.extract(write)
    for each in directories:
        each.chmod(0o700)
        sync_directory(each)


def _verify(archive: Archive, expected: Expected) -> None:
    """Check all of it. Raises BackupError."""
    manifest = archive.manifest
    expected.check(archive.path, manifest)

    def check(entry: Entry, content: bytes) -> None:
        if entry.path == manifest.configuration:
            _check_configuration(archive, content)
        else:
            _check_database(archive, entry, content)

    archive.verify(check)


def _check_configuration(archive: Archive, content: bytes) -> None:
    """The configuration must be of the member that the manifest names."""
    manifest = archive.manifest
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / Path(manifest.configuration).name
        with new_file(path, OWNER_ONLY) as file:
            file.write(content)
        try:
            node, role = load_node_config(path), role_of(path)
        except ConfigurationError as error:
            # Its place has no meaning outside of this function.
            cause = str(error).removeprefix(f"{path}: ")
            raise BackupError(
                f"{archive.path}: its {manifest.configuration} cannot be used ({cause}); use the version of radofed "
                f"that made it, {manifest.program}"
            ) from error
    if (role.value, node.name, node.federation) != (manifest.role, manifest.name, manifest.federation):
        raise damaged(archive.path, f"its {manifest.configuration} is not that of {manifest.whose}")


def _check_database(archive: Archive, entry: Entry, content: bytes) -> None:
    try:
        with opened_copy(content) as connection:
            fault = _database_fault(archive.manifest, entry, connection)
    except (sqlite3.Error, ValueError, KeyError, TypeError, OverflowError) as error:
        raise damaged(archive.path, f"{entry.path} is no readable database ({error})") from error
    if fault:
        raise damaged(archive.path, f"{entry.path} {fault}")


def _database_fault(manifest: Manifest, entry: Entry, connection: sqlite3.Connection) -> str:
    if manifest.role == Role.COORDINATOR.value:
        from coordinator.store import store_fault

        return store_fault(connection, manifest.federation)
    if manifest.role == Role.PARTY.value:
        from parties.state_directory import history_fault, ledger_fault

        fault = ledger_fault if entry.role is FileRole.LEDGER else history_fault
        return fault(connection, manifest.federation, manifest.name)
    return "is a database, and this role has none"


def _check_operator(archive: Archive, draft: Path) -> None:
    """The restored directory must be of the federation that the manifest names."""
    if (found := federation_of(draft)) != archive.manifest.federation:
        raise damaged(archive.path, f"it is of the federation {found!r}, and its manifest says another")
