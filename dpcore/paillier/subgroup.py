"""The subgroup of a key with short opening: parties draw obfuscators from it, and decryption has a short exponent.

Let p = 2 a b c + 1 and q = 2 d e f + 1 for primes a to f; a and d have 272 or 273 bits, the others more.

The squares modulo n = p q have one subgroup of order a d. The signed key carries a generator g of it, and no order.

An obfuscator is H^r mod n^2, with H = g^n mod n^2 and a fresh uniform r of 128 bits more than a d. So it is a uniform
element of the subgroup that H generates, within a distance of 2^-128. Its powers by a mod p^2 and by d mod q^2 are 1.

Assumptions: decisional composite residuosity, for such n; and the decisional RSA subgroup assumption.

The latter: given n and g, a uniform element of the subgroup cannot be distinguished from a uniform square modulo n. It
has the form of that of Groth ("Cryptography in Subgroups of Z_n*", TCC 2005), whose b c and e f are smooth.

Ma, Han and Lei (ACSAC 2021) build Paillier encryption on such a subgroup. So did Paillier (EUROCRYPT 1999, section 6).

Proofs, attacks and the choice of lengths: docs/explanation/short-opening.md.
"""

from dataclasses import dataclass
from functools import lru_cache

import gmpy2
from gmpy2 import mpz

MINIMUM_ORDER_BITS = 256
"""Of each prime order, in a key of any origin: an attack takes 2^128 multiplications and as much memory."""
STATISTICAL_BITS = 128
# A generator whose order has no prime power above this is refused: its subgroup is found in a moment.
_SMOOTH = 1000


def order_bits_for(modulus_bits: int) -> int:
    """The length of each prime order in a key that `SecretKey.generate` makes.

    The same attack takes 2^136, and for moduli above 3072 bits 2^160. NIST SP 800-56B revision 2, table 4, rates moduli
    of 3072 bits at 128 bits of security and of 4096 at 152.
    """
    return 272 if modulus_bits <= 3072 else 320


@dataclass(frozen=True)
class Subgroup:
    """A subgroup modulo n, by a generator, whose order is below 2^order_bits. See the module's docstring."""

    generator: int
    order_bits: int

    @property
    def exponent_bits(self) -> int:
        """The length of the random exponents by which an encryptor draws from it."""
        return self.order_bits + STATISTICAL_BITS

    def flaw(self, n: int, minimum_order_bits: int) -> str:
        """What is wrong with it as a subgroup modulo n, as far as n shows; empty if nothing is.

        A learner that gives a generator of small order, or of another key, weakens only what its own key protects. What
        is checked is what a mistake would make.
        """
        if not 2 * minimum_order_bits <= self.order_bits <= n.bit_length():
            return f"its order is said to have {self.order_bits} bits, not {2 * minimum_order_bits} to {n.bit_length()}"
        if not 1 < self.generator < n:
            return "its generator is not between 1 and n"
        return _flaw(self.generator, n)


@lru_cache(8)
def _flaw(generator: int, n: int) -> str:
    """Kept for the last few keys: a node reads a key at every step of a query, and this takes a few milliseconds."""
    if gmpy2.jacobi(generator, n) != 1:
        return "its generator is not a square: its Jacobi symbol is not 1"
    if gmpy2.gcd(gmpy2.powmod(generator, _smooth_multiple(), n) - 1, n) != 1:
        return "its generator has a small order"
    return ""


@lru_cache(1)
def _smooth_multiple() -> mpz:
    """The least common multiple of 1 to _SMOOTH."""
    multiple = mpz(1)
    for number in range(2, _SMOOTH + 1):
        multiple = gmpy2.lcm(multiple, number)
    return multiple
