"""Both parts of a table, divided by ids, cost the larger of them or a change of sides: never less, and no more."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.filters import NO_LOSS, Loss, PrivacyLimit, total_loss
from dpcore.accounting.gaussian import composed_shift, shift_distribution
from dpcore.accounting.protection import loss_of
from parties.ledger.charges import RECORD, Charge, Division, Side, bounds_text, joint, read_charge
from parties.ledger.head import Sums
from parties.ledger.limits import BudgetExceededError, Event, LedgerLimits, Scopes, check_admits, merged, more_like

DELTA = Fraction(1, 10**6)
SHARE = Fraction(1, 5)
TABLE = Division("load", "key")
LIMITS = LedgerLimits(PrivacyLimit(Fraction(2), Fraction(1, 10**5)))


def loss(mu: float) -> Loss:
    return loss_of(shift_distribution(mu), DELTA)


def about(mu: float, presence: float, *, held_back: bool, division=TABLE, share=SHARE, learner="lea") -> Charge:
    """A Gaussian answer about a part of the rows: mu of a replaced record, and of one that leaves or joins."""
    return Charge(((RECORD, loss(mu)),), learner, side=Side(division, share, held_back), presence=loss(presence))


def whole(mu: float, learner="lea") -> Charge:
    return Charge(((RECORD, loss(mu)),), learner)


def total(*charges: Charge) -> Loss:
    counts = {charge: charges.count(charge) for charge in charges}
    return Scopes(counts, LIMITS).total(counts, RECORD).loss


TRAINING, EVALUATION = about(0.3, 0.15, held_back=False), about(0.2, 0.2 / math.sqrt(2), held_back=True)


def test_the_larger_part_is_charged_and_not_the_sum():
    assert total(TRAINING, EVALUATION).rho == loss(0.3).rho
    assert total(TRAINING, EVALUATION, EVALUATION).rho == loss(0.3).rho
    assert total(*[EVALUATION] * 4, TRAINING).rho == 4 * loss(0.2).rho
    assert total(TRAINING, EVALUATION, whole(0.1)).rho == loss(0.3).rho + loss(0.1).rho


def test_a_record_that_changes_sides_is_charged_where_that_costs_most():
    """As with predicates that do not exclude one another: then presence costs as much as a replacement."""
    one, other = about(0.3, 0.3, held_back=False), about(0.2, 0.2, held_back=True)
    assert total(one, other) == total_loss([(loss(0.3), 1), (loss(0.2), 1)])


EVENTS = st.tuples(
    st.sampled_from([0.1, 0.2, 0.4]), st.sampled_from([0.5, 0.7, 1.0]), st.sampled_from([None, False, True])
)


@given(st.lists(EVENTS, min_size=1, max_size=6))
def test_the_total_is_at_least_what_each_pair_of_neighbours_costs(events):
    """Against the exact composition of each case: both records in one part, or one in each."""
    charges = [
        whole(mu) if side is None else about(mu, factor * mu, held_back=side) for mu, factor, side in events
    ]  # fmt: skip
    counted = total(*charges)
    for case in ((False,), (True,), (False, True)):
        shifts = [
            shift_distribution(mu * factor if len(case) == 2 and side is not None else mu)
            for mu, factor, side in events
            if side is None or side in case
        ]
        if shifts:
            exact = sum(float(shift.upper[0]) for shift in shifts)
            assert float(counted.rho) * (1 + 1e-9) >= exact / 2
            limit = PrivacyLimit(Fraction(100), DELTA)
            assert limit.spent(counted) >= composed_shift(shifts).epsilon(DELTA).lower


OTHERS = [
    about(0.2, 0.1, held_back=True, division=Division("later", "key")),
    about(0.2, 0.1, held_back=True, division=Division("load", "other")),
    about(0.2, 0.1, held_back=True, share=Fraction(1, 4)),
    whole(0.2),
]


@pytest.mark.parametrize("other", OTHERS)
def test_other_loads_keys_shares_and_rows_without_ids_count_in_full(other):
    assert total(TRAINING, other).rho == loss(0.3).rho + loss(0.2).rho


def test_beside_a_charge_for_lost_ones_all_parts_count_in_full():
    """The lost one may have been of the part that counts for nothing: 1, 1 and 2 of it would add up to 1."""
    lost = Charge(((RECORD, NO_LOSS),))
    assert total(TRAINING, EVALUATION, lost).rho == loss(0.3).rho + loss(0.2).rho


def test_what_witnesses_keep_are_plain_sums():
    """Their differences are what a ledger that was set back lacks."""
    both, one = Sums.of_charges({TRAINING: 1, EVALUATION: 1}), Sums.of_charges({TRAINING: 1})
    assert dict(both.less(one).scopes)[RECORD].rho == loss(0.2).rho


def test_parts_of_any_learner_are_parts_of_one_table():
    assert total(TRAINING, replace(EVALUATION, learner="max")).rho == loss(0.3).rho


def test_merging_events_changes_no_total():
    charges = [TRAINING, TRAINING, EVALUATION, *OTHERS, replace(EVALUATION, learner="max")]
    few = merged([Event(charge, charged=True, recorded_at_unix_s=0.0) for charge in charges])
    assert total(*(event.charge for event in few)) == total(*charges)
    assert len(few) < len(charges)


def test_the_ledger_admits_the_larger_part_and_nothing_beyond():
    limits = LedgerLimits(PrivacyLimit(Fraction(1), Fraction(1, 10**5)))
    held = [Event(about(0.15, 0.07, held_back=False), charged=True, recorded_at_unix_s=0.0)]
    alike = about(0.15, 0.1, held_back=True)
    room = more_like(limits, held, whole(0.15))
    assert room is not None
    # As many answers about the other part as fit instead of the one, and none further.
    assert more_like(limits, held, alike) == room + 1
    held += [Event(alike, charged=True, recorded_at_unix_s=0.0)] * (room + 1)
    with pytest.raises(BudgetExceededError):
        check_admits(limits, held, alike, now_unix_s=0.0)


def test_a_charge_of_a_part_is_stored_exactly_and_damage_is_seen():
    for charge in (TRAINING, EVALUATION, *OTHERS):
        assert read_charge(bounds_text(charge), charge.learner, charge.epoch) == charge
    stored = json.loads(bounds_text(TRAINING))
    wrong = [[*stored[1][:n], part, *stored[1][n + 1 :]] for n, part in ((1, 3), (2, 3), (3, "x"), (4, 1), (5, "1"))]
    for each in (*wrong, [*stored[1], []]):
        damaged = [stored[0], each]
        with pytest.raises(ValueError, match="cannot be read"):
            read_charge(json.dumps(damaged), "lea", None)


def test_only_charges_for_whole_records_have_a_side():
    side = TRAINING.side
    for bounds, more in (
        (((joint("c"), loss(0.1)),), {"side": side, "presence": loss(0.1)}),
        (((RECORD, loss(0.1)),), {"side": side}),
        (((RECORD, loss(0.1)),), {"presence": loss(0.1)}),
        (((RECORD, loss(0.1)),), {"side": side, "presence": loss(0.1), "epoch": b"table"}),
        (((RECORD, loss(0.1)),), {"side": side, "presence": loss(0.1), "row_epoch": "2026-11"}),
    ):
        with pytest.raises(ValueError, match="part of the rows"):
            Charge(bounds, "lea", **more)
