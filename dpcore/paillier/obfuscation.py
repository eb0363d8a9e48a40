"""Obfuscators: the random n-th powers mod n^2 that hide plaintexts, made fast.

Damgard, Jurik and Nielsen (International Journal of Information Security 9, 2010, section 4.2): let n be a Blum modulus
(p = q = 3 mod 4, gcd(p-1, q-1) = 2) and h = -x^2 mod n for a random x. Then H = h^n mod n^2 is fixed, and an obfuscator
is H^a for a fresh short random exponent a, in place of r^n for a random r.

Assumptions: decisional composite residuosity, and that h^a for a uniform a of half of n's bits cannot be told from h^a
for a uniform over the whole group. For a Blum modulus -1 is a non-residue of Jacobi symbol 1, so h generates, but for
a negligible part of the x, the whole cyclic group of elements of Jacobi symbol 1; that is why n must be one. A learner
who makes a malformed key weakens only what its own key protects. Exponents of 512 bits, an option, rest on the same
assumption for a shorter a (generic attacks on it take about 2^256 steps).

Every encryptor derives its own h: one that another supplied could have a small order, and expose plaintexts.
"""

from typing import TypeAlias

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from dpcore.errors import PlanError
from dpcore.paillier.public import Ciphertext, PublicKey
from dpcore.randomness import RandomSource

SHORT_EXPONENT_BITS = 512
# 8 tables of 2^12 powers: 27 MB and a third of a second for a key of 3072 bits, then 143 multiplications (1.3 ms) each.
TEETH = 12
TABLES = 8
MAXIMUM_TEETH = 16
# Exponents are drawn and spread over the comb so many at a time, a few MB.
_BATCH = 1024

Digits: TypeAlias = NDArray[np.uint16]


class Comb:
    """Powers of one base by the fixed-base comb of Lim and Lee (CRYPTO 1994).

    An exponent is laid out in `teeth` rows of `tables * depth` bits, depth = ceil(exponent_bits / (teeth * tables)).
    Table j holds the products of all subsets of the base's powers 2^(row * tables * depth + j * depth); a power then
    takes depth - 1 squarings and tables * depth multiplications. Memory: tables * 2^teeth numbers.

    Raises PlanError where teeth is not in 1..16 or tables or exponent_bits is below 1.
    """

    def __init__(
        self, base: int, modulus: int, exponent_bits: int, *, teeth: int = TEETH, tables: int = TABLES
    ) -> None:
        if not 1 <= teeth <= MAXIMUM_TEETH or tables < 1 or exponent_bits < 1:
            raise PlanError(
                f"a comb of {teeth} teeth and {tables} tables for {exponent_bits} bits: choose 1 to {MAXIMUM_TEETH} "
                "teeth, at least one table and one bit"
            )
        self.exponent_bits = exponent_bits
        self._teeth, self._table_count = teeth, tables
        self._depth = -(-exponent_bits // (teeth * tables))
        self._modulus = mpz(modulus)
        self._tables = self._build(mpz(base) % self._modulus)

    def _build(self, base: mpz) -> list[list[mpz]]:
        modulus, row_bits = self._modulus, self._table_count * self._depth
        # powers[t] is base^(2^(t * depth)); tooth i of table j is powers[i * tables + j].
        powers = [base]
        for _ in range(self._teeth * self._table_count - 1):
            powers.append(gmpy2.powmod(powers[-1], 1 << self._depth, modulus))
        tables = []
        for j in range(self._table_count):
            products = [mpz(1)]
            for tooth in range(self._teeth):
                factor = powers[tooth * row_bits // self._depth + j]
                products += [product * factor % modulus for product in products]
            tables.append(products)
        return tables

    def power(self, exponent: int) -> mpz:
        """base^exponent mod modulus. Raises ValueError where the exponent is not in [0, 2^exponent_bits)."""
        if exponent < 0 or exponent.bit_length() > self.exponent_bits:
            raise ValueError(f"an exponent of {exponent.bit_length()} bits for a comb of {self.exponent_bits}")
        octets = np.frombuffer(exponent.to_bytes(-(-self.exponent_bits // 8), "little"), dtype=np.uint8)
        return self.power_digits(self.digits(octets[np.newaxis]))[0]

    def digits(self, exponents: NDArray[np.uint8]) -> Digits:
        """Where to look in the tables: (count, depth, tables), the most significant column first.

        exponents: (count, ceil(exponent_bits / 8)) little-endian bytes; bits from exponent_bits on are dropped.
        """
        count, width = len(exponents), self._teeth * self._table_count * self._depth
        bits = np.zeros((count, width), dtype=np.uint16)
        bits[:, : self.exponent_bits] = np.unpackbits(exponents, axis=1, count=self.exponent_bits, bitorder="little")
        by_tooth = bits.reshape(count, self._teeth, self._table_count, self._depth)
        weights = (1 << np.arange(self._teeth, dtype=np.uint16)).astype(np.uint16)
        indices = np.einsum("ctjk,t->ckj", by_tooth, weights)
        return np.ascontiguousarray(indices[:, ::-1], dtype=np.uint16)

    def power_digits(self, digits: Digits) -> list[mpz]:
        """One power for each row of what `digits` made, in order."""
        modulus, tables = self._modulus, self._tables
        powers = []
        for columns in digits.tolist():
            power = mpz(1)
            for depth, column in enumerate(columns):
                if depth:
                    power = power * power % modulus
                for table, index in zip(tables, column, strict=True):
                    if index:
                        power = power * table[index] % modulus
            powers.append(power)
        return powers


class Obfuscator:
    """Fresh obfuscators H^a mod n^2 for one key; the module's docstring has the construction and its assumptions.

    The table is built in memory at construction from an x of this object's own, and never stored. Exponents are
    uniform, of ceil(bits(n) / 2) bits, or of `short_exponent_bits` where given (512 is the shortest allowed). An
    obfuscator must be used once: let `PublicKey.encrypt_many` draw them. After a fork the exponents differ wherever
    `random` is the system's source, which re-keys itself.

    One thread draws: single multiplications are too short to share, two threads gain a fifth and cost a third more.
    Raises PlanError where short_exponent_bits is not in 512..bits(n) or the comb's measures are wrong.
    """

    def __init__(
        self,
        public_key: PublicKey,
        random: RandomSource,
        *,
        short_exponent_bits: int | None = None,
        teeth: int = TEETH,
        tables: int = TABLES,
    ) -> None:
        if short_exponent_bits is not None and not SHORT_EXPONENT_BITS <= short_exponent_bits <= public_key.bits:
            raise PlanError(
                f"short_exponent_bits is {short_exponent_bits}: choose {SHORT_EXPONENT_BITS} to {public_key.bits}"
            )
        self._public_key, self._random = public_key, random
        exponent_bits = short_exponent_bits if short_exponent_bits is not None else -(-public_key.bits // 2)
        n = mpz(public_key.n)
        h = _negated_square(n, random)
        self._comb = Comb(gmpy2.powmod(h, n, n * n), n * n, exponent_bits, teeth=teeth, tables=tables)

    @property
    def public_key(self) -> PublicKey:
        """The key whose ciphertexts these obfuscate."""
        return self._public_key

    @property
    def exponent_bits(self) -> int:
        """The length of the random exponents in bits."""
        return self._comb.exponent_bits

    def draw(self) -> Ciphertext:
        """One fresh obfuscator."""
        return self.draw_many(1)[0]

    def draw_many(self, count: int) -> list[Ciphertext]:
        """`count` fresh obfuscators, independent of one another. Raises ValueError where count is negative."""
        if count < 0:
            raise ValueError(f"{count} obfuscators: ask for 0 or more")
        width = -(-self.exponent_bits // 8)
        drawn: list[Ciphertext] = []
        for start in range(0, count, _BATCH):
            size = min(_BATCH, count - start)
            digits = self._comb.digits(self._random.uint8(size * width).reshape(size, width))
            drawn += self._comb.power_digits(digits)
        return drawn


def _negated_square(n: mpz, random: RandomSource) -> mpz:
    """-x^2 mod n for x uniform among the invertible residues."""
    while True:
        x = mpz(random.below(int(n)))
        if gmpy2.gcd(x, n) == 1:
            return -x * x % n
