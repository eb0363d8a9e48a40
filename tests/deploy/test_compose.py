"""The compose files: every service is hardened, and says what the images and the program understand."""

import copy
import subprocess

import pytest

import coordinator.server
import parties.node
from tests.deploy.containerfile import read
from tests.deploy.reading import DEPLOY, DOCKER, PORT, USER, assert_command, commands_in, documents

FOLDER = DEPLOY / "compose"
ARGUMENTS, STAGES = read()
# What the files need from the environment.
ENVIRONMENT = {"MEMBER": "/srv/member", "TABLE": "/srv/table", "PASSPHRASE": "/srv/passphrase"}
APART = {"coordinator.yml": {"coordinator", "admin"}, "party.yml": {"party", "admin"}, "learner.yml": {"learner"}}
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


def test_a_passphrase_is_a_secret():
    found = load("passphrase.yml")
    for service in found["services"].values():
        assert service == {
            "environment": {"RADO_PASSPHRASE_FILE": "/run/secrets/passphrase"},
            "secrets": ["passphrase"],
        }
    assert set(found["services"]) <= ALONE["party.yml"]


@pytest.mark.parametrize("name", APART)
def test_commands_in_comments_are_commands(name):
    text = (FOLDER / name).read_text()
    prefix = "learner " if name == "learner.yml" else ""
    shown = [line.split(" --rm ")[1].split(" ", 1)[1] for line in text.splitlines() if "run --rm" in line]
    for line in shown:
        assert_command(["rado", *(prefix + line).split()])
    assert shown
    assert not commands_in(text)


@pytest.mark.parametrize("names", [[name] for name in ALONE] + [["party.yml", "passphrase.yml"]], ids="-".join)
def test_compose_accepts_it(names):
    if DOCKER is None or subprocess.run([DOCKER, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    files = [part for name in names for part in ("-f", str(FOLDER / name))]
    found = subprocess.run(
        [DOCKER, "compose", *files, "config", "--quiet"], capture_output=True, text=True, check=False,
        env=ENVIRONMENT | {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
