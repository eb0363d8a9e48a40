"""Paillier with the secret key: keys, decryption, and interoperation with `phe`. Only the learner uses it.

Keys are Blum keys (p = q = 3 mod 4, gcd(p-1, q-1) = 2), which short-exponent obfuscation needs
(dpcore.paillier.obfuscation). A second way to open a ciphertext, without GMP, checks ours (`open_again`, `check`).
`phe` is imported only when its own objects are asked for.

Decryption is not constant time, so its timing could leak the secret key. It runs on whole totals on the learner's own
machine, after all signed statements about the total are verified. Do not decrypt on a machine shared with strangers,
and do not offer decryption as a service.
"""

import base64
import binascii
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeAlias

import gmpy2
from gmpy2 import mpz

from dpcore.errors import ConfigurationError
from dpcore.numbers.processors import processors
from dpcore.numbers.progress import Progress
from dpcore.paillier.public import DEFAULT_BITS, InvalidKeyError, PublicKey, TestPublicKey, over_ranges
from dpcore.paillier.second_opening import SecondOpening
from dpcore.paillier.subgroup import Subgroup, order_bits_for
from dpcore.randomness.sources import RandomSource, require_system

# GMP runs a Baillie-PSW test and 16 further Miller-Rabin rounds: a composite passes with probability below 4^-16, even
# one chosen to pass.
_PRIMALITY_ROUNDS = 40
# Short compared with a total, so that no processor idles for long at its end: an eighth of a second at 3072 bits.
_DECRYPT_RUN = 16
# The fewest that are opened eight at a time: for each thread without Numba in the process, which takes half a second to
# load, and in all with it.
_MANY, _FEW = 100, 4


_KEY_TYPE = "DAJ"
_ALGORITHM = "PAI-GN1"
_SHORT_OPENING = "short_opening"
_MAKE = "restore the key, or generate one with radofed"


@dataclass(frozen=True, repr=False)
class ShortOpening:
    """What a key with short opening has besides its primes: see dpcore.paillier.subgroup. Prints nothing."""

    generator: int = field(repr=False)
    """Modulo n; its orders modulo p and q are the two below."""
    p_order: int = field(repr=False)
    q_order: int = field(repr=False)

    @property
    def subgroup(self) -> Subgroup:
        """The public part."""
        return Subgroup(self.generator, (self.p_order * self.q_order).bit_length())

    def check(self, p: int, q: int, minimum_order_bits: int) -> None:
        """Raises InvalidKeyError unless the orders are primes of that length at least, and the generator's orders."""
        for prime, order in ((p, self.p_order), (q, self.q_order)):
            if order.bit_length() < minimum_order_bits or not gmpy2.is_prime(order, _PRIMALITY_ROUNDS):
                raise InvalidKeyError(f"a subgroup's order is not a prime of {minimum_order_bits} bits: {_MAKE}")
            # The order of an element that is not 1 and whose power is 1 is the prime exponent.
            if self.generator % prime == 1 or gmpy2.powmod(self.generator, order, prime) != 1:
                raise InvalidKeyError(f"a subgroup's generator has other orders than the key says: {_MAKE}")


@dataclass(frozen=True, repr=False)
class SecretKey:
    """Two primes p and q, held by the learner only. Prints as the public key's fingerprint.

    Valid from construction: p and q are different primes of the same length, p = q = 3 mod 4, gcd(p-1, q-1) = 2, and
    n = pq has 2048 to 4096 bits. Raises InvalidKeyError if that does not hold. p is the smaller, in either order.

    short_opening: of a key with a subgroup, None for one without. Its orders are primes of 256 bits or more.
    """

    p: int = field(repr=False)
    q: int = field(repr=False)
    short_opening: ShortOpening | None = field(default=None, repr=False)

    public_key_type: ClassVar[type[PublicKey]] = PublicKey

    def __post_init__(self) -> None:
        smaller, larger = sorted((int(self.p), int(self.q)))
        if self.short_opening is not None and self.p > self.q:
            short = self.short_opening
            object.__setattr__(self, "short_opening", replace(short, p_order=short.q_order, q_order=short.p_order))
        object.__setattr__(self, "p", smaller)
        object.__setattr__(self, "q", larger)
        if smaller < 2 or smaller == larger or self.p.bit_length() != self.q.bit_length():
            raise InvalidKeyError("the primes of a key must differ and be equally long: generate a key with radofed")
        if self.p % 4 != 3 or self.q % 4 != 3 or gmpy2.gcd(self.p - 1, self.q - 1) != 2:
            raise InvalidKeyError(
                "not a Blum key (p = q = 3 mod 4, gcd(p-1, q-1) = 2), which the proof of obfuscation needs: "
                "generate a key with radofed, which phe takes too, or with phe again: one in six of its keys is one"
            )
        # Length first: testing a number of any size for primality could take forever.
        _ = self.public_key
        if not all(gmpy2.is_prime(prime, _PRIMALITY_ROUNDS) for prime in (self.p, self.q)):
            raise InvalidKeyError("a factor of the key is not prime: generate a key with radofed")
        if self.short_opening is not None:
            self.short_opening.check(self.p, self.q, self.public_key_type.minimum_order_bits)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(fingerprint={self.public_key.fingerprint()})"

    @classmethod
    def generate(
        cls, random: RandomSource, *, bits: int = DEFAULT_BITS, with_short_opening: bool = False
    ) -> "SecretKey":
        """A new key whose modulus has exactly `bits` bits, even, in 2048..4096. Takes seconds for 3072 bits.

        Raises SeededRandomRefusedError if `random` is not the system's source, InvalidKeyError.
        """
        require_system(random)
        PublicKey((1 << (bits - 1)) | 1)
        if with_short_opening:
            return SecretKey(*_primes_with_subgroup(bits, order_bits_for(bits), random))
        return SecretKey(*_blum_primes(bits, random))

    @staticmethod
    def for_tests(p: int, q: int, short_opening: ShortOpening | None = None) -> "SecretKey":
        """A test key: two Blum primes whose product has 64 bits or more. It gives no security."""
        return TestSecretKey(p, q, short_opening)

    @staticmethod
    def generate_test_key(random: RandomSource, *, bits: int, order_bits: int | None = None) -> "SecretKey":
        """A new test key of `bits` bits, an even number, 64 or more; `random` may be seeded. It gives no security.

        order_bits: of each of the two orders, for a key with short opening; None for a key without.
        """
        PublicKey.for_tests((1 << (bits - 1)) | 1)
        if order_bits is not None:
            return TestSecretKey(*_primes_with_subgroup(bits, order_bits, random))
        return TestSecretKey(*_blum_primes(bits, random))

    @cached_property
    def public_key(self) -> PublicKey:
        """The public key."""
        subgroup = None if self.short_opening is None else self.short_opening.subgroup
        return type(self).public_key_type(self.p * self.q, subgroup)

    def opens(self, public_key: PublicKey) -> bool:
        """Whether this key opens what is encrypted under that one: its own, or its own without the subgroup."""
        return public_key in (self.public_key, self.public_key.without_subgroup)

    def decrypt_many(
        self, ciphertexts: Sequence[int], *, threads: int | None = None, progress: Progress | None = None
    ) -> list[mpz]:
        """The plaintexts in [0, n), in order, by the Chinese remainder theorem (Paillier 1999, section 7).

        threads: number of threads, None for one per processor. progress: callback (plaintexts done, total), called in
        the calling thread; it may raise to stop the work. Raises InvalidCiphertextError, before any decryption, if a
        ciphertext is not between 0 and n^2 or shares a factor with n; ValueError if threads < 1.
        """
        self.public_key.validate(ciphertexts)
        plaintexts: list[mpz] = []
        threads = processors() if threads is None else threads
        # A few ciphertexts are divided among the threads too.
        size = max(1, min(_DECRYPT_RUN, len(ciphertexts) // max(1, threads)))
        raising = _raising(len(ciphertexts), threads)
        for done in over_ranges(
            lambda start, stop: self._decrypt_run(ciphertexts[start:stop], raising),
            len(ciphertexts),
            size=size,
            threads=threads,
        ):
            plaintexts += done
            if progress is not None:
                progress(len(plaintexts), len(ciphertexts))
        return plaintexts

    def _decrypt_run(self, ciphertexts: Sequence[int], raising: "_Raising") -> list[mpz]:
        p_half, q_half = self._halves
        whole = [mpz(ciphertext) for ciphertext in ciphertexts]
        p_powers, q_powers = p_half.powers(whole, raising), q_half.powers(whole, raising)
        # Where a power is not 1 modulo its prime, the obfuscator is from outside the subgroup. The ciphertext is then
        # opened with the full exponent modulo both primes: its time does not tell modulo which it was outside.
        outside = [
            at
            for at, (p_power, q_power) in enumerate(zip(p_powers, q_powers, strict=True))
            if (p_power % p_half.prime, q_power % q_half.prime) != (1, 1)
        ]
        p, p_inverse = p_half.prime, p_half.inverse
        p_parts = p_half.plaintexts(p_powers, outside, raising)
        parts = zip(p_parts, q_half.plaintexts(q_powers, outside, raising), strict=True)
        return [m_p + p * ((m_q - m_p) * p_inverse % q_half.prime) for m_p, m_q in parts]

    @cached_property
    def _halves(self) -> "tuple[_Half, _Half]":
        p, q, short = mpz(self.p), mpz(self.q), self.short_opening
        p_order, q_order = (p - 1, q - 1) if short is None else (mpz(short.p_order), mpz(short.q_order))
        return _Half.of(p, q, p_order), _Half.of(q, p, q_order)

    def to_jwk(self) -> dict[str, Any]:
        """The key as a JSON Web Key in the format of phe's command line. Secret: let no one else read it."""
        return {
            "kty": _KEY_TYPE,
            "key_ops": ["decrypt"],
            "p": _integer_to_base64(self.p),
            "q": _integer_to_base64(self.q),
            "pub": public_key_to_jwk(self.public_key),
            "kid": f"Paillier private key {self.public_key.fingerprint()}",
            **self._short_opening_members(),
        }

    def _short_opening_members(self) -> dict[str, Any]:
        """What a key with short opening has beside phe's members, which phe leaves unread."""
        short = self.short_opening
        if short is None:
            return {}
        numbers = {"generator": short.generator, "p_order": short.p_order, "q_order": short.q_order}
        return {_SHORT_OPENING: {name: _integer_to_base64(number) for name, number in numbers.items()}}

    @classmethod
    def from_jwk(cls, jwk: Mapping[str, Any]) -> Self:
        """The key of a JSON Web Key in the format of phe's command line. Raises InvalidKeyError."""
        if jwk.get("kty") != _KEY_TYPE or "decrypt" not in _list_field(jwk, "key_ops"):
            raise InvalidKeyError("not a Paillier secret key: give a JSON Web Key with kty DAJ and key_ops decrypt")
        short_opening = None
        if _SHORT_OPENING in jwk:
            members = jwk[_SHORT_OPENING] if isinstance(jwk[_SHORT_OPENING], Mapping) else {}
            numbers = [_base64_to_integer(members, name) for name in ("generator", "p_order", "q_order")]
            short_opening = ShortOpening(*numbers)
        key = cls(_base64_to_integer(jwk, "p"), _base64_to_integer(jwk, "q"), short_opening)
        public = jwk.get("pub")
        if not isinstance(public, Mapping) or _base64_to_integer(public, "n") != key.public_key.n:
            raise InvalidKeyError("the JSON Web Key's public modulus is not the product of its primes: restore it")
        return key

    def open_again(self, ciphertext: int) -> int:
        """The plaintext in [0, n), by another way (dpcore.paillier.second_opening).

        Raises InvalidCiphertextError, ConfigurationError without PyCryptodome.
        """
        self.public_key.validate([ciphertext])
        return self._second_opening.plaintext(int(ciphertext))

    def check(self, random: RandomSource) -> None:
        """Open a ciphertext of PyCryptodome's powers both ways. Raises InvalidKeyError, and as `open_again`."""
        second, n = self._second_opening, self.public_key.n
        plaintext = random.below(n)
        ciphertext = second.ciphertext(plaintext, random.below(n - 1) + 1)
        if self.decrypt_many([ciphertext], threads=1) != [plaintext] or self.open_again(ciphertext) != plaintext:
            raise InvalidKeyError(
                "a ciphertext of the key does not open twice to what it encrypts: reinstall radofed[learner] and "
                "report this"
            )

    @cached_property
    def _second_opening(self) -> SecondOpening:
        """Made once: that takes as long as an opening."""
        return SecondOpening(self.p, self.q)

    def to_phe(self) -> Any:
        """A `phe.PaillierPrivateKey`. Raises ConfigurationError if phe is not installed."""
        return _phe().PaillierPrivateKey(public_key_to_phe(self.public_key), self.p, self.q)

    @classmethod
    def from_phe(cls, private_key: Any) -> Self:
        """The key of a `phe.PaillierPrivateKey`. Raises InvalidKeyError unless a Blum key, as one in six is."""
        return cls(private_key.p, private_key.q)


@dataclass(frozen=True)
class _Half:
    """Decryption modulo one prime p (Paillier 1999, section 7). Let c encrypt m, and e be the exponent.

    If c^e is 1 mod p, it is 1 + p L mod p^2 with L = e q m mod p. For e = p - 1 that always holds.
    """

    prime: mpz
    order: mpz
    """The exponent: the order of the subgroup modulo p, or p - 1."""
    factor: mpz
    """(order q)^-1 mod p."""
    full_factor: mpz
    """((p - 1) q)^-1 mod p."""
    inverse: mpz
    """p^-1 mod q."""

    @classmethod
    def of(cls, prime: mpz, other: mpz, order: mpz) -> Self:
        """The half of `prime`. other: the other prime."""
        full_factor = gmpy2.invert(-other, prime)
        return cls(prime, order, gmpy2.invert(order * other, prime), full_factor, gmpy2.invert(prime, other))

    def powers(self, ciphertexts: Sequence[mpz], raising: "_Raising") -> list[mpz]:
        """Each c^order mod p^2."""
        return raising([ciphertext % (self.prime * self.prime) for ciphertext in ciphertexts], self.order, self.prime)

    def plaintexts(self, powers: Sequence[mpz], outside: Sequence[int], raising: "_Raising") -> list[mpz]:
        """Each plaintext mod p, of what `powers` returned. outside: which to raise to the full exponent first."""
        p = self.prime
        plaintexts = [(power - 1) // p * self.factor % p for power in powers]
        full = raising([powers[at] for at in outside], (p - 1) // self.order, p) if outside else []
        for at, power in zip(outside, full, strict=True):
            plaintexts[at] = (power - 1) // p * self.full_factor % p
        return plaintexts


_Raising: TypeAlias = Callable[[Sequence[mpz], mpz, mpz], list[mpz]]
"""Raises numbers, one or more, to an exponent modulo the square of a prime."""


def _one_by_one(bases: Sequence[mpz], exponent: mpz, prime: mpz) -> list[mpz]:
    # powmod_base_list releases the interpreter lock for the whole list.
    return list(gmpy2.powmod_base_list(list(bases), exponent, prime * prime))


def _raising(count: int, threads: int) -> _Raising:
    """How to open `count` ciphertexts: eight at a time if the processor can, unless loading that takes longer."""
    if count >= _MANY * threads or (count >= _FEW and "numba" in sys.modules):
        from dpcore.paillier import compiled  # noqa: PLC0415  (numba takes half a second to import)

        if compiled.AVAILABLE:
            return compiled.powers
    return _one_by_one


@dataclass(frozen=True, repr=False)
class TestSecretKey(SecretKey):
    """A key for tests and vectors: short and insecure."""

    __test__: ClassVar[bool] = False
    public_key_type: ClassVar[type[PublicKey]] = TestPublicKey


def public_key_to_jwk(public_key: PublicKey) -> dict[str, Any]:
    """The public key as a JSON Web Key in the format of phe's command line."""
    return {
        "kty": _KEY_TYPE,
        "alg": _ALGORITHM,
        "key_ops": ["encrypt"],
        "n": _integer_to_base64(public_key.n),
        "kid": f"Paillier public key {public_key.fingerprint()}",
    }


def public_key_from_jwk(jwk: Mapping[str, Any]) -> PublicKey:
    """The public key of a JSON Web Key. Raises InvalidKeyError if it is not a valid Paillier public key."""
    if jwk.get("kty") != _KEY_TYPE or jwk.get("alg") != _ALGORITHM:
        raise InvalidKeyError(
            f"not a Paillier public key: give a JSON Web Key with kty {_KEY_TYPE} and alg {_ALGORITHM}"
        )
    return PublicKey(_base64_to_integer(jwk, "n"))


def public_key_to_phe(public_key: PublicKey) -> Any:
    """A `phe.PaillierPublicKey`. Raises ConfigurationError if phe is not installed."""
    return _phe().PaillierPublicKey(public_key.n)


def _phe() -> Any:
    try:
        import phe  # noqa: PLC0415 - no role needs it
    except ModuleNotFoundError as missing:
        raise ConfigurationError("phe is not installed: install radofed[phe]") from missing
    return phe


def _blum_primes(bits: int, random: RandomSource) -> tuple[int, int]:
    """Two Blum primes, uniform among those with both top bits set, so that the product has exactly `bits` bits."""
    if bits % 2:
        raise InvalidKeyError(f"{bits} bits do not divide into two primes of equal length: use an even number")
    while True:
        p, q = _blum_prime(bits // 2, random), _blum_prime(bits // 2, random)
        if p != q and gmpy2.gcd(p - 1, q - 1) == 2:
            return p, q


def _blum_prime(bits: int, random: RandomSource) -> int:
    while True:
        candidate = random.bits(bits) | (3 << (bits - 2)) | 3
        if gmpy2.is_prime(candidate, _PRIMALITY_ROUNDS):
            return candidate


def _primes_with_subgroup(bits: int, order_bits: int, random: RandomSource) -> tuple[int, int, ShortOpening]:
    """Two Blum primes as `_blum_primes` draws, and a uniform generator of their subgroup (dpcore.paillier.subgroup)."""
    if bits % 2:
        raise InvalidKeyError(f"{bits} bits do not divide into two primes of equal length: use an even number")
    while True:
        (p, p_order), (q, q_order) = (_prime_with_order(bits // 2, order_bits, random) for _ in range(2))
        if p != q and gmpy2.gcd(p - 1, q - 1) == 2:
            break
    p_root, q_root = _of_order(p, p_order, random), _of_order(q, q_order, random)
    generator = p_root + p * ((q_root - p_root) * gmpy2.invert(p, q) % q)
    return p, q, ShortOpening(int(generator), p_order, q_order)


def _prime_with_order(bits: int, order_bits: int, random: RandomSource) -> tuple[int, int]:
    """A Blum prime 2 a b c + 1 of `bits` bits, the top two set, and a, of order_bits or one more; a, b, c are prime.

    b and c together have the other bits, half each. a is drawn until both are prime: short primes are found fast.
    """
    rest = bits - 1 - order_bits
    cofactor = 2 * _prime(rest // 2, random) * _prime(rest - rest // 2, random)
    least, most = -(-(3 << (bits - 2)) // cofactor), ((1 << bits) - 1) // cofactor
    while True:
        order = least + random.below(most - least + 1)
        # The shorter test comes first; few pass it.
        if gmpy2.is_prime(order, _PRIMALITY_ROUNDS) and gmpy2.is_prime(order * cofactor + 1, _PRIMALITY_ROUNDS):
            return order * cofactor + 1, order


def _prime(bits: int, random: RandomSource) -> int:
    """A prime, uniform among those with both top bits set."""
    while True:
        candidate = random.bits(bits) | (3 << (bits - 2)) | 1
        if gmpy2.is_prime(candidate, _PRIMALITY_ROUNDS):
            return candidate


def _of_order(prime: int, order: int, random: RandomSource) -> mpz:
    """A uniform element of this order, a prime divisor of prime - 1, modulo `prime`."""
    while True:
        root = gmpy2.powmod(random.below(prime - 1) + 1, (prime - 1) // order, prime)
        if root != 1:
            return root


def _integer_to_base64(number: int) -> str:
    """Base64url without padding of the big-endian bytes, as in RFC 7518, section 2 (Base64urlUInt)."""
    return base64.urlsafe_b64encode(number.to_bytes(-(-number.bit_length() // 8), "big")).rstrip(b"=").decode()


def _base64_to_integer(jwk: Mapping[str, Any], name: str) -> int:
    text = jwk.get(name)
    if not isinstance(text, str) or not text:
        raise InvalidKeyError(f"the JSON Web Key has no {name}: export the key again")
    try:
        return int.from_bytes(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True), "big")
    except (binascii.Error, ValueError) as malformed:
        # The message leaves out the text, which may be part of a secret.
        raise InvalidKeyError(f"{name} of the JSON Web Key is not base64url: export the key again") from malformed


def _list_field(jwk: Mapping[str, Any], name: str) -> list[Any]:
    value = jwk.get(name)
    return value if isinstance(value, list) else []
