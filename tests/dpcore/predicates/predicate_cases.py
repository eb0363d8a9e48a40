"""Shared by the tests of predicates: a schema, its records, predicates on it, and their values by definition."""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cache

import numpy as np
from hypothesis import strategies as st

from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.expressions import (
    Above,
    Affine,
    And,
    AtLeast,
    Clipped,
    Constant,
    Equals,
    Flag,
    LabelAbove,
    LabelAtLeast,
    LabelClass,
    LabelIs,
    LabelShare,
    NonNegative,
    Not,
    Or,
    Predicate,
)
from dpcore.records.encoding import Numbers, encode, source_of, store
from dpcore.records.features import BooleanFeature, CategoryFeature, Label, RealFeature, ThresholdFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema

AGE = RealFeature(name="age", lower=0, upper=100, missing="zero-vector")
PAY = RealFeature(name="pay", lower=-3.5, upper=7.25)
SMOKER = BooleanFeature(name="smoker", true=("yes",), false=("no",))
OLD = ThresholdFeature(name="old", threshold=65, column="years")
JOB = CategoryFeature(name="job", values=("clerk", "cook", 'the "boss"\\'))
SCHEMA = Schema(name="people", label=Label(column="ill", positive=("1",)), features=(AGE, PAY, SMOKER, OLD, JOB))
REALS = {feature.name: feature for feature in (AGE, PAY)}

Row = tuple[Mapping[str, int], int, bool]
"""Coordinates by name in units of 2^-30, label, usable."""


def encoded(feature: RealFeature, values: list[float]) -> list[int]:
    """Cells of a real feature as a party stores them."""
    schema = Schema(name="one", label=SCHEMA.label, features=(feature,), bias=False)
    cells = Numbers(np.array(values, dtype=np.float64), np.zeros(len(values), dtype=np.bool_))
    rows = encode(schema, {source_of(feature): cells}, len(values), label=False)
    return [int(value) for value in store(rows.x)[:, 0]]


def random_records(rows: int, seed: int) -> Records:
    """Records as the schema encodes them, about one in eight not usable. Ages are round numbers, to hit bounds."""
    generator = np.random.default_rng(seed)
    features = np.zeros((rows, SCHEMA.d), dtype=np.int32)
    features[:, 0] = encoded(AGE, list(generator.integers(0, 21, rows) * 5.0))
    features[:, 1] = encoded(PAY, list(generator.integers(-14, 30, rows) / 4))
    features[:, 2:4] = generator.choice((-ONE, ONE), (rows, 2))
    features[np.arange(rows), 4 + generator.integers(0, 3, rows)] = ONE
    features[:, -1] = ONE
    labels = generator.choice(np.array([-1, 1], dtype=np.int8), rows)
    usable = generator.random(rows) < 7 / 8
    features[~usable], labels[~usable] = 0, 1
    return Records(features, labels, usable)


def rows_of(records: Records) -> list[Row]:
    """The records, row by row."""
    names = SCHEMA.coordinates
    return [
        (dict(zip(names, map(int, x), strict=True)), int(label), bool(usable))
        for x, label, usable in zip(records.features, records.labels, records.usable, strict=True)
    ]


def value(predicate: Predicate, row: Row) -> Fraction:
    """phi of one row by the definitions, an exact number in [0, 1]."""
    return _value(predicate, row) if row[2] else Fraction(0)


def _value(predicate: Predicate, row: Row) -> Fraction:
    coordinates, label, _ = row
    match predicate:
        case Constant(truth):
            return Fraction(truth)
        case LabelIs(positive):
            return Fraction((label == 1) == positive)
        case LabelClass() | LabelAtLeast() | LabelAbove() | LabelShare():
            raise AssertionError("the schema of these cases has two classes")
        case Flag(feature):
            return Fraction(coordinates[feature] == ONE)
        case Equals(feature, text):
            return Fraction(coordinates[f"{feature}={text}"] == ONE)
        case AtLeast(feature, bound):
            return Fraction(compared(feature, coordinates[feature], bound) >= 0)
        case Above(feature, bound):
            return Fraction(compared(feature, coordinates[feature], bound) > 0)
        case NonNegative(form):
            return Fraction(form_value(form, coordinates) >= 0)
        case Clipped(form, scale):
            return min(Fraction(1), max(Fraction(0), form_value(form, coordinates) / scale))
        case Not(part):
            return 1 - _value(part, row)
        case And(parts):
            return min(_value(part, row) for part in parts)
        case Or(parts):
            return max(_value(part, row) for part in parts)


def form_value(form: Affine, coordinates: Mapping[str, int]) -> Fraction:
    return sum((Fraction(w * coordinates[name], ONE) for name, w in form.weights), Fraction(form.constant))


def compared(name: str, cell: int, bound: Fraction) -> int:
    """-1, 0 or 1: the cell is below, equal to, or above the bound. A bound that no cell can have is not encoded."""
    feature = REALS[name]
    if bound < Fraction(feature.lower):
        return 1
    if bound > Fraction(feature.upper):
        return -1
    stored = _stored(name, bound)
    return (cell > stored) - (cell < stored)


@cache
def _stored(name: str, bound: Fraction) -> int:
    return encoded(REALS[name], [float(bound)])[0]


def floor_units(exact: Fraction, fraction_bits: int) -> int:
    return math.floor(exact * (1 << fraction_bits))


bounds = st.one_of(
    st.integers(-10, 120).map(Fraction),
    st.fractions(min_value=-4, max_value=101, max_denominator=1000),
    st.sampled_from([Fraction(0), Fraction(100), Fraction(-7, 2), Fraction(29, 4), Fraction(1, 1 << 62)]),
)
forms = st.builds(
    lambda weights, constant: Affine(tuple(weights.items()), constant),
    st.dictionaries(st.sampled_from(SCHEMA.coordinates), st.integers(-5, 5), max_size=4),
    st.integers(-8, 8),
)
wide_forms = st.builds(
    lambda weights, constant: Affine(tuple(weights.items()), constant),
    st.dictionaries(st.sampled_from(SCHEMA.coordinates), st.integers(-(2**29), 2**29), max_size=4),
    st.integers(-(2**31) + 1, 2**31 - 1),
)
boolean_atoms = st.one_of(
    st.builds(Constant, st.booleans()),
    st.builds(LabelIs, st.booleans()),
    st.builds(Flag, st.sampled_from(["smoker", "old"])),
    st.builds(Equals, st.just("job"), st.sampled_from(JOB.values)),
    st.builds(AtLeast, st.sampled_from(["age", "pay"]), bounds),
    st.builds(Above, st.sampled_from(["age", "pay"]), bounds),
    st.builds(NonNegative, forms | wide_forms),
)
atoms = (
    boolean_atoms
    | st.builds(Clipped, forms, st.integers(1, 20))
    | st.builds(Clipped, wide_forms, st.integers(1, 2**32 - 1))
)


def trees(leaves: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
    """Predicates of these atoms."""
    return st.recursive(
        leaves,
        lambda part: st.one_of(
            part.map(Not),
            st.lists(part, min_size=2, max_size=4).map(lambda parts: And(tuple(parts))),
            st.lists(part, min_size=2, max_size=4).map(lambda parts: Or(tuple(parts))),
        ),
        max_leaves=8,
    )


predicates = trees(atoms)
