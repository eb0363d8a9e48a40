"""Parties that vanish between real processes, with a key of 3072 bits: the others' total opens, and is theirs alone."""

import signal

import pytest

from learner.decryption import create_key
from learner.session import AttemptLostError
from tests.end_to_end.test_faults import (
    POLICY,
    ROWS,
    SCHEMA,
    UNBOUNDED,
    charges,
    check_release,
    give_key,
    request,
    running,
    start_coordinator,
    table,
)
from tests.federation.processes import ProcessFederation
from tests.waiting import HANG_S, wait_until
from wire.status import PartyState, Phase

# On a machine with much to do, a party gets ready so much later than others.
VANISHING = {"may_vanish": 1, "quorum_wait_s": 45}
PATIENT = {"may_vanish": 1, "quorum_wait_s": None}


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "paillier.jwk"
    create_key(path, bits=3072)
    return path


@pytest.fixture(scope="module")
def federation(tmp_path_factory, key_file):
    """One for all tests of this file. Parties b and d are on lines."""
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    root = tmp_path_factory.mktemp("vanishing")
    with ProcessFederation(root, parties=parties, schema=SCHEMA, policy=POLICY) as federation:
        give_key(federation, key_file)
        federation.put_on_a_line("b")
        federation.put_on_a_line("d")
        start_coordinator(federation)
        yield federation


@pytest.fixture
def lines(federation):
    """Of b and of d."""
    yield federation.lines
    for line in federation.lines:
        line.release()


@pytest.fixture
def charged(federation):
    before = {name: charges(federation, name) for name in ROWS}
    return lambda: [charges(federation, name) - before[name] for name in ROWS]


def states(learner, query_id):
    return {party.party: party.state for party in learner.status(query_id).parties}


def stalled(federation, learner, line, after_bytes, **changes):
    """A query whose upload by the party on the line waits there."""
    line.stall_after(after_bytes)
    query_id = learner.ask(learner.plan(request(**UNBOUNDED, **changes)))
    wait_until(
        lambda: line.stalled.is_set() or learner.status(query_id).phase.is_terminal,
        what="an upload, or an end",
    )
    assert line.stalled.is_set(), federation.log("b")[-2000:] + federation.log("d")[-2000:]
    return query_id


@pytest.mark.more
def test_a_party_killed_after_half_its_upload_is_left_out_of_the_total(federation, charged, lines):
    with running(federation, "abcd") as learner:
        query_id = stalled(federation, learner, lines[0], int(1.15 * (1 << 19)), **VANISHING)
        federation.kill("b")
        status = learner.watch(query_id, timeout_s=HANG_S)
        assert (status.phase, status.attempt) == (Phase.COMPLETE, 1)
        expected = dict.fromkeys("acd", PartyState.UNMASKED) | {"b": PartyState.VANISHED}
        assert states(learner, query_id) == expected
        release = learner.fetch(query_id)
        check_release(federation, release, "acd")
        assert release.vanished == ("b",)
        assert charged() == [1, 1, 1, 1]


@pytest.mark.more
def test_a_party_killed_after_it_was_ready_costs_nobody_an_attempt(federation, charged, lines):
    """It has charged and sent a part of its first chunk."""
    with running(federation, "abcd") as learner:
        query_id = stalled(federation, learner, lines[0], 1 << 15, **VANISHING)
        federation.kill("b")
        learner.watch(query_id, timeout_s=HANG_S)
        check_release(federation, learner.fetch(query_id), "acd")
        assert sum(charged()) in (3, 4)


@pytest.mark.more
def test_all_that_upload_are_in_the_total_also_if_one_is_killed_before_it_unmasks(federation, charged, lines):
    with running(federation, "abcd") as learner:
        query_id = stalled(federation, learner, lines[1], 1 << 15, **PATIENT)
        wait_until(lambda: states(learner, query_id)["b"] is PartyState.UPLOADED, what="the upload of b")
        federation.kill("b")
        lines[1].release()
        learner.watch(query_id, timeout_s=HANG_S)
        assert states(learner, query_id) == dict.fromkeys("acd", PartyState.UNMASKED) | {"b": PartyState.UPLOADED}
        release = learner.fetch(query_id)
        check_release(federation, release, "abcd")
        assert release.vanished == ()
        assert charged() == [1, 1, 1, 1]


@pytest.mark.more
def test_a_coordinator_that_is_killed_while_parties_upload_goes_on(federation, charged, lines):
    with running(federation, "abcd") as learner:
        query_id = stalled(federation, learner, lines[1], 1 << 15, **PATIENT)
        wait_until(lambda: states(learner, query_id)["b"] is PartyState.UPLOADED, what="the upload of b")
        federation.stop("coordinator", signal.SIGKILL)
        start_coordinator(federation)
        federation.kill("b")
        federation.start("b")
        lines[1].release()
        assert learner.watch(query_id, timeout_s=HANG_S).attempt == 1
        check_release(federation, learner.fetch(query_id), "abcd")
        assert charged() == [1, 1, 1, 1]


@pytest.mark.more
def test_if_more_vanish_the_attempt_is_lost_and_the_next_is_charged_again(federation, charged, lines):
    with running(federation, "abcd") as learner:
        lines[1].stall_after(1 << 15)
        query_id = stalled(federation, learner, lines[0], 1 << 15, upload_within_s=30, attempts=2, **VANISHING)
        assert lines[1].stalled.wait(HANG_S)
        federation.kill("b")
        federation.kill("d")
        with pytest.raises(AttemptLostError, match=r"these did not finish: b, d\."):
            learner.watch(query_id, timeout_s=HANG_S)
        lines[1].release()
        federation.start("d")
        assert learner.retry(query_id) == 2
        assert learner.watch(query_id, timeout_s=HANG_S).attempt == 2
        release = learner.fetch(query_id)
        check_release(federation, release, "acd")
        # Three had accepted the second attempt, and all of them were needed.
        assert release.vanished == ()
        assert charged()[0] == 2
