"""The files that `rado party report` and `rado learner report` write."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from radobase.printing import in_lines
from radofed.cli.framework import check_directory, check_new
from radofed.cli.output import Result, json_ready, yaml_writer

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)


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
