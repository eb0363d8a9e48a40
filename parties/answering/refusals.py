"""Refusals that this party signed lately: a coordinator that shows a query again gets the same bytes again.

Without this, every time that it shows a refused query would cost a decision, a signature and a write. Kept in memory:
after a restart the party decides again, once.
"""

from dataclasses import dataclass
from typing import Final

from parties.answering.decisions import Party
from wire.envelopes import Envelope
from wire.status import Work

MOST_KEPT: Final = 1024
"""The newest refusals are kept, about 400 bytes each."""


@dataclass(frozen=True)
class _Sent:
    """A signed refusal."""

    party: Party
    """As it was when it refused; with another policy or other rows it decides again."""
    refusal: Envelope


class SentRefusals:
    """The newest signed refusals, by query and attempt. Threads share it: each operation is one of the dictionary."""

    def __init__(self) -> None:
        self._sent: dict[tuple[bytes, int], _Sent] = {}

    def add(self, work: Work, party: Party, refusal: Envelope) -> None:
        """Keep a refusal. Discards the oldest if there are more than MOST_KEPT."""
        self._sent[work.query_id, work.attempt] = _Sent(party, refusal)
        for oldest in list(self._sent)[:-MOST_KEPT]:
            self._sent.pop(oldest, None)

    def of(self, work: Work, party: Party) -> Envelope | None:
        """The refusal of the same attempt by the party as it is now, or None."""
        sent = self._sent.get((work.query_id, work.attempt))
        return sent.refusal if sent is not None and sent.party is party else None
