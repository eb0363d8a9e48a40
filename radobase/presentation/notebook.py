"""What notebooks show of objects: sentences, tables and drawings, as a small piece of HTML without scripts.

Every text is escaped. The colours are those of the reader, who may have a light or a dark page: the piece sets none but
those of drawings, which follow the reader's choice (`plots.css`).
"""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from radobase.presentation.svg import Drawing, check_picture, colours, write_drawing
from radobase.printing import printable

MOST_ROWS = 40
"""Rows of a table that are shown."""
MOST_SENTENCES = 12
"""Sentences that are shown without a click."""
Shown = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A table: title, header, rows."""


class Picture:
    """A drawing that a notebook shows, and that is saved as an SVG file."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing

    def save(self, path: Path | str) -> None:
        """Write it as an SVG file. Raises ConfigurationError."""
        check_picture(Path(path))
        write_drawing(self.drawing, Path(path))

    def _repr_html_(self) -> str:
        return fragment("", drawings=[self.drawing])


def fragment(
    title: str, sentences: Iterable[str] = (), tables: Iterable[Shown] = (), drawings: Iterable[Drawing] = ()
) -> str:
    """A piece of HTML. Long tables are cut, which a line under them says."""
    parts = [f"<p><strong>{_text(title)}</strong></p>"] if title else []
    parts += [_table(*table) for table in tables]
    parts += [f'<div style="max-width: 34rem">{each.__html__()}</div>' for each in drawings]
    said = [f"<li>{_text(sentence)}</li>" for sentence in sentences]
    parts += [f"<ul>{''.join(said[:MOST_SENTENCES])}</ul>"] if said else []
    if len(said) > MOST_SENTENCES:
        parts.append(f"<details><summary>more</summary><ul>{''.join(said[MOST_SENTENCES:])}</ul></details>")
    style = f"<style>\n{_within(colours())}</style>" if "<svg" in "".join(parts) else ""
    return f'<div class="radofed">{style}{"".join(parts)}</div>'


def _within(style: str) -> str:
    """Styles that hold for these pieces alone, and not for the page that shows them."""
    lines = []
    for line in style.splitlines():
        if line.startswith(("@media", ":root")):
            lines.append(line.replace(":root", ".radofed"))
        else:
            lines.append("".join(f"{rule}}} " for rule in map(_own, line.split("}")) if rule))
    # A dark drawing stays readable on a light page.
    return "\n".join([*lines, ".radofed svg { background: var(--paper); }"]) + "\n"


def _own(rule: str) -> str:
    """A rule of the pieces."""
    selectors, brace, body = rule.partition("{")
    return ", ".join(f".radofed {each.strip()}" for each in selectors.split(",")) + brace + body if brace else ""


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows[:MOST_ROWS])
    left = f"<p>and {len(rows) - MOST_ROWS} more rows</p>" if len(rows) > MOST_ROWS else ""
    return f"<table><caption>{_text(title)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{left}"


def _text(value: str) -> str:
    return escape(printable(value))
