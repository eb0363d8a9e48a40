"""Held-back rows: a party divides its rows into a training part and a held-back part, by a secret key.

A query names a share s and one of the two parts. A row is held back if its number u < ceil(s 2^64), a pseudorandom
function, under a key of the party, of the row's id or place. So its side is the same in every query with this s. A
larger share holds back these rows and more.

A part may be cut, by the same numbers, into k pieces of equal probability, of which each row is in one: fresh rows for
each of k questions.

    key      = HKDF-SHA256(the party's secret, no salt, 32 bytes,
                           info = "rado.v1/held-back" || 00 || purpose || 00 || names)
    names    = u32(|x|) || x for x = federation, party, data source, in UTF-8
    by id    u = the first 8 bytes of HMAC-SHA256(key of the purpose "id", id), big-endian
    by place u = bytes 8 i to 8 i + 7 of AES-256-CTR(key of "place", zero counter), little-endian, for row i from 0

A row outside the part contributes what a row that is not usable does: zero. A bound for the replacement of one record
holds for a part's answers, by id for any key, by place for answers from one table while the key is secret.

By id, both parts of one load of a table cost the larger of them, or what a record costs that changes sides
(parties.ledger.limits). By place both are charged in full. Estimators divide by p m, p = 1 - s or s, without bias.

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
MOST_PIECES = 1 << 16
"""Most pieces that a part is cut into."""


class Part(StrEnum):
    """One of the two parts of a party's rows."""

    TRAINING = "training"
    HELD_BACK = "held-back"


@dataclass(frozen=True)
class HeldBack:
    """The part of the rows that a query is about, or a piece of it. Raises PlanError."""

    share: Fraction
    """s, the share that each party holds back. 0 only for a piece of all rows."""
    part: Part
    pieces: int = 0
    """k, the number of pieces of equal probability that the part is cut into; 0 if it is whole."""
    piece: int = 0
    """Which of them, from 0."""

    def __post_init__(self) -> None:
        is_piece_of_all = self.share == 0 and self.part is Part.TRAINING and self.pieces > 0
        if not is_piece_of_all:
            check_rational("the share of rows that is held back", self.share)
        if self.share >= 1:
            raise PlanError(f"the share of rows that is held back is {self.share}: choose one between 0 and 1")
        if self.pieces == self.piece == 0:
            return
        if not 2 <= self.pieces <= MOST_PIECES or not 0 <= self.piece < self.pieces:
            raise PlanError(
                f"piece {self.piece} of {self.pieces}: cut rows into 2 to {MOST_PIECES} pieces, counted from 0"
            )

    @classmethod
    def piece_of(cls, whole: "HeldBack | None", pieces: int, piece: int) -> "HeldBack":
        """Piece number `piece` of `pieces` of a part; None stands for all rows. Raises PlanError."""
        share, part = (Fraction(0), Part.TRAINING) if whole is None else (whole.share, whole.part)
        return cls(share, part, pieces, piece)

    @property
    def chance(self) -> Fraction:
        """p, the probability that a row is in the part, or in the piece: 1 - s or s, over k."""
        whole = self.share if self.part is Part.HELD_BACK else 1 - self.share
        return whole / max(1, self.pieces)

    def rows(self, rows: int) -> int:
        """The number of rows to divide by: p times `rows`, rounded, at least 1 (`Estimates.quantisation`); or 0."""
        return max(1, round(self.chance * rows)) if rows else 0

    def rows_deviation(self, rows: int) -> float:
        """Standard deviation of the number of rows in the part, of `rows` with distinct ids or places."""
        return sqrt(self.chance * (1 - self.chance) * rows)

    def is_disjoint(self, other: "HeldBack | None") -> bool:
        """Whether no row is in both, whatever the key; None stands for all rows."""
        if other is None:
            return False
        (first, end), (other_first, other_end) = self.numbers, other.numbers
        return end <= other_first or other_end <= first

    def contains(self, numbers: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether the rows with these numbers are in the part: bool (m,)."""
        first, end = self.numbers
        # first is below 2^64 up to shares within 2^-47 of 1: then the piece has no number.
        found = numbers >= np.uint64(first) if first >> _BITS == 0 else np.zeros(numbers.shape, dtype=np.bool_)
        return found if end >> _BITS else found & (numbers < np.uint64(end))

    @property
    def numbers(self) -> tuple[int, int]:
        """The numbers that its rows have: from the first to below the second."""
        start = Fraction(0) if self.part is Part.HELD_BACK else self.share
        first, end = (ceil((start + place * self.chance) * (1 << _BITS)) for place in (self.piece, self.piece + 1))
        return first, end

    def to_dict(self) -> dict[str, str]:
        """For JSON."""
        piece = {"pieces": str(self.pieces), "piece": str(self.piece)} if self.pieces else {}
        return {"share": str(self.share), "part": self.part.value, **piece}

    def words(self) -> str:
        """The part in words."""
        if not self.pieces:
            return self._part_words
        rows = "all rows" if self.share == 0 else self._part_words
        return f"piece {self.piece + 1} of {self.pieces} of {rows}"

    @property
    def _part_words(self) -> str:
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

    @property
    def name(self) -> str:
        """What identifies the key and tells nothing about it."""
        return self._key(b"name").hex()

    def of_places(self, rows: int) -> NDArray[np.uint64]:
        """The numbers of rows 0 to `rows` - 1, by place: (rows,)."""
        stream = KeyedRandom(self._key(b"place")).bytes(8 * rows)
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)

    def of_ids(self, ids: Iterable[str]) -> NDArray[np.uint64]:
        """The numbers of rows with these ids: equal ids have equal numbers."""
        key = self._key(b"id")
        found = (int.from_bytes(hmac.digest(key, text.encode(), "sha256")[:8], "big") for text in ids)
        return np.fromiter(found, dtype=np.uint64)

    @property
    def check(self) -> bytes:
        """16 bytes by which numbers of this key and of others are told apart."""
        return self._key(b"check")[:16]

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
