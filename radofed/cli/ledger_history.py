"""`rado ledger history` and `seeds`: what a party was asked, and what became of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from radobase.printing import amount, in_lines, local_time, moment
from radofed.cli.framework import ConfigOption, command
from radofed.cli.output import Output, Result
from radofed.cli.tables import wrapped

if TYPE_CHECKING:
    from rich.console import RenderableType

    from parties.history.reading import QueryRead

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)


def history(
    _output: Output,
    config: ConfigOption,
    query: Annotated[
        str | None, typer.Argument(help="Show this query in full: the first digits of its id.", metavar="QUERY")
    ] = None,
    learner: Annotated[str | None, typer.Option(help="Only this learner's queries.", show_default=False)] = None,
    since: Annotated[str | None, typer.Option(help="From this date or time on, such as 2026-11-01.")] = None,
    until: Annotated[str | None, typer.Option(help="Before this date or time.")] = None,
    limit: Annotated[int, typer.Option(help="Largest number of queries.", min=1)] = 20,
    skip: Annotated[int, typer.Option(help="Leave out this many of the newest.", min=0)] = 0,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> Result:
    """Show what this party was asked, newest first: by whom, what was decided and why, what left, what it cost.

    The node may run. Changes nothing.
    """
    from parties.config import PartyConfig
    from parties.history.history import HistoryPage
    from parties.history.reading import HistoryReader, csv_of

    page = HistoryPage(limit, skip, learner, moment(since, 0.0), moment(until, float("inf")))
    with HistoryReader(PartyConfig.load(config)) as reader:
        if query is not None:
            found = reader.find(query)
            data = found.to_dict() | {
                "detail": None if found.asked is None else found.asked.to_dict(),
                "signed": [part.to_dict() for part in found.signed],
            }
            return Result(data, in_lines(_in_full(found)))
        queries, count = reader.page(page), reader.history.count(page)
    data = {"queries": [each.to_dict() for each in queries], "count": count}
    if as_csv:
        return Result(data, in_lines(csv_of(queries).splitlines()))
    return Result(data, _table(queries, count))


def _table(queries: Sequence["QueryRead"], count: int) -> "RenderableType":
    from wire.query_summary import with_purpose

    if not queries:
        return "no query"
    header = ("time", "query", "learner", "asked", "decision", "cost")
    rows = []
    for each in queries:
        row = (
            local_time(each.shown.shown_at_unix_s),
            each.shown.query_id.hex()[:10],
            each.shown.learner or "unknown",
            with_purpose(each.words, each.shown.purpose),
            each.decision,
            each.cost_with_attempts,
        )
        rows.append(row)
    return wrapped(header, rows, f"{len(queries)} of {count} queries; `rado ledger history QUERY` shows one in full")


def _in_full(query: "QueryRead") -> list[str]:
    from wire.signed_fields import signed_lines

    shown = query.shown
    lines = [f"query {shown.query_id.hex()}", f"shown {local_time(shown.shown_at_unix_s)}"]
    if query.asked is not None:
        lines += query.asked.lines()
    else:
        lines.append(f"learner {shown.learner or 'unknown'} asked for {query.words}; the signed query is not kept")
    lines.append(f"decision: {query.decision}")
    lines += [f"{each}, {local_time(each.at_unix_s)}" for each in query.decisions]
    for attempt in query.attempts:
        lines.append(f"attempt {attempt.attempt}: {attempt.outcome}")
        if attempt.cohort is not None:
            members = ", ".join(f"{name} ({amount(rows, 'row')})" for name, rows in attempt.cohort.items())
            lines.append(f"  cohort: {members}")
        if attempt.bytes_out is not None:
            lines.append(f"  left this party: {attempt.bytes_out} encrypted bytes")
        lines += [f"  cost of {line}" for line in attempt.cost]
    return [*lines, *signed_lines(query.signed)] if query.signed else lines


def add_to(app: typer.Typer) -> None:
    """Add the command to a group."""
    command(app, "history")(history)
