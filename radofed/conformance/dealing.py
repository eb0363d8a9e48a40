"""What a member of the kit keeps and deals in an attempt of which some members may vanish."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.paillier.masks import CohortAttempt
from dpcore.paillier.survivors import deal_keys
from dpcore.randomness.sources import SystemRandom
from wire.statements import KeyShares


@dataclass
class Member:
    """A member's three secrets of one attempt."""

    name: str
    mask_key: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)
    share_key: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)
    seed: bytes = field(default_factory=lambda: SystemRandom().bytes(32))

    @property
    def mask_public(self) -> bytes:
        """As its acceptance has it."""
        return self.mask_key.public_key().public_bytes_raw()

    @property
    def share_public(self) -> bytes:
        """As its acceptance has it."""
        return self.share_key.public_key().public_bytes_raw()

    def deal(self, members: Mapping[str, bytes], needed: int, about: CohortAttempt) -> KeyShares:
        """What it deals to the members of a sharing. members: share keys by name, in order. about: the sharing."""
        dealt = deal_keys(
            self.name,
            seed=self.seed,
            mask_key=self.mask_key.private_bytes_raw(),
            share_key=self.share_key,
            members=members,
            needed=needed,
            attempt=about,
            random=SystemRandom(),
        )
        lists = (dealt.sealed, dealt.self_shares, dealt.key_shares)
        return KeyShares(about.query_id, about.number, self.name, about.cohort_digest, dealt.self_commitment, *lists)
