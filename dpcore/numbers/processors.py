"""The number of processors for parallel work, and a limit on the threads of BLAS.

A BLAS library's idle threads spin: if several of our threads or processes call it, sums take seconds, so they do inside
`one_blas_thread`. The sums are the same integers either way.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any


def processors() -> int:
    """The number of processors that this process may use, at least one."""
    # If the operating system has no affinity, all processors count.
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to the calling thread, as a context or a decorator, and restore its number of threads afterwards.

    Every thread that computes must enter it. Contexts are counted for the process: the first one limits it, the last
    one restores it. Libraries loaded later, and those that threadpoolctl does not know, such as Apple's Accelerate,
    keep their threads.
    """
    found = _limit.enter()
    try:
        yield
    finally:
        _limit.leave(found)


class _Limit:
    """Counts the contexts of this process, and keeps the numbers of threads to restore after the last one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._before: list[_Number] = []

    def enter(self) -> "list[_Number]":
        """Limit this thread and the process. Returns the numbers of this thread that `leave` must restore."""
        with self._lock:
            found = [(library, library.num_threads) for library in _libraries(len(sys.modules))]
            _set([(library, 1) for library, _ in found])
            self._holders += 1
            known = {library.filepath for library, _ in self._before}
            for library, number in found:
                if library.filepath not in known and not _belongs_to_thread(library):
                    self._before.append((library, number))
            return [(library, number) for library, number in found if _belongs_to_thread(library)]

    def leave(self, found: "list[_Number]") -> None:
        """Restore this thread's numbers, and the process's if no other context is left."""
        with self._lock:
            self._holders -= 1
            _set(found)
            if not self._holders:
                _set(self._before)
                self._before = []


_Number = tuple[Any, int]
"""A BLAS library, as threadpoolctl represents it, and a number of threads."""


def _set(numbers: list[_Number]) -> None:
    for library, number in numbers:
        # From 3.8 on, threadpoolctl ignores all threads but the first one that limited OpenBLAS.
        release = getattr(library, "clear_controlling_thread", lambda **_: None)
        release(force=True)
        library.set_num_threads(number)
        release(force=True)


@lru_cache(maxsize=1)
def _libraries(modules: int) -> list[Any]:  # noqa: ARG001  (libraries come with modules)
    """The BLAS libraries of this process. The search takes a millisecond, so it runs only after new imports."""
    # NumPy brings its BLAS. Both modules are imported only for computation.
    import numpy as np  # noqa: F401, PLC0415
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415

    libraries: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
    return libraries


def _belongs_to_thread(library: Any) -> bool:
    """Whether threadpoolctl sets a library's number of threads for the calling thread only."""
    if library.internal_api == "openblas":
        return bool(library.threading_layer == "openmp")
    return library.internal_api in {"mkl", "openmp"}


_limit = _Limit()
