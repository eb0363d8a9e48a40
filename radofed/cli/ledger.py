"""`rado ledger`: what a party's data source has given, and what it may still give."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radofed.cli.framework import ConfigOption, command, group
from radofed.cli.output import EXIT_FAILED, Output, Result

if TYPE_CHECKING:
    from parties.ledger.ledger import Ledger
    from parties.ledger.state import LedgerState, ScopeState

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help comes at once)

app = group("Look into a party's privacy ledger.")

PolicyOption = Annotated[
    Path | None, typer.Option(help="Another policy file, to see what its limits would leave.", show_default=False)
]


@command(app, "show")
def show(_output: Output, config: ConfigOption, policy: PolicyOption = None) -> Result:
    """Show what is spent, reserved and remaining, scope by scope, at each limit's delta. Changes nothing."""
    import time

    ledger = _open(config, policy)
    try:
        state = ledger.state(time.time())
    finally:
        ledger.database.close()
    return Result(state.to_dict(), "\n".join(_table(state)))


@command(app, "verify")
def verify(_output: Output, config: ConfigOption) -> Result:
    """Check the ledger's file: whether it is whole, readable, and every upload was paid for. Changes nothing.

    An older copy of the file passes: what is missing in it cannot be seen.
    """
    ledger = _open(config, None)
    try:
        faults = ledger.verify()
    finally:
        ledger.database.close()
    if faults:
        lines = [*faults, "stop this party, keep the file and ask the data officer"]
        return Result({"ok": False, "faults": faults}, "\n".join(lines), exit_code=EXIT_FAILED)
    return Result({"ok": True, "faults": []}, "the ledger is whole")


def _table(state: "LedgerState") -> list[str]:
    """A line for each scope under each limit, then what holds for all."""
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
