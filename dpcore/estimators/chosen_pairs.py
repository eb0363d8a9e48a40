"""Pairs of real features that a label depends on together: chosen from one noisy release of signs.

With s_i = 1 where feature i is above a point near its median, else -1, and y = 1 or -1, the score of a pair is

    E[(y - E y)(s_i - E s_i)(s_j - E s_j)]
        = E[y s_i s_j] - E[y] E[s_i s_j] - E[s_i] E[y s_j] - E[s_j] E[y s_i] + 2 E[y] E[s_i] E[s_j].

It is 0 if the label depends on at most one of the two and they are independent, however unbalanced, and up to 1 in
magnitude if it depends on whether both are above or below.

A label that bends with what correlated columns share looks like an interaction. Then pairs are chosen that the model
does not need, and shrinks.

Each expectation is 1 minus twice that of an exclusive-or, or the negative of that: F features need M = F^2 + F + 1
predicates. A record can change each by 1, and none exclude another, so the squared sensitivity is M
(dpcore.predicates.disjoint).

A pair is chosen if its score is more than the expected largest of as many scores of zero, sqrt(2 log(2 pairs)) standard
deviations of noise and sampling. So about a tenth of a pair is chosen for nothing, on average.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dpcore.estimators.base import Matrix, Vector
from dpcore.estimators.oracle import StatisticOracle
from dpcore.estimators.private_histograms import Histogram
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.expressions import Affine, And, LabelIs, NonNegative, Not, Or, Predicate
from dpcore.statistics.estimates import Estimates

Pairs = tuple[tuple[int, int], ...]
"""Pairs of coordinates of the schema, each ascending, or as a caller names them."""

MOST_COLUMNS = 99
"""Features that are compared: 9,901 predicates, within a policy's usual limit of 10,000, and a query of 320 kB."""


@dataclass(frozen=True)
class Choice:
    """The chosen pairs, those with the largest scores first; how many of `scored` pairs were above the noise."""

    kept: Pairs
    above: int
    scored: int

    @property
    def left_out(self) -> str | None:
        """Which pairs the model does without, and why; None if it has all that are above the noise."""
        if not self.above:
            return f"the model has no products: none of {self.scored} pairs has a score above the noise"
        if self.above > len(self.kept):
            return f"of {self.above} pairs with a score above the noise, the best {len(self.kept)} have a product"
        return None


def asked(features: int) -> int:
    """How many predicates `choose` asks about so many features: its squared sensitivity."""
    compared = min(features, MOST_COLUMNS)
    return compared * (compared + 1) + 1


def least_score(features: int, deviation: float, rows: int) -> float:
    """The least score that is above the noise of balanced features, for a standard deviation of each mean."""
    compared = min(features, MOST_COLUMNS)
    return _level(math.comb(compared, 2)) * math.sqrt(4.0 * deviation**2 + 1.0 / rows)


def choose(
    oracle: StatisticOracle, names: Mapping[int, str], found: Mapping[int, Histogram], *, part: Fraction, most: int
) -> Choice:
    """At most `most` pairs, by one query that takes `part` of the budget. Raises what the oracle raises.

    names: of the coordinates to compare, at least two. found: their histograms. Beyond MOST_COLUMNS, those are compared
    that their histograms divide most evenly into values above and below; if equal, the first.
    """
    cuts = {coordinate: _cut(found[coordinate]) for coordinate in names}
    compared = sorted(sorted(names, key=lambda each: (abs(cuts[each][1] - 0.5), each))[:MOST_COLUMNS])
    answer = oracle.statistic(_predicates([(names[each], cuts[each][0]) for each in compared]), part=part)
    scores, deviations = _scores(answer, len(compared))
    pairs = tuple(combinations(compared, 2))
    is_above = np.abs(scores) > _level(len(pairs)) * deviations
    order = [int(at) for at in np.argsort(-np.abs(scores), kind="stable") if is_above[at]]
    return Choice(tuple(pairs[at] for at in order[:most]), len(order), len(pairs))


def _level(pairs: int) -> float:
    """An upper bound on the expected largest magnitude of so many standard normal variables."""
    return math.sqrt(2.0 * math.log(2.0 * pairs))


def _cut(found: Histogram) -> tuple[int, float]:
    """The stored value from which on a feature counts as above, and the share that is below: as near to half as can be.

    A point mass is on one side, whole.
    """
    values, weights = found.values()
    order = np.argsort(values, kind="stable")
    values, below = values[order], np.cumsum(weights[order])
    at = int(np.argmin(np.abs(below[:-1] - 0.5)))
    low, high = (round(float(value) * ONE) for value in values[at : at + 2])
    if low in found.points:
        cut = low + 1
    elif high in found.points:
        cut = high
    else:
        cut = (low + high) // 2
    return min(max(cut, 1 - ONE), ONE), float(below[at])


def _predicates(cuts: Sequence[tuple[str, int]]) -> list[Predicate]:
    """The label; each feature above its cut; each of them or the label; then of each pair either, and all three."""
    label = LabelIs(True)
    above: list[Predicate] = [NonNegative(Affine(((name, ONE),), -cut)) for name, cut in cuts]
    crossed: list[Predicate] = [_either(label, each) for each in above]
    pairs = list(combinations(range(len(cuts)), 2))
    both = [_either(above[first], above[second]) for first, second in pairs]
    three = [_either(crossed[first], above[second]) for first, second in pairs]
    return [label, *above, *crossed, *both, *three]


def _either(first: Predicate, second: Predicate) -> Predicate:
    """Exactly one of the two."""
    return Or((And((first, Not(second))), And((Not(first), second))))


def _scores(answer: Estimates, features: int) -> tuple[Vector, Vector]:
    """The scores of the pairs and their standard deviations, for noise to first order and for sampling."""
    first, second = _places(features)
    signs = np.clip(2.0 * np.asarray(answer.values) - 1.0, -1.0, 1.0)
    ends = np.cumsum([1, features, features, len(first)])
    label = float(signs[0])
    mean, crossed = signs[1 : ends[1]], -signs[ends[1] : ends[2]]
    # Of a pair and of three, the exclusive-or is 1 where the product of signs is -1, and 1.
    both, three = -signs[ends[2] : ends[3]], signs[ends[3] :]
    one, other = mean[first], mean[second]
    scores = three - label * both - one * crossed[second] - other * crossed[first] + 2.0 * label * one * other
    slopes: Matrix = np.array(
        [
            np.ones(len(first)),
            np.full(len(first), label),
            one,
            other,
            both - 2.0 * one * other,
            crossed[second] - 2.0 * label * other,
            crossed[first] - 2.0 * label * one,
        ]
    )
    noise = (2.0 * answer.deviation) ** 2 * np.square(slopes).sum(axis=0)
    return scores, np.sqrt(noise + 1.0 / answer.rows)


def _places(features: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places of each pair's features, in the order of itertools.combinations."""
    first, second = np.triu_indices(features, 1)
    return first, second
