"""Check of the data that the running node holds: whether they are those of the configured schema and table."""

from typing import Any

from dpcore.records.computation import PartySecret
from parties.checks.run import Run
from parties.secret import FILE as SECRET_FILE
from parties.secret import load
from radofed.common.local_status import NotRunningError, read_status
from radofed.common.printing import DIGEST_DIGITS, local_time

_RELOAD = "The node answers from other rows, or through another schema, than the files have: run `rado party reload`."


def check_held_data(run: Run) -> None:
    """Say what the running node holds. Changes nothing."""
    run.step("held-data", lambda: _held_data(run))


def _held_data(run: Run) -> None:
    try:
        held: dict[str, Any] = read_status(run.config.state_directory)["data"]
    except NotRunningError:
        run.add("held-data", "no node runs; it reads the data when it starts")
        return
    digest, loaded = held["digest"], local_time(held["loaded_at_unix_s"])
    words = f"the node holds {held['rows']} rows, loaded {loaded}, digest {digest[:DIGEST_DIGITS]}"
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
