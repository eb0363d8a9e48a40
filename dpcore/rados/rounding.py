"""One-bit rounding: a real-valued sensitive coordinate becomes a random sign with the value as its mean.

P(b = +1) = (1 + x) / 2, so E[b] = x, and the edge's coordinate y b is coded -1/+1 as DP-FEAT needs. The sign is drawn
from HMAC-SHA-256 under the party's secret over schema, feature and the record's content, so under one schema a record
has one sign for ever: asking again does not average the rounding away. E[b^2] = 1, not x^2: learners correct the
diagonal (RadoLaw).
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpcore.records.computation import PartySecret
from dpcore.records.records import ONE, Records

_DOMAIN = b"rado.v1/one-bit-rounding\0"


def rounded(records: Records, coordinates: Sequence[int], secret: PartySecret) -> Records:
    """The records with these coordinates replaced by their signs; rows that are not usable stay zero.

    records: as loaded, none of them rounded before: a sign that depended on another one would change with what else a
    query rounds. Records with the same content are told apart by their order, so that their signs are independent. The
    chance is exact: 31 bits of the code are compared with the stored value, an integer in units of 2^-30.
    """
    features = records.features.copy()
    for coordinate in coordinates:
        key = secret.key(_DOMAIN, coordinate.to_bytes(8, "big"))
        signs = np.where(_codes(records, key) < records.features[:, coordinate].astype(np.int64) + ONE, ONE, -ONE)
        features[:, coordinate] = np.where(records.usable, signs, 0)
    return Records(features, records.labels, records.usable)


def _codes(records: Records, key: bytes) -> NDArray[np.int64]:
    """A uniform integer in [0, 2^31) for each record: int64 (m,)."""
    seen: Counter[bytes] = Counter()
    codes = np.empty(records.rows, dtype=np.int64)
    contents = np.column_stack([records.features, records.labels.astype(np.int32)])
    for index, content in enumerate(np.ascontiguousarray(contents, dtype="<i4")):
        digest = hashlib.sha256(content.tobytes()).digest()
        code = hmac.digest(key, digest + seen[digest].to_bytes(8, "big"), "sha256")
        seen[digest] += 1
        codes[index] = int.from_bytes(code[:4], "big") >> 1
    return codes
