"""Compiles functions for this processor at import, and caches the machine code for the next process.

Numba's own cache names its files by function and line: a process that stops in between, or two versions that share a
directory, can leave one's code under the other's name. Here the name contains a digest of everything that the code
depends on. Processes that compile at the same time write the same files, each atomically.

The cache is next to the source (`__pycache__`), else in the user's cache directory, or in NUMBA_CACHE_DIR if that is
set. Anyone who can write there controls what runs. So a directory that every user may write to, or that another user
owns, is skipped. If no directory is writable, each process compiles again, which takes seconds.
"""

import hashlib
import inspect
import os
import stat
from collections.abc import Callable
from typing import Any, ParamSpec, Self, TypeVar

import numba
from numba.core import caching
from numba.core.registry import cpu_target

# Numba's types lack this attribute.
_config: Any = numba.config


def _locator(name: str) -> Any:
    """Numba's class for a kind of directory. Up to Numba 0.61 the names start with an underscore."""
    return getattr(caching, name, None) or getattr(caching, f"_{name}")


_UserProvided: Any = _locator("UserProvidedCacheLocator")
_InTree: Any = _locator("InTreeCacheLocator")
_UserWide: Any = _locator("UserWideCacheLocator")

P = ParamSpec("P")
R = TypeVar("R")


def processor_has(*features: str) -> bool:
    """Whether code is compiled for a processor with these features, by LLVM's names.

    Those that only NUMBA_CPU_NAME implies do not count.
    """
    known = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
    return all(f"+{feature}" in known for feature in features)


def compiled(*signatures: str | Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function for these signatures now, or load it. It runs without holding the interpreter's lock.

    Functions that it calls must be in its own file: the digest covers that file and this one. Every process compiles
    the signatures in the given order, so the cache's numbering of them agrees too.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        try:
            return _compile(function, signatures, cached=True)
        # No directory, no space or a damaged file can raise anything: the work can be done without the cache. An error
        # in the function itself is raised again.
        except Exception:  # noqa: BLE001
            return _compile(function, signatures, cached=False)

    return decorate


def _compile(function: Callable[P, R], signatures: tuple[str | Any, ...], *, cached: bool) -> Callable[P, R]:
    dispatcher: Any = numba.njit(nogil=True)(function)
    if cached:
        cache: Any = _Cache
        dispatcher._cache = cache(function)  # noqa: SLF001 - as `cache=True` does, but with safe names
    for signature in signatures:
        dispatcher.compile(signature)
    dispatcher.disable_compile()
    compiled_function: Callable[P, R] = dispatcher
    return compiled_function


def _digest(source_path: str) -> str:
    digest = hashlib.sha256()
    for path in (source_path, inspect.getfile(compiled)):
        with open(path, "rb") as source:  # noqa: PTH123 - Numba's paths are strings
            digest.update(hashlib.sha256(source.read()).digest())
    target = cpu_target.target_context.codegen().magic_tuple()
    digest.update(repr((numba.__version__, target)).encode())
    return digest.hexdigest()[:32]


def _is_safe(directory: str, source_path: str) -> bool:
    """Whether only root, this process's user or the source's owner, or their groups, control a directory's content."""
    # dpcore uses no other files, and so no library of paths.
    if not os.path.isabs(directory):  # noqa: PTH117
        # If the home directory is unknown, the path is relative to the directory that the process runs in.
        return False
    try:
        path = os.path.realpath(directory, strict=True)
        trusted = {0, os.geteuid(), os.stat(source_path).st_uid}  # noqa: PTH116
        here, above = os.stat(path), os.stat(os.path.dirname(path))  # noqa: PTH116, PTH120
    except OSError:
        return False
    # In a sticky directory, such as the one for temporary files, no other user can replace this directory.
    replaceable = above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX
    return here.st_uid in trusted and not here.st_mode & stat.S_IWOTH and not replaceable


class _ByContent:
    """Names a cache's files by content. Also accepts a safe directory that is not writable if it has the file."""

    _py_file: str

    def get_source_stamp(self) -> str:
        return _digest(self._py_file)

    def get_disambiguator(self) -> str:
        return _digest(self._py_file)

    @classmethod
    def from_function(cls, function: Callable[..., Any], source_path: str) -> Self | None:
        """The locator, or None to try the next kind of directory."""
        writable: Self | None = super().from_function(function, source_path)  # type: ignore[misc]
        readable = cls(function, source_path)  # type: ignore[call-arg]
        if not _is_safe(readable.get_cache_path(), source_path):  # type: ignore[attr-defined]
            return None
        if writable is not None:
            return writable
        name = f"{function.__qualname__}-{readable.get_disambiguator()}"
        try:
            files = os.listdir(readable.get_cache_path())  # type: ignore[attr-defined]  # noqa: PTH208
        except OSError:
            return None
        return readable if any(name in file and file.endswith(".nbi") for file in files) else None


class _GivenDirectory(_ByContent, _UserProvided):  # type: ignore[misc]
    @classmethod
    def from_function(cls, function: Callable[..., Any], source_path: str) -> Self | None:
        return super().from_function(function, source_path) if _config.CACHE_DIR else None


class _BesideTheSource(_ByContent, _InTree):  # type: ignore[misc]
    pass


class _OfTheUser(_ByContent, _UserWide):  # type: ignore[misc]
    pass


class _Files(caching.CompileResultCacheImpl):
    _locator_classes: Any = [_GivenDirectory, _BesideTheSource, _OfTheUser]  # noqa: RUF012 - as in the base class


class _Cache(caching.FunctionCache):
    _impl_class = _Files
