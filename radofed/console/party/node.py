"""The members, the checks and the log of a party."""

import time
from typing import Any

from parties.checks.preflight import preflight
from parties.config import PartyConfig
from parties.members import members_of
from parties.policy import Policy
from parties.rosters import known_rosters
from radobase.logs import LEVELS, newest
from radofed.console.pages import Answer, Shown, Visit

MOST_LINES = 200
MOST_SHOWN_BYTES = 128 << 10


def members(config: PartyConfig, _: Visit) -> Answer:
    """The roster that the node stored last and the members that left, and what the policy says of each."""
    rosters, policy = known_rosters(config), Policy.load(config.policy)
    roster = rosters.known
    values = {
        "roster": roster,
        "members": () if roster is None else members_of(roster, policy, config.name, rosters.former()),
        "warning": "" if roster is None else roster.expiry_warning(time.time()),
        "needed": policy.members_needed(1),
    }
    return Shown("party/members.html", "Members", values)


def checks(_: PartyConfig, __: Visit) -> Answer:
    """The button that runs the checks: they take seconds, and connect to the coordinator."""
    return Shown("party/checks.html", "Checks", {"findings": (), "bad": 0, "now": time.time()})


def run_checks(config: PartyConfig, _: Visit) -> Answer:
    """As `rado party check`."""
    findings = preflight(config)
    bad = sum(finding.status in {"failed", "not run"} for finding in findings)
    return Shown("party/checks.html", "Checks", {"findings": findings, "bad": bad, "now": time.time()})


def logs(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado party logs`. query: level, the lowest that is shown."""
    level = visit.query.get("level", "")
    level = level if level in LEVELS else LEVELS[0]
    values: dict[str, Any] = {"file": config.log_file, "level": level, "levels": LEVELS, "lines": []}
    if config.log_file is not None:
        values["lines"] = newest(config.log_file, level, MOST_LINES, most_shown_bytes=MOST_SHOWN_BYTES)
    return Shown("party/logs.html", "Logs", values)
