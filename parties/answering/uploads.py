"""Uploads a contribution from its spool to the coordinator: verify the cohort, mask, charge, send.

Every step may be repeated or interrupted at any point: progress is in the ledger's file and in the spool.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.errors import RadofedError
from parties.answering.attempts import Attempt, Attempts, Heads
from parties.answering.contribution import masked_chunks, tag_coefficient
from parties.answering.coordinator_calls import CoordinatorCalls, StoppedError
from parties.answering.decisions import Party, verify_cohort
from parties.answering.spool import Spool, SpoolLostError, Spools
from parties.history.history import History, What
from parties.history.reading import scope_costs
from parties.ledger.head import SumsKey
from parties.members import Rosters
from radobase.logs import Log
from wire.envelopes import Envelope
from wire.errors import Code, WireError
from wire.query import OpenedQuery, Query
from wire.roster import Roster
from wire.statements import Acceptance, Cohort, LedgerHead, Receipt, sign


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
        self._coordinator, self._log, self._clock = coordinator, log, clock
        self._on_charged = on_charged
        # Chunks acknowledged since this process started: newer than the coordinator's list of held chunks.
        self._arrived: dict[tuple[bytes, int], set[int]] = {}

    def charged(self, opened: OpenedQuery, cohort: Cohort, held: Attempt, party: Party) -> Spool:
        """Mask and charge the contribution for a cohort. After the return its bytes may leave.

        Raises WireError for a cohort that this party must not upload for, MaskKeyError, SpoolLostError,
        SpoolUnreadableError, and what Attempts.charge raises.
        """
        if held.mask_key is None:
            # Charged before, and perhaps stopped before it was removed. Also if this cohort is refused below.
            self._spools.remove_bare(held.query_id, held.attempt)

        def verified(roster: Roster) -> tuple[Acceptance, ...]:
            return verify_cohort(cohort, opened, held.attempt, party, roster, held.answer)

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
            self._note_charge(held)
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

    def _note_charge(self, held: Attempt) -> None:
        """Note what the attempt cost and what remains. If that fails, the ledger still has the cost."""
        try:
            charge, state = self._attempts.cost(held), self._attempts.ledger_state()
            if charge is not None:
                scopes = scope_costs(charge, state)
                self._history.happened(held.query_id, held.attempt, What.CHARGED, self._clock(), scopes=scopes)
        except RadofedError as error:
            self._log.warning("history not written", query=held.query_id, attempt=held.attempt, reason=str(error))

    def _masked(
        self, opened: OpenedQuery, cohort: Cohort, acceptances: Sequence[Acceptance], held: Attempt, party: Party
    ) -> Spool:
        """The contribution with the masks of this cohort, verified. Made again on each call until it is charged."""
        spool = self._spools.open(held.query_id, held.attempt, masked=held.mask_key is None)
        if spool.digest != held.spool_digest:
            raise SpoolLostError(spool.path, "differs from what was spooled")
        if held.mask_key is None:
            spool.verify()
            return spool
        chunks = masked_chunks(
            opened,
            spool.values(),
            (spool.chunk(index).ciphertexts for index in range(len(spool.hashes))),
            own_name=party.name,
            own_key=X25519PrivateKey.from_private_bytes(held.mask_key),
            acceptances=acceptances,
            cohort_digest=cohort.digest,
            alpha=tag_coefficient(opened, held.attempt, party.name, party.signing_key),
        )
        width = opened.public_key.ciphertext_bytes
        needed_bytes = spool.ciphertexts * width
        return self._spools.write(held.query_id, held.attempt, chunks, needed_bytes=needed_bytes, width=width)

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
        self._send_chunks(held, spool, arrived | chunks_held, wanted)
        try:
            self._coordinator.receipt(signed)
        except WireError as error:
            if error.code is not Code.CHUNK_MISSING:
                raise
            # The coordinator lost some chunks. Sending the same bytes again is harmless.
            arrived.clear()
            self._send_chunks(held, spool, set(), wanted)
            self._coordinator.receipt(signed)

    def _send_chunks(self, held: Attempt, spool: Spool, there: AbstractSet[int], wanted: Callable[[], bool]) -> None:
        """Send every chunk that is not in `there`."""
        arrived = self._arrived.setdefault((held.query_id, held.attempt), set())
        for index in range(len(spool.hashes)):
            if index in there:
                continue
            if not wanted():
                raise StoppedError("the upload continues when it is wanted again")
            self._coordinator.upload_chunk(held.query_id, held.attempt, spool.chunk(index))
            arrived.add(index)

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
