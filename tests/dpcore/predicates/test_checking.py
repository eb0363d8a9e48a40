"""Hostile and mistaken predicates are refused before any evaluation, with an error that says what to do."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from dpcore.errors import ConfigurationError
from dpcore.predicates import evaluation
from dpcore.predicates.evaluation import MOST_DEPTH, MOST_NODES, MOST_PREDICATES, check, sums
from dpcore.predicates.expressions import (
    MOST_FORM,
    Above,
    Affine,
    And,
    AtLeast,
    Clipped,
    Constant,
    Equals,
    Flag,
    LabelIs,
    NonNegative,
    Not,
    Or,
    Predicate,
    PredicateError,
    depends_on_label,
    is_boolean,
    swap_label,
)
from tests.dpcore.predicates.predicate_cases import SCHEMA, predicates, random_records

FORM = Affine((("age", 2), ("smoker", -1)), 3)


def shared_tower(levels: int) -> Predicate:
    """A tower that shares all its parts: written out it has 2^levels leaves and 2^levels - 1 joints."""
    tower: Predicate = Flag("smoker")
    for _ in range(levels):
        tower = And((tower, tower))
    return tower


def wide(count: int, start: int = 0) -> list[Predicate]:
    return [AtLeast("age", Fraction(i, 1000)) for i in range(start, start + count)]


@pytest.mark.parametrize(
    ("predicate", "sentence"),
    [
        (Flag("smoke"), r"schema 'people' has no feature 'smoke'; did you mean 'smoker'\?"),
        (Flag("x" * 200), r"has no feature"),
        (Flag(SCHEMA.label.column), r"is a column of the label, which predicates call y"),
        (AtLeast("smoker", Fraction(1)), r"'smoker' is a boolean feature: use it alone"),
        (Above("old", Fraction(1)), r"'old' is a threshold feature: use it alone"),
        (Flag("age"), r"'age' is a real feature: compare it with a number"),
        (Flag("job"), r"'job' is a category feature: compare it with one of its values"),
        (Equals("age", "65"), r"'age' is a real feature: compare it with a number"),
        (Equals("job", "clark"), r"feature 'job' lists no value 'clark'; did you mean 'clerk'\?"),
        (Equals("job=clerk", "clerk"), r"has no feature 'job=clerk'"),
        (NonNegative(Affine((("job", 1),))), r"has no coordinate 'job'"),
        (Clipped(Affine((("years", 1),)), 2), r"has no coordinate 'years'"),
        (Not(And((Flag("smoker"), Or((Flag("olt"), LabelIs(positive=True)))))), r"did you mean 'old'\?"),
    ],
)
def test_predicates_that_do_not_fit_the_schema_are_refused_before_evaluation(monkeypatch, predicate, sentence):
    monkeypatch.setattr(evaluation, "compiled", None)
    monkeypatch.setattr(evaluation, "Block", None)
    with pytest.raises(PredicateError, match=sentence):
        check([Flag("old"), predicate], SCHEMA)
    with pytest.raises(PredicateError, match=sentence):
        sums([Flag("old"), predicate], SCHEMA, random_records(3, 1), 0)


@given(predicates)
def test_predicates_that_fit_the_schema_are_admitted(predicate):
    check([predicate], SCHEMA)


def test_batches_that_are_empty_too_long_or_repeat_are_refused():
    with pytest.raises(PredicateError, match="there are no predicates"):
        check([], SCHEMA)
    check(wide(1000), SCHEMA)
    with pytest.raises(PredicateError, match=f"there are {MOST_PREDICATES + 1} predicates: give at most"):
        check([Flag("old")] * (MOST_PREDICATES + 1), SCHEMA)
    twice = [Flag("old"), Flag("smoker") & Flag("old"), LabelIs(positive=True), And((Flag("smoker"), Flag("old")))]
    with pytest.raises(PredicateError, match="predicates 2 and 4 are the same"):
        check(twice, SCHEMA)
    with pytest.raises(PredicateError, match="Affine is not a predicate"):
        check([FORM], SCHEMA)  # type: ignore[list-item]
    assert issubclass(PredicateError, ConfigurationError)


def test_nodes_and_weights_are_counted_and_shared_ones_once(monkeypatch):
    monkeypatch.setattr(evaluation, "MOST_NODES", 200)
    # 100 atoms, 99 joints and a constant; the second batch shares all of the first.
    full = [Or(tuple(wide(100))), Constant(value=True)]
    check(full, SCHEMA)
    check([*full, *wide(100)], SCHEMA)
    with pytest.raises(PredicateError, match="more than 200 nodes and weights"):
        check([*full, Constant(value=False)], SCHEMA)
    check([NonNegative(Affine((("age", 1), ("old", 1)))), *wide(198)], SCHEMA)
    for heavy in (NonNegative(FORM), Clipped(FORM, 2)):
        with pytest.raises(PredicateError, match="nodes and weights"):
            check([heavy, *wide(199)], SCHEMA)


def test_sharing_does_not_make_checking_exponential():
    first, second = shared_tower(16), shared_tower(16)
    with pytest.raises(PredicateError, match="predicates 1 and 2 are the same"):
        check([first, second], SCHEMA)
    check([first, swap_label(Not(second))], SCHEMA)
    for larger in (Not(Not(first)), shared_tower(17), shared_tower(MOST_DEPTH - 1)):
        with pytest.raises(PredicateError, match=f"more than {MOST_NODES} nodes when shared ones count each time"):
            check([larger], SCHEMA)
    assert sums([first], SCHEMA, random_records(5, 1), 0).shape == (1,)
    assert not depends_on_label(first)
    assert depends_on_label(swap_label(first & LabelIs(positive=True)))


def test_depth_is_limited_from_construction():
    tower: Predicate = Flag("old")
    for _ in range(MOST_DEPTH - 1):
        tower = Not(tower)
    assert tower.depth == MOST_DEPTH
    check([tower], SCHEMA)
    for make in (Not, lambda part: And((part, part)), lambda part: Or((Flag("old"), part))):
        with pytest.raises(PredicateError, match=f"deeper than {MOST_DEPTH} levels"):
            make(tower)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Constant(1),
        lambda: LabelIs(1),
        lambda: Flag(""),
        lambda: Flag(3),
        lambda: Flag("\ud800"),
        lambda: Equals("job", None),
        lambda: AtLeast("age", 0.5),
        lambda: AtLeast("age", True),
        lambda: AtLeast("age", Fraction(1, 1 << 63)),
        lambda: Above("age", Fraction(-(1 << 63))),
        lambda: Affine((("age", 0.5),)),
        lambda: Affine((("age", True),)),
        lambda: Affine((("age", 1), ("age", 2))),
        lambda: Affine((("age", -(1 << 31)), ("smoker", 1 << 31))),
        lambda: Affine((("age", 1),), MOST_FORM - 1),
        lambda: NonNegative(Flag("old")),
        lambda: Clipped(FORM, 0),
        lambda: Clipped(FORM, MOST_FORM),
        lambda: Clipped(FORM, -1),
        lambda: Not(FORM),
        lambda: And((Flag("old"),)),
        lambda: Or(()),
        lambda: And((Flag("old"), FORM)),
        lambda: bool(Flag("old")),
        lambda: Flag("old") and Flag("smoker"),
    ],
)
def test_invalid_expressions_are_refused_at_construction(make):
    with pytest.raises(PredicateError):
        make()


def test_the_largest_values_are_admitted():
    assert AtLeast("age", Fraction(1, (1 << 63) - 1)).bound.denominator == (1 << 63) - 1
    assert Affine((("age", MOST_FORM - 1),)).weights == (("age", MOST_FORM - 1),)
    assert Clipped(FORM, MOST_FORM - 1).scale == MOST_FORM - 1


def test_forms_are_kept_sorted_without_zeros_and_in_integers():
    form = Affine((("smoker", np.int64(-1)), ("pay", 0), ("age", 2)), np.int64(3))
    assert form == FORM
    assert [type(weight) for _, weight in form.weights] == [int, int]
    assert AtLeast("age", np.int64(3)) == AtLeast("age", Fraction(3))


@given(predicates, predicates)
def test_equality_is_of_structure_and_survives_a_process(one, other):
    assert pickle.loads(pickle.dumps(one)) == one
    assert "_hash" not in one.__reduce__()[1]
    assert (one == other) == (repr(one) == repr(other))
    assert one != other or hash(one) == hash(other)
    assert one != FORM
    assert one != "text"
    assert Not(one) != one


@given(predicates)
def test_swapping_the_label_twice_changes_nothing(predicate):
    swapped = swap_label(predicate)
    assert swap_label(swapped) == predicate
    assert (swapped != predicate) == depends_on_label(predicate) == ("LabelIs" in repr(predicate))
    assert is_boolean(predicate) == ("Clipped" not in repr(predicate))
    assert is_boolean(predicate) == is_boolean(swapped)
