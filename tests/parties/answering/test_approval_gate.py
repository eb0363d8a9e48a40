"""A query that waits for a person: nothing exists for it before the approval, and the approval is looked at again."""

import time
from decimal import Decimal

import pytest

from parties.answering.attempts import AttemptState
from parties.approval.decisions import Decision, Decisions, Person
from parties.approval.gate import largest_epsilon
from parties.history.history import What
from parties.ledger.charges import charge_for
from parties.policy import ApprovalRules
from tests.federation.party import Ada, limits, ready
from tests.parties.report.report_world import ROWS, ada_at, statistic
from wire.errors import Code
from wire.status import PartyState, Phase

pytestmark = pytest.mark.usefixtures("small_comb")
ALL = ApprovalRules(everything=True)


@pytest.fixture
def asking(world, tmp_path):
    """A party that asks people about every query."""
    return Ada(world, tmp_path, policy=world.policy().model_copy(update={"approval": ALL}))


def known(world, **changes):
    """A query that knows of decisions."""
    return world.ask(world.query(**changes))


def decide(ada, envelope, *, approves):
    decision, query_id = Decision(Person("officer"), approves, "", 1.0), envelope.payload_hash
    waits = ada.history.waits(query_id)
    Decisions(ada.history.database).decide(query_id, "lea", ada.lifecycle.policy, decision, still_waits=waits)


def test_nothing_exists_for_a_query_that_waits(asking):
    envelope = known(asking.world)
    asking.go(envelope)
    assert (asking.hub.answers, asking.ledger.events()) == ([], [])
    assert asking.attempts.of_query(envelope.payload_hash) == []
    assert not list((asking.directory / "spool").glob("*"))
    (waiting,) = asking.history.waiting(0.0)
    # Once it has expired, no person needs to decide.
    times = (0.0, waiting.not_after_unix_s, waiting.not_after_unix_s + 1)
    assert [asking.history.count_waiting(time) for time in times] == [1, 1, 0]
    assert waiting.query_id == envelope.payload_hash
    assert len(asking.hub.pendings) == 1
    # Looked at again, it is told once.
    asking.go(envelope, state=PartyState.PENDING)
    assert len(asking.hub.pendings) == 1
    decide(asking, envelope, approves=True)
    assert asking.lifecycle.gate.has_news()
    assert not asking.lifecycle.gate.has_news()
    asking.go(envelope, state=PartyState.PENDING)
    assert asking.hub.accepted == [True]
    assert asking.history.waiting(0.0) == []


def test_a_refusal_is_sent_with_its_code_and_without_its_reason(asking):
    envelope = known(asking.world)
    asking.go(envelope)
    decide(asking, envelope, approves=False)
    asking.go(envelope)
    assert asking.hub.refusal_code is Code.PERSON_REFUSED
    assert asking.ledger.events() == []


def test_a_query_that_the_limits_refuse_is_not_put_before_people(world, tmp_path):
    ada = Ada(
        world,
        tmp_path,
        limits=limits("0.001", "1e-6", unbounded=0),
        policy=world.policy().model_copy(update={"approval": ALL}),
    )
    ada.go(known(world))
    assert ada.hub.refusal_code is Code.BUDGET_EXCEEDED
    assert ada.history.waiting(0.0) == []


@pytest.mark.parametrize("change", ["a stricter policy", "a refusal"])
def test_the_approval_is_looked_at_again_before_the_charge(ada, change):
    envelope, cohort = ready(ada)
    if change == "a refusal":
        ada.history.happened(envelope.payload_hash, 1, What.WAITS, 1.0, reasons=[])
        Decisions(ada.history.database).decide(
            envelope.payload_hash, "lea", ada.lifecycle.policy, Decision(Person("x"), False, "", 1.0), still_waits=True
        )
    else:
        ada.lifecycle.follow(ada.lifecycle.policy.model_copy(update={"approval": ALL}))
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is AttemptState.ENDED
    assert [event.charged for event in ada.ledger.events()] == []
    assert ada.hub.chunks == {}


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.UPLOADING, Phase.FAILED, Phase.COMPLETE])
def test_undecided_when_the_answers_are_due_is_refused(asking, phase):
    envelope = known(asking.world)
    asking.go(envelope)
    asking.go(envelope, phase=phase)
    assert asking.history.waiting(0.0) == []
    events = asking.history.events([envelope.payload_hash])[envelope.payload_hash]
    (event,) = [each for each in events if each.what is What.ENDED]
    assert "no one decided" in event.details["reason"]


def test_a_query_that_was_approved_too_late_is_not_said_to_be_undecided(asking):
    """Its party may have been paused meanwhile."""
    envelope = known(asking.world)
    asking.go(envelope)
    decide(asking, envelope, approves=True)
    asking.go(envelope, phase=Phase.UPLOADING)
    events = asking.history.events([envelope.payload_hash])[envelope.payload_hash]
    (event,) = [each for each in events if each.what is What.ENDED]
    assert event.details["reason"] == "it was not both decided on and answered before the answers were due"


def test_a_query_that_waited_and_is_gone_waits_no_longer(asking):
    envelope, other = known(asking.world), known(asking.world, max_attempts=2)
    asking.go(envelope)
    asking.go(other)
    asking.lifecycle.end_queries(asking.lifecycle.held() - {other.payload_hash})
    assert [each.query_id for each in asking.history.waiting(0.0)] == [other.payload_hash]


def test_each_attempt_may_wait(asking):
    envelope = known(asking.world, max_attempts=2)
    asking.go(envelope)
    decide(asking, envelope, approves=True)
    asking.go(envelope)
    stricter = asking.lifecycle.policy.model_copy(update={"approval": ALL.model_copy(update={"approvers": 2})})
    asking.lifecycle.follow(stricter)
    asking.go(envelope, attempt=2)
    assert asking.hub.accepted == [True]
    assert [each.query_id for each in asking.history.waiting(0.0)] == [envelope.payload_hash]


@pytest.fixture
def by_cost(world, tmp_path):
    """A party that asks people from a sum of a given multiple of one query's epsilon on, and that epsilon."""

    def made(times):
        ada = ada_at(world, tmp_path)
        each = largest_epsilon(charge_for(statistic(world, max_attempts=1), ROWS))
        rules = ApprovalRules(epsilon_at_least=str(Decimal(float(each)) * times))
        ada.lifecycle.follow(ada.lifecycle.policy.model_copy(update={"approval": rules}))
        return ada

    return made


def test_many_small_queries_wait_once_their_sum_is_large(world, by_cost):
    """Otherwise a learner spends all of a limit in pieces that no person sees."""
    ada = by_cost(Decimal("2.5"))
    asked = []
    for _ in range(4):
        envelope = world.ask(statistic(world, max_attempts=1))
        ada.go(envelope)
        asked.append((envelope, len(ada.hub.accepted)))
    assert [accepted for _, accepted in asked] == [1, 2, 2, 2]
    (third, _), (fourth, _) = asked[2:]
    waits = ada.history.events([third.payload_hash])[third.payload_hash][-1].details["reasons"]
    assert "spent since its last approval" in waits[0]
    # After an approval it begins anew, and what was approved does not count again.
    Decisions(ada.history.database).decide(
        third.payload_hash,
        "lea",
        ada.lifecycle.policy,
        Decision(Person("officer"), approves=True, reason="", at_unix_s=time.time() + 1),
        still_waits=True,
    )
    ada.offset_s = 2.0
    ada.go(third, state=PartyState.PENDING)
    ada.go(fourth, state=PartyState.PENDING)
    assert len(ada.hub.accepted) == 4
    ada.go(world.ask(statistic(world, max_attempts=2)))
    assert len(ada.hub.accepted) == 4
    assert len(ada.history.waiting(0.0)) == 1


def test_a_query_that_may_be_asked_again_counts_each_attempt(world, by_cost):
    ada = by_cost(2)
    ada.go(world.ask(statistic(world, max_attempts=3)))
    assert (ada.hub.accepted, len(ada.history.waiting(0.0))) == ([], 1)
    ada.go(world.ask(statistic(world, max_attempts=1)))
    assert ada.hub.accepted == [True]
