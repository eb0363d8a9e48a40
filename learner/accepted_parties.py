"""The parties that a learner asks, `parties.toml`: each by its name and the fingerprint of its key.

Who receives the seed of a total's tag can, with the coordinator, add numbers to the total (promise P2). So a learner
gives it to no party of a roster that it has not accepted, and takes no total with another member.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import model_validator

from dpcore.errors import ConfigurationError
from learner.client import Coordinator
from learner.config import LearnerConfig
from learner.state import LearnerState
from radobase.configuration import Configuration
from radobase.printing import listed
from radobase.reading import FileKind, read_text, with_remedy
from radobase.writing import write_durably
from wire.envelopes import fingerprint, key_id, load_public_key
from wire.errors import Code, ConnectionLostError, TimedOutError, WireError
from wire.roster import KeyFingerprint, Member, Role, Roster, find_confirmed, installed_rosters, open_roster
from wire.transport import coordinator_of

HEADER = """\
# The parties that this learner asks, by the fingerprints of their signing keys. Other parties of the roster are asked
# nothing: a party that is asked can, with the coordinator, add numbers to a total. Compare each fingerprint with its
# owner over another channel, such as the telephone, before you keep it: a certificate alone proves no membership.
# Add one with: rado learner accept NAME --config learner.toml --fingerprint DIGITS
"""
_HOW = (
    "Compare each party's key with its owner, and accept it: rado learner accept NAME --config learner.toml "
    "--fingerprint DIGITS. `rado learner members` lists the parties"
)


class AcceptedParty(Configuration):
    """A party that the learner asks, with the fingerprint of its key."""

    name: str
    """Name of the party, as in the roster."""
    signing_key: KeyFingerprint
    """Fingerprint of the party's signing key."""


class AcceptedParties(Configuration):
    """Contents of `parties.toml`: the parties that a learner asks. An empty file asks none."""

    parties: tuple[AcceptedParty, ...] = ()
    """Parties that receive queries, one `[[parties]]` table each."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        names, keys = [party.name for party in self.parties], [party.signing_key for party in self.parties]
        for what, values in (("name", names), ("key", keys)):
            if twice := sorted(value for value, count in Counter(values).items() if count > 1):
                raise ValueError(f"two parties have the same {what}, {twice[0]}: keep one of them")
        return self

    @classmethod
    def read(cls, file: Path) -> Self:
        """Those of a file; none if it does not exist yet. Raises ConfigurationError."""
        return cls.load(file) if file.exists() else cls()

    def accepts(self, party: Member) -> bool:
        """Whether this party is accepted with its key of the roster."""
        return AcceptedParty(name=party.name, signing_key=key_id(party.signing_key).hex()) in self.parties

    def of(self, roster: Roster) -> "Selection":
        """The parties of a roster, by whether they are asked."""
        keys = {party.name: party.signing_key for party in self.parties}
        asked: list[Member] = []
        unaccepted: list[str] = []
        changed: list[str] = []
        for party in roster.parties:
            if party.name not in keys:
                unaccepted.append(party.name)
            elif keys[party.name] != key_id(party.signing_key).hex():
                changed.append(party.name)
            else:
                asked.append(party)
        listed_now = {party.name for party in roster.parties}
        gone = [party.name for party in self.parties if party.name not in listed_now]
        return Selection(tuple(asked), tuple(unaccepted), tuple(changed), tuple(gone))


@dataclass(frozen=True)
class Selection:
    """The parties of a roster, in its order: those that are asked, and the names of the others."""

    asked: tuple[Member, ...]
    unaccepted: tuple[str, ...] = ()
    """Never accepted."""
    changed: tuple[str, ...] = ()
    """Accepted with another key than the roster's."""
    gone: tuple[str, ...] = ()
    """Accepted, and not in the roster any more."""

    def trust(self, party: str) -> str:
        """What this learner's file says of a party, in words."""
        if party in self.changed:
            return "not asked: its key changed since it was accepted"
        return "not asked: not accepted" if party in self.unaccepted else "accepted by fingerprint"

    @property
    def not_asked(self) -> str:
        """Which parties are not asked, and why: a sentence without its full stop, empty if all are asked."""
        reasons = [
            *([f"not accepted: {listed(self.unaccepted)}"] if self.unaccepted else []),
            *([f"their keys changed: {listed(self.changed)}"] if self.changed else []),
        ]
        count = len(self.unaccepted) + len(self.changed)
        return f"{count} of {count + len(self.asked)} parties are not asked ({'; '.join(reasons)})" if reasons else ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to do about parties whose keys changed, or that left, like `not_asked`."""
        found = []
        if self.changed:
            found.append(
                f"parties whose keys changed since this learner accepted them are not asked: {listed(self.changed)}; "
                "compare each new key with its owner, and accept it again with `rado learner accept`"
            )
        if self.gone:
            found.append(
                f"parties that this learner accepted are not in the roster any more, and answer nothing: "
                f"{listed(self.gone)}; ask the operator why, or remove their tables from parties.toml"
            )
        return tuple(found)


def selection(file: Path, roster: Roster) -> Selection:
    """The parties of the roster, by whether this file accepts them. Raises ConfigurationError if it accepts none."""
    if not file.exists():
        raise ConfigurationError(
            f"{file}: there is no such file, so this learner has accepted no party and asks none. {_HOW}"
        )
    found = AcceptedParties.load(file).of(roster)
    if not found.asked:
        why = found.not_asked or "the roster lists no party"
        raise ConfigurationError(f"{file}: accepts no party of roster version {roster.version}: {why}. {_HOW}")
    return found


def parties_toml(accepted: Mapping[str, str]) -> str:
    """parties.toml of a learner. accepted: fingerprints of signing keys by party name."""
    return "\n".join([HEADER, *(party_table(name, key) for name, key in accepted.items())])


def party_table(name: str, key: str) -> str:
    """The table of one party, as it is added to the file."""
    # TOML's basic strings and JSON's agree on all characters of names and fingerprints.
    return f"[[parties]]\nname = {json.dumps(name)}\nsigning_key = {json.dumps(key)}\n"


# A learner accepts a party: its key's fingerprint goes into `parties.toml`, after it was compared.


_PARTIES = FileKind(with_remedy("correct the file"), limit_bytes=256 << 10, decides=True)
_TRY_S = 3.0
_NEW_MODE = 0o644
_TEXT = re.compile(r'"([0-9A-Fa-f: ]{64,128})"')


@dataclass(frozen=True)
class Accepted:
    """A party that is asked from now on."""

    party: Member
    file: Path
    """That accepts it."""
    changed: bool
    """Whether it was not before."""

    def sentences(self) -> list[str]:
        """For the learner."""
        if not self.changed:
            return [f"{self.file}: party {self.party.name} was accepted before"]
        return [f"{self.file}: party {self.party.name} is accepted; the next query asks it"]


def find_party(config: LearnerConfig, directory: Path, name: str, digits: str) -> Member:
    """The party of this name whose key has this fingerprint; see `wire.roster.find_confirmed`.

    directory: of the learner's configuration. Raises ConfigurationError if the newest roster has no such party, or
    another key.
    """
    key = load_public_key(config.federation_key)
    state = LearnerState(config.state_directory, key)
    seen = state.newest_roster()
    known = [*installed_rosters(directory, key), *([] if seen is None else [open_roster(seen, key)])]

    def may_accept(member: Member) -> bool:
        return member.role is Role.PARTY

    return find_confirmed(name, digits, known, lambda: _served(config, state), may_accept=may_accept, who="party")


def _served(config: LearnerConfig, state: LearnerState) -> Roster | None:
    """The coordinator's roster; None if it cannot be reached, or does not know this learner yet."""
    try:
        with Coordinator(
            coordinator_of(config), config.tls.files, give_up_after_s=_TRY_S, note=lambda _: None
        ) as calls:
            return state.accept_roster(calls.fetch_roster(), config.federation)
    except (ConnectionLostError, TimedOutError):
        return None
    except WireError as error:
        if error.code is Code.PEER_UNKNOWN:
            return None
        raise


def accept(config: LearnerConfig, party: Member) -> Accepted:
    """Write the key of a party, which the caller has compared (`find_party`), in place of a former one.

    Raises ConfigurationError, and changes nothing, if the file is not written as it can be changed here.
    """
    file, key = config.parties, fingerprint(party.signing_key)
    before = AcceptedParties.read(file)
    text = read_text(file, _PARTIES) if file.exists() else HEADER
    if before.accepts(party):
        return Accepted(party, file, changed=False)
    kept = [other for other in before.parties if other.name != party.name]
    former = next((other for other in before.parties if other.name == party.name), None)
    changed = f"{text.rstrip()}\n\n{party_table(party.name, key)}"
    if former is not None:
        changed = _TEXT.sub(lambda m: f'"{key}"' if _same_key(m[1], former.signing_key) else m[0], text)
    if _parties_in(changed) != {*kept, AcceptedParty(name=party.name, signing_key=key)}:
        raise ConfigurationError(
            f"{file}: cannot be changed by this command; write the fingerprint {key} of {party.name} by hand"
        )
    mode = file.stat().st_mode & 0o777 if file.exists() else _NEW_MODE
    write_durably(file, changed.encode(), mode=mode)
    return Accepted(party, file, changed=True)


def _parties_in(text: str) -> set[AcceptedParty] | None:
    """The parties of a file's text; None if it is not such a file."""
    accepted = AcceptedParties.of_text(text)
    return None if accepted is None else {*accepted.parties}


def _same_key(text: str, key: str) -> bool:
    return re.sub(r"[: ]", "", text).lower() == key
