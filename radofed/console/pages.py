"""What the console's pages and actions are: functions of a visit, which say what to show.

A role's views are a `Views`. They know nothing of HTTP. `radofed.console.app` serves them, and accepts an action only
with the token of a form that the console made.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from radobase.presentation.page import Document


@dataclass(frozen=True)
class Visit:
    """One request. path: what the braces of a page's path stand for. query: after "?". form: what an action is sent."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Shown:
    """A template of a package's folder `templates` with its values. title: empty for a fragment of a page.

    saved_at: where the page is stored as a file; None if it is not for keeping.
    """

    template: str
    title: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    package: str = "radofed.console"
    saved_at: str | None = None

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


@dataclass(frozen=True)
class Page:
    """Something to look at, with GET. It changes nothing. path: below the console's root, such as "queries/{query}"."""

    path: str
    show: Callable[[Visit], Answer]


@dataclass(frozen=True)
class Action:
    """Something that a person does by a form, with POST."""

    path: str
    act: Callable[[Visit], Answer]


@dataclass(frozen=True)
class Views:
    """All that a console of one role shows. navigation: paths of pages, with their titles; the first is the start."""

    role: str
    member: str
    federation: str
    navigation: Sequence[tuple[str, str]]
    pages: Sequence[Page]
    actions: Sequence[Action] = ()
