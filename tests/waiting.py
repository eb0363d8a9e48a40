"""How long tests wait. A passing test never waits as long: these limits stop only what hangs, on any machine."""

import time

HANG_S = 600.0
"""No step of a test takes as long, on a slow machine that is busy otherwise."""


def wait_until(condition, *, timeout_s: float = HANG_S, what: str = "it", every_s: float = 0.05):
    """Wait for the condition; returns its first true value, fails the test at the timeout."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise AssertionError(f"waited {timeout_s:g} s for {what}")
        time.sleep(every_s)
