"""`rado party`: run an organisation's node, and check it before it starts."""

from pathlib import Path
from typing import Annotated

import typer

from radofed.cli.framework import ConfigOption, command, group
from radofed.cli.output import EXIT_FAILED, Output, Result
from radofed.common.logs import quiet_grpc

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)

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


@command(app, "check")
def check(
    _output: Output,
    config: ConfigOption,
    against: Annotated[Path | None, typer.Option(help="Compare the party's schema with this file.")] = None,
) -> Result:
    """Check everything that this party needs to take part.

    Prints every fault with its cause and its fix.
    """
    quiet_grpc()
    from parties.check import preflight

    findings = preflight(config, against=against)
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
    # The key "mend" is that of 0.1.0.
    found = [{"name": f.name, "status": f.status, "detail": f.detail, "mend": f.fix} for f in findings]
    data = {"ok": not bad, "findings": found}
    return Result(data, "\n".join(lines), exit_code=EXIT_FAILED if bad else 0)
