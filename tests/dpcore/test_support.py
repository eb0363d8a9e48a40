"""Fixed support: how many rows a rado takes, and that ties between keys leave every subset equally likely."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpcore.rados import support
from dpcore.rados.support import SupportError, check_support, draw_subsets, support_size
from dpcore.randomness import SeededRandom


class Tied(SeededRandom):
    """A source of 64-bit keys that take only the values 0 to 3."""

    def bytes(self, count: int) -> bytes:
        keys = np.frombuffer(super().bytes(count), dtype=np.uint8).copy()
        keys[np.arange(count) % 8 != 0] = 0
        return (keys & 3).tobytes()


def codes(rows: int, size: int, count: int, random: SeededRandom) -> np.ndarray:
    """Each subset of at most 8 rows as its byte."""
    blocks = list(draw_subsets(rows, size, count, random))
    return np.concatenate(blocks)[:, 0]


def subset_p_value(drawn: np.ndarray, rows: int, size: int) -> float:
    """p-value that every subset of exactly `size` rows is equally likely; 0 where another one was drawn."""
    members = [sum(1 << row for row in subset) for subset in combinations(range(rows), size)]
    if not np.isin(drawn, members).all():
        return 0.0
    return float(stats.chisquare(np.bincount(drawn, minlength=256)[members]).pvalue)


@pytest.mark.parametrize(("rows", "size"), [(6, 1), (6, 3), (6, 5), (8, 2), (2, 1)])
def test_every_subset_is_equally_likely(rows, size):
    drawn = codes(rows, size, 30_000, SeededRandom(4))
    assert subset_p_value(drawn, rows, size) > 1e-3
    if rows > 2:
        # One row more or fewer, or one row that is favoured by a tenth.
        other = codes(rows, size % (rows - 1) + 1, 30_000, SeededRandom(4))
        assert subset_p_value(other, rows, size) == 0
        favoured = np.concatenate([drawn, drawn[(drawn & 1) == 1][::10]])
        assert subset_p_value(favoured, rows, size) < 1e-3
        favoured = np.concatenate([drawn, drawn[(drawn & 1) == 1][::4]])
        assert subset_p_value(favoured, rows, size) < 1e-9


def test_ties_across_the_border_are_drawn_anew():
    """Four rows with keys from 0 to 3 tie most of the time: what is left is uniform all the same."""
    drawn = codes(4, 2, 30_000, Tied(5))
    assert len(drawn) == 30_000
    assert subset_p_value(drawn, 4, 2) > 1e-3


def test_a_block_that_ties_throughout_is_no_subset(monkeypatch):
    monkeypatch.setattr(support, "BLOCK_KEYS", 4)
    blocks = list(draw_subsets(4, 2, 50, Tied(6)))
    assert sum(len(block) for block in blocks) == 50
    assert len(blocks) > 60
    assert all(np.bitwise_count(block).sum(axis=1).tolist() == [2] * len(block) for block in blocks)


@pytest.mark.parametrize("rows", [9, 64, 201, 3000])
def test_every_rado_takes_exactly_as_many_rows(rows):
    size = support_size(rows, Fraction(1, 3))
    bits = np.concatenate(list(draw_subsets(rows, size, 40, SeededRandom(3))))
    assert bits.shape == (40, -(-rows // 8))
    assert np.bitwise_count(bits).sum(axis=1).tolist() == [size] * 40
    assert np.unpackbits(bits, axis=1, count=rows, bitorder="little").sum() == 40 * size


def test_blocks_are_bounded(monkeypatch):
    monkeypatch.setattr(support, "BLOCK_KEYS", 100)
    assert [len(block) for block in draw_subsets(30, 7, 8, SeededRandom(1))] == [3, 3, 2]
    assert [len(block) for block in draw_subsets(300, 7, 2, SeededRandom(1))] == [1, 1]


@given(st.integers(1, 10**6), st.fractions(min_value=Fraction(1, 10**4), max_value=Fraction(9999, 10**4)))
def test_the_size_is_the_nearest_integer(rows, fraction):
    size = support_size(rows, fraction)
    assert abs(size - fraction * rows) <= Fraction(1, 2)
    if abs(size - fraction * rows) == Fraction(1, 2):
        assert size % 2 == 0


def test_a_half_goes_to_the_even_neighbour():
    assert [support_size(rows, Fraction(1, 2)) for rows in (1, 3, 5, 7, 9)] == [0, 2, 2, 4, 4]


def test_a_support_takes_at_least_one_row_and_leaves_one():
    assert check_support(10, Fraction(6, 100)) == 1
    assert check_support(10, Fraction(94, 100)) == 9
    for fraction in (Fraction(5, 100), Fraction(95, 100)):
        with pytest.raises(SupportError, match=r"between 0.1 and 0.9") as caught:
            check_support(10, fraction)
        assert (caught.value.rows, caught.value.fraction) == (10, fraction)
    with pytest.raises(SupportError, match="leave this party out"):
        check_support(1, Fraction(1, 2))
