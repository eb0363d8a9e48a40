"""The nodes of a simulated federation: the real cores of all roles, on real files, called without sockets.

Each node runs one step at a time on a `Machine`, which may kill it. Calls pass a network that loses, repeats and
delays them.
"""

import asyncio
import random
import sqlite3
import types
from collections import Counter, deque
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpcore.errors import RadofedError
from dpcore.randomness.sources import SystemRandom
from dpcore.records.computation import PartySecret
from learner.accepted_parties import parties_toml
from learner.config import LearnerConfig
from learner.session import Session
from parties.answering.coordinator_calls import WorkBatch
from parties.answering.decisions import Party
from parties.answering.witnesses import LedgerGuard
from parties.database import LedgerOwner
from parties.ledger.acknowledgement import charge_plan, plan
from parties.ledger.ledger import Ledger
from radobase.logs import Log
from tests.federation.coordinator_core import Parts as CoordinatorParts
from tests.federation.party import SCHEMA
from tests.federation.party import Parts as PartyParts
from tests.simulation.machine import KilledError, Machine
from wire.envelopes import Envelope, fingerprint, save_public_key
from wire.errors import Code, ConnectionLostError, TimedOutError, WireError
from wire.features import OWN_FEATURES, Features
from wire.query import Cancel
from wire.roster import Member, Role, Roster
from wire.statements import Acceptance, Pending, sign

if TYPE_CHECKING:
    from tests.simulation.federation import Federation

NAME = "simulated"
LEARNER, COORDINATOR = "lea", "hub"
START_UNIX_S = 1_700_000_000.0
EPSILON = Fraction(1, 10)
"""Epsilon of one attempt, pure: charges of n attempts sum to n times this."""


class Clock:
    """Stands for the module `time` in the modules of the simulated nodes."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return START_UNIX_S + self.now

    def monotonic(self) -> float:
        return 1000.0 + self.now


class InlineLoop(asyncio.SelectorEventLoop):
    """An event loop whose executors run at once, so that a run depends on nothing but its operations."""

    def run_in_executor(self, _executor, func, *args):
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001 - a future carries any error
            future.set_exception(error)
        return future

    def run(self, coroutine):
        """The result of a coroutine, which only becomes a task if it waits for something: most do not."""
        asyncio._set_running_loop(self)
        try:
            waits = coroutine.send(None)
        except StopIteration as done:
            return done.value
        finally:
            asyncio._set_running_loop(None)
        return self.run_until_complete(_going_on(coroutine, waits))


@types.coroutine
def _going_on(coroutine, waits):
    """The rest of a coroutine that waits for a future."""
    while True:
        try:
            given = yield waits
        except BaseException as error:  # noqa: BLE001 - as a task passes it on
            step = partial(coroutine.throw, error)
        else:
            step = partial(coroutine.send, given)
        try:
            waits = step()
        except StopIteration as done:
            return done.value


@dataclass
class Network:
    """Calls of members to the coordinator. `faults`: for each member, what happens to its next calls, in order."""

    federation: "Federation"
    faults: dict[str, deque[str]] = field(default_factory=dict)
    cut_off: set[str] = field(default_factory=set)
    uploads_stalled: set[str] = field(default_factory=set)
    late: list[tuple[str, Callable[[], object]]] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)

    def call(self, member: str, role: Role, do: Callable[[Member], object]):
        """Make a call, with the fault that is due. do: makes a coroutine for a caller; called once a delivery."""

        def deliver():
            return self.federation.coordinator.serve(member, role, do)

        queued = self.faults.get(member)
        fault = queued.popleft() if queued else ""
        if fault:
            self.happened[fault] += 1
        if member in self.cut_off or fault == "drop request":
            raise ConnectionLostError("simulated", "the network is down")
        match fault:
            case "drop reply":
                deliver()
                raise TimedOutError("simulated: no reply")
            case "duplicate":
                with suppress(RadofedError):
                    deliver()
            case "delay":
                self.late.append((member, deliver))
                raise TimedOutError("simulated: late")
        return deliver()

    def deliver_late(self, order: random.Random) -> None:
        """Deliver delayed requests in any order; their callers wait no more."""
        order.shuffle(self.late)
        late, self.late = self.late, []
        for member, deliver in late:
            if member not in self.cut_off:
                with suppress(RadofedError):
                    deliver()


class CoordinatorNode(CoordinatorParts):
    """The coordinator's core behind a gate that knows its roster."""

    def __init__(self, federation: "Federation") -> None:
        self.federation = federation
        self.machine = Machine("hub", federation.directory / "hub")
        self.machine.directory.mkdir()
        self.roster = federation.roster
        self.up = False
        self.start()

    def start(self) -> None:
        self.machine.recover()
        clock = self.federation.clock
        self.loop = InlineLoop()
        try:
            with self.federation.machines.running(self.machine):
                self.open_parts(
                    self.machine.directory / "store.sqlite",
                    self.machine.directory / "spool",
                    roster=lambda: self.roster,
                    federation=NAME,
                    clock=clock.monotonic,
                    wall_clock=clock.time,
                )
                self._run(self.core.start())
                self._run(self.core.expel(self.roster))
        except (KilledError, OSError, sqlite3.Error, RadofedError):
            self.stop()
            return
        self.up = True

    def stop(self) -> None:
        self.up = False
        with suppress(Exception):
            self.store.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        with suppress(BaseException):
            self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    def _run(self, coroutine):
        result = self.loop.run(coroutine)
        for _ in range(30):
            if not self.core._carried:
                break
            self.loop.run_until_complete(asyncio.sleep(0))
        return result

    def guarded(self, coroutine):
        """Run on this machine; a kill ends the process, and its peers lose the connection."""
        if not self.up:
            coroutine.close()
            raise ConnectionLostError("simulated", "the coordinator is down")
        try:
            with self.federation.machines.running(self.machine):
                return self._run(coroutine)
        except KilledError:
            self.federation.happened["kill coordinator"] += 1
            self.stop()
            raise ConnectionLostError("simulated", "the coordinator was killed") from None
        except (sqlite3.Error, OSError) as error:
            raise WireError(Code.INTERNAL) from error

    def serve(self, member: str, role: Role, do: Callable[[Member], object]):
        caller = self.roster.find(member, role)
        if caller is None:
            raise WireError(Code.PEER_UNKNOWN)
        return self.guarded(do(caller))

    def tick(self) -> None:
        if self.up:
            with suppress(ConnectionLostError, WireError):
                self.guarded(self.core.tick())

    def follow(self, roster: Roster) -> None:
        """Serve another roster, and take whom it does not list out of open queries, now or at the next start."""
        self.roster = roster
        if self.up:
            with suppress(ConnectionLostError, WireError):
                self.guarded(self.core.expel(roster))


class PartyCalls:
    """A party's calls, through the network. Implements parties.answering.coordinator_calls.CoordinatorCalls."""

    def __init__(self, federation: "Federation", name: str) -> None:
        self.federation, self.name = federation, name

    def _call(self, do):
        return self.federation.network.call(self.name, Role.PARTY, do)

    def _hub(self) -> CoordinatorNode:
        return self.federation.coordinator

    def fetch_roster(self):
        async def roster(_caller):
            shown = self.federation.lies.told("roster", self.name, self.federation.served_roster)
            return shown, self.federation.clock.time()

        return self._call(roster)

    def fetch_work(self, cursor: int, wait_s: int) -> WorkBatch:
        async def work(caller):
            items, reached = await self._hub().views.work(caller, cursor, wait_s)
            lies = self.federation.lies
            lies.works.setdefault(self.name, []).extend(work for work, _ in items)
            shown = tuple(lies.told("work", self.name, work) for work, _ in items)
            self.federation.unmasked.note_shown(self.name, shown)
            return WorkBatch(shown, reached, 0, self._hub().witnesses.show(caller))

        return self._call(work)

    def state_features(self, features: Envelope) -> None:
        async def state(caller):
            self._hub().witnesses.state_features(features, caller)

        self._call(state)

    def ask_witnesses(self, challenge: Envelope) -> None:
        self.federation.lies.challenges.setdefault(self.name, []).append(challenge)

        async def ask(caller):
            self._hub().witnesses.ask(challenge, caller)

        self._call(ask)

    def witness(self, witnesses) -> None:
        for witness in witnesses:
            self.federation.note_witness(self.name, witness)
            self.federation.lies.witnesses.append(witness)

        async def answer(caller):
            await self._hub().witnesses.answer_each(witnesses, caller)

        self._call(answer)

    def fetch_witnesses(self, nonce: bytes, known: int):
        async def fetch(caller):
            witnesses, shows_heads = self._hub().witnesses, self.federation.shows_heads
            truth = witnesses.answers(nonce, caller, known), witnesses.newest(caller) if shows_heads else None
            return self.federation.lies.told("witnesses", self.name, truth)

        return self._call(fetch)

    def answer(self, answer: Envelope, *, accepts: bool) -> None:
        if accepts:
            said = Acceptance.from_bytes(answer.payload)
            self.federation.lies.acceptances.append((said, answer))
            self.federation.check_attempt(self.name, said.query_id, said.attempt)
            self.federation.coalition.check_acceptance(said)

        def submit(caller):
            intake = self._hub().intake
            return intake.acceptance(answer, caller) if accepts else intake.refusal(answer, caller)

        self._call(submit)

    def pending(self, pending: Envelope) -> None:
        self._call(lambda caller: self._hub().intake.pending(pending, caller))

    def ready(self, ready: Envelope, key_shares: Envelope | None = None) -> None:
        if key_shares is not None:
            self.federation.check_dealing(self.name, key_shares)
        self._call(lambda caller: self._hub().intake.ready(ready, caller, key_shares))

    def unmask(self, unmasking: Envelope) -> None:
        self.federation.check_unmasking(self.name, unmasking)
        self._call(lambda caller: self._hub().intake.unmasking(unmasking, caller))

    def upload_chunk(self, query_id, attempt, chunk, receipt=None) -> bool:
        self.federation.check_leaving(self.name, query_id, attempt, chunk)
        if receipt is not None:
            self.federation.lies.receipts.append(receipt)
        if self.name in self.federation.network.uploads_stalled:
            self.federation.happened["stall uploads"] += 1
            raise TimedOutError("simulated: the upload stalls")
        self._call(lambda caller: self._hub().intake.chunk(query_id, attempt, chunk, caller, receipt))
        return receipt is not None

    def receipt(self, receipt: Envelope) -> None:
        self.federation.lies.receipts.append(receipt)
        self._call(lambda caller: self._hub().intake.receipt(receipt, caller))


class PartyNodeInMemory(PartyParts):
    """A party's process: what `parties.node` does, one step at a time."""

    guard: LedgerGuard

    def __init__(self, federation: "Federation", name: str) -> None:
        self.federation, self.name = federation, name
        self.machine = Machine(name, federation.directory / name)
        self.machine.directory.mkdir()
        self.calls = PartyCalls(federation, name)
        self.up = False
        self.refused_to_start = ""
        self.start()

    @property
    def ledger_file(self) -> Path:
        return self.machine.directory / "ledger.sqlite"

    def start(self) -> None:
        self.machine.recover()
        federation, directory = self.federation, self.machine.directory
        federation.note_start(self.name)
        try:
            with federation.machines.running(self.machine):
                policy = federation.policy(self.name)
                key = federation.keys.parties[self.name]
                secret = PartySecret(self.name.encode().ljust(32), SCHEMA.digest)
                self.open_parts(
                    directory,
                    Party(self.name, key, policy, SCHEMA, federation.records[self.name], secret),
                    limits=policy.limits.of_ledger,
                    federation=NAME,
                    federation_key=federation.keys.federation.public_bytes,
                    coordinator=self.calls,
                    obfuscators=federation.obfuscators,
                    clock=federation.clock.time,
                    may_answer=lambda: self.guard.may_answer,
                )
                self.history.complete(self.ledger.charged_queries())
                self.guard = LedgerGuard(
                    federation=NAME,
                    party=self.name,
                    signing_key=key,
                    policy=policy,
                    ledger=self.ledger,
                    rosters=self.rosters,
                    random=SystemRandom().bytes,
                    log=Log(f"party.{self.name}"),
                    clock=federation.clock.time,
                    monotonic=federation.clock.monotonic,
                )
                self.guard.hold_reservations()
        except KilledError:
            return
        except (RadofedError, OSError, sqlite3.Error) as error:
            self.refused_to_start = type(error).__name__
            federation.happened[f"refused to start: {self.refused_to_start}"] += 1
            return
        self.refused_to_start = ""
        self.up = True

    def entries_on_disk(self) -> int:
        """How many ledger entries the files hold; -1 if they cannot be read."""
        if not self.ledger_file.exists():
            return 0
        try:
            with closing(sqlite3.connect(self.ledger_file)) as connection:
                return connection.execute("SELECT count(*) FROM chain").fetchone()[0]
        except sqlite3.Error:
            return -1

    def stop(self) -> None:
        if self.up:
            self.ledger.database.close()
            self.history.database.close()
        self.up = False

    def acknowledge(self) -> None:
        """What a data officer does after a genuine restore: `rado ledger acknowledge`, without asking for witnesses."""
        self.stop()
        owner, limits = LedgerOwner(NAME, self.name, "data.csv"), self.federation.policy(self.name).limits.of_ledger
        try:
            ledger = Ledger.open(self.ledger_file, owner, limits, anchored=False)
        except RadofedError:
            self.ledger_file.unlink(missing_ok=True)  # kept elsewhere as evidence
            ledger = Ledger.open(self.ledger_file, owner, limits, anchored=False)
        charge_plan(ledger, plan(ledger, (), witnessed=False), self.federation.clock.time())
        ledger.database.close()
        self.start()
        self.federation.happened["acknowledged"] += 1

    def wait_for_a_person(self) -> None:
        """Say of every query that a person decides first, also of those that this party has answered."""
        with suppress(RadofedError, OSError):
            for work in self.calls.fetch_work(0, 0).work:
                said = sign(Pending(work.query_id, work.attempt, self.name), self.federation.keys.parties[self.name])
                with suppress(WireError):
                    self.calls.pending(said)
                    self.federation.happened["pending"] += 1

    def poll(self) -> None:
        """Fetch all open work and advance it, as the node's threads do one after another."""
        if not self.up:
            return
        try:
            with self.federation.machines.running(self.machine):
                self._poll()
        except KilledError:
            self.federation.happened["kill party"] += 1
            self.stop()

    def _poll(self) -> None:
        try:
            self.rosters.refresh(self.calls)
            self.guard.look(self.calls)
            batch = self.calls.fetch_work(0, 0)
            self.guard.answer(batch.challenges, self.calls)
            self.guard.look(self.calls)
        except (RadofedError, OSError):
            batch = None
        if self.guard.is_set_back:
            self.federation.happened["set back noticed"] += 1
        if not self.guard.may_answer:
            return
        with suppress(RadofedError, OSError):
            self.lifecycle.end_expired()
        if batch is None:
            return
        for work in batch.work:
            try:
                if self.lifecycle.advance(work):
                    self.lifecycle.compute(work)
                    self.lifecycle.advance(work)
            except (RadofedError, OSError) as error:
                self.federation.happened[f"party error {type(error).__name__}"] += 1
        with suppress(RadofedError, OSError):
            self.lifecycle.end_queries(self.lifecycle.held() - {work.query_id for work in batch.work})


class LearnerCalls:
    """The learner's connection, through the network; see learner.client.Coordinator."""

    def __init__(self, federation: "Federation") -> None:
        self.federation = federation

    def _call(self, do):
        return self.federation.network.call(LEARNER, Role.LEARNER, do)

    def _hub(self) -> CoordinatorNode:
        return self.federation.coordinator

    def close(self) -> None:
        pass

    def fetch_roster(self):
        async def roster(_caller):
            return self.federation.lies.told("roster", LEARNER, self.federation.served_roster)

        return self._call(roster)

    def fetch_members(self):
        federation = self.federation
        stated = tuple(
            Features(NAME, name, OWN_FEATURES, "0", 1).sign(federation.keys.parties[name]) for name in federation.names
        )
        return self.fetch_roster(), stated, OWN_FEATURES

    def submit_query(self, query: Envelope) -> None:
        if query not in self.federation.lies.queries:
            self.federation.lies.queries.append(query)
        self._call(lambda caller: self._hub().intake.query(query, caller))

    def watch_query(self, query_id, cursor, wait_s=0, *, ends_only=False):
        return self._call(lambda caller: self._hub().views.watch(caller, query_id, cursor, 0, ends_only=ends_only))

    def cancel_query(self, query_id, learner, key) -> None:
        cancel = Cancel(query_id, learner).sign(key)
        self._call(lambda caller: self._hub().intake.cancel(cancel, caller))

    def retry_query(self, retry: Envelope) -> None:
        self.federation.lies.retries.append(retry)
        self._call(lambda caller: self._hub().intake.retry(retry, caller))

    def fetch_total(self, query_id):
        async def total(caller):
            truth = self._hub().views.total(caller, query_id)
            shown = self.federation.lies.told("total", LEARNER, truth)
            self.federation.lies.totals.append(truth)
            return shown

        return self._call(total)

    def fetch_chunk(self, query_id, index):
        async def fetch(caller):
            chunk = await self._hub().views.total_chunk(caller, query_id, index)
            self.federation.fetched = query_id
            shown = self.federation.lies.told("chunk", LEARNER, chunk.ciphertexts)
            self.federation.lies.chunks.append(chunk.ciphertexts)
            return shown

        return self._call(fetch)


class LearnerNode:
    """The learner's session over its directory; a restart reads only what is on disk."""

    def __init__(self, federation: "Federation") -> None:
        self.federation = federation
        self.machine = Machine(LEARNER, federation.directory / LEARNER)
        self.calls = LearnerCalls(federation)
        directory = self.machine.directory
        directory.mkdir()
        federation.keys.learner.save(directory / "signing.key")
        save_public_key(directory / "federation.pem", federation.keys.federation.public_bytes)
        accepted = {name: fingerprint(federation.keys.parties[name].public_bytes) for name in federation.names}
        (directory / "parties.toml").write_text(parties_toml(accepted))
        self.up = False
        self.start()

    def start(self) -> None:
        self.machine.recover()
        directory = self.machine.directory
        config = LearnerConfig.model_construct(
            federation=NAME,
            name=LEARNER,
            coordinator="simulated",
            federation_key=directory / "federation.pem",
            signing_key=directory / "signing.key",
            parties=directory / "parties.toml",
            paillier_key=directory / "none",
            state_directory=directory / "state",
            releases_directory=directory / "releases",
            tls=None,
        )
        try:
            with self.federation.machines.running(self.machine):
                self.session = Session(config, coordinator=self.calls)
                self.session._key = self.federation.keys.secret
        except KilledError:
            return
        except (RadofedError, OSError):
            return
        self.up = True

    def stop(self) -> None:
        self.up = False

    def guarded(self, act: Callable[[], object]):
        """What a command of the learner does; None if it failed or its process was killed."""
        if not self.up:
            return None
        try:
            with self.federation.machines.running(self.machine):
                return act()
        except KilledError:
            self.federation.happened["kill learner"] += 1
            self.stop()
        except (RadofedError, OSError) as error:
            self.federation.happened[f"learner error {type(error).__name__}"] += 1
        return None
