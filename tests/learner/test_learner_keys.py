import json
import stat
from pathlib import Path

import pytest

from dpcore.errors import ConfigurationError
from dpcore.randomness.sources import SeededRandom
from learner.decryption import VALIDITY_S, create_key, load_key, load_key_of, retired_file, rotate_key
from radobase.writing import create_durably
from wire.envelopes import MessageType, SigningKey
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


@pytest.mark.more
def test_a_rotated_key_stays_beside_the_new_one(made, tmp_path):
    path, first = tmp_path / "paillier.jwk", made[1]
    create_durably(path, made[0].read_bytes())
    second = rotate_key(path, 2048, now_unix_s=NOW + 5)
    assert load_key(path) == second != first
    third = rotate_key(path, 2048)
    for key in (first, second, third):
        assert load_key_of(path, key.public_key) == key
    assert len(list(tmp_path.iterdir())) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    retired_file(path, first.public_key).unlink()
    with pytest.raises(ConfigurationError, match="restore the file of the key"):
        load_key_of(path, first.public_key)


@pytest.mark.parametrize("at", ["retire", *(pytest.param(at, marks=pytest.mark.slow) for at in ("create", "replace"))])
def test_a_rotation_that_ends_early_loses_no_key_and_can_be_repeated(made, tmp_path, monkeypatch, at):
    path, first = tmp_path / "paillier.jwk", made[1]
    create_durably(path, made[0].read_bytes())

    def ended(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        if at == "replace":
            patched.setattr(Path, "replace", ended)
        else:
            calls = iter([create_durably, ended] if at == "retire" else [ended])

            def create(*given):
                return next(calls)(*given)

            patched.setattr("learner.decryption.create_durably", create)
        rotate_key(path, 2048)
    assert load_key(path) == first
    assert load_key(rotate_key(path, 2048) and path) != first
    assert load_key_of(path, first.public_key) == first
    assert len(list(tmp_path.iterdir())) == 2


def test_the_learner_is_warned_thirty_days_before_its_key_ends(made):
    key = made[1]
    begins = key.not_after_unix_s - 30 * 86_400
    assert key.expiry_warning(begins) == ""
    assert key.expiry_warning(begins + 1) == (
        "the Paillier key is for queries until 2028-01-15; make the next with `rado learner rotate-key`"
    )


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
    with pytest.raises(ConfigurationError, match=r"rado learner keygen --config learner\.toml"):
        load_key(tmp_path / "absent.jwk")


def test_certificates_of_one_key_are_the_same_bytes(made):
    path, key = made
    signer = SigningKey.generate("clinics")
    envelope = key.certify("learner", signer)
    assert envelope == load_key(path).certify("learner", signer)
    certified = PaillierKey.from_bytes(envelope.open(MessageType.PAILLIER_KEY, "clinics", signer.public_bytes))
    assert certified == PaillierKey("learner", key.public_key, NOW, NOW + VALIDITY_S)


def test_the_secret_does_not_print(made):
    _, key = made
    assert str(key.secret.p) not in repr(key)
