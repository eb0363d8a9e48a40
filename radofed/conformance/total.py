"""A total as the kit makes it for a learner's query, and what a hostile coordinator or member could make of it."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcore.paillier.public import multiply
from dpcore.randomness.sources import SystemRandom
from parties.answering.contribution import Obfuscators, encrypted_chunks, masked_chunks, tag_coefficient
from radofed.conformance.dealing import Member
from radofed.conformance.kit import Kit
from wire.envelopes import Envelope, MessageType, SigningKey
from wire.query import OpenedQuery
from wire.statements import Acceptance, Chunk, Cohort, Receipt, sign
from wire.statements import upload_digest as digest_of_upload
from wire.status import Total

ROWS = 100
"""That each party of the kit states."""
_LARGEST = 1000
"""Of the made-up sums, in magnitude."""


@dataclass
class MadeTotal:
    """A total of some of the kit's parties for one attempt, whose sums the kit knows."""

    kit: Kit
    opened: OpenedQuery
    members: tuple[str, ...]
    attempt: int = 1
    acceptance_fields: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the acceptances of some members state otherwise."""
    uploads: dict[str, list[bytes]] = field(default_factory=dict)
    """Masked chunks, by member."""
    values: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The sum over all members."""
    acceptances: dict[str, Envelope] = field(default_factory=dict)
    people: dict[str, Member] = field(default_factory=dict)
    """The members' keys."""

    @property
    def cohort(self) -> Cohort:
        """Its cohort."""
        return Cohort(self.opened.query_id, self.attempt, tuple(self.acceptances[name] for name in self.members))

    def make(self) -> "MadeTotal":
        """Let every member accept, compute and mask."""
        self.people = {name: Member(name) for name in self.members}
        self.acceptances = {name: self._accepted(name) for name in self.members}
        said = tuple(Acceptance.from_bytes(each.payload) for each in self.cohort.acceptances)
        draw = np.random.default_rng()
        self.values = np.zeros(self.opened.query.length, dtype=np.int64)
        pool = Obfuscators(SystemRandom(), 0)
        for name, member in self.people.items():
            own = draw.integers(-_LARGEST, _LARGEST, self.opened.query.length, endpoint=True)
            self.values += own if self.counts(name) else 0
            rows = next(each.rows for each in said if each.party == name)
            bare = encrypted_chunks(self.opened, own, rows, pool.source(self.opened.public_key))
            masked = masked_chunks(
                self.opened,
                own,
                bare,
                own_name=name,
                own_key=member.mask_key,
                acceptances=said,
                cohort_digest=self.cohort.digest,
                alpha=tag_coefficient(self.opened, self.attempt, name, self.kit.signing_key(name)),
                self_seed=self.seed_of(member),
            )
            self.uploads[name] = list(masked)
        pool.close()
        return self

    def counts(self, _: str) -> bool:
        """Whether a member's values are in the total."""
        return True

    def seed_of(self, _: Member) -> bytes | None:
        """Of the mask of a member's own; None without one."""
        return None

    @property
    def keys(self) -> dict[str, Any]:
        """What the total says of keys, if members may vanish."""
        return {}

    def _accepted(self, name: str) -> Envelope:
        mask_key, version = self.people[name].mask_public, self.kit.roster.version
        said = Acceptance(self.opened.query_id, self.attempt, name, ROWS, mask_key, version)
        return sign(replace(said, **self.acceptance_fields.get(name, {})), self.kit.signing_key(name))

    @property
    def receipts(self) -> list[Envelope]:
        """Of every member, in order."""
        return [self.receipt(name) for name in self.members]

    def receipt(self, name: str, **changes: Any) -> Envelope:
        """A member's receipt, with fields changed."""
        digest = digest_of_upload([Chunk.of(index, part).content_hash for index, part in enumerate(self.uploads[name])])
        sizes = (self.opened.chunks, self.opened.ciphertexts)
        said = Receipt(self.opened.query_id, self.attempt, name, self.cohort.digest, digest, *sizes)
        return sign(replace(said, **changes), self.kit.signing_key(name))

    def product(self, members: Sequence[str] | None = None) -> list[bytes]:
        """The chunks of the product of these members' uploads, of all by default."""
        names = self.members if members is None else members
        return [
            multiply(self.opened.public_key, [self.uploads[name][index] for name in names])
            for index in range(self.opened.chunks)
        ]


@dataclass
class Shown:
    """What a coordinator shows of a total."""

    total: Total
    chunks: list[Chunk]

    @classmethod
    def of(cls, made: MadeTotal) -> "Shown":
        """As it is."""
        sizes = (made.opened.chunks, made.opened.ciphertexts)
        total = Total(made.cohort, tuple(made.receipts), *sizes, **made.keys)
        return cls(total, [Chunk.of(index, part) for index, part in enumerate(made.product())])


class BadTotal(NamedTuple):
    """A total that a learner must not open."""

    section: str
    what: str
    show: Callable[[MadeTotal], Shown]
    fields: dict[str, Any] = {}  # noqa: RUF012  (never changed)
    """What the first member's acceptance states otherwise."""


def bad_totals() -> list[BadTotal]:
    """All of them."""
    return [*_of_signatures(), *_of_cohorts(), *_of_ciphertexts()]


def _with_receipts(change: Callable[[MadeTotal, list[Envelope]], list[Envelope]]) -> Callable[[MadeTotal], Shown]:
    def show(made: MadeTotal) -> Shown:
        good = Shown.of(made)
        return replace(good, total=replace(good.total, receipts=tuple(change(made, [*good.total.receipts]))))

    return show


def _with_acceptance(change: Callable[[MadeTotal, Envelope], Envelope]) -> Callable[[MadeTotal], Shown]:
    """The first member's acceptance is another, in a cohort whose receipts are made for it."""

    def show(made: MadeTotal) -> Shown:
        first = made.members[0]
        made.acceptances[first] = change(made, made.acceptances[first])
        return Shown.of(made)

    return show


def _of_signatures() -> list[BadTotal]:
    def forged(_: MadeTotal, good: Envelope) -> Envelope:
        return replace(good, signature=os.urandom(64))

    def by_another(made: MadeTotal, good: Envelope) -> Envelope:
        return made.kit.signing_key(made.members[1]).sign(MessageType.ACCEPTANCE, good.payload)

    def by_nobody(made: MadeTotal, good: Envelope) -> Envelope:
        return SigningKey.generate(made.kit.roster.federation).sign(MessageType.ACCEPTANCE, good.payload)

    def forged_receipt(_: MadeTotal, good: list[Envelope]) -> list[Envelope]:
        return [replace(good[0], signature=os.urandom(64)), *good[1:]]

    def other_cohort(made: MadeTotal, good: list[Envelope]) -> list[Envelope]:
        return [made.receipt(made.members[0], cohort_digest=os.urandom(32)), *good[1:]]

    return [
        BadTotal("8.2", "a forged acceptance", _with_acceptance(forged)),
        BadTotal("8.2", "an acceptance that another party signed", _with_acceptance(by_another)),
        BadTotal("8.2", "an acceptance by a key of a swapped roster", _with_acceptance(by_nobody)),
        BadTotal("8.2", "a forged receipt", _with_receipts(forged_receipt)),
        BadTotal("8.2", "a receipt for another cohort", _with_receipts(other_cohort)),
        BadTotal("8.2", "receipts in another order than the cohort", _with_receipts(lambda _, good: good[::-1])),
        BadTotal("8.2", "a receipt too few", _with_receipts(lambda _, good: good[1:])),
    ]


def _of_cohorts() -> list[BadTotal]:
    def too_few(made: MadeTotal) -> Shown:
        smaller = MadeTotal(made.kit, made.opened, made.members[: made.opened.query.cohort_min - 1])
        return Shown.of(smaller.make())

    def twice(made: MadeTotal) -> Shown:
        good = Shown.of(made)
        doubled = replace(made.cohort, acceptances=(*made.cohort.acceptances, made.cohort.acceptances[0]))
        return replace(
            good, total=replace(good.total, cohort=doubled, receipts=(*good.total.receipts, good.total.receipts[0]))
        )

    def other_query(made: MadeTotal) -> Shown:
        good = Shown.of(made)
        return replace(good, total=replace(good.total, cohort=replace(made.cohort, query_id=os.urandom(32))))

    def beyond(made: MadeTotal) -> Shown:
        attempt = made.opened.query.max_attempts + 1
        return Shown.of(MadeTotal(made.kit, made.opened, made.members, attempt).make())

    def sized(made: MadeTotal) -> Shown:
        good = Shown.of(made)
        return replace(good, total=replace(good.total, ciphertexts=made.opened.ciphertexts + 1))

    return [
        BadTotal("8.2", "fewer members than cohort_min", too_few),
        BadTotal("8.2", "a member twice", twice),
        BadTotal("8.2", "the id of another query", other_query),
        BadTotal("8.2", "an attempt beyond max_attempts", beyond),
        BadTotal("8.2", "another number of ciphertexts than the query has", sized),
        BadTotal("3", "a member whose roster is newer than can be fetched", Shown.of, {"roster_version": 1000}),
    ]


def _of_ciphertexts() -> list[BadTotal]:
    def changed(place: int, change: Callable[[MadeTotal, int], int]) -> Callable[[MadeTotal], Shown]:
        """One ciphertext, counted from the first or the last, is another number."""

        def show(made: MadeTotal) -> Shown:
            width, whole = made.opened.public_key.ciphertext_bytes, b"".join(made.product())
            at = place % made.opened.ciphertexts * width
            number = change(made, int.from_bytes(whole[at : at + width], "big"))
            whole = whole[:at] + number.to_bytes(width, "big") + whole[at + width :]
            size = made.opened.ciphertexts_per_chunk * width
            parts = [whole[start : start + size] for start in range(0, len(whole), size)]
            return replace(Shown.of(made), chunks=[Chunk.of(index, part) for index, part in enumerate(parts)])

        return show

    def plus(slot: int) -> Callable[[MadeTotal, int], int]:
        """A known number added in a slot, as anybody who knows n can."""

        def add(made: MadeTotal, ciphertext: int) -> int:
            n = made.opened.public_key.n
            return ciphertext * (1 + (n << made.opened.query.encoding.slot_bits * slot)) % (n * n)

        return add

    def without_one(made: MadeTotal) -> Shown:
        parts = made.product(made.members[1:])
        return replace(Shown.of(made), chunks=[Chunk.of(index, part) for index, part in enumerate(parts)])

    def with_one_twice(made: MadeTotal) -> Shown:
        parts = made.product([*made.members, made.members[0]])
        return replace(Shown.of(made), chunks=[Chunk.of(index, part) for index, part in enumerate(parts)])

    def hashed(made: MadeTotal) -> Shown:
        good = Shown.of(made)
        wrong = Chunk.of(0, good.chunks[0].ciphertexts)
        object.__setattr__(wrong, "content_hash", os.urandom(32))  # a chunk that exists has its own hash
        return replace(good, chunks=[wrong, *good.chunks[1:]])

    def short(made: MadeTotal) -> Shown:
        good = Shown.of(made)
        last = good.chunks[-1]
        cut = last.ciphertexts[: -made.opened.public_key.ciphertext_bytes] or last.ciphertexts[:-1]
        return replace(good, chunks=[*good.chunks[:-1], Chunk.of(last.index, cut)])

    return [
        BadTotal("8.3", "a number added to a value", changed(0, plus(1))),
        BadTotal("8.3", "a number added to a check slot", changed(0, plus(0))),
        BadTotal("8.3", "a number added to the tag", changed(-1, plus(0))),
        BadTotal("8.3", "a product without one member's upload", without_one),
        BadTotal("8.3", "a product with one member's upload twice", with_one_twice),
        BadTotal("8.3", "a ciphertext that is 0", changed(0, lambda *_: 0)),
        BadTotal("8.3", "a ciphertext beyond n^2", changed(0, lambda made, _: made.opened.public_key.n_squared + 1)),
        BadTotal("8.3", "a chunk with another hash than its content", hashed),
        BadTotal("8.3", "a chunk that is too short", short),
    ]
