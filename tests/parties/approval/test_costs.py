"""What people are told an approval may cost: one attempt, and all that the query allows, as the ledger counts them."""

from fractions import Fraction

import pytest

from dpcore.accounting.filters import Loss, PrivacyLimit
from parties.approval.gate import AttemptCosts
from parties.history.reading import costs
from parties.ledger.budgets import state_of
from parties.ledger.charges import RECORD, Charge
from parties.ledger.limits import BudgetExceededError, Event, LedgerLimits, check_admits

PURE = Charge(((RECORD, Loss.of_epsilon(Fraction(1, 2), Fraction(0))),), "lea")
GAUSSIAN = Charge(((RECORD, Loss.of_epsilon(Fraction(1, 2), Fraction(1, 10**7))),), "lea")
LIMITS = LedgerLimits(PrivacyLimit(Fraction(10), Fraction(1, 10**5)))
NOW = 1_790_000_000.0


def events(*charges: Charge) -> list[Event]:
    return [Event(charge, charged=True, recorded_at_unix_s=NOW) for charge in charges]


def of(charge: Charge, attempts: int, held: list[Event] = (), recorded: int = 0, limits=LIMITS) -> AttemptCosts:
    return AttemptCosts.of(charge, attempts, limits, held, recorded, NOW)


@pytest.mark.parametrize("charge", [PURE, GAUSSIAN])
@pytest.mark.parametrize("before", [[], [PURE, GAUSSIAN, GAUSSIAN]])
def test_the_most_is_what_a_ledger_has_when_every_attempt_is_charged(charge, before):
    found = of(charge, 3, events(*before))
    state = state_of(LIMITS, events(*before, charge, charge, charge), now_unix_s=None)
    assert found.most[0].spent == state.scopes[0].held_epsilon
    alone = state_of(LIMITS, events(charge, charge, charge), now_unix_s=None)
    assert found.most[0].cost == alone.scopes[0].held_epsilon
    assert found.one == tuple(costs(charge, state_of(LIMITS, events(*before, charge), now_unix_s=None)))
    assert found.one[0].cost < found.most[0].cost <= 3 * found.one[0].cost


def test_attempts_that_are_charged_already_count_once():
    """After a lost attempt the most is still that of all attempts, and what is spent is not counted twice."""
    found = of(PURE, 3, events(PURE, PURE), recorded=2)
    assert found.most[0].cost == of(PURE, 3).most[0].cost
    assert found.most[0].spent == state_of(LIMITS, events(PURE, PURE, PURE), now_unix_s=None).scopes[0].held_epsilon
    assert found.one[0].spent == state_of(LIMITS, events(PURE, PURE), now_unix_s=None).scopes[0].held_epsilon


def test_it_says_how_many_of_the_attempts_the_limits_admit():
    limits = LedgerLimits(PrivacyLimit(Fraction(1), Fraction(1, 10**5)))
    check_admits(limits, events(PURE), PURE, now_unix_s=NOW)
    with pytest.raises(BudgetExceededError):
        check_admits(limits, events(PURE, PURE), PURE, now_unix_s=NOW)
    for recorded in (0, 1, 2):
        found = of(PURE, 3, events(*[PURE] * recorded), recorded, limits)
        assert found.admitted == 2
        assert "the lifetime limits have room for 2 of them, and the others would be refused" in "\n".join(
            found.lines()
        )
    assert of(PURE, 3).admitted == 3
    assert "have room" not in "\n".join(of(PURE, 3).lines())


def test_all_attempts_over_one_noised_table_cost_what_one_costs():
    table = Charge(PURE.bounds, "lea", epoch=b"table")
    found = of(table, 3)
    assert (found.most[0].cost, found.most[0].spent) == (found.one[0].cost, found.one[0].spent)
    assert found.admitted == 3


def test_one_attempt_has_one_figure():
    found = of(PURE, 1)
    assert found.most == found.one
    assert found.short == "epsilon 0.5"
    assert [line for line in found.lines() if "most" in line] == [
        "one attempt is allowed, so that its cost is the most that the query may cost"
    ]


def test_the_lines_have_unit_and_assumption():
    lines = of(PURE, 3).lines()
    assert "most that all 3 attempts may cost in total, whole records: epsilon 1.5; with them, 1.5 of 10" in lines[2]
    assert lines[-1] == (
        "costs are epsilons as this party's ledger counts them, at the delta of each limit; assumed is that every "
        "attempt uploads, over the same rows as now"
    )
    assert of(PURE, 3).short == "epsilon 0.5, at most epsilon 1.5 in 3 attempts"


def test_a_query_without_a_bound_has_none_for_all_attempts():
    found = of(Charge(learner="lea"), 3, limits=LedgerLimits(LIMITS.lifetime, unbounded_events=2))
    assert (found.one[0].cost, found.most[0].cost, found.admitted) == (None, None, 2)
    assert found.short == "no bound, in up to 3 attempts"
