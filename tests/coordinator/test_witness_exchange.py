"""The exchange of witnesses relays what parties signed themselves, and only that."""

import pytest

from coordinator.membership import KEPT_FOR_S
from tests.federation.coordinator import FEDERATION, refused
from tests.federation.coordinator_core import on_bench
from wire.envelopes import Envelope
from wire.errors import Code
from wire.features import OWN_FEATURES, Features
from wire.statements import MOST_IN_COHORTS, WITNESS_BYTES, Challenge, Witness
from wire.transport import MAX_RESPONSE_BYTES

NONCE, OTHER = b"n" * 32, b"o" * 32


def challenge(bench, party="ann", nonce=NONCE):
    return Challenge(FEDERATION, party, nonce, 1_700_000_000).sign(bench.world.keys[party])


def witness(bench, party="bob", subject="ann", nonce=NONCE):
    return Witness(FEDERATION, party, subject, nonce, None).sign(bench.world.keys[party])


@on_bench
async def test_an_answer_to_the_newest_challenge_is_relayed(bench):
    ann, bob = bench.world.member("ann"), bench.world.member("bob")
    bench.witnesses.ask(challenge(bench), ann)
    answer = witness(bench)
    bench.witnesses.answer(answer, bob)
    assert bench.witnesses.answers(NONCE, ann) == (answer,)


@on_bench
async def test_what_a_party_has_is_not_sent_again(bench):
    ann, bob, cat = (bench.world.member(name) for name in ("ann", "bob", "cat"))
    bench.witnesses.ask(challenge(bench), ann)
    for member in (cat, bob):
        bench.witnesses.answer(witness(bench, member.name), member)
    first, second = bench.witnesses.answers(NONCE, ann)
    assert [bench.witnesses.answers(NONCE, ann, known) for known in (1, 2, 9)] == [(second,), (), ()]
    assert (first, second) == (witness(bench, "cat"), witness(bench))


@on_bench
async def test_answers_are_forgotten_once_nobody_looks_for_them(bench):
    ann, bob, cat = (bench.world.member(name) for name in ("ann", "bob", "cat"))
    bench.witnesses.ask(challenge(bench), ann)
    bench.witnesses.answer(witness(bench), bob)
    bench.now += KEPT_FOR_S
    bench.witnesses.ask(challenge(bench, "cat", OTHER), cat)
    assert len(bench.witnesses.answers(NONCE, ann)) == 1
    bench.now += 1
    bench.witnesses.ask(challenge(bench, "bob", OTHER), bob)
    refused(Code.QUERY_UNKNOWN, bench.witnesses.answers, NONCE, ann)
    assert bench.witnesses.answers(OTHER, cat) == ()


@on_bench
async def test_answers_take_a_bounded_amount_of_memory(bench):
    """Beyond it the oldest challenge is forgotten; its party asks again, and is then the newest."""
    ann, bob, cat = (bench.world.member(name) for name in ("ann", "bob", "cat"))
    one = len(witness(bench).payload) + 32 + 64
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coordinator.membership.MOST_ANSWER_BYTES", 2 * one + 10)
        bench.witnesses.ask(challenge(bench), ann)
        bench.witnesses.ask(challenge(bench, "bob"), bob)
        bench.witnesses.answer(witness(bench, "bob", "ann"), bob)
        bench.witnesses.answer(witness(bench, "ann", "bob"), ann)
        bench.witnesses.answer(witness(bench, "cat", "bob"), cat)
        refused(Code.QUERY_UNKNOWN, bench.witnesses.answers, NONCE, ann)
        assert len(bench.witnesses.answers(NONCE, bob)) == 2
        bench.witnesses.ask(challenge(bench), ann)
        bench.witnesses.answer(witness(bench, "bob", "ann"), bob)
        refused(Code.QUERY_UNKNOWN, bench.witnesses.answers, NONCE, bob)
        assert len(bench.witnesses.answers(NONCE, ann)) == 1


@on_bench
async def test_no_member_relays_for_another_party(bench):
    cat = bench.world.member("cat")
    refused(Code.SENDER_MISMATCH, bench.witnesses.ask, challenge(bench), cat)
    bench.witnesses.ask(challenge(bench), bench.world.member("ann"))
    refused(Code.SENDER_MISMATCH, bench.witnesses.answer, witness(bench), cat)
    features = Features(FEDERATION, "ann", (), "0.2.0", 1_700_000_000).sign(bench.world.keys["ann"])
    refused(Code.SENDER_MISMATCH, bench.witnesses.state_features, features, cat)


@on_bench
async def test_a_party_that_is_too_old_is_refused_and_learners_see_why(bench):
    ann = bench.world.member("ann")
    older = Features(FEDERATION, "ann", ("bound-totals",), "0.2.1", 1_700_000_000).sign(bench.world.keys["ann"])
    error = refused(Code.FEATURE_MISSING, bench.witnesses.state_features, older, ann)
    assert "ann's node has version 0.2.1: upgrade it to 0.3.0 or newer." in error.detail
    assert bench.witnesses.features() == (older,)
    newer = Features(FEDERATION, "ann", OWN_FEATURES, "0.3.0", 1_700_000_001).sign(bench.world.keys["ann"])
    bench.witnesses.state_features(newer, ann)
    assert bench.witnesses.features() == (newer,)


@on_bench
async def test_an_answer_without_its_challenge_is_refused(bench):
    bob = bench.world.member("bob")
    refused(Code.QUERY_UNKNOWN, bench.witnesses.answer, witness(bench), bob)
    bench.witnesses.ask(challenge(bench, nonce=OTHER), bench.world.member("ann"))
    refused(Code.QUERY_UNKNOWN, bench.witnesses.answer, witness(bench), bob)


@on_bench
async def test_a_party_is_no_witness_of_itself(bench):
    ann = bench.world.member("ann")
    bench.witnesses.ask(challenge(bench), ann)
    refused(Code.QUERY_UNKNOWN, bench.witnesses.answer, witness(bench, party="ann"), ann)


@on_bench
async def test_answers_are_those_to_the_party_s_own_newest_challenge(bench):
    ann = bench.world.member("ann")
    refused(Code.QUERY_UNKNOWN, bench.witnesses.answers, NONCE, ann)
    bench.witnesses.ask(challenge(bench, nonce=OTHER), ann)
    refused(Code.QUERY_UNKNOWN, bench.witnesses.answers, NONCE, ann)


def test_the_longest_answers_of_all_members_fit_into_one_response():
    statement = Envelope(bytes(912), bytes(32), bytes(64))
    names = tuple(number.to_bytes(8, "big") for number in range(MOST_IN_COHORTS))
    longest = Witness("f" * 63, "p" * 63, "q" * 63, NONCE, statement, names, (1 << 64) - 1)
    assert len(longest.to_bytes()) <= WITNESS_BYTES
    signed = Envelope(bytes(WITNESS_BYTES), bytes(32), bytes(64))
    assert 999 * (len(signed.to_bytes()) + 8) + 4096 < MAX_RESPONSE_BYTES


@pytest.mark.parametrize("call", ["ask", "answer", "state_features"])
def test_a_statement_that_is_too_long_is_not_read(world, call):
    @on_bench
    async def play(bench):
        long = Envelope(bytes(4097), b"k" * 32, b"s" * 64)
        refused(Code.MESSAGE_TOO_LARGE, getattr(bench.witnesses, call), long, bench.world.member("ann"))

    play(world)
