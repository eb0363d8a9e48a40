"""The audit of every design (benchmarks/privacy_audit.py) stays below the printed epsilon, and finds half the noise.

Seeds are fixed, so a result never changes from run to run. With other seeds the audit of true figures would fail with a
probability below DOUBT, by Clopper and Pearson's intervals, and the small audit at half the noise below 10^-6:
`test_the_small_audit_has_power_to_spare` computes it.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from benchmarks import privacy_audit
from benchmarks.privacy_audit import (
    Audited,
    Event,
    along,
    audited,
    calibrated,
    fixed_support,
    halved,
    lower_bounds,
    rows_of,
    statistic_gaussian,
)
from dpcore.queries.gradient import GradientQuery
from dpcore.randomness.noise import SMALLEST_SHARE_SIGMA
from dpcore.records import compiled
from dpcore.records.persons import PERSON_WEIGHT, PersonRows, Persons

# Over all bounds of one test.
DOUBT = 1e-6
# A broken adversary proves nothing, so each must prove this much. Two rows of a noised table hide one another: what is
# printed as 1 is 0.61 (tests/dpcore/accounting/test_fixed_support_pairs.py).
LEAST = {
    "gradient": 0.5,
    "statistic, Laplace": 0.8,
    "statistic, Gaussian": 0.6,
    "moments": 0.5,
    "dp-feat, joint": 0.8,
    "gaussian rados": 0.75,
    "fixed support, noised": 0.2,
    "plain, marginal": 0.8,
    "dp-feat, marginal": 0.8,
}
CASES = list(LEAST)
# Those of which many releases are made at once: a second for all of them.
SMALL = ["dp-feat, joint", "gaussian rados", "plain, marginal", "dp-feat, marginal"]
SMALL_TRIALS = 16_000
LEAST_TRIALS = 13_000


def case(name):
    return next(one for one in audited() if one.name == name)


def test_every_design_is_tested():
    assert [one.name for one in audited()] == CASES
    assert [one.name for one in audited() if one.trials == privacy_audit.FASTEST] == SMALL


@pytest.mark.variants(3)
@pytest.mark.parametrize("name", CASES)
def test_the_figure_is_printed_at_epsilon_1(name):
    one = case(name)
    assert 0.98 < one.printed <= 1
    first, second = one.cohorts
    differ = [not np.array_equal(a.features, b.features) for a, b in zip(first, second, strict=True)]
    assert differ == [True] + [False] * (len(first) - 1)
    rows = np.flatnonzero((first[0].features != second[0].features).any(axis=1))
    assert len(rows) == 1


def persons(kind, score) -> Audited:
    """A person with nine rows at one end, who is replaced by one with two rows at the other."""
    many, few = rows_of(*[(1.0, 0.0)] * 9), rows_of(*[(-1.0, 0.0)] * 2)
    return calibrated("persons", kind.of_persons(Persons()), (many, few), score)


@pytest.mark.slow
def test_persons_stay_below_what_is_printed_and_half_the_noise_is_found():
    """Whatever the number of rows; and without the averages the audit finds that persons are not protected."""
    one = persons(GradientQuery("logistic", (0, 0), Fraction(1, 4), SMALLEST_SHARE_SIGMA), along(np.array([-1, 0])))
    assert 0.98 < one.printed <= 1
    assert 0.4 <= one.bound(LEAST_TRIALS, 3, DOUBT / 6) <= one.printed
    assert halved(one).bound(LEAST_TRIALS, 4, DOUBT / 6) > one.printed


@pytest.mark.slow
def test_without_the_clip_of_a_person_the_audit_fails(monkeypatch):
    monkeypatch.setattr(compiled, "add_shortened", lambda vectors, _most, total: total.__iadd__(vectors.sum(axis=0)))
    monkeypatch.setattr(PersonRows, "weights", lambda _, usable: usable * np.int64(PERSON_WEIGHT))
    one = persons(GradientQuery("logistic", (0, 0), Fraction(1, 4), SMALLEST_SHARE_SIGMA), along(np.array([-1, 0])))
    assert one.bound(3000, 3, DOUBT / 6) > one.printed


@pytest.mark.parametrize("name", SMALL)
def test_a_small_audit_stays_below_what_is_printed_and_finds_half_the_noise(name):
    one, doubt = case(name), DOUBT / (2 * len(SMALL))
    assert one.bound(SMALL_TRIALS, 1, doubt) <= one.printed
    assert halved(one).bound(SMALL_TRIALS, 2, doubt) > one.printed


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_design_stays_below_what_is_printed_and_half_the_noise_is_found(name):
    one, doubt = case(name), DOUBT / (2 * len(CASES))
    trials = max(one.trials // 3, LEAST_TRIALS)
    proved = one.bound(trials, 3, doubt)
    assert LEAST[name] <= proved <= one.printed
    assert halved(one).bound(trials, 4, doubt) > one.printed


@pytest.mark.slow
def test_with_little_noise_a_fixed_support_hides_hardly_anything_that_is_not_counted():
    one = fixed_support(Fraction(16))
    assert 11 < one.bound(LEAST_TRIALS, 8, DOUBT) <= one.printed
    assert halved(one).bound(LEAST_TRIALS, 9, DOUBT) > one.printed


@pytest.mark.slow
def test_at_a_delta_of_a_millionth():
    one = statistic_gaussian(Fraction(1, 10**6))
    # By rare events alone so many releases would prove little of epsilon 1, and too little at half the noise.
    assert replace(one, by_mu=False).bound(one.trials, 5, DOUBT) < 0.5
    assert 0.85 < one.bound(one.trials, 5, DOUBT) <= one.printed
    assert halved(one).bound(one.trials, 6, DOUBT) > one.printed


def test_a_bound_on_mu_is_that_of_two_normal_distributions():
    """P = Phi(mu / 2) and Q = Phi(-mu / 2) at the threshold between them."""
    trials, mu = 10**9, 1.3
    often, rarely = (np.array([round(trials * stats.norm.cdf(end * mu / 2))]) for end in (1, -1))
    found = lower_bounds(often, rarely, trials, delta=None, doubt=1e-6)[0]
    assert 0.999 * mu < found < mu
    assert lower_bounds(rarely, often, trials, delta=None, doubt=1e-6)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_small_audit_has_power_to_spare(name):
    """From P and Q of an event, measured on many releases: the probability that the small audit misses half the noise.

    The bound rises with the count of P and falls with that of Q, so it exceeds the figure if both are on the right side
    of any pair of limits; the best pair bounds the probability.
    """
    one, doubt = case(name), DOUBT / (2 * len(SMALL))
    weaker, counted = halved(one), SMALL_TRIALS - int(privacy_audit.CHOOSING * SMALL_TRIALS)
    scores = [weaker.score(weaker.releases(table, 200_000, 7)) for table in (0, 1)]
    small = [some[: int(privacy_audit.CHOOSING * SMALL_TRIALS)] for some in scores]
    event = Event.chosen(*small, delta=float(one.delta), doubt=doubt)
    rest = [some[len(small[0]) :] for some in scores]
    p, q = (event.count(some) / len(some) for some in (rest[::-1] if event.swapped else rest))
    fails = 1.0
    for level in np.geomspace(1e-9, 1e-4, 40):
        often, rarely = stats.binom.ppf(level, counted, p), stats.binom.isf(level, counted, q)
        bound = lower_bounds(np.array([often]), np.array([rarely]), counted, delta=float(one.delta), doubt=doubt)[0]
        if bound > one.printed:
            fails = min(fails, 2 * level)
    assert fails < 1e-6


def test_the_audit_finds_a_release_without_noise():
    """Two tables whose scores never meet."""
    scores = np.zeros(1_000), np.ones(1_000)
    event = Event.chosen(*scores, delta=0.1, doubt=1e-3)
    assert event.bound(*scores, delta=0.1, doubt=1e-3) > 4


def test_the_audit_of_equal_tables_proves_nothing():
    generator = np.random.default_rng(1)
    first, second = generator.normal(size=(2, 20_000))
    event = Event.chosen(first[:5_000], second[:5_000], delta=0.0, doubt=1e-3)
    assert event.bound(first[5_000:], second[5_000:], delta=0.0, doubt=1e-3) == 0


@pytest.mark.parametrize("shift", [1.0, -1.0])
def test_the_event_is_on_the_side_of_the_table_that_makes_it_likelier(shift):
    generator = np.random.default_rng(2)
    first, second = generator.normal(size=20_000), generator.normal(size=20_000) + shift
    event = Event.chosen(first, second, delta=0.0, doubt=0.01)
    # Above a threshold on the table that is shifted up, or below it on the other one.
    assert event.below == (event.swapped == (shift < 0))
    assert event.bound(first, second, delta=0.0, doubt=0.01) > 1


def test_bounds_are_clopper_and_pearsons():
    """Against the definition: the binomial tails at the ends have half of the doubt each."""
    often, rarely, trials, delta, doubt = 300, 40, 1_000, 0.05, 0.02
    found = lower_bounds(np.array([often]), np.array([rarely]), trials, delta=delta, doubt=doubt)[0]
    least = stats.binomtest(often, trials).proportion_ci(1 - doubt, "exact").low
    most = stats.binomtest(rarely, trials).proportion_ci(1 - doubt, "exact").high
    assert found == pytest.approx(math.log((least - delta) / most), rel=1e-9)
    assert stats.binom.sf(often - 1, trials, least) == pytest.approx(doubt / 2, rel=1e-6)
    assert stats.binom.cdf(rarely, trials, most) == pytest.approx(doubt / 2, rel=1e-6)


@pytest.mark.parametrize(("often", "rarely"), [(0, 0), (0, 100), (100, 100), (5, 0)])
def test_bounds_at_the_ends_of_the_counts(often, rarely):
    bound = lower_bounds(np.array([often]), np.array([rarely]), 100, delta=0.1, doubt=0.05)[0]
    assert bound == 0
