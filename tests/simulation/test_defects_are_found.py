"""Known defects, put back one at a time: the simulation finds each, shrinks the run and says how to repeat it."""

import pytest

import learner.decryption
import parties.answering.decisions
import parties.answering.lifecycle
import parties.database
import wire.binding
import wire.envelopes
from parties.answering.attempts import Attempts
from parties.answering.sharings import Sharings
from parties.approval.gate import Gate, Pass
from parties.ledger.ledger import Ledger
from tests.simulation.promises import ViolationError
from tests.simulation.run import FailedRunError, Options, Report, bench, kept_case, operations_of
from wire.errors import Code, WireError
from wire.roster import Roster
from wire.statements import Acceptance, Cohort, open_statement

pytestmark = pytest.mark.more


def find(*promises: str, first_seed: int = 0, runs: int = 60) -> str:
    """The violation of one of these promises that a defect causes within some runs; an empty text if none does.

    first_seed: near the first run that finds it, to save time. After a change of the operations it may be another.
    """
    with bench() as own:
        for seed in range(first_seed, first_seed + runs):
            options = Options.of(seed)
            try:
                own.play(options, operations_of(options))
            except ViolationError as violation:
                if violation.promise in promises:
                    return str(violation)
                raise
    return ""


def test_totals_that_are_not_bound_are_found(monkeypatch):
    """F1: without the tag a forged total opens."""
    monkeypatch.setattr(learner.decryption, "check_tag", lambda *_: None)
    assert find("a total is its cohort's sum", first_seed=13)


def test_charges_that_vanish_with_a_log_are_found(monkeypatch):
    """F3: with a write-ahead log a charge is gone once the log is. The head beside the ledger would notice."""
    monkeypatch.setattr(parties.database, "JOURNAL_MODE", "wal")
    monkeypatch.setattr(parties.database, "difference", lambda *_: "")
    monkeypatch.setattr(Ledger, "contradicts", lambda *_: False)
    assert find("no charge is lost", "a set-back ledger is noticed")


def test_a_ledger_that_is_not_anchored_is_found(monkeypatch):
    """F2 and F3: an older copy of a whole machine answers as if nothing had been spent."""
    monkeypatch.setattr(parties.database, "difference", lambda *_: "")
    monkeypatch.setattr(Ledger, "contradicts", lambda *_: False)
    assert find("a set-back ledger is noticed")


def test_attempts_that_no_learner_signed_are_found(monkeypatch):
    """F4: a coordinator starts another attempt by itself, and the party pays. It is checked twice: here by neither."""
    monkeypatch.setattr(parties.answering.lifecycle, "check_signed", lambda *_: None)
    monkeypatch.setattr(parties.answering.decisions, "check_retry", lambda *_: None)
    assert find("attempts are the learner's", first_seed=5)


def test_a_party_that_does_not_wait_for_people_is_found(monkeypatch):
    monkeypatch.setattr(Gate, "passes", lambda *_: Pass())
    monkeypatch.setattr(Gate, "check", lambda *_: None)
    assert find("approved before it leaves", first_seed=4)


def test_seeds_that_nobody_compares_are_found(monkeypatch):
    """A learner seals another seed for one party or for all: 0.2.0's parties use what they find."""
    monkeypatch.setattr(wire.binding, "seed_commitment", lambda *_arguments, **_named: bytes(32))
    assert find("one coefficient for all", first_seed=16)


def test_a_party_that_unmasks_every_set_that_it_is_shown_is_found(monkeypatch):
    """And one that deals for every sharing: a coordinator that lies about who vanished gets shares for both."""
    monkeypatch.setattr(Sharings, "_once", lambda _own, _bound, _kept, _query, _attempt, _digest, make: make())
    assert find("one set of survivors", "keys are dealt once")


def members(cohort: Cohort, roster: Roster) -> list[Acceptance]:
    """The acceptances of a cohort, each signed by a party of the roster, and no more than that."""
    signed = [open_statement(Acceptance, envelope, roster) for envelope in cohort.acceptances]
    return [acceptance for acceptance, _ in signed]


def test_an_acceptance_of_another_attempt_in_a_cohort_is_found(monkeypatch):
    def opened(cohort: Cohort, roster: Roster) -> tuple[Acceptance, ...]:
        found = members(cohort, roster)
        if len({said.party for said in found}) != len(found):
            raise WireError(Code.MESSAGE_MALFORMED)
        return tuple(found)

    monkeypatch.setattr(Cohort, "open", opened)
    assert find("members signed for the attempt", first_seed=8)


def test_a_member_that_counts_twice_in_a_cohort_is_found(monkeypatch):
    """A party that is alone with the member that deviates, twice, sends its own values to the coalition."""

    def opened(cohort: Cohort, roster: Roster) -> tuple[Acceptance, ...]:
        found = members(cohort, roster)
        if any((said.query_id, said.attempt) != (cohort.query_id, cohort.attempt) for said in found):
            raise WireError(Code.ATTEMPT_MISMATCH)
        return tuple(found)

    monkeypatch.setattr(Cohort, "open", opened)
    monkeypatch.setattr(parties.answering.decisions, "check_cohort", lambda *_: None)
    assert find("no contribution appears alone", first_seed=15)


def test_signatures_without_the_federation_are_found(monkeypatch):
    """What a member signed in another federation counts here: its queries, or its statements on a longer ledger."""
    real = wire.envelopes.signed_bytes
    monkeypatch.setattr(wire.envelopes, "signed_bytes", lambda _federation, kind, payload: real("", kind, payload))
    assert find("a sound ledger is not refused", "attempts are the learner's")


@pytest.mark.parametrize(
    ("case", "cause", "call"),
    [
        ("a_member_that_answers_before_it_sees_the_cohort_is_asked_again", Ledger, "hold_reservations"),
        ("of_two_open_attempts_a_member_shows_both", Attempts, "seen_in_cohorts"),
    ],
)
def test_a_copy_from_before_a_charge_is_noticed_by_both_means_only(monkeypatch, case, cause, call):
    monkeypatch.setattr(cause, call, lambda *_: 0)
    with bench() as own, pytest.raises(ViolationError, match="a set-back ledger is noticed"):
        own.play(*kept_case(case))


@pytest.mark.slow
def test_a_failing_run_is_shrunk_and_says_how_to_repeat_it(monkeypatch):
    monkeypatch.setattr(parties.answering.lifecycle, "check_signed", lambda *_: None)
    monkeypatch.setattr(parties.answering.decisions, "check_retry", lambda *_: None)
    with bench() as own, pytest.raises(FailedRunError) as caught:
        for seed in range(8, 60):
            own.run(seed, Report())
    failed = caught.value
    assert len(failed.operations) <= 12
    assert f"seed={failed.options.seed}" in str(failed)
    with bench() as own, pytest.raises(ViolationError):
        own.play(failed.options, failed.operations)
