"""A party that is paused answers, computes, charges and sends nothing until it is resumed."""

from dataclasses import dataclass

from parties.approval.decisions import LONGEST_TEXT, Person
from parties.history.database import HistoryDatabase
from parties.history.history import History


@dataclass(frozen=True)
class Pause:
    """A pause that lasts."""

    since_unix_s: float
    by: str
    """Who paused."""
    reason: str


class Pauses:
    """The pauses of one party, in its history."""

    def __init__(self, database: HistoryDatabase) -> None:
        self._database = database

    def present(self) -> Pause | None:
        """The pause that lasts, if there is one."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT paused_at_unix_s, paused_by, reason FROM pauses WHERE resumed_at_unix_s IS NULL"
            ).fetchone()
        return None if row is None else Pause(*row)

    def pause(self, person: Person, reason: str, now_unix_s: float) -> bool:
        """Pause the party, durably. Returns False if it was paused before."""
        with self._database.transaction() as connection:
            if self.present() is not None:
                return False
            row = (now_unix_s, str(person), reason[:LONGEST_TEXT])
            connection.execute("INSERT INTO pauses VALUES (?, ?, ?, NULL, NULL)", row)
            return True

    def resume(self, person: Person, now_unix_s: float) -> Pause | None:
        """End the pause, durably. Returns it; None if there was none."""
        with self._database.transaction() as connection:
            ended = self.present()
            connection.execute(
                "UPDATE pauses SET resumed_at_unix_s = ?, resumed_by = ? WHERE resumed_at_unix_s IS NULL",
                (now_unix_s, str(person)),
            )
            return ended

    def unanswered(self, pause: Pause) -> int:
        """How many queries came since the pause began, and were not answered yet or at all."""
        return History(self._database).count_unanswered(pause.since_unix_s)
