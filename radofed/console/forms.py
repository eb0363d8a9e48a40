"""Forms whose fields are a command's options: of the same declaration, and read in the same way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from dpcore.declared import Declaration, Declared, declarations
from radobase.options import from_texts

Options = TypeVar("Options", bound=Declared)


@dataclass(frozen=True)
class Field:
    """One option of a command: `name` as declared, `flag` as typed in a terminal, `default` as text or empty."""

    name: str
    flag: str
    help: str
    default: str = ""
    is_flag: bool = False
    is_list: bool = False
    """Whether it may be given several times: one line of the field for each."""

    @classmethod
    def of(cls, declared: Declaration) -> "Field":
        """From the declaration."""
        unit = f" In {declared.option.unit}." if declared.option.unit and declared.kind in (int, float) else ""
        return cls(
            declared.name,
            declared.flag,
            f"{declared.sentence}{unit}",
            declared.default_text,
            is_flag=declared.kind is bool,
            is_list=declared.is_list,
        )

    @property
    def label(self) -> str:
        """The option in words."""
        return self.flag.removeprefix("--").replace("-", " ").capitalize()


class Form(Generic[Options]):
    """The options of one command."""

    def __init__(self, options: type[Options]) -> None:
        self._options = options

    @cached_property
    def fields(self) -> Sequence[Field]:
        """All options, in the order of the declaration."""
        return tuple(map(Field.of, declarations(self._options)))

    def arguments(self, values: Mapping[str, str]) -> list[str]:
        """The words of the command line for texts of fields by name; empty ones and defaults are not given."""
        words: list[str] = []
        for field in self.fields:
            text = values.get(field.name, "").strip()
            if not text or text == field.default:
                continue
            if field.is_flag:
                words.append(field.flag)
                continue
            # With "=", a text that begins with "-" is a value, too.
            words += [f"{field.flag}={line}" for line in (_lines(text) if field.is_list else [text])]
        return words

    def parse(self, values: Mapping[str, str], **chosen: str) -> Options:
        """The command's options, from texts of fields by name; empty ones are not given, others are not read.

        Raises ConfigurationError.
        """
        given: dict[str, Any] = {}
        texts = {**values, **chosen}
        for field in self.fields:
            if text := texts.get(field.name, "").strip():
                given[field.name] = _lines(text) if field.is_list else text
        return from_texts(self._options, given)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
