"""`rado party pending | explain | approve | refuse | pause | resume`: people decide what their party answers."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from radofed.cli.framework import ConfigOption, command
from radofed.cli.output import Output, Result
from radofed.cli.tables import wrapped
from radofed.common.printing import in_lines, local_time

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from parties.approval.deciding import Pending

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)

QueryArgument = Annotated[str, typer.Argument(help="The first digits of the query's id.", metavar="QUERY")]
NameOption = Annotated[str, typer.Option("--name", help="Who decides; the policy may ask for it.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why. It is kept here and not sent.")]


def pending(
    _output: Output,
    config: ConfigOption,
    full: Annotated[bool, typer.Option("--full", help="Also print every field of each query, as signed.")] = False,
) -> Result:
    """Show the queries that wait for a person's decision, oldest first."""
    from parties.approval.deciding import pending as find_pending
    from parties.config import PartyConfig
    from parties.history.reading import HistoryReader
    from wire.signed_fields import signed_lines

    now = time.time()
    with HistoryReader(PartyConfig.load(config)) as reader:
        found = find_pending(reader, now)
    data = [
        {
            "query_id": each.shown.query_id.hex(),
            "learner": each.shown.learner,
            "kind": each.shown.kind,
            "asked": each.words,
            "reasons": list(each.reasons),
            "shown_at_unix_s": each.shown.shown_at_unix_s,
            "answers_due_unix_s": each.answers_due_unix_s,
            "approvals": each.decided.counted,
            "approvals_needed": each.decided.needed,
            **({"signed": [part.to_dict() for part in each.signed]} if full else {}),
        }
        for each in found
    ]
    if full and found:
        lines = [line for each in found for line in (f"query {each}", *signed_lines(each.signed))]
        return Result({"pending": data}, in_lines(lines))
    return Result({"pending": data}, _table(found))


def _table(found: "list[Pending]") -> "RenderableType":
    if not found:
        return "no query waits for a decision"
    header = ("query", "learner", "asked", "waits because", "answers due", "approvals")
    rows = []
    for each in found:
        row = (
            each.shown.query_id.hex()[:10],
            each.shown.learner,
            each.words,
            "; ".join(each.reasons),
            local_time(each.answers_due_unix_s),
            f"{each.decided.counted} of {each.decided.needed}",
        )
        rows.append(row)
    return wrapped(header, rows, "`rado party explain QUERY` shows all that was signed, and what an answer would mean")


def explain(_output: Output, config: ConfigOption, query: QueryArgument) -> Result:
    """Say what a query asks, what would leave, what it would cost and what would remain, and show all that was signed.

    No value of a row is read for it, and nothing is charged.
    """
    from parties.approval.explanation import explain as explained
    from parties.config import PartyConfig
    from parties.history.reading import HistoryReader

    loaded = PartyConfig.load(config)
    with HistoryReader(loaded) as reader:
        found = explained(loaded, reader, query, time.time())
    return Result(found.to_dict(), in_lines(found.lines()))


def approve(
    _output: Output, config: ConfigOption, query: QueryArgument, name: NameOption = "", reason: ReasonOption = ""
) -> Result:
    """Approve a query that waits for a decision. It holds for each attempt that the query allows.

    Prints every field of what was approved.
    """
    return _decided(config, query, name, reason, approves=True)


def refuse(
    _output: Output, config: ConfigOption, query: QueryArgument, name: NameOption = "", reason: ReasonOption = ""
) -> Result:
    """Refuse a query that waits for a decision. One refusal refuses it."""
    return _decided(config, query, name, reason, approves=False)


def _decided(config: "Path", query: str, name: str, reason: str, *, approves: bool) -> Result:
    from parties.approval.deciding import decide
    from parties.approval.decisions import Person
    from parties.config import PartyConfig
    from parties.history.reading import HistoryReader
    from wire.signed_fields import signed_lines

    loaded = PartyConfig.load(config)
    with HistoryReader(loaded) as reader:
        found = reader.find(query)
    query_id = found.shown.query_id.hex()
    decided = decide(loaded, query_id, Person.present(name), approves=approves, reason=reason)
    data = {
        "query_id": query_id,
        "verdict": decided.verdict.value,
        "approvals": decided.counted,
        "approvals_needed": decided.needed,
        "people": [str(each) for each in decided.decisions],
    }
    # What was approved stays beside the approval, on the terminal and in a log of it.
    lines = [f"query {query_id}", *(signed_lines(found.signed) if approves else [])]
    lines += [str(each) for each in decided.decisions]
    lines.append(f"{decided.verdict.value}: {decided.counted} of {decided.needed} approvals")
    return Result(data, in_lines(lines))


def pause(_output: Output, config: ConfigOption, name: NameOption = "", reason: ReasonOption = "") -> Result:
    """Let this party answer, charge and send nothing until it is resumed, also after a restart.

    What was charged before is sent once it is resumed, if its query is still open.
    """
    changed = _pause(config, name, reason)
    return Result({"paused": True, "changed": changed}, "paused" if changed else "it was paused before")


def resume(_output: Output, config: ConfigOption, name: NameOption = "") -> Result:
    """Let this party answer again."""
    changed = _pause(config, name, None)
    return Result({"paused": False, "changed": changed}, "resumed" if changed else "it was not paused")


def _pause(config: "Path", name: str, reason: str | None) -> bool:
    """Pause with a reason, or resume with none. Returns whether that changed anything."""
    from parties.approval.decisions import Person
    from parties.approval.pause import Pauses
    from parties.config import PartyConfig
    from parties.history.reading import open_history

    person, database = Person.present(name), open_history(PartyConfig.load(config))
    try:
        pauses = Pauses(database)
        return pauses.resume(person, time.time()) if reason is None else pauses.pause(person, reason, time.time())
    finally:
        database.close()


def add_to(app: typer.Typer) -> None:
    """Add these commands to a group."""
    for function in (pending, explain, approve, refuse, pause, resume):
        command(app, function.__name__)(function)
