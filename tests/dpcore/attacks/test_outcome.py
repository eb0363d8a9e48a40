"""An interval misses seldom and is not wide for nothing; bounds are those of epsilon and delta."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.attacks.options import ATTACK_NAMES, RehearsalFields
from dpcore.attacks.outcome import DOUBT, NO_PROMISE, Outcome, Promise, guessed, interval, recovered
from dpcore.attacks.rehearsal import ATTACKS
from dpcore.errors import ConfigurationError

RUNS = 30


def most_missed(shrink: float) -> float:
    """The largest exact probability, over coins, that the interval, shrunk toward its mean, misses the coin."""
    chances, means = np.linspace(0.01, 0.99, 99), np.arange(RUNS + 1) / RUNS
    ends = np.array([interval(mean, RUNS) for mean in means])
    low, high = (means + shrink * (ends.T - means))[:, :, np.newaxis]
    missed = (chances < low) | (chances > high)
    return float((missed * stats.binom.pmf(np.arange(RUNS + 1)[:, np.newaxis], RUNS, chances)).sum(axis=0).max())


def test_an_interval_misses_at_most_as_often_as_stated():
    assert most_missed(1.0) <= DOUBT
    assert most_missed(0.7) > DOUBT, "a shorter one does: the interval is not loose"


def test_an_interval_holds_its_mean_and_both_ends_are_used():
    assert interval(0.0, 10) == (0.0, pytest.approx(1 - (DOUBT / 2) ** 0.1))
    assert interval(1.0, 10) == (pytest.approx((DOUBT / 2) ** 0.1), 1.0)
    low, high = interval(0.5, 200)
    assert 0.4 < low < 0.44
    assert 0.56 < high < 0.6
    for wrong in ((-0.1, 3), (1.1, 3), (math.nan, 3), (0.5, 0)):
        with pytest.raises(ConfigurationError):
            interval(*wrong)


def test_bounds_are_those_of_epsilon_and_delta():
    promise = Promise(Fraction(1), Fraction(1, 100))
    assert promise.advantage == pytest.approx((math.e - 1 + 0.02) / (math.e + 1))
    assert promise.recovered(0.1) == pytest.approx(0.1 * math.e + 0.01)
    assert promise.recovered(0.9) == 1.0
    assert (NO_PROMISE.advantage, NO_PROMISE.recovered(0.5)) == (None, None)


def test_an_alarm_needs_more_than_is_allowed_beyond_chance():
    promise = Promise(Fraction(1), Fraction(0))
    assert guessed("a", "r", 1, 9, 0.95, 200, promise).exceeds
    assert not guessed("a", "r", 1, 9, 0.75, 200, promise).exceeds, "above the bound, but perhaps by chance"
    assert not guessed("a", "r", 1, 9, 1.0, 200, NO_PROMISE).exceeds
    assert recovered("a", "r", 1, 9, [(1.0, 0.0)] * 5, 400, promise).exceeds
    assert not recovered("a", "r", 1, 9, [(0.0, 0.0)] * 5, 400, promise).exceeds
    assert not Outcome("a", "r", 1, 9, "rows", None).exceeds


def test_the_options_name_every_attack_and_no_other():
    assert tuple(ATTACKS) == ATTACK_NAMES == RehearsalFields().attacks
    assert RehearsalFields(attack=("ica", "ica"), rados=(30, 3)).attacks == ("ica",)
    assert RehearsalFields(rados=(30, 3, 30)).numbers_of_rados == (3, 30)


@pytest.mark.parametrize(
    "wrong", [{"attack": ("guess",)}, {"rados": (1,)}, {"epsilon": Fraction(0)}, {"guesses": 3}, {"recoveries": 0}]
)
def test_what_cannot_be_played_is_refused(wrong):
    with pytest.raises(ConfigurationError):
        RehearsalFields(**wrong)
