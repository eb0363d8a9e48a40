"""A ledger reads events of equal cost as one: every figure and decision is that of all its events."""

from contextlib import closing
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpcore.accounting.filters import PrivacyLimit
from parties.database import LedgerOwner
from parties.ledger.budgets import budgets, state_of
from parties.ledger.charges import Charge, bounds_text
from parties.ledger.ledger import Ledger, Steps
from parties.ledger.limits import DAY_S, LedgerLimits, check_admits, room
from tests.parties.ledger.test_room import NOW, charges, record
from wire.errors import WireError

LIMITS = LedgerLimits(
    PrivacyLimit(Fraction(20), Fraction(1, 10**4)),
    unbounded_events=7,
    per_learner=PrivacyLimit(Fraction(9), Fraction(1, 10**4)),
    per_day=PrivacyLimit(Fraction(5), Fraction(1, 10**4)),
)
times = st.sampled_from([0.0, NOW / 2, NOW - DAY_S, NOW - DAY_S + 1, NOW - 1, NOW, NOW + 1])
epochs = st.sampled_from([None, None, b"table"])


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger.open(tmp_path / "ledger.sqlite", LedgerOwner("f", "p", "s"), LIMITS).database) as database:
        yield Ledger(database, LIMITS)


def hold(ledger, events) -> None:
    with ledger.database.transaction() as connection:
        connection.execute("DELETE FROM events")
        for number, (charge, epoch, charged, at) in enumerate(events):
            state = "charged" if charged else "reserved"
            row = (b"query", number, charge.learner, epoch, bounds_text(charge), state, NOW, at)
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, NULL, NULL, ?)", row)


def verdict(events, charge) -> str:
    try:
        check_admits(LIMITS, events, charge, now_unix_s=NOW)
    except WireError as error:
        return str(error)
    return ""


@pytest.mark.more
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(charges, epochs, st.booleans(), times), max_size=12), charges)
def test_every_figure_and_decision_is_that_of_all_events(ledger, events, more):
    # Twice, so that there is something to merge.
    hold(ledger, events + events)
    whole, merged = ledger.events(), ledger.merged_events(NOW)
    assert len(merged) <= len(events)
    assert sum(event.count for event in merged) == len(whole)
    assert state_of(LIMITS, merged, now_unix_s=NOW) == state_of(LIMITS, whole, now_unix_s=NOW) == ledger.state(NOW)
    assert verdict(merged, more) == verdict(whole, more)
    for last in (more, ledger.last_charge()):
        assert room(LIMITS, merged, last, NOW) == room(LIMITS, whole, last, NOW)
    charged = [event.recorded_at_unix_s for event in whole if event.charged]
    assert ledger.first_charge_unix_s() == min(charged, default=None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(charges, epochs, st.booleans(), st.floats(0, NOW)), max_size=12),
    st.floats(0, NOW),
    st.floats(0, NOW),
)
def test_steps_part_what_is_merged(ledger, events, since, until):
    hold(ledger, events)
    steps = Steps(since, until, 8)
    merged, whole = ledger.merged_events(NOW, steps), ledger.events()
    for first in [since + n * steps.length_s for n in range(9)]:
        for end in (first, until):
            before = [sum(event.count for event in each if event.recorded_at_unix_s < end) for each in (merged, whole)]
            assert before[0] == before[1]
    if since < until:
        assert (until - since) / steps.length_s <= 8
        early = ledger.merged_events(NOW, Steps(since, since + (until - since) * 0.999, 8))
        assert sum(event.count for event in early) == len(whole)


def test_steps_begin_at_the_first_moment(ledger):
    hold(ledger, [(record(1), None, True, at) for at in (3.5, 6.5, 7.5)])
    merged = ledger.merged_events(NOW, Steps(3.0, 11.0, 2))
    assert sorted((event.recorded_at_unix_s, event.count) for event in merged) == [(6.5, 2), (7.5, 1)]


def test_a_budget_over_time_ends_where_all_events_end(ledger):
    hold(ledger, [(record(Fraction(n % 3 + 1, 100)), None, True, float(n)) for n in range(300)])
    for since, until in ((0.0, 300.0), (40.0, 200.0)):
        found = []
        for events in (ledger.events(), ledger.merged_events(NOW, Steps(since, until, 20))):
            counted = [event for event in events if event.recorded_at_unix_s < until]
            (budget,) = budgets(state_of(LIMITS, counted, now_unix_s=None), counted, since, 20)
            found.append(budget)
        whole, merged = found
        assert (merged.before, merged.spent, merged.remaining) == (whole.before, whole.spent, whole.remaining)
        assert merged.steps[-1][1] == whole.steps[-1][1] == whole.spent
        # Each step is what was spent up to its time, as if all events were steps.
        counted = [event for event in ledger.events() if event.recorded_at_unix_s < until]
        (exact,) = budgets(state_of(LIMITS, counted, now_unix_s=None), counted, since, len(counted))
        assert set(merged.steps) <= set(exact.steps)
        assert len(merged.steps) > 8


def test_the_last_is_the_newest_charge_of_a_query(ledger):
    assert ledger.last_charge() is None
    acknowledged = Charge(record(1).bounds)
    hold(ledger, [(acknowledged, None, True, 11.0), (record(3), None, False, 10.0)])
    assert ledger.last_charge() is None
    events = [(record(2), 5.0, True), (record(1, "max"), 9.0, True), (record(3), 9.0, False), (record(4), 7.0, True)]
    hold(ledger, [*((charge, None, charged, at) for charge, at, charged in events), (acknowledged, None, True, 11.0)])
    assert ledger.last_charge() == record(1, "max")


def test_a_ledger_of_one_cost_is_read_as_few_events(ledger):
    hold(ledger, [(record(Fraction(1, 1000)), None, True, float(n)) for n in range(1000)])
    assert len(ledger.merged_events(NOW)) == 1
    assert len(ledger.merged_events(NOW, Steps(0.0, 1000.0, 20))) <= 20


@pytest.mark.parametrize("ages_s", [(1, 100), (100, 1), (2, 1, 100)])
def test_what_is_merged_has_the_time_of_the_newest(ledger, ages_s):
    hold(ledger, [(record("1"), None, True, NOW - age_s) for age_s in ages_s])
    (merged,) = ledger.merged_events(NOW)
    assert (merged.recorded_at_unix_s, merged.count) == (NOW - min(ages_s), len(ages_s))
