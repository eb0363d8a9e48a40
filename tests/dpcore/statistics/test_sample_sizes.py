"""Sample sizes of the slides: against brute force, exact binomials and the closed forms that are stated."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import comb

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.statistics.sample_sizes import (
    log_growth,
    occam_rows,
    point_rows,
    vc_dimension,
    vc_rows,
    vc_rows_needed,
)


@pytest.mark.parametrize(("concepts", "alpha", "beta"), [(1, 0.1, 0.05), (1000, 0.05, 0.01), (1 << 40, 0.2, 1e-6)])
def test_the_rows_of_a_finite_class_are_the_least_of_the_proof_and_below_the_slide_s(concepts, alpha, beta):
    rows = occam_rows(concepts, alpha, beta)
    assert concepts * (1 - alpha) ** rows <= beta < concepts * (1 - alpha) ** (rows - 1)
    assert rows <= math.ceil((math.log(concepts) + math.log(1 / beta)) / alpha)
    agnostic = occam_rows(concepts, alpha, beta, agnostic=True)
    assert (
        2 * concepts * math.exp(-2 * agnostic * alpha**2)
        <= beta
        < 2 * concepts * math.exp(-2 * (agnostic - 1) * alpha**2)
    )


def test_a_point_is_missed_as_rarely_as_stated():
    """The learner's only failure: no row of a point of mass just above alpha."""
    random, rows = np.random.default_rng(1), point_rows(0.1, 0.05)
    missed = np.mean((random.random((20_000, rows)) >= 0.1).all(axis=1))
    assert 0.04 < missed < 0.05 + 3 * math.sqrt(0.05 / 20_000)


def test_thresholds_are_learned_from_the_rows_of_points():
    random, rows = np.random.default_rng(2), point_rows(0.05, 0.02)
    values = random.random((20_000, rows))
    largest = np.where(values < 0.6, values, 0.0).max(axis=1)
    assert np.mean(0.6 - largest > 0.05) < 0.02 + 3 * math.sqrt(0.02 / 20_000)


@pytest.mark.parametrize("rows", [3, 10, 200])
@pytest.mark.parametrize("dimension", [0, 1, 2, 7])
def test_the_growth_is_sauer_s_sum_and_below_the_slide_s(rows, dimension):
    exact = sum(comb(rows, i, exact=True) for i in range(dimension + 1))
    assert log_growth(rows, dimension) == pytest.approx(math.log(exact), rel=1e-9)
    if rows > dimension >= 1:
        assert exact <= (math.e * rows / dimension) ** dimension


def intervals(points):
    return [[a <= x < b for x in range(points)] for a in range(points + 1) for b in range(a, points + 1)]


def test_intervals_attain_the_growth_of_their_dimension():
    predictions = intervals(9)
    assert vc_dimension(predictions) == 2
    assert math.log(len(np.unique(predictions, axis=0))) == pytest.approx(log_growth(9, 2))


@pytest.mark.parametrize(
    ("predictions", "dimension"),
    [
        (np.eye(6), 1),
        (np.tri(7, 6, -1), 1),
        ([[0, 0], [0, 0]], 0),
        (list(itertools.product([0, 1], repeat=4)), 4),
        ([[(r & x).bit_count() % 2 for x in range(8)] for r in range(8)], 3),
    ],
    ids=["points", "thresholds", "one concept", "all", "parities of 3 bits"],
)
def test_the_dimension_of_the_slides_classes(predictions, dimension):
    assert vc_dimension(predictions) == dimension
    assert dimension <= math.log2(len(predictions))


@pytest.mark.parametrize(("dimension", "alpha", "beta"), [(2, 0.1, 0.01), (30, 0.01, 0.001)])
def test_rows_of_a_dimension_are_between_the_bounds(dimension, alpha, beta):
    rows = vc_rows(dimension, alpha, beta)

    def failure(n):
        return 2 * math.exp(log_growth(2 * n, dimension) - alpha * n * math.log(2) / 2)

    assert failure(rows) <= beta < failure(rows - 1)
    # Blumer and others' closed form.
    assert rows <= max(4 / alpha * math.log2(2 / beta), 8 * dimension / alpha * math.log2(13 / alpha))
    assert vc_rows_needed(dimension, alpha, beta) < rows < vc_rows(dimension, alpha, beta, agnostic=True)


def test_intervals_are_learned_from_the_rows_of_their_dimension():
    """Consistent and smallest, so it errs on both sides of the target only; far fewer than stated fail."""
    random, rows = np.random.default_rng(3), vc_rows(2, 0.2, 0.1)
    values = random.random((500, rows))
    inside = np.where((values > 0.3) & (values < 0.7), values, np.nan)
    errors = 0.4 - (np.nanmax(inside, axis=1) - np.nanmin(inside, axis=1))
    assert np.mean(errors > 0.2) <= 0.1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: occam_rows(0, 0.1, 0.1),
        lambda: occam_rows(5, 0.0, 0.1),
        lambda: log_growth(0, 1),
        lambda: vc_rows_needed(5, 0.2, 0.001),
        lambda: vc_rows(3, 0.1, 1.0),
    ],
)
def test_impossible_figures_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        wrong()


@pytest.mark.more
def test_more_points_than_can_be_searched_are_refused():
    with pytest.raises(ShapeError, match="at most 16 points"):
        vc_dimension(np.zeros((2, 17)))
