"""The statistic query: each record gives the values of M predicates, every one of them in [0, 1]."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.noise_shares import NoiseShares
from dpcore.errors import PlanError
from dpcore.predicates.checking import check
from dpcore.predicates.disjoint import Sensitivity, batch_sensitivity
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import Predicate, is_boolean
from dpcore.queries.base import Crowd
from dpcore.records.computation import Computation
from dpcore.records.records import Records
from dpcore.records.schema import Schema

MOST_FRACTION_BITS = 20


@dataclass(frozen=True)
class StatisticQuery:
    """Sums of M predicates over the records, with noise on every sum.

    predicates: typed against `schema`. noise: each party's share of the noise on each sum, in integer units.

    A contribution holds, for each predicate in order, the sum of floor(phi(x, y) 2^f). Where all predicates are Boolean
    nothing is rounded, whatever f is, and 0 is best.

    Sensitivity: 2^f times that of the batch, in L1 and L2: `sensitivity`. Proof: dpcore.predicates.disjoint.

    Raises PredicateError where a predicate does not fit the schema or is too deep or too large.
    """

    predicates: tuple[Predicate, ...]
    schema: Schema = field(repr=False)
    noise: NoiseShares

    def __post_init__(self) -> None:
        check(self.predicates, self.schema)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Of the batch, for values in [0, 1]."""
        return batch_sensitivity(self.predicates)

    @cached_property
    def is_boolean(self) -> bool:
        """Whether every value is 0 or 1."""
        return all(is_boolean(predicate) for predicate in self.predicates)

    def length(self, d: int) -> int:  # noqa: ARG002  (a kind of query that does not grow with d)
        """M."""
        return len(self.predicates)

    def shape(self, d: int) -> tuple[int, ...]:
        """(M,): in the order of the predicates."""
        return (self.length(d),)

    def largest_sum(self, crowd: Crowd, fraction_bits: int) -> int:
        """2^f for every row, and what the noise exceeds with probability 2^-64. Raises PlanError from fraction_bits."""
        rows_units = crowd.rows << _checked(fraction_bits)
        return rows_units + self.noise.tail_bound(crowd.parties, len(self.predicates))

    def contribution(self, records: Records, fraction_bits: int, computation: Computation) -> NDArray[np.int64]:
        """This party's sums and its share of the noise: int64 (M,)."""
        # Predicates are fastest on one thread.
        exact = sums(self.predicates, self.schema, records, _checked(fraction_bits), computation.progress)
        return exact + self.noise.draw(len(exact), computation.random)

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> NDArray[np.float64]:
        """The sums over all records in real units: (M,)."""
        return np.ldexp(total.astype(np.float64), -fraction_bits)


def _checked(fraction_bits: int) -> int:
    if not 0 <= fraction_bits <= MOST_FRACTION_BITS:
        raise PlanError(f"fraction_bits is {fraction_bits}: statistics take 0 to {MOST_FRACTION_BITS}")
    return fraction_bits
