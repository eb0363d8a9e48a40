"""Sphinx configuration. `make docs` builds the site into build/docs, without the network."""

import re
from importlib.metadata import version as installed_version
from typing import Any

project = "radofed"
author = "The radofed authors"
release = version = installed_version("radofed")

extensions = ["myst_nb", "sphinx_design", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["generate", "pictures"]
smartquotes = False  # `--option` keeps its hyphens

# Every reference must resolve. Types of other packages and of internal modules are shown as text: an inventory of their
# names would have to be downloaded, and internal modules have no pages.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!radofed\.[A-Za-z_]+$).*")]

# Notebooks are stored with their outputs; `make notebooks` runs them.
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

default_role = "code"
highlight_language = "none"  # outputs and commands are no Python
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 100
napoleon_numpy_docstring = False

html_theme = "pydata_sphinx_theme"
html_title = "radofed"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_sourcelink = False
html_theme_options = {"navbar_end": ["theme-switcher"], "footer_start": ["copyright"], "footer_end": []}

_CODE = re.compile(r"(`[^`]*`)")
_SENTENCES = ("attribute", "data", "property")
_plain: dict[str, list[str]] = {}
_MARKUP = re.compile(r"[*|]|(?<=\w)_(?!\w)")


def _escape_markup(_app: Any, what: str, name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Take docstrings as plain text: `code` in backticks, blocks of code indented, |theta|^2 and theta_ no markup."""
    for number, line in enumerate(lines):
        if line.endswith(":") and lines[number + 1 : number + 2] == [""] and lines[number + 2].startswith("    "):
            line += ":"  # noqa: PLW2901
        parts = _CODE.split(line)
        parts[::2] = [_MARKUP.sub(r"\\\g<0>", part) for part in parts[::2]]
        lines[number] = "".join(parts)
    if what in _SENTENCES:
        _plain[name] = list(lines)


def _restore(_app: Any, what: str, name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """A property's docstring is a sentence: napoleon takes what comes before a colon for its type."""
    if what in _SENTENCES:
        lines[:] = _plain.pop(name)


def setup(app: Any) -> None:
    """Register one hook before napoleon's, which writes markup, and one after it."""
    app.connect("autodoc-process-docstring", _escape_markup, priority=100)
    app.connect("autodoc-process-docstring", _restore, priority=900)
