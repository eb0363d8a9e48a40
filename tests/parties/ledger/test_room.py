"""How many more attempts like the last fit: the ledger's own decisions, one attempt at a time."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.filters import Loss, PrivacyLimit
from parties.ledger.charges import RECORD, Charge, marginal
from parties.ledger.limits import (
    DAY_S,
    BudgetExceededError,
    Event,
    LedgerLimits,
    Room,
    UnboundedExceededError,
    check_admits,
    merged,
    more_like,
    room,
)

NOW = 10.0 * DAY_S
SMOKER = marginal("smoker", "smokes")


def record(epsilon, learner="lea", delta=0, epoch=None) -> Charge:
    loss = Loss.of_epsilon(Fraction(epsilon), Fraction(delta))
    return Charge(((RECORD, loss),), learner, epoch)


def event(charge, *, charged=True, at=0.0) -> Event:
    return Event(charge, charged, at)


def limits(epsilon, delta=0, **more) -> LedgerLimits:
    return LedgerLimits(PrivacyLimit(Fraction(epsilon), Fraction(delta)), **more)


def one_by_one(allowed, events, charge, now_unix_s=0.0, most=200) -> int:
    """What the ledger admits if it is asked again and again."""
    held = list(events)
    while len(held) - len(events) < most:
        try:
            check_admits(allowed, held, charge, now_unix_s=now_unix_s)
        except (BudgetExceededError, UnboundedExceededError):
            break
        held.append(event(charge, charged=False, at=now_unix_s))
    return len(held) - len(events)


losses = st.builds(
    lambda epsilon, delta: Loss.of_epsilon(Fraction(epsilon, 8), Fraction(delta, 10**6)),
    st.integers(1, 12),
    st.integers(0, 2),
)
charges = st.builds(
    lambda record_loss, feature_loss, learner: Charge(
        tuple((scope, loss) for scope, loss in ((RECORD, record_loss), (SMOKER, feature_loss)) if loss is not None),
        learner,
    ),
    st.none() | losses,
    st.none() | losses,
    st.sampled_from(["lea", "max"]),
)


@given(
    st.lists(st.builds(event, charges, charged=st.booleans(), at=st.sampled_from([0.0, NOW])), max_size=5),
    charges,
    st.sampled_from([(4, 0), (6, Fraction(1, 10**5)), (7, Fraction(1, 10**3))]),
    st.none() | st.just(PrivacyLimit(Fraction(2), Fraction(1, 10**5))),
    st.none() | st.just(PrivacyLimit(Fraction(3), Fraction(1, 10**5))),
)
def test_it_is_what_the_ledger_admits_one_by_one(events, charge, lifetime, per_learner, per_day):
    allowed = limits(*lifetime, unbounded_events=7, per_learner=per_learner, per_day=per_day)
    assert more_like(allowed, events, charge, now_unix_s=NOW) == one_by_one(allowed, events, charge, NOW)


def test_a_day_s_limit_frees_itself_and_counts_only_where_it_is_asked_for():
    allowed = limits(10, per_day=PrivacyLimit(Fraction(2), Fraction(0)))
    spent = [event(record(1), at=NOW)]
    assert more_like(allowed, spent, record(1)) == 9
    assert more_like(allowed, spent, record(1), now_unix_s=NOW) == 1
    assert more_like(allowed, spent, record(1), now_unix_s=NOW + DAY_S) == 2


@pytest.mark.more
def test_many_small_ones_have_room_beyond_the_sum_of_their_epsilons():
    small = record(Fraction(1, 100), delta=Fraction(1, 10**9))
    found = more_like(limits(1, Fraction(1, 10**5)), [], small)
    assert found > 200
    assert found == one_by_one(limits(1, Fraction(1, 10**5)), [], small, most=found + 1)


def test_reservations_take_room():
    held = [event(record(3)), event(record(3), charged=False)]
    assert more_like(limits(10), held, record(2)) == 2


def test_charges_of_other_learners_take_no_room_of_a_learner_s_own_limit():
    own = limits(20, per_learner=PrivacyLimit(Fraction(5), Fraction(0)))
    events = [event(record(2)), event(record(2)), event(record(3, "max"))]
    ((scope, one),) = record(2).bounds
    twice = replace(record(2), bounds=((scope, one.times(2)),))
    assert [more_like(own, events, record(1, learner)) for learner in ("lea", "max", "kim")] == [1, 2, 5]
    assert {found.charge.learner: found.charge for found in merged(events)} == {
        "lea": replace(twice, events=2), "max": record(3, "max")
    }  # fmt: skip


def test_attempts_without_a_bound_are_counted():
    held = [event(Charge(learner="lea"))] * 2
    assert more_like(limits(10, unbounded_events=7), held, Charge(learner="lea")) == 5
    assert more_like(limits(10), [], Charge(learner="lea")) == 0


def test_the_same_table_again_is_no_further_release():
    table = record(3, epoch=b"table")
    assert more_like(limits(10), [event(table)], table) is None
    assert more_like(limits(2), [], table) == 0
    assert str(room(limits(10), [event(table)], table, NOW)).startswith(
        "Room for any number more like the last, of lea"
    )


def test_a_charge_that_costs_nothing_fits_without_end():
    assert more_like(limits(0), [], record(0)) is None


def test_room_is_for_the_last_charge_over_the_lifetime_and_in_these_24_hours():
    acknowledged = Charge(record(1).bounds)
    events = [
        event(record(2), at=5.0),
        event(record(1, "max"), at=9.0),
        event(record(3), at=9.0, charged=False),
        event(record(Fraction(1, 2)), at=7.0),
        event(acknowledged, at=11.0),
    ]
    found = room(limits(20, per_day=PrivacyLimit(Fraction(9), Fraction(0))), events, record(1, "max"), 10.0)
    assert found == Room(record(1, "max"), 12, 1)
    assert str(found) == (
        "Room for about 12 more like the last, of max (epsilon 1 at delta 0 for record); 1 of them in these 24 hours."
    )
    assert found.to_dict() == {
        "learner": "max",
        "cost": "epsilon 1 at delta 0 for record",
        "lifetime": 12,
        "these_24_hours": 1,
    }


def test_without_a_limit_for_each_day_there_is_no_room_of_these_24_hours():
    assert room(limits(20), [event(record(2), at=5.0)], record(2), 10.0) == Room(record(2), 9, None)


@pytest.mark.parametrize(("day", "says"), [(4, "; 4 of them in these 24 hours."), (5, ")."), (None, ").")])
def test_the_room_of_these_24_hours_is_said_where_it_is_less(day, says):
    assert str(Room(record(1), 5, day)).endswith(says)


@pytest.mark.parametrize("events", [[], [event(record(1), charged=False)]], ids=["nothing", "a reservation"])
def test_before_the_first_charge_there_is_nothing_to_compare_with(events):
    assert room(limits(10), events, None, NOW) is None
