"""A party's contribution: from its records to encrypted bytes. Pure: arrays in, bytes out.

    records -> those of the asked part -> integer vector (the query's kind) -> slots -> ciphertexts -> chunks -> masked

If the query has a binding, the last ciphertext carries the tag of the values (dpcore.paillier.masks). Before it is
masked it carries zero, because masking knows all that the tag is made of.

The packed integers are those that the query's kind computed, noise included. Nothing is rounded, clipped or added in
between, so that the decoded total equals the sum over all parties bit for bit (P6).
"""

import threading
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from gmpy2 import mpz
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.numbers.processors import Progress, one_blas_thread
from dpcore.paillier.masks import PRIME, CohortAttempt, coefficient, cohort_mask, pad, polynomial, tag_mask
from dpcore.paillier.obfuscation import ObfuscatorPool
from dpcore.paillier.packing import mask_addends, pack
from dpcore.paillier.public import ObfuscatorSource, PublicKey
from dpcore.randomness.sources import RandomSource
from dpcore.records.computation import Computation
from dpcore.records.records import Records
from wire.cohort import Acceptance
from wire.envelopes import SigningKey
from wire.query import OpenedQuery
from wire.upload import chunk_ranges


@one_blas_thread()
def integer_vector(opened: OpenedQuery, records: Records, computation: Computation) -> NDArray[np.int64]:
    """This party's part of the sum with its share of the noise, int64 (length,), in the units of the query's kind.

    records: all of the party's rows. If the query is about a part of them, the others contribute zero; noise, row count
    and charge are those of a query about all rows (dpcore.records.held_back).

    BLAS runs with one thread during the call, in the whole process.

    Raises ShapeError if the records and the query's schema have different numbers of coordinates, ConfigurationError if
    the rows of a part are asked for and have no numbers, and what the query's kind raises.
    """
    query = opened.query
    if records.d != query.schema.d:
        raise ShapeError(
            f"records of {records.d} coordinates for a schema of {query.schema.d}: load them with this schema"
        )
    if query.held_back is not None:
        if computation.numbers is None:
            raise ConfigurationError("the rows have no numbers, so no part of them can be told: give the party's")
        records = computation.numbers.part_of(records, query.held_back)
    values = query.kind.contribution(query.seen(records), query.encoding.fraction_bits, computation)
    if values.shape != (query.length,):
        raise ShapeError(f"a contribution of shape {values.shape}, but the query requires {query.length} values")
    return values


def encrypted_chunks(
    opened: OpenedQuery,
    values: NDArray[np.int64],
    rows: int,
    obfuscator: ObfuscatorSource,
    progress: Progress | None = None,
) -> Iterator[bytes]:
    """The chunks of an upload in order, each a run of fixed-width ciphertexts.

    values: (length,) from integer_vector. rows: m_p, for the check slots. obfuscator: for the query's key.
    progress: callback (ciphertexts done, ciphertexts) after each chunk. Raises what pack and encrypt_many raise.
    """
    key = opened.public_key
    plaintexts = pack(values, rows, opened.query.encoding, key.bits)
    plaintexts.append(mpz(0))
    for run in chunk_ranges(len(plaintexts), opened.ciphertexts_per_chunk):
        yield key.to_wire(key.encrypt_many(plaintexts[run.start : run.stop], obfuscator))
        if progress is not None:
            progress(run.stop, len(plaintexts))


def tag_coefficient(opened: OpenedQuery, attempt: int, party: str, signing_key: SigningKey) -> int:
    """The coefficient of an attempt's tag.

    party, signing_key: of this party. Raises WireError(QUERY_INVALID) if the query has no seed for it.
    """
    seed = opened.query.binding.unseal(party, signing_key, opened.query.nonce)
    return coefficient(seed, query_id=opened.query_id, attempt=attempt)


def masked_chunks(
    opened: OpenedQuery,
    values: NDArray[np.int64],
    chunks: Iterable[bytes],
    *,
    own_name: str,
    own_key: X25519PrivateKey,
    acceptances: Sequence[Acceptance],
    cohort_digest: bytes,
    alpha: int,
) -> Iterator[bytes]:
    """The chunks with this member's masks multiplied in. Deterministic: the same cohort gives the same bytes.

    values, chunks: of the bare contribution. acceptances: of all members, this one included, verified. alpha: from
    `tag_coefficient`. Raises MaskKeyError if a peer's key is of low order.
    """
    key, encoding = opened.public_key, opened.query.encoding
    own = next(acceptance for acceptance in acceptances if acceptance.party == own_name)
    peers = {acceptance.party: acceptance.mask_key for acceptance in acceptances if acceptance.party != own_name}
    attempt = CohortAttempt(opened.query_id, own.attempt, cohort_digest)
    mask = cohort_mask(
        own_name,
        own_key,
        peers,
        attempt,
        shape=(opened.value_ciphertexts, encoding.slots_per_ciphertext(key.bits)),
        value_bits=encoding.value_bits,
    )
    addends = mask_addends(values, own.rows, encoding, key.bits, mask)
    padded = polynomial(values, alpha) + pad(own_key, opened.query.binding.opening_key, own_name, attempt)
    addends.append(mpz((padded + tag_mask(own_name, own_key, peers, attempt)) % PRIME))
    done = 0
    for chunk in chunks:
        ciphertexts = key.from_wire(chunk)
        part = addends[done : done + len(ciphertexts)]
        yield key.to_wire(key.add_plaintexts(ciphertexts, part))
        done += len(ciphertexts)


# Obfuscators prepared before a contribution is encrypted: while its rados are summed, and while the party is idle.
#
# They are kept in memory only, for the last two Paillier keys in use. dpcore.paillier.obfuscation states their cost
# and why no obfuscator is used twice.


# One learner often sends several queries in a row; two learners may alternate.
MOST_KEYS = 2
# A party makes spare ones after this idle time: right after a query, other processes on its machine may still work on
# that query, and the next query may arrive soon.
IDLE_S = 30.0


class Obfuscators:
    """One pool per key. spare: number to prepare for the key used last, after `idle_s` idle seconds.

    Thread-safe. Raises SeededRandomRefusedError at the first use of any source except the system's.
    """

    def __init__(self, random: RandomSource, spare: int, *, idle_s: float = IDLE_S) -> None:
        self._random, self._spare, self._idle_s = random, spare, idle_s
        self._until_spare: threading.Timer | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        # In order of last use.
        self._pools: dict[PublicKey, ObfuscatorPool] = {}

    def expect(self, key: PublicKey, count: int) -> None:
        """Start making `count` obfuscators for an accepted query under this key."""
        self._stop_waiting()
        self._pool(key).prepare(count)

    def source(self, key: PublicKey) -> ObfuscatorSource:
        """Source of obfuscators for a query under this key; prepared ones come first."""
        return self._pool(key)

    def rest(self, key: PublicKey) -> None:
        """Call after encrypting under this key: makes spare obfuscators for the next query once the party is idle."""
        self._pool(key).keep(0)
        with self._lock:
            self._stop_waiting_locked()
            if self._spare and not self._is_closed:
                timer = threading.Timer(self._idle_s, lambda: self._make_spare(key, timer))
                self._until_spare = timer
                timer.daemon = True
                timer.start()

    def close(self) -> None:
        """Discard all obfuscators and stop the threads."""
        with self._lock:
            self._is_closed = True
            self._stop_waiting_locked()
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.close()

    def _make_spare(self, key: PublicKey, timer: threading.Timer) -> None:
        with self._lock:
            # A timer that was already firing when a query arrived or this object closed is ignored.
            if self._until_spare is timer and key in self._pools:
                self._pools[key].keep(self._spare)

    def _stop_waiting(self) -> None:
        with self._lock:
            self._stop_waiting_locked()

    def _stop_waiting_locked(self) -> None:
        if self._until_spare is not None:
            self._until_spare.cancel()
            self._until_spare = None

    def _pool(self, key: PublicKey) -> ObfuscatorPool:
        with self._lock:
            pool = self._pools.pop(key, None) or ObfuscatorPool(key, self._random)
            self._pools[key] = pool
            oldest = next(iter(self._pools)) if len(self._pools) > MOST_KEYS else None
            forgotten = None if oldest is None else self._pools.pop(oldest)
        if forgotten is not None:
            # A contribution that is being encrypted from it continues without prepared obfuscators.
            forgotten.close()
        return pool
