"""Pages of HTML for people: templates whose inserted text can be nothing but text.

A page is one file without scripts. It loads nothing, from wherever it is opened.
"""

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dpcore.numbers.decimals import lower_digits, lower_percent, rounded_up, upper, upper_digits, upper_percent
from radobase.printing import duration, local_time, printable


def environment(package: str) -> Environment:
    """Templates of a package's folder `templates`, with what reports share (radobase.report).

    Raises UndefinedError at the first name that has no value.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("radobase.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "bound": rounded_up,
        "day": day,
        "duration": duration,
        "figure": figure,
        "figure_at_least": lambda value: figure(value, lower_digits),
        "figure_at_most": lambda value: figure(value, upper_digits),
        "moment": local_time,
        "number": number,
        "percent_at_least": lambda share: f"{lower_percent(share, 1)} %",
        "percent_at_most": lambda share: f"{upper_percent(share, 1)} %",
        "seldom": seldom,
        "tolerance": lambda width: upper(width, 5),
    }
    return made


def _finalized(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def day(unix_s: float) -> str:
    """Local date."""
    return f"{dt.datetime.fromtimestamp(unix_s, dt.UTC).astimezone():%Y-%m-%d}"


def figure(value: float | None, rounded: Callable[[float, int], str] = "{:.{}g}".format) -> str:
    """Four digits; words if the number is not finite. rounded: to the nearest, or outwards."""
    return "no bound" if value is None or not math.isfinite(value) else rounded(value, 4)


def number(value: float) -> str:
    """A whole number with separators."""
    return f"{value:,.0f}"


def seldom(probability: float) -> str:
    """A bound on a small probability, rounded up, also as one case of so many, never fewer cases than it says."""
    if not 0 < probability < 1:
        return f"{probability:.4g}"
    return f"{upper_digits(probability, 4)} (1 in {math.floor(round(1 / probability, 6)):,})"
