"""`rado party check`: finds what would stop a party from taking part, each problem with its cause and its fix."""

from pathlib import Path

from dpcore.errors import RadofedError
from parties.checks.connection import check_connection
from parties.checks.own_files import check_files, compare_schemas
from parties.checks.run import Finding, Run
from parties.checks.running_node import check_running_node
from parties.checks.state import check_state
from parties.checks.watch import check_watch
from parties.config import PartyConfig


def preflight(
    config: PartyConfig | Path, *, against: Path | None = None, now: float | None = None
) -> tuple[Finding, ...]:
    """Check a party's files, its connection and the open queries. Answers no query.

    config: the configuration, or its file. against: another schema file to compare with. now: Unix seconds; default:
    the system's clock. Problems of the party are in the findings and raise no error.
    """
    run = Run(now)
    try:
        run.config = PartyConfig.load(config) if isinstance(config, Path) else config
        run.add("configuration", f"party {run.config.name!r} of federation {run.config.federation!r}")
    except RadofedError as error:
        run.findings.append(Finding("configuration", False, str(error), "Correct the file."))
        return tuple(run.findings)
    check_files(run)
    check_running_node(run)
    check_state(run)
    check_watch(run)
    if against is not None:
        run.step("schema-against", lambda: compare_schemas(run, against), needs=("schema",))
    check_connection(run)
    return tuple(run.findings)
