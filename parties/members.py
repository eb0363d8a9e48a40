"""The members of the roster, and what a party's policy says of each."""

from dataclasses import dataclass

from parties.policy import Policy
from wire.envelopes import fingerprint
from wire.roster import Member, Role, Roster


@dataclass(frozen=True)
class MemberRow:
    """A member of the roster. trust: what this party's policy says about it. rows_at_least: None if not stated.

    digits: of its key, for people to read to each other. digits and fingerprint are empty if it signs nothing.
    """

    role: str
    name: str
    fingerprint: str
    trust: str
    rows_at_least: int | None
    digits: str


def members_of(roster: Roster, policy: Policy, own_name: str) -> tuple[MemberRow, ...]:
    """Every member, in the roster's order."""
    return tuple(_member(member, policy, own_name, roster) for member in roster.members)


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
