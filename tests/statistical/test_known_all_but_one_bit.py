"""Who knows all but one bit: wins against DP-FEAT's marginal, and against `joint` no more often than is counted.

Seeds are fixed, so a result never changes from run to run.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.accounting.gaussian import shift_distribution, subsampled_mu
from dpcore.accounting.odds import right_guesses as most_right
from dpcore.attacks.known_rest import KnownAllButOneBit, SubsetSums
from dpcore.errors import ConfigurationError, ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import DpFeatDesign, JointDesign, SensitiveFeature
from dpcore.randomness.sources import SeededRandom
from dpcore.records.computation import Computation
from dpcore.records.records import Records

FRACTION_BITS = 16
UNIT = 1 << FRACTION_BITS
SENSITIVE, TARGET = 0, 3
RADOS, TRIALS = 20, 1000
HALF = Fraction(1, 2)
# A test that holds is trusted to this confidence, one-sided; one that must trip, trips beyond it.
CONFIDENCE = 1 - 1e-4


def records(rows: int, bit: int, seed: int = 1) -> Records:
    """Six columns: the sensitive one, four real ones, the bias. The target's sensitive edge coordinate is `bit`."""
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE + 1, size=(rows, 6)).astype(np.int32)
    features[:, SENSITIVE] = np.where(generator.random(rows) < 0.4, ONE, -ONE)
    features[:, 5] = ONE
    labels = generator.choice([-1, 1], size=rows).astype(np.int8)
    features[TARGET, SENSITIVE] = bit * int(labels[TARGET]) * ONE
    return Records(features, labels, np.ones(rows, dtype=np.bool_))


def adversary(rows: int, seed: int = 1) -> KnownAllButOneBit:
    held = records(rows, 1, seed)
    edges = np.trunc(held.features * held.labels[:, None].astype(float) / ONE * UNIT).astype(np.int64)
    # What it does not know is not there to be read.
    edges[TARGET, SENSITIVE] = 123_456_789
    return KnownAllButOneBit(edges, SENSITIVE, TARGET, UNIT)


def release(design, held: Records, rados: int, seed: int) -> np.ndarray:
    query = RadosQuery(rados, design)
    return query.integers(query.contribution(held, FRACTION_BITS, Computation(SeededRandom(seed))))


def right_guesses(design, rows: int, trials: int, seed: int = 7) -> float:
    """How many of `trials` releases, half of them of each neighbour, are guessed right; undecided ones count half."""
    knows, right = adversary(rows), 0.0
    for bit in (-1, 1):
        rados = release(design, records(rows, bit), trials // 2 * RADOS, seed + bit)
        selection, unique = knows.signatures(rados)
        assert unique.mean() > 0.99
        evidence = knows.evidence(rados, selection).reshape(-1, RADOS).sum(axis=1)
        right += np.sum(np.sign(evidence) == bit) + np.sum(evidence == 0) / 2
    return float(right)


def lower_limit(right: float, trials: int) -> float:
    """Clopper and Pearson's: the probability of being right is above it, at CONFIDENCE."""
    return float(stats.beta.ppf(1 - CONFIDENCE, right, trials - right + 1))


@pytest.mark.more
@pytest.mark.parametrize("epsilon", [None, Fraction(1), Fraction(2)])
def test_the_marginal_design_gives_the_bit_away(epsilon):
    design = DpFeatDesign((SensitiveFeature(SENSITIVE, "smoker"),), epsilon)
    won = 0
    for trial in range(50):
        bit = 1 if trial % 2 else -1
        won += adversary(24, trial).guess(release(design, records(24, bit, trial), RADOS, trial)) == bit
    assert won == 50


SIGMA = math.ceil(2 * UNIT / subsampled_mu(RADOS, HALF, Fraction(4), Fraction(1, 10**6)))
PROFILE = [0.0, 0.1, 0.3, 1.0, 2.0, 4.0]


def allowed() -> list[float]:
    """The most that epsilon and delta allow, along the profile of a release with noise SIGMA."""
    distribution = shift_distribution(2 * UNIT / SIGMA, RADOS, HALF)
    return [most_right(epsilon, distribution.delta(epsilon).upper).probability for epsilon in PROFILE]


@pytest.mark.slow
def test_the_joint_design_allows_what_is_counted_and_no_more():
    distribution = shift_distribution(2 * UNIT / SIGMA, RADOS, HALF)
    assert 3.99 < distribution.epsilon(Fraction(1, 10**6)).upper <= 4
    right = right_guesses(JointDesign("smoker", (SENSITIVE,), 4, SIGMA), 14, TRIALS)
    assert lower_limit(right, TRIALS) <= min(allowed())
    # The likelihood ratio test reaches (1 + delta(0)) / 2: this adversary is as good as any.
    reached = stats.binomtest(round(right), TRIALS, (1 + distribution.delta(0.0).upper) / 2)
    assert reached.pvalue > 1e-3
    assert (1 + distribution.delta(0.0).upper) / 2 == pytest.approx(min(allowed()), rel=1e-12)


@pytest.mark.more
@pytest.mark.parametrize("factor", [0.5, pytest.param(0.7, marks=pytest.mark.slow)])
def test_too_little_noise_is_caught(factor):
    design = JointDesign("smoker", (SENSITIVE,), 4, math.floor(factor * SIGMA))
    right = right_guesses(design, 14, TRIALS if factor == 0.5 else 4 * TRIALS)
    assert lower_limit(right, TRIALS if factor == 0.5 else 4 * TRIALS) > min(allowed())


def test_every_subset_is_found_and_no_other():
    vectors = np.array([[1, 2], [3, -1], [4, 1], [0, 5], [-4, -1], [1, 2], [7, 7]], dtype=np.int64)
    every = np.array(list(itertools.product((False, True), repeat=7)))
    sums = every.astype(np.int64) @ vectors
    table = SubsetSums(vectors)
    for total in (*np.unique(sums, axis=0), np.array([100, 0]), np.array([-50, 3])):
        expected = {tuple(row) for row in every[(sums == total).all(axis=1)].tolist()}
        found = [tuple(row) for row in table.matching(total).tolist()]
        assert len(found) == len(expected)
        assert set(found) == expected


def test_an_adversary_is_valid_from_construction():
    edges = np.ones((4, 3), dtype=np.int64)
    for change in ({"sensitive": 3}, {"target": 4}, {"one": 0}, {"edges": edges[:, :1], "sensitive": 0}):
        with pytest.raises(ConfigurationError):
            KnownAllButOneBit(**{"edges": edges, "sensitive": 0, "target": 0, "one": 1} | change)
    for wrong in (edges.astype(np.float64), np.ones((45, 2), dtype=np.int64), np.ones((1, 2), dtype=np.int64)):
        with pytest.raises(ShapeError):
            SubsetSums(wrong)
    with pytest.raises(ShapeError):
        SubsetSums(edges).matching(np.zeros(2, dtype=np.int64))
    with pytest.raises(ShapeError):
        KnownAllButOneBit(edges, 0, 0, 1).signatures(np.zeros((5, 2), dtype=np.int64))


def test_what_is_ambiguous_is_not_guessed():
    """Records with equal columns: no signature is the only one, and the adversary says nothing."""
    edges = np.ones((4, 3), dtype=np.int64)
    knows = KnownAllButOneBit(edges, 0, 0, 1)
    rados = np.array([[2, 2, 2], [1, 1, 1]], dtype=np.int64)
    assert not knows.signatures(rados)[1].any()
    assert knows.guess(rados) == 0
