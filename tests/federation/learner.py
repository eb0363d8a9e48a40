"""Federations in memory: signed queries, encrypted contributions and totals, valid and forged."""

import time
from dataclasses import dataclass, field, replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from gmpy2 import mpz

from dpcore.errors import RadofedError
from dpcore.paillier.masks import PRIME, CohortAttempt, coefficient, pad, polynomial
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.packing import pack
from dpcore.queries.statement import PrivacyStatement, statement_for
from dpcore.randomness.sources import SeededRandom, SystemRandom
from dpcore.records.computation import Computation, PartySecret
from dpcore.records.encoding import store
from dpcore.records.held_back import RowKey, RowNumbers
from dpcore.records.records import Records
from learner.composition import Unanswered
from learner.decryption import LearnerKey
from learner.planning import Plan, plan_query
from learner.requests import RadosRequest, Request
from tests.federation.material import STAYS as SCHEMA
from tests.federation.material import roster_of
from wire.binding import OpeningSecret
from wire.envelopes import Envelope, MessageType, SigningKey, sha256
from wire.features import OWN_FEATURES, Features
from wire.query import OpenedQuery, Query, open_query, setting_of
from wire.roster import Roster
from wire.statements import Acceptance, Cohort, Receipt, chunk_ranges, sign, upload_digest
from wire.status import Total

FEDERATION = "clinics"


# With the fraction bits that a plan chooses, the total would have only one chunk.
REQUEST = RadosRequest(schema=SCHEMA, rados=40, design="dp-feat", sensitive="smoker", max_rows=10_000, fraction_bits=16)


@dataclass
class World:
    """A federation whose keys belong to the test."""

    key: LearnerKey
    rows: dict[str, int | None]
    federation_key: SigningKey = field(default_factory=lambda: SigningKey.generate(FEDERATION))
    learner_key: SigningKey = field(default_factory=lambda: SigningKey.generate(FEDERATION))
    party_keys: dict[str, SigningKey] = field(default_factory=dict)
    version: int = 1
    fixed_roster: Roster | None = None
    # The roster version that acceptances state; None for the roster's own.
    stated_version: int | None = None
    mask_keys: dict[tuple[bytes, int, str], X25519PrivateKey] = field(default_factory=dict)
    # Of every query that was planned, by its id.
    openings: dict[bytes, OpeningSecret] = field(default_factory=dict)

    def __post_init__(self):
        for name in self.rows:
            self.party_keys.setdefault(name, SigningKey.generate(FEDERATION))

    @property
    def roster(self) -> Roster:
        if self.fixed_roster is not None:
            return self.fixed_roster
        names = ("coordinator", "learner")
        keys = {name: self.party_keys[name] for name in self.rows}
        return roster_of(FEDERATION, keys, self.learner_key, names=names, rows=self.rows, version=self.version)

    @property
    def roster_envelope(self):
        return self.roster.sign(self.federation_key)

    def features(self, party: str, features=OWN_FEATURES, schemas=((), ())) -> Envelope:
        """schemas: as of wire.features.schemas_stated."""
        stated = Features(FEDERATION, party, tuple(features), "0.3.0", 1_700_000_000, *schemas)
        return stated.sign(self.party_keys[party])

    def plan(self, request: Request = REQUEST, *, asked=None, stated_rows=None, **known) -> Plan:
        """asked: names; None for all parties of the roster. known: what else `plan_query` is given."""
        certificate = self.key.certify("learner", self.learner_key)
        plan = plan_query(
            request,
            roster=self.roster,
            asked=[party for party in self.roster.parties if asked is None or party.name in asked],
            learner="learner",
            certificate=certificate,
            stated_rows=stated_rows,
            **known,
        )
        self.openings[plan.query_id] = plan.opening
        return plan

    def ask(self, request: Request = REQUEST) -> OpenedQuery:
        envelope = self.learner_key.sign(MessageType.QUERY, self.plan(request).query.to_bytes())
        return open_query(envelope, self.roster, now_unix_s=time.time())

    def acceptance(self, opened: OpenedQuery, party: str, rows: int, *, attempt: int = 1, key=None):
        mask_key = self.mask_keys[opened.query_id, attempt, party] = X25519PrivateKey.generate()
        public = mask_key.public_key().public_bytes_raw()
        version = self.stated_version or self.roster.version
        said = Acceptance(opened.query_id, attempt, party, rows, public, version)
        return sign(said, key or self.party_keys[party])

    def receipt(self, opened: OpenedQuery, cohort: Cohort, party: str, key=None, **changes):
        said = Receipt(
            query_id=opened.query_id,
            attempt=cohort.attempt,
            party=party,
            cohort_digest=cohort.digest,
            upload_digest=upload_digest([sha256(party.encode())]),
            chunks=opened.chunks,
            ciphertexts=opened.ciphertexts,
        )
        return sign(replace(said, **changes), key or self.party_keys[party])

    def total(self, opened: OpenedQuery, rows: dict[str, int], *, attempt: int = 1) -> Total:
        """The header of a total over these parties."""
        acceptances = tuple(self.acceptance(opened, name, m, attempt=attempt) for name, m in rows.items())
        cohort = Cohort(opened.query_id, attempt, acceptances)
        receipts = tuple(self.receipt(opened, cohort, name) for name in rows)
        return Total(cohort, receipts, opened.chunks, opened.ciphertexts)

    def tag(self, opened: OpenedQuery, cohort: Cohort, values) -> int:
        """The tag of an honest total over these values."""
        binding = opened.query.binding
        members = [Acceptance.from_bytes(envelope.payload).party for envelope in cohort.acceptances]
        seed = binding.unseal(members[0], self.party_keys[members[0]], opened.query.nonce)
        alpha = coefficient(seed, query_id=opened.query_id, attempt=cohort.attempt)
        attempt = CohortAttempt(opened.query_id, cohort.attempt, cohort.digest)
        pads = [
            pad(self.mask_keys[opened.query_id, cohort.attempt, name], binding.opening_key, name, attempt)
            for name in members
        ]
        return (sum(pads) + polynomial(values, alpha)) % PRIME


def obfuscator(opened: OpenedQuery) -> Obfuscator:
    # A small comb: these tests encrypt little.
    return Obfuscator(opened.public_key, SystemRandom(), short_exponent_bits=512, teeth=4, tables=2)


def encrypt(opened: OpenedQuery, contributions, tag: int = 0) -> list[int]:
    """The products of the ciphertexts of (values, rows) pairs, and the ciphertext of the tag."""
    source = obfuscator(opened)
    key, query = opened.public_key, opened.query
    products = None
    for values, rows in contributions:
        plaintexts = pack(np.asarray(values, dtype=np.int64), rows, query.encoding, key.bits)
        ciphertexts = key.encrypt_many(plaintexts, source)
        if products is None:
            products = list(ciphertexts)
        else:
            key.add_many(products, ciphertexts)
    return products + key.encrypt_many([mpz(tag)], source)


def to_chunks(opened: OpenedQuery, ciphertexts) -> list[bytes]:
    ranges = chunk_ranges(len(ciphertexts), opened.ciphertexts_per_chunk)
    width = opened.public_key.ciphertext_bytes
    # Serialised by hand, so that a test can send values that the public key refuses to write.
    octets = [int(c).to_bytes(width, "big") for c in ciphertexts]
    return [b"".join(octets[r.start : r.stop]) for r in ranges]


def random_values(opened: OpenedQuery, seed: int, largest: int = 1 << 20):
    return np.random.default_rng(seed).integers(-largest, largest, opened.query.length)


@dataclass
class MemoryAnswer:
    """An opened total."""

    query: Query
    integers: np.ndarray
    party_rows: dict[str, int]
    digest: bytes
    statement: PrivacyStatement
    attempts: int = 1


@dataclass
class Memory:
    """Parties with given records. refusal: raised from the `refuse_from`-th answer on, after this many attempts."""

    world: World
    records: dict[str, Records]
    refusal: RadofedError | None = None
    refuse_from: int = 10**9
    asked: list[Query] = field(default_factory=list)
    lost_attempts: int = 1
    lost: list[Unanswered] = field(default_factory=list)
    secret: bytes = bytes(32)

    def numbers(self, name: str) -> RowNumbers:
        return RowNumbers(RowKey(self.secret, FEDERATION, name, "data.csv"))

    def part(self, name: str, query: Query) -> Records:
        records = self.records[name]
        return records if query.held_back is None else self.numbers(name).part_of(records, query.held_back)

    @property
    def rows(self) -> int:
        return sum(rows or 0 for rows in self.world.rows.values())

    def plan(self, request: Request) -> Plan:
        return self.world.plan(request)

    @property
    def earlier(self) -> tuple[()]:
        return ()

    @property
    def unanswered(self) -> list[Unanswered]:
        return self.lost

    def answer(self, plan: Plan) -> MemoryAnswer:
        self.lost = []
        if len(self.asked) >= self.refuse_from:
            self.lost = [Unanswered(plan.query, self.lost_attempts)]
            raise self.refusal
        query, number = plan.query, len(self.asked)
        self.asked.append(query)
        parts = [
            query.kind.contribution(
                query.seen(self.part(name, query)),
                query.encoding.fraction_bits,
                Computation(SeededRandom(f"{name}/{number}".encode()), PartySecret(self.secret, query.schema.digest)),
            )
            for name in self.records
        ]
        rows = {name: part.rows for name, part in self.records.items()}
        statement = statement_for(
            query.kind, tuple(rows.values()), query.delta, schema=query.schema, setting=setting_of(query)
        )
        return MemoryAnswer(query, sum(parts), rows, plan.query_id, statement)


def patients(rows: int, seed: int, flipped: float = 0.0) -> Records:
    """Records of the schema in tests.federation.learner: age, smoker, bias; smokers over half the age range are ill."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(-1, 1, rows), rng.choice([-1.0, 1.0], rows), np.ones(rows)])
    labels = np.where((x[:, 0] > 0) & (x[:, 1] > 0), 1, -1)
    labels = np.where(rng.random(rows) < flipped, -labels, labels).astype(np.int8)
    return Records(store(x), labels, np.ones(rows, dtype=bool))
