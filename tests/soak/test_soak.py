"""A federation of real processes under random faults: gRPC over mutual TLS, SIGKILLs, lines that are cut.

Every party's rows have a category of their own, and each query counts all categories, with noise that differs from 0
with a probability below 2^-80 in the whole soak. So each total shows exactly who is in it, and how often.

The parameters of the long soak are read from the environment: SOAK_PARTIES, SOAK_QUERIES, SOAK_LEARNERS (processes
that ask at the same time) and SOAK_SEED.
"""

import json
import os
import secrets
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from learner.config import LearnerConfig
from learner.decryption import create_key
from learner.release import Release
from learner.session import Session
from radofed.node_config import PolicyChoices
from tests.federation.faults import Line, RandomFaults
from tests.federation.processes import ProcessFederation, rado
from tests.soak import asking
from tests.soak.asking import EPSILON, Asking, Job
from tests.waiting import wait_until
from wire.envelopes import Envelope, MessageType, load_public_key
from wire.query import Retry
from wire.statements import Receipt

RECOVERS_WITHIN_S = 90.0
"""From the end of the faults to a new total over all parties. A party's longest pause between polls is 30 s, and gRPC
notices a dead connection within 30 s; the rest is the query itself."""
FEWEST_ROWS = 5


@dataclass(frozen=True)
class Options:
    """One soak. pause_s, lasts_s, rounds: see RandomFaults. phase_s: seconds for each phase of a query."""

    parties: int
    queries: int
    learners: int
    seed: int
    phase_s: int
    expires_after_s: int
    pause_s: float
    lasts_s: float
    rounds: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"party{i}" for i in range(self.parties))

    @property
    def rows(self) -> dict[str, int]:
        return {name: FEWEST_ROWS + i for i, name in enumerate(self.names)}

    @property
    def colluders(self) -> int:
        return 0 if self.parties < 4 else 1

    @property
    def cohort_min(self) -> int:
        return max(2, self.parties - 3)

    @property
    def schema(self) -> str:
        return (
            'schema_version = 1\nname = "soak"\n[label]\ncolumn = "y"\npositive = ["1"]\nnegative = ["0"]\n'
            f'[[features]]\nname = "site"\ntype = "category"\nvalues = {json.dumps(self.names)}\n'
        )

    @property
    def policy(self) -> PolicyChoices:
        return PolicyChoices(
            designs=("statistic",),
            smallest_cohort=2,
            assumed_colluders=self.colluders,
            # Far more than all attempts cost: a refusal for the budget would hide a lost query.
            epsilon="1e9",
            delta="1e-3",
        )


SHORT = Options(
    parties=3, queries=6, learners=2, seed=1, phase_s=6, expires_after_s=40, pause_s=1.5, lasts_s=1.5, rounds=1
)
LONG = Options(
    parties=int(os.environ.get("SOAK_PARTIES", "8")),
    queries=int(os.environ.get("SOAK_QUERIES", "200")),
    learners=int(os.environ.get("SOAK_LEARNERS", "4")),
    seed=int(os.environ.get("SOAK_SEED", "0")) or secrets.randbelow(1 << 31),
    phase_s=15,
    expires_after_s=120,
    pause_s=6.0,
    lasts_s=5.0,
)


@dataclass
class Chunks:
    """Contents of the uploads in the coordinator's spool, read again and again: by place, every hash ever seen."""

    directory: Path
    seen: dict[tuple[str, ...], set[str]] = field(default_factory=lambda: defaultdict(set))

    def look(self) -> None:
        # SPOOL/QUERY/ATTEMPT/PARTY/INDEX-HASH. os.walk passes over directories that the coordinator removes meanwhile.
        for directory, _, names in os.walk(self.directory):
            place = Path(directory).relative_to(self.directory).parts
            for name in names:
                index, _, digest = name.partition("-")
                if len(place) == 3 and not name.endswith(".part"):
                    self.seen[*place, index].add(digest)

    @contextmanager
    def watched(self) -> Iterator[None]:
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(0.1):
                self.look()

        thread = threading.Thread(target=run, name="chunks")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        self.look()


class Soak:
    """The processes of one soak, and what they left."""

    def __init__(self, root: Path, options: Options) -> None:
        self.options = options
        rows = {name: "site,y\n" + f"{name},1\n" * count for name, count in options.rows.items()}
        self.federation = ProcessFederation(
            root, parties=rows, schema=options.schema, policy=options.policy, fresh=True
        )
        coordinator = self.federation.member("coordinator").config
        text = coordinator.read_text()
        # All queries stay until the end, to be counted, and those that are not retried take no place from others.
        for before, after in (("per_learner = 200", "per_learner = 100000"), ("per_learner = 4", "per_learner = 16")):
            assert before in text
            text = text.replace(before, after)
        coordinator.write_text(text)
        create_key(self.home / "paillier.jwk", bits=2048)
        self.lines = {name: self.federation.put_on_a_line(name) for name in options.names}
        self.jobs = {f"asking{i}": self._job(i) for i in range(options.learners)}
        self.started = time.monotonic()

    @property
    def home(self) -> Path:
        return self.federation.learner.directory

    def _job(self, number: int) -> Job:
        """A learner's process with a line and a state directory of its own."""
        options, name = self.options, f"asking{number}"
        line = self.lines[name] = Line(self.federation.address)
        self.federation.lines.append(line)
        text = self.federation.learner.config.read_text()
        for before, after in (
            (self.federation.address, line.address),
            ('"state"', f'"state-{name}"'),
            ('"releases"', f'"releases-{name}"'),
        ):
            assert before in text
            text = text.replace(before, after)
        config = self.home / f"{name}.toml"
        config.write_text(text)
        return Job(
            config=str(config),
            schema=options.schema,
            predicates=[f'x["site"] == {json.dumps(each)}' for each in options.names],
            outcomes=str(self.home / f"{name}.jsonl"),
            queries=(options.queries + options.learners - 1 - number) // options.learners,
            cohort_min=options.cohort_min,
            colluders=options.colluders,
            phase_s=options.phase_s,
            expires_after_s=options.expires_after_s,
        )

    def ask(self, name: str) -> None:
        """Start a learner's process, or start it again."""
        log = (self.federation.root / f"{name}.log").open("ab")
        command = [sys.executable, asking.__file__, json.dumps(asdict(self.jobs[name]))]
        environment = os.environ | {"PYTHONPATH": ""}
        self.federation.processes[name] = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True
        )
        log.close()

    def play(self, faults: RandomFaults) -> None:
        """All queries, under faults."""
        self.federation.start_all()
        for name in self.jobs:
            self.ask(name)
        wait_until(lambda: '"listening"' in self.federation.log("coordinator"), timeout_s=60, what="the coordinator")
        faults.start()
        try:
            wait_until(
                lambda: faults.failure or not any(map(self.is_asking, self.jobs)),
                timeout_s=60 + self.options.queries * 15,
                what="all queries",
            )
        finally:
            faults.stop()

    def is_asking(self, name: str) -> bool:
        process = self.federation.processes.get(name)
        if process is None:
            return True  # killed, and not yet started again
        assert process.poll() in (None, 0), self.federation.log(name)[-3000:]
        return process.poll() is None

    def outcomes(self) -> dict[str, dict]:
        lines = [line for job in self.jobs.values() for line in Path(job.outcomes).read_text().splitlines()]
        return {outcome["query"]: outcome for outcome in map(asking.read, lines) if outcome}

    def events(self, name: str) -> list[dict]:
        """A node's log; a line may be cut where the node was killed."""
        return [event for event in map(asking.read, self.federation.log(name).splitlines()) if event]

    def asked(self) -> set[str]:
        directories = [LearnerConfig.load(Path(job.config)).state_directory for job in self.jobs.values()]
        return {path.parent.name for each in directories for path in each.glob("queries/*/query.signed")}

    # What must be true.

    def check_total(self, release: Release) -> None:
        """It is exactly its cohort's sum."""
        cohort = release.party_rows
        rows = self.options.rows
        assert len(cohort) >= self.options.cohort_min
        assert cohort == {name: rows[name] for name in cohort}
        expected = [rows[name] if name in cohort else 0 for name in self.options.names]
        assert release.integers.reshape(-1).tolist() == expected, (cohort, release.integers)
        release.verify(load_public_key(LearnerConfig.load(self.federation.learner.config).federation_key))

    def check_outcomes(self) -> list[Release]:
        """Every query has ended in time; the releases of those with a total."""
        found = self.outcomes()
        assert found.keys() == self.asked()
        assert len(found) == self.options.queries
        assert not [outcome for outcome in found.values() if "violation" in outcome]
        releases = [Release.load(Path(outcome["release"])) for outcome in found.values() if "release" in outcome]
        for release in releases:
            self.check_total(release)
        return releases

    def statements(self) -> list[tuple[bytes, int, str, MessageType, Envelope]]:
        """All signed statements of all attempts that the coordinator took."""
        path = self.federation.directory("coordinator") / "state" / "coordinator.sqlite"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
            rows = store.execute("SELECT query_id, attempt, party, kind, envelope FROM statements").fetchall()
        return [
            (query, attempt, who, MessageType(kind), Envelope.from_bytes(data))
            for query, attempt, who, kind, data in rows
        ]

    def ledger(self, name: str) -> dict[tuple[bytes, int], tuple[str, bytes, bytes]]:
        """(state, cohort, upload) of every attempt in a party's ledger."""
        path = self.federation.directory(name) / "state" / "ledger.sqlite"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as ledger:
            rows = ledger.execute("SELECT query_id, attempt, state, cohort_digest, spool_digest FROM events").fetchall()
        assert len({row[:2] for row in rows}) == len(rows)
        return {(query_id, attempt): rest for query_id, attempt, *rest in map(tuple, rows)}

    def check_ledgers(self, releases: list[Release]) -> int:
        """A charge for every receipt, bound to its cohort and bytes; none twice, and none that no learner started."""
        statements = self.statements()
        receipts = [
            Receipt.from_bytes(envelope.payload) for *_, kind, envelope in statements if kind is MessageType.RECEIPT
        ]
        assert len(receipts) >= sum(len(release.party_rows) for release in releases)
        receipts += [Receipt.from_bytes(signed.payload) for release in releases for signed in release.receipts]
        retries = [Retry.from_bytes(envelope.payload) for *_, kind, envelope in statements if kind is MessageType.RETRY]
        started = {(retry.query_id, retry.attempt) for retry in retries}
        charges = 0
        for name in self.options.names:
            ledger = self.ledger(name)
            for receipt in receipts:
                if receipt.party == name:
                    charge = ledger.get((receipt.query_id, receipt.attempt))
                    assert charge is not None, f"{name} has a receipt and no charge"
                    assert tuple(charge) == ("charged", receipt.cohort_digest, receipt.upload_digest), name
            for query_id, attempt in ledger:
                assert attempt == 1 or (query_id, attempt) in started, f"{name} took part in an attempt of no learner"
            shown = rado("ledger", "show", "--config", str(self.federation.member(name).config))["data"]
            spent = Fraction(shown["scopes"][0]["spent"]["epsilon"])
            assert (shown["events_charged"], spent) == (len(ledger), EPSILON * len(ledger)), name
            charges += len(ledger)
            assert rado("ledger", "verify", "--config", str(self.federation.member(name).config))["data"]["ok"]
        return charges

    def check_chunks(self, chunks: Chunks) -> None:
        """No chunk of an attempt ever had two contents, and no party gave two answers."""
        assert chunks.seen
        assert all(len(hashes) == 1 for hashes in chunks.seen.values())
        conflicts = {"CHUNK_CONFLICT", "ANSWER_CONFLICT"}
        for name in ("coordinator", *self.options.names):
            assert not [event for event in self.events(name) if event.get("code") in conflicts], name

    def has_reservations(self) -> bool:
        return any(state != "charged" for name in self.options.names for state, *_ in self.ledger(name).values())

    def recover(self) -> tuple[Release, float]:
        """The release of a new query over all parties, asked without faults, and the seconds that it took."""
        begun = time.monotonic()
        job = replace(
            self.jobs["asking0"],
            queries=1,
            config=str(self.federation.learner.config),
            outcomes=str(self.home / "recovery.jsonl"),
            cohort_min=self.options.parties,
            phase_s=int(RECOVERS_WITHIN_S),
            expires_after_s=2 * int(RECOVERS_WITHIN_S),
        )
        with Session(LearnerConfig.load(self.federation.learner.config), give_up_after_s=RECOVERS_WITHIN_S) as session:
            Asking(job, session).run()
            (query_id,) = session.asked()
            release = session.fetch(query_id)
        seconds = time.monotonic() - begun
        self.check_total(release)
        assert set(release.party_rows) == set(self.options.names)
        assert seconds < RECOVERS_WITHIN_S
        return release, seconds


@dataclass(frozen=True)
class Finished:
    """A soak that held, and what its checks read."""

    run: Soak
    releases: list[Release]
    chunks: Chunks
    report: list[str]


def soak(root: Path, options: Options) -> Finished:
    """Run a soak and check it. What fails carries the seed and the faults."""
    run = Soak(root, options)
    chunks = Chunks(run.federation.directory("coordinator") / "state" / "spool")
    askers = {name: partial(run.ask, name) for name in run.jobs}
    faults = RandomFaults(
        run.federation,
        run.lines,
        askers,
        seed=options.seed,
        pause_s=options.pause_s,
        lasts_s=options.lasts_s,
        rounds=options.rounds,
    )
    try:
        with run.federation, chunks.watched():
            run.play(faults)
            last, recovered_s = run.recover()
            wait_until(lambda: not run.has_reservations(), timeout_s=60, what="the reservations to be released")
            assert {run.federation.stop(name) for name in (*options.names, "coordinator")} == {0}
        releases = [*run.check_outcomes(), last]
        charges = run.check_ledgers(releases)
        run.check_chunks(chunks)
    except BaseException as error:
        error.add_note("\n".join([f"SOAK_SEED={options.seed}; {options}", *faults.notes]))
        raise
    return Finished(run, releases, chunks, report(run, releases, faults, charges, recovered_s))


def report(run: Soak, releases: list[Release], faults: RandomFaults, charges: int, recovered_s: float) -> list[str]:
    coordinator = Counter(event["event"] for event in run.events("coordinator"))
    failed = Counter(outcome["code"] for outcome in run.outcomes().values() if "code" in outcome)
    sizes = Counter(len(release.party_rows) for release in releases)
    of_sizes = ", ".join(f"{count} over {size} parties" for size, count in sorted(sizes.items()))
    return [
        f"soak of {time.monotonic() - run.started:.0f} s: {run.options}",
        f"  totals: {len(releases)} ({of_sizes}); {sum(r.cohort.attempt > 1 for r in releases)} at a later attempt",
        f"  ended without a total: {', '.join(f'{code} {count}' for code, count in failed.items()) or 'none'}",
        f"  attempts lost: {coordinator['attempt lost']}, retried: {coordinator['retried']}, charges: {charges}",
        f"  faults: {', '.join(f'{kind} {count}' for kind, count in sorted(faults.happened.items()))}",
        f"  after the faults, a total over all parties within {recovered_s:.1f} s of at most {RECOVERS_WITHIN_S:.0f} s",
    ]


def show(capsys: pytest.CaptureFixture[str], lines: list[str]) -> None:
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")


@pytest.mark.slow
def test_processes_under_faults(tmp_path, capsys):
    """And each check notices what it is for."""
    done = soak(tmp_path, SHORT)
    show(capsys, done.report)
    release = done.releases[-1]
    counted_twice = replace(release, integers=release.integers + (release.integers > 6) * release.integers)
    with pytest.raises(AssertionError):
        done.run.check_total(counted_twice)
    place = next(iter(done.chunks.seen))
    other = Chunks(done.chunks.directory, defaultdict(set, {place: {*done.chunks.seen[place], "other"}}))
    with pytest.raises(AssertionError):
        done.run.check_chunks(other)
    name = next(iter(release.party_rows))
    path = done.run.federation.directory(name) / "state" / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as ledger, ledger:
        ledger.execute("DELETE FROM events WHERE query_id = ?", (release.query_id,))
    with pytest.raises(AssertionError, match="a receipt and no charge"):
        done.run.check_ledgers(done.releases)


@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
def test_many_processes_under_faults(tmp_path, capsys):
    show(capsys, soak(tmp_path, LONG).report)
