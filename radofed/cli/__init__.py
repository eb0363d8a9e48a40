"""The `rado` command line. What a command needs is imported when it runs, so that help and errors come at once."""

from radofed.cli.entry_point import main

__all__ = ["main"]
