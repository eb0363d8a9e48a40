"""The `rado` command. What a command needs is imported when it runs, so that help and errors come at once."""

import sys

from radofed.cli.framework import run


def main() -> None:
    """The entry point: run what the arguments say and end with the exit code of design and README."""
    sys.exit(run(sys.argv[1:]))
