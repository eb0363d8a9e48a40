"""What a query costs whose members may vanish (dpcore.paillier.survivors): noise, calls and bytes, beforehand."""

from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.paillier.survivors import (
    MOST_SHARERS,
    SEALED_BYTES,
    SELF_COMMITMENT_BYTES,
    SHARE_COMMITMENT_BYTES,
    is_enough,
    unmasking_bytes,
)
from wire.envelopes import KEY_BYTES, MessageType, SigningKey
from wire.query import Query
from wire.statements import (
    HASH_BYTES,
    MAX_SEALED_BYTES,
    Acceptance,
    Cohort,
    KeyShares,
    LedgerHead,
    Ready,
    Unmasking,
    sign,
)
from wire.status import PartyState, Phase, Work

_FURTHER_CALLS = 2
"""Of a party: a poll shows it who survived, and it sends its unmasking. Shares of keys travel with other calls."""


def most_that_may_vanish(parties: int, colluders: int, cohort_min: int | None = None) -> int:
    """The most of so many parties that may vanish. cohort_min: None if it leaves room for them."""
    if parties > MOST_SHARERS:
        return 0

    def is_safe(count: int) -> bool:
        needed = parties - count if cohort_min is None else cohort_min
        return is_enough(needed + count, needed, colluders=colluders)

    return max(filter(is_safe, range(1, parties - (cohort_min or 2) + 1)), default=0)


@dataclass(frozen=True)
class Vanishing:
    """The cost of one attempt. Bytes are more than those of a query without, and the most: if all accept and answer."""

    may_vanish: int
    most_may_vanish: int
    """Of so many parties, beside so many that may collude, with any smallest cohort."""
    threshold: int
    """How many have to upload, and as many to unmask, if all accept."""
    cohort_min: int
    """The parties of the smallest cohort, whose noise the total has."""
    noise_factor: float | None
    """The standard deviation of the total's noise if all answer, over that of noise that follows the cohort; None if
    the total has no shares of noise."""
    further_calls_per_party: int
    further_bytes_sent_per_party: int
    further_bytes_received_per_party: int
    further_bytes_received_by_learner: int

    @classmethod
    def of(cls, query: Query) -> "Vanishing | None":
        """That of a query; None if none of its members may vanish."""
        if not query.may_vanish:
            return None
        names = tuple(name for name, _ in query.binding.sealed_seeds)
        parties = min(len(names), query.max_parties)
        colluders = query.cohort_min - query.honest_parties
        sizes = _Sizes.of(query, max(names, key=len), parties)
        return cls(
            may_vanish=query.may_vanish,
            most_may_vanish=most_that_may_vanish(parties, colluders),
            threshold=query.threshold(parties),
            cohort_min=query.cohort_min,
            noise_factor=None if query.kind.shares is None else sqrt((parties - colluders) / query.honest_parties),
            further_calls_per_party=_FURTHER_CALLS,
            further_bytes_sent_per_party=sizes.sent,
            further_bytes_received_per_party=sizes.received,
            further_bytes_received_by_learner=sizes.learner,
        )

    def sentences(self) -> list[str]:
        """The cost in words."""
        noise = (
            "No noise depends on how many answer."
            if self.noise_factor is None
            else f"The noise is always that of the smallest cohort, {self.cohort_min} parties: if all answer, its "
            f"standard deviation is {self.noise_factor:.3g} times that of noise that follows the cohort."
        )
        vanished = (
            f"If up to {self.may_vanish} of the parties that accept vanish before they have uploaded, the answer is of "
            "the others. One that vanishes late was charged, as each attempt is."
        )
        most = (
            f"At most {self.most_may_vanish} of so many parties may. If all accept, {self.threshold} of them have to "
            "upload, and as many to unmask: with fewer the attempt is lost."
        )
        further = (
            f"In an attempt each party makes {self.further_calls_per_party} calls more, sends up to "
            f"{self.further_bytes_sent_per_party:,} bytes more and gets up to "
            f"{self.further_bytes_received_per_party:,}; the learner gets up to "
            f"{self.further_bytes_received_by_learner:,} more."
        )
        return [vanished, most, noise, further]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _Sizes:
    """Bytes of messages, of made-up statements as long as real ones may be."""

    sent: int
    received: int
    learner: int

    @classmethod
    def of(cls, query: Query, name: str, parties: int) -> "_Sizes":
        """name: the longest. A party is shown who accepted, then also who is ready, and then who survived."""
        digest, about = bytes(HASH_BYTES), (bytes(HASH_BYTES), 1, name)
        public = X25519PrivateKey.generate().public_key().public_bytes_raw()
        head, key = LedgerHead(1, digest, bytes(MAX_SEALED_BYTES)), SigningKey.generate(query.federation)
        asked = key.sign(MessageType.QUERY, query.to_bytes())
        accepted = sign(Acceptance(*about, 1 << 40, public, 1 << 20, head, public), key)
        commitments = (bytes(SHARE_COMMITMENT_BYTES),) * parties
        sealed = (bytes(SEALED_BYTES),) * parties
        dealt = sign(KeyShares(*about, digest, bytes(SELF_COMMITMENT_BYTES), sealed, commitments, commitments), key)
        given = sign(Unmasking(*about, digest, digest, bytes(unmasking_bytes(parties))), key)
        ready = sign(Ready(*about, digest), key)
        everyone = (accepted,) * parties
        sharing, cohort = Cohort(*about[:2], everyone), Cohort(*about[:2], everyone, digest)
        survivors = (name,) * parties
        shown = Work(
            asked, 1, Phase.UNMASKING, PartyState.UPLOADED, cohort, frozenset(), None, sharing, (), survivors, sealed
        )
        received = _size(shown) + 2 * _size(sharing) + parties * (_size(ready) + HASH_BYTES)
        sent = KEY_BYTES + HASH_BYTES + _size(dealt) + _size(given)
        learner = _size(sharing) + parties * (_size(dealt) + _size(given) + len(name))
        return cls(sent, received, learner)


def _size(message: Any) -> int:
    """Of a message within another: with its field's number and its length."""
    return 4 + int(message.to_proto().ByteSize())
