"""Linear equations over GF(2): the solutions are those that enumeration finds, and draws of them are uniform."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpcore.errors import ShapeError
from dpcore.randomness.sources import SeededRandom
from dpcore.research.parity import pack, solve, unpack


def everything(d):
    return np.array(list(itertools.product([False, True], repeat=d)))


def satisfied(rows, right, solutions):
    """Which of `solutions` (k, d) solve every equation."""
    products = solutions.astype(int) @ rows.T.astype(int) % 2
    return (products == right).all(axis=1)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(0, 9), st.integers(0, 2**32), st.sampled_from([0.2, 0.5, 0.8]))
def test_all_solutions_and_no_others(d, m, seed, density):
    generator = np.random.default_rng(seed)
    rows, right = generator.random((m, d)) < density, generator.random(m) < 0.5
    expected = {tuple(r) for r in everything(d)[satisfied(rows, right, everything(d))].tolist()}
    space = solve(rows, right)
    if space is None:
        assert not expected
        return
    combinations = everything(space.dimension).astype(int) @ space.basis.astype(int) % 2 == 1
    assert {tuple(r) for r in (space.particular ^ combinations).tolist()} == expected
    assert len(expected) == 2**space.dimension


@pytest.mark.parametrize(("m", "d"), [(20, 63), (50, 64), (64, 65), (300, 130), (120, 200)])
def test_systems_wider_than_a_word(m, d):
    generator = np.random.default_rng(m)
    rows = generator.random((m, d)) < 0.5
    rows[m // 2] = rows[0] ^ rows[1]
    truth = generator.random(d) < 0.5
    right = (rows.astype(int) @ truth) % 2 == 1
    space = solve(rows, right)
    random = SeededRandom(d)
    drawn = np.array([space.draw(random) for _ in range(20)])
    assert satisfied(rows, right, drawn).all()
    assert space.dimension >= max(0, d - m + 1)
    if space.dimension:
        assert len({tuple(r) for r in drawn.tolist()}) > 1
    wrong = right.copy()
    wrong[m // 2] ^= True
    assert solve(rows, wrong) is None


def test_draws_are_uniform():
    rows = np.array([[1, 1, 0, 1], [0, 1, 1, 0]], dtype=bool)
    space, random = solve(rows, np.array([True, False])), SeededRandom(3)
    seen = np.zeros(16)
    for _ in range(4000):
        seen[np.packbits(space.draw(random), bitorder="little")[0]] += 1
    assert (seen > 0).sum() == 4
    assert stats.chisquare(seen[seen > 0]).pvalue > 1e-3


def test_no_equation_leaves_everything():
    space = solve(np.zeros((0, 70), dtype=bool), np.zeros(0, dtype=bool))
    assert space.dimension == 70


@settings(deadline=None)
@given(st.integers(0, 5), st.integers(1, 140), st.integers(0, 2**32))
def test_packing_is_undone(m, d, seed):
    bits = np.random.default_rng(seed).random((m, d)) < 0.5
    words = pack(bits)
    assert words.shape == (m, -(-d // 64))
    assert (unpack(words, d) == bits).all()


@pytest.mark.parametrize(("rows", "right"), [((3, 0), 3), ((3, 2), 2), ((3,), 3)])
def test_shapes_that_do_not_fit(rows, right):
    with pytest.raises(ShapeError):
        solve(np.zeros(rows, dtype=bool), np.zeros(right, dtype=bool))
