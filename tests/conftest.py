"""For all tests: no test fails because the machine is busy, and what takes long to start is started once."""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from threadpoolctl import threadpool_limits

from dpcore.numbers.processors import processors
from learner.decryption import LearnerKey
from radobase.writing import tighten_umask
from radofed.cli.entry_point import OPENBLAS_WAIT
from tests import processor_time
from tests.federation import material
from tests.postgresql import PostgreSqlServer
from tests.ray_nodes import RayNodes
from tests.waiting import HANG_S

# Hypothesis fails an example that takes longer than 0.2 s by default, and so would a first call that compiles.
# `make test` tries the same examples each time, so that a failure is that of a change; `make test-all` tries new ones.
settings.register_profile("quick", deadline=None, max_examples=10, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=200)
# A mutant is killed by the first example that fails; it need not be the simplest one.
settings.register_profile(
    "mutants", deadline=None, max_examples=50, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("quick")


_HERE = Path(__file__).parent

# As the program does: files that tests make for nodes are refused where others may write to them.
tighten_umask()

# Workers of a cluster, and scripts that tests run, wait as little as nodes do.
os.environ.setdefault(*OPENBLAS_WAIT)

# Tests write some 100 MB and force most of it to disk. pytest reads this variable; `make test-all` sets it to a disk.
_MEMORY, _ROOM_BYTES = Path("/dev/shm"), 4 << 30
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


@pytest.fixture(autouse=True)
def keep_tracing():
    """Python turns off a tracer that meets a RecursionError, as in tests of deep input. Coverage needs it again."""
    tracer = sys.gettrace()
    yield
    if sys.gettrace() is not tracer:
        sys.settrace(tracer)


# Collecting tests allocates what stays, so that looking for garbage finds nothing until it is done.
gc.disable()


# Long files begin first, so that no processor waits for one of them at the end; in this order, files that wait for
# nodes run beside files that compute.
_LONG = (
    "test_faults.py",
    "test_simulation.py",
    "test_demo.py",
    "test_learner.py",
    "test_learner_plan.py",
    "test_party.py",
    "test_party_nodes.py",
    "test_looking.py",
    "test_serving.py",
    "test_cluster_totals.py",
    "test_main_job.py",
    "test_every_design.py",
    "test_fuzz.py",
    "test_limits.py",
    "test_stalling_coordinator.py",
    "test_asking.py",
    "test_same_as_pooled.py",
    "test_examples.py",
    "test_simulation_ray.py",
    "test_defects_are_found.py",
    "test_plan_advice.py",
    "test_approval.py",
    "test_plan_asking.py",
    "test_plan_signal.py",
    "test_sybil_roster.py",
    "test_packaging.py",
    "test_table_benchmarks.py",
    "test_timed_benchmarks.py",
)

_WAITING = ("coordinator", "end_to_end", "hostile", "learner", "parties", "protocol")


# So many of a test's parameters are in `make test` where the test does not say how many. Folders of what meets hostile
# members have them all: those are quick.
_VARIANTS, _ALL_VARIANTS = 1, ("hostile", "parties", "protocol", "wire")


def _mark_further_variants(items) -> None:
    """`variants(n)`: n of a test's parameters, spread evenly, are in `make test`; the others in `make test-more`."""
    found: dict[str, list] = {}
    for item in items:
        if hasattr(item, "callspec") and not any(map(item.get_closest_marker, ("slow", "more"))):
            found.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for variants in found.values():
        first = variants[0]
        usual = len(variants) if first.path.relative_to(_HERE).parts[0] in _ALL_VARIANTS else _VARIANTS
        marker = first.get_closest_marker("variants")
        kept = marker.args[0] if marker else usual
        chosen = {n * len(variants) // kept for n in range(kept)}
        for n, item in enumerate(variants):
            if n not in chosen:
                item.add_marker(pytest.mark.more)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Tests that end the shared Ray cluster come last, so that it is started once.

    The files of each folder are spread over the run: some folders wait for nodes, others compute. Those that wait end
    earlier, as at the end there is less to compute meanwhile.
    """
    _mark_further_variants(items)
    places = {name: place for place, name in enumerate(_LONG)}
    folders: dict[str, list[Path]] = {}
    for path in sorted({item.path for item in items}):
        folders.setdefault(path.relative_to(_HERE).parts[0], []).append(path)
    spread = {
        path: n / len(paths) * (0.7 if folder in _WAITING else 1.0)
        for folder, paths in folders.items()
        for n, path in enumerate(paths)
    }

    def place(item):
        ends_cluster = item.get_closest_marker("ends_cluster") is not None
        return ends_cluster, places.get(item.path.name, len(_LONG)), spread[item.path], item.path

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Each process of pytest-xdist begins with another folder: where nothing is compiled yet, they share that work."""
    report = yield
    if isinstance(collector, pytest.Dir) and report.result:
        count, name = (os.environ.get(f"PYTEST_XDIST_WORKER{end}", "") for end in ("_COUNT", ""))
        first = len(report.result) * int(name.removeprefix("gw") or 0) // int(count or 1)
        report.result = report.result[first:] + report.result[:first]
    return report


def pytest_collection_finish():
    """What was imported and collected stays: no collection of garbage looks at it again.

    BLAS has one thread in this process, as there is a process for each processor already. Nodes that tests start have
    as many as ever.
    """
    gc.freeze()
    gc.set_threshold(200_000)
    gc.enable()
    threadpool_limits(1, user_api="blas")


def pytest_terminal_summary(terminalreporter, config):
    """The processor time of a run by several processes. They have ended when this is asked."""
    if config.getoption("numprocesses", None):
        used = processor_time.used_s()
        terminalreporter.write_line(processor_time.summary(used, processor_time.loop_s()))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more than there are processors, as some tests wait for nodes. Each imports all tests, which takes 10 s."""
    return processors() + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """The tests of a file stay together, as do those of the files that share a Ray cluster or a browser."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            if "cluster" in file.rpartition("/")[2]:
                return "Ray cluster"
            return "browser" if "/console/" in file else file

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def secret_key():
    """A 2048-bit test key, the shortest that a query may carry. It is not for tests that need a fresh one."""
    return material.secret_key()


@pytest.fixture(scope="session")
def learner_key(secret_key):
    return LearnerKey(secret_key, int(time.time()) - 60)


@pytest.fixture(scope="session")
def ray_clusters():
    """The Ray clusters that were started, the last of which may run."""
    started: list[RayNodes] = []
    yield started
    for nodes in started:
        nodes.end()


@pytest.fixture
def nodes(ray_clusters, tmp_path_factory):
    """A Ray cluster that computes on one node. All tests share one; where a test ends it, or a node, it starts again.

    Each node is several processes. A test that removes one fills the cluster up to two before.
    """
    if not ray_clusters or ray_clusters[-1].has_ended:
        ray_clusters.append(RayNodes(tmp_path_factory.mktemp("ray"), nodes=1, processors=2))
    ray_clusters[-1].fill(1)
    return ray_clusters[-1]


@pytest.fixture(scope="session")
def postgresql():
    """A PostgreSQL server. Its directory is short-lived and belongs to the server's user."""
    with tempfile.TemporaryDirectory(prefix="rado-pg-", ignore_cleanup_errors=True) as directory:
        server = PostgreSqlServer(Path(directory))
        try:
            yield server
        finally:
            server.end()


@pytest.fixture
def small_disk(tmp_path):
    """A separate file system of 4 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False, timeout=HANG_S).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("this user may not mount a file system")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], capture_output=True, check=True, timeout=HANG_S)
