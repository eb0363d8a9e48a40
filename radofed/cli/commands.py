"""The tree of commands."""

from typing import Annotated

import typer

from radofed.cli import (
    audit,
    backup,
    certificate,
    console,
    coordinator,
    demo,
    health,
    ledger,
    party,
    party_approval,
    party_report,
    plan,
    provision,
    schema,
    simulate,
)
from radofed.cli.framework import group
from radofed.cli.learner import export, histograms, history, members, models, picture, privacy, queries, report

EXIT_CODES = """Exit codes: 0 done; 1 failed; 2 connection or authentication failed; 3 timed out; 4 bad arguments or
configuration; 5 a bug; 6 refused by a policy, the privacy budget or the cohort."""

app = group(f"Train one linear classifier over organisations that may not share a row.\n\n{EXIT_CODES}")


def _show_version(wanted: bool) -> None:
    if wanted:
        from radofed import __version__  # noqa: PLC0415  (reads the installed metadata)

        typer.echo(f"rado {__version__}")
        raise typer.Exit


@app.callback()
def _shared(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


for commands in (demo, plan, simulate, console, health, backup):
    commands.add_to(app)
for commands in (models, histograms, export, picture, privacy, history, members, report):
    commands.add_to(queries.app)
ledger.add_to(ledger.app)
party_approval.add_to(party.app)
party_report.add_to(party.app)
provision.add_to(provision.app)
party.add_to(party.app)
for name, commands in {
    "schema": schema,
    "provision": provision,
    "party": party,
    "ledger": ledger,
    "audit": audit,
    "backup": backup,
    "certificate": certificate,
    "coordinator": coordinator,
    "learner": queries,
}.items():
    app.add_typer(commands.app, name=name)
