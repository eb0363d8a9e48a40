"""The `rado` command. What a command needs is imported when it runs, so that help and errors come at once."""

import io
import sys

from radofed.cli.framework import run


def main() -> None:
    """The entry point: run what the arguments say and end with its exit code (docs/operating.md, 5)."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show is no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))
