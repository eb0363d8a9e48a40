"""Processor time of a run of tests, as multiples of a loop on the same machine: figures of two machines compare."""

import os
import time

LOOP = compile("total = 0\nfor i in range(10_000_000): total += i * i", "loop", "exec")


def used_s() -> float:
    """Processor seconds of this process and of all that it waited for: workers of pytest-xdist, and what they started.

    A process that outlives the one that started it is not counted.
    """
    return sum(os.times()[:4])


def loop_s() -> float:
    """Processor seconds of a loop of ten million squares, as a script has it: the best of five."""

    def once() -> float:
        began = time.process_time()
        exec(LOOP, {})
        return time.process_time() - began

    return min(once() for _ in range(5))


def summary(used: float, loop: float) -> str:
    return f"processor time {used:.0f} s = {used / loop:.0f} loops of ten million squares ({loop:.2f} s each)"
