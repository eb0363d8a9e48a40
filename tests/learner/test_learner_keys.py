import json
import stat

import pytest

from dpcore.errors import ConfigurationError
from dpcore.randomness.sources import SeededRandom
from learner.keys import VALIDITY_S, create_key, load_key
from radofed.common.files.writing import create_durably
from wire.envelopes import Kind, SigningKey
from wire.query import PaillierKey

NOW = 1_800_000_000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "new" / "paillier.jwk"
    return path, create_key(path, 2048, now_unix_s=NOW)


def test_what_is_written_reads_back(made):
    path, key = made
    assert load_key(path) == key
    assert key.public_key.bits == 2048
    assert key.not_before_unix_s == NOW


def test_only_the_owner_may_read(made):
    assert stat.S_IMODE(made[0].stat().st_mode) == 0o600


def test_the_file_is_a_key_for_phe(made):
    path, key = made
    phe = pytest.importorskip("phe")
    jwk = json.loads(path.read_text())
    p, q = (phe.util.base64_to_int(jwk[name]) for name in ("p", "q"))
    public = phe.PaillierPublicKey(phe.util.base64_to_int(jwk["pub"]["n"]))
    ciphertext = public.raw_encrypt(12_345)
    assert phe.PaillierPrivateKey(public, p, q).raw_decrypt(ciphertext) == 12_345
    assert key.secret.decrypt_many([ciphertext]) == [12_345]


def test_a_key_is_never_overwritten(made):
    path, _ = made
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="never overwritten"):
        create_key(path, 2048)
    assert path.read_bytes() == before


@pytest.mark.parametrize("bits", [1024, 2046, 2049])
def test_short_and_odd_keys_are_refused(tmp_path, bits):
    path = tmp_path / "key.jwk"
    with pytest.raises(ConfigurationError, match=f"{bits} bits: use an even number from 2048"):
        create_key(path, bits)
    assert not path.exists()


def test_a_seed_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="seed"):
        create_key(tmp_path / "key.jwk", 2048, random=SeededRandom(1))


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    path = tmp_path / "key.jwk"
    with pytest.raises(ConfigurationError, match="No space left"):
        create_key(path, 2048)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda jwk: jwk.pop("not_before_unix_s"), "not_before_unix_s is missing"),
        (lambda jwk: jwk.update(not_before_unix_s="now"), "not_before_unix_s is missing or not a number"),
        (lambda jwk: jwk.update(not_before_unix_s=True), "not_before_unix_s is missing or not a number"),
        (lambda jwk: jwk.update(not_before_unix_s=-1), "not_before_unix_s is missing or not a number"),
        (lambda jwk: jwk.update(not_before_unix_s=1 << 62), "not_before_unix_s is missing or not a number"),
        (lambda jwk: jwk.update(kty="RSA"), "not a Paillier secret key"),
        (lambda jwk: jwk.update(p=jwk["q"]), "primes of a key must differ"),
        (lambda jwk: jwk.pop("q"), "has no q"),
        (lambda jwk: jwk["pub"].update(n=jwk["p"]), "not the product of its primes"),
    ],
)
def test_a_damaged_key_is_refused_without_showing_it(made, tmp_path, change, says):
    jwk = json.loads(made[0].read_text())
    secret = jwk["p"]
    change(jwk)
    path = tmp_path / "damaged.jwk"
    create_durably(path, json.dumps(jwk).encode())
    with pytest.raises(ConfigurationError, match=says) as caught:
        load_key(path)
    assert str(path) in str(caught.value)
    assert secret not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"'])
def test_no_key_at_all(tmp_path, content):
    path = tmp_path / "key.jwk"
    create_durably(path, content.encode())
    with pytest.raises(ConfigurationError, match="restore the key file"):
        load_key(path)


def test_an_absent_file_says_how_to_make_one(tmp_path):
    with pytest.raises(ConfigurationError, match="rado learner keygen"):
        load_key(tmp_path / "absent.jwk")


def test_certificates_of_one_key_are_the_same_bytes(made):
    path, key = made
    signer = SigningKey.generate()
    envelope = key.certify("learner", signer)
    assert envelope == load_key(path).certify("learner", signer)
    certified = PaillierKey.from_bytes(envelope.open(Kind.PAILLIER_KEY, signer.public_bytes))
    assert certified == PaillierKey("learner", key.public_key, NOW, NOW + VALIDITY_S)


def test_the_secret_does_not_print(made):
    _, key = made
    assert str(key.secret.p) not in repr(key)
