"""The page for administrators: its commands are those of the program and of the samples, and its files are there."""

import re
import shlex

import pytest

from tests.deploy.reading import DEPLOY, ROOT, assert_command, documents

PAGE = (ROOT / "docs/how-to/deploy.md").read_text()
# Lines of code, and code in tables.
LINES = re.findall(r"^    (\S.*)$", PAGE, re.MULTILINE)
CODE = [*LINES, *re.findall(r"`([^`\n]+)`", PAGE)]


@pytest.mark.parametrize("line", [line for line in CODE if re.match(r"rado [a-z]+ .*--", line)])
def test_a_command_is_one_of_the_program(line):
    assert_command(shlex.split(line))


def test_every_file_it_names_is_there():
    named = {path.rstrip(".:") for path in re.findall(r"\bdeploy/[\w./*-]+", PAGE)}
    assert len(named) > 10
    for path in named - {"deploy/kubernetes/party/member"}:
        assert list(ROOT.glob(path)), path


def composed():
    """File, service and words of each command in a container."""
    for line in LINES:
        if found := re.match(r"docker compose -f (\S+) run --rm (\S+) (.*)", line):
            yield pytest.param(*found.groups(), id=found[3][:40])
    for command in re.findall(r"^\| [^|]+ \| `(?:exec|run --rm) ([^`]+)` \|$", PAGE, re.MULTILINE):
        service, _, words = command.partition(" ")
        yield pytest.param("deploy/compose/party.yml", service, words, id=words[:40])


@pytest.mark.parametrize(("file", "service", "words"), list(composed()))
def test_a_command_in_a_container_is_one_of_its_service(file, service, words):
    (found,) = documents(ROOT / file)
    found = found["services"][service]
    # Also without the entrypoint, as `exec` starts it.
    entrypoint = [] if words.startswith("rado ") else found.get("entrypoint", ["rado"])
    assert_command([*entrypoint, *shlex.split(words)])
    writes = {"renew", "accept", "roster", "keygen"} & set(words.split())
    assert service in {"admin", "lab", "learner", "party"}
    assert not (writes and service == "party")


def test_units_it_enables_are_there():
    enabled = set(re.findall(r"systemctl (?:enable --now|reload) \"?(rado-[a-z]+@?)", PAGE))
    assert enabled == {"rado-party", "rado-certificate@", "rado-backup@"}
    assert all(list((DEPLOY / "systemd").glob(f"{name}.service")) for name in enabled)
