"""Witnesses of ledgers: a party answers no query before others confirm that its ledger was not set back.

A copy of a whole machine has its ledger and the head beside it, and both agree. But each member keeps the acceptances
of this party that it verified in a cohort.

At every start the party sends a challenge with a fresh nonce through the coordinator, and waits until as many accepted
members as its policy requires have signed what they hold. The coordinator can withhold answers, and can neither make
nor replay one.

The party asks again every day, every hour while an accepted member has not answered the last question, and an answer
counts for two days, by the clock and by the time that passed.

An answer shows the acceptance with the most entries, and names of the others. A head that this ledger lacks says that
it was set back. If it has gone on since, names show that it lacks some. The party asks the member for those, one at a
time, and its answers do not count until then (parties.ledger.witnessed).

A copy from between an attempt's acceptance and its charge lacks the charge alone. So reservations from before the start
are held.

If an accepted member shows that it was in a cohort with such an attempt, it is charged once it ends. When the query has
expired by every clock, the party asks again, and releases what no answer shows.

A party that cannot ask goes on for nearly a day, and then answers no query until it could
(parties.ledger.witnessed.KEPT_FOR_S). docs/threat-model-details.md, P7 and 4.3, says what is noticed, and what is not.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from parties.answering.attempts import Attempts
from parties.answering.coordinator_calls import MOST_CHALLENGES, CoordinatorCalls
from parties.ledger.ledger import Ledger
from parties.ledger.witnessed import KEPT_FOR_S, Evidence, UnknownNames, Witnessed
from parties.members import Rosters
from parties.policy import Policy
from radobase.logs import Log
from wire.envelopes import Envelope, MessageType, SigningKey, key_id, sha256, signed_bytes
from wire.errors import Code, WireError
from wire.query import CLOCK_SKEW_S
from wire.roster import Roster
from wire.statements import (
    MOST_WITNESSES,
    NONCE_BYTES,
    Acceptance,
    Challenge,
    Witness,
    name_asked_for,
    name_of,
    nonce_about,
    open_challenge,
    open_statement,
    open_witness,
    witnessed_head,
)

# A challenge is valid for CLOCK_SKEW_S.
ASK_AGAIN_S = 120.0
# Once all accepted members answered. Those who saw a cohort after they answered show it then.
ASK_DAILY_S = 86_400.0
# While enough answers count, and an accepted member has not answered the last question: it may have been offline.
ASK_HOURLY_S = 3600.0
COUNTS_FOR_S = 2 * ASK_DAILY_S
# After enough members answered, those of the others are waited for, or looked at, for this long.
LOOK_FOR_S = 600.0
LOOK_EVERY_S = 60.0
# Between two looks, and between the time that `held_until` allows for clocks and a reservation's end.
_MARGIN_S = 1800.0
# Nodes of a new federation start one after another: it is a warning only if no one answers for longer.
USUAL_WAIT_S = 300.0
# A coordinator shows a challenge again after a minute if the answer was lost.
ANSWER_AGAIN_S = 30.0
_JOINED = frozenset({Code.PEER_UNKNOWN, Code.SIGNATURE_INVALID})


class LedgerGuard:
    """Whether this party may answer queries. Only the polling thread calls `look` and `answer`.

    clock: Unix seconds. monotonic: seconds. random: bytes of the operating system's source. keeps: whether to write
    what is found to the ledger's file.
    """

    def __init__(
        self,
        *,
        federation: str,
        party: str,
        signing_key: SigningKey,
        policy: Policy,
        ledger: Ledger,
        rosters: Rosters,
        random: Callable[[int], bytes],
        log: Log,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        keeps: bool = True,
    ) -> None:
        self._federation, self._party, self._signing_key = federation, party, signing_key
        self._policy, self._ledger, self._rosters = policy, ledger, rosters
        self._witnessed, self._attempts = Witnessed(ledger.database), Attempts(ledger)
        self._random, self._log, self._clock, self._monotonic = random, log, clock, monotonic
        self._keeps = keeps
        self._accepted_by: tuple[Roster | None, Policy, frozenset[str]] = None, policy, frozenset()
        self._nonce: bytes | None = None
        self._asked_for: bytes | None = None
        """The name of an acceptance that the last challenge asks for."""
        self._asked_at = self._looked_at = self._said_at = self._asked_unix_s = self._lost_at = float("-inf")
        self._look_until = monotonic() + LOOK_FOR_S
        self._waits_since: float | None = None
        self._refused: set[bytes] = set()
        self.answered: dict[str, Envelope | None] = {}
        """Members that answered since this start, and the newest statement of this party that each showed last."""
        self._challenged: dict[str, tuple[float, float]] = {}
        """When the challenge was made of each one's last answer that counts: by the monotonic clock, and Unix seconds.

        Other threads read it. So it is replaced, never changed. Only members that were accepted when they answered.
        """
        self._unknown = UnknownNames(self._witnessed.unknown, monotonic)
        self.newest: Envelope | None = None
        """The coordinator's newest statement of this party, if it is one."""
        self.answered_last: set[str] = set()
        """Members that answered to the last challenge, and were accepted then."""
        self._answered_lately: dict[str, tuple[bytes, float]] = {}
        """The nonce of each party's last challenge that this one answered, and when."""
        self._taken: dict[bytes, tuple[str, bool]] = {}
        self._last_taken: dict[str, bytes] = {}
        self._fetched_for = frozenset[str]()
        """Which members were accepted when answers were fetched last."""
        """Signatures of answers to the last challenge: of whom, and whether it was accepted then."""
        self._said_enough = self._is_overdue = self._is_doubted = False
        self.evidence: Evidence | None = None
        """The statement of this party with the most entries that its ledger lacks."""
        if (evidence := self._witnessed.evidence()) is not None:
            self._set_back(evidence)

    def hold_reservations(self) -> None:
        """To be called once, when the node starts: hold what is reserved until others were asked about it."""
        held = self._ledger.hold_reservations()
        self._look_at_held()
        if held:
            reason = "this ledger may be older than the charge of one of them"
            self._log.info("reservations held", count=held, reason=reason)

    @property
    def is_set_back(self) -> bool:
        """Whether this party signed entries that its ledger does not have."""
        return self.evidence is not None

    @property
    def may_answer(self) -> bool:
        """Whether the ledger is confirmed, and no reservation has been held for too long after its query expired."""
        return self._is_confirmed and not self._is_overdue and not self._is_doubted

    def doubt(self) -> None:
        """Answer nothing until accepted members have answered a new challenge. Any thread may call it.

        For a sign that a second copy of this party runs, such as an answer that this one did not give: what members
        showed before is of no use then. A coordinator can cause it, and only delays answers.
        """
        self._is_doubted = True
        self._log.error("second copy suspected", reason="another answer with this party's key was there before; no "
                        "query is answered until accepted members have confirmed the ledger again")  # fmt: skip

    @property
    def _is_confirmed(self) -> bool:
        """Whether enough accepted members have answered, and nothing shows that the ledger was set back."""
        return not self.is_set_back and self.accepted_answers() >= self._policy.required_witnesses

    def accepted_answers(self) -> int:
        """How many accepted members have an answer that counts."""
        return len(self._counted())

    def _counted(self, within_s: float = COUNTS_FOR_S) -> list[str]:
        """Accepted members whose last answer that counts is not older."""
        accepted, challenged = self._accepted, self._challenged
        return sorted(
            name for name, asked in challenged.items() if name in accepted and self._elapsed_s(*asked) <= within_s
        )

    def _elapsed_s(self, monotonic_s: float, unix_s: float) -> float:
        """Since then, by the clock that went further: a machine that was suspended has a monotonic one that stood."""
        return max(self._monotonic() - monotonic_s, abs(self._clock() - unix_s))

    def _accepted_among(self, names: Iterable[str]) -> int:
        return len(self._accepted.intersection(names))

    @property
    def _accepted(self) -> frozenset[str]:
        """The other parties of the roster that the policy accepts."""
        roster, policy, found = self._accepted_by
        if roster is not self._rosters.known or policy is not self._policy:
            roster, policy = self._rosters.known, self._policy
            others = [] if roster is None else [party.name for party in roster.parties if party.name != self._party]
            found = frozenset(name for name in others if roster and policy.count_accepted(roster, self._party, (name,)))
            self._accepted_by = roster, policy, found
        return found

    def follow(self, policy: Policy) -> None:
        """Apply another policy. A member that it newly accepts counts once its answer was taken again."""
        self._policy = policy

    def look(self, coordinator: CoordinatorCalls) -> None:
        """Ask, if it is time to, and evaluate the answers that are there. Raises what the calls raise."""
        if self._is_doubted:
            # By this thread, which alone counts answers: those to earlier challenges must not count any more.
            self._challenged, self._nonce = {}, None
            self._is_doubted = False
        enough = self._is_confirmed
        if not enough or self._monotonic() - self._looked_at >= LOOK_EVERY_S:
            self._look(coordinator, enough=enough)
        self._report()

    def _look(self, coordinator: CoordinatorCalls, *, enough: bool) -> None:
        now = self._monotonic()
        held_until = self._look_at_held()
        asks_anew = enough and held_until is not None and held_until < self._clock()
        if asks_anew and self._policy.required_witnesses == 0:
            self._let_go(self._clock())
            asks_anew = False
        is_due = self._is_time_to_ask(now, held_until if asks_anew else None)
        if enough and not asks_anew and not is_due and now > self._look_until:
            return
        self._looked_at = now
        try:
            if is_due or self._nonce is None:
                self._ask(coordinator)
            if is_due:
                self._look_until = now + LOOK_FOR_S
            assert self._nonce is not None
            answers, newest = coordinator.fetch_witnesses(self._nonce, self._known_answers())
        except WireError as error:
            if error.code is Code.QUERY_UNKNOWN:
                self._lose_nonce(now)
                return
            self._say(self._log.warning, "no witnesses", code=error.code, detail=error.public_sentence)
            return
        for answer in answers:
            self._take(answer)
        self._fetched_for = self._accepted
        if newest is not None:
            self._take_newest(newest)
        if asks_anew and self._is_confirmed and self._has_final_answers():
            self._let_go(self._asked_unix_s)

    def _known_answers(self) -> int:
        """How many answers to the last challenge need not be looked at again.

        0 after a newer roster or policy: a member may be accepted now, or have another key.
        """
        # A frozenset is made for each roster and policy.
        return len(self._last_taken) if self._fetched_for is self._accepted else 0

    def _lose_nonce(self, now: float) -> None:
        """The coordinator was restarted, or says so: ask again at the next look, but not at every look."""
        if now - self._lost_at >= ASK_AGAIN_S:
            self._nonce, self._lost_at = None, now

    def _look_at_held(self) -> float | None:
        """When the first held reservation has lapsed by every clock. Notes if others may soon forget its attempt."""
        until = self._ledger.held_until()
        self._is_overdue = until is not None and until + KEPT_FOR_S - _MARGIN_S < self._clock()
        return until

    def _let_go(self, asked_unix_s: float) -> None:
        charged, released = self._ledger.let_go(asked_unix_s)
        if charged or released:
            by = sorted(self.answered_last)
            self._log.info("reservations confirmed", charged=charged, released=released, by=by)
        self._look_at_held()

    def _is_time_to_ask(self, now: float, held_until: float | None) -> bool:
        """held_until: given to ask about held reservations."""
        if held_until is None:
            waits = not self._is_confirmed or self._unknown.may_ask(self._accepted)
            return self._is_time_to_repeat() or (waits and now - self._asked_at >= ASK_AGAIN_S)
        was_early = self._asked_unix_s <= held_until
        return was_early or (not self._enough_answered_last() and now - self._asked_at >= ASK_AGAIN_S)

    def _is_time_to_repeat(self) -> bool:
        """Whether the last challenge is a day old, or an hour if too few answered it, or one did not for a day."""
        elapsed_s = self._elapsed_s(self._asked_at, self._asked_unix_s)
        is_settled = self._enough_answered_last() and self._accepted.issubset(self._counted(ASK_DAILY_S))
        return elapsed_s >= (ASK_DAILY_S if is_settled else ASK_HOURLY_S)

    def _enough_answered_last(self) -> bool:
        return self._accepted_among(self.answered_last) >= self._policy.required_witnesses

    def _has_final_answers(self) -> bool:
        """Whether all accepted members answered the last challenge, or enough did and the others had time for it."""
        is_over = self._accepted.issubset(self.answered_last) or self._monotonic() - self._asked_at > LOOK_FOR_S
        return self._enough_answered_last() and is_over

    def answer(self, challenges: Iterable[Envelope], coordinator: CoordinatorCalls) -> int:
        """Answer other parties' challenges with what this party holds, each party once. Returns how many were junk.

        Junk is what no party of the roster signed, what is old, and what was answered lately. It is logged and counted.
        """
        opened, refused = self._opened(tuple(challenges)[:MOST_CHALLENGES])
        # A party may have joined.
        if any(error.code in _JOINED for _, error in refused) and self._rosters.refresh_for_unverified(coordinator):
            again, refused = self._opened([envelope for envelope, _ in refused])
            opened += again
        first = {error.code: error.public_sentence for _, error in reversed(refused)}
        for code, count in Counter(error.code for _, error in refused).items():
            detail = first[code]
            self._log.refused("challenge not answered", peer="coordinator", code=code, detail=detail, count=count)
        witnesses = [witness for challenge in opened if (witness := self._witness(challenge)) is not None]
        for start in range(0, len(witnesses), MOST_WITNESSES):
            self._send(witnesses[start : start + MOST_WITNESSES], coordinator)
        return len(refused) + len(opened) - len(witnesses)

    def _opened(self, challenges: Iterable[Envelope]) -> tuple[list[Challenge], list[tuple[Envelope, WireError]]]:
        """One verified challenge of each other party; and what does not verify, with what is wrong."""
        opened: dict[str, Challenge] = {}
        refused: list[tuple[Envelope, WireError]] = []
        for envelope in challenges:
            try:
                challenge, _ = open_challenge(envelope, self._rosters.current)
            except WireError as error:
                refused.append((envelope, error))
            else:
                opened.setdefault(challenge.party, challenge)
        opened.pop(self._party, None)
        return list(opened.values()), refused

    def _witness(self, challenge: Challenge) -> Envelope | None:
        """The answer to a verified challenge, unless it is old or was answered lately."""
        now, (nonce, answered_at) = self._monotonic(), self._answered_lately.get(challenge.party, (b"", float("-inf")))
        if nonce == challenge.nonce and now - answered_at < ANSWER_AGAIN_S:
            return None
        if abs(self._clock() - challenge.signed_at_unix_s) > CLOCK_SKEW_S:
            reason = "it is old, or from the future"
            self._log.refused("challenge refused", peer=challenge.party, code="OLD", reason=reason)
            return None
        self._answered_lately[challenge.party] = challenge.nonce, now
        held = self._shown(challenge, self._rosters.current)
        names, first = self._witnessed.in_cohorts(challenge.party)
        witness = Witness(self._federation, self._party, challenge.party, challenge.nonce, held, names, first)
        return witness.sign(self._signing_key)

    def _send(self, witnesses: Sequence[Envelope], coordinator: CoordinatorCalls) -> None:
        try:
            coordinator.witness(witnesses)
        except WireError as error:
            detail = error.public_sentence
            self._log.refused("challenge not answered", peer="coordinator", code=error.code, detail=detail)

    def _shown(self, challenge: Challenge, roster: Roster) -> Envelope | None:
        """What another party asks for, or the newest that this one holds of it, if that still verifies.

        The other's key may have changed since.
        """
        party = challenge.party
        asked_for = partial(self._witnessed.named, party, name_asked_for(challenge.nonce))
        for find in (asked_for, partial(self._witnessed.newest, party)):
            with suppress(WireError):
                held = find()
                if held is not None and witnessed_head(held, party, roster) is not None:
                    return held
        return None

    def _ask(self, coordinator: CoordinatorCalls) -> None:
        nonce, asked_unix_s = self._random(NONCE_BYTES), self._clock()
        asked_for = self._unknown.choose(self._accepted)
        if asked_for is not None:
            nonce = nonce_about(asked_for, nonce)
        challenge = Challenge(self._federation, self._party, nonce, int(asked_unix_s))
        coordinator.ask_witnesses(challenge.sign(self._signing_key))
        self._nonce, self._asked_for = nonce, asked_for
        self._asked_at, self._asked_unix_s = self._monotonic(), asked_unix_s
        self.answered_last.clear()
        self._taken.clear()
        self._last_taken.clear()

    def _take(self, answer: Envelope) -> None:
        """Count a member's answer, once. One to another challenge, or with another party's statement, is refused."""
        taken = self._taken.get(answer.signature)
        if taken is not None and (taken[0] in self._accepted) == taken[1]:
            return
        roster = self._rosters.current
        try:
            witness, member = open_witness(answer, roster)
            if (witness.subject, witness.nonce) != (self._party, self._nonce) or member.name == self._party:
                raise WireError(Code.SENDER_MISMATCH, f"The answer of {member.name} is to another challenge.")
            if witness.newest is not None:
                self._check(witness.newest, member.name, roster)
            # Durable before the member counts. A member that is not accepted may have got it outside of a cohort.
            is_accepted = member.name in self._accepted
            if self._keeps and is_accepted:
                self._note_cohorts(witness, roster)
        except WireError as error:
            self._refuse(answer, error)
            return
        if witness.newest is None or name_of(witness.newest) != self._asked_for:
            self.answered[member.name] = witness.newest
        self.answered.setdefault(member.name, witness.newest)
        if is_accepted:
            self._count(member.name, witness)
        # The last of each member: it may sign any number.
        self._taken.pop(self._last_taken.get(member.name, b""), None)
        self._taken[answer.signature] = (member.name, is_accepted)
        self._last_taken[member.name] = answer.signature

    def _count(self, name: str, witness: Witness) -> None:
        """Count an accepted member's answer, unless it names attempts that this ledger does not know."""
        before = self._unknown.of([name])
        left = self._unknown.take(name, witness.in_cohorts, self._asked_for)
        if left and not before:
            reason = "it shows attempts that this ledger does not have; it is asked for them"
            self._log.refused("unknown attempts", peer=name, code="UNKNOWN", count=len(left), reason=reason)
        self.answered_last.add(name)
        if not left:
            self._challenged = {**self._challenged, name: (self._asked_at, self._asked_unix_s)}

    def unknown_names(self) -> frozenset[bytes]:
        """Names of attempts that accepted members showed, and that this ledger does not know."""
        return self._unknown.of(self._accepted)

    def _take_newest(self, newest: Envelope) -> None:
        try:
            self._check(newest, "the coordinator", self._rosters.current)
        except WireError as error:
            self._refuse(newest, error)
            return
        self.newest = newest

    def _check(self, statement: Envelope, source: str, roster: Roster) -> None:
        """Compare this party's own statement with its ledger. Raises WireError if it is not this party's."""
        try:
            head = witnessed_head(statement, self._party, roster)
        except WireError as error:
            if statement.key_id != key_id(self._signing_key.public_bytes):
                raise
            raise WireError(
                error.code,
                f"{source} showed a statement with this party's key that is not of this federation: the key is used in "
                "another one, where it should be replaced, or the statement is from before 0.2.1.",
            ) from error
        if head is None:
            raise WireError(Code.MESSAGE_MALFORMED, f"The statement that {source} showed has no ledger head.")
        if self._ledger.contradicts(head) and head.entries > self._entries_of_evidence(roster):
            evidence = Evidence(statement, source)
            if self._keeps:
                self._witnessed.note_evidence(evidence)
            self._set_back(evidence)

    def _entries_of_evidence(self, roster: Roster) -> int:
        """Of what says already that the ledger was set back; -1 if nothing does, or under another key."""
        with suppress(WireError):
            head = None if self.evidence is None else witnessed_head(self.evidence.statement, self._party, roster)
            return -1 if head is None else head.entries
        return -1

    def _note_cohorts(self, witness: Witness, roster: Roster) -> None:
        """A member was in cohorts with these attempts. In a copy from before their charge they are only reserved."""
        if witness.newest is not None:
            acceptance = open_statement(Acceptance, witness.newest, roster)[0]
            self._ledger.seen_in_cohort(acceptance.query_id, acceptance.attempt)
        if witness.in_cohorts or witness.in_cohorts_from:
            self._attempts.seen_in_cohorts(witness)

    def _set_back(self, evidence: Evidence) -> None:
        was_known, self.evidence = self.is_set_back, evidence
        if was_known:
            return
        self._log.error(
            "ledger set back",
            shown_by=evidence.source,
            own_entries=self._ledger.head().entries,
            reason="this party signed entries that its ledger does not have; it answers no query. The data officer "
            "runs `rado ledger acknowledge`",
        )

    def _refuse(self, statement: Envelope, error: WireError) -> None:
        name = sha256(signed_bytes(self._federation, MessageType.WITNESS, statement.payload), statement.signature)
        # The coordinator repeats its answers.
        if name not in self._refused and len(self._refused) < MOST_CHALLENGES:
            self._refused.add(name)
            detail = error.public_sentence
            self._log.refused("witness refused", peer="coordinator", code=error.code, detail=detail)

    def _report(self) -> None:
        if self.may_answer:
            if not self._said_enough:
                self._log.info("ledger witnessed", by=self._counted(), required=self._policy.required_witnesses)
            self._said_enough, self._waits_since = True, None
        elif not self.is_set_back:
            now, self._said_enough = self._monotonic(), False
            if self._waits_since is None:
                self._waits_since = now
            is_usual = now - self._waits_since < USUAL_WAIT_S
            self._say(self._log.info if is_usual else self._log.warning, "waiting for witnesses")

    def _say(self, log: Callable[..., None], event: str, **fields: object) -> None:
        """Log why the party does not answer yet, at most once a minute."""
        if self._monotonic() - self._said_at < LOOK_EVERY_S:
            return
        self._said_at = self._monotonic()
        log(event, **fields, accepted_answers=self.accepted_answers(), required=self._policy.required_witnesses)
