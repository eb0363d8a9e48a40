"""Fraction bits by statistics: as few as are lost in what n rados leave unknown, and the slots that take fewest bytes.

Features are truncated before they are summed, and integers are summed exactly. So rados at f fraction bits are, bit for
bit, rados of a table whose features x became x' with |x - x'| < u = 2^-f and |x'| <= |x|: nothing adds up over rows,
whatever their number. A feature coded -1, 0 or 1, and so the bias, stays as it is. Of the others a learner sees:

1. Margins move by at most u |theta|_1 on every row, and the logistic loss, whose slope is at most 1, by no more.
2. With r_j the root mean square of feature j and S_jk = sum_i x_ij x_ik, each product moves by at most u (|x_ij| +
   |x_ik|), and sum_i |x_ij| <= m r_j, hence |S_jk - S'_jk| <= u m (r_j + r_k) = u (1 / r_j + 1 / r_k) sqrt(S_jj S_kk).
3. n rados tell S_jk with a standard error of at least sqrt(S_jj S_kk / n): rados of many rows are Gaussian with
   covariance S / 4, and n Gaussian vectors leave a relative variance of (1 + rho_jk^2) / (n - 1). The same of
   S_jb = sum_i x_ij, on which class means hang, with the standard deviation of a feature in place of r_j.

By 2 and 3 fixed point is at most 2 u sqrt(n) / r of what chance leaves. `least_fraction_bits` keeps that at a quarter
for features of r = 1/2 (0.58 for one that fills its range): added in squares, as if one rado in seventeen were missing.
That is where every error has one sign and the largest size; truncation takes u / 2 in the mean. The sums mu_j = sum_i
y_i x_ij are known better than S, but learners use them through S; what truncation takes off on average shifts mu_j and
S_jb together, like a shift of the feature's origin, and the bias takes that up, by 1. That RadoBoost and mean-variance
then learn what they learn from full precision is measured, in benchmarks/fewer_ciphertexts.py: thetas are apart by
0.003 to 0.013 of what another draw of signatures moves them.

With noise the bits are also the grain of the noise and of clipping: those kinds keep a number of bits of their own.
"""

from dataclasses import dataclass
from typing import Protocol, Self

from dpcore.errors import PlanError
from dpcore.numbers.fixed_point import Encoding, plan_encoding
from dpcore.paillier.packing import ciphertext_count
from dpcore.queries.base import QueryLimits

MOST_FRACTION_BITS = 16
"""Where they cost nothing, so many fraction bits are taken and no more."""

SMALLEST_FRACTION_BITS = 8
"""However few the rados: margins move by at most |theta|_1 / 256."""

# (2 / (r t))^2 with r = 1/2 and t = 1/4.
_SQUARED_MARGIN = 1 << 8


def least_fraction_bits(rados: int) -> int:
    """The least f with 2^-f <= 1 / (16 sqrt(n)), at least 8: the module's docstring says why.

    rados: n. Raises PlanError where rados < 1.
    """
    if rados < 1:
        raise PlanError(f"{rados} rados: ask for at least one")
    # The least f with 4^f >= 256 n, in integers.
    return max(SMALLEST_FRACTION_BITS, ((_SQUARED_MARGIN * rados - 1).bit_length() + 1) // 2)


@dataclass(frozen=True)
class FractionBits:
    """The fraction bits that a query may have, from `least` to `most`. Raises PlanError where least > most."""

    least: int
    most: int

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise PlanError(f"fraction bits from {self.least} to {self.most}: give the lower number first")

    @classmethod
    def exactly(cls, fraction_bits: int) -> Self:
        """No choice: those asked for, or those that noise was calibrated in."""
        return cls(fraction_bits, fraction_bits)

    @classmethod
    def for_rados(cls, rados: int) -> Self:
        """For n rados without noise."""
        least = least_fraction_bits(rados)
        return cls(least, max(least, MOST_FRACTION_BITS))


class Sized(Protocol):
    """What of a sum query its packing depends on; see `dpcore.queries.base.SumQuery`."""

    def length(self, d: int) -> int:
        """Values of one contribution."""
        ...

    def largest_sum(self, limits: QueryLimits, fraction_bits: int) -> int:
        """A bound on the magnitude of every total."""
        ...


def fewest_ciphertexts(query: Sized, limits: QueryLimits, bits: FractionBits, modulus_bits: int) -> Encoding:
    """The encoding of fewest ciphertexts with the fraction bits allowed; of these, that with most fraction bits.

    limits: the most that is planned for. Every sum within the query's own bound fits, and the rows of all parties,
    which travel in the check slot, as with `plan_encoding`. Raises SlotOverflowError where not even the least bits fit,
    PlanError where the query or the modulus makes no sense.
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
            # Wider sums fit no slot, or wider slots no modulus, and no finer ones will.
            break
        best = finer
    return best
