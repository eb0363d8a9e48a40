"""A party that is killed at any durable step of an upload, and started again.

The kill is real: a forked process ends with os._exit before its n-th call that changes the disk.
"""

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from parties.answering.attempts import AttemptState
from parties.ledger.ledger import LedgerConflictError
from tests.federation.party import Ada, ready, spent
from wire.errors import ConnectionLostError
from wire.status import PartyState, Phase

S = AttemptState
pytestmark = pytest.mark.usefixtures("small_comb")
KILLED, DONE, FAILED = 9, 0, 1
# What changes the disk: every durable write ends with a sync, every name changes by one of the others.
STEPS = ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir")


class Steps:
    """Ends this process before its n-th step."""

    def __init__(self, at: int) -> None:
        self.left = at
        for name in STEPS:
            setattr(os, name, self.counted(getattr(os, name)))

    def counted(self, real):
        def step(*arguments, **options):
            self.take()
            return real(*arguments, **options)

        return step

    def take(self) -> None:
        if self.left == 0:
            os._exit(KILLED)
        self.left -= 1

    def trace(self, statement: str) -> None:
        if statement.startswith(("BEGIN", "COMMIT", "UPDATE", "INSERT")):
            self.take()


def killed_upload(ada: Ada, envelope, cohort, at: int) -> int:
    """Restart and upload in a forked process that ends before its n-th step. Its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = FAILED
    try:
        steps = Steps(at)
        ada.restart()
        ada.ledger.database._connection.set_trace_callback(steps.trace)
        ada.hub.fail["upload_chunk"] = [ConnectionLostError("hub", "cut")]
        try:
            ada.upload(envelope, cohort)
        except ConnectionLostError:
            code = DONE
    finally:
        os._exit(code)


def bare_files(ada: Ada) -> list[str]:
    """Integers, and ciphertexts without masks, that lie in the spool."""
    masked = "-masked"
    return [
        str(path.relative_to(ada.spools.directory))
        for path in ada.spools.directory.rglob("*.bin")
        if masked not in path.relative_to(ada.spools.directory).parts[0]
    ]


@pytest.fixture
def prepared(ada):
    """A party that is ready, with its cohort, and a copy of its disk."""
    envelope, cohort = ready(ada)
    ada.ledger.database.close()
    shutil.copytree(ada.directory, ada.directory.with_name("copy"), symlinks=True)
    return envelope, cohort


def restore(directory: Path) -> None:
    shutil.rmtree(directory)
    shutil.copytree(directory.with_name("copy"), directory, symlinks=True)


def test_a_kill_at_any_durable_step_leaves_nothing_bare_beside_a_charge(ada, prepared):
    envelope, cohort = prepared
    at, beside, charged_and_killed = 0, [], 0
    while True:
        restore(ada.directory)
        code = killed_upload(ada, envelope, cohort, at)
        assert code in (KILLED, DONE), at
        if code == DONE:
            break
        before = [str(path) for path in (ada.directory / "spool").rglob("values.bin")]
        ada.restart()
        if ada.state(envelope) is S.CHARGED:
            charged_and_killed += 1
            beside += before
            assert bare_files(ada) == [], at
            assert ada.attempts.find(envelope.payload_hash, 1).mask_key is None
        else:
            assert ada.state(envelope) is S.READY, at
            assert spent(ada) == 0
        # It goes on in either case, with one charge.
        ada.upload(envelope, cohort)
        assert ada.state(envelope) is S.UPLOADED
        assert ada.ledger.is_charged(envelope.payload_hash, 1)
        ada.ledger.database.close()
        at += 1
    assert at > 10
    assert charged_and_killed > 1
    # The kill between charge and removal was among them.
    assert beside


@pytest.mark.more
def test_a_killed_party_sends_the_top_up_that_it_charged_and_no_other(ada):
    """Also a copy from before the charge makes the same bytes for this cohort: no share leaves with two top-ups."""
    from tests.parties.answering.test_cohort_noise import AGES, query

    ada.policy = ada.world.policy(designs=["statistic"], smallest_cohort=2, assumed_colluders=0)
    ada.restart()
    envelope, cohort = ready(ada, query(ada.world, predicates=AGES[:5]))
    cohort = ada.world.cohort(cohort.acceptances[0], others=("bo",))
    ada.ledger.database.close()
    shutil.rmtree(ada.directory.with_name("copy"), ignore_errors=True)
    shutil.copytree(ada.directory, ada.directory.with_name("copy"), symlinks=True)
    at, digests, charged = 0, set(), 0
    while True:
        restore(ada.directory)
        code = killed_upload(ada, envelope, cohort, at)
        ada.restart()
        held = ada.attempts.find(envelope.payload_hash, 1)
        spooled = None
        if held.state is S.CHARGED:
            charged += 1
            spooled = ada.spools.open(envelope.payload_hash, 1, masked=True).digest
            assert held.spool_digest == spooled
        else:
            assert not ada.ledger.is_charged(envelope.payload_hash, 1)
        ada.upload(envelope, cohort)
        sent = ada.hub.opened_receipt().upload_digest
        assert spooled in (None, sent)
        digests.add(sent)
        ada.ledger.database.close()
        if code == DONE:
            break
        at += 1
    assert at > 10
    assert charged > 1
    # Each run began from one copy, whose earlier runs may have charged and sent.
    assert len(digests) == 1


def test_nothing_bare_stays_when_another_cohort_is_refused(ada, monkeypatch):
    envelope, cohort = ready(ada)

    def fails(*_):
        raise OSError("the disk is away for a moment")

    with monkeypatch.context() as patch:
        patch.setattr(ada.spools, "remove_bare", fails)
        with pytest.raises(OSError, match="away"):
            ada.upload(envelope, cohort)
    assert ada.state(envelope) is S.CHARGED
    assert bare_files(ada)
    other = ada.world.cohort(cohort.acceptances[0])
    ada.upload(envelope, other)
    assert ada.state(envelope) is S.CHARGED
    assert (bare_files(ada), ada.hub.chunks) == ([], {})
    with pytest.raises(LedgerConflictError):
        ada.ledger.charge(
            envelope.payload_hash,
            1,
            cohort_digest=other.digest,
            spool_digest=b"s" * 32,
            now_unix_s=ada.lifecycle._clock(),
        )
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is S.UPLOADED


def test_a_kill_leaves_no_bare_contribution_of_an_attempt_that_is_over(ada):
    envelope, _ = ready(ada)
    held = ada.attempts.find(envelope.payload_hash, 1)
    ada.attempts.end(held)
    assert bare_files(ada)
    ada.restart()
    assert list(ada.spools.directory.iterdir()) == []


def test_a_spool_other_than_the_recorded_one_is_not_sent(ada):
    """Its own manifest is in order: only the digest in the ledger's file shows that it is another contribution."""
    first, cohort = ready(ada)
    second, _ = ready(ada)
    mine, other = (ada.spools.open(envelope.payload_hash, 1).path for envelope in (first, second))
    shutil.rmtree(mine)
    shutil.copytree(other, mine)
    ada.spools.open(first.payload_hash, 1).verify()
    ada.upload(first, cohort)
    assert (ada.state(first), spent(ada), ada.hub.chunks) == (S.ENDED, 0, {})


def test_a_masked_spool_other_than_the_recorded_one_is_not_sent(ada):
    envelopes = []
    for _ in range(2):
        envelope, cohort = ready(ada)
        envelopes.append((envelope, cohort))
        ada.hub.fail["upload_chunk"] = [ConnectionLostError("hub", "cut")]
        with pytest.raises(ConnectionLostError):
            ada.upload(envelope, cohort)
    (first, cohort), (second, _) = envelopes
    mine, other = (ada.spools.open(e.payload_hash, 1, masked=True).path for e in (first, second))
    shutil.rmtree(mine)
    shutil.copytree(other, mine)
    ada.upload(first, cohort)
    assert (ada.state(first), ada.hub.chunks) == (S.BURNT, {})


@pytest.mark.parametrize("at_masking", [True, False])
def test_a_disk_that_cannot_be_read_is_tried_again_and_burns_nothing(ada, monkeypatch, at_masking):
    from parties.answering.coordinator_calls import may_pass
    from parties.answering.spool import SpoolUnreadableError

    envelope, cohort = ready(ada)
    if not at_masking:
        ada.hub.fail["upload_chunk"] = [ConnectionLostError("hub", "cut")]
        with pytest.raises(ConnectionLostError):
            ada.upload(envelope, cohort)
    real = os.open

    def fails(path, *arguments, **options):
        if "chunk-" in str(path) and not arguments[0] & os.O_WRONLY:
            raise OSError(24, "Too many open files")
        return real(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fails)
        with pytest.raises(SpoolUnreadableError) as caught:
            ada.upload(envelope, cohort)
    assert may_pass(caught.value)
    assert ada.state(envelope) is (S.READY if at_masking else S.CHARGED)
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is S.UPLOADED


def test_a_busy_ledger_is_no_refusal(ada):
    """Another process holds the file, as a backup does: the answer comes when it is free again."""
    from parties.answering.coordinator_calls import may_pass
    from parties.database import LedgerBusyError

    envelope = ada.world.ask()
    ada.ledger.database._connection.execute("PRAGMA busy_timeout = 10")
    with sqlite3.connect(ada.ledger.database.path, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        work = ada.work(envelope)
        with pytest.raises(LedgerBusyError) as caught:
            ada.lifecycle.advance(work)
        other.execute("ROLLBACK")
    other.close()
    assert may_pass(caught.value)
    assert ada.hub.answers == []
    assert ada.go(envelope)
    assert ada.hub.accepted == [True]


def test_a_ledger_that_is_busy_only_while_reserving_is_no_refusal(ada, monkeypatch):
    from parties.database import LedgerBusyError

    def busy(*_, **__):
        raise LedgerBusyError(ada.ledger.database.path, "database is locked")

    envelope = ada.world.ask()
    with monkeypatch.context() as patch:
        patch.setattr(ada.ledger, "reserve", busy)
        with pytest.raises(LedgerBusyError):
            ada.lifecycle.advance(ada.work(envelope))
    assert (ada.hub.answers, ada.history.refusals()) == ([], [])
    assert ada.lifecycle.advance(ada.work(envelope, phase=Phase.ANSWERING, state=PartyState.SILENT))
    assert ada.hub.accepted == [True]
