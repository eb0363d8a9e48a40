"""The bytes of a query, and an estimate of its seconds.

The estimate scales the measured time of one ciphertext on two cores, under a 3072-bit key with 62 values to a
ciphertext (medians in benchmarks/results/encryption.json): exponentiations with the cube of the key's bits, products
with their square. It leaves out the draw and the sums of rados, and the network.
"""

from dataclasses import dataclass

from dpcore.errors import PlanError
from dpcore.paillier.packing import ciphertext_count
from dpcore.queries.base import MAX_VALUES, QueryLimits
from dpcore.queries.fraction_bits import FractionBits, fewest_ciphertexts
from dpcore.queries.kind import QueryKind
from learner.requests import GROWTH

# Seconds for one ciphertext, and for the table that a party builds once for each query.
MEASURED_BITS = 3072
ENCRYPT_S = 26.502e-6 * 62
# The whole table. A few ciphertexts are made without it, at most as slowly as with Paillier's exponent n.
TABLE_S = (32.88 - 26.502) * 1e-6 * 100_000
WITHOUT_TABLE_S = 767.23e-6 * 62
ADD_CHECKED_S = 0.5674e-6 * 62
DECRYPT_S = 118.86e-6 * 62


@dataclass(frozen=True)
class Sizes:
    """Each party's ciphertexts, their bytes without envelopes, and estimated seconds.

    slot_bits: the width of a slot. fraction_bits: of a value, given or chosen for the fewest ciphertexts.
    """

    ciphertexts: int
    upload_bytes_per_party: int
    slot_bits: int
    fraction_bits: int
    estimated_seconds: float


def sizes_of(kind: QueryKind, limits: QueryLimits, bits: FractionBits, key_bits: int) -> Sizes:
    """The sizes of a query of this kind.

    limits: the present rows; as in a learner's query, the slots have room for tables that grow. bits: the choices of
    fraction bits. Raises PlanError if a query may not have as many values, SlotOverflowError if its sums do not fit a
    slot.
    """
    length = kind.length(limits.d)
    if length > MAX_VALUES:
        remedy = kind.fewer(MAX_VALUES, limits.d)
        raise PlanError(f"{length} values are more than the {MAX_VALUES} of one query: {remedy}")
    planned = QueryLimits(GROWTH * limits.rows, limits.parties, limits.d)
    encoding = fewest_ciphertexts(kind, planned, bits, key_bits)
    ciphertexts = ciphertext_count(length, encoding, key_bits)
    seconds = seconds_of(ciphertexts, limits.parties, key_bits)
    upload_bytes = ciphertexts * 2 * -(-key_bits // 8)
    return Sizes(ciphertexts, upload_bytes, encoding.slot_bits, encoding.fraction_bits, seconds)


def seconds_of(ciphertexts: int, parties: int, key_bits: int) -> float:
    """An estimate of the seconds of one query in which each party uploads so many ciphertexts."""
    longer = key_bits / MEASURED_BITS
    # Parties encrypt at the same time; the coordinator adds the uploads of each.
    encrypting = min(TABLE_S + ciphertexts * ENCRYPT_S, ciphertexts * WITHOUT_TABLE_S)
    exponentiations = encrypting + ciphertexts * DECRYPT_S
    return longer**3 * exponentiations + longer**2 * parties * ciphertexts * ADD_CHECKED_S
