"""A parser that a peer, a file or a command line reaches, as a target of fuzzing."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from dpcore.errors import RadofedError

QUICK_EXAMPLES = 10
"""What tests/conftest.py sets."""
CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Target:
    """One parser.

    read: gives it any bytes, and checks that what it accepts reads back after it was written. inputs: nearly valid
    bytes. limit_bytes: the longest input that the parser itself reads. covers: functions and kinds of files
    (module.name) that `read` reaches; the tests compare them with the code. allowed: what may come out. examples: how
    many where any other test has QUICK_EXAMPLES; `make test` tries half of them, `make test-all` twenty times as many.
    """

    name: str
    read: Callable[[bytes], object]
    inputs: st.SearchStrategy[bytes] = field(repr=False)
    limit_bytes: int
    covers: tuple[str, ...]
    allowed: tuple[type[Exception], ...] = (RadofedError,)
    examples: int = 12

    def check(self, data: bytes) -> bool:
        """Read an input of at most the limit. Returns whether it was accepted. Raises what must not come out."""
        try:
            self.read(data[: self.limit_bytes])
        except self.allowed:
            return False
        return True

    @property
    def corpus(self) -> list[Path]:
        """The inputs that are kept: valid ones as seeds, and those that once failed, by name."""
        return sorted((CORPUS / self.name).glob("*"))


@dataclass(frozen=True)
class InFile:
    """A reader of bytes from the reader of a file, which test_hostile_files.py gives other things than files.

    prepare: writes what lies around the file in a directory, and returns its path, or has the file's name. change: what
    is written in place of an input, such as one with the right digest.
    """

    name: str
    prepare: Callable[[Path], Path] | str
    use: Callable[[Path], object]
    change: Callable[[bytes], bytes] = bytes

    def place(self, root: Path) -> Path:
        if not isinstance(self.prepare, str):
            return self.prepare(root)
        path = root / self.prepare
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def __call__(self, data: bytes) -> None:
        path = self.place(scratch(self.name))
        path.write_bytes(self.change(data))
        path.chmod(0o600)
        self.use(path)


_root: list[Path] = []


def _remove(directory: Path, owner: int) -> None:
    """A child process that ends leaves its parent's files."""
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)


def scratch(name: str) -> Path:
    """A directory of this process for a target's files, in memory where the machine has such a file system."""
    if not _root:
        memory = Path("/dev/shm")
        _root.append(Path(tempfile.mkdtemp(prefix="radofed-fuzz-", dir=memory if memory.is_dir() else None)))
        atexit.register(_remove, _root[0], os.getpid())
    directory = _root[0] / name
    directory.mkdir(exist_ok=True)
    return directory


def written(name: str, file: str, data: bytes) -> Path:
    """A file of a target with this content, which only its owner may read."""
    path = scratch(name) / file
    path.write_bytes(data)
    path.chmod(0o600)
    return path


@cache
def all_targets() -> dict[str, Target]:
    """The targets by name. Making them writes the templates of databases and signs the small federation's messages."""
    from tests.fuzz import backups, databases, files, handlers, messages, tables, texts

    modules = (messages, texts, files, databases, backups, tables, handlers)
    found = [target for module in modules for target in module.targets()]
    named = {target.name: target for target in found}
    assert len(named) == len(found), "two targets have one name"
    return named
