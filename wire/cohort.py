"""Parties' signed statements about an attempt, and the cohort that their acceptances form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeVar

from dpcore.paillier.masks import is_low_order
from rado.v1 import cohort_pb2
from wire.codec import M, Travels, Wire
from wire.envelopes import KEY_BYTES, Envelope, Kind, Signable, SigningKey, sha256
from wire.errors import Code, WireError
from wire.roster import Member, Roster, open_from_party

HASH_BYTES = 32


MAX_SEALED_BYTES = 512
MAX_ENTRIES = (1 << 63) - 1
"""The largest integer of a database."""


@dataclass(frozen=True)
class LedgerHead(Wire[cohort_pb2.LedgerHead]):
    """A ledger's chain after `entries` entries. digest: 32 bytes. sealed_sums: readable to the party alone."""

    entries: int
    digest: bytes
    sealed_sums: bytes

    def __post_init__(self) -> None:
        if (
            not 1 <= self.entries <= MAX_ENTRIES
            or len(self.digest) != KEY_BYTES
            or len(self.sealed_sums) > MAX_SEALED_BYTES
        ):
            raise WireError(Code.MESSAGE_MALFORMED, "A ledger head is not well formed.")


def _check_attempt(query_id: bytes, attempt: int) -> None:
    if len(query_id) != HASH_BYTES or attempt < 1:
        raise WireError(Code.MESSAGE_MALFORMED, "A query's id must have 32 bytes, and attempts count from 1.")


@dataclass(frozen=True)
class _OnAttempt(Signable[M]):
    """A party's statement about one attempt of a query, counted from 1."""

    query_id: bytes
    attempt: int
    party: str

    def __post_init__(self) -> None:
        _check_attempt(self.query_id, self.attempt)


@dataclass(frozen=True)
class Acceptance(_OnAttempt[cohort_pb2.Acceptance]):
    """A party will contribute `rows` rows. `mask_key`: an ephemeral X25519 public key.

    roster_version: the newest that the party has. ledger_head: with this reservation, None in answer to a question.
    """

    KIND: ClassVar[Kind] = Kind.ACCEPTANCE
    rows: int
    mask_key: bytes
    roster_version: int
    ledger_head: LedgerHead | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows < 1 or len(self.mask_key) != KEY_BYTES or is_low_order(self.mask_key):
            raise WireError(
                Code.MESSAGE_MALFORMED, "An acceptance must have at least one row and a 32-byte key of high order."
            )


@dataclass(frozen=True)
class Refusal(_OnAttempt[cohort_pb2.Refusal]):
    """A party will not contribute. The reason is a code of the catalogue."""

    KIND: ClassVar[Kind] = Kind.REFUSAL
    code: Annotated[Code, Travels(unknown="The refusal's code is not in the catalogue.")]


@dataclass(frozen=True)
class Pending(_OnAttempt[cohort_pb2.Pending]):
    """A person at this party has to decide first. Not an answer: the party may still accept or refuse."""

    KIND: ClassVar[Kind] = Kind.PENDING


@dataclass(frozen=True)
class Ready(_OnAttempt[cohort_pb2.Ready]):
    """A party has spooled its contribution."""

    KIND: ClassVar[Kind] = Kind.READY


@dataclass(frozen=True)
class Receipt(_OnAttempt[cohort_pb2.Receipt]):
    """A party's statement of what it uploaded and for which cohort. ledger_head: with this charge."""

    KIND: ClassVar[Kind] = Kind.RECEIPT
    cohort_digest: bytes
    upload_digest: bytes
    chunks: int
    ciphertexts: int
    ledger_head: LedgerHead | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.cohort_digest) != HASH_BYTES or len(self.upload_digest) != HASH_BYTES:
            raise WireError(Code.MESSAGE_MALFORMED, "A digest must have 32 bytes.")


Statement = Acceptance | Refusal | Pending | Ready | Receipt


def sign(statement: Statement, signing_key: SigningKey) -> Envelope:
    """The signed envelope of a party's statement."""
    return signing_key.sign(statement.KIND, statement.to_bytes())


S = TypeVar("S", Acceptance, Refusal, Pending, Ready, Receipt)


def open_statement(statement_type: type[S], envelope: Envelope, roster: Roster) -> tuple[S, Member]:
    """The verified statement of a party of the roster, and the party. Raises WireError."""
    statement = statement_type.from_bytes(envelope.payload)
    return statement, open_from_party(envelope, statement_type.KIND, statement.party, roster)


@dataclass(frozen=True)
class Cohort(Wire[cohort_pb2.Cohort]):
    """The parties of one attempt: their signed acceptances, in order."""

    query_id: bytes
    attempt: int
    acceptances: tuple[Envelope, ...]

    def __post_init__(self) -> None:
        _check_attempt(self.query_id, self.attempt)

    @property
    def digest(self) -> bytes:
        """SHA-256 that binds query, attempt, members, row counts and mask keys."""
        return sha256(
            b"rado.v1/cohort\0",
            self.query_id,
            self.attempt.to_bytes(4, "big"),
            len(self.acceptances).to_bytes(4, "big"),
            *(acceptance.payload_hash for acceptance in self.acceptances),
        )

    def open(self, roster: Roster) -> tuple[Acceptance, ...]:
        """Every member's acceptance, each verified against the roster.

        Raises WireError if a signature is invalid, a member occurs twice, or an acceptance is for another attempt.
        """
        # Before the signatures: a response has room for those of 16,000 acceptances.
        if len(self.acceptances) > len(roster.parties):
            raise WireError(Code.MESSAGE_MALFORMED, "The cohort has more members than the roster has parties.")
        opened = tuple(open_statement(Acceptance, envelope, roster)[0] for envelope in self.acceptances)
        if any((a.query_id, a.attempt) != (self.query_id, self.attempt) for a in opened):
            raise WireError(Code.ATTEMPT_MISMATCH, "The cohort has an acceptance for another attempt.")
        if len({a.party for a in opened}) != len(opened):
            raise WireError(Code.MESSAGE_MALFORMED, "A party occurs twice in the cohort.")
        return opened


def check_roster_version(acceptance: Acceptance, newest_version: int) -> None:
    """Check which roster a party had when it accepted a query.

    newest_version: the newest that the checking node has seen. A party may have an older one: it is verified against
    the checking node's roster, and it notices the newer version itself. Raises WireError(ROSTER_STALE) if the party has
    a newer one, WireError(MESSAGE_MALFORMED) if it states none.
    """
    if not acceptance.roster_version:
        raise WireError(Code.MESSAGE_MALFORMED, "An acceptance states the newest roster version that the party has.")
    if acceptance.roster_version > newest_version:
        raise WireError(
            Code.ROSTER_STALE,
            f"{acceptance.party} has version {acceptance.roster_version}, but this node has {newest_version}.",
        )


def check_receipts(
    receipts: Sequence[Envelope], cohort: Cohort, roster: Roster, *, chunks: int, ciphertexts: int
) -> tuple[Receipt, ...]:
    """Every cohort member's verified receipt, in order, for this cohort and of the planned size.

    Raises WireError(RECEIPT_INVALID) if one is missing, for another cohort, or of another size.
    """
    if len(receipts) != len(cohort.acceptances):
        raise WireError(Code.RECEIPT_INVALID, "There is not one receipt for each member of the cohort.")
    opened = tuple(open_statement(Receipt, envelope, roster)[0] for envelope in receipts)
    members = [a.party for a in cohort.open(roster)]
    if [r.party for r in opened] != members:
        raise WireError(Code.RECEIPT_INVALID, "The receipts do not match the cohort's members.")
    for receipt in opened:
        check_receipt(receipt, cohort, chunks=chunks, ciphertexts=ciphertexts)
    return opened


def check_receipt(receipt: Receipt, cohort: Cohort, *, chunks: int, ciphertexts: int) -> None:
    """Raise WireError(RECEIPT_INVALID) if a receipt is for another cohort or of another size."""
    expected = (cohort.query_id, cohort.attempt, cohort.digest, chunks, ciphertexts)
    if (receipt.query_id, receipt.attempt, receipt.cohort_digest, receipt.chunks, receipt.ciphertexts) != expected:
        raise WireError(Code.RECEIPT_INVALID, f"{receipt.party}'s receipt is for another cohort or upload.")
