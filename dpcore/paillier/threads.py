"""Big-integer work on all cores: gmpy2 releases the interpreter's lock if its context says so.

A thread that releases the lock this often gets it back late if others run pure Python, so short work keeps it.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import gmpy2

from dpcore.numbers.processors import processors

T = TypeVar("T")


@contextmanager
def lock_released() -> Iterator[None]:
    """Let this thread's gmpy2 operations release the interpreter's lock. Other threads' contexts do not change."""
    with gmpy2.context(gmpy2.get_context(), allow_release_gil=True):
        yield


def even_ranges(count: int, parts: int) -> list[range]:
    """Divide 0..count into `parts` ranges whose lengths differ by at most one."""
    return [range(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def over_ranges(work: Callable[[int, int], T], count: int, *, size: int, threads: int | None = None) -> Iterator[T]:
    """Yield work(start, stop) for ranges of `size` that cover 0..count, in order, computed with the lock released.

    threads: number of threads, None for one per processor; a single one is the calling thread. Raises what `work`
    raises for the first range that fails; ranges that have not started by then are cancelled. Raises ValueError if
    threads or size is below 1.
    """
    threads = processors() if threads is None else threads
    if threads < 1 or size < 1:
        raise ValueError(f"{threads} threads for ranges of {size}: give at least 1 of each")
    ranges = [(start, min(start + size, count)) for start in range(0, count, size)]

    def released(start: int, stop: int) -> T:
        with lock_released():
            return work(start, stop)

    if threads == 1 or len(ranges) < 2:
        yield from (released(start, stop) for start, stop in ranges)
        return
    with ThreadPoolExecutor(min(threads, len(ranges)), "integers") as pool:
        made = [pool.submit(released, start, stop) for start, stop in ranges]
        try:
            for future in made:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
