"""Pages of HTML for people, from templates whose inserted text can be nothing but text.

All pages extend `base.html`: in the console with its navigation, or as one file without scripts, which loads nothing
from wherever it is opened.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from dpcore.numbers.rationals import lower_digits, lower_percent, rounded_up, upper, upper_digits, upper_percent
from radobase.presentation.svg import colours
from radobase.presentation.words import counted, day, figure, number, seldom
from radobase.printing import duration, local_time, printable

if TYPE_CHECKING:
    from jinja2 import Environment

# ruff: noqa: PLC0415  (Jinja is an extra: what gathers a report works without it)


@dataclass(frozen=True)
class Document:
    """A page that is shown in the console, or saved as one file. template: of the package's folder `templates`."""

    package: str
    template: str
    title: str
    values: Mapping[str, Any]

    def saved(self) -> str:
        """The page as a file of its own."""
        from markupsafe import Markup

        shared = {"title": self.title, "views": None, "saved_at": None, "stylesheet": Markup(stylesheet())}  # noqa: S704  (the program's own)
        return environment(self.package).get_template(self.template).render(shared | dict(self.values))


@cache
def stylesheet() -> str:
    """The style of all pages."""
    return colours() + files("radobase.presentation").joinpath("templates", "style.css").read_text("utf-8")


@cache
def environment(package: str) -> "Environment":
    """Templates of a package's folder `templates`, with those that all pages share.

    Raises UndefinedError at the first name that has no value.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("radobase.presentation")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "amount": counted,
        "bound": rounded_up,
        "day": day,
        "duration": duration,
        "figure": figure,
        "figure_at_least": lambda value: figure(value, lower_digits),
        "figure_at_most": lambda value: figure(value, upper_digits),
        "first_upper": lambda text: text[:1].upper() + text[1:],
        "moment": local_time,
        "number": number,
        "percent_at_least": lambda share: f"{lower_percent(share, 1)} %",
        "percent_at_most": lambda share: f"{upper_percent(share, 1)} %",
        "seldom": seldom,
        "tolerance": lambda width: upper(width, 5),
    }
    return made


def _finalized(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
