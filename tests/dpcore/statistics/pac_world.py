"""Shared by the tests of private PAC learners: concept classes, neighbouring tables, distributions, failed trials."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from dpcore.statistics.pac import (
    CountNoise,
    GaussianCounts,
    IntervalCounts,
    PacGuarantee,
    point_counts,
    point_counts_guarantee,
    point_from_counts,
    threshold_counts,
    threshold_counts_guarantee,
    threshold_from_counts,
)

HARD_BITS = 6
"""Bits of the domain of the hard distributions."""


@dataclass(frozen=True)
class ConceptClass:
    """A class of concepts c_j on integers, its estimator from counts, and a distribution that is hard for it.

    target: the concept of the hard distribution. rare, common: its two labelled values; with probability alpha of the
    rare one, every other concept errs at least with probability alpha. needed_part: 1 / needed_part of the guaranteed
    rows is certainly too few for noisy counts.
    """

    name: str
    concept: Callable[[int, np.ndarray], np.ndarray]
    size: Callable[[int], int]
    counts: Callable[[int], IntervalCounts]
    from_counts: Callable[[np.ndarray], int]
    counts_guarantee: Callable[..., PacGuarantee]
    target: int
    rare: tuple[int, int]
    common: tuple[int, int]
    needed_part: int

    def errors(self, j: int, values: np.ndarray, labels: np.ndarray) -> int:
        """The rows on which c_j errs."""
        return int((self.concept(j, np.asarray(values)) != (np.asarray(labels) == 1)).sum())

    def hard_rows(self, n: int, alpha: float, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """n labelled values of the hard distribution."""
        is_rare = generator.random(n) < alpha
        return tuple(np.where(is_rare, rare, common) for rare, common in zip(self.rare, self.common, strict=True))

    def hard_counts(self, n: int, alpha: float, generator: np.random.Generator) -> np.ndarray:
        """The counts of n rows of the hard distribution, without noise."""
        asked, rare = self.counts(HARD_BITS), generator.binomial(n, alpha)
        one = [counts_of(*np.array([row]).T, asked) for row in (self.rare, self.common)]
        return rare * one[0] + (n - rare) * one[1]


POINTS = ConceptClass(
    "points",
    lambda j, values: values == j,
    lambda bits: 1 << bits,
    point_counts,
    point_from_counts,
    point_counts_guarantee,
    target=37,
    rare=(37, 1),
    common=(5, 0),
    needed_part=2,
)
# All concepts except c_0 and the last err with probability alpha.
THRESHOLDS = ConceptClass(
    "thresholds",
    lambda j, values: values < j,
    lambda bits: (1 << bits) + 1,
    threshold_counts,
    threshold_from_counts,
    threshold_counts_guarantee,
    target=0,
    rare=(0, 0),
    common=((1 << HARD_BITS) - 1, 0),
    needed_part=3,
)
each_class = pytest.mark.parametrize("concepts", [POINTS, THRESHOLDS], ids=lambda concepts: concepts.name)


def neighbours(tables: Sequence[tuple]) -> Iterator[tuple[tuple, tuple]]:
    """Pairs of tables (tuples of rows) that differ in one row, in both orders."""
    known = set(tables)
    rows = {row for table in tables for row in table}
    for table in tables:
        for place, row in itertools.product(range(len(table)), rows):
            other = (*table[:place], row, *table[place + 1 :])
            if other != table and other in known:
                yield table, other


def exponential_distribution(scores: Sequence[int], epsilon: float) -> np.ndarray:
    """Probabilities proportional to exp(epsilon score / 2)."""
    weights = np.exp(epsilon * (np.array(scores, float) - max(scores)) / 2)
    return weights / weights.sum()


def all_choices(learn: Callable[[], object], monkeypatch, module) -> dict[int, int]:
    """Every concept that an estimator can choose, with its score, from its input to the exponential mechanism."""
    handed: dict[str, np.ndarray] = {}
    place = [0, 0]

    def choose(sizes, scores, epsilon, random):
        handed.update(sizes=sizes, scores=scores)
        return tuple(place)

    monkeypatch.setattr(module, "choose", choose)
    learn()
    sizes, scores = handed["sizes"], handed["scores"]
    found = {}
    for group, size in enumerate(sizes.tolist()):
        for offset in range(size):
            place[:] = group, offset
            concept = learn()
            assert concept not in found
            found[concept] = int(scores[group])
    return found


def counts_of(values: np.ndarray, labels: np.ndarray, asked: IntervalCounts) -> np.ndarray:
    """Answers of a federation without noise, (2, intervals): rows of either label, 0 and 1, in each interval."""
    ends = np.array(asked.intervals)
    # Values below each end; the intervals are half open.
    below = [np.searchsorted(np.sort(values[labels == y]), ends, side="left") for y in (0, 1)]
    return np.array([each[:, 1] - each[:, 0] for each in below])


def drawn(noise: CountNoise, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Noise of this distribution on counts of this shape; Laplace noise is one copy on whole rows."""
    if isinstance(noise, GaussianCounts):
        return generator.normal(0, noise.sigma, shape)
    q = np.exp(-1 / noise.scale)
    return generator.geometric(1 - q, shape) - generator.geometric(1 - q, shape)


def failed_too_often(failures: int, trials: int, beta: float) -> bool:
    """Whether this many failures, of probability at most beta, would occur less than once in 10,000 times."""
    return bool(stats.binom.sf(failures - 1, trials, beta) < 1e-4)


def failed_more_than(failures: int, trials: int, beta: float) -> bool:
    """Whether the failures refute a probability of at most beta with near certainty."""
    return bool(stats.binom.sf(failures - 1, trials, beta) < 1e-9)


def log_ratio(first: np.ndarray, second: np.ndarray) -> float:
    """The largest log ratio of probabilities, over outcomes with positive probability."""
    both = (first > 0) | (second > 0)
    with np.errstate(divide="ignore"):
        largest = np.max(np.log(first[both]) - np.log(second[both]))
    return float(largest) if not math.isnan(largest) else math.inf
