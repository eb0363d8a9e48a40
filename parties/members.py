"""The members of the roster and those that left, and what a party's policy says of each."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from parties.policy import Policy
from wire.envelopes import fingerprint
from wire.roster import Member, Role, Roster, members_that_left


@dataclass(frozen=True)
class MemberRow:
    """A member of a roster."""

    role: str
    name: str
    fingerprint: str
    trust: str
    """What this party's policy says about it."""
    rows_at_least: int | None
    """None if not stated."""
    digits: str
    """Of its key, for people to read to each other. digits and fingerprint are empty if it signs nothing."""
    left_after: int | None = None
    """The last version that this party saw of the roster with it, if the newest is without it; None if not."""


def members_of(roster: Roster, policy: Policy, own_name: str, former: Iterable[Roster] = ()) -> tuple[MemberRow, ...]:
    """Every member in the roster's order, then those of former rosters that left: they may have answered with it."""
    left = (
        replace(
            _member(member, policy, own_name, roster),
            trust=f"left after version {version} of the roster",
            left_after=version,
        )
        for member, version in members_that_left(roster, former)
    )
    return (*(_member(member, policy, own_name, roster) for member in roster.members), *left)


def _member(member: Member, policy: Policy, own_name: str, roster: Roster) -> MemberRow:
    whole = fingerprint(member.signing_key) if member.signing_key else ""
    match member.role:
        case Role.PARTY if member.name == own_name:
            trust = "this party"
        case Role.PARTY:
            accepted = policy.count_accepted(roster, own_name, [member.name])
            trust = "accepted by fingerprint" if accepted else "not accepted: does not count, may collude"
        case Role.LEARNER:
            pinned = any(
                learner.name == member.name and learner.signing_key == whole.replace(":", "").lower()
                for learner in policy.learners
            )
            trust = "may ask (key pinned)" if pinned else "may not ask"
        case Role.COORDINATOR:
            trust = "not trusted with data: sees ciphertexts"
    return MemberRow(member.role.value, member.name, whole, trust, member.rows_at_least, member.digits)
