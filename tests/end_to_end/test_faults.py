"""Faults between real processes: parties that are down, killed or restarted, and what every member learns of it.

Every total that comes out is checked twice: its check slots hold the cohort's rows exactly, so that a contribution
counted twice or lost shows, and the rados lie where the cohort's rows allow.
"""

import json
import signal
import sqlite3
import time
from dataclasses import replace

import numpy as np
import pytest

from dpcore.records.schema import Schema
from learner.config import LearnerConfig
from learner.decryption import create_key
from learner.requests import RadosRequest
from learner.session import AttemptLostError, Session
from parties.data.dataset import load
from radofed.node_config import PolicyChoices
from tests.federation.faults import Line
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import HANG_S, wait_until
from wire.errors import Code, WireError
from wire.statements import CHUNK_BYTES
from wire.status import PartyState, Phase

COLUMNS = 60
SCHEMA = "\n".join(
    ['schema_version = 1\nname = "wide"\n[label]\ncolumn = "y"\npositive = ["1"]\nnegative = ["0"]']
    + [f'[[features]]\nname = "x{i}"\ntype = "real"\nlower = 0.0\nupper = 1.0' for i in range(COLUMNS - 1)]
    + ['[[features]]\nname = "s"\ntype = "boolean"\ntrue = ["1"]\nfalse = ["0"]']
)
ROWS = {"a": 40, "b": 70, "c": 30, "d": 50}
POLICY = PolicyChoices(
    designs=("plain", "dp-feat"),
    allow_unprotected=True,
    smallest_cohort=3,
    epsilon="1e4",
    delta="1e-2",
    unbounded_queries=100,
    rados_per_query=10_000,
)

# So many rados of so few rows have no bound. Uploads are over a chunk, whether or not the learner knows the rows.
UNBOUNDED = {"rados": 1650, "design": "plain", "sensitive": None}
# Three parties make a cohort. Others are waited for this long, and not to the end of the phase.
QUORUM = {"quorum_wait_s": 1}


def table(rows: int, seed: int) -> str:
    random = np.random.RandomState(seed)
    header = ",".join([*(f"x{i}" for i in range(COLUMNS - 1)), "s", "y"])
    body = "\n".join(
        ",".join([*(f"{v:.3f}" for v in random.rand(COLUMNS - 1)), str(random.randint(2)), str(random.randint(2))])
        for _ in range(rows)
    )
    return f"{header}\n{body}\n"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    """A 2048-bit test key, shared by the federations of this file; the main job's test has 3072 bits."""
    path = tmp_path_factory.mktemp("key") / "paillier.jwk"
    create_key(path, bits=2048)
    return path


def give_key(federation: ProcessFederation, key_file) -> None:
    path = federation.learner.directory / "paillier.jwk"
    path.write_bytes(key_file.read_bytes())
    path.chmod(0o600)


@pytest.fixture(scope="module")
def federation(tmp_path_factory, key_file):
    """One for all faults: a test says which parties run. Party b is on a line."""
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    root = tmp_path_factory.mktemp("faults")
    with ProcessFederation(root, parties=parties, schema=SCHEMA, policy=POLICY) as federation:
        give_key(federation, key_file)
        federation.put_on_a_line("b")
        start_coordinator(federation)
        yield federation


@pytest.fixture
def line(federation):
    (line,) = federation.lines
    yield line
    line.release()


def start_coordinator(federation: ProcessFederation) -> None:
    listened = federation.log("coordinator").count('"listening"')
    federation.start("coordinator")
    wait_until(lambda: federation.log("coordinator").count('"listening"') > listened, what="the coordinator")


def session(federation: ProcessFederation) -> Session:
    return Session(LearnerConfig.load(federation.learner.config), give_up_after_s=HANG_S)


def request(**changes) -> RadosRequest:
    fields = {
        "schema": Schema.from_toml(SCHEMA),
        "rados": 50,
        "design": "dp-feat",
        "sensitive": "s",
        "answer_within_s": 300,
        "prepare_within_s": 300,
        "upload_within_s": 300,
    }
    return RadosRequest(**fields | changes)


def running(federation: ProcessFederation, parties: str) -> Session:
    """Starts and stops parties so that these run, and no others."""
    for name in (set(federation.processes) & set(ROWS)) - set(parties):
        federation.kill(name)
    # Waited for, as a machine with much to do starts them later than a query waits for answers.
    absent = set(parties) - set(federation.processes)
    due = {name: federation.log(name).count('"started"') + 1 for name in absent}
    for name in absent:
        federation.start(name)

    def all_started() -> bool:
        return all(federation.log(name).count('"started"') == count for name, count in due.items())

    wait_until(all_started, what="the parties")
    return session(federation)


def check_release(federation: ProcessFederation, release, members: str) -> None:
    assert sorted(release.party_rows) == sorted(members)
    assert release.rows == sum(ROWS[name] for name in members)
    schema = Schema.from_toml(SCHEMA)
    parts = [load(federation.directory(name) / "data.csv", schema).records for name in members]
    edges = np.vstack([part.features / 2.0**30 * part.labels[:, None] for part in parts])
    slack = len(edges) * 2.0**-16
    assert (release.rados >= np.minimum(edges, 0).sum(0) - slack).all()
    assert (release.rados <= np.maximum(edges, 0).sum(0) + slack).all()


def charges(federation: ProcessFederation, name: str) -> int:
    """How many charges stand in a party's ledger, read from its file."""
    path = federation.directory(name) / "state" / "ledger.sqlite"
    if not path.exists():
        return 0
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as ledger:
        return ledger.execute("SELECT COUNT(*) FROM events WHERE state = 'charged'").fetchone()[0]


@pytest.fixture
def charged(federation):
    """How many charges each party has made since the test began."""
    before = {name: charges(federation, name) for name in ROWS}
    return lambda: [charges(federation, name) - before[name] for name in ROWS]


def test_too_few_parties_says_who_is_missing_and_charges_no_one(federation, charged):
    with running(federation, "ab") as learner:
        with pytest.raises(WireError) as caught:
            learner.run(learner.plan(request(answer_within_s=2)), timeout_s=HANG_S)
        assert caught.value.code is Code.COHORT_TOO_SMALL
        assert "c" in caught.value.detail
        assert "d" in caught.value.detail
        assert charged() == [0, 0, 0, 0]


def test_a_cancelled_query_ends_for_every_party(federation, charged):
    with running(federation, "ab") as learner:
        query_id = learner.ask(learner.plan(request()))
        learner.cancel(query_id)
        with pytest.raises(WireError) as caught:
            learner.watch(query_id, timeout_s=HANG_S)
        assert caught.value.code is Code.CANCELLED
        time.sleep(1)
        assert charged() == [0, 0, 0, 0]


def test_a_party_that_is_down_is_left_out(federation, charged):
    with running(federation, "abc") as learner:
        release = learner.run(learner.plan(request(**QUORUM)), timeout_s=HANG_S)
        check_release(federation, release, "abc")
        assert charged() == [1, 1, 1, 0]


HOSTILE_POLICIES = (
    b"a = " + b"[" * 20_000,
    b"a = " + b"{a=" * 20_000,
    b"a = " + b"1" * 5000,
    b"[limits]\nunbounded_queries = 0x" + b"f" * 20_000,
    b'designs = ["plain\xff"]',
    bytes(1000),
    b"#" * (5 << 20),
)


@pytest.mark.more
def test_a_party_outlives_policies_that_cannot_be_read_and_answers_under_its_own(federation, charged):
    """On SIGHUP, in the running process; each is refused in the log with what to do."""
    with running(federation, "abc") as learner:
        policy = federation.directory("a") / "policy.toml"
        good = policy.read_bytes()
        for content in HOSTILE_POLICIES:
            policy.write_bytes(content)
            refused = federation.log("a").count('"policy refused"')
            federation.processes["a"].send_signal(signal.SIGHUP)
            wait_until(
                lambda refused=refused: (
                    federation.log("a").count('"policy refused"') > refused
                    or federation.processes["a"].poll() is not None
                ),
                what="the refusal",
            )
            assert federation.processes["a"].poll() is None, content[:50]
            line = next(line for line in reversed(federation.log("a").splitlines()) if '"policy refused"' in line)
            assert str(policy) in json.loads(line)["reason"]
            assert "reload again" in json.loads(line)["reason"]
        policy.write_bytes(good)
        release = learner.run(learner.plan(request(**QUORUM)), timeout_s=HANG_S)
        check_release(federation, release, "abc")
        assert charged() == [1, 1, 1, 0]


@pytest.mark.more
def test_two_queries_at_once_share_one_ledger(federation, charged):
    with running(federation, "abcd") as learner:
        plans = [learner.plan(request(rados=30 + i)) for i in range(3)]
        ids = [learner.ask(plan) for plan in plans]
        for query_id in ids:
            learner.watch(query_id, timeout_s=HANG_S)
        for query_id in ids:
            check_release(federation, learner.fetch(query_id), "abcd")
        assert charged() == [3, 3, 3, 3]


@pytest.mark.more
def test_a_party_lost_before_it_is_ready_charges_no_one(federation):
    # d starts again, with nothing made ahead, so that it is not ready at once.
    running(federation, "abc").close()
    with running(federation, "abcd") as learner:
        plan = learner.plan(request(rados=400, quorum_wait_s=8))
        query_id = learner.ask(plan)

        def lose(status):
            states = {p.party: p.state for p in status.parties}
            if states["d"] is PartyState.ACCEPTED and "d" in federation.processes:
                federation.kill("d")

        status = learner.watch(query_id, lose, timeout_s=HANG_S)
        if "d" in federation.processes:
            pytest.skip("d was ready before it could be killed")
        lost = {p.party: p.state for p in status.parties}["d"]
        assert lost in {PartyState.LEFT_OUT, PartyState.UPLOADED}
        members = "abcd" if lost is PartyState.UPLOADED else "abc"
        check_release(federation, learner.fetch(query_id), members)


def test_a_party_whose_contribution_fails_is_not_waited_for_and_charges_nothing(federation, charged):
    """Its spool is too small. The others have an hour to get ready, and do not need it."""
    running(federation, "abc").close()
    config = federation.member("d").config
    sound = config.read_text()
    config.write_text(sound.replace("spool_bytes = 10_000_000_000", "spool_bytes = 1_048_576"))
    try:
        with running(federation, "abcd") as learner:
            query_id = learner.ask(learner.plan(request(prepare_within_s=3600, **UNBOUNDED)))
            status = learner.watch(query_id, timeout_s=HANG_S)
            gave_up = {p.party: (p.state, p.code) for p in status.parties}["d"]
            assert gave_up == (PartyState.REFUSED, Code.UNAVAILABLE)
            # The total is that of the others; opening one so large takes seconds.
            assert status.phase is Phase.COMPLETE
            assert charged() == [1, 1, 1, 0]
    finally:
        federation.kill("d")
        config.write_text(sound)
    assert '"gave up"' in federation.log("d")


def stalled_upload(
    federation: ProcessFederation, line: Line, parties: str, after_bytes: int, **changes
) -> tuple[Session, bytes]:
    """A query whose upload by b waits on its line after so many bytes."""
    learner = running(federation, parties)
    line.stall_after(after_bytes)
    query_id = learner.ask(learner.plan(request(**changes)))
    assert line.stalled.wait(HANG_S), federation.log("b")[-2000:]
    return learner, query_id


@pytest.mark.more
def test_a_party_that_never_returns_ends_the_attempt_and_the_next_is_charged_again(federation, charged, line):
    # A busy machine may get the others ready so long before b, which has to be in the cohort.
    learner, query_id = stalled_upload(
        federation, line, "abcd", 1 << 15, rados=200, upload_within_s=20, attempts=2, quorum_wait_s=20
    )
    with learner:
        assert {p.party: p.chunks for p in learner.status(query_id).parties}["b"] == 0
        federation.kill("b")
        with pytest.raises(AttemptLostError, match=r"did not finish: b\. .*rado learner retry"):
            learner.watch(query_id, timeout_s=HANG_S)
        assert charged() == [1, 1, 1, 1]
        assert learner.retry(query_id) == 2
        status = learner.watch(query_id, timeout_s=HANG_S)
        assert status.attempt == 2
        check_release(federation, learner.fetch(query_id), "acd")
        assert charged() == [2, 1, 2, 2]


@pytest.mark.more
def test_a_drained_coordinator_completes_what_runs_and_takes_what_it_refused_later(federation, charged, line):
    learner, query_id = stalled_upload(federation, line, "abcd", 1 << 15, rados=200)
    coordinator = ("--config", str(federation.member("coordinator").config))
    with learner, Session(LearnerConfig.load(federation.learner.config), give_up_after_s=1) as other:
        (shown,) = rado("coordinator", "drain", "--within", "0.5", *coordinator, code=3)["data"]["under_way"]
        assert (shown["query_id"], shown["phase"]) == (query_id.hex(), "uploading")
        with pytest.raises(WireError, match="`rado learner send` sends a query that was not taken") as caught:
            other.ask(other.plan(request(rados=30)))
        assert caught.value.code is Code.DRAINING
        (unsent,) = other.unsent()
        line.release()
        assert rado("coordinator", "drain", "--within", str(HANG_S), *coordinator)["data"]["complete"]
        check_release(federation, learner.fetch(query_id), "abcd")
        assert charged() == [1, 1, 1, 1]
        assert rado("coordinator", "undrain", *coordinator)["data"]["changed"]
        other.send(unsent)
        other.watch(unsent, timeout_s=HANG_S)
        check_release(federation, other.fetch(unsent), "abcd")


@pytest.mark.more
def test_a_party_and_a_coordinator_ended_in_the_middle_of_an_upload_go_on(federation, charged, line):
    """The coordinator is stopped, then killed, then the party is killed: no charge or chunk is lost or doubled."""
    learner, query_id = stalled_upload(federation, line, "abc", int(1.15 * CHUNK_BYTES), **UNBOUNDED, **QUORUM)

    def held() -> int:
        return {p.party: p.chunks for p in learner.status(query_id).parties}["b"]

    with learner:
        wait_until(held, what="a chunk of b")
        assert held() == 1 < learner.status(query_id).chunks_expected
        for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
            assert federation.stop("coordinator", number) == code
            start_coordinator(federation)
            assert held() == 1
        federation.kill("b")
        line.release()
        federation.start("b")
        status = learner.watch(query_id, timeout_s=HANG_S)
        assert status.attempt == 1
        check_release(federation, learner.fetch(query_id), "abc")
        assert charged() == [1, 1, 1, 0]


@pytest.mark.more
@pytest.mark.parametrize("rados", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_many_rados_of_500_features_work(tmp_path, key_file, rados):
    columns = 499
    schema = "\n".join(
        ['schema_version = 1\nname = "wide"\n[label]\ncolumn = "y"\npositive = ["1"]']
        + [f'[[features]]\nname = "x{i}"\ntype = "boolean"\ntrue = ["1"]\nfalse = ["0"]' for i in range(columns)]
    )
    random = np.random.RandomState(1)
    header = ",".join([*(f"x{i}" for i in range(columns)), "y"])
    parties = {
        name: header + "\n" + "\n".join(",".join(map(str, row)) for row in random.randint(2, size=(50, columns + 1)))
        for name in "ab"
    }
    policy = replace(POLICY, smallest_cohort=2, assumed_colluders=0, rados_per_query=2000)
    with ProcessFederation(tmp_path, parties=parties, schema=schema, policy=policy) as federation:
        give_key(federation, key_file)
        start_coordinator(federation)
        with running(federation, "ab") as learner:
            release = learner.run(
                learner.plan(
                    request(
                        schema=Schema.from_toml(schema),
                        rados=rados,
                        design="plain",
                        sensitive=None,
                        fraction_bits=0,
                        max_rows=2000,
                    )
                ),
                timeout_s=HANG_S,
            )
            assert release.rados.shape == (rados, 500)
            assert release.rows == 100
            # The bias counts labels: never more than there are rows.
            assert np.abs(release.rados[:, -1]).max() <= 100
