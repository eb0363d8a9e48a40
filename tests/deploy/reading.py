"""Reads the samples of deploy/, and says whether the program understands what they say."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import typer.main
import yaml

from radofed.cli.commands import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
USER = 10001
PORT = 7443


def laid_out(config: Path) -> Path:
    """Change a member's configuration file as administrators do."""
    subprocess.run(["sed", "-i", "-f", DEPLOY / "layout.sed", config], check=True)
    return config


def documents(path: Path) -> list[dict]:
    """All documents of a YAML file."""
    return [found for found in yaml.safe_load_all(path.read_text()) if found is not None]


def assert_command(words: list[str]):
    """`rado` reads this command line without an error. Nothing is run."""
    assert words[0] in {"rado", "/opt/rado/bin/rado"}, words
    command, rest = typer.main.get_command(app), words[1:]
    while rest != ["--help"] and (subcommands := getattr(command, "commands", None)):
        assert rest, words
        assert rest[0] in subcommands, words
        command, rest = subcommands[rest[0]], rest[1:]
    if rest != ["--help"]:
        command.make_context(shlex.join(words), list(rest))


def commands_in(text: str) -> list[list[str]]:
    """The commands of `rado` that comments or a page show as lines of their own."""
    return [shlex.split(line) for line in re.findall(r"^[# ]*(rado [a-z][^\n]*)$", text, re.MULTILINE)]


DOCKER = shutil.which("docker")
KUBECTL = shutil.which("kubectl")
SYSTEMD_ANALYZE = shutil.which("systemd-analyze")
