"""Which files a node trusts: no other user may read its secrets, or change what decides what it does.

A file that decides (`FileKind.decides`: configuration, policy, keys and certificates of others, schema, roster, ledger)
is refused if its group or others may write to it, or if others may put another file in its place, because one of the
directories on its path is writable for others and has no sticky bit.

A secret (`FileKind.private`) must be closed to other users altogether.

What the rule leaves to the machine's administrator:

- A file, or a directory on its path, may belong to another user, such as the data officer: who owns it decides.
- A group may write to a directory: Kubernetes makes volumes so (`fsGroup`), for a group of the node's own.
- A directory on a file system that is mounted read-only may have any mode: nobody changes it. So Kubernetes mounts
  configuration.
"""

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dpcore.errors import ConfigurationError

_MOST_LINKS = 40
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Exposed:
    """A secret in a file that others can read."""

    noun: str
    """What it is."""
    mend: str
    """What to do if others have read it."""


KEY = Exposed("private key", "if others had access, replace the key")


class ExposedKeyError(ConfigurationError):
    """A secret that other users of the machine can read or change. mode: of its file. fix: a command."""

    def __init__(self, path: Path, mode: int, is_own: bool, what: Exposed = KEY) -> None:
        self.path, self.mode = path, mode
        fix = f"chmod 600 {shlex.quote(str(path))}"
        if not is_own:
            fix = f"chmod 440 {shlex.quote(str(path))} (as the file's owner, or set this mode where it is mounted)"
        self.fix = fix
        super().__init__(
            f"{path}: other users can read or change this {what.noun} (mode {mode:04o}); {what.mend}; otherwise run: "
            f"{fix}"
        )


class WritableFileError(ConfigurationError):
    """A file on which a node relies, and that other users can change or replace.

    place: the file, or the directory in which they can replace it. mode: of the place. fix: a command.
    """

    def __init__(self, path: Path, place: Path, mode: int, is_own: bool) -> None:
        """is_own: whether the place belongs to this process's user, who else cannot run the command."""
        self.path, self.place, self.mode = path, place, mode
        if place == path:
            cause, self.fix = "change this file", f"chmod go-w {shlex.quote(str(path))}"
        else:
            cause, self.fix = f"replace this file in the directory {place}", f"chmod o-w {shlex.quote(str(place))}"
        if not is_own:
            self.fix += " # as its owner, or set this mode where it is mounted"
        super().__init__(
            f"{path}: other users can {cause} (mode {mode:04o}), and this node does what it says; check its content, "
            f"then run: {self.fix}"
        )


def check_private(path: Path) -> None:
    """Raise ExposedKeyError if other users can read or change this file; OSError if there is none.

    A key of this process's user must have no permission for group or others: on many systems a group contains every
    user. Deployments mount keys that belong to another user, usually root, and that the process reads as a member of
    the file's group (Kubernetes: `fsGroup`, mode 0440): there the group may read. Raises WritableFileError if others
    can replace it.
    """
    check_private_mode(path, path.stat())


def check_private_mode(path: Path, found: os.stat_result, what: Exposed = KEY) -> None:
    """`check_private` of a file that is open. found: its state."""
    is_own = found.st_uid == os.geteuid()
    allowed = 0o700 if is_own else 0o740
    if (mode := stat.S_IMODE(found.st_mode)) & 0o777 & ~allowed:
        raise ExposedKeyError(path, mode, is_own, what)
    check_directories(path)


def check_unwritable(path: Path) -> None:
    """Raise WritableFileError if other users can change or replace this file, or make it before this process does."""
    try:
        found = path.stat()
    except FileNotFoundError:
        check_directories(path)
    else:
        check_unwritable_mode(path, found)


def check_unwritable_mode(path: Path, found: os.stat_result) -> None:
    """`check_unwritable` of a file that is open. found: its state."""
    if (mode := stat.S_IMODE(found.st_mode)) & _WRITABLE:
        raise WritableFileError(path, path, mode, found.st_uid == os.geteuid())
    check_directories(path)


def check_directories(path: Path) -> None:
    """Raise WritableFileError if others can put another file in this one's place, or in that of a link on its path.

    Raises OSError if a directory is missing or cannot be looked at.
    """
    for place in dict.fromkeys(_directories(path)):
        found = place.stat()
        mode = stat.S_IMODE(found.st_mode)
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and not os.statvfs(place).f_flag & os.ST_RDONLY:
            raise WritableFileError(path, place, mode, found.st_uid == os.geteuid())


def _directories(path: Path) -> Iterator[Path]:
    """The directories on a path, and on those of all links that it leads through."""
    place = path.absolute()
    for _ in range(_MOST_LINKS):
        yield from place.parents
        link = next((each for each in (*reversed(place.parents), place) if each.is_symlink()), None)
        if link is None:
            return
        place = link.parent / link.readlink() / place.relative_to(link)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
