"""The cluster that a node uses as its own. No Ray is started here."""

import os
from types import SimpleNamespace

import pytest

from dpcore.errors import ConfigurationError
from radobase import ray_cluster
from radobase.ray_cluster import RayStartError, _this_machines_cluster


@pytest.fixture
def noted(tmp_path, monkeypatch):
    """The file in which Ray notes the machine's cluster."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    path = tmp_path / "ray" / "ray_current_cluster"
    path.parent.mkdir()
    path.write_text("10.0.0.1:6379\n")
    return path


def test_this_machines_cluster_is_the_noted_one(noted, monkeypatch):
    assert _this_machines_cluster() == "10.0.0.1:6379"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
    assert _this_machines_cluster() == "10.0.0.2:6379"


def test_another_users_note_is_refused(noted, monkeypatch):
    """That user would receive the cluster's token, and then rows or uploads."""
    real = os.fstat

    def anothers(descriptor):
        found = real(descriptor)
        return os.stat_result((*found[:4], 4242, *found[5:10]))

    # Only a superuser could give the file away.
    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", anothers)
        with pytest.raises(ConfigurationError, match="belongs to another user"):
            _this_machines_cluster()
    assert _this_machines_cluster() == "10.0.0.1:6379"


def test_a_link_or_a_missing_note_is_no_cluster(noted, tmp_path):
    elsewhere = noted.rename(tmp_path / "elsewhere")
    noted.symlink_to(elsewhere)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="no Ray cluster was found"):
            _this_machines_cluster()
        noted.unlink(missing_ok=True)


def test_ray_that_does_not_start_in_time_is_no_bug(monkeypatch):
    """Ray raises Exception itself, which would be a bug of the program."""
    ended = []

    def init(**_options):
        raise Exception("The current node timed out during startup.")  # noqa: TRY002 - as Ray does

    ray = SimpleNamespace(is_initialized=lambda: False, init=init, shutdown=lambda: ended.append(True))
    monkeypatch.setattr(ray_cluster, "_import_for_loopback", lambda: ray)
    with pytest.raises(RayStartError, match=r"timed out during startup\. Try again .* or use no workers"):
        ray_cluster.start_on_loopback(cpus=1, object_bytes=0)
    assert ended
