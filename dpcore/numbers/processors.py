"""How many processors there are to share work among."""

import os
from collections.abc import Callable


def processors() -> int:
    """Processors that this process may use, at least one."""
    # Where the operating system knows no affinity, all of them.
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
