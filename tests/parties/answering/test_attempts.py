from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.accounting.filters import Loss
from parties.answering.attempts import AttemptState
from parties.ledger.charges import Charge
from parties.ledger.ledger import LedgerConflictError
from tests.federation.party import SMOKER, Ada, reserved, spent
from wire.statements import Acceptance

COHORT, SPOOL, MASKED, MASK_KEY = b"c" * 32, b"s" * 32, b"m" * 32, bytes(range(200, 232))


def accept(ada: Ada, *, attempt: int = 1, not_after: int = 10_000, query_id: bytes = b"q" * 32):
    envelope = ada.world.acceptance(query_id, "ada", attempt=attempt, rows=40)
    acceptance = Acceptance.from_bytes(envelope.payload)
    # A tenth of what the basic filter allows, and nothing for the other filter.
    charge = Charge(((SMOKER, Loss(Fraction(100), Fraction(1, 20_000), Fraction(10**6), Fraction(0))),), "lea")
    return ada.attempts.accept(
        acceptance, lambda _: envelope, charge, mask_key=MASK_KEY, not_after_unix_s=not_after, now_unix_s=0.0
    )


def charge(ada: Ada, held, cohort=COHORT, spool=MASKED):
    return ada.attempts.charge(held, cohort_digest=cohort, spool_digest=spool, now_unix_s=0.0)


def again(ada: Ada, held):
    ada.ledger.database.close()
    ada.restart()
    return ada.attempts.find(held.query_id, held.attempt)


def test_the_first_answer_is_kept_byte_for_byte(ada):
    held = accept(ada)
    assert accept(ada).answer == held.answer
    assert again(ada, held) == held
    assert reserved(ada) == 100


def test_all_states_survive_restarts_but_an_acknowledged_receipt_is_sent_again(ada):
    held = accept(ada)
    assert not held.answer_arrived
    ada.attempts.ready(held, SPOOL)
    held = again(ada, held)
    assert (held.state, held.spool_digest, held.answer_arrived) == (AttemptState.READY, SPOOL, True)
    assert charge(ada, held)
    held = again(ada, held)
    assert (held.state, held.spool_digest) == (AttemptState.CHARGED, MASKED)
    assert not charge(ada, held)
    ada.attempts.uploaded(held)
    assert not charge(ada, held)
    assert ada.attempts.find(held.query_id, held.attempt).state is AttemptState.UPLOADED
    assert [each.state for each in ada.attempts.unfinished()] == [AttemptState.UPLOADED]
    assert again(ada, held).state is AttemptState.CHARGED
    assert ada.attempts.end(held)
    assert ada.attempts.find(held.query_id, held.attempt).state is AttemptState.ENDED
    assert spent(ada) == 100


def test_a_charge_and_its_state_change_together(ada):
    held = accept(ada)
    with pytest.raises(LedgerConflictError):
        charge(ada, held)
    ada.attempts.ready(held, SPOOL)
    assert spent(ada) == 0
    charge(ada, held)
    with pytest.raises(LedgerConflictError, match="other bytes"):
        charge(ada, held, spool=b"x" * 32)
    with pytest.raises(LedgerConflictError, match="bound"):
        charge(ada, held, cohort=b"x" * 32)


def test_what_is_not_charged_is_not_uploaded(ada):
    held = accept(ada)
    ada.attempts.ready(held, SPOOL)
    with pytest.raises(LedgerConflictError, match="is ready and cannot become uploaded"):
        ada.attempts.uploaded(held)
    assert ada.attempts.find(held.query_id, held.attempt).state is AttemptState.READY


def test_an_acceptance_that_is_not_covered_is_not_kept(ada):
    for attempt in range(1, 11):
        accept(ada, attempt=attempt)
    with pytest.raises(Exception, match="budget"):
        accept(ada, attempt=11)
    assert ada.attempts.find(b"q" * 32, 11) is None


def test_ending_releases_what_was_not_charged(ada):
    held = accept(ada)
    ada.attempts.ready(held, SPOOL)
    assert ada.attempts.end(held)
    assert not ada.attempts.end(held)
    assert reserved(ada) == 0
    with pytest.raises(LedgerConflictError):
        charge(ada, held)
    with pytest.raises(LedgerConflictError, match="cannot become"):
        ada.attempts.ready(held, SPOOL)


def test_an_ended_attempt_is_never_accepted_again(ada):
    held = accept(ada)
    ada.attempts.end(held)
    assert accept(ada).state is AttemptState.ENDED
    assert reserved(ada) == 0


def test_a_burnt_attempt_stays_burnt_and_charged(ada):
    held = accept(ada)
    ada.attempts.ready(held, SPOOL)
    charge(ada, held)
    ada.attempts.burn(held)
    assert not ada.attempts.end(held)
    with pytest.raises(LedgerConflictError):
        charge(ada, held)
    assert again(ada, held).state is AttemptState.BURNT
    assert spent(ada) == 100


def test_unfinished_and_forgotten(ada):
    first, second = accept(ada, attempt=1), accept(ada, attempt=2)
    ada.attempts.end(first)
    assert [held.attempt for held in ada.attempts.unfinished()] == [2]
    assert [held.attempt for held in ada.attempts.of_query(b"q" * 32)] == [1, 2]
    assert ada.attempts.forget(10_000) == 0
    assert ada.attempts.forget(10_601) == 1
    assert ada.attempts.find(first.query_id, 1) is None
    assert ada.attempts.find(second.query_id, 2) == second


def test_the_mask_key_is_kept_until_the_charge_and_then_erased(ada):
    held = accept(ada)
    ada.attempts.ready(held, SPOOL)
    assert again(ada, held).mask_key == MASK_KEY
    assert MASK_KEY.hex() not in repr(held)
    assert repr(MASK_KEY) not in repr(held)
    charge(ada, held)
    assert again(ada, held).mask_key is None
    with ada.ledger.database.transaction() as connection:
        assert connection.execute("PRAGMA secure_delete").fetchone() == (1,)
    # The write-ahead log is emptied into the file when the last connection closes.
    ada.ledger.database.close()
    for path in ada.directory.glob("ledger.sqlite*"):
        assert MASK_KEY not in path.read_bytes(), path
    ada.restart()


def test_an_attempt_that_is_over_has_no_mask_key(ada):
    held = accept(ada)
    ada.attempts.end(held)
    assert again(ada, held).mask_key is None


def test_an_attempt_that_was_never_accepted_does_not_change(ada):
    held = replace(accept(ada), attempt=2)
    for change in (lambda: ada.attempts.ready(held, SPOOL), lambda: charge(ada, held), lambda: ada.attempts.burn(held)):
        with pytest.raises(LedgerConflictError, match="not known"):
            change()
