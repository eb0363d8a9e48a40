from functools import partial

import pytest

from dpcore.paillier.obfuscation import ObfuscatorPool
from tests.federation.party import Ada, World
from tests.federation.processes import ProcessFederation
from tests.parties.check_world import ALLOWED, PARTIES
from tests.parties.test_node import ROWS, SCHEMA
from tests.waiting import wait_until


@pytest.fixture
def world(secret_key):
    return World(secret_key)


@pytest.fixture
def ada(world, tmp_path):
    return Ada(world, tmp_path)


@pytest.fixture
def small_comb(monkeypatch):
    """These tests encrypt little: full exponents would take longer than everything else."""
    monkeypatch.setattr(
        "parties.answering.contribution.ObfuscatorPool", partial(ObfuscatorPool, short_exponent_bits=512)
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
    """A federation with a running coordinator. Tests must not change its files."""
    with ProcessFederation(
        tmp_path_factory.mktemp("served"), parties=dict.fromkeys(PARTIES, ROWS), schema=SCHEMA, policy=ALLOWED
    ) as made:
        made.start("coordinator")
        wait_until(lambda: '"listening"' in made.log("coordinator"), what="the coordinator")
        yield made


@pytest.fixture
def offline(tmp_path):
    """A federation without running nodes. Tests may change its files."""
    with ProcessFederation(tmp_path, parties=dict.fromkeys(PARTIES, ROWS), schema=SCHEMA, policy=ALLOWED) as made:
        yield made
