"""Which queries wait for people, by each rule of a policy."""

from fractions import Fraction

import pytest
from pydantic import ValidationError

from dpcore.accounting.filters import Loss
from dpcore.accounting.noise_shares import GaussianShares
from dpcore.predicates.notation import parse
from dpcore.queries.statistic import StatisticQuery
from dpcore.records.feature_map import Column, FeatureMap, Term
from parties.approval.gate import largest_epsilon, reasons
from parties.ledger.charges import RECORD, Charge, marginal
from parties.policy import ApprovalRules
from tests.federation.party import SCHEMA

SMOKES, POSITIVE = 'x["smoker"]', "y == 1"
COST = Charge(((RECORD, Loss.of_epsilon(Fraction(1, 2), Fraction(1, 10**6))),), "lea")


@pytest.fixture
def why(world):
    def found(*predicates: str, charge: Charge = COST, **rules) -> list[str]:
        changes = {}
        if predicates:
            kind = StatisticQuery(tuple(map(parse, predicates)), SCHEMA, GaussianShares(10))
            changes = {"kind": kind}
        return reasons(ApprovalRules(**rules), world.query(**changes), charge)

    return found


def test_without_a_rule_nothing_waits(why):
    assert why() == []
    assert not ApprovalRules().asks


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"everything": True}, "every query"),
        ({"designs": ("dp-feat",)}, "kind 'dp-feat'"),
        ({"learners": ("lea",)}, "learner 'lea'"),
        ({"epsilon_at_least": "1.5"}, "epsilon 0.5 in each of 3 attempts"),
    ],
)
def test_each_rule(why, rules, reason):
    (found,) = why(**rules)
    assert reason in found
    assert ApprovalRules(**rules).asks


@pytest.mark.parametrize(
    "rules", [{"designs": ("moments",)}, {"learners": ("leo",)}, {"epsilon_at_least": "1.51"}, {"everything": False}]
)
def test_other_queries_do_not_wait(why, rules):
    assert why(**rules) == []


def test_all_attempts_and_what_was_spent_since_the_last_approval_count(world):
    rules = ApprovalRules(epsilon_at_least="1")
    query = world.query(max_attempts=1)
    assert reasons(rules, query, COST) == []
    assert reasons(rules, query, COST, Fraction(49, 100)) == []
    (found,) = reasons(rules, query, COST, Fraction(1, 2))
    assert "in its one attempt, after 0.5 that 'lea' spent since its last approval" in found
    assert reasons(rules, world.query(max_attempts=2), COST) != []
    assert reasons(rules, query, COST, float("inf")) != []


def test_no_bound_for_records_is_the_highest_cost(why):
    unbounded = Charge(((marginal("smoker"), Loss.of_epsilon(Fraction(1, 100), Fraction(0))),), "lea")
    assert largest_epsilon(unbounded) == float("inf")
    assert "has no bound for whole records" in why(charge=unbounded, epsilon_at_least="100")[0]


def test_predicates_that_are_not_admitted_wait(why):
    listed = {"admitted_predicates": (SMOKES,)}
    assert why(SMOKES, **listed) == []
    # The same predicate in another spelling.
    assert why(f"({SMOKES})", **listed) == []
    assert why(SMOKES, POSITIVE, **listed) == ["not on the list of admitted predicates: y == 1"]
    assert "and 1 more" in why(POSITIVE, f"~{SMOKES}", **listed)[0]
    assert why(SMOKES, admitted_predicates=()) != []
    # Only statistics have predicates.
    assert why(**listed) == []


def test_the_list_admits_no_predicate_over_a_feature_map(world):
    """A coordinate of the schema could have the name that a function of the map has."""
    half = FeatureMap((Term(Column(0), 0, 1),), SCHEMA.bias)
    kind = StatisticQuery((parse(SMOKES),), SCHEMA, GaussianShares(10), half)
    query = world.query(kind=kind, feature_map=half)
    (found,) = reasons(ApprovalRules(admitted_predicates=(SMOKES,)), query, COST)
    assert found.startswith("not on the list")


@pytest.mark.parametrize(
    "rules", [{"admitted_predicates": ("x[",)}, {"designs": ("dp-feet",)}, {"approvers": 0}, {"epsilon_at_least": 1}]
)
def test_a_wrong_rule_is_refused(rules):
    with pytest.raises(ValidationError):
        ApprovalRules(**rules)
