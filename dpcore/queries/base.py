"""What every kind of question is: a sum over records of bounded integer vectors."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcore.rados.edges import Records
from dpcore.randomness import RandomSource

Progress = Callable[[int, int], None]
"""Told (done, of how many) now and then while a contribution is computed."""

Decoded_co = TypeVar("Decoded_co", covariant=True)


class SumQuery(Protocol[Decoded_co]):
    """One kind of sum query: contribution, bound, decoding. Nothing else of the path knows the kind."""

    def length(self, d: int) -> int:
        """Values of one contribution, for records of d coordinates."""
        ...

    def largest_sum(self, max_rows: int, fraction_bits: int) -> int:
        """A bound on the magnitude of every value, summed over all parties with max_rows rows altogether."""
        ...

    def contribution(
        self, records: Records, fraction_bits: int, random: RandomSource, progress: Progress | None = None
    ) -> NDArray[np.int64]:
        """This party's sum over its records: int64 (length,), in units of 2^-fraction_bits."""
        ...

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> Decoded_co:
        """The answer that a total over all parties stands for."""
        ...
