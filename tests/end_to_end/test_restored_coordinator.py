"""A coordinator whose disk is lost while parties upload: after its backup is restored, no party is charged twice."""

import shutil

import pytest

from learner.decryption import create_key
from tests.end_to_end.test_faults import (
    POLICY,
    QUORUM,
    ROWS,
    SCHEMA,
    UNBOUNDED,
    charges,
    check_release,
    request,
    running,
    stalled_upload,
    start_coordinator,
    table,
)
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import HANG_S, wait_until
from wire.errors import Code, WireError
from wire.statements import CHUNK_BYTES
from wire.status import PartyState, Phase

pytestmark = pytest.mark.slow


@pytest.fixture
def federation(tmp_path):
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(tmp_path, parties=parties, schema=SCHEMA, policy=POLICY) as federation:
        create_key(federation.learner.directory / "paillier.jwk", bits=2048)
        federation.put_on_a_line("b")
        start_coordinator(federation)
        yield federation


def back_up(federation) -> None:
    config = str(federation.member("coordinator").config)
    rado("backup", "create", str(federation.root / "hub.backup"), "--config", config, "--with-keys")


def lose_and_restore(federation) -> None:
    """A fire, and the drill of docs/operating.md."""
    federation.kill("coordinator")
    directory = federation.directory("coordinator")
    shutil.rmtree(directory)
    rado("restore", str(federation.root / "hub.backup"), str(directory))
    start_coordinator(federation)


def charged(federation, members: str = "abc") -> list[int]:
    return [charges(federation, name) for name in members]


def states(learner, query_id) -> dict[str, PartyState]:
    return {each.party: each.state for each in learner.status(query_id).parties}


def wait_for(learner, query_id, state: PartyState, parties: str) -> None:
    wait_until(lambda: {states(learner, query_id)[name] for name in parties} == {state}, what=f"{parties}: {state}")


def check_completed(federation, learner, query_id, members: str = "abc") -> None:
    """The first attempt has a total over these rows, each once, and each party was charged once."""
    status = learner.watch(query_id, timeout_s=HANG_S)
    assert (status.phase, status.attempt) == (Phase.COMPLETE, 1)
    check_release(federation, learner.fetch(query_id), members)
    assert charged(federation, members) == [1] * len(members)


def test_parties_that_had_uploaded_upload_again(federation):
    """Parties a and c had uploaded, b in part. The backup has their receipts, and no upload."""
    (line,) = federation.lines
    learner, query_id = stalled_upload(federation, line, "abc", int(1.15 * CHUNK_BYTES), **UNBOUNDED, **QUORUM)
    with learner:
        wait_for(learner, query_id, PartyState.UPLOADED, "ac")
        back_up(federation)
        lose_and_restore(federation)
        line.release()
        check_completed(federation, learner, query_id)
    assert '"uploads not on disk"' in federation.log("coordinator")
    assert [federation.log(name).count('"charged"') for name in "abc"] == [1, 1, 1]


@pytest.mark.parametrize("known", ["answers", "nothing"])
def test_a_backup_from_before_the_cohort_goes_on_to_the_same_cohort(federation, known):
    """Since the backup all parties accepted (or only b), computed, and were charged."""
    (line,) = federation.lines
    with running(federation, "ac" if known == "answers" else "") as learner:
        query_id = learner.ask(learner.plan(request(**UNBOUNDED)))
        if known == "answers":
            wait_for(learner, query_id, PartyState.READY, "ac")
        back_up(federation)
        line.stall_after(int(1.15 * CHUNK_BYTES))
        running(federation, "abcd").close()
        assert line.stalled.wait(HANG_S), federation.log("b")[-2000:]
        wait_for(learner, query_id, PartyState.UPLOADED, "acd")
        lose_and_restore(federation)
        assert states(learner, query_id)["b"] is PartyState.SILENT
        line.release()
        check_completed(federation, learner, query_id, "abcd")


def test_a_backup_from_before_the_query_loses_the_attempt_and_charges_no_more(federation):
    (line,) = federation.lines
    back_up(federation)
    learner, query_id = stalled_upload(federation, line, "abc", int(1.15 * CHUNK_BYTES), **UNBOUNDED, **QUORUM)
    with learner:
        lose_and_restore(federation)
        line.release()
        with pytest.raises(WireError) as caught:
            learner.watch(query_id, timeout_s=HANG_S)
        assert caught.value.code is Code.QUERY_UNKNOWN
        for name in "abc":
            wait_until(lambda name=name: '"attempt over"' in federation.log(name), what=f"the end at {name}")
        assert charged(federation) == [1, 1, 1]
        # Asked again, it is another query, with its own charge.
        release = learner.run(learner.plan(request(**QUORUM)), timeout_s=HANG_S)
        check_release(federation, release, "abc")
        assert charged(federation) == [2, 2, 2]
