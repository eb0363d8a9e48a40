"""A coordinator that stalls: members stay responsive, use bounded memory and threads, and end at once on a signal."""

import secrets
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from fractions import Fraction

import pytest

from dpcore.predicates.notation import parse
from learner.client import ANSWERS_AT_ONCE, WATCH_EVERY_S
from learner.config import LearnerConfig
from learner.decryption import create_key
from learner.planning import plan_query
from learner.requests import StatisticRequest
from learner.session import Session
from learner.state import AskedQuery, LearnerState
from radofed.node_config import PolicyChoices
from tests.federation.faults import Silent
from tests.federation.material import STAYS
from tests.federation.processes import ProcessFederation
from tests.hostile.stalling import Holding, process_status
from tests.waiting import HANG_S, wait_until
from wire.binding import OpeningSecret
from wire.envelopes import Envelope, MessageType, SigningKey, load_public_key
from wire.errors import ConnectionLostError, TimedOutError
from wire.query import CLOCK_SKEW_S
from wire.roster import open_roster
from wire.status import PartyState, Phase, QueryStatus, Work
from wire.transport import LONG_POLL_S

ENDS_WITHIN_S = 12.0
"""From the signal to the end of a process that waits for its coordinator. A call that waits ends by itself after 15."""
MOST_THREADS = 64
MOST_GROWTH_BYTES = 64 << 20
ROWS = "age,smoker,stayed\n" + "40,yes,yes\n" * 20
# Without witnesses, which a coordinator can withhold: the party then answers nothing at all.
POLICY = PolicyChoices(designs=("statistic",), epsilon="100", delta="1e-5", required_witnesses=0)
QUERIES = 16


@pytest.fixture
def federation(tmp_path, secret_key):
    parties = dict.fromkeys(("ada", "bo", "cy"), ROWS)
    with ProcessFederation(tmp_path, parties=parties, schema=STAYS.to_toml(), policy=POLICY) as made:
        yield made


def end(federation: ProcessFederation, name: str) -> float:
    """Seconds from SIGTERM to the end of a party that ends as it should."""
    begun = time.monotonic()
    assert federation.stop(name) == 0
    return time.monotonic() - begun


def wait_for_answer(federation: ProcessFederation, done: list[Exception], coordinator: str = "") -> threading.Thread:
    """A learner that asks for the status of a query, in a thread; what it raises is appended to `done`."""
    config = LearnerConfig.load(federation.learner.config)
    if coordinator:
        config = config.model_copy(update={"coordinator": coordinator})

    def ask() -> None:
        with Session(config, give_up_after_s=1) as session:
            try:
                session.status(secrets.token_bytes(32))
            except (ConnectionLostError, TimedOutError) as error:
                done.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


@pytest.mark.more
def test_a_coordinator_that_never_answers(federation):
    """Connections are accepted and nothing is sent: not even TLS begins."""
    errors: list[Exception] = []
    with Silent(federation.address) as silent:
        federation.start("ada")
        command = [sys.executable, "-m", "radofed", "learner", "list", "--config", str(federation.learner.config)]
        listing = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={})
        asking = wait_for_answer(federation, errors)
        wait_until(lambda: '"started"' in federation.log("ada"), what="the party")
        # The party, the command and the learner of this process.
        wait_until(lambda: silent.connections >= 3, what="the connections")
        threads, _, before = process_status(federation.processes["ada"].pid)
        time.sleep(3)
        *_, after = process_status(federation.processes["ada"].pid)
        assert threads < MOST_THREADS
        assert after - before < MOST_GROWTH_BYTES
        assert end(federation, "ada") < ENDS_WITHIN_S
        begun = time.monotonic()
        listing.send_signal(signal.SIGINT)
        assert listing.wait(HANG_S) != 0
        assert time.monotonic() - begun < ENDS_WITHIN_S
        # The learner's own bound: 15 s for a call without a wait, and a second's patience.
        asking.join(HANG_S)
        assert not asking.is_alive()
    assert len(errors) == 1


@pytest.mark.slow
def test_a_coordinator_that_answers_one_byte_a_second(federation):
    line = federation.put_on_a_line("ada")
    federation.start("coordinator")
    wait_until(lambda: '"listening"' in federation.log("coordinator"), what="the coordinator")
    federation.start("ada")
    wait_until(lambda: '"roster accepted"' in federation.log("ada"), what="the roster")
    line.trickle()
    errors: list[Exception] = []
    asking = wait_for_answer(federation, errors, line.address)
    threads, _, before = process_status(federation.processes["ada"].pid)
    time.sleep(10)
    *_, after = process_status(federation.processes["ada"].pid)
    assert threads < MOST_THREADS
    assert after - before < MOST_GROWTH_BYTES
    assert end(federation, "ada") < ENDS_WITHIN_S
    asking.join(HANG_S)
    assert not asking.is_alive()
    assert len(errors) == 1


def asked(federation: ProcessFederation, learner_key, *, count: int, lapse_in_s: float) -> list[Envelope]:
    """Queries that every party may answer, and that end soon with the tolerance for clocks."""
    roster_file = federation.directory("coordinator") / "roster.signed"
    key = load_public_key(federation.learner.directory / "federation.pub")
    roster = open_roster(Envelope.from_bytes(roster_file.read_bytes()), key)
    signing_key = SigningKey.load(federation.learner.directory / "signing.key", "test")
    lifetime_s = 600
    request = StatisticRequest(
        STAYS, (parse('x["smoker"]'),), epsilon=Fraction(1), pure=True, cohort_min=3, expires_after_s=lifetime_s
    )
    created = time.time() + lapse_in_s - lifetime_s - CLOCK_SKEW_S
    certificate = learner_key.certify("learner", signing_key)
    plans = [
        plan_query(
            request,
            roster=roster,
            asked=roster.parties,
            learner="learner",
            certificate=certificate,
            now_unix_s=created,
        )
        for _ in range(count)
    ]
    return [signing_key.sign(MessageType.QUERY, plan.query.to_bytes()) for plan in plans]


def events(federation: ProcessFederation, name: str) -> list[str]:
    """The states of all events in a party's ledger."""
    path = federation.directory(name) / "state" / "ledger.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as ledger:
        return [state for (state,) in ledger.execute("SELECT state FROM events")]


@pytest.mark.more
def test_a_coordinator_that_holds_queries_in_a_phase_for_ever(federation, learner_key):
    """It also answers every poll at once. Reservations lapse by the party's own clock, and nothing is charged."""
    with Holding(federation) as holding:
        federation.start("ada")
        wait_until(lambda: holding.calls["poll"], what="the party's first poll")
        # A busy machine may take longer until all are accepted.
        for lapse_in_s in (22.0, 300.0):
            holding.accepted.clear()
            lapse_at = time.monotonic() + lapse_in_s
            queries = asked(federation, learner_key, count=QUERIES, lapse_in_s=lapse_in_s)
            holding.show(Work(each, 1, Phase.ANSWERING, PartyState.SILENT, None, frozenset()) for each in queries)
            wait_until(
                lambda end=lapse_at - 2: len(holding.accepted) == QUERIES or time.monotonic() > end,
                what="the acceptances",
            )
            if len(holding.accepted) == QUERIES:
                break
            wait_until(lambda: not events(federation, "ada"), what="the lapse of the first ones")
        assert events(federation, "ada") == ["reserved"] * QUERIES
        threads, _, before = process_status(federation.processes["ada"].pid)
        assert threads < MOST_THREADS
        wait_until(lambda: not events(federation, "ada"), what="the lapse")
        assert time.monotonic() > lapse_at - 2
        *_, after = process_status(federation.processes["ada"].pid)
        assert after - before < MOST_GROWTH_BYTES
        assert end(federation, "ada") < ENDS_WITHIN_S
    assert events(federation, "ada") == []


def test_a_learner_that_is_shown_the_same_phase_for_ever_gives_up_when_it_said(federation):
    """Each poll is answered at once: the learner asks at a bounded pace, and ends at its own time."""
    create_key(federation.learner.directory / "paillier.jwk", bits=2048)
    query_id = secrets.token_bytes(32)
    status = QueryStatus(query_id, 1, Phase.ANSWERING, (), "", "", 60, 0, int(time.time()))
    with Holding(federation, status) as holding:
        # Until there is a pace: a busy machine may take longer than 2 s.
        for timeout_s in (2, 20, 200):
            holding.calls.clear()
            with Session(LearnerConfig.load(federation.learner.config), give_up_after_s=1) as session:
                begun = time.monotonic()
                with pytest.raises(TimedOutError, match=f"in phase answering after {timeout_s} s"):
                    session.watch(query_id, timeout_s=timeout_s)
                took_s = time.monotonic() - begun
            assert took_s < timeout_s + LONG_POLL_S
            if holding.calls["watch"] > ANSWERS_AT_ONCE:
                break
        assert ANSWERS_AT_ONCE < holding.calls["watch"] <= ANSWERS_AT_ONCE + took_s / WATCH_EVERY_S + 2


def test_a_learner_that_is_shown_a_phase_beyond_the_querys_end_gives_up(federation, learner_key):
    create_key(federation.learner.directory / "paillier.jwk", bits=2048)
    config = LearnerConfig.load(federation.learner.config)
    begun = time.monotonic()
    [query] = asked(federation, learner_key, count=1, lapse_in_s=2.0)
    roster = Envelope.from_bytes((federation.directory("coordinator") / "roster.signed").read_bytes())
    state = LearnerState(config.state_directory, load_public_key(federation.learner.directory / "federation.pub"))
    asked_query = AskedQuery(query, roster)
    state.remember(asked_query, OpeningSecret(bytes(32)))
    status = QueryStatus(asked_query.query_id, 1, Phase.UPLOADING, (), "", "", 60, 0, int(time.time()))
    with (
        Holding(federation, status),
        Session(config, give_up_after_s=1) as session,
        pytest.raises(TimedOutError, match=r"has expired, and .* phase uploading: no total can come"),
    ):
        session.watch(asked_query.query_id, timeout_s=HANG_S)
    assert time.monotonic() - begun > 1
