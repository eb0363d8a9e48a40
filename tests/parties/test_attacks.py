"""A coordinator that lies about cohorts, attempts and time, and other threats to a ledger: no budget is exceeded."""

import time
from dataclasses import replace

import pytest

from dpcore.numbers.fixed_point import plan_encoding
from dpcore.randomness.sources import SystemRandom
from dpcore.records.computation import Computation
from parties.answering.attempts import AttemptState
from parties.answering.contribution import integer_vector
from parties.answering.decisions import check_retry, decide
from parties.answering.spool import SpoolLostError
from parties.database import LedgerDamagedError
from tests.federation.party import OPENING, PARTIES, SMOKER, Ada, World, limits, make_records, ready, reserved, spent
from wire.binding import Binding
from wire.envelopes import SigningKey, key_id, sha256
from wire.errors import Code, ConnectionLostError, WireError
from wire.statements import Cohort, Refusal, open_statement
from wire.status import PartyState, Phase

S = AttemptState
pytestmark = pytest.mark.usefixtures("small_comb")


def bad_cohorts(world: World, own):
    good = world.cohort(own)
    query_id = good.query_id
    yield "two parties", world.cohort(own, others=("bo",))
    yield "own acceptance missing", Cohort(query_id, 1, (world.acceptance(query_id, "ada"), *good.acceptances[1:]))
    yield "a party twice", Cohort(query_id, 1, (own, good.acceptances[1], world.acceptance(query_id, "bo")))
    yield (
        "a forged acceptance",
        Cohort(
            query_id,
            1,
            (own, good.acceptances[1], world.acceptance(query_id, "cy", key=SigningKey.generate("clinics"))),
        ),
    )
    yield (
        "another attempt's acceptance",
        Cohort(query_id, 1, (own, good.acceptances[1], world.acceptance(query_id, "cy", attempt=2))),
    )
    yield "another attempt", Cohort(query_id, 2, good.acceptances)
    yield "another query", Cohort(b"x" * 32, 1, good.acceptances)
    yield "too many rows", world.cohort(own, rows=900)


@pytest.mark.variants(4)
@pytest.mark.parametrize("which", range(8))
def test_a_cohort_that_breaks_a_rule_receives_no_upload_and_no_charge(ada, which):
    envelope, _ = ready(ada)
    name, cohort = list(bad_cohorts(ada.world, ada.hub.answers[0]))[which]
    ada.upload(envelope, cohort)
    assert not ada.hub.chunks, name
    assert (ada.state(envelope), spent(ada), reserved(ada)) == (S.ENDED, 0, 0)


def test_a_stranger_in_the_cohort_does_not_count(world, tmp_path):
    """Dee is in the roster, and ada has not accepted it: three members count, so a cohort with dee needs four."""
    world.party_keys["dee"] = SigningKey.generate("clinics")
    encoding = plan_encoding(largest_sum=1000 << 16, max_parties=4, fraction_bits=16)
    known = [sha256(world.party_keys[name].public_bytes).hex() for name in PARTIES[1:]]
    policy = world.policy(accepted_members=known)
    for others, fine in ((("bo", "dee"), False), (("bo", "cy", "dee"), True)):
        ada = Ada(world, tmp_path / "-".join(others), policy=policy)
        envelope = world.ask(world.query(max_parties=4, encoding=encoding))
        ada.go(envelope)
        ada.upload(envelope, world.cohort(ada.hub.answers[0], others=others))
        assert bool(ada.hub.chunks) is fine


def test_a_member_that_the_query_does_not_ask_spoils_the_cohort(world, tmp_path):
    """Dee is in the roster, and ada accepts it, but the learner did not: it would open no such total."""
    world.party_keys["dee"] = SigningKey.generate("clinics")
    encoding = plan_encoding(largest_sum=1000 << 16, max_parties=4, fraction_bits=16)
    nonce, known = b"n" * 16, [key_id(key.public_bytes).hex() for key in world.party_keys.values()]
    asked = [party for party in world.roster.parties if party.name != "dee"]
    query = world.query(max_parties=4, encoding=encoding, nonce=nonce, binding=Binding.seal(OPENING, asked, nonce))
    for others, fine in ((("bo", "cy", "dee"), False), (("bo", "cy"), True)):
        ada = Ada(world, tmp_path / "-".join(others), policy=world.policy(accepted_members=known))
        envelope = world.ask(query)
        ada.go(envelope)
        ada.upload(envelope, world.cohort(ada.hub.answers[0], others=others))
        assert bool(ada.hub.chunks) is fine
        assert bool(spent(ada)) is fine
        assert ada.hub.accepted == ([True] if fine else [True, False])
        if not fine:
            said, _ = open_statement(Refusal, ada.hub.answers[-1], world.roster)
            assert said.code is Code.PARTY_NOT_ASKED


def test_a_party_that_is_not_asked_refuses_before_anything_is_reserved(ada):
    world = ada.world
    nonce = b"n" * 16
    others = [party for party in world.roster.parties if party.name != "ada"]
    envelope = world.ask(world.query(nonce=nonce, binding=Binding.seal(OPENING, others, nonce)))
    ada.go(envelope)
    assert ada.hub.refusal_code is Code.PARTY_NOT_ASKED
    assert (ada.state(envelope), spent(ada), reserved(ada)) == (None, 0, 0)


def test_members_that_are_not_asked_do_not_count_for_a_party_s_policy(ada):
    """Ada accepts bo and cy, and three are needed; the learner asks ada and bo, and a stranger."""
    world = ada.world
    world.party_keys["dee"] = SigningKey.generate("clinics")
    nonce = b"n" * 16
    asked = [party for party in world.roster.parties if party.name != "cy"]
    envelope = world.ask(world.query(nonce=nonce, binding=Binding.seal(OPENING, asked, nonce)))
    ada.go(envelope)
    assert ada.hub.refusal_code is Code.POLICY_COHORT


def test_a_party_that_was_left_out_is_not_charged(ada):
    envelope, _ = ready(ada)
    ada.lifecycle.advance(ada.work(envelope, phase=Phase.UPLOADING, state=PartyState.LEFT_OUT))
    assert (ada.state(envelope), spent(ada), reserved(ada)) == (S.ENDED, 0, 0)


def test_a_second_cohort_for_the_same_attempt_receives_no_upload(ada):
    envelope, cohort = ready(ada)
    ada.hub.fail["upload_chunk"] = [ConnectionLostError("hub", "cut")]
    with pytest.raises(ConnectionLostError):
        ada.upload(envelope, cohort)
    other = ada.world.cohort(ada.hub.answers[0])
    assert other.digest != cohort.digest
    ada.restart()
    ada.upload(envelope, other)
    assert not ada.hub.chunks
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is S.UPLOADED


def test_after_a_refused_cohort_a_valid_one_receives_no_upload_either(ada):
    envelope, good = ready(ada)
    ada.upload(envelope, ada.world.cohort(ada.hub.answers[0], others=("bo",)))
    ada.upload(envelope, good)
    assert not ada.hub.chunks
    assert (ada.state(envelope), spent(ada)) == (S.ENDED, 0)


def test_an_earlier_attempt_shown_again_is_ignored(ada):
    envelope, cohort = ready(ada)
    assert ada.go(envelope, attempt=2)
    ada.upload(envelope, cohort)
    assert not ada.go(envelope)
    assert not ada.hub.chunks
    assert (ada.state(envelope, 1), ada.state(envelope, 2), spent(ada)) == (S.ENDED, S.READY, 0)


@pytest.mark.parametrize("attempt", [4, 1 << 31, (1 << 32) - 1])
def test_an_attempt_far_ahead_is_refused_and_reserves_nothing(ada, attempt):
    envelope, cohort = ready(ada)
    assert not ada.go(envelope, attempt=attempt)
    assert ada.hub.accepted == [True, False]
    assert reserved(ada) == 0
    # The coordinator said that the first attempt was over, and it stays so.
    ada.upload(envelope, cohort)
    assert not ada.hub.chunks
    assert (ada.state(envelope), spent(ada)) == (S.ENDED, 0)


@pytest.mark.parametrize("attempt", [0, 4, 1 << 31])
def test_an_impossible_attempt_number_is_not_charged_twice(ada, attempt):
    envelope, cohort = ready(ada)
    ada.upload(envelope, cohort)
    once = spent(ada)
    ada.go(envelope, attempt=attempt)
    ada.upload(envelope, ada.world.cohort(ada.hub.answers[0]), attempt=max(attempt, 1))
    assert spent(ada) == once
    assert len(ada.hub.receipts) == 1


def test_attempts_that_never_end_lapse_with_their_queries(world, tmp_path):
    """A coordinator keeps every query open: the limits bound all reservations, and these lapse in time."""
    ada = Ada(world, tmp_path, limits=limits("1000", "1e-3", unbounded=3))
    for _ in range(4):
        ada.go(world.ask())
    assert ada.hub.accepted == [True, True, True, False]
    ada.offset_s = 3600 + 200
    ada.lifecycle.end_expired()
    assert len(ada.attempts.unfinished()) == 3
    ada.offset_s = 3600 + 301
    ada.lifecycle.end_expired()
    assert (ada.attempts.unfinished(), ada.ledger.reserved(SMOKER).delta, ada.spools.used_bytes()) == ([], 0, 0)


def test_a_query_that_would_hold_its_reservation_too_long_is_refused(ada):
    week = 7 * 24 * 3600
    query = ada.world.query()
    certificate = ada.world.certificate(lasts_s=3 * week)
    for lifetime, accepted in ((week, True), (week + 1, False)):
        end = query.created_at_unix_s + lifetime
        ada.go(ada.world.ask(replace(query, paillier_key=certificate, not_after_unix_s=end)))
        assert ada.hub.accepted[-1] is accepted


def test_a_clock_set_back_frees_no_budget_and_charges_nothing_twice(ada):
    """Set forward far enough to forget attempts, then back: the ledger still knows what was paid."""
    envelope, cohort = ready(ada)
    ada.upload(envelope, cohort)
    ada.lifecycle.advance(ada.work(envelope, phase=Phase.COMPLETE, state=PartyState.UPLOADED))
    once = spent(ada)
    ada.offset_s = 10.0**9
    ada.lifecycle.end_expired()
    assert ada.state(envelope) is None
    ada.offset_s = 0.0
    ada.go(envelope)
    assert ada.hub.accepted == [True, False]
    ada.upload(envelope, cohort)
    assert len(ada.hub.receipts) == 1
    assert spent(ada) == once
    ada.offset_s = -(10.0**9)
    ada.go(ada.world.ask())
    assert ada.hub.accepted == [True, False, False]
    assert spent(ada) == once


def test_a_reservation_that_lapsed_by_a_clock_set_forward_is_not_charged(ada):
    envelope, cohort = ready(ada)
    assert ada.ledger.lapse(10.0**10) == 1
    ada.upload(envelope, cohort)
    assert not ada.hub.chunks
    assert (ada.state(envelope), spent(ada)) == (S.ENDED, 0)


def test_two_parties_on_one_ledger_cannot_send_two_contributions(world, tmp_path):
    """The node's lock prevents this; the ledger is correct without it."""
    ada = Ada(world, tmp_path)
    twin = Ada(world, tmp_path)
    twin.hub = ada.hub
    twin.directory = tmp_path / "twin"
    twin.restart()
    twin.ledger.database.close()
    twin.ledger, twin.attempts = ada.ledger, ada.attempts
    twin.lifecycle._attempts = ada.attempts
    envelope = world.ask()
    work = ada.work(envelope)
    assert ada.lifecycle.advance(work)
    assert twin.lifecycle.advance(work)
    assert len(set(ada.hub.answers)) == 1
    held = ada.attempts.find(envelope.payload_hash, 1)
    ada.lifecycle._compute(work, held, lambda: True)
    with pytest.raises(Exception, match="other bytes"):
        twin.lifecycle._compute(work, held, lambda: True)
    cohort = world.cohort(ada.hub.answers[0])
    ada.upload(envelope, cohort)
    assert len(ada.hub.receipts) == 1
    twin.upload(envelope, cohort)
    assert len({bytes(chunk) for sent in ada.hub.chunks.values() for chunk in sent}) == len(ada.hub.chunks)


def test_a_contribution_spooled_while_its_attempt_was_ended_is_not_kept(ada):
    envelope = ada.world.ask()
    work = ada.work(envelope)
    assert ada.lifecycle.advance(work)
    held = ada.attempts.find(envelope.payload_hash, 1)
    write = ada.spools.write

    def slow_write(*arguments, **options):
        spool = write(*arguments, **options)
        ada.lifecycle._end(held, "another thread ended it meanwhile")
        return write(*arguments, **options) if not spool.path.exists() else spool

    ada.spools.write = slow_write
    ada.lifecycle.compute(work)
    assert ada.state(envelope) is S.ENDED
    assert ada.spools.used_bytes() == 0
    with pytest.raises(SpoolLostError):
        ada.spools.open(envelope.payload_hash, 1)


def test_a_ledger_that_fails_while_answering_is_named_in_the_log(ada, monkeypatch, caplog):
    def damaged(*_: object, **__: object):
        raise LedgerDamagedError(ada.directory, "malformed")

    monkeypatch.setattr(ada.ledger, "reserve", damaged)
    with caplog.at_level("DEBUG"):
        ada.go(ada.world.ask())
    assert ada.hub.refusal_code is Code.UNAVAILABLE
    assert "ask the data officer" in str([getattr(record, "fields", {}) for record in caplog.records])


@pytest.mark.parametrize("kind", ["plain", "dp-feat"])
def test_queries_without_a_bound_for_records_are_counted_over_the_lifetime_each_attempt(world, tmp_path, kind):
    ada = Ada(world, tmp_path, limits=limits("1000", "1e-3", unbounded=2))
    ask = world.plain_query if kind == "plain" else world.query
    envelope, cohort = ready(ada, ask())
    ada.upload(envelope, cohort)
    assert ada.go(envelope, attempt=2)
    ada.upload(envelope, world.cohort(ada.hub.answers[1], attempt=2), attempt=2)
    assert ada.ledger.unbounded() == 2
    ada.restart()
    ada.go(envelope, attempt=3)
    ada.go(world.ask(ask()))
    assert ada.hub.accepted == [True, True, False, False]


def test_a_limit_of_queries_without_a_bound_that_is_lowered_stops_a_charge(ada):
    envelope, cohort = ready(ada, ada.world.plain_query())
    ada.ledger.limits = limits("1000", "1e-3", unbounded=0)
    ada.upload(envelope, cohort)
    assert not ada.hub.chunks
    assert (ada.state(envelope), ada.ledger.unbounded(), ada.ledger.unbounded(charged=False)) == (S.ENDED, 0, 0)


CHANGES = {
    "learner withdrawn": {"learners": []},
    "design withdrawn": {"designs": []},
    "larger cohort": {"smallest_cohort": 4},
    "member withdrawn": {"accepted_members": []},
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_policy_holds_from_then_on(ada, change):
    envelope, cohort = ready(ada)
    ada.lifecycle.follow(ada.world.policy(**CHANGES[change]))
    ada.upload(envelope, cohort)
    assert not ada.hub.chunks
    assert (ada.state(envelope), spent(ada), reserved(ada)) == (S.ENDED, 0, 0)
    ada.go(ada.world.ask())
    assert ada.hub.accepted == [True, False, False], "the accepted query, given up, and the new one"
    ada.lifecycle.follow(ada.world.policy())
    assert ada.go(ada.world.ask())


def test_a_policy_withdrawn_during_an_upload_stops_it_and_keeps_the_charge(ada):
    envelope, cohort = ready(ada)
    ada.hub.fail["upload_chunk"] = [ConnectionLostError("hub", "cut")]
    with pytest.raises(ConnectionLostError):
        ada.upload(envelope, cohort)
    ada.lifecycle.follow(ada.world.policy(learners=[]))
    ada.upload(envelope, cohort)
    assert not ada.hub.chunks
    assert ada.state(envelope) is S.CHARGED
    assert spent(ada) > 0


def test_a_single_row_has_no_bound_for_dp_feat_and_is_refused(world, tmp_path):
    ada = Ada(world, tmp_path, records=make_records(1))
    ada.go(world.ask())
    assert ada.hub.refusal_code is Code.PLAN_INFEASIBLE
    envelope, cohort = ready(ada, world.plain_query())
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is S.UPLOADED


@pytest.mark.parametrize("plain", [False, True])
def test_a_party_of_zero_vectors_looks_like_any_other(world, tmp_path, plain):
    """Its row count, its charge and its upload's size are those of its rows; what it adds is nothing of them."""
    ada = Ada(world, tmp_path, records=make_records(40, usable=False))
    envelope, cohort = ready(ada, world.plain_query() if plain else None)
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is S.UPLOADED
    opened = world.open(envelope)
    assert len(ada.hub.chunks) == opened.chunks
    rados = opened.query.kind.decode(integer_vector(opened, ada.records, Computation(SystemRandom())), 16)
    # A boolean coordinate of an unusable row counts as +1, so that k is a fair coin for every row.
    assert not rados[:, [0, 2]].any()
    assert rados[:, 1].any()


def signed_for_another_attempt(world, query_id):
    return world.retry(query_id, 3)


def signed_for_another_query(world, _query_id):
    return world.retry(bytes(32), 2)


def signed_by_another_learner(world, query_id):
    return world.retry(query_id, 2, key=SigningKey.generate("clinics"))


def signed_by_a_party(world, query_id):
    return world.retry(query_id, 2, key=world.party_keys["bo"])


def unsigned(_world, _query_id):
    return None


@pytest.mark.parametrize(
    "made",
    [
        unsigned,
        signed_for_another_attempt,
        signed_for_another_query,
        signed_by_another_learner,
        signed_by_a_party,
    ],
)
def test_an_attempt_that_the_learner_did_not_start_is_refused_and_costs_nothing(ada, made):
    """A coordinator that shows another attempt after a complete one cannot make the party pay for it, or sign."""
    envelope, cohort = ready(ada)
    ada.upload(envelope, cohort)
    once, retry = spent(ada), made(ada.world, envelope.payload_hash)
    assert not ada.go(envelope, attempt=2, retry=retry)
    assert ada.hub.accepted == [True]
    # Nor would the decision let it through, which comes after that.
    with pytest.raises(WireError):
        decide(ada.world.open(envelope), 2, ada.lifecycle.party, ada.world.roster, retry, now_unix_s=time.time())
    assert (spent(ada), reserved(ada), ada.state(envelope, 2)) == (once, 0, None)


def test_a_lost_attempt_ends_at_the_party_and_what_was_not_charged_is_released(ada):
    envelope, _ = ready(ada)
    ada.lifecycle.advance(ada.work(envelope, phase=Phase.LOST, state=PartyState.UPLOADING))
    assert (ada.state(envelope), reserved(ada), ada.spools.used_bytes()) == (AttemptState.ENDED, 0, 0)


def test_a_second_attempt_without_a_retry_has_a_code_of_its_own(world):
    opened = world.open(world.ask())
    with pytest.raises(WireError) as caught:
        check_retry(opened, 2, world.roster, None)
    assert caught.value.code is Code.ATTEMPT_MISMATCH


def test_a_cohort_smaller_than_the_query_s_receives_no_upload(world, tmp_path):
    """Also where the party's own policy would take it."""
    ada = Ada(world, tmp_path, policy=world.policy(smallest_cohort=2, assumed_colluders=0))
    envelope, cohort = ready(ada)
    ada.upload(envelope, replace(cohort, acceptances=cohort.acceptances[:2]))
    assert ada.hub.chunks == {}
    assert spent(ada) == 0


@pytest.mark.parametrize("attempt", [0, 4])
def test_an_attempt_that_the_query_does_not_have_is_refused_at_once(ada, attempt):
    opened = ada.world.open(ada.world.ask())
    retry = ada.world.retry(opened.query_id, 4)
    with pytest.raises(WireError, match=f"Attempt {attempt} of 3"):
        decide(opened, attempt, ada.lifecycle._party, ada.world.roster, retry, now_unix_s=time.time())


@pytest.mark.variants(3)
@pytest.mark.parametrize("state", PartyState)
def test_where_a_coordinator_says_that_a_party_stands_changes_nothing_that_is_charged(ada, state):
    """Also that it waits for a person's decision, in any phase: one attempt is accepted, charged and sent once."""
    envelope, cohort = ready(ada)
    for phase in (Phase.ANSWERING, Phase.PREPARING):
        ada.lifecycle.advance(ada.work(envelope, phase=phase, state=state))
    assert (spent(ada), len(ada.ledger.events())) == (0, 1)
    for _ in range(2):
        ada.upload(envelope, cohort, state=state)
    ada.upload(envelope, cohort)
    once = spent(ada)
    assert once > 0
    ada.lifecycle.advance(ada.work(envelope, state=state))
    assert (spent(ada), len(ada.ledger.events())) == (once, 1)
    assert {len(set(chunks)) for chunks in ada.hub.chunks.values()} == {1}
    assert len({answer.payload for answer in ada.hub.answers}) == 1
