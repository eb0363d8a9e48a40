"""Guarantees, numbers of rows and examples: bounds are valid and tight, and invalid arguments are refused."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError, PlanError, ShapeError
from dpcore.statistics.pac import (
    MOST_BITS,
    PacGuarantee,
    TooFewRowsError,
    bit_rows_of,
    check_bits,
    integers_of,
    labels_of,
    pac_rows,
    row_rate,
)

GOOD = {"alpha": 0.1, "beta": 0.05, "epsilon": Fraction(1), "delta": Fraction(0), "rows": 10, "where": "federated"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"alpha": 0.0}, ConfigurationError),
        ({"alpha": 1.0}, ConfigurationError),
        ({"alpha": math.nan}, ConfigurationError),
        ({"beta": 0.0}, ConfigurationError),
        ({"beta": 1.5}, ConfigurationError),
        ({"epsilon": Fraction(0)}, PlanError),
        ({"epsilon": 1.0}, PlanError),
        ({"delta": Fraction(1)}, ConfigurationError),
        ({"delta": Fraction(-1, 9)}, ConfigurationError),
        ({"rows": 0}, ConfigurationError),
    ],
)
def test_guarantees_are_validated(change, error):
    PacGuarantee(**GOOD)
    with pytest.raises(error):
        PacGuarantee(**{**GOOD, **change})


def test_too_few_rows_are_refused_with_the_number_needed():
    guarantee = PacGuarantee(**GOOD)
    guarantee.check_rows(10)
    with pytest.raises(TooFewRowsError, match=r"9 rows.*10") as refused:
        guarantee.check_rows(9)
    assert (refused.value.rows, refused.value.needed) == (9, 10)


@settings(deadline=None)
@given(st.floats(0.01, 0.9), st.floats(0, 1), st.floats(0.01, 1.4), st.booleans())
def test_a_row_weighs_at_least_its_rate(alpha, place, s, agnostic):
    """E exp(-s D) over rows that err with probability a more often than the best concept, and b the other way."""
    bound = math.exp(-row_rate(s, alpha, agnostic=agnostic)) if row_rate(s, alpha, agnostic=agnostic) else 1.0
    b = place * (1 - alpha) / 2 if agnostic else 0.0
    for more in (0.0, 0.5, 1.0):
        a = b + alpha + more * (1 - alpha - 2 * b)
        moment = 1 + a * math.expm1(-s) + b * math.expm1(s)
        assert moment <= bound * (1 + 1e-12)
    if not agnostic or place == 1:
        assert 1 + (b + alpha) * math.expm1(-s) + b * math.expm1(s) == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("agnostic", [False, True])
@pytest.mark.parametrize("reach", [0.05, 0.5, 40.0])
def test_rows_are_the_least_that_the_bound_allows(agnostic, reach):
    def log_competitors(s):
        return 5.0 + 3.0 * s * s

    rows = pac_rows(log_competitors, 0.1, 0.05, reach, agnostic=agnostic)

    def bound(n):
        grid = np.linspace(1e-6, min(reach, 2.0), 20_001)
        return min(log_competitors(s) - n * row_rate(s, 0.1, agnostic=agnostic) for s in grid if s < 1.5)

    assert bound(rows) <= math.log(0.05) + 1e-3
    assert bound(math.floor(rows * 0.999) - 1) > math.log(0.05)


def test_rows_in_the_limits():
    """Occam's bound where epsilon is large, 2 log(K / beta) / alpha^2 where no concept fits."""
    odds = math.log(1000 / 0.05)
    assert pac_rows(lambda s: math.log(1000), 0.01, 0.05, 60, agnostic=False) == math.ceil(-odds / math.log(0.99))
    agnostic = pac_rows(lambda s: math.log(1000), 0.01, 0.05, 60, agnostic=True)
    assert agnostic == pytest.approx(2 * odds / 0.01**2, rel=1e-3)
    private = pac_rows(lambda s: math.log(1000), 0.01, 0.05, 1e-4, agnostic=False)
    assert private == pytest.approx(odds / (0.01 * 1e-4), rel=1e-3)
    assert pac_rows(lambda s: -math.inf, 0.1, 0.05, 1.0, agnostic=False) == 1
    with pytest.raises(PlanError, match="no number of rows"):
        pac_rows(lambda s: math.inf, 0.1, 0.05, 1.0, agnostic=False)


def test_both_label_conventions():
    expected = [False, True, True]
    for labels in ([0, 1, 1], [-1, 1, 1], [False, True, True], np.array([-1, 1, 1], np.int8), [0.0, 1.0, 1.0]):
        assert labels_of(labels).tolist() == expected
    assert labels_of([1, 1]).all()
    assert labels_of(np.zeros(0, int)).shape == (0,)


@pytest.mark.parametrize("labels", [[-1, 0, 1], [0, 2], ["a", "b"], [0.5, 1]])
def test_labels_of_neither_kind(labels):
    with pytest.raises(ConfigurationError):
        labels_of(labels)


@pytest.mark.parametrize(
    ("points", "labels", "bits", "error"),
    [
        ([0, 4], [0, 1], 2, ConfigurationError),
        ([-1, 0], [0, 1], 2, ConfigurationError),
        ([0.5, 1], [0, 1], 2, ConfigurationError),
        (np.array([1 << 63], np.uint64), [1], 62, ConfigurationError),
        ([0, 1, 2], [0, 1], 2, ShapeError),
        ([0, 1], [[0, 1]], 2, ShapeError),
        ([0], [0], 0, ConfigurationError),
        ([0], [0], 63, ConfigurationError),
        ([0], [0], True, ConfigurationError),
        ([0], [0], 2.0, ConfigurationError),
    ],
)
def test_points_outside_the_domain(points, labels, bits, error):
    with pytest.raises(error):
        integers_of(points, labels, bits)


def test_the_largest_domain():
    check_bits(MOST_BITS, MOST_BITS)
    values, positive = integers_of(np.array([(1 << 62) - 1], np.uint64), [1], 62)
    assert values.dtype == np.int64
    assert (values[0], positive[0]) == ((1 << 62) - 1, True)
    assert integers_of([], np.zeros(0, int), 3)[0].shape == (0,)


@pytest.mark.parametrize(
    ("points", "labels", "error"),
    [
        ([[0, 2]], [1], ConfigurationError),
        ([[0, 1]], [1, 0], ShapeError),
        ([0, 1], [1, 0], ShapeError),
        (np.zeros((2, 0)), [1, 0], ShapeError),
    ],
)
def test_rows_that_are_not_bits(points, labels, error):
    assert bit_rows_of([[0, 1]], [-1])[0].tolist() == [[False, True]]
    with pytest.raises(error):
        bit_rows_of(points, labels)
