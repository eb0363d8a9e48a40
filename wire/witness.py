"""Witnesses of a party's ledger: others keep the heads that they saw, and show them when the party asks.

A party that was set back to an older copy of itself holds fewer ledger entries than its own signed statements show. If
it went on, it may hold as many, but not the same. So others also show names of all that they saw, and the party asks
for those that it does not know, one at a time: the challenge's nonce begins with the name.
"""

from dataclasses import dataclass
from typing import ClassVar

from rado.v1 import cohort_pb2
from wire.cohort import Acceptance, LedgerHead, Receipt, open_statement
from wire.envelopes import KEY_BYTES, Envelope, Kind, Signable, sha256
from wire.errors import Code, WireError
from wire.roster import Member, Roster, open_from_party

NONCE_BYTES = KEY_BYTES
CHALLENGE_BYTES = 2048
"""The most bytes of a challenge's payload."""
WITNESS_BYTES = 3584
"""The most bytes of an answer's: a statement of the asking party, and names of more (MOST_IN_COHORTS).

The answers of 999 members fit into one response.
"""
MOST_IN_COHORTS = 200
"""Attempts of the subject that a witness shows at most."""
_NAME_BYTES = 8


@dataclass(frozen=True)
class Challenge(Signable[cohort_pb2.Challenge]):
    """A party asks the others for the newest statement of it that they hold, or for one by name (`nonce_about`)."""

    KIND: ClassVar[Kind] = Kind.CHALLENGE
    federation: str
    party: str
    nonce: bytes
    signed_at_unix_s: int

    def __post_init__(self) -> None:
        if len(self.nonce) != NONCE_BYTES:
            raise WireError(Code.MESSAGE_MALFORMED, "A challenge's nonce must have 32 bytes.")


@dataclass(frozen=True)
class Witness(Signable[cohort_pb2.Witness]):
    """A party's answer.

    newest: the subject's signed Acceptance that the challenge asks for, if the party has it, otherwise the one with the
    most ledger entries; None if it has none. in_cohorts: names (`name_of`) of the subject's Acceptances in the
    answering party's cohorts, sorted, at most MOST_IN_COHORTS.
    in_cohorts_from: all of heads with at least so many entries are among them.
    """

    KIND: ClassVar[Kind] = Kind.WITNESS
    federation: str
    party: str
    subject: str
    nonce: bytes
    newest: Envelope | None
    in_cohorts: tuple[bytes, ...] = ()
    in_cohorts_from: int = 0

    def __post_init__(self) -> None:
        well_formed = all(len(name) == _NAME_BYTES for name in self.in_cohorts)
        if not well_formed or list(self.in_cohorts) != sorted(set(self.in_cohorts)):
            raise WireError(Code.MESSAGE_MALFORMED, "The attempts that a witness shows are not well formed.")
        if len(self.in_cohorts) > MOST_IN_COHORTS:
            raise WireError(Code.MESSAGE_TOO_LARGE, f"A witness shows at most {MOST_IN_COHORTS} attempts.")


def name_of(acceptance: Envelope) -> bytes:
    """What Witness.in_cohorts has of an acceptance. Only who has seen it can tell it, except with probability 2^-64."""
    return sha256(acceptance.signature)[:_NAME_BYTES]


def nonce_about(name: bytes, random: bytes) -> bytes:
    """A nonce that asks for one acceptance. random: NONCE_BYTES, of which 24 remain: enough for a fresh nonce."""
    return name + random[len(name) :]


def name_asked_for(nonce: bytes) -> bytes:
    """The name that a nonce begins with. One that asks for no name begins with random bytes, which name nothing."""
    return nonce[:_NAME_BYTES]


def open_challenge(envelope: Envelope, roster: Roster) -> tuple[Challenge, Member]:
    """The verified challenge of a party of the roster, and the party. Raises WireError."""
    _check_size(envelope, CHALLENGE_BYTES)
    challenge = Challenge.from_bytes(envelope.payload)
    return challenge, _open(envelope, Kind.CHALLENGE, challenge.federation, challenge.party, roster)


def open_witness(envelope: Envelope, roster: Roster) -> tuple[Witness, Member]:
    """The verified answer of a party of the roster, and the party. Raises WireError."""
    _check_size(envelope, WITNESS_BYTES)
    witness = Witness.from_bytes(envelope.payload)
    return witness, _open(envelope, Kind.WITNESS, witness.federation, witness.party, roster)


def witnessed_head(envelope: Envelope, party: str, roster: Roster) -> LedgerHead | None:
    """The ledger head in a party's own signed acceptance or receipt; None if it carries none.

    Raises WireError if it is neither, not signed with the party's key in the roster, or another party's.
    """
    try:
        statement: Acceptance | Receipt = open_statement(Acceptance, envelope, roster)[0]
    except WireError:
        statement = open_statement(Receipt, envelope, roster)[0]
    if statement.party != party:
        raise WireError(Code.SENDER_MISMATCH)
    return statement.ledger_head


def _check_size(envelope: Envelope, most_bytes: int) -> None:
    """Before anything is parsed."""
    if len(envelope.payload) > most_bytes:
        raise WireError(Code.MESSAGE_TOO_LARGE, f"It has {len(envelope.payload)} bytes, and {most_bytes} are allowed.")


def _open(envelope: Envelope, kind: Kind, federation: str, party: str, roster: Roster) -> Member:
    if federation != roster.federation:
        raise WireError(Code.FEDERATION_MISMATCH)
    return open_from_party(envelope, kind, party, roster)
