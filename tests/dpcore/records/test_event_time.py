"""Labels that are times to an event: the cell of each row, bad cells, and predicates about time and event."""

import math

import numpy as np
import pytest

from dpcore.errors import SchemaError
from dpcore.estimators.hazards import cell_predicates
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import PredicateError
from dpcore.predicates.frontend import y
from dpcore.predicates.notation import parse, to_text
from dpcore.records.coding import event_time_codes
from dpcore.records.features import EventTime, RealFeature
from dpcore.records.features.described import CellError, Numbers, Texts
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.records.texts import form_of

LABEL = EventTime(column="days", event="died", happened=("1",), censored=("0",), borders=(1.0, 2.5, 4.0))
SCHEMA = Schema(name="s", label=LABEL, features=(RealFeature(name="age", lower=0.0, upper=1.0),))
FORM = form_of(())


def encoded(label, times, events):
    found = np.array(times, dtype=float)
    texts = sorted({event for event in events if event})
    codes = np.array([texts.index(event) if event else -1 for event in events])
    return label.encode([Numbers(found, np.isnan(found)), Texts(codes, texts)], FORM)


def test_a_row_is_in_the_cell_of_its_interval_and_outcome():
    times, events = [0.5, 1.0, 1.1, 4.0, 4.1, 9.0, 0.2, 2.6], ["1", "1", "1", "1", "1", "0", "0", "0"]
    assert encoded(LABEL, times, events).labels.tolist() == [0, 0, 1, 2, 6, 6, 3, 5]
    assert LABEL.outcomes(np.array([0, 0, 1, 2, 6, 6, 3, 5])) == (
        ("event", 4),
        ("censored", 2),
        ("beyond the horizon", 2),
    )


@pytest.mark.parametrize(
    ("time", "event", "column", "words"),
    [
        (0.0, "1", "days", "never followed"),
        (-3.0, "1", "days", "not a positive number"),
        (math.inf, "1", "days", "not a positive number"),
        (math.nan, "1", "days", "there is no time"),
        (2.0, "", "died", "a time without an event"),
        (2.0, "9", "died", "neither happened nor censored"),
    ],
)
@pytest.mark.more
def test_a_bad_cell_is_refused_or_leaves_the_row_out_and_is_counted(time, event, column, words):
    with pytest.raises(CellError, match=words) as caught:
        encoded(LABEL, [1.5, time], ["0", event])
    assert (caught.value.row, caught.value.column) == (1, column)
    found = encoded(LABEL.lenient, [1.5, time], ["0", event])
    assert found.dropped.tolist() == [False, True]
    tally = found.tally
    assert tally.missing + tally.unreadable + tally.unlisted == 1


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("borders", (), "1 to 60"),
        ("borders", (2.0, 1.0), "ascend"),
        ("borders", (0.0, 1.0), "positive"),
        ("event", "days", "column of the time"),
        ("censored", ("1",), "both"),
    ],
)
@pytest.mark.more
def test_labels_that_say_two_things_are_refused(field, value, words):
    fields = {"column": "days", "event": "died", "happened": ("1",), "borders": (1.0,)}
    with pytest.raises(SchemaError, match=words):
        EventTime(**(fields | {field: value}))


def test_a_schema_with_such_a_label_is_the_same_after_reading():
    assert Schema.from_toml(SCHEMA.to_toml()) == SCHEMA
    assert Schema.from_canonical(SCHEMA.canonical_bytes()).digest == SCHEMA.digest


def records():
    random = np.random.default_rng(1)
    features = np.column_stack([random.integers(-ONE, ONE, 500), np.full(500, ONE)]).astype(np.int32)
    codes, usable = random.integers(0, 7, 500).astype(np.int8), random.random(500) < 0.9
    features[~usable], codes[~usable] = 0, 1
    return Records(features, codes, usable, coding=event_time_codes(3))


def test_each_row_is_in_one_cell_and_cells_are_told_to_be_disjoint():
    held, cells = records(), cell_predicates(LABEL.borders)
    expected = [int(((held.labels == code) & held.usable).sum()) for code in range(7)]
    assert sums(cells, SCHEMA, held, 0).tolist() == expected
    sensitivity = batch_sensitivity(cells)
    assert (sensitivity.l1, sensitivity.l2_squared) == (2, 2)


def test_predicates_about_time_and_event_are_those_of_the_cells():
    held = records()
    labels = held.labels[held.usable]
    found = sums([y.event, ~(y.time > 2.5), parse("y.time > 1 & y.event")], SCHEMA, held, 0)
    assert found.tolist() == [
        (labels < 3).sum(),
        np.isin(labels, (0, 1, 3, 4)).sum(),
        np.isin(labels, (1, 2)).sum(),
    ]
    assert parse(to_text(y.time > 2.5)) == (y.time > 2.5)
    for refused in (y.time > 2, y.time >= 1, y == "1"):
        with pytest.raises(PredicateError, match="end of an interval"):
            sums([refused], SCHEMA, held, 0)
