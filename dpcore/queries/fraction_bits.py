"""The fraction bits of a query: the fewest whose error is small compared with the sampling error of n rados.

Rados at f fraction bits are, bit for bit, rados of a table with features x', |x - x'| < u = 2^-f and |x'| <= |x|. The
error does not grow with the number of rows, and is 0 for features coded -1, 0 or 1.

For a feature of root mean square r it is at most 2 u sqrt(n) / r of the sampling error, which `least_fraction_bits`
keeps at a quarter for r = 1/2.

With noise, the bits also set the granularity of the noise and of clipping. Those kinds use a fixed number of bits.
Proof: docs/explanation/proofs.md, "Fraction bits".
"""

from dataclasses import dataclass
from typing import Protocol, Self

from dpcore.errors import PlanError
from dpcore.numbers.fixed_point import Encoding, plan_encoding
from dpcore.paillier.packing import ciphertext_count
from dpcore.queries.base import QueryLimits

MOST_FRACTION_BITS = 16
"""The most fraction bits that are used where more of them cost no bytes."""

SMALLEST_FRACTION_BITS = 8
"""The fewest for any number of rados: margins move by at most |theta|_1 / 256."""

# (2 / (r t))^2 with r = 1/2 and t = 1/4.
_SQUARED_MARGIN = 1 << 8


def least_fraction_bits(rados: int) -> int:
    """The least f with 2^-f <= 1 / (16 sqrt(n)), at least 8; derived in docs/explanation/proofs.md.

    rados: n. Raises PlanError if rados < 1.
    """
    if rados < 1:
        raise PlanError(f"{rados} rados: ask for at least one")
    # The least f with 4^f >= 256 n, in integers.
    return max(SMALLEST_FRACTION_BITS, ((_SQUARED_MARGIN * rados - 1).bit_length() + 1) // 2)


@dataclass(frozen=True)
class FractionBits:
    """The fraction bits that a query may have, from `least` to `most`. Raises PlanError if least > most."""

    least: int
    most: int

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise PlanError(f"fraction bits from {self.least} to {self.most}: give the lower number first")

    @classmethod
    def exactly(cls, fraction_bits: int) -> Self:
        """A fixed number: the one requested, or the one that the noise was calibrated for."""
        return cls(fraction_bits, fraction_bits)

    @classmethod
    def for_rados(cls, rados: int) -> Self:
        """For n rados without noise."""
        least = least_fraction_bits(rados)
        return cls(least, max(least, MOST_FRACTION_BITS))


class Sized(Protocol):
    """The part of a sum query that its packing depends on; see `dpcore.queries.base.SumQuery`."""

    def length(self, d: int) -> int:
        """Number of values of one contribution."""
        ...

    def largest_sum(self, limits: QueryLimits, fraction_bits: int) -> int:
        """A bound on the magnitude of every total."""
        ...


def fewest_ciphertexts(query: Sized, limits: QueryLimits, bits: FractionBits, modulus_bits: int) -> Encoding:
    """The encoding with the fewest ciphertexts in a range of fraction bits; on a tie, the one with most fraction bits.

    limits: the largest query that is planned for. As with `plan_encoding`, the slots hold every sum within the query's
    bound and the row count of all parties, which is in the check slot. Raises SlotOverflowError if not even the least
    fraction bits fit, PlanError if the query or the modulus is invalid.
    """
    length = query.length(limits.d)

    def encoding(fraction_bits: int) -> Encoding:
        # The check slot carries the cohort's row count and wraps like any other slot.
        largest = max(query.largest_sum(limits, fraction_bits), limits.rows)
        return plan_encoding(largest_sum=largest, max_parties=limits.parties, fraction_bits=fraction_bits)

    best = encoding(bits.least)
    fewest = ciphertext_count(length, best, modulus_bits)
    for fraction_bits in range(bits.least + 1, bits.most + 1):
        try:
            finer = encoding(fraction_bits)
            if ciphertext_count(length, finer, modulus_bits) > fewest:
                break
        except PlanError:
            # A wider sum does not fit its slot, or a wider slot the modulus. More fraction bits do not fit either.
            break
        best = finer
    return best
