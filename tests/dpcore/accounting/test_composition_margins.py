"""Each uncertainty of a composition widens its bracket by what it can hide, in the direction that stays valid."""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from dpcore.accounting import composition, gaussian, mixed
from dpcore.accounting.composition import (
    Composed,
    DeltaTooSmallError,
    InfiniteEpsilonError,
    Slack,
    VoidEpsilonError,
    compose,
    delta_bracket,
    epsilon_bracket,
)
from dpcore.accounting.gaussian import LARGEST_EPSILON
from dpcore.errors import PlanError
from dpcore.numbers.distributions import CountDistribution, binomial_distribution

EPSILON, DELTA = 1.0, 0.05
NONE = Slack(0.0, 1.0, 0.0)
BARE = replace(
    compose(binomial_distribution(100), 5, 1e-3, 0.0, 1e-6),
    cut=0.0, shift=0.0, hoeffding=0.0, infinite=0.0, slack=NONE,
)  # fmt: skip


def close(value: float):
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def slack(**changes: float) -> Composed:
    return replace(BARE, slack=replace(NONE, **changes))


def test_without_uncertainty_the_ends_are_those_of_the_grid():
    finite = BARE.finite
    assert BARE.delta_upper(EPSILON) == finite.delta(EPSILON) + finite.error(EPSILON) > 0
    assert BARE.delta_lower(EPSILON) == finite.delta(EPSILON) - finite.error(EPSILON) > 0
    assert BARE.epsilon_upper(DELTA) == finite.epsilon_upper(DELTA)
    assert BARE.epsilon_lower(DELTA) == finite.epsilon_lower(DELTA)
    assert 0 < BARE.epsilon_lower(DELTA) <= BARE.epsilon_upper(DELTA) < math.inf


def test_the_upper_delta_grows_by_all_that_may_be_hidden():
    upper = BARE.delta_upper(EPSILON)
    assert slack(delta=0.01).delta_upper(EPSILON) == close(upper + 0.01)
    assert slack(factor=1.5).delta_upper(EPSILON) == close(upper * 1.5)
    assert slack(epsilon=0.25).delta_upper(EPSILON) == close(BARE.delta_upper(EPSILON - 0.25))
    assert replace(BARE, infinite=0.02).delta_upper(EPSILON) == close(upper + 0.02)
    assert slack(delta=0.01, factor=2.0).delta_upper(EPSILON) == close((upper + 0.01) * 2)
    assert slack(delta=2.0).delta_upper(EPSILON) == 1


def test_the_lower_delta_falls_by_all_that_may_be_too_much():
    lower = BARE.delta_lower(EPSILON)
    small = lower / 8
    assert slack(delta=small).delta_lower(EPSILON) == close(lower - small)
    assert slack(factor=1.5).delta_lower(EPSILON) == close(lower / 1.5)
    assert slack(epsilon=0.25).delta_lower(EPSILON) == close(BARE.delta_lower(EPSILON + 0.25))
    assert replace(BARE, shift=0.25).delta_lower(EPSILON) == close(BARE.delta_lower(EPSILON + 0.25))
    assert replace(BARE, cut=small).delta_lower(EPSILON) == close(lower - 2 * small)
    assert replace(BARE, hoeffding=small).delta_lower(EPSILON) == close(lower - small)
    assert replace(BARE, infinite=small).delta_lower(EPSILON) == close(lower + small)
    assert slack(delta=2.0).delta_lower(EPSILON) == 0


def test_the_upper_epsilon_spends_only_what_is_left_of_delta():
    assert slack(delta=0.01).epsilon_upper(DELTA) == close(BARE.epsilon_upper(DELTA - 0.01))
    assert replace(BARE, infinite=0.01).epsilon_upper(DELTA) == close(BARE.epsilon_upper(DELTA - 0.01))
    assert slack(factor=2.0).epsilon_upper(DELTA) == close(BARE.epsilon_upper(DELTA / 2))
    assert slack(epsilon=0.25).epsilon_upper(DELTA) == close(BARE.epsilon_upper(DELTA) + 0.25)
    assert slack(delta=DELTA).epsilon_upper(DELTA) == math.inf
    assert replace(BARE, cut=DELTA).epsilon_upper(DELTA) == math.inf
    assert replace(BARE, cut=DELTA / 2).epsilon_upper(DELTA) < math.inf


def test_the_lower_epsilon_grants_all_that_may_be_hidden():
    more = 0.01
    assert slack(delta=more).epsilon_lower(DELTA) == close(BARE.epsilon_lower(DELTA + more))
    assert replace(BARE, infinite=more).epsilon_lower(DELTA) == close(BARE.epsilon_lower(DELTA - more))
    assert replace(BARE, cut=more).epsilon_lower(DELTA) == close(BARE.epsilon_lower(DELTA + 2 * more))
    assert replace(BARE, hoeffding=more).epsilon_lower(DELTA) == close(BARE.epsilon_lower(DELTA + more))
    assert slack(factor=2.0).epsilon_lower(DELTA) == close(BARE.epsilon_lower(DELTA * 2))
    for less in (replace(BARE, shift=0.125), slack(epsilon=0.125)):
        assert less.epsilon_lower(DELTA) == close(BARE.epsilon_lower(DELTA) - 0.125)
    for useless in (slack(delta=1.0), replace(BARE, shift=1e3)):
        assert useless.epsilon_lower(DELTA) == 0


def test_the_largest_epsilon_is_admitted_and_no_larger_one():
    distribution = binomial_distribution(1000)
    assert delta_bracket(distribution, 2, LARGEST_EPSILON).upper < 1e-6
    for epsilon in (math.nextafter(LARGEST_EPSILON, math.inf), -1e-9):
        with pytest.raises(PlanError, match="give 0 to"):
            delta_bracket(distribution, 2, epsilon)


@pytest.mark.parametrize("tilt", [1.0, 60.0])
def test_the_rounding_of_a_tilt_is_within_the_slack(tilt):
    h, n = 1e-3, 3
    distribution = replace(binomial_distribution(300), relative_error=0.0)
    points = np.arange(math.floor(distribution.losses.max() / h), dtype=np.float64)
    with mpmath.workdps(40):
        off = max(
            abs(mpmath.mpf(float(found)) / mpmath.exp(mpmath.mpf(tilt) * mpmath.mpf(h) * int(point)) - 1)
            for found, point in zip(np.exp(tilt * h * points), points, strict=True)
        )
        assert n * off <= mpmath.log(composition._slack(distribution, n, tilt).factor)


@pytest.mark.parametrize(("n", "hoeffding"), [(1, 1e-4), (100, 1e-9)])
def test_a_step_shifts_the_lower_end_by_a_third_of_a_hundredth(n, hoeffding):
    distribution, epsilon = binomial_distribution(10_000), 0.5
    h = composition._step(distribution, n, epsilon, hoeffding)
    assert compose(distribution, n, h, 0.0, hoeffding).shift == pytest.approx(epsilon / 300, rel=0.01)


def test_the_largest_epsilon_is_stated_and_no_larger_one(monkeypatch):
    distribution = binomial_distribution(40)
    assert distribution.trimmed == 0  # it would be weighed with the largest epsilon
    for module, bracket in (
        (composition, lambda: epsilon_bracket(distribution, 3, 1e-3)),
        (mixed, lambda: mixed.mixed_epsilon([mixed.CountRelease(distribution, 3)], [], 1e-3)),
    ):
        found = bracket()
        monkeypatch.setattr(module, "LARGEST_EPSILON", found.upper)
        assert bracket() == found
        monkeypatch.setattr(module, "LARGEST_EPSILON", math.nextafter(found.upper, 0))
        with pytest.raises(VoidEpsilonError):
            bracket()


@pytest.mark.parametrize("points", [16, 200])
def test_a_bracket_that_no_grid_makes_narrow_still_ends(monkeypatch, points):
    distribution, n, noise = binomial_distribution(40), 3, gaussian.shift_distribution(0.5)
    brackets = [
        lambda: epsilon_bracket(distribution, n, 1e-3),
        lambda: delta_bracket(distribution, n, 1.0),
        lambda: mixed.mixed_epsilon([mixed.CountRelease(distribution, n)], [noise], 1e-3),
    ]
    fine = [bracket() for bracket in brackets]
    monkeypatch.setattr(composition, "LARGEST_GRID", points)
    for one, bracket in zip(fine, brackets, strict=True):
        coarse = bracket()
        assert coarse.lower <= one.upper
        assert one.lower <= coarse.upper < math.inf
        assert coarse.upper - coarse.lower > 0.01 * coarse.upper


def test_a_tilt_that_is_too_steep_is_lowered(monkeypatch):
    distribution, n, noise = binomial_distribution(40), 3, gaussian.shift_distribution(0.5)
    brackets = [
        lambda: epsilon_bracket(distribution, n, 1e-3),
        lambda: mixed.mixed_epsilon([mixed.CountRelease(distribution, n)], [noise], 1e-3),
    ]
    plain = [bracket() for bracket in brackets]
    for module in (composition, mixed):
        monkeypatch.setattr(module, "tilt_for", lambda *given, **named: 60.0)
    for one, bracket in zip(plain, brackets, strict=True):
        assert bracket().upper == pytest.approx(one.upper, rel=0.01)


@pytest.mark.parametrize(("h", "side"), [(0.1, -math.inf), (0.3, -math.inf), (0.01, 0.0)])
def test_a_loss_at_a_grid_point_is_split_into_no_negative_mass(h, side):
    """Where rounding puts it on the other side of that point."""
    points = np.arange(-3000, 3000, 3) * h
    losses = np.nextafter(points, side) if side else points
    share = np.expm1(np.floor(losses / h) * h - losses) / math.expm1(-h)
    losses = losses[(share < 0) | (share > 1)][::-1]
    assert len(losses) > 1
    masses = np.full(len(losses) + 1, 1 / (len(losses) + 1))
    found = compose(CountDistribution(0, masses, losses, 0.0, 0.0, 0.0), 1, h, 0.0, 1e-9).finite
    assert (found.masses >= 0).all()


def test_a_delta_that_is_hardly_more_than_an_infinite_loss_is_refused():
    distribution = binomial_distribution(30)
    infinite = composition.infinite_mass(distribution, 3)
    for delta in (infinite, infinite * (1 + 1e-15)):
        with pytest.raises(InfiniteEpsilonError):
            epsilon_bracket(distribution, 3, delta)
    # One rado less is named that fits, or none.
    for n, delta, largest in ((5, 1.0, 0), (5, 1.1, 1), (5, 3.1, 3), (3, 3.1, 2)):
        one = composition.infinite_mass(distribution, 1)
        assert composition._infinite_error(distribution, n, delta * one).largest_rados == largest
    assert epsilon_bracket(distribution, 3, infinite * 1.01).upper < LARGEST_EPSILON
    rough = replace(distribution, relative_error=0.01)
    for delta in (infinite * 1.1, infinite * composition._slack(rough, 3, 0.0).factor):
        with pytest.raises(InfiniteEpsilonError):
            epsilon_bracket(rough, 3, delta)


def test_a_delta_that_is_hardly_more_than_what_is_hidden_is_refused():
    distribution = binomial_distribution(300)
    rough = replace(distribution, trimmed=1e-6 / math.exp(LARGEST_EPSILON), relative_error=0.01)
    hidden = composition._slack(rough, 3, 0.0)
    assert hidden.delta == pytest.approx(3e-6)
    for delta in (hidden.delta, hidden.delta * 1.1):
        with pytest.raises(DeltaTooSmallError):
            epsilon_bracket(rough, 3, delta)
    assert epsilon_bracket(rough, 3, hidden.delta * 2).upper < LARGEST_EPSILON
    # Less than half of this delta is an infinite loss.
    few = binomial_distribution(30)
    delta = 2.5 * composition.infinite_mass(few, 3)
    with pytest.raises(DeltaTooSmallError):
        epsilon_bracket(replace(few, trimmed=0.7 * delta / 3 / math.exp(LARGEST_EPSILON)), 3, delta)


def test_a_grid_that_is_too_coarse_is_refined(monkeypatch):
    distribution = binomial_distribution(40)
    brackets = [
        lambda: epsilon_bracket(distribution, 3, 0.1),
        lambda: epsilon_bracket(binomial_distribution(3000), 1, 0.01),
        lambda: delta_bracket(distribution, 3, 1.0),
    ]
    brackets.append(lambda: mixed.mixed_epsilon([mixed.CountRelease(distribution, 3)], [], 0.1))
    plain = [bracket() for bracket in brackets]
    monkeypatch.setattr(composition, "_step", lambda *given: 1.0)
    monkeypatch.setattr(mixed, "spread", lambda *given: 30.0)
    for one, bracket in zip(plain, brackets, strict=True):
        found = bracket()
        assert found.upper - found.lower <= 0.01 * found.upper
        assert found.upper == pytest.approx(one.upper, rel=0.01)


class OffLosses(composition.GridLosses):
    """Its search for an epsilon is off by a little."""

    off = 0.0

    def epsilon(self, delta: float) -> float:
        return super().epsilon(delta) + self.off


@pytest.mark.parametrize(("pointwise", "stray", "tilt"), [(0.0, 0.0, 0.0), (1e-6, 1e-5, 0.0), (1e-7, 1e-6, 1.5)])
@pytest.mark.parametrize("delta", [1e-3, 0.02, 0.1])
def test_an_epsilon_is_tested_with_its_error_before_it_is_stated(monkeypatch, pointwise, stray, tilt, delta):
    masses = np.array([0.1, 0.2, 0.4, 0.2, 0.05])
    grid = OffLosses(0.25, 1, masses, 0.0, tilt=tilt, pointwise=pointwise, stray=stray)
    plain = grid.epsilon(delta)
    for off in (0.0, -1e-6, 1e-6):
        monkeypatch.setattr(OffLosses, "off", off)
        upper, lower = grid.epsilon_upper(delta), grid.epsilon_lower(delta)
        assert grid.delta(upper) + grid.error(upper) <= delta < grid.delta(lower) - grid.error(lower)
        assert abs(upper - plain) + abs(lower - plain) <= 1e-5 + 5 * grid.error(plain) / delta
