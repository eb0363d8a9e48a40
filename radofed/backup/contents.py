"""Gathers the files of a backup: what is in it, what is left out and why, and where files outside were."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from dpcore.errors import ConfigurationError
from radobase.files.reading import FileKind, read_bytes, with_remedy
from radofed.backup.archive import Item
from radofed.backup.manifest import FileRole, Missing, path_fault

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
