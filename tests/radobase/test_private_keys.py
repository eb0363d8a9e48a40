"""Private keys that other users can read are refused, with the command that corrects it."""

import datetime as dt
import json
import os

import pytest

from dpcore.randomness.sources import SystemRandom
from learner.decryption import load_key
from learner.state import LearnerState
from parties.state_directory import load_or_create
from radobase.reading import ExposedKeyError, FileKind, check_private, read_bytes, with_remedy
from radobase.writing import create_durably
from radofed.provision import provision, renew_roster
from wire.envelopes import KEY_BYTES, SigningKey
from wire.identity import TlsFiles
from wire.roster import Role

KEY = FileKind(with_remedy("fix it"), limit_bytes=100, private=True)
OPEN_TO_OTHERS = [0o604, 0o602, 0o601, 0o644, 0o666, 0o400 | 0o004]
OPEN_TO_GROUP = [0o640, 0o440, 0o610]


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "my signing.key"
    create_durably(path, b"secret")
    return path


@pytest.fixture
def mounted(key, monkeypatch):
    """The key belongs to another user, as a secret that a deployment mounts."""
    monkeypatch.setattr(os, "geteuid", lambda: key.stat().st_uid + 1)
    return key


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_key_of_its_owner_alone_is_read(key, mode):
    key.chmod(mode)
    assert read_bytes(key, KEY) == b"secret"
    check_private(key)


@pytest.mark.parametrize("mode", OPEN_TO_OTHERS + OPEN_TO_GROUP + [0o620])
def test_a_key_that_group_or_others_can_use_is_refused(key, mode):
    key.chmod(mode)
    for check in (lambda: read_bytes(key, KEY), lambda: check_private(key)):
        with pytest.raises(ExposedKeyError) as caught:
            check()
        assert f"run: chmod 600 '{key}'" in str(caught.value)
        assert f"mode {mode:04o}" in str(caught.value)
        assert caught.value.mode == mode
    os.system(str(caught.value).partition("run: ")[2])
    assert read_bytes(key, KEY) == b"secret"


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o600, 0o640])
def test_the_group_may_read_a_mounted_key_that_belongs_to_another_user(mounted, mode):
    mounted.chmod(mode)
    assert read_bytes(mounted, KEY) == b"secret"


@pytest.mark.parametrize("mode", [*OPEN_TO_OTHERS, 0o620, 0o660, 0o444])
def test_nobody_else_may_use_a_mounted_key(mounted, mode):
    mounted.chmod(mode)
    with pytest.raises(ExposedKeyError, match="chmod 440"):
        read_bytes(mounted, KEY)


def test_a_link_to_a_key_is_judged_by_the_key(key, tmp_path):
    """As Kubernetes mounts secrets. A link itself has mode 0777."""
    link = tmp_path / "link.key"
    link.symlink_to(key)
    assert read_bytes(link, KEY) == b"secret"
    key.chmod(0o644)
    with pytest.raises(ExposedKeyError):
        read_bytes(link, KEY)


def test_other_files_may_be_public(key):
    key.chmod(0o644)
    assert read_bytes(key, FileKind(with_remedy("fix it"), limit_bytes=100)) == b"secret"


@pytest.fixture
def made(tmp_path):
    return provision(
        tmp_path / "fed", federation="clinics", coordinator_address="127.0.0.1:7443", parties=["ada", "bo", "cy"]
    )


def check_tls(directory) -> None:
    files = TlsFiles(directory / "ca.pem", directory / "certificate.pem", directory / "tls.key")
    files.check("clinics", Role.PARTY, "ada", dt.datetime.now(dt.UTC))


def read_tls(directory) -> None:
    TlsFiles(directory / "ca.pem", directory / "certificate.pem", directory / "tls.key").read()


def open_total(directory) -> None:
    LearnerState(directory, b"").opening(b"q" * 32)


READERS = {
    "signing.key": lambda directory: SigningKey.load(directory / "signing.key", "clinics"),
    "tls.key": check_tls,
    "tls.key for gRPC": read_tls,
    "paillier.jwk": lambda directory: load_key(directory / "paillier.jwk"),
    "secret": lambda directory: load_or_create(directory / "secret", SystemRandom()),
    f"queries/{(b'q' * 32).hex()}/opening.key": open_total,
}


@pytest.mark.parametrize("name", READERS)
def test_every_key_of_a_member_is_refused_if_others_can_read_it(made, learner_key, name):
    directory = next(member.directory for member in made.members if member.name == "ada")
    create_durably(
        directory / "paillier.jwk",
        json.dumps({**learner_key.secret.to_jwk(), "not_before_unix_s": learner_key.not_before_unix_s}).encode(),
    )
    create_durably(directory / "secret", bytes(32))
    (directory / "queries" / (b"q" * 32).hex()).mkdir(parents=True)
    create_durably(directory / "queries" / (b"q" * 32).hex() / "opening.key", b"o" * KEY_BYTES)
    READERS[name](directory)
    (directory / name.split(" ")[0]).chmod(0o640)
    with pytest.raises(ExposedKeyError, match="chmod 600"):
        READERS[name](directory)


def test_a_federation_key_that_others_can_read_signs_nothing(made):
    federation = made.directory / "federation"
    before = (federation / "roster.signed").read_bytes()
    (federation / "federation.key").chmod(0o644)
    with pytest.raises(ExposedKeyError, match="chmod 600"):
        renew_roster(federation)
    assert (federation / "roster.signed").read_bytes() == before
