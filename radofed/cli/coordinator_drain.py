"""`rado coordinator drain | undrain`: take no new query before maintenance, and take queries again."""

from typing import TYPE_CHECKING, Annotated

import typer

from radobase.printing import columns, duration, in_lines
from radofed.cli.framework import ConfigOption, command
from radofed.cli.output import Output, Result

if TYPE_CHECKING:
    from coordinator.local_control import Drained

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)

EXIT_TIMED_OUT = 3
WithinOption = Annotated[
    float, typer.Option("--within", min=0, help="Longest wait for attempts that are under way, in seconds.")
]


def drain(output: Output, config: ConfigOption, within: WithinOption = 3600.0) -> Result:
    """Let the running coordinator take no new query and no retry, and wait until no attempt is under way.

    It stays so until `rado coordinator undrain`, or until it is started again. Parties stay connected, and learners can
    fetch totals. Run this on the coordinator's machine, as its user. Exit code 0: nothing is under way, so a stop
    interrupts no one; 2: no coordinator runs; 3: attempts still run after --within seconds, and are listed.
    """
    from coordinator.config import CoordinatorConfig
    from coordinator.local_control import drain as begin_and_wait

    def on_wait(number: int) -> None:
        output.note(f"{number} under way; waiting for at most {duration(within)}")

    drained = begin_and_wait(CoordinatorConfig.load(config).state_directory, within, on_wait=on_wait)
    data = {
        "complete": drained.is_complete,
        "changed": drained.changed,
        "drained_since_unix_s": drained.since_unix_s,
        "under_way": drained.under_way,
    }
    return Result(data, _words(drained), exit_code=0 if drained.is_complete else EXIT_TIMED_OUT)


def undrain(_output: Output, config: ConfigOption) -> Result:
    """Let a drained coordinator take queries again. The exit code is 2 if no coordinator runs."""
    from coordinator.config import CoordinatorConfig
    from coordinator.local_control import undrain as end

    changed = end(CoordinatorConfig.load(config).state_directory)
    return Result({"changed": changed}, "it takes queries again" if changed else "it was not drained")


def _words(drained: "Drained") -> str:
    from coordinator.status import answer_words

    begun = "drained" if drained.changed else "drained before"
    if drained.is_complete:
        return f"{begun}; no attempt is under way. Stop the coordinator now, or `rado coordinator undrain`."
    rows = [
        (
            query["query_id"][:16],
            query["learner"],
            query["phase"],
            str(query["attempt"]),
            duration(query["remaining_s"]),
            answer_words(query),
        )
        for query in drained.under_way
    ]
    lines = [
        f"{begun}; these are under way and go on:",
        *columns(("query", "learner", "phase", "attempt", "left", "parties"), rows),
        "Give the command again to wait longer. If you stop the coordinator, they continue at its next start.",
    ]
    return in_lines(lines)


def add_to(app: typer.Typer) -> None:
    """Add these commands to a group."""
    for function in (drain, undrain):
        command(app, function.__name__)(function)
