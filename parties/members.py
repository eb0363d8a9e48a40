"""Members as this party knows them: the newest roster that it has seen, and whom its policy accepts.

A roster is verified, kept across restarts, and never replaced by an older one.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from dpcore.errors import ConfigurationError
from parties.answering.coordinator_calls import CoordinatorCalls
from parties.client import CoordinatorClient
from parties.config import PartyConfig
from parties.policy import Policy
from radobase.failure import in_words
from radobase.logs import Log
from radobase.reading import FileKind, read_bytes, read_text, with_remedy
from radobase.writing import BY_UMASK, make_directory, write_durably
from wire.envelopes import Envelope, fingerprint, key_id, load_public_key
from wire.errors import Code, ConnectionLostError, TimedOutError, WireError
from wire.roster import Member, Role, Roster, find_confirmed, installed_rosters, members_that_left, open_roster
from wire.transport import coordinator_of

_FILE = "roster.signed"
_ROSTER = FileKind(
    with_remedy("check federation_key, and remove the file only if the operator confirms which version is the newest"),
    limit_bytes=4 << 20,
    decides=True,
)
_FORMER = FileKind(with_remedy("remove it: members that left are then not listed"), limit_bytes=4 << 20)
_FORMER_DIRECTORY = "former-rosters"
MOST_FORMER = 64
"""Former rosters that are kept, the newest: only those with a member that the next one is without."""
# A member signed what says so: the roster may have been renewed since this party last fetched it.
_RENEWED = frozenset({Code.ROSTER_STALE, Code.ROSTER_EXPIRED})
# No member that this party knows signed it: one may have joined since, or a coordinator shows junk.
_JOINED = frozenset({Code.PEER_UNKNOWN, Code.SIGNATURE_INVALID})
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 600.0
"""Between two fetches for messages that did not verify: pauses double from the first until a roster is newer."""

T = TypeVar("T")


class Rosters:
    """Holds one roster. Refreshes it through the coordinator; accepts only the pinned federation key."""

    def __init__(
        self,
        directory: Path,
        *,
        federation: str,
        federation_key: bytes,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reads the roster stored in the directory. clock: monotonic seconds.

        Raises ConfigurationError if the file is not what was written.
        """
        self._path = directory / _FILE
        self._clock, self._pause_s, self._not_before = clock, FIRST_PAUSE_S, float("-inf")
        self._federation, self._federation_key, self._log = federation, federation_key, log
        self._lock = threading.Lock()
        self._envelope: Envelope | None = None
        self._roster: Roster | None = None
        if self._path.exists():
            try:
                self._envelope = Envelope.from_bytes(read_bytes(self._path, _ROSTER))
                self._roster = self._open(self._envelope)
            except WireError as error:
                raise _ROSTER.error(self._path, f"the stored roster cannot be used ({error})") from error

    @property
    def known(self) -> Roster | None:
        """The newest roster, or None before the first."""
        return self._roster

    @property
    def current(self) -> Roster:
        """The newest roster. Raises WireError(ROSTER_STALE) before the first."""
        if self._roster is None:
            raise WireError(Code.ROSTER_STALE, "This party has not seen a roster yet.")
        return self._roster

    def refresh(self, coordinator: CoordinatorCalls) -> bool:
        """Fetch the newest roster. Returns whether it is newer than the known one.

        Logs and rejects a roster that does not verify or is older. Raises what CoordinatorCalls.fetch_roster raises.
        """
        envelope, _ = coordinator.fetch_roster()
        return self.offer(envelope)

    def refresh_for_unverified(self, coordinator: CoordinatorCalls) -> bool:
        """As `refresh`, for what does not verify under the known roster: a coordinator can show that at any pace.

        False without a fetch before the pause after the last one is over. Pauses double up to LONGEST_PAUSE_S until a
        roster is newer.
        """
        with self._lock:
            now = self._clock()
            if now < self._not_before:
                return False
            self._not_before, self._pause_s = now + self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        return self.refresh(coordinator)

    def checked(self, coordinator: CoordinatorCalls, check: Callable[[Roster], T]) -> T:
        """Result of a check under the newest roster. Fetches the roster again if the known one may be too old.

        Raises what the check raises.
        """
        known = self._roster
        try:
            return check(self.current)
        except WireError as error:
            if error.code in _RENEWED:
                is_newer = self.refresh(coordinator)
            elif error.code in _JOINED:
                is_newer = self.refresh_for_unverified(coordinator)
            else:
                raise
            # Another thread may have fetched it.
            if not is_newer and self._roster is known:
                raise
            return check(self.current)

    def offer(self, envelope: Envelope) -> bool:
        """Accept a roster if it is newer than the known one. Returns whether it was."""
        with self._lock:
            known = self._roster
            try:
                roster = self.check(envelope)
            except WireError as error:
                self._log.refused("roster refused", peer="coordinator", code=error.code, severe=True, reason=str(error))
                return False
            if known is not None and roster.version == known.version:
                return False
            if known is not None and self._envelope is not None and members_that_left(roster, [known]):
                self._keep(known.version, self._envelope)
            temporary = self._path.with_name(f".{_FILE}.new")
            write_durably(self._path, envelope.to_bytes(), mode=BY_UMASK, temporary=temporary)
            self._envelope, self._roster = envelope, roster
            self._pause_s, self._not_before = FIRST_PAUSE_S, float("-inf")
            self._log.info(
                "roster accepted", version=roster.version, members=len(roster.members), expires=roster.expiry_date
            )
            return True

    def _keep(self, version: int, envelope: Envelope) -> None:
        """Keep a roster whose members are not all in the next one: people ask who was in the federation."""
        directory = self._path.parent / _FORMER_DIRECTORY
        try:
            make_directory(directory, self._path.parent)
            # With as many digits as any version has: names are in the order of versions.
            write_durably(directory / f"{version:019}.signed", envelope.to_bytes(), mode=BY_UMASK)
            for path in former_files(self._path.parent)[:-MOST_FORMER]:
                path.unlink(missing_ok=True)
        except OSError as error:
            self._log.warning("former roster not kept", version=version, reason=in_words(error))

    def former(self) -> list[Roster]:
        """The former rosters that are kept, verified, oldest first. Raises ConfigurationError if one is damaged."""
        found = []
        for path in former_files(self._path.parent):
            try:
                found.append(self._open(Envelope.from_bytes(read_bytes(path, _FORMER))))
            except WireError as error:
                raise _FORMER.error(path, f"the former roster cannot be used ({error})") from error
        return found

    def check(self, envelope: Envelope) -> Roster:
        """The roster of an envelope. Does not store it. Raises WireError if `offer` would reject it."""
        roster = self._open(envelope)
        if self._roster is not None and envelope.payload != (self._envelope or envelope).payload:
            _check_newer(roster, self._roster)
        return roster

    def _open(self, envelope: Envelope) -> Roster:
        roster = open_roster(envelope, self._federation_key)
        if roster.federation != self._federation:
            raise WireError(Code.FEDERATION_MISMATCH, f"The roster is for {roster.federation!r}.")
        return roster


def former_files(state_directory: Path) -> list[Path]:
    """The files of the former rosters that are kept, oldest first."""
    return sorted((state_directory / _FORMER_DIRECTORY).glob("*.signed"))


def known_rosters(config: PartyConfig) -> Rosters:
    """The rosters that a party's node has stored. Raises ConfigurationError."""
    key, log = load_public_key(config.federation_key), Log(f"party.{config.name}")
    return Rosters(config.state_directory, federation=config.federation, federation_key=key, log=log)


def known_roster(config: PartyConfig) -> Roster | None:
    """The newest roster that a party's node has stored; None before the first. Raises ConfigurationError."""
    return known_rosters(config).known


def _check_newer(roster: Roster, known: Roster) -> None:
    if roster.version <= known.version:
        raise WireError(
            Code.ROSTER_STALE, f"Another roster of version {roster.version} came after version {known.version}."
        )


# The members of the roster and those that left, and what a party's policy says of each.


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


@dataclass(frozen=True)
class Unowned:
    """A key that a policy accepts or pins, and that is of no member of a roster."""

    fingerprint: str
    """As policies have it."""
    whose: str
    """Whose key it was, in words."""


def unowned_keys(keys: Iterable[str], roster: Roster, earlier: Iterable[Roster]) -> list[Unowned]:
    """Those of a policy's keys, in its order. They count for nothing, unless a later roster lists such a key again."""
    present = {key_id(member.signing_key).hex() for member in roster.members if member.signing_key}
    left = {
        key_id(member.signing_key).hex(): (member, version)
        for member, version in members_that_left(roster, earlier)
        if member.signing_key
    }
    found = []
    for entry in dict.fromkeys(keys):
        if entry in present:
            continue
        whose = "of no member that this party has seen"
        if entry in left:
            member, version = left[entry]
            has_another = roster.find(member.name, member.role) is not None
            whose = (
                f"the former key of {member.name}, up to version {version} of the roster"
                if has_another
                else f"of {member.name}, which left after version {version} of the roster"
            )
        found.append(Unowned(":".join(re.findall(".{4}", entry)), whose))
    return found


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
    """The party or learner of this name whose key has this fingerprint; see `wire.roster.find_confirmed`.

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
        with CoordinatorClient(coordinator_of(config), config.tls.files, give_up_after_s=_TRY_S) as client:
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
    if accepts(before, member):
        return Accepted(member, config.policy, changed=False)
    if member.role is Role.LEARNER and any(pinned.name == member.name for pinned in before.learners):
        raise ConfigurationError(
            f"{config.policy}: pins another key of learner {member.name}; if it has a new one, remove its table"
        )
    changed = _with(text, member)
    after = Policy.of_text(changed)
    if after is None or not accepts(after, member):
        raise ConfigurationError(
            f"{config.policy}: cannot be changed by this command; add the fingerprint "
            f"{fingerprint(member.signing_key)} of {member.name} by hand"
        )
    write_durably(config.policy, changed.encode(), mode=config.policy.stat().st_mode & 0o777)
    return Accepted(member, config.policy, changed=True)


def accepts(policy: Policy, member: Member) -> bool:
    """Whether a policy accepts a party, or pins a learner, with the key of this entry of the roster."""
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
        rest = text[found.end() :]
        # What stands on the list's first line would become part of the comment.
        return text[: found.end()] + entry + (rest if re.match(r"[ \t]*\r?\n", rest) else f"\n  {rest.lstrip()}")
    return f"accepted_members = [{entry}\n]\n{text}"
