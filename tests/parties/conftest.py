import pytest

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
