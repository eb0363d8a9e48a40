"""What every kind of question is: a sum over records of bounded integer vectors."""

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
    """One kind of sum query: contribution, bound, decoding. Nothing else of the path knows the kind."""

    def length(self, d: int) -> int:
        """Values of one contribution, for records of d coordinates."""
        ...

    def largest_sum(self, limits: QueryLimits, fraction_bits: int) -> int:
        """A bound on the magnitude of every value, summed over all parties.

        Where the query has noise, it is exceeded with a probability of at most 2^-64.
        """
        ...

    def contribution(self, records: Records, fraction_bits: int, computation: Computation) -> NDArray[np.int64]:
        """This party's sum over its records, its share of the noise included: int64 (length,).

        In units of 2^-fraction_bits, unless the kind says otherwise.
        """
        ...

    def shape(self, d: int) -> tuple[int, ...]:
        """The shape in which a total's integers are kept; its product is the length."""
        ...

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> Decoded_co:
        """The answer that a total over all parties stands for."""
        ...
