"""What predicates ask of each type of label: the right rows, or a sentence that says what the label is."""

import pickle

import numpy as np
import pytest

from dpcore.predicates.evaluation import check, values
from dpcore.predicates.expressions import PredicateError
from dpcore.predicates.frontend import as_predicate, y
from dpcore.predicates.notation import parse, to_text
from dpcore.records.features import Classes, Count, EventTime, Label, Number, RealFeature
from dpcore.records.features.described import Numbers, Texts
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.records.texts import form_of

COUNT = Count(column="visits", upper=50)
# Each label, with the cells of four rows: a list for each of its columns.
LABELS = {
    "two classes": (Label(column="ill", positive=("yes",), negative=("no",)), [["yes", "no", "no", "yes"]]),
    "classes": (Classes(column="ward", values=("north", "south", "west")), [["north", "south", "north", "west"]]),
    "number": (Number(column="days", lower=0.0, upper=50.0), [[0.0, 24.0, 30.0, 50.0]]),
    "count": (COUNT, [[0.0, 24.0, 30.0, 50.0]]),
    "rate": (COUNT.over("years", 0.5, 3.0), [[0.0, 24.0, 30.0, 50.0], [3.0, 1.5, 0.75, 3.0]]),
    "event": (
        EventTime(column="months", event="died", happened=("yes",), censored=("no",), borders=(12.0, 24.0, 36.0)),
        [[6.0, 30.0, 40.0, 24.0], ["yes", "no", "yes", "yes"]],
    ),
}
TWO, CLASSES = "'ill' has two classes: compare y with 1 or -1, where 1 is 'yes'", "'ward' has 3 classes"
NUMBER, COUNTED = "'days' is a number from 0 to 50: compare y with a number", "'visits' is a count up to 50"
EVENT = "'months' is a time to an event, in 3 intervals up to 36: write y.event, or compare y.time"
# What is asked of each: the values on the four rows, or words of the sentence that refuses it.
ASKED = {
    "y.event": [TWO, CLASSES, NUMBER, COUNTED, COUNTED, [1, 0, 0, 1]],
    "~y.event": [TWO, CLASSES, NUMBER, COUNTED, COUNTED, [0, 1, 1, 0]],
    "y.time > 24": [TWO, CLASSES, NUMBER, COUNTED, COUNTED, [0, 1, 1, 0]],
    "y.time <= 24": [TWO, CLASSES, NUMBER, COUNTED, COUNTED, [1, 0, 0, 1]],
    "y.time >= 24": [TWO, CLASSES, NUMBER, COUNTED, COUNTED, EVENT],
    "y.square": [TWO, CLASSES, [1, 0.0016, 0.04, 1], [1, 0.0016, 0.04, 1], [1, 0.0016, 0.04, 1], EVENT],
    "y.exposure": [TWO, CLASSES, "only a count has a rate and an exposure", "no exposure", [1, 0.5, 0.25, 1], EVENT],
    "y": [TWO, CLASSES, [0, 0.48, 0.6, 1], [0, 0.48, 0.6, 1], [0, 0.48, 0.6, 1], EVENT],
    "y >= 30": [TWO, CLASSES, [0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1], EVENT],
    "y > 24": [TWO, CLASSES, [0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 1, 0]],
    "y == 1": [[1, 0, 0, 1], CLASSES, NUMBER, COUNTED, COUNTED, [1, 0, 0, 1]],
    "y == -1": [[0, 1, 1, 0], CLASSES, NUMBER, COUNTED, COUNTED, [0, 1, 1, 0]],
    'y == "north"': [TWO, [1, 0, 1, 0], NUMBER, COUNTED, COUNTED, EVENT],
    'y != "yes"': [TWO, "lists no class 'yes'", NUMBER, COUNTED, COUNTED, EVENT],
}


def schema_of(label):
    return Schema(name="s", label=label, features=(RealFeature(name="age", lower=0.0, upper=1.0),), bias=False)


def cells(column):
    if isinstance(column[0], str):
        texts = sorted(set(column))
        return Texts(np.array([texts.index(text) for text in column]), texts)
    return Numbers(np.array(column), np.zeros(len(column), bool))


def held(label, columns):
    encoded = label.encode([cells(column) for column in columns], form_of(()))
    features, usable = np.zeros((4, 1), np.int32), np.ones(4, bool)
    return Records(features, encoded.labels, usable, coding=label.coding)


def test_each_label_answers_what_it_has_and_refuses_the_rest():
    found = {text: [answer(parse(text), *each) for each in LABELS.values()] for text in ASKED}
    wrong = []
    for text, answers in found.items():
        for of, got, expected in zip(LABELS, answers, ASKED[text], strict=True):
            right = expected in got if isinstance(expected, str) else got == pytest.approx(expected, abs=1e-5)
            wrong += [] if right else [(text, of, got)]
    assert not wrong
    for text in ("y.event", "y.time > 24"):
        others = [each for each, expected in zip(found[text], ASKED[text], strict=True) if isinstance(expected, str)]
        assert len(others) == 5
        assert all(each.startswith(f"{text.split()[0]} is of a time to an event, and the label ") for each in others)


def answer(asked, label, columns):
    """The values on the four rows, or the sentence that refuses it."""
    schema = schema_of(label)
    try:
        check([asked], schema)
    except PredicateError as refused:
        return str(refused)
    return (values([asked], schema, held(label, columns), 20)[:, 0] / 2.0**20).tolist()


def test_what_is_refused_is_so_beside_an_equal_predicate_and_after_a_pickle():
    """`y.event` equals `y == 1`, which two classes have."""
    schema = schema_of(LABELS["two classes"][0])
    assert y.event == (y == 1)
    check([y == 1, ~(y == 1)], schema)
    for batch in ([y == 1, ~y.event], [parse("y.event & (y == 1)")], [pickle.loads(pickle.dumps(y.event))]):
        with pytest.raises(PredicateError, match=r"^y\.event is of a time to an event"):
            check(batch, schema)
    number = schema_of(LABELS["number"][0])
    with pytest.raises(PredicateError, match=r"^y\.time is of a time to an event, and the label 'days' is a number"):
        check([y > 24, ~(y.time > 24)], number)


def test_a_time_is_compared_with_ends_of_intervals_only():
    """`y.time == 1` was read as `y == 1`, which is `y.event`."""
    for written in ("y.time == 1", "y.time != 24"):
        with pytest.raises(PredicateError, match=r"write y\.time > 24 or y\.time <= 24"):
            parse(written)
    with pytest.raises(PredicateError, match=r"write y\.time > 24"):
        _ = y.time == 1
    with pytest.raises(PredicateError, match="not a predicate"):
        as_predicate(y.time)
    with pytest.raises(PredicateError, match="expected a comparison"):
        parse("y.time")
    for written in ("y.event == 1", "1 == y.event", "y.event >= 1"):
        with pytest.raises(PredicateError, match=r"y\.event is compared with nothing"):
            parse(written)


def test_what_is_asked_is_written_as_it_was():
    for text in (*ASKED, "(y.event & (y.time <= 24)) | ~y.event"):
        assert to_text(parse(text)) == text
        assert parse(to_text(parse(text))) == parse(text)
