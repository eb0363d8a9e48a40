"""The program's version."""

import tomllib
from functools import cache
from importlib.metadata import version
from pathlib import Path

_NAME = "radofed"


@cache
def program_version() -> str:
    """The version of the code that runs.

    A checkout states it in pyproject.toml. Its installed metadata are those of the last installation, and stay when the
    checkout is updated: a node would state an older version to others.
    """
    return _of_checkout(Path(__file__).resolve().parents[1]) or version(_NAME)


def _of_checkout(root: Path) -> str:
    """The version that a checkout states; empty if this directory is none."""
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    except (OSError, ValueError, KeyError):
        return ""
    return str(project["version"]) if project.get("name") == _NAME else ""
