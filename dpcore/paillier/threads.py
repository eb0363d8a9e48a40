"""Long runs of big-integer work on all cores: gmpy2 lets go of the interpreter's lock where its context says so.

Each product or remainder of numbers of thousands of bits then runs beside those of other threads, and beside whatever
else the process does. A thread that lets go this often gets the lock back late where others run pure Python: what is
short holds on to it instead.
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
    """This thread's gmpy2 operations let go of the interpreter's lock; other threads' contexts stay as they are."""
    with gmpy2.context(gmpy2.get_context(), allow_release_gil=True):
        yield


def even_ranges(count: int, parts: int) -> list[range]:
    """0..count in `parts` runs whose lengths differ by one at most."""
    return [range(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def over_ranges(work: Callable[[int, int], T], count: int, *, size: int, threads: int | None = None) -> Iterator[T]:
    """work(start, stop) for ranges of `size` that cover 0..count, in order, several at a time, lock released.

    threads: how many work, None for one a processor; one works in the calling thread. What `work` raises is raised for
    the first range that fails, and ranges that have not begun by then never do. Raises ValueError where threads or size
    is below 1.
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
