"""Messages of the cluster's driver process are read as data only. No Ray is started here."""

import os
import pickle
import subprocess
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import numpy as np
import pytest

from radobase import cluster_jobs
from radobase.cluster_jobs import ClusterError, ClusterJob, ClusterSettings
from tests.waiting import HANG_S, wait_until

SETTINGS = ClusterSettings(address="127.0.0.1:1", workers=1, timeout_s=HANG_S)


class Runs:
    """When unpickled, it runs code of the sender's choice."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def spoken():
    """(a job that is connected, the other end)."""
    job = ClusterJob(SETTINGS, max, None)
    job._connection, other = Pipe()
    yield job, other
    job._end()
    other.close()


def answered(spoken, *items):
    """The results of two items if the other end sends these messages."""
    job, other = spoken
    for item in items:
        other.send(item)
    return list(job.results(2, lambda number: number))


@pytest.mark.parametrize(
    "value",
    [
        b"product",
        7,
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.ones((30, 30), dtype=np.int64)[:, 1:],
        np.zeros((0, 3), dtype=np.int64),
    ],
    ids=str,
)
def test_results_come_back_unchanged(spoken, value):
    (first, mine), (second, _) = answered(spoken, ("item", (1, True, value)), ("item", (0, True, b"")))
    assert (first, second) == (1, 0)
    assert type(mine) is type(value)
    np.testing.assert_array_equal(mine, value)


@pytest.mark.parametrize("protocol", [4, 5])
def test_arrays_come_back_from_any_python(spoken, protocol):
    value = np.arange(6, dtype=np.int64).reshape(2, 3)
    spoken[1].send_bytes(pickle.dumps(("item", (0, True, value)), protocol))
    (_, mine), _ = answered(spoken, ("item", (1, True, 7)))
    np.testing.assert_array_equal(mine, value)


def test_nothing_that_comes_back_runs(spoken, tmp_path):
    for kind in (Runs(tmp_path / "a"), np.array([Runs(tmp_path / "b")], dtype=object)):
        with pytest.raises(ClusterError, match="invalid message"):
            answered(spoken, ("item", (0, True, kind)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("octets", [b"", b"no pickle", b"\x80\x04K\x05.", b"\x80\x04)."])
def test_an_invalid_message_is_a_cluster_error(spoken, octets):
    spoken[1].send_bytes(octets)
    with pytest.raises(ClusterError, match="invalid message"):
        answered(spoken)


@pytest.mark.parametrize(
    "items",
    [
        [("item", (0, True, b"")), ("item", (0, True, b""))],
        [("item", (2, True, b""))],
        [("item", (-1, True, b""))],
        [("item", ("0", True, b""))],
        [("item", (0, True))],
        [("ready", None)],
    ],
    ids=str,
)
def test_results_that_were_not_requested_are_refused(spoken, items):
    """An item that arrived twice would be added twice."""
    with pytest.raises(ClusterError, match="not requested"):
        answered(spoken, *items)


def test_without_memory_for_another_process_the_cluster_fails_and_not_the_node(monkeypatch):
    def none_left(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(cluster_jobs, "require_ray", lambda: None)
    monkeypatch.setattr(subprocess, "Popen", none_left)
    with pytest.raises(ClusterError, match="did not start"), ClusterJob(SETTINGS, max, None):
        pass


def test_the_driver_runs_where_no_other_user_may_write_and_ends_with_the_node(tmp_path, monkeypatch):
    """Ray's workers import modules from the driver's working directory first."""
    monkeypatch.chdir(tmp_path)
    job = ClusterJob(SETTINGS, max, None)
    job._start()
    process = job._process
    assert Path(f"/proc/{process.pid}/cwd").readlink() == Path("/")
    # As the kernel does when the node is killed.
    Connection.close(job._connection)
    wait_until(lambda: process.poll() is not None, what="the driver's end")
    job._connection = None
    job._end()
