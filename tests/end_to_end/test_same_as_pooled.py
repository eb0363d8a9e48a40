"""Promise P6: what the learner opens equals the pooled integer rados of the same signatures, bit for bit.

The path is the real one from records to the opened total, with a 3072-bit key and seeded signatures, without sockets.
"""

import time
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from coordinator.aggregate import check_chunk, multiply
from dpcore.errors import TotalError
from dpcore.fixed_point import plan_encoding, store
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.packing import pack
from dpcore.paillier.secret import SecretKey
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import DpFeatDesign, PlainDesign
from dpcore.rados.edges import Records
from dpcore.rados.signatures import draw
from dpcore.randomness import SeededRandom, SystemRandom
from dpcore.schema import Schema
from learner.opening import open_total
from parties.contribution import encrypted_chunks, integer_vector, masked_chunks
from wire.cohort import Acceptance, Cohort, Receipt, sign
from wire.envelopes import Kind, SigningKey, sha256
from wire.query import OpenedQuery, PaillierKey, Query, open_query
from wire.roster import Member, Role, Roster, certificate_san
from wire.status import Total
from wire.upload import Chunk, upload_digest

SCHEMA = Schema.from_toml("""
schema_version = 1
name = "small"
[label]
column = "y"
positive = ["1"]
[[features]]
name = "x0"
type = "real"
lower = 0.0
upper = 1.0
[[features]]
name = "s"
type = "boolean"
true = ["1"]
false = ["0"]
""")
ROWS = {"a": 40, "b": 9, "c": 133}
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


class Setting:
    """Keys, a roster and a query; contributions and their product."""

    def __init__(self, design, rados: int) -> None:
        now = int(time.time())
        self.keys = {name: SigningKey.generate() for name in (*ROWS, "learner")}
        members = [Member(Role.COORDINATOR, "coordinator", b"", certificate_san("f", Role.COORDINATOR, "coordinator"))]
        for name, key in self.keys.items():
            role = Role.LEARNER if name == "learner" else Role.PARTY
            members.append(Member(role, name, key.public_bytes, certificate_san("f", role, name)))
        self.roster = Roster("f", 1, now, tuple(members))
        self.secret = SecretKey.generate(SystemRandom(), bits=3072)
        self.opened = self.ask(RadosQuery(rados, design), now)
        self.records = {name: records(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
        self.vectors = {
            name: integer_vector(self.opened, part, SeededRandom(name.encode())) for name, part in self.records.items()
        }
        self.contribute()

    def ask(self, kind: RadosQuery, now: int) -> OpenedQuery:
        certificate = PaillierKey("learner", self.secret.public_key, now - 1, now + 9999).sign(self.keys["learner"])
        largest = max(kind.largest_sum(1000, FRACTION_BITS), 1000)
        query = Query(
            federation="f",
            learner="learner",
            nonce=SystemRandom().bytes(32),
            roster_version=1,
            schema=SCHEMA,
            kind=kind,
            encoding=plan_encoding(largest_sum=largest, max_parties=3, fraction_bits=FRACTION_BITS),
            paillier_key=certificate,
            delta=Fraction(1, 10**6),
            max_rows=1000,
            max_parties=3,
            cohort_min=3,
            honest_parties=2,
            created_at_unix_s=now,
            not_after_unix_s=now + 3600,
            answer_within_s=60,
            prepare_within_s=60,
            upload_within_s=60,
            max_attempts=1,
        )
        envelope = self.keys["learner"].sign(Kind.QUERY, query.to_bytes())
        return open_query(envelope, self.roster, now_unix_s=now)

    def contribute(self) -> None:
        """Encrypt every party's vector, form the cohort, and mask."""
        self.mask_keys = {name: X25519PrivateKey.generate() for name in ROWS}
        self.acceptances = [
            Acceptance(self.opened.query_id, 1, name, rows, self.mask_keys[name].public_key().public_bytes_raw())
            for name, rows in ROWS.items()
        ]
        signed = tuple(sign(acceptance, self.keys[acceptance.party]) for acceptance in self.acceptances)
        self.cohort = Cohort(self.opened.query_id, 1, signed)
        obfuscator = Obfuscator(self.opened.public_key, SystemRandom())
        self.bare = {
            name: list(encrypted_chunks(self.opened, vector, ROWS[name], obfuscator))
            for name, vector in self.vectors.items()
        }

        self.chunks = {
            name: list(
                masked_chunks(
                    self.opened,
                    vector,
                    self.bare[name],
                    own_name=name,
                    own_key=self.mask_keys[name],
                    acceptances=self.acceptances,
                    cohort_digest=self.cohort.digest,
                )
            )
            for name, vector in self.vectors.items()
        }

    def total(self, *uploads: str):
        """Opens the product of these uploads under the signed statements of the whole cohort."""
        return self.open([self.chunks[name] for name in uploads])

    def open(self, uploads):
        receipts = []
        for name, chunks in self.chunks.items():
            digest = upload_digest([sha256(chunk) for chunk in chunks])
            said = Receipt(
                self.opened.query_id, 1, name, self.cohort.digest, digest, len(chunks), self.opened.ciphertexts
            )
            receipts.append(sign(said, self.keys[name]))
            for index, chunk in enumerate(chunks):
                check_chunk(self.opened, Chunk.of(index, chunk))
        products = [multiply(self.opened.public_key, each) for each in zip(*uploads, strict=True)]
        header = Total(self.cohort, tuple(receipts), self.opened.chunks, self.opened.ciphertexts)
        return open_total(header, products, self.opened, self.roster, self.secret)

    def repaired(self, name: str, upload):
        """One party's upload with what the others' rows and offsets would add, as a cheating coordinator can do."""
        key, encoding = self.opened.public_key, self.opened.query.encoding
        nothing = np.zeros(self.opened.query.length, dtype=np.int64)
        absent = [pack(nothing, rows, encoding, key.bits) for other, rows in ROWS.items() if other != name]
        shift = [sum(plaintexts) for plaintexts in zip(*absent, strict=True)]
        return [key.to_wire(key.add_plaintexts(key.from_wire(b"".join(upload)), shift))]


@pytest.fixture(scope="module", params=["plain", "dp-feat"])
def setting(request) -> Setting:
    epsilon = Fraction(2)
    return Setting(PlainDesign() if request.param == "plain" else DpFeatDesign(1, "s", epsilon), rados=70)


def pooled(setting: Setting) -> np.ndarray:
    """The definition, in Python integers on the pooled rows: pi_j sums the edges that signature j selects."""
    design, n = setting.opened.query.kind.design, setting.opened.query.kind.rados
    rados = np.zeros((n, SCHEMA.d), dtype=object)
    for name, part in setting.records.items():
        selection = np.vstack(list(draw(design, part, n, SeededRandom(name.encode()))))
        bits = np.unpackbits(selection, axis=1, count=part.rows, bitorder="little")
        for j in range(n):
            for i in np.flatnonzero(bits[j]):
                for k in range(SCHEMA.d):
                    x = int(part.features[i, k])
                    edge = int(part.labels[i]) * (abs(x) >> (30 - FRACTION_BITS)) * (1 if x >= 0 else -1)
                    if not part.usable[i] and isinstance(design, DpFeatDesign) and k == design.sensitive:
                        edge = 1 << FRACTION_BITS
                    rados[j, k] += edge
    return rados


def test_the_total_is_the_pooled_sum_bit_for_bit(setting):
    opened = setting.total(*ROWS)
    integers = setting.opened.query.kind.integers(opened.values)
    assert (integers == pooled(setting)).all()
    assert np.array_equal(integers.reshape(-1), sum(setting.vectors.values()))


@pytest.mark.parametrize("uploads", [("a", "b"), ("a", "b", "c", "c"), ("a", "b", "b"), ("c",)])
def test_a_part_of_the_cohort_or_one_member_twice_fails_the_check_slots(setting, uploads):
    with pytest.raises(TotalError):
        setting.total(*uploads)


def test_a_coordinator_cannot_pass_one_party_off_as_the_cohort(setting):
    """It knows n, the encoding and every row count; without the masks it would get away with it."""
    opened = setting.open([setting.repaired("a", setting.bare["a"])])
    assert np.array_equal(opened.values, setting.vectors["a"])
    with pytest.raises(TotalError):
        setting.open([setting.repaired("a", setting.chunks["a"])])


def test_an_upload_for_another_cohort_does_not_cancel(setting):
    """A coordinator that shows one member another cohort gets masks that do not fit the others'."""
    other = masked_chunks(
        setting.opened,
        setting.vectors["a"],
        setting.bare["a"],
        own_name="a",
        own_key=setting.mask_keys["a"],
        acceptances=setting.acceptances,
        cohort_digest=sha256(b"another cohort"),
    )
    with pytest.raises(TotalError):
        setting.open([list(other), setting.chunks["b"], setting.chunks["c"]])
