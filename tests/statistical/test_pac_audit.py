"""Private PAC learners run many times on two neighbouring tables: what is seen allows the epsilon that they claim.

An audit bounds from below the epsilon of whoever made the runs (Ding, Wang, Wang, Zhang and Kifer, CCS 2018): with P
and Q an event's probabilities on the two tables, epsilon is at least log(P / Q), and Clopper and Pearson's intervals
bound both. The tables are those that come closest to what is claimed, so the same runs refute half of it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import stats

from dpcore.randomness.sources import RandomSource, SeededRandom
from dpcore.research.pac_classes import learn_finite_class, learn_point, learn_threshold
from dpcore.research.parity import ParityCoins, learn_parity, parity_coins

# Together for both intervals; seeds are fixed, so a result never changes from run to run.
DOUBT = 1e-4
RUNS = 1_500


@dataclass(frozen=True)
class Audit:
    """A learner with its epsilon, two tables that differ in one row, and an event that the first makes likelier."""

    learn: Callable[[Fraction, tuple, RandomSource], object]
    first: tuple
    second: tuple
    event: Callable[[object], bool]

    def least_epsilon(self, epsilon: Fraction, seed: int, runs: int = RUNS) -> float:
        """What `runs` runs on each table prove: epsilon is at least this, but for DOUBT."""
        counts = []
        for place, table in enumerate((self.first, self.second)):
            random = SeededRandom(2 * seed + place)
            counts.append(sum(self.event(self.learn(epsilon, table, random)) for _ in range(runs)))
        return lower_log_ratio(*counts, runs)


def lower_log_ratio(often: int, rarely: int, runs: int) -> float:
    """A lower bound of log(P / Q) from how often an event was seen, 0 where none is proved."""
    least = stats.beta.ppf(DOUBT / 2, often, runs - often + 1) if often else 0.0
    most = stats.beta.ppf(1 - DOUBT / 2, rarely + 1, runs - rarely) if rarely < runs else 1.0
    return max(0.0, math.log(least / most)) if least > 0 else 0.0


def points_of(table: tuple) -> tuple[list[int], list[int]]:
    return [x for x, _ in table], [y for _, y in table]


def finite_class(epsilon: Fraction, table: tuple, random: RandomSource) -> int:
    points, labels = points_of(table)
    return learn_finite_class(np.eye(16, dtype=int)[:, points], labels, epsilon, random)


def point(epsilon: Fraction, table: tuple, random: RandomSource) -> int:
    return learn_point(*points_of(table), 4, epsilon, random)


def threshold(epsilon: Fraction, table: tuple, random: RandomSource) -> int:
    return learn_threshold(*points_of(table), 4, epsilon, random)


def careless(epsilon: Fraction, table: tuple, random: RandomSource) -> int:
    """The concept of fewest errors: no noise at all."""
    points, labels = points_of(table)
    return max(range(16), key=lambda j: sum((x == j) == y for x, y in zip(points, labels, strict=True)))


@cache
def planned(epsilon: Fraction) -> ParityCoins:
    return parity_coins(epsilon, 0.05)


def parity(epsilon: Fraction, table: tuple, random: RandomSource) -> int | None:
    answer = learn_parity(*bits_of(table), planned(epsilon), random)
    return None if answer is None else int(answer @ (1, 2))


def one_run(epsilon: Fraction, table: tuple, random: RandomSource) -> int | None:
    """One of the paper's runs: a row is kept with epsilon / 4, which is worth about epsilon / 2 here."""
    answer = learn_parity(*bits_of(table), ParityCoins(epsilon / 4, Fraction(1, 2), 1), random)
    return None if answer is None else int(answer @ (1, 2))


def bits_of(table: tuple) -> tuple[list[list[int]], list[int]]:
    points, labels = points_of(table)
    return [[x & 1, x >> 1] for x in points], labels


def is_five(concept: object) -> bool:
    return concept == 5


def failed(answer: object) -> bool:
    return answer is None


# Of 16 concepts the one at 5 alone changes its mind about the row.
POINT = ((5, 1),), ((5, 0),)
# c_16 alone calls 15 positive: of 17 concepts it alone changes its mind.
END = ((15, 1),), ((15, 0),)
AUDITS = {
    "finite class": Audit(finite_class, *POINT, is_five),
    "point": Audit(point, *POINT, is_five),
    "threshold": Audit(threshold, *END, lambda j: j == 16),
    "parity": Audit(parity, ((0, 1),), ((0, 0),), failed),
}
EPSILON = Fraction(2)


@pytest.mark.more
@pytest.mark.parametrize(
    "name", ["point", *(pytest.param(name, marks=pytest.mark.slow) for name in AUDITS if name != "point")]
)
def test_an_audit_allows_epsilon_and_refutes_half_of_it(name):
    proved = AUDITS[name].least_epsilon(EPSILON, seed=1)
    assert proved <= EPSILON
    assert proved > EPSILON / 2
    # So a learner that spends twice what it claims is caught.
    assert AUDITS[name].least_epsilon(2 * EPSILON, seed=2) > EPSILON


def test_an_audit_catches_a_learner_without_noise():
    assert Audit(careless, *POINT, is_five).least_epsilon(EPSILON, seed=3, runs=500) > EPSILON


@pytest.mark.slow
def test_an_audit_of_the_papers_run():
    """It costs about epsilon / 2; what tells most is an answer that one row asks for and the other forbids."""
    audit = Audit(one_run, ((1, 0),), ((1, 1),), lambda answer: answer in {0, 2})
    proved = audit.least_epsilon(Fraction(1), seed=4, runs=4_000)
    assert 0.3 < proved <= ParityCoins(Fraction(1, 4), Fraction(1, 2), 1).epsilon


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITS)
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(2)])
def test_long_audits(name, epsilon):
    proved = AUDITS[name].least_epsilon(epsilon, seed=5, runs=30_000)
    assert epsilon / 2 < proved <= epsilon
