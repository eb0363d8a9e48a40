"""Recoveries: all rows of a small table from plain rados, none with noise, none of a large table."""

from fractions import Fraction

import numpy as np
import pytest

from dpcore.attacks.components import edges_from, hits, ica
from dpcore.attacks.hidden_subset_sum import MOST_ROWS, hidden_subset_sum, most_rows
from dpcore.attacks.hidden_subset_sum import edges_from as subset_sum_edges
from dpcore.rados.designs import FixedSupportDesign, GaussianDesign, JointDesign, PlainDesign
from dpcore.randomness.sources import SeededRandom
from tests.dpcore.attacks.test_guesses import CLIP
from tests.dpcore.attacks.world import PROMISE, moments, rados, table


def test_components_recover_every_row_of_a_table_with_no_more_rows_than_coordinates():
    over = table(60, 10)
    small, large = ica(rados(PlainDesign(), 1000, over), over, 3, SeededRandom(1))
    assert (small.rows, small.success, small.baseline) == (9, 1.0, 0.0)
    assert small.bound is None
    assert (large.rows, large.success) == (48, 0.0)


def test_components_recover_no_row_from_rados_with_noise():
    over = table(60, 10)
    small, _ = ica(rados(GaussianDesign(CLIP, 4), 300, over, PROMISE), over, 2, SeededRandom(1))
    assert small.success == 0.0
    assert small.bound < 0.4
    assert not small.exceeds
    assert ica(moments(over), over, 2, SeededRandom(1)) == []


def test_a_row_is_hit_only_by_a_guess_close_to_all_of_its_coordinates():
    edges = np.array([[100, -100], [0, 50]], dtype=np.int64)
    close, half = np.array([[0.99, -1.04]]), np.array([[0.99, -1.06]])
    assert hits(edges * 2**16 // 100, close, 16) == 0.5
    assert hits(edges * 2**16 // 100, half, 16) == 0.0
    assert hits(edges, np.zeros((0, 2)), 16) == 0.0


def test_rados_that_are_all_alike_give_no_guess():
    assert edges_from(np.ones((5, 3)), 2, np.random.default_rng(0)).shape == (0, 3)


@pytest.mark.more
def test_with_few_rados_components_find_less():
    over = table(60, 10)
    small, _ = ica(rados(PlainDesign(), 12, over), over, 3, SeededRandom(1))
    assert small.success < 0.5


@pytest.mark.parametrize(
    ("rows", "d", "n"), [(9, 10, 90), (9, 6, 90), pytest.param(40, 21, 900, marks=pytest.mark.more)]
)
def test_the_hidden_subset_sum_returns_every_edge_to_the_last_integer(rows, d, n):
    """With more rows than coordinates too, by lattice reduction: 9 rows of 6 coordinates, 40 of 21."""
    over = table(rows + 1, d)
    inside, _ = over.split(rows, np.random.default_rng(2))
    release = rados(PlainDesign(), n, over)
    found = subset_sum_edges(release.drawn(inside, SeededRandom(2)), rows, np.random.default_rng(2))
    assert {tuple(row) for row in np.rint(found).tolist()} == {tuple(row) for row in release.edges(inside).tolist()}


def test_the_hidden_subset_sum_says_where_it_cannot_be_played():
    over = table(40, 6)
    (few,) = hidden_subset_sum(rados(PlainDesign(), 12, over), over, 1, SeededRandom(1))
    assert few.success is None
    assert "too few for two rows" in few.note
    (fixed,) = hidden_subset_sum(rados(FixedSupportDesign(Fraction(1, 2), CLIP, 0), 90, over), over, 1, SeededRandom(1))
    assert (fixed.success, "one size" in fixed.note) == (None, True)
    assert hidden_subset_sum(moments(over), over, 1, SeededRandom(1)) == []
    assert (most_rows(21), most_rows(100), most_rows(10**6)) == (0, 11, MOST_ROWS)


def test_the_hidden_subset_sum_fails_with_noise_and_is_not_stopped_by_that_on_another_column():
    over = table(40, 6)
    found = hidden_subset_sum(rados(GaussianDesign(CLIP, 4), 90, over, PROMISE), over, 2, SeededRandom(1))
    assert [(each.rows, each.success, each.exceeds) for each in found] == [(5, 0.0, False), (10, 0.0, False)]
    joint = rados(JointDesign("smoker", (0,), 4, 4), 90, over, cell=PROMISE)
    for each in hidden_subset_sum(joint, over, 2, SeededRandom(1)):
        assert (each.success, each.bound) == (1.0, None)
        assert "without the coordinates that have noise" in each.note
