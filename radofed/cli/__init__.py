"""The `rado` command line. A command imports what it needs when it runs, so that help and errors are fast."""

from radofed.cli.entry_point import main

__all__ = ["main"]
