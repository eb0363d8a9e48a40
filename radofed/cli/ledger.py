"""`rado ledger`: the privacy that a party's data source has spent, and what remains."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpcore.errors import ConfigurationError, RadofedError
from dpcore.numbers.rationals import upper_digits
from radobase.failure import EXIT_FAILED
from radobase.logs import quiet_grpc
from radobase.printing import amount, columns, in_lines, json_text, local_time, moment
from radobase.writing import create_durably
from radofed.cli.framework import (
    LISTED,
    ConfigOption,
    QueryInFull,
    ShownAtMost,
    Skipped,
    check_directory,
    check_new,
    command,
    group,
)
from radofed.cli.output import Output, Result, wrapped

if TYPE_CHECKING:
    from rich.console import RenderableType

    from parties.history.reading import QueryRead
    from parties.ledger.acknowledgement import Shortfall
    from parties.ledger.budgets import LedgerState, ScopeState
    from parties.ledger.ledger import Ledger
    from parties.ledger.limits import Room


app = group("Show and check a party's privacy ledger.")

PolicyOption = Annotated[
    Path | None, typer.Option(help="Count against this policy file instead of the party's.", show_default=False)
]

WaitOption = Annotated[float, typer.Option(help="Longest wait for the other parties, in seconds.", min=0.0)]


@command(app, "show")
def show(_output: Output, config: ConfigOption, policy: PolicyOption = None) -> Result:
    """Show the epsilon spent in each scope, and how many more queries like the last there is room for.

    Prints a line for each scope and limit, at the limit's delta. What is spent is an upper bound that is computed for
    the limit, so it changes if the limit is changed. Changes nothing.
    """
    import time

    from parties.ledger.limits import room

    now_unix_s = time.time()
    ledger = _open(config, policy)
    try:
        state = ledger.state(now_unix_s)
        left = room(ledger.limits, ledger.merged_events(now_unix_s), ledger.last_charge(), now_unix_s)
    finally:
        ledger.database.close()
    data = {**state.to_dict(), "more_like_the_last": None if left is None else left.to_dict()}
    return Result(data, in_lines(_table(state, left)))


@command(app, "verify")
def verify(
    _output: Output,
    config: ConfigOption,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the other parties.")] = False,
    wait_s: WaitOption = 10.0,
) -> Result:
    """Check the ledger, and say what was checked and what was not.

    Checks the file, its chain of entries, the events against the chain, and the head beside it. An older copy of the
    ledger and its head passes these checks: only other parties can show it, and they are asked if the coordinator
    answers. Changes nothing.
    """
    from parties.config import PartyConfig

    loaded = PartyConfig.load(config)
    ledger = _open(config, None)
    try:
        faults = ledger.verify()
        head = ledger.head()
        if cause := ledger.database.set_back():
            faults.append(cause)
    finally:
        ledger.database.close()
    checked = [
        "the file is readable",
        f"its chain of {amount(head.entries, 'entry')} is unbroken and agrees with every charge and reservation",
        "no upload lacks a charge",
        "the head beside the ledger agrees with it",
    ]
    unchecked = "whether both are older copies of themselves: only other parties can show that"
    if not offline and not faults:
        from parties.ledger.acknowledgement import find

        quiet_grpc()
        try:
            found = find(loaded, wait_s=wait_s)
        except RadofedError as error:
            unchecked += f" (they could not be asked: {error})"
        else:
            faults += [found.cause] if found.cause else []
            unchecked = _after_asking(found)
            if found.accepted:
                checked.append(f"{', '.join(found.accepted)}: hold no entry of this party that it lacks")
    data = {"ok": not faults, "faults": faults, "checked": [] if faults else checked, "not_checked": unchecked}
    if faults:
        lines = [*faults, "stop this party, keep the ledger and its .head file, and ask the data officer"]
        return Result(data, in_lines(lines), exit_code=EXIT_FAILED)
    lines = [*(f"checked: {each}" for each in checked), f"not checked: {unchecked}"]
    return Result(data, in_lines(lines))


def _after_asking(found: "Shortfall") -> str:
    if not found.accepted:
        return "whether both are older copies of themselves: no accepted member answered"
    rest = f"; {', '.join(found.silent)} did not answer" if found.silent else ""
    return f"entries that none of those who answered was in a cohort with{rest}"


@command(app, "backup")
def backup(
    _output: Output, config: ConfigOption, file: Annotated[Path, typer.Argument(help="A new file.", metavar="FILE")]
) -> Result:
    """Copy the ledger, also while the party runs, without the keys in it.

    The copy is evidence of what was spent. A party that starts with it refuses, until `rado ledger acknowledge`.
    """
    check_new(file)
    check_directory(file)
    ledger = _open(config, None)
    try:
        content, head = ledger.database.backup(), ledger.head()
    finally:
        ledger.database.close()
    try:
        create_durably(file, content)
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be written ({error.strerror}); give another file") from error
    return Result({"file": str(file), "entries": head.entries}, f"{file}: a copy of {amount(head.entries, 'entry')}")


@command(app, "acknowledge")
def acknowledge(
    _output: Output,
    config: ConfigOption,
    yes: Annotated[bool, typer.Option("--yes", help="Charge. Without it nothing is changed.")] = False,
    without_witness: Annotated[
        bool, typer.Option("--without-witness", help="Charge the whole remaining limit, whatever others show.")
    ] = False,
    wait_s: WaitOption = 30.0,
) -> Result:
    """Charge what a ledger that was lost or set back no longer holds.

    Asks the other parties for this party's newest entries, prints them and what is to be charged, and with --yes
    charges it. For the data officer; the node must be stopped. A charge cannot be undone.
    """
    from parties.ledger.acknowledgement import acknowledge as charge

    quiet_grpc()
    from parties.config import PartyConfig

    found = charge(PartyConfig.load(config), wait_s=wait_s, yes=yes, without_witness=without_witness)
    return Result(found.to_dict(), in_lines(found.sentences()), exit_code=0 if found.is_done else EXIT_FAILED)


_WHY_ANOTHER_FIGURE = (
    "A learner's own figure is usually smaller: it counts the answers that it opened. This ledger counts every attempt "
    "of every learner, with the noise of the fewest honest members, by sums that hold for queries chosen one after "
    "another."
)


def _table(state: "LedgerState", left: "Room | None") -> list[str]:
    """A line for each scope under each limit, then what there is room for, and the counts of attempts."""
    groups: list[tuple[str, tuple[ScopeState, ...]]] = [("", state.scopes)]
    groups += [(f"epoch {name}: ", (each,)) for name, each in state.epochs]
    groups += [(f"learner {name or 'unknown'}: ", states) for name, states in state.learners]
    groups += [(f"study {json_text(number)}: ", states) for number, states in state.studies]
    groups.append(("last 24 hours: ", state.day))
    header = ("scope", "spent", "limit", "at delta", "without a bound here")
    rows = [(prefix + str(each.scope), *_figures(each)) for prefix, states in groups for each in states]
    counts = (
        f"Attempts: {state.charged} charged, {state.reserved} reserved. Without a bound for whole records: "
        f"{state.unbounded_charged} charged of {state.limits.unbounded_events} allowed, {state.remaining_unbounded} "
        "remaining."
    )
    return [
        "Epsilon spent from this data source, scope by scope:",
        *columns(header, rows, right={1, 2, 3, 4}),
        "",
        *([str(left)] if left is not None else []),
        counts,
        _WHY_ANOTHER_FIGURE,
        *([f"Warning: {state.warning}."] if state.warning else []),
    ]


def _figures(state: "ScopeState") -> tuple[str, ...]:
    limit = (f"{float(state.limit.epsilon):.6g}", f"{float(state.limit.delta):.3g}")
    return (upper_digits(state.spent_epsilon, 6), *limit, str(state.spent.unbounded))


def _open(config: Path, policy: Path | None) -> "Ledger":
    from parties.config import PartyConfig
    from parties.database import LedgerOwner
    from parties.ledger.ledger import Ledger
    from parties.policy import Policy

    loaded = PartyConfig.load(config)
    limits = Policy.load(policy or loaded.policy).limits.of_ledger
    owner = LedgerOwner(loaded.federation, loaded.name, loaded.source)
    return Ledger.open(loaded.ledger_file, owner, limits, create=False)


# `rado ledger history` and `seeds`: what a party was asked, and what became of it.


def history(
    _output: Output,
    config: ConfigOption,
    query: QueryInFull = None,
    learner: Annotated[str | None, typer.Option(help="Only this learner's queries.", show_default=False)] = None,
    since: Annotated[str | None, typer.Option(help="From this date or time on, such as 2026-11-01.")] = None,
    until: Annotated[str | None, typer.Option(help="Before this date or time.")] = None,
    limit: ShownAtMost = LISTED,
    skip: Skipped = 0,
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
    return Result(data, _history_table(queries, count))


def _history_table(queries: Sequence["QueryRead"], count: int) -> "RenderableType":
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
            with_purpose(each.words, each.shown.purpose, each.shown.study),
            each.decision,
            each.cost_with_attempts,
        )
        rows.append(row)
    return wrapped(header, rows, f"{len(queries)} of {count} queries; `rado ledger history QUERY` shows one in full")


def _in_full(query: "QueryRead") -> list[str]:
    from wire.query_summary import signed_lines
    from wire.study import study_lines

    shown = query.shown
    lines = [f"query {shown.query_id.hex()}", f"shown {local_time(shown.shown_at_unix_s)}"]
    if query.asked is not None:
        lines += query.asked.lines()
    else:
        lines.append(f"learner {shown.learner or 'unknown'} asked for {query.words}; the signed query is not kept")
        lines += study_lines(shown.study)
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
