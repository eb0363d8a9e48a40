"""A federation of real cores in one thread, on a controlled clock, with a network that loses, repeats and delays.

The coordinator's core, the parties' lifecycles and the learner's session are the real ones, on real files and SQLite.
Only the sockets, the clock and fsync are replaced. Every party contributes a one-hot vector: a total that opens must be
all ones over its cohort, a contribution that is counted twice shows as a 2, and one that is lost as a 0.
"""

import math
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np

from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.public import Ciphertext, ObfuscatorSource, PublicKey
from learner.requests import StatisticRequest
from parties.answering.witnesses import ASK_AGAIN_S, ASK_DAILY_S, LOOK_EVERY_S
from parties.approval.decisions import Decision, DecisionError, Decisions, Person, Verdict
from parties.policy import Policy
from tests.exact_losses import NOTHING, Exact, laplace_batch
from tests.federation.material import roster_of
from tests.federation.party import SCHEMA, make_records
from tests.simulation.lies import Lies
from tests.simulation.machine import Machines
from tests.simulation.nodes import (
    COORDINATOR,
    EPSILON,
    LEARNER,
    NAME,
    START_UNIX_S,
    Clock,
    CoordinatorNode,
    LearnerNode,
    Network,
    PartyNodeInMemory,
)
from tests.simulation.promises import Coalition, Unmasked, ViolationError
from wire.binding import OpeningSecret
from wire.envelopes import Envelope, SigningKey, fingerprint, sha256
from wire.query import Query
from wire.roster import Roster
from wire.statements import Witness
from wire.status import Phase

QUICK_ROUNDS = 4
LIMIT_DELTA = 1e-3


@dataclass
class Keys:
    """Keys of one federation, made once for many runs."""

    secret: object
    federation: SigningKey = field(default_factory=lambda: SigningKey.generate(NAME))
    learner: SigningKey = field(default_factory=lambda: SigningKey.generate(NAME))
    parties: dict[str, SigningKey] = field(default_factory=dict)


class Federation:
    """All nodes, what they did, and the promises that no run may break.

    limit: epsilon of each party's lifetime limit, for whole records. asks: the party that asks people, if any.
    shows_heads: whether the coordinator shows parties their own newest heads. seed: of what deviating nodes draw.
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
        asks: str = "",
        shows_heads: bool = True,
        seed: int = 0,
    ) -> None:
        self.shows_heads = shows_heads
        self.directory, self.keys, self.machines, self.clock = directory, keys, machines, clock
        self.obfuscators, self.limit, self.asks = obfuscators, limit, asks
        self.names = tuple(sorted(keys.parties))[:parties]
        self.records = {name: make_records(rows=20 + i, seed=i) for i, name in enumerate(self.names)}
        self.version, self.expelled = 1, set[str]()
        self.happened: Counter[str] = Counter()
        # (party, query, attempt, index) -> hashes of the bytes that left, by the cohort that the party was shown.
        self.left: dict[tuple[str, bytes, int, int], dict[bytes, bytes]] = {}
        # (party, subject) -> the attempts with it that a party had sent bytes of when it last answered its start.
        self.witnessed: dict[tuple[str, str], set[tuple[bytes, int]]] = {}
        # The retries that the learner has signed.
        self.signed_attempts: set[tuple[bytes, int]] = set()
        # What a node that deviates draws.
        self.order = random.Random(seed)
        self.lies, self.coalition, self.unmasked = Lies(self.happened), Coalition(), Unmasked()
        self.openings: dict[bytes, OpeningSecret | None] = {}
        self.fetched = b""
        self.opened: dict[bytes, tuple[str, ...]] = {}
        self.lost_for_good: set[str] = set()
        self.set_back: set[str] = set()
        # Their files were lost or replaced by a copy, which may lack what is no entry of the ledger.
        self.damaged: set[str] = set()
        self.acknowledged: set[str] = set()
        self.asked: list[bytes] = []
        # By party: the ledger that was last found sound, and what it held then.
        self._sound: dict[str, tuple[object, int, int]] = {}
        self._policies: dict[str, Policy] = {}
        self.served_roster = self.roster.sign(keys.federation)
        self.lies.rosters.append(self.served_roster)
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
        keys = {name: self.keys.parties[name] for name in self.names if name not in self.expelled}
        rows, issued = dict.fromkeys(keys, 20), int(START_UNIX_S)
        return roster_of(NAME, keys, self.keys.learner, rows=rows, version=self.version, issued_at_unix_s=issued)

    def policy(self, name: str) -> Policy:
        if name not in self._policies:
            self._policies[name] = Policy.model_validate(
                {
                    "accepted_members": [
                        fingerprint(key.public_bytes) for other, key in self.keys.parties.items() if other != name
                    ],
                    "learners": [{"name": LEARNER, "signing_key": fingerprint(self.keys.learner.public_bytes)}],
                    "designs": ["statistic"],
                    "approval": {"everything": name == self.asks},
                    "limits": {
                        "epsilon": f"{float(self.limit):g}",
                        "delta": f"{LIMIT_DELTA:g}",
                        "unbounded_queries": 0,
                    },
                }
            )
        return self._policies[name]

    # What every node does, and what it proves.

    def check_leaving(self, party: str, query_id: bytes, attempt: int, chunk) -> None:
        """Bytes leave a party: they are charged, the same for ever, and their attempt was wanted.

        A copy from before the charge may send what it had computed under the masks of a second cohort
        (docs/threat-model-details.md, "A set-back spool"), but never other bytes for the same one.
        """
        hashes = self.left.setdefault((party, query_id, attempt, chunk.index), {})
        cohort = self.coalition.cohort_of(party, query_id, attempt)
        is_same = hashes.setdefault(cohort, chunk.content_hash) == chunk.content_hash
        if not is_same or (len(hashes) > 1 and party not in self.set_back):
            raise ViolationError(
                "one ciphertext an attempt", f"{party} sent two chunks {chunk.index} of attempt {attempt}"
            )
        self.happened["second cohort of a copy"] += len(hashes) > 1
        ledger = self.parties[party].ledger
        if not ledger.is_charged(query_id, attempt):
            raise ViolationError("charged before it leaves", f"{party} sent attempt {attempt} uncharged")
        self.check_attempt(party, query_id, attempt)
        self.coalition.check_leaving(party, query_id, attempt, chunk, self.keys.secret.secret)
        if party == self.asks and party not in self.set_back:
            self._check_approved(query_id)

    def check_dealing(self, party: str, key_shares: Envelope) -> None:
        """Shares of a party's keys are dealt. A copy from before deals anew, and counts among those that collude."""
        if party not in self.damaged:
            self.unmasked.check_dealt(party, key_shares)

    def check_unmasking(self, party: str, unmasking: Envelope) -> None:
        """Shares of keys leave a party."""
        if party not in self.set_back and party != self.coalition.deviant:
            self.unmasked.check_given(party, unmasking, self.coalition.deviant)

    def _check_approved(self, query_id: bytes) -> None:
        """Nothing leaves a party that asks people without their approval."""
        party = self.parties[self.asks]
        decisions = Decisions(party.history.database)
        if decisions.decided(query_id, LEARNER, self.policy(self.asks)).verdict is not Verdict.APPROVED:
            raise ViolationError("approved before it leaves", f"{self.asks} sent without an approval")

    def decide(self, *, approves: bool) -> None:
        """The people of the party that asks decide on all that waits."""
        party = self.parties.get(self.asks)
        if party is None or not party.up:
            return
        for shown in party.history.waiting(self.clock.time()):
            decision = Decision(Person("officer"), approves, "", self.clock.time())
            with suppress(DecisionError):
                Decisions(party.history.database).decide(
                    shown.query_id, LEARNER, self.policy(self.asks), decision, still_waits=True
                )
                self.happened["approved" if approves else "refused by a person"] += 1

    def check_attempt(self, party: str, query_id: bytes, attempt: int) -> None:
        """A party takes part in no attempt that the learner did not start."""
        if attempt > 1 and (query_id, attempt) not in self.signed_attempts:
            raise ViolationError("attempts are the learner's", f"{party} takes part in attempt {attempt}, unsigned")

    def check_ledgers(self) -> None:
        """Every ledger holds a charge for all that left, and none is overdrawn."""
        for name, party in self.parties.items():
            if not party.up or not party.guard.may_answer:
                continue
            sent = {(query_id, attempt) for who, query_id, attempt, _ in self.left if who == name}
            # Files change outside the ledger's connection only while the party is down.
            state = party.ledger, party.ledger.database._connection.total_changes, len(sent)
            if self._sound.get(name) == state:
                continue
            missing = [pair for pair in sent if not party.ledger.is_charged(*pair)]
            if missing and name not in self.set_back:
                raise ViolationError("no charge is lost", f"{name} forgot {len(missing)} charges")
            # By composition: a sum of Laplace batches is less than that of their epsilons.
            spent = party.ledger.state().scopes[0].spent_epsilon
            if spent > float(self.limit) and name not in self.set_back:
                raise ViolationError("no ledger is overdrawn", f"{name} spent {spent} of {self.limit}")
            # By another accountant than the ledger's, of all that left.
            delta = answers(len(sent), len(self.names)).delta(float(self.limit))
            if delta > LIMIT_DELTA and name not in self.set_back:
                raise ViolationError("no ledger is overdrawn", f"{name} has delta {delta} at epsilon {self.limit}")
            self.coalition.check_charges(name, self._charges_of(party))
            if faults := party.ledger.verify():
                raise ViolationError("ledgers are sound", f"{name}: {faults[0]}")
            self._sound[name] = state

    def check_release(self, query_id: bytes, release) -> None:
        """A total is all ones over its cohort, and the noise that they added for it."""
        members = tuple(release.party_rows)
        expected = np.array([int(name in members) for name in self.names], dtype=np.int64)
        for name in members:
            expected += self.coalition.top_ups.get((name, query_id, release.cohort.attempt), 0)
        found = release.integers.reshape(-1)
        if not np.array_equal(found, expected):
            raise ViolationError("a total is its cohort's sum", f"{found.tolist()} over {members}")
        self.happened["total without members that vanished"] += bool(release.vanished)
        self.happened["total of survivors"] += bool(release.survivors)
        before = self.opened.setdefault(query_id, members)
        if before != members:
            raise ViolationError("a query has one total", f"{before} and {members}")
        attempt = release.cohort.attempt
        if attempt > 1 and (query_id, attempt) not in self.signed_attempts:
            raise ViolationError("attempts are the learner's", f"a total of attempt {attempt}")
        unpaid = [m for m in members if m in self.parties and not self._paid(m, query_id, release.cohort.attempt)]
        if unpaid:
            raise ViolationError("no charge is lost", f"{unpaid} did not pay for an opened total")

    def _paid(self, name: str, query_id: bytes, attempt: int) -> bool:
        party = self.parties[name]
        return not party.up or name in self.set_back or party.ledger.is_charged(query_id, attempt)

    def _charges_of(self, party: PartyNodeInMemory) -> Callable[[bytes], bool]:
        return lambda query_id: any(party.ledger.is_charged(query_id, attempt) for attempt in range(1, 4))

    @staticmethod
    def id_of(query: Query) -> bytes:
        """The id that a query gets once it is signed."""
        return sha256(query.to_bytes())

    def can_spare(self, name: str) -> bool:
        """Whether a party that took part so far may be damaged: the first one, or if a cohort is left without it."""
        out = self.lost_for_good | self.set_back | self.expelled
        return name not in out and (not out or len(self.names) - len(out) > 3)

    def is_stuck(self, name: str) -> bool:
        """Whether a party answers nothing until its officer acknowledges."""
        party = self.parties[name]
        if name in self.lost_for_good:
            return False
        return bool(party.refused_to_start) if not party.up else party.guard.is_set_back

    # The learner.

    def ask(
        self,
        *,
        max_attempts: int = 3,
        short: bool = False,
        quorum_wait_s: int = 0,
        may_vanish: int = 0,
        changed: Callable[[Query, OpeningSecret], Query] | None = None,
        opening: OpeningSecret | None = None,
    ) -> bytes | None:
        """Plan and send a query over one predicate for each party. changed: what a learner makes of it that deviates.

        opening: in place of the query's own secret.
        """
        predicates = tuple(f'x["age"] >= {30 + i}' for i in range(len(self.names)))
        request = StatisticRequest(
            SCHEMA,
            tuple(_parsed(text) for text in predicates),
            epsilon=EPSILON,
            pure=True,
            cohort_min=3,
            max_rows=1000,
            attempts=max_attempts,
            quorum_wait_s=quorum_wait_s or None,
            may_vanish=may_vanish if len(self.names) > 3 else 0,
            answer_within_s=20 if short else 120,
            prepare_within_s=20 if short else 120,
            upload_within_s=20 if short else 120,
            expires_after_s=600 if short else 3600,
        )

        def act():
            plan = self.learner.session.plan(request)
            if changed is not None:
                plan = replace(plan, query=changed(plan.query, plan.opening), opening=opening or plan.opening)
            query_id = self.learner.session.prepare(plan)
            self.openings[query_id] = plan.opening
            self.asked.append(query_id)
            self.happened["mask graph"] += plan.query.mask_neighbours > 0
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
                    self.signed_attempts.add((query_id, attempt))
                    session.retry(query_id)
                    self.happened["retry"] += 1
                if phase is not Phase.COMPLETE:
                    return phase
            release = session.fetch(query_id)
            self.happened["total opened"] += query_id not in self.opened
            self.check_release(query_id, release)
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

    def issue_roster(self, *, is_served: bool = True) -> None:
        """The federation key signs a new version, and the coordinator serves it, unless it withholds it."""
        self.version += 1
        signed = self.roster.sign(self.keys.federation)
        self.lies.rosters.append(signed)
        if is_served:
            self.served_roster = signed
            self.coordinator.follow(self.roster)

    def expel(self, name: str, *, is_served: bool = True) -> bool:
        """A new roster without a member, or with it again. False if it cannot be spared."""
        if name in self.expelled:
            self.expelled.discard(name)
        elif self.can_spare(name):
            self.expelled.add(name)
        else:
            return False
        self.issue_roster(is_served=is_served)
        return True

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
        self.network.uploads_stalled.clear()
        self.lies.due.clear()
        for name, node in self.nodes().items():
            node.machine.kill_after, node.machine.disk_full = None, False
            if not node.up:
                self.restart(name)
        self.served_roster = self.roster.sign(self.keys.federation)
        self.coordinator.follow(self.roster)
        self.network.deliver_late(random.Random(0))

    def rounds(self, seconds: int, *, retry: bool, done: Callable[[], bool]) -> bool:
        """Let every node act in turn, until `done`. False if it is not done after these seconds.

        A round takes a second, and later three: what still waits then waits for a deadline.
        """
        end, number = self.clock.now + seconds, 0
        while self.clock.now < end:
            self.send_again()
            self.decide(approves=True)
            for party in self.parties.values():
                party.poll()
            for query_id in list(self.asked):
                self.look(query_id, retry=retry)
            if done():
                return True
            number += 1
            self.pass_time(1.0 if number < QUICK_ROUNDS else 3.0)
        return done()

    def check_progress(self) -> None:
        """All open queries end by their deadlines, and the members that are left complete a new one."""
        self.heal()

        def all_ended() -> bool:
            phases = [self.phase(query_id) for query_id in self.asked]
            return all(phase is None or phase.is_terminal for phase in phases)

        self.rounds(12, retry=True, done=all_ended)
        self._check_noticed()
        for name in self.names:
            self._acknowledge_if_stuck(name)
        if not all_ended():
            self.pass_time(3600 + 301)
            self.rounds(3, retry=False, done=all_ended)
        if not all_ended():
            raise ViolationError("nothing waits beyond its deadline", f"{[self.phase(q) for q in self.asked]}")
        for name, party in self.parties.items():
            if party.up and party.guard.may_answer and party.attempts.unfinished():
                self.pass_time(3600 + 301)
                party.poll()
                # Others may show only now what a member that deviates signed of its own ledger.
                if self._acknowledge_if_stuck(name):
                    party.poll()
                if left := party.attempts.unfinished():
                    raise ViolationError("nothing waits beyond its deadline", f"{name} holds {left[0].state} for ever")
        self._release_held()
        self._ask_next_day()
        self._check_charged_after_all()
        self.check_ledgers()
        self._check_fresh_query()

    def _acknowledge_if_stuck(self, name: str) -> bool:
        """Let the officer of a party acknowledge that its ledger was set back, if it is. Returns whether it was."""
        if not self.is_stuck(name):
            return False
        # A member that deviates may sign heads that its ledger never had.
        if name not in self.set_back | {self.coalition.deviant}:
            raise ViolationError("a sound ledger is not refused", f"{name}: {self.parties[name].refused_to_start}")
        self.parties[name].acknowledge()
        self.acknowledged.add(name)
        return True

    def note_witness(self, party: str, witness: Envelope) -> None:
        """A party answers a challenge with what it has seen of the subject so far."""
        subject = Witness.from_bytes(witness.payload).subject
        sent = {(query_id, attempt) for who, query_id, attempt, _ in self.left if who == party}
        self.witnessed[party, subject] = {pair for pair in sent if self.coalition.was_with(party, subject, *pair)}

    def note_start(self, party: str) -> None:
        """A party starts, and asks members again."""
        self.witnessed = {pair: sent for pair, sent in self.witnessed.items() if pair[1] != party}

    def _release_held(self) -> None:
        """Time passes until every party has asked about the reservations that it had when it started."""
        for _ in range(40):
            untils = [
                party.ledger.held_until()
                for name, party in self.parties.items()
                if party.up and party.guard.may_answer and name not in self.expelled
            ]
            waits_s = [until - self.clock.time() for until in untils if until is not None]
            if not waits_s:
                return
            self.happened["reservation held"] += 1
            self.pass_time(max(61.0, min(waits_s) + 1))
            for party in self.parties.values():
                party.poll()
        raise ViolationError("nothing waits beyond its deadline", "a reservation is held for ever")

    def _ask_next_day(self) -> None:
        """A day passes, and every party asks again: a member that saw a cohort after it had answered shows it now.

        If the ledger went on without it, the member shows its name first, and is then asked for it.
        """
        for seconds in (ASK_DAILY_S, LOOK_EVERY_S + 1, *[ASK_AGAIN_S + 1, LOOK_EVERY_S + 1] * 4):
            self.pass_time(seconds)
            for party in self.parties.values():
                party.poll()

    def _check_noticed(self) -> None:
        """A ledger that lacks an attempt is noticed, if a member that has seen it in a cohort answers.

        A reservation suffices, which the limits count like a charge.
        """
        for name, pair in self._uncharged_after_a_set_back():
            answered = self.parties[name].guard.answered.keys() - self.set_back - {self.coalition.deviant}
            saw = {who for who in answered if pair in self.witnessed.get((who, name), set())}
            if saw and self.parties[name].ledger.cost(*pair) is None:
                raise ViolationError("a set-back ledger is noticed", f"{name} lacks an attempt that {saw} saw")

    def _check_charged_after_all(self) -> None:
        """A set-back ledger that answers has charged all that a member that answered last was in a cohort with."""
        for name, pair in self._uncharged_after_a_set_back():
            answered = self.parties[name].guard.answered_last - self.set_back - self.expelled - {self.coalition.deviant}
            sent = {who for who, *attempt, _ in self.left if who in answered and tuple(attempt) == pair}
            if saw := {who for who in sent if self.coalition.was_with(who, name, *pair)}:
                raise ViolationError("a set-back ledger is noticed", f"{name} never charged what {saw} saw")

    def _uncharged_after_a_set_back(self) -> list[tuple[str, tuple[bytes, int]]]:
        """Parties that were set back and answer, with each attempt that bytes had left for and that is not charged."""
        return [
            (name, (query_id, attempt))
            for name, query_id, attempt, _ in self.left
            if name in self.set_back - self.acknowledged
            and self.parties[name].up
            and not self.is_stuck(name)
            and self.parties[name].guard.may_answer
            and not self.parties[name].ledger.is_charged(query_id, attempt)
        ]

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


@cache
def answers(count: int, values: int) -> Exact:
    """The exact privacy loss of so many answers to `Federation.ask`, over `values` predicates that may all change.

    The scale of the Laplace noise is values / EPSILON, for values in [0, 1].
    """
    if count == 0:
        return NOTHING
    return answers(count - 1, values) + laplace_batch([1] * values, values / float(EPSILON))


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
    """One source of obfuscators for all parties; see parties.answering.contribution.Obfuscators."""

    def __init__(self, source: ObfuscatorSource) -> None:
        self._source = source

    def expect(self, _key: PublicKey, _count: int) -> None:
        pass

    def source(self, _key: PublicKey) -> ObfuscatorSource:
        return self._source

    def rest(self, _key: PublicKey) -> None:
        pass

    def close(self) -> None:
        pass


class ProductObfuscators:
    """Products of three obfuscators of a fixed list: no two ciphertexts are equal by chance, and each costs little.

    They hide nothing from anyone who knows the list.
    """

    def __init__(self, source: Obfuscator, count: int = 200) -> None:
        self.public_key = source.public_key
        self._made, self._order = source.draw_many(count), random.Random(0)

    def draw_many(self, count: int) -> list[Ciphertext]:
        modulus = self.public_key.n**2
        return [math.prod(self._order.choices(self._made, k=3)) % modulus for _ in range(count)]
