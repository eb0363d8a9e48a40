"""What a party keeps and does so that a total can be opened although others vanish (dpcore.paillier.survivors).

Kept with the attempt, in the ledger's file, from the acceptance until the attempt is over: the secret that the seed of
its own mask and its share key derive from, and its mask key, which the charge destroys elsewhere. A copy of the file
that a backup makes has none of it.

For each attempt it deals for one sharing, and unmasks one set of survivors, for ever: both are on disk, with the bytes
that are sent, before these are sent. Whoever gave the shares for two sets would open what no set alone opens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpcore.paillier.masks import CohortAttempt, MaskKeyError
from dpcore.paillier.survivors import (
    SealError,
    Secret,
    deal_keys,
    open_share,
    seal_unmasking,
    survivors_digest,
)
from dpcore.randomness.sources import KEY_BYTES, RandomSource
from parties.answering.attempts import Attempt, Attempts
from parties.answering.decisions import Party, verify_cohort
from parties.policy import check_survivors
from wire.envelopes import Envelope
from wire.errors import Code, WireError
from wire.query import OpenedQuery
from wire.roster import Roster
from wire.statements import (
    Acceptance,
    Cohort,
    KeyShares,
    Ready,
    Receipt,
    Unmasking,
    check_survivors_of,
    open_statement,
    sign,
)
from wire.status import Work

SECRET_BYTES = KEY_BYTES


@dataclass(frozen=True)
class OwnKeys:
    """What this party derives from the secret of one attempt."""

    secret: bytes = field(repr=False)

    @property
    def share_key(self) -> X25519PrivateKey:
        """What shares are sealed with and for."""
        return X25519PrivateKey.from_private_bytes(self._derived(b"rado.v1/own-share-key\0"))

    @property
    def seed(self) -> bytes:
        """Of its own mask."""
        return self._derived(b"rado.v1/own-self-mask\0")

    def _derived(self, info: bytes) -> bytes:
        return HKDF(SHA256(), KEY_BYTES, None, info).derive(self.secret)


def verify_sharing(
    sharing: Cohort, opened: OpenedQuery, attempt: int, party: Party, roster: Roster, own_acceptance: Envelope
) -> tuple[Acceptance, ...]:
    """Verify all that accepted, as a cohort, and return their acceptances.

    Raises WireError(QUERY_INVALID), and what `verify_cohort` and `check_survivors` raise.
    """
    acceptances = verify_cohort(sharing, opened, attempt, party, roster, own_acceptance)
    if sharing.sharing_digest:
        raise WireError(Code.QUERY_INVALID, "The sharing names a sharing, as a cohort does.")
    if without := next((each.party for each in acceptances if not each.share_key), None):
        raise WireError(Code.QUERY_INVALID, f"{without} accepted without a share key.")
    members = tuple(acceptance.party for acceptance in acceptances)
    check_survivors(party.policy, roster, party.name, members, opened.query)
    return acceptances


def deal(
    work: Work,
    opened: OpenedQuery,
    held: Attempt,
    party: Party,
    roster: Roster,
    attempts: Attempts,
    random: RandomSource,
) -> tuple[Envelope, Envelope]:
    """The signed Ready and KeyShares of an attempt that is ready. The same bytes each time.

    Raises what `verify_sharing` raises, MaskKeyError, and LedgerConflictError for another sharing than before.
    """
    sharing = work.sharing
    assert sharing is not None, "the work shows all that accepted"
    acceptances = verify_sharing(sharing, opened, held.attempt, party, roster, held.answer)
    kept = attempts.sharings.find(held.query_id, held.attempt)
    own = OwnKeys(kept.secret)

    def signed() -> Envelope:
        dealt = deal_keys(
            party.name,
            seed=own.seed,
            mask_key=kept.mask_key,
            share_key=own.share_key,
            members={acceptance.party: acceptance.share_key for acceptance in acceptances},
            needed=opened.query.threshold(len(acceptances)),
            attempt=_about(opened, held, sharing.digest),
            random=random,
        )
        lists = (dealt.sealed, dealt.self_shares, dealt.key_shares)
        said = KeyShares(held.query_id, held.attempt, party.name, sharing.digest, dealt.self_commitment, *lists)
        return sign(said, party.signing_key)

    key_shares = attempts.sharings.dealt(held.query_id, held.attempt, sharing.digest, signed)
    return sign(Ready(held.query_id, held.attempt, party.name, sharing.digest), party.signing_key), key_shares


def check_shared(work: Work, opened: OpenedQuery, held: Attempt, roster: Roster, attempts: Attempts) -> None:
    """Refuse a cohort, which is verified otherwise, unless all its members dealt for this party's own sharing.

    Raises WireError(QUERY_INVALID), and what `open_statement` raises.
    """
    cohort, sharing = work.cohort, work.sharing
    assert cohort is not None, "the work shows a cohort"
    dealt_for = attempts.sharings.find(held.query_id, held.attempt).sharing_digest
    if sharing is None or {sharing.digest, cohort.sharing_digest} != {dealt_for}:
        raise WireError(Code.QUERY_INVALID, "The cohort is not of the sharing that this party dealt for.")
    if not set(cohort.acceptances) <= set(sharing.acceptances):
        raise WireError(Code.QUERY_INVALID, "The cohort has a member that did not take part in the sharing.")
    needed = opened.query.threshold(len(sharing.acceptances))
    if len(cohort.acceptances) < needed:
        raise WireError(Code.QUERY_INVALID, f"The cohort has {len(cohort.acceptances)} members and needs {needed}.")
    members = [Acceptance.from_bytes(envelope.payload).party for envelope in cohort.acceptances]
    if len(work.ready) != len(members):  # before any signature: a response has room for those of many more
        raise WireError(Code.QUERY_INVALID, f"Of {len(members)} members {len(work.ready)} say that they are ready.")
    ready = [open_statement(Ready, envelope, roster)[0] for envelope in work.ready]
    expected = [(held.query_id, held.attempt, name, dealt_for) for name in members]
    # A member that dealt for another sharing could be left out by members that this party never heard of.
    if [(said.query_id, said.attempt, said.party, said.sharing_digest) for said in ready] != expected:
        raise WireError(Code.QUERY_INVALID, "Not every member of the cohort dealt for this party's sharing.")


def unmask(
    work: Work, opened: OpenedQuery, held: Attempt, party: Party, attempts: Attempts, random: RandomSource
) -> Envelope | None:
    """This party's Unmasking of a charged attempt, signed; None if it is not among the survivors. The same each time.

    The cohort and the sharing are those that were verified before the charge, by their digests. A share that does not
    open is left out. Raises WireError(QUERY_INVALID), and LedgerConflictError for other survivors than before.
    """
    cohort, sharing = work.cohort, work.sharing
    kept, receipt = attempts.sharings.find(held.query_id, held.attempt), attempts.receipt(held)
    charged_for = None if receipt is None else Receipt.from_bytes(receipt.payload).cohort_digest
    if cohort is None or sharing is None or charged_for != cohort.digest:
        raise WireError(Code.QUERY_INVALID, "The cohort is not the one that this party uploaded for.")
    if kept.sharing_digest != sharing.digest:
        raise WireError(Code.QUERY_INVALID, "The sharing is not the one that this party dealt for.")
    if party.name not in work.survivors:
        return None
    members = [Acceptance.from_bytes(envelope.payload) for envelope in cohort.acceptances]
    needed = opened.query.threshold(len(sharing.acceptances))
    check_survivors_of(work.survivors, [member.party for member in members], needed)
    if len(work.sealed_shares) != len(members):
        raise WireError(Code.QUERY_INVALID, "There is not one sealed share of each member of the cohort.")
    about, own = _about(opened, held, cohort.digest), OwnKeys(kept.secret)
    digest = survivors_digest(work.survivors, about)

    def signed() -> Envelope:
        dealt_for = _about(opened, held, sharing.digest)
        shares = _shares(work, members, party.name, own.share_key, dealt_for)
        opening_key = opened.query.binding.opening_key
        sealed = seal_unmasking(shares, party.name, own.share_key, opening_key, digest, about, random)
        said = Unmasking(held.query_id, held.attempt, party.name, cohort.digest, digest, sealed)
        return sign(said, party.signing_key)

    return attempts.sharings.unmasked(held.query_id, held.attempt, digest, signed)


def _shares(
    work: Work, members: Sequence[Acceptance], name: str, share_key: X25519PrivateKey, dealt_for: CohortAttempt
) -> list[bytes | None]:
    """Of each survivor the share of its seed, of others that of their mask keys; None for what does not open."""
    found: list[bytes | None] = []
    for member, sealed in zip(members, work.sealed_shares, strict=True):
        of = Secret.SELF_MASK if member.party in work.survivors else Secret.MASK_KEY
        try:
            found.append(open_share(sealed, of, member.party, member.share_key, name, share_key, dealt_for))
        except (SealError, MaskKeyError):
            found.append(None)
    return found


def _about(opened: OpenedQuery, held: Attempt, digest: bytes) -> CohortAttempt:
    return CohortAttempt(opened.query_id, held.attempt, digest)
