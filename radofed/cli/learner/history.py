"""`rado learner history`: what a learner asked, and what became of it."""

from typing import TYPE_CHECKING, Annotated

import typer

from dpcore.errors import ConfigurationError
from radobase.printing import amount, in_lines, local_time
from radofed.cli.framework import ConfigOption
from radofed.cli.output import Output, Result, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from learner.history import AskedRead


def history(
    _output: Output,
    config: ConfigOption,
    query: Annotated[
        str | None, typer.Argument(help="Show this query in full: the first digits of its id.", metavar="QUERY")
    ] = None,
    limit: Annotated[int, typer.Option(help="Largest number of queries.", min=1)] = 20,
    skip: Annotated[int, typer.Option(help="Leave out this many of the newest.", min=0)] = 0,
) -> Result:
    """Show what this learner asked, newest first, from its own disk. No coordinator is asked."""
    from learner.config import LearnerConfig
    from learner.history import LearnerHistory

    reader = LearnerHistory(LearnerConfig.load(config))
    if query is not None:
        matching = [query_id for query_id in reader.query_ids if query_id.hex().startswith(query.lower())]
        if len(matching) != 1:
            raise ConfigurationError(f"{len(matching)} queries begin with {query!r}; see `rado learner history`")
        one = reader.read(matching[0])
        return Result(one.to_dict() | {"detail": one.asked.to_dict()}, in_lines(_in_full(one)))
    ids = reader.query_ids
    found = [reader.read(query_id) for query_id in ids[skip : skip + limit]]
    return Result({"queries": [each.to_dict() for each in found], "count": len(ids)}, _table(found, len(ids)))


def _table(found: "Sequence[AskedRead]", count: int) -> "RenderableType":
    from wire.query_summary import with_purpose

    if not found:
        return "no query"
    header = ("time", "query", "asked", "outcome", "cohort")
    rows = []
    for each in found:
        row = (
            local_time(each.asked.created_at_unix_s),
            each.query_id.hex()[:10],
            with_purpose(each.asked.words, each.asked.purpose),
            each.outcome,
            ", ".join(each.cohort or ()),
        )
        rows.append(row)
    return wrapped(header, rows, f"{len(found)} of {count} queries")


def _in_full(found: "AskedRead") -> list[str]:
    lines = [f"query {found.query_id.hex()}", *found.asked.lines(), f"outcome: {found.outcome}"]
    if found.cohort is not None:
        lines.append("cohort: " + ", ".join(f"{name} ({amount(rows, 'row')})" for name, rows in found.cohort.items()))
    if found.release is not None:
        lines.append(f"release: {found.release}; `rado learner privacy` states its privacy")
    return lines
