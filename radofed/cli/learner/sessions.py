"""A learner's session, as its commands open it."""

from pathlib import Path
from typing import TYPE_CHECKING

from radofed.cli.output import Output

if TYPE_CHECKING:
    from learner.session import Session

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)


def open_session(config: Path, output: Output) -> "Session":
    """A session of the learner that a file configures.

    It shows the progress of queries on standard error, and says so when the coordinator is out of reach.
    """
    from learner.config import LearnerConfig
    from learner.progress import command_display
    from learner.session import Session

    return Session(LearnerConfig.load(config), note=output.note, progress=command_display())
