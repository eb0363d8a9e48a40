"""Parties' signed statements: answers to an attempt, the cohort that they form, uploads, and witnesses of ledgers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, TypeVar

from dpcore.paillier.masks import is_low_order
from dpcore.paillier.survivors import SEALED_BYTES, SELF_COMMITMENT_BYTES, SHARE_COMMITMENT_BYTES
from rado.v1 import ciphertext_pb2, cohort_pb2
from wire.codec import M, Travels, Wire
from wire.envelopes import KEY_BYTES, Envelope, MessageType, Signable, SigningKey, sha256
from wire.errors import Code, WireError
from wire.roster import Member, Roster, open_from_party

HASH_BYTES = 32


MAX_SEALED_BYTES = 512
MOST_WITNESSES = 100
"""The most answers to challenges in one call."""
MAX_ENTRIES = (1 << 63) - 1
"""The largest integer of a database."""


@dataclass(frozen=True)
class LedgerHead(Wire[cohort_pb2.LedgerHead]):
    """A ledger's chain after `entries` entries."""

    entries: int
    digest: bytes
    """32 bytes."""
    sealed_sums: bytes
    """Readable to the party alone."""

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
    """A party will contribute `rows` rows. `mask_key`: an ephemeral X25519 public key."""

    KIND: ClassVar[MessageType] = MessageType.ACCEPTANCE
    rows: int
    mask_key: bytes
    roster_version: int
    """The newest that the party has."""
    ledger_head: LedgerHead | None = None
    """With this reservation, None in answer to a question."""
    share_key: bytes = b""
    """Another ephemeral X25519 public key, of a query whose members may vanish; otherwise empty."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share_key and (len(self.share_key) != KEY_BYTES or is_low_order(self.share_key)):
            raise WireError(Code.MESSAGE_MALFORMED, "A share key must have 32 bytes and be of high order.")
        if self.rows < 1 or len(self.mask_key) != KEY_BYTES or is_low_order(self.mask_key):
            raise WireError(
                Code.MESSAGE_MALFORMED, "An acceptance must have at least one row and a 32-byte key of high order."
            )


@dataclass(frozen=True)
class Refusal(_OnAttempt[cohort_pb2.Refusal]):
    """A party will not contribute. The reason is a code of the catalogue."""

    KIND: ClassVar[MessageType] = MessageType.REFUSAL
    code: Annotated[Code, Travels(unknown="The refusal's code is not in the catalogue.")]


@dataclass(frozen=True)
class Pending(_OnAttempt[cohort_pb2.Pending]):
    """A person at this party has to decide first. Not an answer: the party may still accept or refuse."""

    KIND: ClassVar[MessageType] = MessageType.PENDING


@dataclass(frozen=True)
class Ready(_OnAttempt[cohort_pb2.Ready]):
    """A party has spooled its contribution. sharing_digest: of what it dealt shares for, if members may vanish."""

    KIND: ClassVar[MessageType] = MessageType.READY
    sharing_digest: bytes = b""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.sharing_digest) not in (0, HASH_BYTES):
            raise WireError(Code.MESSAGE_MALFORMED, "A digest must have 32 bytes.")


@dataclass(frozen=True)
class KeyShares(_OnAttempt[cohort_pb2.KeyShares]):
    """What a party deals of its keys (dpcore.paillier.survivors), for each member of the sharing in order."""

    KIND: ClassVar[MessageType] = MessageType.KEY_SHARES
    sharing_digest: bytes
    self_commitment: bytes
    sealed: tuple[bytes, ...]
    self_shares: tuple[bytes, ...]
    key_shares: tuple[bytes, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        commitments = (self.self_shares, SHARE_COMMITMENT_BYTES), (self.key_shares, SHARE_COMMITMENT_BYTES)
        lists = ((self.sealed, SEALED_BYTES), *commitments)
        if (
            (len(self.sharing_digest), len(self.self_commitment)) != (HASH_BYTES, SELF_COMMITMENT_BYTES)
            or {len(entries) for entries, _ in lists} != {len(self.sealed)}
            or any(len(entry) != size for entries, size in lists for entry in entries)
        ):
            raise WireError(Code.MESSAGE_MALFORMED, "Shares of keys are not well formed.")


@dataclass(frozen=True)
class Unmasking(_OnAttempt[cohort_pb2.Unmasking]):
    """What a survivor reveals to the learner, for one set of survivors of one cohort."""

    KIND: ClassVar[MessageType] = MessageType.UNMASKING
    cohort_digest: bytes
    survivors_digest: bytes
    sealed: bytes


@dataclass(frozen=True)
class Receipt(_OnAttempt[cohort_pb2.Receipt]):
    """A party's statement of what it uploaded and for which cohort. ledger_head: with this charge."""

    KIND: ClassVar[MessageType] = MessageType.RECEIPT
    cohort_digest: bytes
    upload_digest: bytes
    chunks: int
    ciphertexts: int
    ledger_head: LedgerHead | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.cohort_digest) != HASH_BYTES or len(self.upload_digest) != HASH_BYTES:
            raise WireError(Code.MESSAGE_MALFORMED, "A digest must have 32 bytes.")


Statement = Acceptance | Refusal | Pending | Ready | KeyShares | Receipt | Unmasking


def sign(statement: Statement, signing_key: SigningKey) -> Envelope:
    """The signed envelope of a party's statement."""
    return signing_key.sign(statement.KIND, statement.to_bytes())


S = TypeVar("S", Acceptance, Refusal, Pending, Ready, KeyShares, Receipt, Unmasking)


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
    sharing_digest: bytes = b""
    """Of the sharing, if members may vanish: the `Cohort` of all that had accepted; otherwise empty."""

    def __post_init__(self) -> None:
        _check_attempt(self.query_id, self.attempt)
        if len(self.sharing_digest) not in (0, HASH_BYTES):
            raise WireError(Code.MESSAGE_MALFORMED, "A digest must have 32 bytes.")

    # Every receipt is compared with it, and it is as long as the cohort.
    @cached_property
    def digest(self) -> bytes:
        """SHA-256 that binds query, attempt, members, row counts and mask keys."""
        return sha256(
            b"rado.v1/cohort\0",
            self.query_id,
            self.attempt.to_bytes(4, "big"),
            len(self.acceptances).to_bytes(4, "big"),
            *(acceptance.payload_hash for acceptance in self.acceptances),
            self.sharing_digest,
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


def check_survivors_of(survivors: Sequence[str], members: Sequence[str], needed: int) -> None:
    """Refuse survivors that are not a part of a cohort, in its order, or too few. Raises WireError(QUERY_INVALID)."""
    among = set(survivors)
    if list(survivors) != [name for name in members if name in among]:
        raise WireError(Code.QUERY_INVALID, "The survivors are not members of the cohort, in its order.")
    if len(survivors) < needed:
        raise WireError(Code.QUERY_INVALID, f"There are {len(survivors)} survivors and {needed} are needed.")


def check_receipts(
    receipts: Sequence[Envelope],
    cohort: Cohort,
    roster: Roster,
    *,
    chunks: int,
    ciphertexts: int,
    survivors: Sequence[str] = (),
) -> tuple[Receipt, ...]:
    """Every cohort member's verified receipt, in order, for this cohort and of the planned size.

    survivors: the members whose receipts these are, if members may vanish. Raises WireError(RECEIPT_INVALID) if one is
    missing, for another cohort, or of another size.
    """
    if len(receipts) != len(survivors or cohort.acceptances):
        raise WireError(Code.RECEIPT_INVALID, "There is not one receipt for each member of the cohort.")
    opened = tuple(open_statement(Receipt, envelope, roster)[0] for envelope in receipts)
    members = list(survivors) or [a.party for a in cohort.open(roster)]
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


# Chunks of ciphertexts, and the digest of an upload.


CHUNK_BYTES = 512 * 1024


@dataclass(frozen=True)
class Chunk(Wire[ciphertext_pb2.Chunk]):
    """Consecutive fixed-width ciphertexts with their position. `content_hash` is verified at construction."""

    index: int
    ciphertexts: bytes
    content_hash: bytes

    def __post_init__(self) -> None:
        if len(self.ciphertexts) > CHUNK_BYTES:
            raise WireError(Code.MESSAGE_TOO_LARGE)
        if not self.ciphertexts or sha256(self.ciphertexts) != self.content_hash:
            raise WireError(Code.CHUNK_MALFORMED, f"The hash of chunk {self.index} does not match its content.")

    @classmethod
    def of(cls, index: int, ciphertexts: bytes) -> "Chunk":
        """A chunk of these bytes."""
        return cls(index, ciphertexts, sha256(ciphertexts))


def ciphertexts_per_chunk(ciphertext_bytes: int) -> int:
    """The number of whole ciphertexts that fit in a chunk, at least one."""
    return max(1, CHUNK_BYTES // ciphertext_bytes)


def chunk_ranges(ciphertexts: int, per_chunk: int) -> Iterator[range]:
    """The ciphertexts of each chunk, in order."""
    for start in range(0, ciphertexts, per_chunk):
        yield range(start, min(start + per_chunk, ciphertexts))


def upload_digest(chunk_hashes: Sequence[bytes]) -> bytes:
    """The digest in a receipt: SHA-256 of a domain, the number of chunks and every chunk's hash."""
    return sha256(b"rado.v1/upload\0", len(chunk_hashes).to_bytes(4, "big"), *chunk_hashes)


# Witnesses of a party's ledger: others keep the heads that they saw, and show them when the party asks.
#
# A party that was set back to an older copy of itself holds fewer ledger entries than its own signed statements show.
# If it went on, it may hold as many, but not the same. So others also show names of all that they saw, and the party
# asks for those that it does not know, one at a time: the challenge's nonce begins with the name.


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

    KIND: ClassVar[MessageType] = MessageType.CHALLENGE
    federation: str
    party: str
    nonce: bytes
    signed_at_unix_s: int

    def __post_init__(self) -> None:
        if len(self.nonce) != NONCE_BYTES:
            raise WireError(Code.MESSAGE_MALFORMED, "A challenge's nonce must have 32 bytes.")


@dataclass(frozen=True)
class Witness(Signable[cohort_pb2.Witness]):
    """A party's answer."""

    KIND: ClassVar[MessageType] = MessageType.WITNESS
    federation: str
    party: str
    subject: str
    nonce: bytes
    newest: Envelope | None
    """The subject's signed Acceptance that the challenge asks for, if the party has it, otherwise the one with the most
    ledger entries; None if it has none."""
    in_cohorts: tuple[bytes, ...] = ()
    """Names (`name_of`) of the subject's Acceptances in the answering party's cohorts, sorted, at most MOST_IN_COHORTS.
    """
    in_cohorts_from: int = 0
    """All of heads with at least so many entries are among them."""

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
    return challenge, _open(envelope, MessageType.CHALLENGE, challenge.federation, challenge.party, roster)


def open_witness(envelope: Envelope, roster: Roster) -> tuple[Witness, Member]:
    """The verified answer of a party of the roster, and the party. Raises WireError."""
    _check_size(envelope, WITNESS_BYTES)
    witness = Witness.from_bytes(envelope.payload)
    return witness, _open(envelope, MessageType.WITNESS, witness.federation, witness.party, roster)


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


def _open(envelope: Envelope, kind: MessageType, federation: str, party: str, roster: Roster) -> Member:
    if federation != roster.federation:
        raise WireError(Code.FEDERATION_MISMATCH)
    return open_from_party(envelope, kind, party, roster)
