"""The members of the roster and those that left, and what a party's policy says of each."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from dpcore.errors import ConfigurationError
from parties.client import CoordinatorClient
from parties.config import PartyConfig
from parties.policy import Policy
from parties.rosters import Rosters
from radobase.files.reading import FileKind, read_text, with_remedy
from radobase.files.writing import write_durably
from radobase.logs import Log
from wire.envelopes import fingerprint, key_id, load_public_key
from wire.errors import Code, ConnectionLostError, TimedOutError, WireError
from wire.pinning import find_confirmed, installed_rosters
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


# An officer accepts another party or a learner: its key's fingerprint goes into the policy, after it was compared.


_POLICY = FileKind(with_remedy("correct the file"), limit_bytes=256 << 10, decides=True)
_TRY_S = 3.0
_LIST = re.compile(r"^accepted_members\s*=\s*\[", re.MULTILINE)


@dataclass(frozen=True)
class Accepted:
    """A member that the policy accepts."""

    member: Member
    policy: Path
    changed: bool
    """Whether it did not before."""

    def sentences(self) -> list[str]:
        """For the officer."""
        role, name = self.member.role.value, self.member.name
        if not self.changed:
            return [f"{self.policy}: {role} {name} was accepted before"]
        return [f"{self.policy}: {role} {name} is accepted; a running node reads it on `rado party reload`"]


def find_member(config: PartyConfig, directory: Path, name: str, digits: str) -> Member:
    """The party or learner of this name whose key has this fingerprint; see `wire.pinning.find_confirmed`.

    directory: of the party's configuration. Raises ConfigurationError if the newest roster has no such member, or
    another key.
    """
    key = load_public_key(config.federation_key)
    seen = Rosters(
        config.state_directory, federation=config.federation, federation_key=key, log=Log(f"party.{config.name}")
    )
    known = [*installed_rosters(directory, key), *([] if seen.known is None else [seen.known])]

    def may_accept(member: Member) -> bool:
        return bool(member.signing_key) and not (member.role is Role.PARTY and member.name == config.name)

    return find_confirmed(
        name, digits, known, lambda: _served(config, seen), may_accept=may_accept, who="other party or learner"
    )


def _served(config: PartyConfig, seen: Rosters) -> Roster | None:
    """The coordinator's roster; None if it cannot be reached, or does not know this party yet."""
    try:
        with CoordinatorClient(config.coordinator, config.tls.files, give_up_after_s=_TRY_S) as client:
            return seen.check(client.fetch_roster()[0])
    except (ConnectionLostError, TimedOutError):
        return None
    except WireError as error:
        if error.code is Code.PEER_UNKNOWN:
            return None
        raise


def accept(config: PartyConfig, member: Member) -> Accepted:
    """Write the key of a party or learner into the policy, which the caller has compared (`find_member`).

    Raises ConfigurationError, and changes nothing, if the policy pins another key, or if its file is not written as it
    can be changed here.
    """
    text, before = read_text(config.policy, _POLICY), Policy.load(config.policy)
    if _accepts(before, member):
        return Accepted(member, config.policy, changed=False)
    if member.role is Role.LEARNER and any(pinned.name == member.name for pinned in before.learners):
        raise ConfigurationError(
            f"{config.policy}: pins another key of learner {member.name}; if it has a new one, remove its table"
        )
    changed = _with(text, member)
    after = Policy.of_text(changed)
    if after is None or not _accepts(after, member):
        raise ConfigurationError(
            f"{config.policy}: cannot be changed by this command; add the fingerprint "
            f"{fingerprint(member.signing_key)} of {member.name} by hand"
        )
    write_durably(config.policy, changed.encode(), mode=config.policy.stat().st_mode & 0o777)
    return Accepted(member, config.policy, changed=True)


def _accepts(policy: Policy, member: Member) -> bool:
    key = key_id(member.signing_key).hex()
    if member.role is Role.PARTY:
        return key in policy.accepted_members
    return any(pinned.name == member.name and pinned.signing_key == key for pinned in policy.learners)


def _with(text: str, member: Member) -> str:
    """The file's text with the member: in the list of parties, or as a table of learners at the end."""
    key = fingerprint(member.signing_key)
    if member.role is Role.LEARNER:
        return f'{text.rstrip()}\n\n[[learners]]\nname = "{member.name}"\nsigning_key = "{key}"\n'
    entry = f'\n  "{key}",  # {member.name}'
    if found := _LIST.search(text):
        return text[: found.end()] + entry + text[found.end() :]
    return f"accepted_members = [{entry}\n]\n{text}"
