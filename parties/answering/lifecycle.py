"""The life of a query at the party: each call compares the coordinator's work with the state on disk, and continues.

Every step may be repeated or interrupted at any point: progress is in the ledger's file and in the spool.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.errors import RadofedError
from dpcore.paillier.masks import MaskKeyError
from dpcore.randomness.sources import RandomSource, require_system
from dpcore.records.computation import Computation
from parties.answering.attempts import Attempt, Attempts, AttemptState
from parties.answering.contribution import Obfuscators, Uploads, encrypted_chunks, integer_vector
from parties.answering.coordinator_calls import CoordinatorCalls, StoppedError, as_refusal, may_pass, named
from parties.answering.decisions import Party, SentRefusals, Withdrawals, check_signed, check_unchanged, decide
from parties.answering.spool import Spool, SpoolLostError, Spools
from parties.answering.vanishing import SECRET_BYTES, OwnKeys, deal, unmask
from parties.approval.decision_files import DecisionFiles
from parties.approval.gate import Gate, Pass
from parties.approval.notifying import Notice, ProposalNotice
from parties.database import LedgerBusyError
from parties.history.database import HistoryBusyError, HistoryFileError
from parties.history.history import History, What, facts_of
from parties.ledger.approvals import NotCoveredError
from parties.ledger.charges import Charge
from parties.ledger.head import SumsKey
from parties.ledger.ledger import LedgerConflictError
from parties.ledger.row_epochs import EpochRows
from parties.members import Rosters
from parties.policy import Policy
from radobase.logs import Log
from wire.envelopes import Envelope
from wire.errors import CATALOGUE, Code, ConnectionLostError, TimedOutError, WireError
from wire.query import OpenedQuery, Query, check_time, open_query
from wire.roster import Roster
from wire.statements import Acceptance, Cohort, Pending, Ready, Refusal, sign
from wire.status import PartyState, Phase, Work

_BEFORE_COHORT = (Phase.ANSWERING, Phase.PREPARING)


class QueryLifecycle:
    """Advances queries. `advance` is quick except for uploads; `compute` is long. Both may run in any thread.

    Call it with one thread at a time for each query, and `compute` with one thread in total.
    """

    def __init__(
        self,
        party: Party,
        *,
        attempts: Attempts,
        spools: Spools,
        rosters: Rosters,
        history: History,
        coordinator: CoordinatorCalls,
        random: RandomSource,
        log: Log,
        obfuscators: Obfuscators | None = None,
        clock: Callable[[], float] = time.time,
        may_answer: Callable[[], bool] = lambda: True,
        is_held: Callable[[], bool] = lambda: False,
        on_charged: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
        on_conflict: Callable[[], None] = lambda: None,
        on_worked: Callable[[float], None] = lambda _: None,
        on_waits: Callable[[Notice | ProposalNotice], None] = lambda _: None,
        decision_files: DecisionFiles | None = None,
    ) -> None:
        """clock: Unix seconds. may_answer: whether the ledger may be used (parties.answering.witnesses).

        is_held: whether a person has to check the rows before anything is accepted or charged (parties.data.row_guard).
        on_charged, on_lost: called after each charge, and after each charged attempt that ended without a total.
        on_conflict: called if another answer of this party was there before its first one to an attempt.

        on_worked: called with the processor time, in seconds, of each decision and of each refused cohort. on_waits:
        with each query that begins to wait for people.
        decision_files: where other users decide; None if only this process's user does. Raises SeededRandomRefusedError
        for any source except the system's.
        """
        require_system(random)
        self._party, self._changing = party, threading.Lock()
        self._attempts, self._spools, self._rosters, self._history = attempts, spools, rosters, history
        self._coordinator, self._random, self._log, self._clock = coordinator, random, log, clock
        self._may_answer, self._is_held, self._on_lost, self._on_worked = may_answer, is_held, on_lost, on_worked
        self._on_conflict = on_conflict
        self._obfuscators = obfuscators or Obfuscators(random, spare=0)
        self._uploads = Uploads(attempts, spools, rosters, history, coordinator, log, clock, on_charged)
        held, approvals = attempts.held_beside, attempts.approvals
        self.gate = Gate(history, attempts.charges_of, clock, approvals, decision_files, held, on_waits)
        # The work for which the acceptance, or that the contribution is ready, was sent.
        self._delivered: dict[tuple[bytes, int], Work] = {}
        self._announced: dict[tuple[bytes, int], Work] = {}
        self._withdrawals = Withdrawals(party.name)
        self._sent_refusals = SentRefusals()
        # Data that are loaded again are for later queries: a contribution is computed from the rows of its acceptance.
        self._accepted_with: dict[tuple[bytes, int], Party] = {}

    @property
    def policy(self) -> Policy:
        """The policy that answers follow."""
        return self._party.policy

    def follow(self, policy: Policy) -> None:
        """Apply another policy to all later answers, charges and uploads."""
        with self._changing:
            self._party = replace(self._party, policy=policy)

    @property
    def party(self) -> Party:
        """The party as it answers now."""
        return self._party

    def follow_data(self, party: Party) -> None:
        """Answer later queries from another party's schema, rows, numbers and secret. Accepted ones keep their rows."""
        with self._changing:
            self._party = replace(party, policy=self._party.policy)

    def advance(self, work: Work, wanted: Callable[[], bool] = lambda: True) -> bool:
        """Advance a query as far as possible without computing. Returns whether to compute a contribution next.

        wanted: whether to continue after the current chunk of an upload. Raises StoppedError, and for the caller to
        retry: temporary errors of calls, LedgerBusyError and SpoolUnreadableError.
        """
        self._check_may_answer()
        with self._counted():
            present = self._attempt(work)
        return present is not None and self._continue(work, present, wanted)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Report the processor time of what is inside: a coordinator sets how often it is done."""
        begun_s = time.thread_time()
        try:
            yield
        finally:
            self._on_worked(time.thread_time() - begun_s)

    def _attempt(self, work: Work) -> Attempt | None:
        """The attempt to continue. Ends what the work shows as over, and answers if this party has not answered."""
        known = self._attempts.of_query(work.query_id)
        if any(held.attempt > work.attempt for held in known):
            return None
        self._end_former(work, known)
        if work.phase.ends_attempt or work.phase is Phase.ADDING:
            self.gate.gone(work.query_id, work.attempt)
            return None
        present = next((held for held in known if held.attempt == work.attempt), None)
        if present is None and work.phase is not Phase.ANSWERING:
            self.gate.gone(work.query_id, work.attempt)
        return present or self._answer(work)

    def _end_former(self, work: Work, known: Iterable[Attempt]) -> None:
        """End what ended at the coordinator."""
        for held in known:
            if held.attempt < work.attempt or work.phase.ends_attempt:
                is_lost = held.attempt < work.attempt or work.phase is not Phase.COMPLETE
                reason = f"the attempt ended ({work.phase.name.lower()} at attempt {work.attempt})"
                self._end(held, reason, is_lost=is_lost and held.state.is_charged)
                self._delivered.pop((held.query_id, held.attempt), None)
                self._withdrawals.forget(held.query_id, held.attempt)

    def _continue(self, work: Work, present: Attempt, wanted: Callable[[], bool]) -> bool:
        """Advance the present attempt, as `advance` does."""
        if present.state in (AttemptState.ACCEPTED, AttemptState.READY) and self._is_held():
            # The others need not wait for it. A charged one is of rows that were accepted then: it goes on.
            self._withdraw(work, present, WireError(Code.ROWS_NOT_ACCEPTED), "the rows have to be checked")
            present = self._attempts.find(work.query_id, work.attempt) or present
        if present.state.is_over or self._withdrawals.has(work.query_id, work.attempt):
            self._give_up(work, present)
            return False
        if not self._deliver(work, present):
            return False
        if work.phase is Phase.UPLOADING:
            self._upload(work, present, wanted)
            return False
        if work.phase is Phase.UNMASKING:
            self._unmask(work, present)
            return False
        if present.state is not AttemptState.ACCEPTED:
            self._announce(work, present)
        return present.state is AttemptState.ACCEPTED

    def compute(self, work: Work, wanted: Callable[[], bool] = lambda: True) -> None:
        """Compute, encrypt and spool the contribution of an accepted attempt.

        wanted: called repeatedly; raises StoppedError once it returns False. Any other failure ends the attempt:
        nothing was sent, nothing is charged, and the next `advance` refuses it at the coordinator.
        """
        self._check_may_answer()
        held = self._attempts.find(work.query_id, work.attempt)
        if held is None or held.state is not AttemptState.ACCEPTED:
            return
        try:
            self._compute(work, held, wanted)
        except StoppedError:
            raise
        except Exception as error:  # noqa: BLE001 - one query's failure must not stop the others
            self._log.error("contribution failed", query=work.query_id, attempt=work.attempt, **named(error))
            self._withdraw(work, held, error, "the contribution failed")

    def note_unanswered(self, work: Work, reason: str) -> bool:
        """Note a query that comes while this party answers nothing. Nothing is reserved, charged or sent.

        reason: why, in words. One that does not verify is not noted, and one that is noted is not read again. Bounded
        as all queries without a charge are (History.forget). Returns False if it could not be noted now.
        """
        key = (work.query_id, work.attempt, What.UNANSWERED)
        try:
            if work.phase is not Phase.ANSWERING or not work.state.awaits_answer or self._history.has(*key):
                return True
            opened = self._open(work)
            rows = self._party.rows_about(opened.query.epoch)
            self._history.shown(opened, rows=rows, charge=None, now_unix_s=self._clock())
            self._history.happened(*key, self._clock(), reason=reason)
        except WireError as error:
            self._log.refused("not verified", peer="coordinator", code=error.code, query=work.query_id)
            return not may_pass(error)
        except (HistoryBusyError, HistoryFileError) as error:
            self._log.warning("history not written", query=work.query_id, reason=str(error))
            return False
        return True

    def held(self) -> set[bytes]:
        """The queries of which this party holds something that ends with the query."""
        unfinished = {held.query_id for held in self._attempts.unfinished()}
        return unfinished | self.gate.waiting() | self._withdrawals.queries()

    def end_queries(self, absent: AbstractSet[bytes]) -> None:
        """End what this party holds of these queries, which are no longer open at the coordinator.

        Of no others: another thread may accept one meanwhile.
        """
        for held in self._attempts.unfinished():
            if held.query_id in absent:
                self._end(held, "the query is not open at the coordinator")
                self._delivered.pop((held.query_id, held.attempt), None)
        for query_id in self.gate.waiting() & absent:
            self.gate.gone(query_id, 0)
        self._withdrawals.discard(absent)

    def end_expired(self) -> None:
        """End every attempt whose query has expired by this party's clock, and delete those that ended long ago."""
        now = self._clock()
        for held in self._attempts.unfinished():
            if held.is_expired(now):
                self._end(held, "the query expired")
                self._delivered.pop((held.query_id, held.attempt), None)
        self._attempts.forget(now)

    def _check_may_answer(self) -> None:
        if not self._may_answer():
            raise StoppedError("this party's ledger is not confirmed; the query continues once it is")

    def _open(self, work: Work) -> OpenedQuery:
        def opened(roster: Roster) -> OpenedQuery:
            return open_query(work.query, roster, now_unix_s=self._clock())

        return self._rosters.checked(self._coordinator, opened)

    def _answer(self, work: Work) -> Attempt | None:
        """Decide, then reserve and store an acceptance, or refuse. None if the party does not take part."""
        if work.phase is not Phase.ANSWERING or not work.state.awaits_answer or not self._is_signed(work):
            return None
        if (refusal := self._sent_refusals.of(work, self._party)) is not None:
            # The coordinator lost it, or says so. There is one answer for each attempt.
            self._tell(work, lambda: self._coordinator.answer(refusal, accepts=False), is_only_answer=True)
            return None
        try:
            return self._accept(work)
        except WireError as error:
            if may_pass(error):
                raise
            self._refuse(work, error.code, error.detail)
        except (ConnectionLostError, TimedOutError, LedgerBusyError, HistoryBusyError):
            raise
        except Exception as error:  # noqa: BLE001 - on any error, the others must not wait for this party
            self._log.error("answering failed", query=work.query_id, attempt=work.attempt, **named(error))
            self._refuse(work, *as_refusal(error))
        return None

    def _is_signed(self, work: Work) -> bool:
        """Whether a learner of the roster signed it. What no one signed is not answered, noted or signed."""
        try:
            self._rosters.checked(self._coordinator, lambda roster: check_signed(work, roster))
        except WireError as error:
            if may_pass(error):
                raise
            self._log.refused("not verified", peer="coordinator", code=error.code, query=work.query_id)
            return False
        return True

    def _accept(self, work: Work) -> Attempt | None:
        """Accept a query, unless the policy refuses it, which raises, or it waits for a person's decision: None."""
        whole = self._party
        opened = self._open(work)
        roster = self._rosters.current
        party, charge = self._decide(work, opened, roster, whole)
        rows = whole.epoch_rows(opened.query.epoch)
        if self._is_held():
            # Who would be refused in any case does not learn it.
            self._attempts.check_admits(charge, self._clock(), rows)
            raise WireError(Code.ROWS_NOT_ACCEPTED)
        if opened.query.is_question:
            self._attempts.check_admits(charge, self._clock(), rows)
            self._would_accept(work, opened, charge, party, roster)
            return None
        passed = self.gate.passes(opened, work.attempt, charge, party.policy)
        if passed is None:
            # A query that would be refused afterwards need not be decided on.
            self._attempts.check_admits(charge, self._clock(), rows)
            self._say_pending(work)
            return None
        try:
            held = self._reserved(work, opened, charge, party, roster, rows, passed)
        except NotCoveredError as error:
            # Another query used the approval up, or people revoked it, in this moment.
            self.gate.beaten(opened, work.attempt, charge, str(error), party.policy)
            self._say_pending(work)
            return None
        self._accepted_with[held.query_id, held.attempt] = party
        self._obfuscators.expect(opened.public_key, opened.ciphertexts)
        self._log.info(
            "accepted",
            query=work.query_id,
            attempt=work.attempt,
            learner=opened.query.learner,
            cost=str(charge),
            **_stated_by(opened),
        )
        facts = facts_of(party.policy)
        self._note(held.query_id, held.attempt, What.ACCEPTED, rows=held.rows, data=party.data_digest, **facts)
        return held

    def _reserved(
        self,
        work: Work,
        opened: OpenedQuery,
        charge: Charge,
        party: Party,
        roster: Roster,
        rows: EpochRows | None,
        passed: Pass,
    ) -> Attempt:
        """Reserve, and store a signed acceptance. Raises what Attempts.accept raises."""
        mask_key = X25519PrivateKey.from_private_bytes(self._random.bytes(32))
        public = mask_key.public_key().public_bytes_raw()
        stated = party.units(opened.query)
        acceptance = Acceptance(opened.query_id, work.attempt, party.name, stated, public, roster.version)
        secret = self._random.bytes(SECRET_BYTES) if opened.query.may_vanish else None
        if secret is not None:
            share_key = OwnKeys(secret).share_key.public_key().public_bytes_raw()
            acceptance = replace(acceptance, share_key=share_key)
        return self._attempts.accept(
            acceptance,
            lambda complete: sign(complete, party.signing_key),
            charge,
            mask_key=mask_key.private_bytes_raw(),
            not_after_unix_s=opened.query.not_after_unix_s,
            now_unix_s=self._clock(),
            sums_key=SumsKey(party.name, party.signing_key),
            rows=rows,
            use=passed.use,
            share_secret=secret,
        )

    def _would_accept(self, work: Work, opened: OpenedQuery, charge: Charge, party: Party, roster: Roster) -> None:
        """Answer a question as its query would be, without holding or reserving anything.

        The same checks, policy, limits and ledger decide, so the answer tells what an acceptance that is never charged
        would tell. No person decides on it. Nothing of it leads to an upload: there is no attempt for a cohort.
        """
        unused = X25519PrivateKey.from_private_bytes(self._random.bytes(32)).public_key().public_bytes_raw()
        rows = party.units(opened.query)
        said = Acceptance(work.query_id, work.attempt, party.name, rows, unused, roster.version)
        signed = sign(said, party.signing_key)
        reason = "it was a question, and this party would accept it"
        self._note(work.query_id, work.attempt, What.ENDED, reason=reason, would_accept=True)
        self._log.info("would accept", query=work.query_id, rows=rows, cost=str(charge), **_stated_by(opened))
        self._tell(work, lambda: self._coordinator.answer(signed, accepts=True))

    def _say_pending(self, work: Work) -> None:
        """Tell the learner who is waited for."""
        if work.state is PartyState.PENDING:
            return
        pending = sign(Pending(work.query_id, work.attempt, self._party.name), self._party.signing_key)
        self._tell(work, lambda: self._coordinator.pending(pending))

    def _decide(self, work: Work, opened: OpenedQuery, roster: Roster, whole: Party) -> tuple[Party, Charge]:
        """The party with the rows that are asked about, and the cost of an attempt, if the policy allows it.

        What is accepted is in the history before that. Raises what `decide` raises, and HistoryBusyError.
        """
        rows = whole.rows_about(opened.query.epoch)
        try:
            party, charge = decide(opened, work.attempt, whole, roster, work.retry, now_unix_s=self._clock())
        except WireError:
            try:
                self._history.shown(opened, rows=rows, charge=None, now_unix_s=self._clock())
            except RadofedError as error:
                self._log.warning("history not written", query=work.query_id, reason=str(error))
            raise
        self._history.shown(opened, rows=rows, charge=charge, now_unix_s=self._clock())
        return party, charge

    def _refuse(self, work: Work, code: Code, detail: str) -> None:
        reason = WireError(code, detail).public_sentence
        asks = work.query.key_id.hex()
        self._log.refused("refused", peer=asks, code=code, query=work.query_id, attempt=work.attempt, reason=reason)
        party = self._party
        self._note(work.query_id, work.attempt, What.REFUSED, code=code.value, detail=detail, **facts_of(party.policy))
        refusal = sign(Refusal(work.query_id, work.attempt, party.name, code), party.signing_key)
        self._sent_refusals.add(work, party, refusal)
        self._tell(work, lambda: self._coordinator.answer(refusal, accepts=False), is_only_answer=True)

    def _withdraw(self, work: Work, held: Attempt, error: Exception, reason: str) -> None:
        """End an attempt that this party accepted and cannot continue, unless it is charged. Store the error."""
        code, detail = as_refusal(error)
        is_free = held.state in (AttemptState.ACCEPTED, AttemptState.READY)
        if is_free:
            self._withdrawals.add(work.query_id, work.attempt, Code.UNAVAILABLE if CATALOGUE[code].retry else code)
        detail = f"After it was accepted: {detail or CATALOGUE[code].sentence}"
        self._note(work.query_id, work.attempt, What.REFUSED, code=code.value, detail=detail)
        if is_free:
            self._end(held, reason)

    def _give_up(self, work: Work, held: Attempt) -> None:
        """Refuse an accepted attempt that is over at this party, once. Nothing more of it leaves."""
        if not held.state.is_over:  # the disk failed when it was given up
            self._end(held, "the party gave it up")
        delivered = (work.query_id, work.attempt) in self._delivered
        refusal = self._withdrawals.due(work, delivered=delivered)
        if refusal is None:
            return
        signed = sign(refusal, self._party.signing_key)
        if self._tell(work, lambda: self._coordinator.answer(signed, accepts=False)):
            self._log.info("gave up", query=work.query_id, attempt=work.attempt, code=refusal.code)
        self._withdrawals.arrived(work)

    def _note(self, query_id: bytes, attempt: int, what: What, **details: str | int) -> None:
        """Note in the history what has happened. If that fails, what the ledger knows of it is still shown."""
        try:
            self._history.happened(query_id, attempt, what, self._clock(), **details)
        except RadofedError as error:
            self._not_noted(query_id, attempt, what, error)

    def _note_late(self, held: Attempt, what: What, **details: str | int) -> None:
        """Note what may be written with the next event (`History.happened_late`)."""
        try:
            self._history.happened_late(held.query_id, held.attempt, what, self._clock(), **details)
        except RadofedError as error:
            self._not_noted(held.query_id, held.attempt, what, error)

    def _not_noted(self, query_id: bytes, attempt: int, what: What, error: RadofedError) -> None:
        self._log.warning("history not written", query=query_id, attempt=attempt, what=what, reason=str(error))

    def _deliver(self, work: Work, held: Attempt) -> bool:
        """Ensure that the coordinator has the acceptance. Returns whether it has.

        It is written down with the contribution only. If the process ends before that, the coordinator's next work
        shows whether the acceptance arrived, and the same bytes may be sent again. A coordinator that was restored from
        a backup may ask for what it had: it gets the same bytes.
        """
        key = (held.query_id, held.attempt)
        if self._delivered.get(key) is work or (held.answer_arrived and not work.state.awaits_answer):
            return True
        if work.state.awaits_answer:
            if work.phase is not Phase.ANSWERING:
                return False
            if not self._tell(work, lambda: self._coordinator.answer(held.answer, accepts=True), is_only_answer=True):
                return False
        self._delivered[key] = work
        return True

    def _announce(self, work: Work, held: Attempt) -> None:
        key = (held.query_id, held.attempt)
        is_known = self._announced.get(key) is work or work.state is PartyState.READY
        if is_known or work.phase not in _BEFORE_COHORT:
            return
        key_shares: Envelope | None = None
        if Query.from_bytes(work.query.payload).may_vanish:
            if work.phase is not Phase.PREPARING or work.sharing is None or (made := self._deal(work, held)) is None:
                return
            ready, key_shares = made
        else:
            ready = sign(Ready(held.query_id, held.attempt, self._party.name), self._party.signing_key)
        if self._tell(work, lambda: self._coordinator.ready(ready, key_shares)):
            self._announced[key] = work

    def _deal(self, work: Work, held: Attempt) -> tuple[Envelope, Envelope] | None:
        """The Ready and the KeyShares, if members may vanish; None if this party refuses what it was shown."""
        opened = self._open(work)

        def made(roster: Roster) -> tuple[Envelope, Envelope]:
            return deal(work, opened, held, self._party, roster, self._attempts, self._random)

        try:
            return self._rosters.checked(self._coordinator, made)
        except (WireError, LedgerConflictError, MaskKeyError) as error:
            if may_pass(error):
                raise
            self._log.error("sharing refused", query=held.query_id, attempt=held.attempt, **named(error))
            self._withdraw(work, held, error, "the sharing was refused")
            self._give_up(work, self._attempts.find(held.query_id, held.attempt) or held)
            return None

    def _unmask(self, work: Work, held: Attempt) -> None:
        """Give the shares with which the total of the survivors is opened: for one set of them, and once."""
        if not held.state.is_charged or work.state is PartyState.UNMASKED:
            return
        try:
            unmasking = unmask(work, self._open(work), held, self._party, self._attempts, self._random)
        except (WireError, LedgerConflictError, MaskKeyError) as error:
            if may_pass(error):
                raise
            self._log.error("unmasking refused", query=held.query_id, attempt=held.attempt, **named(error))
            return
        if unmasking is not None and self._tell(work, lambda: self._coordinator.unmask(unmasking)):
            self._log.info("unmasked", query=held.query_id, attempt=held.attempt, survivors=len(work.survivors))

    def _tell(self, work: Work, call: Callable[[], None], *, is_only_answer: bool = False) -> bool:
        """Make a call. False if the coordinator refuses permanently: its next work shows the state of the attempt.

        is_only_answer: whether it sends an answer, and this party has sent no other to the attempt.
        """
        try:
            call()
        except WireError as error:
            if may_pass(error):
                raise
            self._log.warning(
                "the coordinator refused",
                query=work.query_id,
                attempt=work.attempt,
                code=error.code,
                detail=error.public_sentence,
            )
            # The same answer again is no conflict: a second copy of this party may have given another.
            if is_only_answer and error.code is Code.ANSWER_CONFLICT:
                self._on_conflict()
            return False
        return True

    def _accepted_by(self, held: Attempt, query: Query) -> tuple[Party, str]:
        """The party with the rows of an acceptance, and the data's digest; after a restart, of the present data."""
        party = self._accepted_with.get((held.query_id, held.attempt))
        if party is not None:
            return party, party.data_digest
        under = self._party.under(query.schema)
        return under.about(query.epoch), self._history.data_digest(held.query_id, held.attempt)

    def _compute(self, work: Work, held: Attempt, wanted: Callable[[], bool]) -> None:
        def progress(_done: int, _total: int) -> None:
            if not wanted():
                raise StoppedError("the work is no longer wanted")

        begun = time.monotonic()
        opened = open_query(work.query, self._rosters.current, now_unix_s=self._clock())
        party, data_digest = self._accepted_by(held, opened.query)
        check_unchanged(opened.query, held.rows, self._attempts.cost(held), party, data_digest)
        computation = Computation(self._random, party.secret, party.row_sums, progress, party.numbers)
        values = integer_vector(opened, party.records, computation)
        self._note_left_out(held, opened, party)
        width = opened.public_key.ciphertext_bytes
        upload_bytes = opened.ciphertexts * width
        source = self._obfuscators.source(opened.public_key)
        chunks = encrypted_chunks(opened, values, party.units(opened.query), source, progress)
        # Includes room for the masked contribution: once there is a cohort, the other members wait for this party.
        needed_bytes = 2 * upload_bytes + values.nbytes
        spool = self._spools.write(
            held.query_id, held.attempt, chunks, needed_bytes=needed_bytes, width=width, values=values
        )
        self._obfuscators.rest(opened.public_key)
        check_time(opened.query, self._clock())
        self._attempts.ready(held, spool.digest)
        self._accepted_with.pop((held.query_id, held.attempt), None)
        self._log.info(
            "spooled",
            query=held.query_id,
            attempt=held.attempt,
            chunks=len(spool.hashes),
            bytes=upload_bytes,
            seconds=round(time.monotonic() - begun, 3),
        )

    def _note_left_out(self, held: Attempt, opened: OpenedQuery, party: Party) -> None:
        """Log how many rows do not count, as their person has more than count, if there are any."""
        if left_out := party.rows_left_out(opened.query):
            self._log.warning("rows left out", query=held.query_id, attempt=held.attempt, rows=left_out)

    def _upload(self, work: Work, held: Attempt, wanted: Callable[[], bool]) -> None:
        """Verify the cohort, charge, send. No byte leaves before the charge is on disk."""
        if held.state is AttemptState.UPLOADED and work.state is PartyState.UPLOADED:
            return
        if work.cohort is None or held.state is AttemptState.ACCEPTED:
            if held.state in (AttemptState.ACCEPTED, AttemptState.READY):
                self._end(held, "the cohort was fixed without this party")
            return
        begun_s = time.thread_time()
        try:
            opened = self._open(work)
            if held.state is AttemptState.READY:
                self.gate.check(opened, self._attempts.cost(held) or Charge(), self._party.policy)
            spool = self._uploads.charged(opened, work, work.cohort, held, self._party)
        except (WireError, LedgerConflictError, MaskKeyError) as error:
            if may_pass(error):
                raise
            self._on_worked(time.thread_time() - begun_s)
            self._log.error("cohort refused", query=held.query_id, attempt=held.attempt, **named(error))
            self._withdraw(work, held, error, "the cohort was refused")
            if not held.state.is_charged:
                self._give_up(work, self._attempts.find(held.query_id, held.attempt) or held)
        except SpoolLostError as error:
            self._lose(work, held, error)
        else:
            try:
                self._send(work, work.cohort, held, spool, wanted)
            finally:
                # The others wait for the bytes, and nobody for this.
                self._uploads.note_charge(held)

    def _send(self, work: Work, cohort: Cohort, held: Attempt, spool: Spool, wanted: Callable[[], bool]) -> None:
        try:
            self._uploads.send(spool, cohort, held, self._party, work.chunks_held, wanted)
        except SpoolLostError as error:
            self._lose(work, held, error)
        except WireError as error:
            if may_pass(error):
                raise
            self._log.error("upload refused", query=held.query_id, attempt=held.attempt, **named(error))
        else:
            self._attempts.uploaded(held)
            self._note_late(held, What.UPLOADED)
            self._log.info("uploaded", query=held.query_id, attempt=held.attempt, chunks=len(spool.hashes))

    def _lose(self, work: Work, held: Attempt, error: SpoolLostError) -> None:
        present = self._attempts.find(held.query_id, held.attempt) or held
        charged = present.state.is_charged
        self._log.error("spool lost", query=held.query_id, attempt=held.attempt, charged=charged, reason=str(error))
        if charged:
            self._attempts.burn(held)
            self._note(held.query_id, held.attempt, What.ENDED, reason="the spool was lost after the charge")
            self._on_lost()
            self._drop(held)
        else:
            self._end(held, "the spool was lost")
        self._give_up(work, self._attempts.find(held.query_id, held.attempt) or held)

    def _end(self, held: Attempt, reason: str, *, is_lost: bool = False) -> None:
        if self._attempts.end(held):
            if is_lost:
                self._on_lost()
            self._note_late(held, What.ENDED, reason=reason)
            self._log.info("attempt over", query=held.query_id, attempt=held.attempt, reason=reason)
        # Also if it was over before: a contribution may have been spooled while another thread ended the attempt.
        self._drop(held)

    def _drop(self, held: Attempt) -> None:
        """Delete what is stored outside the ledger's file for an attempt that is over."""
        self._spools.remove(held.query_id, held.attempt)
        key = (held.query_id, held.attempt)
        self._announced.pop(key, None)
        self._accepted_with.pop(key, None)
        self._uploads.forget(held)


def _stated_by(opened: OpenedQuery) -> dict[str, str]:
    """The fields of a log line: the purpose and the protocol number of the study, if the query states them."""
    found = {"purpose": opened.query.purpose} if opened.query.purpose else {}
    return found if opened.query.study is None else found | {"study": opened.query.study.protocol_number}
