"""The entry point of the `rado` command."""

import gc
import io
import os
import sys
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
import typer.main

from dpcore.errors import ConfigurationError
from radobase.failure import EXIT_FAILED, EXIT_USAGE, Failure
from radobase.printing import in_lines, printable
from radobase.writing import tighten_umask
from radofed.cli.framework import InterruptedCommandError
from radofed.cli.output import Output, silence_broken_pipe

# Imports allocate what stays, so that collecting at every 700 new objects, the default, finds nothing during a start.
COLLECT_AFTER_OBJECTS = 50_000
# OpenBLAS's threads wait actively for 2^N cycles, by default 2^26, after their start and after every task: 26 ms of a
# processor that other nodes need. At 2^14 products of small and of large matrices take as long as before.
OPENBLAS_WAIT = ("OPENBLAS_THREAD_TIMEOUT", "14")

PACKAGES = ("dpcore", "wire", "parties", "coordinator", "learner", "radobase", "radofed", "rado")


def check_distribution() -> None:
    """Raise ConfigurationError if a package is imported from outside the distribution of this file.

    In a checkout `rado`, the wire's messages, is in protos/; in an installation all packages are in one place.
    """
    root = Path(__file__).resolve().parents[2]
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ConfigurationError(f"radofed's package {name!r} is missing; install radofed again")
        place = Path(spec.origin).resolve().parent.parent
        if place not in (root, root / "protos"):
            raise ConfigurationError(
                f"the package {name!r} comes from {place}, not from radofed's own {root}: another package "
                "has that name; run rado from another directory, or in its own environment"
            )


def main() -> None:
    """Run the command line and exit with its code (docs/operating.md, 5)."""
    gc.set_threshold(COLLECT_AFTER_OBJECTS)
    tighten_umask()
    os.environ.setdefault(*OPENBLAS_WAIT)  # before NumPy is loaded
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show must not fail the command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        # A file or a program gets a schema, YAML or CSV, which are UTF-8 in every locale.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    warnings.formatwarning = _line_of_warning
    code = run(sys.argv[1:])
    gc.freeze()  # The interpreter collects several times as it ends; what is left goes with the process.
    sys.exit(code)


def _line_of_warning(message: Warning | str, *_place: object, **_more: object) -> str:
    """What a library warns of, for who runs a command: without the place in its source."""
    return f"Warning: {printable(str(message))}\n"


def _interrupted(arguments: list[str]) -> str:
    """What an interrupted command leaves behind: a query goes on without the learner who asked."""
    if arguments[:1] != ["learner"] or not any(each.startswith(("--config", "-c")) for each in arguments):
        return "interrupted"
    return (
        "interrupted; a query that was sent goes on, and parties charge it: `rado learner list` names it, "
        "`rado learner fetch` and `rado learner cancel` take its id"
    )


def run(arguments: list[str]) -> int:
    """Run `rado` with these arguments and return the exit code. Raises nothing."""
    output = Output.of_arguments(arguments)
    _note_unreadable(output, arguments)
    try:
        check_distribution()
        code = made_command()(args=arguments, prog_name="rado", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (typer.Abort, InterruptedCommandError):
        return output.print_failure(Failure("INTERRUPTED", _interrupted(arguments), EXIT_FAILED))
    except BrokenPipeError:
        silence_broken_pipe()
        return EXIT_FAILED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (the user gets one sentence for any error)
        if callable(format_message := getattr(error, "format_message", None)):
            return _usage(output, error, format_message())
        return output.fail(error)


def _note_unreadable(output: Output, arguments: list[str]) -> None:
    """In a locale of another encoding a name such as città is no text, and the schema seems not to have it."""
    encoding = sys.getfilesystemencoding()
    odd = [each for each in arguments if any("\udc80" <= character <= "\udcff" for character in each)]
    if odd and encoding != "utf-8":
        output.note(
            f"note: {odd[0]!r} is no text in this locale's encoding, {encoding}; set PYTHONUTF8=1 if it is UTF-8"
        )


@lru_cache(1)
def made_command() -> Callable[..., Any]:
    """All commands. Call it after check_distribution: another distribution's package must not run."""
    from radofed.cli.commands import app

    return typer.main.get_command(app)


def _usage(output: Output, error: BaseException, message: str) -> int:
    """Report a wrong command line. The parser's exit code, 2, means a failed connection here."""
    context = getattr(error, "ctx", None)
    if message.startswith("Usage:"):  # a group without a command: the message is its help
        output.note(in_lines(message.splitlines()))
        message = "say which command"
    hint = f"; see `{context.command_path} --help`" if context is not None else ""
    return output.print_failure(Failure("USAGE", f"{message.rstrip('.')}{hint}", EXIT_USAGE))
