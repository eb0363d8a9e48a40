"""A cohort in memory: the real path from records to the opened total, with given keys, without sockets."""

import time
from collections.abc import Collection

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from coordinator.uploads import check_chunk
from dpcore.numbers.fixed_point import plan_encoding
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.packing import pack
from dpcore.paillier.public import multiply
from dpcore.paillier.secret import SecretKey
from dpcore.queries.kind import QueryLimits
from dpcore.randomness.sources import SeededRandom, SystemRandom
from dpcore.records.computation import Computation, PartySecret
from dpcore.records.encoding import store
from dpcore.records.feature_map import FeatureMap
from dpcore.records.records import Records
from learner.decryption import open_total
from parties.answering.contribution import encrypted_chunks, integer_vector, masked_chunks, tag_coefficient
from tests.federation.material import SMALL as SCHEMA
from tests.federation.material import query_of, roster_of
from wire.binding import Binding, OpeningSecret
from wire.envelopes import MessageType, SigningKey, sha256
from wire.query import OpenedQuery, PaillierKey, open_query
from wire.statements import Acceptance, Chunk, Cohort, Receipt, sign, upload_digest
from wire.status import Total

ROWS = {"a": 40, "b": 9, "c": 133}
# A party of the roster that is in no cohort.
OUTSIDER = "z"
FRACTION_BITS = 16


def records(rows: int, seed: int) -> Records:
    """Made-up rows; the first cannot be used."""
    random = np.random.RandomState(seed)
    x = np.column_stack([random.uniform(-1, 1, rows), random.choice([-1.0, 1.0], rows), np.ones(rows)])
    x[0] = 0.0
    labels = random.choice([-1, 1], rows).astype(np.int8)
    labels[0] = 1
    usable = np.ones(rows, dtype=bool)
    usable[0] = False
    return Records(store(x), labels, usable)


def secret_of(name: str) -> PartySecret:
    return PartySecret(name.encode().ljust(32, b"."), SCHEMA.digest)


class CohortInMemory:
    """Keys, a roster and a query; contributions and their product."""

    def __init__(
        self,
        kind,
        secret: SecretKey,
        obfuscator: Obfuscator,
        fraction_bits: int = FRACTION_BITS,
        *,
        max_attempts: int = 1,
        feature_map: FeatureMap | None = None,
        asked: Collection[str] = tuple(ROWS),
    ) -> None:
        """asked: who gets the tag's seed."""
        self.asked = asked
        self.feature_map, self.d = feature_map, SCHEMA.d if feature_map is None else feature_map.d
        now = int(time.time())
        self.max_attempts = max_attempts
        self.opening = OpeningSecret(SystemRandom().bytes(32))
        self.keys = {name: SigningKey.generate("f") for name in (*ROWS, OUTSIDER, "learner")}
        parties = {name: key for name, key in self.keys.items() if name != "learner"}
        names = ("coordinator", "learner")
        self.roster = roster_of("f", parties, self.keys["learner"], names=names, issued_at_unix_s=now)
        self.secret, self.obfuscator, self.fraction_bits = secret, obfuscator, fraction_bits
        self.opened = self.ask(kind, now)
        self.records = {name: records(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
        self.vectors = {
            name: integer_vector(self.opened, part, Computation(SeededRandom(name.encode()), secret_of(name)))
            for name, part in self.records.items()
        }
        self.contribute()

    def ask(self, kind, now: int) -> OpenedQuery:
        certificate = PaillierKey("learner", self.secret.public_key, now - 1, now + 9999).sign(self.keys["learner"])
        nonce = SystemRandom().bytes(32)
        largest = max(kind.largest_sum(QueryLimits(1000, 3, self.d), self.fraction_bits), 1000)
        query = query_of(
            now,
            federation="f",
            learner="learner",
            nonce=nonce,
            schema=SCHEMA,
            kind=kind,
            encoding=plan_encoding(largest_sum=largest, max_parties=3, fraction_bits=self.fraction_bits),
            paillier_key=certificate,
            max_attempts=self.max_attempts,
            binding=Binding.seal(self.opening, [m for m in self.roster.parties if m.name in self.asked], nonce),
            feature_map=self.feature_map,
        )
        envelope = self.keys["learner"].sign(MessageType.QUERY, query.to_bytes())
        return open_query(envelope, self.roster, now_unix_s=now)

    def contribute(self, attempt: int = 1) -> None:
        """Encrypt every party's vector, form the cohort, and mask."""
        self.attempt = attempt
        self.mask_keys = {name: X25519PrivateKey.generate() for name in ROWS}
        self.acceptances = [
            Acceptance(
                self.opened.query_id, attempt, name, rows, self.mask_keys[name].public_key().public_bytes_raw(), 1
            )
            for name, rows in ROWS.items()
        ]
        signed = tuple(sign(acceptance, self.keys[acceptance.party]) for acceptance in self.acceptances)
        self.cohort = Cohort(self.opened.query_id, attempt, signed)
        self.bare = {
            name: list(encrypted_chunks(self.opened, vector, ROWS[name], self.obfuscator))
            for name, vector in self.vectors.items()
        }
        self.chunks = {name: self.masked(name, self.cohort.digest) for name in ROWS}

    def coefficient(self, name: str) -> int:
        """The coefficient of the tag, as this party derives it."""
        return tag_coefficient(self.opened, self.attempt, name, self.keys[name])

    def masked(self, name: str, cohort_digest: bytes) -> list[bytes]:
        """One party's upload for a cohort."""
        return list(
            masked_chunks(
                self.opened,
                self.vectors[name],
                self.bare[name],
                own_name=name,
                own_key=self.mask_keys[name],
                acceptances=self.acceptances,
                cohort_digest=cohort_digest,
                alpha=self.coefficient(name),
            )
        )

    def total(self, *uploads: str):
        """Opens the product of these uploads under the signed statements of the whole cohort."""
        return self.open([self.chunks[name] for name in uploads])

    def open(self, uploads):
        """Open the product of any uploads."""
        return self.open_products(self.product(uploads))

    def open_products(self, products):
        """Open any ciphertexts under the signed statements of the whole cohort."""
        receipts = []
        for name, chunks in self.chunks.items():
            digest = upload_digest([sha256(chunk) for chunk in chunks])
            said = Receipt(
                self.opened.query_id,
                self.attempt,
                name,
                self.cohort.digest,
                digest,
                len(chunks),
                self.opened.ciphertexts,
            )
            receipts.append(sign(said, self.keys[name]))
            for index, chunk in enumerate(chunks):
                check_chunk(self.opened, Chunk.of(index, chunk))
        header = Total(self.cohort, tuple(receipts), self.opened.chunks, self.opened.ciphertexts)
        return open_total(header, products, self.opened, self.roster, self.secret, opening=self.opening)

    def product(self, uploads) -> list[bytes]:
        """What the coordinator computes of these uploads."""
        return [multiply(self.opened.public_key, each) for each in zip(*uploads, strict=True)]

    def repaired(self, name: str, upload):
        """One party's upload with what the others' rows and offsets would add, as a cheating coordinator can do."""
        key, encoding = self.opened.public_key, self.opened.query.encoding
        nothing = np.zeros(self.opened.query.length, dtype=np.int64)
        absent = [pack(nothing, rows, encoding, key.bits) for other, rows in ROWS.items() if other != name]
        shift = [sum(plaintexts) for plaintexts in zip(*absent, strict=True)]
        shift += [0] * (self.opened.ciphertexts - len(shift))
        return [key.to_wire(key.add_plaintexts(key.from_wire(b"".join(upload)), shift))]
