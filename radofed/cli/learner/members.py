"""`rado learner members|accept`: the members of the federation, and the parties that this learner asks."""

from typing import Annotated

import typer

from radobase.logs import quiet_grpc
from radobase.printing import in_lines
from radofed.cli.framework import ConfigOption
from radofed.cli.learner.asking import open_session
from radofed.cli.output import Output, Result, wrapped


def members(output: Output, config: ConfigOption) -> Result:
    """Show the members of the federation, with the digits of each key, and which parties this learner asks.

    Fetches the newest roster. Read this learner's digits to a party that pins its key.
    """
    from learner.accepted_parties import AcceptedParties
    from wire.roster import Role

    with open_session(config, output) as session:
        roster, own = session.fetch_roster(), session.config
    chosen = AcceptedParties.read(own.parties).of(roster)
    trust = {member.name: chosen.trust(member.name) if member.role is Role.PARTY else "" for member in roster.members}
    trust[own.name] = "this learner"
    asked = {party.name for party in chosen.asked}
    data = {
        "roster_version": roster.version,
        "members": [
            {
                "role": member.role.value,
                "name": member.name,
                "digits": member.digits,
                "rows_at_least": member.rows_at_least,
                "asked": member.name in asked,
            }
            for member in roster.members
        ],
    }
    header = ("name", "role", "trust", "rows at least", "digits")
    rows = [
        (
            member.name,
            member.role.value,
            trust[member.name],
            "" if member.rows_at_least is None else str(member.rows_at_least),
            member.digits or "signs nothing",
        )
        for member in roster.members
    ]
    return Result(data, wrapped(header, rows, f"roster version {roster.version}, expires: {roster.expiry_date}"))


def accept(
    _output: Output,
    name: Annotated[str, typer.Argument(help="A party of the roster.", metavar="NAME", show_default=False)],
    config: ConfigOption,
    fingerprint: Annotated[
        str, typer.Option(help="The digits that its owner read out over the telephone.", show_default=False)
    ],
) -> Result:
    """Accept a party, which later queries then ask, after its owner read out its fingerprint.

    The fingerprint must be that of the newest roster. It replaces a former key of this party. To ask a party no more,
    remove its table from parties.toml.
    """
    quiet_grpc()
    from learner.accepted_parties import accept, find_party
    from learner.config import LearnerConfig

    loaded = LearnerConfig.load(config)
    found = accept(loaded, find_party(loaded, config.parent, name, fingerprint))
    return Result({"party": name, "changed": found.changed, "parties": found.file}, in_lines(found.sentences()))
