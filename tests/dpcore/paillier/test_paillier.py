"""Keys, encryption, addition, validation, the wire, decryption, and interoperation with phe."""

import json
import pickle
import sys
from itertools import pairwise
from pathlib import Path

import gmpy2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import CiphertextError, ConfigurationError, ShapeError
from dpcore.paillier import secret
from dpcore.paillier.obfuscation import Obfuscator, ObfuscatorPool
from dpcore.paillier.public import InvalidCiphertextError, InvalidKeyError, PublicKey, times_one_plus
from dpcore.paillier.second_opening import SecondOpening, is_possible
from dpcore.paillier.secret import (
    SecretKey,
    public_key_from_jwk,
    public_key_to_jwk,
    public_key_to_phe,
)
from dpcore.randomness.sources import SeededRandom, SeededRandomRefusedError, SystemRandom

TEST_KEY = SecretKey.generate_test_key(SeededRandom(b"paillier"), bits=512)
PUBLIC = TEST_KEY.public_key
N, N_SQUARED = PUBLIC.n, PUBLIC.n_squared
OBFUSCATOR = Obfuscator(PUBLIC, SeededRandom(b"fixture"), teeth=6, tables=2)

PRIMES = json.loads((Path(__file__).parents[2] / "vectors/paillier_test_primes.json").read_text(encoding="utf-8"))[
    "keys"
]


@pytest.fixture(scope="module")
def full_key():
    return SecretKey.generate(SystemRandom())


def encrypted(count):
    return PUBLIC.encrypt_many(list(range(count)), OBFUSCATOR)


class TestPublicKey:
    @pytest.mark.parametrize("n", [N, 0, 1, -N, (1 << 2047) - 1, -((1 << 2048) - 1), 1 << 4096 | 1], ids=hash)
    def test_a_modulus_of_the_wrong_length_is_refused(self, n):
        with pytest.raises(InvalidKeyError, match="2048 to 4096"):
            PublicKey(n)

    def test_the_modulus_is_a_python_integer(self):
        assert type(PublicKey.for_tests(gmpy2.mpz(N)).n) is int

    def test_the_least_legal_length(self):
        assert PublicKey((1 << 2047) + 1).bits == 2048

    def test_an_even_modulus_is_refused(self):
        with pytest.raises(InvalidKeyError, match="even"):
            PublicKey(1 << 2047)
        with pytest.raises(InvalidKeyError, match="even"):
            PublicKey.for_tests(N + 1)

    def test_a_test_key_has_a_minimum_length_too(self):
        with pytest.raises(InvalidKeyError):
            PublicKey.for_tests((1 << 63) - 1)

    def test_a_test_key_is_not_a_public_key(self):
        assert type(PUBLIC) is not PublicKey
        assert "Test" in repr(PUBLIC)
        assert PublicKey.for_tests(N) == PUBLIC

    def test_the_longest_legal_key_prints(self):
        longest = PublicKey((1 << 4095) + 1)
        assert repr(longest) == f"PublicKey(bits=4096, fingerprint={longest.fingerprint()})"

    def test_sizes(self):
        assert (PUBLIC.bits, PUBLIC.ciphertext_bytes, PUBLIC.n_squared) == (512, 128, N * N)
        assert PublicKey.for_tests((1 << 512) + 1).ciphertext_bytes == 130


class TestEncryption:
    def test_plaintexts_come_back_in_order(self):
        plaintexts = [0, 1, N - 1, *range(100, 150)]
        ciphertexts = PUBLIC.encrypt_many(plaintexts, OBFUSCATOR)
        assert TEST_KEY.decrypt_many(ciphertexts) == plaintexts
        assert TEST_KEY.decrypt_many(ciphertexts, threads=1) == plaintexts
        assert TEST_KEY.decrypt_many([]) == []

    @given(st.integers(0, 2), st.integers(0, N_SQUARED - 1), st.integers(-(N**2), N**2))
    def test_the_short_way_to_multiply_by_one_plus_n_m(self, edge, factor, m):
        factor = [factor, N_SQUARED - 1, factor % N][edge]
        expected = factor * (1 + N * m) % N_SQUARED
        assert times_one_plus(gmpy2.mpz(factor), m, gmpy2.mpz(N), gmpy2.mpz(N_SQUARED)) == expected

    @pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 70])
    @pytest.mark.parametrize("threads", [None, 1, 2, 5])
    def test_decryption_uses_threads_and_reports_progress(self, count, threads):
        reported = []
        plaintexts = [N - 1 - index for index in range(count)]
        ciphertexts = PUBLIC.encrypt_many(plaintexts, OBFUSCATOR)
        assert TEST_KEY.decrypt_many(
            ciphertexts, threads=threads, progress=lambda *so_far: reported.append(so_far)
        ) == (plaintexts)
        assert reported == sorted(reported)
        assert reported[-1] == (count, count)
        assert all(later - sooner <= 16 for (sooner, _), (later, _) in pairwise([(0, count), *reported]))

    def test_a_few_ciphertexts_are_divided_among_the_threads(self):
        reported = []
        TEST_KEY.decrypt_many(encrypted(3), threads=3, progress=lambda *so_far: reported.append(so_far))
        assert reported == [(1, 3), (2, 3), (3, 3)]
        TEST_KEY.decrypt_many(encrypted(3), threads=1, progress=lambda *so_far: reported.append(so_far))
        assert reported[3:] == [(3, 3)]

    def test_the_progress_callback_may_stop_the_work(self):
        def stop(done, _):
            raise InterruptedError(done)

        with pytest.raises(InterruptedError):
            TEST_KEY.decrypt_many(encrypted(40), progress=stop)

    def test_no_threads_are_refused(self):
        with pytest.raises(ValueError, match="at least 1"):
            TEST_KEY.decrypt_many(encrypted(2), threads=0)

    def test_ciphertexts_of_one_plaintext_differ(self):
        assert len(set(PUBLIC.encrypt_many([42] * 200, OBFUSCATOR))) == 200

    @pytest.mark.parametrize("plaintext", [-1, N])
    def test_a_plaintext_out_of_range_is_refused(self, plaintext):
        with pytest.raises(CiphertextError, match="not in"):
            PUBLIC.encrypt_many([plaintext], OBFUSCATOR)

    def test_obfuscators_of_another_key_are_refused(self):
        other = SecretKey.generate_test_key(SeededRandom(2), bits=512).public_key
        with pytest.raises(CiphertextError, match="another key"):
            other.encrypt_many([1], OBFUSCATOR)

    def test_products_are_sums(self):
        total = PUBLIC.encrypt_many([1, 2, N - 1], OBFUSCATOR)
        PUBLIC.add_many(total, PUBLIC.encrypt_many([10, 20, 2], OBFUSCATOR))
        PUBLIC.add_many(total, PUBLIC.encrypt_many([100, 200, 5], OBFUSCATOR))
        assert TEST_KEY.decrypt_many(total) == [111, 222, 6]

    @pytest.mark.parametrize("count", [2, 4])
    def test_a_sum_of_another_length_changes_nothing(self, count):
        total = encrypted(3)
        before = list(total)
        with pytest.raises(ShapeError):
            PUBLIC.add_many(total, encrypted(count))
        assert total == before


BAD = {
    "zero": (0, "between"),
    "negative": (-1, "between"),
    "n squared": (N_SQUARED, "between"),
    "beyond": (N_SQUARED + 1, "between"),
    "n": (N, "factor"),
    "p": (TEST_KEY.p, "factor"),
    "a multiple of q": (TEST_KEY.q * 999_983, "factor"),
    "p squared": (TEST_KEY.p**2, "factor"),
}


class TestValidation:
    @pytest.mark.parametrize("name", BAD)
    @pytest.mark.parametrize("index", [0, 5, 12])
    def test_a_bad_ciphertext_is_named(self, name, index):
        bad, reason = BAD[name]
        ciphertexts = encrypted(13)
        ciphertexts[index] = bad
        with pytest.raises(InvalidCiphertextError, match=reason) as refused:
            PUBLIC.validate(ciphertexts)
        assert refused.value.index == index
        with pytest.raises(InvalidCiphertextError):
            TEST_KEY.decrypt_many(ciphertexts)

    def test_the_first_of_several_is_named(self):
        ciphertexts = encrypted(16)
        # The product of these two is a multiple of n: it is zero mod n.
        ciphertexts[9], ciphertexts[3] = TEST_KEY.p, TEST_KEY.q
        with pytest.raises(InvalidCiphertextError) as refused:
            PUBLIC.validate(ciphertexts)
        assert refused.value.index == 3

    def test_good_ones_pass(self):
        PUBLIC.validate([])
        PUBLIC.validate([1])
        PUBLIC.validate([1, N_SQUARED - 1, *encrypted(40)])


class TestWire:
    def test_round_trip(self):
        ciphertexts = [1, *encrypted(5), N_SQUARED - 1]
        octets = PUBLIC.to_wire(ciphertexts)
        assert len(octets) == 7 * 128
        assert octets[:128] == b"\0" * 127 + b"\1"
        assert PUBLIC.from_wire(octets) == ciphertexts
        assert PUBLIC.from_wire(memoryview(octets)[128:-128]) == ciphertexts[1:-1]
        assert PUBLIC.from_wire(b"") == []

    @pytest.mark.parametrize("surplus", [1, 127])
    def test_a_broken_length_is_refused(self, surplus):
        with pytest.raises(CiphertextError, match="whole number"):
            PUBLIC.from_wire(PUBLIC.to_wire(encrypted(2)) + b"\0" * surplus)

    @pytest.mark.parametrize("bad", [0, N_SQUARED])
    def test_a_bad_ciphertext_is_never_sent(self, bad):
        with pytest.raises(InvalidCiphertextError) as refused:
            PUBLIC.to_wire([*encrypted(2), bad])
        assert refused.value.index == 2


class TestSecretKey:
    @pytest.mark.parametrize("bits", [64, 66, 256, 512])
    def test_generated_keys_are_blum_keys_of_the_exact_length(self, bits):
        for seed in range(10):
            key = SecretKey.generate_test_key(SeededRandom(seed), bits=bits)
            assert key.public_key.bits == bits
            assert key.p % 4 == key.q % 4 == 3
            assert gmpy2.gcd(key.p - 1, key.q - 1) == 2
            assert key.p.bit_length() == key.q.bit_length() == bits // 2

    def test_the_order_of_the_primes_does_not_matter(self):
        assert SecretKey.for_tests(TEST_KEY.q, TEST_KEY.p) == TEST_KEY

    def test_a_seed_makes_no_real_key(self):
        with pytest.raises(SeededRandomRefusedError):
            SecretKey.generate(SeededRandom(1))

    @pytest.mark.parametrize("bits", [512, 2046, 2047, 3073, 4098])
    def test_an_invalid_key_length_is_refused(self, bits):
        with pytest.raises(InvalidKeyError):
            SecretKey.generate(SystemRandom(), bits=bits)

    @pytest.mark.parametrize("key", PRIMES, ids=lambda key: str(key["bits"]))
    def test_the_shortest_and_the_longest_key_are_generated(self, key, monkeypatch):
        """From primes that were drawn before: to draw those of 4096 bits takes seconds."""
        primes = int(key["p"], 16), int(key["q"], 16)
        monkeypatch.setattr(secret, "_blum_primes", lambda bits, _: primes if bits == key["bits"] else None)
        assert SecretKey.generate(SystemRandom(), bits=key["bits"]).public_key.bits == key["bits"]
        assert SecretKey.generate_test_key(SeededRandom(1), bits=key["bits"]).public_key.bits == key["bits"]

    @pytest.mark.parametrize("bits", [62, 4098])
    def test_a_test_key_of_a_wrong_length_is_refused_before_a_prime_is_drawn(self, bits, monkeypatch):
        monkeypatch.setattr(secret, "_blum_primes", lambda bits, _: pytest.fail("primes were drawn"))
        with pytest.raises(InvalidKeyError, match=f"has {bits} bits"):
            SecretKey.generate_test_key(SeededRandom(1), bits=bits)

    def test_primes_are_tested_in_as_many_rounds_as_the_bound_needs(self, monkeypatch):
        """GMP takes 24 of them as the Baillie-PSW test. At 25 rounds, the default, it makes one further round."""
        tested = []
        is_prime = gmpy2.is_prime
        monkeypatch.setattr(gmpy2, "is_prime", lambda *given: tested.append(given[1:]) or is_prime(*given))
        SecretKey.for_tests(TEST_KEY.p, TEST_KEY.q)
        assert tested == [(24 + 16,)] * 2
        SecretKey.generate_test_key(SeededRandom(2), bits=64)
        assert len(tested) > 4
        assert set(tested) == {(24 + 16,)}

    def test_short_primes_are_refused(self):
        with pytest.raises(InvalidKeyError, match="2048"):
            SecretKey(TEST_KEY.p, TEST_KEY.q)

    def test_malformed_keys_are_refused(self):
        p, q = TEST_KEY.p, TEST_KEY.q
        one_mod_four = next(c for c in range(p + 2, 2 * p, 4) if gmpy2.is_prime(c))
        # Both primes minus one are divisible by three.
        shares_three = [c for c in range(p - p % 12 + 7, p + 40_000, 12) if gmpy2.is_prime(c)][:2]
        composite = next(c for c in range(p + 4, 2 * p, 4) if not gmpy2.is_prime(c) and gmpy2.gcd(c - 1, q - 1) == 2)
        longer = next(c for c in range(8 * p + 3 - 8 * p % 4, 16 * p, 4) if gmpy2.is_prime(c))
        for bad, match in [
            ((p, p), "differ"),
            ((p, longer), "equally long"),
            ((2, 3), "Blum"),
            ((-p, -q), "differ"),
            ((one_mod_four, q), "Blum"),
            (tuple(shares_three), "Blum"),
            ((composite, q), "not prime"),
        ]:
            with pytest.raises(InvalidKeyError, match=match):
                SecretKey.for_tests(*bad)

    def test_a_key_prints_only_its_fingerprint(self):
        assert repr(TEST_KEY) == f"TestSecretKey(fingerprint={PUBLIC.fingerprint()})"
        for text in (repr(TEST_KEY), str(TEST_KEY), f"{TEST_KEY}", repr([TEST_KEY])):
            assert str(TEST_KEY.p) not in text
            assert str(TEST_KEY.q) not in text
        assert pickle.loads(pickle.dumps(TEST_KEY)) == TEST_KEY


class TestFullKey:
    def test_a_real_key_end_to_end(self, full_key):
        public = full_key.public_key
        assert type(public) is PublicKey
        assert (public.bits, public.ciphertext_bytes) == (3072, 768)
        obfuscator = Obfuscator(public, SystemRandom())
        assert obfuscator.exponent_bits == 1536
        plaintexts = [0, public.n - 1, *range(20)]
        ciphertexts = public.encrypt_many(plaintexts, obfuscator)
        assert len(set(ciphertexts)) == 22
        assert full_key.decrypt_many(ciphertexts) == plaintexts
        with ObfuscatorPool(public, SystemRandom()) as pool:
            pool.prepare(30)
            more = public.from_wire(public.to_wire(public.encrypt_many(plaintexts, pool)))
        public.validate(more)
        assert len({*ciphertexts, *more}) == 44
        public.add_many(more, public.add_plaintexts(ciphertexts, [-5] * 22))
        assert full_key.decrypt_many(more) == [(2 * m - 5) % public.n for m in plaintexts]

    @pytest.mark.more
    def test_phe_opens_ours_and_we_open_phes(self, full_key):
        theirs = full_key.to_phe()
        public = full_key.public_key
        obfuscator = Obfuscator(public, SystemRandom(), short_exponent_bits=512)
        ours = public.encrypt_many([0, 5, public.n - 1], obfuscator)
        assert [theirs.raw_decrypt(int(c)) for c in ours] == [0, 5, public.n - 1]
        made_by_phe = [theirs.public_key.raw_encrypt(m) for m in (0, 7, public.n - 2)]
        assert full_key.decrypt_many(made_by_phe) == [0, 7, public.n - 2]

    def test_phes_encrypted_numbers_open_and_add_with_ours(self, full_key):
        import phe

        theirs = full_key.to_phe()
        encrypted_number = theirs.public_key.encrypt(1234)
        public = full_key.public_key
        total = public.encrypt_many([66], Obfuscator(public, SystemRandom()))
        public.add_many(total, [encrypted_number.ciphertext()])
        assert full_key.decrypt_many(total) == [1300]
        assert theirs.decrypt(phe.EncryptedNumber(theirs.public_key, int(total[0]))) == 1300

    def test_a_key_is_checked_by_two_openings(self, full_key, monkeypatch):
        full_key.check(SystemRandom())
        with monkeypatch.context() as patched:
            patched.setattr(SecondOpening, "plaintext", lambda self, ciphertext: 5)
            with pytest.raises(InvalidKeyError, match="does not open twice"):
                full_key.check(SystemRandom())
        ours = SecretKey.decrypt_many
        with monkeypatch.context() as patched:
            patched.setattr(SecretKey, "decrypt_many", lambda *given, **more: [m + 1 for m in ours(*given, **more)])
            with pytest.raises(InvalidKeyError, match="does not open twice"):
                full_key.check(SystemRandom())

    def test_the_second_opening_is_phes(self, full_key):
        public, theirs = full_key.public_key, full_key.to_phe()
        second, root = SecondOpening(full_key.p, full_key.q), SystemRandom().below(public.n)
        for plaintext in (0, 5, public.n - 1):
            ciphertext = second.ciphertext(plaintext, root)
            assert ciphertext == theirs.public_key.raw_encrypt(plaintext, root)
            assert second.plaintext(ciphertext) == theirs.raw_decrypt(ciphertext) == plaintext

    def test_the_second_opening_uses_no_gmp(self, full_key, monkeypatch):
        second = SecondOpening(full_key.p, full_key.q)
        for name in ("powmod", "powmod_base_list", "invert"):
            monkeypatch.delattr(gmpy2, name)
        assert second.plaintext(second.ciphertext(77, 3)) == 77

    def test_json_web_keys(self, full_key):
        jwk = json.loads(json.dumps(full_key.to_jwk()))
        assert SecretKey.from_jwk(jwk) == full_key
        assert public_key_from_jwk(jwk["pub"]) == full_key.public_key
        assert SecretKey.from_phe(full_key.to_phe()) == full_key


class TestJsonWebKeys:
    def test_phes_command_line_reads_ours(self):
        from phe.command_line import load_public_key
        from phe.util import base64_to_int

        jwk = TEST_KEY.to_jwk()
        assert load_public_key(jwk["pub"]) == public_key_to_phe(PUBLIC)
        assert {base64_to_int(jwk["p"]), base64_to_int(jwk["q"])} == {TEST_KEY.p, TEST_KEY.q}
        assert jwk["kty"] == "DAJ"
        assert jwk["key_ops"] == ["decrypt"]
        assert jwk["pub"] == public_key_to_jwk(PUBLIC)
        assert jwk["pub"]["key_ops"] == ["encrypt"]
        assert set(jwk["pub"]) == {"kty", "alg", "key_ops", "n", "kid"}
        assert set(jwk) == {"kty", "key_ops", "p", "q", "pub", "kid"}
        assert (jwk["kid"], jwk["pub"]["kid"]) == tuple(
            f"Paillier {which} key {PUBLIC.fingerprint()}" for which in ("private", "public")
        )

    def test_we_read_what_phes_command_line_writes(self, tmp_path):
        import phe.util
        from click.testing import CliRunner
        from phe.command_line import cli

        target = tmp_path / "key.jwk"
        assert CliRunner().invoke(cli, ["genpkey", "--keysize", "2048", str(target)]).exit_code == 0
        jwk = json.loads(target.read_text())
        assert public_key_from_jwk(jwk["pub"]).bits == 2048
        # The primes that phe draws seldom make a Blum key: the refusal shows that we read them correctly.
        p, q = (phe.util.base64_to_int(jwk[name]) for name in ("p", "q"))
        if p % 4 == q % 4 == 3 and gmpy2.gcd(p - 1, q - 1) == 2:
            assert SecretKey.from_jwk(jwk).public_key.n == p * q
        else:
            with pytest.raises(InvalidKeyError, match="Blum"):
                SecretKey.from_jwk(jwk)

    def test_a_phe_key_that_is_not_a_blum_key_is_refused(self):
        import phe

        random = SeededRandom(4)
        primes = []
        while len(primes) < 2:
            candidate = random.bits(1024) | (3 << 1022) | 1
            if candidate % 4 == 1 and gmpy2.is_prime(candidate):
                primes.append(candidate)
        theirs = phe.PaillierPrivateKey(phe.PaillierPublicKey(primes[0] * primes[1]), *primes)
        with pytest.raises(InvalidKeyError, match="Blum"):
            SecretKey.from_phe(theirs)

    @pytest.mark.parametrize(
        "change",
        [{"kty": "RSA"}, {"key_ops": ["encrypt"]}, {"key_ops": None}, {"p": None}, {"p": ""}, {"p": 5}, {"q": "!!!!"},
         {"q": "A"}, {"p": "!!!!" + TEST_KEY.to_jwk()["p"]}, {"pub": None}, {"pub": {"n": "AQAB"}}, {"p": "AQAB"}],
    )  # fmt: skip
    def test_a_malformed_secret_key_is_refused(self, change):
        type_of_key = type(TEST_KEY)
        assert type_of_key.from_jwk(TEST_KEY.to_jwk()) == TEST_KEY
        with pytest.raises(InvalidKeyError):
            type_of_key.from_jwk({**TEST_KEY.to_jwk(), **change})

    def test_only_the_padding_is_cut_off(self):
        """The last six bits of this number are the letter X."""
        assert secret._integer_to_base64(0x010017) == "AQAX"
        assert secret._integer_to_base64(0x10001) == "AQAB"
        assert secret._integer_to_base64(1) == "AQ"

    @pytest.mark.parametrize("change", [{"kty": "RSA"}, {"alg": "RSA"}, {"n": None}, {"n": "AQAB"}])
    def test_a_malformed_public_key_is_refused(self, change, full_key):
        with pytest.raises(InvalidKeyError):
            public_key_from_jwk({**public_key_to_jwk(full_key.public_key), **change})

    def test_without_phe_the_error_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "phe", None)
        with pytest.raises(ConfigurationError, match=r"radofed\[phe\]"):
            TEST_KEY.to_phe()

    def test_without_pycryptodome_the_error_says_what_to_install(self, monkeypatch):
        assert is_possible()
        monkeypatch.setitem(sys.modules, "Crypto.Math.Numbers", None)
        with pytest.raises(ConfigurationError, match=r"radofed\[learner\]"):
            SecondOpening(TEST_KEY.p, TEST_KEY.q)
        assert not is_possible()


def test_plaintexts_are_added_to_as_many_ciphertexts():
    key = PublicKey.for_tests((1 << 64) + 13)
    with pytest.raises(ShapeError, match="give one for each"):
        key.add_plaintexts([2, 3], [1])


def test_both_primes_of_a_key_are_three_modulo_four():
    """For primes of which only the larger is one modulo four; the greatest common divisor is that of a Blum key."""
    smaller = next(p for p in range((1 << 33) + 3, 1 << 34, 4) if gmpy2.is_prime(p))
    larger = next(q for q in range(smaller + 2, 1 << 34, 4) if gmpy2.is_prime(q) and gmpy2.gcd(smaller - 1, q - 1) == 2)
    assert larger % 4 == 1
    with pytest.raises(InvalidKeyError, match="Blum"):
        SecretKey.for_tests(smaller, larger)
