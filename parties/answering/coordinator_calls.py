"""What a party exchanges with the coordinator, without the wire's messages: a simulation can stand in for it."""

from dataclasses import dataclass
from typing import Protocol

from wire.envelopes import Envelope
from wire.status import Work
from wire.upload import Chunk


@dataclass(frozen=True)
class WorkBatch:
    """What one fetch brought: work in order, the cursor to pass next, and how many entries could not be read."""

    work: tuple[Work, ...]
    cursor: int
    unreadable: int = 0


class CoordinatorCalls(Protocol):
    """The calls of a party. Each may be repeated. Each raises WireError, ConnectionLostError or TimedOutError."""

    def fetch_roster(self) -> tuple[Envelope, float]:
        """The newest roster, unverified, and the coordinator's clock in Unix seconds."""
        ...

    def fetch_work(self, cursor: int, wait_s: int) -> WorkBatch:
        """What changed since the cursor; waits up to wait_s where nothing did. Tries once."""
        ...

    def answer(self, answer: Envelope, *, accepts: bool) -> None:
        """Give a signed acceptance or refusal."""
        ...

    def ready(self, ready: Envelope) -> None:
        """Say that the contribution is spooled."""
        ...

    def upload_chunk(self, query_id: bytes, attempt: int, chunk: Chunk) -> None:
        """Send one chunk; it is on the coordinator's disk once this has returned."""
        ...

    def receipt(self, receipt: Envelope) -> None:
        """End the upload."""
        ...
