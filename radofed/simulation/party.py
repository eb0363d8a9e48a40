"""The computation of simulated parties, several in one process, with the code of `parties.answering.contribution`.

A `Host` is plain Python; radofed.simulation.workers makes a Ray actor of it. Its draws depend only on the seed, the
fold, the party, the purpose and, if estimators query, the question, so neither the number of hosts nor encryption
changes a number. The randomness of encryption and masks comes from the operating system, and cancels.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.packing import to_residues
from dpcore.queries.rados import RadosQuery
from dpcore.randomness.sources import SeededRandom, SystemRandom
from dpcore.records.computation import SECRET_BYTES, Computation, PartySecret
from dpcore.records.held_back import RowKey, RowNumbers
from dpcore.records.records import Records
from parties.answering.contribution import encrypted_chunks, integer_vector, masked_chunks, tag_coefficient
from radofed.simulation.exact_split import divided_contribution
from wire.cohort import Acceptance, Receipt, sign
from wire.envelopes import Envelope, SigningKey, sha256
from wire.query import OpenedQuery
from wire.upload import upload_digest

FEDERATION = "simulation"
ATTEMPT = 1
"""The only attempt: a simulation loses no party."""


@dataclass(frozen=True, eq=False)
class Ask:
    """One query of a fold."""

    fold: int
    opened: OpenedQuery
    divided: RadosQuery | None
    """What parties compute if a coordinator divides the draw; None if they compute the query's kind."""
    question: str = ""
    """The label of an estimator's query; "" for the design's query, the only one of its fold."""


@dataclass(frozen=True, eq=False)
class Share:
    """One party's part of a fold."""

    party: str
    rows: NDArray[np.int64]
    """Indices into the table."""
    counts: NDArray[np.int64] | None = None
    """(n,), of a divided draw, or None."""


@dataclass(frozen=True, eq=False)
class Upload:
    """The upload of one party: its masked chunks, in order, and its signed receipt."""

    chunks: tuple[bytes, ...]
    receipt: Envelope


def seeded(seed: int, fold: int, who: str, purpose: str, question: str = "") -> SeededRandom:
    """The random source of one party (or the coordinator) for one fold, purpose and question."""
    place = f"{purpose}/{question}" if question else purpose
    return SeededRandom(f"radofed/simulation/{seed}/{fold}/{who}/{place}".encode())


class Host:
    """Some parties of a simulation. features, labels, usable: the whole table's `Records` arrays, not copied.

    key_seed: 32 bytes from the operating system, for one simulation, from which all parties' keys derive. So a lost
    host can be made again, as the same parties.
    """

    def __init__(
        self,
        features: NDArray[np.int32],
        labels: NDArray[np.int8],
        usable: NDArray[np.bool_],
        seed: int,
        parties: Sequence[str],
        key_seed: bytes,
    ) -> None:
        self._features, self._labels, self._usable, self._seed = features, labels, usable, seed
        self._key_seed = key_seed
        self._keys = {
            party: SigningKey(Ed25519PrivateKey.from_private_bytes(self._key(b"sign", party)), FEDERATION)
            for party in parties
        }
        self._obfuscator: Obfuscator | None = None

    def signing_keys(self) -> dict[str, bytes]:
        """The public half of each party's key, for the roster."""
        return {party: key.public_bytes for party, key in self._keys.items()}

    def residues(self, ask: Ask, shares: Sequence[Share]) -> NDArray[np.uint64]:
        """The sum of the shares' travel forms mod 2^64, a multiple of 2^w: uint64 (length,)."""
        encoding = ask.opened.query.encoding
        total = np.zeros(ask.opened.query.length, dtype=np.uint64)
        for share in shares:
            total += to_residues(self._values(ask, share), encoding)
        return total

    def acceptances(self, ask: Ask, shares: Sequence[Share]) -> list[Envelope]:
        """Each party's signed acceptance, with the query's mask key."""
        query_id = ask.opened.query_id
        said = [
            Acceptance(
                query_id,
                ATTEMPT,
                share.party,
                len(share.rows),
                self._mask_key(query_id, share.party).public_key().public_bytes_raw(),
                ask.opened.query.roster_version,
            )
            for share in shares
        ]
        return [sign(acceptance, self._keys[acceptance.party]) for acceptance in said]

    def upload(self, ask: Ask, share: Share, acceptances: Sequence[Acceptance], cohort_digest: bytes) -> Upload:
        """One party's encrypted and masked contribution."""
        opened = ask.opened
        if self._obfuscator is None or self._obfuscator.public_key != opened.public_key:
            # Shared by all parties of this host: its table takes a third of a second and 27 MB.
            self._obfuscator = Obfuscator(opened.public_key, SystemRandom())
        values = self._values(ask, share)
        alpha = tag_coefficient(opened, ATTEMPT, share.party, self._keys[share.party])
        bare = encrypted_chunks(opened, values, len(share.rows), self._obfuscator)
        masked = masked_chunks(
            opened,
            values,
            bare,
            own_name=share.party,
            own_key=self._mask_key(opened.query_id, share.party),
            acceptances=acceptances,
            cohort_digest=cohort_digest,
            alpha=alpha,
        )
        chunks = tuple(masked)
        digest = upload_digest([sha256(chunk) for chunk in chunks])
        receipt = Receipt(opened.query_id, ATTEMPT, share.party, cohort_digest, digest, len(chunks), opened.ciphertexts)
        return Upload(chunks, sign(receipt, self._keys[share.party]))

    def _mask_key(self, query_id: bytes, party: str) -> X25519PrivateKey:
        """The party's mask key, fresh for each query."""
        return X25519PrivateKey.from_private_bytes(self._key(b"mask" + query_id, party))

    def _key(self, purpose: bytes, party: str) -> bytes:
        return hmac.digest(self._key_seed, purpose + b"\0" + party.encode(), "sha256")

    def _values(self, ask: Ask, share: Share) -> NDArray[np.int64]:
        records = Records(self._features[share.rows], self._labels[share.rows], self._usable[share.rows])
        random = seeded(self._seed, ask.fold, share.party, "contribution", ask.question)
        query = ask.opened.query
        # A party keeps one secret for the life of its data, over all queries.
        secret = SeededRandom(f"radofed/simulation/{self._seed}/{share.party}/secret".encode()).bytes(SECRET_BYTES)
        numbers = RowNumbers(RowKey(secret, query.federation, share.party, "simulation"))
        computation = Computation(random, PartySecret(secret, query.schema.digest), numbers=numbers)
        if share.counts is None:
            return integer_vector(ask.opened, records, computation)
        assert ask.divided is not None, "counts are of a draw that is divided"
        return divided_contribution(
            ask.divided, query.seen(records), query.encoding.fraction_bits, share.counts, computation
        )
