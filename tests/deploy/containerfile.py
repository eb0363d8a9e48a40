"""Reads deploy/container/Containerfile into stages, for tests."""

import json
import re
from dataclasses import dataclass, field

from tests.deploy.reading import DEPLOY

FILE = DEPLOY / "container" / "Containerfile"


@dataclass
class Stage:
    """A stage: what it begins with, its arguments, and its other instructions in order, each text on one line."""

    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)
    arguments: set[str] = field(default_factory=set)

    def all(self, word: str) -> list[str]:
        """The texts of all instructions with this word."""
        return [text for found, text in self.instructions if found == word]

    def one(self, word: str) -> str:
        """The text of the only instruction with this word."""
        (text,) = self.all(word)
        return text

    @property
    def command(self) -> list[str]:
        """The command of a target, without its entrypoint."""
        return json.loads(self.one("CMD"))

    @property
    def health(self) -> list[str]:
        """The command that checks a container."""
        return json.loads(self.one("HEALTHCHECK").partition("CMD ")[2])


def read() -> tuple[dict[str, str], dict[str, Stage]]:
    """The arguments with their defaults, and the stages by name."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        rest = " ".join(rest.split())
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages[name] = Stage(base)
        elif word == "ARG":
            name, _, default = rest.partition("=")
            assert arguments.setdefault(name, default) == default
            if stages:
                list(stages.values())[-1].arguments.add(name)
        else:
            list(stages.values())[-1].instructions.append((word, rest))
    return arguments, stages
