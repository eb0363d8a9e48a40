"""Paillier with the secret key: keys, decryption, and interoperation with `phe`. Only the learner uses it.

Keys are Blum keys (p = q = 3 mod 4, gcd(p-1, q-1) = 2), which short-exponent obfuscation needs
(dpcore.paillier.obfuscation). `phe` is imported only when needed. Its own decryption, from the primes alone, checks
ours (`decrypt_with_phe`, `check_with_phe`). Both compute with GMP, so a fault of GMP itself may escape.

Decryption is not constant time, so its timing could leak the secret key. It runs on whole totals on the learner's own
machine, after all signed statements about the total are verified. Do not decrypt on a machine shared with strangers,
and do not offer decryption as a service.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import gmpy2
from gmpy2 import mpz

from dpcore.errors import ConfigurationError
from dpcore.numbers.processors import processors
from dpcore.numbers.progress import Progress
from dpcore.paillier.public import DEFAULT_BITS, InvalidKeyError, PublicKey, lock_released, over_ranges
from dpcore.randomness.sources import RandomSource, require_system

# GMP runs a Baillie-PSW test and 16 further Miller-Rabin rounds: a composite passes with probability below 4^-16, even
# one chosen to pass.
_PRIMALITY_ROUNDS = 40
# Short compared with a total, so that no processor idles for long at its end: an eighth of a second at 3072 bits.
_DECRYPT_RUN = 16


_KEY_TYPE = "DAJ"
_ALGORITHM = "PAI-GN1"


@dataclass(frozen=True, repr=False)
class SecretKey:
    """Two primes p and q, held by the learner only. Prints as the public key's fingerprint.

    Valid from construction: p and q are different primes of the same length, p = q = 3 mod 4, gcd(p-1, q-1) = 2, and
    n = pq has 2048 to 4096 bits. Raises InvalidKeyError if that does not hold. p is the smaller, in either order.
    """

    p: int = field(repr=False)
    q: int = field(repr=False)

    public_key_type: ClassVar[Callable[[int], PublicKey]] = PublicKey

    def __post_init__(self) -> None:
        smaller, larger = sorted((int(self.p), int(self.q)))
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}(fingerprint={self.public_key.fingerprint()})"

    @classmethod
    def generate(cls, random: RandomSource, *, bits: int = DEFAULT_BITS) -> "SecretKey":
        """A new key whose modulus has exactly `bits` bits, even, in 2048..4096. Takes seconds for 3072 bits.

        Raises SeededRandomRefusedError if `random` is not the system's source, InvalidKeyError.
        """
        require_system(random)
        PublicKey((1 << (bits - 1)) | 1)
        return SecretKey(*_blum_primes(bits, random))

    @staticmethod
    def for_tests(p: int, q: int) -> "SecretKey":
        """A test key: two Blum primes whose product has 64 bits or more. It gives no security."""
        return TestSecretKey(p, q)

    @staticmethod
    def generate_test_key(random: RandomSource, *, bits: int) -> "SecretKey":
        """A new test key of `bits` bits, an even number, 64 or more; `random` may be seeded. It gives no security."""
        PublicKey.for_tests((1 << (bits - 1)) | 1)
        return TestSecretKey(*_blum_primes(bits, random))

    @cached_property
    def public_key(self) -> PublicKey:
        """The public key."""
        return type(self).public_key_type(self.p * self.q)

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
        for done in over_ranges(
            lambda start, stop: self._decrypt_run(ciphertexts[start:stop]), len(ciphertexts), size=size, threads=threads
        ):
            plaintexts += done
            if progress is not None:
                progress(len(plaintexts), len(ciphertexts))
        return plaintexts

    def _decrypt_run(self, ciphertexts: Sequence[int]) -> list[mpz]:
        p, q, minus_q_inverse, minus_p_inverse, p_inverse = self._constants
        p_squared, q_squared = p * p, q * q
        whole = [mpz(ciphertext) for ciphertext in ciphertexts]
        # powmod_base_list releases the interpreter lock for the whole list.
        powers_p = gmpy2.powmod_base_list([c % p_squared for c in whole], p - 1, p_squared)
        powers_q = gmpy2.powmod_base_list([c % q_squared for c in whole], q - 1, q_squared)
        plaintexts = []
        for power_p, power_q in zip(powers_p, powers_q, strict=True):
            m_p = (power_p - 1) // p * minus_q_inverse % p
            m_q = (power_q - 1) // q * minus_p_inverse % q
            plaintexts.append(m_p + p * ((m_q - m_p) * p_inverse % q))
        return plaintexts

    @cached_property
    def _constants(self) -> tuple[mpz, mpz, mpz, mpz, mpz]:
        """p, q, (-q)^-1 mod p, (-p)^-1 mod q, p^-1 mod q: ((n+1)^(p-1) mod p^2 - 1) / p = -q mod p."""
        p, q = mpz(self.p), mpz(self.q)
        return p, q, gmpy2.invert(-q, p), gmpy2.invert(-p, q), gmpy2.invert(p, q)

    def to_jwk(self) -> dict[str, Any]:
        """The key as a JSON Web Key in the format of phe's command line. Secret: let no one else read it."""
        return {
            "kty": _KEY_TYPE,
            "key_ops": ["decrypt"],
            "p": _integer_to_base64(self.p),
            "q": _integer_to_base64(self.q),
            "pub": public_key_to_jwk(self.public_key),
            "kid": f"Paillier private key {self.public_key.fingerprint()}",
        }

    @classmethod
    def from_jwk(cls, jwk: Mapping[str, Any]) -> Self:
        """The key of a JSON Web Key in the format of phe's command line. Raises InvalidKeyError."""
        if jwk.get("kty") != _KEY_TYPE or "decrypt" not in _list_field(jwk, "key_ops"):
            raise InvalidKeyError("not a Paillier secret key: give a JSON Web Key with kty DAJ and key_ops decrypt")
        key = cls(_base64_to_integer(jwk, "p"), _base64_to_integer(jwk, "q"))
        public = jwk.get("pub")
        if not isinstance(public, Mapping) or _base64_to_integer(public, "n") != key.public_key.n:
            raise InvalidKeyError("the JSON Web Key's public modulus is not the product of its primes: restore it")
        return key

    def to_phe(self) -> Any:
        """A `phe.PaillierPrivateKey`. Raises ConfigurationError if phe is not installed."""
        return _phe().PaillierPrivateKey(public_key_to_phe(self.public_key), self.p, self.q)

    @cached_property
    def phe_key(self) -> Any:
        """What `to_phe` returns, made once: at 3072 bits that takes longer than a decryption."""
        return self.to_phe()

    def decrypt_with_phe(self, ciphertext: int) -> int:
        """The plaintext in [0, n), by phe. Raises InvalidCiphertextError, ConfigurationError without phe."""
        self.public_key.validate([ciphertext])
        with lock_released():
            return int(self.phe_key.raw_decrypt(int(ciphertext)))

    def check_with_phe(self, random: RandomSource) -> None:
        """Check the key with phe, both ways. Raises InvalidKeyError, ConfigurationError without phe."""
        try:
            theirs = self.phe_key
        except (ValueError, ZeroDivisionError) as error:
            raise InvalidKeyError(f"phe does not take the key ({error}): report this") from error
        plaintext = random.below(self.public_key.n)
        ciphertext = theirs.public_key.raw_encrypt(plaintext)
        if self.decrypt_many([ciphertext], threads=1) != [plaintext] or theirs.raw_decrypt(ciphertext) != plaintext:
            raise InvalidKeyError(
                "radofed and phe open a ciphertext of the key differently: reinstall radofed[learner] and report this"
            )

    @classmethod
    def from_phe(cls, private_key: Any) -> Self:
        """The key of a `phe.PaillierPrivateKey`. Raises InvalidKeyError unless a Blum key, as one in six is."""
        return cls(private_key.p, private_key.q)


@dataclass(frozen=True, repr=False)
class TestSecretKey(SecretKey):
    """A key for tests and vectors: short and insecure."""

    __test__: ClassVar[bool] = False
    public_key_type: ClassVar[Callable[[int], PublicKey]] = PublicKey.for_tests


def phe_is_installed() -> bool:
    """Whether phe can be imported. It belongs to the learner's extra."""
    try:
        _phe()
    except ConfigurationError:
        return False
    return True


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
        import phe  # noqa: PLC0415 - only the learner's extra installs it, and only its key objects need it
    except ModuleNotFoundError as missing:
        raise ConfigurationError("phe is not installed: install radofed[learner]") from missing
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
