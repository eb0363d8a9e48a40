"""An officer accepts another party or a learner: its key's fingerprint goes into the policy, after it was compared."""

import re
from dataclasses import dataclass
from pathlib import Path

from dpcore.errors import ConfigurationError
from dpcore.records.toml_text import parse_toml
from parties.client import CoordinatorClient
from parties.config import PartyConfig
from parties.policy import Policy
from parties.rosters import Rosters
from radofed.common.files.reading import FileKind, read_text, with_remedy
from radofed.common.files.writing import write_durably
from radofed.common.logs import Log
from wire.envelopes import fingerprint, key_id, load_public_key, same_digits
from wire.errors import Code, ConnectionLostError, TimedOutError, WireError
from wire.roster import Member, Role, Roster, read_roster

_POLICY = FileKind(with_remedy("correct the file"), limit_bytes=256 << 10, decides=True)
_ROSTER = FileKind(with_remedy("install the operator's answer again"), limit_bytes=4 << 20, decides=True)
_TRY_S = 3.0
_LIST = re.compile(r"^accepted_members\s*=\s*\[", re.MULTILINE)


@dataclass(frozen=True)
class Accepted:
    """A member that the policy accepts. changed: whether it did not before."""

    member: Member
    policy: Path
    changed: bool

    def sentences(self) -> list[str]:
        """For the officer."""
        role, name = self.member.role.value, self.member.name
        if not self.changed:
            return [f"{self.policy}: {role} {name} was accepted before"]
        return [f"{self.policy}: {role} {name} is accepted; a running node reads it on `rado party reload`"]


def find_member(config: PartyConfig, directory: Path, name: str, digits: str) -> Member:
    """The party or learner of this name whose key has this fingerprint.

    It is looked for in the rosters that the operator's answer brought and that this party's node has seen, then in the
    one that the coordinator serves. directory: of the party's configuration. digits: what the member's owner read out.
    Raises ConfigurationError if the newest roster has no such member, or another key.
    """
    key = load_public_key(config.federation_key)
    log = Log(f"party.{config.name}")
    seen = Rosters(config.state_directory, federation=config.federation, federation_key=key, log=log)
    found = [] if seen.known is None else [seen.known]
    if (installed := directory / "roster.signed").exists():
        found.append(read_roster(installed, key, _ROSTER)[1])
    newest = max(found, key=lambda roster: roster.version, default=None)
    if newest is None or not _is_confirmed(_member(newest, config, name), digits):
        newest = _served(config, seen) or newest
    if newest is None:
        raise ConfigurationError("this party has not seen a roster yet: install the operator's answer")
    member = _member(newest, config, name)
    if member is None:
        known = ", ".join(m.name for m in newest.members if m.signing_key and m.name != config.name)
        raise ConfigurationError(f"the roster has no other party or learner {name!r}; it has {known or 'none'}")
    if not _is_confirmed(member, digits):
        raise ConfigurationError(
            f"the roster's key of {name} has another fingerprint than {digits}: ask its owner again, to whom `rado "
            "provision install` and `rado party check` print it; if they still differ, accept nothing and ask the "
            "operator who signed this roster"
        )
    return member


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


def _member(roster: Roster, config: PartyConfig, name: str) -> Member | None:
    found = next((m for m in roster.members if m.name == name and m.signing_key), None)
    return None if found is None or (found.role is Role.PARTY and name == config.name) else found


def _is_confirmed(member: Member | None, digits: str) -> bool:
    """Whether these are the key's digits, or its whole fingerprint in hexadecimal digits."""
    if member is None:
        return False
    whole = fingerprint(member.signing_key).replace(":", "")
    return same_digits(digits, member.digits) or digits.replace(":", "").strip().lower() == whole


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
    after = Policy.model_validate(parse_toml(changed))
    if not _accepts(after, member):
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
