"""Estimates are valid from construction, and their tolerance is the sum of their half-widths."""

import dataclasses

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, DataError, ShapeError
from dpcore.statistics.accuracy import Estimates

GOOD = Estimates(np.array([0.2, 1.1]), 10, 0.95, 0.1, 0.02, 0.003, 0.001)


def test_the_tolerance_is_the_sum_of_the_half_widths():
    assert GOOD.tolerance == pytest.approx(0.123)
    with pytest.raises(ValueError, match="read-only"):
        GOOD.values[0] = 0.0


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("values", np.zeros((2, 2)), ShapeError),
        ("values", np.zeros(0), ShapeError),
        ("values", np.array([0.1, np.nan]), DataError),
        ("rows", 0, ConfigurationError),
        ("confidence", 1.0, ConfigurationError),
        ("confidence", float("nan"), ConfigurationError),
        ("sampling", -0.1, ConfigurationError),
        ("quantisation", float("inf"), ConfigurationError),
        ("noise", float("nan"), ConfigurationError),
        ("deviation", -1.0, ConfigurationError),
    ],
)
def test_fields_out_of_range_are_refused(field, value, error):
    with pytest.raises(error):
        dataclasses.replace(GOOD, **{field: value})
