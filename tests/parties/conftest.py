from functools import partial

import pytest

from dpcore.paillier.pool import ObfuscatorPool
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SystemRandom
from tests.federation import Federation, wait_until
from tests.parties.check_world import ALLOWED, PARTIES
from tests.parties.party_world import Ada, World
from tests.parties.test_node import ROWS, SCHEMA


@pytest.fixture(scope="session")
def test_secret_key():
    """A 2048-bit test key: the shortest that the wire allows."""
    return SecretKey.generate(SystemRandom(), bits=2048)


@pytest.fixture
def world(test_secret_key):
    return World(test_secret_key)


@pytest.fixture
def ada(world, tmp_path):
    return Ada(world, tmp_path)


@pytest.fixture
def small_comb(monkeypatch):
    """Short exponents: these tests encrypt little, and full ones would take most of the time."""
    monkeypatch.setattr(
        "parties.answering.obfuscators.ObfuscatorPool", partial(ObfuscatorPool, short_exponent_bits=512)
    )


@pytest.fixture
def csv_file(tmp_path):
    def write(text, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A federation with a coordinator that runs; tests must not change its files."""
    with Federation(
        tmp_path_factory.mktemp("served"), parties=dict.fromkeys(PARTIES, ROWS), schema=SCHEMA, policy=ALLOWED
    ) as made:
        made.start("coordinator")
        wait_until(lambda: '"listening"' in made.log("coordinator"), what="the coordinator")
        yield made


@pytest.fixture
def offline(tmp_path):
    """A federation whose files a test may damage; no process runs."""
    with Federation(tmp_path, parties=dict.fromkeys(PARTIES, ROWS), schema=SCHEMA, policy=ALLOWED) as made:
        yield made
