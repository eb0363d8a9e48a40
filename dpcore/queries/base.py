"""What every kind of question is: a sum over records of bounded integer vectors."""

from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.progress import Progress
from dpcore.randomness.sources import RandomSource
from dpcore.records.records import Records
from dpcore.records.row_sums import RowSums, sum_on_threads

SECRET_BYTES = 32

Decoded_co = TypeVar("Decoded_co", covariant=True)


@dataclass(frozen=True)
class Crowd:
    """The most that a query is planned for: `rows` over all parties, `parties`, and d coordinates of a record."""

    rows: int
    parties: int
    d: int


@dataclass(frozen=True)
class Keyed:
    """What a party's repeatable draws derive from: one-bit rounding, and the noise of a noised table.

    secret: at least 32 bytes that the party keeps for the life of its data, and tells nobody. schema_digest: of the
    schema that the records are encoded by. Raises ConfigurationError where the secret is shorter.
    """

    secret: bytes = field(repr=False)
    schema_digest: bytes

    def __post_init__(self) -> None:
        if len(self.secret) < SECRET_BYTES:
            raise ConfigurationError(f"a party's secret has {len(self.secret)} bytes; it needs {SECRET_BYTES} or more")


class SumQuery(Protocol[Decoded_co]):
    """One kind of sum query: contribution, bound, decoding. Nothing else of the path knows the kind."""

    def length(self, d: int) -> int:
        """Values of one contribution, for records of d coordinates."""
        ...

    def largest_sum(self, crowd: Crowd, fraction_bits: int) -> int:
        """A bound on the magnitude of every value, summed over all parties.

        Where the query has noise, it is exceeded with a probability of at most 2^-64.
        """
        ...

    def contribution(
        self,
        records: Records,
        fraction_bits: int,
        random: RandomSource,
        progress: Progress | None = None,
        keyed: Keyed | None = None,
        row_sums: RowSums = sum_on_threads,
    ) -> NDArray[np.int64]:
        """This party's sum over its records, its share of the noise included: int64 (length,).

        In units of 2^-fraction_bits, but for what the kind says otherwise. keyed: needed where a draw is repeatable.
        row_sums: who adds up, where there are many rows; it changes nothing of what is drawn or added.
        """
        ...

    def shape(self, d: int) -> tuple[int, ...]:
        """The shape in which a total's integers are kept; its product is the length."""
        ...

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> Decoded_co:
        """The answer that a total over all parties stands for."""
        ...
