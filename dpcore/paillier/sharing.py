"""Shares of a secret: any `threshold` of them give it back, and fewer say nothing about it.

Shamir, "How to share a secret" (CACM 22, 1979). The secret is the constant term of a polynomial of degree threshold - 1
over the integers modulo the prime p = 2^256 + 297, whose other coefficients are uniform. The share of the member in
place i, counted from 1, is the polynomial at i, 33 bytes, big-endian.

For every secret, any threshold - 1 shares are independent and uniform: exactly one polynomial goes through them and the
secret. A coefficient is 64 random bytes modulo p, which is uniform up to 2^-255.
"""

from collections.abc import Mapping, Sequence

import gmpy2
from gmpy2 import mpz

from dpcore.errors import RadofedError
from dpcore.randomness.sources import RandomSource

PRIME = (1 << 256) + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
_WIDE_BYTES = 64


class SharesError(RadofedError):
    """Shares are not those of one secret."""


def deal(secret: bytes, *, threshold: int, members: int, random: RandomSource) -> list[bytes]:
    """The shares of SECRET_BYTES for the members in places 1, 2 and so on, of which `threshold` give it back.

    Raises ValueError unless 1 <= threshold <= members and the secret has its length.
    """
    if not 1 <= threshold <= members or len(secret) != SECRET_BYTES:
        raise ValueError(f"{threshold} of {members} shares of {len(secret)} bytes: give 1 to all, of {SECRET_BYTES}")
    drawn = random.bytes(_WIDE_BYTES * (threshold - 1))
    wide = [mpz.from_bytes(drawn[at : at + _WIDE_BYTES], "big") for at in range(0, len(drawn), _WIDE_BYTES)]
    coefficients = [mpz.from_bytes(secret, "big"), *(number % PRIME for number in wide)]
    return [_at(coefficients, place).to_bytes(SHARE_BYTES, "big") for place in range(1, members + 1)]


def _at(coefficients: Sequence[mpz], place: int) -> mpz:
    value = mpz(0)
    for coefficient in reversed(coefficients):
        value = (value * place + coefficient) % PRIME
    return value


class Recovery:
    """Gives secrets back that were dealt to the same members. places: of as many shares as the threshold."""

    def __init__(self, places: Sequence[int]) -> None:
        """Raises ValueError if a place occurs twice or is below 1."""
        if len(set(places)) != len(places) or not places or min(places) < 1:
            raise ValueError(f"places {list(places)}: give different ones, from 1 on")
        self._weights = {place: _weight(place, places) for place in places}

    def secret(self, shares: Mapping[int, bytes]) -> bytes:
        """The secret. shares: by place, one of each. Raises SharesError if they are no shares of one secret."""
        if not self._weights.keys() <= shares.keys():
            raise SharesError("a share is missing: give one of each place")
        values = {place: int.from_bytes(shares[place], "big") for place in self._weights}
        if any(len(shares[place]) != SHARE_BYTES or value >= PRIME for place, value in values.items()):
            raise SharesError("a share is not a number modulo the prime")
        found = sum((weight * values[place] for place, weight in self._weights.items()), mpz(0)) % PRIME
        if found >> (8 * SECRET_BYTES):
            raise SharesError("the shares are not those of one secret")
        return int(found).to_bytes(SECRET_BYTES, "big")


def _weight(place: int, places: Sequence[int]) -> mpz:
    """Lagrange's coefficient at 0 of the polynomial that is 1 at this place and 0 at the others."""
    above, below = mpz(1), mpz(1)
    for other in places:
        if other != place:
            above, below = above * other % PRIME, below * (other - place) % PRIME
    return above * gmpy2.invert(below, PRIME) % PRIME
