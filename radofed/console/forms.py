"""Forms whose fields are the options of a command, and are read as the command reads them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Field:
    """One option of a command. name: the parameter's. flag: as typed in a terminal. default: its text, or empty.

    is_flag: whether it is on or off. is_list: whether it may be given several times: one line of the field for each.
    """

    name: str
    flag: str
    help: str
    default: str = ""
    is_flag: bool = False
    is_list: bool = False

    @property
    def label(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ").capitalize()


class CommandForm(Protocol):
    """The options of one command."""

    @property
    def fields(self) -> Sequence[Field]:
        """All options, in the command's order."""
        ...

    def arguments(self, values: Mapping[str, str]) -> list[str]:
        """The words of the command line for texts of fields by name; empty ones are not given."""
        ...

    def parse(self, values: Mapping[str, str]) -> dict[str, Any]:
        """The command's parameters, from texts of fields by name; empty ones are not given.

        Raises ConfigurationError with the command's own sentence.
        """
        ...
