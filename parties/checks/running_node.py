"""Checks of the running node: whether it is ready, and whether it holds what the files have."""

from typing import Any

from dpcore.records.computation import PartySecret
from parties.checks.run import CheckFailedError, Run
from parties.config import settings_of
from parties.data.row_guard import ADVICE, RowCounts, faults, load_known
from parties.secret import FILE as SECRET_FILE
from parties.secret import load
from radobase.local_status import NotRunningError, UnreadableStateError, read_status
from radobase.printing import DIGEST_DIGITS, amount, local_time
from radobase.watching.readiness import Reason, reason_lines

_RELOAD = "The node answers from other rows, or through another schema, than the files have: run `rado party reload`."


_NOT_READY = "Until then it answers no query; docs/runbooks/RadoNotReady.md says what to do for each reason."
_RESTART = "Restart the node: it reads its configuration when it starts."
_OTHER_POLICY = "The node follows another policy than the file has: run `rado party reload`."


def check_running_node(run: Run) -> None:
    """Say whether the node is ready and what it holds. Changes nothing."""
    run.step("row-limits", lambda: _row_limits(run), needs=("policy", "data"))
    run.step("node", lambda: _node(run))
    run.step("held-data", lambda: _held_data(run))


def _row_limits(run: Run) -> None:
    """As the node decides when it loads the files."""
    counts = RowCounts.of(run.report)
    found = faults(counts, load_known(run.config.state_directory), run.policy.data)
    if found:
        raise CheckFailedError("; ".join(found.values()), f"{ADVICE[0].upper()}{ADVICE[1:]}.")
    run.add("row-limits", f"{counts.usable} of {counts.rows} rows are usable, as the policy wants")


def _node(run: Run) -> None:
    try:
        found = read_status(run.config.state_directory)
    except UnreadableStateError as error:
        raise CheckFailedError(str(error), "Read the node's log.") from error
    except NotRunningError:
        run.add("node", "no node runs")
        return
    settings = found.get("configuration")
    if settings is not None and (other := _differences(run, settings)):
        words = f"process {found['pid']} runs with another {', '.join(other)} than the file has"
        raise CheckFailedError(words, _RESTART)
    if found["not_ready"] == [Reason.WAITING_FOR_WITNESSES.value]:
        # Nothing to correct here: it ends when the others run.
        run.add("node", f"process {found['pid']} runs, and {Reason.WAITING_FOR_WITNESSES.sentence}", _NOT_READY)
        return
    if found["not_ready"]:
        reasons = "; ".join([*reason_lines(found["not_ready"]), *found.get("rows_not_accepted", {}).values()])
        raise CheckFailedError(f"process {found['pid']} runs and is not ready: {reasons}", _NOT_READY)
    words = f"process {found['pid']} runs and is ready"
    digest = found["policy"].get("digest")
    if digest is None or not hasattr(run, "policy"):
        run.add("node", words)
    elif digest != run.policy.digest:
        run.add("node", f"{words}, with policy {digest[:DIGEST_DIGITS]}; the file has "
                f"{run.policy.digest[:DIGEST_DIGITS]}", _OTHER_POLICY)  # fmt: skip
    else:
        run.add("node", f"{words}, with this configuration and this policy, digest {digest[:DIGEST_DIGITS]}")


def _differences(run: Run, running: dict[str, Any]) -> list[str]:
    """The settings in which the running node differs from the file."""
    present = settings_of(run.config)
    return sorted(name for name in {*present, *running} if present.get(name) != running.get(name))


def _held_data(run: Run) -> None:
    try:
        held: dict[str, Any] = read_status(run.config.state_directory)["data"]
    except NotRunningError:
        run.add("held-data", "no node runs; it reads the data when it starts")
        return
    digest, loaded = held["digest"], local_time(held["loaded_at_unix_s"])
    words = f"the node holds {amount(held['rows'], 'row')}, loaded {loaded}, digest {digest[:DIGEST_DIGITS]}"
    if run.rows_digest is None:
        run.add("held-data", f"{words}; the files could not be compared with them")
        return
    secret = load(run.config.state_directory / SECRET_FILE)
    present = PartySecret(secret, run.schema.digest).data_digest(run.rows_digest)
    if present == digest:
        run.add("held-data", f"{words}: those of the files")
        return
    refused = f" The last reload failed: {held['refused']}" if held["refused"] else ""
    run.add("held-data", f"{words}; the files have digest {present[:DIGEST_DIGITS]}", f"{_RELOAD}{refused}")
