"""Settings of all tests: no test fails because the machine is busy, and slow fixtures start once."""

import gc

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from tests.ray_nodes import RayNodes

# By default Hypothesis fails an example that takes longer than 0.2 s, as a first call that compiles does.
settings.register_profile("radofed", deadline=None)
settings.load_profile("radofed")


def pytest_collection_modifyitems(items):
    """Run the tests that end the shared Ray cluster last, so that it starts once."""
    items.sort(key=lambda item: item.get_closest_marker("ends_cluster") is not None)


def pytest_collection_finish():
    """Freeze imported and collected objects, so that garbage collections skip them.

    BLAS has one thread in this process, because there is already one process per processor. Nodes that tests start keep
    their default threads.
    """
    gc.collect()
    gc.freeze()
    threadpool_limits(1, user_api="blas")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Run the tests of a file in one process, and those of all files that use the Ray cluster in one."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "Ray cluster" if file.endswith("_cluster.py") else file

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def ray_clusters():
    """The Ray clusters started so far; the last one may be running."""
    started: list[RayNodes] = []
    yield started
    for nodes in started:
        nodes.end()


@pytest.fixture
def nodes(ray_clusters, tmp_path_factory):
    """A Ray cluster of three nodes. All tests share one; if a test ends it or a node, it is restarted."""
    if not ray_clusters or ray_clusters[-1].has_ended:
        ray_clusters.append(RayNodes(tmp_path_factory.mktemp("ray"), nodes=3))
    ray_clusters[-1].fill()
    return ray_clusters[-1]
