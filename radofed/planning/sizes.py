"""The bytes of a planned query, and an estimate of its seconds.

The estimate scales the measured time of one ciphertext on two cores, under a 3072-bit key with 62 values to a
ciphertext (medians in benchmarks/results/encryption.json): exponentiations with the cube of the key's bits, products
with their square. It leaves out the draw and the sums of rados, and the network.
"""

from dataclasses import dataclass
from typing import Self

from learner.planning import Plan

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
    """Each party's ciphertexts, their bytes without envelopes, and estimated seconds."""

    ciphertexts: int
    upload_bytes_per_party: int
    slot_bits: int
    """The width of a slot."""
    fraction_bits: int
    """Of a value, given or chosen for the fewest ciphertexts."""
    estimated_seconds: float

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Those of a query's plan."""
        encoding, ciphertexts = plan.query.encoding, plan.ciphertexts
        seconds = seconds_of(ciphertexts, plan.query.max_parties, plan.public_key.bits)
        return cls(ciphertexts, plan.upload_bytes_per_party, encoding.slot_bits, encoding.fraction_bits, seconds)


def seconds_of(ciphertexts: int, parties: int, key_bits: int) -> float:
    """An estimate of the seconds of one query in which each party uploads so many ciphertexts."""
    longer = key_bits / MEASURED_BITS
    # Parties encrypt at the same time; the coordinator adds the uploads of each.
    encrypting = min(TABLE_S + ciphertexts * ENCRYPT_S, ciphertexts * WITHOUT_TABLE_S)
    exponentiations = encrypting + ciphertexts * DECRYPT_S
    return longer**3 * exponentiations + longer**2 * parties * ciphertexts * ADD_CHECKED_S
