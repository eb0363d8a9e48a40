"""Paillier with the public key: encryption, addition, validation, and the wire format.

Paillier (EUROCRYPT 1999) with generator n + 1: the ciphertext of m in [0, n) is (1 + n m) * o mod n^2, with a fresh
obfuscator o, an n-th power mod n^2 (dpcore.paillier.obfuscation). The product of ciphertexts encrypts the sum.

Nothing here is constant time. A coordinator multiplies only public values. In a party, plaintexts and obfuscators are
secret, and each is multiplied once: outside the machine only a chunk's time is visible. The party's machine is trusted
to run no process that times it. Do not use this code in a service that encrypts values chosen by strangers.

Ciphertexts are gmpy2 `mpz`; type annotations call them `Ciphertext`.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, TypeAlias, TypeVar

import gmpy2
from gmpy2 import mpz

from dpcore.errors import CiphertextError, ShapeError
from dpcore.numbers.processors import processors
from dpcore.paillier.subgroup import MINIMUM_ORDER_BITS, Subgroup

# Big-integer work on all cores: gmpy2 releases the interpreter's lock if its context says so, which short work keeps.


T = TypeVar("T")


@contextmanager
def lock_released() -> Iterator[None]:
    """Let this thread's gmpy2 operations release the interpreter's lock. Other threads' contexts do not change."""
    with gmpy2.context(gmpy2.get_context(), allow_release_gil=True):
        yield


def even_ranges(count: int, parts: int) -> list[range]:
    """Divide 0..count into `parts` ranges whose lengths differ by at most one."""
    return [range(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def over_ranges(work: Callable[[int, int], T], count: int, *, size: int, threads: int | None = None) -> Iterator[T]:
    """Yield work(start, stop) for ranges of `size` that cover 0..count, in order, computed with the lock released.

    threads: number of threads, None for one per processor; a single one is the calling thread. Raises what `work`
    raises for the first range that fails; ranges that have not started by then are cancelled. Raises ValueError if
    threads or size is below 1.
    """
    threads = processors() if threads is None else threads
    if threads < 1 or size < 1:
        raise ValueError(f"{threads} threads for ranges of {size}: give at least 1 of each")
    ranges = [(start, min(start + size, count)) for start in range(0, count, size)]

    def released(start: int, stop: int) -> T:
        with lock_released():
            return work(start, stop)

    if threads == 1 or len(ranges) < 2:
        yield from (released(start, stop) for start, stop in ranges)
        return
    with ThreadPoolExecutor(min(threads, len(ranges)), "integers") as pool:
        made = [pool.submit(released, start, stop) for start, stop in ranges]
        try:
            for future in made:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


# A thread that multiplies gets at least so many ciphertexts of a chunk, a quarter of a millisecond at 3072 bits.
_LEAST_RANGE = 32

MINIMUM_BITS = 2048
DEFAULT_BITS = 3072
# Cost grows with the cube of the length, and the learner chooses the key: an obfuscator takes a party more than twice
# as long at 4096 bits as at 3072, and a hundred times as long at 16,384. Longer keys gain nothing: NIST SP 800-57 part
# 1, table 2, rates 3072 bits at a strength of 128 and no length below 7680 at the next, 192; signatures and masks
# (Ed25519, X25519) have 128.
MAXIMUM_BITS = 4096
# Enough to run every code path; gives no security.
MINIMUM_TEST_BITS = 64
_MINIMUM_TEST_ORDER_BITS = 16
_FINGERPRINT = b"rado.v1/subgroup-key\0"

Ciphertext: TypeAlias = mpz


class InvalidKeyError(CiphertextError):
    """A Paillier key is malformed, too short or too long."""


class InvalidCiphertextError(CiphertextError):
    """A ciphertext is outside 0 < c < n^2 or shares a factor with n."""

    def __init__(self, *, index: int, reason: str) -> None:
        self.index, self.reason = index, reason
        super().__init__(f"ciphertext {index} {reason}: refuse the whole chunk")


class ObfuscatorSource(Protocol):
    """A source of fresh obfuscators for one key. It returns each of them once."""

    @property
    def public_key(self) -> "PublicKey":
        """The key whose ciphertexts these obfuscate."""
        ...

    def draw_many(self, count: int) -> list[Ciphertext]:
        """`count` independent n-th powers mod n^2, never returned before."""
        ...


def times_one_plus(factor: mpz, m: int, n: mpz, n_squared: mpz) -> mpz:
    """The product of `factor` in [0, n^2) and 1 + n m, mod n^2, by half-length products, for any integer m."""
    product = factor + n * (factor % n * (m % n) % n)
    return product - n_squared if product >= n_squared else product


@dataclass(frozen=True, repr=False)
class PublicKey:
    """A Paillier modulus n of 2048 to 4096 bits, which the learner certifies: n does not show its factors.

    subgroup: what obfuscators are drawn from, in a key with short opening; None for a key without.

    A malformed key harms only the secrecy of the learner's own totals. Raises InvalidKeyError.
    """

    n: int
    subgroup: Subgroup | None = None

    minimum_bits: ClassVar[int] = MINIMUM_BITS
    minimum_order_bits: ClassVar[int] = MINIMUM_ORDER_BITS

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", int(self.n))
        if not self.minimum_bits <= self.n.bit_length() <= MAXIMUM_BITS or self.n < 0:
            raise InvalidKeyError(
                f"the Paillier modulus has {self.n.bit_length()} bits: use {self.minimum_bits} to {MAXIMUM_BITS}, "
                f"by default {DEFAULT_BITS}"
            )
        if self.n % 2 == 0:
            raise InvalidKeyError("the Paillier modulus is even, so not a product of two large primes: make a new key")
        if self.subgroup is not None and (flaw := self.subgroup.flaw(self.n, self.minimum_order_bits)):
            raise InvalidKeyError(f"the Paillier key's subgroup does not suit: {flaw}; make a new key")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(bits={self.bits}, fingerprint={self.fingerprint()})"

    @staticmethod
    def for_tests(n: int, subgroup: Subgroup | None = None) -> "PublicKey":
        """A test key: any odd n of 64 bits or more. It gives no security. Messages are never read as one."""
        return TestPublicKey(n, subgroup)

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
        """SHA-256 in lower-case hexadecimal, of n as big-endian bytes without leading zeros.

        With a subgroup: of a domain, the length of n in bytes, n, the generator in as many bytes, and order_bits.
        """
        width = -(-self.bits // 8)
        octets = self.n.to_bytes(width, "big")
        if self.subgroup is not None:
            generator, order_bits = self.subgroup.generator, self.subgroup.order_bits
            parts = (_FINGERPRINT, width.to_bytes(4, "big"), octets, generator.to_bytes(width, "big"))
            octets = b"".join((*parts, order_bits.to_bytes(4, "big")))
        return hashlib.sha256(octets).hexdigest()

    @property
    def without_subgroup(self) -> "PublicKey":
        """The same modulus as a key without short opening: what it encrypts, the same secret key opens."""
        return type(self)(self.n)

    def raw_encrypt(self, plaintext: int, obfuscator: Ciphertext) -> Ciphertext:
        """(1 + n * plaintext) * obfuscator mod n^2.

        The obfuscator must be an n-th power mod n^2 that is used only here: two ciphertexts under one obfuscator reveal
        the difference of their plaintexts. Raises CiphertextError if the plaintext is not in [0, n).
        """
        if not 0 <= plaintext < self._n:
            raise CiphertextError("a plaintext is not in [0, n): pack for this key's modulus length")
        return times_one_plus(obfuscator, plaintext, self._n, self._n_squared)

    def encrypt_many(self, plaintexts: Sequence[int], obfuscator: ObfuscatorSource) -> list[Ciphertext]:
        """One ciphertext for each plaintext in [0, n), each under its own obfuscator. Raises CiphertextError.

        obfuscator: of this modulus; of a subgroup's, or of the encryptor's own base.
        """
        if obfuscator.public_key.n != self.n:
            raise CiphertextError("these obfuscators belong to another key: make an Obfuscator for this one")
        drawn = obfuscator.draw_many(len(plaintexts))
        return [self.raw_encrypt(m, o) for m, o in zip(plaintexts, drawn, strict=True)]

    def validate(self, ciphertexts: Sequence[int]) -> None:
        """Refuse a chunk with a ciphertext outside 0 < c < n^2 or not coprime to n. Raises InvalidCiphertextError."""
        self._check_range(ciphertexts)
        # Other threads run meanwhile: a coordinator checks uploads while it answers calls.
        with lock_released():
            bad = self._first_with_factor(ciphertexts, 0, len(ciphertexts))
        if bad is not None:
            raise InvalidCiphertextError(index=bad, reason="shares a factor with n")

    def add_many(self, accumulator: list[Ciphertext], ciphertexts: Sequence[int]) -> None:
        """Multiply validated `ciphertexts` into `accumulator`, in place: plaintexts add up mod n. Raises ShapeError."""
        if len(accumulator) != len(ciphertexts):
            raise ShapeError(f"{len(ciphertexts)} ciphertexts for a sum of {len(accumulator)}: send {len(accumulator)}")
        # A plain loop: product trees, Barrett and Montgomery forms measured no faster.
        modulus = self._n_squared
        for index, ciphertext in enumerate(ciphertexts):
            accumulator[index] = accumulator[index] * ciphertext % modulus

    def add_plaintexts(self, ciphertexts: Sequence[int], plaintexts: Sequence[int]) -> list[Ciphertext]:
        """Ciphertexts below n^2 plus `plaintexts`, mod n; the obfuscation stays. Raises ShapeError."""
        if len(ciphertexts) != len(plaintexts):
            raise ShapeError(f"{len(plaintexts)} plaintexts for {len(ciphertexts)} ciphertexts: give one for each")
        n, n_squared = self._n, self._n_squared
        return [times_one_plus(c, m, n, n_squared) for c, m in zip(ciphertexts, plaintexts, strict=True)]

    def to_wire(self, ciphertexts: Sequence[int]) -> bytes:
        """The ciphertexts as concatenated big-endian bytes, `ciphertext_bytes` each. Raises InvalidCiphertextError."""
        self._check_range(ciphertexts)
        width = self.ciphertext_bytes
        return b"".join([ciphertext.to_bytes(width, "big") for ciphertext in ciphertexts])

    def from_wire(self, octets: bytes | memoryview) -> list[Ciphertext]:
        """The inverse of `to_wire`. Does not validate. Raises CiphertextError if a ciphertext is incomplete."""
        width = self.ciphertext_bytes
        if len(octets) % width:
            raise CiphertextError(f"{len(octets)} bytes are not a whole number of {width}-byte ciphertexts: send again")
        # Slicing a view does not copy.
        view = memoryview(octets)
        return [mpz.from_bytes(view[at : at + width], "big") for at in range(0, len(view), width)]

    @cached_property
    def _n(self) -> mpz:
        return mpz(self.n)

    @cached_property
    def _n_squared(self) -> mpz:
        return mpz(self.n_squared)

    def _check_range(self, ciphertexts: Sequence[int]) -> None:
        n_squared = self._n_squared
        for index, ciphertext in enumerate(ciphertexts):
            if not 0 < ciphertext < n_squared:
                raise InvalidCiphertextError(index=index, reason="is not between 0 and n^2")

    def _first_with_factor(self, ciphertexts: Sequence[int], start: int, stop: int) -> int | None:
        # Reducing mod n first takes 5.7 us at 3072 bits; products of whole ciphertexts, also of two or four before a
        # reduction, took 7 us and more.
        n, product = self._n, mpz(1)
        for ciphertext in ciphertexts[start:stop]:
            product = product * (ciphertext % n) % n
        if gmpy2.gcd(product, n) == 1:
            return None
        if stop - start == 1:
            return start
        middle = (start + stop) // 2
        left = self._first_with_factor(ciphertexts, start, middle)
        return left if left is not None else self._first_with_factor(ciphertexts, middle, stop)


@dataclass(frozen=True, repr=False)
class TestPublicKey(PublicKey):
    """A key for tests and vectors: short, insecure, and never made from a message."""

    __test__: ClassVar[bool] = False
    minimum_bits: ClassVar[int] = MINIMUM_TEST_BITS
    minimum_order_bits: ClassVar[int] = _MINIMUM_TEST_ORDER_BITS


def multiply(public_key: PublicKey, chunks: Iterable[bytes], *, threads: int | None = None) -> bytes:
    """The product, element by element, of one chunk of every cohort member; encrypts the sum of their plaintexts.

    chunks: validated, of one length, at least one; drawn one at a time, the next while the last is multiplied. threads:
    how many work, None for one a processor; the bytes are the same for any number.

    Raises ShapeError where the chunks are none or differ in length, ValueError where threads < 1.
    """
    threads = processors() if threads is None else threads
    if threads < 1:
        raise ValueError(f"{threads} threads: give at least 1")
    each = iter(chunks)
    first = next(each, None)
    if first is None:
        raise ShapeError("no chunks: give one of every member")
    product = public_key.from_wire(first)
    if threads == 1 or len(product) < 2 * _LEAST_RANGE:
        for chunk in each:
            _check_length(chunk, first)
            with lock_released():
                public_key.add_many(product, public_key.from_wire(chunk))
        return public_key.to_wire(product)
    parts = even_ranges(len(product), min(threads, len(product) // _LEAST_RANGE))
    width = public_key.ciphertext_bytes
    sums = [product[part.start : part.stop] for part in parts]

    def add(octets: memoryview, part: range, total: list[Ciphertext]) -> None:
        with lock_released():
            public_key.add_many(total, public_key.from_wire(octets[part.start * width : part.stop * width]))

    with ThreadPoolExecutor(len(parts), "multiplying") as pool:
        under_way: list[Future[None]] = []
        for chunk in each:
            _check_length(chunk, first)
            for future in under_way:
                future.result()
            octets = memoryview(chunk)
            under_way = [pool.submit(add, octets, part, total) for part, total in zip(parts, sums, strict=True)]
        for future in under_way:
            future.result()
    return b"".join(public_key.to_wire(total) for total in sums)


def _check_length(chunk: bytes, first: bytes) -> None:
    if len(chunk) != len(first):
        raise ShapeError(f"chunks of {len(first)} and {len(chunk)} bytes: give the same chunk of every member")
