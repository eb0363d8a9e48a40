"""The compiled clipping equals the definition bit for bit, for long and short rows and at the bound."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import PlanError
from dpcore.records.clipping import MOST_FRACTION_BITS, Clip
from dpcore.records.compiled import clip_in_place

BOUNDS = st.fractions(min_value=Fraction(1, 50), max_value=12, max_denominator=10**6)


@given(
    BOUNDS, st.booleans(), st.integers(0, MOST_FRACTION_BITS), st.integers(2, 12), st.integers(1, 300), st.integers(0)
)
def test_blocks_are_clipped_as_by_definition(bound, bias, bits, d, rows, seed):
    clip = Clip(bound + 1 if bias else bound, bias)
    generator, one = np.random.default_rng(seed), 1 << bits
    vectors = generator.integers(-one, one, size=(rows, d), endpoint=True)
    vectors[generator.random((rows, d)) < 0.2] = one
    vectors[generator.random(rows) < 0.2] = 0
    expected = clip.apply(vectors.copy(), bits)
    clip_in_place(clip, vectors, bits)
    assert np.array_equal(vectors, expected)


def test_a_row_that_rounding_leaves_too_long_is_shortened_again():
    """1,024 coordinates of 2^24 have squares of 2^58, one more than the bound; doubles cannot tell them apart."""
    clip, vectors = Clip(Fraction((1 << 59) - 1, 1 << 54), bias=False), np.full((2, 1024), 1 << 24, dtype=np.int64)
    most = clip.squared_units(24)
    assert most == (1 << 58) - 1
    assert float(most) == float(1 << 58)
    expected = clip.apply(vectors.copy(), 24)
    clip_in_place(clip, vectors, 24)
    assert np.square(vectors).sum(axis=1).max() <= most
    assert np.array_equal(vectors, expected)


@pytest.mark.parametrize("bound", [Fraction(181), Fraction(182), Fraction(10**6)])
@pytest.mark.parametrize("bias", [False, True])
def test_a_bound_beyond_the_largest_integer_shortens_nothing(bound, bias):
    """181^2 4^24 fits 63 bits, 182^2 4^24 does not; no row is nearly as long."""
    vectors = np.full((2, 3), 1 << 24, dtype=np.int64)
    clip_in_place(Clip(bound, bias), vectors, 24)
    assert (vectors == 1 << 24).all()


def test_what_does_not_fit_is_refused_as_by_definition():
    clip = Clip(Fraction(2), bias=False)
    for vectors, bits in ((np.zeros((2, 3), np.int64), MOST_FRACTION_BITS + 1), (np.zeros((2, 3), np.int64), -1)):
        with pytest.raises(PlanError):
            clip_in_place(clip, vectors, bits)
    with pytest.raises(PlanError, match="may exceed 64 bits"):
        clip_in_place(clip, np.zeros((1, 1 << 15), np.int64), MOST_FRACTION_BITS)
