"""Checks of the running node: whether it is ready, and whether it holds what the files have."""

import importlib.util
import os
import socket
from pathlib import Path
from typing import Any

from dpcore.records.computation import PartySecret
from parties.checks.findings import CheckFailedError, Run
from parties.config import PartyConfig, settings_of
from parties.data.row_guard import ADVICE, RowCounts, faults, load_known
from parties.state_directory import FILE as SECRET_FILE
from parties.state_directory import load
from radobase.failure import in_words
from radobase.local_status import NotRunningError, UnreadableStateError, read_status
from radobase.printing import DIGEST_DIGITS, amount, local_time
from radobase.watching.readiness import Reason, WatchSettings, reason_lines
from radobase.watching.server import Health, ask_ready

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


# Check of the section `[watch]`: whether the running node answers there, or a node that starts could serve there.


LOADING = Reason.DATA_NOT_LOADED.value
"""A node that loads its data says so at its place in [watch], and has no other socket yet."""
_WATCH_RESTART = "Restart the node: it reads [watch] when it starts. Its log says if it could not serve there."


def check_watch(run: Run) -> None:
    """Check the section if the configuration has one. Changes nothing, and leaves nothing open."""
    settings = run.config.watch
    if settings is not None:
        run.step("watch", lambda: _watch(run, settings))


def _watch(run: Run, settings: WatchSettings) -> None:
    if importlib.util.find_spec("prometheus_client") is None:
        raise CheckFailedError(
            "[watch] needs prometheus_client, which is not installed", "python deploy/install.py metrics"
        )
    found, is_running = _ask(settings), _is_running(run.config)
    if found is not None and (is_running or LOADING in {code for code, _ in found.reasons}):
        reasons = "; ".join(f"{code}: {sentence}" for code, sentence in found.reasons)
        state = f"the node answers at {settings.words}, and is"
        run.add("watch", f"{state} not ready: {reasons}" if reasons else f"{state} ready")
    elif is_running:
        raise CheckFailedError(f"the node runs, and does not answer at {settings.words}", _WATCH_RESTART)
    elif found is not None:
        raise CheckFailedError(
            f"the node does not run, and another node answers at {settings.words}", "Give each node its own place."
        )
    else:
        _check_free(settings)
        run.add("watch", f"the node does not run; {settings.words} is free for it")


def _ask(settings: WatchSettings) -> Health | None:
    try:
        return ask_ready(settings)
    except NotRunningError:
        return None


def _is_running(config: PartyConfig) -> bool:
    """Whether this party's node runs and has loaded its data."""
    try:
        read_status(config.state_directory)
    except NotRunningError:
        return False
    return True


def _check_free(settings: WatchSettings) -> None:
    match settings.place:
        case Path() as path:
            _check_socket(path)
        case host, port:
            _check_address(host, port, settings.words)


def _check_address(host: str, port: int, words: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        # As the node's server does: an address whose last connections are still closing is free.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            raise CheckFailedError(
                f"the node does not run, and cannot serve metrics on {words} ({in_words(error)})",
                "Choose a free port, or stop the program that uses this one: each node needs its own.",
            ) from error


def _check_socket(path: Path) -> None:
    directory = path.parent
    if not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK):
        raise CheckFailedError(
            f"{directory} is no directory that this user may write to, so the node cannot serve metrics on {path}",
            "Make the directory, or choose another place.",
        )
    # A socket on which no one answers was left by a node that was killed: the next one replaces it.
    if path.exists() and not path.is_socket():
        raise CheckFailedError(f"{path} is there, and is no socket", "Move it away, or choose another name.")
