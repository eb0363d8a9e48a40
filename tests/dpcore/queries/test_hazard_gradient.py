"""Gradients of proportional hazards: sums by definition, clipping, and which label and theta they take."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpcore.accounting.noise_shares import gradient_squared
from dpcore.errors import ConfigurationError, PlanError, SchemaError, ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.gradient import THETA_BITS
from dpcore.queries.hazard_gradient import HazardGradientQuery
from dpcore.records.clipping import Basis
from dpcore.records.coding import event_time_codes
from dpcore.records.features import EventTime, Label
from dpcore.records.losses import HAZARD_BITS, clip_squared
from dpcore.records.persons import PersonRows, Persons
from dpcore.records.records import BLOCK_ROWS, Records

BITS, D, INTERVALS, WEIGHT = 8, 3, 4, 2
THETA = tuple((np.array([-0.6, -0.4, -0.9, 0.1, 0.7, -0.5, 0.2]) * 2**THETA_BITS).astype(int).tolist())
LABEL = EventTime(column="t", event="e", happened=("1",), borders=(1.0, 2.0, 3.0, 4.0))


def party(rows, seed):
    random = np.random.default_rng(seed)
    features = random.integers(-ONE, ONE, size=(rows, D), endpoint=True).astype(np.int32)
    features[:, -1] = ONE
    usable, codes = random.random(rows) > 0.2, random.integers(0, 2 * INTERVALS + 1, rows).astype(np.int8)
    features[~usable], codes[~usable] = 0, 1
    return Records(features, codes, usable, coding=event_time_codes(INTERVALS))


def query(clip, theta=THETA, basis=None):
    return HazardGradientQuery("hazards", theta, Fraction(clip), 40, basis, INTERVALS, WEIGHT)


def by_definition(held, clip, matrix=None):
    """Person by person, in reals; each weight by halving, from both outcomes of its interval."""
    theta, total = np.ldexp(np.array(THETA, dtype=float), -THETA_BITS), np.zeros(INTERVALS + D)
    for row in np.flatnonzero(held.usable):
        x = held.features[row] / ONE if matrix is None else matrix @ (held.features[row] / ONE)
        code, vector = int(held.labels[row]), np.zeros(INTERVALS + D)
        last = code if code < INTERVALS else code - INTERVALS
        for interval in range(min(last + 1, INTERVALS)):
            mean = np.exp(WEIGHT * theta[interval] + theta[INTERVALS:] @ x)
            along = np.concatenate([WEIGHT * np.eye(INTERVALS)[interval], x])
            event = -mean / np.expm1(mean)
            weight = allowed(vector, (mean * along, event * along), clip)
            at_end = event if code < INTERVALS else mean / 2
            vector += weight * (mean if interval < last else at_end) * along
        total += vector
    return total


def allowed(vector, outcomes, clip):
    """The largest weight of both outcomes with which the vector is no longer than the clip."""
    low, high = 0.0, 1.0
    if all(np.linalg.norm(vector + outcome) <= clip for outcome in outcomes):
        return 1.0
    for _ in range(40):
        middle = (low + high) / 2
        fits = all(np.linalg.norm(vector + middle * outcome) <= clip for outcome in outcomes)
        low, high = (middle, high) if fits else (low, middle)
    return low


@pytest.mark.parametrize("clip", [Fraction(1, 5), Fraction(8)])
def test_a_contribution_is_the_sum_of_clipped_gradients(clip):
    held = party(BLOCK_ROWS + 9, 4)
    asked = query(clip)
    found = asked.decode(asked.sums(held, BITS), BITS)
    # x is off by at most 2^-8, and a slope by a step of the table.
    assert found == pytest.approx(by_definition(held, float(clip)), abs=held.rows * 6e-3)
    parts = [held.between(0, 700), held.between(700, held.rows)]
    assert np.array_equal(sum(asked.sums(part, BITS) for part in parts), asked.sums(held, BITS))


def test_a_basis_is_applied_before_the_gradient():
    held, basis = party(300, 5), Basis.of(np.array([[0.5, 0.2, 0.0], [0.0, 1.5, -0.5], [0.0, 0.0, 0.0]]))
    asked = query(2, basis=basis)
    found = asked.decode(asked.sums(held, BITS), BITS)
    assert found == pytest.approx(by_definition(held, 2.0, basis.matrix), abs=held.rows * 8e-3)
    assert found[-1] == 0.0


@pytest.mark.parametrize("clip", [Fraction(1, 2), Fraction(3, 2)])
def test_the_mean_over_all_ways_in_which_a_record_may_end_is_zero(clip):
    """At the model's theta, whatever z and the clip are: no weight knows what happens in its interval."""
    theta = np.ldexp(np.array(THETA, dtype=float), -THETA_BITS)
    random, asked = np.random.default_rng(8), query(clip)
    for _ in range(20):
        features = random.integers(-ONE, ONE, size=(1, D), endpoint=True).astype(np.int32)
        means = np.exp(WEIGHT * theta[:INTERVALS] + theta[INTERVALS:] @ features[0] / ONE)
        alive, expected = 1.0, np.zeros(INTERVALS + D)
        for code, chance in enumerate([*(1.0 - np.exp(-means)), 1.0]):
            # An event in each interval, or being followed beyond the last.
            label = code if code < INTERVALS else 2 * INTERVALS
            held = Records(features, np.array([label], np.int8), np.array([True]), coding=event_time_codes(INTERVALS))
            expected += alive * chance * asked.decode(asked.sums(held, BITS), BITS)
            alive *= 1.0 - chance
        assert np.abs(expected).max() < 4e-3


def test_the_mean_over_all_ways_in_which_the_rows_of_a_person_may_end_is_zero():
    """A person's average was clipped as a whole, so that events, which are the longest, counted less than survival."""
    theta = np.ldexp(np.array(THETA, dtype=float), -THETA_BITS)
    asked = replace(query(Fraction(1, 2)), persons=Persons())
    for rows, seed in ((1, 4), (2, 5)):
        features = np.random.default_rng(seed).integers(-ONE, ONE, size=(rows, D), endpoint=True).astype(np.int32)
        means = np.exp(WEIGHT * theta[:INTERVALS] + (features / ONE @ theta[INTERVALS:])[:, np.newaxis])
        alive = np.cumprod(np.column_stack([np.ones(rows), np.exp(-means)]), axis=1)
        chances = np.column_stack([alive[:, :-1] - alive[:, 1:], alive[:, -1]])
        expected = np.zeros(INTERVALS + D)
        for ends in product(range(INTERVALS + 1), repeat=rows):
            labels = [code if code < INTERVALS else 2 * INTERVALS for code in ends]
            held = Records(features, np.array(labels, np.int8), np.full(rows, True), coding=event_time_codes(INTERVALS))
            own = asked.person_sums(held, BITS, PersonRows(np.zeros(rows, dtype=np.uint64)))
            chance = np.prod([chances[row, code] for row, code in enumerate(ends)])
            expected += chance * asked.decode(own, BITS)
        assert np.abs(expected).max() < 4e-3


@pytest.mark.parametrize("clip", [Fraction(1, 7), Fraction(1), Fraction(15)])
def test_no_record_s_gradient_is_longer_than_the_clip(clip):
    """However long it was followed, and at hazards as large as they can be; some reach it."""
    random = np.random.default_rng(3)
    theta = tuple((np.array([2, 1, 2, 1, 3, -3, 2]) << THETA_BITS).tolist())
    asked, most, longest = query(clip, theta), clip_squared(clip, BITS, HAZARD_BITS), 0
    for code in range(2 * INTERVALS + 1):
        for _ in range(25):
            features = random.integers(-ONE, ONE, size=(1, D), endpoint=True).astype(np.int32)
            held = Records(features, np.array([code], np.int8), np.array([True]), coding=event_time_codes(INTERVALS))
            squared = sum(int(value) ** 2 for value in asked.sums(held, BITS))
            assert squared <= most
            longest = max(longest, squared)
    assert longest > 0.99 * most
    assert gradient_squared(clip, BITS, HAZARD_BITS) == 4 * most


def test_what_does_not_fit_is_refused():
    held = party(20, 6)
    with pytest.raises(ShapeError, match="use one schema"):
        query(1, THETA[:-1]).sums(held, BITS)
    with pytest.raises(PlanError, match="give one for each"):
        query(1).length(D + 1)
    with pytest.raises(PlanError, match="no room"):
        query(30).sums(held, BITS)
    with pytest.raises(PlanError, match="interval_weight"):
        HazardGradientQuery("hazards", THETA, Fraction(1), 40, None, INTERVALS, 0)
    with pytest.raises(ConfigurationError, match="no loss"):
        HazardGradientQuery("logistic", THETA, Fraction(1), 40, None, INTERVALS, 1)
    with pytest.raises(SchemaError, match="time to an event"):
        query(1).check_target(Label(column="t", positive=("1",)))
    with pytest.raises(PlanError, match="make them equal"):
        query(1).check_target(EventTime(column="t", event="e", happened=("1",), borders=(1.0,)))
    query(1).check_target(LABEL)
