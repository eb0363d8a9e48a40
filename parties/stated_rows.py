"""Compares a party's rows with those that it stated when it joined (`rado provision request --rows`).

The statement is a lower bound, in the roster: learners plan the noise and guarantee errors with it. A table with many
times as many rows is planned for as if it were small, until it has answered once. One with fewer makes these figures
wrong, so the party's people should know.
"""

from radobase.logs import Log
from wire.roster import Role, Roster

FIX = (
    "Check that the table is whole. If it is, ask the operator for a roster that states fewer rows: a new request with "
    "--rows, and rado provision replace-key."
)


OUTDATED_FACTOR = 4
"""A statement is old once the table has more than this many times its rows."""
OUTDATED = (
    "Learners without an answer from this party plan with the stated number: too few rows make models simpler than "
    "they need be. Ask the operator for a roster that states the present number: a new request with --rows, and rado "
    "provision replace-key."
)


def stated_rows(roster: Roster, party: str) -> int | None:
    """How many rows the roster says that the party has at least; None if it says nothing."""
    member = roster.find(party, Role.PARTY)
    return None if member is None else member.rows_at_least


class StatedRows:
    """Warns in the node's log if it has fewer rows than stated, once for each such pair of numbers."""

    def __init__(self, party: str, log: Log) -> None:
        self._party, self._log = party, log
        self._warned: tuple[int, int] | None = None

    def look(self, roster: Roster | None, rows: int) -> None:
        """Compare the present rows with the newest roster, if one is known."""
        stated = None if roster is None else stated_rows(roster, self._party)
        if stated is None or rows >= stated or self._warned == (rows, stated):
            return
        self._warned = (rows, stated)
        self._log.warning("fewer rows than stated", rows=rows, stated=stated, reason=FIX)
