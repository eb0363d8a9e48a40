"""The learner's session: plan a query, send it, follow it and fetch its release.

with Session(LearnerConfig.load(Path("learner.toml"))) as session:
    release = session.run(session.plan(RadosRequest(schema, rados=500, design="dp-feat", sensitive="smoker")))
"""

import datetime as dt
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from dpcore.accounting.words import after_attempt
from dpcore.errors import ConfigurationError, PlanError, RadofedError
from dpcore.numbers.progress import Progress
from dpcore.paillier.public import PublicKey
from dpcore.queries.statement import (
    PrivacyStatement,
    cost_of_attempts,
    statement_for,
    without_bound,
)
from learner.accepted_parties import Selection, selection
from learner.client import GIVE_UP_AFTER_S, Coordinator, Note, StatusPolls, warn
from learner.composition import Unanswered
from learner.config import LearnerConfig
from learner.decryption import LearnerKey, OpenedTotal, check_cohort, check_fresh, load_key, load_key_of, open_total
from learner.history import RELEASE_NAME_DIGITS, AskedBefore, asks_the_same
from learner.planning import Plan, plan_query
from learner.progress import (
    CHANGE_AFTER_S,
    Display,
    WouldAccept,
    advice,
    answers_to,
    check_enough,
    is_decided,
    refusals_before,
    shown_on,
    usual_display,
)
from learner.release import Release, ReleaseError, possible_attempts
from learner.requests import BudgetRequest, Request
from learner.state import AskedQuery, LearnerState
from radobase.printing import amount
from wire.envelopes import Envelope, MessageType, SigningKey, load_public_key
from wire.errors import Code, TimedOutError, WireError
from wire.features import (
    Feature,
    Features,
    Stated,
    check_cohort_able,
    check_schema_held,
    features_lacking,
    open_features,
    schema_lacking,
    too_old,
)
from wire.identity import Certificate
from wire.query import CLOCK_SKEW_S, OpenedQuery, Query, Retry, open_query, setting_of
from wire.roster import Member, Role, Roster, open_roster
from wire.status import Phase, QueryStatus, Total
from wire.study import Study
from wire.transport import LONG_POLL_S, coordinator_of

QUESTION_WITHIN_S = 30
"""How long parties have to answer a question (`Session.would_accept`)."""
_QUESTION_SLACK_S = 30.0
_OPENS_SLOWLY = (
    "The total opens without short opening: not every node that is asked states the feature " + Feature.SHORT_OPENING
)

OnStatus = Callable[[QueryStatus], None]


def _ends_early(query: Query) -> str:
    """A warning if the study ends before the query expires."""
    if query.study is None or not query.study.ends_before(query.not_after_unix_s):
        return ""
    return f"the study ends on {query.study.ends}, before the query expires: parties accept no attempt after that day"


class Session:
    """A learner connected to its coordinator.

    Raises ConfigurationError if a key or certificate cannot be read, has expired, or is another member's.

    Every method that calls the coordinator raises WireError with a code of the catalogue, ConnectionLostError if the
    coordinator cannot be reached for `give_up_after_s`, and TimedOutError.
    """

    def __init__(
        self,
        config: LearnerConfig,
        *,
        give_up_after_s: float = GIVE_UP_AFTER_S,
        coordinator: Coordinator | None = None,
        note: Note = warn,
        progress: bool | Display = True,
    ) -> None:
        """coordinator: an open connection; None to open one to the configured address. note: see `Coordinator`.

        progress: whether to show the progress of queries that are followed, in a terminal or a notebook; or where.
        """
        self.config = config
        self._display = progress if not isinstance(progress, bool) else usual_display() if progress else None
        self._certificate: Certificate | None = None
        if coordinator is None:
            config.tls.files.check(config.federation, Role.LEARNER, config.name, dt.datetime.now(dt.UTC))
            self._certificate = Certificate.load(config.tls.files.certificate)
        self._federation_key = load_public_key(config.federation_key)
        self._signing_key = SigningKey.load(config.signing_key, config.federation)
        self._state = LearnerState(config.state_directory, self._federation_key)
        self._key: LearnerKey | None = None
        self._coordinator = coordinator or Coordinator(
            coordinator_of(config), config.tls.files, give_up_after_s=give_up_after_s, note=note
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Queries that were sent continue."""
        self._coordinator.close()

    @property
    def key(self) -> LearnerKey:
        """The Paillier key, read on first use. Raises ConfigurationError."""
        if self._key is None:
            self._key = load_key(self.config.paillier_key)
        return self._key

    def _key_of(self, public_key: PublicKey) -> LearnerKey:
        """The key that a query was sent with: it may have been rotated since. Raises ConfigurationError."""
        if self.key.secret.opens(public_key):
            return self.key
        return load_key_of(self.config.paillier_key, public_key)

    @property
    def study(self) -> Study | None:
        """The configured study, of a request that names no other."""
        return None if self.config.study is None else self.config.study.study()

    def fetch_roster(self) -> Roster:
        """The newest roster, verified with the pinned federation key, and stored.

        It may have expired; `plan` refuses it then. Raises WireError(ROSTER_STALE) if the coordinator sends an older
        roster than the stored one, and ConfigurationError if the roster does not list this learner with its signing
        key.
        """
        return self._accepted(self._coordinator.fetch_roster())

    def _accepted(self, envelope: Envelope) -> Roster:
        """A roster that the coordinator sent; see `fetch_roster`."""
        roster = self._state.accept_roster(envelope, self.config.federation)
        self._check_membership(roster)
        return roster

    def _check_membership(self, roster: Roster) -> None:
        member = roster.find(self.config.name, Role.LEARNER)
        if member is None:
            raise ConfigurationError(f"the roster has no learner {self.config.name!r}; ask the operator to list it")
        if member.signing_key != self._signing_key.public_bytes:
            raise ConfigurationError(
                f"{self.config.signing_key}: is not the key that the roster lists for {self.config.name!r}; use the "
                "listed one, or ask the operator for a new roster"
            )

    def plan(self, request: Request, *, question: bool = False) -> Plan:
        """The plan of a request for the accepted parties of the newest roster; sends no query.

        question: whether parties are only asked if they would accept it, see `would_accept`. Raises what `plan_query`
        raises, and ConfigurationError if no party of the roster is accepted.
        """
        key = self.key
        envelope, envelopes, coordinator_features = self._coordinator.fetch_members()
        roster = self._accepted(envelope)
        roster.check_unexpired(time.time())
        parties = self.selection(roster)
        statements, coordinator = _statements(envelopes, roster, parties), frozenset(coordinator_features)
        stated: Stated = {name: None if own is None else frozenset(own.features) for name, own in statements.items()}
        understood = coordinator.intersection(*(own or frozenset() for own in stated.values()))
        is_short = Feature.SHORT_OPENING.value in understood
        plan = plan_query(
            request,
            roster=roster,
            asked=parties.asked,
            learner=self.config.name,
            certificate=key.certify(self.config.name, self._signing_key, with_subgroup=is_short),
            stated_rows=self._state.rows_stated(roster),
            question=question,
            understood=understood,
            study=self.study,
        )
        if Feature.BASE not in coordinator:
            raise WireError(Code.FEATURE_MISSING, too_old("The coordinator"))
        if missing := {*plan.query.features} - coordinator:
            raise WireError(Code.FEATURE_MISSING, f"The coordinator lacks: {', '.join(sorted(missing))}.")
        check_cohort_able(plan.query.features, plan.query.cohort_min, stated)
        without, lacking = features_lacking(plan.query.features, stated), schema_lacking(plan.query.schema, statements)
        if not question:
            check_schema_held(lacking, plan.query.cohort_min, len(stated))
        now = dt.datetime.now(dt.UTC)
        warnings = (
            roster.expiry_warning(now.timestamp()),
            "" if self._certificate is None else self._certificate.expiry_warning(now),
            key.expiry_warning(now.timestamp()),
            "" if is_short or key.secret.short_opening is None else _OPENS_SLOWLY,
            *parties.warnings,
            _ends_early(plan.query),
            *(f"{each} and will refuse: its rows are not in the answer" for each in (*without, *lacking)),
        )
        return replace(plan, not_asked=parties.not_asked, warnings=tuple(filter(None, warnings)))

    def selection(self, roster: Roster) -> Selection:
        """The parties of a roster, by whether this learner accepted them. Raises ConfigurationError if it has none."""
        return selection(self.config.parties, roster)

    def rows_of(self, parties: Iterable[Member], roster: Roster) -> dict[str, int | None]:
        """How many rows parties of the roster have: as they last stated it here, otherwise as the roster does."""
        return self._state.rows_of(parties, roster)

    def stated_rows(self) -> int:
        """The total of the rows that the accepted parties stated, see `rows_of`; 0 for a party that states none."""
        roster = self.fetch_roster()
        return sum(rows or 0 for rows in self.rows_of(self.selection(roster).asked, roster).values())

    def would_accept(self, request: Request, timeout_s: float | None = None, *, of_all: bool = True) -> WouldAccept:
        """Ask each party whether it would accept a request, and over how many rows. No party charges or reserves.

        A party decides as on the query itself, except that no person is asked. Its signed row count is kept for later
        plans. Waits QUESTION_WITHIN_S for silent parties, unless `of_all` is false and the others decide whether a
        cohort could form. Raises what `plan` raises, and TimedOutError.
        """
        check_timeout(timeout_s)
        within = min(request.answer_within_s, QUESTION_WITHIN_S)
        plan = self.plan(replace(request, answer_within_s=within), question=True)
        envelope = self._signing_key.sign(MessageType.QUERY, plan.query.to_bytes())
        self._coordinator.submit_query(envelope)
        roster_envelope = self._state.newest_roster()
        assert roster_envelope is not None, "a plan stores the roster"
        roster = open_roster(roster_envelope, self._federation_key)
        polls = StatusPolls(self._coordinator, envelope.payload_hash, len(roster.parties))
        end = time.monotonic() + (within + _QUESTION_SLACK_S if timeout_s is None else timeout_s)
        while not (status := polls.next(max(0.0, min(LONG_POLL_S, end - time.monotonic())))).phase.is_terminal:
            if time.monotonic() >= end:
                raise TimedOutError("the coordinator has not ended the question; nothing is charged, so ask again")
            if not of_all and is_decided(status.parties, asked=_asks(plan), needed=plan.query.cohort_min):
                self._end_question(envelope.payload_hash)
                break
        if status.phase.is_terminal and status.code != Code.ONLY_ASKED:
            raise failure(status)
        answers = answers_to(
            plan.query, envelope.payload_hash, status.parties, roster, people_have_s=request.answer_within_s
        )
        self._note_rows(answers.rows, roster, plan.query)
        return answers

    def _note_rows(self, rows: Mapping[str, int], roster: Roster, query: Query) -> None:
        """Remember what parties stated of all their rows; of an epoch, or of persons, they state other numbers."""
        if query.epoch is None and query.persons is None:
            self._state.note_rows(rows, roster, query.created_at_unix_s)

    def _end_question(self, query_id: bytes) -> None:
        try:
            self._coordinator.cancel_query(query_id, self.config.name, self._signing_key)
        except WireError as error:
            # The last party may have answered meanwhile.
            if error.code is not Code.QUERY_CLOSED:
                raise

    def check_accepted(self, request: Request, plan: Plan) -> None:
        """Ask about a plan first, if all releases here are of other schemas: parties may not have this one.

        What too few parties accept is not sent then. Once sent, it counts under collusion, although parties refuse it:
        the coordinator may lie about that (learner.composition). A question leads to no upload (docs/threat-model.md,
        4.13), so it counts nothing.

        Raises WireError(COHORT_TOO_SMALL), and what `would_accept` raises.
        """
        has_answers = False
        # Newest first: a training asks about one schema, and reading all that was ever asked takes longer each round.
        for query_id in self._state.newest_queries():
            if self.release_directory(query_id).exists():
                has_answers = True
                if self._query(query_id).schema.digest == plan.query.schema.digest:
                    return
        if not has_answers:
            return
        check_enough(self.would_accept(request, of_all=False), plan.query)

    def check_training(self, request: BudgetRequest, plan: Plan, timeout_s: float | None = None) -> list[str]:
        """Ask, before the first query of a training, about all of it: parties would charge rounds that lead nowhere.

        That query at the whole budget costs a party as much as all rounds. request, plan: of the first query. Returns
        what parties say that would refuse. Nothing is charged. Raises as `check_accepted`.
        """
        whole = f"the whole training at epsilon {float(request.epsilon):g}"

        def ask() -> list[WouldAccept]:
            found = self.would_accept(request.whole, timeout_s, of_all=False)
            check_enough(found, plan.query, whole)
            return [replace(found, what=whole)]

        return refusals_before("the whole training", ask)

    def asked_before(self, plan: Plan, without: Collection[bytes] = ()) -> AskedBefore | None:
        """The newest earlier query that asks the same as a plan and has an answer, or may get one; None if none does.

        without: ids of queries that do not count. Asks the coordinator only about a query without a release here.
        """
        for query_id in self._state.newest_queries():
            if query_id in without or query_id == plan.query_id:
                continue
            payload = self._state.find(query_id).query.payload
            if not asks_the_same(plan.query, payload):
                continue
            earlier, directory = Query.from_bytes(payload), self.release_directory(query_id)
            release = directory if directory.exists() else None
            if release is not None or self._may_be_answered(query_id):
                purpose = "" if earlier.purpose == plan.query.purpose else earlier.purpose
                study = None if earlier.study == plan.query.study else earlier.study
                return AskedBefore(query_id, earlier.created_at_unix_s, release, purpose, study)
        return None

    def _may_be_answered(self, query_id: bytes) -> bool:
        """Whether a query without a release here has not ended without a total, as far as the coordinator says."""
        if self._state.end(query_id) is not None:
            return False
        try:
            status = self.status(query_id)
        except WireError as error:
            if error.code is not Code.QUERY_UNKNOWN:
                raise
            return False
        if status.phase is Phase.FAILED:
            self._state.note_end(query_id, status.code, status.detail)
        return status.phase is not Phase.FAILED

    def ask(self, plan: Plan) -> bytes:
        """Sign a plan's query, write it to disk, send it, and return its id.

        Sending a plan twice is one query. If this fails or is killed after the query was on disk, `unsent` lists the
        query, and `send` sends the same bytes again.
        """
        query_id = self.prepare(plan)
        self.send(query_id)
        return query_id

    def prepare(self, plan: Plan) -> bytes:
        """Sign a plan's query, write it to disk, and return its id. `send` sends it."""
        roster = self._state.newest_roster()
        if roster is None or open_roster(roster, self._federation_key).version < plan.query.roster_version:
            raise WireError(Code.ROSTER_STALE, "The plan was made with a roster that this learner has not stored.")
        open_roster(roster, self._federation_key).check_unexpired(time.time())
        asked = AskedQuery(self._signing_key.sign(MessageType.QUERY, plan.query.to_bytes()), roster)
        self._open(asked)
        self._state.remember(asked, plan.opening)
        return asked.query_id

    def send(self, query_id: bytes) -> None:
        """Send a query that is on disk, unless the coordinator has acknowledged it."""
        if not self._state.is_sent(query_id):
            self._coordinator.submit_query(self._state.find(query_id).query)
            self._state.mark_sent(query_id)

    def asked(self) -> tuple[bytes, ...]:
        """Ids of all queries in this state directory, sent or not."""
        return self._state.query_ids()

    def unsent(self) -> tuple[bytes, ...]:
        """Ids of queries on disk that the coordinator has not acknowledged and that have not expired."""
        now_unix_s = time.time()
        return tuple(
            query_id
            for query_id in self._state.query_ids()
            if not self._state.is_sent(query_id) and now_unix_s <= self._query(query_id).not_after_unix_s
        )

    def kind(self, query_id: bytes) -> str:
        """The name of a query's kind, empty if this state directory lacks the query."""
        return self._query(query_id).kind.name if self._state.has(query_id) else ""

    def list(self) -> tuple[QueryStatus, ...]:
        """The status of all queries of this learner that the coordinator still keeps, newest first."""
        return self._coordinator.list_queries()

    def status(self, query_id: bytes) -> QueryStatus:
        """A query's current status. Raises WireError(QUERY_UNKNOWN)."""
        return self._coordinator.watch_query(query_id, cursor=0, wait_s=0)[0]

    def parties_of(self, query_id: bytes) -> frozenset[str] | None:
        """The parties that a query asks; None if this state directory lacks it."""
        return self._query(query_id).binding.parties if self._state.has(query_id) else None

    def payload_of(self, query_id: bytes) -> bytes | None:
        """What was signed of a query; None if this state directory lacks it."""
        return self._state.find(query_id).query.payload if self._state.has(query_id) else None

    def not_asked(self, query_id: bytes) -> tuple[str, ...]:
        """The parties of the query's roster that it does not ask; none if this state directory lacks the query."""
        return self._state.find(query_id).not_asked if self._state.has(query_id) else ()

    def cancel(self, query_id: bytes) -> None:
        """Cancel a query that has no total yet. Charges of parties remain."""
        self._coordinator.cancel_query(query_id, self.config.name, self._signing_key)

    def retry(self, query_id: bytes) -> int:
        """Start another attempt of a query whose last attempt was lost, and return its number.

        Each party that was charged for an earlier attempt is charged again. Raises WireError(PHASE_MISMATCH) if no
        attempt was lost.
        """
        status = self.status(query_id)
        if status.phase is not Phase.LOST:
            raise WireError(Code.PHASE_MISMATCH, f"It is in phase {status.phase.word}, so there is nothing to retry.")
        retry = Retry(query_id, self.config.name, status.attempt + 1)
        # On disk first: once it is signed, the attempt may have a total, and every figure counts it.
        self._state.note_attempt(query_id, retry.attempt)
        self._coordinator.retry_query(retry.sign(self._signing_key))
        return retry.attempt

    def cost_of_retry(self, status: QueryStatus) -> str:
        """What another attempt costs: a sentence, empty if no figure can be given."""
        rows = [party.rows for party in status.parties if party.rows]
        try:
            query = self._query(status.query_id)
            epsilon = cost_of_attempts(
                query.kind,
                rows,
                query.delta,
                schema=query.schema,
                setting=setting_of(query),
                attempts=self.attempts(status.query_id) + 1,
            )
        except (RadofedError, ValueError):
            return ""
        return f"{after_attempt(epsilon, 0 if query.kind.is_pure else query.delta)}, because every attempt counts."

    @property
    def shows_progress(self) -> bool:
        """Whether it shows the progress of queries by itself."""
        return self._display is not None

    def attempts(self, query_id: bytes) -> int:
        """How many attempts of a query may have a total, as far as this learner signed them.

        See `learner.release.possible_attempts`. Raises WireError(QUERY_UNKNOWN) if the state directory lacks the query.
        """
        return possible_attempts(self._query(query_id), self._state.attempts_signed(query_id))

    def unanswered(self, query_id: bytes) -> Unanswered:
        """A query whose total this learner has not opened, for figures under collusion. Raises as `attempts` does."""
        return Unanswered(self._query(query_id), self.attempts(query_id))

    def watch(
        self,
        query_id: bytes,
        on_status: OnStatus | None = None,
        timeout_s: float | None = None,
        *,
        retries: int = 0,
        label: str = "",
    ) -> QueryStatus:
        """Follow a query until its total is complete, and return its last status.

        on_status: called with each status that differs from the last, instead of the session's own display. retries:
        how many attempts to start without asking after an attempt is lost; each is charged. label: begins each line of
        the display.

        Raises QueryEndedError with the query's code and detail if it fails, AttemptLostError if an attempt is lost and
        no retry is left (the query waits), TimedOutError after `timeout_s` (the query continues) or after the query's
        own end, ConfigurationError if `timeout_s` is not a positive number.
        """
        check_timeout(timeout_s)
        display = self._display if on_status is None else None
        with shown_on(display, label) as show:
            poll_s = LONG_POLL_S if display is None else display.refresh_s or CHANGE_AFTER_S
            shown = on_status or show
            return self._followed(query_id, shown, timeout_s, retries, poll_s, ends_only=on_status is None)

    def _followed(
        self,
        query_id: bytes,
        on_status: OnStatus | None,
        timeout_s: float | None,
        retries: int,
        poll_s: float,
        *,
        ends_only: bool,
    ) -> QueryStatus:
        """See `watch`. poll_s: the longest wait for a change. ends_only: whether no other change has to be shown soon.

        Each change that is told is a call, which keeps the coordinator from the query itself.
        """
        expiry_unix_s = self._query(query_id).not_after_unix_s if self._state.has(query_id) else math.inf
        end = None if timeout_s is None else time.monotonic() + timeout_s
        roster = self._state.newest_roster()
        parties = 0 if roster is None else len(open_roster(roster, self._federation_key).parties)
        polls, last = StatusPolls(self._coordinator, query_id, parties, ends_only=ends_only), None
        while True:
            left_s = poll_s if end is None else max(0.0, min(poll_s, end - time.monotonic()))
            # A display begins with the state as it is.
            status = polls.next(0.0 if last is None and ends_only and on_status is not None else left_s)
            if on_status is not None and status != last:
                on_status(status)
            last = status
            if status.phase is Phase.COMPLETE:
                return status
            if status.phase is Phase.FAILED:
                self._state.note_end(query_id, status.code, status.detail)
                raise failure(status, self._query(query_id) if self._state.has(query_id) else None)
            if status.phase is Phase.LOST:
                if not retries:
                    raise AttemptLostError(status, self.cost_of_retry(status))
                retries -= 1
                self.retry(query_id)
                continue
            if time.time() > expiry_unix_s + CLOCK_SKEW_S:
                # An honest coordinator ends it at its expiry, and parties upload nothing after it, by their own clocks.
                raise TimedOutError(
                    f"query {query_id.hex()[:RELEASE_NAME_DIGITS]} has expired, and the coordinator says that it is in "
                    f"phase {status.phase.word}: no total can come; tell its operator, and send a new query"
                )
            if end is not None and time.monotonic() >= end:
                raise TimedOutError(
                    f"query {query_id.hex()[:RELEASE_NAME_DIGITS]} is in phase {status.phase.name.lower()} after "
                    f"{timeout_s:g} s and continues; follow it again or cancel it"
                )

    def release_directory(self, query_id: bytes) -> Path:
        """The directory of a query's release, which may not exist yet."""
        return self.config.releases_directory / query_id.hex()[:RELEASE_NAME_DIGITS]

    def fetch(self, query_id: bytes, progress: Progress | None = None) -> Release:
        """The release of a complete query: fetched, verified, opened and saved, or read if it was already saved.

        progress: callback `(chunks opened, total)`. Raises what `open_total` raises, ReleaseError if the release cannot
        be saved or read.
        """
        directory = self.release_directory(query_id)
        if directory.exists():
            release = self._saved(query_id)
            # A process may have ended between saving and erasing.
            self._state.erase_opening(query_id)
            return release
        asked = self._state.find(query_id)
        opened = self._open(asked)
        total = self._coordinator.fetch_total(query_id)
        roster = self._fresh_roster_for(total, asked, opened)
        result = open_total(
            total,
            self._chunks(opened),
            opened,
            open_roster(roster, self._federation_key),
            self._key_of(opened.public_key).secret,
            progress,
            opening=self._state.opening(query_id),
        )
        rows = {acceptance.party: acceptance.rows for acceptance in result.acceptances}
        self._note_rows(rows, open_roster(roster, self._federation_key), opened.query)
        signed = max(total.cohort.attempt, self._state.attempts_signed(query_id))
        release = Release(
            query_envelope=asked.query,
            roster_envelope=roster,
            cohort=total.cohort,
            receipts=total.receipts,
            statement=_statement(opened.query, result, possible_attempts(opened.query, signed)),
            created_at_unix_s=int(time.time()),
            integers=result.values.reshape(opened.query.kind.shape(opened.query.d)),
            attempts_signed=signed,
            survivors=total.survivors,
        )
        try:
            release.save(directory)
        except ReleaseError:
            if not directory.exists():
                raise
            # Another process fetched it in the meantime.
            return self._saved(query_id)
        self._state.erase_opening(query_id)
        return release

    def _saved(self, query_id: bytes) -> Release:
        directory = self.release_directory(query_id)
        release = Release.load(directory)
        if release.query_id != query_id:
            raise ReleaseError(f"{directory}: holds another query's release; move it elsewhere and fetch again")
        return release

    def run(
        self,
        plan: Plan,
        on_status: OnStatus | None = None,
        timeout_s: float | None = None,
        progress: Progress | None = None,
        *,
        retries: int = 0,
    ) -> Release:
        """Send, follow and fetch; see `watch` for the options. Checks `timeout_s` before anything is sent.

        Raises what these raise.
        """
        check_timeout(timeout_s)
        query_id = self.ask(plan)
        self.watch(query_id, on_status, timeout_s, retries=retries)
        return self.fetch(query_id, progress)

    def _open(self, asked: AskedQuery) -> OpenedQuery:
        """Open one of this learner's queries as of its creation time, because a total outlives its query."""
        roster = open_roster(asked.roster, self._federation_key)
        created = Query.from_bytes(asked.query.payload).created_at_unix_s
        return open_query(asked.query, roster, now_unix_s=created)

    def _query(self, query_id: bytes) -> Query:
        return Query.from_bytes(self._state.find(query_id).query.payload)

    def _fresh_roster_for(self, total: Total, asked: AskedQuery, opened: OpenedQuery) -> Envelope:
        """`_roster_for`, once no member of the cohort has a newer roster than this learner.

        Raises WireError(ROSTER_STALE) if a refresh does not bring the newer one. An expired roster does not matter
        here: the query's own time counts.
        """
        for is_refreshed in (False, True):
            roster = self._roster_for(total, asked)
            acceptances = check_cohort(total.cohort, opened, open_roster(roster, self._federation_key))
            try:
                check_fresh(acceptances, self._state.newest_version())
            except WireError as error:
                if is_refreshed or error.code is not Code.ROSTER_STALE:
                    raise
                self.fetch_roster()
            else:
                break
        return roster

    def _roster_for(self, total: Total, asked: AskedQuery) -> Envelope:
        """The roster that verifies query and cohort: the newest, or the one that the query was planned with.

        The latter keeps a total usable if a member leaves or changes its key after the cohort was fixed.
        """
        newest = self._state.newest_roster()
        if newest is None or newest == asked.roster:
            return asked.roster
        try:
            opened = self._open(AskedQuery(asked.query, newest))
            check_cohort(total.cohort, opened, open_roster(newest, self._federation_key))
        except WireError:
            return asked.roster
        return newest

    def _chunks(self, opened: OpenedQuery) -> Iterator[bytes]:
        for index in range(opened.chunks):
            yield self._coordinator.fetch_chunk(opened.query_id, index)


def check_timeout(timeout_s: float | None) -> None:
    """Raise ConfigurationError if this is not a positive, finite time; None means no limit."""
    if timeout_s is not None and not 0 < timeout_s < math.inf:
        raise ConfigurationError(f"timeout_s is {timeout_s}; give a positive number of seconds, or none")


def _statements(envelopes: Iterable[Envelope], roster: Roster, parties: Selection) -> Mapping[str, Features | None]:
    """What each party that is asked states of its node, verified; None for a party that states nothing."""
    stated: dict[str, Features | None] = {party.name: None for party in parties.asked}
    for envelope in envelopes:
        try:
            statement, member = open_features(envelope, roster)
        except WireError:
            continue  # of a key that the roster has replaced
        if member.name in stated:
            stated[member.name] = statement
    return stated


def _asks(plan: Plan) -> int:
    """How many parties a plan asks."""
    return len(plan.query.binding.parties)


class QueryEndedError(WireError):
    """A query ended without a total; carries the query's code and detail."""


class AttemptLostError(RadofedError):
    """An attempt was lost after parties were charged. The query waits for a decision until it expires."""

    exit_code = 6

    def __init__(self, status: QueryStatus, cost: str = "") -> None:
        """cost: a sentence on what another attempt costs."""
        self.status = status
        cost = f" {cost}" if cost else ""
        query = status.query_id.hex()[:RELEASE_NAME_DIGITS]
        super().__init__(
            f"attempt {status.attempt} of query {query} was lost. {status.detail} Parties may have been charged for "
            f"it, and another attempt is charged again.{cost} Start it with `rado learner retry {query}`, or end the "
            f"query with `rado learner cancel {query}`"
        )


def failure(status: QueryStatus, query: Query | None = None) -> QueryEndedError:
    """The error of a failed query. query: if it is known, see `advice`."""
    code = Code(status.code) if status.code in set(Code) else Code.INTERNAL
    return QueryEndedError(code, status.detail, advice(status, query))


def _statement(query: Query, result: OpenedTotal, attempts: int) -> PrivacyStatement:
    """The statement of a release. attempts: those of the query that may have a total.

    The values are released and every party was charged. If no bound can be given, for example because a party has or
    claims one row, the statement says so, and the release is kept.
    """
    rows = [acceptance.rows for acceptance in result.acceptances]
    try:
        statement = statement_for(
            query.kind,
            rows,
            query.delta,
            schema=query.schema,
            setting=setting_of(query),
            attempts=attempts,
            epoch=query.epoch,
        )
    except PlanError as error:
        sizes = ", ".join(f"{acceptance.party} {acceptance.rows}" for acceptance in result.acceptances)
        reason = f"No bound could be counted for this cohort ({sizes} rows, {amount(attempts, 'attempt')}): {error}."
        statement = without_bound(query.kind, query.schema, reason)
    return statement
