"""No clipped integer vector is longer than the clipping norm, and shorter vectors do not change."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import PlanError
from dpcore.queries.kind import QueryLimits
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import FixedSupportDesign, GaussianDesign
from dpcore.records.clipping import MOST_FRACTION_BITS, Clip

BOUNDS = st.fractions(min_value=Fraction(1, 50), max_value=12, max_denominator=10**6)


@st.composite
def cases(draw):
    """A clip, a number of fraction bits, and rows within [-2^f, 2^f], many of them at the ends."""
    bits, bias = draw(st.integers(0, MOST_FRACTION_BITS)), draw(st.booleans())
    bound = draw(BOUNDS.filter(lambda r: r > 1 or not bias))
    one, width = 1 << bits, draw(st.integers(1, 12))
    coordinate = st.one_of(st.sampled_from([-one, 0, one]), st.integers(-one, one))
    rows = draw(st.lists(st.lists(coordinate, min_size=width, max_size=width), min_size=1, max_size=6))
    vectors = np.array(rows, dtype=np.int64)
    if bias:
        labels = np.array(draw(st.lists(st.sampled_from([-1, 1]), min_size=len(rows), max_size=len(rows))))
        vectors = np.column_stack([vectors, labels * one]).astype(np.int64)
    return Clip(bound, bias), bits, vectors


def squared(row: np.ndarray) -> int:
    return sum(int(value) ** 2 for value in row)


@given(cases())
def test_no_row_is_longer_than_the_bound(case):
    clip, bits, vectors = case
    clipped = clip.apply(vectors, bits)
    for before, after in zip(vectors, clipped, strict=True):
        # In exact arithmetic, with R as a fraction.
        assert squared(after) <= clip.norm_bound**2 * 4**bits
        assert squared(after) <= clip.squared_units(bits)
        if clip.bias:
            assert after[-1] == before[-1]
        if squared(before) <= clip.norm_bound**2 * 4**bits:
            assert np.array_equal(after, before)


@given(cases())
def test_a_shortened_row_keeps_its_direction_within_a_unit(case):
    clip, bits, vectors = case
    clipped = clip.apply(vectors, bits)
    free = slice(None, -1) if clip.bias else slice(None)
    most = clip.squared_units(bits) - (4**bits if clip.bias else 0)
    for before, after in zip(vectors[:, free].tolist(), clipped[:, free].tolist(), strict=True):
        length = squared(before)
        if length <= most:
            continue
        factor = (most / length) ** 0.5
        for x, y in zip(before, after, strict=True):
            # Toward zero by less than a unit: the sign is kept, and no coordinate grows or shrinks without need.
            assert abs(y) <= abs(x) * factor * (1 + 1e-12)
            assert abs(x) * factor - abs(y) < 1 + 1e-4
            assert x * y >= 0


def test_the_bound_is_reached():
    clipped = Clip(Fraction(5, 4), bias=True).apply(np.array([[1 << 20, 0, 1 << 20]], dtype=np.int64), 20)
    assert clipped.tolist() == [[3 << 18, 0, 1 << 20]]
    assert squared(clipped[0]) == Clip(Fraction(5, 4), bias=True).squared_units(20)


def test_rounding_that_leaves_a_row_too_long_is_corrected(monkeypatch):
    """The first factor leaves the row one unit too long, so the row is clipped again."""
    clip, vectors = Clip(Fraction(1), bias=False), np.full((3, 4), 1 << 20, dtype=np.int64)
    exact = np.sqrt
    monkeypatch.setattr(np, "sqrt", lambda x: exact(x) * (1 + 2.0**-19))
    assert all(squared(row) <= 4**20 for row in clip.apply(vectors, 20))
    monkeypatch.undo()
    assert clip.apply(vectors, 20).tolist() == [[1 << 19] * 4] * 3


def test_arrays_are_copied_only_where_a_row_is_too_long():
    clip = Clip(Fraction(3, 2), bias=False)
    short = np.array([[1, 1], [0, 1]], dtype=np.int64) << 16
    assert clip.apply(short, 16) is short
    long = np.array([[1, 1, 1], [0, 0, 1]], dtype=np.int64) << 16
    kept = long.copy()
    clipped = clip.apply(long, 16)
    assert np.array_equal(long, kept)
    assert clipped[1].tolist() == long[1].tolist()
    assert clipped[0].tolist() != long[0].tolist()


def test_zero_rows_and_a_bias_alone_stay():
    clip = Clip(Fraction(101, 100), bias=True)
    vectors = np.array([[0, 0], [0, 1]], dtype=np.int64) << 10
    assert clip.apply(vectors, 10).tolist() == vectors.tolist()
    assert clip.apply(np.array([[1 << 10]], dtype=np.int64), 10).tolist() == [[1 << 10]]


def test_a_bound_beyond_every_row_changes_none():
    huge = Clip(Fraction((1 << 63) - 1), bias=True)
    ones = np.full((2, 5), 1 << MOST_FRACTION_BITS, dtype=np.int64)
    assert huge.apply(ones, MOST_FRACTION_BITS) is ones


def test_squared_units_are_rounded_down():
    clip = Clip(Fraction(4, 3), bias=True)
    for bits in range(MOST_FRACTION_BITS + 1):
        units = clip.squared_units(bits)
        assert units <= Fraction(16, 9) * 4**bits < units + 1


@pytest.mark.parametrize("bits", [-1, MOST_FRACTION_BITS + 1])
def test_fraction_bits_without_room_for_squares_are_refused(bits):
    clip = Clip(Fraction(2), bias=False)
    with pytest.raises(PlanError, match="0 to 24"):
        clip.squared_units(bits)
    with pytest.raises(PlanError):
        clip.apply(np.zeros((1, 2), dtype=np.int64), bits)


def test_too_many_coordinates_for_their_squares_are_refused():
    """2^15 coordinates of 2^24 would have a squared length of 2^63, which would wrap and look short."""
    clip = Clip(Fraction(2), bias=False)
    most = np.full((1, (1 << 15) - 1), 1 << 24, dtype=np.int64)
    assert squared(clip.apply(most, 24)[0]) <= clip.squared_units(24)
    with pytest.raises(PlanError, match="lower fraction_bits"):
        clip.apply(np.full((1, 1 << 15), 1 << 24, dtype=np.int64), 24)
    assert clip.apply(np.zeros((1, 1 << 15), dtype=np.int64), 23).shape == (1, 1 << 15)


@pytest.mark.parametrize(
    ("bound", "bias"),
    [(Fraction(1), True), (Fraction(1, 2), True), (Fraction(0), False), (Fraction(-1), False), (1.5, False), (2, True)],
)
def test_bounds_that_leave_no_room_are_refused(bound, bias):
    with pytest.raises(PlanError):
        Clip(bound, bias)
    Clip(Fraction(1, 2), bias=False)
    Clip(Fraction(1001, 1000), bias=True)


@pytest.mark.parametrize(("d", "bits", "fits"), [(1 << 15, 24, False), ((1 << 15) - 1, 24, True), (2, 25, False)])
def test_what_no_party_could_clip_is_refused_when_it_is_planned(d, bits, fits):
    clip, limits = Clip(Fraction(2), bias=True), QueryLimits(rows=100, parties=3, d=d)
    for design in (FixedSupportDesign(Fraction(1, 2), clip, 0), GaussianDesign(clip, 3)):
        query = RadosQuery(5, design)
        if fits:
            assert query.largest_sum(limits, bits) >= 100 << bits
        else:
            with pytest.raises(PlanError, match="fraction_bits"):
                query.largest_sum(limits, bits)


def test_moments_too_wide_to_clip_are_refused_when_they_are_planned():
    query = MomentsQuery(Clip(Fraction(2), bias=True), 1, 3)
    with pytest.raises(PlanError, match="may exceed 64 bits"):
        query.largest_sum(QueryLimits(rows=100, parties=3, d=1 << 23), 20)
