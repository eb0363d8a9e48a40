"""What the documents tell people to type exists, and every local link leads somewhere."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from radofed.cli.commands import app

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "benchmarks/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
COMMANDS = [
    (path.name, line.strip().removeprefix("$ "))
    for path in DOCUMENTS
    for line in re.sub(r"\\\n\s*", " ", path.read_text()).splitlines()
    if re.match(r"(    |\$ )\s*(cd \S+ && )?rado [a-z]", line)
]


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 15


@pytest.mark.parametrize(("document", "line"), COMMANDS, ids=lambda value: value[:60])
def test_every_command_of_the_documents_exists(document, line):
    words = shlex.split(line.split("&&")[-1].split("  #")[0], comments=True)[1:]
    command = typer.main.get_command(app)
    path = ["rado"]
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"{document}: {' '.join(path)} has no command {words[0]!r}"
        path.append(words[0])
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("-"):
            assert word.split("=")[0] in known, f"{document}: {' '.join(path)} has no option {word}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_test_files_that_documents_name_exist(path):
    for name in re.findall(r"`(tests/[a-z_/]+\.(?:py|json))`", path.read_text()):
        assert (ROOT / name).exists(), f"{path.name} names {name}"
