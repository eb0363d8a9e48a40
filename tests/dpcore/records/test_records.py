"""Records refuse every value that is out of range, in any block of rows."""

import numpy as np
import pytest

from dpcore.errors import SchemaError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.records import BLOCK_ROWS, Records

ROWS = 2 * BLOCK_ROWS + 3


def arrays():
    features = np.full((ROWS, 2), -ONE, dtype=np.int32)
    labels, usable = np.full(ROWS, -1, dtype=np.int8), np.ones(ROWS, dtype=np.bool_)
    features[::5], labels[::5], usable[::5] = 0, 1, False
    return features, labels, usable


def test_the_extremes_are_within_range():
    features, labels, usable = arrays()
    features[1] = ONE
    assert Records(features, labels, usable).rows == ROWS


@pytest.mark.parametrize("row", [1, BLOCK_ROWS + 1, ROWS - 1])
@pytest.mark.parametrize("value", [ONE + 1, -ONE - 1, 2**31 - 1, -(2**31)])
def test_a_feature_out_of_range(row, value):
    features, labels, usable = arrays()
    features[row, 1] = value
    with pytest.raises(SchemaError, match="beyond"):
        Records(features, labels, usable)


@pytest.mark.parametrize("row", [0, ROWS - 1])
@pytest.mark.parametrize("value", [0, 2, -2, 127, -127, -128])
def test_a_label_out_of_range(row, value):
    features, labels, usable = arrays()
    labels[row] = value
    with pytest.raises(SchemaError, match="label is neither"):
        Records(features, labels, usable)


@pytest.mark.parametrize("row", [0, BLOCK_ROWS - BLOCK_ROWS % 5, ROWS - 1 - (ROWS - 1) % 5])
def test_an_unusable_row_has_no_values(row):
    for array, value in ((0, 1), (1, -1)):
        given = arrays()
        assert not given[2][row]
        given[array][row] = value
        with pytest.raises(SchemaError, match="not usable"):
            Records(*given)
