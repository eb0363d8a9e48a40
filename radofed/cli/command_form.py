"""The options of a command as a form of the console: its fields, and its parser for what people type into them."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import typer.main

from dpcore.errors import ConfigurationError

if TYPE_CHECKING:
    from radofed.console.forms import Field

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)


class CommandForm:
    """See `radofed.console.forms.CommandForm`."""

    def __init__(self, group: typer.Typer, words: str) -> None:
        """group: a group of commands. words: the command's, such as "rado learner query"."""
        self._words = words
        found: Any = typer.main.get_command(group)
        # A group of a single command is that command.
        self._command = found.commands[words.rsplit(maxsplit=1)[-1]] if hasattr(found, "commands") else found

    @cached_property
    def fields(self) -> "Sequence[Field]":
        """See `radofed.console.forms.CommandForm`."""
        from radofed.console.forms import Field

        return tuple(
            Field(
                name=option.name,
                flag=option.opts[0],
                help=option.help,
                default=option.default if isinstance(option.default, str) else "",
                is_flag=option.is_flag,
                is_list=option.multiple,
            )
            for option in self._command.params
            if option.param_type_name == "option"
        )

    def arguments(self, values: Mapping[str, str]) -> list[str]:
        """See `radofed.console.forms.CommandForm`."""
        arguments: list[str] = []
        for field in self.fields:
            text = values.get(field.name, "").strip()
            if not text:
                continue
            if field.is_flag:
                arguments.append(field.flag)
                continue
            lines = text.splitlines() if field.is_list else [text]
            # With "=", a text that begins with "-" is a value, too.
            arguments += [f"{field.flag}={line.strip()}" for line in lines if line.strip()]
        return arguments

    def parse(self, values: Mapping[str, str]) -> dict[str, Any]:
        """See `radofed.console.forms.CommandForm`."""
        try:
            parsed: dict[str, Any] = self._command.make_context(self._words, self.arguments(values)).params
        except Exception as error:
            # The parser's errors have no common public type.
            if callable(format_message := getattr(error, "format_message", None)):
                raise ConfigurationError(str(format_message()).rstrip(".")) from error
            raise
        return parsed
