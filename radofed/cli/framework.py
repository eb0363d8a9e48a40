"""What all commands share: `--format` and `--debug`, printed results and errors, exit codes.

A command is a function that takes an `Output` and its options and returns a `Result`. It may raise any error:
`radofed.cli.entry_point` turns it into one sentence and an exit code.
"""

import inspect
from collections.abc import Callable
from copy import copy
from enum import StrEnum
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
import typer.core

from dpcore.declared import Declaration, Declared, declarations
from dpcore.errors import ConfigurationError
from radobase.options import from_texts
from radobase.printing import printable
from radofed.cli.output import Output, Result

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="This node's configuration file.", show_default=False)
]

LISTED = 20
"""How many queries a table has, unless --limit says otherwise."""

Limit = Annotated[
    int | None,
    typer.Option(min=0, help=f"Most queries to show, newest first. Default: {LISTED}; all with --format json."),
]

ShownAtMost = Annotated[int, typer.Option(help="Largest number of queries.", min=1)]
Skipped = Annotated[int, typer.Option(help="Leave out this many of the newest.", min=0)]
QueryInFull = Annotated[
    str | None, typer.Argument(help="Show this query in full: the first digits of its id.", metavar="QUERY")
]
PageFile = Annotated[
    Path | None, typer.Option("--output", help="Write a page of HTML to this new file. Default: print a summary.")
]
RegistryFile = Annotated[
    Path | None,
    typer.Option(help="Write the fields of the registry of differential privacy deployments to this new YAML file."),
]
CrateFile = Annotated[
    Path | None,
    typer.Option(
        help="Write evidence to file to this new ZIP file: a Five Safes RO-Crate with a record of each output.",
        show_default=False,
    ),
]


class InterruptedCommandError(Exception):
    """The user interrupted the command."""


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


_SHARED = {
    "output_format": (
        Annotated[Format, typer.Option("--format", help="Print text, or one object as JSON, or as YAML.")],
        Format.TEXT,
    ),
    "debug": (Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")], False),
}


def group(help_text: str) -> typer.Typer:
    """An empty group of commands."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def command(app: typer.Typer, name: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorate a function `f(output, options) -> Result` as the command `name` of a group, with the shared options.

    A parameter of a `Declared` class stands for an option for each of its fields.
    """

    def register(function: Callable[..., Result]) -> Callable[..., Result]:
        def invoke(**options: Any) -> int:
            shared = {key: options.pop(key) for key in _SHARED}
            chosen = shared["output_format"]
            output = Output(as_json=chosen is Format.JSON, as_yaml=chosen is Format.YAML, debug=shared["debug"])
            for key, cls in declared.items():
                options[key] = from_texts(cls, {field.name: options.pop(field.name) for field in declarations(cls)})
            try:
                return output.finish(function(output, **options))
            except KeyboardInterrupt as error:
                # The parser would exit with code 130, without a message.
                raise InterruptedCommandError from error

        hints = get_type_hints(function, include_extras=True)
        declared = {key: hint for key, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Declared)}
        own: list[inspect.Parameter] = []
        for key, parameter in inspect.signature(function).parameters.items():
            if key in declared:
                own += map(_parameter, declarations(declared[key]))
            elif key.lstrip("_") != "output":
                own.append(parameter.replace(annotation=_strict(hints[key]), kind=inspect.Parameter.KEYWORD_ONLY))
        added = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for key, (annotation, default) in _SHARED.items()
        ]
        signature = inspect.Signature([*own, *added])
        # typer reads the options from the function's signature and annotations.
        invoke.__signature__ = signature  # type: ignore[attr-defined]
        invoke.__annotations__ = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
        app.command(name, cls=_NotingCommand, help=inspect.getdoc(function))(invoke)
        return function

    return register


class _NotingCommand(typer.core.TyperCommand):
    """A command that says so if an option that takes one value is given twice: the last one holds."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See TyperCommand."""
        options = args[: args.index("--")] if "--" in args else args
        for parameter in self.params:
            if not isinstance(parameter, typer.core.TyperOption) or parameter.multiple or parameter.is_flag:
                continue
            flags = tuple(f"{flag}=" for flag in parameter.opts)
            given = [word for word in options if word in parameter.opts or word.startswith(flags)]
            if len(given) > 1:
                flag = max(parameter.opts, key=len)
                said = f"note: {flag} is given {len(given)} times and takes one value: the last one holds"
                typer.echo(printable(said), err=True)
        return list(super().parse_args(ctx, args))


def _parameter(field: Declaration) -> inspect.Parameter:
    """The option of a declared field, with its default as people write it."""
    kind: Any = str if field.kind is Fraction else field.kind
    info: Any
    if field.option.argument:
        info = typer.Argument(help=field.sentence, show_default=False)
    else:
        flag = f"{field.flag}/--no-{field.flag.removeprefix('--')}" if field.default is True else field.flag
        flags = [flag, field.option.short] if field.option.short else [flag]
        info = typer.Option(*flags, help=field.sentence, show_default=bool(field.default_text))
        info.metavar = _metavar(field)
    kind = list[kind] if field.is_list else kind
    default: Any = None
    if field.is_required:
        default = inspect.Parameter.empty
    elif field.kind is bool:
        default = field.default
    else:
        kind = kind | None
        default = field.default_text or None
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_strict(Annotated[kind, info])
    )


def _metavar(field: Declaration) -> str | None:
    option = field.option
    if field.kind in (int, float, Fraction):
        name = option.unit or ("exact" if field.kind is Fraction else field.kind.__name__)
        return f"<{f'{name} {option.range}'.rstrip()}>"
    return option.unit.upper() or None


def _strict(hint: Any) -> Any:
    """The annotation of a parameter, with a parser of our own if it is a number.

    The parser's own rules take 40.000 for 40, 1_000 for 1000 and nan for a number.
    """
    if get_origin(hint) is not Annotated:
        return hint
    kind, info, *more = get_args(hint)
    number = next((type_ for type_ in (int, float) if kind is type_ or set(get_args(kind)) == {type_, NoneType}), None)
    if number is None:
        return hint
    own = copy(info)
    least, most = own.min, own.max
    own.parser = partial(_number, of=number, least=least, most=most)
    own.metavar = own.metavar or f"<{number.__name__} {_range(least, most)}".rstrip() + ">"
    return Annotated[kind, own, *more]


def _number(text: str, *, of: type, least: float | None, most: float | None) -> float:
    from radobase.options import decimal_number, whole_number

    try:
        value = whole_number(str(text)) if of is int else decimal_number(str(text))
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from error
    if (least is not None and value < least) or (most is not None and value > most):
        raise typer.BadParameter(f"{value} is not in the range {_range(least, most)}")
    return value


def _range(least: float | None, most: float | None) -> str:
    """As x>=1, x<=9 or 1<=x<=9; nothing without bounds."""
    if least is None:
        return "" if most is None else f"x<={most}"
    return f"x>={least}" if most is None else f"{least}<=x<={most}"


def check_new(path: Path) -> None:
    """Raise ConfigurationError if a file exists: no command overwrites one that it did not make."""
    if path.exists():
        raise ConfigurationError(f"{path}: already exists; give another file")


def check_directory(path: Path) -> None:
    """Raise ConfigurationError if the file's directory is missing, before hours of work are lost."""
    if not path.parent.is_dir():
        raise ConfigurationError(f"{path.parent}: not a directory; make it first")
