"""The noised table: every edge with its noise, drawn once for an epoch and the same whenever it is used.

Fixed support protects records by noise on the edges themselves, so rados over one noised table are free
post-processing, however many are asked for. The noise is derived from a key that depends on everything that the edges
depend on: any change is a new epoch, with independent noise. Were it keyed by less, two releases could be subtracted.
"""

import hashlib
import hmac
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpcore.rados.designs.base import RadoDesign
from dpcore.randomness.discrete_gaussian import discrete_gaussian
from dpcore.randomness.sources import KeyedRandom
from dpcore.records.records import BLOCK_ROWS, Records

_DOMAIN = b"rado.v1/noised-table\0"


@dataclass(frozen=True)
class NoisedTable:
    """The noise of one epoch, block of rows after block of rows. key: 32 bytes, secret."""

    key: bytes = field(repr=False)
    sigma: int

    @classmethod
    def of(
        cls, records: Records, design: RadoDesign, fraction_bits: int, schema_digest: bytes, secret: bytes
    ) -> "NoisedTable":
        """The table of these records. secret: at least 32 bytes that this party keeps for the life of its data."""
        clip = design.clipping
        assert clip is not None, "edges that are noised are clipped"
        # The blocks too: cut elsewhere, the same key would give the same table other noise.
        parameters = f"{fraction_bits}/{clip.norm_bound}/{clip.bias}/{design.edge_noise}/{BLOCK_ROWS}".encode()
        message = _DOMAIN + schema_digest + records.digest + parameters
        return cls(hmac.digest(secret, message, "sha256"), design.edge_noise)

    @property
    def epoch(self) -> bytes:
        """32 bytes that name the epoch and tell nothing of the key."""
        return hashlib.sha256(_DOMAIN + b"epoch\0" + self.key).digest()

    def noise(self, first_row: int, shape: tuple[int, int]) -> NDArray[np.int64]:
        """The noise of the rows from `first_row` on: int64, shape (rows, d). Blocks must begin where they always do."""
        key = hmac.digest(self.key, first_row.to_bytes(8, "big"), "sha256")
        return discrete_gaussian(self.sigma, shape[0] * shape[1], KeyedRandom(key)).reshape(shape)
