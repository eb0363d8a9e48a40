"""`rado ledger`: the privacy that a party's data source has spent, and what remains."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radofed.cli.framework import ConfigOption, command, group
from radofed.cli.output import EXIT_FAILED, Output, Result

if TYPE_CHECKING:
    from parties.ledger.ledger import Ledger
    from parties.ledger.state import LedgerState, ScopeState

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)

app = group("Show and check a party's privacy ledger.")

PolicyOption = Annotated[
    Path | None, typer.Option(help="Count against this policy file instead of the party's.", show_default=False)
]


@command(app, "show")
def show(_output: Output, config: ConfigOption, policy: PolicyOption = None) -> Result:
    """Show the epsilon spent, reserved and remaining.

    Prints a line for each scope and limit, at the limit's delta. Changes nothing.
    """
    import time

    ledger = _open(config, policy)
    try:
        state = ledger.state(time.time())
    finally:
        ledger.database.close()
    return Result(state.to_dict(), "\n".join(_table(state)))


@command(app, "verify")
def verify(_output: Output, config: ConfigOption) -> Result:
    """Check that the ledger is complete.

    The file must be readable and have a charge for every upload. Changes nothing. An older copy of the file passes this
    check: the charges that it lacks cannot be detected.
    """
    ledger = _open(config, None)
    try:
        faults = ledger.verify()
    finally:
        ledger.database.close()
    if faults:
        lines = [*faults, "stop this party, keep the file and ask the data officer"]
        return Result({"ok": False, "faults": faults}, "\n".join(lines), exit_code=EXIT_FAILED)
    return Result({"ok": True, "faults": []}, "the ledger is complete")


def _table(state: "LedgerState") -> list[str]:
    """A line for each scope under each limit, then the counts of attempts."""
    groups: list[tuple[str, tuple[ScopeState, ...]]] = [("", state.scopes)]
    groups += [(f"learner {name or 'unknown'}: ", states) for name, states in state.learners]
    groups.append(("last 24 hours: ", state.day))
    cells: list[tuple[str, ...]] = [
        ("scope", "spent", "with reserved", "remaining", "limit", "at delta", "without a bound here")
    ]
    cells += [(prefix + str(each.scope), *_figures(each)) for prefix, states in groups for each in states]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["Epsilons of this data source, scope by scope:"]
    for first, *rest in cells:
        right = (text.rjust(width) for text, width in zip(rest, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *right]))
    counts = (
        f"Attempts: {state.charged} charged, {state.reserved} reserved. Without a bound for whole records: "
        f"{state.unbounded_charged} charged of {state.limits.unbounded_events} allowed, {state.remaining_unbounded} "
        "remaining."
    )
    return [*lines, "", counts, *([f"Warning: {state.warning}."] if state.warning else [])]


def _figures(state: "ScopeState") -> tuple[str, ...]:
    spent, held, left = (f"{value:.6g}" for value in (state.spent_epsilon, state.held_epsilon, state.remaining_epsilon))
    limit = (f"{float(state.limit.epsilon):.6g}", f"{float(state.limit.delta):.3g}")
    return (spent, held, left, *limit, str(state.spent.unbounded))


def _open(config: Path, policy: Path | None) -> "Ledger":
    from parties.config import PartyConfig
    from parties.database import LedgerOwner
    from parties.ledger.ledger import Ledger
    from parties.policy import Policy

    loaded = PartyConfig.load(config)
    limits = Policy.load(policy or loaded.policy).limits.of_ledger
    owner = LedgerOwner(loaded.federation, loaded.name, loaded.source)
    return Ledger.open(loaded.ledger_file, owner, limits, create=False)
