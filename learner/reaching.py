"""A learner's calls, which say when the coordinator is out of reach, and when it is not any more."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from radobase.logs import Log
from wire.errors import WireError
from wire.transport import Caller

Note = Callable[[str], None]
Response = TypeVar("Response")
warn: Note = Log("learner").warning
TRYING_AFTER_S = 2.0
"""A coordinator that has not been reached for this long is worth a sentence."""


class NotingCaller:
    """A `Caller` with notes. A call that waits for an answer of a coordinator that answered before is not noted.

    note: receives the sentences, also from another thread. Several threads may call.
    """

    def __init__(self, target: str, give_up_after_s: float, note: Note) -> None:
        self._caller = Caller(target, give_up_after_s=give_up_after_s, retrying=self._retrying)
        self._trying = f"trying to reach the coordinator at {target}, for at most {give_up_after_s:g} s"
        self._note, self._lock = note, threading.Lock()
        self._was_reached = self._said = False

    def __call__(self, method: Callable[..., Response], request: Any, **options: float) -> Response:
        """See `Caller`."""
        # The first attempt may take many seconds to fail, and nothing else tells it from one that waits for an answer.
        timer = None if self._was_reached else threading.Timer(TRYING_AFTER_S, self._never_reached)
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            response = self._caller(method, request, **options)
        except WireError:
            self._reached()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        self._reached()
        return response

    def _never_reached(self) -> None:
        with self._lock:
            if not self._was_reached:
                self._say()

    def _retrying(self, failing_s: float) -> None:
        with self._lock:
            if failing_s >= TRYING_AFTER_S:
                self._say()

    def _say(self) -> None:
        if not self._said:
            self._said = True
            self._note(self._trying)

    def _reached(self) -> None:
        with self._lock:
            self._was_reached = True
            if self._said:
                self._said = False
                self._note("connected to the coordinator")
