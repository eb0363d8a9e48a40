"""`rado learner members`: the members of the federation, with the digits of their keys."""

import typer

from radofed.cli.framework import ConfigOption, command
from radofed.cli.learner.sessions import open_session
from radofed.cli.output import Output, Result
from radofed.cli.tables import wrapped


def members(output: Output, config: ConfigOption) -> Result:
    """Show the members of the federation, with the digits of each key, by which people recognise it.

    Fetches the newest roster. Read this learner's digits to a party that pins its key.
    """
    with open_session(config, output) as session:
        roster, own_name = session.fetch_roster(), session.config.name
    data = {
        "roster_version": roster.version,
        "members": [
            {
                "role": member.role.value,
                "name": member.name,
                "digits": member.digits,
                "rows_at_least": member.rows_at_least,
            }
            for member in roster.members
        ],
    }
    header = ("name", "role", "rows at least", "digits")
    rows = [
        (
            f"{member.name} (this learner)" if member.name == own_name else member.name,
            member.role.value,
            "" if member.rows_at_least is None else str(member.rows_at_least),
            member.digits or "signs nothing",
        )
        for member in roster.members
    ]
    return Result(data, wrapped(header, rows, f"roster version {roster.version}, expires: {roster.expiry_date}"))


def add_to(app: typer.Typer) -> None:
    """Add this command to a group."""
    command(app, "members")(members)
