"""What an attempt cost, as people read it and as it is stored."""

import json
from fractions import Fraction

from dpcore.accounting.filters import Loss, PrivacyLimit
from parties.history.reading import ScopeCost, costs, scope_costs
from parties.ledger.budgets import state_of
from parties.ledger.charges import RECORD, Charge, joint, marginal
from parties.ledger.limits import Event, LedgerLimits

LIMIT = PrivacyLimit(Fraction(4), Fraction(1, 10**5))
LOSS = Loss.of_epsilon(Fraction(1, 2), Fraction(1, 10**7))
WHOLE = Charge(((RECORD, LOSS),), "lea")


def state(*charges: Charge, **limits):
    return state_of(LedgerLimits(LIMIT, 5, **limits), [Event(each, True, 0.0) for each in charges], now_unix_s=None)


def test_a_charge_of_whole_records():
    (cost,) = costs(WHOLE, state(WHOLE, WHOLE))
    assert (cost.scope, cost.cost, cost.limit_epsilon) == ("whole records", 0.5, 4.0)
    assert cost.spent == state(WHOLE, WHOLE).scopes[0].held_epsilon
    assert 0.5 < cost.spent < 4
    assert str(cost).startswith("whole records: epsilon 0.5; with it, ")


def test_scopes_that_agree_are_one_line():
    features = Charge(tuple((marginal(f"x{n}"), LOSS) for n in range(5)), "lea")
    record, five = costs(features, state(features))
    assert (record.scope, record.cost) == ("whole records", None)
    assert "no bound" in str(record)
    assert five.scope == "each of 5 features (x0, x1, x2, ...)"
    other = costs(WHOLE, state(WHOLE, columns={"age": LIMIT}))
    assert [cost.scope for cost in other] == ["whole records", "column age"]
    assert {cost.cost for cost in other} == {0.5}
    assert joint("age") in {scope.scope for scope in state(WHOLE, columns={"age": LIMIT}).scopes}


def test_what_no_limit_admits_can_be_stored():
    """A lowered limit: its delta is below that of what is spent."""
    lowered = state(WHOLE, record=PrivacyLimit(Fraction(1), Fraction(0)))
    stored = json.loads(json.dumps(scope_costs(WHOLE, lowered), allow_nan=False))
    (cost,) = (ScopeCost(**each) for each in stored)
    assert (cost.cost, cost.spent) == (None, None)
    assert "more than any limit at that delta" in str(cost)
