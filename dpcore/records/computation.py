"""What a party's computation over its records uses: randomness, its secret, row sums and progress."""

import hmac
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.progress import Progress
from dpcore.randomness.sources import RandomSource
from dpcore.records.held_back import RowNumbers
from dpcore.records.records import Records
from dpcore.records.row_sums import RowPart, RowSums, sum_on_threads

SECRET_BYTES = 32
_DATA = b"rado.v1/data-digest\0"


@dataclass(frozen=True)
class PartySecret:
    """The secret of a party's pseudorandom function (HMAC-SHA-256), from which its repeatable draws derive.

    One-bit rounding and the noise of a noised table repeat their draws. secret: at least 32 bytes that the party keeps
    for the lifetime of its data and shares with no one. schema_digest: digest of the schema that encodes the records.

    Raises ConfigurationError if the secret is shorter.
    """

    secret: bytes = field(repr=False)
    schema_digest: bytes

    def __post_init__(self) -> None:
        if len(self.secret) < SECRET_BYTES:
            raise ConfigurationError(f"a party's secret has {len(self.secret)} bytes; it needs {SECRET_BYTES} or more")

    def key(self, domain: bytes, message: bytes) -> bytes:
        """The 32-byte key for one purpose under this schema. domain: unique to the purpose, ends in a zero byte."""
        return hmac.digest(self.secret, domain + self.schema_digest + message, "sha256")

    def data_digest(self, digest: bytes) -> str:
        """What identifies the party's data to its people: 64 hexadecimal digits, which confirm no guess of the rows.

        digest: of the rows. Equal rows have equal digits at one party, and others at another party.
        """
        return self.key(_DATA, digest).hex()


@dataclass(frozen=True)
class Computation:
    """The inputs of a party's contribution to a query, besides its records. Each kind uses those that it needs.

    random: source of noise and rado signatures; the operating system's at a node. secret: for draws that repeat.
    row_sums: sums over rows, on threads or on the party's cluster; it does not change the result. progress: callback
    `(rows done, m_p)`, which may raise to stop the computation. numbers: the rows' numbers, for a part of the rows.
    """

    random: RandomSource
    secret: PartySecret | None = None
    row_sums: RowSums = sum_on_threads
    progress: Progress | None = None
    numbers: RowNumbers | None = None

    def total(self, part: RowPart, records: Records) -> NDArray[np.int64]:
        """The sum of a part over all rows: int64, `part.shape`."""
        return self.row_sums(part, records, self.progress)
