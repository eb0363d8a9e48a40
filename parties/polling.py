"""How often a party polls: a coordinator cannot keep its processor or its log busy.

An honest coordinator answers a long poll when something changes, so a few answers come quickly, one after another, and
then a party waits. The pauses here are for a coordinator that never lets it wait.

A learner may ask many short queries, one after another, and each answers several polls. So a charge pays for the polls
of its attempt: the ledger limits the number of charges, and none is returned.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from wire.status import Phase

POLLS_AT_ONCE: Final = 20
"""Polls without a pause: more than an honest coordinator answers at once, also after a restart."""
POLLS_PER_ATTEMPT: Final = len(Phase)
"""Polls without a pause that a charge adds: an honest coordinator answers one for each phase of its attempt."""
POLL_EVERY_S: Final = 0.5
"""A party polls this often, over a long time, if the coordinator answers at once."""
BUSY_AT_ONCE_S: Final = 5.0
"""Processor time without a pause: of polls, what they answered, and steps of queries."""
BUSY_PER_ATTEMPT_S: Final = 1.0
"""Processor time without a pause that a charge adds."""
BUSY_SHARE: Final = 0.04
"""The share of one processor that polls and steps of queries may take over a long time, without charges."""
LONGEST_BUSY_PAUSE_S: Final = 30.0
"""Queries of other learners do not wait longer for the next poll, whatever one costs."""
FIRST_JUNK_PAUSE_S: Final = 0.5
LONGEST_JUNK_PAUSE_S: Final = 8.0


class PollingPace:
    """The pauses between polls. Use it from one thread, except for `charged` and `worked`.

    Polls and processor time are paid from allowances. They grow with time up to POLLS_AT_ONCE and BUSY_AT_ONCE_S, and
    with each charge. Answers with junk are followed by pauses that double, up to LONGEST_JUNK_PAUSE_S.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: monotonic seconds."""
        self._clock = clock
        self._polls, self._busy_s, self._counted_at = float(POLLS_AT_ONCE), BUSY_AT_ONCE_S, clock()
        self._junk_pauses = _doubling()
        self._lock, self._charges, self._worked_s = threading.Lock(), 0, 0.0

    def charged(self) -> None:
        """Count a charge. Call it from any thread."""
        with self._lock:
            self._charges += 1

    def worked(self, seconds: float) -> None:
        """Count processor time that a step of a query took. Call it from any thread."""
        with self._lock:
            self._worked_s += seconds

    def pause_s(self, *, handling_s: float, is_junk: bool) -> float:
        """Seconds until the next poll may start.

        handling_s: processor time that the last poll and its answer took. is_junk: whether an entry of the answer could
        not be read, or was signed by no member.
        """
        now = self._clock()
        with self._lock:
            charges, self._charges = self._charges, 0
            worked_s, self._worked_s = self._worked_s, 0.0
        passed_s, self._counted_at = now - self._counted_at, now
        gained = passed_s / POLL_EVERY_S + charges * POLLS_PER_ATTEMPT
        gained_s = passed_s * BUSY_SHARE + charges * BUSY_PER_ATTEMPT_S
        self._polls = min(float(POLLS_AT_ONCE), self._polls + gained) - 1
        left_s = min(BUSY_AT_ONCE_S, self._busy_s + gained_s) - handling_s - worked_s
        self._busy_s = max(left_s, -LONGEST_BUSY_PAUSE_S * BUSY_SHARE)
        pause_s = max(0.0, -self._polls * POLL_EVERY_S, -self._busy_s / BUSY_SHARE)
        if not is_junk:
            self._junk_pauses = _doubling()
            return pause_s
        return max(pause_s, next(self._junk_pauses))


def _doubling() -> Iterator[float]:
    pause_s = FIRST_JUNK_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_JUNK_PAUSE_S)
