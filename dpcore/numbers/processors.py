"""The number of processors for parallel work."""

import os
from collections.abc import Callable


def processors() -> int:
    """The number of processors that this process may use, at least one."""
    # If the operating system has no affinity, all processors count.
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
