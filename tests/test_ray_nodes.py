"""Workers of Ray clusters that tests kill."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.ray_nodes import stopped
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes as Linux shows them")


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_worker_stands_still_until_it_is_killed():
    with subprocess.Popen(["ray::run_item", "1000"], executable=shutil.which("sleep")) as worker:
        with stopped(b"ray::run_item", [os.getpid()]) as raylet:
            assert raylet == os.getpid()
            wait_until(lambda: state(worker.pid) == "T", what="the stop")
        assert worker.wait() == -signal.SIGKILL
