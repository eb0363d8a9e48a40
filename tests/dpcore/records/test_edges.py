"""Edges equal label times truncated feature in Python integers; records are valid from construction."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import PlanError, SchemaError, ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.records import Records, edges, edges_in_doubles, sensitive_positive


def records(rows: int = 21, d: int = 4, seed: int = 1, unusable: tuple[int, ...] = (3, 20)) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE + 1, size=(rows, d)).astype(np.int32)
    features[:, 1] = generator.choice([-ONE, ONE], size=rows)
    features[:, -1] = ONE
    labels = generator.choice([-1, 1], size=rows).astype(np.int8)
    usable = np.ones(rows, dtype=np.bool_)
    for row in unusable:
        features[row], labels[row], usable[row] = 0, 1, False
    return Records(features, labels, usable)


def whole(held: Records, fraction_bits: int, sensitive: tuple[int, ...] = (), block_rows: int = 8) -> np.ndarray:
    return np.concatenate([block for _, block in edges(held, fraction_bits, sensitive, block_rows)])


def exact_edges(held: Records, fraction_bits: int, sensitive: tuple[int, ...]) -> list[list[int]]:
    """Python integers, value by value."""
    return [
        [
            1 << fraction_bits
            if not usable and j in sensitive
            else int(label) * (abs(int(value)) >> (30 - fraction_bits)) * (1 if value >= 0 else -1)
            for j, value in enumerate(row)
        ]
        for row, label, usable in zip(held.features, held.labels, held.usable, strict=True)
    ]


@given(
    st.integers(0, 30),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
    st.sets(st.integers(0, 39)),
    st.sampled_from([(), (1,), (0, 3)]),
    st.booleans(),
)
@settings(deadline=None)
def test_edges_are_label_times_truncated_feature(fraction_bits, rows, seed, unusable, sensitive, turned):
    held = records(rows, seed=seed, unusable=tuple(row for row in unusable if row < rows))
    if turned:
        held = Records(np.asfortranarray(held.features), np.repeat(held.labels, 2)[::2], held.usable)
    assert whole(held, fraction_bits, sensitive).tolist() == exact_edges(held, fraction_bits, sensitive)


@pytest.mark.parametrize("fraction_bits", [0, 1, 16, 29, 30])
def test_extreme_features_are_truncated_toward_zero(fraction_bits):
    values = np.array([0, 1, ONE - 1, ONE, (1 << 14) - 1, 1 << 14, (1 << 14) + 1], dtype=np.int32)
    features = np.concatenate([values, -values])[:, np.newaxis].repeat(2, axis=0)
    held = Records(features, np.tile([1, -1], 14).astype(np.int8), np.ones(28, dtype=bool))
    assert whole(held, fraction_bits).tolist() == exact_edges(held, fraction_bits, ())


def test_blocks_cover_all_rows_in_order():
    held = records(21)
    firsts = [first for first, _ in edges(held, 16, (), 8)]
    assert firsts == [0, 8, 16]
    assert np.array_equal(whole(held, 16, (), 8), whole(held, 16, (), 64))


def test_unusable_rows_are_zero_except_the_sensitive_coordinate():
    held = records()
    assert not whole(held, 16)[[3, 20]].any()
    protected = whole(held, 16, (1,))
    assert protected[[3, 20]].tolist() == [[0, 1 << 16, 0, 0]] * 2
    assert set(np.abs(protected[:, 1]).tolist()) == {1 << 16}
    others = [0, 2, 3]
    assert np.array_equal(protected[:, others], whole(held, 16)[:, others])
    both = whole(held, 16, (0, 1))
    assert both[[3, 20]].tolist() == [[1 << 16, 1 << 16, 0, 0]] * 2
    assert np.array_equal(np.delete(both, [3, 20], axis=0), np.delete(protected, [3, 20], axis=0))


def test_sensitive_sign_is_that_of_the_edge():
    held = records()
    assert np.array_equal(sensitive_positive(held, 1), whole(held, 16, (1,))[:, 1] > 0)


def test_sensitive_coordinate_must_be_boolean_and_exist():
    held = records()
    with pytest.raises(SchemaError, match="not coded"):
        sensitive_positive(held, 0)
    for coordinate in (-1, 4):
        with pytest.raises(ShapeError, match="does not exist"):
            sensitive_positive(held, coordinate)
        with pytest.raises(ShapeError, match="does not exist"):
            next(edges(held, 16, (1, coordinate)))


def test_bad_block_and_bad_fraction_bits_are_refused():
    with pytest.raises(ShapeError, match="multiple of 8"):
        next(edges(records(), 16, (), 12))
    for fraction_bits in (-1, 31):
        with pytest.raises(PlanError):
            next(edges(records(), fraction_bits))


def parts() -> dict[str, np.ndarray]:
    held = records()
    return {"features": held.features.copy(), "labels": held.labels.copy(), "usable": held.usable.copy()}


def change(name, index, value):
    fields = parts()
    fields[name][index] = value
    return fields


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (parts() | {"features": parts()["features"].astype(np.int64)}, ShapeError),
        (parts() | {"labels": parts()["labels"].astype(np.float64)}, ShapeError),
        (parts() | {"labels": parts()["labels"][:, np.newaxis]}, ShapeError),
        (parts() | {"usable": parts()["usable"][:-1]}, ShapeError),
        ({name: array[:0] for name, array in parts().items()}, ShapeError),
        (change("features", (0, 0), ONE + 1), SchemaError),
        (change("features", (0, 0), -(2**31)), SchemaError),
        (change("labels", 0, 0), SchemaError),
        (change("labels", 3, -1), SchemaError),
        (change("features", (3, 3), ONE), SchemaError),
    ],
)
def test_records_that_are_not_valid_are_refused(fields, error):
    with pytest.raises(error):
        Records(**fields)


def test_records_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        records().features[0, 0] = 0


def test_a_digest_names_every_value_and_the_order():
    held = records()
    assert len(held.digest) == 32
    assert records().digest == held.digest
    lengthened = np.hstack([held.features, np.zeros((21, 1), np.int32)])
    others = [
        Records(**change("features", (0, 0), held.features[0, 0] ^ 1)),
        Records(**change("labels", 0, -held.labels[0])),
        Records(held.features[::-1], held.labels[::-1], held.usable[::-1]),
        Records(held.features[:-1], held.labels[:-1], held.usable[:-1]),
        Records(lengthened, held.labels, held.usable),
        # The same bytes in another shape.
        Records(np.zeros((4, 2), np.int32), np.ones(4, np.int8), np.ones(4, bool)),
        Records(np.zeros((4, 4), np.int32), np.ones(4, np.int8), np.ones(4, bool)),
        Records(np.zeros((4, 4), np.int32), np.ones(4, np.int8), np.zeros(4, bool)),
    ]
    assert len({other.digest for other in others} | {held.digest}) == len(others) + 1
    # The memory order does not matter.
    assert Records(np.asfortranarray(held.features), held.labels, held.usable).digest == held.digest


def test_the_repr_shows_no_value():
    held = records()
    assert repr(held) == "Records()"
    assert str(int(held.features[0, 0])) not in repr(held)


@pytest.mark.parametrize("fraction_bits", [10, 30])
def test_edges_in_doubles_are_the_same_integers(fraction_bits):
    held = records(5000)
    doubles = np.concatenate([block for _, block in edges_in_doubles(held, fraction_bits)])
    assert doubles.dtype == np.float64
    assert (doubles == whole(held, fraction_bits, block_rows=4096)).all()
