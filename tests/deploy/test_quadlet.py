"""The quadlets of Podman: hardened as the other samples are, and read by Podman's generator where it is there."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import coordinator.server
import parties.node
from dpcore.errors import ConfigurationError
from parties.data.held_data import DataAwayError
from tests.deploy.containerfile import read
from tests.deploy.reading import DEPLOY, PORT, USER, assert_command
from tests.deploy.test_systemd import Repeated

FOLDER = DEPLOY / "quadlet"
ROLES = {"party": parties.node.DRAIN_S, "coordinator": coordinator.server.DRAIN_S}
GENERATOR = next(
    (path for path in ("/usr/libexec/podman/quadlet", "/usr/lib/podman/quadlet") if Path(path).exists()),
    shutil.which("quadlet"),
)
_, STAGES = read()
KNOWN = {
    "Image", "ContainerName", "User", "Group", "Volume", "ReadOnly", "DropCapability", "NoNewPrivileges", "Tmpfs",
    "RunInit", "PodmanArgs", "HealthCmd", "HealthInterval", "HealthTimeout", "HealthRetries", "HealthStartPeriod",
    "LogDriver", "PublishPort",
}  # fmt: skip
"""Keys of [Container] in podman-container.unit(5) of Podman 5, those that these samples use: others are refused."""


def sections(role: str, kind: str = "container"):
    parser = configparser.RawConfigParser(dict_type=Repeated, strict=False, empty_lines_in_values=False)
    parser.optionxform = str
    parser.read(FOLDER / f"rado-{role}.{kind}")
    return parser


@pytest.mark.parametrize("role", ROLES)
def test_it_is_hardened(role):
    found = sections(role)["Container"]
    assert set(found) <= KNOWN
    assert (found["User"], found["Group"]) == (str(USER), str(USER))
    assert (found["ReadOnly"], found["NoNewPrivileges"], found["DropCapability"]) == ("true", "true", "all")
    assert {"noexec", "nosuid", "nodev"} <= set(found["Tmpfs"].partition(":")[2].split(","))
    volumes = dict(volume.split(":", 1) for volume in found["Volume"].split())
    state = volumes.pop(f"rado-{role}.volume")
    assert state == "/var/lib/rado"
    assert all(mount.endswith(":ro") for mount in volumes.values())
    mounts = sections(role)["Unit"]["RequiresMountsFor"].split()
    assert set(mounts) == set(volumes)
    assert found.get("PublishPort") == (f"{PORT}:{PORT}" if role == "coordinator" else None)
    assert sections(role, "volume")["Volume"]["VolumeName"] == f"rado-{role}"


@pytest.mark.parametrize("role", ROLES)
def test_its_health_check_and_its_image_are_those_of_the_containers(role):
    found = sections(role)["Container"]
    assert_command(shlex.split(found["HealthCmd"]))
    assert found["Image"] == f"localhost/radofed-{role}"
    assert role in STAGES
    built = (FOLDER / f"rado-{role}.container").read_text()
    assert f"--target {role} -t localhost/radofed-{role} ." in built
    # Podman keeps a health check only so.
    assert "--format docker" in built


@pytest.mark.parametrize("role", ROLES)
def test_it_stops_and_starts_again_as_the_units_do(role):
    found = sections(role)["Service"]
    (stop,) = re.findall(r"--stop-timeout=(\d+)", sections(role)["Container"]["PodmanArgs"])
    assert 2 * ROLES[role] <= int(stop) < int(found["TimeoutStopSec"])
    assert int(found["RestartPreventExitStatus"]) == ConfigurationError.exit_code != DataAwayError.exit_code
    assert found["ExecReload"].endswith(f"--signal HUP {sections(role)['Container']['ContainerName']}")
    assert sections(role)["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.skipif(GENERATOR is None, reason="Podman's quadlet is not installed")
def test_podman_s_generator_accepts_them(tmp_path):
    for file in FOLDER.iterdir():
        shutil.copy(file, tmp_path)
    command, place = [str(GENERATOR), "-dryrun"], {"QUADLET_UNIT_DIRS": str(tmp_path)}
    made = subprocess.run(command, env=place, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert "unsupported" not in made.stderr
    for role in ROLES:
        assert f"--name=rado-{role}" in made.stdout
        assert "--read-only" in made.stdout
