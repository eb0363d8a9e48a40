"""One ciphertext of every total is opened a second time, by another way, and so is one of every new key."""

import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import gmpy2
import numpy as np
import phe
import pytest
from click.testing import CliRunner
from gmpy2 import mpz
from phe.command_line import cli
from scipy import stats

from dpcore.errors import ConfigurationError
from dpcore.paillier.public import InvalidCiphertextError, InvalidKeyError
from dpcore.paillier.second_opening import SecondOpening
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SeededRandom, SeededRandomRefusedError, SystemRandom
from learner import decryption as opening_module
from learner.decryption import (
    LearnerKey,
    OpeningsDifferError,
    create_key,
    load_key,
    note_that_nothing_is_opened_twice,
    open_total,
)
from tests.federation.learner import World, encrypt, random_values, to_chunks
from tests.learner.test_opening import ROWS

SMALL = SecretKey.generate_test_key(SeededRandom(5), bits=256)


class Chooses(SystemRandom):
    """The system's source, except that it chooses a given ciphertext. Remembers the bounds."""

    def __init__(self, index):
        super().__init__()
        self.index, self.bounds = index, []

    def below(self, bound):
        self.bounds.append(bound)
        return self.index


class Asked:
    """A query with its total, which a test opens."""

    def __init__(self, world, secret=None):
        self.world, self.opened = world, world.ask()
        self.total = world.total(self.opened, ROWS)
        self.contributions = [(random_values(self.opened, seed), m) for seed, m in enumerate(ROWS.values())]
        tag = world.tag(self.opened, self.total.cohort, self.values)
        self.chunks = to_chunks(self.opened, encrypt(self.opened, self.contributions, tag))
        self.secret = secret or world.key.secret

    def open(self, random=None, chunks=None):
        chunks = self.chunks if chunks is None else chunks
        opening = self.world.openings[self.opened.query_id]
        return open_total(
            self.total, chunks, self.opened, self.world.roster, self.secret, opening=opening, random=random
        )

    @property
    def values(self):
        return sum(values for values, _ in self.contributions)


@pytest.fixture
def asked(world, small_chunks):
    return Asked(world)


def with_wrong_constant(secret, which):
    """The same key, one of whose constants is one too large."""
    faulty = type(secret)(secret.p, secret.q)
    halves = list(faulty._halves)
    place, name = {"of p": (0, "factor"), "of q": (1, "factor"), "of the remainders": (0, "inverse")}[which]
    halves[place] = replace(halves[place], **{name: getattr(halves[place], name) + 1})
    faulty.__dict__["_halves"] = tuple(halves)
    return faulty


def opens_one_wrongly(monkeypatch, wrong):
    """Let our decryption add 1 to the plaintext of one ciphertext."""
    ours = SecretKey.decrypt_many

    def decrypt_many(self, ciphertexts, **options):
        return [m + (index == wrong) for index, m in enumerate(ours(self, ciphertexts, **options))]

    monkeypatch.setattr(SecretKey, "decrypt_many", decrypt_many)


class TestOpening:
    @pytest.mark.parametrize("constant", ["of p", "of q", "of the remainders"])
    def test_a_wrong_constant_of_ours(self, asked, constant):
        asked.secret = with_wrong_constant(asked.world.key.secret, constant)
        # A wrong coefficient of the remainders shows in every ciphertext but the tag.
        with pytest.raises(OpeningsDifferError, match="report this"):
            asked.open(Chooses(0))

    def test_a_wrong_second_opening(self, asked, monkeypatch):
        monkeypatch.setattr(SecondOpening, "plaintext", lambda self, ciphertext: 5)
        with pytest.raises(OpeningsDifferError):
            asked.open()

    def test_a_wrong_plaintext_is_found_where_it_is_chosen_and_named(self, asked, monkeypatch):
        count = asked.opened.ciphertexts
        wrong = 1
        opens_one_wrongly(monkeypatch, wrong)
        for index in range(count):
            random = Chooses(index)
            # Without a second opening the check slot finds it too: that is the other error.
            with pytest.raises(opening_module.TotalError) as caught:
                asked.open(random)
            assert isinstance(caught.value, OpeningsDifferError) == (index == wrong)
            assert random.bounds == [count]
            if index == wrong:
                assert caught.value.ciphertext == wrong

    def test_the_choice_is_made_after_all_chunks_are_there(self, asked):
        random = Chooses(0)

        def chunks():
            for chunk in asked.chunks:
                assert not random.bounds
                yield chunk

        assert np.array_equal(asked.open(random, chunks()).values, asked.values)
        assert random.bounds == [asked.opened.ciphertexts]

    def test_only_the_system_chooses(self, asked):
        with pytest.raises(SeededRandomRefusedError):
            asked.open(SeededRandom(1))

    @pytest.mark.more
    def test_every_place_is_chosen_equally_often(self, monkeypatch):
        """Fails by chance with a probability below 10^-9."""
        count, openings, chosen = 7, 7_000, Counter()

        def open_again(self, ciphertext):
            chosen[ciphertext] += 1
            return ciphertext

        monkeypatch.setattr(SecretKey, "open_again", open_again)
        with ThreadPoolExecutor(1) as beside:
            for _ in range(openings):
                second = opening_module._opened_again(range(count), SMALL, SystemRandom(), beside)
                assert second.plaintext.result() == second.ciphertext
        assert set(chosen) == set(range(count))
        assert stats.chisquare(list(chosen.values())).pvalue > 1e-10

    @pytest.mark.parametrize("ciphertext", [0, SMALL.p, SMALL.public_key.n_squared])
    def test_a_number_that_is_no_ciphertext_is_refused(self, ciphertext):
        """It is opened beside ours, which may not have checked it yet."""
        with pytest.raises(InvalidCiphertextError):
            SMALL.open_again(ciphertext)

    def test_without_pycryptodome_totals_open_and_the_log_says_so_once(self, asked, monkeypatch, caplog):
        monkeypatch.setitem(sys.modules, "Crypto.Math.Numbers", None)
        note_that_nothing_is_opened_twice.cache_clear()
        for _ in range(2):
            assert np.array_equal(asked.open().values, asked.values)
        said = [record for record in caplog.records if "PyCryptodome is not installed" in record.getMessage()]
        assert [(record.name, record.levelname) for record in said] == [("learner", "WARNING")]

    def test_with_pycryptodome_the_log_says_nothing(self, asked, caplog):
        note_that_nothing_is_opened_twice.cache_clear()
        asked.open()
        assert not caplog.records


def write_by_phe(path, bits, monkeypatch=None):
    """A key file of phe's command line; with a monkeypatch of Blum primes, so that few tries suffice."""
    if monkeypatch is not None:
        original = phe.util.getprimeover

        def blum_prime(length):
            while (prime := original(length)) % 4 != 3:
                pass
            return prime

        monkeypatch.setattr("phe.paillier.getprimeover", blum_prime)
    done = CliRunner().invoke(cli, ["genpkey", "--keysize", str(bits), str(path)])
    assert done.exit_code == 0, done.output
    path.chmod(0o600)  # phe writes by the umask
    return json.loads(path.read_text())


def phe_file(path, p, q, kid="Paillier private key generated by pheutil on 2026-02-03 04:05:06"):
    """The same, of these primes and in phe's own words."""
    public = {"kty": "DAJ", "alg": "PAI-GN1", "key_ops": ["encrypt"], "n": phe.util.int_to_base64(p * q), "kid": "k"}
    private = {"p": phe.util.int_to_base64(p), "q": phe.util.int_to_base64(q), "pub": public, "kid": kid}
    path.write_text(json.dumps({"kty": "DAJ", "key_ops": ["decrypt"], **private}) + "\n")
    path.chmod(0o600)
    return path


def prime(bits, residue, seed):
    random = SeededRandom(seed)
    while True:
        candidate = random.bits(bits) | (3 << (bits - 2)) | 3
        candidate += residue - candidate % 4
        if gmpy2.is_prime(candidate):
            return candidate


class TestKeys:
    @pytest.mark.more
    def test_a_key_of_phes_command_line_opens_totals_of_full_strength(self, world, tmp_path, monkeypatch):
        path = tmp_path / "paillier.jwk"
        while True:
            jwk = write_by_phe(path, 3072, monkeypatch)
            p, q = (phe.util.base64_to_int(jwk[name]) for name in ("p", "q"))
            if gmpy2.gcd(p - 1, q - 1) == 2 and p.bit_length() == q.bit_length():
                break
        key = load_key(path)
        assert {key.secret.p, key.secret.q} == {p, q}
        assert key.public_key.bits == 3072
        # phe writes local time without a zone.
        assert time.time() - 28 * 3600 < key.not_before_unix_s <= time.time()
        assert load_key(path) == key
        asked = Asked(World(key, dict(world.rows)))
        assert np.array_equal(asked.open().values, asked.values)

    def test_our_keys_are_phes(self, learner_key):
        theirs = learner_key.secret.to_phe()
        assert type(theirs) is phe.PaillierPrivateKey
        assert (theirs.p, theirs.q, theirs.public_key.n) == (
            learner_key.secret.p,
            learner_key.secret.q,
            learner_key.public_key.n,
        )

    def test_the_time_of_a_phe_file_is_the_earliest_that_any_zone_allows(self, learner_key, tmp_path):
        path = phe_file(tmp_path / "key.jwk", learner_key.secret.p, learner_key.secret.q)
        # 2026-02-03 04:05:06 less 14 hours, in UTC.
        assert load_key(path) == LearnerKey(learner_key.secret, 1770041106)

    @pytest.mark.parametrize(
        "kid", ["Paillier private key generated by pheutil on 2026-02-30 04:05:06", "mine", 5, None]
    )
    def test_a_phe_file_without_a_time(self, learner_key, tmp_path, kid):
        path = phe_file(tmp_path / "key.jwk", learner_key.secret.p, learner_key.secret.q, kid)
        with pytest.raises(ConfigurationError, match="set it to the key's creation time"):
            load_key(path)

    @pytest.mark.parametrize(
        ("primes", "says"),
        [
            (((1024, 1, 1), (1024, 3, 2)), "not a Blum key"),
            (((1024, 3, 1), (1024, 1, 2)), "not a Blum key"),
            (((1024, 3, 1), (1024, 3, 1)), "must differ"),
            (((1024, 3, 1), (1032, 3, 2)), "equally long"),
            (((512, 3, 6), (512, 3, 8)), "1024 bits: use 2048 to 4096"),
        ],
    )
    def test_a_phe_key_that_does_not_suit(self, tmp_path, primes, says):
        p, q = (prime(*one) for one in primes)
        path = phe_file(tmp_path / "key.jwk", p, q)
        with pytest.raises(ConfigurationError, match=says) as caught:
            load_key(path)
        assert str(path) in str(caught.value)
        assert str(p) not in str(caught.value)

    def test_a_key_that_opens_wrongly_is_not_written(self, tmp_path, monkeypatch, learner_key):
        faulty = with_wrong_constant(learner_key.secret, "of the remainders")
        monkeypatch.setattr(SecretKey, "generate", staticmethod(lambda random, **options: faulty))
        with pytest.raises(InvalidKeyError, match="does not open twice"):
            create_key(tmp_path / "key.jwk", 2048)
        assert list(tmp_path.iterdir()) == []

    def test_without_pycryptodome_keys_are_made_and_read_and_the_log_says_so_once(self, tmp_path, monkeypatch, caplog):
        monkeypatch.setitem(sys.modules, "Crypto.Math.Numbers", None)
        note_that_nothing_is_opened_twice.cache_clear()
        path = tmp_path / "key.jwk"
        assert create_key(path, 2048) == load_key(path)
        create_key(tmp_path / "other.jwk", 2048)
        said = [record.getMessage()[:24] for record in caplog.records if record.name == "learner"]
        assert said == ["PyCryptodome is not inst"]

    def test_a_small_plaintext_has_no_remainder_to_be_wrong(self):
        """Why a wrong constant is noticed for values, which fill a plaintext, and may not be for a tag."""
        faulty = with_wrong_constant(SMALL, "of the remainders")
        n, n_squared = mpz(SMALL.public_key.n), mpz(SMALL.public_key.n_squared)
        small, large = ((1 + n * m) * gmpy2.powmod(3, n, n_squared) % n_squared for m in (5, n - 1))
        assert faulty.decrypt_many([small]) == [5]
        assert faulty.decrypt_many([large]) != [n - 1]
