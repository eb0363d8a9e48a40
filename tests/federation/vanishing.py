"""A total in memory of a query whose members may vanish: what each states, sends and reveals, valid and forged."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.paillier.masks import CohortAttempt
from dpcore.paillier.public import multiply
from dpcore.paillier.survivors import Secret, deal_keys, open_share, seal_unmasking, survivors_digest
from dpcore.randomness.sources import SystemRandom
from learner.decryption import open_total
from parties.answering.contribution import encrypted_chunks, masked_chunks, tag_coefficient
from tests.federation.learner import World, obfuscator
from wire.envelopes import sha256
from wire.query import OpenedQuery
from wire.statements import Acceptance, Cohort, KeyShares, Receipt, Unmasking, sign, upload_digest
from wire.status import Total


class VanishingTotal:
    """All of `world` accept and deal; `members` form the cohort, and the survivors upload. A test changes a part.

    Call `make` after a change of an earlier part than what it returns depends on.
    """

    def __init__(
        self, world: World, opened: OpenedQuery, survivors: Sequence[str], members: Sequence[str] = ()
    ) -> None:
        self.world, self.opened, self.survivors = world, opened, tuple(survivors)
        self.names = tuple(world.rows)
        self.members = tuple(members) or self.names
        draw = SystemRandom()
        self.mask_keys = {name: X25519PrivateKey.generate() for name in self.names}
        self.share_keys = {name: X25519PrivateKey.generate() for name in self.names}
        self.seeds = {name: draw.bytes(32) for name in self.names}
        said = [
            Acceptance(
                opened.query_id,
                1,
                name,
                world.rows[name],
                self.mask_keys[name].public_key().public_bytes_raw(),
                1,
                share_key=self.share_keys[name].public_key().public_bytes_raw(),
            )
            for name in self.names
        ]
        self.acceptances = {each.party: each for each in said}
        signed = {each.party: sign(each, world.party_keys[each.party]) for each in said}
        self.sharing = Cohort(opened.query_id, 1, tuple(signed[name] for name in self.names))
        self.cohort = Cohort(opened.query_id, 1, tuple(signed[name] for name in self.members), self.sharing.digest)
        self.key_shares = {name: self.dealt(name) for name in self.members}
        self.values = {
            name: np.random.RandomState(at).randint(-9, 9, opened.query.length).astype(np.int64)
            for at, name in enumerate(self.names)
        }

    @property
    def about(self) -> CohortAttempt:
        return CohortAttempt(self.opened.query_id, 1, self.cohort.digest)

    @property
    def dealt_for(self) -> CohortAttempt:
        return CohortAttempt(self.opened.query_id, 1, self.sharing.digest)

    def dealt(self, name: str, *, seed: bytes | None = None, mask_key: bytes | None = None) -> KeyShares:
        """What a member deals. seed, mask_key: if it deals others than its own."""
        dealt = deal_keys(
            name,
            seed=seed or self.seeds[name],
            mask_key=mask_key or self.mask_keys[name].private_bytes_raw(),
            share_key=self.share_keys[name],
            members={each: said.share_key for each, said in self.acceptances.items()},
            needed=self.opened.query.threshold(len(self.names)),
            attempt=self.dealt_for,
            random=SystemRandom(),
        )
        lists = (dealt.sealed, dealt.self_shares, dealt.key_shares)
        return KeyShares(self.opened.query_id, 1, name, self.sharing.digest, dealt.self_commitment, *lists)

    def shares(self, name: str) -> list[bytes | None]:
        """What an honest survivor reveals."""
        place = self.names.index(name)
        return [
            open_share(
                self.key_shares[dealer].sealed[place],
                Secret.SELF_MASK if dealer in self.survivors else Secret.MASK_KEY,
                dealer,
                self.acceptances[dealer].share_key,
                name,
                self.share_keys[name],
                self.dealt_for,
            )
            for dealer in self.members
        ]

    def unmasking(self, name: str, shares: Sequence[bytes | None] | None = None, **changes) -> Unmasking:
        digest = survivors_digest(self.survivors, self.about)
        shares = self.shares(name) if shares is None else shares
        key = self.opened.query.binding.opening_key
        sealed = seal_unmasking(shares, name, self.share_keys[name], key, digest, self.about, SystemRandom())
        return replace(Unmasking(self.opened.query_id, 1, name, self.cohort.digest, digest, sealed), **changes)

    def uploads(self) -> dict[str, list[bytes]]:
        source, found = obfuscator(self.opened), {}
        for name in self.survivors:
            values, rows = self.values[name], self.world.rows[name]
            found[name] = list(
                masked_chunks(
                    self.opened,
                    values,
                    encrypted_chunks(self.opened, values, rows, source),
                    own_name=name,
                    own_key=self.mask_keys[name],
                    acceptances=[self.acceptances[each] for each in self.members],
                    cohort_digest=self.cohort.digest,
                    alpha=tag_coefficient(self.opened, 1, name, self.world.party_keys[name]),
                    self_seed=self.seeds[name],
                )
            )
        return found

    def make(self, change: Callable[[Total], Total] = lambda total: total, unmaskings=None):
        """The opened total. change: of its header. unmaskings: in place of those of all survivors."""
        uploads = self.uploads()
        keys = self.world.party_keys
        receipts = self.receipts = tuple(
            sign(
                Receipt(
                    self.opened.query_id,
                    1,
                    name,
                    self.cohort.digest,
                    upload_digest([sha256(chunk) for chunk in chunks]),
                    len(chunks),
                    self.opened.ciphertexts,
                ),
                keys[name],
            )
            for name, chunks in uploads.items()
        )
        given = [self.unmasking(name) for name in self.survivors] if unmaskings is None else unmaskings
        total = Total(
            self.cohort,
            receipts,
            self.opened.chunks,
            self.opened.ciphertexts,
            self.sharing,
            self.survivors,
            tuple(sign(self.key_shares[name], keys[name]) for name in self.members),
            tuple(sign(each, keys[each.party]) for each in given),
        )
        products = [multiply(self.opened.public_key, each) for each in zip(*uploads.values(), strict=True)]
        opening = self.world.openings[self.opened.query_id]
        return open_total(
            change(total), products, self.opened, self.world.roster, self.world.key.secret, opening=opening
        )
