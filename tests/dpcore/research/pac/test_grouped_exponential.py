"""The exponential mechanism over groups: its distribution is exact, and the same test rejects others."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from dpcore.errors import ConfigurationError, PlanError, ShapeError
from dpcore.randomness.sources import SeededRandom
from dpcore.research.mechanisms import ExponentialMechanism
from dpcore.research.pac_classes import _decided, _likely, choose

DRAWS = 10_000
ACCEPT, REJECT = 1e-3, 1e-9


def distribution(sizes, scores, epsilon):
    weights = np.array(sizes, float) * np.exp(epsilon * (np.array(scores, float) - max(scores)) / 2)
    return weights / weights.sum()


def draws(sizes, scores, epsilon, seed, count=DRAWS):
    random, held, score = SeededRandom(seed), np.array(sizes, np.int64), np.array(scores, np.int64)
    return [choose(held, score, epsilon, random) for _ in range(count)]


@pytest.mark.more
def test_groups_have_their_distribution():
    sizes, scores = [3, 1, 5, 1000, 2], [10, 12, 9, 0, 10]
    drawn = draws(sizes, scores, Fraction(1), 1)
    seen = np.bincount([group for group, _ in drawn], minlength=5)
    assert stats.chisquare(seen, distribution(sizes, scores, 1) * DRAWS).pvalue > ACCEPT
    for wrong in (0.7, 1.3):
        assert stats.chisquare(seen, distribution(sizes, scores, wrong) * DRAWS).pvalue < REJECT
    assert stats.chisquare(seen, distribution([1] * 5, scores, 1) * DRAWS).pvalue < REJECT
    places = np.bincount([place for group, place in drawn if group == 2], minlength=5)
    assert len(places) == 5
    assert stats.chisquare(places).pvalue > ACCEPT


def test_groups_of_one_have_the_distribution_of_the_mechanism_without_groups():
    scores = [3, 0, 5, 5]
    mechanism = ExponentialMechanism(Fraction(3, 2), Fraction(1))
    np.testing.assert_allclose(mechanism.probabilities(scores), distribution([1] * 4, scores, 1.5), rtol=1e-12)
    seen = np.bincount([group for group, _ in draws([1] * 4, scores, Fraction(3, 2), 9, 5000)], minlength=4)
    assert stats.chisquare(seen, mechanism.probabilities(scores) * 5000).pvalue > ACCEPT


def test_many_poor_candidates_outweigh_a_good_one():
    share = distribution([1, 2**60], [80, 0], 1)[1]
    assert 0.8 < share < 0.9
    poor = sum(group for group, _ in draws([1, 2**60], [80, 0], Fraction(1), 2, 5000))
    assert stats.binomtest(poor, 5000, share).pvalue > ACCEPT
    assert all(group == 0 for group, _ in draws([1, 2**60], [200, 0], Fraction(1), 3, 200))


class Scripted:
    """Given bits, so that a draw falls where double precision or 128 bits do not decide."""

    is_system = False

    def __init__(self, first, then):
        self.answers = [first, then]

    def bits(self, count):
        answer = self.answers.pop(0)
        assert answer < 1 << count
        return answer

    def below(self, bound):
        return 0


@pytest.mark.parametrize(("then", "expected"), [(0, 0), ((1 << 64) - 1, 1)])
def test_more_bits_are_drawn_where_the_first_do_not_decide(then, expected):
    with mpmath.workprec(400):
        boundary = 1 / (1 + mpmath.exp(-mpmath.mpf(1) / 2))
        word = int(mpmath.floor(boundary * 2**128))
        left = boundary * 2**128 - word
    assert 0.001 < left < 0.999
    # Group 0 is the better one: [0, boundary) is its part.
    random = Scripted(word, then)
    assert choose(np.array([1, 1]), np.array([1, 0]), Fraction(1), random)[0] == expected
    assert random.answers == []


def test_a_draw_beyond_all_near_groups_goes_on():
    # 2^128 exp(-150) is below 1: 128 bits cannot select the last group, further bits can.
    random = Scripted((1 << 128) - 1, (1 << 64) - 1)
    random.answers += [(1 << 64) - 2, 0]
    assert choose(np.array([1, 1]), np.array([300, 0]), Fraction(1), random)[0] == 1
    assert random.answers == [0]


def test_double_precision_agrees_with_the_brackets():
    generator = np.random.default_rng(5)
    distinguished = 0
    for _ in range(300):
        levels = int(generator.integers(1, 6))
        held = generator.integers(1, 1 << int(generator.integers(1, 60)), size=levels)
        gaps = np.concatenate([[0], np.cumsum(generator.integers(1, 90, size=levels - 1))])
        epsilon = Fraction(int(generator.integers(1, 300)), 100)
        word = int.from_bytes(generator.bytes(16), "little")
        likely = _likely(held, gaps, epsilon, word)
        distinguished += likely is not None
        assert likely in {None, _decided(held, gaps, epsilon, word, 128)}
    assert distinguished > 290


def test_a_tiny_epsilon_and_large_gaps_stay_exact():
    drawn = draws([1, 1], [2**53, -(2**53)], Fraction(1, 2**54), 4, 4000)
    share = 1 / (1 + math.exp(0.5))
    assert stats.binomtest(sum(group for group, _ in drawn), 4000, share).pvalue > ACCEPT


@pytest.mark.parametrize(
    ("sizes", "scores", "epsilon", "error"),
    [
        ([], [], Fraction(1), ConfigurationError),
        ([1, 0], [1, 1], Fraction(1), ConfigurationError),
        ([1 << 62, 1 << 62], [1, 1], Fraction(1), ConfigurationError),
        ([1], [1 << 54], Fraction(1), ConfigurationError),
        ([1, 1], [1], Fraction(1), ShapeError),
        ([1], [1], Fraction(0), PlanError),
        ([1], [1], 0.5, PlanError),
    ],
)
def test_what_is_refused(sizes, scores, epsilon, error):
    with pytest.raises(error):
        choose(np.array(sizes, np.int64), np.array(scores, np.int64), epsilon, SeededRandom(1))
