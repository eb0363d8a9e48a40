"""A federation in memory around one party, "ada", and a coordinator that a test controls."""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.accounting.filters import PrivacyLimit
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS, plan_encoding
from dpcore.paillier.secret import SecretKey
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import dp_feat_design, plain_design
from dpcore.randomness.sources import SystemRandom
from dpcore.records.computation import PartySecret
from dpcore.records.held_back import RowKey, RowNumbers
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from parties.answering.attempts import Attempts, AttemptState
from parties.answering.contribution import tidy
from parties.answering.coordinator_calls import WorkBatch
from parties.answering.decisions import Party
from parties.answering.lifecycle import QueryLifecycle
from parties.answering.spool import Spools
from parties.approval.decision_files import DecisionFiles
from parties.data.epochs import Epochs
from parties.database import LedgerOwner
from parties.history.database import FILE as HISTORY_FILE
from parties.history.database import HistoryDatabase
from parties.history.history import History
from parties.ledger.charges import marginal
from parties.ledger.ledger import Ledger
from parties.ledger.limits import LedgerLimits
from parties.members import Rosters
from parties.policy import Policy
from radobase.logs import Log
from tests.federation.material import STAYS as SCHEMA
from tests.federation.material import query_of, roster_of
from wire.binding import Binding, OpeningSecret
from wire.envelopes import Envelope, MessageType, SigningKey, fingerprint
from wire.errors import Code, WireError
from wire.query import OpenedQuery, PaillierKey, Query, Retry, open_query
from wire.roster import Roster
from wire.statements import Acceptance, Cohort, Receipt, Refusal, open_statement, sign
from wire.status import PartyState, Phase, Work

FEDERATION = "clinics"
OPENING = OpeningSecret(bytes(range(32)))
PARTIES = ("ada", "bo", "cy")
OWNER = LedgerOwner(FEDERATION, "ada", "data.csv")
SMOKER = marginal("smoker", "smoker")


def make_records(rows: int = 40, seed: int = 0, *, usable: bool = True) -> Records:
    random = np.random.RandomState(seed)
    one = 1 << STORED_FRACTION_BITS
    features = np.empty((rows, 3), dtype=np.int32)
    features[:, 0] = random.randint(-one, one + 1, rows)
    features[:, 1] = np.where(random.rand(rows) < 0.4, one, -one)
    features[:, 2] = one
    labels = np.where(random.rand(rows) < 0.5, 1, -1).astype(np.int8)
    if not usable:
        features[:], labels[:] = 0, 1
    return Records(features, labels, np.full(rows, usable))


ROW_KEY = RowKey(b"k" * 32, FEDERATION, "ada", "data.csv")


def in_epochs(party: Party, names: Sequence[str], codes: Any, ids: Iterable[int] | None = None) -> Party:
    """The party with these epochs of its rows. codes: each row's place among the names. ids: 0, 1, ... if None."""
    numbers = ROW_KEY.of_ids(map(str, range(party.records.rows) if ids is None else ids))
    epochs = Epochs(tuple(names), np.asarray(codes, dtype=np.int32), numbers, ROW_KEY.check)
    return replace(party, epochs=epochs, numbers=RowNumbers(ROW_KEY, numbers))


def limits(epsilon: Fraction | str, delta: Fraction | str, unbounded: int = 10, **more) -> LedgerLimits:
    return LedgerLimits(PrivacyLimit(Fraction(epsilon), Fraction(delta)), unbounded, **more)


@dataclass
class World:
    """Keys of all members, and queries as a learner signs them."""

    key: SecretKey
    federation_key: SigningKey = field(default_factory=lambda: SigningKey.generate(FEDERATION))
    learner_key: SigningKey = field(default_factory=lambda: SigningKey.generate(FEDERATION))
    party_keys: dict[str, SigningKey] = field(
        default_factory=lambda: {n: SigningKey.generate(FEDERATION) for n in PARTIES}
    )
    version: int = 1
    mask_keys: dict[tuple[str, int], X25519PrivateKey] = field(default_factory=dict)

    @property
    def roster(self) -> Roster:
        return roster_of(FEDERATION, self.party_keys, self.learner_key, version=self.version)

    @property
    def roster_envelope(self) -> Envelope:
        return self.roster.sign(self.federation_key)

    def policy(self, **changes) -> Policy:
        fields = {
            "accepted_members": [fingerprint(k.public_bytes) for n, k in self.party_keys.items() if n != "ada"],
            "learners": [{"name": "lea", "signing_key": fingerprint(self.learner_key.public_bytes)}],
            "designs": ["plain", "dp-feat"],
            "allow_unprotected": True,
            "limits": {"epsilon": "1000", "delta": "1e-3", "unbounded_queries": 10},
        }
        return Policy.model_validate(fields | changes)

    def certificate(self, lasts_s: int = 100_000) -> Envelope:
        now = int(time.time())
        return PaillierKey("lea", self.key.public_key, now - 10, now + lasts_s).sign(self.learner_key)

    def query(self, **changes) -> Query:
        now = int(time.time())
        certificate = self.certificate()
        fields = {
            "federation": FEDERATION,
            "learner": "lea",
            "nonce": secrets.token_bytes(16),
            "schema": SCHEMA,
            "kind": RadosQuery(20, dp_feat_design(SCHEMA, ["smoker"])),
            "encoding": plan_encoding(largest_sum=1000 << 16, max_parties=3, fraction_bits=16),
            "paillier_key": certificate,
            "answer_within_s": 30,
            "max_attempts": 3,
        }
        fields |= changes
        fields.setdefault("binding", Binding.seal(OPENING, self.roster.parties, fields["nonce"]))
        return query_of(now, **fields)

    def plain_query(self, rados: int = 20, **changes) -> Query:
        return self.query(kind=RadosQuery(rados, plain_design(SCHEMA)), **changes)

    def ask(self, query: Query | None = None, key: SigningKey | None = None) -> Envelope:
        return (key or self.learner_key).sign(MessageType.QUERY, (query or self.query()).to_bytes())

    def retry(self, query_id: bytes, attempt: int, key: SigningKey | None = None, learner: str = "lea") -> Envelope:
        return Retry(query_id, learner, attempt).sign(key or self.learner_key)

    def open(self, envelope: Envelope) -> OpenedQuery:
        return open_query(envelope, self.roster, now_unix_s=time.time())

    def acceptance(self, query_id: bytes, party: str, *, attempt: int = 1, rows: int = 50, key=None) -> Envelope:
        mask_key = self.mask_keys[party, attempt] = X25519PrivateKey.generate()
        said = Acceptance(query_id, attempt, party, rows, mask_key.public_key().public_bytes_raw(), self.version)
        return sign(said, key or self.party_keys[party])

    def cohort(self, own: Envelope, *, others: tuple[str, ...] = ("bo", "cy"), attempt: int = 1, rows: int = 50):
        query_id = Acceptance.from_bytes(own.payload).query_id
        return Cohort(
            query_id,
            attempt,
            (own, *(self.acceptance(query_id, name, attempt=attempt, rows=rows) for name in others)),
        )


@dataclass
class Hub:
    """The coordinator, as a list of the calls it received. `fail`: errors to raise, by call, once each."""

    world: World
    answers: list[Envelope] = field(default_factory=list)
    accepted: list[bool] = field(default_factory=list)
    pendings: list[Envelope] = field(default_factory=list)
    readies: list[Envelope] = field(default_factory=list)
    chunks: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)
    receipts: list[Envelope] = field(default_factory=list)
    key_shares: list[Envelope] = field(default_factory=list)
    unmaskings: list[Envelope] = field(default_factory=list)
    fail: dict[str, list[Exception]] = field(default_factory=dict)
    before: dict[str, object] = field(default_factory=dict)
    is_older: bool = False
    """Whether it takes no receipt with a chunk."""

    def _fail(self, call: str) -> None:
        if call in self.before:
            self.before[call]()
        if self.fail.get(call):
            raise self.fail[call].pop(0)

    def fetch_roster(self):
        self._fail("fetch_roster")
        return self.world.roster_envelope, time.time()

    def fetch_work(self, cursor: int, wait_s: int) -> WorkBatch:
        return WorkBatch((), cursor)

    def answer(self, answer: Envelope, *, accepts: bool) -> None:
        self._fail("answer")
        self.answers.append(answer)
        self.accepted.append(accepts)

    def pending(self, pending: Envelope) -> None:
        self._fail("pending")
        self.pendings.append(pending)

    def ready(self, ready: Envelope, key_shares: Envelope | None = None) -> None:
        self._fail("ready")
        self.readies.append(ready)
        if key_shares is not None:
            self.key_shares.append(key_shares)

    def unmask(self, unmasking: Envelope) -> None:
        self._fail("unmask")
        self.unmaskings.append(unmasking)

    def upload_chunk(self, query_id, attempt, chunk, receipt=None) -> bool:
        self._fail("upload_chunk")
        self.chunks.setdefault((attempt, chunk.index), []).append(chunk.ciphertexts)
        if receipt is None or self.is_older:
            return False
        self.receipt(receipt)
        return True

    def receipt(self, receipt: Envelope) -> None:
        self._fail("receipt")
        self.receipts.append(receipt)

    @property
    def refusal_code(self) -> Code:
        assert self.accepted == [False], "not one refusal"
        return open_statement(Refusal, self.answers[0], self.world.roster)[0].code

    def opened_receipt(self) -> Receipt:
        return open_statement(Receipt, self.receipts[-1], self.world.roster)[0]


class Parts:
    """What a party consists of, on a directory and without threads: ledger, spools, rosters, history and lifecycle."""

    def open_parts(
        self,
        directory: Path,
        party: Party,
        *,
        limits: LedgerLimits,
        federation: str,
        federation_key: bytes,
        spool_bytes: int = 1 << 24,
        **of_lifecycle: Any,
    ) -> None:
        log, owner = Log(f"party.{party.name}"), LedgerOwner(federation, party.name, "data.csv")
        self.ledger = Ledger.open(directory / "ledger.sqlite", owner, limits)
        self.attempts, self.spools = Attempts(self.ledger), Spools(directory / "spool", spool_bytes)
        tidy(self.spools, self.attempts)
        # Nothing is written by a thread, at a moment that no test knows.
        database = HistoryDatabase(directory / HISTORY_FILE, federation=federation, party=party.name, late_s=None)
        self.history = History(database)
        self.rosters = Rosters(directory, federation=federation, federation_key=federation_key, log=log)
        self.lifecycle = QueryLifecycle(
            party,
            attempts=self.attempts,
            spools=self.spools,
            rosters=self.rosters,
            history=self.history,
            random=SystemRandom(),
            log=log,
            **of_lifecycle,
        )


@dataclass
class Ada(Parts):
    """The party under test, on a directory; `restart` is what a killed process finds again."""

    world: World
    directory: Path
    records: Records = field(default_factory=make_records)
    limits: LedgerLimits = field(default_factory=lambda: limits("1000", "1e-3"))
    spool_bytes: int = 10_000_000
    schema: Schema = SCHEMA
    policy: Policy | None = None
    decision_files: DecisionFiles | None = None
    on_waits: Callable[[Any], None] = lambda _: None

    def __post_init__(self):
        self.hub = Hub(self.world)
        self.offset_s = 0.0
        self.reported_charges = self.reported_losses = 0
        self.is_held = False
        self.restart()

    def restart(self) -> None:
        self.open_parts(
            self.directory,
            Party(
                "ada",
                self.world.party_keys["ada"],
                self.policy or self.world.policy(),
                self.schema,
                self.records,
                PartySecret(b"test secret".ljust(32), self.schema.digest),
            ),
            limits=self.limits,
            federation=FEDERATION,
            federation_key=self.world.federation_key.public_bytes,
            spool_bytes=self.spool_bytes,
            coordinator=self.hub,
            clock=lambda: time.time() + self.offset_s,
            is_held=lambda: self.is_held,
            on_charged=self._charged,
            on_lost=self._lost,
            decision_files=self.decision_files,
            on_waits=self.on_waits,
        )
        self.rosters.offer(self.world.roster_envelope)

    def _charged(self) -> None:
        self.reported_charges += 1

    def _lost(self) -> None:
        self.reported_losses += 1

    def work(self, envelope: Envelope, **changes) -> Work:
        plain = Work(envelope, 1, Phase.ANSWERING, PartyState.SILENT, None, frozenset())
        if (attempt := changes.get("attempt", 1)) > 1:
            plain = replace(plain, retry=self.world.retry(envelope.payload_hash, attempt))
        return replace(plain, **changes)

    def go(self, envelope: Envelope, **changes) -> bool:
        """Advance, compute if requested, and advance again."""
        work = self.work(envelope, **changes)
        wants = self.lifecycle.advance(work)
        if wants:
            self.lifecycle.compute(work)
            self.lifecycle.advance(work)
        return wants

    def upload(self, envelope: Envelope, cohort: Cohort, **changes) -> None:
        fields = {"phase": Phase.UPLOADING, "state": PartyState.UPLOADING, "cohort": cohort} | changes
        self.lifecycle.advance(self.work(envelope, **fields))

    def state(self, envelope: Envelope, attempt: int = 1):
        held = self.attempts.find(envelope.payload_hash, attempt)
        return None if held is None else held.state


def refused_with(code: Code):
    """A WireError that the coordinator answers with."""
    return WireError(code)


def ready(ada: Ada, query=None):
    """A query that ada accepted, computed and reported ready, and a cohort that contains it."""
    answers = len(ada.hub.answers)
    envelope = ada.world.ask(query)
    assert ada.go(envelope)
    assert ada.state(envelope) is AttemptState.READY
    return envelope, ada.world.cohort(ada.hub.answers[answers])


def spent(ada: Ada) -> Fraction:
    return ada.ledger.spent(SMOKER).epsilon


def reserved(ada: Ada) -> Fraction:
    return ada.ledger.reserved(SMOKER).epsilon
