"""Deciding on a query that waits, by its id: under the policy that the person saw."""

import time

import pytest

from parties.approval.deciding import decide, explain
from parties.approval.decisions import DecisionError, Decisions, Person, Verdict
from parties.config import PartyConfig
from parties.history.reading import HistoryReader
from parties.policy import Policy
from tests.federation.party import OPENING
from tests.parties.answering.test_standing_approvals import round_of
from tests.parties.report.report_world import ada_at, statistic
from wire.binding import Binding

pytestmark = pytest.mark.usefixtures("small_comb")
ANN = Person("officer", "Ann")


@pytest.fixture
def waiting(world, tmp_path):
    """The configuration of a party that asks about everything, and the id of a query that waits."""
    ada = ada_at(world, tmp_path, approval={"everything": True})
    envelope = world.ask(statistic(world))
    ada.go(envelope)
    return PartyConfig.load(tmp_path / "party.toml"), envelope.payload_hash, ada


def test_a_decision_counts_under_the_policy_that_was_seen(waiting):
    config, query_id, _ = waiting
    seen = Policy.load(config.policy).digest
    found = decide(config, query_id.hex(), ANN, approves=True, policy_seen=seen)
    assert found.verdict is Verdict.APPROVED


def test_a_person_is_shown_the_parties_that_are_asked_too(world, tmp_path):
    """And no other party of the roster."""
    ada = ada_at(world, tmp_path, approval={"everything": True})
    nonce, names = b"n" * 16, ("ada", "bo")
    asked = [party for party in world.roster.parties if party.name in names]
    for binding, others in (({}, ("bo", "cy")), ({"binding": Binding.seal(OPENING, asked, nonce)}, ("bo",))):
        envelope = world.ask(statistic(world, nonce=nonce, **binding))
        ada.go(envelope)
        config = PartyConfig.load(tmp_path / "party.toml")
        with HistoryReader(config) as reader:
            assert explain(config, reader, envelope.payload_hash.hex(), time.time()).others == others


def test_what_is_shown_says_how_to_decide_once_on_a_training(world, tmp_path):
    ada = ada_at(world, tmp_path, approval={"everything": True})
    for query, once in ((statistic(world), False), (round_of(world), True)):
        envelope = world.ask(query)
        ada.go(envelope)
        config = PartyConfig.load(tmp_path / "party.toml")
        digits = envelope.payload_hash.hex()
        with HistoryReader(config) as reader:
            lines = explain(config, reader, digits, time.time()).lines()
        assert any(f"rado party refuse {digits[:10]} --config" in line for line in lines)
        assert (
            any(f"rado party approve {digits[:10]} --config party.toml --for training" in line for line in lines)
            is once
        )


def test_nothing_is_decided_if_the_policy_changed_since(waiting):
    config, query_id, ada = waiting
    seen = Policy.load(config.policy).digest
    config.policy.write_text(config.policy.read_text().replace('epsilon = "3.0"', 'epsilon = "2.0"'))
    assert Policy.load(config.policy).digest != seen
    with pytest.raises(DecisionError, match="the policy changed since"):
        decide(config, query_id.hex(), ANN, approves=True, policy_seen=seen)
    assert Decisions(ada.history.database).of(query_id) == []
