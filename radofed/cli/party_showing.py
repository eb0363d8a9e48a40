"""`rado party members | logs`: whom a party deals with, and what its node logged."""

from typing import Annotated

import typer

from radobase.logs import LEVELS
from radobase.printing import in_lines, local_time
from radofed.cli.framework import ConfigOption, command
from radofed.cli.output import Output, Result
from radofed.cli.tables import wrapped

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)


def members(_output: Output, config: ConfigOption) -> Result:
    """Show the members of the federation with their fingerprints, and what the policy says of each.

    The digits of a key are those that its owner reads out. Reads the roster that the node stored last, and lists last
    the members that left since the node's first one. The node may run.
    """
    from parties.config import PartyConfig
    from parties.members import members_of
    from parties.policy import Policy
    from parties.rosters import known_rosters

    loaded = PartyConfig.load(config)
    rosters = known_rosters(loaded)
    roster, policy = rosters.known, Policy.load(loaded.policy)
    found = () if roster is None else members_of(roster, policy, loaded.name, rosters.former())
    data = {"roster_version": None if roster is None else roster.version, "members": [vars(each) for each in found]}
    if roster is None:
        return Result(data, "this party has not seen a roster yet; start it")
    header = ("name", "role", "policy", "rows at least", "digits", "fingerprint")
    rows = [
        (
            each.name,
            each.role,
            each.trust,
            "" if each.rows_at_least is None else str(each.rows_at_least),
            each.digits,
            each.fingerprint,
        )
        for each in found
    ]
    return Result(data, wrapped(header, rows, f"roster version {roster.version}, expires: {roster.expiry_date}"))


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


def add_to(app: typer.Typer) -> None:
    """Add these commands to a group."""
    for function in (members, logs):
        command(app, function.__name__)(function)
