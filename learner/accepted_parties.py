"""The parties that a learner asks, `parties.toml`: each by its name and the fingerprint of its key.

Who receives the seed of a total's tag can, with the coordinator, add numbers to the total (promise P2). So a learner
gives it to no party of a roster that it has not accepted, and takes no total with another member.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import model_validator

from dpcore.errors import ConfigurationError
from radobase.configuration import Configuration
from radobase.printing import listed
from wire.envelopes import key_id
from wire.pinning import KeyFingerprint
from wire.roster import Member, Roster

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
        return Selection(tuple(asked), tuple(unaccepted), tuple(changed))


@dataclass(frozen=True)
class Selection:
    """The parties of a roster, in its order: those that are asked, and the names of the others."""

    asked: tuple[Member, ...]
    unaccepted: tuple[str, ...] = ()
    """Never accepted."""
    changed: tuple[str, ...] = ()
    """Accepted with another key than the roster's."""

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
    def warning(self) -> str:
        """What to do about parties whose keys changed, like `not_asked`; empty if none did."""
        if not self.changed:
            return ""
        return (
            f"parties whose keys changed since this learner accepted them are not asked: {listed(self.changed)}; "
            "compare each new key with its owner, and accept it again with `rado learner accept`"
        )


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
