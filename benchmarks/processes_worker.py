"""Run by processes, several at once: `python -m benchmarks.processes_worker JOB`, each a node or its comparison.

JOB is JSON, the fields of `Job`. It reads commands from standard input: `prepare NAME` prepares a computation and runs
it once, `run` runs it again. The answer to each is a line: the digest of the result, empty if that depends on chance or
rounding.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from benchmarks.node_processes import schema_of
from benchmarks.scaling_worker import random_records
from dpcore.numbers.fixed_point import ONE
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.public import PublicKey, multiply
from dpcore.predicates.frontend import x, y
from dpcore.randomness.sources import SeededRandom, SystemRandom
from dpcore.records.clipping import Basis
from dpcore.records.computation import SECRET_BYTES, Computation, PartySecret
from dpcore.records.features import BooleanFeature
from dpcore.records.records import BLOCK_ROWS, Records
from learner.requests import GradientRequest, MomentsRequest, RadosRequest, Request, StatisticRequest
from parties.answering.contribution import encrypted_chunks, integer_vector
from radofed.simulation.federation import SimulatedFederation
from radofed.simulation.workers import LocalHosts
from wire.query import OpenedQuery

COLUMNS, SEED = 17, 1
PARTIES = ("a", "b", "c", "d")
EPSILON, CLIP = Fraction(1), Fraction(1)
MIB = 1 << 20

Work = Callable[[], bytes]
"""One computation; returns the bytes whose digest is compared, empty if they depend on chance or rounding."""


@dataclass(frozen=True)
class Job:
    """The size of the work. rows: by computation. hashed_mib: for the computation that only hashes."""

    rows: dict[str, int]
    predicates: int
    rados: int
    key_bits: int
    ciphertexts: int
    uploads: int
    hashed_mib: int


class Computations:
    """The computations of a process of a federation, by name, and their comparison."""

    def __init__(self, job: Job) -> None:
        self._job = job
        columns = schema_of(COLUMNS)
        # The feature that dp-feat protects.
        first = BooleanFeature(name=columns.features[0].name, true=("1",), false=("0",))
        self._schema = replace(columns, features=(first, *columns.features[1:]))

    def prepare(self, name: str) -> Work:
        """The computation, prepared."""
        others: dict[str, Callable[[], Work]] = {
            "encryption": self._encryption,
            "adding": self._adding,
            "hashing": self._hashing,
            "NumPy": self._numpy,
            "NumPy, in blocks": self._numpy_in_blocks,
        }
        return others[name]() if name in others else self._contribution(name)

    def _request(self, name: str) -> Request:
        schema = self._schema
        first, *others = (feature.name for feature in schema.features)
        match name:
            case "moments":
                return MomentsRequest(schema, epsilon=EPSILON)
            case "gradient":
                theta = tuple(1.0 if i % 2 else -1.0 for i in range(schema.d))
                basis = Basis.of(np.eye(schema.d) + 0.125)
                return GradientRequest(schema, theta, epsilon=EPSILON, clip=CLIP, basis=basis)
            case "statistic":
                count = self._job.predicates
                batch = [(x[others[i % len(others)]] >= Fraction(i, count)) & (y == 1) for i in range(count)]
                return StatisticRequest(schema, tuple(batch), epsilon=EPSILON)
            case "rados, dp-feat":
                return RadosRequest(schema, self._job.rados, design="dp-feat", sensitive=first)
            case _:
                return RadosRequest(schema, self._job.rados, design="fixed-support", epsilon=EPSILON)

    def _records(self, rows: int) -> Records:
        made = random_records(rows, self._schema.d)
        features = made.features.copy()
        features[:, 0] = np.where(features[:, 0] < 0, -ONE, ONE)
        return Records(features, made.labels, made.usable)

    def _opened(self, name: str, records: Records) -> OpenedQuery:
        """The query of a federation whose parties have this many rows each."""
        federation = SimulatedFederation(LocalHosts(records, SEED, PARTIES), PARTIES, SEED, None)
        parts = [np.arange(records.rows)] * len(PARTIES)
        return federation.plan(None, self._request(name), parts, 1).ask.opened

    def _contribution(self, name: str) -> Work:
        records = self._records(self._job.rows[name])
        opened = self._opened(name, records)
        secret = PartySecret(bytes(SECRET_BYTES), self._schema.digest)
        # The same draws each time, so that results can be compared.
        return lambda: integer_vector(opened, records, Computation(SeededRandom(SEED), secret)).tobytes()

    def _public_key(self) -> PublicKey:
        """A number of a modulus's length: times do not depend on its factors, which no one knows."""
        top = 1 << (self._job.key_bits - 1)
        return PublicKey(top | int.from_bytes(SystemRandom().bytes(self._job.key_bits // 8)) >> 1 | 1)

    def _encryption(self) -> Work:
        records = self._records(BLOCK_ROWS)
        opened = replace(self._opened("rados, dp-feat", records), public_key=self._public_key())
        obfuscator = Obfuscator(opened.public_key, SystemRandom())
        secret = PartySecret(bytes(SECRET_BYTES), self._schema.digest)
        values = integer_vector(opened, records, Computation(SystemRandom(), secret))

        def work() -> bytes:
            for _ in encrypted_chunks(opened, values, records.rows, obfuscator):
                pass
            return b""

        return work

    def _adding(self) -> Work:
        key, random = self._public_key(), np.random.default_rng(SEED)
        # Any numbers below n^2 take as long as ciphertexts.
        numbers = [int.from_bytes(random.bytes(key.ciphertext_bytes - 1)) for _ in range(self._job.ciphertexts)]
        chunk = b"".join(number.to_bytes(key.ciphertext_bytes) for number in numbers)

        def work() -> bytes:
            multiply(key, [chunk] * self._job.uploads)
            return b""

        return work

    def _hashing(self) -> Work:
        octets = bytes(MIB)

        def work() -> bytes:
            digest = hashlib.sha256()
            for _ in range(self._job.hashed_mib):
                digest.update(octets)
            return digest.digest()

        return work

    def _numpy(self) -> Work:
        rows = self._rows()

        def work() -> bytes:
            _ = rows.T @ rows, rows.sum(axis=0)
            return b""

        return work

    def _numpy_in_blocks(self) -> Work:
        rows = self._rows()

        def work() -> bytes:
            products, sums = np.zeros((rows.shape[1], rows.shape[1])), np.zeros(rows.shape[1])
            for first in range(0, len(rows), BLOCK_ROWS):
                block = rows[first : first + BLOCK_ROWS]
                products += block.T @ block
                sums += block.sum(axis=0)
            return b""

        return work

    def _rows(self) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
        return np.random.default_rng(SEED).uniform(-1, 1, (self._job.rows["moments"], self._schema.d))


def main() -> None:
    computations = Computations(Job(**json.loads(sys.argv[1])))
    work: Work | None = None
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        if word == "prepare":
            # Release the previous preparation first.
            work = None
            work = computations.prepare(name)
        assert work is not None, "nothing is prepared"
        sys.stdout.write(hashlib.sha256(work()).hexdigest() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
