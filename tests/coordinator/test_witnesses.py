"""The coordinator's relay of challenges and witnesses: each member's own, the newest, and nothing foreign."""

import asyncio
import dataclasses

import pytest

from tests.federation.coordinator import FEDERATION
from tests.federation.coordinator_core import on_bench
from wire.envelopes import Envelope, SigningKey
from wire.errors import Code, WireError
from wire.query import CLOCK_SKEW_S
from wire.statements import MAX_ENTRIES, MOST_WITNESSES, Acceptance, Challenge, LedgerHead, Witness, sign

NONCE, OTHER = b"n" * 32, b"o" * 32


def challenge(bench, party="ann", nonce=NONCE, key=None) -> Envelope:
    return Challenge(FEDERATION, party, nonce, 1_700_000_000).sign(key or bench.world.keys[party])


def witness(bench, party="bob", subject="ann", nonce=NONCE, key=None, newest=None) -> Envelope:
    return Witness(FEDERATION, party, subject, nonce, newest).sign(key or bench.world.keys[party])


def refused(code, call, *given) -> None:
    with pytest.raises(WireError) as caught:
        call(*given)
    assert caught.value.code is code


def member(bench, name):
    return bench.world.member(name)


@on_bench
async def test_a_challenge_reaches_every_other_party_and_its_answers_come_back(bench):
    relay, asked = bench.witnesses, challenge(bench)
    relay.ask(asked, member(bench, "ann"))
    assert relay.show(member(bench, "ann")) == ()
    for name in ("bob", "cat"):
        assert relay.show(member(bench, name)) == (asked,)
        relay.answer(witness(bench, name), member(bench, name))
        assert relay.due(member(bench, name)) == ()
    assert relay.answers(NONCE, member(bench, "ann")) == (witness(bench, "bob"), witness(bench, "cat"))


@on_bench
async def test_of_several_answers_all_are_taken_that_can_be(bench):
    relay = bench.witnesses
    for name in ("ann", "cat"):
        relay.ask(challenge(bench, name), member(bench, name))
    said = [witness(bench, subject=name) for name in ("dan", "ann", "cat")]
    with pytest.raises(WireError) as caught:
        await relay.answer_each(said, member(bench, "bob"))
    assert caught.value.code is Code.QUERY_UNKNOWN
    assert [relay.answers(NONCE, member(bench, name)) for name in ("ann", "cat")] == [(said[1],), (said[2],)]
    with pytest.raises(WireError, match="at most 100 answers"):
        await relay.answer_each(said[1:2] * (MOST_WITNESSES + 1), member(bench, "bob"))


@on_bench
async def test_an_older_node_that_does_not_answer_is_shown_it_once_a_minute(bench):
    relay = bench.witnesses
    relay.ask(challenge(bench), member(bench, "ann"))
    assert len(relay.show(member(bench, "bob"))) == 1
    bench.now += 59
    assert relay.show(member(bench, "bob")) == ()
    bench.now += 2
    assert len(relay.show(member(bench, "bob"))) == 1


@on_bench
async def test_a_challenge_is_not_shown_once_parties_refuse_it_as_too_old(bench):
    relay = bench.witnesses
    relay.ask(challenge(bench), member(bench, "ann"))
    bench.now += CLOCK_SKEW_S
    assert len(relay.show(member(bench, "bob"))) == 1
    bench.now += 1
    assert relay.due(member(bench, "cat")) == relay.show(member(bench, "cat")) == ()
    # Its answers stay.
    relay.answer(witness(bench), member(bench, "bob"))
    assert relay.answers(NONCE, member(bench, "ann")) == (witness(bench),)


@on_bench
async def test_a_newer_challenge_replaces_the_older_and_its_answers(bench):
    relay = bench.witnesses
    relay.ask(challenge(bench), member(bench, "ann"))
    relay.answer(witness(bench), member(bench, "bob"))
    relay.ask(challenge(bench), member(bench, "ann"))
    assert len(relay.answers(NONCE, member(bench, "ann"))) == 1
    relay.ask(challenge(bench, nonce=OTHER), member(bench, "ann"))
    refused(Code.QUERY_UNKNOWN, relay.answers, NONCE, member(bench, "ann"))
    assert relay.answers(OTHER, member(bench, "ann")) == ()
    refused(Code.QUERY_UNKNOWN, relay.answer, witness(bench), member(bench, "bob"))


@on_bench
async def test_one_member_answers_once_and_only_for_itself(bench):
    relay, stranger = bench.witnesses, SigningKey.generate(FEDERATION)
    relay.ask(challenge(bench), member(bench, "ann"))
    refused(Code.SENDER_MISMATCH, relay.ask, challenge(bench), member(bench, "bob"))
    refused(Code.SENDER_MISMATCH, relay.answer, witness(bench), member(bench, "cat"))
    refused(Code.SIGNATURE_INVALID, relay.answer, witness(bench, key=stranger), member(bench, "bob"))
    refused(Code.SIGNATURE_INVALID, relay.ask, challenge(bench, key=stranger), member(bench, "ann"))
    refused(Code.QUERY_UNKNOWN, relay.answer, witness(bench, "ann"), member(bench, "ann"))
    refused(Code.QUERY_UNKNOWN, relay.answer, witness(bench, subject="cat"), member(bench, "bob"))
    refused(Code.QUERY_UNKNOWN, relay.answers, NONCE, member(bench, "bob"))
    large = Envelope(b"x" * 3000, b"k" * 32, b"s" * 64)
    refused(Code.MESSAGE_TOO_LARGE, relay.ask, large, member(bench, "ann"))
    relay.answer(witness(bench), member(bench, "bob"))
    relay.answer(witness(bench, newest=bench.world.acceptance(OTHER, "ann")), member(bench, "bob"))
    assert relay.answers(NONCE, member(bench, "ann")) == (witness(bench),)


@on_bench
async def test_a_long_poll_ends_when_a_challenge_is_due(bench):
    polling = asyncio.create_task(bench.views.work(member(bench, "bob"), 0, 25))
    await asyncio.sleep(0.05)
    assert not polling.done()
    bench.witnesses.ask(challenge(bench), member(bench, "ann"))
    await bench.views.wake()
    await asyncio.wait_for(polling, 20)


def with_head(bench, query_id: bytes, party: str, entries: int) -> Envelope:
    plain = Acceptance.from_bytes(bench.world.acceptance(query_id, party).payload)
    head = LedgerHead(entries, b"d" * 32, b"")
    return sign(dataclasses.replace(plain, ledger_head=head), bench.world.keys[party])


@on_bench
async def test_the_newest_head_of_a_party_is_kept_for_it_alone_across_restarts(bench):
    statements = {}
    for entries in (5, 7, 6):
        opened = await bench.ask()
        statements[entries] = with_head(bench, opened.query_id, "ann", entries)
        await bench.intake.acceptance(statements[entries], member(bench, "ann"))
    await bench.crash()
    assert bench.witnesses.newest(member(bench, "ann")) == statements[7]
    assert bench.witnesses.newest(member(bench, "bob")) is None


@on_bench
async def test_the_largest_number_of_entries_fits_and_no_larger_one_exists(bench):
    opened = await bench.ask()
    largest = with_head(bench, opened.query_id, "ann", MAX_ENTRIES)
    await bench.intake.acceptance(largest, member(bench, "ann"))
    assert bench.witnesses.newest(member(bench, "ann")) == largest
    with pytest.raises(WireError):
        LedgerHead(MAX_ENTRIES + 1, b"d" * 32, b"")
