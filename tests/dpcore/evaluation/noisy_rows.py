"""Rows in one place as an oracle of statistics, without noise or with normal noise of the size that a budget has."""

import math
from fractions import Fraction

import numpy as np

from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import is_boolean
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

BITS = 20


class NoisyRows:
    """epsilon: None for exact answers."""

    delta = Fraction(1, 10**6)

    def __init__(self, schema: Schema, records: Records, epsilon: float | None = None, seed: int = 0) -> None:
        self.schema, self.records, self.rows = schema, records, records.rows
        self.epsilon, self._random = Fraction(epsilon or 1), np.random.default_rng(seed)
        self._is_exact = epsilon is None
        self.asked: list[tuple] = []

    def statistic(self, predicates, *, part=Fraction(1), confidence=0.95, feature_map=None, **_) -> Estimates:
        self.asked.append((tuple(predicates), part))
        bits = 0 if all(map(is_boolean, predicates)) else BITS
        found = np.ldexp(sums(predicates, self.schema, self.records, bits).astype(float), -bits)
        deviation = 0.0 if self._is_exact else math.sqrt(2) * batch_sensitivity(predicates).l1 / self.epsilon / part
        found = found + self._random.normal(size=len(found)) * float(deviation)
        rounded = 2.0**-bits if bits else 0.0
        return Estimates(found / self.rows, self.rows, confidence, 0.0, rounded, 0.0, float(deviation) / self.rows)
