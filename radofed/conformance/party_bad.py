"""What a party must refuse: queries, cohorts and attempts of a hostile learner, coordinator or member."""

import os
import time
from dataclasses import replace
from fractions import Fraction

from rado.v1 import query_pb2
from radofed.conformance.bad_cohorts import bad_cohorts
from radofed.conformance.bad_queries import BadQuery, bad_queries
from radofed.conformance.findings import UnmetError
from radofed.conformance.kit import DELTA, EPSILON, LEARNER, PEERS, STRANGER
from radofed.conformance.party_good import LARGE, Trial
from radofed.conformance.play import Answer, Edit, Play, RefusedError
from wire.envelopes import Envelope, MessageType, SigningKey
from wire.errors import Code
from wire.query import Retry
from wire.roster import Roster
from wire.status import PartyState, Phase

_HOUR_S = 3600


def refuses_queries(trial: Trial) -> None:
    """Bad queries, all at one time. Each is shown among the others, so one that stops a party shows in what follows."""
    plan = trial.plan()
    tried = []
    for bad in bad_queries(trial.kit, trial.asking.key):
        play = trial.play(trial.plan(), bad.edit)
        play.show(Phase.ANSWERING, PartyState.SILENT)
        tried.append((bad, play))
    deadline = time.monotonic() + trial.patience_s
    for bad, play in tried:
        with trial.case(bad.section, f"it refuses {bad.what}") as remarks:
            answer = play.answer(max(0.0, deadline - time.monotonic()))
            remarks.extend(_check_refusal(trial, bad, answer))
        play.end()
    with trial.case("7.1", "a good query that comes with bad ones is answered"):
        good = trial.play(plan)
        good.accepted()
        good.end()


def _check_refusal(trial: Trial, bad: BadQuery, answer: Answer | None) -> list[str]:
    """Remarks on the code. Raises UnmetError unless it is a refusal."""
    if answer is None:
        raise UnmetError(bad.section, f"no Refusal came within {trial.patience_s:g} s, and the others wait for one")
    if answer.refusal is None:
        raise UnmetError(bad.section, "it was accepted")
    return (
        [] if answer.refusal.code in bad.codes else [f"it says {answer.refusal.code}, and {bad.codes[0]} fits better"]
    )


def keeps_silent(trial: Trial) -> None:
    """Queries that no learner of the roster signed: nothing of them may be answered."""
    key = trial.kit.signing_key(LEARNER)
    elsewhere = SigningKey(key._private_key, "elsewhere")  # noqa: SLF001  (the kit's own key)
    plans = [trial.plan() for _ in range(5)]
    payloads = [plan.query.to_bytes() for plan in plans]
    signed = [key.sign(MessageType.QUERY, payload) for payload in payloads]
    broken = signed[0].signature[:-1] + bytes([signed[0].signature[-1] ^ 1])
    swapped = signed[1].signature
    queries = {
        "a signature that does not verify": replace(signed[0], signature=broken),
        "another query's signature": replace(signed[2], signature=swapped),
        "a key that is in no roster": SigningKey.generate(trial.kit.roster.federation).sign(
            MessageType.QUERY, payloads[1]
        ),
        "a party's key": trial.kit.signing_key(PEERS[0]).sign(MessageType.QUERY, payloads[2]),
        "a signature for another federation": elsewhere.sign(MessageType.QUERY, payloads[3]),
        "a signature for another type of message": replace(
            key.sign(MessageType.CANCEL, payloads[4]), payload=payloads[4]
        ),
    }
    for plan, (what, envelope) in zip(
        (plans[0], plans[2], plans[1], plans[2], plans[3], plans[4]), queries.items(), strict=True
    ):
        play = replace(trial.play(plan), envelope=envelope, mask_keys={})
        play.show(Phase.ANSWERING, PartyState.SILENT)
        with trial.case("7.1", f"it answers nothing to a query with {what}"):
            play.seen(trial.quiet_s)
            answer = play.answer(0.0)
            if answer is not None:
                said = "accepted" if answer.refusal is None else f"refused with {answer.refusal.code}"
                raise UnmetError("2", f"it {said} a query that no learner signed")
        play.end()


def keeps_to_its_policy(trial: Trial) -> None:
    """Queries that are well formed, and that the kit's policy does not allow."""
    plan = trial.plan()
    cases = {
        f"it refuses a learner that it has not accepted, {STRANGER}": (_of_stranger(trial), Code.POLICY_LEARNER),
        "it refuses a query for cohorts smaller than its policy's": (
            trial.play(plan, lambda message: _for_two(message)), Code.POLICY_COHORT,  # noqa: PLW0108
        ),
    }  # fmt: skip
    for what, (play, code) in cases.items():
        with trial.case("7.2", what) as remarks:
            play.show(Phase.ANSWERING, PartyState.SILENT)
            answer = play.answer()
            remarks.extend(_check_refusal(trial, BadQuery("7.2", what, lambda _: None, (code,)), answer))
        play.end()


def _for_two(message: query_pb2.Query) -> None:
    message.cohort_min, message.honest_parties = 2, 1


def _of_stranger(trial: Trial) -> Play:
    key = trial.asking.key
    signing_key = trial.kit.signing_key(STRANGER)
    certificate = key.certify(STRANGER, signing_key, with_subgroup=False)

    def by_another(message: query_pb2.Query) -> None:
        message.learner = STRANGER
        message.paillier_key.CopyFrom(certificate.to_proto())

    return trial.play(trial.plan(), by_another, by=STRANGER)


def refuses_cohorts(trial: Trial) -> None:
    """Cohorts that it must not upload for, nor charge."""
    charged_by = ""
    for bad in bad_cohorts():
        play = trial.play(trial.plan(LARGE, others=bad.others), bad.edit)
        what = f"it uploads nothing for a cohort with {bad.what}"
        with trial.case(bad.section, what) as remarks:
            try:
                own = play.accepted()
            except RefusedError as error:
                raise _not_released(error, charged_by) from error
            trial.check_acceptance(play, own)
            play.ready()
            message = play.cohort(bad.change(play, play.acceptances(own)))
            bad.around(message)
            play.show(Phase.UPLOADING, PartyState.UPLOADING, cohort=message)
            play.seen(0.0)
            gave_up = play.refused_later(trial.quiet_s)
            if play.chunks():
                raise UnmetError(bad.section, "it uploaded")
            if not gave_up:
                remarks.append("no Refusal of it came, so the others wait for its time to pass")
        play.end()
        charged_by = what


def _not_released(error: RefusedError, before: str) -> UnmetError:
    if error.code is Code.BUDGET_EXCEEDED and before:
        return UnmetError(
            "7.5", f"the budget is taken, as if the case before were charged or still reserved ({before})"
        )
    return error


def refuses_attempts(trial: Trial) -> None:
    """Attempts that the learner did not sign."""
    learner, wrong = trial.kit.signing_key(LEARNER), trial.kit.signing_key(STRANGER)

    def retries(play: Play) -> dict[str, Envelope | None]:
        query_id = play.query_id
        return {
            "without a Retry": None,
            "with a Retry of another learner": Retry(query_id, LEARNER, 2).sign(wrong),
            "with a Retry of another query": Retry(os.urandom(32), LEARNER, 2).sign(learner),
            "with a Retry of another attempt": Retry(query_id, LEARNER, 3).sign(learner),
        }

    for what in retries(trial.play(trial.plan())):
        play = trial.play(trial.plan())
        with trial.case("7.6", f"it answers nothing to a second attempt {what}") as remarks:
            play.accepted()
            play.end(Phase.LOST)
            play.attempt = 2
            play.retry = retries(play)[what]
            play.show(Phase.ANSWERING, PartyState.SILENT)
            play.seen(trial.quiet_s)
            answer = play.answer(0.0)
            if answer is not None and answer.refusal is None:
                raise UnmetError("7.6", "it accepted: a coordinator could make it pay for attempts")
            if answer is not None:
                remarks.append("it refuses, where nothing is to be answered")
        play.end()


def refuses_rosters(trial: Trial) -> None:
    """Rosters that it must not take: not signed, expired."""
    kit, stage = trial.kit, trial.stage
    nobody = SigningKey.generate(kit.roster.federation)
    newer = replace(kit.roster, version=kit.roster.version + 1)
    now = int(time.time())
    ended = replace(
        kit.roster,
        version=kit.roster.version + 1,
        issued_at_unix_s=now - 2 * _HOUR_S,
        not_after_unix_s=now - _HOUR_S,
    )
    served = {
        "a newer roster that another key signed": (newer.sign(nobody), newer),
        "a roster that has expired": (ended.sign(kit.federation_key), ended),
    }  # fmt: skip
    for what, (envelope, roster) in served.items():
        play = trial.play(trial.plan(), _planned_with(roster))
        stage.roster = envelope
        with trial.case("3", f"it accepts nothing with {what}"):
            play.show(Phase.ANSWERING, PartyState.SILENT)
            answer = play.answer()
            if answer is not None and answer.refusal is None:
                raise UnmetError("3", "it accepted")
        play.end()
    # A version that it has seen stays seen: the next one has to be newer still.
    renewed = replace(kit.roster, version=kit.roster.version + 2)
    stage.roster = renewed.sign(kit.federation_key)
    play = trial.play(trial.plan(), _planned_with(renewed))
    with trial.case("3", "it takes a newer roster that the federation signed, and answers with it"):
        own = play.accepted()
        assert own.acceptance is not None, "it was accepted"
        if own.acceptance.roster_version != renewed.version:
            raise UnmetError(
                "3", f"its acceptance states version {own.acceptance.roster_version}, not {renewed.version}"
            )
    play.end()
    stage.roster = kit.envelope
    ahead = trial.play(trial.plan(), lambda message: setattr(message, "roster_version", 1000))
    ahead.show(Phase.ANSWERING, PartyState.SILENT)
    play = trial.play(trial.plan())
    with trial.case("3", "it goes back to no older roster"):
        ahead.answer()
        own = play.accepted()
        assert own.acceptance is not None, "it was accepted"
        if own.acceptance.roster_version != renewed.version:
            raise UnmetError("3", f"its acceptance states version {own.acceptance.roster_version} again")
    play.end()
    ahead.end()
    stage.roster = renewed.sign(kit.federation_key)


def _planned_with(roster: Roster) -> Edit:
    return lambda message: setattr(message, "roster_version", roster.version)


def keeps_its_budget(trial: Trial) -> None:
    """A query beyond the limit, one that fits, and one that no longer does."""
    beyond = trial.play(trial.plan(LARGE), _with_little_noise)
    with trial.case("7.2", f"it refuses a query that costs more than its limit of {EPSILON} at {DELTA}") as remarks:
        beyond.show(Phase.ANSWERING, PartyState.SILENT)
        answer = beyond.answer()
        remarks.extend(_check_refusal(trial, BadQuery("7.2", "", lambda _: None, _OVER), answer))
    beyond.end()
    play = trial.play(trial.plan(LARGE))
    with trial.case("7.5", "what was refused, lost or never uploaded is not charged: a large query still fits"):
        try:
            trial.uploaded(play)
        except RefusedError as error:
            if error.code in _OVER:
                raise UnmetError("7.5", f"{error.code}: more was charged than was uploaded") from error
            raise
    play.end(Phase.COMPLETE)
    again = trial.play(trial.plan(LARGE))
    with trial.case("7.5", "what was uploaded is charged: no second large query fits") as remarks:
        again.show(Phase.ANSWERING, PartyState.SILENT)
        answer = again.answer()
        if answer is not None and answer.refusal is None:
            raise UnmetError("7.5", "it was accepted, and both cost more than the limit, however they are added up")
        remarks.extend(_check_refusal(trial, BadQuery("7.5", "", lambda _: None, _OVER), answer))
    again.end()


def stops_at_a_conflict(trial: Trial) -> None:
    """A coordinator that has another answer of this party: two copies of it may run."""
    stage, what = trial.stage, "after ANSWER_CONFLICT for its only answer it asks its witnesses again"
    asked = len(stage.calls("AskWitnesses"))
    if not asked:
        trial.findings.add("7.2", what, passed=None, detail="it has no witnesses: it keeps no chain")
        return
    stage.has_another_answer = True
    play = trial.play(trial.plan())
    with trial.case("7.2", what):
        play.show(Phase.ANSWERING, PartyState.SILENT)
        if play.answer() is None:
            raise UnmetError("7.2", "no answer came")
        # So that a long poll ends.
        play.end()
        if not stage.wait(lambda: len(stage.calls("AskWitnesses")) > asked, trial.patience_s):
            raise UnmetError("7.2", "it does not")
    stage.has_another_answer = False


def stops_if_set_back(trial: Trial) -> None:
    """Its ledger is empty, and the kit has an acceptance of a former run, whose head the ledger lacks."""
    what = "it answers nothing if other parties show an acceptance of its own that its ledger lacks"
    play = trial.play(trial.plan())
    with trial.case("7.9", what) as remarks:
        if not trial.stage.wait(lambda: trial.stage.calls("FetchWitnesses"), trial.patience_s):
            raise UnmetError("7.9", "it asks no other party after its start")
        play.show(Phase.ANSWERING, PartyState.SILENT)
        # A party whose process ends on this evidence is right too, and may end before it fetches what is shown.
        if not play.is_seen():
            remarks.append("it fetched no work after it had seen that: its process may have ended")
        time.sleep(2 * trial.quiet_s)
        answer = play.answer(0.0)
        if answer is not None and answer.refusal is None:
            raise UnmetError("7.9", "it accepted a query: the budget that the former ledger spent is spent again")
    play.end()


def _with_little_noise(message: query_pb2.Query) -> None:
    if message.statistic.HasField("laplace"):
        scale = message.statistic.laplace.scale
        smaller = max(Fraction(1, 64), Fraction(scale.numerator, 40 * scale.denominator))
        scale.numerator, scale.denominator = smaller.as_integer_ratio()
    else:
        kind = getattr(message, message.WhichOneof("kind") or "")
        kind.share_sigma = max(3, kind.share_sigma // 3)


_OVER = (Code.BUDGET_EXCEEDED, Code.POLICY_LIMITS)
