"""What all commands share: `--format` and `--debug`, results and errors printed in one way, exit codes.

A command is a function from an `Output` and its own options to a `Result`. It raises what it likes; `run` turns that
into one sentence and an exit code.
"""

import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from dpcore.errors import ConfigurationError
from radofed.distribution import check_distribution
from radofed.output import EXIT_FAILED, EXIT_USAGE, Failure, Output, Result, silence_broken_pipe

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="The node's configuration file.", show_default=False)
]


class InterruptedCommandError(Exception):
    """The command was interrupted by its user."""


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


_SHARED = {
    "output_format": (
        Annotated[Format, typer.Option("--format", help="How results are printed: json gives one object.")],
        Format.TEXT,
    ),
    "debug": (Annotated[bool, typer.Option("--debug", help="Print the trace of an error.")], False),
}


def group(help_text: str) -> typer.Typer:
    """A group of commands."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def command(app: typer.Typer, name: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Make a function `f(output, options) -> Result` the command `name` of a group, with the shared options added."""

    def register(function: Callable[..., Result]) -> Callable[..., Result]:
        def invoke(**options: Any) -> int:
            shared = {key: options.pop(key) for key in _SHARED}
            output = Output(as_json=shared["output_format"] is Format.JSON, debug=shared["debug"])
            try:
                return output.finish(function(output, **options))
            except KeyboardInterrupt as error:
                # The parser would end with code 130 and say nothing.
                raise InterruptedCommandError from error

        hints = get_type_hints(function, include_extras=True)
        own = [
            parameter.replace(annotation=hints[key])
            for key, parameter in inspect.signature(function).parameters.items()
            if key.lstrip("_") != "output"
        ]
        added = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for key, (annotation, default) in _SHARED.items()
        ]
        signature = inspect.Signature([*own, *added])
        # The command line is read off the function's signature and annotations.
        invoke.__signature__ = signature  # type: ignore[attr-defined]
        invoke.__annotations__ = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
        app.command(name, help=inspect.getdoc(function))(invoke)
        return function

    return register


def check_new(path: Path) -> None:
    """Raise ConfigurationError where there is something already: no command writes over what it did not make."""
    if path.exists():
        raise ConfigurationError(f"{path}: is there already; give another file")


def check_directory(path: Path) -> None:
    """Raise ConfigurationError where a file cannot be made there, before hours of work end in it."""
    if not path.parent.is_dir():
        raise ConfigurationError(f"{path.parent}: is no directory; make it first")


def run(arguments: list[str]) -> int:
    """Run `rado` with these arguments; the exit code. Nothing escapes."""
    output = Output.of_arguments(arguments)
    try:
        check_distribution()
        from radofed.cli.commands import app  # noqa: PLC0415  (a package that is not ours must not be imported first)

        code = app(args=arguments, prog_name="rado", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (typer.Abort, InterruptedCommandError):
        return output.print_failure(Failure("INTERRUPTED", "interrupted", EXIT_FAILED))
    except BrokenPipeError:
        silence_broken_pipe()
        return EXIT_FAILED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (whatever it is, people get one sentence)
        if callable(format_message := getattr(error, "format_message", None)):
            return _usage(output, error, format_message())
        return output.fail(error)


def _usage(output: Output, error: BaseException, message: str) -> int:
    """A wrong command line. The parser's own code 2 means a failed connection here."""
    context = getattr(error, "ctx", None)
    if message.startswith("Usage:"):  # a group without a command: its help is the message
        output.note(message)
        message = "say which command"
    hint = f"; see `{context.command_path} --help`" if context is not None else ""
    return output.print_failure(Failure("USAGE", f"{message.rstrip('.')}{hint}", EXIT_USAGE))
