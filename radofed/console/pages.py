"""What the console's pages and actions are: functions of a visit, which say what to show.

A role's views are a `Views`. They know nothing of HTTP. `radofed.console.app` serves them, and accepts an action only
with the token of a form that the console made.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar

from dpcore.declared import Declaration, Declared, declarations
from radobase.options import from_texts
from radobase.presentation.page import Document


@dataclass(frozen=True)
class Visit:
    """One request."""

    path: Mapping[str, str] = field(default_factory=dict)
    """What the braces of a page's path stand for."""
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Shown:
    """A template of a package's folder `templates` with its values."""

    template: str
    title: str = ""
    """Empty for a fragment of a page."""
    values: Mapping[str, Any] = field(default_factory=dict)
    package: str = "radofed.console"
    saved_at: str | None = None
    """Where the page is stored as a file; None if it is not for keeping."""

    @classmethod
    def of(cls, document: Document, saved_at: str) -> "Shown":
        """A page that can be saved."""
        return cls(document.template, document.title, document.values, document.package, saved_at)


@dataclass(frozen=True)
class Goto:
    """Go to another page of the console, such as "queries/1f"."""

    path: str


@dataclass(frozen=True)
class File:
    """A file for the browser to store. No browser shows it as a page of the console."""

    name: str
    content: bytes
    media_type: str


Answer: TypeAlias = Shown | Goto | File


View: TypeAlias = Callable[[Visit], Answer]


@dataclass(frozen=True)
class Views:
    """All that a console of one role shows. Paths are below its root, such as "queries/{query}"."""

    role: str
    member: str
    federation: str
    navigation: Sequence[tuple[str, str]]
    """Paths of pages, with their titles; the first is the start."""
    pages: Mapping[str, View]
    """What is looked at, with GET: changes nothing."""
    actions: Mapping[str, View] = field(default_factory=dict)
    """What a person does by a form, with POST."""


# Forms whose fields are a command's options: of the same declaration, and read in the same way.

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
        for each in self.fields:
            text = values.get(each.name, "").strip()
            if not text or text == each.default:
                continue
            if each.is_flag:
                words.append(each.flag)
                continue
            # With "=", a text that begins with "-" is a value, too.
            words += [f"{each.flag}={line}" for line in (_lines(text) if each.is_list else [text])]
        return words

    def parse(self, values: Mapping[str, str], **chosen: str) -> Options:
        """The command's options, from texts of fields by name; empty ones are not given, others are not read.

        Raises ConfigurationError.
        """
        given: dict[str, Any] = {}
        texts = {**values, **chosen}
        for each in self.fields:
            if text := texts.get(each.name, "").strip():
                given[each.name] = _lines(text) if each.is_list else text
        return from_texts(self._options, given)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
