"""The units of systemd: accepted by systemd, hardened, and in agreement with the program."""

import configparser
import datetime as dt
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import coordinator.server
import parties.node
from coordinator.connections import MOST_DESCRIPTORS
from dpcore.errors import ConfigurationError, NotYetError
from parties.data.held_data import DataAwayError
from radofed.provision import provision
from tests.deploy.reading import DEPLOY, PORT, SYSTEMD_ANALYZE, assert_command
from tests.federation.processes import free_port
from wire.envelopes import ENVIRONMENT
from wire.roster import Role

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


@pytest.mark.parametrize("name", NODES)
def test_what_is_late_at_boot_starts_a_node_again(name):
    """As often as it takes, and after what it may wait for on the same machine."""
    parser = configparser.RawConfigParser(dict_type=Repeated, strict=False, empty_lines_in_values=False)
    parser.optionxform = str
    parser.read(DEPLOY / "systemd" / name)
    ordered = parser["Unit"]["After"].split()
    assert {"network-online.target", "remote-fs.target"} <= set(ordered)
    assert ("postgresql.service" in ordered) == (name == "rado-party.service")
    assert parser["Unit"]["StartLimitIntervalSec"] == "0"
    prevented = [int(code) for code in service(DEPLOY / "systemd" / name)["RestartPreventExitStatus"].split()]
    assert not {DataAwayError.exit_code, NotYetError.exit_code} & set(prevented)


def test_both_nodes_are_hardened_alike():
    found = [service(DEPLOY / "systemd" / name) for name in NODES]
    # Members connect to a coordinator, and a party has one connection.
    limits = {name: each.pop("LimitNOFILE", None) for name, each in zip(NODES, found, strict=True)}
    assert limits == {"rado-coordinator.service": str(MOST_DESCRIPTORS), "rado-party.service": None}
    for each in found:
        for of_the_role in ("ExecStart", "SocketBindAllow"):
            each.pop(of_the_role, None)
    assert found[0] == found[1]
    # It must stay unset: the compiled sums need memory that is written, then executed.
    assert "MemoryDenyWriteExecute" not in found[0]


# What differs where a unit only connects, writes a certificate, and ends.
OF_A_NODE = {
    "ExecReload", "Restart", "RestartSec", "RestartPreventExitStatus", "TimeoutStopSec", "StateDirectory",
    "StateDirectoryMode", "WorkingDirectory", "SocketBindAllow",
}  # fmt: skip


def test_the_renewal_is_hardened_as_the_nodes_are():
    node, renewal = (service(DEPLOY / "systemd" / name) for name in ("rado-party.service", "rado-certificate@.service"))
    assert node.keys() - renewal.keys() == OF_A_NODE
    assert {key for key in renewal if renewal[key] != node.get(key)} == {
        "Type", "ExecStart", "ReadWritePaths", "MemoryDenyWriteExecute",
    }  # fmt: skip
    assert renewal["ReadWritePaths"] == "-/etc/rado"
    assert renewal["MemoryDenyWriteExecute"] == "true"


def test_the_backup_is_hardened_as_the_renewal_is():
    renewal, backup = (
        service(DEPLOY / "systemd" / name) for name in ("rado-certificate@.service", "rado-backup@.service")
    )
    assert {key for key in backup if backup[key] != renewal.get(key)} == {"ExecStart", "ReadWritePaths"}
    assert backup.keys() == renewal.keys()
    # The state, beside which SQLite opens files, and the directory that the command writes to.
    state, backups = backup["ReadWritePaths"].split()
    assert (state, backup["ExecStart"].split()[3]) == ("/var/lib/rado", backups)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_can_read_keys_with_a_passphrase(tmp_path, unit):
    """Two lines to uncomment, the same in each: the timer's unit reads the TLS key, too."""
    text = unit.read_text()
    uncommented = re.sub(r"^# (LoadCredentialEncrypted=|Environment=)", r"\1", text, flags=re.MULTILINE)
    (tmp_path / unit.name).write_text(uncommented)
    found = service(tmp_path / unit.name)
    assert found["LoadCredentialEncrypted"] == "passphrase:/etc/rado/passphrase.cred"
    assert found["Environment"] == f"{ENVIRONMENT}=%d/passphrase"
    assert found.keys() - service(unit).keys() == {"LoadCredentialEncrypted", "Environment"}


PR_SET_MDWE = 65
WITHOUT_WRITABLE_CODE = """
import ctypes, sys
if ctypes.CDLL(None).prctl({option}, 1, 0, 0, 0):
    sys.exit(77)
from radofed.cli.entry_point import run
sys.exit(run(sys.argv[1:]))
"""


def test_the_renewal_runs_without_memory_that_is_written_then_executed(tmp_path):
    """As MemoryDenyWriteExecute has it, also while it connects. No coordinator runs here: exit code 2."""
    old = dt.datetime.now(dt.UTC) - dt.timedelta(days=300)
    made = provision(
        tmp_path / "f", federation="f", coordinator_address=f"localhost:{free_port()}", parties=["ann", "bob"],
        roster_days=600, now=old,
    )  # fmt: skip
    codes = {}
    for role in (Role.COORDINATOR, Role.PARTY):
        config = made.of(role)[0].config
        program = [sys.executable, "-c", WITHOUT_WRITABLE_CODE.format(option=PR_SET_MDWE)]
        # The patience for a coordinator that does not answer is half a minute: a party is only asked whether it is due.
        words = ["renew"] if role is Role.COORDINATOR else ["needs-renewal"]
        found = subprocess.run(
            [*program, "certificate", *words, "--config", str(config)], capture_output=True, text=True, check=False
        )
        if found.returncode == 77:
            pytest.skip("this kernel has no PR_SET_MDWE")
        codes[role] = found.returncode, found.stderr
    assert {code for code, _ in codes.values()} == {1}, codes


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
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_its_exposure_is_low(tmp_path, unit):
    # systemd reads no template without an instance.
    file = Path(shutil.copy(unit, tmp_path / unit.name.replace("@.", "@x.")))
    level = [SYSTEMD_ANALYZE, "security", "--offline=yes", f"--threshold={int(HIGHEST_EXPOSURE * 10)}", "--no-pager"]
    found = subprocess.run([*level, file], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", found.stdout)
    assert float(exposure) <= HIGHEST_EXPOSURE
