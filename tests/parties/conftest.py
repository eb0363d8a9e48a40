from functools import partial

import pytest

from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.secret import SecretKey
from dpcore.randomness import SystemRandom
from tests.parties.party_world import Ada, World


@pytest.fixture(scope="session")
def test_secret_key():
    """A 2048-bit test key: the shortest that the wire lets through."""
    return SecretKey.generate(SystemRandom(), bits=2048)


@pytest.fixture
def world(test_secret_key):
    return World(test_secret_key)


@pytest.fixture
def ada(world, tmp_path):
    return Ada(world, tmp_path)


@pytest.fixture
def small_comb(monkeypatch):
    """Little is encrypted in these tests: the full table would take longer than all the rest."""
    monkeypatch.setattr("parties.handling.Obfuscator", partial(Obfuscator, short_exponent_bits=512, teeth=4, tables=2))


@pytest.fixture
def csv_file(tmp_path):
    def write(text, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
