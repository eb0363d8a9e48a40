"""`rado party report`: what happened to a party's data in a period, as a page to sign."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpcore.numbers.rationals import upper_digits
from radobase.printing import amount, moment
from radofed.cli.framework import ConfigOption, command
from radofed.cli.output import Output, Result
from radofed.cli.report_files import check_files, result_of

if TYPE_CHECKING:
    from parties.report.gathering import Report

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)


def report(
    _output: Output,
    config: ConfigOption,
    since: Annotated[str, typer.Option("--from", help="From this date or time on, such as 2026-01-01.")],
    until: Annotated[
        str | None, typer.Option("--to", help="Before this date or time. Default: until now.", show_default=False)
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--output", help="Write a page of HTML to this new file. Default: print a summary.")
    ] = None,
    registry: Annotated[
        Path | None,
        typer.Option(
            help="Write the fields of the registry of differential privacy deployments to this new YAML file."
        ),
    ] = None,
) -> Result:
    """Report who asked this party in a period, what left, what it cost, what remains, and what that means.

    The page is for those who sign for the data. It is one file without scripts and loads nothing from elsewhere. The
    node may run. Changes nothing, and reads no row.
    """
    from parties.config import PartyConfig
    from parties.report.gathering import gather
    from parties.report.page import registry_entry
    from radofed import __version__

    check_files(page, registry)
    now = time.time()
    found = gather(PartyConfig.load(config), moment(since, 0.0), moment(until, now), now, __version__)
    entry = registry_entry(found)

    def page_text() -> str:
        from parties.report.page import document

        return document(found).saved()

    return result_of(found, entry, page_text, _summary(found), page=page, registry=registry)


def _summary(found: "Report") -> list[str]:
    asked = "; ".join(
        f"{each.learner}: {amount(each.queries, 'query')}, {each.answered} answered" for each in found.askers
    )
    record = found.record
    lines = [
        f"asked by {asked}" if asked else "no query in this period",
        f"left this party: {amount(found.bytes_out, 'encrypted byte')}, {amount(found.charged, 'answer')} charged",
        f"{record.scope}: epsilon {upper_digits(record.spent, 4)} of {record.limit_epsilon:.4g} is spent",
    ]
    if found.has_last:
        more = "any number of more queries" if found.more is None else amount(found.more, "more query")
        lines.append(f"{more} like the last one {'fits' if found.more == 1 else 'fit'}")
    if found.chances and (chance := found.chances[-1]).after_limit is not None:
        lines.append(f"a guess about one row, {chance.before} before: at most {chance.after_limit} within the limit")
    if found.warning:
        lines.append(f"warning: {found.warning}")
    return lines


def add_to(app: typer.Typer) -> None:
    """Add this command to a group."""
    command(app, "report")(report)
