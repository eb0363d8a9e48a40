"""What a coalition of learner, coordinator and one member can compute of what leaves the other parties, in every run.

The coalition has the Paillier key, all uploads, all pads of tags, and the masks that the others share with the member
that deviates. So it opens each upload, takes away what it knows, and must not find the party's own values: only the
masks between two honest members of one cohort protect them, which cancel in the total over all of them and nowhere
else. That holds if the members of a cohort signed what the party was shown, for this attempt, with keys that serve no
other, and if all tags use one coefficient: otherwise the total's tag tells more than the total.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from dpcore.paillier.masks import PRIME, CohortAttempt, cohort_mask, pad, polynomial, tag_mask
from dpcore.paillier.packing import pack
from dpcore.paillier.secret import SecretKey
from dpcore.paillier.survivors import self_mask, self_tag_mask, survivors_digest
from wire.envelopes import Envelope
from wire.query import OpenedQuery, Query
from wire.statements import Acceptance, Chunk, Cohort, KeyShares, Unmasking
from wire.status import Work

Attempt = tuple[bytes, int]
"""A query's id and the attempt's number."""


@dataclass
class ViolationError(Exception):
    """A promise that a run broke."""

    promise: str
    detail: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.detail}"


@dataclass(frozen=True)
class _Masked:
    """What a party masked, for which cohort as it was shown to it."""

    opened: OpenedQuery
    values: np.ndarray
    own_name: str
    own_key: X25519PrivateKey
    acceptances: Sequence[Acceptance]
    cohort_digest: bytes
    alpha: int
    self_seed: bytes | None = None
    """Of its own mask, if members may vanish. The coalition is taken to know it: it is revealed once a total opens."""


@dataclass
class Coalition:
    """What the parties accepted and masked, and the checks of what leaves. deviant: the member that deviates, if any.

    unequal: the parties for which a learner sealed another seed than the query commits to, by query. foreign: ids of
    queries that are not this federation's.
    """

    deviant: str = ""
    unequal: dict[bytes, frozenset[str]] = field(default_factory=dict)
    foreign: set[bytes] = field(default_factory=set)
    _mask_keys: dict[bytes, tuple[str, bytes, int]] = field(default_factory=dict)
    _share_keys: dict[bytes, tuple[str, bytes, int]] = field(default_factory=dict)
    _masked: dict[tuple[str, bytes, int], _Masked] = field(default_factory=dict)
    top_ups: dict[tuple[str, bytes, int], NDArray[np.int64]] = field(default_factory=dict)
    """What each party added last to its noise, by its name and attempt."""
    _coefficients: dict[Attempt, dict[int, str]] = field(default_factory=dict)

    def observed(self, real: Callable[..., Iterator[bytes]]) -> Callable[..., Iterator[bytes]]:
        """`masked_chunks`, which notes what it masks."""

        def masked(opened, values, chunks, *, own_name, own_key, acceptances, cohort_digest, alpha, **others):
            top_up = others.get("top_up")
            own = next(each for each in acceptances if each.party == own_name)
            whole = values.copy() if top_up is None else values + top_up
            self.top_ups[own_name, opened.query_id, own.attempt] = np.zeros_like(values) if top_up is None else top_up
            seed = others.get("self_seed")
            said = _Masked(opened, whole, own_name, own_key, acceptances, cohort_digest, alpha, seed)
            self._masked[own_name, opened.query_id, own.attempt] = said
            names = {"own_name": own_name, "own_key": own_key, "acceptances": acceptances}
            return real(opened, values, chunks, **names, cohort_digest=cohort_digest, alpha=alpha, **others)

        return masked

    def cohort_of(self, party: str, query_id: bytes, attempt: int) -> bytes:
        """The digest of the cohort for which a party masked last."""
        return self._masked[party, query_id, attempt].cohort_digest

    def was_with(self, party: str, other: str, query_id: bytes, attempt: int) -> bool:
        """Whether a party masked for a cohort with this other, as it was shown to it."""
        masked = self._masked.get((party, query_id, attempt))
        return masked is not None and any(said.party == other for said in masked.acceptances)

    def check_acceptance(self, said: Acceptance) -> None:
        """A party accepts a query of its federation, with keys of its own for this attempt."""
        if said.query_id in self.foreign:
            raise ViolationError("queries are this federation's", f"{said.party} accepts another federation's query")
        whose = (said.party, said.query_id, said.attempt)
        for keys, key, what in ((self._mask_keys, said.mask_key, "mask"), (self._share_keys, said.share_key, "share")):
            if key and keys.setdefault(key, whose) != whose:
                raise ViolationError(f"a {what} key serves one attempt", f"{whose} and {keys[key]}")

    def check_charges(self, party: str, is_charged: Callable[[bytes], bool]) -> None:
        """A query with another seed for a party than it commits to costs the party nothing."""
        for query_id, parties in self.unequal.items():
            if party in parties and is_charged(query_id):
                raise ViolationError("one coefficient for all", f"{party} paid for a query with another seed")

    def check_leaving(self, party: str, query_id: bytes, attempt: int, chunk: Chunk, secret: SecretKey) -> None:
        """What leaves a party protects it from the coalition."""
        if party == self.deviant:
            return
        masked = self._masked[party, query_id, attempt]
        strangers = [said.party for said in masked.acceptances if not self._is_genuine(said, query_id, attempt)]
        if others := [name for name in strangers if name != self.deviant]:
            raise ViolationError("members signed for the attempt", f"{party} sent with {others}, who did not")
        self._coefficients.setdefault((query_id, attempt), {}).setdefault(masked.alpha, party)
        if len(used := self._coefficients[query_id, attempt]) > 1:
            raise ViolationError("one coefficient for all", f"those of {' and '.join(used.values())} differ")
        known = {said.party: said.mask_key for said in masked.acceptances if said.party in strangers}
        self._check_hidden(masked, attempt, known, chunk, secret)

    def _is_genuine(self, said: Acceptance, query_id: bytes, attempt: int) -> bool:
        """Whether this member alone knows the private half of its mask key, and signed it for this attempt."""
        whose = self._mask_keys.get(said.mask_key)
        return said.party != self.deviant and whose == (said.party, query_id, attempt)

    def _check_hidden(
        self, masked: _Masked, attempt: int, known: Mapping[str, bytes], chunk: Chunk, secret: SecretKey
    ) -> None:
        """Without the masks that the coalition knows, neither the slots nor the tag are those of the values alone."""
        opened, key = masked.opened, secret.public_key
        *slots, tag = secret.decrypt_many(key.from_wire(chunk.ciphertexts))
        assert len(slots) == opened.value_ciphertexts, "a query of the simulation has one chunk"
        encoding = opened.query.encoding
        about = CohortAttempt(opened.query_id, attempt, masked.cohort_digest)
        shape = (len(slots), encoding.slots_per_ciphertext(key.bits))
        mask = cohort_mask(masked.own_name, masked.own_key, known, about, shape=shape, value_bits=encoding.value_bits)
        own = next(said for said in masked.acceptances if said.party == masked.own_name)
        if masked.self_seed is not None:
            mask += self_mask(masked.self_seed, own.party, about, shape=shape, value_bits=encoding.value_bits)
            mask &= np.uint64((1 << encoding.value_bits) - 1)
        alone = pack(masked.values, own.rows, encoding, key.bits, mask)
        of_tag = polynomial(masked.values, masked.alpha) + tag_mask(masked.own_name, masked.own_key, known, about)
        of_tag += 0 if masked.self_seed is None else self_tag_mask(masked.self_seed, own.party, about)
        of_tag += pad(masked.own_key, opened.query.binding.opening_key, masked.own_name, about)
        if any(int(a) == int(b) for a, b in zip(slots, alone, strict=True)) or (int(tag) - of_tag) % PRIME == 0:
            raise ViolationError("no contribution appears alone", f"{masked.own_name} sent its own to the coalition")


@dataclass
class Unmasked:
    """Whose masks come off, by what parties gave: for one sharing and one set of survivors each, and no one for two.

    deviant: the member that deviates, which gives all shares that it was dealt.
    """

    shown: dict[tuple[str, bytes, int], list[Work]] = field(default_factory=dict)
    _dealt: dict[tuple[str, bytes, int], tuple[bytes, bytes]] = field(default_factory=dict)
    _given: dict[tuple[str, bytes, int], bytes] = field(default_factory=dict)
    # (query, attempt, sharing) -> member -> the parties that gave their share of its seed, and of its mask key.
    _shares: dict[tuple[bytes, int, bytes], dict[str, tuple[set[str], set[str]]]] = field(default_factory=dict)

    def note_shown(self, party: str, shown: Sequence[Work]) -> None:
        for work in shown:
            if work.survivors:
                self.shown.setdefault((party, work.query_id, work.attempt), []).append(work)

    def check_dealt(self, party: str, key_shares: Envelope) -> None:
        """A party deals once for each attempt."""
        said = KeyShares.from_bytes(key_shares.payload)
        once = said.sharing_digest, key_shares.payload
        if self._dealt.setdefault((party, said.query_id, said.attempt), once) != once:
            raise ViolationError("keys are dealt once", f"{party} dealt twice in attempt {said.attempt}")

    def check_given(self, party: str, unmasking: Envelope, deviant: str) -> None:
        """A party unmasks one set of survivors, and with what others gave no two sets come off."""
        said = Unmasking.from_bytes(unmasking.payload)
        key = party, said.query_id, said.attempt
        if self._given.setdefault(key, unmasking.payload) != unmasking.payload:
            raise ViolationError("one set of survivors", f"{party} unmasked two in attempt {said.attempt}")
        work = next(work for work in self.shown[key] if self._is_about(work, said))
        assert work.cohort is not None, "survivors are shown with a cohort"
        assert work.sharing is not None, "survivors are shown with a sharing"
        about = said.query_id, said.attempt, work.cohort.sharing_digest
        for name in _members(work.cohort):
            seeds, keys = self._shares.setdefault(about, {}).setdefault(name, (set(), set()))
            (seeds if name in work.survivors else keys).add(party)
        sharers = _members(work.sharing)
        needed = Query.from_bytes(work.query.payload).threshold(len(sharers)) - (deviant in sharers)
        self._check_sums(about, _members(work.cohort), needed, deviant)

    @staticmethod
    def _is_about(work: Work, said: Unmasking) -> bool:
        about = CohortAttempt(said.query_id, said.attempt, said.cohort_digest)
        is_cohort = work.cohort is not None and work.cohort.digest == said.cohort_digest
        return is_cohort and survivors_digest(work.survivors, about) == said.survivors_digest

    def _check_sums(self, about: tuple[bytes, int, bytes], members: Sequence[str], needed: int, deviant: str) -> None:
        """needed: of honest members' shares. What comes off of a cohort is a sum over as many honest members."""
        shares = {name: each for name, each in self._shares[about].items() if name != deviant}
        seeds = {name for name, (given, _) in shares.items() if len(given - {deviant}) >= needed}
        keys = {name for name, (_, given) in shares.items() if len(given - {deviant}) >= needed}
        if seeds & keys:
            raise ViolationError("one set of survivors", f"all masks of {sorted(seeds & keys)} come off")
        honest = {name for name in members if name != deviant}
        if honest - keys <= seeds and len(honest - keys) < needed:
            raise ViolationError("no sum over few", f"the sum over {sorted(honest - keys)} can be opened")


def _members(cohort: Cohort) -> list[str]:
    return [Acceptance.from_bytes(envelope.payload).party for envelope in cohort.acceptances]
