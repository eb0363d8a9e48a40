"""One-bit rounding of real-valued sensitive coordinates.

A random sign with the value as its mean replaces the value, so the edge's coordinate is coded -1/+1 as DP-FEAT needs.
E[b^2] = 1, not x^2: estimators correct the diagonal (RadoDistribution).

The sign is drawn by a keyed function, under a key of the party's secret, schema and feature, of the record's content,
so repeated queries do not average the rounding away.

The keyed function is the last block of AES-256 in CBC mode. On records of one length it differs from a random function
by at most 2 q^2 l^2 / 2^128 for q records of l blocks, plus the advantage against AES-256 (Bellare, Kilian and Rogaway,
JCSS 61(3), 2000, Theorem 3.1): 2^-66 for 10^8 records of 63 coordinates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from dpcore.numbers.fixed_point import ONE
from dpcore.rados.compiled import draw_signs, mix_contents
from dpcore.records.computation import RUN_BLOCKS, PartySecret, on_threads
from dpcore.records.records import BLOCK_ROWS, Records

# The number changes with the keyed function: another one under the same key would give a record another sign.
_ROUNDING = b"rado.v1/one-bit-rounding/2\0"

# Words in a block of AES, each of them a coordinate.
_BLOCK_WORDS = 4
_BLOCK_BYTES = 16

# The unit of work for threads.
_RUN_ROWS = BLOCK_ROWS * RUN_BLOCKS


def rounded(records: Records, coordinates: Sequence[int], secret: PartySecret) -> Records:
    """The records with these coordinates replaced by their signs; rows that are not usable get 0 there.

    The place distinguishes records of the same content. Exact: 31 bits of the code are compared with the value.
    """
    keys = {coordinate: secret.key(_ROUNDING, coordinate.to_bytes(8, "big")) for coordinate in coordinates}
    signs = {coordinate: _signs(records, coordinate, key) for coordinate, key in keys.items()}
    return records.holding(RoundedFeatures(records.features, signs))


class RoundedFeatures:
    """Features, (m, d) int32, of which some coordinates are replaced by their signs whenever rows are read.

    So a party keeps no second copy of its rows. A slice of rows is another such object; whatever else NumPy takes from
    it or makes of it is an array.
    """

    dtype, ndim, itemsize = np.dtype(np.int32), 2, 4

    def __init__(self, features: NDArray[np.int32], signs: Mapping[int, NDArray[np.int8]]) -> None:
        """signs: of each rounded coordinate, (m,): -1 or 1, 0 for a row that is not usable."""
        self.shape, self._features, self._signs = features.shape, features, signs

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return RoundedFeatures(self._features[index], {at: signs[index] for at, signs in self._signs.items()})
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        columns = list(columns) if isinstance(columns, tuple) else columns
        found, places = np.array(self._features[rows][..., columns]), np.arange(self.shape[1])[columns]
        for coordinate, signs in self._signs.items():
            found[..., places == coordinate] = (signs[rows] * np.int32(ONE))[..., np.newaxis]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("rounded features are no array in memory: allow a copy")
        return np.asarray(self[:, :], dtype=dtype)


def _ready(features: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.require(features, requirements=("C", "A"))


def _runs(rows: int) -> list[slice]:
    return [slice(first, min(first + _RUN_ROWS, rows)) for first in range(0, rows, _RUN_ROWS)]


def _signs(records: Records, coordinate: int, key: bytes) -> NDArray[np.int8]:
    """The sign of each record, 0 for those that are not usable: int8 (m,)."""
    codes, signs = _codes(records, key), np.empty(records.rows, dtype=np.int8)

    def draw(rows: slice) -> None:
        here = records.between(rows.start, rows.stop)
        draw_signs(_ready(here.features), coordinate, np.ascontiguousarray(here.usable), codes[rows], signs[rows])

    list(on_threads(draw, _runs(records.rows)))
    return signs


def _codes(records: Records, key: bytes) -> NDArray[np.uint32]:
    """A uniform integer in [0, 2^31) for each record: uint32 (m,)."""
    contents, codes = np.empty((2, records.rows), dtype=np.uint64), np.empty(records.rows, dtype=np.uint32)

    def digest(run: slice) -> None:
        cipher = _Cipher(key)
        for first in range(run.start, run.stop, BLOCK_ROWS):
            rows = slice(first, min(first + BLOCK_ROWS, run.stop))
            digests = cipher.digests(records.between(rows.start, rows.stop))
            contents[:, rows] = digests.view("<u8").T
            # As the first record with its content, whose number is 0.
            codes[rows] = cipher.encrypted(digests)[:, 0] >> 1

    def number(run: slice) -> None:
        cipher, places = _Cipher(key), repeated[run]
        for first in range(0, len(places), BLOCK_ROWS):
            rows = places[first : first + BLOCK_ROWS]
            numbered = np.stack([contents[0, rows] ^ earlier[rows], contents[1, rows]], axis=1)
            codes[rows] = cipher.encrypted(numbered.astype("<u8", copy=False).view("<u4"))[:, 0] >> 1

    list(on_threads(digest, _runs(records.rows)))
    earlier = _occurrences(contents)
    repeated = np.flatnonzero(earlier)
    list(on_threads(number, _runs(len(repeated))))
    return codes


class _Cipher:
    """AES-256 in CBC mode of up to BLOCK_ROWS records at once, for one thread."""

    def __init__(self, key: bytes) -> None:
        # Each step of CBC mode is one block of each record.
        self._cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305
        self._mixed = np.empty((BLOCK_ROWS, _BLOCK_WORDS), dtype=np.uint32)
        # The library asks for room for another block, all but a byte.
        self._encrypted = np.empty(self._mixed.nbytes + _BLOCK_BYTES - 1, dtype=np.uint8)

    def digests(self, records: Records) -> NDArray[np.uint32]:
        """Each record's content in CBC mode, all but the block with its number: uint32 (m, 4)."""
        features = _ready(records.features)
        labels = np.ascontiguousarray(records.labels, dtype=np.int32)
        mixed = self._mixed[: records.rows]
        state = np.zeros_like(mixed)
        for first in range(0, records.d + 1, _BLOCK_WORDS):
            mix_contents(state.astype(np.uint32, copy=False), features, labels, first, mixed)
            state = self.encrypted(mixed.astype("<u4", copy=False))
        return state.copy()

    def encrypted(self, blocks: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Each row, of 16 bytes, encrypted: of the same shape, until the next call."""
        into = self._encrypted[: blocks.nbytes + _BLOCK_BYTES - 1]
        self._cipher.update_into(blocks.data.cast("B"), into.data)
        return into[: blocks.nbytes].view("<u4").reshape(blocks.shape)


def _occurrences(contents: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """For each row, how many earlier rows equal it: uint64 (m,). contents: (2, m)."""
    earlier = np.zeros(contents.shape[1], dtype=np.uint64)
    ordered = np.sort(contents[0])
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(repeated):
        return earlier
    found = np.minimum(np.searchsorted(repeated, contents[0]), len(repeated) - 1)
    rows = np.flatnonzero(repeated[found] == contents[0])
    # The sort is stable, so rows that are equal stand in their order.
    rows = rows[np.lexsort((contents[1, rows], contents[0, rows]))]
    first = np.ones(len(rows), dtype=np.bool_)
    first[1:] = (contents[:, rows[1:]] != contents[:, rows[:-1]]).any(axis=0)
    places = np.arange(len(rows))
    earlier[rows] = places - np.maximum.accumulate(np.where(first, places, 0))
    return earlier
