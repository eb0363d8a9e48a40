"""A query as the coordinator reports it: to a party as work, to its learner as a status and a total."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from dpcore.queries.kind import MAX_PARTIES
from rado.v1 import party_service_pb2, release_pb2
from radobase.printing import printable
from wire.codec import Travels, Wire, refuse_unknown_fields
from wire.envelopes import Envelope
from wire.errors import Code, WireError
from wire.roster import NAME
from wire.statements import Cohort

# Also those of later versions.
_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")

MOST_WORK = 256
"""The most queries in one response to a party. The next response has the rest."""
_ENVELOPE_BYTES = 512
"""What an envelope takes in memory besides its payload, rounded up."""
_INDEX_BYTES = 96
"""What an index of a set takes in memory, rounded up."""


class Phase(Enum):
    """The phase of an attempt."""

    ANSWERING = release_pb2.PHASE_ANSWERING
    PREPARING = release_pb2.PHASE_PREPARING
    UPLOADING = release_pb2.PHASE_UPLOADING
    ADDING = release_pb2.PHASE_ADDING
    COMPLETE = release_pb2.PHASE_COMPLETE
    FAILED = release_pb2.PHASE_FAILED
    LOST = release_pb2.PHASE_LOST
    UNMASKING = release_pb2.PHASE_UNMASKING

    @property
    def word(self) -> str:
        """As people and logs read it."""
        return self.name.lower()

    @property
    def is_terminal(self) -> bool:
        """Whether the query has ended."""
        return self in (Phase.COMPLETE, Phase.FAILED)

    @property
    def ends_attempt(self) -> bool:
        """Whether the attempt has ended, with a total or without one."""
        return self.is_terminal or self is Phase.LOST


class PartyState(Enum):
    """The state of one party in an attempt."""

    SILENT = release_pb2.PARTY_STATE_SILENT
    REFUSED = release_pb2.PARTY_STATE_REFUSED
    ACCEPTED = release_pb2.PARTY_STATE_ACCEPTED
    READY = release_pb2.PARTY_STATE_READY
    LEFT_OUT = release_pb2.PARTY_STATE_LEFT_OUT
    UPLOADING = release_pb2.PARTY_STATE_UPLOADING
    UPLOADED = release_pb2.PARTY_STATE_UPLOADED
    PENDING = release_pb2.PARTY_STATE_PENDING
    UNMASKED = release_pb2.PARTY_STATE_UNMASKED
    VANISHED = release_pb2.PARTY_STATE_VANISHED

    @property
    def awaits_answer(self) -> bool:
        """Whether the party has neither accepted nor refused."""
        return self in (PartyState.SILENT, PartyState.PENDING)

    @property
    def word(self) -> str:
        """As people and logs read it."""
        return self.name.lower()


_UNKNOWN = Travels(unknown="This version does not know a phase or state.")


@dataclass(frozen=True)
class PartyProgress(Wire[release_pb2.PartyProgress]):
    """One party's progress: its state, the code of its refusal, the received chunks, the rows of its acceptance.

    acceptance: signed, of a question; None of other queries.
    """

    party: str
    state: Annotated[PartyState, _UNKNOWN]
    code: str = ""
    chunks: int = 0
    rows: int = 0
    acceptance: Envelope | None = None


@dataclass(frozen=True)
class Work(Wire[party_service_pb2.Work]):
    """A query as one party sees it. A party believes nothing in it before it has checked it."""

    query: Envelope
    attempt: int
    phase: Annotated[Phase, Travels(unknown="A phase or a state is not known.")]
    state: Annotated[PartyState, Travels(unknown="A phase or a state is not known.")]
    cohort: Cohort | None
    """From Phase.UPLOADING on, and only for its members."""
    chunks_held: frozenset[int]
    """This party's chunks that have arrived."""
    retry: Envelope | None = None
    """The learner's signed decision on this attempt, None in attempt 1."""
    sharing: Cohort | None = None
    """All that had accepted when parties began to prepare, if members may vanish. Only for these."""
    ready: tuple[Envelope, ...] = ()
    """Of each member of the cohort, if members may vanish."""
    survivors: tuple[str, ...] = ()
    """The members that uploaded, in Phase.UNMASKING."""
    sealed_shares: tuple[bytes, ...] = ()
    """What each member of the cohort sealed for this party, in Phase.UNMASKING."""

    @property
    def query_id(self) -> bytes:
        """SHA-256 of the query's payload."""
        return self.query.payload_hash

    @property
    def held_bytes(self) -> int:
        """About what it takes in memory, rounded up."""
        shown = [cohort.acceptances for cohort in (self.cohort, self.sharing) if cohort is not None]
        retry = () if self.retry is None else (self.retry,)
        envelopes = (self.query, *(each for acceptances in shown for each in acceptances), *self.ready, *retry)
        payloads = sum(len(envelope.payload) + _ENVELOPE_BYTES for envelope in envelopes)
        others = sum(len(each) + _INDEX_BYTES for each in (*self.sealed_shares, *self.survivors))
        return payloads + others + len(self.chunks_held) * _INDEX_BYTES

    @classmethod
    def from_proto(cls, m: party_service_pb2.Work) -> "Work":
        """Raises WireError."""
        refuse_unknown_fields(m)
        return super().from_proto(m)


@dataclass(frozen=True)
class QueryStatus(Wire[release_pb2.QueryStatus]):
    """A query's status as its learner sees it.

    answering_ended_early: whether parties that have not answered were not waited for.
    """

    query_id: bytes
    attempt: int
    phase: Annotated[Phase, _UNKNOWN]
    parties: tuple[PartyProgress, ...]
    code: str
    detail: Annotated[str, Travels(read=printable)]
    remaining_s: int
    chunks_expected: int
    submitted_at_unix_s: int
    answering_ended_early: bool = False

    @classmethod
    def from_proto(cls, m: release_pb2.QueryStatus) -> "QueryStatus":
        """Raises WireError(MESSAGE_MALFORMED), also for a phase or a state that this version does not know.

        Raises WireError(MESSAGE_TOO_LARGE) if it has more parties than a query may have: an entry of four bytes takes
        hundreds here. The detail is any text, and becomes one line.
        """
        if len(m.parties) > MAX_PARTIES:
            raise WireError(Code.MESSAGE_TOO_LARGE, f"A status has at most {MAX_PARTIES} parties.")
        if not all(NAME.fullmatch(p.party) for p in m.parties):
            raise WireError(Code.MESSAGE_MALFORMED, "A party's name in the status is not well formed.")
        if not all(map(_CODE.fullmatch, _codes(m))):
            raise WireError(Code.MESSAGE_MALFORMED, "A code in the status is not well formed.")
        return super().from_proto(m)


def _codes(m: release_pb2.QueryStatus) -> list[str]:
    """The codes that a status has."""
    return [code for code in (m.code, *(party.code for party in m.parties)) if code]


@dataclass(frozen=True)
class Total(Wire[release_pb2.Total]):
    """A complete total without its ciphertexts."""

    cohort: Cohort
    receipts: tuple[Envelope, ...]
    chunks: int
    ciphertexts: int
    sharing: Cohort | None = None
    """All that had accepted when parties began to prepare, if members may vanish."""
    survivors: tuple[str, ...] = ()
    """The members whose uploads it adds up, and whose receipts these are, if members may vanish."""
    key_shares: tuple[Envelope, ...] = ()
    """Of every member of the cohort, in order."""
    unmaskings: tuple[Envelope, ...] = ()
    """Of every survivor that gave one, in the cohort's order."""
