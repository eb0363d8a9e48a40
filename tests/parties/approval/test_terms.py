"""Terms of approvals of several queries, and the uses of one, at their bounds."""

import os
import time
from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.accounting.filters import Loss
from dpcore.errors import ConfigurationError
from parties.approval.decisions import Decision, DecisionError, Delegates, Person
from parties.approval.giving import NO_SUBJECT, Do, Order, carry_out, do, terms_at
from parties.approval.standing import LONGEST_S, terms_of_questions, terms_of_study, terms_of_training, why_outside
from parties.config import PartyConfig
from parties.ledger.approvals import Act, ActKind, ApprovalState, NotCoveredError, Use
from parties.ledger.charges import RECORD, Charge
from radofed.console.approvals import offers
from tests.parties.answering.test_standing_approvals import OFFICER, asked, in_study, round_of, standing
from tests.parties.approval.test_files import FIRST, as_root, shared
from tests.parties.approval.test_orders import asking, beside
from tests.parties.report.report_world import statistic
from tests.wire.every_query import every_query
from wire.errors import Code, WireError
from wire.features import Feature
from wire.query import OpenedQuery

pytestmark = pytest.mark.usefixtures("small_comb")
__all__ = ["asking", "beside", "shared"]
DAY_S = 24 * 3600
APPROVAL, QUERY = b"a" * 32, b"q" * 32


def charge(epsilon: str = "0.1") -> Charge:
    return Charge(((RECORD, Loss.of_epsilon(Fraction(epsilon), Fraction(0))),), "lea")


def use(*items: str, queries: int = 0, attempts: int = 2, epsilon: str = "1") -> Use:
    return Use(APPROVAL, items or ("one",), queries, attempts, Fraction(epsilon), Fraction(0))


@pytest.fixture
def given(ada):
    """The approvals of a ledger, with one that is given until second 100."""
    found = ada.ledger.approvals
    found.propose(APPROVAL, "{}", 100.0, 1.0)
    found.act(APPROVAL, Act("alee", "", "", ActKind.APPROVED, "", 1.0))
    found.give(APPROVAL, 1.0)
    return found


def test_a_use_is_checked_at_each_bound(ada, given):
    given.check(use(), QUERY, 2, charge(), 99.9)
    for attempt, now, words in ((3, 1.0, "attempt 3"), (1, 100.0, "expired")):
        with pytest.raises(NotCoveredError, match=words):
            given.check(use(), QUERY, attempt, charge(), now)
    with pytest.raises(NotCoveredError, match="no bound"):
        given.check(use(), QUERY, 1, Charge(), 1.0)
    with pytest.raises(NotCoveredError, match="cost more"):
        given.check(use(epsilon="1/20"), QUERY, 1, charge(), 1.0)
    other = Use(b"o" * 32, ("one",), 0, 1, Fraction(1), Fraction(0))
    with pytest.raises(NotCoveredError, match="not given"):
        given.check(other, QUERY, 1, charge(), 1.0)
    given.propose(b"o" * 32, "{}", 100.0, 1.0)
    with pytest.raises(NotCoveredError, match="not given"):
        given.check(other, QUERY, 1, charge(), 1.0)


def test_costs_add_up_over_what_is_reserved(ada, given):
    for number in range(3):
        query_id = bytes([number]) * 32
        wanted = use(f"item {number}", epsilon="0.3")
        ada.ledger.reserve(query_id, 1, charge(), lapses_at_unix_s=1e12, now_unix_s=1.0, use=wanted)
    with pytest.raises(NotCoveredError, match="cost more"):
        given.check(use("another", epsilon="0.3"), QUERY, 1, charge(), 1.0)
    given.check(use("another", epsilon="0.41"), QUERY, 1, charge(), 1.0)
    with pytest.raises(NotCoveredError, match="3 queries"):
        given.check(use("another", queries=3), QUERY, 1, charge(), 1.0)
    # What is released counts no more.
    ada.ledger.release(bytes([1]) * 32, 1)
    given.check(use("another", "item 1", queries=3, epsilon="0.3"), QUERY, 1, charge(), 1.0)


def test_a_charge_looks_at_the_time_and_at_the_state(ada, given):
    ada.ledger.reserve(QUERY, 1, charge(), lapses_at_unix_s=1e12, now_unix_s=1.0, use=use())
    with pytest.raises(WireError, match="expired") as caught:
        ada.ledger.charge(QUERY, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=100.0)
    assert caught.value.code is Code.PERSON_REFUSED
    ada.ledger.charge(QUERY, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=99.0)
    assert [each.is_charged for each in given.uses(APPROVAL)] == [True]
    assert given.end_all(2.0) == 1
    assert given.find(APPROVAL).state is ApprovalState.ENDED
    assert ada.ledger.verify() == []


def test_no_more_than_was_announced(beside):
    envelope, now = asked(beside, round_of(beside.world)), time.time()
    with pytest.raises(ConfigurationError, match="approve no more"):
        terms_of_training(envelope, now, epsilon=Fraction(31))
    with pytest.raises(ConfigurationError, match="approve no more"):
        terms_of_training(envelope, now, until_unix_s=now + 2 * DAY_S)
    with pytest.raises(ConfigurationError, match="in the future"):
        terms_of_training(envelope, now, until_unix_s=now - 1)


def test_a_list_is_for_statistics_without_a_map(beside):
    now = time.time()
    options = {"epsilon": Fraction(1), "until_unix_s": now + 10}
    for name in ("moments", "statistic over a map"):
        query = next((q for key, q in every_query(beside.world).items() if key.startswith(name)), None)
        if query is None:
            query = next(q for q in every_query(beside.world).values() if q.kind.batch and q.feature_map is not None)
        with pytest.raises(ConfigurationError, match="without a feature map"):
            terms_of_questions(beside.world.ask(query), ["y == 1"], now, **options)
    with pytest.raises(ConfigurationError, match="list of questions"):
        terms_of_questions(asked(beside, statistic(beside.world)), ["y =="], now, **options)


def test_decisions_on_an_approval_that_is_in_force_or_not_there(beside):
    envelope, policy = asked(beside, round_of(beside.world)), beside.lifecycle.policy
    now = time.time()
    found = standing(beside).approve(terms_of_training(envelope, now), Decision(OFFICER, True, "", now), policy)
    with pytest.raises(DecisionError, match="in force"):
        standing(beside).decide(found.approval_id, Decision(Person("second"), False, "", now), policy)
    policy = policy.model_copy(update={"approval": policy.approval.model_copy(update={"approvers": 2})})
    terms = terms_of_training(asked(beside, round_of(beside.world, announced={"name": b"o" * 32})), now)
    late = Decision(Person("second"), True, "", terms.until_unix_s)
    proposal = standing(beside).approve(terms, Decision(OFFICER, True, "", now), policy)
    with pytest.raises(DecisionError, match="is expired"):
        standing(beside).decide(proposal.approval_id, late, policy)
    with pytest.raises(DecisionError, match="no such approval"):
        standing(beside).decide(b"x" * 32, Decision(OFFICER, True, "", now), policy)


def test_an_order_without_what_it_needs(beside):
    config = PartyConfig.load(beside.directory / "party.toml")
    delegates = Delegates(beside.history.database)
    with pytest.raises(ConfigurationError, match="until when"):
        carry_out(
            Order(Do.DELEGATE, user="bin"),
            NO_SUBJECT,
            None,
            OFFICER,
            "",
            standing=standing(beside),
            delegates=delegates,
            policy=beside.lifecycle.policy,
        )
    envelope = asked(beside, in_study(beside.world))
    with beside.history.database.transaction() as connection:
        connection.execute("UPDATE queries SET envelope = NULL")
    with pytest.raises(ConfigurationError, match="not kept"):
        terms_at(config, Order(Do.APPROVE), envelope.payload_hash.hex(), None)
    beside.ledger.database.close()
    (beside.directory / "ledger.sqlite").unlink()
    with pytest.raises(ConfigurationError, match="no ledger yet"):
        do(config, Order(Do.UNDELEGATE), "", OFFICER)


@as_root
def test_what_others_put_in_the_directory_is_not_the_nodes(asking):
    files = asking.decision_files
    asked(asking, round_of(asking.world))
    asking.lifecycle.gate.take_decisions(asking.lifecycle.policy)
    path = files.directory / "approvals.json"
    assert files.approvals() == []
    os.chown(path, FIRST, FIRST)
    with pytest.raises(ConfigurationError, match="not the node's"):
        files.approvals()
    files.leave(QUERY, approves=True, name="", reason="", order={"do": "approve"})
    (decision,) = files.directory.glob("decision-*")
    decision.write_text(decision.read_text().replace('{"do": "approve"}', '"approve"'))
    (left,) = files.left()
    assert "its order is none" in left.cause


def test_what_is_weighted_depends_on_the_weight_too(beside):
    """People who approved a study at a query about rows alike did not see the column of the weight."""
    every, study = every_query(beside.world), in_study(beside.world).study

    def opened(name: str) -> OpenedQuery:
        query = every[name]
        features = tuple(sorted({*query.features, Feature.STUDY.value}))
        return beside.world.open(beside.world.ask(replace(query, study=study, features=features)))

    alike, weighed = opened("gradient"), opened("gradient by weight")
    terms = terms_of_study(alike.envelope, time.time(), epsilon=Fraction(100))
    assert why_outside(terms, alike) == ""
    assert why_outside(terms, weighed) == "it may depend on counts"
    with_weight = terms_of_study(weighed.envelope, time.time(), epsilon=Fraction(100))
    assert why_outside(with_weight, alike) == ""


def test_a_training_that_ends_late_or_has_ended_can_still_be_looked_at(beside):
    """An approval is for a year at most, and what the learner announced does not close the console's page."""
    envelope, now = asked(beside, round_of(beside.world, announced={"ends_unix_s": 1 << 40})), time.time()
    assert terms_of_training(envelope, now).until_unix_s == int(now + LONGEST_S)
    assert [each.covers for each in offers(envelope, now)] == ["training"]
    assert offers(envelope, float(1 << 40)) == []
