"""What is left of the masks of a total whose members may vanish, from the shares that the survivors gave.

Every share is compared with the commitment that its dealer signed, and others are used in the place of one that does
not fit. Who gave it may have changed it, or who dealt it may have sealed another one for that member than it signed: no
one but these two sees which, so both are named.

What is recovered is compared with the dealer's signed commitment, or with its mask key, so shares of no one secret name
their dealer (dpcore.paillier.survivors).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from dpcore.errors import TotalError
from dpcore.paillier.masks import PRIME, CohortAttempt, MaskKeyError, cohort_mask, tag_mask
from dpcore.paillier.sharing import SHARE_BYTES, Recovery, SharesError
from dpcore.paillier.survivors import (
    SealError,
    Secret,
    open_unmasking,
    self_commitment,
    self_mask,
    self_tag_mask,
    share_commitment,
    survivors_digest,
)
from radobase.logs import Log
from radobase.printing import listed
from wire.binding import OpeningSecret
from wire.query import OpenedQuery
from wire.roster import Roster
from wire.statements import Acceptance, KeyShares, Unmasking, check_survivors_of, open_statement
from wire.status import Total

_NO_SHARE = b"\xff" * SHARE_BYTES


class UnmaskingError(TotalError):
    """What members gave does not open the total. members: who may be at fault, beside the coordinator."""

    def __init__(self, sentence: str, members: Sequence[str] = ()) -> None:
        self.members = tuple(members)
        super().__init__(f"{sentence}: discard the total, send the query again, and ask the operator why")


@dataclass(frozen=True)
class KeysOfTotal:
    """The statements about keys of a total, verified."""

    sharing: tuple[Acceptance, ...]
    """Of all that had accepted when parties began to prepare, in order."""
    sharing_digest: bytes
    survivors: tuple[str, ...]
    needed: int
    """How many shares give a secret back."""
    key_shares: Mapping[str, KeyShares]
    """Of every member of the cohort."""
    unmaskings: Mapping[str, Unmasking]
    """Of at least as many survivors as are needed."""


@dataclass(frozen=True)
class Remaining:
    """What is left of the masks in the sum over the survivors."""

    mask: NDArray[np.uint64]
    """(ciphertexts, slots)."""
    tag_mask: int


def verified_keys(
    total: Total, opened: OpenedQuery, roster: Roster, acceptances: Sequence[Acceptance], sharing: Sequence[Acceptance]
) -> KeysOfTotal:
    """Verify what a total says about keys. acceptances: of the cohort, sharing: of all that accepted, verified.

    Raises UnmaskingError if it is not of this total, WireError if a signature is invalid or survivors are too few.
    """
    cohort, about = total.cohort, (opened.query_id, total.cohort.attempt)
    assert total.sharing is not None, "the sharing was verified"
    digest, needed = total.sharing.digest, opened.query.threshold(len(sharing))
    if digest != cohort.sharing_digest or not set(cohort.acceptances) <= set(total.sharing.acceptances):
        raise UnmaskingError("the total's cohort is not of its sharing")
    if not all(each.share_key for each in sharing):
        raise UnmaskingError("a member of the total's sharing has no share key")
    members = [each.party for each in acceptances]
    check_survivors_of(total.survivors, members, needed)
    # Before any signature: a response has room for those of many more.
    if len(total.key_shares) != len(members) or len(total.unmaskings) > len(members):
        raise UnmaskingError(
            f"the total has {len(total.key_shares)} statements of shares and {len(total.unmaskings)} unmaskings of a "
            f"cohort of {len(members)}"
        )
    dealt = [open_statement(KeyShares, envelope, roster)[0] for envelope in total.key_shares]
    if [each.party for each in dealt] != members or any(
        ((each.query_id, each.attempt), each.sharing_digest, len(each.sealed)) != (about, digest, len(sharing))
        for each in dealt
    ):
        raise UnmaskingError("the total has not the shares that every member of its cohort dealt")
    bound_to = survivors_digest(total.survivors, _about(opened, cohort.attempt, cohort.digest))
    given = [open_statement(Unmasking, envelope, roster)[0] for envelope in total.unmaskings]
    unmaskings = {each.party: each for each in given}
    if len(unmaskings) < len(given) or not unmaskings.keys() <= set(total.survivors):
        raise UnmaskingError("the total has an unmasking twice, or one of a member that is no survivor")
    if any(
        ((each.query_id, each.attempt), each.cohort_digest, each.survivors_digest) != (about, cohort.digest, bound_to)
        for each in given
    ):
        raise UnmaskingError("the total has an unmasking for other survivors")
    if len(given) < needed:
        raise UnmaskingError(f"the total has {len(given)} unmaskings and needs {needed}")
    key_shares = {each.party: each for each in dealt}
    return KeysOfTotal(tuple(sharing), digest, total.survivors, needed, key_shares, unmaskings)


def remaining_masks(
    keys: KeysOfTotal,
    acceptances: Sequence[Acceptance],
    opened: OpenedQuery,
    opening: OpeningSecret,
    attempt: CohortAttempt,
) -> Remaining:
    """What is left of the masks. acceptances: of the cohort, in order. Logs members whose shares are bad.

    Raises UnmaskingError if they are so many that a secret cannot be recovered.
    """
    encoding, key = opened.query.encoding, opened.public_key
    shape, bits = (opened.value_ciphertexts, encoding.slots_per_ciphertext(key.bits)), encoding.value_bits
    secrets = _Shares(keys, acceptances, opening, attempt).secrets()
    public = {each.party: each.mask_key for each in acceptances if each.party in keys.survivors}
    left, tag = np.zeros(shape, dtype=np.uint64), 0
    for name, secret in secrets.items():
        if name in keys.survivors:
            left += self_mask(secret, name, attempt, shape=shape, value_bits=bits)
            tag += self_tag_mask(secret, name, attempt)
        else:
            # What the survivors' masks lack is what this member would have added.
            private = X25519PrivateKey.from_private_bytes(secret)
            left -= cohort_mask(name, private, public, attempt, shape=shape, value_bits=bits)
            tag -= tag_mask(name, private, public, attempt)
    return Remaining(left, tag % PRIME)


class _Shares:
    """The shares that survivors gave, of the secrets of the cohort's members."""

    def __init__(
        self, keys: KeysOfTotal, acceptances: Sequence[Acceptance], opening: OpeningSecret, attempt: CohortAttempt
    ) -> None:
        self._keys, self._acceptances = keys, acceptances
        self._dealt_for = CohortAttempt(attempt.query_id, attempt.number, keys.sharing_digest)
        self._places = {each.party: place for place, each in enumerate(keys.sharing, start=1)}
        self._bad: dict[str, None] = {}
        """What these sealed for the learner does not open."""
        self._unfit: dict[str, list[str]] = {}
        """By dealer, who gave a share that is not the one that the dealer signed."""
        self._given: dict[str, tuple[bytes, ...]] = {}
        for each in acceptances:
            if (said := keys.unmaskings.get(each.party)) is None:
                continue
            about = (each.party, each.share_key, opening.key, said.survivors_digest, attempt)
            try:
                self._given[each.party] = open_unmasking(said.sealed, len(acceptances), *about)
            except (SealError, MaskKeyError):
                self._bad[each.party] = None

    def secrets(self) -> dict[str, bytes]:
        """The seed of each survivor, and the mask key of each other member. Raises UnmaskingError."""
        found = {each.party: self._secret(at, each) for at, each in enumerate(self._acceptances)}
        if self._bad or self._unfit:
            # A retry would cost everybody a charge, and another share was there.
            Log("learner").warning("shares are bad", members=list(self._bad), given_by_dealer=self._unfit)
        return found

    def _secret(self, at: int, dealer: Acceptance) -> bytes:
        of = Secret.SELF_MASK if dealer.party in self._keys.survivors else Secret.MASK_KEY
        fitting = {
            self._places[name]: shares[at] for name, shares in self._given.items() if self._fits(name, shares, at, of)
        }
        if len(fitting) < self._keys.needed:
            raise self._too_few(len(fitting), dealer.party)
        used = dict(sorted(fitting.items())[: self._keys.needed])
        try:
            secret = Recovery(tuple(used)).secret(used)
        except SharesError:
            secret = b""
        if not self._is_secret(secret, of, dealer):
            raise UnmaskingError(f"what {dealer.party} dealt of its keys is no secret of its own", (dealer.party,))
        return secret

    def _too_few(self, good: int, dealer: str) -> UnmaskingError:
        givers = self._unfit.get(dealer, [])
        why = [f"those of {listed(list(self._bad))} are bad"] if self._bad else []
        if givers:
            faulty = dealer if givers == [dealer] else f"{dealer} or who gave them"
            why.append(f"those that {listed(givers)} gave are not what {dealer} signed, so {faulty} is at fault")
        because = f" ({'; '.join(why)})" if why else ""
        named = dict.fromkeys((*self._bad, *givers, *([dealer] if givers or not self._bad else ())))
        return UnmaskingError(
            f"{good} shares of {dealer}'s keys are good and {self._keys.needed} are needed{because}", tuple(named)
        )

    def _fits(self, name: str, shares: Sequence[bytes], at: int, of: Secret) -> bool:
        """Whether a member's share is the one that the dealer signed. One that it could not open says nothing of it."""
        dealt = self._keys.key_shares[self._acceptances[at].party]
        commitments = dealt.self_shares if of is Secret.SELF_MASK else dealt.key_shares
        if shares[at] == _NO_SHARE:
            return False
        found = share_commitment(shares[at], of, dealt.party, name, self._dealt_for)
        if found != commitments[self._places[name] - 1]:
            self._unfit.setdefault(dealt.party, []).append(name)
            return False
        return True

    def _is_secret(self, secret: bytes, of: Secret, dealer: Acceptance) -> bool:
        if not secret:
            return False
        if of is Secret.SELF_MASK:
            committed = self._keys.key_shares[dealer.party].self_commitment
            return self_commitment(secret, dealer.party, self._dealt_for) == committed
        return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw() == dealer.mask_key


def _about(opened: OpenedQuery, attempt: int, digest: bytes) -> CohortAttempt:
    return CohortAttempt(opened.query_id, attempt, digest)
