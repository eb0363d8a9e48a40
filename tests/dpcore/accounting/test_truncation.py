"""Algorithm 2's truncation: the integers that it admits, exactly, and requests that admit none."""

import math
from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.dp_feat import EmptyTruncationError, admissible_range, smallest_epsilon_per_rado, truncation
from dpcore.errors import PlanError


@given(st.integers(1, 10**7), st.fractions(min_value=Fraction(1, 10**6), max_value=50, max_denominator=10**6))
def test_truncation_is_the_least_integer_inside(rows, epsilon):
    low, high = admissible_range(rows, epsilon)
    beta_times = (rows + 1) / (1 + math.exp(float(epsilon) / 2))
    assert high == rows - low
    assert low >= 1
    # Doubles carry 53 bits: the exact integers can differ from theirs only where beta (m + 1) is this close to one.
    assert beta_times - 1e-6 <= low <= max(beta_times + 1 + 1e-6, 1)


def test_truncation_where_doubles_would_be_too_wide():
    # The double nearest log 2 is below it, so beta (m + 1) is just above 10^6; in doubles it is 10^6 exactly.
    rows, epsilon = 2_999_999, 2 * Fraction(math.log(2))
    assert math.ceil((rows + 1) / (1 + math.exp(float(epsilon) / 2))) == 1_000_000
    assert admissible_range(rows, epsilon) == (1_000_001, rows - 1_000_001)


@pytest.mark.parametrize("bits", [60, 110, 130, 250, 260, 600])
# Where 128 bits do not decide: with any one of the roundings replaced by that to the nearest, some of these are wrong.
@pytest.mark.parametrize(("rows", "low"), [(2_999_999, 1_000_000), (870, 252), (1668, 48)])
def test_truncation_is_exact_however_close_beta_is_to_an_integer(bits, rows, low):
    """On either side of the epsilon where beta (m + 1) is an integer."""
    with mp.workprec(bits + 64):
        epsilon = 2 * mp.log(mp.mpf(rows + 1) / low - 1)
        below = Fraction(int(mp.floor(epsilon * mp.mpf(2) ** bits)), 1 << bits)
    assert admissible_range(rows, below) == (low + 1, rows - low - 1)
    assert admissible_range(rows, below + Fraction(1, 1 << bits)) == (low, rows - low)


def test_truncation_at_extreme_epsilons():
    assert admissible_range(1_999_999, Fraction(1, 10**18)) == (1_000_000, 999_999)
    assert admissible_range(1_999_999, Fraction(10**18)) == (1, 1_999_998)


@pytest.mark.parametrize("rows", [2, 3, 10, 11, 1000, 1001])
def test_smallest_epsilon_is_where_the_range_opens(rows):
    smallest = Fraction(smallest_epsilon_per_rado(rows))
    low, high = admissible_range(rows, smallest)
    assert low <= high
    low, high = admissible_range(rows, smallest * (1 - Fraction(1, 10**6)))
    assert low > high


def test_an_empty_range_is_refused_with_what_works():
    with pytest.raises(EmptyTruncationError) as caught:
        truncation(1000, Fraction(1, 1000))
    assert caught.value.smallest_epsilon == pytest.approx(0.003996, rel=1e-3)
    assert "raise epsilon per rado to at least 0.003996, or draw without truncation" in str(caught.value)
    with pytest.raises(EmptyTruncationError, match="per rado: draw without truncation"):
        truncation(1, Fraction(10))


def test_no_truncation_admits_everything():
    assert truncation(7, None) == (0, 7)
    assert truncation(1, None) == (0, 1)
    for arguments in ((0, None), (0, Fraction(1)), (7, Fraction(0)), (7, Fraction(-1))):
        with pytest.raises(PlanError, match="give at least one"):
            truncation(*arguments)


def test_one_row_admits_nothing_at_any_epsilon():
    assert smallest_epsilon_per_rado(1) == math.inf
