"""The files that hosts and tools read from the repository's root are valid and agree with the project."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES = [
    ROOT / "CITATION.cff",
    ROOT / ".pre-commit-config.yaml",
    *sorted((ROOT / ".github").rglob("*.yml")),
]


def loaded(name: str):
    return yaml.safe_load((ROOT / name).read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_parses_and_names_no_address(path):
    assert yaml.safe_load(path.read_text())
    assert not re.findall(r"https?://|[\w.]+@[\w-]+\.\w+", path.read_text())


def test_the_citation_has_what_its_format_requires():
    citation = loaded("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"authors", "message", "title"} <= set(citation)
    assert citation["license"] == PROJECT["license"]
    (paper,) = citation["references"]
    assert {"authors", "title", "type"} <= set(paper)
    assert (paper["year"], paper["type"]) == (2015, "conference-paper")


def test_files_name_the_version_and_its_date():
    citation = loaded("CITATION.cff")
    assert citation["version"] == PROJECT["version"]
    changes = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## \[(\d\S*)\] - (\S+)$", changes, re.MULTILINE)
    assert newest[2] == str(citation["date-released"])
    # A version that is not released yet is named under "Unreleased".
    assert newest[1] == citation["version"] or f"Version {citation['version']} " in changes[: newest.start()]


def test_every_supported_python_is_checked():
    supported = {name.rsplit(" ", 1)[1] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)}
    jobs = loaded(".github/workflows/checks.yml")["jobs"]
    assert set(jobs["lint-and-test"]["strategy"]["matrix"]["python"]) == supported
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = [word for line in commands for word in re.findall(r"^make (\S+)", line)]
    makefile = (ROOT / "Makefile").read_text()
    assert {"lint", "test", "docs"} <= set(targets)
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_hooks_are_the_projects_own_tools():
    (source,) = loaded(".pre-commit-config.yaml")["repos"]
    assert source["repo"] == "local"
    assert all(hook["entry"].startswith(".venv/bin/") for hook in source["hooks"])


def test_commands_of_contributing_are_targets():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)`", (ROOT / "docs/CONTRIBUTING.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
