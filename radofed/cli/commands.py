"""The tree of commands."""

from collections.abc import Callable
from typing import Annotated

import typer

from radofed.cli import (
    audit,
    backup,
    certificate,
    conformance,
    console,
    coordinator,
    demo,
    health,
    ledger,
    party,
    party_approval,
    party_members,
    party_policy,
    party_rehearse,
    party_spellings,
    party_standing,
    party_studies,
    plan,
    provision,
    schema,
    simulate,
)
from radofed.cli.framework import command, group
from radofed.cli.learner import coefficients, histograms, history, inquiries, models, queries, report, selection
from radofed.cli.output import Result

EXIT_CODES = """Exit codes: 0 done; 1 failed; 2 connection or authentication failed; 3 timed out; 4 bad arguments or
configuration; 5 a bug; 6 refused by a policy, the privacy budget or the cohort."""

app = group(f"Statistics and models over organisations that may not share a row.\n\n{EXIT_CODES}")


def _show_version(wanted: bool) -> None:
    if wanted:
        from radofed import __version__

        typer.echo(f"rado {__version__}")
        raise typer.Exit


@app.callback()
def _shared(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


_COMMANDS: dict[typer.Typer, tuple[Callable[..., Result], ...]] = {
    app: (demo.demo, plan.plan, simulate.simulate, console.console, health.health, backup.restore),
    queries.app: (
        *(models.train, models.evaluate, models.statistic, models.predict),
        *(histograms.histogram, histograms.quantiles, selection.select),
        *(inquiries.describe, inquiries.crosstab, inquiries.compare, inquiries.correlate, inquiries.survival),
        inquiries.levels,
        *(
            coefficients.coefficients,
            models.export,
            report.picture,
            history.privacy,
            history.history,
            history.members,
            history.accept,
        ),
        report.report,
    ),
    conformance.app: (conformance.party, conformance.learner),
    coordinator.app: (coordinator.drain, coordinator.undrain),
    ledger.app: (ledger.history,),
    party.app: (
        *(party_approval.pending, party_approval.explain, party_approval.approve, party_approval.refuse),
        *(party_standing.approvals, party_standing.revoke, party_standing.delegate),
        *(party_standing.notify_test, party_policy.policy, party_spellings.spellings),
        *(party_approval.pause, party_approval.resume, party.report, party_members.members, party.logs),
        party_members.accept,
        *(party_studies.studies, party_rehearse.rehearse),
    ),
    provision.app: (
        *(provision.create, provision.request, provision.sign, provision.add, provision.install, provision.renew),
        *(provision.move, provision.remove, provision.roster, provision.passphrase, provision.replace_key),
    ),
}
for parent, functions in _COMMANDS.items():
    for function in functions:
        command(parent, function.__name__.replace("_", "-"))(function)
for name, child in {
    "schema": schema.app,
    "provision": provision.app,
    "party": party.app,
    "ledger": ledger.app,
    "audit": audit.app,
    "backup": backup.app,
    "certificate": certificate.app,
    "conformance": conformance.app,
    "coordinator": coordinator.app,
    "learner": queries.app,
}.items():
    app.add_typer(child, name=name)
