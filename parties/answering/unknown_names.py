"""Names that members show of this party's acceptances, and that its ledger does not know.

A ledger that was set back and went on lacks them. Names are not signed and prove nothing: the party asks for the
acceptances, one at a time. Until a member has answered about each of its names, its answers confirm nothing. A member
that makes up names thus causes a bounded number of questions.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable

MOST_QUESTIONS_A_DAY = 16
"""Beside those that the party asks anyway."""
# More than one answer has. A member that shows ever other names does not count in any case.
_MOST_KEPT = 1000
_DAY_S = 86_400.0


class UnknownNames:
    """The names of each member that it has not been asked about, or has not answered. For one thread.

    unknown: those of some names that the ledger does not know. clock: monotonic seconds.
    """

    def __init__(self, unknown: Callable[[Iterable[bytes]], frozenset[bytes]], clock: Callable[[], float]) -> None:
        self._unknown, self._clock = unknown, clock
        self._open: dict[str, frozenset[bytes]] = {}
        # Those that a member still shows after it answered about them.
        self._answered: dict[str, frozenset[bytes]] = {}
        self._asked_about: Counter[str] = Counter()
        self._questions: deque[float] = deque(maxlen=MOST_QUESTIONS_A_DAY)

    def take(self, member: str, shown: Iterable[bytes], asked: bytes | None) -> frozenset[bytes]:
        """What remains open of a member after its answer. asked: the name that the question was about.

        A name stays open, also if the member does not show it any more, until it answers a question about it.
        """
        found = self._unknown(shown)
        now_answered = frozenset() if asked is None else frozenset({asked})
        answered = (self._answered.get(member, frozenset()) | now_answered) & found
        left = self._open.get(member, frozenset()) - now_answered
        if len(left) < _MOST_KEPT:
            left |= found - answered
        self._open[member], self._answered[member] = left, answered
        return left

    def of(self, members: Iterable[str]) -> frozenset[bytes]:
        """All that are open of these members."""
        return frozenset[bytes]().union(*(self._open.get(member, frozenset()) for member in members))

    def may_ask(self, members: Iterable[str]) -> bool:
        """Whether a question is due for the names of these members alone."""
        is_bounded = len(self._questions) < MOST_QUESTIONS_A_DAY or self._clock() - self._questions[0] >= _DAY_S
        return is_bounded and bool(self.of(members))

    def choose(self, members: Iterable[str]) -> bytes | None:
        """The name to ask about next: of the member whose names were asked about least. None if none is open."""
        waiting = [member for member in members if self._open.get(member)]
        if not waiting:
            return None
        member = min(waiting, key=lambda name: (self._asked_about[name], name))
        self._asked_about[member] += 1
        self._questions.append(self._clock())
        return min(self._open[member])
