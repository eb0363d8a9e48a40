"""Local answers: a party's rows answer predicates by randomised response before they are summed.

    coin of (row, question) = first 8 bytes of AES-256_K(q)(code), little-endian
    K(q)   = HMAC-SHA256(secret, domain || schema digest || epsilon || text of the predicate)
    code   = first 16 bytes of HMAC-SHA256(K', content of the row || how many rows of this content came before it)

The content is features, label and whether the row is usable, which decide the true answer. So the same row gives the
same answer to the same question whenever it is asked, in any order of rows and about any part of them: averages over
repetitions tell nothing new.

Assumes that HMAC-SHA256 and AES-256 are pseudorandom under the party's secret. Proof:
beside that of dpcore.accounting.local_response.
"""

import hmac
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from dpcore.accounting.local_response import LocalResponse
from dpcore.errors import ConfigurationError
from dpcore.numbers.progress import Progress
from dpcore.predicates.evaluation import values
from dpcore.predicates.expressions import Predicate
from dpcore.predicates.notation import to_text
from dpcore.records.computation import PartySecret
from dpcore.records.records import BLOCK_ROWS, Records
from dpcore.records.schema import Schema

_CODES = b"rado.v1/local-answer/row\0"
_COINS = b"rado.v1/local-answer/question\0"
_BLOCK_BYTES = 16
_TOGETHER = 16


def local_sums(
    predicates: Sequence[Predicate],
    schema: Schema,
    records: Records,
    response: LocalResponse,
    secret: PartySecret | None,
    progress: Progress | None = None,
) -> NDArray[np.int64]:
    """How many of the party's rows answer each predicate with 1, after their coins: int64 (M,).

    A row that is not usable answers 0 before its coin. progress: callback (rows done, rows). Raises ConfigurationError
    without a secret, and as `dpcore.predicates.evaluation.sums`.
    """
    if secret is None:
        raise ConfigurationError("local answers repeat their coins and need the party's secret: give one")
    codes, found = row_codes(records, secret, progress), np.empty(len(predicates), dtype=np.int64)
    for first in range(0, len(predicates), _TOGETHER):
        batch = predicates[first : first + _TOGETHER]
        true = values(batch, schema, records, 0)
        for place, predicate in enumerate(batch):
            flipped = coins(codes, predicate, response, secret) < np.uint64(response.flipped_below)
            found[first + place] = np.count_nonzero((true[:, place] != 0) ^ flipped)
        if progress is not None:
            done = min(first + _TOGETHER, len(predicates))
            progress(records.rows * done // len(predicates), records.rows)
    return found


def row_codes(records: Records, secret: PartySecret, progress: Progress | None = None) -> bytes:
    """The codes of all rows, in order, 16 bytes each; no two rows have the same, but for a chance of 2^-128 a pair.

    progress: called now and then with (0, rows), so that it can stop the work.
    """
    rows, key = records.zeroed(), secret.key(_CODES, b"")
    columns = [rows.features, rows.labels.astype(np.int32), rows.usable.astype(np.int32)]
    contents = np.ascontiguousarray(np.column_stack(columns), dtype="<i4")
    found = bytearray()
    for place, (content, before) in enumerate(zip(contents, _earlier(contents).tolist(), strict=True)):
        found += hmac.digest(key, before.to_bytes(8, "big") + content.tobytes(), "sha256")[:_BLOCK_BYTES]
        if progress is not None and place % BLOCK_ROWS == 0:
            progress(0, records.rows)
    return bytes(found)


def _earlier(contents: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each row how many rows of the same content came before it: (m,)."""
    texts = contents.view(np.dtype((np.void, contents.shape[1] * contents.itemsize))).reshape(-1)
    _, group, sizes = np.unique(texts, return_inverse=True, return_counts=True)
    order = np.argsort(group, kind="stable")
    found = np.empty(len(texts), dtype=np.int64)
    found[order] = np.arange(len(texts)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return found


def coins(codes: bytes, predicate: Predicate, response: LocalResponse, secret: PartySecret) -> NDArray[np.uint64]:
    """64 pseudorandom bits for each row's answer to this question: uint64 (m,)."""
    key = secret.key(_COINS, f"{response.epsilon} {to_text(predicate)}".encode())
    # As a pseudorandom function of one block, not to encrypt a text.
    cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305  (blocks are distinct, see above)
    return np.frombuffer(cipher.update(codes) + cipher.finalize(), dtype="<u8")[::2].astype(np.uint64)
