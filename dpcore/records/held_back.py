"""Held-back rows: a party divides its rows into a training part and a held-back part, by a secret key.

A query names a share s and one of the two parts. A row is held back if its number u < ceil(s 2^64), a pseudorandom
function, under a key of the party, of the row's id or place. So its side is the same in every query with this s. A
larger share holds back these rows and more.

    key      = HKDF-SHA256(the party's secret, no salt, 32 bytes,
                           info = "rado.v1/held-back" || 00 || purpose || 00 || names)
    names    = u32(|x|) || x for x = federation, party, data source, in UTF-8
    by id    u = the first 8 bytes of HMAC-SHA256(key of the purpose "id", id), big-endian
    by place u = bytes 8 i to 8 i + 7 of AES-256-CTR(key of "place", zero counter), little-endian, for row i from 0

A row outside the part contributes zero. A bound for the replacement of one record holds for a part's answers, by id for
any key, by place for answers from one table while the key is secret. Both parts are charged, never as disjoint.
Estimators divide by p m, p = 1 - s or s, without bias.

Assumes that HMAC-SHA256, HKDF-SHA256 and AES-256 in counter mode are pseudorandom. Proof:
docs/explanation/proofs.md, "Held-back rows".
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from math import ceil, sqrt

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from dpcore.errors import PlanError
from dpcore.numbers.rationals import check_rational
from dpcore.randomness.sources import KeyedRandom
from dpcore.records.records import Records

_DOMAIN = b"rado.v1/held-back\0"
_BITS = 64


class Part(StrEnum):
    """One of the two parts of a party's rows."""

    TRAINING = "training"
    HELD_BACK = "held-back"


@dataclass(frozen=True)
class HeldBack:
    """The part of the rows that a query is about. Raises PlanError if the share is not between 0 and 1."""

    share: Fraction
    """s, the share that each party holds back."""
    part: Part

    def __post_init__(self) -> None:
        check_rational("the share of rows that is held back", self.share)
        if self.share >= 1:
            raise PlanError(f"the share of rows that is held back is {self.share}: choose one between 0 and 1")

    @property
    def chance(self) -> Fraction:
        """p, the probability that a row is in the part: 1 - s or s."""
        return self.share if self.part is Part.HELD_BACK else 1 - self.share

    def rows(self, rows: int) -> int:
        """The number of rows to divide by: p times `rows`, rounded, at least 1 (`Estimates.quantisation`); or 0."""
        return max(1, round(self.chance * rows)) if rows else 0

    def rows_deviation(self, rows: int) -> float:
        """Standard deviation of the number of rows in the part, of `rows` with distinct ids or places."""
        return sqrt(self.chance * (1 - self.chance) * rows)

    def contains(self, numbers: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether the rows with these numbers are in the part: bool (m,)."""
        # At most 2^64 - 1: the share is below 1, and its denominator below 2^63.
        first_kept = np.uint64(ceil(self.share * (1 << _BITS)))
        return numbers < first_kept if self.part is Part.HELD_BACK else numbers >= first_kept

    def to_dict(self) -> dict[str, str]:
        """For JSON."""
        return {"share": str(self.share), "part": self.part.value}

    def words(self) -> str:
        """The part in words."""
        share = f"{float(self.share):.6g}"
        if self.part is Part.HELD_BACK:
            return f"the part of the rows that each party holds back, a share of {share}"
        return f"the rows without those that each party holds back, a share of {share}"


@dataclass(frozen=True)
class RowKey:
    """The key of one party's row numbers, for one federation and data source. Held by the party only."""

    secret: bytes = field(repr=False)
    """The party's secret, at least 32 bytes."""
    federation: str
    party: str
    source: str
    """The name of the data."""

    def of_places(self, rows: int) -> NDArray[np.uint64]:
        """The numbers of rows 0 to `rows` - 1, by place: (rows,)."""
        stream = KeyedRandom(self._key(b"place")).bytes(8 * rows)
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)

    def of_ids(self, ids: Iterable[str]) -> NDArray[np.uint64]:
        """The numbers of rows with these ids: equal ids have equal numbers."""
        key = self._key(b"id")
        found = (int.from_bytes(hmac.digest(key, text.encode(), "sha256")[:8], "big") for text in ids)
        return np.fromiter(found, dtype=np.uint64)

    def _key(self, purpose: bytes) -> bytes:
        names = (name.encode() for name in (self.federation, self.party, self.source))
        info = _DOMAIN + purpose + b"\0" + b"".join(len(name).to_bytes(4, "big") + name for name in names)
        return HKDF(SHA256(), 32, None, info).derive(self.secret)


@dataclass(frozen=True)
class RowNumbers:
    """The numbers of a party's rows. by_id: (m,), for rows with ids; None to number them by their places."""

    key: RowKey
    by_id: NDArray[np.uint64] | None = field(default=None, repr=False)

    def part_of(self, records: Records, held_back: HeldBack) -> Records:
        """The records, of which those outside the part are not usable. Raises ShapeError if numbers are missing."""
        numbers = self.key.of_places(records.rows) if self.by_id is None else self.by_id
        return records.only(held_back.contains(numbers))
