"""Run by processes, several at once: `python -m benchmarks.processes_worker JOB`, each a node or its comparison.

JOB is JSON, the fields of `Job`. It reads commands from standard input: `prepare NAME` prepares a computation and runs
it once, `run TIMES` runs it again so many times, `control TIMES` a loop that needs a core and nothing else. The answer
to each is a line, the JSON of a `Turn`.
"""

import hashlib
import json
import resource
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction

import numba
import numpy as np

from benchmarks.node_processes import schema_of
from benchmarks.scaling_worker import random_records
from dpcore.numbers.fixed_point import ONE
from dpcore.paillier.obfuscation import MOST_READY, Obfuscator
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
CONTROL_STEPS = 25_000_000
"""Steps of the control, about 25 ms."""

Work = Callable[[], bytes]
"""One computation; returns the bytes whose digest is compared, empty if they depend on chance or rounding."""


@dataclass(frozen=True)
class Job:
    """The size of the work. rows: by computation."""

    rows: dict[str, int]
    predicates: int
    rados: int
    key_bits: int
    ciphertexts: int
    uploads: int


@dataclass(frozen=True)
class Turn:
    """What a process did, and what it took: of the operating system's account of the process."""

    digest: str
    """Of the result; that of nothing if it depends on chance or rounding."""
    processor_s: float
    faults: int
    """Pages of memory that it was given."""
    waits: int
    """How often it waited by itself: for another thread, or for what it reads or writes."""
    preemptions: int
    """How often another process got its core."""


@numba.njit(nogil=True)
def _in_registers(steps: int) -> int:
    """A loop whose numbers fit in a core's registers: it shares no cache, memory or lock with another process."""
    state, found = np.uint64(1), np.uint64(0)
    for _ in range(steps):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        found ^= state >> np.uint64(33)
    return int(found)


def timed(work: Callable[[], bytes], times: int) -> Turn:
    """Run it so many times."""
    before, result = resource.getrusage(resource.RUSAGE_SELF), b""
    for _ in range(times):
        result = work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return Turn(
        hashlib.sha256(result).hexdigest(),
        after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime,
        after.ru_minflt - before.ru_minflt,
        after.ru_nvcsw - before.ru_nvcsw,
        after.ru_nivcsw - before.ru_nivcsw,
    )


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
        # The table of a node that has long encrypted under this key: else some turns would build a larger one.
        obfuscator = Obfuscator(opened.public_key, SystemRandom())
        obfuscator.prepare(MOST_READY)
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


def control() -> bytes:
    """The control, once."""
    return int(_in_registers(CONTROL_STEPS)).to_bytes(8)


def main() -> None:
    computations = Computations(Job(**json.loads(sys.argv[1])))
    control()  # compiles it
    work: Work | None = None
    for line in sys.stdin:
        word, _, argument = line.strip().partition(" ")
        if word == "prepare":
            # Release the previous preparation first.
            work = None
            work = computations.prepare(argument)
        assert work is not None, "nothing is prepared"
        turn = timed(control if word == "control" else work, 1 if word == "prepare" else int(argument))
        sys.stdout.write(json.dumps(asdict(turn)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
