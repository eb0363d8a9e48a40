"""When a certificate is to be renewed: the boundary, each role, what is no valid certificate, and the timer."""

import datetime as dt
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from dpcore.errors import ConfigurationError
from radofed.joining.installing import renewal_of
from radofed.provision import provision
from tests.federation.processes import free_port, rado
from wire.identity import Certificate
from wire.roster import EXPIRY_WARNING_DAYS, Role

SERVICE = Path(__file__).parents[3] / "deploy/systemd/rado-certificate@.service"
SECOND = dt.timedelta(seconds=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("renewal") / "federation"
    return provision(
        directory, federation="clinics", coordinator_address=f"127.0.0.1:{free_port()}", parties=["ada", "bob"]
    )


def one(made, role):
    return made.of(role)[0]


@pytest.mark.parametrize("role", list(Role))
def test_it_is_due_when_two_thirds_are_over(made, role):
    member = one(made, role)
    certificate = Certificate.load(member.directory / "certificate.pem")
    assert certificate.renew_from - certificate.not_before == 2 * (certificate.not_after - certificate.renew_from)
    before, due = (renewal_of(member.config, now) for now in (certificate.renew_from - SECOND, certificate.renew_from))
    assert (before.is_due, due.is_due) == (False, True)
    assert "nothing to do" in before.sentence()
    assert "rado provision renew" in due.sentence()


@pytest.mark.parametrize("role", list(Role))
def test_the_command_of_a_new_certificate_exits_with_0(made, role):
    member = one(made, role)
    found = rado("certificate", "needs-renewal", "--config", str(member.config))["data"]
    assert found["is_due"] is False
    assert found["member"] == f"rado://clinics/{role.value}/{member.name}"


def test_what_is_not_this_node_s_valid_certificate_is_an_error(made, tmp_path):
    member, other = one(made, Role.PARTY), made.of(Role.PARTY)[1]
    ends = Certificate.load(member.directory / "certificate.pem").not_after
    assert renewal_of(member.config, ends).is_due
    with pytest.raises(ConfigurationError, match="expired on"):
        renewal_of(member.config, ends + SECOND)
    copy = tmp_path / "ada"
    copy.mkdir()
    for file in member.directory.iterdir():
        if file.is_file():
            target = copy / file.name
            target.write_bytes(file.read_bytes())
            target.chmod(0o600)
    (copy / "certificate.pem").write_bytes((other.directory / "certificate.pem").read_bytes())
    with pytest.raises(ConfigurationError, match="belongs to"):
        renewal_of(copy / member.config.name, ends)
    failed = rado("certificate", "needs-renewal", "--config", str(member.directory / "policy.toml"), code=4)
    assert "give a node's configuration" in failed["error"]["message"]


def test_people_are_warned_thirty_days_ahead(made):
    certificate = Certificate.load(one(made, Role.LEARNER).directory / "certificate.pem")
    begins = certificate.not_after - dt.timedelta(days=EXPIRY_WARNING_DAYS)
    assert EXPIRY_WARNING_DAYS == 30
    assert certificate.expiry_warning(begins) == ""
    assert "expires in 29 days" in certificate.expiry_warning(begins + SECOND)
    assert "expires in 0 days" in certificate.expiry_warning(certificate.not_after)
    assert "has expired" in certificate.expiry_warning(certificate.not_after + SECOND)


def test_the_unit_of_systemd_runs_the_command(made):
    (line,) = [each for each in SERVICE.read_text().splitlines() if each.startswith("ExecStart=")]
    program, *arguments = shlex.split(line.removeprefix("ExecStart="))
    assert Path(program).name == "rado"
    config = str(one(made, Role.PARTY).config)
    assert rado(*[argument.replace("%f", config) for argument in arguments])["data"]["is_due"] is False


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path):
    for unit in SERVICE.parent.glob("rado-certificate*"):
        text = unit.read_text().replace("/opt/rado/bin/rado", "/bin/true").replace("User=rado", "User=root")
        (tmp_path / unit.name.replace("@", "@etc-rado-party.toml")).write_text(text)
    units = sorted(map(str, tmp_path.iterdir()))
    assert len(units) == 2
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert not [each for each in said.splitlines() if "rado-certificate" in each], said
