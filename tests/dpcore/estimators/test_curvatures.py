"""Curvature and squares of each loss, against draws of records and against finite differences."""

from fractions import Fraction

import numpy as np
import pytest

from dpcore.estimators.curvatures import OfCounts, OfHazards, OfLogOdds, OfNumbers
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.hazard_gradient import HazardGradientQuery
from dpcore.records.coding import event_time_codes
from dpcore.records.records import Records

DRAWS = 200_000
RANDOM = np.random.default_rng(5)


def test_least_squares_is_that_of_clipped_normal_residuals():
    residuals = RANDOM.normal(0.0, 0.5, DRAWS)
    curved, squares = OfNumbers(clip=0.8, variance=0.25).of(np.zeros(2), np.array([1.0, 4.0]))
    for place, most in enumerate((0.8, 0.2)):
        assert curved[place] == pytest.approx((np.abs(residuals) < most).mean(), abs=5e-3)
        assert squares[place] == pytest.approx(np.square(np.clip(residuals, -most, most)).mean(), abs=2e-3)


def test_log_odds_are_those_of_clipped_weights():
    labels = np.where(RANDOM.random(DRAWS) < 1 / (1 + np.exp(-0.7)), 1.0, -1.0)
    weights = 1 / (1 + np.exp(0.7 * labels))
    curved, squares = OfLogOdds(clip=0.9).of(np.array([0.7]), np.array([2.0]))
    assert squares[0] == pytest.approx(np.square(np.minimum(weights, 0.45)).mean(), abs=2e-3)
    assert curved[0] == pytest.approx(np.where(weights < 0.45, weights * (1 - weights), 0.0).mean(), abs=2e-3)


def test_counts_vary_by_their_dispersion_and_have_the_released_mean():
    curved, squares = OfCounts(clip=1e6, mean=3.0, dispersion=2.0).of(np.log([1.0, 3.0]), np.ones(2))
    assert curved == pytest.approx([1.5, 4.5])
    assert squares == pytest.approx([3.0, 9.0])


@pytest.mark.parametrize("clip", [0.8, 2.0])
def test_hazards_are_those_of_the_query_s_sums(clip):
    """Of many records with one z: the variance of the gradient, and its derivative by differences of the query."""
    intervals, weight, logs = 3, 2, np.array([-1.0, -0.5, -1.2])
    z, theta = np.array([0.5, -0.75, 1.0]), np.array([0.6, 0.4, 0.0])
    hazards = np.exp(logs + z @ theta)
    ends = np.searchsorted(np.cumsum(hazards), RANDOM.exponential(size=DRAWS // 10))
    codes = np.where(ends < intervals, ends, 2 * intervals).astype(np.int8)

    def asked(shift):
        point = np.concatenate([(logs + shift) / weight, theta])
        fixed = tuple(np.rint(np.ldexp(point, 20)).astype(int).tolist())
        return HazardGradientQuery("hazards", fixed, Fraction(clip), 3, None, intervals, weight)

    def along(shift, kept):
        features = np.rint(np.tile(z * ONE, (len(kept), 1))).astype(np.int32)
        held = Records(features, kept, np.ones(len(kept), bool), coding=event_time_codes(intervals))
        query = asked(shift)
        # The last coordinate of z is 1: the sum of all r_j.
        return query.decode(query.sums(held, 8), 8)[-1] / len(kept)

    loss = OfHazards(clip, weight, logs - logs.mean(), np.array([1.0, np.exp(-hazards[0]), np.exp(-hazards[:2].sum())]))
    length = float(np.sqrt(1.0 + z @ z))
    curved, squares = loss.of(np.array([z @ theta + logs.mean()]), np.array([length]))
    steps = [along(0.0, np.array([code], np.int8)) for code in (0, 1, 2, 2 * intervals)]
    chances = [(codes == code).mean() for code in (0, 1, 2, 2 * intervals)]
    assert squares[0] == pytest.approx(np.dot(chances, np.square(steps)), rel=0.05)
    assert curved[0] == pytest.approx((along(0.1, codes) - along(-0.1, codes)) / 0.2, rel=0.08)
