"""Powers of eight numbers at a time equal GMP's, and open ciphertexts to the same plaintexts."""

import gmpy2
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.paillier import compiled, secret
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SeededRandom
from tests.examples import examples

pytestmark = pytest.mark.skipif(not compiled.AVAILABLE, reason="this processor has no AVX-512 IFMA")


@given(
    st.integers(20, 1100),
    st.booleans(),
    st.lists(st.integers(0, 1 << 2300), min_size=1, max_size=17),
    st.integers(1, 1 << 140),
)
@settings(deadline=None, max_examples=examples(20, 200))
def test_powers_equal_those_of_gmp(bits, longest, bases, exponent):
    # The longest and the shortest primes of a length, and numbers at both ends.
    prime = gmpy2.prev_prime(mpz(1) << bits) if longest else gmpy2.next_prime(mpz(1) << (bits - 1))
    square = prime * prime
    given_bases = [mpz(base) % square for base in bases] + [mpz(0), mpz(1), prime, prime - 1, square - 1]
    expected = [gmpy2.powmod(base, exponent, square) for base in given_bases]
    assert compiled.powers(given_bases, mpz(exponent), prime) == expected


@pytest.mark.parametrize("bits", [1024, 1536, 2048])
def test_numbers_of_largest_digits_are_reduced(bits):
    # All digits of the prime, and of the numbers, are as large as they can be: sums of digits are the largest.
    prime = (mpz(1) << bits) - 1
    numbers = [prime * prime - 1 - k for k in range(8)]
    assert compiled.powers(numbers, mpz(0xF00F), prime) == [gmpy2.powmod(n, 0xF00F, prime * prime) for n in numbers]


@pytest.mark.parametrize("order_bits", [None, 40])
def test_ciphertexts_open_to_the_same(order_bits, monkeypatch):
    key = SecretKey.generate_test_key(SeededRandom(3), bits=256, order_bits=order_bits)
    random, n = SeededRandom(4), key.public_key.n
    plaintexts = [0, 1, n - 1, *[random.below(n) for _ in range(30)]]
    # Of a key with short opening, these are from outside its subgroup.
    ciphertexts = [int((1 + m * n) * gmpy2.powmod(random.below(n), n, n * n) % (n * n)) for m in plaintexts]
    for many in (1, 1 << 30):
        monkeypatch.setattr(secret, "_MANY", many)
        monkeypatch.setattr(secret, "_FEW", many)
        assert key.decrypt_many(ciphertexts, threads=2) == plaintexts
