"""The state machine of a query whose members may vanish: whom it waits for, and of whom the total is."""

from dataclasses import replace

import pytest

from coordinator.events import (
    Added,
    DropUploads,
    Expelled,
    KeysShared,
    StartAdding,
    Ticked,
    UnmaskingGiven,
    UploadsLost,
)
from coordinator.round_state import Round, Rules
from coordinator.rounds import UNMASKING_GRACE_S, begin, step
from dpcore.paillier.masks import CohortAttempt
from dpcore.paillier.public import multiply
from dpcore.paillier.survivors import SEALED_BYTES, survivors_digest
from learner.vanishing import Vanishing
from tests.coordinator.test_rounds import accept, play, ready, receipt, refuse
from tests.federation.coordinator import refused
from tests.federation.coordinator_core import on_bench, refusal
from wire.envelopes import MessageType
from wire.errors import Code
from wire.features import Feature
from wire.statements import MAX_SEALED_BYTES, KeyShares, LedgerHead, Ready, Unmasking, sign
from wire.status import PartyState, Phase

PARTIES = ("a", "b", "c", "d", "e")
RULES = Rules(PARTIES, 3, 5, 100, 10.0, 20.0, 30.0, 2, may_vanish=1)


def start(**changes) -> Round:
    return begin(replace(RULES, **changes), now=0.0, expires_at=1000.0)


def shared(party, digest="shares"):
    return KeysShared(1, party, digest)


def unmasking(party, digest="given"):
    return UnmaskingGiven(1, party, digest)


def preparing(members=PARTIES, **changes):
    return play(start(**changes), *(accept(p) if p in members else refuse(p) for p in PARTIES))[0]


def uploading(members=PARTIES, **changes):
    round_, _ = play(preparing(members, **changes), *(each for p in members for each in (shared(p), ready(p))))
    assert round_.phase is Phase.UPLOADING
    return round_


def test_all_upload_and_all_unmask():
    round_ = preparing()
    assert (round_.phase, round_.sharing, round_.needed) == (Phase.PREPARING, PARTIES, 4)
    round_, _ = play(uploading(), *(receipt(p) for p in PARTIES))
    assert (round_.phase, round_.survivors, round_.remaining_s(1.0)) == (Phase.UNMASKING, PARTIES, 30.0)
    round_, actions = play(round_, *(unmasking(p) for p in PARTIES))
    assert (round_.phase, actions) == (Phase.ADDING, [StartAdding(1)])
    assert play(round_, Added(1))[0].phase is Phase.COMPLETE


def test_nobody_is_ready_before_the_sharing_is_fixed_or_without_shares():
    answering, _ = play(start(), accept("a"))
    refused(Code.PHASE_MISMATCH, step, answering, shared("a"), 1.0)
    refused(Code.PHASE_MISMATCH, step, answering, ready("a"), 1.0)
    round_ = preparing()
    refused(Code.PHASE_MISMATCH, step, round_, ready("a"), 1.0)
    once, _ = play(round_, shared("a"))
    assert play(once, shared("a"))[0] is once
    refused(Code.ANSWER_CONFLICT, step, once, shared("a", "others"), 1.0)
    assert play(once, ready("a"))[0].party_state("a") is PartyState.READY


def test_who_is_not_in_the_sharing_is_in_no_cohort():
    """Six accept, and a query for five takes the first."""
    round_ = begin(replace(RULES, parties=(*PARTIES, "f")), now=0.0, expires_at=1000.0)
    round_, _ = play(round_, *(accept(p) for p in (*PARTIES, "f")))
    assert round_.sharing == PARTIES
    refused(Code.COHORT_EXCLUDED, step, round_, shared("f"), 1.0)
    refused(Code.COHORT_EXCLUDED, step, round_, ready("f"), 1.0)


def test_as_many_as_the_sharing_needs_have_to_be_ready():
    """Of five that accepted four are a cohort; three would do without a sharing."""
    round_, _ = play(preparing(), *(each for p in "abc" for each in (shared(p), ready(p))))
    few, _ = play(round_, Ticked(), now=50.0)
    assert (few.phase, few.code) == (Phase.FAILED, Code.COHORT_TOO_SMALL)
    assert "3 were ready and 4 are needed" in few.detail
    enough, _ = play(round_, shared("d"), ready("d"))
    enough, _ = play(enough, Ticked(), now=50.0)
    assert (enough.phase, enough.cohort) == (Phase.UPLOADING, ("a", "b", "c", "d"))
    gone, _ = play(preparing(), refuse("a"))
    assert gone.phase is Phase.PREPARING
    assert play(gone, refuse("b"))[0].code == Code.COHORT_TOO_SMALL


def test_after_the_time_the_total_is_of_those_that_uploaded():
    round_, _ = play(uploading(), *(receipt(p) for p in "abce"))
    assert round_.phase is Phase.UPLOADING
    round_, _ = play(round_, Ticked(), now=40.0)
    assert (round_.phase, round_.survivors) == (Phase.UNMASKING, ("a", "b", "c", "e"))
    assert round_.party_state("d") is PartyState.VANISHED
    for late in (receipt("d"), unmasking("d")):
        refused(Code.PHASE_MISMATCH if late == receipt("d") else Code.COHORT_EXCLUDED, step, round_, late, 41.0)
    round_, actions = play(round_, *(unmasking(p) for p in "abce"), now=41.0)
    assert (round_.phase, actions, round_.summed) == (Phase.ADDING, [StartAdding(1)], round_.survivors)
    refused(Code.COHORT_EXCLUDED, step, round_, receipt("d"), 42.0)


def test_with_fewer_the_attempt_is_lost_as_ever():
    round_, _ = play(uploading(), *(receipt(p) for p in "abc"))
    round_, actions = play(round_, Ticked(), now=40.0)
    assert (round_.phase, actions) == (Phase.LOST, [DropUploads(1)])
    assert "these did not finish: d, e." in round_.detail


def test_a_wait_for_further_parties_is_one_for_uploads_too():
    round_, _ = play(uploading(quorum_wait_s=5.0), *(receipt(p) for p in "abcd"))
    assert round_.ends_at == 6.0
    assert play(round_, Ticked(), now=6.0)[0].phase is Phase.UNMASKING
    assert play(round_, receipt("e"))[0].survivors == PARTIES


def test_a_member_that_gives_up_is_not_waited_for():
    round_, _ = play(uploading(), *(receipt(p) for p in "abc"), refuse("e"))
    assert (round_.phase, round_.party_state("e")) == (Phase.UPLOADING, PartyState.VANISHED)
    assert play(round_, refuse("e"))[0] is round_
    refused(Code.COHORT_EXCLUDED, step, round_, receipt("e"), 1.0)
    assert play(round_, receipt("d"))[0].survivors == ("a", "b", "c", "d")
    lost, _ = play(round_, refuse("d"))
    assert lost.phase is Phase.LOST


def test_survivors_that_vanish_in_unmasking_are_not_waited_for_once_enough_have_unmasked():
    round_, _ = play(uploading(), *(receipt(p) for p in PARTIES), *(unmasking(p) for p in "abcd"))
    assert (round_.phase, round_.ends_at) == (Phase.UNMASKING, 1.0 + UNMASKING_GRACE_S)
    adding, _ = play(round_, Ticked(), now=10.0)
    assert adding.phase is Phase.ADDING
    more, actions = play(adding, unmasking("e"), now=10.0)
    assert (set(more.unmaskings), actions) == (set(PARTIES), [])
    few, _ = play(uploading(), *(receipt(p) for p in PARTIES), *(unmasking(p) for p in "abc"))
    lost, _ = play(few, Ticked(), now=40.0)
    assert lost.phase is Phase.LOST
    assert "these did not finish: d, e." in lost.detail
    refused(Code.ANSWER_CONFLICT, step, few, unmasking("a", "other"), 1.0)
    assert play(few, unmasking("a"))[0] is few


@pytest.mark.parametrize("done", ["", "abcde"])
def test_uploads_that_a_backup_lacks_come_again_for_the_same_survivors(done):
    round_, _ = play(uploading(), *(receipt(p) for p in "abce"))
    round_, _ = play(round_, Ticked(), now=40.0)
    round_, _ = play(round_, *(unmasking(p) for p in done if p in round_.survivors), now=41.0)
    back, _ = play(round_, UploadsLost(1, frozenset("ab")), now=42.0)
    assert (back.phase, back.survivors, back.party_state("a")) == (
        Phase.UPLOADING,
        ("a", "b", "c", "e"),
        PartyState.UNMASKED if done else PartyState.UPLOADING,
    )
    refused(Code.COHORT_EXCLUDED, step, back, receipt("d"), 42.0)
    again, _ = play(back, receipt("a"), receipt("b"), now=43.0)
    assert again.phase is (Phase.ADDING if done else Phase.UNMASKING)
    assert play(back, Ticked(), now=100.0)[0].phase is Phase.LOST


@pytest.mark.parametrize("uploaded", ["bcde", "abc"])
def test_a_member_that_is_expelled_while_it_uploads_vanished_also_if_it_had_uploaded(uploaded):
    round_, _ = play(uploading(), *(receipt(p) for p in uploaded))
    round_, actions = play(round_, Expelled(frozenset("a")))
    assert (round_.party_state("a"), actions, "a" in round_.receipts) == (PartyState.VANISHED, [], False)
    assert play(round_, Expelled(frozenset("a")))[0] is round_
    refused(Code.PHASE_MISMATCH if len(uploaded) > 3 else Code.COHORT_EXCLUDED, step, round_, receipt("a"), 1.0)
    round_, _ = play(round_, *(receipt(p) for p in "bcde" if p not in uploaded))
    assert (round_.phase, round_.survivors) == (Phase.UNMASKING, ("b", "c", "d", "e"))


def test_a_wait_for_further_uploads_ends_when_the_quorum_is_expelled():
    round_, _ = play(uploading(quorum_wait_s=5.0), *(receipt(p) for p in "abcd"))
    round_, _ = play(round_, Expelled(frozenset("a")))
    assert (round_.phase, round_.quorum_deadline) == (Phase.UPLOADING, None)
    assert play(round_, receipt("e"))[0].survivors == ("b", "c", "d", "e")


def test_with_more_expelled_than_may_vanish_the_attempt_is_lost_at_once_and_says_why():
    gone, _ = play(uploading(), refuse("b"))
    for round_, expelled in ((uploading(), "ab"), (gone, "a")):
        lost, actions = play(round_, Expelled(frozenset(expelled)))
        assert (lost.phase, actions) == (Phase.LOST, [DropUploads(1)])
        names = ", ".join(expelled)
        assert lost.detail == (
            f"In attempt 1 of 2 these members of the cohort were removed from the roster: {names}. "
            "Another attempt asks the others only."
        )


def test_a_survivor_that_is_expelled_costs_the_attempt_only_if_too_few_can_unmask():
    unmasks, _ = play(uploading(), *(receipt(p) for p in PARTIES))
    assert play(unmasks, Expelled(frozenset("a")))[0] is unmasks
    lost, _ = play(unmasks, Expelled(frozenset("ab")))
    assert lost.phase is Phase.LOST
    assert "removed from the roster: a, b." in lost.detail
    given, _ = play(unmasks, unmasking("a"))
    assert play(given, Expelled(frozenset("ab")))[0] is given
    # After a backup was restored.
    for lacks in "ab":
        back, _ = play(given, UploadsLost(1, frozenset(lacks)))
        assert back.phase is Phase.UPLOADING
        ended, _ = play(back, Expelled(frozenset("a")))
        assert ended.phase is (Phase.LOST if lacks == "a" else Phase.UPLOADING)


def test_every_state_is_stored():
    for round_ in (preparing(), uploading(), play(uploading(), *(receipt(p) for p in "abcd"), refuse("e"))[0]):
        assert Round.from_dict(round_.to_dict(1.0), now=1.0, expires_at=1000.0) == round_


def test_states_that_contradict_themselves_are_refused():
    unmasks, _ = play(uploading(), *(receipt(p) for p in PARTIES))
    for changes in (
        {"survivors": ()},
        {"survivors": ("a", "b")},
        {"survivors": (*PARTIES, "f")},
        {"unmaskings": {"f": "x"}},
        {"shared": {"f": "x"}},
        {"sharing": ("a", "b", "c")},
        {"receipts": {"a": "x"}},
        {"sharing": PARTIES[:4], "shared": {}, "survivors": PARTIES[:4]},
    ):
        with pytest.raises(ValueError, match="contradicts itself"):
            replace(unmasks, **changes)
    with pytest.raises(ValueError, match="contradicts itself"):
        replace(uploading(), survivors=("a", "b", "c", "f"))


ASKED = {"may_vanish": 1, "features": (Feature.BASE.value, Feature.SURVIVORS.value)}
MEMBERS = ("ann", "bob", "cat", "dan")


def key_shares(bench, opened, name, count=4, **changes):
    """What the coordinator can check of it is its form."""
    lists = ((b"s" * SEALED_BYTES,) * count, (b"c" * 16,) * count, (b"d" * 16,) * count)
    digest = bench.live(opened).sharing.digest
    said = replace(KeyShares(opened.query_id, 1, name, digest, bytes(32), *lists), **changes)
    return sign(said, bench.world.keys[name])


async def share(bench, opened, *names):
    for name in names:
        said = Ready(opened.query_id, 1, name, bench.live(opened).sharing.digest)
        ready = sign(said, bench.world.keys[name])
        await bench.intake.ready(ready, bench.world.member(name), key_shares(bench, opened, name))


def revealed(bench, opened, name, **changes):
    live = bench.live(opened)
    about = CohortAttempt(opened.query_id, 1, live.cohort.digest)
    digest = survivors_digest(live.round.survivors, about)
    said = replace(Unmasking(opened.query_id, 1, name, live.cohort.digest, digest, b"sealed"), **changes)
    return sign(said, bench.world.keys[name])


async def unmask(bench, opened, *names):
    for name in names:
        await bench.intake.unmasking(revealed(bench, opened, name), bench.world.member(name))


async def work_of(bench, opened, name):
    (work,) = [item for item, _ in (await bench.views.work(bench.world.member(name), 0, 0))[0]]
    return work


@on_bench
async def test_a_restart_at_every_step_gives_the_survivors_total(bench):
    opened = await bench.ask(**ASKED)
    await bench.accept(opened, *MEMBERS)
    await bench.crash()
    work = await work_of(bench, opened, "ann")
    assert (work.phase, len(work.sharing.acceptances)) == (Phase.PREPARING, 4)
    await share(bench, opened, "ann", "bob")
    await bench.crash()
    await share(bench, opened, *MEMBERS)
    work = await work_of(bench, opened, "ann")
    assert (len(work.ready), work.cohort.sharing_digest) == (4, work.sharing.digest)
    await bench.upload(opened, "ann", "bob")
    await bench.crash()
    await bench.contribute(opened, "ann", "bob", "dan")
    await bench.crash()
    await bench.turn(60)
    assert bench.phase(opened) is Phase.UNMASKING
    await bench.crash()
    work = await work_of(bench, opened, "dan")
    assert (work.survivors, len(work.sealed_shares)) == (("ann", "bob", "dan"), 4)
    await unmask(bench, opened, "ann", "bob")
    await bench.crash()
    await unmask(bench, opened, "ann", "bob", "dan")
    await bench.settled()
    await bench.crash()
    lea = bench.world.member("lea")
    total = bench.views.total(lea, opened.query_id)
    assert (total.survivors, len(total.receipts)) == (("ann", "bob", "dan"), 3)
    assert (len(total.key_shares), len(total.unmaskings)) == (4, 3)
    uploads = [bench.world.chunks(opened, name)[0].ciphertexts for name in total.survivors]
    chunk = await bench.views.total_chunk(lea, opened.query_id, 0)
    assert chunk.ciphertexts == multiply(opened.public_key, uploads)
    states = {each.party: each.state for each in (await bench.status(opened)).parties}
    assert states["cat"] is PartyState.VANISHED


@on_bench
async def test_a_plan_states_at_least_the_bytes_that_travel(bench):
    """Of statements as long as they may be: acceptances here are without what a ledger writes for itself."""
    opened = await bench.ask(**ASKED)
    head = LedgerHead(1 << 40, bytes(32), bytes(MAX_SEALED_BYTES)).to_proto().ByteSize() + 3
    cost, shown, with_ledger = Vanishing.of(opened.query), 0, 4 * head
    await bench.accept(opened, *MEMBERS)
    shown += (await work_of(bench, opened, "ann")).sharing.to_proto().ByteSize() + with_ledger
    await share(bench, opened, *MEMBERS)
    work = await work_of(bench, opened, "ann")
    shown += work.to_proto().ByteSize() - replace(work, sharing=None, ready=()).to_proto().ByteSize() + with_ledger
    await bench.contribute(opened, *MEMBERS)
    shown += (await work_of(bench, opened, "ann")).to_proto().ByteSize() + 2 * with_ledger
    assert 0.9 * cost.further_bytes_received_per_party < shown <= cost.further_bytes_received_per_party
    given = bench.live(opened).of_keys[MessageType.KEY_SHARES]["ann"].to_proto().ByteSize() + 64 + 4 * 33
    assert given < cost.further_bytes_sent_per_party < 1.5 * given


@on_bench
async def test_statements_about_another_sharing_or_other_survivors_are_of_no_use(bench):
    opened = await bench.ask(**ASKED)
    await bench.accept(opened, *MEMBERS)
    ann, digest = bench.world.member("ann"), bench.live(opened).sharing.digest
    ready = sign(Ready(opened.query_id, 1, "ann", digest), bench.world.keys["ann"])
    for wrong, code in (
        (key_shares(bench, opened, "ann", sharing_digest=bytes(32)), Code.PHASE_MISMATCH),
        (key_shares(bench, opened, "ann", count=3), Code.MESSAGE_MALFORMED),
        (key_shares(bench, opened, "ann", count=900), Code.MESSAGE_TOO_LARGE),
    ):
        await refusal(code, bench.intake.ready(ready, ann, wrong))
    elsewhere = sign(Ready(opened.query_id, 1, "ann", bytes(32)), bench.world.keys["ann"])
    await refusal(Code.PHASE_MISMATCH, bench.intake.ready(elsewhere, ann, key_shares(bench, opened, "ann")))
    await share(bench, opened, *MEMBERS)
    await bench.contribute(opened, *MEMBERS)
    for wrong in ({"survivors_digest": bytes(32)}, {"cohort_digest": bytes(32)}):
        said = revealed(bench, opened, "ann", **wrong)
        await refusal(Code.PHASE_MISMATCH, bench.intake.unmasking(said, ann))
    await refusal(Code.SENDER_MISMATCH, bench.intake.unmasking(revealed(bench, opened, "bob"), ann))


@on_bench
async def test_who_accepts_without_a_share_key_is_refused_and_the_others_go_on(bench):
    opened = await bench.ask(**ASKED)
    await bench.accept(opened, *MEMBERS[:3])
    bare = bench.world.acceptance(opened.query_id, "dan")
    await refusal(Code.MESSAGE_MALFORMED, bench.intake.acceptance(bare, bench.world.member("dan")))
    await bench.refuse(opened, "dan")
    assert bench.live(opened).round.sharing == MEMBERS[:3]
    question = await bench.ask(**ASKED | {"features": tuple(sorted((*ASKED["features"], Feature.QUESTION.value)))})
    said = bench.world.acceptance(question.query_id, "ann")
    await bench.intake.acceptance(said, bench.world.member("ann"))


@on_bench
async def test_a_party_that_vanished_uploads_nothing_more(bench):
    opened = await bench.ask(**ASKED)
    await bench.accept(opened, *MEMBERS)
    await share(bench, opened, *MEMBERS)
    await bench.contribute(opened, "ann", "bob", "cat")
    await bench.refuse(opened, "dan")
    assert bench.phase(opened) is Phase.UNMASKING
    late = bench.intake.chunk(opened.query_id, 1, bench.world.chunks(opened, "dan")[0], bench.world.member("dan"))
    await refusal(Code.PHASE_MISMATCH, late)


@on_bench
async def test_a_party_that_gave_up_uploads_nothing_more(bench):
    opened = await bench.ask(**ASKED)
    await bench.accept(opened, *MEMBERS)
    await share(bench, opened, *MEMBERS)
    await bench.contribute(opened, "ann", "bob")
    await bench.refuse(opened, "dan")
    assert bench.phase(opened) is Phase.UPLOADING
    late = bench.intake.chunk(opened.query_id, 1, bench.world.chunks(opened, "dan")[0], bench.world.member("dan"))
    await refusal(Code.COHORT_EXCLUDED, late)


def test_statements_on_another_attempt_are_refused():
    for event in (KeysShared(2, "a", "x"), UnmaskingGiven(2, "a", "x")):
        refused(Code.ATTEMPT_MISMATCH, step, preparing(), event, 1.0)
    refused(Code.PHASE_MISMATCH, step, uploading(), unmasking("a"), 1.0)
