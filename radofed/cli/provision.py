"""`rado provision`: make a federation's keys, certificates, roster and configurations, and renew the roster."""

from pathlib import Path
from typing import Annotated

import typer

from radobase.printing import in_lines
from radofed.cli.framework import command, group
from radofed.cli.output import Output, Result

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)

MOST_DIGITS = 18
"""The most digits of a number of rows."""

app = group("Make a federation's keys, certificates and configurations, and renew its roster.")

_RosterDays = Annotated[int, typer.Option(help="The roster expires after so many days.")]


@command(app, "init")
def init(
    output: Output,
    federation: Annotated[str, typer.Option(help="The federation's name: a-z, 0-9 and '-'.", show_default=False)],
    directory: Annotated[Path, typer.Option(help="Directory for the federation; absent or empty.", show_default=False)],
    coordinator: Annotated[str, typer.Option(help="HOST:PORT that members dial.", show_default=False)],
    party: Annotated[
        list[str],
        typer.Option(help="A party: NAME, or NAME=ROWS with its least number of rows; repeatable.", show_default=False),
    ],
    learner: Annotated[
        list[str] | None, typer.Option(help="A learner's name; repeatable. Default: one called learner.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(help="HOST:PORT that the coordinator binds. Default: loopback for a local host, otherwise all."),
    ] = None,
    roster_days: _RosterDays = 90,
) -> Result:
    """Make a federation: keys, certificates, the signed roster, and a directory for every member."""
    from dpcore.errors import ConfigurationError
    from radofed.provision import provision, split_address

    if split_address(coordinator)[1] == 0:
        raise ConfigurationError(f"--coordinator {coordinator}: members cannot dial port 0; give the real port")
    rows: dict[str, int] = {}
    names = []
    for entry in party:
        name, equals, count = entry.partition("=")
        if equals and not (count.isascii() and count.isdigit() and len(count) <= MOST_DIGITS):
            raise ConfigurationError(f"--party {entry}: write NAME or NAME=ROWS, such as north=1200")
        if equals:
            rows[name] = int(count)
        names.append(name)
    output.note("making keys and certificates ...")
    made = provision(
        directory,
        federation=federation,
        coordinator_address=coordinator,
        parties=names,
        learners=learner or ["learner"],
        rows_at_least=rows,
        listen=listen,
        roster_days=roster_days,
    )
    members = [
        {"role": m.role.value, "name": m.name, "config": m.config, "fingerprint": m.fingerprint or None}
        for m in made.members
    ]
    data = {
        "federation": federation,
        "directory": made.directory,
        "federation_fingerprint": made.federation_fingerprint,
        "roster_expires": made.roster.expiry_date,
        "members": members,
    }
    return Result(data, in_lines(made.sentences()))


@command(app, "renew-roster")
def renew_roster(
    _output: Output,
    federation: Annotated[
        Path,
        typer.Argument(help="The federation directory, with federation.key and roster.signed.", show_default=False),
    ],
    roster: Annotated[
        Path | None,
        typer.Option(help="Another signed roster, used if it is newer, such as the coordinator's.", show_default=False),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(help="A party or learner that the next version does not list; repeatable.")
    ] = None,
    roster_days: _RosterDays = 90,
) -> Result:
    """Sign the next version of the roster, with a new expiry. Run it where the federation key is kept, offline.

    Replaces roster.signed in the federation directory. The coordinator reads its copy of the file on SIGHUP.
    """
    from radofed.provision_roster import renew_roster

    renewed = renew_roster(federation, days=roster_days, newest=roster, without=remove or ())
    return Result(renewed.to_dict(), in_lines(renewed.sentences()))
