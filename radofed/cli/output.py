"""What the `rado` command prints: one JSON object, the same as YAML, or text; errors and exit codes.

In JSON mode standard output gets exactly one object,

    {"schema_version": 1, "status": "ok", "data": {...}}
    {"schema_version": 1, "status": "error", "error": {"code": ..., "message": ...}}

and notes and errors go to standard error, without the text of the result. In text mode the result goes to standard
output.
"""

import json
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from radobase.failure import Failure
from radobase.printing import Escaped, in_lines, printable

if TYPE_CHECKING:
    from rich.console import RenderableType


OUTPUT_VERSION = 1
EXIT_CONNECTION = 2


@dataclass(frozen=True)
class Result:
    """The result of a command."""

    data: Mapping[str, Any]
    """For JSON."""
    text: "RenderableType" = ""
    """For people: a line, lines (`in_lines`) or a renderable of rich."""
    exit_code: int = 0
    """Not 0 if the command ran and found a failure, as a preflight may."""


class Output:
    """Prints the result, notes and errors of one command. as_json: whether programs read it, as JSON or YAML."""

    def __init__(self, *, as_json: bool, debug: bool, as_yaml: bool = False) -> None:
        """Raises ImportError for YAML where it is not installed."""
        self.as_json = as_json or as_yaml
        self.debug = debug
        self._dumped: Callable[[Any], str] = yaml_writer() if as_yaml else json.dumps

    @classmethod
    def of_arguments(cls, arguments: list[str]) -> "Output":
        """Read --format and --debug without the parser: a usage error is printed in the chosen format, too."""
        found = re.search(r"^--format[=\n](json|yaml)$", "\n".join(arguments), re.MULTILINE)
        chosen, debug = found[1] if found else "text", "--debug" in arguments
        try:
            return cls(as_json=chosen == "json", as_yaml=chosen == "yaml", debug=debug)
        except ImportError:
            # The command says so: this is for the errors of its options.
            return cls(as_json=False, debug=debug)

    def note(self, sentence: str) -> None:
        """Print a line, or lines (`in_lines`), on standard error."""
        print(sentence if isinstance(sentence, Escaped) else printable(sentence), file=sys.stderr, flush=True)  # noqa: T201  (this is where the command prints)

    def show(self, text: "RenderableType", *, stream: TextIO | None = None) -> None:
        """Print for people, on standard output unless another stream is given."""
        stream = stream or sys.stdout
        if isinstance(text, str):
            print(text if isinstance(text, Escaped) else printable(text), file=stream, flush=True)
            return
        from rich.console import Console

        # A file name in brackets is not markup.
        plain = Console(file=stream, width=None if stream.isatty() else 100, markup=False, emoji=False, highlight=False)
        plain.print(text)

    def finish(self, result: Result) -> int:
        """Print a command's result and return the exit code."""
        if self.as_json:
            self._print_json({"status": "ok", "data": json_ready(result.data)})
        elif result.text:
            self.show(result.text)
        return result.exit_code

    def fail(self, error: BaseException) -> int:
        """Print an error as one sentence, with --debug after its traceback, and return the exit code."""
        failure = Failure.of(error)
        if self.debug:
            self.note(in_lines(_trace(error)))
        return self.print_failure(failure)

    def print_failure(self, failure: Failure) -> int:
        """Print a failure and return the exit code."""
        self.note(f"rado: {failure.message}")
        if failure.page:
            self.note(f"See {failure.page}.")
        if self.as_json:
            self._print_json({"status": "error", "error": {"code": failure.code, "message": failure.message}})
        return failure.exit_code

    def _print_json(self, content: Mapping[str, Any]) -> None:
        print(self._dumped({"schema_version": OUTPUT_VERSION, **content}), flush=True)  # noqa: T201  (as above)


def _trace(error: BaseException) -> list[str]:
    """The lines of a traceback. A message is one line: it may quote a peer."""
    parts = (part.removesuffix("\n") for part in traceback.format_exception(error))
    return [line for part in parts for line in (part.split("\n") if part.startswith("  File ") else [part])]


def yaml_writer() -> Callable[[Any], str]:
    """Writes what `json_ready` returned as YAML. Raises ImportError where YAML is not installed."""
    import yaml

    write = partial(yaml.safe_dump, sort_keys=False, width=100)

    def written(content: Any) -> str:
        # YAML takes marks of direction and spaces of no width for printable.
        text: str = write(content, allow_unicode=True)
        return text if text.replace("\n", "").isprintable() else write(content)

    return written


def json_ready(value: Any) -> Any:
    """Convert to JSON's types: bytes to hexadecimal, exact numbers and paths to strings, infinity and NaN to None."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): json_ready(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(part) for part in value]
    return str(value)


def silence_broken_pipe() -> None:
    """Redirect standard output to the null device, so that the interpreter's last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# Tables whose long cells wrap, with a sentence below.


def wrapped(header: Sequence[str], rows: Iterable[Sequence[str]], below: str) -> "RenderableType":
    """For `Result.text`. radobase.printing.columns makes tables whose cells do not wrap."""
    from rich import box
    from rich.console import Group
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in header:
        table.add_column(printable(name), overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    return Group(table, below if isinstance(below, Escaped) else printable(below))
