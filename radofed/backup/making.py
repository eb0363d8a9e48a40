"""Makes the backup of a node, also while it runs, or of an operator's directory."""

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.x509.oid import NameOID

from dpcore.errors import ConfigurationError
from radobase.reading import FileKind, read_bytes, with_remedy
from radobase.version import program_version
from radofed.backup.archive import OPERATOR, FileRole, Item, Manifest, Missing, path_fault, write_archive
from radofed.node_config import load_node_config, role_of
from radofed.provision import ROSTER_FILE, signed_roster
from wire.envelopes import load_public_key
from wire.identity import TlsFiles
from wire.roster import Role

if TYPE_CHECKING:
    from coordinator.config import CoordinatorConfig
    from learner.config import LearnerConfig
    from parties.config import PartyConfig


# Gathers the files of a backup: what is in it, what is left out and why, and where files outside were.

OUTSIDE = "outside"
_SMALL_BYTES = 1 << 16
_PLAIN = FileKind(with_remedy("correct the path, or what keeps it from being read"))
_SMALL = FileKind(_PLAIN.error, limit_bytes=_SMALL_BYTES)
_KEY = FileKind(_PLAIN.error, limit_bytes=1 << 20, secret=True, private=True)
# What a member's directory has beside its configuration.
_PUBLIC = frozenset({".toml", ".pem", ".pub", ".signed", ".request", ".admission"})
_SECRET = frozenset({".key", ".jwk"})

_REPLACED = "if it is lost, the operator replaces this member's keys (`rado provision replace-key`)"
_REASONS = {
    "signing.key": f"the member's signing key: {_REPLACED}; of a party it is then no longer known what was spent "
    "since the backup, so that all that remains of its limits is charged",
    "tls.key": f"the key of the connection: {_REPLACED}",
    "federation.key": "the federation's key: without it no roster can be signed, and all members must join again",
    "ca.key": "the authority's key: without it no certificate can be signed, and all members must join again",
    "secret": "the key of this party's noise: without it other rows are held back, and tables with noise are charged "
    "again",
    "opening.key": "the key of a query whose total was not opened yet: without it that total cannot be opened",
    ".jwk": "a Paillier key: without it totals of queries under it cannot be opened",
}


class Contents:
    """What goes into one backup.

    directory: the one that a restore makes again; names are relative to it. archive: the backup's own file.
    """

    def __init__(self, directory: Path, archive: Path, *, with_keys: bool) -> None:
        self.directory, self._archive, self._with_keys = directory, archive.resolve(), with_keys
        self._items: dict[str, Item] = {}
        self.missing: list[Missing] = []
        self.outside: dict[str, str] = {}
        self._has_passphrase = False

    @property
    def items(self) -> list[Item]:
        """The files, in the order in which they were added."""
        return list(self._items.values())

    def name_of(self, label: str, path: Path, base: Path | None = None) -> str:
        """The name of a file in the backup: where it is below the directory, or "outside/LABEL/..." if it is not.

        label: the configuration's key that names it. base: the directory that the key names, if it names one.
        Raises ConfigurationError if no backup can have it.
        """
        path, base = _normal(path), _normal(base or path.parent)
        if path.is_relative_to(self.directory):
            name = path.relative_to(self.directory).as_posix()
        else:
            name = f"{OUTSIDE}/{label}/{path.relative_to(base).as_posix()}"
            self.outside[f"{OUTSIDE}/{label}"] = str(base)
        if fault := path_fault(name):
            raise ConfigurationError(f"{path}: {fault}, so that it cannot be in a backup; move or rename it")
        return name

    def add(self, label: str, path: Path, base: Path | None = None) -> None:
        """Add a public file. Raises ConfigurationError if it cannot be read."""
        self._put(Item(self.name_of(label, path, base), _content(path), _modified_at_unix_s(path)))

    def add_database(self, label: str, path: Path, content: bytes, *, is_ledger: bool = False) -> None:
        """Add a copy of a database that other processes may write."""
        role = FileRole.LEDGER if is_ledger else FileRole.DATABASE
        self._put(Item(self.name_of(label, path, path.parent), content, int(time.time()), role))

    def add_key(self, label: str, path: Path, base: Path | None = None) -> None:
        """Add a private key, or note that it is left out. Nothing if there is none.

        Raises ConfigurationError if it cannot be read, or other users can read it.
        """
        if not path.exists():
            return
        name = self.name_of(label, path, base)
        if name in self._items or any(each.what == name for each in self.missing):
            return
        content = read_bytes(path, _KEY)
        self._has_passphrase |= b"ENCRYPTED" in content
        if self._with_keys:
            self._put(Item(name, content, _modified_at_unix_s(path), FileRole.KEY))
        else:
            why = _REASONS.get(path.name) or _REASONS.get(path.suffix, "a private key")
            self.missing.append(Missing(name, why, is_key=True))

    def add_beside(self) -> None:
        """Add the certificates, rosters, requests, configurations and keys in the directory itself."""
        for path in sorted(self.directory.iterdir()):
            if path.suffix in _SECRET and path.is_file():
                self.add_key(path.stem, path)
            elif path.suffix in _PUBLIC and path.is_file():
                self.add(path.stem, path)

    def add_tree(self, label: str, directory: Path, *, only: Callable[[Path], bool] = lambda _: True) -> None:
        """Add the files below a directory. Hidden ones are unfinished, and links are left out.

        only: which files, by their path below the directory. Raises ConfigurationError if the archive would be one of
        them in the next backup.
        """
        if self._archive.is_relative_to(directory.resolve()):
            raise ConfigurationError(f"{self._archive}: is in a directory that is backed up; give a file elsewhere")
        for path in _files_below(directory):
            if not only(path.relative_to(directory)):
                continue
            if path.suffix in _SECRET:
                self.add_key(label, path, directory)
            else:
                try:
                    self.add(label, path, directory)
                except ConfigurationError:
                    # What a running node removed since the directory was listed is not part of its state.
                    if path.exists():
                        raise

    def leave_out(self, what: str, why: str) -> None:
        """Note what the backup has not."""
        self.missing.append(Missing(what, why))

    def finish(self) -> None:
        """Note what no backup has."""
        if self._has_passphrase:
            self.leave_out("the passphrase", "the keys open with it alone: keep it elsewhere")

    def _put(self, item: Item) -> None:
        self._items.setdefault(item.path, item)


def _normal(path: Path) -> Path:
    """Absolute and without "..", also where a link leads elsewhere: links in a configuration keep their names."""
    return Path(os.path.normpath(path.absolute()))


def _content(path: Path) -> bytes | tuple[Path, FileKind]:
    try:
        is_small = path.stat().st_size <= _SMALL_BYTES
    except OSError:
        is_small = True  # reading it says what is wrong
    return read_bytes(path, _SMALL) if is_small else (path, _PLAIN)


def _modified_at_unix_s(path: Path) -> int:
    try:
        return max(0, int(path.stat().st_mtime))
    except OSError as error:
        raise _PLAIN.error(path, f"cannot be read ({error.strerror})") from error


def _files_below(directory: Path) -> Iterable[Path]:
    for place, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(names):
            path = Path(place) / name
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


# ruff: noqa: PLC0415  (a role's own modules are imported where a backup is of that role)

_AUTHORITY_NAME = "radofed "


def back_up(config: Path, archive: Path, *, with_keys: bool = False, now_unix_s: float | None = None) -> Manifest:
    """Write the backup of the node with this configuration file, which may run. Returns the manifest.

    Raises ConfigurationError if a file cannot be read, other users can read a key, or the archive cannot be written.
    """
    node, role = load_node_config(config), role_of(config)
    config = config.resolve()
    contents = Contents(config.parent, archive, with_keys=with_keys)
    contents.add("configuration", config)
    contents.add("federation_key", node.federation_key)
    contents.add("ca", node.tls.ca)
    contents.add("certificate", node.tls.certificate)
    contents.add_key("key", node.tls.key)
    match role:
        case Role.PARTY:
            _add_party(contents, node)  # type: ignore[arg-type]
        case Role.COORDINATOR:
            _add_coordinator(contents, node)  # type: ignore[arg-type]
        case Role.LEARNER:
            _add_learner(contents, node)  # type: ignore[arg-type]
    contents.add_beside()
    contents.finish()
    return _write(archive, contents, role.value, node.name, node.federation, config.name, now_unix_s)


def back_up_operator(
    directory: Path, archive: Path, *, with_keys: bool = False, now_unix_s: float | None = None
) -> Manifest:
    """Write the backup of an operator's directory. Returns the manifest. Raises ConfigurationError."""
    directory = directory.resolve()
    federation = federation_of(directory)
    contents = Contents(directory, archive, with_keys=with_keys)
    contents.add_tree(OPERATOR, directory)
    contents.finish()
    return _write(archive, contents, OPERATOR, OPERATOR, federation, "", now_unix_s)


def federation_of(directory: Path) -> str:
    """The federation of an operator's directory. Raises ConfigurationError if it is none."""
    key = load_public_key(directory / "federation.pub")
    if (directory / ROSTER_FILE).exists():
        return signed_roster(directory / ROSTER_FILE, key).federation
    # Founded, and without members yet.
    ca = directory / "ca.pem"
    names = TlsFiles(ca, ca, ca).authorities()[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value).removeprefix(_AUTHORITY_NAME) if names else ""


def _write(
    archive: Path,
    contents: Contents,
    role: str,
    name: str,
    federation: str,
    configuration: str,
    now_unix_s: float | None,
) -> Manifest:
    at = int(time.time() if now_unix_s is None else now_unix_s)
    manifest = Manifest(
        role, name, federation, at, program_version(), configuration, (), contents.outside, tuple(contents.missing)
    )
    return write_archive(archive, manifest, contents.items)


def _add_party(contents: Contents, config: "PartyConfig") -> None:
    from parties.data.row_guard import FILE as ROWS_FILE
    from parties.history.database import FILE as HISTORY_FILE
    from parties.members import former_files
    from parties.state_directory import history_copy, ledger_copy

    state = config.state_directory
    contents.add("policy", config.policy)
    if config.schema_file.exists():
        contents.add("schema", config.schema_file)
    if isinstance(config.recode, Path):
        contents.add("recode", config.recode)
    contents.add_key("signing_key", config.signing_key)
    contents.add_key("state_directory", state / "secret", state)
    if (state / ROSTER_FILE).exists():
        contents.add("state_directory", state / ROSTER_FILE, state)
    for path in former_files(state):
        contents.add("state_directory", path, state)
    if (state / ROWS_FILE).exists():
        contents.add("state_directory", state / ROWS_FILE, state)
    # The history first: what it lacks is made from the ledger's charges.
    if (history := history_copy(config)) is not None:
        contents.add_database("state_directory", state / HISTORY_FILE, history)
    if (ledger := ledger_copy(config)) is not None:
        label = "state_directory" if config.ledger is None else "ledger"
        contents.add_database(label, config.ledger_file, ledger, is_ledger=True)
    else:
        contents.leave_out("the ledger", "this party has none yet")
    contents.leave_out("the rows", "a backup has no row of the table")
    if config.password_file is not None:
        contents.leave_out("password_file", "the password of the database")
    if config.cluster is not None and config.cluster.token_file is not None:
        contents.leave_out("cluster.token_file", "the token of the cluster")


def _add_coordinator(contents: Contents, config: "CoordinatorConfig") -> None:
    from coordinator.store import store_copy
    from coordinator.uploads import TOTAL

    contents.add("roster", config.roster)
    # The store first: the totals of the queries that it has as complete are on disk.
    if config.store_file.exists():
        contents.add_database("state_directory", config.store_file, store_copy(config.store_file))
    if config.admissions_directory.is_dir():
        contents.add_tree(
            "state_directory",
            config.state_directory,
            only=lambda path: path.parts[0] == config.admissions_directory.name,
        )
    contents.add_tree(
        "state_directory",
        config.state_directory,
        only=lambda path: path.parts[0] == config.spool_directory.name and path.parent.name == TOTAL,
    )
    contents.leave_out("uploads", "of attempts under way, which are lost unless their parties can send them again")
    if config.cluster is not None and config.cluster.token_file is not None:
        contents.leave_out("cluster.token_file", "the token of the cluster")


def _add_learner(contents: Contents, config: "LearnerConfig") -> None:
    contents.add_key("signing_key", config.signing_key)
    if config.parties.exists():
        contents.add("parties", config.parties)
    for path in sorted(config.paillier_key.parent.glob(f"{config.paillier_key.stem}*{config.paillier_key.suffix}")):
        contents.add_key("paillier_key", path)
    contents.add_tree("state_directory", config.state_directory)
    contents.add_tree("releases_directory", config.releases_directory)
    contents.leave_out("models and journals", "a backup has none: they are where you wrote them")


# Backups that are made every night: named by their time, the oldest deleted.

_SUFFIX = ".backup"
_TIME = "%Y%m%dT%H%M%SZ"
_DIGITS = r"\d{8}T\d{6}Z"


def whose(config: Path | None, operator: Path | None) -> str:
    """Whose backup it is, for the name of its file: nodes that share a directory keep their own backups each.

    config: a node's. operator: or an operator's directory. Names have no point in them. Raises ConfigurationError.
    """
    if config is None:
        assert operator is not None, "one of them is given"
        return f"{federation_of(operator.resolve())}.{OPERATOR}"
    node = load_node_config(config)
    return f"{node.federation}.{role_of(config).value}.{node.name}"


def dated_file(directory: Path, owner: str, now_unix_s: float) -> Path:
    """A name for a backup, by its time in UTC. owner: of `whose`."""
    return directory / f"{owner}-{time.strftime(_TIME, time.gmtime(now_unix_s))}{_SUFFIX}"


def drop_oldest(directory: Path, owner: str, keep: int) -> list[Path]:
    """Delete all but the newest `keep` backups that `dated_file` named for this owner; returns those deleted.

    Raises ConfigurationError if one cannot be deleted.
    """
    pattern = re.compile(re.escape(owner) + f"-{_DIGITS}{re.escape(_SUFFIX)}")
    oldest = sorted(path for path in directory.iterdir() if pattern.fullmatch(path.name))[:-keep]
    for path in oldest:
        try:
            path.unlink()
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}; delete older backups yourself") from error
    return oldest
