"""Fixed-base powers modulo n^2 from tables of products, without knowing a factor of n.

A number x prime to n is a (1 + n t) mod n^2 for a = x mod n and one t in [0, n), and (1 + n s)(1 + n t) = 1 + n (s +
t).

A table's entry is the pair (a, t): a power multiplies the half-length a's, adds the t's, and combines the two once, at
the end. That costs little more than half of a multiplication modulo n^2.
"""

from typing import TypeAlias

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from dpcore.errors import PlanError
from dpcore.paillier.public import times_one_plus
from dpcore.paillier.threads import lock_released

TABLES = 8
MAXIMUM_TEETH = 16

Digits: TypeAlias = NDArray[np.uint16]
Table: TypeAlias = tuple[list[mpz], list[mpz]]


class Comb:
    """Powers of one base modulo n^2 by the fixed-base comb of Lim and Lee (CRYPTO 1994).

    The exponent is divided into `teeth` rows of `tables * depth` bits. Table j holds the products of all subsets of the
    base's powers 2^(row * tables * depth + j * depth).

    A power takes depth - 1 squarings and tables * depth multiplications. Memory: tables * 2^teeth entries of 2 *
    bits(n) bits, 29 MB for 12 teeth, 8 tables and 3072 bits.

    Raises:
        PlanError: teeth is not in 1..16, or tables or exponent_bits is below 1.
        ValueError: the base shares a factor with n.
    """

    def __init__(self, base: int, n: int, exponent_bits: int, *, teeth: int, tables: int = TABLES) -> None:
        if not 1 <= teeth <= MAXIMUM_TEETH or tables < 1 or exponent_bits < 1:
            raise PlanError(
                f"a comb of {teeth} teeth and {tables} tables for {exponent_bits} bits: choose 1 to {MAXIMUM_TEETH} "
                "teeth, at least one table and one bit"
            )
        if gmpy2.gcd(base, n) != 1:
            raise ValueError("the base of a comb shares a factor with n")
        self.exponent_bits, self.teeth = exponent_bits, teeth
        self._table_count = tables
        self._depth = -(-exponent_bits // (teeth * tables))
        self._n, self._n_squared = mpz(n), mpz(n) * n
        powers = self._powers(mpz(base) % self._n_squared)
        with lock_released():
            self._tables = [self._table(powers[table::tables]) for table in range(tables)]

    def _powers(self, base: mpz) -> list[mpz]:
        """base^(2^(k * depth)) for each k; tooth i of table j is number i * tables + j."""
        powers = [base]
        for _ in range(self.teeth * self._table_count - 1):
            powers.append(gmpy2.powmod(powers[-1], 1 << self._depth, self._n_squared))
        return powers

    def _table(self, factors: list[mpz]) -> Table:
        """The products of all subsets of `factors`, as pairs. Entry k includes factor i if bit i of k is set.

        For two residues, a_1 a_2 = r + q n = r (1 + n q / r). So the product's t is the sum of both t's and q / r mod
        n. 1 / r is the product of the two inverses, so only one inversion per factor is needed.
        """
        n = self._n
        residues, summands, inverses = [mpz(1)], [mpz(0)], [mpz(1)]
        for factor in factors:
            upper, residue = divmod(factor, n)
            inverse = gmpy2.invert(residue, n)
            summand = upper * inverse % n
            for index in range(len(residues)):
                quotient, product = divmod(residues[index] * residue, n)
                product_inverse = inverses[index] * inverse % n
                residues.append(product)
                inverses.append(product_inverse)
                summands.append((quotient * product_inverse + summands[index] + summand) % n)
        return residues, summands

    def power(self, exponent: int) -> mpz:
        """base^exponent mod n^2. Raises ValueError if the exponent is not in [0, 2^exponent_bits)."""
        if exponent < 0 or exponent.bit_length() > self.exponent_bits:
            raise ValueError(f"an exponent of {exponent.bit_length()} bits for a comb of {self.exponent_bits}")
        octets = np.frombuffer(exponent.to_bytes(-(-self.exponent_bits // 8), "little"), dtype=np.uint8)
        return self.power_digits(self.digits(octets[np.newaxis]))[0]

    def digits(self, exponents: NDArray[np.uint8]) -> Digits:
        """Indices into the tables: (count, depth, tables), the most significant column first.

        exponents: (count, ceil(exponent_bits / 8)) little-endian bytes. Bits from exponent_bits on are dropped.
        """
        count, width = len(exponents), self.teeth * self._table_count * self._depth
        bits = np.zeros((count, width), dtype=np.uint16)
        bits[:, : self.exponent_bits] = np.unpackbits(exponents, axis=1, count=self.exponent_bits, bitorder="little")
        by_tooth = bits.reshape(count, self.teeth, self._table_count, self._depth)
        weights = (1 << np.arange(self.teeth, dtype=np.uint16)).astype(np.uint16)
        indices = np.einsum("ctjk,t->ckj", by_tooth, weights)
        return np.ascontiguousarray(indices[:, ::-1], dtype=np.uint16)

    def power_digits(self, digits: Digits) -> list[mpz]:
        """One power for each row of the result of `digits`, in order."""
        n, n_squared, tables = self._n, self._n_squared, self._tables
        powers = []
        for columns in digits.tolist():
            power, summand = mpz(1), mpz(0)
            for depth, column in enumerate(columns):
                if depth:
                    power, summand = power * power % n_squared, summand << 1
                for (residues, summands), index in zip(tables, column, strict=True):
                    if index:
                        power = power * residues[index] % n_squared
                        summand += summands[index]
            powers.append(times_one_plus(power, summand, n, n_squared))
        return powers
