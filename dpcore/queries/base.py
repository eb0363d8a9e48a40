"""The interface of every kind of query: a sum over records of bounded integer vectors."""

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcore.records.computation import Computation
from dpcore.records.records import Records

MAX_VALUES = 1 << 28
"""The most values that one query may ask for."""

MAX_PARTIES = 1 << 16
"""The most parties that one query may be planned for."""

Decoded_co = TypeVar("Decoded_co", covariant=True)


@dataclass(frozen=True)
class QueryLimits:
    """The most that a query is planned for: `rows` over all parties, `parties`, and d coordinates of a record."""

    rows: int
    parties: int
    d: int


class SumQuery(Protocol[Decoded_co]):
    """One kind of sum query: contribution, bound, decoding. The rest of the pipeline does not depend on the kind."""

    def length(self, d: int) -> int:
        """Number of values of one contribution, for records of d coordinates."""
        ...

    def largest_sum(self, limits: QueryLimits, fraction_bits: int) -> int:
        """A bound on the magnitude of every value, summed over all parties.

        If the query adds noise, a value exceeds the bound with probability at most 2^-64.
        """
        ...

    def contribution(self, records: Records, fraction_bits: int, computation: Computation) -> NDArray[np.int64]:
        """This party's sum over its records, including its share of the noise: int64 (length,).

        In units of 2^-fraction_bits, unless the kind defines other units.
        """
        ...

    def shape(self, d: int) -> tuple[int, ...]:
        """The shape of a total's integers; the product of its dimensions is the length."""
        ...

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> Decoded_co:
        """The answer encoded by a total over all parties."""
        ...
