"""Random lists of operations against a simulated federation, their report, and the shrinking of a list that fails.

A run is its seed: options and operations derive from it. An operation carries all its choices, so that a list with some
operations removed means the same. Every run has a pair of faults that it must contain, in turn over all pairs.
"""

import functools
import itertools
import json
import logging
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import pytest

import coordinator.core
import learner.planning
import learner.session
import parties.answering.contribution
import parties.answering.lifecycle
import wire.query
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.randomness.sources import SystemRandom
from learner.decryption import LearnerKey
from parties.answering.contribution import masked_chunks
from tests.federation import material
from tests.simulation import faults
from tests.simulation.federation import Federation, Keys, ProductObfuscators, SharedObfuscators, one_hot
from tests.simulation.machine import Machines
from tests.simulation.nodes import NAME, START_UNIX_S, Clock
from tests.simulation.promises import ViolationError
from wire.envelopes import Envelope, MessageType, SigningKey
from wire.query import Query

CASES = Path(__file__).parent / "cases"
NAMES = ("ann", "bob", "cid", "dee", "eve")
OPERATIONS_A_RUN = 120
LEDGERS_EVERY = 8
Operation = tuple[str, ...]
"""A name and its arguments, all texts or numbers."""


@dataclass(frozen=True)
class Options:
    """What one run derives from its seed besides its operations. asks: the party that asks people, if any.

    shows_heads: whether the coordinator shows a party its own newest head, or leaves that to the members. circle:
    whether each party of a cohort of four or five shares masks with two others, not with all.
    """

    seed: int
    parties: int
    limit: str
    pair: tuple[str, str]
    asks: str = ""
    shows_heads: bool = True
    circle: bool = False

    @classmethod
    def of(cls, seed: int) -> "Options":
        order = random.Random(f"options {seed}")
        pairs = list(itertools.combinations(sorted(faults.FAULTS), 2))
        parties, limit = order.choice([3, 4, 5, 5, 5]), order.choice(["0.45", "1", "10"])
        asks, shows_heads = order.choice(["", "", NAMES[0]]), order.choice([True, False])
        circle = order.choice([True, False])
        return cls(seed, parties, limit, pairs[seed % len(pairs)], asks, shows_heads, circle)


@dataclass
class Report:
    """What happened over all runs."""

    runs: int = 0
    operations: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, other: "Report") -> None:
        self.runs += other.runs
        self.operations += other.operations
        self.seconds += other.seconds
        for mine, theirs in ((self.happened, other.happened), (self.pairs, other.pairs), (self.steps, other.steps)):
            mine.update(theirs)

    @property
    def rarest_pair(self) -> tuple[tuple[str, str], int]:
        pairs = itertools.combinations(sorted(faults.FAULTS), 2)
        return min(((pair, self.pairs[pair]) for pair in pairs), key=lambda each: each[1])

    def lines(self) -> list[str]:
        pair, count = self.rarest_pair
        events = [f"  {name}: {count}" for name, count in sorted(self.happened.items())]
        return [
            f"{self.operations} operations in {self.runs} runs, {self.seconds:.0f} s of processor time; no violation",
            f"durable steps: {dict(self.steps)}",
            f"rarest pair of faults: {' and '.join(pair)}, together in {count} runs",
            *events,
        ]


@dataclass
class FailedRunError(AssertionError):
    """A run that broke a promise, shrunk."""

    options: Options
    operations: Sequence[Operation]
    violation: str

    def __str__(self) -> str:
        lines = [json.dumps(list(operation)) for operation in self.operations]
        return "\n".join(
            [
                self.violation,
                f"commit {_commit()}, {self.options}",
                f"{len(self.operations)} operations remain after shrinking:",
                *lines,
            ]
        )


def kept_case(name: str) -> tuple[Options, list[Operation]]:
    """A run that once broke a promise: options and operations."""
    case = json.loads((CASES / f"{name}.json").read_text())
    options = Options(**case["options"] | {"pair": tuple(case["options"]["pair"])})
    return options, [tuple(operation) for operation in case["operations"]]


def operations_of(options: Options, count: int = OPERATIONS_A_RUN) -> list[Operation]:
    """The operations of a run."""
    order = random.Random(f"operations {options.seed}")
    names = NAMES[: options.parties]
    listed = [faults.any_operation(order, names) for _ in range(count)]
    # The pair that this run must contain, at any two places behind the first query.
    for kind in options.pair:
        listed.insert(order.randrange(4, len(listed)), faults.FAULTS[kind](order, names))
    return [faults.any_query(order, names), *listed]


@functools.lru_cache(1)
def _keys() -> tuple[Keys, SharedObfuscators]:
    secret = material.secret_key()
    small = Obfuscator(secret.public_key, SystemRandom(), short_exponent_bits=512, teeth=4, tables=2)
    parties = {name: SigningKey.generate(NAME) for name in NAMES}
    keys = Keys(LearnerKey(secret, int(START_UNIX_S) - 1000), parties=parties)
    return keys, SharedObfuscators(ProductObfuscators(small))


class Bench:
    """Keys, clock and hooks that all runs of a process share. begun: the operations that the last run came to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch, self.clock, self.machines = patch, Clock(), Machines()
        self.begun = 0
        self.machines.install(patch)
        for module in (learner.session, learner.planning):
            patch.setattr(module, "time", self.clock)
        patch.setattr(coordinator.core, "ADD_AGAIN_AFTER_S", 0.0)
        # So few are in a cohort here.
        for module in (learner.planning, wire.query):
            patch.setattr(module, "FEWEST_NEIGHBOURS", 2)
        self.keys, self.obfuscators = _keys()
        patch.setattr(Envelope, "open", _verified_once(Envelope.open))
        patch.setattr(Query, "from_bytes", staticmethod(functools.lru_cache(1000)(Query.from_bytes)))

    def play(self, options: Options, operations: Iterable[Operation]) -> Counter[str]:
        """Run the operations, heal, and require progress. Raises ViolationError."""
        self.clock.now = 0.0
        self.patch.setattr(learner.planning, "LARGEST_COMPLETE", 3 if options.circle else 40)
        directory = Path(tempfile.mkdtemp(dir=_memory()))
        federation = None
        try:
            federation = Federation(
                directory,
                self.keys,
                self.machines,
                self.clock,
                self.obfuscators,
                parties=options.parties,
                limit=Fraction(options.limit),
                asks=options.asks,
                shows_heads=options.shows_heads,
                seed=options.seed,
            )
            observed = federation.coalition.observed(masked_chunks)
            self.patch.setattr(parties.answering.contribution, "masked_chunks", observed)
            self.patch.setattr(parties.answering.lifecycle, "integer_vector", one_hot(federation))
            for number, operation in enumerate(operations):
                self.begun = number + 1
                faults.apply(federation, operation)
                # What leaves a party is checked at once; this reads all ledgers whole.
                if number % LEDGERS_EVERY == 0:
                    federation.check_ledgers()
            federation.check_progress()
            return federation.happened
        finally:
            if federation is not None:
                federation.close()
            shutil.rmtree(directory, ignore_errors=True)

    def run(self, seed: int, report: Report) -> None:
        """One run; adds to the report. Raises FailedRunError with the shortest list that still fails."""
        options = Options.of(seed)
        operations = operations_of(options)
        try:
            happened = self.play(options, operations)
        except ViolationError as violation:
            raise self.shrunk(options, operations, violation) from violation
        report.runs += 1
        report.operations += len(operations)
        report.happened.update(happened)
        seen = sorted(name for name in faults.FAULTS if happened[name])
        report.pairs.update(itertools.combinations(seen, 2))

    def shrunk(self, options: Options, operations: Sequence[Operation], violation: ViolationError) -> FailedRunError:
        """Remove operations in ever smaller groups while the run still breaks the same promise."""

        def fails(candidate: Sequence[Operation]) -> ViolationError | None:
            try:
                self.play(options, candidate)
            except ViolationError as found:
                return found if found.promise == violation.promise else None
            return None

        # Those after the violation were not reached.
        kept, found = list(operations[: self.begun]), violation
        size = len(kept) // 2
        while size:
            at = 0
            while at < len(kept):
                candidate = kept[:at] + kept[at + size :]
                again = fails(candidate)
                if again is not None:
                    kept, found = candidate[: self.begun], again
                else:
                    at += size
            size //= 2
        return FailedRunError(options, kept, str(found))


def _verified_once(real: Callable[..., bytes]) -> Callable[..., bytes]:
    """Signatures that were valid once are not computed again: every node verifies the same ones."""
    valid: set[tuple[Envelope, MessageType, str, bytes, bool]] = set()

    def opened(envelope: Envelope, kind: MessageType, federation: str, public_key: bytes) -> bytes:
        key = (envelope, kind, federation, public_key)
        if key not in valid:
            real(envelope, kind, federation, public_key)
            valid.add(key)
        return envelope.payload

    return opened


@contextmanager
def bench():
    """A bench whose hooks end with the block."""
    with pytest.MonkeyPatch.context() as patch:
        # Nodes log much of what faults cause.
        logging.disable()
        try:
            yield Bench(patch)
        finally:
            logging.disable(logging.NOTSET)


def simulate(first_seed: int, enough: Callable[[Report], bool]) -> Report:
    """Runs from a seed on until the report says enough."""
    report, begun = Report(), time.process_time()
    with bench() as own:
        for seed in itertools.count(first_seed):
            if enough(report):
                break
            own.run(seed, report)
        report.steps.update(own.machines.counted)
    report.seconds = time.process_time() - begun
    return report


def _memory() -> str | None:
    """A directory in memory where the system has one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _commit() -> str:
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"
