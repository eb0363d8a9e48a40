"""What a learner decides: another attempt after a lost one, and which versions of nodes it asks."""

import re
from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError
from dpcore.predicates.expressions import Flag
from dpcore.records.features import Label
from dpcore.records.weight import Weight
from learner.requests import MomentsRequest, RadosRequest, StatisticRequest
from learner.session import AttemptLostError
from tests.federation.learner import REQUEST
from tests.federation.material import STAYS as SCHEMA
from tests.federation.setting import ROWS
from wire.envelopes import MessageType, SigningKey
from wire.errors import Code, WireError
from wire.features import OWN_FEATURES, Feature, schemas_stated
from wire.query import open_query, open_retry
from wire.status import PartyProgress, PartyState, Phase

LOST = [Phase.LOST]


@pytest.fixture
def session(setting):
    with setting.session() as session:
        yield session


def lost_then_complete(setting):
    """The query is lost once; it goes on when the learner has sent a retry."""
    stub = setting.stub
    real = stub.status

    def status(query_id, at=0):
        stub.phases = [Phase.UPLOADING, Phase.COMPLETE] if stub.retried else LOST
        return real(query_id, min(at, len(stub.phases) - 1))

    stub.phases, stub.status = LOST, status


def only_lost(setting):
    setting.stub.phases = [Phase.LOST]


# Retries.


def test_a_lost_attempt_is_the_learner_s_decision(setting, session):
    only_lost(setting)
    query_id = session.ask(session.plan(REQUEST))
    with pytest.raises(AttemptLostError, match="these did not finish: bo") as caught:
        session.watch(query_id)
    assert setting.stub.retried == []
    assert f"rado learner retry {query_id.hex()[:16]}" in str(caught.value)
    assert caught.value.exit_code == 6


def test_what_another_attempt_costs_is_said_before_it_is_made(setting, session):
    only_lost(setting)
    setting.stub.parties = tuple(PartyProgress(name, PartyState.UPLOADED, "", 1, rows) for name, rows in ROWS.items())
    plan = session.plan(REQUEST)
    query_id = session.ask(plan)
    with pytest.raises(AttemptLostError, match="epsilon under collusion becomes") as caught:
        session.watch(query_id)
    (figure,) = re.findall(r"becomes ([0-9.]+) at delta 1e-06", str(caught.value))
    assert float(figure) > 1.2 * plan.cost.epsilon_if_others_collude
    session.retry(query_id)
    (again,) = re.findall(r"becomes ([0-9.]+) at", session.cost_of_retry(session.status(query_id)))
    assert float(again) > float(figure)


def test_a_retry_is_signed_for_this_query_and_the_next_attempt(setting, session):
    only_lost(setting)
    query_id = session.ask(session.plan(REQUEST))
    assert session.retry(query_id) == 2
    roster = setting.world.roster
    query = setting.stub.submitted[0]
    opened = open_query(query, roster, now_unix_s=session._query(query_id).created_at_unix_s)
    assert open_retry(setting.stub.retried[0], opened, roster).attempt == 2


def test_without_a_lost_attempt_there_is_nothing_to_retry(setting, session):
    query_id = session.ask(session.plan(REQUEST))
    with pytest.raises(WireError) as caught:
        session.retry(query_id)
    assert caught.value.code is Code.PHASE_MISMATCH
    assert setting.stub.retried == []


def test_retries_that_were_asked_for_start_without_asking(setting, session):
    lost_then_complete(setting)
    release = session.run(session.plan(REQUEST), retries=1)
    assert release.party_rows == ROWS
    assert len(setting.stub.retried) == 1


def test_no_more_retries_than_were_asked_for(setting, session):
    only_lost(setting)
    with pytest.raises(AttemptLostError):
        session.run(session.plan(REQUEST), retries=2)
    assert len(setting.stub.retried) == 2


# The secret of a binding.


def opening_file(setting, query_id):
    return setting.config.state_directory / "queries" / query_id.hex() / "opening.key"


def test_the_opening_key_survives_a_restart_and_is_erased_after_opening(setting, session):
    query_id = session.ask(session.plan(REQUEST))
    file = opening_file(setting, query_id)
    assert (file.stat().st_mode & 0o777, file.stat().st_size) == (0o600, 32)
    with setting.session() as restarted:
        release = restarted.fetch(query_id)
    assert release.party_rows == ROWS
    assert not file.exists()


def test_a_total_without_its_opening_key_is_not_opened(setting, session):
    query_id = session.ask(session.plan(REQUEST))
    opening_file(setting, query_id).unlink()
    with pytest.raises(ConfigurationError, match="bound to an opening key that is not here"):
        session.fetch(query_id)


def test_a_process_that_ended_between_saving_and_erasing_erases_at_the_next_fetch(setting, session, monkeypatch):
    query_id = session.ask(session.plan(REQUEST))
    monkeypatch.setattr(session._state, "erase_opening", lambda _: None)
    session.fetch(query_id)
    assert opening_file(setting, query_id).exists()
    monkeypatch.undo()
    session.fetch(query_id)
    assert not opening_file(setting, query_id).exists()


# Versions.


OLD = ("bound-totals", "committed-seeds", "decisions", "fresh-rosters", "ledger-heads", "signed-retries")


@pytest.mark.parametrize("stated", [True, False])
def test_a_query_has_the_base_whatever_parties_state(setting, session, stated):
    """A coordinator that withholds statements must not weaken a query."""
    if not stated:
        setting.stub.features = []
    assert session.plan(replace(REQUEST, quorum_wait_s=30, purpose="Study 17")).query.features == (Feature.BASE,)


@pytest.mark.parametrize("features", [OLD, ()])
def test_too_few_parties_of_this_version_are_refused_by_name(setting, session, features):
    setting.stub.features = [setting.world.features(name, features) for name in ("ada", "bo")]
    with pytest.raises(WireError, match="ada lacks base-0-3; bo lacks base-0-3: upgrade their nodes") as caught:
        session.plan(REQUEST)
    assert caught.value.code is Code.FEATURE_MISSING


def test_statements_that_are_not_the_party_s_own_count_for_nothing(setting, session):
    forged = setting.world.features("ada", ())
    setting.stub.features = [
        forged.__class__(forged.payload, forged.key_id, bytes(64)),
        setting.world.party_keys["bo"].sign(MessageType.FEATURES, forged.payload),
    ]
    assert session.plan(REQUEST).query.features == (Feature.BASE,)


def test_a_label_that_too_few_parties_have_is_refused_by_name_before_anything_is_sent(setting, session):
    """It was refused by the parties, after it was sent; and counted under collusion, although nobody answered."""
    other = replace(SCHEMA, label=Label(column="died", positive=("1",)))
    held = {"ada": SCHEMA, "bo": other, "cy": replace(other, texts=("trim",))}
    setting.stub.features = [setting.world.features(name, schemas=schemas_stated([own])) for name, own in held.items()]
    with pytest.raises(WireError) as caught:
        session.plan(REQUEST)
    assert caught.value.code is Code.SCHEMA_MISMATCH
    column = SCHEMA.label.column
    said = f"A cohort needs 3 parties, and bo has no such label of column {column!r}; cy has another schema."
    assert f"{said} Nothing was sent." in str(caught.value)
    assert setting.stub.submitted == []
    # A question is answered by the parties themselves, which say more.
    assert len(session.plan(REQUEST, question=True).warnings) == 2


def test_a_party_without_the_label_is_pointed_out_where_the_others_are_enough(setting, session):
    states(setting)
    assert session.plan(FOLLOWS).warnings == ()
    weighted = replace(SCHEMA, weight=Weight(column="w", upper=2.0))
    setting.stub.features = [
        setting.world.features("ada", schemas=schemas_stated([weighted])),
        setting.world.features(
            "bo", schemas=schemas_stated([replace(SCHEMA, label=Label(column="died", positive=("1",)))])
        ),
        setting.world.features("cy"),
    ]
    # ada also answers without its weight, and cy states nothing.
    (warning,) = session.plan(FOLLOWS).warnings
    assert warning.startswith("bo has no such label of column 'stayed' and will refuse")


FOLLOWS = MomentsRequest(SCHEMA, epsilon=Fraction(1), colluders=0, max_rows=10_000)
"""Of three parties two are enough, so the noise may be smaller if all answer."""


def states(setting, names=tuple(ROWS), features=OWN_FEATURES):
    setting.stub.features = [setting.world.features(name, features) for name in names]


def test_the_noise_is_that_of_the_cohort_if_every_node_knows_how(setting, session):
    states(setting)
    plan = session.plan(FOLLOWS)
    assert plan.query.features == (Feature.BASE, Feature.COHORT_NOISE)
    assert plan.query.noise_of_cohort
    assert "The noise is that of the cohort that answers: the more parties, the less each of them adds." in (
        plan.sentences()
    )
    fixed = session.plan(replace(FOLLOWS, cohort_noise="smallest"))
    assert fixed.query.features == (Feature.BASE,)
    assert "The noise is that of the smallest cohort, also if more parties answer." in fixed.sentences()
    # The guarantee under collusion is the same; against the learner alone more noise hides more.
    assert plan.cost.epsilon_if_others_collude == fixed.cost.epsilon_if_others_collude
    assert plan.cost.epsilon > fixed.cost.epsilon
    # All three have to answer: there is only one cohort, and no other noise.
    assert session.plan(replace(FOLLOWS, cohort_min=3)).query.features == (Feature.BASE,)


@pytest.mark.parametrize("lacking", ["ada", "coordinator", "no statement"])
def test_without_it_at_one_node_the_noise_is_that_of_the_smallest_cohort_and_the_plan_says_so(
    setting, session, lacking
):
    states(setting, ("bo", "cy") if lacking == "no statement" else tuple(ROWS))
    older = (Feature.BASE.value, Feature.QUESTION.value)
    if lacking == "coordinator":
        setting.stub.own_features = older
    elif lacking == "ada":
        setting.stub.features[0] = setting.world.features("ada", older)
    plan = session.plan(FOLLOWS)
    assert plan.query.features == (Feature.BASE,)
    assert not plan.query.noise_of_cohort
    said = "not every node that is asked states the feature cohort-noise"
    assert f"The noise is that of the smallest cohort, also if more parties answer: {said}." in plan.sentences()


def test_a_party_is_asked_with_the_features_that_it_states_and_needs_no_others(setting, session):
    """A party of another make states the base and what it has; nothing of what ours can do besides is asked of it."""
    setting.stub.features = [setting.world.features(name, (Feature.BASE.value,)) for name in ROWS]
    plan = session.plan(FOLLOWS)
    assert plan.query.features == (Feature.BASE,)
    assert plan.query.binding.parties == set(ROWS)
    assert plan.warnings == ()


def test_a_party_that_lacks_what_the_question_needs_is_asked_and_pointed_out(setting, session):
    states(setting)
    setting.stub.features[0] = setting.world.features("ada", (Feature.BASE.value, Feature.COHORT_NOISE.value))
    plan = session.plan(FOLLOWS, question=True)
    assert plan.query.binding.parties == set(ROWS)
    assert "ada lacks question and will refuse: its rows are not in the answer" in plan.warnings
    # Who states nothing is asked all that the question needs, and says itself what it lacks.
    setting.stub.features = setting.stub.features[1:]
    assert session.plan(FOLLOWS, question=True).warnings == ()


def test_noise_that_cannot_follow_the_cohort_says_why(setting, session):
    states(setting)
    options = {"epsilon": Fraction(1), "colluders": 0, "max_rows": 10_000}
    local = StatisticRequest(SCHEMA, (Flag("smoker"),), local=True, **options)
    assert session.plan(local).noise_note == ""
    joint = RadosRequest(SCHEMA, 40, design="dp-feat", sensitive="smoker", joint=True, **options)
    assert "also if more parties answer: the design dp-feat-joint has no noise for" in session.plan(joint).noise_note
    assert session.plan(replace(joint, joint=False, epsilon=None)).noise_note == ""


@pytest.mark.parametrize(
    ("features", "said"),
    [(OLD, "The coordinator is older than 0.3.0: upgrade it"), ((Feature.BASE,), "The coordinator lacks: question")],
)
def test_a_coordinator_that_is_too_old_is_refused_with_a_sentence(setting, session, features, said):
    setting.stub.own_features = features
    with pytest.raises(WireError, match=said) as caught:
        session.would_accept(REQUEST)
    assert caught.value.code is Code.FEATURE_MISSING
    assert setting.stub.submitted == []


@pytest.mark.parametrize("content", [b"short", bytes(range(32))], ids=["length", "another"])
def test_a_total_with_another_opening_key_is_not_opened(setting, session, content):
    query_id = session.ask(session.plan(REQUEST))
    opening_file(setting, query_id).write_bytes(content)
    with pytest.raises(ConfigurationError, match="opening key"):
        session.fetch(query_id)


def test_a_stored_roster_that_the_federation_key_did_not_sign_is_refused(setting, session):
    session.ask(session.plan(REQUEST))
    file = setting.config.state_directory / "roster.signed"
    file.write_bytes(setting.world.roster.sign(SigningKey.generate("clinics")).to_bytes())
    with pytest.raises(WireError) as caught:
        session._state.newest_roster()
    assert caught.value.code is Code.SIGNATURE_INVALID
