"""Check of the section `[watch]`: whether the running node answers there, or a node that starts could serve there."""

import importlib.util
import os
import socket
from pathlib import Path

from parties.checks.run import CheckFailedError, Run
from parties.config import PartyConfig
from radobase.files.faults import in_words
from radobase.local_status import NotRunningError, read_status
from radobase.watching.probe import Health, ask_ready
from radobase.watching.readiness import Reason
from radobase.watching.settings import WatchSettings

LOADING = Reason.DATA_NOT_LOADED.value
"""A node that loads its data says so at its place in [watch], and has no other socket yet."""
_RESTART = "Restart the node: it reads [watch] when it starts. Its log says if it could not serve there."


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
        raise CheckFailedError(f"the node runs, and does not answer at {settings.words}", _RESTART)
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
