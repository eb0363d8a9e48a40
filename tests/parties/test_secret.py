"""The party's secret: created once, readable only by its owner, and never replaced by accident."""

import os
import stat

import pytest

from dpcore.errors import ConfigurationError
from dpcore.randomness.sources import SystemRandom
from parties.state_directory import load_or_create


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "secret"


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_created_once_and_readable_only_by_its_owner(path):
    before = os.umask(0)
    try:
        secret = load_or_create(path, SystemRandom())
    finally:
        os.umask(before)
    assert (len(secret), mode(path)) == (32, 0o600)
    assert load_or_create(path, SystemRandom()) == secret
    assert [found.name for found in path.parent.iterdir()] == ["secret"]
    assert load_or_create(path.with_name("another"), SystemRandom()) != secret


def test_a_file_that_a_crash_left_is_not_used(path):
    path.parent.mkdir()
    left = path.with_name(".secret.new")
    left.write_bytes(b"half")
    left.chmod(0o644)
    assert len(load_or_create(path, SystemRandom())) == 32
    assert mode(path) == 0o600


@pytest.mark.parametrize("loose", [0o604, 0o644, 0o602, 0o640])
def test_one_that_other_users_can_read_is_refused(path, loose):
    secret = load_or_create(path, SystemRandom())
    path.chmod(loose)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        load_or_create(path, SystemRandom())
    path.chmod(0o400)
    assert load_or_create(path, SystemRandom()) == secret


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_damaged_one_is_not_replaced(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="restore it"):
        load_or_create(path, SystemRandom())
    assert path.read_bytes() == content
