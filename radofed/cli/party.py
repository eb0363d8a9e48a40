"""`rado party`: run an organisation's node, and check it before it starts."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from dpcore.numbers.rationals import upper_digits
from radobase.failure import EXIT_FAILED
from radobase.logs import LEVELS, quiet_grpc
from radobase.presentation.words import day
from radobase.printing import DIGEST_DIGITS, amount, in_lines, local_time, moment
from radofed.cli.framework import (
    ConfigOption,
    CrateFile,
    PageFile,
    RegistryFile,
    check_directory,
    check_new,
    command,
    group,
)
from radofed.cli.output import Output, Result, json_ready, yaml_writer
from radofed.cli.party_approval import unanswered_words

if TYPE_CHECKING:
    from parties.report.gathering import Report
    from radobase.presentation.five_safes import Evidence


# Changes of cells that `status` and `reload` show.
_MOST_CHANGES = 20

app = group("Run and check a party.")


@command(app, "start")
def start(_output: Output, config: ConfigOption) -> Result:
    """Run the party until SIGTERM or SIGINT.

    It answers the queries that its policy allows.
    """
    quiet_grpc()
    from parties.config import PartyConfig
    from parties.node import run

    loaded = PartyConfig.load(config)
    run(loaded)
    return Result({"party": loaded.name, "ended": "drained"})


@command(app, "status")
def status(_output: Output, config: ConfigOption) -> Result:
    """Ask the running node for its state. The exit code is 2 if no node runs."""
    from parties.config import PartyConfig
    from radobase.local_status import read_status

    found = read_status(PartyConfig.load(config).state_directory)
    return Result(found, in_lines(_status_words(found)))


def _status_words(found: dict[str, Any]) -> list[str]:
    now, contact = time.time(), found["last_contact_unix_s"]
    heard = "not reached yet" if contact is None else f"last answered {max(0.0, now - contact):.0f} s ago"
    answers = "confirmed" if found["ledger_confirmed"] else "not confirmed yet, so no query is answered"
    lines = [
        f"party {found['party']} of {found['federation']}, radofed {found['version']}, process {found['pid']}",
        f"running since {local_time(found['started_at_unix_s'])}",
        *_data_words(found),
        f"coordinator {found['coordinator']}: {heard}; roster version {found['roster_version'] or 'none'}",
        *_certificate_words(found),
        f"ledger: {answers}",
        f"not ready: {', '.join(found['not_ready'])}" if found["not_ready"] else "ready",
    ]
    if (pause := found["paused"]) is not None:
        lines.append(f"paused by {pause['by']} since {local_time(pause['since_unix_s'])}")
        # A node that was started before an upgrade does not say it.
        lines += unanswered_words(pause.get("unanswered", 0))
    lines += _row_words(found)
    refused = {what: found[what]["refused"] for what in ("policy", "data")}
    lines += [f"{what} not reloaded: {why}" for what, why in refused.items() if why]
    if found["waiting_for_people"]:
        lines.append(f"queries that wait for a decision: {found['waiting_for_people']}; see `rado party pending`")
    under_way = [f"query {a['query_id'][:16]}, attempt {a['attempt']}: {a['state']}" for a in found["attempts"]]
    return [*lines, *(under_way or ["no attempt under way"])]


def _row_words(found: dict[str, Any]) -> list[str]:
    """Why no query is answered with these rows. A node that was started before an upgrade does not say it."""
    return [f"rows not accepted: {sentence}" for sentence in found.get("rows_not_accepted", {}).values()]


def _certificate_words(found: dict[str, Any]) -> list[str]:
    certificate = found.get("certificate")
    # A node that was started before an upgrade does not say it.
    if certificate is None:
        return []
    warning = [f"warning: {certificate['warning']}"] if certificate["warning"] else []
    return [f"certificate expires {certificate['expires']}", *warning]


@command(app, "reload")
def reload(
    _output: Output,
    config: ConfigOption,
    within_s: Annotated[float, typer.Option(help="Wait for at most this many seconds.", min=0.0)] = 600.0,
) -> Result:
    """Make the running node read its policy, its schema and its data again.

    Until the new rows are loaded, and for queries that it accepted before, it answers from the old ones. What cannot
    be read changes nothing. The exit code is then 1, and also if a person has to accept the new rows first (`rado party
    accept-rows`). SIGHUP reloads the policy alone, SIGUSR1 the schema and the data.
    """
    from parties.config import PartyConfig
    from parties.local_control import reload_node

    found = reload_node(PartyConfig.load(config).state_directory, within_s)
    refused = {what: found[what]["refused"] for what in ("policy", "data")}
    done = {"policy": "reloaded", "data": "reloaded" if found["data_changed"] else "unchanged"}
    lines = [f"{what} {f'not reloaded: {why}' if why else done[what]}" for what, why in refused.items()]
    held = _row_words(found)
    exit_code = EXIT_FAILED if any(refused.values()) or held else 0
    data = {key: found.get(key) for key in ("policy", "data", "data_changed", "usable_rows", "rows_not_accepted")}
    return Result(data, in_lines([*lines, *_data_words(found), *held]), exit_code=exit_code)


@command(app, "accept-rows")
def accept_rows(
    _output: Output,
    config: ConfigOption,
    usable: Annotated[int, typer.Option(help="How many usable rows the node holds, as a check.", show_default=False)],
) -> Result:
    """Let the running node answer with rows that the policy's [data] holds back: fewer, fewer usable, or other cells.

    Look at `rado party status` first, and find out why the rows changed. Later rows are compared with these.
    """
    from dpcore.errors import ConfigurationError
    from parties.approval.decisions import Person
    from parties.config import PartyConfig
    from parties.data.row_guard import RowCounts, accept
    from radobase.local_status import read_status

    directory = PartyConfig.load(config).state_directory
    found = read_status(directory)
    # A node that was started before an upgrade does not say what was changed.
    counts = RowCounts(
        found["rows"], found["usable_rows"], found.get("changed_cells"), found.get("usable_by_label") or None
    )
    if counts.usable != usable:
        raise ConfigurationError(
            f"the node holds {amount(counts.usable, 'usable row')} of {counts.rows}, not {usable}; nothing was accepted"
        )
    reasons = list(found["rows_not_accepted"].values())
    if changed := bool(reasons):
        accept(directory, counts, str(Person.present()))
    words = (
        f"{amount(counts.usable, 'usable row')} of {counts.rows}: "
        f"{'accepted' if changed else 'no one has to accept them'}"
    )
    # The number of usable rows may be that of other rows than a person looked at.
    lines = [words, *(f"what was accepted: {reason}" for reason in reasons)]
    return Result(
        {"changed": changed, "rows": counts.rows, "usable": counts.usable, "accepted": reasons}, in_lines(lines)
    )


def _of_change(sentence: str, *, many: bool) -> str:
    return f"warning: {sentence[:1].lower()}{sentence[1:]}" if many else sentence


def _data_words(found: dict[str, Any]) -> list[str]:
    """The rows, and what the schema's policies changed in them."""
    data = found["data"]
    digest = data["digest"][:DIGEST_DIGITS]
    # A node that was started before an upgrade does not say what was changed.
    stated = data.get("changes", [])
    changes = [_of_change(change["sentence"], many=change["many"]) for change in stated[:_MOST_CHANGES]]
    if (further := data.get("changes_in_all", 0) - _MOST_CHANGES) > 0:
        changes.append(f"{further} more changes of cells: `rado schema check` lists them")
    from radobase.tables.recoding import recoded_words

    recoded = [f"recoded: {recoded_words(data['recoded'])}"] if data.get("recoded") else []
    usable = f", {data['zero_vectors']} of them not usable" if "zero_vectors" in data else ""
    return [
        f"{amount(data['rows'], 'row')}{usable}, loaded {local_time(data['loaded_at_unix_s'])}, digest {digest}",
        *recoded,
        *changes,
    ]


@command(app, "check")
def check(
    _output: Output,
    config: ConfigOption,
    against: Annotated[Path | None, typer.Option(help="Compare the party's schema with this file.")] = None,
    notify: Annotated[
        bool, typer.Option("--notify", help="Run the command of [notify] once, with a message that says it is a test.")
    ] = False,
) -> Result:
    """Check everything that this party needs to take part.

    Prints every fault with its cause and its fix.
    """
    quiet_grpc()
    from parties.preflight import preflight

    findings = preflight(config, against=against, notify=notify)
    lines = []
    for finding in findings:
        lines.append(f"{finding.status:8}  {finding.name}: {finding.detail}")
        if finding.fix:
            lines.append(f"{'':10}{finding.fix}")
    statuses = [finding.status for finding in findings]
    bad = [status for status in statuses if status in ("failed", "not run")]
    lines.append(
        f"{statuses.count('failed')} of {len(findings)} checks failed, {statuses.count('not run')} could not run"
        if bad
        else "this party can take part"
    )
    found = [{"name": f.name, "status": f.status, "detail": f.detail, "fix": f.fix} for f in findings]
    data = {"ok": not bad, "findings": found}
    return Result(data, in_lines(lines), exit_code=EXIT_FAILED if bad else 0)


# `rado party members | logs`: whom a party deals with, and what its node logged.


def logs(
    _output: Output,
    config: ConfigOption,
    level: Annotated[str, typer.Option(help=f"Lowest level: {', '.join(LEVELS)}.")] = "debug",
    limit: Annotated[int, typer.Option(help="Largest number of lines.", min=1)] = 50,
) -> Result:
    """Show the end of the node's log file, newest first.

    Without log_file in the configuration the node logs to standard error, which its service keeps.
    """
    from dpcore.errors import ConfigurationError
    from parties.config import PartyConfig
    from radobase.logs import newest

    file = PartyConfig.load(config).log_file
    if level not in LEVELS:
        raise ConfigurationError(f"{level!r} is no level: give one of {', '.join(LEVELS)}")
    if file is None:
        raise ConfigurationError(f"{config}: no log_file, so the node logs to standard error; look where that is kept")
    found = newest(file, level, limit)
    data = [
        {"at_unix_s": each.at_unix_s, "level": each.level, "event": each.event, "fields": dict(each.fields)}
        for each in found
    ]
    lines = [
        f"{'time unknown' if each.at_unix_s is None else local_time(each.at_unix_s)}  {each.level or 'other':7}  {each}"
        for each in found
    ]
    return Result({"lines": data}, in_lines(lines) or "no line of this level at the end of the file")


# `rado party report`: what happened to a party's data in a period, as a page to sign.

# The files that `rado party report` and `rado learner report` write.


class Findings(Protocol):
    """What a report says."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        ...


def check_files(page: Path | None, registry: Path | None, crate: Path | None) -> None:
    """Raise ConfigurationError if a file exists, its directory is missing, or it is standard output."""
    from dpcore.errors import ConfigurationError

    for path in (page, registry, crate):
        if path is not None:
            if str(path) in {"-", "/dev/stdout"}:
                # Standard output has the summary, or JSON.
                raise ConfigurationError(f"{path}: a report is a file that only its owner may read: give its name")
            check_directory(path)
            check_new(path)
    if crate is not None and crate.suffix != ".zip":
        raise ConfigurationError(f"{crate}: evidence is one ZIP file: give a name that ends in .zip")


@dataclass(frozen=True)
class Files:
    """What a report can be written to, and what makes it. A crate has the page, too."""

    page: Path | None
    registry: Path | None
    crate: Path | None
    page_text: Callable[[], str]
    evidence: "Callable[[str], Evidence]"
    """From the page and its other parts."""

    def contents(self, entry: Mapping[str, Any]) -> dict[Path, bytes]:
        """Each file's content. All are made before one is written."""
        made: dict[Path, bytes] = {}
        page = "" if self.page is None and self.crate is None else self.page_text()
        if self.page is not None:
            made[self.page] = page.encode()
        if self.registry is not None:
            made[self.registry] = yaml_writer()(json_ready(entry)).encode()
        if self.crate is not None:
            made[self.crate] = self.evidence(page).archive(self.crate.stem)
        return made


def result_of(found: Findings, entry: Mapping[str, Any], files: Files, summary: Sequence[str]) -> Result:
    """The result of a command that reports, after its files were written. summary: one line for each finding.

    Only the owner of the files may read them.
    """
    from radobase.writing import create_durably

    contents = files.contents(entry)
    for path, content in contents.items():
        create_durably(path, content)
    lines = [*summary, *(f"wrote {path}" for path in contents)]
    return Result({"report": found.to_dict(), "registry": entry, "files": list(contents)}, in_lines(lines))


def report(
    _output: Output,
    config: ConfigOption,
    since: Annotated[str, typer.Option("--from", help="From this date or time on, such as 2026-01-01.")],
    until: Annotated[
        str | None, typer.Option("--to", help="Before this date or time. Default: until now.", show_default=False)
    ] = None,
    page: PageFile = None,
    registry: RegistryFile = None,
    crate: CrateFile = None,
) -> Result:
    """Report who asked this party in a period, what left, what it cost, what remains, and what that means.

    The page is for those who sign for the data. It is one file without scripts and loads nothing from elsewhere. A
    crate is refused if history and ledger are damaged or differ. The node may run. Changes nothing, and reads no row.
    """
    from parties.config import PartyConfig
    from parties.report.gathering import gather
    from parties.report.page import SIGN_OFF, registry_entry
    from radofed import __version__

    check_files(page, registry, crate)
    now, loaded = time.time(), PartyConfig.load(config)
    found = gather(loaded, moment(since, 0.0), moment(until, now), now, __version__)
    entry = registry_entry(found)

    def page_text() -> str:
        from parties.report.page import document

        return document(found).saved()

    def evidence(text: str) -> "Evidence":
        from parties.report.evidence import outputs
        from radobase.presentation.five_safes import Evidence

        made = outputs(loaded, found)
        period = f"{day(found.period.since_unix_s)} to {day(found.period.until_unix_s)}"
        return Evidence(
            role="party",
            member=found.party,
            federation=found.federation,
            title=f"Answers of {found.party}, {period}",
            description=f"{amount(len(made), 'answer')} that left {found.party}, encrypted, each with its record.",
            version=__version__,
            made_at_unix_s=now,
            outputs=made,
            page=text,
            report=json_ready(found.to_dict()),
            registry=json_ready(entry),
            sign_off=SIGN_OFF,
            policy=json_ready(found.policy.model_dump(mode="json")),
        )

    return result_of(found, entry, Files(page, registry, crate, page_text, evidence), _summary(found))


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
