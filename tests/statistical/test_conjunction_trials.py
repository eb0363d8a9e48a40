"""Conjunctions over 200 features and 4 parties: the target, exactly, in at least 1 - failure of 200 trials.

Millions of rows a trial are not drawn one by one. What parties add up depends on counts alone, whose joint distribution
is sampled exactly: a party's rows fall into the 2^5 patterns of the target's features by a multinomial, in each pattern
labels are flipped by a binomial; every other feature is false, independently given the true label, by binomials over
the four groups of true and held label. Each party adds its own share of the noise.
"""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import stats

from dpcore.estimators import conjunction
from dpcore.estimators.conjunction import MonotoneConjunction, SampleTooSmallError, rows_needed
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.expressions import And, Flag, LabelIs, Not
from dpcore.statistics.accuracy import SharedNoise, corrected_batch
from tests.dpcore.estimators.oracle_world import WorldOracle, flags_schema, shared_noise

D, K, PARTIES, ERROR, FAILURE = 200, 5, (0.1, 0.2, 0.3, 0.4), 0.1, 0.05
TARGET = tuple(3 + 41 * i for i in range(K))
NAMES = tuple(f"f{i:03d}" for i in TARGET)
OTHERS = np.setdiff1d(np.arange(D), TARGET)
SCHEMA = flags_schema(D)
TRUE = (np.arange(2**K)[:, np.newaxis] >> np.arange(K)) & 1 == 1


@pytest.fixture(autouse=True)
def _counted_once(monkeypatch):
    """Every trial asks the same batch, whose sensitivity takes longer to count than the trial."""
    monkeypatch.setattr(conjunction, "batch_sensitivity", cache(batch_sensitivity))


class Distribution:
    """patterns: (2^5,) chances of the target's features; false: of any other feature, by true label (-1, +1).

    Every feature outside the target is false in a positive row with probability at least ERROR / D: then what may not
    be kept is all of them.
    """

    def __init__(self, patterns, false):
        self.patterns, self.false = patterns / np.sum(patterns), false
        assert self.patterns[-1] * false[1] >= ERROR / D * (1 - 1e-12)


def independent():
    """Each feature of the target true in 87 % of rows, so that half are positive."""
    return Distribution(np.prod(np.where(TRUE, 0.87, 0.13), axis=1), (2e-3 * 1.01, 2e-3 * 1.01))


def hardest():
    """Every feature false in every negative row, others in just enough positive ones.

    Each feature then fails as often as the bound allows, but for the 2 % of rows that are positive. Flips, however,
    move all features alike: they fail together.
    """
    return Distribution(
        np.where(TRUE.all(axis=1), 0.02, np.where(TRUE.any(axis=1), 0.0, 0.98)), (1.0, ERROR / D / 0.02)
    )


def scattered():
    """As before, but others are false in half of the negative rows, so that flips move each of them on its own."""
    distribution = hardest()
    distribution.false = (0.5, distribution.false[1])
    return distribution


class CountOracle(WorldOracle):
    """Answers from counts alone, for predicates of the form `feature is false and the label is b`."""

    def __init__(self, distribution, rows, eta, seed, **options):
        super().__init__(SCHEMA, rows, len(PARTIES), seed=seed, **options)
        self.distribution, self.eta, self.generator = distribution, eta, np.random.default_rng(seed)

    def _sums(self, predicates, bits):
        ends = np.round(np.cumsum(PARTIES) * self.rows).astype(int)
        return [self._party(rows, predicates) << bits for rows in np.diff(ends, prepend=0)]

    def _party(self, rows, predicates):
        patterns = self.generator.multinomial(rows, self.distribution.patterns)
        flipped = self.generator.binomial(patterns, self.eta)
        true = np.arange(2**K) == 2**K - 1
        # By held label (-1, +1) and pattern.
        held = np.where(true, [flipped, patterns - flipped], [patterns - flipped, flipped])
        counts = np.empty((2, D), dtype=np.int64)
        counts[:, TARGET] = held @ ~TRUE
        negative, positive = held[:, ~true].sum(axis=1), held[:, true].sum(axis=1)
        counts[:, OTHERS] = sum(
            self.generator.binomial(group[:, np.newaxis], chance, size=(2, D - K))
            for group, chance in zip((negative, positive), self.distribution.false, strict=True)
        )
        answers = []
        for predicate in predicates:
            match predicate:
                case And((Not(Flag(name)), LabelIs(positive=label))):
                    answers.append(counts[int(label), SCHEMA.coordinate(name)])
        assert len(answers) == len(predicates)
        return np.array(answers)


def noise_of(eta, budget):
    """The noise that four parties' shares add up to, as the oracle adds it."""
    epsilon, delta = budget
    batch = [And((Not(Flag(f"f{i:03d}")), LabelIs(positive=True))) for i in range(D)]
    asked, _ = corrected_batch(batch, eta)
    assert batch_sensitivity(asked).l1 == (D if eta == 0 else 2 * D)
    return SharedNoise(shared_noise(asked, Fraction(epsilon), delta, Fraction(1), len(PARTIES), 12), len(PARTIES), 12)


def found(distribution, rows, eta, budget, trials, seed=0, *, require_rows=True):
    """In how many trials exactly the target was found."""
    options = {"epsilon": budget[0], "delta": budget[1]} if budget else {}
    learner = MonotoneConjunction(error=ERROR, failure=FAILURE, noise_rate=eta, require_rows=require_rows)
    oracles = (CountOracle(distribution, rows, eta, seed + trial, **options) for trial in range(trials))
    return sum(learner.fit_queries(oracle).features_ == NAMES for oracle in oracles)


PURE, APPROXIMATE = (1, Fraction(0)), (1, Fraction(1, 10**6))
CASES = [
    (independent, 0.0, PURE),
    (independent, 0.3, PURE),
    (independent, 0.0, APPROXIMATE),
    (independent, 0.3, APPROXIMATE),
    (hardest, 0.0, APPROXIMATE),
    (hardest, 0.3, APPROXIMATE),
]


@pytest.mark.slow
@pytest.mark.parametrize(("distribution", "eta", "budget"), CASES)
def test_the_target_is_found_at_the_stated_rows_in_200_trials(distribution, eta, budget):
    rows = rows_needed(D, ERROR, FAILURE, noise_rate=eta, noise=noise_of(eta, budget))
    # A few more, for the learner plans with continuous noise and what parties add is discrete.
    assert found(distribution(), rows + rows // 10**5, eta, budget, 200) >= (1 - FAILURE) * 200


@pytest.mark.slow
@pytest.mark.parametrize(("distribution", "eta", "budget"), CASES)
def test_below_the_stated_rows_it_says_no(distribution, eta, budget):
    rows = rows_needed(D, ERROR, FAILURE, noise_rate=eta, noise=noise_of(eta, budget))
    for fewer in (rows - rows // 20, rows // 10, 100):
        with pytest.raises(SampleTooSmallError) as caught:
            found(distribution(), fewer, eta, budget, 1)
        assert caught.value.rows == fewer
        assert caught.value.needed == pytest.approx(rows, rel=0.05)


@pytest.mark.more
@pytest.mark.parametrize(
    ("distribution", "eta", "budget", "fraction"),
    [
        pytest.param(hardest, 0.0, None, 0.4, marks=pytest.mark.slow),
        (hardest, 0.0, APPROXIMATE, 0.5),
        pytest.param(scattered, 0.3, None, 0.1, marks=pytest.mark.slow),
        pytest.param(scattered, 0.3, APPROXIMATE, 0.1, marks=pytest.mark.slow),
    ],
)
def test_at_a_fraction_of_the_rows_it_fails_where_the_distribution_is_hard(distribution, eta, budget, fraction):
    """So the rows are not far more than needed. The bound is never off by as much as the fraction here."""
    noise = None if budget is None else noise_of(eta, budget)
    rows = rows_needed(D, ERROR, FAILURE, noise_rate=eta, noise=noise)
    trials = 30
    succeeded = found(distribution(), int(rows * fraction), eta, budget, trials, require_rows=False)
    assert stats.binom.cdf(succeeded, trials, 1 - FAILURE) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_the_target_is_found_without_privacy_noise(eta):
    rows = rows_needed(D, ERROR, FAILURE, noise_rate=eta)
    for distribution in (independent(), hardest()):
        assert found(distribution, rows, eta, None, 20, require_rows=False) >= 19


@pytest.mark.slow
def test_counts_have_the_distribution_of_rows():
    """Against rows drawn one by one: means and covariances of a few counts, over 1,000 small tables."""
    distribution, eta, rows, tables = independent(), 0.3, 60, 1000
    distribution.false = (0.3, 0.2)
    names = [NAMES[0], NAMES[1], "f000", "f001"]
    asked = [And((Not(Flag(name)), LabelIs(positive=label))) for name in names for label in (True, False)]
    by_counts = np.array(
        [np.sum(CountOracle(distribution, rows, eta, seed)._sums(asked, 0), axis=0) for seed in range(tables)]
    )
    random = np.random.default_rng(5)
    by_rows = np.empty_like(by_counts)
    for table in range(tables):
        truths = TRUE[random.choice(2**K, size=rows, p=distribution.patterns)]
        positive = truths.all(axis=1)
        other = (
            random.uniform(size=(rows, 2))
            < np.where(positive, distribution.false[1], distribution.false[0])[:, np.newaxis]
        )
        held = positive ^ (random.uniform(size=rows) < eta)
        false = np.column_stack([~truths[:, :2], other])
        by_rows[table] = [int((false[:, j] & (held == label)).sum()) for j in range(4) for label in (True, False)]
    spread = by_rows.std(axis=0)
    assert np.abs(by_counts.mean(axis=0) - by_rows.mean(axis=0)).max() < 5 * (spread * np.sqrt(2 / tables)).max()
    scaled = [np.cov(sample.T) / np.outer(spread, spread) for sample in (by_counts, by_rows)]
    assert np.abs(scaled[0] - scaled[1]).max() < 0.25
