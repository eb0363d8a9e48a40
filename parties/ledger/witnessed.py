"""What a ledger's file keeps about heads that travel: others' acceptances, own names, and evidence against itself."""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from parties.database import PartyDatabase
from wire.envelopes import Envelope
from wire.query import CLOCK_SKEW_S, Query
from wire.statements import MOST_IN_COHORTS, name_of

KEPT_FOR_S = 86_400
"""A party that has held a reservation since its start accepts no query so long after that lapsed (LedgerGuard)."""
FORGOTTEN_AFTER_S = 2 * 86_400
"""An attempt may be forgotten if its query had expired by every clock so long before a newer attempt's was made.

More than KEPT_FOR_S: a copy that has not asked about the older attempt has not accepted the newer one. And as long as
an answer counts (parties.answering.witnesses): a party that names of its attempts were shown to, and that got no answer
about them for so long, has not accepted the newer one either.
"""


@dataclass(frozen=True)
class Evidence:
    """A statement that this party signed, of entries that its ledger does not have."""

    statement: Envelope
    source: str
    """Who showed it."""


class Witnessed:
    """Others' acceptances in this party's cohorts, and at most one piece of evidence that this ledger was set back."""

    def __init__(self, database: PartyDatabase) -> None:
        self._database = database

    def remember(self, party: str, entries: int, acceptance: Envelope) -> None:
        """Keep a party's acceptance, unless one with as many entries or more under the same key is kept.

        acceptance: verified in a cohort. entries: of its ledger head.
        """
        with self._database.transaction() as connection:
            row = connection.execute("SELECT entries, acceptance FROM witnessed WHERE party = ?", (party,)).fetchone()
            if row is not None and Envelope.from_bytes(row[1]).key_id == acceptance.key_id and row[0] >= entries:
                return
            connection.execute(
                "INSERT OR REPLACE INTO witnessed VALUES (?, ?, ?)", (party, entries, acceptance.to_bytes())
            )

    def remember_in_cohort(self, party: str, entries: int, acceptance: Envelope, query: Query) -> None:
        """Keep that this party is in a cohort with an acceptance. The arguments are as of `remember`.

        Forgets those of queries that had expired long before this one was made (FORGOTTEN_AFTER_S).
        """
        with self._database.transaction() as connection:
            connection.execute(
                "DELETE FROM in_cohorts WHERE party = ? AND entries < ? AND not_after_unix_s < ?",
                (party, entries, query.created_at_unix_s - 2 * CLOCK_SKEW_S - FORGOTTEN_AFTER_S),
            )
            connection.execute(
                "INSERT OR IGNORE INTO in_cohorts VALUES (?, ?, ?, ?, ?)",
                (party, name_of(acceptance), entries, query.not_after_unix_s, acceptance.to_bytes()),
            )

    def in_cohorts(self, party: str) -> tuple[tuple[bytes, ...], int]:
        """What a witness shows of a party: names of the newest acceptances, and from how many entries it has all."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                "SELECT name, entries FROM in_cohorts WHERE party = ? ORDER BY entries DESC LIMIT ?",
                (party, MOST_IN_COHORTS + 1),
            ).fetchall()
        shown, hidden = rows[:MOST_IN_COHORTS], rows[MOST_IN_COHORTS:]
        return tuple(sorted(name for name, _ in shown)), hidden[0][1] + 1 if hidden else 0

    def newest(self, party: str) -> Envelope | None:
        """The kept acceptance of a party. Raises WireError if the file was damaged there."""
        with self._database.transaction() as connection:
            row = connection.execute("SELECT acceptance FROM witnessed WHERE party = ?", (party,)).fetchone()
        return None if row is None else Envelope.from_bytes(row[0])

    def named(self, party: str, name: bytes) -> Envelope | None:
        """A party's acceptance that it asks for by name. Raises WireError if the file was damaged there."""
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT acceptance FROM in_cohorts WHERE party = ? AND name = ?", (party, name)
            ).fetchone()
        return None if row is None or row[0] is None else Envelope.from_bytes(row[0])

    def know(self, names: Iterable[bytes]) -> None:
        """Keep names of this party's own acceptances, for as long as the ledger: others may show them at any time."""
        with self._database.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO known_names VALUES (?)", ((name,) for name in names))

    def unknown(self, names: Iterable[bytes]) -> frozenset[bytes]:
        """Those that are not names of this party's acceptances, as far as this ledger knows."""
        with self._database.transaction() as connection:
            return frozenset(
                name
                for name in names
                if connection.execute("SELECT 1 FROM known_names WHERE name = ?", (name,)).fetchone() is None
            )

    def evidence(self) -> Evidence | None:
        """The evidence that this ledger was set back, until it is acknowledged."""
        with self._database.transaction() as connection:
            row = connection.execute("SELECT statement, source FROM evidence").fetchone()
        return None if row is None else Evidence(Envelope.from_bytes(row[0]), row[1])

    def note_evidence(self, found: Evidence) -> None:
        """Keep evidence, in place of earlier evidence."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO evidence VALUES (1, ?, ?)", (found.statement.to_bytes(), found.source)
            )


# Names that members show of this party's acceptances, and that its ledger does not know.
#
# A ledger that was set back and went on lacks them. Names are not signed and prove nothing: the party asks for the
# acceptances, one at a time. Until a member has answered about each of its names, its answers confirm nothing. A
# member that makes up names thus causes a bounded number of questions.


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
