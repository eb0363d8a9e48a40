"""Keys with short opening: their primes and generator, what is refused, and that every ciphertext opens rightly."""

import hashlib
from dataclasses import replace

import gmpy2
import pytest
from gmpy2 import mpz

from dpcore.errors import CiphertextError
from dpcore.paillier import secret as secret_module
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.public import InvalidKeyError, PublicKey
from dpcore.paillier.secret import SecretKey, ShortOpening, public_key_from_jwk
from dpcore.paillier.subgroup import MINIMUM_ORDER_BITS, STATISTICAL_BITS, Subgroup, order_bits_for
from dpcore.randomness.sources import SeededRandom, SystemRandom
from tests.federation.material import short_opening_key

ORDER = 64
KEY = SecretKey.generate_test_key(SeededRandom(1), bits=512, order_bits=ORDER)
OTHER = SecretKey.generate_test_key(SeededRandom(2), bits=512, order_bits=ORDER)
PUBLIC = KEY.public_key
SHORT = KEY.short_opening
# The same primes as a key of before.
FULL = SecretKey.for_tests(KEY.p, KEY.q)
N, N_SQUARED = mpz(PUBLIC.n), mpz(PUBLIC.n_squared)
PLAINTEXTS = [0, 1, 5, PUBLIC.n // 3, PUBLIC.n - 1]


@pytest.fixture(scope="module")
def real():
    return short_opening_key()


def encrypted(obfuscators, plaintexts=PLAINTEXTS):
    return [PUBLIC.raw_encrypt(m, o) for m, o in zip(plaintexts, obfuscators, strict=True)]


def roots(count, seed):
    random = SeededRandom(seed)
    return [gmpy2.powmod(random.below(PUBLIC.n), N, N_SQUARED) for _ in range(count)]


class TestGeneration:
    @pytest.mark.parametrize("which", ["test", "real"])
    def test_the_generator_has_the_two_orders_and_both_are_primes(self, which, request):
        key = KEY if which == "test" else request.getfixturevalue("real")
        short, bits = key.short_opening, ORDER if which == "test" else 272
        for prime, order in ((key.p, short.p_order), (key.q, short.q_order)):
            assert gmpy2.is_prime(order)
            assert order.bit_length() in {bits, bits + 1}
            assert (prime - 1) % order == 0
            assert short.generator % prime != 1
            assert pow(short.generator, order, prime) == 1
        assert gmpy2.gcd(key.p - 1, key.q - 1) == 2
        assert key.public_key.bits == (512 if which == "test" else 2048)
        assert short.p_order * short.q_order < 1 << key.public_key.subgroup.order_bits
        assert gmpy2.jacobi(short.generator, key.public_key.n) == 1

    @pytest.mark.more
    def test_the_cofactors_are_products_of_two_primes_that_are_longer_than_the_orders(self, monkeypatch):
        drawn, prime_of = [], secret_module._prime

        def noted(bits, random):
            drawn.append(prime_of(bits, random))
            return drawn[-1]

        monkeypatch.setattr(secret_module, "_prime", noted)
        key = SecretKey.generate(SystemRandom(), bits=2048, with_short_opening=True)
        short = key.short_opening
        assert all(gmpy2.is_prime(prime) and prime.bit_length() > order_bits_for(2048) + 1 for prime in drawn)
        cofactors = {(key.p - 1) // (2 * short.p_order), (key.q - 1) // (2 * short.q_order)}
        assert cofactors <= {a * b for a in drawn for b in drawn}

    def test_two_keys_differ(self):
        assert len({KEY.p, KEY.q, OTHER.p, OTHER.q, SHORT.p_order, SHORT.q_order}) == 6

    def test_the_lengths_withstand_an_attack_of_the_square_root_of_an_order(self):
        assert MINIMUM_ORDER_BITS == 2 * 128
        # By the strength of each modulus, with a margin of 8 bits.
        for bits, strength in ((2048, 128), (3072, 128), (3074, 152), (4096, 152)):
            assert order_bits_for(bits) == 2 * (strength + 8)
        assert STATISTICAL_BITS == 128

    def test_an_odd_length_is_refused(self):
        with pytest.raises(InvalidKeyError, match="use an even number"):
            SecretKey.generate_test_key(SeededRandom(1), bits=513, order_bits=ORDER)


class TestObfuscators:
    def test_they_are_powers_of_the_subgroup_and_all_different(self):
        drawn = Obfuscator(PUBLIC, SeededRandom(3)).draw_many(50)
        assert len(set(drawn)) == 50
        for obfuscator in drawn:
            assert gmpy2.powmod(obfuscator, SHORT.p_order, KEY.p**2) == 1
            assert gmpy2.powmod(obfuscator, SHORT.q_order, KEY.q**2) == 1

    def test_exponents_are_so_long_that_powers_are_uniform(self):
        """The distance of g^r from uniform is at most order / 2^bits of r."""
        obfuscator = Obfuscator(PUBLIC, SeededRandom(3), short_exponent_bits=512)
        assert obfuscator.exponent_bits == PUBLIC.subgroup.order_bits + 128
        assert SHORT.p_order * SHORT.q_order * 2**127 < 2**obfuscator.exponent_bits

    def test_the_base_is_the_generators_power(self):
        width = -(-PUBLIC.subgroup.exponent_bits // 8)

        class One(SeededRandom):
            def uint8(self, count):
                octets = super().uint8(count) * 0
                octets[::width] = 1
                return octets

        assert Obfuscator(PUBLIC, One(1)).draw_many(2) == [gmpy2.powmod(SHORT.generator, N, N_SQUARED)] * 2

    def test_a_key_without_a_subgroup_has_a_base_of_the_encryptors_own(self):
        source = Obfuscator(PUBLIC.without_subgroup, SeededRandom(3))
        assert source.exponent_bits == 256
        assert gmpy2.powmod(source.draw(), SHORT.p_order, KEY.p**2) != 1
        # They obfuscate for the key with the subgroup too.
        assert KEY.decrypt_many(PUBLIC.encrypt_many(PLAINTEXTS, source)) == PLAINTEXTS
        with pytest.raises(CiphertextError, match="another key"):
            PUBLIC.encrypt_many(PLAINTEXTS, Obfuscator(OTHER.public_key, SeededRandom(3)))


class Exponents(list):
    """The exponents of all powers of a decryption, by monkeypatch."""

    def __init__(self, monkeypatch):
        super().__init__()
        raising = secret_module._raising

        def noted(count, threads):
            def raised(bases, exponent, prime):
                self.extend([exponent] * len(bases))
                return raising(count, threads)(bases, exponent, prime)

            return raised

        monkeypatch.setattr(secret_module, "_raising", noted)


class TestOpening:
    def test_ciphertexts_of_the_subgroup_open_by_the_orders_alone(self, monkeypatch):
        ciphertexts = PUBLIC.encrypt_many(PLAINTEXTS, Obfuscator(PUBLIC, SeededRandom(4)))
        exponents = Exponents(monkeypatch)
        assert KEY.decrypt_many(ciphertexts, threads=1) == PLAINTEXTS
        assert sorted(exponents) == sorted([SHORT.p_order, SHORT.q_order] * len(PLAINTEXTS))
        assert FULL.decrypt_many(ciphertexts) == PLAINTEXTS

    def test_ciphertexts_of_others_open_by_the_full_exponent(self, monkeypatch):
        ciphertexts = encrypted(roots(len(PLAINTEXTS), 5))
        exponents = Exponents(monkeypatch)
        assert KEY.decrypt_many(ciphertexts, threads=1) == PLAINTEXTS
        cofactors = [(KEY.p - 1) // SHORT.p_order, (KEY.q - 1) // SHORT.q_order]
        assert sorted(exponents) == sorted([SHORT.p_order, SHORT.q_order, *cofactors] * len(PLAINTEXTS))

    def test_a_total_of_both_opens(self):
        inside = PUBLIC.encrypt_many(PLAINTEXTS, Obfuscator(PUBLIC, SeededRandom(4)))
        total = encrypted(roots(len(PLAINTEXTS), 6))
        PUBLIC.add_many(total, inside)
        assert KEY.decrypt_many(total) == [2 * m % PUBLIC.n for m in PLAINTEXTS]
        mixed = [inside[0], total[1], inside[2], inside[3], total[4]]
        wanted = [factor * m % PUBLIC.n for factor, m in zip((1, 2, 1, 1, 2), PLAINTEXTS, strict=True)]
        assert KEY.decrypt_many(mixed, threads=1) == wanted

    @pytest.mark.parametrize("where", ["p", "q"])
    def test_one_that_is_outside_modulo_one_prime_only_opens_and_its_time_does_not_tell_which(self, where, monkeypatch):
        """Whoever makes one knows the primes; the exponents are those of any other from outside."""
        prime, other = (KEY.p, KEY.q) if where == "p" else (KEY.q, KEY.p)
        root = 1 + other * pow(other, -1, prime) * (7 - 1)
        assert (root % prime, root % other) == (7, 1)
        ciphertext = PUBLIC.raw_encrypt(PUBLIC.n - 9, gmpy2.powmod(root, N, N_SQUARED))
        exponents = Exponents(monkeypatch)
        assert KEY.decrypt_many([ciphertext], threads=1) == [PUBLIC.n - 9]
        assert len(exponents) == 4

    def test_any_unit_opens_as_with_the_full_exponent(self):
        """A hostile sender may choose any number that is coprime to n."""
        random = SeededRandom(8)
        units = [random.below(PUBLIC.n_squared - 1) + 1 for _ in range(200)]
        units += [1, PUBLIC.n_squared - 1, PUBLIC.n + 1, PUBLIC.n - 1, SHORT.generator]
        units += [PUBLIC.n_squared - unit for unit in PUBLIC.encrypt_many([3, 4], Obfuscator(PUBLIC, random))]
        assert KEY.decrypt_many(units) == FULL.decrypt_many(units)

    def test_a_real_key_opens_both(self, real):
        public, plaintexts = real.public_key, [0, 7, real.public_key.n - 1]
        for key in (public, public.without_subgroup):
            ciphertexts = key.encrypt_many(plaintexts, Obfuscator(key, SystemRandom(), teeth=4, tables=2))
            assert real.decrypt_many(ciphertexts) == plaintexts
            assert [real.to_phe().raw_decrypt(int(c)) for c in ciphertexts] == plaintexts

    def test_a_key_opens_its_own_ciphertexts_and_those_without_its_subgroup(self):
        assert KEY.opens(PUBLIC)
        assert KEY.opens(PUBLIC.without_subgroup)
        assert FULL.opens(PUBLIC.without_subgroup)
        assert not FULL.opens(PUBLIC)
        assert not KEY.opens(OTHER.public_key)
        assert not KEY.opens(PublicKey.for_tests(PUBLIC.n, replace(PUBLIC.subgroup, generator=4)))


def one_modulo(prime):
    """1 modulo one prime of the key, and its generator modulo the other."""
    other = KEY.p * KEY.q // prime
    return (1 + prime * pow(prime, -1, other) * (SHORT.generator - 1)) % PUBLIC.n


class TestPublicSubgroup:
    @pytest.mark.parametrize(
        ("generator", "says"),
        [
            (0, "not between 1 and n"),
            (1, "not between 1 and n"),
            (PUBLIC.n, "not between 1 and n"),
            (PUBLIC.n - 1, "small order"),
            (KEY.p, "Jacobi symbol is not 1"),
            (next(x for x in range(2, 99) if gmpy2.jacobi(x, PUBLIC.n) == -1), "Jacobi symbol is not 1"),
            (one_modulo(KEY.p), "small order"),
            (one_modulo(KEY.q), "small order"),
        ],
    )
    def test_a_generator_that_shows_to_be_bad_is_refused(self, generator, says):
        with pytest.raises(InvalidKeyError, match=says):
            PublicKey.for_tests(PUBLIC.n, Subgroup(int(generator), 2 * ORDER))

    def test_a_generator_of_a_small_order_is_refused(self):
        """Order 3 * 97 modulo a prime of which p - 1 is divisible by both."""
        factor = 2 * 3 * 97
        p = next(x for x in range(factor * 2**33 + 1, factor * 2**34, factor) if gmpy2.is_prime(x) and x % 4 == 3)
        q = next(x for x in range(factor * 2**34 + 1, factor * 2**35, factor) if gmpy2.is_prime(x) and x % 4 == 3)
        generator = pow(5, (p - 1) * (q - 1) // (3 * 97) ** 2, p * q)
        assert pow(generator, 3 * 97, p * q) == 1 != generator
        with pytest.raises(InvalidKeyError, match="small order"):
            PublicKey.for_tests(p * q, Subgroup(generator, 40))

    @pytest.mark.parametrize("bits", [2 * MINIMUM_ORDER_BITS - 1, 2049])
    def test_the_length_of_the_order_is_refused_unless_it_gives_security(self, real, bits):
        n, generator = real.public_key.n, real.short_opening.generator
        PublicKey(n, Subgroup(generator, 2 * MINIMUM_ORDER_BITS))
        PublicKey(n, Subgroup(generator, n.bit_length()))
        with pytest.raises(InvalidKeyError, match=f"said to have {bits} bits"):
            PublicKey(n, Subgroup(generator, bits))

    def test_the_fingerprint_binds_the_generator_and_the_length(self):
        subgroup = PUBLIC.subgroup
        octets = b"rado.v1/subgroup-key\0\0\0\0\x40" + PUBLIC.n.to_bytes(64) + subgroup.generator.to_bytes(64)
        assert PUBLIC.fingerprint() == hashlib.sha256(octets + subgroup.order_bits.to_bytes(4)).hexdigest()
        others = [
            replace(subgroup, generator=pow(subgroup.generator, 2, PUBLIC.n)),
            replace(subgroup, order_bits=subgroup.order_bits + 1),
            None,
        ]
        prints = {PublicKey.for_tests(PUBLIC.n, other).fingerprint() for other in others}
        assert len(prints | {PUBLIC.fingerprint()}) == 4
        assert PUBLIC.without_subgroup.fingerprint() == FULL.public_key.fingerprint()
        assert FULL.public_key.fingerprint() == hashlib.sha256(PUBLIC.n.to_bytes(64)).hexdigest()


SQUARE = pow(SHORT.generator, 2, PUBLIC.n)


class TestSecretSubgroup:
    @pytest.mark.parametrize(
        ("short", "says"),
        [
            (replace(SHORT, generator=pow(OTHER.short_opening.generator, 2, PUBLIC.n)), "other orders"),
            (replace(SHORT, generator=1), "not between 1 and n"),
            (replace(SHORT, generator=SHORT.generator + PUBLIC.n), "not between 1 and n"),
            (replace(SHORT, p_order=SHORT.q_order, q_order=SHORT.p_order), "other orders"),
            (replace(SHORT, p_order=KEY.p - 1), "not a prime"),
            (replace(SHORT, q_order=SHORT.q_order * ((KEY.q - 1) // SHORT.q_order)), "not a prime"),
            (replace(SHORT, p_order=(1 << 89) - 1), "other orders"),
            (replace(SHORT, q_order=7), "not a prime of 16 bits"),
            (OTHER.short_opening, "."),
        ],
    )
    def test_a_subgroup_that_is_not_the_keys_is_refused(self, short, says):
        with pytest.raises(InvalidKeyError, match=says):
            SecretKey.for_tests(KEY.p, KEY.q, short)

    def test_a_generator_that_is_one_modulo_a_prime_is_refused(self):
        """The public check sees it too; here the secret one is asked alone."""
        for prime, other in ((KEY.p, KEY.q), (KEY.q, KEY.p)):
            assert one_modulo(prime) % prime == 1 != one_modulo(prime) % other
            with pytest.raises(InvalidKeyError, match="other orders"):
                replace(SHORT, generator=one_modulo(prime)).check(KEY.p, KEY.q, 16)

    def test_any_generator_of_the_subgroup_suits(self):
        key = SecretKey.for_tests(KEY.p, KEY.q, replace(SHORT, generator=SQUARE))
        ciphertexts = key.public_key.encrypt_many(PLAINTEXTS, Obfuscator(key.public_key, SeededRandom(9)))
        assert KEY.decrypt_many(ciphertexts) == key.decrypt_many(ciphertexts) == PLAINTEXTS

    def test_the_primes_may_come_in_either_order(self):
        swapped = replace(SHORT, p_order=SHORT.q_order, q_order=SHORT.p_order)
        assert SecretKey.for_tests(KEY.q, KEY.p, swapped) == KEY

    @pytest.mark.more
    def test_orders_that_are_too_short_for_security_are_refused(self):
        p, q, short = secret_module._primes_with_subgroup(2048, MINIMUM_ORDER_BITS - 2, SystemRandom())
        with pytest.raises(InvalidKeyError, match=r"said to have|prime of 256 bits"):
            SecretKey(p, q, short)
        with pytest.raises(InvalidKeyError, match="prime of 256 bits"):
            short.check(p, q, MINIMUM_ORDER_BITS)

    def test_nothing_of_it_is_printed(self):
        printed = f"{SHORT!r} {KEY!r} {SHORT}"
        assert not any(str(number) in printed for number in (SHORT.generator, SHORT.p_order, SHORT.q_order, KEY.p))


class TestFiles:
    def test_a_key_reads_back(self, real):
        assert SecretKey.from_jwk(real.to_jwk()) == real
        assert type(KEY).from_jwk(KEY.to_jwk()) == KEY

    def test_a_key_of_before_opens_and_has_no_subgroup(self):
        assert "short_opening" not in FULL.to_jwk()
        assert type(KEY).from_jwk(FULL.to_jwk()).short_opening is None

    def test_phe_reads_it(self, real):
        from phe.command_line import load_public_key
        from phe.util import base64_to_int

        jwk = real.to_jwk()
        assert load_public_key(jwk["pub"]).n == real.public_key.n
        assert {base64_to_int(jwk["p"]), base64_to_int(jwk["q"])} == {real.p, real.q}
        # What phe encrypts, by the public half, lies outside the subgroup.
        assert public_key_from_jwk(jwk["pub"]) == real.public_key.without_subgroup
        assert real.decrypt_many([load_public_key(jwk["pub"]).raw_encrypt(77)]) == [77]

    @pytest.mark.parametrize(
        "change",
        [None, [], 5, {}, {"generator": ""}, {"p_order": None}, {"q_order": "!!!!"}, {"generator": "AQ"},
         {"p_order": "AQAB"}, {"q_order": "AA"}],
    )  # fmt: skip
    def test_a_damaged_subgroup_is_refused(self, change):
        jwk = KEY.to_jwk()
        jwk["short_opening"] = {**jwk["short_opening"], **change} if isinstance(change, dict) and change else change
        with pytest.raises(InvalidKeyError):
            type(KEY).from_jwk(jwk)


def test_the_opening_of_a_key_with_short_opening_prints_as_its_fingerprint():
    assert repr(KEY) == f"TestSecretKey(fingerprint={PUBLIC.fingerprint()})"
    assert isinstance(SHORT, ShortOpening)
