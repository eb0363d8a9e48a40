"""Checks the backup of a node or operator, and restores it: all of it or nothing, and never over other files."""

import datetime as dt
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from radobase.failure import in_words
from radobase.printing import amount
from radobase.writing import OWNER_ONLY, new_file, opened_copy, publish_directory, sync_directory
from radofed.backup.archive import OPERATOR, Archive, BackupError, Entry, FileRole, Manifest, damaged, opened_archive
from radofed.backup.making import federation_of
from radofed.node_config import load_node_config, role_of
from wire.identity import Certificate
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


# What a backup lacks, what was lost since it was made, and what to run after it is restored.

_LOST = {
    "party": "the ledger lacks what was charged since then, and the history what was asked and decided",
    "coordinator": "queries and totals since then; parties send uploads of attempts under way again, and keep their "
    "charges",
    "learner": "queries and releases since then: their totals cannot be fetched, and parties keep their charges",
    OPERATOR: "requests that were signed since then, and newer versions of the roster",
}
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def age(manifest: Manifest, now_unix_s: float) -> str:
    """How old a backup is, such as "3 days"; empty if this machine's clock is behind the one that made it."""
    seconds = int(now_unix_s) - manifest.created_at_unix_s
    for unit_s, unit in ((_DAY_S, "day"), (_HOUR_S, "hour"), (_MINUTE_S, "minute")):
        if seconds >= unit_s:
            count = seconds // unit_s
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{seconds} s" if seconds >= 0 else ""


def words_of(manifest: Manifest, now_unix_s: float) -> list[str]:
    """What a backup is and what it lacks, one sentence each."""
    at = dt.datetime.fromtimestamp(manifest.created_at_unix_s, dt.UTC)
    size_bytes = sum(entry.size_bytes for entry in manifest.files)
    keys = "with private keys: keep it as a secret" if manifest.has_keys else "without private keys"
    old = age(manifest, now_unix_s)
    ago = f"{old} ago" if old else "which is in the future: check the clock of this machine"
    return [
        f"{manifest.whose}: {amount(len(manifest.files), 'file')}, {size_bytes} bytes, {keys}",
        f"made at {at:%Y-%m-%d %H:%M:%S} UTC by version {manifest.program}, {ago}",
        *(f"not in it: {each.what}: {each.why}" for each in manifest.missing),
    ]


def lost(manifest: Manifest, now_unix_s: float) -> str:
    """What is lost with the original: a sentence."""
    old = age(manifest, now_unix_s)
    return f"lost: what happened since the backup{f', in the last {old}' if old else ''}: {_LOST[manifest.role]}"


def next_steps(manifest: Manifest, directory: Path, now: dt.datetime) -> list[str]:
    """What to do with a restored directory, in this order."""
    steps = [f"move {directory / name} to {former}" for name, former in manifest.outside.items()]
    if manifest.role == OPERATOR:
        return [*steps, *_keys_step(manifest, directory), *_operator_steps(directory)]
    config = directory / manifest.configuration
    steps += _keys_step(manifest, directory)
    match manifest.role:
        case "party":
            steps.append("put the table where the configuration names it")
            if any(entry.role is FileRole.LEDGER for entry in manifest.files):
                steps.append(
                    f"rado ledger acknowledge --config {config}, by the data officer, while the coordinator and the "
                    "other parties run; again with --yes if its figures are right. The party answers nothing before"
                )
        case "coordinator":
            steps.append(f"rado coordinator roster ROSTER --config {config}, with the operator's newest roster.signed")
        case _:
            steps.append(f"rado learner list --config {config}, and ask again what is missing")
    return [*steps, *_certificate_step(manifest, directory, config, now), *_last_steps(manifest.role, config)]


def _keys_step(manifest: Manifest, directory: Path) -> list[str]:
    keys = [each.what for each in manifest.missing if each.is_key]
    if not keys:
        return []
    step = f"put the private keys back into {directory} if there is a copy ({', '.join(keys)})"
    if manifest.role == OPERATOR:
        return [f"{step}; without them the federation must be founded again"]
    request = f"rado provision request {directory} --federation {manifest.federation} --role {manifest.role}"
    return [
        f"{step}; otherwise run {request} --name {manifest.name}, and the operator runs `rado provision replace-key`"
    ]


def _operator_steps(directory: Path) -> list[str]:
    newer = f"if the coordinator has a newer one: rado provision renew-roster {directory} --roster THAT_FILE"
    return [f"rado provision roster {directory}, and compare its version with `rado coordinator status`; {newer}"]


def _certificate_step(manifest: Manifest, directory: Path, config: Path, now: dt.datetime) -> list[str]:
    """Of a certificate that is to be renewed, or has expired since."""
    path = load_node_config(config).tls.certificate
    for name, former in manifest.outside.items():
        if path.is_relative_to(former):
            path = directory / name / path.relative_to(former)
    try:
        certificate = Certificate.load(path)
    except ConfigurationError:
        return [f"put the certificate where {config} names it, or run `rado provision install`"]
    if not certificate.needs_renewal(now):
        return []
    return [f"rado certificate renew --config {config}: the certificate ends on {certificate.not_after:%Y-%m-%d}"]


def _last_steps(role: str, config: Path) -> list[str]:
    replaced = "new keys, by `rado provision request` and the operator's `rado provision replace-key`"
    first = {
        "party": [f"rado party check --config {config}, then rado party start --config {config}"],
        "coordinator": [f"rado coordinator start --config {config}"],
    }.get(role, [])
    if role == "learner":
        replaced = f"rado learner rotate-key --config {config}, and {replaced}"
    return [*first, f"if others may have read the lost disk or this backup: {replaced}"]


def to_dict(manifest: Manifest) -> Mapping[str, Any]:
    """A backup, for JSON. Sizes in bytes."""
    return {
        "role": manifest.role,
        "name": manifest.name,
        "federation": manifest.federation,
        "created_at_unix_s": manifest.created_at_unix_s,
        "program": manifest.program,
        "has_keys": manifest.has_keys,
        "files": [
            {"path": e.path, "bytes": e.size_bytes, "sha256": e.digest.hex(), "role": e.role.value}
            for e in manifest.files
        ],
        "missing": [{"what": each.what, "why": each.why, "key": each.is_key} for each in manifest.missing],
        "outside": dict(manifest.outside),
    }
