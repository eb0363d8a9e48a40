"""Rows that lost their meaning are not answered with until a person accepts them."""

import json
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError
from parties.data.row_guard import FILE, Known, RowCounts, RowGuard, accept, faults, load_known, save_known
from parties.policy import DataLimits
from radobase.logs import Log
from radobase.metrics import Reason

LIMITS = DataLimits(most_unusable_rows="0.5", largest_drop_in_rows="0.25")
BEFORE = Known(RowCounts(5000, 4000))


def codes(rows, usable, known=BEFORE, limits=LIMITS):
    return set(faults(RowCounts(rows, usable), known, limits))


@pytest.mark.parametrize(
    ("rows", "usable", "expected"),
    [
        (5000, 4000, set()),
        (5000, 3000, set()),
        (5000, 2999, {Reason.ROWS_DROPPED}),
        (3750, 3750, set()),
        (3749, 3749, {Reason.ROWS_DROPPED}),
        (5000, 48, {Reason.ROWS_UNUSABLE, Reason.ROWS_DROPPED}),
        (5000, 0, {Reason.ROWS_UNUSABLE, Reason.ROWS_DROPPED}),
        (9000, 4500, set()),
        (9000, 4499, {Reason.ROWS_UNUSABLE}),
        (10**6, 10**6, set()),
    ],
)
def test_both_limits_are_exact(rows, usable, expected):
    assert codes(rows, usable) == expected


def test_the_first_rows_are_compared_with_nothing_but_must_be_usable():
    assert codes(5, 3, known=None) == set()
    assert codes(5, 2, known=None) == {Reason.ROWS_UNUSABLE}
    assert codes(5, 0, known=None, limits=DataLimits(most_unusable_rows="1")) == set()


def test_a_share_that_a_person_accepted_is_allowed_and_no_larger_one():
    known = Known(RowCounts(100, 30), RowCounts(100, 30), "ann", 1.0)
    assert codes(100, 30, known) == codes(200, 61, known) == set()
    assert codes(100, 29, known) == {Reason.ROWS_UNUSABLE}
    # Rows that were answered with are not accepted by anyone if the policy becomes stricter.
    assert codes(5000, 4000, BEFORE, DataLimits(most_unusable_rows="0.1")) == {Reason.ROWS_UNUSABLE}


def cells(rows, **changed):
    return RowCounts(rows, rows, changed)


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (cells(1000, age=0, smoker=300), set()),
        (cells(1000, age=250, smoker=50), set()),
        (cells(1000, age=251, smoker=50), {Reason.CELLS_CHANGED}),
        # Shares, of more rows and of fewer.
        (cells(4000, age=1000, smoker=0), set()),
        (cells(800, age=201, smoker=0), {Reason.CELLS_CHANGED}),
        # A feature that the schema has only now was never answered with.
        (cells(1000, age=0, smoker=0, height=1000), set()),
        (cells(1000, age=0), set()),
        (RowCounts(1000, 1000), set()),
    ],
)
def test_cells_that_lost_their_values_count_by_feature(present, expected):
    """A boolean written as 0 and 1 whose policy imputes loses no row, and says nothing any more."""
    known = Known(cells(1000, age=0, smoker=50))
    assert set(faults(present, known, LIMITS)) == expected
    assert faults(present, known, DataLimits(largest_rise_in_changed_cells="1")) == {}
    # Before the first answer, and beside a file of an earlier version, there is nothing to compare with.
    assert faults(present, None, LIMITS) == faults(present, Known(RowCounts(1000, 1000)), LIMITS) == {}


def test_the_feature_that_lost_most_is_named_with_both_shares():
    (sentence,) = faults(cells(1000, age=300, smoker=990), Known(cells(1000, age=0, smoker=50)), LIMITS).values()
    assert "99 % of the cells of feature 'smoker' (and of 1 more feature), it was 5 %" in sentence
    assert "largest_rise_in_changed_cells is 25 %" in sentence


def test_changed_cells_count_only_once_they_are_answered_with(tmp_path):
    """Also if there are more rows than before: or they could rise step by step, with no answer in between."""
    first = RowGuard(tmp_path, cells(1000, age=0), LIMITS, Log("test"))
    first.hold(cells(1100, age=200))
    assert first.faults() == {}
    assert load_known(tmp_path).counts == cells(1000, age=0)
    first.note_charged()
    assert load_known(tmp_path).counts == cells(1100, age=200)
    first.hold(cells(1100, age=1100))
    assert set(first.faults()) == {Reason.CELLS_CHANGED}
    first.note_charged()
    assert load_known(tmp_path).counts == cells(1100, age=200)
    accept(tmp_path, cells(1100, age=1100), "ann")
    assert first.faults() == {}
    first.hold(cells(1100, age=100))
    assert load_known(tmp_path).counts == cells(1100, age=100)


def test_the_file_of_an_earlier_version_gets_the_cells_of_the_same_rows(tmp_path):
    save_known(tmp_path, Known(RowCounts(1000, 1000)))
    held = RowGuard(tmp_path, cells(900, age=900), LIMITS, Log("test"))
    assert load_known(tmp_path).counts == RowCounts(1000, 1000)
    held.hold(cells(1000, age=10))
    assert load_known(tmp_path).counts == cells(1000, age=10)
    held.hold(cells(900, age=900))
    assert set(held.faults()) == {Reason.CELLS_CHANGED}


@pytest.fixture
def guard(tmp_path):
    def made(rows, usable, limits=LIMITS):
        return RowGuard(tmp_path, RowCounts(rows, usable), limits, Log("test"))

    return made


def known_counts(directory):
    return load_known(directory).counts


def test_fewer_rows_count_only_once_they_are_answered_with(tmp_path, guard):
    """Or a table could shrink step by step, with no step beyond the limit and no answer in between."""
    first = guard(1000, 1000)
    assert known_counts(tmp_path) == RowCounts(1000, 1000)
    first.hold(RowCounts(800, 800))
    assert first.faults() == {}
    assert known_counts(tmp_path) == RowCounts(1000, 1000)
    first.hold(RowCounts(700, 700))
    assert set(first.faults()) == {Reason.ROWS_DROPPED}
    first.note_charged()
    assert known_counts(tmp_path) == RowCounts(1000, 1000)
    first.hold(RowCounts(800, 800))
    first.note_charged()
    assert known_counts(tmp_path) == RowCounts(800, 800)
    # A restart forgets nothing.
    assert set(guard(599, 599).faults()) == {Reason.ROWS_DROPPED}
    assert guard(600, 600).faults() == {}
    first.hold(RowCounts(2000, 1500))
    assert known_counts(tmp_path) == RowCounts(2000, 1500)


def test_a_person_s_word_reaches_the_running_node_and_later_ones(tmp_path, guard):
    first = guard(5000, 4000)
    first.hold(RowCounts(5000, 48))
    assert len(first.faults()) == 2
    accept(tmp_path, RowCounts(5000, 48), "ann")
    assert first.faults() == {}
    first.note_charged()
    known = load_known(tmp_path)
    assert (known.counts, known.accepted_by) == (RowCounts(5000, 48), "ann")
    assert guard(5000, 48).faults() == {}
    assert set(guard(5000, 47).faults()) == {Reason.ROWS_UNUSABLE}


def test_a_policy_that_is_reloaded_decides_anew(guard):
    held = guard(5000, 4000)
    held.hold(RowCounts(5000, 2000))
    assert set(held.faults()) == {Reason.ROWS_UNUSABLE, Reason.ROWS_DROPPED}
    held.follow(DataLimits(most_unusable_rows="1", largest_drop_in_rows="1"))
    assert held.faults() == {}


@pytest.mark.parametrize("changed", [{"age": 6}, {"age": -1}, {"age": "5"}, {"age": True}, 5, [1]])
def test_cells_that_no_table_has_are_refused(changed):
    with pytest.raises((TypeError, ValueError)):
        RowCounts.from_dict({"rows": 5, "usable": 5, "changed": changed})


@pytest.mark.parametrize("content", ["", "{}", json.dumps({"counts": {"rows": 1}}), "[]"])
def test_a_damaged_file_is_refused_and_says_what_to_do(tmp_path, guard, content):
    save_known(tmp_path, BEFORE)
    held = guard(5000, 4000)
    (tmp_path / FILE).write_text(content)
    for read in (held.faults, lambda: guard(1, 1)):
        with pytest.raises(ConfigurationError, match=r"rows\.json.*remove it"):
            read()


@pytest.mark.parametrize("value", ["1.1", "-1", "half"])
def test_a_share_is_at_most_one(value):
    for name in ("most_unusable_rows", "largest_drop_in_rows", "largest_rise_in_changed_cells"):
        with pytest.raises(ValueError, match=name):
            DataLimits(**{name: value})
    assert DataLimits().most_unusable_rows == Fraction(1, 2)


def test_the_words_of_one_row():
    known = Known(RowCounts(4, 4))
    found = faults(RowCounts(2, 1), known, DataLimits(most_unusable_rows="0.1"))
    assert found[Reason.ROWS_UNUSABLE].startswith("1 of 2 rows becomes a zero vector (50 %), and")
    assert found[Reason.ROWS_DROPPED].startswith("1 usable row is left of 4, and")
