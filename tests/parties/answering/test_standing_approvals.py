"""Approvals of several queries at a party: what they let through, once each, and what ends them."""

import datetime as dt
import os
import shutil
import sqlite3
import time
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError
from dpcore.predicates.expressions import Flag
from parties.answering.attempts import AttemptState
from parties.approval.decisions import Decision, DecisionError, Person
from parties.approval.standing import Covers, Standing, terms_of_questions, terms_of_study, terms_of_training
from parties.config import PartyConfig
from parties.database import LedgerOwner, LedgerSetBackError
from parties.ledger.acknowledgement import Plan, charge_plan
from parties.ledger.approvals import NotCoveredError
from parties.ledger.charges import Charge
from parties.ledger.ledger import Ledger
from parties.policy import ApprovalRules
from parties.report.gathering import gather
from parties.report.page import document
from tests.federation.party import FEDERATION, Ada
from tests.parties.answering.test_kills import Steps
from tests.parties.report.report_world import SCHEMA, ada_at, old, records, statistic, wards
from tests.parties.report.report_world import policy as statistics_policy
from wire.errors import Code
from wire.features import Feature
from wire.query import Query
from wire.status import PartyState, Phase
from wire.study import Study
from wire.training import Training

pytestmark = pytest.mark.usefixtures("small_comb")
ALL = ApprovalRules(everything=True)
OFFICER = Person("officer")
DAY_S = 24 * 3600


@pytest.fixture
def asking(world, tmp_path):
    """A party that asks people about every query."""
    policy = statistics_policy(world, limits={"epsilon": "1000", "delta": "1e-3"}, approval=ALL)
    return Ada(world, tmp_path, records=records(), schema=SCHEMA, policy=policy)


def training(begins: int, **changes) -> Training:
    fields = {
        "name": b"n" * 32,
        "estimator": "newton",
        "options": "rounds=3",
        "schema_digest": SCHEMA.digest,
        "epsilon": Fraction(30),
        "delta": Fraction(1, 10**6),
        "queries": 3,
        "max_attempts": 2,
        "begins_unix_s": begins,
        "ends_unix_s": begins + DAY_S,
    }
    return Training(**(fields | changes))


def round_of(world, *predicates, announced: dict | None = None, **changes) -> Query:
    """A query of a training: the same for the same announcement."""
    query = statistic(world, *predicates, max_attempts=2, **changes)
    terms = training(_BEGUN.setdefault(id(world), query.created_at_unix_s), **(announced or {}))
    features = tuple(sorted({*query.features, Feature.TRAINING.value}))
    changed = {"training": terms, "features": features}
    return Query(**{name: getattr(query, name) for name in query.__dataclass_fields__} | changed)


_BEGUN: dict[int, int] = {}


def standing(ada: Ada) -> Standing:
    return Standing(ada.ledger.approvals, ada.history.database)


def approve(ada: Ada, envelope, person: Person = OFFICER, **limits):
    """Approve the training of a query."""
    now = ada.lifecycle.gate._clock()
    terms = terms_of_training(envelope, now, **limits)
    return standing(ada).approve(terms, Decision(person, True, "", now), ada.lifecycle.policy)


def asked(ada: Ada, query: Query):
    """The signed query, once it was looked at."""
    envelope = ada.world.ask(query)
    ada.go(envelope)
    return envelope


def waits(ada: Ada, envelope) -> bool:
    return ada.history.waits(envelope.payload_hash) and ada.state(envelope) is None


def first(ada: Ada, **limits):
    """A training whose first query was approved with all that follow, and answered."""
    envelope = asked(ada, round_of(ada.world))
    assert waits(ada, envelope)
    approval = approve(ada, envelope, **limits)
    assert ada.lifecycle.gate.has_news()
    ada.go(envelope, state=PartyState.PENDING)
    assert ada.state(envelope) is AttemptState.READY
    return envelope, approval


def test_one_approval_lets_all_rounds_through_and_no_more(asking):
    envelope, approval = first(asking)
    own = asking.hub.answers[0]
    asking.upload(envelope, asking.world.cohort(own))
    for predicate in (Flag("smoker") & wards()[0], old()[0]):
        following = asked(asking, round_of(asking.world, predicate))
        assert asking.state(following) is AttemptState.READY
        assert not asking.history.waits(following.payload_hash)
    fourth = asked(asking, round_of(asking.world, *wards()))
    assert waits(asking, fourth)
    found = standing(asking).find(approval.approval_id.hex(), asking.lifecycle.policy)
    assert (found.queries, [use.is_charged for use in found.used]) == (3, [True, False, False])


OUTSIDE = {
    "another name": {"announced": {"name": b"m" * 32}},
    "more epsilon": {"announced": {"epsilon": Fraction(31)}},
    "more rounds": {"announced": {"queries": 4}},
    "another estimator": {"announced": {"estimator": "additive"}},
    "later": {"announced": {"ends_unix_s": 1 << 40}},
    "costs too much": {"sigma": 3},
}


@pytest.mark.more
@pytest.mark.parametrize("how", OUTSIDE)
def test_what_is_outside_of_the_terms_waits(asking, how):
    first(asking, epsilon=Fraction(1))
    other = asked(asking, round_of(asking.world, old()[0], **OUTSIDE[how]))
    assert waits(asking, other)
    # Nothing was reserved or charged for it.
    assert asking.attempts.of_query(other.payload_hash) == []
    assert len(asking.ledger.events()) == 1


def test_the_same_question_twice_waits(asking):
    first(asking)
    assert waits(asking, asked(asking, round_of(asking.world)))


def test_a_query_without_a_training_or_of_another_learner_waits(asking):
    first(asking)
    assert waits(asking, asked(asking, statistic(asking.world, old()[0])))


def test_what_was_given_for_less_holds_for_less(asking):
    envelope = asked(asking, round_of(asking.world))
    approve(asking, envelope, epsilon=Fraction(1, 1000))
    asking.go(envelope, state=PartyState.PENDING)
    assert waits(asking, envelope)
    assert asking.ledger.events() == []


def test_a_revoked_approval_lets_nothing_through_and_nothing_be_charged(asking):
    envelope, approval = first(asking)
    cohort = asking.world.cohort(asking.hub.answers[0])
    standing(asking).revoke(approval.approval_id, OFFICER, "the study ended", asking.lifecycle.policy, 1e9)
    asking.upload(envelope, cohort)
    assert asking.state(envelope) is AttemptState.ENDED
    assert asking.ledger.events() == []
    assert asking.hub.chunks == {}
    assert waits(asking, asked(asking, round_of(asking.world, old()[0])))
    # It ends for good; people give another, which is none of the uses of the first.
    with pytest.raises(DecisionError, match="revoked"):
        standing(asking).decide(approval.approval_id, Decision(OFFICER, True, "", 1e9), asking.lifecycle.policy)
    again = approve(asking, asked(asking, round_of(asking.world, old()[0])))
    assert again.approval_id != approval.approval_id


def test_revoked_between_the_look_and_the_charge(asking):
    """The transaction that charges looks again."""
    envelope, approval = first(asking)
    held = asking.attempts.find(envelope.payload_hash, 1)
    standing(asking).revoke(approval.approval_id, OFFICER, "", asking.lifecycle.policy, 1e9)
    with pytest.raises(Exception, match="revoked") as caught:
        asking.attempts.charge(
            held, cohort_digest=b"c" * 32, spool_digest=held.spool_digest, now_unix_s=asking.lifecycle.gate._clock()
        )
    assert caught.value.code is Code.PERSON_REFUSED
    assert [event.charged for event in asking.ledger.events()] == [False]


def test_an_expired_approval_lets_nothing_through_and_nothing_be_charged(asking):
    now = asking.lifecycle.gate._clock()
    envelope, _ = first(asking, until_unix_s=int(now) + 100)
    asking.offset_s = 101.0
    asking.upload(envelope, asking.world.cohort(asking.hub.answers[0]))
    assert [event.charged for event in asking.ledger.events()] == []
    assert waits(asking, asked(asking, round_of(asking.world, old()[0])))


def test_two_people_approve_and_one_revokes(world, tmp_path):
    rules = ALL.model_copy(update={"approvers": 2})
    policy = statistics_policy(world, limits={"epsilon": "1000", "delta": "1e-3"}, approval=rules)
    ada = Ada(world, tmp_path, records=records(), schema=SCHEMA, policy=policy)
    envelope = asked(ada, round_of(world))
    one = approve(ada, envelope)
    ada.go(envelope, state=PartyState.PENDING)
    assert waits(ada, envelope)
    # The same person counts once. What a second one means is the proposal.
    assert approve(ada, envelope).counted == 1
    two = approve(ada, envelope, Person("second"))
    assert (two.approval_id, two.counted) == (one.approval_id, 2)
    ada.go(envelope, state=PartyState.PENDING)
    assert ada.state(envelope) is AttemptState.READY
    # Under a policy that no longer lists one of them it counts less at once, also before a charge.
    stricter = policy.model_copy(update={"approval": rules.model_copy(update={"users": ("officer", "third")})})
    ada.lifecycle.follow(stricter)
    ada.upload(envelope, world.cohort(ada.hub.answers[0]))
    assert [event.charged for event in ada.ledger.events()] == []


def test_a_list_of_questions_is_answered_once_each(asking):
    envelope = asked(asking, statistic(asking.world, Flag("smoker")))
    texts = ['x["smoker"]', 'x["age"] >= 65 & x["smoker"]']
    now = asking.lifecycle.gate._clock()
    terms = terms_of_questions(envelope, texts, now, epsilon=Fraction(40), until_unix_s=now + DAY_S)
    assert (terms.covers, len(terms.questions)) == (Covers.QUESTIONS, 2)
    standing(asking).approve(terms, Decision(OFFICER, True, "", now), asking.lifecycle.policy)
    asking.go(envelope, state=PartyState.PENDING)
    assert asking.state(envelope) is AttemptState.READY
    # Twice, and with a question that is not on the list.
    assert waits(asking, asked(asking, statistic(asking.world, Flag("smoker"))))
    assert waits(asking, asked(asking, statistic(asking.world, *old(), wards()[0])))
    following = asked(asking, statistic(asking.world, *old()))
    assert asking.state(following) is AttemptState.READY


def in_study(world, *predicates, **changes) -> Query:
    today = dt.datetime.now(dt.UTC).date()
    stated = {
        "purpose": "readmissions",
        "protocol_number": "17",
        "organisation": "University",
        "person_in_charge": "Dr Bell",
        "begins": today - dt.timedelta(days=1),
        "ends": today + dt.timedelta(days=30),
    }
    features = ("base-0-3", Feature.STUDY.value)
    return statistic(world, *predicates, study=Study(**(stated | changes)), features=features)


def test_a_study_is_answered_up_to_what_was_approved(asking):
    envelope = asked(asking, in_study(asking.world))
    now = asking.lifecycle.gate._clock()
    with pytest.raises(ConfigurationError, match="no longer"):
        terms_of_study(envelope, now, epsilon=Fraction(5), until_unix_s=now + 40 * DAY_S)
    terms = terms_of_study(envelope, now, epsilon=Fraction(50), queries=2)
    standing(asking).approve(terms, Decision(OFFICER, True, "", now), asking.lifecycle.policy)
    asking.go(envelope, state=PartyState.PENDING)
    assert asking.state(envelope) is AttemptState.READY
    # Of the same number, but stated otherwise; of no study; and one more than was approved.
    assert waits(asking, asked(asking, in_study(asking.world, old()[0], person_in_charge="Dr Mallory")))
    assert waits(asking, asked(asking, statistic(asking.world, old()[0])))
    assert asking.state(asked(asking, in_study(asking.world, old()[0]))) is AttemptState.READY
    assert waits(asking, asked(asking, in_study(asking.world, wards()[0])))


def test_a_released_reservation_is_no_use(asking):
    envelope, approval = first(asking)
    asking.lifecycle.end_queries({envelope.payload_hash})
    assert standing(asking).find(approval.approval_id.hex(), asking.lifecycle.policy).queries == 0
    # The round may be asked again.
    again = asked(asking, round_of(asking.world))
    assert asking.state(again) is AttemptState.READY


def test_two_queries_at_once_use_it_once(asking):
    """Both were looked at before either was reserved."""
    _, approval = first(asking)
    policy, charge = asking.lifecycle.policy, asking.ledger.events()[0].charge
    envelopes = [asking.world.ask(round_of(asking.world, old()[0])) for _ in range(2)]
    uses = [
        standing(asking).covering(asking.world.open(each), 1, charge, policy, approval.terms.made_at_unix_s)[0]
        for each in envelopes
    ]
    assert None not in uses
    now = asking.lifecycle.gate._clock()
    asking.ledger.reserve(envelopes[0].payload_hash, 1, charge, lapses_at_unix_s=1e12, now_unix_s=now, use=uses[0])
    with pytest.raises(NotCoveredError, match="asked under the approval before"):
        asking.ledger.reserve(envelopes[1].payload_hash, 1, charge, lapses_at_unix_s=1e12, now_unix_s=now, use=uses[1])
    assert len(asking.ledger.events()) == 2


def killed(ada: Ada, envelope, at: int) -> bool:
    """Whether a process that accepts a query ended before its n-th step of writing."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    try:
        steps = Steps(at)
        ada.restart()
        ada.ledger.database._connection.set_trace_callback(steps.trace)
        ada.go(envelope, state=PartyState.PENDING)
    finally:
        os._exit(0)


@pytest.mark.more
def test_a_party_that_is_killed_between_approval_and_charge_uses_it_once(asking):
    envelope = asked(asking, round_of(asking.world))
    approval = approve(asking, envelope)
    asking.ledger.database.close()
    asking.history.database.close()
    at = 0
    while killed(asking, envelope, at):
        at += 7
    asking.restart()
    assert at > 20
    asking.go(envelope, state=PartyState.PENDING)
    found = standing(asking).find(approval.approval_id.hex(), asking.lifecycle.policy)
    assert (found.queries, len(found.used)) == (1, 1)
    asking.upload(envelope, asking.world.cohort(asking.attempts.find(envelope.payload_hash, 1).answer))
    assert [event.charged for event in asking.ledger.events()] == [True]
    assert asking.ledger.verify() == []


def test_an_older_copy_of_the_ledger_does_not_revive_it(asking):
    _, approval = first(asking)
    path = asking.directory / "ledger.sqlite"
    asking.ledger.database.close()
    copy = shutil.copy(path, asking.directory / "copy.sqlite")
    asking.restart()
    standing(asking).revoke(approval.approval_id, OFFICER, "", asking.lifecycle.policy, 1e9)
    asking.ledger.database.close()
    shutil.copy(copy, path)
    with pytest.raises(LedgerSetBackError):
        asking.restart()
    ledger = Ledger.open(path, LedgerOwner(FEDERATION, "ada", "data.csv"), asking.limits, anchored=False)
    charge_plan(ledger, Plan(False, ledger.head().entries + 10, (Charge(),)), 1e9)
    assert ledger.verify() == []
    (stored,) = ledger.approvals.all()
    assert stored.state.value == "ended"
    ledger.database.close()


def test_a_row_that_somebody_changed_is_a_fault(asking):
    _, approval = first(asking)
    standing(asking).revoke(approval.approval_id, OFFICER, "", asking.lifecycle.policy, 1e9)
    path = asking.directory / "ledger.sqlite"
    with sqlite3.connect(path) as file:
        file.execute("UPDATE approvals SET state = 'given'")
    file.close()
    assert any("approval" in fault for fault in asking.ledger.verify())


def test_the_same_attempt_twice_is_one_use(asking):
    envelope, approval = first(asking)
    asking.go(envelope)
    asking.restart()
    asking.go(envelope, phase=Phase.ANSWERING)
    assert standing(asking).find(approval.approval_id.hex(), asking.lifecycle.policy).queries == 1


def test_the_report_and_the_history_name_who_gave_it(world, tmp_path):
    directory = tmp_path / "reported"
    directory.mkdir()
    ada = ada_at(world, directory, approval={"everything": True}, limits={"epsilon": "1000", "delta": "1e-3"})
    envelope = asked(ada, round_of(world))
    approval = approve(ada, envelope, Person("alee", "Ann Lee"))
    ada.go(envelope, state=PartyState.PENDING)
    ada.upload(envelope, world.cohort(ada.hub.answers[0]))
    found = gather(PartyConfig.load(directory / "party.toml"), 0.0, time.time() + 10, time.time() + 10, "0")
    assert found.queries[0].read.decision == (
        f"accepted, approved by Ann Lee (alee), under approval {approval.approval_id.hex()[:16]}"
    )
    assert found.to_dict()["approvals"][0]["people"][0]["user"] == "alee"
    text = document(found).saved()
    assert approval.approval_id.hex() in text
    assert "approved by Ann Lee (alee)" in text
