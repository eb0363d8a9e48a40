"""The reference of commands, from the command line's own help."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from docs.generate.tables import code, table
from radofed.cli.commands import EXIT_CODES, app

SHARED = ("--format", "--debug", "--help")
INTRODUCTION = f"""# Commands

This page is generated from the command line: `rado COMMAND --help` prints the same.

Every command takes these options:

| option | meaning |
| --- | --- |
| `--format text`, `--format json`, `--format yaml` | How results are printed. With `json` and `yaml` standard output gets exactly one object, and notes and errors go to standard error. |
| `--debug` | Print the traceback of an error. |
| `--help` | Print the command's help. |

{" ".join(EXIT_CODES.split())} [Error codes](errors/index.md) explains each error.
"""  # noqa: E501  (a row of a Markdown table is one line)


def commands_page() -> str:
    """The page of all commands."""
    root = typer.main.get_command(app)
    return "\n".join([INTRODUCTION, *_sections(root, "rado", depth=2)])


def _sections(group: Any, path: str, depth: int) -> Iterator[str]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        here = f"{path} {name}"
        yield f"{'#' * depth} {here}\n\n{inspect.cleandoc(command.help or '')}\n"
        if hasattr(command, "commands"):
            yield from _sections(command, here, depth + 1)
        else:
            yield from _usage(command, here)


def _usage(command: Any, path: str) -> Iterator[str]:
    context = command.make_context(path, [], resilient_parsing=True)
    shown = [parameter for parameter in command.params if not set(parameter.opts) & set(SHARED)]
    arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
    options = [parameter for parameter in shown if parameter.param_type_name == "option" and not parameter.hidden]
    words = [path, *(["[OPTIONS]"] if options else []), *map(_placeholder, arguments)]
    yield f"    {' '.join(words)}\n"
    if arguments:
        yield table(("argument", "meaning"), ([code(_placeholder(each)), each.help or ""] for each in arguments))
    if options:
        yield table(("option", "meaning", "default"), (_option(option, context) for option in options))


def _placeholder(argument: Any) -> str:
    word = f"{argument.name.upper()}{'...' if argument.nargs != 1 else ''}"
    return word if argument.required else f"[{word}]"


def _option(option: Any, context: Any) -> list[str]:
    """Names with the value's type, meaning and default, as help prints them."""
    names, said = option.get_help_record(context)
    meaning, _, default = said.removesuffix("]").partition("  [") if said.endswith("]") else (said, "", "")
    default = default.removeprefix("default: ")
    return [
        code(re.sub(r"<list\[(.*)\]>", r"<\1>", names)),
        meaning,
        default if default == "required" else code(default),
    ]
