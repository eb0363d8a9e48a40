"""Values and sums of predicates: exact, as defined, and independent of how rows and work are divided."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import PlanError, ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates import evaluation
from dpcore.predicates.bits import WORD_ROWS, Bit
from dpcore.predicates.block import Block
from dpcore.predicates.evaluation import block_rows, sums, values
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
    swap_label,
)
from dpcore.predicates.program import Program, Step, compiled, stored_bound
from dpcore.records.elsewhere import FeaturesElsewhere
from dpcore.records.records import Records
from tests.dpcore.predicates.predicate_cases import (
    AGE,
    PAY,
    REALS,
    SCHEMA,
    boolean_atoms,
    encoded,
    floor_units,
    predicates,
    random_records,
    rows_of,
    trees,
    value,
)

RECORDS = random_records(100, 1)
ROWS = rows_of(RECORDS)
fraction_bits = st.sampled_from([0, 1, 7, 16, 20, 30])
batches = st.lists(predicates, min_size=1, max_size=6, unique=True)


@given(batches, fraction_bits)
def test_values_are_those_of_the_definitions_rounded_down(batch: list[Predicate], f: int):
    found = values(batch, SCHEMA, RECORDS, f)
    expected = [[floor_units(value(predicate, row), f) for predicate in batch] for row in ROWS]
    assert found.tolist() == expected
    assert int(found.min()) >= 0
    assert int(found.max()) <= 1 << f
    assert sums(batch, SCHEMA, RECORDS, f).tolist() == np.sum(expected, axis=0).tolist()


@given(batches, fraction_bits, st.integers(1, 99), st.randoms(use_true_random=False))
def test_sums_of_parts_in_any_order_add_up(batch: list[Predicate], f: int, cut: int, random):
    order = list(range(100))
    random.shuffle(order)
    parts = [
        Records(RECORDS.features[rows], RECORDS.labels[rows], RECORDS.usable[rows])
        for rows in (order[:cut], order[cut:])
    ]
    added = sum(sums(batch, SCHEMA, part, f) for part in parts)
    assert (added == sums(batch, SCHEMA, RECORDS, f)).all()


def test_blocks_change_nothing(monkeypatch):
    records = random_records(1000, 2)
    batch = [
        (AtLeast("age", Fraction(40)) & LabelIs(positive=True)),
        ~Flag("smoker") | Equals("job", "cook"),
        Clipped(Affine((("age", 3), ("pay", -2)), 1), 7) & ~Flag("old"),
        ~Clipped(Affine((("age", 3), ("pay", -2)), 1), 7),
        NonNegative(Affine((("age", 3), ("pay", -2)))),
    ]
    whole = sums(batch, SCHEMA, records, 16)
    assert (values(batch, SCHEMA, records, 16).sum(axis=0) == whole).all()
    monkeypatch.setattr(evaluation, "MOST_ROWS", 64)
    reported: list[tuple[int, int]] = []
    assert (sums(batch, SCHEMA, records, 16, lambda *done: reported.append(done)) == whole).all()
    assert reported == [(min(64 * i, 1000), 1000) for i in range(1, 17)]
    assert (values(batch, SCHEMA, records, 16).sum(axis=0) == whole).all()


def test_a_row_that_is_not_usable_gives_0_to_every_predicate():
    records = Records(np.zeros((3, SCHEMA.d), np.int32), np.ones(3, np.int8), np.zeros(3, np.bool_))
    batch = [Constant(value=True), Not(Flag("smoker")), LabelIs(positive=True), Not(Clipped(Affine(()), 1))]
    assert values(batch, SCHEMA, records, 8).tolist() == [[0] * 4] * 3
    assert sums([Constant(value=True)], SCHEMA, RECORDS, 8).tolist() == [int(RECORDS.usable.sum()) << 8]


@given(trees(boolean_atoms), trees(boolean_atoms), predicates, predicates, fraction_bits)
def test_laws_of_logic(a: Predicate, b: Predicate, u: Predicate, v: Predicate, f: int):
    def each(predicate: Predicate) -> np.ndarray:
        return values([predicate], SCHEMA, RECORDS, f)[:, 0]

    usable = RECORDS.usable.astype(np.int64) << f
    assert (each(a & b) + each(a | b) == each(a) + each(b)).all()
    assert (each(~a) == usable - each(a)).all()
    for one, other in ((a, b), (u, v), (a, u)):
        assert (each(one & other) == np.minimum(each(one), each(other))).all()
        assert (each(one | other) == np.maximum(each(one), each(other))).all()
        assert (each(~(one & other)) == each(~one | ~other)).all()
        assert (each(~~one) == each(one)).all()


@given(predicates, fraction_bits)
def test_swapping_the_label_is_swapping_the_records_labels(predicate: Predicate, f: int):
    labels = np.where(RECORDS.usable, -RECORDS.labels, RECORDS.labels).astype(np.int8)
    swapped = Records(RECORDS.features, labels, RECORDS.usable)
    assert (values([swap_label(predicate)], SCHEMA, RECORDS, f) == values([predicate], SCHEMA, swapped, f)).all()


@given(
    st.sampled_from(sorted(REALS)), st.integers(0, 1 << 16), st.integers(0, 1 << 16), st.integers(-3, 3), st.booleans()
)
@settings(deadline=None)
def test_comparison_agrees_with_the_original_units(name: str, cell: int, at: int, ulps: int, near: bool):
    feature = REALS[name]
    width = feature.upper - feature.lower
    v = feature.lower + width * cell / (1 << 16)
    c = v if near else feature.lower + width * at / (1 << 16)
    c = min(max(c + ulps * abs(np.spacing(c)), feature.lower), feature.upper)
    (stored,) = encoded(feature, [v])
    bound = stored_bound(feature, Fraction(c))
    assert bound == encoded(feature, [c])[0]
    # Never wrong on one side; on the other, only within 2^-29 of the range.
    assert v < c or stored >= bound
    assert v > c or stored <= bound
    if abs(v - c) > width * 2**-29:
        assert (stored >= bound) == (v >= c)
        assert (stored > bound) == (v > c)


@pytest.mark.parametrize("feature", [AGE, PAY], ids=lambda feature: feature.name)
def test_bounds_at_and_beyond_the_limits(feature):
    lower, upper, little = Fraction(feature.lower), Fraction(feature.upper), Fraction(1, 1 << 50)
    cells = encoded(feature, [feature.lower, (feature.lower + feature.upper) / 2, feature.upper])
    features = np.zeros((3, SCHEMA.d), np.int32)
    features[:, SCHEMA.coordinate(feature.name)] = cells
    records = Records(features, np.ones(3, np.int8), np.ones(3, np.bool_))
    expected = {
        AtLeast(feature.name, lower - little): [1, 1, 1],
        Above(feature.name, lower - little): [1, 1, 1],
        AtLeast(feature.name, lower): [1, 1, 1],
        Above(feature.name, lower): [0, 1, 1],
        AtLeast(feature.name, upper): [0, 0, 1],
        Above(feature.name, upper): [0, 0, 0],
        AtLeast(feature.name, upper + little): [0, 0, 0],
        Above(feature.name, upper + little): [0, 0, 0],
    }
    assert values(list(expected), SCHEMA, records, 0).T.tolist() == list(expected.values())


def test_the_largest_forms_do_not_overflow():
    features = np.full((2, SCHEMA.d), ONE, np.int32)
    features[1] = -ONE
    records = Records(features, np.ones(2, np.int8), np.ones(2, np.bool_))
    most = MOST_FORM - 1
    high, low = Affine((("age", most),)), Affine((("age", most - 1),), -1)
    batch = [Clipped(high, most), Clipped(low, most), Not(Clipped(high, most)), NonNegative(high), Clipped(high, 1)]
    expected = [[floor_units(value(predicate, row), 30) for predicate in batch] for row in rows_of(records)]
    assert values(batch, SCHEMA, records, 30).tolist() == expected
    assert expected == [[ONE, ONE - 1, 0, ONE, ONE], [0, 0, ONE, 0, 0]]


def test_shared_parts_are_computed_once():
    old, ill = AtLeast("age", Fraction(65)), LabelIs(positive=True)
    batch = [old & ill, ill & old & Flag("smoker"), Not(old), old, Not(AtLeast("age", Fraction(65))) | ill]
    program = compiled(batch, SCHEMA)
    assert len(program.steps) == len(set(program.steps)) == 7
    assert all(read < place for place, step in enumerate(program.steps) for read in step.reads)


def test_results_are_freed_after_their_last_use():
    batch = [AtLeast("age", Fraction(i)) & LabelIs(positive=True) for i in range(50)]
    # The label alone, and its copy for the compiled code: the conjunctions are counted tile by tile.
    assert compiled(batch, SCHEMA).row_bits == 1 + 1
    # And they are kept for each row, where each row's are asked for.
    assert compiled(batch, SCHEMA, by_row=True).row_bits == 1 + 1 + 50
    mixed = compiled([Clipped(Affine((("age", 1),)), 2) & Flag("smoker")], SCHEMA)
    # The flag is kept while the sum and the fraction are computed.
    assert mixed.row_bits == 1 + 64 + 32


@pytest.mark.parametrize("kind", [And, Or])
def test_parts_of_a_long_conjunction_are_joined_as_they_are_computed(kind):
    ramps = [Clipped(Affine((("age", i),)), 2 * i + 1) for i in range(1, 50)]
    tests = [AtLeast("age", Fraction(i)) for i in range(1, 50)]
    # The parts joined so far, and a fraction with its sum.
    assert compiled([kind(tuple(ramps))], SCHEMA).row_bits == 32 + 64 + 32
    assert compiled([kind(tuple(tests))], SCHEMA).row_bits == 0
    both = compiled([Not(kind((*ramps, *tests)))], SCHEMA)
    # And the bit of all tests.
    assert both.row_bits == 1 + 32 + 64 + 32
    assert all(read < place for place, step in enumerate(both.steps) for read in step.reads)


def test_sums_do_not_wait_for_bits_that_they_are_not_joined_with():
    forms = [Affine((("age", i), ("pay", 1))) for i in range(1, 50)]
    flag = AtLeast("age", Fraction(1))
    # A sum and a fraction at a time.
    assert compiled([each for form in forms for each in (NonNegative(form), Clipped(form, 3))], SCHEMA).row_bits == 96
    joined = [each for form in forms for each in (Clipped(form, 3), Clipped(form, 7) & flag)]
    # And the flag.
    assert compiled(joined, SCHEMA).row_bits == 1 + 64 + 32
    # One sum waits for the flag, not the fractions that are made of it.
    one = [NonNegative(forms[0]), *(Clipped(forms[0], i) & flag for i in range(1, 50))]
    assert compiled(one, SCHEMA).row_bits == 1 + 64 + 32 + 32


@given(batches)
def test_steps_read_earlier_ones_and_those_on_bits_are_together(batch: list[Predicate]):
    program = compiled(batch, SCHEMA)
    assert all(read < place for place, step in enumerate(program.steps) for read in step.reads)
    bits = [place for place, step in enumerate(program.steps) if isinstance(step.operation, Bit)]
    assert not bits or bits == list(range(bits[0], bits[-1] + 1))


@pytest.mark.parametrize("kind", [NonNegative, lambda form: Clipped(form, 7)], ids=["given bits", "kept bits"])
def test_results_take_as_much_memory_as_is_stated(kind):
    records = random_records(8192, 3)
    batch = [kind(Affine((("age", i), ("pay", 1)))) & AtLeast("pay", Fraction(i, 100)) for i in range(1, 400)]
    program = compiled(batch, SCHEMA)
    block = Block(records, 0, records.rows, program.coordinates, 16)
    for _ in range(2):
        tracemalloc.start()
        totals = [block.total(result) for _, result in program.run(block)]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(totals) == len(batch)
    # What an operation makes beside its result, in 64 bits a row, is not counted, nor are the interpreter's objects.
    assert peak <= (program.row_bits + 4 * 64) * records.rows // 8 + (1 << 17)


def test_features_elsewhere_are_not_read():
    away = Records(FeaturesElsewhere(3, SCHEMA.d, None), np.ones(3, np.int8), np.ones(3, np.bool_))
    for predicate in (LabelIs(positive=True), Flag("old"), NonNegative(Affine((("age", 1),)))):
        with pytest.raises(PlanError, match="not on this machine"):
            sums([predicate], SCHEMA, away, 8)


def test_predicates_on_one_column_are_computed_one_after_the_other():
    batch = [AtLeast(name, Fraction(i)) & LabelIs(positive=True) for i in range(1, 6) for name in ("age", "pay")]
    program = compiled(batch, SCHEMA)
    read = [step.numbers[0] for step in program.steps if step.operation is Bit.AT_LEAST]
    assert sorted(read) == read
    assert len(set(read)) == 2
    each = [values([predicate], SCHEMA, RECORDS, 8)[:, 0] for predicate in batch]
    assert (values(batch, SCHEMA, RECORDS, 8) == np.transpose(each)).all()


def test_order_of_need_shares_as_much_as_before():
    ramps = [Clipped(Affine((("age", i),)), 2 * i + 1) for i in range(1, 9)]
    batch = [And(tuple(ramps)), And(tuple(reversed(ramps))), And((*ramps, Flag("smoker"))), ramps[3]]
    # For each a sum and a fraction, then seven joints, a flag, and the one joint with it.
    assert len(compiled(batch, SCHEMA).steps) == 8 + 8 + 7 + 1 + 1


def test_bits_of_labels_and_forms_come_first_and_values_last():
    form = Affine((("age", 1), ("pay", 2)))
    batch = [Clipped(form, 3) & (Flag("smoker") | NonNegative(form)), LabelIs(positive=True) & Flag("old")]
    operations = [step.operation for step in compiled(batch, SCHEMA).steps]
    assert operations[:3] == [Block.positive, Block.weighted, Block.sum_at_least]
    assert {type(operation) for operation in operations[3:7]} == {Bit}
    assert operations[7:] == [Block.clipped, Block.where]


def test_blocks_shrink_where_many_results_are_kept():
    few = Program((Step(Bit.TRUE),), (0,), ())
    # Each of many sums is read again at the very end.
    sums_ = tuple(Step(Block.weighted, (0, i + 1)) for i in range(1 << 10))
    reads = tuple(Step(Block.sum_at_least, (0,), (i,)) for i in range(len(sums_)))
    many = Program((*sums_, *reads), tuple(range(len(sums_), 2 * len(sums_))), (), (0,))
    assert block_rows(few) == evaluation.MOST_ROWS
    assert block_rows(many) < 10_000
    assert block_rows(many) % WORD_ROWS == 0
    assert many.row_bits * block_rows(many) <= 1 << 29
    wide = Program((Step(Block.positive),), (0,), (), tuple(range(1 << 14)))
    # Coordinates of 32 bits, and one result.
    assert block_rows(wide) == (1 << 29) // ((32 << 14) + 1) // WORD_ROWS * WORD_ROWS
    assert block_rows(Program(many.steps, many.roots, (), tuple(range(1 << 14)))) < block_rows(many)


def test_invalid_arguments_are_refused():
    with pytest.raises(ShapeError, match=r"records have 2 coordinates and the schema 8"):
        sums([Flag("old")], SCHEMA, Records(np.zeros((1, 2), np.int32), np.ones(1, np.int8), np.ones(1, np.bool_)), 0)
    with pytest.raises(PlanError, match="fraction_bits is 31"):
        sums([Flag("old")], SCHEMA, RECORDS, 31)


def test_conjunction_of_fractions_and_bits_by_hand():
    features = np.zeros((2, SCHEMA.d), np.int32)
    features[:, SCHEMA.coordinate("age")] = ONE // 2
    features[:, SCHEMA.coordinate("smoker")] = (ONE, -ONE)
    records = Records(features, np.ones(2, np.int8), np.ones(2, np.bool_))
    half, flag = Clipped(Affine((("age", 1),)), 1), Flag("smoker")
    batch = [And((half, flag)), Or((half, flag)), Not(And((half, flag))), Not(Or((half, flag)))]
    assert values(batch, SCHEMA, records, 2).tolist() == [[2, 4, 2, 0], [0, 2, 4, 2]]
