"""A second opening of a ciphertext, which checks the first: by PyCryptodome, from the primes alone.

It shares no code with dpcore.paillier.secret, and no arithmetic: powers are PyCryptodome's, computed in C without GMP,
and the rest is Python's. It knows no subgroup: it opens with the full exponents (Paillier 1999, section 7).

PyCryptodome is imported only when needed. It belongs to the learner's extra.
"""

from typing import Any

from dpcore.errors import ConfigurationError


class SecondOpening:
    """Opens ciphertexts under the primes of a valid key. Raises ConfigurationError without PyCryptodome."""

    def __init__(self, p: int, q: int) -> None:
        self._integer, self._n = _integer_type(), p * q
        self._factors = {prime: pow(self._logarithm(1 + p * q, prime), -1, prime) for prime in (p, q)}

    def plaintext(self, ciphertext: int) -> int:
        """The plaintext in [0, n) of a valid ciphertext."""
        (p, m_p), (q, m_q) = (
            (prime, self._logarithm(ciphertext, prime) * factor % prime) for prime, factor in self._factors.items()
        )
        return m_q + q * ((m_p - m_q) * pow(q, -1, p) % p)

    def ciphertext(self, plaintext: int, root: int) -> int:
        """The ciphertext of a plaintext whose obfuscator is root^n."""
        n = self._n
        return (1 + n * plaintext) * self._power(root, n, n * n) % (n * n)

    def _logarithm(self, base: int, prime: int) -> int:
        """(base^(prime - 1) mod prime^2 - 1) / prime."""
        return (self._power(base % prime**2, prime - 1, prime**2) - 1) // prime

    def _power(self, base: int, exponent: int, modulus: int) -> int:
        # Other threads run meanwhile.
        return int(pow(self._integer(base), self._integer(exponent), self._integer(modulus)))


def is_possible() -> bool:
    """Whether PyCryptodome can be imported."""
    try:
        _integer_type()
    except ConfigurationError:
        return False
    return True


def _integer_type() -> Any:
    try:
        from Crypto.Math.Numbers import Integer  # noqa: PLC0415 - only the learner's extra installs it
    except ModuleNotFoundError as missing:
        raise ConfigurationError("PyCryptodome is not installed: install radofed[learner]") from missing
    return Integer
