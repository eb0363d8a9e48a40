"""The life of a query as a pure state machine: a round and an event in, the next round and actions out.

    ANSWERING --all answered, or time--> PREPARING --all acceptors ready, or time--> UPLOADING
    UPLOADING --all receipts--> ADDING --added--> COMPLETE
    ANSWERING --too many refused for a cohort--> FAILED
    UPLOADING --time--> LOST, or FAILED after the last attempt
    UPLOADING --all receipts, or time and enough, if members may vanish--> UNMASKING
    UNMASKING --all unmaskings, or time and enough--> ADDING
    UNMASKING --time--> LOST, or FAILED after the last attempt
    LOST --the learner's signed retry--> ANSWERING of the next attempt

If a restored coordinator has receipts without uploads, ADDING and UNMASKING go back to UPLOADING.

If members may vanish, the sharing is fixed with the end of ANSWERING: nobody else is in a cohort. The survivors are
fixed with the end of UPLOADING, for good: members unmask one set.

A member that the roster no longer lists ends an attempt at once, unless enough others may finish without it, or it has
nothing more to do.

A party that accepted may still refuse, until it has given its receipt. Before the cohort is fixed it then counts as
refusing; afterwards the attempt ends as if its time had passed.

A query may limit how long its first two phases wait for further parties once there are enough for a cohort. A party
that is left out by this was not late.

Any phase before COMPLETE may end in FAILED: too few parties, cancelled, expired. Every phase that is not terminal has a
deadline, at latest the query's expiry. This module reads no clock, file or network: `now`, deadlines and `expires_at`
are seconds on one monotonic clock of the caller.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from coordinator.events import (
    Action,
    Added,
    AddingFailed,
    Answered,
    BecamePending,
    BecameReady,
    Cancelled,
    DropUploads,
    Event,
    Expelled,
    Finished,
    FixCohort,
    KeysShared,
    PartyAnswer,
    PartyEvent,
    ReceiptGiven,
    Retried,
    StartAdding,
    Ticked,
    UnmaskingGiven,
    UploadsLost,
)
from coordinator.round_state import OPEN_COHORT, Round, Rules
from wire.errors import Code, WireError
from wire.status import PartyState, Phase

# Once enough survivors have unmasked, the others are waited for so long: a learner that gets more shares than it needs
# can do without one that is wrong.
UNMASKING_GRACE_S = 2.0

Outcome = tuple[Round, tuple[Action, ...]]


def begin(rules: Rules, *, now: float, expires_at: float) -> Round:
    """The round of a newly accepted query."""
    return Round(rules, expires_at=expires_at, deadline=now + rules.answer_within_s)


def step(round_: Round, event: Event, now: float) -> Outcome:
    """The round after an event, and its actions. A repeated statement gives the same round object and no action.

    Raises WireError, and changes nothing, if the event does not fit: QUERY_CLOSED, ATTEMPT_MISMATCH, PHASE_MISMATCH,
    ANSWER_CONFLICT or COHORT_EXCLUDED.
    """
    match event:
        case Answered() | BecamePending() | KeysShared() | BecameReady() | ReceiptGiven() | UnmaskingGiven():
            outcome = _stated(round_, event, now)
        case UploadsLost(attempt, parties):
            outcome = _uploads_lost(round_, attempt, parties, now), ()
        case Added(attempt):
            outcome = _added(round_, attempt)
        case AddingFailed(attempt, detail):
            at_work = round_.phase is Phase.ADDING and attempt == round_.attempt
            outcome = _fail(round_, Code.INTERNAL, detail) if at_work else (round_, ())
        case Cancelled():
            outcome = _cancelled(round_, now)
        case Retried(attempt):
            outcome = _retried(round_, attempt, now)
        case Expelled(parties):
            outcome = _expelled(round_, parties, now)
        case Ticked():
            outcome = _ticked(round_, now)
    return outcome


def _stated(before: Round, event: PartyEvent, now: float) -> Outcome:
    match event:
        case Answered() if _gives_up(before, event):
            return _gave_up(before, event, now)
        case Answered():
            after = _answered(before, event)
        case BecamePending():
            after = _became_pending(before, event)
        case KeysShared():
            after = _given(before, event, "shared", before.acceptors, Phase.PREPARING)
        case BecameReady():
            after = _became_ready(before, event)
        case ReceiptGiven():
            after = _given(before, event, "receipts", before.awaited, Phase.UPLOADING, Phase.ADDING)
        case UnmaskingGiven():
            # Also once it is no longer waited for: it may replace a wrong one.
            after = _given(before, event, "unmaskings", before.survivors, Phase.UNMASKING, Phase.ADDING)
    return (before, ()) if after is before else _settle(after, now)


def _check_open(round_: Round, attempt: int) -> None:
    if round_.phase.is_terminal:
        raise WireError(Code.QUERY_CLOSED)
    if attempt != round_.attempt:
        raise WireError(Code.ATTEMPT_MISMATCH, f"Attempt {round_.attempt} is running.")


def _check_phase(round_: Round, *phases: Phase) -> None:
    if round_.phase not in phases:
        raise WireError(Code.PHASE_MISMATCH, f"It is in phase {round_.phase.word}.")


def _answered(round_: Round, event: Answered) -> Round:
    if event.party not in round_.rules.parties:
        raise WireError(Code.QUERY_UNKNOWN)
    before = round_.answers.get(event.party) if event.attempt == round_.attempt else None
    if before is not None:
        if before.digest != event.answer.digest:
            raise WireError(Code.ANSWER_CONFLICT)
        return round_
    _check_open(round_, event.attempt)
    _check_phase(round_, Phase.ANSWERING)
    return replace(round_, answers={**round_.answers, event.party: event.answer})


def _gives_up(round_: Round, event: Answered) -> bool:
    """Whether a party refuses an attempt that it accepted."""
    return event.attempt == round_.attempt and not event.answer.accepted and event.party in round_.acceptors


def _gave_up(round_: Round, event: Answered, now: float) -> Outcome:
    """Raises WireError(QUERY_CLOSED, PHASE_MISMATCH or ANSWER_CONFLICT) once nothing is waited for from the party."""
    if round_.phase is Phase.LOST:
        return round_, ()
    _check_open(round_, event.attempt)
    _check_phase(round_, *OPEN_COHORT, Phase.UPLOADING)
    if not round_.cohort:
        answers = {**round_.answers, event.party: event.answer}
        return _settle(replace(round_, answers=answers, ready=round_.ready - {event.party}), now)
    if event.party not in round_.cohort:
        raise WireError(Code.COHORT_EXCLUDED)
    if event.party in round_.receipts:
        raise WireError(Code.ANSWER_CONFLICT, "The party has uploaded everything.")
    if round_.rules.may_vanish and not round_.survivors:
        if event.party in round_.gone:
            return round_, ()
        if len(round_.awaited) > round_.needed:
            return _settle(replace(round_, gone=round_.gone | {event.party}), now)
    return _end_attempt(round_, gave_up={event.party: event.answer.code})


def _became_pending(round_: Round, event: BecamePending) -> Round:
    """No answer, so it ends no phase and extends none."""
    if event.party not in round_.rules.parties:
        raise WireError(Code.QUERY_UNKNOWN)
    if event.attempt == round_.attempt and event.party in round_.pending:
        return round_
    _check_open(round_, event.attempt)
    if event.party in round_.answers:
        raise WireError(Code.ANSWER_CONFLICT)
    _check_phase(round_, Phase.ANSWERING)
    return replace(round_, pending=round_.pending | {event.party})


def _given(
    round_: Round,
    event: KeysShared | ReceiptGiven | UnmaskingGiven,
    what: str,
    members: Collection[str],
    *phases: Phase,
) -> Round:
    """The round with what a member gives in one of these phases, once. what: the field that keeps the digests."""
    given: Mapping[str, str] = getattr(round_, what)
    before = given.get(event.party) if event.attempt == round_.attempt else None
    if before is not None:
        if before != event.digest:
            raise WireError(Code.ANSWER_CONFLICT)
        return round_
    _check_open(round_, event.attempt)
    _check_phase(round_, *phases)
    if event.party not in members:
        raise WireError(Code.COHORT_EXCLUDED)
    changed: dict[str, Any] = {what: {**given, event.party: event.digest}}
    return replace(round_, **changed)


def _became_ready(round_: Round, event: BecameReady) -> Round:
    if event.attempt == round_.attempt and event.party in round_.ready:
        return round_
    _check_open(round_, event.attempt)
    answer = round_.answers.get(event.party)
    if answer is None:
        raise WireError(Code.PHASE_MISMATCH, "The party has not accepted.")
    if not answer.accepted:
        raise WireError(Code.ANSWER_CONFLICT, "The party refused.")
    if round_.cohort or (round_.sharing and event.party not in round_.sharing):
        raise WireError(Code.COHORT_EXCLUDED)
    if round_.rules.may_vanish and event.party not in round_.shared:
        raise WireError(Code.PHASE_MISMATCH, "The party has not dealt shares of its keys.")
    return replace(round_, ready=round_.ready | {event.party})


def _uploads_lost(round_: Round, attempt: int, parties: frozenset[str], now: float) -> Round:
    """These parties upload again, the same bytes, and have as much time for it as the cohort had at first."""
    lost = parties & set(round_.receipts)
    if (
        not lost
        or attempt != round_.attempt
        or round_.phase
        not in (
            Phase.UPLOADING,
            Phase.UNMASKING,
            Phase.ADDING,
        )
    ):
        return round_
    receipts = {party: digest for party, digest in round_.receipts.items() if party not in lost}
    deadline = now + round_.rules.upload_within_s
    return replace(round_, phase=Phase.UPLOADING, receipts=receipts, deadline=deadline, quorum_deadline=None)


def _added(round_: Round, attempt: int) -> Outcome:
    if round_.phase is not Phase.ADDING or attempt != round_.attempt:
        return round_, ()
    return replace(round_, phase=Phase.COMPLETE), (DropUploads(attempt), Finished(""))


def _retried(round_: Round, attempt: int, now: float) -> Outcome:
    if attempt == round_.attempt and attempt > 1:
        return round_, ()
    if round_.phase.is_terminal:
        raise WireError(Code.QUERY_CLOSED)
    if round_.phase is not Phase.LOST:
        raise WireError(Code.PHASE_MISMATCH, f"It is in phase {round_.phase.word}, so there is nothing to retry.")
    if attempt != round_.attempt + 1:
        raise WireError(Code.ATTEMPT_MISMATCH, f"Attempt {round_.attempt} was lost.")
    following = begin(round_.rules, now=now, expires_at=round_.expires_at)
    return replace(following, attempt=attempt), ()


def _expelled(round_: Round, parties: frozenset[str], now: float) -> Outcome:
    """Before the cohort is fixed, removed parties count as refusing. Afterwards nothing more comes of them.

    An attempt with one of them is lost, as no other party that has the newer roster would upload for its cohort. If
    members may vanish, it vanished, although it uploaded: the others go on that have the roster with which they dealt.
    """
    match round_.phase:
        case Phase.ANSWERING | Phase.PREPARING:
            answers = round_.answers
            left = {p for p in parties & set(round_.rules.parties) if p not in answers or answers[p].accepted}
            if not left:
                return round_, ()
            refusal = PartyAnswer("", code=Code.PEER_UNKNOWN.value)
            remaining = replace(round_, answers={**answers, **dict.fromkeys(left, refusal)}, ready=round_.ready - left)
            return _settle(remaining, now)
        case Phase.UPLOADING | Phase.UNMASKING if round_.survivors:
            return _without_removed_survivors(round_, parties)
        case Phase.UPLOADING if removed := [party for party in round_.awaited if party in parties]:
            if not round_.rules.may_vanish or len(round_.awaited) - len(removed) < round_.needed:
                return _end_attempt(round_, removed=parties)
            receipts = {party: digest for party, digest in round_.receipts.items() if party not in parties}
            return _settle(replace(round_, gone=round_.gone | set(removed), receipts=receipts), now)
        case _:
            return round_, ()


def _without_removed_survivors(round_: Round, parties: frozenset[str]) -> Outcome:
    """Of whom the total is, members are bound to. What a removed one has sent is used, and no more comes of it."""
    removed = [party for party in round_.survivors if party in parties]
    has_all = all(party in round_.receipts for party in removed)
    able = [party for party in round_.survivors if party not in parties or party in round_.unmaskings]
    if has_all and len(able) >= round_.needed:
        return round_, ()
    return _end_attempt(round_, removed=parties)


def _cancelled(round_: Round, now: float) -> Outcome:
    if round_.code == Code.CANCELLED:
        return round_, ()
    if round_.phase.is_terminal:
        raise WireError(Code.QUERY_CLOSED)
    detail = f"It was in phase {round_.phase.word} of attempt {round_.attempt}. {_standing(round_, now)}".strip()
    return _fail(replace(round_, answering_ended_early=_is_cut_short(round_, now)), Code.CANCELLED, detail)


def _ticked(round_: Round, now: float) -> Outcome:
    if round_.phase.is_terminal or now < round_.ends_at:
        return round_, ()
    if now >= round_.expires_at:
        detail = f"It was in phase {round_.phase.word}. {_standing(round_, now)}".strip()
        return _fail(round_, Code.QUERY_EXPIRED, detail)
    match round_.phase:
        case Phase.ANSWERING:
            outcome = _then_settle(_end_answering(round_, now), now)
        case Phase.PREPARING:
            outcome = _end_preparing(round_, now)
        case Phase.UPLOADING if _has_survivors(round_):
            outcome = _then_settle(_begin_unmasking(round_, now), now)
        case Phase.UNMASKING if len(round_.unmaskings) >= round_.needed:
            outcome = _begin_adding(round_)
        case _:  # ADDING has no deadline except the query's expiry
            outcome = _end_attempt(round_)
    return outcome


def _settle(round_: Round, now: float) -> Outcome:
    """End a phase early if it has everything that it waits for. Otherwise limit the wait if there is a quorum."""
    match round_.phase:
        case Phase.ANSWERING if len(round_.answers) == len(round_.rules.parties) or (
            _is_hopeless(round_) and not round_.rules.only_asks
        ):
            outcome = _then_settle(_end_answering(round_, now), now)
        case Phase.PREPARING if (possible := len(_choose(round_, round_.acceptors))) < round_.needed:
            outcome = _too_small(round_, possible, "could take part", now)
        case Phase.PREPARING if round_.ready.issuperset(round_.acceptors):
            outcome = _end_preparing(round_, now)
        case Phase.UPLOADING if round_.receipts.keys() >= set(round_.awaited):
            begun = _begin_unmasking(round_, now) if round_.rules.may_vanish else _begin_adding(round_)
            outcome = _then_settle(begun, now)
        case Phase.UNMASKING if len(round_.unmaskings) == len(round_.survivors):
            outcome = _begin_adding(round_)
        case Phase.UNMASKING:
            outcome = _at_quorum(round_, now + UNMASKING_GRACE_S), ()
        case Phase.ANSWERING | Phase.PREPARING | Phase.UPLOADING if round_.rules.quorum_wait_s is not None:
            outcome = _at_quorum(round_, now + round_.rules.quorum_wait_s), ()
        case _:
            outcome = round_, ()
    return outcome


def _begin_adding(round_: Round) -> Outcome:
    adding = replace(round_, phase=Phase.ADDING, deadline=round_.expires_at, quorum_deadline=None)
    return adding, (StartAdding(round_.attempt),)


def _has_survivors(round_: Round) -> bool:
    """Whether those that have uploaded are enough for a total without the others."""
    is_open = round_.rules.may_vanish > 0 and not round_.survivors
    return is_open and len(round_.receipts) >= round_.needed


def _begin_unmasking(round_: Round, now: float) -> Outcome:
    survivors = round_.survivors or tuple(party for party in round_.cohort if party in round_.receipts)
    deadline = now + round_.rules.upload_within_s
    unmasking = replace(round_, phase=Phase.UNMASKING, survivors=survivors, deadline=deadline, quorum_deadline=None)
    return unmasking, ()


def _at_quorum(round_: Round, until: float) -> Round:
    """The round with a deadline for further parties, from the moment that there are enough for a cohort.

    It does not move when more come, and it ends if so many are expelled that there are too few again.
    """
    match round_.phase:
        case Phase.UPLOADING:
            enough = _has_survivors(round_)
        case Phase.UNMASKING:
            enough = len(round_.unmaskings) >= round_.needed
        case _:
            candidates = round_.acceptors if round_.phase is Phase.ANSWERING else _ready_acceptors(round_)
            enough = len(_choose(round_, candidates)) >= round_.needed
    if enough == (round_.quorum_deadline is not None):
        return round_
    return replace(round_, quorum_deadline=until if enough else None)


def _is_hopeless(round_: Round) -> bool:
    """Whether so many parties refused that a cohort is impossible for any answers of the silent parties."""
    refused = len(round_.answers) - len(round_.acceptors)
    return len(round_.rules.parties) - refused < round_.rules.cohort_min


def _then_settle(outcome: Outcome, now: float) -> Outcome:
    round_, actions = outcome
    settled, more = _settle(round_, now)
    return settled, actions + more


def _end_answering(round_: Round, now: float) -> Outcome:
    if round_.rules.only_asks:
        return _fail(
            round_, Code.ONLY_ASKED, f"{len(round_.acceptors)} of {len(round_.rules.parties)} would accept it."
        )
    ended = replace(round_, answering_ended_early=_is_cut_short(round_, now), quorum_deadline=None)
    possible = len(_choose(ended, ended.acceptors))
    if possible < ended.rules.cohort_min:
        return _too_small(ended, possible, "could take part", now)
    sharing = _choose(ended, ended.acceptors) if ended.rules.may_vanish else ()
    deadline = now + ended.rules.prepare_within_s
    return replace(ended, phase=Phase.PREPARING, deadline=deadline, sharing=sharing), ()


def _is_cut_short(round_: Round, now: float) -> bool:
    """Whether a party that has not answered by now had, or has, no time for it."""
    if round_.phase is not Phase.ANSWERING:
        return round_.answering_ended_early
    had_time = now >= min(round_.deadline, round_.expires_at)
    return not had_time and len(round_.answers) < len(round_.rules.parties)


def _ready_acceptors(round_: Round) -> list[str]:
    return [party for party in round_.acceptors if party in round_.ready]


def _end_preparing(round_: Round, now: float) -> Outcome:
    cohort = _choose(round_, _ready_acceptors(round_))
    if len(cohort) < round_.needed:
        return _too_small(round_, len(cohort), "were ready", now)
    deadline = now + round_.rules.upload_within_s
    uploading = replace(
        round_, phase=Phase.UPLOADING, cohort=cohort, deadline=deadline, quorum_deadline=None, receipts={}
    )
    return uploading, (FixCohort(round_.attempt, cohort),)


def _end_attempt(
    round_: Round, gave_up: Mapping[str, str] | None = None, *, removed: frozenset[str] = frozenset()
) -> Outcome:
    """End an attempt without a total. Without these arguments its time has passed.

    gave_up: code of the refusal by which a member of the cohort ended it. removed: the parties that a newer roster no
    longer lists, if members among them ended it. A query that has too few others fails, as no attempt could succeed.
    """
    detail = f"In attempt {round_.attempt} of {round_.rules.max_attempts} {_ended_by(round_, gave_up, removed)}."
    needed, left = round_.rules.cohort_min, len(set(round_.rules.parties) - removed)
    if removed and left < needed:
        return _fail(round_, Code.COHORT_TOO_SMALL, f"{detail} {left} are left and {needed} are needed.")
    if round_.attempt == round_.rules.max_attempts:
        return _fail(round_, Code.ATTEMPTS_EXHAUSTED, detail)
    if removed:
        detail += " Another attempt asks the others only."
    lost = replace(round_, phase=Phase.LOST, deadline=round_.expires_at, detail=detail, quorum_deadline=None)
    return lost, (DropUploads(round_.attempt),)


def _ended_by(round_: Round, gave_up: Mapping[str, str] | None, removed: frozenset[str]) -> str:
    """Who ended an attempt, and how. As `_end_attempt`."""
    if removed:
        names = _list(party for party in round_.cohort if party in removed)
        return f"these members of the cohort were removed from the roster: {names}"
    if gave_up is not None:
        refusals = _list(f"{party} ({code})" for party, code in gave_up.items())
        return f"this member of the cohort gave up: {refusals}"
    done = round_.unmaskings if round_.phase is Phase.UNMASKING else round_.receipts
    missing = _list(party for party in round_.survivors or round_.cohort if party not in done)
    return f"these did not finish: {missing}"


def _choose(round_: Round, candidates: Iterable[str]) -> tuple[str, ...]:
    """The cohort from these candidates, in the roster's order: the first within max_parties and max_rows.

    If that gives too few, chooses the smallest parties first: otherwise one party could exclude the others with a row
    count that fills the query.
    """
    rules, in_order = round_.rules, tuple(candidates)

    def fitting(order: Iterable[str]) -> tuple[str, ...]:
        chosen: set[str] = set()
        rows = 0
        for party in order:
            more = round_.answers[party].rows
            if len(chosen) < rules.max_parties and rows + more <= rules.max_rows:
                chosen.add(party)
                rows += more
        return tuple(party for party in in_order if party in chosen)

    cohort = fitting(in_order)
    if len(cohort) < rules.cohort_min:
        cohort = fitting(sorted(in_order, key=lambda party: round_.answers[party].rows))
    return cohort


def _too_small(round_: Round, possible: int, what: str, now: float) -> Outcome:
    detail = f"{possible} {what} and {round_.needed} are needed. {_standing(round_, now)}"
    return _fail(round_, Code.COHORT_TOO_SMALL, detail)


def _standing(round_: Round, now: float) -> str:
    """The missing parties, by name. Silent is only who had the whole time to answer."""
    if round_.cohort:
        groups = {"not uploaded": [party for party in round_.cohort if party not in round_.receipts]}
    else:
        able = _choose(round_, round_.acceptors)
        groups = {
            "not waited for" if _is_cut_short(round_, now) else "silent": _in_state(round_, PartyState.SILENT),
            "waiting for a decision": _in_state(round_, PartyState.PENDING),
            "refused": [f"{party} ({answer.code})" for party, answer in round_.answers.items() if answer.code],
            "not ready": [p for p in able if p not in round_.ready] if round_.phase is Phase.PREPARING else [],
            "too many rows": [party for party in round_.acceptors if party not in able],
        }
    text = "; ".join(f"{name}: {_list(members)}" for name, members in groups.items() if members)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _in_state(round_: Round, state: PartyState) -> list[str]:
    return [party for party in round_.rules.parties if round_.party_state(party) is state]


def _list(names: Iterable[str]) -> str:
    shown = list(names)
    most = 20
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")


def _fail(round_: Round, code: Code, detail: str) -> Outcome:
    failed = replace(round_, phase=Phase.FAILED, code=code.value, detail=detail, quorum_deadline=None)
    return failed, (DropUploads(round_.attempt), Finished(code.value))
