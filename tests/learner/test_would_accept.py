"""What a learner believes of the answers to a question: what parties signed, and nothing that a coordinator claims."""

import time
from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError
from learner.journal import SessionSource
from learner.progress import answers_in_words, is_decided
from learner.requests import MomentsRequest
from learner.session import Session
from tests.federation.learner import REQUEST, SCHEMA
from tests.federation.setting import Setting
from tests.waiting import HANG_S
from wire.envelopes import Envelope
from wire.errors import CATALOGUE, Code, TimedOutError, WireError
from wire.features import OWN_FEATURES, Feature
from wire.query import open_query
from wire.statements import Acceptance, open_statement
from wire.status import PartyProgress, PartyState, Phase
from wire.training import Training

DELTA = Fraction(1, 10**6)
NOW = {"ada": 10_000, "bo": 777}


@pytest.fixture
def setting(tmp_path, learner_key):
    made = Setting(tmp_path, learner_key)
    made.stub.phases, made.stub.code = [Phase.ANSWERING, Phase.FAILED], Code.ONLY_ASKED.value
    made.stub.on_submit = lambda envelope: answer(made, envelope)
    yield made
    made.stub.stop()


def answer(setting, envelope, *, signer=None, other=None):
    """ada and bo would accept, and cy has not answered. signer: who signs ada's answer. other: the query of it."""
    world = setting.world
    opened = open_query(envelope, world.roster, now_unix_s=world_now())
    about = opened if other is None else other
    key = None if signer is None else world.party_keys[signer]
    first = world.acceptance(about, "ada", NOW["ada"], key=key)
    # Its row counts are what the coordinator claims: others than those that are signed.
    setting.stub.parties = (
        PartyProgress("ada", PartyState.ACCEPTED, rows=5, acceptance=first),
        PartyProgress("bo", PartyState.ACCEPTED, rows=5, acceptance=world.acceptance(opened, "bo", NOW["bo"])),
        PartyProgress("cy", PartyState.SILENT),
    )


def world_now() -> float:
    return time.time()


def ask(session: Session):
    return session.would_accept(replace(REQUEST, max_rows=None), timeout_s=HANG_S)


def test_the_signed_rows_count_and_later_plans_use_them(setting):
    with setting.session() as session:
        found = ask(session)
        assert (found.rows, found.refusals, found.silent) == (NOW, {}, ("cy",))
        assert "no answer yet: cy" in " ".join(found.sentences())
        assert found.enough == (len(NOW) >= found.cohort_min)
        assert session.asked() == (), "a question is no query of this learner"
        assert session.plan(REQUEST).party_rows == (10_000, 777, 300)
    (envelope,) = setting.stub.submitted
    query = open_query(envelope, setting.world.roster, now_unix_s=world_now()).query
    assert query.is_question
    assert Feature.QUESTION in query.features
    assert query.answer_within_s <= 30


def test_whether_people_decide_is_not_known_and_how_long_they_have_is(setting):
    """A question asks no person, and no party states whether its policy asks them: a plain yes would hide that."""
    with setting.session() as session:
        found = session.would_accept(replace(REQUEST, max_rows=None, answer_within_s=3 * 86_400), timeout_s=HANG_S)
    assert (found.to_dict()["people_decide"], found.to_dict()["people_have_s"]) == (None, 3 * 86_400)
    lines = answers_in_words([found, found])
    (said,) = [line for line in lines if "people" in line]
    assert "whether people decide at a party is not known, as no party states it" in said
    assert "have 3 d to answer, as --answer-within says" in said
    assert lines.count("ada: would accept, 10000 rows") == 2
    # Nobody waits for the people of parties that would refuse.
    assert not any("people" in line for line in answers_in_words([replace(found, rows={})]))


def test_an_answer_that_another_signed_is_refused(setting):
    setting.stub.on_submit = lambda envelope: answer(setting, envelope, signer="bo")
    with setting.session() as session, pytest.raises(WireError) as refused:
        ask(session)
    assert refused.value.code is Code.SIGNATURE_INVALID


def test_an_answer_to_another_question_is_refused(setting):
    world = setting.world
    with setting.session() as session:
        earlier = []

        def twice(envelope):
            opened = open_query(envelope, world.roster, now_unix_s=world_now())
            answer(setting, envelope, other=earlier[0] if earlier else None)
            earlier.append(opened)

        setting.stub.on_submit = twice
        ask(session)
        with pytest.raises(WireError, match="not to this question") as refused:
            ask(session)
    assert refused.value.code is Code.SENDER_MISMATCH


def test_a_status_travels_with_its_acceptance(setting):
    with setting.session() as session:
        ask(session)
    first = setting.stub.parties[0]
    assert PartyProgress.from_proto(first.to_proto()) == first
    said, _ = open_statement(Acceptance, first.acceptance, setting.world.roster)
    assert said.rows == NOW["ada"]


def test_a_question_that_ends_otherwise_is_no_answer(setting):
    setting.stub.code = Code.CANCELLED.value
    with setting.session() as session, pytest.raises(WireError) as ended:
        ask(session)
    assert ended.value.code is Code.CANCELLED


def test_a_coordinator_that_never_ends_a_question_is_not_waited_for(setting):
    setting.stub.phases = [Phase.ANSWERING]
    with setting.session() as session:
        with pytest.raises(TimedOutError, match="nothing is charged"):
            session.would_accept(REQUEST, timeout_s=0.3)
        with pytest.raises(ConfigurationError, match="positive number of seconds"):
            session.would_accept(REQUEST, timeout_s=-1)
    assert len(setting.stub.submitted) == 1


OTHER = replace(REQUEST, schema=replace(SCHEMA, name="another"))


@pytest.fixture
def refusing(tmp_path, learner_key):
    """One query was answered. All parties refuse another schema, but cy, which is silent."""
    made = Setting(tmp_path, learner_key)
    with made.session() as session:
        source = SessionSource(session)
        source.answer(source.plan(REQUEST))
    made.stub.own_features, made.stub.on_submit = OWN_FEATURES, lambda _: None
    made.stub.submitted.clear()
    made.stub.phases = [Phase.ANSWERING]
    made.stub.parties = tuple(PartyProgress(name, PartyState.REFUSED, "SCHEMA_MISMATCH") for name in ("ada", "bo"))
    made.stub.parties += (PartyProgress("cy", PartyState.SILENT),)
    yield made
    made.stub.stop()


def test_a_schema_that_too_few_have_is_not_sent(refusing):
    """cy is not waited for."""
    with refusing.session() as session:
        before = session.asked()
        source = SessionSource(session, timeout_s=HANG_S)
        with pytest.raises(WireError, match="2 of 3 would refuse, and 3 have to accept; nothing was sent") as refused:
            source.answer(source.plan(OTHER))
        assert (session.asked(), source.unanswered) == (before, [])
    assert refused.value.code is Code.COHORT_TOO_SMALL
    assert CATALOGUE[Code.SCHEMA_MISMATCH].hint in refused.value.hint
    (envelope,) = refusing.stub.submitted
    assert open_query(envelope, refusing.world.roster, now_unix_s=world_now()).query.is_question


def test_parties_are_not_asked_first_about_a_schema_with_answers(refusing):
    with refusing.session() as session:
        session.check_accepted(REQUEST, session.plan(REQUEST))
    assert refusing.stub.submitted == []


TRAINING = Training(bytes(32), "newton", "", SCHEMA.unweighted.digest, Fraction(1), DELTA, 4, 3, 1, 1 << 40)
FIRST = MomentsRequest(
    SCHEMA, epsilon=Fraction(1), delta=DELTA, part=Fraction(1, 4), max_rows=10_000, training=TRAINING
)


def test_a_training_is_asked_about_as_a_whole_before_its_first_query(refusing):
    with refusing.session() as session:
        before = session.asked()
        source = SessionSource(session, timeout_s=1)
        with pytest.raises(WireError, match="about the whole training at epsilon 1, 2 of 3 would refuse") as refused:
            source.answer(source.plan(FIRST))
        assert (session.asked(), source.unanswered) == (before, [])
        noise = {part: session.plan(replace(FIRST, part=part)).query.kind.shares for part in (FIRST.part, Fraction(1))}
    assert refused.value.code is Code.COHORT_TOO_SMALL
    (envelope,) = refusing.stub.submitted
    asked = open_query(envelope, refusing.world.roster, now_unix_s=world_now()).query
    assert asked.is_question
    deviations = [each.deviation(2) for each in (asked.kind.shares, noise[Fraction(1)], noise[FIRST.part])]
    assert deviations[0] == pytest.approx(deviations[1], rel=1e-5)
    assert deviations[0] < 0.6 * deviations[2]


@pytest.mark.parametrize("request_", [replace(FIRST, training=None), replace(FIRST, part=Fraction(1))])
def test_what_is_asked_alone_is_asked_at_once(refusing, request_):
    with refusing.session() as session:
        source = SessionSource(session, timeout_s=0.3)
        with pytest.raises(TimedOutError):
            source.answer(source.plan(request_))
    (envelope,) = refusing.stub.submitted
    assert not open_query(envelope, refusing.world.roster, now_unix_s=world_now()).query.is_question


def test_parties_that_answer_no_question_do_not_hinder_a_training(refusing):
    """No party refuses, but the question is not answered in time: a sentence says so, and the query is sent."""
    refusing.stub.parties, said = (), []
    with refusing.session() as session:
        source = SessionSource(session, timeout_s=0.3, note=said.append)
        with pytest.raises(TimedOutError):
            source.answer(source.plan(FIRST))
    assert sum("not known whether parties would accept the whole training" in each for each in said) == 1
    questions = [
        open_query(each, refusing.world.roster, now_unix_s=world_now()).query.is_question
        for each in refusing.stub.submitted
    ]
    assert questions == [True, False]


def test_whether_the_answers_decide():
    def parties(accepted, refused, silent):
        states = [PartyState.ACCEPTED] * accepted + [PartyState.REFUSED] * refused + [PartyState.SILENT] * silent
        signed = Envelope(b"", b"", b"")
        return [
            PartyProgress(str(place), state, acceptance=signed if state is PartyState.ACCEPTED else None)
            for place, state in enumerate(states)
        ]

    assert not is_decided(parties(2, 1, 1), asked=4, needed=3)
    assert is_decided(parties(3, 0, 1), asked=4, needed=3)
    assert is_decided(parties(0, 2, 2), asked=4, needed=3)
    assert not is_decided([], asked=4, needed=3)
