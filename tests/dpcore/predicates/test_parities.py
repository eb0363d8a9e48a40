"""The bound of a batch of parities: exact for all records of a few flags, and for no batch without a proof."""

from itertools import product

import numpy as np
import pytest

from dpcore.estimators import additive_pairs
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import values
from dpcore.predicates.expressions import And, Clipped, Constant, Flag, LabelIs, Not, Or
from dpcore.predicates.parities import parities_changed
from dpcore.records.features import Label, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema

LABEL = LabelIs(True)


def most_changed(features: int, batch) -> int:
    """The most values that differ between two of all records whose features are at either end, or an unusable one."""
    names = [f"x{at}" for at in range(features)]
    schema = Schema(
        name="signs",
        label=Label(column="y", positive=("1",)),
        features=tuple(RealFeature(name=name, lower=-1, upper=1) for name in names),
    )
    cells = np.array([*product((-ONE, ONE), repeat=features)] * 2 + [(0,) * features], dtype=np.int32)
    cells = np.column_stack([cells, np.where(np.arange(len(cells)) < len(cells) - 1, ONE, 0).astype(np.int32)])
    labels = np.repeat(np.array([1, -1], dtype=np.int8), 2**features)
    usable = np.ones(len(cells), dtype=np.bool_)
    usable[-1] = False
    each = values(batch, schema, Records(cells, np.append(labels, np.int8(1)), usable), 0)
    return max(int(np.abs(each - record).sum(axis=1).max()) for record in each)


def pairs(features: int):
    return additive_pairs._predicates([(f"x{at}", 1) for at in range(features)])


def either(first, second):
    return Or((And((first, Not(second))), And((Not(first), second))))


@pytest.mark.parametrize("features", [2, 3, 4, 5, pytest.param(7, marks=pytest.mark.more)])
def test_the_choice_of_pairs_has_exactly_the_sensitivity_that_is_counted(features):
    """All pairs of records: a bound that is lower by one would be exceeded."""
    batch = pairs(features)
    bound = batch_sensitivity(batch)
    assert bound.l1 == bound.l2_squared == most_changed(features, batch) == (features + 1) ** 2 // 2
    assert additive_pairs.choice_squared(features) == bound.l2_squared < len(batch) == features**2 + features + 1


@pytest.mark.more
def test_it_is_the_largest_count_over_all_differences_of_many_features():
    for features in (20, 60, 99):
        least = max(
            max(2 * k * (features + 1 - k), 1 + features + features * (features - 1) // 2) for k in range(features + 1)
        )
        assert least == additive_pairs.choice_squared(features) == parities_changed(pairs(features))


@pytest.mark.parametrize("left_out", range(13))
def test_a_part_of_the_batch_is_never_bounded_by_less_than_it_changes(left_out):
    batch = pairs(3)
    del batch[left_out]
    assert most_changed(3, batch) <= batch_sensitivity(batch).l2_squared <= 8


def test_negated_parts_and_the_other_label_are_the_same_parities():
    a = Flag("a")
    assert parities_changed([LABEL, a, either(LABEL, a)]) == 2
    assert parities_changed([LABEL, a, either(Not(LabelIs(False)), a)]) == 2
    assert parities_changed([LABEL, a, either(LabelIs(False), Not(a))]) == 2
    assert parities_changed([LABEL, a, Not(either(LabelIs(False), a))]) == 2


A, B, C = Flag("a"), Flag("b"), Flag("c")


@pytest.mark.parametrize(
    "batch",
    [
        # A complement is 1 where all atoms are 0, and 0 for a row that is not usable.
        [LABEL, A, Not(either(LABEL, A))],
        [LABEL, LabelIs(False)],
        [A, Not(A)],
        # Asked twice, it changes twice.
        [LABEL, A, either(LABEL, A), either(A, LABEL)],
        # No atom is in both threes.
        [either(either(A, B), C), either(either(LABEL, Flag("d")), Flag("e"))],
        # Four atoms.
        [LABEL, either(either(A, B), either(LABEL, C))],
        # No exclusive-ors.
        [LABEL, A, Or((And((LABEL, Not(A))), And((LABEL, A))))],
        [LABEL, A, Or((And((LABEL, Not(B))), And((Not(LABEL), A))))],
        [LABEL, A, And((LABEL, A))],
        # Values between 0 and 1.
        [LABEL, either(LABEL, Clipped(additive_pairs.Affine((("x0", 1),), 0), 2))],
        [LABEL],
    ],
)
def test_other_batches_are_not_bounded_as_parities(batch):
    assert parities_changed(batch) is None


def test_a_constant_is_an_atom_that_only_an_unusable_row_differs_in():
    assert parities_changed([Constant(True), A, either(Constant(True), A)]) == 2
