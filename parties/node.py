"""The party node: loads its data once, fetches work from the coordinator, and advances queries until it is stopped.

Threads: one polls; some advance queries (verify, answer, upload); one computes contributions, so that a long
computation blocks neither polling nor answers. Their progress is on disk, and a restarted node continues from there.
The node reads keys once, at start. It reads the policy again on SIGHUP, schema and data on SIGUSR1.
"""

import datetime as dt
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Self

from dpcore.errors import RadofedError
from dpcore.numbers.processors import one_blas_thread
from dpcore.randomness.sources import RandomSource, SystemRandom
from dpcore.records.computation import RowSums, sum_on_threads
from parties.answering.attempts import Attempts
from parties.answering.contribution import Obfuscators, tidy
from parties.answering.coordinator_calls import WorkBatch
from parties.answering.decisions import Party
from parties.answering.jobs import Jobs, ShownWork, pauses
from parties.answering.lifecycle import QueryLifecycle
from parties.answering.spool import Spools
from parties.answering.witnesses import LedgerGuard
from parties.approval.decision_files import DecisionFiles
from parties.approval.decisions import Pauses
from parties.approval.notifying import Notice, Notifier, ProposalNotice
from parties.client import CoordinatorClient, PollingPace
from parties.config import PartyConfig, settings_of
from parties.data.cluster_row_sums import ClusterRowSums
from parties.data.held_data import HeldData
from parties.data.row_guard import RowCounts, RowGuard
from parties.ledger.limits import DAY_S
from parties.local_control import DATA_SIGNAL, POLICY_SIGNAL, DataReloads, Loaded, PartyWatch, PolicyReloads
from parties.members import Rosters
from parties.policy import Policy
from parties.state_directory import FILE as SECRET_FILE
from parties.state_directory import StatedRows, load_or_create, lock_party, open_history, open_ledger
from radobase.local_status import StatusServer
from radobase.logs import Daily, Log, start_logging
from radobase.metrics import Reason
from radobase.version import program_version
from radobase.warm_workers import WarmWorkers
from radobase.watch_server import WatchServer
from wire.envelopes import SigningKey, load_public_key
from wire.errors import Code, ConnectionLostError, TimedOutError, WireError
from wire.features import OWN_FEATURES, Features, schemas_stated
from wire.identity import OwnCertificate
from wire.roster import Role
from wire.transport import LONG_POLL_S, coordinator_of

DRAIN_S = 10.0
# While the party waits for witnesses: first often, because the others answer within a second if they run.
OFTEN_FOR_S = 5.0
OFTEN_S = 0.25
SELDOM_S = 2
# Short: the caller retries after a pause that ends when the node stops.
CALL_PATIENCE_S = 3.0
ROSTER_EVERY_S = 600.0


def run(config: PartyConfig) -> None:
    """Run a party until SIGTERM or SIGINT, then stop at the next safe point.

    SIGHUP reloads the policy, SIGUSR1 the schema and the data.

    Raises what PartyNode raises, before anything is sent. Once the node runs, only a signal ends it.
    """
    start_logging(config.log_level, config.log_file)
    signals, sender = os.pipe()
    os.set_blocking(sender, False)
    # Handlers in Python run between two steps of the main thread. If another thread receives the signal, they wait for
    # the main thread, which waits here. The interpreter writes the signal's number to the pipe from any thread.
    previous = signal.set_wakeup_fd(sender)

    def noted(_number: int, _frame: object) -> None:
        pass

    # While the node loads its data, SIGTERM and SIGINT end the process immediately; the others must not.
    before = {number: signal.signal(number, noted) for number in (POLICY_SIGNAL, DATA_SIGNAL)}
    try:
        node = PartyNode(config)
        before |= {number: signal.signal(number, noted) for number in (signal.SIGTERM, signal.SIGINT)}
        with node:
            while (number := os.read(signals, 1)[0]) not in (signal.SIGTERM, signal.SIGINT):
                if number == POLICY_SIGNAL:
                    node.policy.ask()
                elif number == DATA_SIGNAL:
                    node.data.ask()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous)
        os.close(signals)
        os.close(sender)


class PartyNode:
    """A running party; a context manager. Construction raises every error of its files."""

    data: DataReloads
    policy: PolicyReloads
    _lifecycle: QueryLifecycle
    _pauses: Pauses
    _was_paused: bool
    _contact_unix_s: float | None
    _is_unknown: bool
    _is_stated: bool
    """Whether the coordinator knows what this node can do, and its schemas."""

    def __init__(self, config: PartyConfig, *, random_source: RandomSource | None = None) -> None:
        """Load keys, policy, schema, ledger and data. random_source: default: the system's.

        Raises ConfigurationError, SchemaError, LedgerFileError or DataError.
        """
        self._log = Log(f"party.{config.name}")
        self._config = config
        self._pace = PollingPace()
        self._stated_rows = StatedRows(config.name, self._log)
        self._started_unix_s, self._contact_unix_s, self._is_unknown = time.time(), None, False
        self._is_stated, self._stated_unix_s, self._stating = False, 0, threading.Lock()
        with ExitStack() as opened:
            self._open(opened, random_source or SystemRandom())
            self._opened = opened.pop_all()
        # A query that stopped may go on at once, such as with another witness: a poll would wait for half a minute.
        self._jobs = Jobs(self._lifecycle, self._log, self._stop, self._may_finish, self._poll_client.end_poll)
        self._shown = ShownWork(self._lifecycle, self._jobs.offer, self._rosters, self._poll_client, self._log)
        self._forgotten_at = float("-inf")
        self._answered = self._was_held = False
        self._poller = threading.Thread(target=self._poll, name="poll")

    def _may_finish(self) -> bool:
        """Whether a running upload may continue."""
        return time.monotonic() < self._drain_until and self._may_answer

    @property
    def _may_answer(self) -> bool:
        """Whether the ledger is confirmed, the state can be read, and no person paused this party."""
        is_readable = Reason.STATE_UNREADABLE not in self._row_faults()
        return self._guard.may_answer and is_readable and not self._is_paused()

    def _row_faults(self) -> dict[Reason, str]:
        try:
            return self._row_guard.faults()
        except RadofedError as error:
            # Whether the rows were accepted cannot be known.
            return {Reason.STATE_UNREADABLE: str(error)}

    def _held_by(self) -> str:
        """What keeps this party from answering, in words, for the history."""
        found = []
        try:
            pause = self._pauses.present()
        except RadofedError:
            found.append("could not read whether it was paused")
        else:
            found += [] if pause is None else [f"was paused by {pause.by}"]
        if Reason.STATE_UNREADABLE in self._row_faults():
            found.append("could not read its state")
        if not self._guard.may_answer:
            found.append("waited until its privacy ledger was confirmed")
        return f"this party {' and '.join(found) or 'was just resumed'}"

    def _is_paused(self) -> bool:
        try:
            pause = self._pauses.present()
        except RadofedError as error:
            # Whether it is paused cannot be known.
            self._log.warning("paused", reason=str(error))
            return True
        if (pause is not None) != self._was_paused:
            self._was_paused = pause is not None
            if pause is None:
                self._log.info("resumed")
            else:
                self._log.warning("paused", by=pause.by, reason=pause.reason)
        return pause is not None

    def _open(self, opened: ExitStack, random_source: RandomSource) -> None:
        """Load everything. Registers on the stack what must be closed at the end."""
        config = self._config
        # A node has its own compute threads, next to other nodes of this machine.
        opened.enter_context(one_blas_thread())
        # Checked here: over the connection, an expired or foreign certificate looks like an unreachable coordinator.
        self._own = OwnCertificate(config.tls.files, config.federation, Role.PARTY, config.name, self._log)
        self._connected_version, self._roster_warnings = self._own.version, Daily()
        opened.enter_context(lock_party(config))
        self._stop, self._was_paused = threading.Event(), False
        self._drain_until = float("inf")
        self._signing_key = SigningKey.load(config.signing_key, config.federation)
        self._rosters = Rosters(
            config.state_directory,
            federation=config.federation,
            federation_key=load_public_key(config.federation_key),
            log=self._log,
        )
        self._watch = self._watched(opened)
        # Polling has its own connection, which closes when the node stops; uploads finish on the other.
        self._poll_client = opened.enter_context(self._client(give_up_after_s=0.0))
        self._client_for_queries = opened.enter_context(self._client(give_up_after_s=CALL_PATIENCE_S))
        policy = Policy.load(config.policy)
        seed = load_or_create(config.state_directory / SECRET_FILE, random_source)
        workers = self._warm_workers(opened)
        held = HeldData.load(config, seed, self._log, workers=workers)
        counts = RowCounts.of(held.dataset.report)
        self._row_guard = RowGuard(config.state_directory, counts, policy.data, self._log)
        spools = Spools(config.state_directory / "spool", config.spool_bytes)
        self._open_databases(opened, policy, spools, random_source)
        self._lifecycle = self._made_lifecycle(opened, policy, held, spools, random_source)
        self.policy = PolicyReloads(lambda: Policy.load(config.policy), self._follow_policy, self._log)
        self.data = DataReloads(
            lambda progress: HeldData.load(config, seed, self._log, progress, workers),
            self._follow_data,
            self._log,
            held,
        )
        self._watch.loaded = Loaded(
            self._ledger, spools, self._guard, self._pauses, self._history, self._row_guard.counts_now, self._row_faults
        )

    def _open_databases(self, opened: ExitStack, policy: Policy, spools: Spools, random_source: RandomSource) -> None:
        """Open the ledger, the attempts and the history."""
        config = self._config
        self._ledger = open_ledger(config, policy, self._log, has_run=self._rosters.known is not None)
        opened.callback(self._ledger.database.close)
        self._attempts = Attempts(self._ledger)
        self._guard = LedgerGuard(
            federation=config.federation,
            party=config.name,
            signing_key=self._signing_key,
            policy=policy,
            ledger=self._ledger,
            rosters=self._rosters,
            random=random_source.bytes,
            log=self._log,
        )
        self._guard.hold_reservations()
        tidy(spools, self._attempts)
        self._history = open_history(config, self._ledger, self._log, self._watch.note)
        opened.callback(self._history.database.close)
        opened.callback(self._history.database.flush)
        self._pauses = Pauses(self._history.database)

    def _warm_workers(self, opened: ExitStack) -> WarmWorkers | None:
        """The workers that keep the node's table, if its cluster reads it."""
        if self._config.cluster is None or not self._config.cluster.reads_table:
            return None
        workers = WarmWorkers(self._config.cluster)
        opened.callback(workers.close)
        return workers

    def _made_lifecycle(
        self, opened: ExitStack, policy: Policy, held: HeldData, spools: Spools, random_source: RandomSource
    ) -> QueryLifecycle:
        config = self._config
        row_sums: RowSums = sum_on_threads if config.cluster is None else ClusterRowSums(config.cluster, self._log)
        spare, own_base = config.spare_obfuscators, config.own_obfuscators
        obfuscators = Obfuscators(random_source, spare, own_base=own_base)
        opened.callback(obfuscators.close)
        return QueryLifecycle(
            Party(
                config.name,
                self._signing_key,
                policy,
                held.dataset.schema,
                held.dataset.records,
                held.secret,
                row_sums,
                held.dataset.numbers,
                held.digest,
                held.dataset.epochs,
                held.name,
                held.dataset.others,
            ),
            attempts=self._attempts,
            spools=spools,
            rosters=self._rosters,
            history=self._history,
            coordinator=self._client_for_queries,
            random=random_source,
            log=self._log,
            obfuscators=obfuscators,
            may_answer=lambda: self._may_answer,
            is_held=lambda: bool(self._row_faults()),
            on_charged=self._note_charged,
            on_lost=self._watch.note_lost,
            on_conflict=self._guard.doubt,
            on_worked=self._pace.worked,
            on_waits=self._notify_by(opened),
            decision_files=_decision_files(config),
        )

    def _notify_by(self, opened: ExitStack) -> Callable[[Notice | ProposalNotice], None]:
        """What tells people of a query that waits."""
        config, settings = self._config, self._config.notify
        if settings is None:
            return lambda _: None
        notifier = Notifier(settings, config.name, config.federation, self._log, self._watch.note_notification)
        return opened.enter_context(notifier).add

    def _note_charged(self) -> None:
        self._pace.charged()
        self._row_guard.note_charged()

    def _watched(self, opened: ExitStack) -> PartyWatch:
        """What machines that watch this node read, from before it loads its data."""
        watch = PartyWatch(
            self._config,
            self._own,
            self._signing_key.public_bytes,
            self._rosters,
            is_stopping=self._stop.is_set,
            contact_unix_s=lambda: self._contact_unix_s,
            is_unknown=lambda: self._is_unknown,
        )
        if (settings := self._config.watch) is not None:
            opened.enter_context(WatchServer(settings, reasons=watch.reasons, samples=watch.samples, log=self._log))
        return watch

    def _take_decisions(self) -> None:
        """Record what other users decided. A directory that fails for a moment is looked at again."""
        try:
            self._lifecycle.gate.take_decisions(self._lifecycle.policy)
        except OSError as error:
            self._log.warning("decisions not read", directory=str(self._config.decisions), cause=str(error))

    def _follow_data(self, held: HeldData) -> None:
        """Answer later queries from these data."""
        dataset = held.dataset
        self._row_guard.hold(RowCounts.of(dataset.report))
        self._lifecycle.follow_data(
            replace(
                self._lifecycle.party,
                schema=dataset.schema,
                records=dataset.records,
                secret=held.secret,
                numbers=dataset.numbers,
                data_digest=held.digest,
                load=held.name,
                epochs=dataset.epochs,
                others=dataset.others,
            )
        )
        self._is_stated = False
        with suppress(RadofedError):  # then the next poll states them
            self._state_features()
        self._compare_rows()
        self._compare_epochs()

    def _compare_epochs(self) -> None:
        """Log which rows moved to another epoch: queries about it will be refused."""
        epochs = self._lifecycle.party.epochs
        if epochs is not None:
            for sentence in self._ledger.moved_rows(map(epochs.rows, epochs.names)):
                self._log.error("epoch changed", code=Code.EPOCH_CHANGED, reason=sentence)

    def _compare_rows(self) -> None:
        """Log if this party has fewer rows than the roster states."""
        self._stated_rows.look(self._rosters.known, self._lifecycle.party.records.rows)

    def _follow_policy(self, policy: Policy) -> None:
        self._ledger.limits = policy.limits.of_ledger
        self._lifecycle.follow(policy)
        self._guard.follow(policy)
        self._row_guard.follow(policy.data)

    def status(self) -> dict[str, Any]:
        """This node's state, in JSON types."""
        roster, pause = self._rosters.known, self._pauses.present()
        return {
            "party": self._config.name,
            "federation": self._config.federation,
            "version": program_version(),
            "pid": os.getpid(),
            "started_at_unix_s": self._started_unix_s,
            "coordinator": self._poll_client.target,
            "last_contact_unix_s": self._contact_unix_s,
            "ledger_confirmed": self._guard.may_answer,
            "paused": None
            if pause is None
            else {"since_unix_s": pause.since_unix_s, "by": pause.by, "unanswered": self._pauses.unanswered(pause)},
            "waiting_for_people": self._history.count_waiting(time.time()),
            "unverified": self._shown.unverified.status(),
            "rows": self._lifecycle.party.records.rows,
            "usable_rows": self._row_guard.counts.usable,
            "usable_by_label": dict(self._row_guard.counts.by_label or {}),
            "changed_cells": dict(self._row_guard.counts.changed or {}),
            "rows_not_accepted": {reason.value: sentence for reason, sentence in self._row_faults().items()},
            "data": self.data.status(),
            "configuration": settings_of(self._config),
            "policy": {**self.policy.reloads.status(), "digest": self._lifecycle.policy.digest},
            "roster_version": None if roster is None else roster.version,
            "certificate": self._own.certificate.status(dt.datetime.now(dt.UTC)),
            "not_ready": [reason.value for reason in self._watch.reasons()],
            "attempts": [
                {"query_id": held.query_id.hex(), "attempt": held.attempt, "state": held.state.value}
                for held in self._attempts.unfinished()
            ],
        }

    def __enter__(self) -> Self:
        try:
            self._opened.enter_context(StatusServer(self._config.state_directory, self.status))
        except OSError as error:
            self._log.warning("status not served", reason=str(error))
        self._opened.enter_context(self.data)
        self._log.info("started", federation=self._config.federation, coordinator=self._poll_client.target)
        self._warn_of_expiry()
        self._compare_rows()
        self._compare_epochs()
        for sentence in self._ledger.state().sentences():
            self._log.info("ledger", state=sentence)
        self._poller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop and wait until done. Drops a contribution that is being computed; gives an upload DRAIN_S more."""
        self._log.info("draining")
        self._drain_until = time.monotonic() + DRAIN_S
        self._stop.set()
        self._poll_client.close()
        self._poller.join()
        last_call = threading.Timer(DRAIN_S, self._client_for_queries.close)
        last_call.start()
        self._jobs.drain()
        last_call.cancel()
        self._opened.close()
        self._log.info("stopped")

    def _client(self, give_up_after_s: float) -> CoordinatorClient:
        return CoordinatorClient(
            coordinator_of(self._config),
            self._config.tls.files,
            give_up_after_s=give_up_after_s,
            stopping=self._stop.is_set,
            counts=self._watch.counts,
        )

    def _poll(self) -> None:
        waits, asked_roster_at, started = pauses(), float("-inf"), time.monotonic()
        busy_s = time.thread_time()
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                self._follow_certificate()
                if begun - asked_roster_at > ROSTER_EVERY_S:
                    self._refresh_roster()
                    self._is_stated = False
                    asked_roster_at = begun
                if not self._is_stated:
                    self._state_features()
                self._shown.follow_roster()
                self._guard.look(self._poll_client)
                wait_s = self._wait_s(time.monotonic() - started)
                batch = self._poll_client.fetch_work(self._shown.cursor, wait_s)
                self._note_contact(batch)
                is_junk = self._take(batch)
                waits = pauses()
                # Of everything since the last pause.
                busy_before_s, busy_s = busy_s, time.thread_time()
                pause_s = self._pace.pause_s(handling_s=busy_s - busy_before_s, is_junk=is_junk)
                # A coordinator that ignores long polling must not be polled in a tight loop.
                if wait_s and not batch.work and time.monotonic() - begun < 0.5:
                    pause_s = max(pause_s, 0.5)
                if not self._answered:
                    pause_s = max(pause_s, OFTEN_S)
            except RadofedError as error:
                if self._stop.is_set():
                    return
                if isinstance(error, WireError) and error.code is Code.PEER_UNKNOWN:
                    # An answer, too.
                    self._contact_unix_s, self._is_unknown = time.time(), True
                pause_s = next(waits)
                self._log.warning("no work", reason=str(error), again_in_s=round(pause_s, 1))
                # The coordinator may be restored from a backup meanwhile, and count changes again that this cursor has.
                self._shown.restart()
                self._follow_move(error)
            except Exception as error:  # noqa: BLE001 - a party must not silently stop polling
                pause_s = next(waits)
                self._log.exception("polling failed", error=type(error).__name__)
            self._tidy()
            self._stop.wait(pause_s)

    def _note_contact(self, batch: WorkBatch) -> None:
        if not batch.was_ended:
            self._contact_unix_s, self._is_unknown = time.time(), False

    def _tidy(self) -> None:
        """End what has expired, also while the coordinator is out of reach or no longer knows this party; forget."""
        try:
            if self._answered:
                self._lifecycle.end_expired()
            self._forget()
        except Exception as error:  # noqa: BLE001 - tried again after the next poll
            self._log.warning("expired attempts not ended", error=type(error).__name__, reason=str(error))

    def _forget(self) -> None:
        """Forget what the policy does not want to be kept, once a day and whenever many queries were added."""
        limits, now = self._lifecycle.policy.history, time.time()
        is_due = now - self._forgotten_at >= DAY_S
        self._history.forget(
            whole_before_unix_s=now - limits.days * DAY_S,
            predicates_before_unix_s=now - limits.predicates_days * DAY_S,
            at_once=is_due,
        )
        if is_due:
            self._forgotten_at = now

    def _refresh_roster(self) -> None:
        """Raises WireError(ROSTER_STALE) until a roster has verified."""
        self._rosters.refresh(self._poll_client)
        self._warn_of_expiry()
        self._compare_rows()
        known = self._rosters.current
        member = known.find(self._config.name, Role.PARTY)
        if member is None or member.signing_key != self._signing_key.public_bytes:
            self._log.error("not in the roster", party=self._config.name, version=known.version)

    def _warn_of_expiry(self) -> None:
        """Log, at most once a day, what expires soon or has expired, and that the known roster never expires."""
        known, now = self._rosters.known, time.time()
        self._own.warn(now)
        sentence = "" if known is None else known.expiry_warning(now)
        if sentence and self._roster_warnings.is_due(now):
            self._log.warning("roster expiry", reason=sentence)

    def _follow_move(self, lost: RadofedError) -> None:
        """Dial the coordinator where it moved to, if the roster says so and it answers there, or where it was.

        lost: why the last call failed.
        """
        if not isinstance(lost, ConnectionLostError | TimedOutError):
            return
        try:
            address = coordinator_of(self._config)
            if address == self._poll_client.target:
                return
            for client in (self._poll_client, self._client_for_queries):
                client.reconnect(address)
        except RadofedError as error:
            self._log.warning("coordinator not followed", reason=str(error))
        else:
            self._log.info("coordinator moved", address=address)

    def _follow_certificate(self) -> None:
        """Connect again if the certificate's files were replaced: calls that run end on the former connections."""
        self._own.look()
        if self._connected_version != self._own.version:
            for client in (self._poll_client, self._client_for_queries):
                client.reconnect()
            self._connected_version = self._own.version

    def _state_features(self) -> None:
        """Send what this node can do, and which schemas it answers about. Nothing depends on it here."""
        with self._stating:
            # Before the schemas are read: data that come meanwhile are stated again.
            self._is_stated = True
            config, party = self._config, self._lifecycle.party
            # A newer statement replaces an older one, and the clock may stand where it stood.
            self._stated_unix_s = max(int(time.time()), self._stated_unix_s + 1)
        held = schemas_stated((party.schema, *(schema for schema, _ in party.others)))
        stated = Features(config.federation, config.name, OWN_FEATURES, program_version(), self._stated_unix_s, *held)
        try:
            self._poll_client.state_features(stated.sign(self._signing_key))
        except WireError as error:
            self._log.warning("features not stated", code=error.code, detail=error.public_sentence)
        except RadofedError:
            self._is_stated = False
            raise

    def _wait_s(self, running_s: float) -> int:
        """How long the coordinator may wait for work."""
        if not self._answered:
            return 0 if running_s < OFTEN_FOR_S else SELDOM_S
        if self._lifecycle.policy.approval.asks:
            # A person's decision is looked for between two polls.
            return 0 if self._shown.is_sweeping else SELDOM_S
        return 0 if self._shown.is_sweeping else LONG_POLL_S

    def _take(self, batch: WorkBatch) -> bool:
        """Answer challenges, and take work once the ledger is confirmed. Returns whether some of it was junk.

        While this party must not answer, nothing is answered, ended or released, and what is asked is noted.
        """
        unverified = self._guard.answer(batch.challenges, self._poll_client)
        if unverified:
            self._shown.unverified.add("CHALLENGE", unverified)
        self._take_decisions()
        is_same = self._was_held == (is_held := bool(self._row_faults())) and not self._jobs.have_stopped()
        if self._may_answer and self._answered and is_same and not self._lifecycle.gate.has_news():
            return self._shown.take(batch) or unverified > 0
        # Once it may answer, once it must not (a query that stopped says so, too: that may be over already), once its
        # rows are held or no longer are, and once a person has decided, it looks at all open queries again.
        before, self._answered, self._was_held = self._answered, self._may_answer, is_held
        if self._answered or before:
            self._shown.restart()
            return unverified > 0
        return self._shown.hold(batch, self._held_by()) or unverified > 0


def _decision_files(config: PartyConfig) -> DecisionFiles | None:
    """Where other users decide. Raises ConfigurationError if the directory is not safe for it."""
    files = DecisionFiles.of(config)
    if files is not None:
        files.check()
    return files
