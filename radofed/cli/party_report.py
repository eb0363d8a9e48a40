"""`rado party report`: what happened to a party's data in a period, as a page to sign."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from dpcore.numbers.rationals import upper_digits
from radobase.printing import amount, in_lines, moment
from radofed.cli.framework import ConfigOption, check_directory, check_new
from radofed.cli.output import Output, Result, json_ready, yaml_writer

if TYPE_CHECKING:
    from parties.report.gathering import Report


# The files that `rado party report` and `rado learner report` write.


class Findings(Protocol):
    """What a report says."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        ...


def check_files(*paths: Path | None) -> None:
    """Raise ConfigurationError if a file exists, its directory is missing, or it is standard output."""
    from dpcore.errors import ConfigurationError

    for path in paths:
        if path is not None:
            if str(path) in {"-", "/dev/stdout"}:
                # Standard output has the summary, or JSON.
                raise ConfigurationError(f"{path}: a report is a file that only its owner may read: give its name")
            check_directory(path)
            check_new(path)


def result_of(
    found: Findings,
    entry: Mapping[str, Any],
    render: Callable[[], str],
    summary: Sequence[str],
    *,
    page: Path | None,
    registry: Path | None,
) -> Result:
    """The result of a command that reports, after its files were written. summary: one line for each finding."""
    written = _write(page, render, registry, entry)
    lines = [*summary, *(f"wrote {path}" for path in written)]
    return Result({"report": found.to_dict(), "registry": entry, "files": written}, in_lines(lines))


def _write(page: Path | None, render: Callable[[], str], registry: Path | None, entry: Mapping[str, Any]) -> list[Path]:
    """Write the page and the registry's entry, for those that have a path; the paths. Only their owner may read them.

    render: makes the page. Both are made before the first is written.
    """
    from radobase.files.writing import create_durably

    written = {}
    if page is not None:
        written[page] = render()
    if registry is not None:
        written[registry] = yaml_writer()(json_ready(entry))
    for path, text in written.items():
        create_durably(path, text.encode())
    return list(written)


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
