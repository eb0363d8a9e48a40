"""Checks of what a party stored: its ledger, its state directory, its refusals."""

import datetime as dt
import tempfile
from collections.abc import Sequence
from typing import Any, Final

from parties.checks.run import CheckFailedError, Run
from parties.database import LedgerOwner
from parties.history.database import FILE as HISTORY_FILE
from parties.history.database import HistoryDatabase
from parties.history.history import History, Refused
from parties.ledger.anchor import head_path
from parties.ledger.ledger import Ledger
from parties.ledger.witnessed import Witnessed
from radobase.files.faults import in_words
from radobase.local_status import NotRunningError, read_status
from radobase.printing import local_time
from wire.errors import CATALOGUE, Code

_UNVERIFIED_FIX: Final = (
    "Such queries get no answer, and their learner sees this party as silent. If the learner has joined or has another "
    "key, ask the operator whether the coordinator serves the newest roster; otherwise ask what the coordinator shows."
)
RECENT_REFUSALS_S: Final = 7 * 86_400.0


def check_state(run: Run) -> None:
    """All of these, in order."""
    run.step("ledger", lambda: _ledger(run), needs=("policy",))
    run.step("state-directory", lambda: _state_directory(run))
    run.step("refusals", lambda: _refusals(run))
    run.step("unverified", lambda: _unverified(run))


def _ledger(run: Run) -> None:
    config, limits = run.config, run.policy.limits.of_ledger
    path = config.ledger_file
    if not path.exists() and head_path(path).exists():
        raise CheckFailedError(
            f"{path} is missing, and its head is there",
            "Put the newest ledger back, or the data officer runs `rado ledger acknowledge`.",
        )
    if not path.exists():
        run.add("ledger", f"{path} is created when the party first starts; limit {limits}")
        return
    owner = LedgerOwner(config.federation, config.name, config.source)
    ledger = Ledger.open(path, owner, limits, create=False)
    try:
        state = ledger.state(run.time())
        evidence = Witnessed(ledger.database).evidence()
        cause = (ledger.database.chain_faults() or [ledger.database.set_back()])[0]
    finally:
        ledger.database.close()
    if evidence is not None:
        cause = f"{evidence.source} showed an entry that this party signed and that its ledger does not have"
    if cause:
        raise CheckFailedError(
            f"this ledger was damaged or set back: {cause}. The party answers no query",
            "Keep the ledger and its .head file. The data officer runs `rado ledger acknowledge`.",
        )
    run.add("ledger", "; ".join(state.figures()), state.warning)


def _state_directory(run: Run) -> None:
    directory = run.config.state_directory
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        sentence = f"{directory}: cannot be written ({in_words(error)})"
        raise CheckFailedError(sentence, "Follow the message above, then check again.") from error
    run.add("state-directory", f"{directory} is writable")


def _refusals(run: Run) -> None:
    since = run.time() - RECENT_REFUSALS_S
    same: dict[tuple[Code, str], list[Refused]] = {}
    for refused in reversed(_kept_refusals(run)):
        if refused.at_unix_s >= since:
            same.setdefault((refused.code, refused.detail), []).append(refused)
    words = [_refusal_words(group) for group in same.values()]
    fixes = dict.fromkeys(fix_for(code) for code, _ in same)
    run.add("refusals", " | ".join(words) or "none in the last 7 days", " ".join(fixes))


def _unverified(run: Run) -> None:
    """What the running node was shown that no member signed: it answers none of it, so no one else says so."""
    try:
        shown: dict[str, Any] = read_status(run.config.state_directory)["unverified"]
    except NotRunningError:
        run.add("unverified", "no node runs; it counts what it is shown and cannot verify while it runs")
        return
    entries: dict[str, int] = shown["entries"]
    if not entries:
        run.add("unverified", "all that the running node was shown verified")
        return
    words = ", ".join(f"{count} {code}" for code, count in entries.items())
    sentence = f"shown to the running node and not verified: {words}; last at {local_time(shown['last_unix_s'])}"
    run.add("unverified", sentence, _UNVERIFIED_FIX)


def _kept_refusals(run: Run) -> list[Refused]:
    config, path = run.config, run.config.state_directory / HISTORY_FILE
    if not path.exists():
        return []
    database = HistoryDatabase(path, federation=config.federation, party=config.name, create=False)
    try:
        return History(database).refusals()
    finally:
        database.close()


def _refusal_words(group: Sequence[Refused]) -> str:
    """Describe refusals that have one reason; newest first."""
    last = group[0]
    when = dt.datetime.fromtimestamp(last.at_unix_s, dt.UTC)
    times = f", {len(group)} times, last" if len(group) > 1 else ""
    return (
        f"{last.code.value}{times} at {when:%Y-%m-%d %H:%M:%S} UTC, query {last.query_id[:16]}: "
        f"{last.detail or CATALOGUE[last.code].sentence}"
    )


def fix_for(code: Code) -> str:
    """What a party that refused with this code can do."""
    match code:
        case Code.SCHEMA_MISMATCH:
            return "Agree with the learner on one schema file."
        case Code.COHORT_EXCLUDED | Code.ATTEMPT_MISMATCH:
            return "Ask the operator to check the coordinator: it differs from what this party answered."
        case Code.UNAVAILABLE:
            return "Read this party's log for the cause."
        case _ if code.value.startswith("POLICY_") or code is Code.BUDGET_EXCEEDED:
            return "The data officer decides whether to allow such queries."
        case _:
            return CATALOGUE[code].hint
