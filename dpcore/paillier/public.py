"""Paillier's public half: encrypt, add, check, and the bytes on the wire.

Paillier (EUROCRYPT 1999) with generator n + 1: the ciphertext of m in [0, n) is (1 + n m) * o mod n^2, with a fresh
obfuscator o, an n-th power mod n^2 (dpcore.paillier.obfuscation). The product of ciphertexts encrypts the sum.

Nothing here is constant time. What is multiplied is public (n, ciphertexts) or used once (an obfuscator and a
plaintext), and whoever could time single multiplications sits inside the machine that holds the plaintexts.

Ciphertexts are gmpy2 `mpz`; `Ciphertext` names them in signatures.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, TypeAlias

import gmpy2
from gmpy2 import mpz

from dpcore.errors import CiphertextError, ShapeError

MINIMUM_BITS = 2048
DEFAULT_BITS = 3072
# Cost grows with the cube of the length: a longer key in a query would hold a party up for ever.
MAXIMUM_BITS = 16384
# Enough to run every code path; of no strength at all.
MINIMUM_TEST_BITS = 64

Ciphertext: TypeAlias = mpz


class InvalidKeyError(CiphertextError):
    """A Paillier key that is malformed or too short."""


class InvalidCiphertextError(CiphertextError):
    """A ciphertext outside 0 < c < n^2, or one that shares a factor with n."""

    def __init__(self, *, index: int, reason: str) -> None:
        self.index, self.reason = index, reason
        super().__init__(f"ciphertext {index} {reason}: refuse everything that came with it")


class ObfuscatorSource(Protocol):
    """Where fresh obfuscators for one key come from; each is handed out once."""

    @property
    def public_key(self) -> "PublicKey":
        """The key whose ciphertexts these obfuscate."""
        ...

    def draw_many(self, count: int) -> list[Ciphertext]:
        """`count` independent n-th powers mod n^2, never handed out before."""
        ...


@dataclass(frozen=True, repr=False)
class PublicKey:
    """A Paillier modulus n of at least 2048 bits (and at most 16,384).

    That n is a product of two primes of the right form cannot be seen from n; the learner certifies it, and a learner
    who makes a malformed key harms only the secrecy of its own totals from others. Raises InvalidKeyError where n is
    even or of the wrong length.
    """

    n: int

    minimum_bits: ClassVar[int] = MINIMUM_BITS

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", int(self.n))
        if not self.minimum_bits <= self.n.bit_length() <= MAXIMUM_BITS or self.n < 0:
            raise InvalidKeyError(
                f"a Paillier modulus of {self.n.bit_length()} bits: use {self.minimum_bits} to {MAXIMUM_BITS}, "
                f"{DEFAULT_BITS} where nothing else decides"
            )
        if self.n % 2 == 0:
            raise InvalidKeyError("an even Paillier modulus is no product of two large primes: make a new key")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(bits={self.bits}, fingerprint={self.fingerprint()})"

    @staticmethod
    def for_tests(n: int) -> "PublicKey":
        """A test key: any odd n of 64 bits or more. It protects nothing, and the wire never makes one."""
        return TestPublicKey(n)

    @cached_property
    def n_squared(self) -> int:
        """n^2, the modulus of ciphertexts."""
        return self.n * self.n

    @property
    def bits(self) -> int:
        """The length of n in bits."""
        return self.n.bit_length()

    @property
    def ciphertext_bytes(self) -> int:
        """The width of a ciphertext on the wire: 2 * ceil(bits / 8) bytes."""
        return 2 * -(-self.bits // 8)

    def fingerprint(self) -> str:
        """SHA-256 of n as big-endian bytes without leading zeros, in lower-case hexadecimal."""
        return hashlib.sha256(self.n.to_bytes(-(-self.bits // 8), "big")).hexdigest()

    def raw_encrypt(self, plaintext: int, obfuscator: Ciphertext) -> Ciphertext:
        """(1 + n * plaintext) * obfuscator mod n^2.

        The obfuscator must be an n-th power mod n^2 that is used nowhere else: two ciphertexts of one obfuscator give
        away the difference of their plaintexts. Raises CiphertextError where the plaintext is not in [0, n).
        """
        if not 0 <= plaintext < self.n:
            raise CiphertextError("a plaintext is not in [0, n): pack with the bits of this key's modulus")
        return (self._n * plaintext + 1) * obfuscator % self._n_squared

    def encrypt_many(self, plaintexts: Sequence[int], obfuscator: ObfuscatorSource) -> list[Ciphertext]:
        """One ciphertext for each plaintext in [0, n), in order, each under an obfuscator of its own.

        Raises CiphertextError where a plaintext is out of range or the obfuscators are another key's.
        """
        if obfuscator.public_key != self:
            raise CiphertextError("these obfuscators belong to another key: make an Obfuscator for this one")
        drawn = obfuscator.draw_many(len(plaintexts))
        return [self.raw_encrypt(m, o) for m, o in zip(plaintexts, drawn, strict=True)]

    def validate(self, ciphertexts: Sequence[int]) -> None:
        """Refuse a chunk with a ciphertext outside 0 < c < n^2 or not coprime to n; nothing is ever skipped.

        One product mod n and one gcd for the chunk; only where that fails is it bisected. Raises
        InvalidCiphertextError naming the first out of range, or else the first that shares a factor with n.
        """
        for index, ciphertext in enumerate(ciphertexts):
            if not 0 < ciphertext < self._n_squared:
                raise InvalidCiphertextError(index=index, reason="is not between 0 and n^2")
        bad = self._first_with_factor(ciphertexts, 0, len(ciphertexts))
        if bad is not None:
            raise InvalidCiphertextError(index=bad, reason="shares a factor with n")

    def add_many(self, accumulator: list[Ciphertext], ciphertexts: Sequence[int]) -> None:
        """Multiply `ciphertexts` into `accumulator`, element by element, in place: the plaintexts add up mod n.

        Both are validated already and equally long. Raises ShapeError where their lengths differ, before anything is
        changed.
        """
        if len(accumulator) != len(ciphertexts):
            raise ShapeError(f"{len(ciphertexts)} ciphertexts for a sum of {len(accumulator)}: send as many")
        # A plain loop: product trees, Barrett and Montgomery forms measured no faster.
        modulus = self._n_squared
        for index, ciphertext in enumerate(ciphertexts):
            accumulator[index] = accumulator[index] * ciphertext % modulus

    def add_plaintexts(self, ciphertexts: Sequence[int], plaintexts: Sequence[int]) -> list[Ciphertext]:
        """Ciphertexts of the sums of what was encrypted and `plaintexts`, mod n; negative ones subtract.

        Multiplies by (1 + n m), which is deterministic: the obfuscation stays what it was. Raises ShapeError where the
        lengths differ.
        """
        if len(ciphertexts) != len(plaintexts):
            raise ShapeError(f"{len(plaintexts)} plaintexts for {len(ciphertexts)} ciphertexts: give as many")
        n, modulus = mpz(self.n), self._n_squared
        return [
            ciphertext * (1 + n * (plaintext % n)) % modulus
            for ciphertext, plaintext in zip(ciphertexts, plaintexts, strict=True)
        ]

    def to_wire(self, ciphertexts: Sequence[int]) -> bytes:
        """The ciphertexts as fixed-width big-endian bytes (`ciphertext_bytes` each), one after the other.

        Raises InvalidCiphertextError where one is not between 0 and n^2.
        """
        width = self.ciphertext_bytes
        for index, ciphertext in enumerate(ciphertexts):
            if not 0 < ciphertext < self._n_squared:
                raise InvalidCiphertextError(index=index, reason="is not between 0 and n^2")
        return b"".join(int(ciphertext).to_bytes(width, "big") for ciphertext in ciphertexts)

    def from_wire(self, octets: bytes) -> list[Ciphertext]:
        """The inverse of `to_wire`, not yet validated. Raises CiphertextError where the length is no whole number."""
        width = self.ciphertext_bytes
        if len(octets) % width:
            raise CiphertextError(f"{len(octets)} bytes are no whole number of ciphertexts of {width} bytes: resend")
        return [mpz(int.from_bytes(octets[at : at + width], "big")) for at in range(0, len(octets), width)]

    @cached_property
    def _n(self) -> mpz:
        return mpz(self.n)

    @cached_property
    def _n_squared(self) -> mpz:
        return mpz(self.n_squared)

    def _first_with_factor(self, ciphertexts: Sequence[int], start: int, stop: int) -> int | None:
        product = mpz(1)
        for ciphertext in ciphertexts[start:stop]:
            product = product * (ciphertext % self._n) % self._n
        if gmpy2.gcd(product, self._n) == 1:
            return None
        if stop - start == 1:
            return start
        middle = (start + stop) // 2
        left = self._first_with_factor(ciphertexts, start, middle)
        return left if left is not None else self._first_with_factor(ciphertexts, middle, stop)


@dataclass(frozen=True, repr=False)
class TestPublicKey(PublicKey):
    """A key for tests and vectors: short, worthless, and never made from what came off the wire."""

    __test__: ClassVar[bool] = False
    minimum_bits: ClassVar[int] = MINIMUM_TEST_BITS
