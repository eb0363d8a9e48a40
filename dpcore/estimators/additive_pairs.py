"""Which pairs an additive model has products of.

Whether any are asked about follows from public sizes alone: the schema, the rows that parties state, and the budget.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.gaussian import gaussian_epsilon, gaussian_mu
from dpcore.errors import ConfigurationError, PlanError
from dpcore.estimators.additive_terms import known_names, ordered_features, parts_of
from dpcore.estimators.class_newton import MOST_WEIGHTS
from dpcore.estimators.oracle import StatisticOracle
from dpcore.estimators.private_histograms import Histogram
from dpcore.numbers.fixed_point import ONE, Matrix, Vector
from dpcore.numbers.rationals import upper_digits
from dpcore.predicates.expressions import Affine, And, LabelIs, NonNegative, Not, Or, Predicate
from dpcore.records.coding import SIGNS
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

# Pairs of real features that a label depends on together: chosen from one noisy release of signs.
#
# With s_i = 1 where feature i is above a point near its median, else -1, and y = 1 or -1, the score of a pair is
#
#     E[(y - E y)(s_i - E s_i)(s_j - E s_j)]
#         = E[y s_i s_j] - E[y] E[s_i s_j] - E[s_i] E[y s_j] - E[s_j] E[y s_i] + 2 E[y] E[s_i] E[s_j],
#
# 0 if the label depends on at most one of two independent features, up to 1 in magnitude for an exclusive-or. F
# features need F^2 + F + 1 predicates. They are parities, so the squared sensitivity is floor((F + 1)^2 / 2) only
# (dpcore.predicates.parities). A pair is chosen above sqrt(2 log(2 pairs)) standard deviations of noise and sampling:
# about a tenth of a pair for nothing, on average.


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


def choice_squared(features: int) -> int:
    """The squared sensitivity of what `choose` asks about so many features."""
    return (min(features, MOST_COLUMNS) + 1) ** 2 // 2


def least_score(features: int, deviation: float, rows: int) -> float:
    """The least score that is above the noise of balanced features, for a standard deviation of each mean."""
    compared = min(features, MOST_COLUMNS)
    return _level(math.comb(compared, 2)) * math.sqrt(4.0 * deviation**2 + 1.0 / rows)


def choose(
    oracle: StatisticOracle, names: Mapping[int, str], found: Mapping[int, Histogram], *, part: Fraction, most: int
) -> Choice:
    """At most `most` pairs of `names` (two or more coordinates), by one query that takes `part` of the budget.

    Beyond MOST_COLUMNS, those are compared that their histograms, `found`, divide most evenly; if equal, the first.
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
    """The stored value from which on a feature counts as above, and the share below: as near to half as can be."""
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


MOST_TERMS = 256
"""A basis of so many coordinates fits a query, whose size is limited (wire.query.MAX_QUERY_BYTES)."""

LEAST_INFORMATION = 15.0
"""mu times rows, over the geometric mean of coordinates and terms, from which on curves are worth what the first
answers about them cost, on the measured tables."""

PAIRS_INFORMATION = 2.4
"""How many times as much products of pairs need. On the measured tables those of all pairs gain where there is 2.9
times as much (0.3 to 1.3 points), and lose where there is 2 times or less (0.2 to 0.7 points)."""

LARGEST_NOISE = 0.25
"""Pairs are not chosen if honest parties' noise hides smaller scores than this, which few pairs of real tables reach.
For another `information` than `LEAST_INFORMATION` it is as much larger as that is smaller."""

FEWEST_PAIRS = 5
"""Nor are they if fewer than these fit or are afforded. If there are fewer pairs, none needs to be chosen."""

KNOTS_BESIDE_PAIRS = 2
"""Room for chosen pairs is counted with so many knots in each column, or fewer if the estimator has fewer."""

_FAR = 10**12
"""More rows than these are not named as what would be enough."""

USUAL_KNOTS, FOR_A_KNOT, MOST_FURTHER_KNOTS = 4, 8, 4
"""On the measured tables of numbers, 6 knots cost up to 0.9 points; beside 99 coordinates of categories 6 gain 0.05."""


@dataclass(frozen=True)
class PlannedPairs:
    """Pairs that a model is to have, as decided before anything is asked."""

    given: Pairs = ()
    """Pairs that have products in any case."""
    most: int = 0
    """How many are chosen from answers at most; 0: nothing is asked."""
    compared: tuple[int, ...] = ()
    """The coordinates among which they are chosen."""
    left_out: str | None = None
    """Why no pair has a product, though none was refused."""


@dataclass(frozen=True)
class Sizes:
    """What decides about pairs: the oracle, and parameters of the estimator."""

    oracle: StatisticOracle
    knots: int
    rounds: int
    information: float
    """As the estimator's parameter of that name."""
    part: Fraction
    """Part of the budget that choosing pairs takes."""

    def affords(self, terms: int, information: float) -> bool:
        """Whether the budget and the rows have this information for so many terms, or the rows are not known."""
        oracle = self.oracle
        return self._mu is None or self._mu * oracle.rows >= self._needed(terms, information)

    def enough(self, terms: int, information: float) -> list[str]:
        """From how many rows on, and from which epsilon on, `affords` is true: the other of the two as it is."""
        assert self._mu is not None, "without rows everything is afforded"
        oracle, needed = self.oracle, self._needed(terms, information)
        found = []
        if needed / self._mu <= _FAR:
            rows = math.ceil(needed / self._mu)
            rows += int(self._mu * rows < needed) - int(self._mu * (rows - 1) >= needed)
            found.append(f"from {rows:,} rows on")
        with suppress(PlanError):  # so little noise has no epsilon that bounds anything
            epsilon = gaussian_epsilon(needed / oracle.rows, oracle.delta).upper
            found.append(f"from epsilon {upper_digits(epsilon, 2)} on")
        return found

    def _needed(self, terms: int, information: float) -> float:
        """Mu times rows. Of k classes k / 2 times as much: each of them has its own weights.

        On wine_white, with seven, curves lose 2.6 points at two thirds of that; on surveys, with 11, they gain ten at
        five times.
        """
        classes = max(2, self.oracle.schema.label.classes)
        return information * math.sqrt(self.oracle.schema.d * terms) * classes / 2

    @cached_property
    def _mu(self) -> float | None:
        """Of the budget; None if it or the rows are not known."""
        oracle = self.oracle
        return gaussian_mu(oracle.epsilon, oracle.delta) if oracle.rows and oracle.delta else None

    def planned(self, pairs: bool | str | Sequence[Sequence[str]] | None, directions: Collection[int]) -> PlannedPairs:
        """What `pairs` of the estimator means here. Raises ConfigurationError if the pairs cannot be had."""
        schema = self.oracle.schema
        if isinstance(pairs, str | Sequence):
            return PlannedPairs(named_pairs(schema, pairs, directions))
        if schema.label.classes:
            return self._of_classes(bool(pairs))
        free = tuple(schema.coordinate(each.name) for each in schema.numbers)
        free = tuple(coordinate for coordinate in free if coordinate not in directions)
        every = tuple(combinations(free, 2))
        wanted = schema.label.coding.kind in ("signs", "number") if pairs is None else bool(pairs)
        if not every or not wanted:
            return PlannedPairs()
        beside = self.knots if len(every) >= FEWEST_PAIRS else min(self.knots, KNOTS_BESIDE_PAIRS)
        if count(schema, 0 if pairs else beside, every) > MOST_TERMS:
            return self._chosen(free, demanded=bool(pairs))
        terms = min(MOST_TERMS, count(schema, self.knots, every))
        needed = PAIRS_INFORMATION * self.information
        if pairs or self.affords(terms, needed):
            return PlannedPairs(every)
        enough = [f"there would be some {', or '.join(found)}"] if (found := self.enough(terms, needed)) else []
        products = "1 pair" if len(every) == 1 else f"{len(every)} pairs"
        return PlannedPairs(
            left_out=f"the model has no products: with those of {products} it would have {terms} terms, and "
            f"epsilon {float(self.oracle.epsilon):g} is too little for them with {self.oracle.rows} rows; "
            + "; ".join([*enough, "pairs can be named"])
        )

    def _of_classes(self, every: bool) -> PlannedPairs:
        """All pairs or none: the signs that choose among them are of two classes."""
        schema = self.oracle.schema
        if not every:
            return PlannedPairs()
        pairs = tuple(combinations((schema.coordinate(each.name) for each in schema.numbers), 2))
        if (terms := count(schema, 0, pairs)) > term_limit(schema):
            raise ConfigurationError(
                f"with {len(pairs)} pairs there are {terms} terms, and a model of {schema.label.words} has at most "
                f"{term_limit(schema)}; pairs are chosen by signs of a label of two classes: name the pairs"
            )
        return PlannedPairs(pairs)

    def _chosen(self, free: tuple[int, ...], *, demanded: bool) -> PlannedPairs:
        """Some of more pairs than fit; none unless the label has two classes, whose signs choose among them."""
        label, pairs = self.oracle.schema.label, math.comb(len(free), 2)
        if label.coding == SIGNS:
            return self._demanded(free) if demanded else self._worthwhile(free)
        why = f"the {pairs} pairs do not fit into {MOST_TERMS} terms, and signs choose pairs of two classes only"
        if demanded:
            raise ConfigurationError(f"{why}, not of {label.words}: name the pairs")
        return PlannedPairs(left_out=f"the model has no products: {why}; pairs can be named")

    def _demanded(self, free: tuple[int, ...]) -> PlannedPairs:
        """Pairs are chosen as many as fit, whatever it costs."""
        schema = self.oracle.schema
        rooms = [_room(schema, free, knots) for knots in range(min(self.knots, KNOTS_BESIDE_PAIRS), -1, -1)]
        most = next((room for room in rooms if room >= FEWEST_PAIRS), rooms[-1])
        if not most:
            raise ConfigurationError(
                f"{schema.d} coordinates leave no room for pairs, as a model has at most {MOST_TERMS} terms: set pairs "
                "to false, or give fewer columns"
            )
        if self.rounds < 4:
            raise ConfigurationError(
                f"rounds is {self.rounds}, and the {math.comb(len(free), 2)} pairs do not all fit: to choose among "
                "them takes one of the rounds, so give at least 4, or name the pairs"
            )
        return PlannedPairs((), most, free)

    def _worthwhile(self, free: tuple[int, ...]) -> PlannedPairs:
        """Pairs are chosen if that pays."""
        schema, oracle = self.oracle.schema, self.oracle
        most = _room(schema, free, min(self.knots, KNOTS_BESIDE_PAIRS))
        fits = most >= FEWEST_PAIRS
        while most >= FEWEST_PAIRS and not self.affords(self._terms(free, most), PAIRS_INFORMATION * self.information):
            most -= 1
        if not fits:
            why = f"{FEWEST_PAIRS} leave too few terms for curves"
        elif self.rounds < 4:
            why = "to choose among them takes 4 rounds or more"
        elif most < FEWEST_PAIRS or self._noise(len(free)) * self.information > LARGEST_NOISE * LEAST_INFORMATION:
            why = f"epsilon {float(oracle.epsilon):g} is too little to choose among them with {oracle.rows} rows"
        else:
            return PlannedPairs((), most, free)
        return PlannedPairs(
            left_out=f"the model has no products: the {math.comb(len(free), 2)} pairs do not fit into {MOST_TERMS} "
            f"terms, and {why}; pairs can be named"
        )

    def _terms(self, free: tuple[int, ...], pairs: int) -> int:
        """Terms of a model with so many pairs and as many knots as fit, or a few more."""
        return min(MOST_TERMS, _most_terms(self.oracle.schema, free, self.knots, pairs))

    def _noise(self, features: int) -> float:
        """The least score that is above the noise; 0 if the rows are not known."""
        if self._mu is None:
            return 0.0
        rows = self.oracle.rows
        return least_score(features, math.sqrt(choice_squared(features) / self.part) / (self._mu * rows), rows)


def term_limit(schema: Schema) -> int:
    """The most terms of a model: `MOST_TERMS`, of several classes at most `MOST_WEIGHTS` in all."""
    classes = schema.label.classes
    return min(MOST_TERMS, MOST_WEIGHTS // classes) if classes else MOST_TERMS


def count(schema: Schema, knots: int, pairs: Pairs) -> int:
    """Terms of a model and the bias, point masses left out."""
    real = {schema.coordinate(each.name) for each in schema.numbers}
    ramps = real & {coordinate for pair in pairs for coordinate in pair}
    return schema.d + len(real) * knots + len(ramps) + len(pairs)


def usual_knots(schema: Schema) -> int:
    """`USUAL_KNOTS`, and one more for each `FOR_A_KNOT` other coordinates for each real feature."""
    real = len(schema.numbers)
    others = schema.d - real - int(schema.bias)
    return USUAL_KNOTS + min(others // (FOR_A_KNOT * real), MOST_FURTHER_KNOTS) if real else USUAL_KNOTS


def named_pairs(schema: Schema, named: str | Sequence[Sequence[str]], directions: Collection[int]) -> Pairs:
    """The pairs that are named, in that order. Raises ConfigurationError unless each is of different features, once."""
    found: dict[frozenset[int], tuple[int, int]] = {}
    known: Mapping[str, int] = {each.name: schema.coordinate(each.name) for each in ordered_features(schema)}
    given = [pair.split("*") for pair in parts_of(named)] if isinstance(named, str) else named
    for pair in given:
        names = [name.strip() for name in pair] if isinstance(named, str) else list(pair)
        said = "*".join(pair)
        if len(names) != 2 or not set(names) <= known.keys() or names[0] == names[1]:
            wrong = next((name for name in names if name not in known), "")
            raise ConfigurationError(
                f"pairs names {said!r}: write pairs of two different real or boolean features, such as age*dose, "
                f"separated by commas; {known_names(wrong, list(known), marks=',*')}"
            )
        first, second = (known[name] for name in names)
        if frozenset((first, second)) in found:
            raise ConfigurationError(f"the pair {said!r} is given twice: give it once")
        if not {first, second}.isdisjoint(directions):
            raise ConfigurationError(
                f"the pair {said!r} has a feature with a direction, whose slope depends on no other: leave one out"
            )
        found[frozenset((first, second))] = first, second
    return tuple(found.values())


def _room(schema: Schema, free: tuple[int, ...], knots: int) -> int:
    """The most pairs of these coordinates that fit beside so many knots, whichever they are."""
    left = MOST_TERMS - count(schema, knots, ())
    # A pair is a term, and so is each column's ramp.
    most = max(min(left // 3, len(free) // 2), left - len(free), 0)
    return min(most, math.comb(len(free), 2))


def _most_terms(schema: Schema, free: tuple[int, ...], knots: int, pairs: int) -> int:
    """The most terms that a model with so many pairs of these coordinates can have."""
    return count(schema, knots, ()) + min(2 * pairs, len(free)) + pairs
