"""A state directory on a read-only mount: the remedy is said, with the exit code of a wrong set-up.

tests/parties/test_check.py has the party, tests/deploy/test_systemd.py that units do not restart after this exit code.
"""

import re
import subprocess

import pytest

from dpcore.errors import ConfigurationError
from radofed.cli.entry_point import run
from radofed.provision import provision
from tests.federation.processes import free_port
from tests.waiting import HANG_S
from wire.roster import Role

SAYS = "(Read-only file system; mount it for writing, or name another place in the configuration)"


@pytest.mark.parametrize("role", [Role.COORDINATOR, Role.LEARNER])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_read_only_state_directory_is_refused(tmp_path, small_disk, capsys, role, is_there):
    made = provision(
        tmp_path / "f", federation="clinics", coordinator_address=f"127.0.0.1:{free_port()}", parties=["ada", "bob"]
    )
    state = small_disk / "state"
    if is_there:
        state.mkdir()
    (member,) = made.of(role)
    text, changed = re.subn(
        '^state_directory = "state"', f'state_directory = "{state}"', member.config.read_text(), flags=re.MULTILINE
    )
    assert changed == 1
    member.config.write_text(text)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True, timeout=HANG_S)
    command = "start" if role is Role.COORDINATOR else "list"
    code = run([role.value, command, "--config", str(member.config)])
    assert SAYS in capsys.readouterr().err
    assert code == ConfigurationError.exit_code
