"""Fixed support: how many rows a rado takes, and that every subset is equally likely, however it is drawn."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpcore.errors import ShapeError
from dpcore.rados import signatures, support
from dpcore.rados.signatures import whole
from dpcore.rados.support import Coin, SupportError, check_support, subsets, support_size
from dpcore.randomness.sources import KeyedRandom, SeededRandom


def drawn(rows: int, size: int, count: int, seed: int = 4) -> np.ndarray:
    return whole(subsets(rows, np.full(count, size), SeededRandom(seed)))


def subset_p_value(drawn: np.ndarray, rows: int, size: int) -> float:
    """p-value that every subset of exactly `size` rows is equally likely; 0 if another one was drawn."""
    members = [sum(1 << row for row in subset) for subset in combinations(range(rows), size)]
    if not np.isin(drawn, members).all():
        return 0.0
    return float(stats.chisquare(np.bincount(drawn, minlength=256)[members]).pvalue)


@pytest.mark.parametrize(("rows", "size"), [(6, 1), (6, 3), (6, 5), (8, 2), (2, 1)])
def test_every_subset_is_equally_likely(rows, size):
    found = drawn(rows, size, 30_000)[:, 0]
    assert subset_p_value(found, rows, size) > 1e-3
    if rows > 2:
        # One row more or fewer, or one row with a tenth more probability.
        other = drawn(rows, size % (rows - 1) + 1, 30_000)[:, 0]
        assert subset_p_value(other, rows, size) == 0
        favoured = np.concatenate([found, found[(found & 1) == 1][::10]])
        assert subset_p_value(favoured, rows, size) < 1e-3
        favoured = np.concatenate([found, found[(found & 1) == 1][::4]])
        assert subset_p_value(favoured, rows, size) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("coin", [Coin(0, 0), Coin(1, 0), Coin(1, 1), Coin(3, 3), Coin(1, 2), Coin(6, 3)])
def test_every_subset_is_equally_likely_with_any_coin(coin, monkeypatch):
    """Rows move in and out, few and many; three subsets of each size in turn."""
    monkeypatch.setattr(Coin, "near", lambda share: coin)
    sizes = np.tile([2, 3, 5], 12_000)
    found = whole(subsets(6, sizes, SeededRandom(11)))[:, 0]
    for size in (2, 3, 5):
        assert subset_p_value(found[sizes == size], 6, size) > 1e-3
    # Neighbouring rados are independent.
    assert abs(np.corrcoef(found[sizes == 2] & 1, found[sizes == 3] & 1)[0, 1]) < 4.5 / np.sqrt(12_000)


@pytest.mark.parametrize("coin", [Coin(0, 0), Coin(1, 1), Coin(1, 0)])
def test_blocks_get_as_many_as_drawing_without_replacement_gives(coin, monkeypatch):
    """Blocks of 8 rows, 8 rows and 4: their counts are multivariate hypergeometric, and uniform given them."""
    monkeypatch.setattr(Coin, "near", lambda share: coin)
    for module in (support, support, signatures):
        monkeypatch.setattr(module, "BLOCK_ROWS", 8)
    size, count = 7, 20_000
    found = drawn(20, size, count)
    bits = np.unpackbits(found, axis=1, count=20, bitorder="little")
    assert (bits.sum(axis=1) == size).all()
    parts = np.add.reduceat(bits, [0, 8, 16], axis=1)
    cells = [(a, b, size - a - b) for a in range(8) for b in range(8 - a) if size - a - b <= 4]
    expected = np.array([comb(8, a) * comb(8, b) * comb(4, c) for a, b, c in cells]) / comb(20, size) * count
    seen = np.array([(parts == cell).all(axis=1).sum() for cell in cells])
    assert seen.sum() == count
    # Cells with small expected counts are merged.
    cell = np.cumsum(expected) // 8
    merged = [np.bincount(cell.astype(int), weights=each) for each in (seen, expected)]
    merged = [each[merged[1] > 0] for each in merged]
    assert stats.chisquare(*merged).pvalue > 1e-3
    # The test detects drawing with replacement, in proportion.
    wrong = np.random.default_rng(1).multinomial(size, [0.4, 0.4, 0.2], size=count)
    wrong_seen = np.array([(wrong == place).all(axis=1).sum() for place in cells])
    merged[0] = np.bincount(cell.astype(int), weights=wrong_seen * count / wrong_seen.sum())
    assert stats.chisquare(merged[0][merged[0] > 0], merged[1] * 1.0).pvalue < 1e-9
    pairs = (bits.T.astype(np.int64) @ bits)[np.triu_indices(20, 1)]
    share = size * (size - 1) / (20 * 19)
    assert np.abs(pairs - count * share).max() < 5 * np.sqrt(count * share * (1 - share))


@pytest.mark.parametrize("rows", [9, 64, 201, 4095, 4096, 4097, 13_000])
@pytest.mark.parametrize("share", [Fraction(1, 1000), Fraction(1, 9), Fraction(1, 3), Fraction(1, 2), Fraction(9, 10)])
def test_every_rado_takes_exactly_as_many_rows(rows, share):
    size = support_size(rows, share)
    bits = drawn(rows, size, 40, 3)
    assert bits.shape == (40, -(-rows // 8))
    assert np.bitwise_count(bits).sum(axis=1).tolist() == [size] * 40
    assert np.unpackbits(bits, axis=1, count=rows, bitorder="little").sum() == 40 * size


def test_coins_and_moved_rows_come_from_keys_of_their_own():
    """With one stream for both, the rows moved would depend on the coins."""
    description = subsets(9000, np.full(30, 4000), SeededRandom(2))
    assert description.coins != description.chosen
    found = whole(description)
    for name in ("coins", "chosen"):
        other = whole(replace(description, **{name: bytes(32)}))
        changed = np.bitwise_count(found ^ other).sum(axis=1)
        moved = np.abs(description.moves).sum(axis=0)
        # Only the rows moved change; or the coins differ in half of all rows.
        assert (changed > moved).all()
        assert (changed <= 2 * moved).all() == (name == "chosen")


def test_blocks_move_rows_of_their_own():
    """The first rado of each block takes the block's first words; 40 rows of 4,096 never share ten by chance."""
    description = subsets(3 * 4096, np.full(2, 120), SeededRandom(2))
    assert description.coin == Coin(0, 0)
    blocks = [description.block(first)[:, 0] for first in range(0, 3 * 4096, 4096)]
    assert min(np.bitwise_count(block).sum() for block in blocks) > 20
    for one, other in combinations(blocks, 2):
        assert np.bitwise_count(one & other).sum() < 10


def test_each_rado_may_have_a_size_of_its_own():
    sizes = np.array([0, 5000, 1, 4999, 2500, 17])
    bits = whole(subsets(5000, sizes, SeededRandom(2)))
    assert np.bitwise_count(bits).sum(axis=1).tolist() == sizes.tolist()
    for wrong in ([-1], [5001], [], [[3]]):
        with pytest.raises(ShapeError, match="0 to 5000"):
            subsets(5000, np.array(wrong, dtype=np.int64), SeededRandom(2))


@pytest.mark.parametrize("words", [1, 3, 1000])
def test_what_is_drawn_does_not_depend_on_how_the_stream_is_cut(words, monkeypatch):
    expected = drawn(9000, 2000, 20)
    monkeypatch.setattr(support, "_FEWEST_WORDS", words)
    monkeypatch.setattr(support, "_MOST_WORDS", words)
    assert np.array_equal(drawn(9000, 2000, 20), expected)


@pytest.mark.parametrize("coin", [Coin(ones, bits) for bits in range(4) for ones in range((1 << bits) + 1)])
def test_a_coin_has_its_probability_and_its_tosses_are_independent(coin):
    tossed = np.unpackbits(coin.toss(KeyedRandom(bytes(32)), (200, 100)))
    chance = float(coin.chance)
    assert abs(tossed.mean() - chance) <= 4.5 * np.sqrt(chance * (1 - chance) / len(tossed))
    if 0 < chance < 1:
        for lag in (1, 8, 800):
            assert abs(np.corrcoef(tossed[lag:], tossed[:-lag])[0, 1]) < 4.5 / np.sqrt(len(tossed))


@given(st.fractions(min_value=0, max_value=1))
def test_a_coin_is_near_the_requested_share(share):
    coin = Coin.near(share)
    assert 0 <= coin.chance <= 1
    # Moving the rest costs no more than drawing other bits, or than moving everything.
    assert abs(coin.chance - share) <= min(share, 1 - share)
    assert coin.bits + 300 * abs(coin.chance - share) <= 8 + 300 / 512
    assert Coin.near(Fraction(1, 2)) == Coin(1, 1)


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
