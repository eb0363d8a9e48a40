"""Read-only arrays: only arrays that could still be written to are copied."""

import numpy as np
import pytest

from dpcore.numbers.fixed_point import frozen


def test_a_read_only_array_is_not_copied():
    values = np.ones((2, 3))
    values.setflags(write=False)
    assert frozen(values, np.float64) is values
    rows = values[:1]
    assert frozen(rows, np.float64) is rows
    whole = np.frombuffer(bytes(16), dtype=np.int64)
    assert frozen(whole, np.int64) is whole


def test_a_writable_array_is_copied():
    values = np.arange(6.0).reshape(2, 3)
    view = values[:]
    view.setflags(write=False)
    buffer = bytearray(16)
    shared = np.frombuffer(buffer, dtype=np.int64)
    shared.setflags(write=False)
    found = [frozen(values, np.float64), frozen(view, np.float64), frozen(shared, np.int64)]
    values[0, 0], buffer[0] = 9.0, 1
    assert [array.flat[0] for array in found] == [0, 0, 0]
    for array in found:
        with pytest.raises(ValueError, match="read-only"):
            array.flat[0] = 1


def test_other_types_and_orders_are_converted():
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    columns.setflags(write=False)
    found = frozen(columns, np.float64)
    assert found.flags.c_contiguous
    assert np.array_equal(found, columns)
    assert frozen([[1, 2]], np.float64).dtype == np.float64
    assert frozen(found, np.int64).dtype == np.int64
