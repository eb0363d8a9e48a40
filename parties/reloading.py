"""Reads the policy and the data of a running party again. What cannot be read changes nothing; the status says why."""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dpcore.errors import ConfigurationError, RadofedError
from parties.answering.coordinator_calls import StoppedError
from parties.data.dataset import HeldData
from parties.policy import Policy
from radobase.local_status import read_status
from radobase.logs import Log
from radobase.tables.tables import RowsRead

STOPS_WITHIN_S = 5.0
MOST_STATED = 1000
"""The most changes of cells in a status: those that lost most."""
POLICY_SIGNAL, DATA_SIGNAL = signal.SIGHUP, signal.SIGUSR1
_LOOKS_EVERY_S = 0.1


@dataclass
class Reloads:
    """How many times something was asked for again, how many of these are over, and why the last one failed, if so."""

    asked: int = 0
    over: int = 0
    refused: str = ""

    def status(self) -> dict[str, Any]:
        """In JSON types."""
        return {"reloads_asked": self.asked, "reloads": self.over, "refused": self.refused}


class PolicyReloads:
    """Reads the policy's file again, at once."""

    def __init__(self, load: Callable[[], Policy], take: Callable[[Policy], None], log: Log) -> None:
        """take: makes the node follow a policy."""
        self._load, self._take, self._log = load, take, log
        self.reloads = Reloads()

    def ask(self) -> None:
        """Read the policy and follow it. If the file is invalid, the current policy stays. Never raises."""
        self.reloads.asked += 1
        self.reloads.refused = self._load_once()
        self.reloads.over += 1

    def _load_once(self) -> str:
        try:
            policy = self._load()
            said = {
                "designs": list(policy.designs),
                "learners": [learner.name for learner in policy.learners],
                "limits": str(policy.limits.of_ledger),
            }
        except RadofedError as error:
            self._log.error(
                "policy refused", reason=f"{error}; the current policy stays; reload again once it is corrected"
            )
            return str(error)
        except Exception as error:  # noqa: BLE001 - a policy must not end the node that reads it
            self._log.exception("policy refused", error=type(error).__name__, reason="the current policy stays")
            return f"{type(error).__name__}; see the log of the node"
        self._take(policy)
        self._log.info("policy reloaded", **said)
        return ""


class DataReloads:
    """Loads the data again in a thread of its own, one load at a time. A context manager.

    The node answers from the former rows until the new ones are loaded whole; both are in memory meanwhile.
    """

    def __init__(
        self, load: Callable[[RowsRead], HeldData], take: Callable[[HeldData], None], log: Log, held: HeldData
    ) -> None:
        """load: loads data, given what is to be called with the number of rows read so far. held: the present data.

        take: makes the node answer from other data.
        """
        self._load, self._take, self._log, self._held = load, take, log, held
        self._reloads, self._wake, self._stopping = Reloads(), threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name="load data", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        # A database that does not answer is not waited for: the thread ends with the process.
        self._thread.join(STOPS_WITHIN_S)

    def ask(self) -> None:
        """Load the data again: at once, or after the load that runs."""
        with self._wake:
            self._reloads.asked += 1
            self._wake.notify()

    def status(self) -> dict[str, Any]:
        """The present data and the reloads, in JSON types."""
        with self._wake:
            report = self._held.dataset.report
            return {
                "rows": report.rows,
                "zero_vectors": report.zero_vectors,
                "changes": [change.to_dict() for change in report.changes[:MOST_STATED]],
                "changes_in_all": len(report.changes),
                "digest": self._held.digest,
                "loaded_at_unix_s": self._held.loaded_unix_s,
                **self._reloads.status(),
            }

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._reloads.asked > self._reloads.over)
                if self._stopping:
                    return
                asked = self._reloads.asked
            refused = self._load_once()
            with self._wake:
                self._reloads.refused, self._reloads.over = refused, asked

    def _load_once(self) -> str:
        """Load and take the data. Returns why that failed, or an empty text."""
        try:
            found = self._load(self._check_wanted)
        except StoppedError as error:
            return str(error)
        except RadofedError as error:
            self._log.error("data not reloaded", reason=f"{error}; queries are answered from the rows loaded before")
            return str(error)
        except Exception as error:  # noqa: BLE001 - data that cannot be loaded must not end the node
            self._log.exception("data not reloaded", error=type(error).__name__)
            return f"{type(error).__name__}; see the log of the node"
        before = self._held
        if found.digest == before.digest:
            self._log.info("data unchanged", digest=found.digest)
            return ""
        self._take(found)
        with self._wake:
            self._held = found
        self._log.info("data reloaded", digest=found.digest, before=before.digest)
        return ""

    def _check_wanted(self, _rows: int) -> None:
        if self._stopping:
            raise StoppedError("the node stops")


def reload_node(directory: Path, within_s: float) -> dict[str, Any]:
    """Make the running node of a state directory read its policy and its data again.

    Returns its status after that, with `data_changed`.

    Raises:
        NotRunningError: no node answers.
        ConfigurationError: this user may not signal it.
        RadofedError: it has not loaded the data within this time.
    """
    before, end = read_status(directory), time.monotonic() + within_s
    try:
        for number in (POLICY_SIGNAL, DATA_SIGNAL):
            os.kill(before["pid"], number)
    except PermissionError as error:
        raise ConfigurationError(f"process {before['pid']} belongs to another user: run this as that user") from error
    while time.monotonic() < end:
        present = read_status(directory)
        if all(present[what]["reloads"] > before[what]["reloads_asked"] for what in ("policy", "data")):
            return {**present, "data_changed": present["data"]["digest"] != before["data"]["digest"]}
        time.sleep(_LOOKS_EVERY_S)
    raise RadofedError(
        f"the node has not loaded its data within {within_s:g} s and goes on; `rado party status` says when it has"
    )
