"""Tables whose long cells wrap, with a sentence below."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from radobase.printing import Escaped, printable

if TYPE_CHECKING:
    from rich.console import RenderableType


def wrapped(header: Sequence[str], rows: Iterable[Sequence[str]], below: str) -> "RenderableType":
    """For `Result.text`. radobase.printing.columns makes tables whose cells do not wrap."""
    from rich import box  # noqa: PLC0415  (rich is slow to import, and help does not need it)
    from rich.console import Group  # noqa: PLC0415  (as above)
    from rich.table import Table  # noqa: PLC0415  (as above)

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in header:
        table.add_column(printable(name), overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    return Group(table, below if isinstance(below, Escaped) else printable(below))
