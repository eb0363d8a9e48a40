"""Shared by the tests of private PAC learners: neighbouring tables, distributions of choices, failed trials."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy import stats

from dpcore.pac.counts import CountNoise, GaussianCounts, IntervalCounts


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
    inside = [[np.sum((values >= lo) & (values < hi) & (labels == y)) for lo, hi in asked.intervals] for y in (0, 1)]
    return np.array(inside)


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
