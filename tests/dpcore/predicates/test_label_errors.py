"""Errors of predicted numbers as predicates: what they are, that sizes exclude one another, and how they travel."""

from fractions import Fraction

import numpy as np
import pytest

from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import check, values
from dpcore.predicates.expressions import Affine, FormCoordinates, LabelError, PredicateError, swap_label
from dpcore.predicates.frontend import beyond, over, squared, under, z
from dpcore.predicates.notation import parse, to_text
from dpcore.records.encoding import store
from dpcore.records.features import Count, Number, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from rado.v1 import query_pb2
from wire.errors import WireError
from wire.query_kinds import read_predicates, write_predicates
from wire.query_summary import columns

AGE = RealFeature(name="age", lower=0.0, upper=100.0)
NUMBER = Schema(name="s", label=Number(column="n", lower=0.0, upper=10.0), features=(AGE,))
COUNT = Schema(name="s", label=Count(column="n", upper=8), features=(AGE,))
FORM = Affine((("age", 3),), 1)
REACH = Fraction(1, 2)
SORTS = ("over", "under", "square", "beyond")
ERRORS = tuple(LabelError(FORM, 4, REACH, sort) for sort in SORTS)
BITS = 20


@pytest.mark.parametrize("schema", [NUMBER, COUNT])
def test_they_are_the_differences_of_label_and_prediction(schema):
    random, rows = np.random.default_rng(1), 400
    age = random.uniform(-1, 1, rows)
    if schema is COUNT:
        labels = random.integers(0, 9, rows).astype(np.int32)
        t = labels / 4 - 1
    else:
        t = random.uniform(-1, 1, rows)
        labels = store(t)
    x = np.column_stack([age, np.ones(rows)])
    records = Records(store(x), labels, np.ones(rows, bool), coding=schema.label.coding)
    found = values([*ERRORS, ~ERRORS[0], ~ERRORS[3]], schema, records, BITS) / 2**BITS
    off = t - (2 * np.clip((3 * age + 1) / 4, 0, 1) - 1)
    assert found[:, 0] == pytest.approx(np.clip(off / 0.5, 0, 1), abs=3e-6)
    assert found[:, 1] == pytest.approx(np.clip(-off / 0.5, 0, 1), abs=3e-6)
    assert found[:, 2] == pytest.approx(np.clip((off / 0.5) ** 2, 0, 1), abs=3e-6)
    assert (found[:, 3] == (np.abs(off) > 0.5)).all()
    assert found[:, 4] == pytest.approx(1 - found[:, 0], abs=3e-6)
    assert (found[:, 5] == 1 - found[:, 3]).all()
    assert off.min() < -0.5 < 0.5 < off.max()


def test_sizes_of_one_error_exclude_one_another_and_those_of_two_do_not():
    reaches = [Fraction(step, 8) for step in (1, 3, 7)]
    large = [LabelError(FORM, 4, reach, "beyond") for reach in reaches]
    rings = [~large[0], large[0] & ~large[1], large[1] & ~large[2], large[2]]
    assert batch_sensitivity(rings).l1 == 2
    other = LabelError(FORM, 5, reaches[2], "beyond")
    assert batch_sensitivity([~large[0], other]).l1 == 2
    assert batch_sensitivity([*rings, other]).l1 == 3
    assert batch_sensitivity(ERRORS[:3]).l1 == 3
    assert [error.boolean for error in ERRORS] == [False, False, False, True]


def test_the_notation_python_and_the_wire_agree():
    texts = [f'{name}((3 * z["age"] + 1) / 4, 0.5)' for name in ("over", "under", "squared", "beyond")]
    texts += ['~beyond((3 * z["age"] + 1) / 4, 2) & (y >= 2)', "squared((5) / 8, 1/3)"]
    written = [parse(text) for text in texts]
    ratio = (3 * z["age"] + 1) / 4
    assert (
        tuple(written[:4])
        == ERRORS
        == (over(ratio, REACH), under(ratio, REACH), squared(ratio, 0.5), beyond(ratio, REACH))
    )
    assert [to_text(predicate) for predicate in written] == texts
    check(written, NUMBER)
    message, coordinates = query_pb2.StatisticQuery(), FormCoordinates(NUMBER)
    write_predicates(written, coordinates, message)
    assert list(read_predicates(message, coordinates)) == written
    assert columns(NUMBER, [ERRORS[0]]) == ("age", "n")


def test_what_no_number_allows_is_refused():
    with pytest.raises(PredicateError, match="no classes, which flip"):
        swap_label(ERRORS[0])
    with pytest.raises(PredicateError, match="no coordinate 'height'"):
        check([LabelError(Affine((("height", 1),)), 1, REACH, "over")], NUMBER)
    for reach in (0, Fraction(9, 4)):
        with pytest.raises(PredicateError, match="give a number above 0, at most 2"):
            LabelError(FORM, 4, Fraction(reach), "over")
    with pytest.raises(PredicateError, match="no error 'cubed': give one of over"):
        LabelError(FORM, 4, REACH, "cubed")
    with pytest.raises(PredicateError, match="scale is 0"):
        LabelError(FORM, 0, REACH, "over")
    with pytest.raises(PredicateError, match="LabelError is not an affine form"):
        LabelError(ERRORS[0], 4, REACH, "over")
    for field in ("form", "sort"):
        message, coordinates = query_pb2.StatisticQuery(), FormCoordinates(NUMBER)
        write_predicates(ERRORS[:1], coordinates, message)
        message.nodes[0].label_error.ClearField(field)
        with pytest.raises(WireError, match="no form, or is of an unknown sort"):
            read_predicates(message, coordinates)
