"""Recoveries: all rows of a small table from plain rados, none with noise, none of a large table."""

import numpy as np
import pytest

from dpcore.attacks.components import edges_from, hits, ica
from dpcore.rados.designs import GaussianDesign, PlainDesign
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
