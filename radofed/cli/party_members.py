"""`rado party members | accept`: whom a party deals with."""

from typing import Annotated

import typer

from radobase.logs import quiet_grpc
from radobase.printing import in_lines
from radofed.cli.framework import ConfigOption
from radofed.cli.output import Output, Result, wrapped
from radofed.cli.read_out import ReadOut, confirmed


def members(_output: Output, config: ConfigOption) -> Result:
    """Show the members of the federation with their fingerprints, and what the policy says of each.

    The digits of a key are those that its owner reads out. Reads the roster that the node stored last, and lists last
    the members that left since the node's first one. The node may run.
    """
    from parties.config import PartyConfig
    from parties.members import known_rosters, members_of
    from parties.policy import Policy

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


def accept(
    _output: Output,
    names: Annotated[
        list[str], typer.Argument(help="Parties or learners of the roster.", metavar="NAME...", show_default=False)
    ],
    config: ConfigOption,
    fingerprint: ReadOut = None,
) -> Result:
    """Accept other parties, or pin learners, in this party's policy, after each owner read out its fingerprint.

    The fingerprints must be those of the newest roster: if one is not, no one is accepted. A running node reads its
    policy again on `rado party reload`.
    """
    quiet_grpc()
    from parties.config import PartyConfig
    from parties.members import accept, find_member

    loaded = PartyConfig.load(config)
    members = confirmed(names, fingerprint, lambda name, digits: find_member(loaded, config.parent, name, digits))
    found = [accept(loaded, member) for member in members]
    lines = [sentence for each in found for sentence in each.sentences()]
    changed = any(each.changed for each in found)
    return Result({"member": ", ".join(names), "changed": changed, "policy": loaded.policy}, in_lines(lines))
