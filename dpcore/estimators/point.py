"""A point function over a category feature: +1 for rows of one value, -1 for all others.

The rows of each value and label are counted, in one release of mutually exclusive predicates (sensitivity 2), and the
value with the fewest errors by the counts is chosen (dpcore.research.pac.points).
"""

from fractions import Fraction

import numpy as np

from dpcore.errors import PlanError, SchemaError
from dpcore.estimators.base import Vector
from dpcore.estimators.counted_concepts import MOST_VALUES, CountedConcepts
from dpcore.estimators.oracle import StatisticOracle
from dpcore.estimators.query_learner import CLASSES, all_of
from dpcore.pac.counts import CountNoise
from dpcore.pac.guarantee import PacGuarantee
from dpcore.pac.point_counts import point_counts_guarantee, point_from_counts
from dpcore.predicates.expressions import Equals
from dpcore.records.features import nearest
from dpcore.records.schema import Schema


class PrivatePoint(CountedConcepts):
    """A point function, estimated from counts; see `CountedConcepts` for alpha, beta, agnostic, part and require_rows.

    feature: a category, of at most 4096 values. empty: the concept that is -1 everywhere may be chosen too. After
    `fit_queries`: `value_`, None for the empty concept.
    """

    def __init__(
        self,
        feature: str,
        *,
        empty: bool = False,
        alpha: float = 0.1,
        beta: float = 0.05,
        agnostic: bool = False,
        part: Fraction = Fraction(1),
        require_rows: bool = True,
    ) -> None:
        self.feature = feature
        self.empty = empty
        self.alpha = alpha
        self.beta = beta
        self.agnostic = agnostic
        self.part = part
        self.require_rows = require_rows

    def _learn(self, oracle: StatisticOracle) -> Vector:
        values = _values(oracle.schema, self.feature)
        self._concepts = len(values) + self.empty
        counts = self._count(
            oracle, [all_of((Equals(self.feature, value), label)) for label in reversed(CLASSES) for value in values]
        ).reshape(2, -1)
        # Pad to a power of two: with zero counts, whose concept is the empty one; else with copies of the last value's
        # counts, which lose ties to it.
        padding = ((0, 0), (0, (1 << self._bits) - len(values)))
        padded = np.pad(counts, padding) if self.empty else np.pad(counts, padding, mode="edge")
        chosen = point_from_counts(padded)
        self.value_ = values[chosen] if chosen < len(values) else None
        theta = np.zeros(oracle.schema.d)
        theta[-1] = -1.0
        if self.value_ is not None:
            theta[oracle.schema.coordinate(f"{self.feature}={self.value_}")] = 2.0
        return theta

    @property
    def _bits(self) -> int:
        return max(1, (self._concepts - 1).bit_length())

    def _promise(self, noise: CountNoise, epsilon: Fraction, delta: Fraction) -> PacGuarantee:
        return point_counts_guarantee(self._bits, self.alpha, self.beta, noise, epsilon, delta, agnostic=self.agnostic)


def _values(schema: Schema, name: str) -> tuple[str, ...]:
    features = {feature.name: feature for feature in schema.categories}
    if name not in features:
        known = nearest(name, features) if features else "it has none"
        raise SchemaError(f"schema {schema.name!r} has no category feature {name!r}; {known}")
    values = features[name].values
    if len(values) > MOST_VALUES:
        raise PlanError(
            f"feature {name!r} has {len(values)} values and at most {MOST_VALUES} can be counted: group them, or train "
            "on the rows themselves (dpcore.research.pac.points.learn_point takes 2^62)"
        )
    return values
