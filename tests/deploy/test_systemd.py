"""The units of systemd: accepted by systemd, hardened, and in agreement with the program."""

import configparser
import re
import subprocess

import pytest

import coordinator.server
import parties.node
from dpcore.errors import ConfigurationError
from tests.deploy.reading import DEPLOY, PORT, SYSTEMD_ANALYZE, assert_command

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
NODES = {"rado-coordinator.service": coordinator.server.DRAIN_S, "rado-party.service": parties.node.DRAIN_S}
HIGHEST_EXPOSURE = 1.5
needs_systemd = pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="systemd-analyze is not installed")


class Repeated(dict):
    """Values of keys that are given more than once, in one list."""

    def __setitem__(self, key, value):
        if isinstance(value, list) and key in self:
            self[key].extend(value)
        else:
            super().__setitem__(key, value)


def service(unit):
    parser = configparser.RawConfigParser(dict_type=Repeated, strict=False, empty_lines_in_values=False)
    parser.optionxform = str
    parser.read(unit)
    return dict(parser["Service"])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_starts_a_command_that_there_is(unit):
    started = service(unit)["ExecStart"].replace("%f", "/etc/rado/party.toml")
    assert_command(started.split())


@pytest.mark.parametrize("name", NODES)
def test_a_node_has_its_paths_and_time_to_stop(name):
    found = service(DEPLOY / "systemd" / name)
    role = name.removeprefix("rado-").removesuffix(".service")
    assert found["ExecStart"] == f"/opt/rado/bin/rado {role} start --config /etc/rado/{role}.toml"
    assert found["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert (found["StateDirectory"], found["WorkingDirectory"]) == ("rado", "/var/lib/rado")
    assert found["ReadWritePaths"] == "/var/lib/rado"
    # Twice a node's own time: its last calls, then its files.
    assert int(found["TimeoutStopSec"]) >= 2 * NODES[name]
    assert int(found["RestartPreventExitStatus"]) == ConfigurationError.exit_code
    watched = re.findall(r'^# listen = "127.0.0.1:(\d+)"', (DEPLOY / f"samples/{role}.toml").read_text(), re.MULTILINE)
    bound = [f"ipv{version}:tcp:{port}" for port in (*watched, PORT) for version in (4, 6)]
    assert found["SocketBindAllow"].split() == (bound if role == "coordinator" else bound[:2])


def test_both_nodes_are_hardened_alike():
    found = [service(DEPLOY / "systemd" / name) for name in NODES]
    for each in found:
        for of_the_role in ("ExecStart", "SocketBindAllow"):
            each.pop(of_the_role, None)
    assert found[0] == found[1]
    # It must stay unset: the compiled sums need memory that is written, then executed.
    assert "MemoryDenyWriteExecute" not in found[0]


@needs_systemd
@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").iterdir()), ids=lambda unit: unit.name)
def test_systemd_accepts_it(tmp_path, unit):
    for each in UNITS:
        # What the unit starts is not installed here.
        (tmp_path / each.name).write_text(each.read_text().replace("/opt/rado/bin/rado", "/bin/true"))
    if unit.suffix == ".timer":
        (tmp_path / unit.name).write_text(unit.read_text())
    file = tmp_path / unit.name.replace("@.", "@etc-rado-party.toml.")
    (tmp_path / unit.name).rename(file)
    found = subprocess.run(
        [SYSTEMD_ANALYZE, "verify", "--man=no", file], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    of_this = [line for line in found.stderr.splitlines() if unit.stem in line]
    assert (found.returncode, of_this) == (0, []), found.stderr


@needs_systemd
@pytest.mark.parametrize("name", NODES)
def test_its_exposure_is_low(name):
    level = [SYSTEMD_ANALYZE, "security", "--offline=yes", f"--threshold={int(HIGHEST_EXPOSURE * 10)}", "--no-pager"]
    found = subprocess.run([*level, DEPLOY / "systemd" / name], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", found.stdout)
    assert float(exposure) <= HIGHEST_EXPOSURE
