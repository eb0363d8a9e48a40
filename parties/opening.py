"""Opens the files that a party's node keeps over restarts, and says in its log what an operator should know."""

from collections.abc import Callable

from parties.config import PartyConfig
from parties.database import LedgerOwner
from parties.history.database import FILE as HISTORY_FILE
from parties.history.database import HistoryDatabase
from parties.history.history import History, What
from parties.ledger.ledger import Ledger
from parties.policy import Policy
from radobase.logs import Log


def open_ledger(config: PartyConfig, policy: Policy, log: Log, *, has_run: bool) -> Ledger:
    """Open or create the ledger. has_run: whether this party has run before. Raises LedgerFileError."""
    owner = LedgerOwner(config.federation, config.name, config.source)
    ledger = Ledger.open(config.ledger_file, owner, policy.limits.of_ledger)
    if ledger.database.created and has_run:
        # An operator who lost a ledger must notice now, not later.
        log.warning("new ledger created", ledger=config.ledger_file, source=config.source)
    return ledger


def open_history(config: PartyConfig, ledger: Ledger, log: Log, on_noted: Callable[[What], None]) -> History:
    """Open or create the history, and add what only the ledger knows. Raises HistoryFileError."""
    file = config.state_directory / HISTORY_FILE
    history = History(HistoryDatabase(file, federation=config.federation, party=config.name), on_noted)
    try:
        if added := history.complete(ledger.charged_queries()):
            log.info("history completed", queries=added)
    except BaseException:
        history.database.close()
        raise
    return history
