"""Meaning of a failure for the party: whether to retry it, and what a log may say about it."""

from dpcore.errors import RadofedError
from dpcore.paillier.masks import MaskKeyError
from parties.answering.spool import SpoolLostError, SpoolUnreadableError
from parties.database import LedgerBusyError, LedgerFileError
from parties.history.database import HistoryBusyError, HistoryFileError
from parties.ledger.ledger import LedgerConflictError
from wire.errors import CATALOGUE, Code, ConnectionLostError, TimedOutError, WireError

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
