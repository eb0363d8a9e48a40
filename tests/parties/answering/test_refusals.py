"""Refusals of a party: their codes, their cost, and what the party stores about them."""

import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest

from dpcore.accounting.dp_feat import own_epsilon
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import dp_feat_design
from dpcore.records.schema import BooleanFeature, CategoryFeature, Label, Schema
from dpcore.records.texts import DRAFTED_TEXTS
from parties.answering.attempts import AttemptState
from parties.answering.coordinator_calls import StoppedError
from parties.answering.decisions import check_schema
from parties.database import LedgerBusyError
from parties.history.database import HistoryBusyError
from parties.history.history import KEPT_REFUSALS
from radobase.logs import REFUSALS_LOGGED
from tests.federation.party import SCHEMA, Ada, limits, make_records, ready, reserved, spent
from wire.cohort import Refusal, open_statement
from wire.envelopes import Envelope, Kind, SigningKey
from wire.errors import Code, ConnectionLostError, WireError
from wire.query import MAX_QUERY_BYTES, MAX_RETRY_BYTES
from wire.status import PartyState, Phase

pytestmark = pytest.mark.usefixtures("small_comb")
OTHER_SCHEMA = Schema(name="other", label=SCHEMA.label, features=SCHEMA.features)
# The same columns in a file of schema_version 2: texts are compared in another form.
NEWER_SCHEMA = replace(SCHEMA, texts=DRAFTED_TEXTS)

REFUSALS = {
    "policy": (lambda ada: ada.world.query(max_attempts=4), Code.POLICY_LIMITS),
    "schema": (lambda ada: ada.world.query(schema=OTHER_SCHEMA), Code.SCHEMA_MISMATCH),
    "schema of version 2": (lambda ada: ada.world.query(schema=NEWER_SCHEMA), Code.SCHEMA_MISMATCH),
    "rows": (lambda ada: ada.world.query(max_rows=39), Code.PLAN_INFEASIBLE),
    "empty design": (
        lambda ada: ada.world.query(kind=RadosQuery(20, dp_feat_design(SCHEMA, ["smoker"], Fraction(1, 1000)))),
        Code.PLAN_INFEASIBLE,
    ),
    "expired": (
        lambda ada: ada.world.query(created_at_unix_s=1_000_000, not_after_unix_s=1_000_100),
        Code.QUERY_EXPIRED,
    ),
    "a feature of a later version": (
        lambda ada: ada.world.query(features=("a-later-feature", "base-0-3")),
        Code.FEATURE_MISSING,
    ),
    "an older version": (
        lambda ada: ada.world.query(features=("bound-totals", "committed-seeds")),
        Code.FEATURE_MISSING,
    ),
    "newer roster than there is": (lambda ada: ada.world.query(roster_version=9), Code.ROSTER_STALE),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_carry_their_code_and_reserve_nothing(ada, case):
    make, code = REFUSALS[case]
    envelope = ada.world.ask(make(ada))
    assert not ada.go(envelope)
    assert ada.hub.refusal_code is code
    assert ada.state(envelope) is None
    assert reserved(ada) == 0


def unsigned(ada):
    """Work that no learner signed, by what is wrong with it: the whole work, and the code in the log."""
    genuine, stranger = ada.world.ask(), SigningKey.generate("clinics")
    other = ada.world.ask(ada.world.query(max_attempts=1))
    retry = partial(ada.world.retry, genuine.payload_hash)
    return {
        "of a stranger": (ada.work(ada.world.ask(key=stranger)), Code.PEER_UNKNOWN),
        "of a party": (ada.work(ada.world.ask(key=ada.world.party_keys["bo"])), Code.PEER_UNKNOWN),
        "with another's signature": (ada.work(replace(genuine, payload=other.payload)), Code.SIGNATURE_INVALID),
        "of another kind": (ada.work(retry(2)), Code.SIGNATURE_INVALID),
        "too long": (ada.work(replace(genuine, payload=bytes(MAX_QUERY_BYTES + 1))), Code.MESSAGE_TOO_LARGE),
        "attempt 0": (ada.work(genuine, attempt=0), Code.ATTEMPT_MISMATCH),
        "no retry": (ada.work(genuine, attempt=2, retry=None), Code.ATTEMPT_MISMATCH),
        "another attempt's retry": (ada.work(genuine, attempt=3, retry=retry(2)), Code.ATTEMPT_MISMATCH),
        "another query's retry": (ada.work(other, attempt=2, retry=retry(2)), Code.ATTEMPT_MISMATCH),
        "a stranger's retry": (ada.work(genuine, attempt=2, retry=retry(2, key=stranger)), Code.SIGNATURE_INVALID),
        "a long retry": (
            ada.work(genuine, attempt=2, retry=Envelope(bytes(MAX_RETRY_BYTES + 1), genuine.key_id, bytes(64))),
            Code.MESSAGE_TOO_LARGE,
        ),
    }


def written(ada) -> list[tuple[str, int, int]]:
    return sorted((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in ada.directory.rglob("*") if f.is_file())


def test_what_no_learner_signed_is_neither_answered_nor_noted(ada, caplog):
    before = written(ada)
    for what, (work, code) in unsigned(ada).items():
        caplog.clear()
        assert not ada.lifecycle.advance(work), what
        said = [record.fields["code"] for record in caplog.records if record.getMessage() == "not verified"]
        assert said == [code], what
    assert (ada.hub.answers, ada.history.refusals(), written(ada)) == ([], [], before)
    assert (ada.lifecycle.held(), ada.lifecycle._sent_refusals._sent) == (set(), {})


def test_what_a_learner_signed_is_answered_also_if_no_version_reads_it(ada):
    envelope = ada.world.learner_key.sign(Kind.QUERY, b"unreadable")
    ada.go(envelope)
    assert ada.hub.refusal_code is Code.MESSAGE_MALFORMED
    assert [kept.code for kept in ada.history.refusals()] == [Code.MESSAGE_MALFORMED]


def test_a_refused_query_that_is_shown_again_gets_the_same_bytes_and_costs_no_write(ada, monkeypatch):
    shown = [ada.world.ask(make(ada)) for make, _ in REFUSALS.values()]
    for envelope in shown:
        ada.go(envelope)
    before = written(ada)
    with monkeypatch.context() as patch:
        # Nor a decision.
        patch.setattr("parties.answering.lifecycle.decide", lambda *_, **__: 1 / 0)
        for envelope in shown * 3:
            ada.go(envelope)
    assert written(ada) == before
    assert len(ada.hub.answers) == 4 * len(shown)
    assert len(set(ada.hub.answers)) == len(shown)
    # After a restart it decides again, and notes nothing that is noted.
    ada.restart()
    before = written(ada)
    for envelope in shown:
        ada.go(envelope)
    assert written(ada) == before
    assert len(set(ada.hub.answers)) == len(shown)


def test_a_party_whose_policy_has_changed_decides_again(ada):
    envelope = ada.world.ask(ada.world.query(max_attempts=4))
    ada.go(envelope)
    limits = {"epsilon": "1000", "delta": "1e-3", "unbounded_queries": 10, "attempts_per_query": 4}
    ada.lifecycle.follow(ada.world.policy(limits=limits))
    ada.go(envelope)
    assert ada.hub.accepted == [False, True]


def test_only_the_newest_refusals_are_kept_in_memory(ada, monkeypatch):
    monkeypatch.setattr("parties.answering.refusals.MOST_KEPT", 2)
    envelopes = [ada.world.ask(ada.world.query(max_attempts=4)) for _ in range(4)]
    for envelope in envelopes:
        ada.go(envelope)
    assert list(ada.lifecycle._sent_refusals._sent) == [(e.payload_hash, 1) for e in envelopes[2:]]


def test_an_attempt_beyond_the_signed_bound_is_refused(ada):
    envelope = ada.world.ask(ada.world.query(max_attempts=2))
    ada.go(envelope, attempt=3)
    assert ada.hub.refusal_code is Code.ATTEMPT_MISMATCH


def test_a_budget_that_does_not_cover_it_is_refused(world, tmp_path):
    epsilon = Fraction(own_epsilon(40, 20, None, Fraction(1, 10**6)))
    # Two of these cost the concentrated filter more than the sum of their epsilons.
    limit = limits(epsilon * 2 - Fraction(1, 10**20), Fraction(4, 10**6))
    ada = Ada(world, tmp_path, limits=limit)
    ada.go(world.ask())
    assert ada.hub.accepted == [True]
    ada.go(world.ask())
    assert ada.hub.accepted == [True, False]
    assert reserved(ada) == epsilon


def test_another_coordinate_of_the_same_column_is_refused(world, tmp_path):
    schema = Schema(
        name="twins",
        label=Label(column="y", positive=("1",)),
        features=(
            CategoryFeature(name="age", column="smoker", values=("yes",), unknown="zero"),
            BooleanFeature(name="smoker", true=("yes",), false=("no",)),
        ),
    )
    ada = Ada(world, tmp_path, schema=schema)
    ada.go(world.ask(world.query(schema=schema)))
    assert ada.hub.refusal_code is Code.QUERY_INVALID


def test_an_internal_failure_while_answering_is_reported_as_unavailable(ada, monkeypatch):
    monkeypatch.setattr("parties.answering.lifecycle.decide", lambda *_, **__: 1 / 0)
    ada.go(ada.world.ask())
    assert ada.hub.refusal_code is Code.UNAVAILABLE


def test_a_refusal_is_remembered_with_the_field_that_differs(ada):
    envelope = ada.world.ask(ada.world.query(schema=OTHER_SCHEMA))
    ada.go(envelope)
    ada.lifecycle.end_queries(ada.lifecycle.held())
    ada.restart()
    (kept,) = ada.history.refusals()
    assert (kept.code, kept.query_id, kept.attempt) == (Code.SCHEMA_MISMATCH, envelope.payload_hash.hex(), 1)
    assert kept.detail == "These differ: name."
    assert abs(kept.at_unix_s - time.time()) < 60


def test_the_last_refusals_are_remembered_each_attempt_once(ada):
    envelopes = [ada.world.ask(ada.world.query(max_attempts=4)) for _ in range(KEPT_REFUSALS + 5)]
    for envelope in envelopes:
        ada.go(envelope)
    assert [kept.query_id for kept in ada.history.refusals()] == [e.payload_hash.hex() for e in envelopes[5:]]
    ada.go(envelopes[7])
    assert [kept.query_id for kept in ada.history.refusals()] == [e.payload_hash.hex() for e in envelopes[5:]]


def test_a_refused_cohort_is_remembered_with_its_reason(ada):
    envelope, cohort = ready(ada)
    ada.upload(envelope, replace(cohort, acceptances=cohort.acceptances[1:]))
    assert ada.state(envelope) is AttemptState.ENDED
    ada.restart()
    (kept,) = ada.history.refusals()
    assert (kept.code, kept.query_id, kept.attempt) == (Code.COHORT_EXCLUDED, envelope.payload_hash.hex(), 1)
    assert kept.detail == "After it was accepted: The cohort does not contain this party's acceptance unchanged."
    assert ada.hub.accepted == [True, False]


@pytest.mark.parametrize(
    ("changes", "code", "reason"),
    [
        ({"schema": OTHER_SCHEMA}, Code.SCHEMA_MISMATCH, "These differ: name."),
        ({"schema": NEWER_SCHEMA}, Code.SCHEMA_MISMATCH, "These differ: texts."),
        ({"records": make_records(39)}, Code.UNAVAILABLE, "The number of rows changed after this party accepted"),
        ({"records": None}, Code.UNAVAILABLE, "AttributeError"),
    ],
)
def test_a_contribution_that_fails_is_remembered_with_its_reason(ada, changes, code, reason):
    envelope = ada.world.ask()
    work = ada.work(envelope)
    assert ada.lifecycle.advance(work)
    # As after a restart: which rows it accepted with is known from the history.
    ada.lifecycle._accepted_with.clear()
    ada.lifecycle._party = replace(ada.lifecycle._party, **changes)
    ada.lifecycle.compute(work)
    assert ada.state(envelope) is AttemptState.ENDED
    (kept,) = ada.history.refusals()
    assert (kept.code, kept.query_id, kept.attempt) == (code, envelope.payload_hash.hex(), 1)
    assert kept.detail.startswith(f"After it was accepted: {reason}")
    # Refused at the coordinator, once, although its work is from before the acceptance.
    for _ in range(2):
        assert not ada.lifecycle.advance(work)
    assert ada.hub.accepted == [True, False]
    assert open_statement(Refusal, ada.hub.answers[1], ada.world.roster)[0].code is code


def raising(error):
    """A function that only fails."""

    def fail(*_: object):
        raise error

    return fail


def fail_to_compute(ada, monkeypatch, error=None):
    """An attempt that was accepted, and whose contribution fails."""
    envelope = ada.world.ask()
    work = ada.work(envelope)
    assert ada.lifecycle.advance(work)
    with monkeypatch.context() as patch:
        patch.setattr("parties.answering.lifecycle.integer_vector", raising(error or OSError()))
        ada.lifecycle.compute(work)
    return envelope, work


@pytest.mark.parametrize("restarts", [False, True])
def test_a_refusal_after_the_acceptance_is_sent_until_it_arrives(ada, monkeypatch, restarts):
    envelope, work = fail_to_compute(ada, monkeypatch)
    ada.hub.fail["answer"] = [ConnectionLostError("hub", "cut"), ConnectionLostError("hub", "cut")]
    for _ in range(2):
        with pytest.raises(ConnectionLostError):
            ada.lifecycle.advance(work)
    if restarts:
        ada.restart()
    later = ada.work(envelope, phase=Phase.PREPARING, state=PartyState.ACCEPTED)
    for _ in range(2):
        assert not ada.lifecycle.advance(later)
    assert ada.hub.accepted == [True, False]
    assert open_statement(Refusal, ada.hub.answers[1], ada.world.roster)[0].code is Code.UNAVAILABLE
    assert (ada.state(envelope), reserved(ada)) == (AttemptState.ENDED, 0)


def test_a_refusal_that_the_coordinator_does_not_take_is_sent_once(ada, monkeypatch):
    envelope, work = fail_to_compute(ada, monkeypatch)
    ada.hub.fail["answer"] = [WireError(Code.ANSWER_CONFLICT)]
    for _ in range(3):
        assert not ada.lifecycle.advance(work)
    assert ada.hub.accepted == [True]
    # What ends at the coordinator is forgotten here.
    ada.lifecycle.advance(ada.work(envelope, phase=Phase.FAILED))
    assert not ada.lifecycle._withdrawals.has(envelope.payload_hash, 1)


def test_a_party_tells_no_other_reason_of_its_own_than_unavailable(ada, monkeypatch):
    _, work = fail_to_compute(ada, monkeypatch, WireError(Code.SPOOL_FULL, "4,096 bytes are free."))
    ada.lifecycle.advance(work)
    assert open_statement(Refusal, ada.hub.answers[1], ada.world.roster)[0].code is Code.UNAVAILABLE
    (kept,) = ada.history.refusals()
    assert kept.code is Code.SPOOL_FULL


def test_an_attempt_that_the_disk_could_not_end_is_neither_computed_nor_uploaded(ada, monkeypatch):
    envelope = ada.world.ask()
    work = ada.work(envelope)
    assert ada.lifecycle.advance(work)
    with monkeypatch.context() as patch:
        patch.setattr("parties.answering.lifecycle.integer_vector", lambda *_: 1 / 0)
        patch.setattr(ada.lifecycle._attempts, "end", raising(LedgerBusyError(ada.directory, "the disk is full")))
        with pytest.raises(LedgerBusyError):
            ada.lifecycle.compute(work)
    assert ada.state(envelope) is AttemptState.ACCEPTED
    assert not ada.lifecycle.advance(work)
    assert (ada.state(envelope), ada.hub.accepted, reserved(ada)) == (AttemptState.ENDED, [True, False], 0)


def test_a_party_whose_contribution_is_lost_ends_the_attempt_and_a_charged_one_stays_charged(ada):
    for charged in (False, True):
        envelope, cohort = ready(ada)
        if charged:
            ada.hub.fail["receipt"] = [ConnectionLostError("hub", "cut")]
            with pytest.raises(ConnectionLostError):
                ada.upload(envelope, cohort)
        ada.spools.remove(envelope.payload_hash, 1)
        before = (len(ada.hub.receipts), spent(ada))
        ada.upload(envelope, cohort)
        ada.upload(envelope, cohort)
        assert ada.state(envelope) is (AttemptState.BURNT if charged else AttemptState.ENDED)
        assert ada.hub.accepted[-2:] == [True, False]
        assert (len(ada.hub.receipts), spent(ada)) == before
        assert bool(spent(ada)) is charged


def test_a_contribution_that_is_no_longer_wanted_is_not_remembered(ada):
    work = ada.work(ada.world.ask())
    assert ada.lifecycle.advance(work)
    with pytest.raises(StoppedError):
        ada.lifecycle.compute(work, lambda: False)
    assert ada.history.refusals() == []


@pytest.fixture
def busy_history(ada):
    """Another process writes to the history for longer than this one waits."""
    ada.history.database._connection.execute("PRAGMA busy_timeout = 10")
    with closing(sqlite3.connect(ada.history.database.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield other


def test_a_refusal_that_cannot_be_stored_is_still_sent(ada, busy_history, caplog):
    ada.go(ada.world.ask(ada.world.query(max_attempts=4)))
    assert ada.hub.refusal_code is Code.POLICY_LIMITS
    assert "history not written" in [record.getMessage() for record in caplog.records]


def test_a_query_that_cannot_be_stored_is_not_accepted_yet(ada, busy_history):
    envelope = ada.world.ask()
    with pytest.raises(HistoryBusyError, match="nothing was changed"):
        ada.go(envelope)
    assert (ada.hub.answers, ada.ledger.events()) == ([], [])
    busy_history.execute("ROLLBACK")
    ada.go(envelope)
    assert ada.hub.accepted == [True]


def test_a_learner_that_sends_queries_endlessly_does_not_fill_the_log(ada, caplog):
    for _ in range(REFUSALS_LOGGED + 7):
        ada.go(ada.world.ask(ada.world.query(max_attempts=4)))
    assert ada.hub.accepted == [False] * (REFUSALS_LOGGED + 7)
    said = [record.fields for record in caplog.records if record.getMessage() == "refused"]
    assert len(said) == REFUSALS_LOGGED
    assert said[0]["code"] is Code.POLICY_LIMITS
    assert "max_attempts is 4" in said[0]["reason"]


def test_a_query_may_be_as_large_as_it_says(ada):
    """By one row or attempt more it is refused."""
    rows = ada.records.rows
    for most, state in ((rows, AttemptState.READY), (rows - 1, None)):
        envelope = ada.world.ask(ada.world.query(max_rows=most))
        ada.go(envelope)
        assert ada.state(envelope) is state
    envelope = ada.world.ask(ada.world.query(max_attempts=2))
    for attempt, state in ((2, AttemptState.READY), (3, None)):
        ada.go(envelope, attempt=attempt)
        assert ada.state(envelope, attempt) is state
    # The two other members have 50 rows each.
    for most, state in ((rows + 100, AttemptState.UPLOADED), (rows + 99, AttemptState.ENDED)):
        envelope, cohort = ready(ada, ada.world.query(max_rows=most))
        ada.upload(envelope, cohort)
        assert ada.state(envelope) is state


def test_all_fields_of_a_schema_that_differ_are_named(ada):
    other = replace(OTHER_SCHEMA, label=replace(SCHEMA.label, column="left"))
    with pytest.raises(WireError, match="These differ: name, label"):
        check_schema(ada.world.query(schema=other), SCHEMA)
