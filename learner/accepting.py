"""A learner accepts a party: its key's fingerprint goes into `parties.toml`, after it was compared."""

import re
from dataclasses import dataclass
from pathlib import Path

from dpcore.errors import ConfigurationError
from learner.accepted_parties import HEADER, AcceptedParties, AcceptedParty, party_table
from learner.client import Coordinator
from learner.config import LearnerConfig
from learner.state import LearnerState
from radobase.files.reading import FileKind, read_text, with_remedy
from radobase.files.writing import write_durably
from wire.envelopes import fingerprint, load_public_key
from wire.errors import Code, ConnectionLostError, TimedOutError, WireError
from wire.pinning import find_confirmed, installed_rosters
from wire.roster import Member, Role, Roster, open_roster

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
    """The party of this name whose key has this fingerprint; see `wire.pinning.find_confirmed`.

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
        with Coordinator(config.coordinator, config.tls.files, give_up_after_s=_TRY_S, note=lambda _: None) as calls:
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
