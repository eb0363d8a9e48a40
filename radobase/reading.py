"""Reads files. Every role reads through this module, so that a file's content raises only radofed's errors.

A file is opened, checked and only then read: it must be a regular file and no larger than its kind allows. Every fault,
from its permissions to 20,000 nested brackets, raises the error of its kind, which names the path, the cause and what
to do.
"""

import errno
import json
import math
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeVar

from dpcore.errors import ConfigurationError, RadofedError
from dpcore.records.texts import parse_toml

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Which files a node trusts: no other user may read its secrets, or change what decides what it does.
#
# A file that decides (`FileKind.decides`: configuration, policy, keys and certificates of others, schema, roster,
# ledger) is refused if its group or others may write to it, or if others may put another file in its place, because
# one of the directories on its path is writable for others and has no sticky bit.
#
# A secret (`FileKind.private`) must be closed to other users altogether.
#
# What the rule leaves to the machine's administrator:
#
# - A file, or a directory on its path, may belong to another user, such as the data officer: who owns it decides.
# - A group may write to a directory: Kubernetes makes volumes so (`fsGroup`), for a group of the node's own.
# - A directory on a file system that is mounted read-only may have any mode: it cannot change. So Kubernetes mounts
#   configuration.


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


T = TypeVar("T")

# TOML's integers have 64 bits, and RFC 8259 advises no more for JSON. Python reads any, but fails to print the largest.
_SMALLEST_INTEGER, _LARGEST_INTEGER = -(1 << 63), (1 << 64) - 1
_MOST_DIGITS = 20
_MOST_VALUES = 1 << 21
_LONGEST_CAUSE = 200


@dataclass(frozen=True)
class FileKind:
    """A kind of file, and the error for a file that cannot be used."""

    error: Callable[[Path, str], RadofedError]
    """Makes the exception from the path and the cause, such as "is a directory"."""
    limit_bytes: int | None = None
    """A larger file is refused before it is read; None for streamed files."""
    secret: bool = False
    """Errors reveal nothing about the content."""
    own: bool = False
    """The file must belong to this process's user or to root, and must not be a symbolic link."""
    private: bool = False
    """No other user may read or change it (`check_private`)."""
    exposed: Exposed = KEY
    """What to say of such a file that they can."""
    decides: bool = False
    """No other user may change or replace it (`check_unwritable`), because a node does what it says."""


def with_remedy(
    remedy: str, error: Callable[[str], RadofedError] = ConfigurationError
) -> Callable[[Path, str], RadofedError]:
    """An `error` for a FileKind whose exceptions take one sentence: "PATH: CAUSE; REMEDY"."""
    return lambda path, cause: error(f"{path}: {cause}; {remedy}")


@contextmanager
def open_file(path: Path, kind: FileKind) -> Iterator[BinaryIO]:
    """The file, open for reading in binary mode. Raises the kind's error, also if reading fails inside the block."""
    try:
        with os.fdopen(_open_regular(path, kind), "rb") as file:
            yield file
    except OSError as error:
        raise kind.error(path, f"cannot be read ({error.strerror or error})") from error
    except MemoryError as error:
        raise kind.error(path, "does not fit in this machine's memory") from error


def _open_regular(path: Path, kind: FileKind) -> int:
    # Opening a pipe would wait for a writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if kind.own else 0)
    try:
        descriptor = os.open(path, flags)
    except ValueError as error:
        raise kind.error(path, "is not a path (it has a NUL character)") from error
    try:
        _check(path, kind, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(path: Path, kind: FileKind, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise kind.error(path, "is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise kind.error(path, "is not a regular file")
    if kind.own and found.st_uid not in (0, os.geteuid()):
        raise kind.error(path, "belongs to another user")
    if kind.private:
        check_private_mode(path, found, kind.exposed)
    if kind.decides:
        check_unwritable_mode(path, found)
    if kind.limit_bytes is not None and found.st_size > kind.limit_bytes:
        _refuse_size(path, kind, found.st_size)


def state_of(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced: inode, time of change in nanoseconds, bytes; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _refuse_size(path: Path, kind: FileKind, size_bytes: int) -> NoReturn:
    raise kind.error(path, f"has {size_bytes} bytes, but such a file may have at most {kind.limit_bytes}")


def read_bytes(path: Path, kind: FileKind) -> bytes:
    """The whole content. Raises the kind's error."""
    assert kind.limit_bytes is not None, "files without a limit are streamed"
    with open_file(path, kind) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        data = file.read(size_bytes + 1)
        if len(data) > size_bytes:  # it grows, or its file system does not report its size
            data += file.read(kind.limit_bytes + 1 - len(data))
    if len(data) > kind.limit_bytes:
        _refuse_size(path, kind, len(data))
    return data


def read_text(path: Path, kind: FileKind) -> str:
    """The content as UTF-8, with every line ending as a line feed. Raises the kind's error."""
    text = _parsed(path, kind, "UTF-8 text", read_bytes(path, kind).decode)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_toml(path: Path, kind: FileKind) -> dict[str, Any]:
    """The table of a TOML file. Integers may have at most 64 bits. Raises the kind's error."""
    text = read_text(path, kind)

    def parse() -> dict[str, Any]:
        table = parse_toml(text)
        _check_integers(table)
        return table

    return _parsed(path, kind, "TOML", parse)


def read_json(path: Path, kind: FileKind) -> dict[str, Any]:
    """The object of a JSON file, with the numbers that `parse_json` accepts. Raises the kind's error."""
    return parse_json(read_text(path, kind), path, kind)


def parse_json(text: str, path: Path, kind: FileKind) -> dict[str, Any]:
    """The object of a JSON text: integers of at most 64 bits and finite reals. Raises the kind's error.

    path: the source of the text, for the error.
    """

    def parse() -> dict[str, Any]:
        # Each value takes up to a hundred bytes of memory. Marks inside texts are counted too, which is quick.
        if sum(map(text.count, "[{,")) > _MOST_VALUES:
            raise ValueError(f"it has more than {_MOST_VALUES} values")
        content = json.loads(text, parse_int=_integer, parse_float=_real, parse_constant=_real)
        if not isinstance(content, dict):
            raise TypeError("it is not an object")
        return content

    return _parsed(path, kind, "JSON", parse)


def read_array(path: Path, kind: FileKind, dtype: str) -> "NDArray[Any]":
    """The array of a .npy file, of any shape. dtype: the required type, such as "<i8".

    Allocates nothing for a shape that does not match the file's length, and unpickles nothing. Raises the kind's error.
    """
    import numpy as np  # noqa: PLC0415  (slow to import, and few files are arrays)

    assert kind.limit_bytes is not None, "files without a limit are streamed"
    with open_file(path, kind) as file:
        shape, fortran_order, found = _parsed(path, kind, "NumPy array", lambda: _array_header(file))
        if found != np.dtype(dtype):
            raise kind.error(path, f"has an array of {found}, but must have one of {np.dtype(dtype)}")
        values = os.fstat(file.fileno()).st_size - file.tell()
        if math.prod(shape) * found.itemsize != values:
            raise kind.error(path, f"is truncated or damaged: it has {values} bytes of values for the shape {shape}")

        def read() -> "NDArray[Any]":
            flat = np.fromfile(file, dtype=found, count=math.prod(shape))
            return flat.reshape(shape, order="F" if fortran_order else "C")

        return _parsed(path, kind, "NumPy array", read)


def _array_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, "np.dtype[Any]"]:
    from numpy.lib import format as npy  # noqa: PLC0415  (as above)

    version = npy.read_magic(file)
    headers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in headers:
        raise ValueError(f"its format is {version}")
    return headers[version](file)


def _parsed(path: Path, kind: FileKind, form: str, parse: Callable[[], T]) -> T:
    """The result of `parse`. Its errors about the content become the kind's error. form: such as "TOML"."""
    try:
        return parse()
    except OSError:
        raise  # a fault of the disk, not of the content
    except Exception as error:
        if kind.secret:
            raise kind.error(path, f"not valid {form}") from None
        raise kind.error(path, f"not valid {form} ({_words(error)})") from error


def _words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it does not fit in this machine's memory"
    if "sys.set_int_max_str_digits" in str(error):
        return "it has a number of thousands of digits"
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= _LONGEST_CAUSE else f"{words[:_LONGEST_CAUSE]} ..."


def _check_integers(table: dict[str, Any]) -> None:
    pending: list[Any] = [table]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, int):
            _check_integer(value)


def _check_integer(value: int) -> None:
    if not _SMALLEST_INTEGER <= value <= _LARGEST_INTEGER:
        raise ValueError("it has an integer of more than 64 bits")


def _integer(text: str) -> int:
    if len(text) <= _MOST_DIGITS:
        value = int(text)
        _check_integer(value)
        return value
    raise ValueError("it has an integer of more than 64 bits")


def _real(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("it has a number that is not finite")
    return value
