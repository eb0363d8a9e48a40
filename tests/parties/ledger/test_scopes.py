"""Nested scopes, epochs, and the limits of learners and days."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.concentrated import Concentrated
from dpcore.accounting.filters import NO_LOSS, Loss, PrivacyLimit
from parties.database import LedgerOwner
from parties.ledger.charges import RECORD, Charge, Scope, ScopeKind, joint, marginal
from parties.ledger.ledger import Ledger
from parties.ledger.limits import BudgetExceededError, LedgerLimits, Scopes, UnboundedExceededError

OWNER = LedgerOwner("clinics", "ada", "data.csv")
LOOSE = PrivacyLimit(Fraction(100), Fraction(1, 1000))
SMOKER, AGE = marginal("smoker", "smokes"), marginal("age", "age")
DAY_S = 24 * 3600


def loss(epsilon, delta="0") -> Loss:
    """A loss that only the basic filter can allow."""
    return Loss(Fraction(epsilon), Fraction(delta), Fraction(10**6), Fraction(0))


def charge(*bounds, learner="lea", epoch=None) -> Charge:
    return Charge(bounds, learner, epoch)


def limit(epsilon) -> PrivacyLimit:
    return PrivacyLimit(Fraction(epsilon), Fraction(1, 1000))


@pytest.fixture
def make(tmp_path):
    numbers = itertools.count()

    class Made:
        def __init__(self, **limits):
            self.ledger = Ledger.open(
                tmp_path / f"{next(numbers)}.sqlite",
                OWNER,
                LedgerLimits(**{"lifetime": LOOSE, "unbounded_events": 99} | limits),
            )
            self.numbers = itertools.count()

        def reserve(self, what: Charge, now=0.0) -> bytes:
            query_id = next(self.numbers).to_bytes(32, "big")
            self.ledger.reserve(query_id, 1, what, lapses_at_unix_s=1e12, now_unix_s=now)
            return query_id

        def spend(self, what: Charge, now=0.0) -> bytes:
            query_id = self.reserve(what, now)
            self.pay(query_id, now)
            return query_id

        def pay(self, query_id, now=0.0) -> None:
            self.ledger.charge(query_id, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=now)

        def spent(self, scope: Scope):
            return self.ledger.spent(scope).epsilon

    return Made


def test_a_bound_for_records_bounds_everything_below(make):
    made = make()
    made.spend(charge((RECORD, loss("1"))))
    for scope in (RECORD, joint("smokes"), SMOKER, marginal("never heard of")):
        assert made.spent(scope) == 1
    assert made.ledger.unbounded() == 0


def test_a_bound_for_a_column_bounds_its_features_and_no_other(make):
    made = make()
    made.spend(charge((joint("smokes"), loss("1"))))
    made.spend(charge((AGE, loss("8"))))
    assert [made.spent(scope) for scope in (RECORD, joint("smokes"), SMOKER, joint("age"), AGE)] == [0, 1, 1, 0, 8]
    assert made.ledger.unbounded() == 2


def test_the_columns_bound_reaches_a_feature_whose_column_is_known_from_another_event(make):
    made = make()
    made.spend(charge((joint("smokes"), loss("1"))))
    made.spend(charge((SMOKER, loss("2"))))
    assert made.spent(marginal("smoker")) == 3


def test_the_nearest_bound_counts(make):
    made = make()
    made.spend(charge((RECORD, loss("5")), (joint("smokes"), loss("2")), (SMOKER, loss("1"))))
    assert [made.spent(scope) for scope in (RECORD, joint("smokes"), SMOKER, AGE, joint("age"))] == [5, 2, 1, 5, 5]


def test_every_scope_has_its_limit(make):
    made = make(lifetime=limit("10"), record=limit("3"), columns={"age": limit("2")}, features={"smoker": limit("1")})
    for bounds, scope in (
        (((RECORD, loss("3.5")),), RECORD),
        (((joint("age"), loss("2.5")),), joint("age")),
        (((SMOKER, loss("1.5")),), SMOKER),
        # What bounds more than one scope is held to the strictest.
        (((RECORD, loss("2.5")),), joint("age")),
        (((RECORD, loss("1.5")),), marginal("smoker")),
        (((joint("smokes"), loss("1.5")), (SMOKER, loss("1.5"))), SMOKER),
    ):
        with pytest.raises(BudgetExceededError) as caught:
            made.reserve(charge(*bounds))
        assert caught.value.scope.key == scope.key
        assert f"for {scope}" in str(caught.value)
    made.spend(charge((joint("weight"), loss("9"))))
    made.spend(charge((RECORD, loss("0.5"))))
    with pytest.raises(BudgetExceededError) as caught:
        made.reserve(charge((SMOKER, loss("0.6", "1e-6"))))
    assert caught.value.remaining == pytest.approx(0.5)
    made.spend(charge((SMOKER, loss("0.5"))))


def test_several_marginals_of_one_event_are_each_charged(make):
    made = make(lifetime=limit("3"))
    both = charge((SMOKER, loss("1")), (AGE, loss("2")))
    made.spend(both)
    assert (made.spent(SMOKER), made.spent(AGE)) == (1, 2)
    with pytest.raises(BudgetExceededError) as caught:
        made.reserve(both)
    assert caught.value.scope.key == AGE.key


def test_events_without_a_bound_for_records_are_limited_in_number(make):
    made = make(unbounded_events=2)
    made.spend(charge())
    made.reserve(charge((SMOKER, loss("1"))))
    for more in (charge(), charge((joint("age"), loss("1")))):
        with pytest.raises(UnboundedExceededError, match="unbounded_queries allows 2 such events and 2") as caught:
            made.reserve(more)
        assert (caught.value.limit, caught.value.held) == (2, 2)
    # That limit does not stop an event that bounds records; limits on epsilon do not stop an unbounded event.
    made.spend(charge((RECORD, loss("1"))))
    made.ledger.limits = LedgerLimits(PrivacyLimit(Fraction(0), Fraction(0)), 3)
    made.spend(charge())
    # Also when it was lowered below what is held: a bounded event adds nothing to it.
    made.ledger.limits = LedgerLimits(LOOSE, 1)
    made.spend(charge((RECORD, loss("1"))))
    with pytest.raises(UnboundedExceededError, match="allows 1 such events and 3"):
        made.reserve(charge())


def test_an_event_without_a_bound_is_reported_from_then_on(make):
    made = make()
    first = made.reserve(charge())
    assert made.ledger.state().warning == ""
    made.pay(first)
    made.spend(charge((RECORD, loss("1"))))
    state = made.ledger.state()
    assert state.scopes[0].spent.unbounded == 1
    assert "1 event without a bound here" in state.sentences()[1]
    assert "without any privacy bound for whole records" in state.sentences()[-1]
    assert state.to_dict()["warnings"] == [state.warning]
    assert state.to_dict()["scopes"][0]["spent"]["epsilon"] == 1


def test_an_epoch_is_one_release(make):
    made = make(lifetime=limit("5"))
    table = charge((RECORD, loss("4")), epoch=b"one")
    first, second, third = (made.reserve(table) for _ in range(3))
    made.pay(first)
    made.pay(second)
    assert made.spent(RECORD) == 4
    # After one release, the others still reserve it.
    made.ledger.release(third, 1)
    with pytest.raises(BudgetExceededError):
        made.reserve(charge((RECORD, loss("4")), epoch=b"two"))
    made.spend(charge((RECORD, loss("1"))))
    made.spend(table)


def test_a_reserved_epoch_stays_set_aside_while_any_event_of_it_is(make):
    made = make(lifetime=limit("5"))
    table = charge((RECORD, loss("4")), epoch=b"one")
    first, second = made.reserve(table), made.reserve(table)
    made.ledger.release(first, 1)
    with pytest.raises(BudgetExceededError):
        made.reserve(charge((RECORD, loss("2"))))
    made.ledger.release(second, 1)
    made.reserve(charge((RECORD, loss("2"))))
    with pytest.raises(BudgetExceededError):
        made.reserve(table)


def test_an_epoch_counts_the_most_that_its_events_say(make):
    made = make(lifetime=limit("5"))
    made.spend(charge((RECORD, loss("1", "1e-6")), epoch=b"one"))
    made.spend(charge((RECORD, loss("4", "1e-7")), epoch=b"one"))
    assert made.ledger.spent(RECORD) == loss("4", "1e-6")
    with pytest.raises(BudgetExceededError):
        made.reserve(charge((RECORD, loss("6")), epoch=b"one"))
    made.spend(charge(epoch=b"one"))
    made.spend(charge(epoch=b"one"))
    assert (made.ledger.unbounded(), made.spent(RECORD)) == (1, 4)


def test_learners_have_limits_of_their_own(make):
    made = make(lifetime=limit("10"), per_learner=limit("4"))
    # An event with an unknown learner counts for every learner.
    made.spend(charge((RECORD, loss("1")), learner=""))
    made.spend(charge((RECORD, loss("2"))))
    with pytest.raises(BudgetExceededError, match="of each learner"):
        made.reserve(charge((RECORD, loss("2"))))
    made.spend(charge((RECORD, loss("3")), learner="max"))
    with pytest.raises(BudgetExceededError, match="of the lifetime"):
        made.reserve(charge((RECORD, loss("4.5")), learner="nina"))
    assert [(name, states[0].spent_epsilon) for name, states in made.ledger.state().learners] == [
        ("", 1),
        ("lea", 3),
        ("max", 4),
    ]


def test_days_have_limits_of_their_own(make):
    made = make(lifetime=limit("10"), per_day=limit("2"))
    made.spend(charge((RECORD, loss("2"))), now=100.0)
    for now in (100.0, DAY_S + 99.0, -1e6):
        with pytest.raises(BudgetExceededError, match="of each day"):
            made.reserve(charge((RECORD, loss("1"))), now=now)
    waiting = made.reserve(charge((RECORD, loss("1"))), now=DAY_S + 101.0)
    # A reservation may be charged on any day.
    with pytest.raises(BudgetExceededError, match="of each day"):
        made.reserve(charge((RECORD, loss("1.5"))), now=3.0 * DAY_S)
    made.spend(charge((RECORD, loss("1"))), now=3.0 * DAY_S)
    made.pay(waiting, now=3.0 * DAY_S + 1)
    (today,) = made.ledger.state(3.0 * DAY_S + 2).day
    assert (today.spent_epsilon, made.ledger.state().day) == (2, ())


def test_a_charge_is_held_to_the_day_it_is_charged_on(make):
    made = make(per_day=limit("2"))
    first, second = (made.reserve(charge((RECORD, loss("1")))) for _ in range(2))
    made.ledger.limits = LedgerLimits(LOOSE, per_day=limit("1"))
    made.pay(first, now=5.0 * DAY_S)
    with pytest.raises(BudgetExceededError, match="of each day"):
        made.pay(second, now=5.5 * DAY_S)
    made.pay(second, now=6.1 * DAY_S)


@pytest.mark.more
def test_many_releases_with_gaussian_noise_cost_less_than_their_sum(make):
    made = make(lifetime=PrivacyLimit(Fraction(3), Fraction(1, 10**5)))
    one = Loss.of_concentrated(Concentrated(Fraction(1, 1000)), Fraction(1, 10**6))
    count = 0
    with pytest.raises(BudgetExceededError):
        while True:
            made.spend(charge((RECORD, one)))
            count += 1
    assert count == int(made.ledger.limits.lifetime.largest_rho * 1000)
    assert count * float(one.epsilon) > 15
    (state,) = made.ledger.state().scopes
    assert 2.9 < state.spent_epsilon <= 3


@pytest.mark.parametrize("kind", [ScopeKind.JOINT, ScopeKind.MARGINAL])
def test_scopes_have_a_name_if_they_need_one(kind):
    with pytest.raises(ValueError, match="not a scope"):
        Scope(kind)
    with pytest.raises(ValueError, match="not a scope"):
        Scope(ScopeKind.RECORD, "all")
    with pytest.raises(ValueError, match="not a scope"):
        Scope(ScopeKind.JOINT, "age", "age")
    with pytest.raises(ValueError, match="twice"):
        charge((marginal("a", "x"), loss("1")), (marginal("a", "y"), loss("2")))
    with pytest.raises(ValueError, match="epoch"):
        charge(epoch=b"")


scopes = st.sampled_from([RECORD, joint("smokes"), joint("age"), SMOKER, AGE])
charges = st.builds(
    lambda bounds, learner, epoch: Charge(tuple((s, loss(e)) for s, e in bounds.items()), learner, epoch),
    st.dictionaries(scopes, st.integers(0, 3), max_size=3),
    st.sampled_from(["lea", "max", ""]),
    st.sampled_from([None, None, b"one", b"two"]),
)


def test_a_release_of_an_unknown_learner_counts_for_each_learner_separately(make):
    """The table's release is counted for lea already, and not yet for max."""
    made = make(lifetime=limit("10"), per_learner=limit("5"))
    made.spend(charge((RECORD, loss("3")), learner="lea", epoch=b"table"))
    made.spend(charge((RECORD, loss("3")), learner="max"))
    with pytest.raises(BudgetExceededError, match="of each learner"):
        made.spend(charge((RECORD, loss("3")), learner="", epoch=b"table"))


@given(st.lists(charges, max_size=12))
def test_any_run_of_charges_keeps_to_every_limit(tmp_path_factory, run):
    """Against the plain sums over what was admitted."""
    all_limits = LedgerLimits(limit("6"), 4, record=limit("3"), features={"smoker": limit("4")}, per_learner=limit("5"))
    ledger = Ledger.open(tmp_path_factory.mktemp("ledger") / "ledger.sqlite", OWNER, all_limits)
    admitted: list[Charge] = []
    # The first event shows which columns the features have.
    columns = charge((RECORD, loss("0")), (SMOKER, loss("0")), (AGE, loss("0")))
    for number, what in enumerate([columns, *run]):
        key = number.to_bytes(32, "big")
        try:
            ledger.reserve(key, 1, what, lapses_at_unix_s=1e12, now_unix_s=0.0)
            ledger.charge(key, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=0.0)
        except (BudgetExceededError, UnboundedExceededError):
            continue
        admitted.append(what)
    ledger.database.close()
    for scope in (RECORD, joint("smokes"), joint("age"), SMOKER, AGE):
        for learner in (None, "lea", "max"):
            chosen = [c for c in admitted if learner is None or c.learner in ("", learner)]
            cap = all_limits.of(scope).epsilon if learner is None else Fraction(5)
            epochs = {c.epoch for c in chosen if c.epoch}
            total = sum((c.bound(scope) or NO_LOSS).epsilon for c in chosen if c.epoch is None)
            total += sum(max((c.bound(scope) or NO_LOSS).epsilon for c in chosen if c.epoch == e) for e in epochs)
            assert total <= cap
    single = sum(not c.is_bounded for c in admitted if c.epoch is None)
    assert single + len({c.epoch for c in admitted if c.epoch and not c.is_bounded}) <= 4


def test_a_scope_is_known_from_its_name_alone():
    known = Scopes([charge((SMOKER, loss("1")))], LedgerLimits(LOOSE))
    assert [str(scope) for scope in known.all] == ["record", "joint:smokes", "marginal:smoker"]


def test_a_number_of_events_is_not_negative():
    with pytest.raises(ValueError, match="0 or more"):
        LedgerLimits(PrivacyLimit(Fraction(1), Fraction(0)), -1)
