import pytest

from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SystemRandom
from tests.federation.coordinator import Clients, RunningNode, World


@pytest.fixture(scope="session")
def secret_key():
    """A 2048-bit test key, the shortest that a query allows."""
    return SecretKey.generate(SystemRandom(), bits=2048)


@pytest.fixture
def world(tmp_path, secret_key):
    return World(tmp_path, secret_key)


@pytest.fixture
def start_node():
    """Start coordinators in this process, and stop them afterwards."""
    running = []

    def start(config):
        running.append(RunningNode(config))
        return running[-1]

    yield start
    for node in running:
        node.close()


@pytest.fixture
def node(world, start_node):
    return start_node(world.config)


@pytest.fixture
def clients(world, node):
    clients = Clients(world, node.address)
    yield clients
    clients.close()
