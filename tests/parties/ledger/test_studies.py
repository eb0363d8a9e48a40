"""Budgets of studies within a party's: counted as the party's own, never overdrawn, in ledgers of every version."""

import itertools
import shutil
import sqlite3
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.accounting.filters import PrivacyLimit
from dpcore.accounting.gaussian import shift_distribution
from dpcore.accounting.protection import loss_of
from parties.ledger.acknowledgement import charge_plan, plan
from parties.ledger.budgets import state_of
from parties.ledger.charges import RECORD, Charge, UnreadableEntryError, bounds_text, charge_for, read_charge
from parties.ledger.ledger import Ledger, LedgerConflictError
from parties.ledger.limits import (
    BudgetExceededError,
    Event,
    LedgerLimits,
    by_study,
    check_admits,
    merged,
    more_like,
    of_study,
)
from tests.examples import examples
from tests.federation.party import OWNER, limits
from tests.parties.ledger.test_acknowledgement import claim
from tests.parties.ledger.test_chain import APPROVAL_TABLES
from tests.parties.ledger.test_scopes import limit, loss
from tests.wire.every_query import STUDY
from wire.features import Feature

WIDE = LedgerLimits(PrivacyLimit(Fraction(10), Fraction(1, 1000)), studies={"EK 1": limit(2)}, per_study=limit(3))


def of(study: str, epsilon="1", learner: str = "lea") -> Charge:
    return Charge(((RECORD, loss(epsilon)),), learner, study=study)


def event(charge: Charge, *, charged: bool = True) -> Event:
    return Event(charge, charged, 0.0)


@pytest.fixture
def opened(tmp_path):
    ledgers, numbers = [], itertools.count()

    def make(path=None, allowed=WIDE, **more) -> Ledger:
        ledgers.append(Ledger.open(path or tmp_path / f"{next(numbers)}.sqlite", OWNER, allowed, **more))
        return ledgers[-1]

    yield make
    for each in ledgers:
        each.database.close()


def reserve(ledger: Ledger, number: int, charge: Charge) -> bytes:
    query_id = number.to_bytes(32, "big")
    ledger.reserve(query_id, 1, charge, lapses_at_unix_s=1e12, now_unix_s=0.0)
    return query_id


def spend(ledger: Ledger, number: int, charge: Charge) -> None:
    query_id = reserve(ledger, number, charge)
    ledger.charge(query_id, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=0.0)


def refused(function, *words: str) -> None:
    with pytest.raises(BudgetExceededError) as caught:
        function()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_study_is_exhausted_while_the_party_is_not(opened):
    ledger = opened()
    spend(ledger, 1, of("EK 1"))
    spend(ledger, 2, of("EK 1"))
    refused(lambda: reserve(ledger, 3, of("EK 1")), 'of the limit of study "EK 1" (', "epsilon 0 remains")
    # Another study, and queries of none, are answered: eight more fit within the party's limit.
    for number in range(4, 7):
        spend(ledger, number, of("EK 2"))
    refused(lambda: reserve(ledger, 7, of("EK 2")), 'of study "EK 2"')
    for number in range(8, 13):
        spend(ledger, number, of(""))
    refused(lambda: reserve(ledger, 13, of("")), "of the lifetime")
    refused(lambda: reserve(ledger, 14, of("EK 3")), "of the lifetime")
    assert ledger.spent(RECORD).epsilon == 10


def test_all_learners_of_a_study_share_its_budget(opened):
    ledger = opened()
    spend(ledger, 1, of("EK 1", learner="lea"))
    spend(ledger, 2, of("EK 1", learner="max"))
    refused(lambda: reserve(ledger, 3, of("EK 1", "0.5", learner="lea")), 'of study "EK 1"')


def test_a_reservation_counts_in_its_study_until_it_is_released(opened):
    ledger = opened()
    query_id = reserve(ledger, 1, of("EK 1", "2"))
    refused(lambda: reserve(ledger, 2, of("EK 1", "0.1")), 'of study "EK 1"')
    ledger.release(query_id, 1)
    reserve(ledger, 2, of("EK 1", "2"))


def test_a_limit_that_was_lowered_stops_a_charge_and_nothing_of_it_is_written(opened):
    ledger = opened()
    query_id = reserve(ledger, 1, of("EK 1", "2"))
    ledger.limits = LedgerLimits(WIDE.lifetime, studies={"EK 1": limit(1)})
    with pytest.raises(BudgetExceededError, match='of study "EK 1"'):
        ledger.charge(query_id, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=0.0)
    assert (ledger.spent(RECORD).epsilon, ledger.reserved(RECORD).epsilon) == (0, 2)
    with pytest.raises(LedgerConflictError):
        ledger.reserve(query_id, 1, of("EK 2", "2"), lapses_at_unix_s=1e12, now_unix_s=0.0)


@given(
    asked=st.lists(
        st.tuples(st.sampled_from(["", "EK 1", "EK 2"]), st.sampled_from(["0.3", "1"]), st.sampled_from("ab")),
        max_size=20,
    )
)
@settings(max_examples=examples(15, 200))
def test_no_budget_is_overdrawn_whatever_is_asked(asked):
    """The sums are made here, apart from the ledger's; a query is refused only if one of its two limits lacks room."""
    held: list[Event] = []
    spent = {"": Fraction(0), "EK 1": Fraction(0), "EK 2": Fraction(0)}
    most = {"": Fraction(10), "EK 1": Fraction(2), "EK 2": Fraction(3)}
    for study, epsilon, learner in asked:
        charge, cost = of(study, epsilon, learner), Fraction(epsilon)
        fits = sum(spent.values()) + cost <= 10 and spent[study] + cost <= most[study]
        try:
            check_admits(WIDE, held, charge, now_unix_s=0.0)
        except BudgetExceededError:
            assert not fits
        else:
            assert fits
            held.append(event(charge))
            spent[study] += cost
    for study in ("EK 1", "EK 2"):
        assert (more_like(WIDE, held, of(study, "0.3")) or 0) * Fraction("0.3") <= most[study] - spent[study]
        fewer = merged(held)
        assert more_like(WIDE, fewer, of(study, "0.3")) == more_like(WIDE, held, of(study, "0.3"))


def test_gaussian_answers_of_a_study_compose_as_those_of_the_party_do():
    """A study with the party's own limit admits exactly as many answers as the party does."""
    gaussian = loss_of(shift_distribution(Fraction(1, 3)), Fraction(1, 10**6))
    own = PrivacyLimit(Fraction(5), Fraction(1, 10**5))
    alone = LedgerLimits(own)
    within = LedgerLimits(PrivacyLimit(Fraction(1000), Fraction(1, 10**3)), studies={"EK 1": own})
    charge = Charge(((RECORD, gaussian),), "lea", study="EK 1")
    most = more_like(alone, [], charge)
    assert most is not None
    assert most > 1
    assert more_like(within, [], charge) == most
    (state,) = dict(state_of(within, [event(charge)] * most, now_unix_s=None).studies)["EK 1"]
    assert state.spent_epsilon <= 5
    assert state_of(alone, [event(charge)] * most, now_unix_s=None).scopes[0].spent_epsilon == state.spent_epsilon


def test_the_state_says_what_each_study_spent(opened):
    ledger = opened()
    spend(ledger, 1, of("EK 1", "0.5"))
    spend(ledger, 2, of("EK 9", "1"))
    state = ledger.state()
    figures = {number: float(states[0].spent.loss.epsilon) for number, states in state.studies}
    assert figures == {"EK 1": 0.5, "EK 9": 1.0}
    assert state.to_dict()["studies"][0]["study"] == "EK 1"
    assert any(line.startswith('study "EK 1", record: spent epsilon 0.5') for line in state.figures())
    assert str(WIDE).endswith('study "EK 1" epsilon 2 at delta 0.001; each other study epsilon 3 at delta 0.001; '
                              "0 queries without a bound for records")  # fmt: skip
    assert ledger.limits.of_study("EK 2") == limit(3)


def test_each_study_has_the_events_that_it_has_alone():
    """In one pass for all of them."""
    held = [event(of(study, learner=learner)) for study in ("", "EK 1", "EK 2") for learner in ("lea", "", "max")]
    found = by_study(held, ["EK 3"])
    assert sorted(found) == ["EK 1", "EK 2", "EK 3"]
    for number, events in found.items():
        assert sorted(map(str, events)) == sorted(map(str, of_study(held, number)))


def test_a_charge_keeps_its_study_in_the_file(world):
    for charge in (of("EK 2026/17"), of(""), of('a "b" \u00e9')):
        assert read_charge(bounds_text(charge), "lea", None) == charge
    assert "study" not in bounds_text(of(""))
    assert str(of("EK 1")).endswith('; study "EK 1"')
    for entry in ('["study", ""]', '["study", 17]', '["study"]'):
        with pytest.raises(UnreadableEntryError):
            read_charge(f"[{entry}]", "lea", None)
    query = world.query(study=STUDY, features=(Feature.BASE.value, Feature.STUDY.value))
    for asked, study in ((query, "EK 2026/17"), (world.query(), "")):
        assert charge_for(asked, 40).study == study
    assert charge_for(world.plain_query(study=STUDY, features=query.features), 40).study == "EK 2026/17"


@pytest.mark.parametrize("version", [5, 6])
def test_a_ledger_of_before_there_were_studies_opens_with_all_charges(opened, tmp_path, version):
    path = tmp_path / "old.sqlite"
    ledger = opened(path)
    spend(ledger, 1, of("", "4"))
    ledger.database.close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        for table in (*APPROVAL_TABLES, *(("row_epochs",) if version < 6 else ())):
            connection.execute(f"DROP TABLE {table}")
    connection.close()
    later = opened(path)
    assert later.spent(RECORD).epsilon == 4
    # What it charged is part of no study, and counts for the party.
    spend(later, 2, of("EK 1", "2"))
    refused(lambda: reserve(later, 3, of("EK 1", "0.1")), 'of study "EK 1"')
    refused(lambda: reserve(later, 4, of("", "4.5")), "of the lifetime")


def test_a_restored_backup_is_acknowledged_and_what_was_lost_counts_in_every_study(opened, tmp_path):
    """Nothing tells of which study the lost charges were, so no study gets back what may have been its own."""
    allowed = limits("10", "1e-3", studies={"EK 1": limit(2), "EK 2": limit(2)})
    path = tmp_path / "restored.sqlite"
    ledger = opened(path, allowed)
    spend(ledger, 1, of("EK 1", "0.5"))
    backup = tmp_path / "backup.sqlite"
    backup.write_bytes(ledger.database.backup())
    spend(ledger, 2, of("EK 1", "1"))
    newest = claim(ledger)
    ledger.database.close()
    shutil.copy(backup, path)
    restored = opened(path, allowed, anchored=False)
    charge_plan(restored, plan(restored, [newest], witnessed=True), 0.0)
    states = dict(restored.state().studies)
    assert float(states["EK 1"][0].spent.loss.epsilon) == pytest.approx(1.5)
    assert float(states["EK 2"][0].spent.loss.epsilon) == pytest.approx(1.0)
    refused(lambda: reserve(restored, 3, of("EK 1", "0.6")), 'of study "EK 1"')
    refused(lambda: reserve(restored, 4, of("EK 2", "1.1")), 'of study "EK 2"')
    reserve(restored, 5, of("EK 2", "0.9"))
