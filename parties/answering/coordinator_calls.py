"""A party's calls to the coordinator, without wire messages, so that a simulation can implement them."""

from dataclasses import dataclass
from typing import Protocol

from wire.envelopes import Envelope
from wire.status import Work
from wire.upload import Chunk

MOST_CHALLENGES = 1000
"""The most challenges, and the most answers to one, that are looked at: more than a federation has parties."""


@dataclass(frozen=True)
class WorkBatch:
    """Result of one fetch: work in order, the cursor to pass next, and the number of entries that were not read."""

    work: tuple[Work, ...]
    cursor: int
    unreadable: int = 0
    challenges: tuple[Envelope, ...] = ()
    """Of other parties, not verified."""


class CoordinatorCalls(Protocol):
    """The calls of a party. Each may be repeated. Each raises WireError, ConnectionLostError or TimedOutError."""

    def fetch_roster(self) -> tuple[Envelope, float]:
        """The newest roster, unverified, and the coordinator's clock in Unix seconds."""
        ...

    def state_features(self, features: Envelope) -> None:
        """Send the signed statement of this node's features."""
        ...

    def ask_witnesses(self, challenge: Envelope) -> None:
        """Send a signed challenge to the other parties."""
        ...

    def witness(self, witness: Envelope) -> None:
        """Answer another party's challenge."""
        ...

    def fetch_witnesses(self, nonce: bytes) -> tuple[tuple[Envelope, ...], Envelope | None]:
        """The unverified answers to this party's challenge so far, and its newest statement at the coordinator."""
        ...

    def fetch_work(self, cursor: int, wait_s: int) -> WorkBatch:
        """Changes since the cursor. Waits up to wait_s if there are none. Tries once."""
        ...

    def answer(self, answer: Envelope, *, accepts: bool) -> None:
        """Send a signed acceptance or refusal."""
        ...

    def pending(self, pending: Envelope) -> None:
        """Say that a person has to decide first. Only for a query with the feature of decisions."""
        ...

    def ready(self, ready: Envelope) -> None:
        """Report that the contribution is spooled."""
        ...

    def upload_chunk(self, query_id: bytes, attempt: int, chunk: Chunk) -> None:
        """Send one chunk. After the return it is on the coordinator's disk."""
        ...

    def receipt(self, receipt: Envelope) -> None:
        """Complete the upload."""
        ...
