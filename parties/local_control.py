"""The running party and its machine: readiness and metrics for monitoring, and reading policy and data again."""

import datetime as dt
import os
import signal
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from dpcore.errors import ConfigurationError, RadofedError
from parties.answering.coordinator_calls import StoppedError
from parties.answering.spool import Spools
from parties.answering.witnesses import LedgerGuard
from parties.approval.decisions import Pauses
from parties.config import PartyConfig
from parties.data.held_data import HeldData
from parties.data.row_guard import RowCounts
from parties.history.history import History, What
from parties.ledger.budgets import ScopeState
from parties.ledger.ledger import Ledger
from parties.members import Rosters
from parties.policy import Policy
from radobase.local_status import read_status
from radobase.logs import Log
from radobase.metrics import (
    CERTIFICATE_EXPIRY,
    LOST,
    ROSTER_EXPIRY,
    SHARED,
    Counts,
    Metric,
    MetricKind,
    Reason,
    Room,
    Sample,
    build_sample,
    traffic_samples,
)
from radobase.tables.tables import RowsRead
from wire.identity import OwnCertificate
from wire.roster import Role
from wire.statements import CHUNK_BYTES
from wire.transport import LONG_POLL_GRACE_S, LONG_POLL_S

UNREACHABLE_AFTER_S: Final = 2.0 * (LONG_POLL_S + LONG_POLL_GRACE_S)
"""A party polls all the time: a coordinator that let two polls pass without an answer is out of reach."""

_LOG = "its own log and `rado ledger history`"
ATTEMPTS = Metric(
    "rado_attempts_total", MetricKind.COUNTER,
    "Attempts at queries that took a step at this party since its start, by step.", _LOG, ("step",),
)  # fmt: skip
ATTEMPTS_LOST = Metric(
    "rado_attempts_lost_total", MetricKind.COUNTER,
    "Attempts since the start that this party charged and that ended without a total, as far as it saw.", _LOG,
)  # fmt: skip
REMAINING = Metric(
    "rado_ledger_remaining_ratio", MetricKind.GAUGE,
    "The least epsilon that remains of a lifetime limit, as a share of it, over all scopes of a kind.",
    "`rado ledger show`", ("scope",),
)  # fmt: skip
CONTACT_AGE = Metric(
    "rado_coordinator_contact_age_seconds", MetricKind.GAUGE,
    "Seconds since the coordinator last answered, or since the start if it never did.", "`rado party status`",
)  # fmt: skip
WAITING = Metric(
    "rado_decisions_waiting", MetricKind.GAUGE,
    "Queries that wait for a person's decision at this party.", "`rado party pending`",
)  # fmt: skip
WAITING_AGE = Metric(
    "rado_decisions_waiting_age_seconds", MetricKind.GAUGE,
    "Seconds for which the query has waited that waits longest for a person's decision at this party; 0 if none waits.",
    "`rado party pending`",
)  # fmt: skip
PROPOSALS = Metric(
    "rado_proposals_waiting", MetricKind.GAUGE,
    "Approvals of several queries that a person of this party gave, and that wait for one more person.",
    "`rado party approvals`",
)  # fmt: skip
PROPOSALS_AGE = Metric(
    "rado_proposals_waiting_age_seconds", MetricKind.GAUGE,
    "Seconds since the first person gave the approval that waits longest for one more person; 0 if none waits.",
    "`rado party approvals`",
)  # fmt: skip
STUDY_SPENT = Metric(
    "rado_study_spent_ratio", MetricKind.GAUGE,
    "The largest share that a study spent of a limit of its own, over its scopes, of the 20 studies of the policy's "
    "`limits.studies` with the largest shares; `(others)` is the largest of all other studies with such a limit.",
    "`rado party studies`", ("study",),
)  # fmt: skip
MOST_STUDIES = 20
"""That the metric names. A learner chooses no name: the policy does."""
OTHER_STUDIES = "(others)"
NOTIFICATIONS = Metric(
    "rado_notifications_total", MetricKind.COUNTER,
    "Runs of the command that tells people of what waits for them, since the start: sent, failed, and given up.", _LOG,
    ("outcome",),
)  # fmt: skip
ROWS = Metric(
    "rado_rows", MetricKind.GAUGE,
    "Rows that the node holds: those that are usable, and those that the schema's policies made zero vectors.",
    "`rado party status`", ("state",),
)  # fmt: skip
CHANGED_CELLS = Metric(
    "rado_changed_cells_ratio", MetricKind.GAUGE,
    "The largest share of a feature's cells that the schema's policies replaced, set to 0 or clipped.",
    "`rado party status`",
)  # fmt: skip
METRICS = (
    *SHARED, ATTEMPTS, ATTEMPTS_LOST, REMAINING, CONTACT_AGE, WAITING, WAITING_AGE, PROPOSALS, PROPOSALS_AGE,
    STUDY_SPENT, NOTIFICATIONS, ROWS, CHANGED_CELLS,
)  # fmt: skip
"""All metrics of a party."""


@dataclass(frozen=True)
class Loaded:
    """What a node has once its data are loaded."""

    ledger: Ledger
    spools: Spools
    guard: LedgerGuard
    pauses: Pauses
    history: History
    rows: Callable[[], RowCounts]
    row_faults: Callable[[], Mapping[Reason, str]]


class PartyWatch:
    """Reads the state of a node. Any thread may call it.

    is_stopping: whether the node stops. contact_unix_s: when the coordinator last answered, None if it never did.
    is_unknown: whether it then answered that its roster has no such party. clock: Unix seconds.
    """

    def __init__(
        self,
        config: PartyConfig,
        own: OwnCertificate,
        signing_key: bytes,
        rosters: Rosters,
        *,
        is_stopping: Callable[[], bool],
        contact_unix_s: Callable[[], float | None],
        is_unknown: Callable[[], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.loaded: Loaded | None = None
        """Set it when the node has its data."""
        self.counts = Counts()
        self._config, self._own, self._signing_key = config, own, signing_key
        self._rosters, self._is_stopping, self._contact_unix_s = rosters, is_stopping, contact_unix_s
        self._is_unknown, self._clock, self._begun_unix_s = is_unknown, clock, clock()

    def note(self, what: What) -> None:
        """Count a step of an attempt."""
        self.counts.add(what.value)

    def note_lost(self) -> None:
        """Count an attempt that was charged and lost."""
        self.counts.add(LOST)

    def note_notification(self, outcome: str) -> None:
        """Count a run of the command that tells people of queries that wait."""
        self.counts.add(f"notifications {outcome}")

    def reasons(self) -> list[Reason]:
        """Why the party would not answer a query now, empty if it would. Raises what reading its state raises."""
        if self._is_stopping():
            return [Reason.DRAINING]
        if self.loaded is None:
            return [Reason.DATA_NOT_LOADED]
        return [*self._reasons_of_membership(), *self._reasons_of_state(self.loaded)]

    def _reasons_of_membership(self) -> Iterator[Reason]:
        now, contact = self._clock(), self._contact_unix_s()
        if dt.datetime.fromtimestamp(now, dt.UTC) > self._own.certificate.not_after:
            yield Reason.CERTIFICATE_EXPIRED
        roster = self._rosters.known
        if self._is_unknown():
            # The roster that it knows is older: a removed member gets no other.
            yield Reason.NOT_IN_ROSTER
        elif roster is None:
            yield Reason.NO_ROSTER
        elif roster.is_expired(now):
            yield Reason.ROSTER_EXPIRED
        else:
            member = roster.find(self._config.name, Role.PARTY)
            if member is None or member.signing_key != self._signing_key:
                yield Reason.NOT_IN_ROSTER
        if contact is None or now - contact > UNREACHABLE_AFTER_S:
            yield Reason.COORDINATOR_UNREACHABLE

    def _reasons_of_state(self, loaded: Loaded) -> Iterator[Reason]:
        if loaded.guard.is_set_back:
            yield Reason.LEDGER_SET_BACK
        elif not loaded.guard.may_answer:
            yield Reason.WAITING_FOR_WITNESSES
        yield from loaded.row_faults()
        if loaded.pauses.present() is not None:
            yield Reason.PAUSED
        if self._room(loaded).lacks(CHUNK_BYTES):
            yield Reason.SPOOL_FULL

    def _room(self, loaded: Loaded) -> Room:
        return Room.of(loaded.spools.directory, loaded.spools.used_bytes(), self._config.spool_bytes)

    def samples(self) -> Iterator[Sample]:
        """All metrics but readiness. While the node loads or stops, only what needs no database."""
        roster, counts = self._rosters.known, self.counts
        yield build_sample(Role.PARTY.value)
        yield Sample(CERTIFICATE_EXPIRY, self._own.certificate.not_after.timestamp())
        if roster is not None:
            yield Sample(ROSTER_EXPIRY, roster.not_after_unix_s or float("inf"))
        yield from traffic_samples(counts)
        yield from (Sample(ATTEMPTS, counts.get(what.value), {"step": what.name.lower()}) for what in What)
        yield Sample(ATTEMPTS_LOST, counts.get(LOST))
        outcomes = {name: counts.get(f"notifications {name}") for name in ("sent", "failed", "given_up")}
        yield from (Sample(NOTIFICATIONS, count, {"outcome": name}) for name, count in outcomes.items())
        yield Sample(CONTACT_AGE, max(0.0, self._clock() - (self._contact_unix_s() or self._begun_unix_s)))
        if self.loaded is not None and not self._is_stopping():
            yield from self._room(self.loaded).samples()
            held = self.loaded.rows()
            yield Sample(ROWS, held.usable, {"state": "usable"})
            yield Sample(ROWS, held.rows - held.usable, {"state": "unusable"})
            yield Sample(CHANGED_CELLS, float(max(held.changed_shares.values(), default=0)))
            now = self._clock()
            oldest_unix_s = self.loaded.history.oldest_waiting_unix_s(now)
            yield Sample(WAITING, self.loaded.history.count_waiting(now))
            yield Sample(WAITING_AGE, 0.0 if oldest_unix_s is None else max(0.0, now - oldest_unix_s))
            count, first_unix_s = self.loaded.ledger.approvals.proposals(now)
            yield Sample(PROPOSALS, count)
            yield Sample(PROPOSALS_AGE, 0.0 if first_unix_s is None else max(0.0, now - first_unix_s))
            state = self.loaded.ledger.state()
            yield from _remaining(state.scopes)
            yield from _of_studies(state.studies, state.limits.studies)


def _remaining(states: tuple[ScopeState, ...]) -> Iterator[Sample]:
    """The least share for each kind of scope: the number of columns neither bounds nor names the series."""
    least: dict[str, float] = {}
    for state in states:
        limit, kind = float(state.limit.epsilon), state.scope.kind.value
        share = min(1.0, state.remaining_epsilon / limit) if limit else 0.0
        least[kind] = min(share, least.get(kind, 1.0))
    yield from (Sample(REMAINING, share, {"scope": kind}) for kind, share in least.items())


def _of_studies(studies: Sequence[tuple[str, tuple[ScopeState, ...]]], named: Container[str]) -> Iterator[Sample]:
    """What studies spent of their own limits. named: those that the policy gives a limit by their numbers."""
    spent = {number: max((_spent_share(state) for state in states), default=0.0) for number, states in studies}
    listed = sorted((number for number in spent if number in named), key=lambda number: (-spent[number], number))
    shown = listed[:MOST_STUDIES]
    rest = [share for number, share in spent.items() if number not in shown]
    yield from (Sample(STUDY_SPENT, spent[number], {"study": number}) for number in shown)
    if rest:
        yield Sample(STUDY_SPENT, max(rest), {"study": OTHER_STUDIES})


def _spent_share(state: ScopeState) -> float:
    limit = float(state.limit.epsilon)
    return min(1.0, max(0.0, 1.0 - state.remaining_epsilon / limit)) if limit else 1.0


# Reads the policy and the data of a running party again. What cannot be read changes nothing; the status says why.


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
                "changes": [change.to_dict() for change in report.all_changes[:MOST_STATED]],
                "changes_in_all": len(report.all_changes),
                "recoded": dict(report.recoded),
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
            # The rows stay, unless they are elsewhere: then what is known of their files is new. Their load has a new
            # name in any case: the name must not tell whether they changed.
            kept = found.dataset if found.dataset.records.are_elsewhere else before.dataset
            found = replace(before, dataset=kept, name=found.name)
            self._log.info("data unchanged", digest=found.digest)
        self._take(found)
        with self._wake:
            self._held = found
        if found.digest != before.digest:
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
