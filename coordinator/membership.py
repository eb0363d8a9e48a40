"""Members: the newest roster that the federation key signed, never an older one, and the challenges between them."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from coordinator.config import CoordinatorConfig
from coordinator.store import Store
from dpcore.errors import ConfigurationError
from radobase.logs import Daily, Log
from radobase.reading import FileKind, read_bytes, with_remedy
from radobase.writing import BY_UMASK, write_durably
from wire.envelopes import Envelope, load_public_key
from wire.errors import Code, WireError
from wire.features import Feature, open_features, too_old
from wire.query import CLOCK_SKEW_S
from wire.roster import Member, Role, Roster, open_roster, read_roster
from wire.statements import MOST_WITNESSES, open_challenge, open_witness
from wire.transport import MAX_RESPONSE_BYTES

# One message has room for this many acceptances and receipts in addition to the longest query.
MOST_PARTIES = 1000
_ROSTER = FileKind(with_remedy("use the roster.signed that the operator made"), limit_bytes=4 << 20, decides=True)


class Membership:
    """Holds the current roster. Reads it from its file at construction and at every `reload`.

    Construction raises ConfigurationError if the file is unreadable, belongs to another federation, lacks this
    coordinator or has too many parties; WireError(SIGNATURE_INVALID, ROSTER_STALE) if the federation key did not sign
    it or it is older than one already served.
    """

    def __init__(
        self, file: Path, *, federation: str, name: str, federation_key: bytes, store: Store, log: Log
    ) -> None:
        self._file = file
        self._federation = federation
        self._name = name
        self._federation_key = federation_key
        self._store = store
        self._log = log
        self.envelope, self.roster = self._read()
        self._warnings = Daily()

    def _read(self) -> tuple[Envelope, Roster]:
        known = self._store.roster()
        newest = None if known is None else Roster.from_bytes(known.payload)
        content = read_bytes(self._file, _ROSTER)
        try:
            envelope = Envelope.from_bytes(content)
        except WireError as error:
            raise _ROSTER.error(self._file, "is not a signed roster") from error
        roster = open_roster(envelope, self._federation_key, at_least_version=newest.version if newest else 0)
        if known is not None and newest is not None and newest.version == roster.version:
            if known.payload != envelope.payload:
                raise WireError(Code.ROSTER_STALE, f"Another roster with version {roster.version} was served before.")
            return known, newest
        if roster.federation != self._federation:
            raise ConfigurationError(
                f"{self._file}: belongs to federation {roster.federation!r}; check the configuration"
            )
        if roster.find(self._name, Role.COORDINATOR) is None:
            raise ConfigurationError(f"{self._file}: has no coordinator {self._name!r}; check the configuration")
        if len(roster.parties) > MOST_PARTIES:
            raise ConfigurationError(
                f"{self._file}: has {len(roster.parties)} parties; at most {MOST_PARTIES} are supported"
            )
        self._store.remember_roster(roster.version, envelope)
        return envelope, roster

    def warn(self, now_unix_s: float) -> None:
        """Log, at most once a day for one roster, that the roster expires soon, has expired or never expires."""
        sentence = self.roster.expiry_warning(now_unix_s)
        if not sentence or not self._warnings.is_due(now_unix_s):
            return
        level = self._log.error if self.roster.is_expired(now_unix_s) else self._log.warning
        level("roster expiry", reason=sentence, version=self.roster.version)

    def reload(self) -> bool:
        """Read the file again. Returns whether its roster is newer. Logs a fault in it and keeps the old roster."""
        try:
            envelope, roster = self._read()
        except (ConfigurationError, WireError) as error:
            self._log.error("roster refused", file=str(self._file), error=str(error), version=self.roster.version)
            return False
        is_newer = roster.version > self.roster.version
        self.envelope, self.roster, self._warnings = envelope, roster, Daily()
        self._log.info(
            "roster read",
            version=roster.version,
            members=len(roster.members),
            newer=is_newer,
            expires=roster.expiry_date,
        )
        return is_newer


def install_roster(config: CoordinatorConfig, file: Path) -> Roster:
    """Put a newer roster in the place that the configuration names. A running coordinator serves it within seconds.

    Raises ConfigurationError, and changes nothing, if the federation key did not sign it, or it is not newer than the
    one that is there.
    """
    key = load_public_key(config.federation_key)
    envelope, roster = read_roster(file, key, _ROSTER)
    if roster.federation != config.federation or roster.find(config.name, Role.COORDINATOR) is None:
        raise ConfigurationError(f"{file}: is not a roster of {config.federation!r} with coordinator {config.name!r}")
    if config.roster.exists() and (known := read_roster(config.roster, key, _ROSTER)[1]).version >= roster.version:
        raise ConfigurationError(
            f"{file}: has version {roster.version}, and version {known.version} is there; give the newest roster"
        )
    write_durably(config.roster, envelope.to_bytes(), mode=BY_UMASK)
    return roster


def read_own_roster(config: CoordinatorConfig) -> Roster:
    """The roster in the place that the configuration names. Raises ConfigurationError, also for another's signature."""
    return read_roster(config.roster, load_public_key(config.federation_key), _ROSTER)[1]


def check_sender(named: str, caller: Member) -> None:
    """Raise WireError(SENDER_MISMATCH) unless the member named in a message is the certificate's."""
    if named != caller.name:
        raise WireError(Code.SENDER_MISMATCH)


# Operators' answers that wait for their members: files in the coordinator's state directory.
#
# The coordinator reads none of them: a member verifies its own by the federation's key.


_SUFFIX = ".admission"
_FILE = FileKind(
    with_remedy("leave it with `rado coordinator admissions` once more"), limit_bytes=MAX_RESPONSE_BYTES - 1024
)


class Admissions:
    """One file for each member, by its name, which a roster has once. The directory may be absent."""

    def __init__(self, directory: Path, log: Log) -> None:
        self._directory, self._log = directory, log

    def leave(self, name: str, content: bytes) -> None:
        """Keep a member's answer in place of an older one. The caller has verified it."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(self._path(name), content, mode=BY_UMASK)

    def of(self, name: str) -> bytes:
        """A member's answer; empty if there is none, or it cannot be read, which is logged."""
        path = self._path(name)
        if not path.exists():
            return b""
        try:
            return read_bytes(path, _FILE)
        except ConfigurationError as error:
            self._log.refused("admission not read", peer=name, code="UNREADABLE", reason=str(error))
            return b""

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"


# When each member last made a call, for the operator's eyes. Nothing is decided by it.


SAVED_EVERY_S = 15.0
NEW_SAVED_EVERY_S = 1.0
"""A member that was not seen since the start does not stay "never" for longer."""


class LastSeen:
    """The times, in memory, and now and then in the store, where `rado coordinator status` reads them.

    clock: Unix seconds.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock
        self._at: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._saved: set[str] = set()

    def note(self, member: Member) -> None:
        """A member makes a call, or a call of it has just ended."""
        self._at[member.name] = self._last[member.name] = int(self._clock())

    def since(self, unix_s: float) -> frozenset[str]:
        """Names of the members that made a call at this time or later, since the start. Call it from the event loop."""
        return frozenset(name for name, at_unix_s in self._last.items() if at_unix_s >= unix_s)

    def save(self) -> None:
        """Store what was noted since the last time. A disk that fails loses nothing that matters."""
        noted, self._at = self._at, {}
        if noted:
            try:
                self._store.remember_seen(noted)
                self._saved |= noted.keys()
            except (WireError, sqlite3.Error):
                self._at = {**noted, **self._at}

    async def run(self) -> None:
        """Save until cancelled."""
        waited_s = 0.0
        while True:
            await asyncio.sleep(NEW_SAVED_EVERY_S)
            waited_s += NEW_SAVED_EVERY_S
            if waited_s >= SAVED_EVERY_S or not self._at.keys() <= self._saved:
                await asyncio.to_thread(self.save)
                waited_s = 0.0


# Relays challenges and witnesses of parties' ledgers, and keeps what parties state of their nodes.
#
# A party that starts asks the others for its newest statement that they hold (wire.statements). The coordinator only
# relays: it can withhold answers, and a party then answers no query, but it cannot make one, because every party signs
# its own. Challenges and answers are in memory: a party asks again.


SHOW_AGAIN_AFTER_S = 60.0
# Parties refuse an older challenge.
SHOWN_FOR_S = float(CLOCK_SKEW_S)
KEPT_FOR_S = 900.0
"""How long answers are kept: parties look for them for ten minutes."""
MOST_ANSWER_BYTES = 256 << 20
"""Of the answers to all challenges; the oldest challenge is forgotten beyond that. N parties that start at one time are
sent nearly N squared answers of 300 to 3,700 bytes."""
FEATURES_BYTES = 4096


@dataclass
class _Asked:
    nonce: bytes
    envelope: Envelope
    taken_at: float
    answers: dict[str, Envelope] = field(default_factory=dict)
    shown_at: dict[str, float] = field(default_factory=dict)

    @property
    def answer_bytes(self) -> int:
        """Bytes of the answers."""
        return sum(map(_size_bytes, self.answers.values()))


def _size_bytes(answer: Envelope) -> int:
    return len(answer.payload) + len(answer.key_id) + len(answer.signature)


class WitnessExchange:
    """At most one challenge of each party, and at most one answer of each other party to it, for KEPT_FOR_S.

    Use it from one event loop. clock: monotonic seconds.
    """

    def __init__(self, store: Store, roster: Callable[[], Roster], clock: Callable[[], float]) -> None:
        self._store, self._roster, self._clock = store, roster, clock
        # The oldest challenge first.
        self._asked: dict[str, _Asked] = {}
        self._answer_bytes = 0

    def ask(self, envelope: Envelope, caller: Member) -> None:
        """Take a party's challenge, in place of its older one. Raises WireError."""
        challenge, _ = open_challenge(envelope, self._roster())
        check_sender(challenge.party, caller)
        known = self._asked.get(caller.name)
        if known is None or known.nonce != challenge.nonce:
            self._forget(caller.name)
            self._asked[caller.name] = _Asked(challenge.nonce, envelope, self._clock())
            old = [party for party, asked in self._asked.items() if self._clock() - asked.taken_at > KEPT_FOR_S]
            for party in old:
                self._forget(party)

    async def answer_each(self, envelopes: Sequence[Envelope], caller: Member) -> None:
        """Take all of a party's answers that can be taken. Raises WireError, of the first that cannot."""
        if len(envelopes) > MOST_WITNESSES:
            raise WireError(Code.MESSAGE_MALFORMED, f"A call has at most {MOST_WITNESSES} answers.")
        refused: WireError | None = None
        for envelope in envelopes:
            try:
                self.answer(envelope, caller)
            except WireError as error:
                refused = refused or error
            # Each has a signature to verify, and other members wait.
            await asyncio.sleep(0)
        if refused is not None:
            raise refused

    def answer(self, envelope: Envelope, caller: Member) -> None:
        """Take a party's answer. Raises WireError, QUERY_UNKNOWN if the challenge is not the newest."""
        witness, _ = open_witness(envelope, self._roster())
        check_sender(witness.party, caller)
        asked = self._asked.get(witness.subject)
        if asked is None or asked.nonce != witness.nonce or witness.subject == caller.name:
            raise WireError(Code.QUERY_UNKNOWN, "The challenge is not known.")
        if caller.name not in asked.answers:
            asked.answers[caller.name] = envelope
            self._answer_bytes += _size_bytes(envelope)
            while self._answer_bytes > MOST_ANSWER_BYTES:
                self._forget(next(iter(self._asked)))

    def _forget(self, party: str) -> None:
        """Its challenge and the answers to it: if it still looks for them, it asks again."""
        if (asked := self._asked.pop(party, None)) is not None:
            self._answer_bytes -= asked.answer_bytes

    def due(self, caller: Member) -> tuple[str, ...]:
        """Parties whose challenge is still valid, and this party has not answered and has not been shown lately."""
        now = self._clock()
        return tuple(
            party
            for party, asked in self._asked.items()
            if party != caller.name
            and now - asked.taken_at <= SHOWN_FOR_S
            and caller.name not in asked.answers
            and now - asked.shown_at.get(caller.name, float("-inf")) >= SHOW_AGAIN_AFTER_S
        )

    def show(self, caller: Member) -> tuple[Envelope, ...]:
        """The challenges that are due, which are not due again for a while."""
        shown = [self._asked[party] for party in self.due(caller)]
        for asked in shown:
            asked.shown_at[caller.name] = self._clock()
        return tuple(asked.envelope for asked in shown)

    def answers(self, nonce: bytes, caller: Member, known: int = 0) -> tuple[Envelope, ...]:
        """The answers to a party's own challenge, without the first `known`. Raises WireError(QUERY_UNKNOWN)."""
        asked = self._asked.get(caller.name)
        if asked is None or asked.nonce != nonce:
            raise WireError(Code.QUERY_UNKNOWN, "The challenge is not known: ask again.")
        return tuple(islice(asked.answers.values(), known, None))

    def newest(self, caller: Member) -> Envelope | None:
        """The statement of this party with the most ledger entries that this coordinator holds."""
        return self._store.newest_head(caller.name)

    def state_features(self, envelope: Envelope, caller: Member) -> None:
        """Store what a party states of its node, unless a newer statement is stored.

        Raises WireError, FEATURE_MISSING if the node is too old.
        """
        if len(envelope.payload) > FEATURES_BYTES:
            raise WireError(Code.MESSAGE_TOO_LARGE, f"A statement of features has at most {FEATURES_BYTES} bytes.")
        statement, _ = open_features(envelope, self._roster())
        check_sender(statement.party, caller)
        # Also of a node that is too old: the learners then see why they cannot ask it.
        self._store.remember_features(statement.party, statement.signed_at_unix_s, envelope)
        if Feature.BASE not in statement.features:
            raise WireError(Code.FEATURE_MISSING, too_old(f"{statement.party}'s node", statement.version))

    def features(self) -> tuple[Envelope, ...]:
        """What the roster's parties stated."""
        stated = self._store.features()
        return tuple(stated[party.name] for party in self._roster().parties if party.name in stated)
