"""Fraction bits of a query: the fixed-point error is within its bound, and no choice takes fewer ciphertexts."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import PlanError, SlotOverflowError
from dpcore.numbers.fixed_point import check_fits, plan_encoding
from dpcore.paillier.packing import ciphertext_count
from dpcore.queries.kind import MOST_FRACTION_BITS, FractionBits, QueryLimits, fewest_ciphertexts, least_fraction_bits
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import PlainDesign
from tests.examples import examples

CROWDS = st.builds(QueryLimits, rows=st.integers(1, 1 << 32), parties=st.integers(1, 500), d=st.integers(1, 40))


@given(st.integers(1, 1 << 40))
def test_the_least_bits_are_the_least_within_the_margin(rados):
    least = least_fraction_bits(rados)
    assert 4**least >= 256 * rados
    assert 4 ** (least - 1) < 256 * rados or least == 8


def test_the_usual_number_of_rados_takes_nine():
    assert [least_fraction_bits(n) for n in (1, 256, 257, 1000, 1024, 1025, 16_384, 1 << 20)] == [
        8, 8, 9, 9, 9, 10, 11, 14
    ]  # fmt: skip
    with pytest.raises(PlanError, match="at least one"):
        least_fraction_bits(0)


@given(seed=st.integers(0, 999), bits=st.integers(1, 12), shape=st.sampled_from([0.1, 0.5, 1.0, 5.0]))
def test_products_move_by_no_more_than_the_bound(seed, bits, shape):
    """The second step of the docstring, for signed and one-sided features, with and without the bias."""
    random = np.random.default_rng(seed)
    rows = random.beta(shape, 1.0, size=(200, 4)) * np.array([1, 1, -1, 1])
    rows[:, 1] *= random.choice([-1.0, 1.0], size=200)
    rows[:, 3] = 1.0
    cut = np.trunc(rows * 2.0**bits) / 2.0**bits
    unit, r = 2.0**-bits, np.sqrt(np.mean(rows**2, axis=0))
    moved = np.abs(rows.T @ rows - cut.T @ cut)
    assert (moved <= unit * len(rows) * np.add.outer(r, r)).all()
    # The bound has the right size: if all features have one sign, the mean error is half of it.
    assert moved[0, 0] >= 0.2 * unit * len(rows) * np.abs(rows[:, 0]).mean() or (rows[:, 0] < unit).mean() > 0.1
    theta = random.normal(size=4)
    assert (np.abs((rows - cut) @ theta) <= unit * np.abs(theta).sum()).all()


def test_a_tenth_of_what_chance_leaves_is_measured():
    """At the chosen bits, the fixed-point error of products is far below the sampling error of n rados."""
    random, n = np.random.default_rng(1), 400
    rows = np.hstack([random.uniform(-1, 1, size=(4000, 5)), random.uniform(0, 1, size=(4000, 5))])
    bits = least_fraction_bits(n)

    def moved(fraction_bits):
        cut = np.trunc(rows * 2.0**fraction_bits) / 2.0**fraction_bits
        return np.abs(cut.T @ cut - rows.T @ rows).max()

    rados = random.integers(0, 2, size=(n, 4000)).astype(float) @ rows
    uncertain = np.abs(4 * np.cov(rados.T) - rows.T @ rows).mean()
    assert moved(bits) < 0.1 * uncertain
    assert moved(bits - 6) > uncertain


@settings(max_examples=examples(40, 200), deadline=None)
@given(limits=CROWDS, rados=st.integers(1, 3000), modulus_bits=st.sampled_from([2048, 3072, 4096]))
def test_no_fraction_bits_allowed_take_fewer_ciphertexts(limits, rados, modulus_bits):
    query, allowed = RadosQuery(rados, PlainDesign()), FractionBits.for_rados(rados)

    def count(fraction_bits):
        encoding = plan_encoding(
            largest_sum=limits.rows << fraction_bits, max_parties=limits.parties, fraction_bits=fraction_bits
        )
        return ciphertext_count(rados * limits.d, encoding, modulus_bits)

    found = fewest_ciphertexts(query, limits, allowed, modulus_bits)
    taken = ciphertext_count(rados * limits.d, found, modulus_bits)
    assert allowed.least <= found.fraction_bits <= allowed.most
    # Every sum within the bound that parties check fits, and so does the row count of the check slot.
    check_fits(found, largest_sum=query.largest_sum(limits, found.fraction_bits), max_parties=limits.parties)
    check_fits(found, largest_sum=limits.rows, max_parties=limits.parties)
    counts = {}
    for fraction_bits in range(allowed.least, allowed.most + 1):
        try:
            counts[fraction_bits] = count(fraction_bits)
        except SlotOverflowError:
            break
    assert taken == min(counts.values())
    assert found.fraction_bits == max(bits for bits, taken_by in counts.items() if taken_by == taken)


@pytest.mark.parametrize(
    ("rows", "parties", "slot_bits", "fraction_bits"),
    [
        (800_000, 4, 32, 9),
        (800_000, 16, 40, 15),
        (20_000_000, 4, 40, 12),
        (20_000_000, 400, 48, 13),
        (200_000_000, 4, 40, 9),
    ],
)
def test_a_thousand_rados(rows, parties, slot_bits, fraction_bits):
    query, limits = RadosQuery(1000, PlainDesign()), QueryLimits(rows, parties, 18)
    found = fewest_ciphertexts(query, limits, FractionBits.for_rados(1000), 3072)
    assert (found.slot_bits, found.fraction_bits) == (slot_bits, fraction_bits)
    usual = fewest_ciphertexts(query, limits, FractionBits.exactly(MOST_FRACTION_BITS), 3072)
    counts = [ciphertext_count(18_000, encoding, 3072) for encoding in (usual, found)]
    assert counts[0] > 1.15 * counts[1]


def test_few_values_take_all_the_bits():
    found = fewest_ciphertexts(
        RadosQuery(4, PlainDesign()), QueryLimits(1 << 20, 3, 3), FractionBits.for_rados(4), 3072
    )
    assert found.fraction_bits == MOST_FRACTION_BITS


def test_sums_that_fit_no_slot_are_refused_at_the_least_bits():
    query = RadosQuery(100, PlainDesign())
    with pytest.raises(SlotOverflowError):
        fewest_ciphertexts(query, QueryLimits(1 << 60, 3, 3), FractionBits.for_rados(100), 3072)
    # 2^50 rows in units of 2^-8 fit 60 bits, in units of 2^-16 they do not.
    found = fewest_ciphertexts(query, QueryLimits((1 << 50) - 1, 2, 3), FractionBits.for_rados(100), 3072)
    assert 8 <= found.fraction_bits < MOST_FRACTION_BITS
    with pytest.raises(PlanError, match="lower number first"):
        FractionBits(5, 4)
    assert math.log2(math.sqrt(1 << 30)) + 4 <= FractionBits.for_rados(1 << 30).most
