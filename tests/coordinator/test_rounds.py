"""The state machine of a query: examples of every transition, and random lists of events that must not break it."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordinator.events import (
    Added,
    AddingFailed,
    Answered,
    BecamePending,
    BecameReady,
    Cancelled,
    DropUploads,
    Expelled,
    Finished,
    FixCohort,
    PartyAnswer,
    ReceiptGiven,
    Retried,
    StartAdding,
    Ticked,
)
from coordinator.round_state import Round, Rules
from coordinator.rounds import begin, step
from tests.examples import examples
from tests.federation.coordinator import refused
from wire.errors import Code, WireError
from wire.status import PartyState, Phase

PARTIES = ("a", "b", "c", "d")
RULES = Rules(PARTIES, 3, 4, 100, 10.0, 20.0, 30.0, 2)
EXPIRES_AT = 1000.0


def start(**changes) -> Round:
    return begin(replace(RULES, **changes), now=0.0, expires_at=EXPIRES_AT)


def accept(party, rows=10, attempt=1, digest=""):
    return Answered(attempt, party, PartyAnswer(digest or f"yes-{party}", rows=rows))


def refuse(party, attempt=1):
    return Answered(attempt, party, PartyAnswer(f"no-{party}", code="UNAVAILABLE"))


def ready(party, attempt=1):
    return BecameReady(attempt, party)


def pending(party, attempt=1):
    return BecamePending(attempt, party)


def receipt(party, attempt=1, digest=""):
    return ReceiptGiven(attempt, party, digest or f"got-{party}")


def play(round_, *events, now=1.0):
    """The round after all events, and all that they asked for."""
    asked = []
    for event in events:
        round_, actions = step(round_, event, now)
        asked += actions
    return round_, asked


def to_uploading(members=PARTIES, **changes):
    answers = [accept(p) if p in members else refuse(p) for p in PARTIES]
    return play(start(**changes), *answers, *(ready(p) for p in members))


def test_a_query_from_start_to_end():
    round_, actions = to_uploading()
    assert (round_.phase, round_.cohort) == (Phase.UPLOADING, PARTIES)
    assert actions == [FixCohort(1, PARTIES)]
    assert round_.remaining_s(1.0) == 30.0
    round_, actions = play(round_, *(receipt(p) for p in PARTIES))
    assert (round_.phase, actions) == (Phase.ADDING, [StartAdding(1)])
    round_, actions = play(round_, Added(1))
    assert (round_.phase, actions) == (Phase.COMPLETE, [DropUploads(1), Finished("")])
    assert round_.remaining_s(1.0) == 0


def test_ready_before_all_have_answered_fixes_the_cohort_at_the_last_answer():
    round_, _ = play(start(), accept("a"), ready("a"), accept("b"), ready("b"), accept("c"), ready("c"))
    assert round_.phase is Phase.ANSWERING
    round_, actions = play(round_, refuse("d"))
    assert (round_.phase, actions) == (Phase.UPLOADING, [FixCohort(1, ("a", "b", "c"))])


def test_a_silent_party_costs_only_the_answering_time():
    round_, _ = play(start(), accept("a"), accept("b"), accept("d"))
    assert play(round_, Ticked(), now=9.9)[0] is round_
    round_, _ = play(round_, Ticked(), now=10.0)
    assert (round_.phase, round_.deadline) == (Phase.PREPARING, 30.0)
    assert round_.party_state("c") is PartyState.SILENT
    refused(Code.PHASE_MISMATCH, step, round_, accept("c"), 11.0)
    round_, _ = play(round_, ready("a"), ready("b"), ready("d"), now=12.0)
    assert round_.cohort == ("a", "b", "d")


def test_too_few_acceptors_fail_and_the_missing_are_named():
    round_, _ = play(start(), accept("a"), accept("b"), refuse("c"))
    round_, actions = play(round_, Ticked(), now=10.0)
    assert (round_.phase, round_.code) == (Phase.FAILED, Code.COHORT_TOO_SMALL)
    assert "2 could take part and 3 are needed. Silent: d; refused: c (UNAVAILABLE)." in round_.detail
    assert actions == [DropUploads(1), Finished("COHORT_TOO_SMALL")]


def test_a_party_whose_person_decides_is_waited_for_until_the_deadline_and_named():
    round_, actions = play(start(), accept("a"), accept("b"), accept("c"), pending("d"))
    assert (round_.phase, actions) == (Phase.ANSWERING, [])
    assert round_.deadline == start().deadline, "it does not extend the phase"
    assert round_.party_state("d") is PartyState.PENDING
    accepted, _ = play(round_, accept("d"))
    assert (accepted.phase, accepted.party_state("d")) == (Phase.PREPARING, PartyState.ACCEPTED)
    assert play(round_, refuse("d"))[0].party_state("d") is PartyState.REFUSED
    late, _ = play(round_, Ticked(), now=10.0)
    assert (late.phase, late.party_state("d")) == (Phase.PREPARING, PartyState.PENDING)
    refused(Code.PHASE_MISMATCH, step, late, accept("d"), 11.0)
    too_few, _ = play(start(), accept("a"), pending("c"), pending("d"))
    too_few, _ = play(too_few, Ticked(), now=10.0)
    assert too_few.code == Code.COHORT_TOO_SMALL
    assert too_few.detail.endswith("Silent: b; waiting for a decision: c, d.")


def test_a_party_that_waits_for_a_person_is_no_reason_to_end_the_phase_or_to_keep_it():
    round_, _ = play(start(), *(pending(p) for p in PARTIES))
    assert round_.phase is Phase.ANSWERING, "four statements that are no answers"
    failed, _ = play(round_, refuse("a"), refuse("b"))
    assert failed.code == Code.COHORT_TOO_SMALL, "too few are left, whatever the others decide"


def test_a_repeated_pending_changes_nothing_and_one_after_the_answer_is_refused():
    round_, _ = play(start(), pending("a"))
    assert step(round_, pending("a"), 2.0) == (round_, ())
    answered, _ = play(round_, accept("a"), accept("b"))
    assert step(answered, pending("a"), 2.0) == (answered, ()), "a repeated call may arrive after the answer"
    refused(Code.ANSWER_CONFLICT, step, answered, pending("b"), 2.0)
    refused(Code.ATTEMPT_MISMATCH, step, round_, pending("b", attempt=2), 2.0)
    refused(Code.QUERY_UNKNOWN, step, round_, pending("z"), 2.0)
    refused(Code.PHASE_MISMATCH, step, round_, ready("a"), 2.0)
    preparing, _ = play(start(), *map(accept, "abc"), Ticked(), now=10.0)
    refused(Code.PHASE_MISMATCH, step, preparing, pending("d"), 11.0)
    refused(Code.QUERY_CLOSED, step, play(round_, Cancelled())[0], pending("b"), 2.0)


def test_once_there_are_enough_the_others_have_the_quorum_wait_left():
    round_, _ = play(start(quorum_wait_s=4.0), accept("a"), accept("b"), now=1.0)
    assert (round_.quorum_deadline, round_.remaining_s(1.0)) == (None, 9.0)
    round_, _ = play(round_, accept("c"), now=2.0)
    assert round_.remaining_s(2.0) == 4.0
    assert play(round_, Ticked(), now=5.9)[0] is round_
    round_, _ = play(round_, pending("d"), now=5.0)
    assert round_.ends_at == 6.0, "neither a further acceptance nor a pending moves it"
    ended, _ = play(round_, Ticked(), now=6.0)
    assert (ended.phase, ended.deadline, ended.answering_ended_early) == (Phase.PREPARING, 26.0, True)
    assert play(round_, accept("d"), now=5.5)[0].phase is Phase.PREPARING, "all answered, so nothing is waited for"


def test_a_quorum_wait_does_not_outlast_the_phase():
    round_, _ = play(start(quorum_wait_s=4.0), accept("a"), accept("b"), accept("c"), now=8.0)
    assert round_.remaining_s(8.0) == 2.0
    ended, _ = play(round_, Ticked(), now=10.0)
    assert (ended.phase, ended.answering_ended_early) == (Phase.PREPARING, False)


def test_acceptances_that_fit_no_cohort_start_no_quorum_wait():
    round_, _ = play(start(quorum_wait_s=4.0), accept("a", 101), accept("b"), accept("c"))
    assert round_.quorum_deadline is None
    assert play(round_, accept("d"))[0].phase is Phase.PREPARING


def test_the_quorum_wait_limits_the_ready_phase_too():
    accepted, _ = play(start(quorum_wait_s=4.0), *(accept(p) for p in PARTIES))
    assert (accepted.phase, accepted.remaining_s(1.0)) == (Phase.PREPARING, 20.0)
    round_, _ = play(accepted, ready("a"), ready("b"), now=2.0)
    assert round_.remaining_s(2.0) == 19.0
    round_, _ = play(round_, ready("d"), now=3.0)
    uploading, actions = play(round_, Ticked(), now=7.0)
    assert actions == [FixCohort(1, ("a", "b", "d"))]
    assert uploading.party_state("c") is PartyState.LEFT_OUT
    assert uploading.remaining_s(7.0) == 30.0, "a party of the cohort has the whole time to upload"
    second, _ = play(uploading, Ticked(), Retried(2), now=37.0)
    assert (second.attempt, second.remaining_s(37.0), second.answering_ended_early) == (2, 10.0, False)


def test_who_was_not_waited_for_is_not_called_silent():
    waiting, _ = play(start(quorum_wait_s=4.0), accept("a"), accept("b"), accept("c"), Ticked(), now=1.0)
    preparing, _ = play(waiting, Ticked(), now=5.0)
    assert preparing.phase is Phase.PREPARING
    failed, _ = play(preparing, Ticked(), now=25.0)
    assert failed.detail.endswith("Not waited for: d; not ready: a, b, c.")
    hopeless, _ = play(start(), refuse("a"), refuse("b"))
    assert hopeless.detail.endswith("Not waited for: c, d; refused: a (UNAVAILABLE), b (UNAVAILABLE).")
    assert hopeless.answering_ended_early
    cancelled, _ = play(start(), accept("a"), Cancelled())
    assert cancelled.detail.endswith("Not waited for: b, c, d.")
    assert cancelled.answering_ended_early
    expired, _ = play(start(answer_within_s=2 * EXPIRES_AT), accept("a"), Ticked(), now=EXPIRES_AT)
    assert expired.detail.endswith("Silent: b, c, d.")
    assert not expired.answering_ended_early
    everybody, _ = play(start(), *(accept(p) for p in PARTIES))
    assert not everybody.answering_ended_early


def test_a_wait_for_further_parties_ends_when_the_quorum_is_expelled():
    round_, _ = play(start(quorum_wait_s=1.0), accept("a"), accept("b"), accept("c"))
    assert round_.remaining_s(1.0) == 1.0
    round_, _ = play(round_, Expelled(frozenset("c")))
    assert round_.remaining_s(1.0) == 9.0
    round_, _ = play(round_, accept("d"), now=3.0)
    assert round_.phase is Phase.PREPARING


@pytest.mark.parametrize("uploaded", ["", "a", "abd"])
def test_an_attempt_whose_member_is_expelled_is_lost_at_once_and_names_it(uploaded):
    """The cohort's total cannot be without it. Of the others none is named, whoever has not uploaded."""
    round_, _ = play(to_uploading()[0], *(receipt(p) for p in uploaded))
    lost, actions = play(round_, Expelled(frozenset("b")))
    assert (lost.phase, actions) == (Phase.LOST, [DropUploads(1)])
    assert lost.detail == (
        "In attempt 1 of 2 these members of the cohort were removed from the roster: b. "
        "Another attempt asks the others only."
    )
    assert play(to_uploading()[0], Expelled(frozenset("z")))[0].phase is Phase.UPLOADING


def test_an_expulsion_in_the_last_attempt_or_that_leaves_too_few_ends_the_query_and_says_so():
    last, _ = play(to_uploading(max_attempts=1)[0], Expelled(frozenset("b")))
    assert (last.phase, last.code) == (Phase.FAILED, Code.ATTEMPTS_EXHAUSTED)
    assert last.detail.endswith("were removed from the roster: b.")
    few, _ = play(to_uploading()[0], Expelled(frozenset("bc")))
    assert (few.phase, few.code) == (Phase.FAILED, Code.COHORT_TOO_SMALL)
    assert few.detail.endswith("were removed from the roster: b, c. 2 are left and 3 are needed.")


def test_too_few_ready_fail_and_the_missing_are_named():
    round_, _ = play(start(), *(accept(p) for p in PARTIES), ready("a"), ready("d"))
    assert round_.phase is Phase.PREPARING
    round_, _ = play(round_, Ticked(), now=21.0)
    assert (round_.phase, round_.code) == (Phase.FAILED, Code.COHORT_TOO_SMALL)
    assert "2 were ready and 3 are needed. Not ready: b, c." in round_.detail


def test_enough_ready_go_on_at_the_deadline_and_the_late_are_left_out():
    round_, _ = play(start(), *(accept(p) for p in PARTIES), ready("a"), ready("c"), ready("d"))
    round_, _ = play(round_, Ticked(), now=21.0)
    assert round_.cohort == ("a", "c", "d")
    assert round_.party_state("b") is PartyState.LEFT_OUT
    refused(Code.COHORT_EXCLUDED, step, round_, ready("b"), 22.0)
    refused(Code.COHORT_EXCLUDED, step, round_, receipt("b"), 22.0)


def test_the_cohort_is_in_roster_order_within_parties_and_rows():
    in_reverse = [accept(p) for p in reversed(PARTIES)] + [ready(p) for p in reversed(PARTIES)]
    assert play(start(max_parties=3), *in_reverse)[0].cohort == ("a", "b", "c")
    big = [accept("a", 30), accept("b", 60), accept("c", 30), accept("d", 10)]
    assert play(start(), *big, *(ready(p) for p in PARTIES))[0].cohort == ("a", "b", "d")


def test_one_party_of_many_rows_cannot_keep_the_others_out():
    answers = [accept("a", 100), accept("b", 20), accept("c", 20), accept("d", 20)]
    round_, _ = play(start(), *answers, *(ready(p) for p in PARTIES))
    assert round_.cohort == ("b", "c", "d")
    assert round_.party_state("a") is PartyState.LEFT_OUT


def test_rows_beyond_the_query_are_named_where_too_few_fit():
    round_, _ = play(start(), accept("a", 101), accept("b", 50), accept("c", 50), accept("d", 50))
    assert round_.code == Code.COHORT_TOO_SMALL
    assert "Too many rows: a, d" in round_.detail


def test_a_lost_upload_starts_the_next_attempt_and_the_last_one_names_the_missing():
    round_, _ = play(to_uploading()[0], receipt("a"), receipt("b"))
    second, actions = play(round_, Ticked(), Retried(2), now=31.0)
    assert (second.attempt, second.phase, second.deadline) == (2, Phase.ANSWERING, 41.0)
    assert actions == [DropUploads(1)]
    refused(Code.ATTEMPT_MISMATCH, step, second, accept("a"), 32.0)
    second, _ = play(second, *(accept(p, attempt=2) for p in PARTIES), *(ready(p, 2) for p in PARTIES), now=32.0)
    second, _ = play(second, receipt("a", 2), receipt("c", 2), receipt("d", 2), now=33.0)
    failed, _ = play(second, Ticked(), now=62.0)
    assert (failed.phase, failed.code) == (Phase.FAILED, Code.ATTEMPTS_EXHAUSTED)
    assert "these did not finish: b." in failed.detail


def lost_round():
    round_, _ = play(to_uploading()[0], receipt("a"), receipt("b"))
    return play(round_, Ticked(), now=31.0)


def test_a_lost_attempt_waits_for_the_learner_s_retry():
    lost, actions = lost_round()
    assert (lost.attempt, lost.phase, lost.deadline) == (1, Phase.LOST, EXPIRES_AT)
    assert actions == [DropUploads(1)]
    assert lost.detail == "In attempt 1 of 2 these did not finish: c, d."
    assert play(lost, Ticked(), now=EXPIRES_AT - 1) == (lost, [])
    refused(Code.PHASE_MISMATCH, step, lost, receipt("c"), 32.0)
    second, actions = play(lost, Retried(2), now=500.0)
    assert (second.attempt, second.phase, second.deadline, actions) == (2, Phase.ANSWERING, 510.0, [])
    fresh = (second.answers, second.ready, second.cohort, second.receipts, second.detail)
    assert not any(fresh)
    assert step(second, Retried(2), 501.0) == (second, ())


def test_a_retry_fits_only_the_attempt_after_a_lost_one():
    for round_ in (start(), to_uploading()[0]):
        for attempt in (1, 2):
            refused(Code.PHASE_MISMATCH, step, round_, Retried(attempt), 1.0)
    lost, _ = lost_round()
    for attempt in (0, 1, 3):
        refused(Code.ATTEMPT_MISMATCH, step, lost, Retried(attempt), 32.0)
    cancelled, _ = play(lost, Cancelled(), now=32.0)
    refused(Code.QUERY_CLOSED, step, cancelled, Retried(2), 33.0)


def test_a_lost_attempt_without_a_decision_expires_and_the_last_attempt_is_not_waited_for():
    lost, _ = lost_round()
    expired, _ = play(lost, Ticked(), now=EXPIRES_AT)
    assert (expired.phase, expired.code) == (Phase.FAILED, Code.QUERY_EXPIRED)
    only, _ = play(to_uploading(max_attempts=1)[0], Ticked(), now=31.0)
    assert (only.phase, only.code) == (Phase.FAILED, Code.ATTEMPTS_EXHAUSTED)


def test_repeated_statements_change_nothing_in_any_phase():
    round_, _ = play(start(), accept("a"))
    assert step(round_, accept("a"), 1.0) == (round_, ())
    refused(Code.ANSWER_CONFLICT, step, round_, accept("a", digest="other"), 1.0)
    uploading, _ = to_uploading()
    complete, _ = play(uploading, *(receipt(p) for p in PARTIES), Added(1))
    for late in (uploading, complete):
        assert step(late, accept("a"), 1.0) == (late, ())
        assert step(late, ready("a"), 1.0) == (late, ())
        refused(Code.ANSWER_CONFLICT, step, late, accept("a", digest="other"), 1.0)
    assert step(complete, receipt("a"), 1.0) == (complete, ())
    refused(Code.ANSWER_CONFLICT, step, complete, receipt("a", digest="other"), 1.0)
    assert step(complete, Added(1), 1.0) == (complete, ())
    assert step(complete, Ticked(), 10_000.0) == (complete, ())


def test_a_party_that_gives_up_is_not_waited_for():
    """It accepted, and refuses before the cohort is fixed: the others go on, or the query ends at once."""
    round_, _ = play(start(), *(accept(p) for p in PARTIES), ready("a"))
    assert round_.phase is Phase.PREPARING
    fewer, _ = play(round_, refuse("a"))
    assert (fewer.phase, fewer.party_state("a"), fewer.ready) == (Phase.PREPARING, PartyState.REFUSED, frozenset())
    # It cannot come back, and repeating itself changes nothing.
    assert step(fewer, refuse("a"), 2.0) == (fewer, ())
    refused(Code.ANSWER_CONFLICT, step, fewer, accept("a"), 2.0)
    refused(Code.ANSWER_CONFLICT, step, fewer, ready("a"), 2.0)
    without, _ = play(fewer, *(ready(p) for p in "bcd"))
    assert without.cohort == ("b", "c", "d")
    # Two of the others are still at work, but no cohort of three is possible any more.
    failed, actions = play(fewer, refuse("b"))
    assert (failed.phase, failed.code) == (Phase.FAILED, Code.COHORT_TOO_SMALL)
    assert "Refused: a (UNAVAILABLE), b (UNAVAILABLE)" in failed.detail
    assert actions == [DropUploads(1), Finished("COHORT_TOO_SMALL")]


def test_a_party_that_gives_up_while_others_answer_makes_room_for_no_one_else():
    round_, _ = play(start(quorum_wait_s=5.0), accept("a"), accept("b"), accept("c"))
    assert round_.quorum_deadline == 6.0
    round_, _ = play(round_, refuse("c"))
    assert (round_.phase, round_.quorum_deadline) == (Phase.ANSWERING, None)
    round_, _ = play(round_, accept("d"))
    assert (round_.phase, round_.acceptors) == (Phase.PREPARING, ("a", "b", "d"))


def test_a_member_of_the_cohort_that_gives_up_ends_the_attempt():
    uploading, _ = to_uploading()
    lost, actions = play(uploading, receipt("a"), refuse("b"))
    assert (lost.phase, actions) == (Phase.LOST, [DropUploads(1)])
    assert lost.detail == "In attempt 1 of 2 this member of the cohort gave up: b (UNAVAILABLE)."
    assert step(lost, refuse("b"), 2.0) == (lost, ())
    last, _ = play(to_uploading(max_attempts=1)[0], refuse("b"))
    assert (last.phase, last.code) == (Phase.FAILED, Code.ATTEMPTS_EXHAUSTED)
    assert "b (UNAVAILABLE)" in last.detail


def test_who_is_not_waited_for_cannot_give_up():
    uploading, _ = to_uploading()
    refused(Code.ANSWER_CONFLICT, step, play(uploading, receipt("a"))[0], refuse("a"), 1.0)
    left_out, _ = to_uploading(max_parties=3)
    assert left_out.cohort == ("a", "b", "c")
    refused(Code.COHORT_EXCLUDED, step, left_out, refuse("d"), 1.0)
    adding, _ = play(uploading, *(receipt(p) for p in PARTIES))
    refused(Code.PHASE_MISMATCH, step, adding, refuse("a"), 1.0)
    complete, _ = play(adding, Added(1))
    refused(Code.QUERY_CLOSED, step, complete, refuse("a"), 1.0)
    refused(Code.ATTEMPT_MISMATCH, step, uploading, refuse("a", attempt=2), 1.0)


def test_statements_of_strangers_and_refusers_are_rejected():
    refused(Code.QUERY_UNKNOWN, step, start(), accept("z"), 1.0)
    refused(Code.PHASE_MISMATCH, step, start(), ready("a"), 1.0)
    refused(Code.PHASE_MISMATCH, step, start(), receipt("a"), 1.0)
    round_, _ = play(start(), refuse("a"))
    refused(Code.ANSWER_CONFLICT, step, round_, ready("a"), 1.0)


@pytest.mark.parametrize("events", [[], [accept("a")], [*(accept(p) for p in PARTIES)]], ids=len)
def test_cancelling_and_expiring_end_any_phase(events):
    round_, _ = play(start(), *events)
    cancelled, _ = play(round_, Cancelled())
    assert (cancelled.phase, cancelled.code) == (Phase.FAILED, Code.CANCELLED)
    assert cancelled.detail.startswith(f"It was in phase {round_.phase.name.lower()} of attempt 1.")
    assert step(cancelled, Cancelled(), 2.0) == (cancelled, ())
    refused(Code.QUERY_CLOSED, step, cancelled, ready("b"), 2.0)
    expired, _ = play(round_, Ticked(), now=EXPIRES_AT)
    assert (expired.phase, expired.code) == (Phase.FAILED, Code.QUERY_EXPIRED)
    refused(Code.QUERY_CLOSED, step, expired, Cancelled(), 2000.0)


def test_adding_ends_by_success_damage_or_the_querys_end():
    adding, _ = play(to_uploading()[0], *(receipt(p) for p in PARTIES))
    assert adding.deadline == EXPIRES_AT
    assert step(adding, Ticked(), EXPIRES_AT - 1) == (adding, ())
    assert step(adding, Added(2), 1.0) == (adding, ())
    assert play(adding, Ticked(), now=EXPIRES_AT)[0].code == Code.QUERY_EXPIRED
    failed, _ = play(adding, AddingFailed(1, "The disk ate it."))
    assert (failed.code, failed.detail) == (Code.INTERNAL, "The disk ate it.")
    assert step(failed, AddingFailed(1, "again"), 1.0) == (failed, ())


def test_rules_that_no_roster_can_meet_are_refused():
    refused(Code.QUERY_INVALID, replace, RULES, parties=("a", "b"))
    refused(Code.QUERY_INVALID, replace, RULES, cohort_min=0)
    refused(Code.QUERY_INVALID, replace, RULES, parties=("a", "a", "b", "c"))


@pytest.mark.parametrize(
    "damage",
    [
        {"attempt": 3},
        {"cohort": ("a", "b")},
        {"ready": frozenset("z")},
        {"pending": frozenset("z")},
        {"quorum_deadline": 5.0},
        {"receipts": {"z": "x"}},
        {"phase": Phase.ANSWERING},
        {"phase": Phase.COMPLETE},
        {"code": "INTERNAL"},
        {"deadline": float("nan")},
    ],
    ids=str,
)
def test_a_contradictory_round_cannot_be_constructed(damage):
    round_, _ = to_uploading()
    with pytest.raises(ValueError, match="contradicts"):
        replace(round_, **damage)


parties = st.sampled_from((*PARTIES, "z"))
attempts = st.integers(0, 3)
digests = st.sampled_from(("x", "y"))
events = st.one_of(
    st.builds(
        lambda a, p, d, r: Answered(a, p, PartyAnswer(d, rows=r)), attempts, parties, digests, st.integers(1, 120)
    ),
    st.builds(lambda a, p: Answered(a, p, PartyAnswer("no", code="UNAVAILABLE")), attempts, parties),
    st.builds(BecamePending, attempts, parties),
    st.builds(BecameReady, attempts, parties),
    st.builds(ReceiptGiven, attempts, parties, digests),
    st.builds(Added, attempts),
    st.builds(AddingFailed, attempts, st.just("why")),
    st.builds(Retried, attempts),
    st.just(Ticked()),
    st.just(Cancelled()),
)


def whole_way(attempt):
    """Events of honest parties, in one of the possible orders."""
    return [
        *(accept(p, attempt=attempt) for p in PARTIES),
        *(ready(p, attempt) for p in PARTIES),
        *(receipt(p, attempt) for p in PARTIES),
        Added(attempt),
    ]


def weave(order, dropped, noise):
    """An honest sequence, slightly out of order, with events lost and others (also repeats) inserted anywhere."""
    steps = [event for at, event in enumerate(order) if at not in dropped]
    for at, event in noise:
        steps.insert(at % (len(steps) + 1), event)
    return steps


courses = st.builds(
    weave,
    st.sampled_from(
        [
            whole_way(1),
            [*whole_way(1)[:-2], *[Ticked()] * 2, *whole_way(2)],
            [*whole_way(1)[:-2], *[Ticked()] * 2, Retried(2), *whole_way(2)],
            whole_way(1)[::-1],
        ]
    ),
    st.sets(st.integers(0, 24), max_size=3),
    st.lists(st.tuples(st.integers(0, 40), events), max_size=12),
)


@settings(max_examples=examples(80, 400), deadline=None)
@given(
    st.one_of(courses, st.lists(events, max_size=30)),
    st.lists(st.sampled_from([0.0, 0.5, 4.0, 31.0]), min_size=1),
    st.sampled_from([None, 2.0, 1000.0]),
)
@example(whole_way(1), [0.1], None)
@example([*whole_way(1)[:-2], Ticked(), Retried(2), *whole_way(2)], [0.0] * 11 + [31.0] + [0.0] * 20, 2.0)
def test_no_list_of_events_breaks_a_round(course, pauses, quorum_wait_s):
    round_, now = start(quorum_wait_s=quorum_wait_s), 0.0
    cohorts: dict[int, tuple[str, ...]] = {}
    finished: list[str] = []
    for number, event in enumerate(course):
        now += pauses[number % len(pauses)]
        before = round_
        try:
            round_, actions = step(round_, event, now)
        except WireError:
            continue
        check_step(before, round_, event, now)
        for action in actions:
            if isinstance(action, FixCohort):
                assert action.attempt not in cohorts, "a cohort is fixed once per attempt"
                cohorts[action.attempt] = action.members
            elif isinstance(action, Finished):
                finished.append(action.code)
        again = Round.from_dict(round_.to_dict(now), now=now, expires_at=EXPIRES_AT)
        assert (again.quorum_deadline is None) == (round_.quorum_deadline is None)
        assert replace(again, deadline=round_.deadline, quorum_deadline=round_.quorum_deadline) == round_
        assert again.remaining_s(now) == pytest.approx(round_.remaining_s(now))
    assert len(finished) == round_.phase.is_terminal
    # Time alone ends every remaining phase.
    for _ in range(20):
        now = max(now, round_.ends_at)
        round_, _ = step(round_, Ticked(), now)
    assert round_.phase.is_terminal


def check_step(before: Round, after: Round, event, now: float) -> None:
    if before.phase.is_terminal:
        assert after is before, "terminal phases never leave"
    assert after.attempt in (before.attempt, before.attempt + 1)
    if after.attempt > before.attempt:
        assert event == Retried(after.attempt), "only the learner starts another attempt"
    if after.attempt == before.attempt:
        for party, answer in before.answers.items():
            is_withdrawn = not (answer.code or before.cohort) and bool(after.answers[party].code)
            assert is_withdrawn or after.answers[party] == answer, "an answer changes only by a refusal"
        assert before.receipts.items() <= after.receipts.items()
        assert before.pending <= after.pending
        assert before.cohort in ((), after.cohort), "a cohort never changes"
    if isinstance(event, Ticked):
        assert after.phase.is_terminal or now < after.ends_at, "every state has an end"
    if after.cohort:
        assert len(set(after.cohort)) == len(after.cohort)
        assert RULES.cohort_min <= len(after.cohort) <= RULES.max_parties
        assert sum(after.answers[p].rows for p in after.cohort) <= RULES.max_rows
    repeat = step(after, event, now) if after is not before and isinstance(event, Answered) else None
    if repeat is not None and after.attempt == event.attempt:
        assert repeat == (after, ())


def test_a_cohort_that_has_become_impossible_is_not_awaited():
    """Four parties, three needed: one may refuse, the second refusal ends it, with any silent parties."""
    round_, _ = play(start(), accept("a"), refuse("b"))
    assert round_.phase is Phase.ANSWERING
    round_, _ = play(round_, refuse("c"))
    assert (round_.phase, round_.code) == (Phase.FAILED, Code.COHORT_TOO_SMALL)
    for name in ("b", "c", "d"):
        assert name in round_.detail


@pytest.mark.parametrize(
    "change",
    [
        lambda round_: {"expires_at": float("inf")},
        lambda round_: {"deadline": float("nan")},
        lambda round_: {"answers": {**round_.answers, "stranger": PartyAnswer("yes", rows=1)}},
        lambda round_: {"ready": round_.ready | {"stranger"}},
        lambda round_: {"ready": round_.ready - {"a"}},
        lambda round_: {"cohort": ("a", "b", "b")},
        lambda round_: {"answers": {**round_.answers, "a": PartyAnswer("yes", rows=RULES.max_rows)}},
    ],
    ids=["expiry", "deadline", "stranger", "stranger ready", "not ready", "twice", "rows"],
)
def test_a_round_that_contradicts_itself_is_not_made(change):
    """As from a damaged store."""
    round_, _ = to_uploading()
    with pytest.raises(ValueError, match="contradicts itself"):
        replace(round_, **change(round_))


def test_a_question_ends_with_the_answers_and_has_no_cohort():
    """Of all, or at the end of its time; also if too many refused for a cohort."""
    rules = replace(RULES, only_asks=True)
    round_ = begin(rules, now=0.0, expires_at=1000.0)
    answers = [PartyAnswer("1", code="POLICY_DESIGN"), *(PartyAnswer(str(place), rows=5) for place in (2, 3))]
    for party, answer in zip(rules.parties[:3], answers, strict=True):
        round_, actions = step(round_, Answered(1, party, answer), 1.0)
    if len(rules.parties) > 3:
        assert (round_.phase, actions) == (Phase.ANSWERING, ())
        round_, actions = step(round_, Ticked(), rules.answer_within_s + 1.0)
    assert (round_.phase, round_.code) == (Phase.FAILED, Code.ONLY_ASKED.value)
    assert Finished(Code.ONLY_ASKED.value) in actions
    assert f"2 of {len(rules.parties)} would accept" in round_.detail
