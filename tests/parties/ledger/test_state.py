"""What a ledger says of itself, whole: the figures of `rado ledger` and of `--format json`."""

from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.accounting.filters import Loss, PrivacyLimit
from parties.ledger.budgets import state_of
from parties.ledger.charges import RECORD, Charge, joint, marginal
from parties.ledger.limits import DAY_S, Event, LedgerLimits

SMOKER = marginal("smoker", "smokes")
LIFETIME, DAY, LEARNER = (PrivacyLimit(Fraction(epsilon), Fraction(1, 8)) for epsilon in (16, 4, 8))
NOW = 10.0 * DAY_S


def loss(epsilon) -> Loss:
    """A loss that only the basic filter can allow, with parts that differ."""
    return Loss(Fraction(epsilon), Fraction(1, 64), Fraction(10**6), Fraction(1, 2))


EVENTS = (
    Event(Charge(((RECORD, loss(2)),), "lea"), charged=True, recorded_at_unix_s=NOW - DAY_S),
    Event(Charge(((RECORD, loss(1)),), "max"), charged=True, recorded_at_unix_s=NOW - DAY_S + 1),
    Event(Charge(((SMOKER, loss(3)),), "max"), charged=False, recorded_at_unix_s=NOW),
    Event(Charge((), "lea"), charged=True, recorded_at_unix_s=NOW),
    Event(Charge((), "lea"), charged=True, recorded_at_unix_s=NOW),
)
LIMITS = LedgerLimits(LIFETIME, 7, per_learner=LEARNER, per_day=DAY)


def total(epsilon, count, unbounded):
    parts = {"epsilon": float(epsilon), "delta": count / 64, "rho": count * 1e6, "failure": count / 2}
    return parts | {"unbounded_events": unbounded}


def scope(name, limit, spent, held):
    """spent, held: the sum of epsilons, the number of summands, and the events without a bound."""
    return {
        "scope": name,
        "limit_epsilon": float(limit.epsilon),
        "limit_delta": 1 / 8,
        "spent_epsilon": float(spent[0]),
        "spent_and_reserved_epsilon": float(held[0]),
        "remaining_epsilon": float(limit.epsilon - held[0]),
        "remaining_pure_epsilon": float(limit.epsilon - held[0]),
        "remaining_gaussian_epsilon": float(limit.epsilon - held[0]),
        "spent": total(*spent),
        "spent_and_reserved": total(*held),
    }


def by_scope(limit, record, joint_of_column, of_feature):
    """A reservation that bounds the feature alone has no bound for its column and for records."""
    names = ("record", "joint:smokes", "marginal:smoker")
    return [scope(name, limit, *pair) for name, pair in zip(names, (record, joint_of_column, of_feature), strict=True)]


def test_all_figures_are_in_the_json():
    wide = ((3, 2, 2), (3, 2, 3))
    narrow = ((3, 2, 2), (6, 3, 2))
    assert state_of(LIMITS, EVENTS, now_unix_s=NOW).to_dict() == {
        "scopes": by_scope(LIFETIME, wide, wide, narrow),
        "learners": [
            {"learner": "lea", "scopes": by_scope(LEARNER, *[((2, 1, 2), (2, 1, 2))] * 3)},
            {
                "learner": "max",
                "scopes": by_scope(LEARNER, *[((1, 1, 0), (1, 1, 1))] * 2, ((1, 1, 0), (4, 2, 0))),
            },
        ],
        "day": by_scope(DAY, *[((1, 1, 2), (1, 1, 3))] * 2, ((1, 1, 2), (4, 2, 2))),
        "events_charged": 4,
        "events_reserved": 1,
        "unbounded": {"charged": 2, "limit": 7, "remaining": 4},
        "warnings": [
            (
                "2 events without any privacy bound for whole records were released from these data; the figures "
                "cover only the other events of their scope and do not bound the total privacy loss"
            )
        ],
    }


def test_an_infinite_figure_is_none():
    (record,) = state_of(LedgerLimits(PrivacyLimit(Fraction(1), Fraction(0))), EVENTS[:1], now_unix_s=None).scopes
    assert record.to_dict()["spent_epsilon"] is record.to_dict()["spent_and_reserved_epsilon"] is None
    assert record.to_dict()["remaining_epsilon"] == 0


def test_the_sentences_name_limits_learners_and_the_day():
    state = state_of(LIMITS, EVENTS, now_unix_s=NOW)
    first, *others = state.figures()
    assert first == (
        "limit epsilon 16 at delta 0.125; each learner epsilon 8 at delta 0.125; each day epsilon 4 at delta 0.125; "
        "7 queries without a bound for records; 4 events charged and 1 reserved; without a bound for records "
        "2 charged, 4 remaining"
    )
    assert len(others) == 3 * 4
    assert others[2] == (
        "marginal:smoker: spent epsilon 3, with reservations 6; one more answer fits up to 10 with Laplace noise, "
        "10 with Gaussian noise; limit epsilon 16 at delta 0.125; "
        "2 events without a bound here"
    )
    assert str(replace(state.scopes[2], spent=state_of(LIMITS, (), now_unix_s=NOW).scopes[0].spent)).endswith(
        "limit epsilon 16 at delta 0.125"
    )
    assert others[8].startswith("learner max, marginal:smoker: spent epsilon 1, with reservations 4")
    assert others[11].startswith("last 24 hours, marginal:smoker: spent epsilon 1, with reservations 4; ")
    assert state.sentences() == [first, *others, f"warning: {state.warning}"]


def test_without_a_time_or_such_limits_there_are_no_such_figures():
    assert state_of(LIMITS, EVENTS, now_unix_s=None).day == ()
    state = state_of(LedgerLimits(LIFETIME), EVENTS, now_unix_s=NOW)
    assert (state.day, state.learners) == ((), ())
    assert state.remaining_unbounded == 0
    quiet = state_of(LIMITS, EVENTS[:3], now_unix_s=NOW)
    assert quiet.sentences() == quiet.figures()
    assert quiet.to_dict()["warnings"] == []


def test_an_unknown_learner_is_named_so():
    events = [Event(Charge(((RECORD, loss(2)),)), charged=True, recorded_at_unix_s=NOW)]
    state = state_of(LedgerLimits(LIFETIME, per_learner=LEARNER), events, now_unix_s=None)
    assert state.figures()[-1].startswith("learner unknown, record: spent epsilon 2")


def test_limits_are_printed_with_every_scope_that_has_its_own():
    small, smaller = PrivacyLimit(Fraction(2), Fraction(0)), PrivacyLimit(Fraction(1), Fraction(0))
    limits = LedgerLimits(LIFETIME, 1, record=small, columns={"age": small}, features={"smoker": smaller}, per_day=DAY)
    assert str(limits) == (
        "epsilon 16 at delta 0.125; record epsilon 2 at delta 0; joint:age epsilon 2 at delta 0; "
        "marginal:smoker epsilon 1 at delta 0; each day epsilon 4 at delta 0.125; "
        "1 query without a bound for records"
    )
    assert [str(limits.of(s)) for s in (RECORD, joint("age"), SMOKER, joint("x"))] == [
        "epsilon 2 at delta 0",
        "epsilon 2 at delta 0",
        "epsilon 1 at delta 0",
        "epsilon 16 at delta 0.125",
    ]


def test_limits_refuse_a_negative_number():
    with pytest.raises(ValueError, match="-1 events"):
        LedgerLimits(LIFETIME, -1)
