"""Refusals that this party signed lately: a coordinator that shows a query again gets the same bytes again.

Without this, every time that it shows a refused query would cost a decision, a signature and a write. Kept in memory:
after a restart the party decides again, once.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from parties.answering.decisions import Party
from wire.cohort import Refusal
from wire.envelopes import Envelope
from wire.errors import Code
from wire.status import PartyState, Work

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


# Attempts that this party accepted and gave up: it refuses them, so that the others need not wait for it.
#
# A party refuses with the message that it also answers with.


_COUNTED_ON = (PartyState.ACCEPTED, PartyState.READY, PartyState.UPLOADING)
"""What the coordinator says of a party whose contribution it waits for."""
"""Attempts that are kept; a party has accepted each. Of an older one it may refuse again."""


class Withdrawals:
    """What this process gave up, and what the coordinator knows of it. Kept in memory: the disk may be what failed."""

    def __init__(self, party: str) -> None:
        self._party = party
        self._codes: dict[tuple[bytes, int], Code] = {}
        # Only the keys matter: a dictionary keeps the order.
        self._arrived: dict[tuple[bytes, int], None] = {}

    def add(self, query_id: bytes, attempt: int, code: Code) -> None:
        """Give an attempt up. code: why."""
        self._codes[query_id, attempt] = code
        for oldest in list(self._codes)[:-MOST_KEPT]:
            self.forget(*oldest)

    def has(self, query_id: bytes, attempt: int) -> bool:
        """Whether this process gave the attempt up."""
        return (query_id, attempt) in self._codes

    def due(self, work: Work, *, delivered: bool) -> Refusal | None:
        """The refusal of an attempt that is over at this party, if the coordinator waits for the party.

        delivered: whether this process delivered the acceptance, so that the coordinator may know more than `work`
        says. A party that was restarted no longer knows why it gave up, and says UNAVAILABLE.
        """
        key = (work.query_id, work.attempt)
        is_counted_on = work.state in _COUNTED_ON or (delivered and work.state.awaits_answer)
        if not is_counted_on or key in self._arrived:
            return None
        return Refusal(*key, self._party, self._codes.get(key, Code.UNAVAILABLE))

    def arrived(self, work: Work) -> None:
        """The coordinator took the refusal, or will never take it."""
        self._arrived[work.query_id, work.attempt] = None
        for oldest in list(self._arrived)[:-MOST_KEPT]:
            self.forget(*oldest)

    def queries(self) -> set[bytes]:
        """The queries of the attempts that are kept here."""
        return {query_id for query_id, _ in {*self._codes, *self._arrived}}

    def forget(self, query_id: bytes, attempt: int) -> None:
        """Discard an attempt that ended at the coordinator."""
        self._codes.pop((query_id, attempt), None)
        self._arrived.pop((query_id, attempt), None)

    def discard(self, query_ids: AbstractSet[bytes]) -> None:
        """Discard all attempts at these queries."""
        for key in {*self._codes, *self._arrived}:
            if key[0] in query_ids:
                self.forget(*key)
