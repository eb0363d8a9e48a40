"""A party's calls to the coordinator, without wire messages, so that a simulation can implement them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dpcore.errors import RadofedError
from dpcore.paillier.masks import MaskKeyError
from parties.answering.spool import SpoolLostError, SpoolUnreadableError
from parties.database import LedgerBusyError, LedgerFileError
from parties.history.database import HistoryBusyError, HistoryFileError
from parties.ledger.ledger import LedgerConflictError
from wire.envelopes import Envelope
from wire.errors import CATALOGUE, Code, ConnectionLostError, TimedOutError, WireError
from wire.statements import Chunk
from wire.status import Work

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
    was_ended: bool = False
    """Whether this party ended the poll itself, so that no answer came."""


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

    def witness(self, witnesses: Sequence[Envelope]) -> None:
        """Answer other parties' challenges: one, or up to MOST_WITNESSES."""
        ...

    def fetch_witnesses(self, nonce: bytes, known: int) -> tuple[tuple[Envelope, ...], Envelope | None]:
        """The unverified answers to this party's challenge so far, and its newest statement at the coordinator.

        known: how many of the answers, in the order in which they arrived, are not wanted again.
        """
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

    def ready(self, ready: Envelope, key_shares: Envelope | None = None) -> None:
        """Report that the contribution is spooled, and deal shares of keys if members may vanish."""
        ...

    def upload_chunk(self, query_id: bytes, attempt: int, chunk: Chunk, receipt: Envelope | None = None) -> bool:
        """Send one chunk. After the return it is on the coordinator's disk.

        receipt: with the last chunk, to complete the upload. Returns whether it was taken: an older coordinator takes
        none with a chunk.
        """
        ...

    def receipt(self, receipt: Envelope) -> None:
        """Complete the upload."""
        ...

    def unmask(self, unmasking: Envelope) -> None:
        """Reveal shares of keys for the total of the survivors."""
        ...


# Meaning of a failure for the party: whether to retry it, and what a log may say about it.


_SAFE_TO_QUOTE = (
    LedgerConflictError,
    LedgerBusyError,
    LedgerFileError,
    HistoryBusyError,
    HistoryFileError,
    SpoolLostError,
    MaskKeyError,
)


class StoppedError(RadofedError):
    """Work stopped because it is no longer wanted or the node is stopping. The state on disk is consistent."""


def may_pass(error: RadofedError) -> bool:
    """Whether the failed operation may succeed later without intervention."""
    if isinstance(error, WireError):
        return CATALOGUE[error.code].retry
    temporary = ConnectionLostError | TimedOutError | LedgerBusyError | HistoryBusyError | SpoolUnreadableError
    return isinstance(error, temporary)


def named(error: Exception) -> dict[str, str]:
    """Log fields of an error. For an error that may quote data, only its type and place."""
    if isinstance(error, WireError):
        return {"code": error.code.value, "detail": error.detail}
    if isinstance(error, _SAFE_TO_QUOTE):
        return {"error": type(error).__name__, "detail": str(error)}
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f"{trace.tb_frame.f_code.co_qualname}, line {trace.tb_lineno}"
    return {"error": type(error).__name__, "place": place}


def as_refusal(error: Exception) -> tuple[Code, str]:
    """Code and detail of an error for which the party does not contribute. The detail never quotes data."""
    if isinstance(error, WireError):
        return error.code, error.detail
    fields = named(error)
    return Code.UNAVAILABLE, fields.get("detail", fields["error"])
