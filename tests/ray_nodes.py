"""A Ray cluster of several nodes on this machine's loopback, behind a token, in its own process.

The process that runs the tests never imports Ray: a driver ends with its cluster, and some tests end clusters.
"""

import contextlib
import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info

from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[1]
LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Workers start when there is work for them: each takes two seconds of processor time.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    # Other processes that fill this machine's memory must not fail the test.
    "RAY_memory_monitor_refresh_ms": "0",
    # A killed node is noticed within a second; Ray's default is fifteen. A slow node is not lost: it has ten seconds to
    # answer each check.
    "RAY_health_check_initial_delay_ms": "200",
    "RAY_health_check_period_ms": "200",
    "RAY_health_check_failure_threshold": "5",
    "RAY_health_check_timeout_ms": "10000",
    # As on a large machine; without this, Ray sets one thread for its workers.
    "OPENBLAS_NUM_THREADS": "3",
}
# Ray gives a node thirty seconds to start, whatever the machine.
_STARTS = 10
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
# Ray names a process after what it computes.
_ITEM, _ACTOR, _WARM = b"ray::run_item", b"ray::_Guarded", b"ray::WarmWorker.run"


class RayNodes:
    """A cluster: a head without processors, and nodes with some each. token_file, address: what a driver needs."""

    def __init__(self, directory: Path, *, nodes: int, processors: int = 1, authenticated: bool = True) -> None:
        self.token_file = directory / "ray.token"
        self.token_file.write_text(secrets.token_hex(32))
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        mode = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token_file)}
        # Not the user's folder, where Ray records the cluster for others to join; short, because it contains sockets.
        self._temporary = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
        mode["RAY_TMPDIR"] = self._temporary.name
        self.environment = clean | LOOPBACK | mode | ({} if authenticated else {"RAY_AUTH_MODE": "disabled"})
        for left in reversed(range(_STARTS)):
            self._process = self._started(nodes, processors)
            try:
                self.address = self._say("address")
            except AssertionError:
                if not left:
                    raise
            else:
                break

    def _started(self, nodes: int, processors: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, __file__, str(nodes), str(processors)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=self.environment,
        )

    @property
    def has_ended(self) -> bool:
        """Whether a test ended it."""
        return self._process.poll() is not None

    def fill(self, nodes: int) -> None:
        """Start nodes until there are so many."""
        self._say(f"fill {nodes}")

    def remove_busy_node(self) -> None:
        """Wait until a node is computing an item, and kill all its processes."""
        self._say("remove")

    def remove_node_of_actor(self) -> None:
        """Wait until an actor of the simulation runs on a node, and kill all the node's processes."""
        self._say("remove actor")

    def kill_busy_worker(self) -> None:
        """Wait until a process is computing an item, and kill -9 it."""
        self._say("kill")

    def kill_busy_warm_worker(self) -> None:
        """The same of a worker that stays."""
        self._say("kill warm")

    def end(self) -> None:
        """End all of the cluster."""
        if not self.has_ended:
            self._say("end")
            self._process.wait(HANG_S)
            self._temporary.cleanup()

    def _say(self, word: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the cluster's process ended at {word!r}"
        return answer.strip()


class JobHere:
    """In place of a ClusterJob, for what a node does with the results of any cluster: this process computes them."""

    def __init__(self, _settings, function, shared, _connecting=None) -> None:
        self._function, self._shared = function, shared

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        return

    def results(self, count, load, _idle):
        """(number, result) of each item."""
        for number in range(count):
            yield number, self._function(self._shared, load(number))


def slowly(function, shared, payload):
    """The function's result, so late that its worker can be killed before. For functools.partial."""
    time.sleep(0.5)
    return function(shared, payload)


def slowly_with_state(function, state, shared, payload):
    """As `slowly`, for workers that stay."""
    time.sleep(0.5)
    return function(state, shared, payload)


def with_one_blas_thread(function, shared, payload):
    """The function's result; an error if BLAS has several threads. For functools.partial."""
    assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} <= {1}
    return function(shared, payload)


def for_ever(shared, payload):
    """No result."""
    time.sleep(10_000)


def cut_off(function, public_key, uploads):
    """Only the first ciphertext of the product. For functools.partial."""
    return function(public_key, uploads)[: public_key.ciphertext_bytes]


def zeros(function, public_key, uploads):
    """No ciphertexts. For functools.partial."""
    return bytes(len(uploads[0]))


def wrong_shape(function, shared, payload):
    """A sum of fewer coordinates. For functools.partial."""
    return function(shared, payload)[:, 1:]


def one_more(function, shared, payload):
    """A sum that is possible and wrong. For functools.partial."""
    total = function(shared, payload)
    total.flat[0] += 1
    return total


def another_product(slot_bits, function, public_key, uploads):
    """Valid ciphertexts of another total: the first value is one unit larger. For functools.partial."""
    ciphertexts = public_key.from_wire(function(public_key, uploads))
    addends = [0] * len(ciphertexts)
    # Slot 0 is the check slot.
    addends[0] = 1 << slot_bits
    return public_key.to_wire(public_key.add_plaintexts(ciphertexts, addends))


@contextlib.contextmanager
def stopped(title: bytes, raylets: list[int]) -> Iterator[int]:
    """Stop a worker with this title, so that its work does not end before what is done here; then kill it. Its raylet.

    A busy machine takes long for both.
    """
    process, raylet = wait_for(title, raylets)
    try:
        yield raylet
    finally:
        # Its node may have killed it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def wait_for(title: bytes, raylets: list[int]) -> tuple[int, int]:
    """(process, raylet) of a worker with this title, which is stopped."""
    while True:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in raylets and (process / "cmdline").read_bytes().startswith(title):
                    os.kill(int(process.name), signal.SIGSTOP)
                    if (process / "cmdline").read_bytes().startswith(title):
                        return int(process.name), parent
                    os.kill(int(process.name), signal.SIGCONT)
        time.sleep(0.02)


def serve(nodes: int, processors: int) -> None:
    """Start the cluster and follow the commands on standard input. processors: of each node."""
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 100 << 20, "include_log_monitor": False}
    head = {"num_cpus": 0, "include_dashboard": False, "no_monitor": True, **small}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    others = {}

    def add():
        node = cluster.add_node(num_cpus=processors, **small)
        others[node.all_processes["raylet"][0].process.pid] = node

    for _ in range(nodes):
        add()
    for line in sys.stdin:
        answer = ""
        match line.strip():
            case "address":
                answer = cluster.address
            case word if word.startswith("fill "):
                while len(others) < int(word.split()[1]):
                    add()
            case "remove":
                with stopped(_ITEM, list(others)) as raylet:
                    cluster.remove_node(others.pop(raylet), allow_graceful=False)
            case "remove actor":
                with stopped(_ACTOR, list(others)) as raylet:
                    cluster.remove_node(others.pop(raylet), allow_graceful=False)
            case "kill":
                with stopped(_ITEM, list(others)):
                    pass
            case "kill warm":
                with stopped(_WARM, list(others)):
                    pass
            case "end":
                break
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    cluster.shutdown()
    sys.stdout.write("ended\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
