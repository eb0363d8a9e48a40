"""The compose files: every service is hardened, and says what the images and the program understand."""

import copy
import re
import subprocess

import pytest

import coordinator.server
import parties.node
from tests.deploy.containerfile import read
from tests.deploy.reading import DEPLOY, DOCKER, PORT, ROOT, USER, assert_command, commands_in, documents

FOLDER = DEPLOY / "compose"
PAGE = ROOT / "docs/how-to/deploy.md"
ARGUMENTS, STAGES = read()
# What the files need from the environment.
ENVIRONMENT = {"MEMBER": "/srv/member", "TABLE": "/srv/table", "PASSPHRASE": "/srv/passphrase"}
APART = {
    "coordinator.yml": {"coordinator", "admin"},
    "party.yml": {"party", "admin"},
    "learner.yml": {"learner", "admin"},
}
WITH_PASSPHRASE = {
    "party.yml": "passphrase.yml",
    "coordinator.yml": "passphrase-coordinator.yml",
    "learner.yml": "passphrase-learner.yml",
}
ALONE = {**APART, "federation.yml": {"coordinator", "north", "south", "west", "lab"}}
WRITABLE = {"/var/lib/rado"}
DRAIN_S = max(coordinator.server.DRAIN_S, parties.node.DRAIN_S)


def load(name):
    (found,) = documents(FOLDER / name)
    return found


def services(name):
    """The services of a file, with what they extend."""
    found = {}
    for service, own in load(name)["services"].items():
        whole = copy.deepcopy(load(own["extends"]["file"])["services"][own["extends"]["service"]])
        whole["role"] = own["extends"]["service"]
        found[service] = whole | {key: value for key, value in own.items() if key != "extends"}
    return found


EVERY = [pytest.param(service, id=f"{name}-{key}") for name in ALONE for key, service in services(name).items()]


@pytest.mark.parametrize("name", ALONE)
def test_a_file_has_its_services(name):
    assert set(services(name)) == ALONE[name]
    declared = set(load(name).get("volumes", {}))
    used = {
        each["source"] for service in services(name).values() for each in service["volumes"] if each["type"] == "volume"
    }
    assert used == declared


@pytest.mark.parametrize("service", EVERY)
def test_a_service_is_hardened(service):
    assert service["user"] == f"{USER}:{USER}"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert [mount.partition(":")[0] for mount in service["tmpfs"]] == ["/tmp"]
    assert all(option in service["tmpfs"][0] for option in ("nosuid", "nodev", "noexec"))
    assert not service.keys() & {"privileged", "cap_add", "devices", "network_mode", "pid", "ipc"}


@pytest.mark.parametrize("service", EVERY)
def test_a_service_writes_only_its_state(service):
    """Its configuration is writable for an administrator's commands only."""
    for mount in service["volumes"]:
        is_bind = mount["type"] == "bind"
        assert is_bind == (mount["target"] not in WRITABLE)
        if is_bind:
            assert mount["target"] in {"/etc/rado", "/srv/rado"}
            # A directory that is missing is an error, and not made by root.
            assert mount["bind"] == {"create_host_path": False}
            assert mount["read_only"] is (service.get("profiles") != ["admin"] or mount["target"] == "/srv/rado")


@pytest.mark.parametrize("service", EVERY)
def test_a_service_runs_what_its_image_does(service):
    stage = STAGES[service["role"]]
    assert service["build"]["target"] == service["role"]
    assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    assert {key: f"${{{key}:-{value}}}" for key, value in ARGUMENTS.items()} == service["build"]["args"]
    if service["role"] == "learner" and service.get("profiles") == ["admin"]:
        assert not service.keys() & {"command", "entrypoint", "restart", "healthcheck"}
        return
    if service["role"] == "learner":
        assert service["entrypoint"] == ["rado", "learner"]
        return
    # The command is the image's own.
    assert not service.keys() & {"command", "entrypoint"}
    if service.get("profiles") == ["admin"]:
        assert service["healthcheck"] == {"disable": True}
        assert service["restart"] == "no"
        return
    assert service["healthcheck"]["test"] == ["CMD", *stage.health]
    assert float(service["stop_grace_period"].removesuffix("s")) >= 2 * DRAIN_S
    assert service.get("ports", []) == ([f"{PORT}:{PORT}"] if load_is_apart(service) else [])


def load_is_apart(service) -> bool:
    return service["role"] == "coordinator" and "networks" not in service


def test_a_federation_on_one_host_reaches_nothing_outside():
    assert load("federation.yml")["networks"] == {"federation": {"internal": True}}
    assert all(service["networks"] == ["federation"] for service in services("federation.yml").values())
    members = {
        each["source"].rpartition("/")[2]
        for service in services("federation.yml").values()
        for each in service["volumes"]
    }
    assert members == ALONE["federation.yml"]


@pytest.mark.parametrize(("name", "file"), WITH_PASSPHRASE.items())
def test_a_passphrase_is_a_secret(name, file):
    found = load(file)
    for service in found["services"].values():
        assert service == {
            "environment": {"RADO_PASSPHRASE_FILE": "/run/secrets/passphrase"},
            "secrets": ["passphrase"],
        }
    # Every service of the role reads the keys.
    assert set(found["services"]) == ALONE[name]


@pytest.mark.parametrize("name", APART)
def test_commands_in_comments_are_commands(name):
    text = (FOLDER / name).read_text()
    shown = [line.split(" --rm ")[1].split(" ", 1) for line in text.splitlines() if "run --rm" in line]
    for service, line in shown:
        assert_command(["rado", *(["learner"] if service == "learner" else []), *line.split()])
    assert shown
    assert not commands_in(text)


@pytest.mark.parametrize(
    "names", [[name] for name in ALONE] + [list(pair) for pair in WITH_PASSPHRASE.items()], ids="-".join
)
def test_compose_accepts_it(names):
    if DOCKER is None or subprocess.run([DOCKER, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    files = [part for name in names for part in ("-f", str(FOLDER / name))]
    found = subprocess.run(
        [DOCKER, "compose", *files, "config", "--quiet"], capture_output=True, text=True, check=False,
        env=ENVIRONMENT | {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr


DOCKER_THAT_ANSWERS = """#!/bin/sh
echo "$@" > {said}
echo "the certificate"
exit {code}
"""


@pytest.mark.parametrize("role", [name.removesuffix(".yml") for name in APART])
@pytest.mark.parametrize("passphrase", ["", "/srv/passphrase"])
def test_the_renewal_runs_the_command_of_its_role(tmp_path, role, passphrase):
    """With a docker that writes down what it is asked: silent if the command succeeds, and with its words if not."""
    docker, said = tmp_path / "docker", tmp_path / "said"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "JITTER_S": "0", "PASSPHRASE": passphrase}
    for code, printed in ((0, ""), (1, "the certificate\n")):
        docker.write_text(DOCKER_THAT_ANSWERS.format(said=said, code=code))
        docker.chmod(0o700)
        found = subprocess.run(
            ["sh", FOLDER / "renew.sh", role], env=environment, capture_output=True, text=True, check=False
        )
        assert (found.returncode, found.stdout, found.stderr) == (code, printed, "")
    compose, *files, run, remove, no_terminal, service, command = said.read_text().split(
        maxsplit=7 + 2 * bool(passphrase)
    )
    assert (compose, run, remove, no_terminal, service) == ("compose", "run", "--rm", "-T", "admin")
    assert service in ALONE[f"{role}.yml"]
    wanted = [f"{role}.yml", *([WITH_PASSPHRASE[f"{role}.yml"]] if passphrase else [])]
    assert files == [part for name in wanted for part in ("-f", str(FOLDER / name))]
    assert_command(["rado", *command.split()])


def test_the_renewals_of_members_are_spread():
    script = (FOLDER / "renew.sh").read_text()
    (spread_s,) = re.findall(r"JITTER_S:-(\d+)", script)
    timer = (DEPLOY / "systemd/rado-certificate@.timer").read_text()
    assert f"RandomizedDelaySec={int(spread_s) // 3600}h\n" in timer
    # A line for cron, in the file and on the page.
    shown = {re.search(r"17 0 \* \* \* root (.*)", text)[1] for text in (script, PAGE.read_text())}
    assert shown == {"MEMBER=/srv/north TABLE=/srv/table sh /opt/radofed/deploy/compose/renew.sh party"}
