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
IDLE_PER_BUSY: Final = 4.0
"""After the first POLLS_AT_ONCE a poll is followed by a pause of this many times the processor time that it took."""
FIRST_UNREADABLE_PAUSE_S: Final = 0.5
LONGEST_UNREADABLE_PAUSE_S: Final = 8.0


class PollingPace:
    """The pauses between polls. Use it from one thread, except for `charged`.

    Polls are paid from an allowance of at most POLLS_AT_ONCE. It grows by one every POLL_EVERY_S, and by
    POLLS_PER_ATTEMPT with each charge. Answers with entries that cannot be read are followed by pauses that double, up
    to LONGEST_UNREADABLE_PAUSE_S.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: monotonic seconds."""
        self._clock = clock
        self._allowance, self._counted_at = float(POLLS_AT_ONCE), clock()
        self._unreadable_pauses = _doubling()
        self._lock, self._earned = threading.Lock(), 0

    def charged(self) -> None:
        """Count a charge. Call it from any thread."""
        with self._lock:
            self._earned += POLLS_PER_ATTEMPT

    def pause_s(self, *, handling_s: float, is_unreadable: bool) -> float:
        """Seconds until the next poll may start.

        handling_s: processor time that the last poll and its answer took. is_unreadable: whether an entry of the answer
        could not be read.
        """
        now = self._clock()
        with self._lock:
            earned, self._earned = self._earned, 0
        gained = (now - self._counted_at) / POLL_EVERY_S + earned
        self._allowance, self._counted_at = min(float(POLLS_AT_ONCE), self._allowance + gained) - 1, now
        pause_s = 0.0
        if self._allowance < 0:
            pause_s = max(-self._allowance * POLL_EVERY_S, IDLE_PER_BUSY * handling_s)
        if not is_unreadable:
            self._unreadable_pauses = _doubling()
            return pause_s
        return max(pause_s, next(self._unreadable_pauses))


def _doubling() -> Iterator[float]:
    pause_s = FIRST_UNREADABLE_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_UNREADABLE_PAUSE_S)
