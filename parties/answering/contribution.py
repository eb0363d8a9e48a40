"""A party's contribution: from its records to encrypted bytes, which it masks, charges and uploads.

Only `Uploads` has effects; the functions before it are pure: arrays in, bytes out.

    records -> those of the asked part -> integer vector (the query's kind) -> slots -> ciphertexts -> chunks -> masked

If the query has a binding, the last ciphertext carries the tag of the values (dpcore.paillier.masks). Before it is
masked it carries zero, because masking knows all that the tag is made of.

The packed integers are those that the query's kind computed, noise included. Nothing is rounded, clipped or added in
between, so that the decoded total equals the sum over all parties bit for bit (P6).
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from gmpy2 import mpz
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, RadofedError, ShapeError
from dpcore.numbers.processors import one_blas_thread
from dpcore.numbers.progress import Progress
from dpcore.paillier.mask_graph import MaskGraph
from dpcore.paillier.masks import PRIME, CohortAttempt, coefficient, cohort_mask, pad, polynomial, tag_mask
from dpcore.paillier.obfuscation import ObfuscatorPool
from dpcore.paillier.packing import mask_addends, pack
from dpcore.paillier.public import ObfuscatorSource, PublicKey
from dpcore.paillier.survivors import self_mask, self_tag_mask
from dpcore.randomness.sources import KEY_BYTES, KeyedRandom, RandomSource
from dpcore.records.computation import Computation
from dpcore.records.records import Records
from parties.answering.attempts import Attempt, Attempts, Heads
from parties.answering.coordinator_calls import CoordinatorCalls, StoppedError
from parties.answering.decisions import Party, verify_cohort
from parties.answering.spool import Spool, SpoolLostError, Spools
from parties.answering.vanishing import OwnKeys, check_shared
from parties.history.history import History, What
from parties.history.reading import scope_costs
from parties.ledger.head import SumsKey
from parties.members import Rosters
from radobase.logs import Log
from wire.envelopes import Envelope, SigningKey
from wire.errors import Code, WireError
from wire.query import OpenedQuery, Query
from wire.roster import Roster
from wire.statements import Acceptance, Cohort, LedgerHead, Receipt, chunk_ranges, sign
from wire.status import Work


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
    top_up: NDArray[np.int64] | None = None,
    self_seed: bytes | None = None,
) -> Iterator[bytes]:
    """The chunks with this member's masks multiplied in. Deterministic: the same arguments give the same bytes.

    values, chunks: of the bare contribution. acceptances: of all members, this one included, verified. alpha: from
    `tag_coefficient`. top_up: what the noise of this cohort needs beside that of the values; None for nothing.
    self_seed: of a mask of its own, if members may vanish. Raises MaskKeyError if a peer's key is of low order.
    """
    key, encoding = opened.public_key, opened.query.encoding
    own = next(acceptance for acceptance in acceptances if acceptance.party == own_name)
    graph = MaskGraph.of((a.party for a in acceptances), cohort_digest, opened.query.mask_neighbours)
    keys = {acceptance.party: acceptance.mask_key for acceptance in acceptances}
    peers = {name: keys[name] for name in graph.peers(own_name)}
    attempt = CohortAttempt(opened.query_id, own.attempt, cohort_digest)
    mask = cohort_mask(
        own_name,
        own_key,
        peers,
        attempt,
        shape=(opened.value_ciphertexts, encoding.slots_per_ciphertext(key.bits)),
        value_bits=encoding.value_bits,
    )
    own_tag_mask = 0
    if self_seed is not None:
        shape, bits = (mask.shape[0], mask.shape[1]), encoding.value_bits
        mask += self_mask(self_seed, own_name, attempt, shape=shape, value_bits=bits)
        own_tag_mask = self_tag_mask(self_seed, own_name, attempt)
    addends = mask_addends(values, own.rows, encoding, key.bits, mask, top_up)
    padded = polynomial(values if top_up is None else values + top_up, alpha) + pad(
        own_key, opened.query.binding.opening_key, own_name, attempt
    )
    addends.append(mpz((padded + own_tag_mask + tag_mask(own_name, own_key, peers, attempt)) % PRIME))
    done = 0
    for chunk in chunks:
        ciphertexts = key.from_wire(chunk)
        part = addends[done : done + len(ciphertexts)]
        yield key.to_wire(key.add_plaintexts(ciphertexts, part))
        done += len(ciphertexts)


def _top_up_source(mask_key: bytes, bare_digest: bytes, parties: int) -> RandomSource:
    """Where the top-up for a cohort of so many comes from. bare_digest: of the contribution without it."""
    info = b"rado.v1/top-up\0" + parties.to_bytes(4, "big")
    return KeyedRandom(HKDF(SHA256(), KEY_BYTES, bare_digest, info).derive(mask_key))


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

    own_base: whether they come from a base of the party's own also under a key with a subgroup. What is encrypted then
    rests on no assumption about the subgroup, and opens with the full exponent.

    Thread-safe. Raises SeededRandomRefusedError at the first use of any source except the system's.
    """

    def __init__(self, random: RandomSource, spare: int, *, idle_s: float = IDLE_S, own_base: bool = False) -> None:
        self._random, self._spare, self._idle_s, self._own_base = random, spare, idle_s, own_base
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
        key = self._used(key)
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

    def _used(self, key: PublicKey) -> PublicKey:
        return key.without_subgroup if self._own_base else key

    def _pool(self, key: PublicKey) -> ObfuscatorPool:
        key = self._used(key)
        with self._lock:
            pool = self._pools.pop(key, None) or ObfuscatorPool(key, self._random)
            self._pools[key] = pool
            oldest = next(iter(self._pools)) if len(self._pools) > MOST_KEYS else None
            forgotten = None if oldest is None else self._pools.pop(oldest)
        if forgotten is not None:
            # A contribution that is being encrypted from it continues without prepared obfuscators.
            forgotten.close()
        return pool


# Uploads a contribution from its spool to the coordinator: verify the cohort, mask, charge, send.
#
# Every step may be repeated or interrupted at any point: progress is in the ledger's file and in the spool.


def tidy(spools: Spools, attempts: Attempts) -> None:
    """Remove what no attempt needs, at start: of attempts that are over all, of charged ones what is not masked."""
    unfinished = attempts.unfinished()
    spools.keep_only((held.query_id, held.attempt) for held in unfinished)
    for held in unfinished:
        if held.mask_key is None:
            spools.remove_bare(held.query_id, held.attempt)


class Uploads:
    """Uploads spooled contributions. Call it from any thread, one at a time for each attempt."""

    def __init__(
        self,
        attempts: Attempts,
        spools: Spools,
        rosters: Rosters,
        history: History,
        coordinator: CoordinatorCalls,
        log: Log,
        clock: Callable[[], float],
        on_charged: Callable[[], None] = lambda: None,
    ) -> None:
        """clock: Unix seconds. on_charged: called after each charge."""
        self._attempts, self._spools, self._rosters, self._history = attempts, spools, rosters, history
        self._coordinator, self._log, self._clock, self._on_charged = coordinator, log, clock, on_charged
        # Chunks acknowledged since this process started: newer than the coordinator's list of held chunks.
        self._arrived: dict[tuple[bytes, int], set[int]] = {}
        self._unnoted: set[tuple[bytes, int]] = set()

    def charged(self, opened: OpenedQuery, work: Work, cohort: Cohort, held: Attempt, party: Party) -> Spool:
        """Mask and charge the contribution for the work's cohort. After the return its bytes may leave.

        Raises WireError for a cohort that this party must not upload for, MaskKeyError, SpoolLostError,
        SpoolUnreadableError, and what Attempts.charge raises.
        """
        if held.mask_key is None:
            # Charged before, and perhaps stopped before it was removed. Also if this cohort is refused below.
            self._spools.remove_bare(held.query_id, held.attempt)

        def verified(roster: Roster) -> tuple[Acceptance, ...]:
            acceptances = verify_cohort(cohort, opened, held.attempt, party, roster, held.answer)
            if opened.query.may_vanish:
                check_shared(work, opened, held, roster, self._attempts)
            elif cohort.sharing_digest:
                raise WireError(Code.QUERY_INVALID, "The cohort names a sharing, and no member may vanish.")
            return acceptances

        acceptances = self._rosters.checked(self._coordinator, verified)
        spool = self._masked(opened, cohort, acceptances, held, party)
        heads = _heads(opened.query, cohort, acceptances, held, spool, party)
        self._note_cohort(opened, cohort, acceptances, held)
        if self._attempts.charge(
            held, cohort_digest=cohort.digest, spool_digest=spool.digest, now_unix_s=self._clock(), heads=heads
        ):
            self._log.info(
                "charged",
                query=held.query_id,
                attempt=held.attempt,
                cohort=cohort.digest,
                parties=len(cohort.acceptances),
            )
            self._unnoted.add((held.query_id, held.attempt))
            self._on_charged()
        self._spools.remove_bare(held.query_id, held.attempt)
        return spool

    def _note_cohort(
        self, opened: OpenedQuery, cohort: Cohort, acceptances: Sequence[Acceptance], held: Attempt
    ) -> None:
        """Note, before the charge, with whom and what would leave. Raises HistoryBusyError: then nothing is charged."""
        self._history.happened(
            held.query_id,
            held.attempt,
            What.COHORT,
            self._clock(),
            cohort={acceptance.party: acceptance.rows for acceptance in acceptances},
            digest=cohort.digest.hex(),
            bytes=opened.ciphertexts * opened.public_key.ciphertext_bytes,
        )

    def note_charge(self, held: Attempt) -> None:
        """Note what an attempt cost that was just charged, and what remains; once.

        If that fails, or the process is killed before, the ledger still has the cost.
        """
        if (held.query_id, held.attempt) not in self._unnoted:
            return
        self._unnoted.discard((held.query_id, held.attempt))
        try:
            charge, state = self._attempts.cost(held), self._attempts.ledger_state()
            if charge is not None:
                scopes = scope_costs(charge, state)
                self._history.happened_late(held.query_id, held.attempt, What.CHARGED, self._clock(), scopes=scopes)
        except RadofedError as error:
            self._log.warning("history not written", query=held.query_id, attempt=held.attempt, reason=str(error))

    def _masked(
        self, opened: OpenedQuery, cohort: Cohort, acceptances: Sequence[Acceptance], held: Attempt, party: Party
    ) -> Spool:
        """The contribution with the masks of this cohort, verified. Made again on each call until it is charged.

        A top-up of the noise is for the verified cohort, so that the honest members' noise is what was charged.

        It derives from the mask key, which the charge destroys. Made again, also by a copy from before the charge, it
        is the same (docs/explanation/proofs.md, "Noise for the cohort that answers").
        """
        spool = self._spools.open(held.query_id, held.attempt, masked=held.mask_key is None)
        if spool.digest != held.spool_digest:
            raise SpoolLostError(spool.path, "differs from what was spooled")
        if held.mask_key is None:
            spool.verify()
            return spool
        query = opened.query
        chunks = masked_chunks(
            opened,
            spool.values(),
            (spool.chunk(index).ciphertexts for index in range(len(spool.hashes))),
            own_name=party.name,
            own_key=X25519PrivateKey.from_private_bytes(held.mask_key),
            acceptances=acceptances,
            cohort_digest=cohort.digest,
            alpha=tag_coefficient(opened, held.attempt, party.name, party.signing_key),
            top_up=query.kind.top_up(
                query.d, len(acceptances), _top_up_source(held.mask_key, spool.digest, len(acceptances))
            ),
            self_seed=self._self_seed(opened, held),
        )
        width = opened.public_key.ciphertext_bytes
        needed_bytes = spool.ciphertexts * width
        return self._spools.write(held.query_id, held.attempt, chunks, needed_bytes=needed_bytes, width=width)

    def _self_seed(self, opened: OpenedQuery, held: Attempt) -> bytes | None:
        """Of its own mask, if members may vanish."""
        if not opened.query.may_vanish:
            return None
        return OwnKeys(self._attempts.sharings.find(held.query_id, held.attempt).secret).seed

    def send(
        self,
        spool: Spool,
        cohort: Cohort,
        held: Attempt,
        party: Party,
        chunks_held: AbstractSet[int],
        wanted: Callable[[], bool],
    ) -> None:
        """Send the chunks that the coordinator does not have yet, and the receipt.

        chunks_held: chunks that the coordinator reports as held. wanted: whether to continue after a chunk. Raises
        StoppedError, SpoolLostError, SpoolUnreadableError, and what the calls raise.
        """
        # The bytes that were stored with the charge, because a receipt has one content.
        signed = self._attempts.receipt(held) or _receipt(cohort, held, spool, party)
        arrived = self._arrived.setdefault((held.query_id, held.attempt), set())
        try:
            self._send_all(held, spool, signed, arrived | chunks_held, wanted)
        except WireError as error:
            if error.code is not Code.CHUNK_MISSING:
                raise
            # The coordinator lost some chunks. Sending the same bytes again is harmless.
            arrived.clear()
            self._send_all(held, spool, signed, set(), wanted)

    def _send_all(
        self, held: Attempt, spool: Spool, receipt: Envelope, there: AbstractSet[int], wanted: Callable[[], bool]
    ) -> None:
        """Send every chunk that is not in `there`, the last one with the receipt."""
        arrived = self._arrived.setdefault((held.query_id, held.attempt), set())
        missing = [index for index in range(len(spool.hashes)) if index not in there]
        is_taken = False
        for index in missing:
            if not wanted():
                raise StoppedError("the upload continues when it is wanted again")
            with_it = receipt if index == missing[-1] else None
            is_taken = self._coordinator.upload_chunk(held.query_id, held.attempt, spool.chunk(index), with_it)
            arrived.add(index)
        if not is_taken:
            self._coordinator.receipt(receipt)

    def forget(self, held: Attempt) -> None:
        """Discard the state of an attempt that is over."""
        self._arrived.pop((held.query_id, held.attempt), None)


def _receipt(cohort: Cohort, held: Attempt, spool: Spool, party: Party, head: LedgerHead | None = None) -> Envelope:
    receipt = Receipt(
        held.query_id,
        held.attempt,
        party.name,
        cohort.digest,
        spool.digest,
        len(spool.hashes),
        spool.ciphertexts,
        head,
    )
    return sign(receipt, party.signing_key)


def _heads(
    query: Query, cohort: Cohort, acceptances: Sequence[Acceptance], held: Attempt, spool: Spool, party: Party
) -> Heads:
    """What the charge writes about ledger heads. acceptances: of the cohort's members, verified, in its order."""
    members = zip(acceptances, cohort.acceptances, strict=True)
    return Heads(
        lambda head: _receipt(cohort, held, spool, party, head),
        SumsKey(party.name, party.signing_key),
        tuple((acceptance, envelope) for acceptance, envelope in members if acceptance.party != party.name),
        query,
    )
