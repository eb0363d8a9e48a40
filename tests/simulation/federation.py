"""A federation of real cores in one thread, on a controlled clock, with a network that loses, repeats and delays.

The coordinator's core, the parties' lifecycles and the learner's session are the real ones, on real files and SQLite.
Only the sockets, the clock and fsync are replaced. Every party contributes a one-hot vector: a total that opens must be
all ones over its cohort, a contribution that is counted twice shows as a 2, and one that is lost as a 0.
"""

import asyncio
import random
import sqlite3
from collections import Counter, deque
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np

from coordinator.config import CoordinatorLimits
from coordinator.core import Core
from coordinator.intake import Intake
from coordinator.spool import UploadSpool
from coordinator.store import Store
from coordinator.views import Views
from coordinator.witnesses import WitnessExchange
from dpcore.errors import RadofedError
from dpcore.paillier.public import PublicKey
from dpcore.randomness.sources import SystemRandom
from dpcore.records.computation import PartySecret
from learner.config import LearnerConfig
from learner.requests import StatisticRequest
from learner.session import Session
from parties.answering.attempts import Attempts
from parties.answering.coordinator_calls import WorkBatch
from parties.answering.decisions import Party
from parties.answering.lifecycle import QueryLifecycle
from parties.answering.refusals import Refusals
from parties.answering.spool import Spools
from parties.answering.uploads import tidy
from parties.answering.witnesses import LedgerGuard
from parties.database import LedgerOwner
from parties.ledger.acknowledgement import acknowledge, plan
from parties.ledger.ledger import Ledger
from parties.policy import Policy
from parties.rosters import Rosters
from radofed.common.logs import Log
from tests.parties.party_world import SCHEMA, make_records
from tests.simulation.machine import KilledError, Machine, Machines
from wire.cohort import Acceptance
from wire.envelopes import Envelope, SigningKey, fingerprint, save_public_key
from wire.errors import Code, ConnectionLostError, TimedOutError, WireError
from wire.features import OWN_FEATURES, Features
from wire.roster import Member, Role, Roster, certificate_san
from wire.status import Phase

NAME = "simulated"
LEARNER, COORDINATOR = "lea", "hub"
START_UNIX_S = 1_700_000_000.0
EPSILON = Fraction(1, 10)
"""Epsilon of one attempt, pure: charges of n attempts sum to n times this."""


class Clock:
    """Stands for the module `time` wherever the simulated nodes look at it."""

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


@dataclass
class Keys:
    """Keys of one federation, made once for many runs."""

    secret: object
    federation: SigningKey = field(default_factory=SigningKey.generate)
    learner: SigningKey = field(default_factory=SigningKey.generate)
    parties: dict[str, SigningKey] = field(default_factory=dict)


@dataclass
class ViolationError(Exception):
    """A promise that a run broke."""

    promise: str
    detail: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.detail}"


@dataclass
class Network:
    """Calls of members to the coordinator. `faults`: for each member, what happens to its next calls, in order."""

    federation: "Federation"
    faults: dict[str, deque[str]] = field(default_factory=dict)
    cut_off: set[str] = field(default_factory=set)
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
        """Deliver delayed requests in any order; nobody waits for their replies."""
        order.shuffle(self.late)
        late, self.late = self.late, []
        for member, deliver in late:
            if member not in self.cut_off:
                with suppress(RadofedError):
                    deliver()


class CoordinatorNode:
    """The coordinator's core behind a gate that knows its roster."""

    def __init__(self, federation: "Federation") -> None:
        self.federation = federation
        self.machine = Machine("hub", federation.directory / "hub")
        self.machine.directory.mkdir()
        self.roster = federation.roster
        self.up = False
        # What a hostile coordinator shows, by party: changes a Work before it leaves.
        self.spoil_work: Callable[[str, object], object] = lambda _party, work: work
        self.spoil_total: Callable[[bytes, bytes], bytes] = lambda _query, chunk: chunk
        self.start()

    def start(self) -> None:
        self.machine.recover()
        clock = self.federation.clock
        self.loop = InlineLoop()
        try:
            with self.federation.machines.running(self.machine):
                self.store = Store(self.machine.directory / "store.sqlite", NAME)
                spool = UploadSpool(self.machine.directory / "spool", 1 << 30)
                self.core = Core(
                    self.store, spool, CoordinatorLimits(), Log("hub"), clock=clock.monotonic, wall_clock=clock.time
                )
                self.intake = Intake(self.core, lambda: self.roster, Log("hub"))
                self.witnesses = WitnessExchange(self.store, lambda: self.roster, clock.monotonic)
                self.views = Views(self.core, self.witnesses)
                self._run(self.core.start())
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
        result = self.loop.run_until_complete(coroutine)
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
            return self.federation.served_roster, self.federation.clock.time()

        return self._call(roster)

    def fetch_work(self, cursor: int, wait_s: int) -> WorkBatch:
        async def work(caller):
            items, reached = await self._hub().views.work(caller, cursor, wait_s)
            shown = tuple(self._hub().spoil_work(self.name, work) for work, _ in items)
            return WorkBatch(shown, reached, 0, self._hub().witnesses.show(caller))

        return self._call(work)

    def state_features(self, features: Envelope) -> None:
        async def state(caller):
            self._hub().witnesses.state_features(features, caller)

        self._call(state)

    def ask_witnesses(self, challenge: Envelope) -> None:
        async def ask(caller):
            self._hub().witnesses.ask(challenge, caller)

        self._call(ask)

    def witness(self, witness: Envelope) -> None:
        async def answer(caller):
            self._hub().witnesses.answer(witness, caller)

        self._call(answer)

    def fetch_witnesses(self, nonce: bytes):
        async def fetch(caller):
            return self._hub().witnesses.answers(nonce, caller), self._hub().witnesses.newest(caller)

        return self._call(fetch)

    def answer(self, answer: Envelope, *, accepts: bool) -> None:
        if accepts:
            said = Acceptance.from_bytes(answer.payload)
            self.federation.check_attempt(self.name, said.query_id, said.attempt)

        def submit(caller):
            intake = self._hub().intake
            return intake.acceptance(answer, caller) if accepts else intake.refusal(answer, caller)

        self._call(submit)

    def ready(self, ready: Envelope) -> None:
        self._call(lambda caller: self._hub().intake.ready(ready, caller))

    def upload_chunk(self, query_id, attempt, chunk) -> None:
        self.federation.check_leaving(self.name, query_id, attempt, chunk)
        self._call(lambda caller: self._hub().intake.chunk(query_id, attempt, chunk, caller))

    def receipt(self, receipt: Envelope) -> None:
        self._call(lambda caller: self._hub().intake.receipt(receipt, caller))


class PartyNodeInMemory:
    """A party's process: what `parties.node` does, one step at a time."""

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
        try:
            with federation.machines.running(self.machine):
                policy = federation.policy(self.name)
                self.ledger = Ledger.open(
                    self.ledger_file, LedgerOwner(NAME, self.name, "data.csv"), policy.limits.of_ledger
                )
                log = Log(f"party.{self.name}")
                attempts, spools = Attempts(self.ledger), Spools(directory / "spool", 1 << 24)
                tidy(spools, attempts)
                self.attempts = attempts
                self.rosters = Rosters(
                    directory, federation=NAME, federation_key=federation.keys.federation.public_bytes, log=log
                )
                self.guard = LedgerGuard(
                    federation=NAME,
                    party=self.name,
                    signing_key=federation.keys.parties[self.name],
                    policy=policy,
                    ledger=self.ledger,
                    rosters=self.rosters,
                    random=SystemRandom().bytes,
                    log=log,
                    clock=federation.clock.time,
                    monotonic=federation.clock.monotonic,
                )
                self.lifecycle = QueryLifecycle(
                    Party(
                        self.name,
                        federation.keys.parties[self.name],
                        policy,
                        SCHEMA,
                        federation.records[self.name],
                        PartySecret(self.name.encode().ljust(32), SCHEMA.digest),
                    ),
                    attempts=attempts,
                    spools=spools,
                    rosters=self.rosters,
                    refusals=Refusals(directory),
                    coordinator=self.calls,
                    random=SystemRandom(),
                    log=log,
                    obfuscators=federation.obfuscators,
                    clock=federation.clock.time,
                    may_answer=lambda: self.guard.may_answer,
                )
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
        acknowledge(ledger, plan(ledger, (), witnessed=False), self.federation.clock.time())
        ledger.database.close()
        self.start()
        self.federation.happened["acknowledged"] += 1

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
            self.lifecycle.end_absent(work.query_id for work in batch.work)


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
            return self.federation.served_roster

        return self._call(roster)

    def fetch_features(self):
        federation = self.federation
        stated = tuple(
            Features(NAME, name, OWN_FEATURES, "0", 1).sign(federation.keys.parties[name]) for name in federation.names
        )
        return stated, OWN_FEATURES

    def submit_query(self, query: Envelope) -> None:
        self._call(lambda caller: self._hub().intake.query(query, caller))

    def watch_query(self, query_id, cursor, wait_s=0):
        return self._call(lambda caller: self._hub().views.watch(caller, query_id, cursor, 0))

    def cancel_query(self, query_id, learner, _key) -> None:
        self._call(lambda caller: self._hub().intake.cancel(query_id, learner, caller))

    def retry_query(self, retry: Envelope) -> None:
        self._call(lambda caller: self._hub().intake.retry(retry, caller))

    def fetch_total(self, query_id):
        async def total(caller):
            return self._hub().views.total(caller, query_id)

        return self._call(total)

    def fetch_chunk(self, query_id, index):
        async def fetch(caller):
            chunk = await self._hub().views.total_chunk(caller, query_id, index)
            return self._hub().spoil_total(query_id, chunk.ciphertexts)

        return self._call(fetch)


class LearnerNode:
    """The learner's session over its directory; a restart reads only what is on disk."""

    def __init__(self, federation: "Federation") -> None:
        self.federation = federation
        self.machine = Machine(LEARNER, federation.directory / LEARNER)
        directory = self.machine.directory
        directory.mkdir()
        federation.keys.learner.save(directory / "signing.key")
        save_public_key(directory / "federation.pem", federation.keys.federation.public_bytes)
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
            paillier_key=directory / "none",
            state_directory=directory / "state",
            releases_directory=directory / "releases",
            tls=None,
        )
        try:
            with self.federation.machines.running(self.machine):
                self.session = Session(config, coordinator=LearnerCalls(self.federation))
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


class Federation:
    """All nodes, what they did, and the promises that no run may break.

    limit: epsilon of each party's lifetime limit, for whole records.
    """

    def __init__(
        self,
        directory: Path,
        keys: Keys,
        machines: Machines,
        clock: Clock,
        obfuscators,
        *,
        parties: int,
        limit: Fraction,
    ) -> None:
        self.directory, self.keys, self.machines, self.clock = directory, keys, machines, clock
        self.obfuscators, self.limit = obfuscators, limit
        self.names = tuple(sorted(keys.parties))[:parties]
        self.records = {name: make_records(rows=20 + i, seed=i) for i, name in enumerate(self.names)}
        self.version, self.expelled = 1, set[str]()
        self.happened: Counter[str] = Counter()
        # (party, query, attempt, index) -> hashes of the bytes that left.
        self.left: dict[tuple[str, bytes, int, int], set[bytes]] = {}
        self.signed_attempts: dict[bytes, int] = {}
        self.opened: dict[bytes, tuple[str, ...]] = {}
        self.lost_for_good: set[str] = set()
        self.set_back: set[str] = set()
        self.asked: list[bytes] = []
        self.served_roster = self.roster.sign(keys.federation)
        self.network = Network(self, happened=self.happened)
        self.coordinator = CoordinatorNode(self)
        self.parties = {name: PartyNodeInMemory(self, name) for name in self.names}
        self.learner = LearnerNode(self)

    def close(self) -> None:
        for node in (*self.parties.values(), self.coordinator, self.learner):
            if node.up:
                node.stop()

    @property
    def roster(self) -> Roster:
        members = [Member(Role.COORDINATOR, COORDINATOR, b"", certificate_san(NAME, Role.COORDINATOR, COORDINATOR))]
        members += [
            Member(Role.PARTY, name, self.keys.parties[name].public_bytes, certificate_san(NAME, Role.PARTY, name), 20)
            for name in self.names
            if name not in self.expelled
        ]
        san = certificate_san(NAME, Role.LEARNER, LEARNER)
        members.append(Member(Role.LEARNER, LEARNER, self.keys.learner.public_bytes, san))
        return Roster(NAME, self.version, int(START_UNIX_S), tuple(members))

    def policy(self, name: str) -> Policy:
        return Policy.model_validate(
            {
                "accepted_members": [
                    fingerprint(key.public_bytes) for other, key in self.keys.parties.items() if other != name
                ],
                "learners": [{"name": LEARNER, "signing_key": fingerprint(self.keys.learner.public_bytes)}],
                "designs": ["statistic"],
                "limits": {"epsilon": f"{float(self.limit):g}", "delta": "1e-3", "unbounded_queries": 0},
            }
        )

    # What every node does, and what it proves.

    def check_leaving(self, party: str, query_id: bytes, attempt: int, chunk) -> None:
        """Bytes leave a party: they are charged, the same for ever, and their attempt was wanted."""
        hashes = self.left.setdefault((party, query_id, attempt, chunk.index), set())
        hashes.add(chunk.content_hash)
        if len(hashes) > 1:
            raise ViolationError(
                "one ciphertext an attempt", f"{party} sent two chunks {chunk.index} of attempt {attempt}"
            )
        ledger = self.parties[party].ledger
        if not ledger.is_charged(query_id, attempt):
            raise ViolationError("charged before it leaves", f"{party} sent attempt {attempt} uncharged")
        self.check_attempt(party, query_id, attempt)

    def check_attempt(self, party: str, query_id: bytes, attempt: int) -> None:
        """A party takes part in no attempt that the learner did not start."""
        if self.signed_attempts.get(query_id, 1) < attempt:
            raise ViolationError("attempts are the learner's", f"{party} takes part in attempt {attempt}, unsigned")

    def check_ledgers(self) -> None:
        """Every ledger holds a charge for all that left, and none is overdrawn."""
        for name, party in self.parties.items():
            if not party.up or not party.guard.may_answer:
                continue
            sent = {(query_id, attempt) for who, query_id, attempt, _ in self.left if who == name}
            missing = [pair for pair in sent if not party.ledger.is_charged(*pair)]
            if missing and name not in self.set_back:
                raise ViolationError("no charge is lost", f"{name} forgot {len(missing)} charges")
            spent = party.ledger.state().scopes[0].spent.loss.epsilon
            if spent > self.limit and name not in self.set_back:
                raise ViolationError("no ledger is overdrawn", f"{name} spent {spent} of {self.limit}")
            if faults := party.ledger.verify():
                raise ViolationError("ledgers are sound", f"{name}: {faults[0]}")

    def check_release(self, query_id: bytes, release) -> None:
        """A total is all ones over its cohort."""
        members = tuple(release.party_rows)
        expected = np.array([int(name in members) for name in self.names], dtype=np.int64)
        found = release.integers.reshape(-1)
        if not np.array_equal(found, expected):
            raise ViolationError("a total is its cohort's sum", f"{found.tolist()} over {members}")
        before = self.opened.setdefault(query_id, members)
        if before != members:
            raise ViolationError("a query has one total", f"{before} and {members}")
        if release.cohort.attempt > self.signed_attempts.get(query_id, 1):
            raise ViolationError("attempts are the learner's", f"a total of attempt {release.cohort.attempt}")
        unpaid = [m for m in members if m in self.parties and not self._paid(m, query_id, release.cohort.attempt)]
        if unpaid:
            raise ViolationError("no charge is lost", f"{unpaid} did not pay for an opened total")

    def _paid(self, name: str, query_id: bytes, attempt: int) -> bool:
        party = self.parties[name]
        return not party.up or name in self.set_back or party.ledger.is_charged(query_id, attempt)

    def is_stuck(self, name: str) -> bool:
        """Whether a party answers nothing until its officer acknowledges."""
        party = self.parties[name]
        if name in self.lost_for_good:
            return False
        return bool(party.refused_to_start) if not party.up else party.guard.is_set_back

    # The learner.

    def ask(self, *, max_attempts: int = 3, short: bool = False) -> bytes | None:
        """Plan and send a query over one predicate for each party."""
        predicates = tuple(f'x["age"] >= {30 + i}' for i in range(len(self.names)))
        request = StatisticRequest(
            SCHEMA,
            tuple(_parsed(text) for text in predicates),
            epsilon=EPSILON,
            pure=True,
            cohort_min=3,
            max_rows=1000,
            attempts=max_attempts,
            answer_within_s=20 if short else 120,
            prepare_within_s=20 if short else 120,
            upload_within_s=20 if short else 120,
            expires_after_s=600 if short else 3600,
        )

        def act():
            plan = self.learner.session.plan(request)
            query_id = self.learner.session.prepare(plan)
            self.asked.append(query_id)
            self.learner.session.send(query_id)
            return query_id

        return self.learner.guarded(act)

    def send_again(self) -> None:
        """Send what was saved and never acknowledged."""

        def act():
            for query_id in self.learner.session.unsent():
                self.learner.session.send(query_id)

        self.learner.guarded(act)

    def look(self, query_id: bytes, *, retry: bool) -> Phase | None:
        """Follow a query once: fetch a complete total, perhaps retry a lost attempt."""

        def act():
            session = self.learner.session
            if not session.release_directory(query_id).exists():
                phase = session.status(query_id).phase
                if phase is Phase.LOST and retry:
                    attempt = session.status(query_id).attempt + 1
                    # Noted before it is sent: the request may arrive although its reply is lost.
                    self.signed_attempts[query_id] = max(attempt, self.signed_attempts.get(query_id, 1))
                    session.retry(query_id)
                    self.happened["retry"] += 1
                if phase is not Phase.COMPLETE:
                    return phase
            self.check_release(query_id, session.fetch(query_id))
            return Phase.COMPLETE

        return self.learner.guarded(act)

    def phase(self, query_id: bytes) -> Phase | None:
        """As the coordinator has it; None if it does not know the query."""
        live = self.coordinator.core.get(query_id) if self.coordinator.up else None
        return None if live is None else live.round.phase

    # Time and machines.

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.coordinator.tick()

    def issue_roster(self) -> None:
        """The federation key signs a new version, and the coordinator serves it."""
        self.version += 1
        self.served_roster = self.roster.sign(self.keys.federation)
        self.coordinator.roster = self.roster

    def nodes(self):
        return {COORDINATOR: self.coordinator, LEARNER: self.learner, **self.parties}

    def restart(self, name: str) -> None:
        node = self.nodes()[name]
        if name in self.lost_for_good:
            return
        if node.up:
            node.stop()
        node.start()

    # After the faults.

    def heal(self) -> None:
        """Repair what can be repaired: network, disks, processes, the roster."""
        self.network.faults.clear()
        self.network.cut_off.clear()
        self.coordinator.spoil_work = lambda _party, work: work
        self.coordinator.spoil_total = lambda _query, chunk: chunk
        for name, node in self.nodes().items():
            node.machine.kill_after, node.machine.disk_full = None, False
            if not node.up:
                self.restart(name)
        self.served_roster = self.roster.sign(self.keys.federation)
        self.coordinator.roster = self.roster
        self.network.deliver_late(random.Random(0))

    def rounds(self, count: int, *, retry: bool, done: Callable[[], bool]) -> bool:
        """Let every node act in turn, a second each round, until `done`. False if it is not done after `count`."""
        for _ in range(count):
            self.send_again()
            for party in self.parties.values():
                party.poll()
            for query_id in list(self.asked):
                self.look(query_id, retry=retry)
            if done():
                return True
            self.pass_time(1.0)
        return done()

    def check_progress(self) -> None:
        """All open queries end by their deadlines, and the members that are left complete a new one."""
        self.heal()

        def all_ended() -> bool:
            phases = [self.phase(query_id) for query_id in self.asked]
            return all(phase is None or phase.is_terminal for phase in phases)

        self.rounds(12, retry=True, done=all_ended)
        for name in self.names:
            self._check_noticed(name)
            if self.is_stuck(name):
                if name not in self.set_back:
                    raise ViolationError(
                        "a sound ledger is not refused", f"{name}: {self.parties[name].refused_to_start}"
                    )
                self.parties[name].acknowledge()
        if not all_ended():
            self.pass_time(3600 + 301)
            self.rounds(3, retry=False, done=all_ended)
        if not all_ended():
            raise ViolationError("nothing waits beyond its deadline", f"{[self.phase(q) for q in self.asked]}")
        for name, party in self.parties.items():
            if party.up and party.guard.may_answer and party.attempts.unfinished():
                self.pass_time(3600 + 301)
                party.poll()
                if left := party.attempts.unfinished():
                    raise ViolationError("nothing waits beyond its deadline", f"{name} holds {left[0].state} for ever")
        self.check_ledgers()
        self._check_fresh_query()

    def _check_noticed(self, name: str) -> None:
        """A ledger that lacks an attempt is noticed, if a member that saw it in a cohort answers."""
        party = self.parties[name]
        if name not in self.set_back or not party.up or self.is_stuck(name) or not party.guard.may_answer:
            return
        sent = {(query_id, attempt) for who, query_id, attempt, _ in self.left if who == name}
        for pair in sent:
            if party.ledger.is_charged(*pair):
                continue
            saw = {who for who, query_id, attempt, _ in self.left if (query_id, attempt) == pair and who != name}
            if any(who in party.guard.answered and who not in self.set_back for who in saw):
                raise ViolationError("a set-back ledger is noticed", f"{name} lacks an attempt that {saw} saw")

    def _check_fresh_query(self) -> None:
        able = [
            name
            for name, party in self.parties.items()
            if party.up
            and party.guard.may_answer
            and name not in self.expelled
            and name not in self.set_back
            and party.ledger.state().scopes[0].remaining_epsilon >= float(EPSILON) * (1 + 1e-9)
        ]
        if len(able) < 3:
            self.happened["no core left"] += 1
            return
        query_id = self.ask(max_attempts=1, short=True)
        if query_id is None:
            raise ViolationError("a healed federation answers", "the learner could not ask")
        self.rounds(60, retry=False, done=lambda: query_id in self.opened)
        if query_id not in self.opened:
            status = self.coordinator.core.get(query_id).round
            raise ViolationError("a healed federation answers", f"{status.phase.name}: {status.code} {status.detail}")
        self.happened["progress"] += 1


def one_hot(federation: Federation):
    """Stands for `integer_vector`: every party contributes a 1 in its own place."""

    def contribution(opened, records, _computation):
        values = np.zeros(opened.query.length, dtype=np.int64)
        (place,) = [i for i, name in enumerate(federation.names) if federation.records[name] is records]
        values[place] = 1
        return values

    return contribution


def _parsed(text: str):
    from dpcore.predicates.notation import parse

    return parse(text)


class SharedObfuscators:
    """One small table of obfuscators for all parties; see parties.answering.obfuscators.Obfuscators."""

    def __init__(self, source) -> None:
        self._source = source

    def expect(self, _key: PublicKey, _count: int) -> None:
        pass

    def source(self, _key: PublicKey):
        return self._source

    def rest(self, _key: PublicKey) -> None:
        pass

    def close(self) -> None:
        pass
