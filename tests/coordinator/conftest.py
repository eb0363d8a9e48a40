import pytest

from tests.federation.coordinator import Clients, RunningNode, World


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
