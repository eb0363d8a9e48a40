"""What a failure means to the party: may it pass by itself, and what may a log say of it."""

from dpcore.errors import RadofedError
from dpcore.paillier.masks import MaskKeyError
from parties.answering.spool import SpoolLostError
from parties.database import LedgerBusyError, LedgerFileError
from parties.ledger.ledger import LedgerConflictError
from wire.errors import CATALOGUE, ConnectionLostError, TimedOutError, WireError


class StoppedError(RadofedError):
    """Work was given up because it is no longer wanted or the node is stopping. What is on disk is right."""


def may_pass(error: RadofedError) -> bool:
    """Whether what failed may succeed later by itself."""
    if isinstance(error, WireError):
        return CATALOGUE[error.code].retry
    return isinstance(error, ConnectionLostError | TimedOutError | LedgerBusyError)


def named(error: Exception) -> dict[str, str]:
    """What a log says of an error: of those that may speak of the data no more than where they arose."""
    if isinstance(error, WireError):
        return {"code": error.code.value, "detail": error.detail}
    if isinstance(error, LedgerConflictError | LedgerBusyError | LedgerFileError | SpoolLostError | MaskKeyError):
        return {"error": type(error).__name__, "detail": str(error)}
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f"{trace.tb_frame.f_code.co_qualname}, line {trace.tb_lineno}"
    return {"error": type(error).__name__, "place": place}
