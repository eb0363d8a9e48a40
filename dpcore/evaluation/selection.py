"""Private selection: which of k public candidates has the greatest score on the federation's rows.

A candidate's score is a positive weight times the share of rows for which its predicate holds (the mean of its values
in [0, 1]). All scores are one statistical query, and the choice is post-processing of its noisy answer.

The learner opens the total and sees every noisy score. So the accounting of report-noisy-max and of the exponential
mechanism, which reveal the index only, does not apply: the cost is that of the vector. `Selection.central_epsilon` says
what a curator would need for the same bound. Proof: docs/explanation/proofs.md, "Private selection".
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.errors import ConfigurationError
from dpcore.estimators.oracle import WHOLE, StatisticOracle
from dpcore.evaluation.scores import linear_scores
from dpcore.numbers.rationals import upper
from dpcore.predicates.expressions import And, LabelIs, Or, Predicate
from dpcore.predicates.frontend import as_predicate
from dpcore.predicates.notation import parse
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

MOST_CANDIDATES = 1 << 12

Candidate = TypeVar("Candidate")
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Selection:
    """The choice among k candidates by their noisy scores, and how far it may be from the best."""

    estimates: Estimates = field(repr=False)
    """Of the shares, (k,): one for each candidate, in the order in which they were given."""
    weights: Floats
    """(k,), positive: a score is its weight times its share."""
    asked: tuple[int, ...]
    """For each candidate the number of its predicate: equal ones are asked once."""

    @property
    def distinct(self) -> int:
        """How many predicates were asked."""
        return len(set(self.asked))

    @cached_property
    def scores(self) -> Floats:
        """The noisy scores, (k,)."""
        scores: Floats = self.weights * self.estimates.values
        return scores

    @cached_property
    def chosen(self) -> int:
        """The index of the greatest noisy score, the first among equals."""
        return int(np.argmax(self.scores))

    @property
    def regret_on_rows(self) -> float:
        """With probability >= `confidence` the best score on the rows is at most this above the chosen one."""
        return self._regret(self.estimates.noise + self.estimates.quantisation)

    @property
    def regret_on_distribution(self) -> float:
        """The same for the expectations under the distribution that the rows were drawn from independently."""
        return self._regret(self.estimates.tolerance)

    @property
    def most_regret_on_rows(self) -> float:
        """The bound on `regret_on_rows` before scores are seen: two half-widths, the widest."""
        return self._largest_two * (self.estimates.noise + self.estimates.quantisation)

    @cached_property
    def contenders(self) -> tuple[int, ...]:
        """The candidates that may be the best on the rows, at `confidence`; equal ones once."""
        width = self.estimates.noise + self.estimates.quantisation
        least = float(np.max(self.scores - self.weights * width))
        may_be = np.flatnonzero(self.scores + self.weights * width >= least).tolist()
        first = {(self.asked[place], self.weights[place]): place for place in reversed(may_be)}
        return tuple(sorted({**first, (self.asked[self.chosen], self.weights[self.chosen]): self.chosen}.values()))

    @property
    def central_epsilon(self) -> float | None:
        """The epsilon at which a curator's exponential mechanism has the bound `most_regret_on_rows`; None without one.

        With probability >= 1 - b its choice is within 2 S ln(k / b) / epsilon of the best sum, S the largest weight
        (McSherry and Talwar, FOCS 2007); permute-and-flip's expected score is never lower. b is the failure that the
        noise has here, half of all.
        """
        bound = self.most_regret_on_rows * self.estimates.rows
        if bound <= 0.0:
            return None
        failure = (1.0 - self.estimates.confidence) / 2.0
        return 2.0 * float(self.weights.max()) * math.log(self.distinct / failure) / bound

    def to_dict(self, names: Sequence[str], *, unseen: bool = True) -> dict[str, Any]:
        """For JSON. names: of the candidates; unseen: whether they were made without the rows."""
        candidates = [
            {"candidate": name, "weight": weight, "score": score}
            for name, weight, score in zip(names, self.weights.tolist(), self.scores.tolist(), strict=True)
        ]
        return {
            "chosen": names[self.chosen],
            "regret_on_rows": self.regret_on_rows,
            "regret_on_distribution": self.regret_on_distribution if unseen else None,
            "contenders": [names[place] for place in self.contenders],
            "candidates": candidates,
            "rows": self.estimates.rows,
            "confidence": self.estimates.confidence,
            "central_epsilon": self.central_epsilon,
        }

    def sentences(self, names: Sequence[str], *, unseen: bool = True) -> list[str]:
        """The choice and its certainty, in words. Arguments as of `to_dict`."""
        least = f"with probability at least {self.estimates.confidence:g}"
        found = [f"chosen: {names[self.chosen]}"]
        if self.regret_on_rows == 0.0:
            found.append(f"on these rows no other has a better score, {least}")
        else:
            count = len(self.contenders)
            found.append(
                f"on these rows the best score is at most {upper(self.regret_on_rows, 5)} higher, {least}: the noise "
                f"leaves {count} candidates that may be the best"
            )
        if unseen:
            found.append(f"for new rows it is at most {upper(self.regret_on_distribution, 5)} higher, {least}")
        else:
            found.append("nothing is claimed for new rows, as the candidates may have been made from these")
        if self.central_epsilon is not None:
            found.append(
                "all noisy scores are revealed and paid for; a curator who reveals the choice alone needs about "
                f"epsilon {self.central_epsilon:.2g} for the same bound"
            )
        return found

    @property
    def _largest_two(self) -> float:
        return float(np.sort(self.weights)[-2:].sum())

    def _regret(self, width: float) -> float:
        values, chosen = self.estimates.values, self.chosen
        above = self.scores + self.weights * width - (self.scores[chosen] - self.weights[chosen] * width)
        # The same answer has the same error.
        same = np.array(self.asked) == self.asked[chosen]
        above[same] = ((self.weights - self.weights[chosen]) * max(0.0, float(values[chosen]) + width))[same]
        return max(0.0, float(above.max()))


def select(
    candidates: Sequence[Candidate],
    oracle: StatisticOracle,
    score: Callable[[Candidate], Predicate | str] | None = None,
    *,
    weights: Sequence[float] | None = None,
    tolerance: float | None = None,
    confidence: float = 0.95,
    part: Fraction = WHOLE,
    feature_map: FeatureMap | None = None,
) -> Selection:
    """The candidate with the greatest score on the federation's rows; one release.

    - score: a candidate's predicate or its text; None if candidates are predicates. To minimise, give the complement.
    - weights: positive, one for each candidate, such as prices; None for equal ones.
    - tolerance: the most that the best expectation may be above the chosen one; refused before any query if the stated
      rows cannot keep it.

    Raises ConfigurationError for fewer than two different candidates, and as `oracle.statistic`.
    """
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        raise ConfigurationError("candidates are a list: write [first, second]")
    if len(candidates) > MOST_CANDIDATES:
        raise ConfigurationError(f"there are {len(candidates)} candidates: give at most {MOST_CANDIDATES}")
    predicates = [_predicate(candidate if score is None else score(candidate)) for candidate in candidates]
    factors = _checked_weights(weights, len(candidates))
    places: dict[Predicate, int] = {}
    asked = tuple(places.setdefault(predicate, len(places)) for predicate in predicates)
    if len(set(zip(asked, factors.tolist(), strict=True))) < 2:
        what = "there is no candidate" if not candidates else "there is one candidate, or all are the same"
        raise ConfigurationError(f"{what}, so nothing is asked: give at least two different candidates")
    width = None if tolerance is None else tolerance / float(np.sort(factors)[-2:].sum())
    if width is not None and not width > 0.0:
        raise ConfigurationError(f"tolerance is {tolerance}: give a number above 0")
    estimates = oracle.statistic(
        predicates,
        part=part,
        # A share is never wrong by 1 or more.
        tolerance=None if width is None or width >= 1.0 else width,
        confidence=confidence,
        feature_map=feature_map,
    )
    return Selection(estimates, factors, asked)


def is_right(theta: ArrayLike, schema: Schema, feature_map: FeatureMap | None = None) -> Predicate:
    """A model's score: its prediction sign(theta . x) is the label. Raises as `dpcore.evaluation.evaluation.evaluate`.

    A row that is not usable counts as wrong for every model.
    """
    # Checks theta.
    linear_scores(theta, schema, np.array([0.0, 1.0]), feature_map)
    most = float(np.abs(np.asarray(theta, dtype=np.float64)).sum()) or 1.0
    scores = linear_scores(theta, schema, np.array([0.0, most]), feature_map)
    return Or(
        (
            And((LabelIs(positive=True), scores.positive(predicted=True))),
            And((LabelIs(positive=False), scores.positive(predicted=False))),
        )
    )


def _predicate(given: object) -> Predicate:
    return parse(given) if isinstance(given, str) else as_predicate(given)


def _checked_weights(weights: Sequence[float] | None, count: int) -> Floats:
    factors = np.ones(count) if weights is None else np.asarray(weights, dtype=np.float64)
    if factors.shape != (count,):
        raise ConfigurationError(f"there are {len(factors)} weights of {count} candidates: give one for each")
    if not (np.isfinite(factors) & (factors > 0.0)).all():
        raise ConfigurationError("a weight is not a finite number above 0: leave out candidates that are worth nothing")
    return factors
