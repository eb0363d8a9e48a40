"""Epochs of rows in a ledger: no row is charged less than what was answered about it, wherever it moves."""

from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.accounting.concentrated import pure_curve
from dpcore.accounting.filters import NO_LOSS, Loss
from parties.ledger.acknowledgement import Claim, charge_plan, plan
from parties.ledger.charges import RECORD, Charge, UnreadableEntryError, bounds_text, read_charge
from parties.ledger.head import Sums, SumsKey
from parties.ledger.ledger import Ledger
from parties.ledger.limits import BudgetExceededError, Event, Scopes, counted, merged, more_like
from parties.ledger.row_epochs import EpochRows
from tests.federation.party import OWNER, SMOKER, limits
from wire.envelopes import SigningKey
from wire.errors import Code, WireError

LIMIT = limits("10", "1e-3", unbounded=3)
KEY = SumsKey("ada", SigningKey.generate("clinics"))
CHECK = b"k" * 16


def loss(epsilon) -> Loss:
    """That only the basic filter can allow."""
    return Loss(Fraction(epsilon), Fraction(0), Fraction(10**6), Fraction(0))


def charge(epsilon, row_epoch=None, **more) -> Charge:
    return Charge(((RECORD, loss(epsilon)),), "lea", row_epoch=row_epoch, **more)


class Party:
    """A ledger, and the rows of which a table has one epoch each: `spent` is what was answered about each row."""

    def __init__(self, path, limit=LIMIT) -> None:
        self.ledger = Ledger.open(path, OWNER, limit)
        self.epochs: dict[int, str] = {}
        self.spent: dict[int, Fraction] = {}
        self.queries = 0

    def rows(self, epoch: str | None, check: bytes = CHECK) -> EpochRows | None:
        numbers = [row for row, own in self.epochs.items() if own == epoch]
        return None if epoch is None else EpochRows(epoch, check, np.array(numbers, dtype=np.uint64))

    def answer(self, what: Charge, *, charged: bool = True, rows: EpochRows | None = None) -> None:
        self.queries += 1
        query_id = self.queries.to_bytes(32, "big")
        own = rows or self.rows(what.row_epoch)
        self.ledger.reserve(query_id, 1, what, lapses_at_unix_s=1e12, now_unix_s=0.0, rows=own)
        if not charged:
            self.ledger.release(query_id, 1)
            return
        self.ledger.charge(query_id, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=0.0)
        for row, epoch in self.epochs.items():
            if what.row_epoch in (None, epoch):
                self.spent[row] = self.spent.get(row, Fraction(0)) + (what.bound(RECORD) or NO_LOSS).epsilon


@pytest.fixture
def party(tmp_path):
    found = Party(tmp_path / "ledger.sqlite")
    found.epochs = {1: "a", 2: "a", 3: "b"}
    return found


def refused(party: Party, what: Charge) -> WireError:
    with pytest.raises(WireError) as caught:
        party.answer(what)
    return caught.value


def test_charges_about_different_epochs_count_in_parallel_and_those_about_all_rows_beside_them(party):
    for what in (charge(3, "a"), charge(4, "b"), charge(2), charge(1, "a")):
        party.answer(what)
    assert party.ledger.spent(RECORD).epsilon == 2 + max(3 + 1, 4)
    assert max(party.spent.values()) == party.ledger.spent(RECORD).epsilon


def test_a_new_epoch_has_its_whole_budget_beside_what_is_spent_on_all_rows(party):
    party.answer(charge(7, "a"))
    party.answer(charge(2))
    assert isinstance(refused(party, charge(2, "a")), BudgetExceededError)
    assert isinstance(refused(party, charge(2)), BudgetExceededError)
    assert isinstance(refused(party, charge("8.001", "b")), BudgetExceededError)
    party.answer(charge(8, "b"))
    assert party.ledger.spent(RECORD).epsilon == 10
    assert refused(party, charge(1, "b")).remaining == 0


def test_the_state_shows_what_is_spent_and_left_for_the_rows_of_each_epoch(party):
    for what in (charge(3, "a"), charge(4, "b"), charge(2)):
        party.answer(what)
    state = party.ledger.state()
    found = {name: (each.spent_epsilon, each.remaining_epsilon) for name, each in state.epochs}
    assert found == {"a": (5, 5), "b": (6, 4)}
    assert (state.scopes[0].spent_epsilon, state.scopes[0].remaining_epsilon) == (6, 4)
    assert [each["epoch"] for each in state.to_dict()["epochs"]] == ["a", "b"]
    assert any(line.startswith("rows of epoch b, record: spent epsilon 6") for line in state.figures())


def test_a_limit_that_was_lowered_holds_for_every_epoch(party):
    """Also where another epoch has spent more, so that the largest sum does not change."""
    party.answer(charge(9, "a"))
    party.answer(charge(4, "b"))
    party.ledger.limits = limits("5", "1e-3")
    assert isinstance(refused(party, charge(2, "b")), BudgetExceededError)
    party.answer(charge(1, "b"))


def test_events_without_a_bound_count_in_every_epoch(party):
    for epoch in ("a", "b", None):
        party.answer(Charge(((SMOKER, loss(1)),), "lea", row_epoch=epoch))
    assert party.ledger.unbounded() == 3
    assert refused(party, Charge(((SMOKER, loss(1)),), "lea", row_epoch="b")).code is Code.BUDGET_EXCEEDED


def test_a_row_that_moves_to_another_epoch_is_refused_before_anything_is_reserved(party):
    party.answer(charge(6, "a"))
    party.epochs[2] = "b"
    error = refused(party, charge(6, "b"))
    assert error.code is Code.EPOCH_CHANGED
    assert "1 id with rows in epoch b was answered about in epoch a" in error.detail
    assert (len(party.ledger.events()), party.ledger.reserved(RECORD)) == (1, NO_LOSS)
    with pytest.raises(WireError, match="in another epoch"):
        party.ledger.check_admits(charge(6, "b"), 0.0, party.rows("b"))
    # Its first epoch, and all rows, are still answered about.
    party.answer(charge(1, "a"))
    party.answer(charge(1))
    party.epochs[2] = "a"
    party.answer(charge(6, "b"))


def test_all_rows_of_a_table_that_moved_are_found_in_one_pass(party):
    """As many as a query about each epoch would be refused for."""
    party.epochs = {row: "abc"[row % 3] for row in range(30)}
    assert party.ledger.moved_rows([]) == []
    for epoch in ("a", "b"):
        party.answer(charge(1, epoch))
    party.epochs |= {3: "b", 6: "c", 9: "c", 100: "a"}
    table = [party.rows(epoch) for epoch in "abc"]
    assert party.ledger.moved_rows(table) == [
        "1 id with rows in epoch b was answered about in epoch a.",
        "2 ids with rows in epoch c were answered about in epoch a.",
    ]
    assert [refused(party, charge(1, epoch)).detail for epoch in "bc"] == party.ledger.moved_rows(table)
    assert "secret, or id_column" in party.ledger.moved_rows([party.rows("b", b"x" * 16)])[0]


def test_rows_may_come_to_an_epoch_and_go(party):
    party.answer(charge(1, "a"))
    party.epochs = {1: "a", 4: "a", 3: "b"}
    party.answer(charge(1, "a"))
    party.epochs = {2: "b", 3: "b"}
    assert refused(party, charge(1, "b")).code is Code.EPOCH_CHANGED
    party.epochs = {4: "b"}
    assert refused(party, charge(1, "b")).code is Code.EPOCH_CHANGED


def test_a_row_stays_in_the_epoch_of_a_reservation_that_was_released(party):
    """Another copy of the ledger may have charged it."""
    party.answer(charge(1, "a"), charged=False)
    party.epochs[1] = "b"
    assert refused(party, charge(1, "b")).code is Code.EPOCH_CHANGED


def test_rows_that_another_secret_numbered_are_refused(party):
    party.answer(charge(1, "a"))
    with pytest.raises(WireError, match="secret, or id_column, is another one"):
        party.answer(charge(1, "b"), rows=party.rows("b", b"x" * 16))


@pytest.mark.parametrize("own", [None, "a"])
def test_a_charge_about_an_epoch_needs_its_rows(party, own):
    with pytest.raises(ValueError, match="without its rows, or with others"):
        party.ledger.reserve(b"q" * 32, 1, charge(1, "b"), lapses_at_unix_s=1.0, now_unix_s=0.0, rows=party.rows(own))


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(1, 6), st.booleans()),
        st.dictionaries(st.integers(1, 4), st.sampled_from("abc"), min_size=1),
    ),
    max_size=10,
)


@settings(max_examples=60)
@given(steps=steps)
@pytest.mark.more
def test_no_row_is_ever_charged_more_than_the_ledger_says_whatever_tables_are_loaded(tmp_path_factory, steps):
    party = Party(tmp_path_factory.mktemp("epochs") / "ledger.sqlite")
    party.epochs = {1: "a", 2: "b", 3: "c", 4: "a"}
    for step in steps:
        if isinstance(step, dict):
            party.epochs = party.epochs | step
            continue
        epoch, epsilon, charged = step
        with suppress(WireError):
            party.answer(charge(epsilon, epoch), charged=charged)
        total = party.ledger.spent(RECORD).epsilon
        assert max(party.spent.values(), default=0) <= total <= 10


losses = st.builds(
    lambda epsilon, rho, is_pure: (
        Loss(epsilon, Fraction(0), rho, Fraction(0), pure_curve(epsilon), rho)
        if is_pure
        else Loss(epsilon, Fraction(1, 10**6), rho, Fraction(0))
    ),
    st.fractions(0, 3, max_denominator=8),
    st.fractions(0, 2, max_denominator=8),
    st.booleans(),
)


@given(spent=st.lists(st.tuples(st.sampled_from(["a", "b", None]), losses), min_size=1, max_size=6))
def test_a_limit_that_admits_the_total_admits_what_every_row_lost(spent):
    """In every part of the loss, and so by every filter: the largest of each part is at least each epoch's sum."""
    charges = [Charge(((RECORD, each),), "lea", row_epoch=epoch) for epoch, each in spent]
    scopes = Scopes(charges, LIMIT)
    total = scopes.total(counted(Event(each, True, 0.0) for each in charges), RECORD).loss
    for epoch in ("a", "b"):
        own = [each for name, each in spent if name in (None, epoch)]
        sums = sum(own, NO_LOSS)
        assert LIMIT.lifetime.spent(sums) <= LIMIT.lifetime.spent(total)
        assert not LIMIT.lifetime.admits(total) or LIMIT.lifetime.admits(sums)


def test_merged_events_of_epochs_add_as_much_as_the_events(party):
    for what in (charge(2, "a"), charge(1, "a"), charge(4, "b"), charge(1), charge(1)):
        party.answer(what)
    events = party.ledger.events()
    scopes = Scopes([event.charge for event in events], LIMIT)
    whole, few = (scopes.total(counted(found), RECORD) for found in (events, merged(events)))
    assert (whole, len(merged(events))) == (few, 3)
    assert [more_like(LIMIT, events, charge(1, epoch)) for epoch in ("a", "b", "new", None)] == [5, 4, 8, 4]


def test_a_noised_table_counts_once_in_its_epoch(party):
    for epoch in ("a", "a", "b"):
        party.answer(charge(3, epoch, epoch=b"table"))
    party.answer(charge(3, epoch=b"table"))
    assert party.ledger.spent(RECORD).epsilon == 3 + 3


def test_a_charge_about_an_epoch_is_read_as_it_was_written():
    for what in (charge(1, "2026-11"), charge(1, "2026-11", events=3), charge(1)):
        assert read_charge(bounds_text(what), "lea", None) == what
    assert "rows of epoch 2026-11 only" in str(charge(1, "2026-11"))


# Ledgers that were set back.


def set_back(party: Party, tmp_path, keep: int) -> tuple[Ledger, Claim]:
    """A ledger with the first `keep` of the party's charges, and what another member saw of all of them."""
    head = party.ledger.signed_head(KEY)
    older = Party(tmp_path / "older.sqlite")
    older.epochs = dict(party.epochs)
    for event in party.ledger.events()[:keep]:
        older.answer(event.charge)
    return older.ledger, Claim("bo", head.entries, KEY.open(head))


def test_what_a_lost_ledger_charged_to_an_epoch_is_charged_again_to_rows_of_all(party, tmp_path):
    """The difference of two largest sums would miss an epoch that spent less than another."""
    for what in (charge(6, "a"), charge(5, "b")):
        party.answer(what)
    # The older ledger is another one: nothing of it is provably common.
    ledger, shown = set_back(party, tmp_path, keep=1)
    charge_plan(ledger, plan(ledger, [shown], witnessed=True), 9.0)
    for epoch in ("a", "b"):
        own = Scopes([], LIMIT).total(
            counted(event for event in ledger.events() if event.charge.row_epoch in (None, epoch)), RECORD
        )
        assert own.loss.epsilon >= party.spent[1 if epoch == "a" else 3]


def test_the_missing_part_covers_every_epoch():
    before, after = [charge(6, "a")], [charge(6, "a"), charge(5, "b")]
    sums = [Sums.of(Event(each, True, 0.0) for each in found) for found in (before, after)]
    assert sums[1].less(sums[0]).at(RECORD).epsilon == 5


def test_the_whole_limit_leaves_nothing_for_a_new_epoch(party):
    party.answer(charge(6, "a"))
    party.answer(charge(6, "b"))
    charge_plan(party.ledger, plan(party.ledger, [], witnessed=False), 9.0)
    party.epochs[9] = "c"
    for epoch in ("a", "b", "c", None):
        assert isinstance(refused(party, charge("0.01", epoch)), BudgetExceededError)


def test_an_epoch_has_a_name():
    with pytest.raises(ValueError, match="without a name"):
        charge(1, "")
    with pytest.raises(ValueError, match="without a name"):
        EpochRows("", CHECK, np.empty(0, dtype=np.uint64))
    with pytest.raises(UnreadableEntryError):
        read_charge('[["row_epoch", 11]]', "lea", None)


def test_a_question_about_an_epoch_needs_its_rows_too(party):
    with pytest.raises(ValueError, match="without its rows, or with others"):
        party.ledger.check_admits(charge(1, "a"), 0.0)
