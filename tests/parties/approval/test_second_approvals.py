"""Where two people must approve: who is told of what waits for the second one, and that nobody is told twice."""

import json
import time

import pytest

from parties.approval.decisions import Decision, Delegation, Person
from parties.approval.notifying import Notice, NotifySettings, ProposalNotice, message
from parties.approval.second_approvals import may_still_decide
from parties.approval.standing import Standing
from parties.policy import ApprovalRules
from tests.federation.party import Ada
from tests.parties.answering.test_standing_approvals import DAY_S, approve, asked, round_of
from tests.parties.approval.test_notifying import COPIES, notice, outcomes_of, program, told
from tests.parties.report.report_world import SCHEMA, records
from tests.parties.report.report_world import policy as statistics_policy
from wire.status import PartyState

pytestmark = pytest.mark.usefixtures("small_comb")
ANN, BOB = Person("ann"), Person("bob")


@pytest.fixture
def heard():
    """What people are told."""
    return []


@pytest.fixture
def ada(world, tmp_path, heard):
    rules = ApprovalRules(everything=True, approvers=2, users=("ann", "bob", "cy"))
    policy = statistics_policy(world, limits={"epsilon": "1000", "delta": "1e-3"}, approval=rules)
    return Ada(world, tmp_path, records=records(), schema=SCHEMA, policy=policy, on_waits=heard.append)


def look(ada) -> None:
    ada.lifecycle.gate.take_decisions(ada.lifecycle.policy)


def test_a_query_that_waits_for_a_second_person_is_told_to_those_who_can_decide(ada, heard):
    envelope = asked(ada, round_of(ada.world))
    (first,) = heard
    assert (first.approvals, first.needed, first.may_decide) == (0, 2, ("ann", "bob", "cy"))
    decision = Decision(ANN, True, "", time.time())
    gate, query_id = ada.lifecycle.gate, envelope.payload_hash
    gate._decisions.decide(query_id, "lea", ada.lifecycle.policy, decision, still_waits=True)
    assert gate.has_news()
    for _ in range(2):
        ada.go(envelope, state=PartyState.PENDING)
    (_, second) = heard
    assert isinstance(second, Notice)
    assert (second.approvals, second.needed, second.may_decide) == (1, 2, ("bob", "cy"))
    assert "  has 1 of 2 approvals; who can approve now: bob, cy" in second.lines()


def test_a_proposal_is_told_once_for_each_approval_that_it_has(ada, heard):
    envelope = asked(ada, round_of(ada.world))
    heard.clear()
    look(ada)
    assert heard == []
    proposal = approve(ada, envelope, ANN)
    for _ in range(2):
        look(ada)
    (told_of,) = heard
    assert isinstance(told_of, ProposalNotice)
    assert told_of.approval_id == proposal.approval_id.hex()
    assert (told_of.approvals, told_of.needed, told_of.may_decide) == (1, 2, ("bob", "cy"))
    assert told_of.approved_by == ("ann",)
    assert ada.ledger.approvals.proposals(time.time())[0] == 1
    found = message("ada", "clinics", [told_of])
    assert found["title"] == "1 proposal waits for one more approval at ada of clinics"
    assert [each["may_decide"] for each in found["proposals"]] == [("bob", "cy")]
    assert f"rado party approve {told_of.approval_id[:12]}" in found["text"]
    # A node that starts again tells people again; what is in force, or was refused, is told to nobody.
    standing = Standing(ada.ledger.approvals, ada.history.database)
    standing.decide(proposal.approval_id, Decision(BOB, True, "", time.time()), ada.lifecycle.policy)
    look(ada)
    assert len(heard) == 1
    assert ada.ledger.approvals.proposals(time.time()) == (0, None)


def test_who_can_still_decide_counts_delegates_and_kinds_of_people(world):
    def able(users, approved, delegates=(), **rules):
        policy = statistics_policy(world, approval=ApprovalRules(everything=True, approvers=2, users=users, **rules))
        return may_still_decide(policy, "lea", approved, delegates, 100.0)

    lent = Delegation("dan", "bob", 0.0, 200.0, "")
    assert able(("ann", "bob"), [ANN], [lent]) == ("bob", "dan")
    assert able(("ann", "bob"), [ANN], [Delegation("dan", "bob", 0.0, 50.0, "")]) == ("bob",)
    # A delegate and who named them are one person.
    assert able(("ann", "bob"), [Person("dan", acts_for="bob")], [lent]) == ("ann",)
    # Who signed on does not count beside a user of the machine.
    assert able(("ann", "sign-on:eve"), [ANN]) == ()
    assert able(("ann", "bob"), [], names=True) == ("ann", "bob")
    assert able((), [ANN]) == ()


def test_one_message_tells_of_both(tmp_path):
    proposal = ProposalNotice("ab" * 32, "lea", ("a training",), ("ann",), 1, 2, (), time.time() + DAY_S)
    settings = NotifySettings(command=program(tmp_path, COPIES), pause_s=0)
    outcomes_of(settings, proposal, until="sent")
    (found,) = told(tmp_path)
    assert json.dumps(found["queries"]) == "[]"
    assert "who can approve now: any other user who may decide at this party" in found["text"]
    both = message("ada", "clinics", [notice(1), notice(2), proposal])
    assert both["title"] == "2 queries wait for a decision, and 1 proposal for one more approval at ada of clinics"
    assert (both["count"], len(both["queries"]), len(both["proposals"])) == (3, 2, 1)
