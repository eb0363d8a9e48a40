"""Witnesses: what a party that was set back notices, and what it does not believe."""

import secrets
import shutil
import time
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import count
from unittest.mock import Mock

import pytest

from dpcore.randomness.sources import SystemRandom
from parties.answering.attempts import AttemptState
from parties.answering.coordinator_calls import StoppedError
from parties.answering.witnesses import (
    ANSWER_AGAIN_S,
    ASK_AGAIN_S,
    ASK_DAILY_S,
    ASK_HOURLY_S,
    COUNTS_FOR_S,
    LOOK_EVERY_S,
    LOOK_FOR_S,
    USUAL_WAIT_S,
    LedgerGuard,
)
from parties.database import LedgerBusyError, LedgerOwner
from parties.ledger.acknowledgement import _claims, charge_plan, plan
from parties.ledger.head import SumsKey
from parties.ledger.ledger import Ledger
from parties.ledger.witnessed import FORGOTTEN_AFTER_S, KEPT_FOR_S, MOST_QUESTIONS_A_DAY, Witnessed
from parties.members import Rosters
from radobase.logs import Log
from tests.federation.party import FEDERATION, Ada, World, limits, ready, reserved, spent
from wire.envelopes import Envelope, SigningKey, fingerprint, key_id
from wire.errors import Code, WireError
from wire.query import CLOCK_SKEW_S
from wire.statements import (
    CHALLENGE_BYTES,
    MOST_IN_COHORTS,
    Acceptance,
    Challenge,
    Cohort,
    LedgerHead,
    Receipt,
    Witness,
    name_of,
    nonce_about,
    open_challenge,
    open_statement,
    open_witness,
    sign,
)

LIMITS = limits("1000", "1e-3")


@dataclass
class Board:
    """The coordinator's part, as a test controls it."""

    world: World
    answers: list[Envelope] = field(default_factory=list)
    newest: Envelope | None = None
    asked: list[Challenge] = field(default_factory=list)
    sent: list[Envelope] = field(default_factory=list)
    forgets: bool = False
    rosters_fetched: int = 0
    known: list[int] = field(default_factory=list)
    calls: int = 0

    def fetch_roster(self):
        self.rosters_fetched += 1
        return self.world.roster_envelope, time.time()

    def ask_witnesses(self, challenge: Envelope) -> None:
        self.asked.append(open_challenge(challenge, self.world.roster)[0])
        self.forgets = False

    def fetch_witnesses(self, nonce: bytes, known: int):
        if self.forgets or nonce != self.asked[-1].nonce:
            raise WireError(Code.QUERY_UNKNOWN)
        self.known.append(known)
        return tuple(self.answers[known:]), self.newest

    def witness(self, witnesses) -> None:
        self.sent += witnesses
        self.calls += 1

    def say(self, party: str, newest: Envelope | None = None, *, key: SigningKey | None = None, **changes) -> None:
        honest = Witness(FEDERATION, party, "ada", self.asked[-1].nonce, newest)
        self.answers.append(replace(honest, **changes).sign(key or self.world.party_keys[party]))


@pytest.fixture
def board(world):
    return Board(world)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def guard(ada: Ada, clock=None, wall_clock=None, **policy) -> LedgerGuard:
    return LedgerGuard(
        federation=FEDERATION,
        party="ada",
        signing_key=ada.world.party_keys["ada"],
        policy=ada.world.policy(**policy),
        ledger=ada.ledger,
        rosters=ada.rosters,
        random=SystemRandom().bytes,
        log=Log("party.test"),
        clock=wall_clock or time.time,
        monotonic=clock or time.monotonic,
    )


def fields_of(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, object]]:
    """What is logged beside an event, each time."""
    return [record.fields for record in caplog.records if record.message == event]


def accepted(ada: Ada) -> Envelope:
    """Ada's acceptance of a new query, as a cohort's members hold it."""
    assert ada.lifecycle.advance(ada.work(ada.world.ask()))
    return ada.hub.answers[-1]


def head(statement: Envelope) -> LedgerHead:
    found = Acceptance.from_bytes(statement.payload).ledger_head
    assert found is not None
    return found


def restored(ada: Ada, directory) -> None:
    """Put an older copy of the whole directory back."""
    ada.ledger.database.close()
    shutil.rmtree(ada.directory)
    shutil.copytree(directory, ada.directory)
    ada.restart()


@pytest.fixture
def ada(world, tmp_path):
    return Ada(world, tmp_path / "ada")


@pytest.fixture
def copy(ada, tmp_path):
    accepted(ada)
    return shutil.copytree(ada.directory, tmp_path / "copy")


# What travels.


def test_an_acceptance_carries_the_head_with_its_own_reservation(ada):
    for number in (1, 2):
        envelope = accepted(ada)
        found = head(envelope)
        assert (found.entries, found.digest) == (number, ada.ledger.head().digest)
        assert ada.attempts.unfinished()[-1].answer == envelope
        account = SumsKey("ada", ada.world.party_keys["ada"]).open(found)
        assert account is not None
        assert account.sums.unbounded == number
    # Neither another party, nor the same for another head, reads it.
    for key in (SumsKey("ada", ada.world.party_keys["bo"]), SumsKey("bo", ada.world.party_keys["ada"])):
        assert key.open(found) is None
    assert SumsKey("ada", ada.world.party_keys["ada"]).open(replace(found, entries=7)) is None


def cohort_with_heads(ada: Ada, own: Envelope) -> Cohort:
    """A cohort in which every member's acceptance carries a head."""
    cohort = ada.world.cohort(own)
    members = [own]
    for number, envelope in enumerate(cohort.acceptances[1:]):
        acceptance = Acceptance.from_bytes(envelope.payload)
        complete = replace(acceptance, ledger_head=LedgerHead(7 + number, b"d" * 32, b""))
        members.append(sign(complete, ada.world.party_keys[acceptance.party]))
    return Cohort(cohort.query_id, cohort.attempt, tuple(members))


@pytest.mark.usefixtures("small_comb")
def test_a_receipt_carries_the_head_with_its_charge_and_is_the_same_after_a_restart(ada):
    envelope, _ = ready(ada)
    cohort = cohort_with_heads(ada, ada.hub.answers[-1])
    ada.hub.fail["receipt"] = [WireError(Code.SPOOL_FULL)]
    with pytest.raises(WireError):
        ada.upload(envelope, cohort)
    # More happens before the receipt is sent again.
    accepted(ada)
    ada.ledger.database.close()
    ada.restart()
    ada.upload(envelope, cohort)
    ada.upload(envelope, cohort)
    receipt = open_statement(Receipt, ada.hub.receipts[0], ada.world.roster)[0]
    assert receipt.ledger_head is not None
    assert receipt.ledger_head.entries == 2
    assert len(set(ada.hub.receipts)) == 1
    assert not ada.ledger.contradicts(receipt.ledger_head)


@pytest.mark.usefixtures("small_comb")
def test_the_others_of_a_charged_cohort_are_remembered(ada):
    envelope, _ = ready(ada)
    cohort = cohort_with_heads(ada, ada.hub.answers[-1])
    witnessed = Witnessed(ada.ledger.database)
    assert witnessed.newest("bo") is None
    ada.upload(envelope, cohort)
    assert [witnessed.newest(name) for name in ("ada", "bo", "cy")] == [None, *cohort.acceptances[1:]]
    # An older one does not replace it, another key's does.
    witnessed.remember("bo", 6, cohort.acceptances[2])
    assert witnessed.newest("bo") == cohort.acceptances[2]
    for entries in (5, 6):
        witnessed.remember("bo", entries, replace(cohort.acceptances[2], payload=b"no newer"))
        assert witnessed.newest("bo") == cohort.acceptances[2]


# Waiting.


def test_it_waits_for_as_many_accepted_members_as_its_policy_requires(ada, board):
    waiting = guard(ada, required_witnesses=2)
    waiting.look(board)
    assert not waiting.may_answer
    board.say("bo")
    waiting.look(board)
    assert not waiting.may_answer
    board.say("cy")
    waiting.look(board)
    assert waiting.may_answer
    assert len(board.asked) == 1


def test_nothing_is_required_by_default_less_than_one(ada, board):
    waiting = guard(ada)
    waiting.look(board)
    assert not waiting.may_answer
    board.say("bo")
    waiting.look(board)
    assert waiting.may_answer


def test_a_member_that_is_not_accepted_does_not_count_but_its_evidence_does(ada, board, copy):
    newest = accepted(ada)
    restored(ada, copy)
    waiting = guard(ada, accepted_members=[])
    waiting.look(board)
    board.say("bo")
    waiting.look(board)
    assert (waiting.may_answer, waiting.is_set_back) == (False, False)
    board.say("cy", newest)
    waiting.look(board)
    assert waiting.is_set_back


def test_without_required_witnesses_it_answers_at_once_and_still_looks(ada, board, copy):
    newest = accepted(ada)
    restored(ada, copy)
    waiting = guard(ada, required_witnesses=0)
    assert waiting.may_answer
    waiting.look(board)
    board.say("bo", newest)
    assert waiting.may_answer
    waiting._looked_at = float("-inf")
    waiting.look(board)
    assert not waiting.may_answer


def test_another_answer_that_was_there_before_stops_it_until_members_answer_anew(ada, board, copy):
    """The same directory runs twice: the other copy answered first, and a later member saw it."""
    found = guard(ada, required_witnesses=1)
    found.look(board)
    board.say("bo")
    found.look(board)
    ada.lifecycle._on_conflict = found.doubt
    envelope = ada.world.ask()
    ada.hub.fail["answer"] = [WireError(Code.ANSWER_CONFLICT)]
    assert found.may_answer
    ada.lifecycle.advance(ada.work(envelope))
    assert not found.may_answer, "at once, before it is looked for"
    # The answers to the challenge before do not count any more.
    first = board.asked[-1].nonce
    found.look(board)
    assert board.asked[-1].nonce != first
    assert not found.may_answer
    board.answers.clear()
    board.say("bo")
    found.look(board)
    assert found.may_answer


@pytest.mark.parametrize("refused", ["refusal", "acceptance"])
def test_a_conflict_of_the_only_answer_is_doubt_and_of_a_second_one_is_none(ada, refused, monkeypatch):
    doubts = []
    ada.lifecycle._on_conflict = lambda: doubts.append(1)
    ada.hub.fail["answer"] = [WireError(Code.ANSWER_CONFLICT)]
    if refused == "refusal":
        ada.lifecycle.follow(ada.world.policy(designs=()))
    ada.lifecycle.advance(ada.work(ada.world.ask()))
    assert doubts == [1]
    # What it gives up after it accepted is a second answer, which an older coordinator does not take.
    ada.lifecycle.follow(ada.world.policy())
    envelope = ada.world.ask()
    work = ada.work(envelope)
    assert ada.lifecycle.advance(work)
    monkeypatch.setattr("parties.answering.lifecycle.integer_vector", Mock(side_effect=WireError(Code.SPOOL_FULL)))
    ada.lifecycle.compute(work)
    ada.hub.fail["answer"] = [WireError(Code.ANSWER_CONFLICT)]
    ada.lifecycle.advance(work)
    assert doubts == [1]


def test_a_coordinator_that_withholds_answers_keeps_it_silent_and_is_asked_again(ada, board):
    clock = Clock()
    waiting = guard(ada, clock)
    for _ in range(3):
        waiting.look(board)
        clock.now += ASK_AGAIN_S
        assert not waiting.may_answer
    assert len({challenge.nonce for challenge in board.asked}) == len(board.asked) == 3
    # An answer to an earlier nonce does not count.
    board.say("bo", nonce=board.asked[0].nonce)
    waiting.look(board)
    assert not waiting.may_answer


def test_waiting_is_a_warning_only_after_the_usual_time(ada, board, caplog):
    caplog.set_level("INFO")
    clock = Clock()
    waiting = guard(ada, clock)
    # The coordinator starts an hour after the party: only then can others answer.
    clock.now += 3600
    for _ in range(8):
        waiting.look(board)
        clock.now += LOOK_EVERY_S
    said = [record.levelname for record in caplog.records if record.message == "waiting for witnesses"]
    assert said == ["INFO"] * int(USUAL_WAIT_S / LOOK_EVERY_S) + ["WARNING"] * 3
    assert not waiting.may_answer


def test_a_restarted_coordinator_is_asked_again(ada, board):
    waiting = guard(ada)
    waiting.look(board)
    board.forgets = True
    waiting.look(board)
    waiting.look(board)
    assert len(board.asked) == 2
    board.say("bo")
    waiting.look(board)
    assert waiting.may_answer


@pytest.mark.parametrize(
    "lie", ["another's statement", "an old nonce", "for another", "forged", "altered", "own", "bare"]
)
def test_a_witness_that_lies_does_not_count(ada, board, caplog, lie):
    waiting = guard(ada)
    waiting.look(board)
    others = board.world.acceptance(b"q" * 32, "cy")
    mine = accepted(ada)
    match lie:
        case "another's statement":
            board.say("bo", others)
        case "an old nonce":
            board.say("bo", mine, nonce=secrets.token_bytes(32))
        case "for another":
            board.say("bo", mine, subject="cy")
        case "forged":
            board.say("bo", mine, key=SigningKey.generate(FEDERATION))
        case "altered":
            board.say("bo", replace(mine, payload=mine.payload + b"\x20\x05"))
        case "own":
            board.say("ada", mine)
        case "bare":
            board.say("bo", board.world.acceptance(b"q" * 32, "ada"))
    waiting.look(board)
    waiting.look(board)
    assert (waiting.may_answer, waiting.is_set_back, waiting.answered) == (False, False, {})
    assert caplog.messages.count("witness refused") == 1


# Noticing.


def test_a_restored_copy_of_the_whole_directory_is_noticed_before_it_answers(ada, board, copy, caplog):
    newest = accepted(ada)
    restored(ada, copy)  # the ledger and its head agree: nothing here notices it
    waiting = guard(ada)
    waiting.look(board)
    board.say("bo", newest)
    waiting.look(board)
    assert waiting.is_set_back
    assert not waiting.may_answer
    assert caplog.messages.count("ledger set back") == 1
    # More answers do not help, and a restart remembers it without any.
    board.say("cy")
    waiting.look(board)
    assert not waiting.may_answer
    ada.ledger.database.close()
    ada.restart()
    assert guard(ada, required_witnesses=0).is_set_back


def test_a_copy_that_is_the_newest_is_not_set_back(ada, board, copy):
    restored(ada, copy)
    waiting = guard(ada)
    waiting.look(board)
    board.say("bo", ada.attempts.unfinished()[0].answer)
    waiting.look(board)
    assert waiting.may_answer


def test_one_of_two_forks_is_noticed(ada, board, copy):
    other = accepted(ada)
    restored(ada, copy)
    accepted(ada)
    accepted(ada)
    # As many entries and more, but other ones.
    assert ada.ledger.head().entries == 3 > head(other).entries
    waiting = guard(ada)
    waiting.look(board)
    board.say("bo", other)
    waiting.look(board)
    assert waiting.is_set_back


def test_the_coordinator_s_newest_statement_is_evidence_too(ada, board, copy):
    board.newest = accepted(ada)
    restored(ada, copy)
    waiting = guard(ada, required_witnesses=0)
    waiting.look(board)
    assert waiting.is_set_back


def test_what_the_coordinator_makes_up_is_no_evidence(ada, board, caplog):
    acceptance = Acceptance.from_bytes(board.world.acceptance(b"q" * 32, "ada").payload)
    made_up = replace(acceptance, ledger_head=LedgerHead(99, b"x" * 32, b""))
    board.newest = sign(made_up, SigningKey.generate(FEDERATION))
    waiting = guard(ada)
    waiting.look(board)
    board.say("bo")
    waiting.look(board)
    assert waiting.may_answer
    assert waiting.newest is None
    assert caplog.messages.count("witness refused") == 1


@pytest.mark.parametrize("shown_by", ["a member", "the coordinator"])
def test_a_statement_of_another_federation_is_no_evidence_and_the_reuse_of_the_key_is_said(
    ada, board, caplog, shown_by
):
    """The party has one name and key in two federations. `rado ledger acknowledge` would charge what it lacks."""
    acceptance = Acceptance.from_bytes(board.world.acceptance(b"q" * 32, "ada").payload)
    ahead = replace(acceptance, ledger_head=LedgerHead(99, b"x" * 32, b""))
    foreign = sign(ahead, SigningKey(board.world.party_keys["ada"]._private_key, "banks"))
    clock = Clock()
    waiting = guard(ada, clock)
    waiting.look(board)
    if shown_by == "a member":
        board.say("bo", foreign)
    else:
        board.newest = foreign
        board.say("bo")
    board.say("cy")
    waiting.look(board)
    assert not waiting.is_set_back
    assert waiting.may_answer
    (said,) = [event["detail"] for event in fields_of(caplog, "witness refused")]
    assert "the key is used in another one" in said
    # The same statement, of this federation, is evidence.
    board.say("bo", sign(ahead, board.world.party_keys["ada"]))
    clock.now += LOOK_EVERY_S
    waiting.look(board)
    assert waiting.is_set_back


def test_a_late_answer_stops_a_party_that_answers_already(ada, board, copy):
    newest = accepted(ada)
    restored(ada, copy)
    clock = Clock()
    waiting = guard(ada, clock)
    waiting.look(board)
    board.say("bo")
    waiting.look(board)
    assert waiting.may_answer
    board.say("cy", newest)
    waiting.look(board)
    clock.now += 61
    waiting.look(board)
    assert not waiting.may_answer


def test_a_party_whose_ledger_is_not_confirmed_neither_answers_nor_ends_nor_computes(ada):
    envelope = ada.world.ask()
    ada.lifecycle._may_answer = lambda: False
    for call in (ada.lifecycle.advance, ada.lifecycle.compute):
        with pytest.raises(StoppedError):
            call(ada.work(envelope))
    assert ada.hub.answers == []


# A copy from between acceptance and charge.


def test_a_reservation_that_others_saw_in_a_cohort_is_charged_when_it_ends(ada, board):
    """In the copy it is reserved. It was charged later, and the acceptance has the same head in both."""
    envelope = ada.world.ask()
    ada.lifecycle.advance(ada.work(envelope))
    waiting = guard(ada)
    waiting.hold_reservations()
    waiting.look(board)
    board.say("bo", ada.hub.answers[-1])
    waiting.look(board)
    assert waiting.may_answer
    ada.lifecycle.end_queries(ada.lifecycle.held())
    assert ada.state(envelope) is AttemptState.ENDED
    assert spent(ada) > 0
    assert ada.ledger.is_charged(envelope.payload_hash, 1)
    assert ada.ledger.verify() == []


def test_it_is_charged_when_it_lapses_too(ada, board):
    envelope = ada.world.ask()
    ada.lifecycle.advance(ada.work(envelope))
    ada.ledger.hold_reservations()
    ada.ledger.seen_in_cohort(envelope.payload_hash, 1)
    assert ada.ledger.lapse(1e15) == 0
    assert ada.ledger.is_charged(envelope.payload_hash, 1)


class Restarted:
    """Ada after a restart, with reservations from before it, and a controlled time."""

    def __init__(self, ada: Ada, board: Board, *queries, **policy):
        self.ada, self.board = ada, board
        self.envelopes = [ada.world.ask(query) for query in queries]
        for envelope in self.envelopes:
            ada.lifecycle.advance(ada.work(envelope))
        self.names = [name_of(answer) for answer in ada.hub.answers]
        ada.ledger.database.close()
        ada.restart()
        self.clock, self.wall = Clock(), Clock()
        self.wall.now = time.time()
        self.guard = guard(ada, self.clock, self.wall, **policy)
        self.guard.hold_reservations()

    def turn(self, seconds: float = LOOK_EVERY_S) -> None:
        self.clock.now += seconds
        self.wall.now += seconds
        self.guard.look(self.board)

    def answered(self, *names: str, **shown) -> None:
        """These members answer the newest challenge, and the party looks."""
        for name in names:
            self.board.say(name, **shown)
        self.turn()

    def confirmed(self, *names: str) -> None:
        self.guard.look(self.board)
        self.answered(*(names or ("bo", "cy")))
        assert self.guard.may_answer

    def is_charged(self, number: int) -> bool:
        return self.ada.ledger.is_charged(self.envelopes[number].payload_hash, 1)


def test_every_attempt_that_a_member_shows_is_charged_when_it_ends(ada, board):
    """Of three that were open at once it was in a cohort with two, and the newest statement is of the third."""
    restarted = Restarted(ada, board, *(ada.world.query() for _ in range(3)))
    newest = ada.attempts.unfinished()[2].answer
    restarted.guard.look(board)
    restarted.answered("bo", newest=newest, in_cohorts=tuple(sorted(restarted.names[1:])))
    ada.lifecycle.end_queries(ada.lifecycle.held())
    assert [restarted.is_charged(number) for number in range(3)] == [False, True, True]
    # The first is not released either: a member that has not answered may have been in a cohort with it.
    assert spent(ada) == 2 * reserved(ada) > 0


def test_names_that_are_not_of_its_attempts_change_nothing(ada, board):
    restarted = Restarted(ada, board, ada.world.query())
    restarted.guard.look(board)
    restarted.answered("bo", in_cohorts=(b"s" * 8,))
    ada.lifecycle.end_queries(ada.lifecycle.held())
    assert not restarted.is_charged(0)


def test_a_reservation_from_before_the_start_is_released_once_members_were_asked_after_its_query_expired(
    ada, board, caplog
):
    caplog.set_level("INFO")
    restarted = Restarted(ada, board, ada.world.query())
    assert [logged["count"] for logged in fields_of(caplog, "reservations held")] == [1]
    restarted.confirmed()
    ada.lifecycle.end_queries(ada.lifecycle.held())
    restarted.turn(3600)
    assert ada.ledger.lapse(1e15) == 0
    assert reserved(ada) > 0
    # A member could be in a cohort with it until now.
    restarted.turn(2 * CLOCK_SKEW_S + 1)
    assert len(board.asked) == 2
    restarted.answered("bo")
    assert reserved(ada) > 0
    restarted.answered("cy")
    assert reserved(ada) == spent(ada) == 0
    assert fields_of(caplog, "reservations confirmed") == [{"charged": 0, "released": 1, "by": ["bo", "cy"]}]
    # It is not asked about again.
    restarted.turn(LOOK_FOR_S)
    restarted.turn(3600)
    assert len(board.asked) == 2


def test_a_member_that_shows_it_then_has_it_charged(ada, board):
    restarted = Restarted(ada, board, ada.world.query())
    restarted.confirmed()
    restarted.turn(3600 + 2 * CLOCK_SKEW_S + 1)
    restarted.answered("bo", "cy", in_cohorts=tuple(restarted.names))
    assert reserved(ada) == 0
    assert restarted.is_charged(0)
    assert ada.ledger.verify() == []


def test_members_that_do_not_answer_then_are_waited_for_and_fewer_than_required_never_suffice(ada, board):
    restarted = Restarted(ada, board, ada.world.query())
    restarted.confirmed()
    restarted.turn(3600 + 2 * CLOCK_SKEW_S + 1)
    for _ in range(20):
        restarted.turn()
        assert reserved(ada) > 0
    asked = len(board.asked)
    assert asked > 5
    restarted.answered("bo")
    assert reserved(ada) > 0
    for _ in range(10):
        restarted.turn()
    assert reserved(ada) == 0
    assert len(board.asked) == asked


def test_a_reservation_made_since_the_start_is_released_at_once(ada, board):
    restarted = Restarted(ada, board)
    restarted.confirmed()
    envelope = ada.world.ask()
    ada.lifecycle.advance(ada.work(envelope))
    assert reserved(ada) > 0
    ada.lifecycle.end_queries(ada.lifecycle.held())
    assert reserved(ada) == spent(ada) == 0


@pytest.mark.usefixtures("small_comb")
def test_an_attempt_from_before_the_start_goes_on_and_is_charged_once(ada, board):
    restarted = Restarted(ada, board, ada.world.query())
    restarted.confirmed()
    (envelope,) = restarted.envelopes
    assert ada.go(envelope)
    ada.upload(envelope, ada.world.cohort(ada.attempts.unfinished()[0].answer))
    assert (reserved(ada), restarted.is_charged(0), ada.ledger.held_until()) == (0, True, None)


@pytest.mark.usefixtures("small_comb")
def test_a_copy_from_before_its_contribution_was_computed_computes_no_other(ada, board):
    """Members were in a cohort with it, so it had computed one, with other noise."""
    restarted = Restarted(ada, board, ada.world.query())
    restarted.guard.look(board)
    restarted.answered("bo", in_cohorts=tuple(restarted.names))
    (envelope,) = restarted.envelopes
    ada.go(envelope)
    assert ada.state(envelope) is AttemptState.ENDED
    assert restarted.is_charged(0)


@pytest.mark.usefixtures("small_comb")
@pytest.mark.parametrize("again", [False, True], ids=["at once", "after another start"])
def test_a_copy_that_has_computed_another_sends_none_of_it_once_a_member_showed_the_cohort(ada, board, again):
    """The first answer showed nothing: that member had not seen the cohort, or was not in it."""
    restarted = Restarted(ada, board, ada.world.query(), required_witnesses=1)
    restarted.confirmed("bo")
    (envelope,) = restarted.envelopes
    assert ada.go(envelope)
    if again:
        ada.ledger.database.close()
        ada.restart()
        restarted.guard = guard(ada, restarted.clock, restarted.wall)
        restarted.guard.hold_reservations()
        restarted.guard.look(board)
    restarted.answered("cy", in_cohorts=tuple(restarted.names))
    ada.upload(envelope, ada.world.cohort(ada.attempts.unfinished()[0].answer))
    assert ada.hub.receipts == []
    assert ada.hub.chunks == {}
    assert restarted.is_charged(0)


def test_a_list_that_leaves_it_out_for_its_length_counts_as_if_it_showed_it(ada, board):
    restarted = Restarted(ada, board, *(ada.world.query() for _ in range(2)))
    restarted.guard.look(board)
    restarted.answered("bo", in_cohorts_from=2)
    ada.lifecycle.end_queries(ada.lifecycle.held())
    assert [restarted.is_charged(number) for number in range(2)] == [True, False]


def test_what_a_member_shows_is_durable_before_it_counts(ada, board, monkeypatch):
    restarted = Restarted(ada, board, ada.world.query())
    restarted.guard.look(board)

    def full(*_given):
        raise LedgerBusyError(ada.ledger.database.path, "the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(ada.ledger, "seen_in_cohort", full)
        with pytest.raises(LedgerBusyError):
            restarted.answered("bo", in_cohorts=tuple(restarted.names))
    assert restarted.guard.answered == {}
    restarted.turn(1.0)
    assert restarted.guard.may_answer
    ada.lifecycle.end_queries(ada.lifecycle.held())
    assert restarted.is_charged(0)


def test_a_member_that_is_not_accepted_charges_nothing_by_what_it_shows(ada, board):
    restarted = Restarted(ada, board, ada.world.query(), accepted_members=[], required_witnesses=0)
    restarted.guard.look(board)
    restarted.answered("bo", newest=ada.attempts.unfinished()[0].answer, in_cohorts=tuple(restarted.names))
    ada.lifecycle.end_queries(ada.lifecycle.held())
    assert not restarted.is_charged(0)


def test_where_no_witness_is_required_reservations_end_with_their_queries(ada, board):
    restarted = Restarted(ada, board, ada.world.query(), required_witnesses=0)
    restarted.turn(3600 + 2 * CLOCK_SKEW_S + 1)
    assert reserved(ada) == 0


def test_a_party_that_cannot_ask_for_a_day_accepts_no_query_until_it_could(ada, board, monkeypatch):
    """Members forget the attempt once they are in a cohort with a newer one, which this copy would have accepted."""
    restarted = Restarted(ada, board, ada.world.query())
    restarted.confirmed()
    restarted.turn(KEPT_FOR_S)
    assert restarted.guard.may_answer
    with monkeypatch.context() as patched:
        # A coordinator that passes nothing on.
        patched.setattr(board, "fetch_witnesses", Mock(side_effect=WireError(Code.QUERY_UNKNOWN)))
        restarted.turn(3600)
        restarted.turn()
    assert not restarted.guard.may_answer
    # Nor after another start.
    again = guard(ada, restarted.clock, restarted.wall, required_witnesses=0)
    again.hold_reservations()
    assert not again.may_answer
    restarted.answered("bo", "cy", in_cohorts=tuple(restarted.names))
    assert restarted.guard.may_answer
    assert restarted.is_charged(0)


# Asking again every day.


def test_a_member_that_saw_the_cohort_after_it_had_answered_shows_it_the_next_day(ada, board, tmp_path):
    shutil.copytree(ada.directory, tmp_path / "copy")
    newest = accepted(ada)
    restored(ada, tmp_path / "copy")
    restarted = Restarted(ada, board)
    restarted.confirmed()
    restarted.turn(ASK_DAILY_S - 2 * LOOK_EVERY_S)
    assert len(board.asked) == 1
    restarted.turn()
    assert len(board.asked) == 2
    restarted.answered("bo", newest=newest)
    assert restarted.guard.is_set_back
    assert not restarted.guard.may_answer


@pytest.mark.parametrize("answers", [(), ("bo",)], ids=["none", "one of two"])
def test_a_day_is_asked_about_once_and_every_hour_while_a_member_has_not_answered_for_a_day(ada, board, answers):
    restarted = Restarted(ada, board)
    restarted.confirmed()
    restarted.turn(ASK_DAILY_S)
    restarted.answered(*answers)
    restarted.turn(ASK_HOURLY_S - 2 * LOOK_EVERY_S)
    assert len(board.asked) == 2
    restarted.turn()
    assert len(board.asked) == 3
    # The other was offline at the daily question.
    restarted.answered("bo", "cy")
    for _ in range(23):
        restarted.turn(ASK_HOURLY_S)
    assert len(board.asked) == 3
    restarted.turn(ASK_HOURLY_S)
    assert len(board.asked) == 4


def test_a_member_that_has_never_answered_is_asked_every_hour(ada, board):
    restarted = Restarted(ada, board)
    restarted.confirmed("bo")
    for hours in range(24):
        assert len(board.asked) == 1 + hours
        restarted.turn(ASK_HOURLY_S)
        restarted.answered("bo")


def test_a_party_that_no_member_answers_for_two_days_answers_no_query(ada, board):
    restarted = Restarted(ada, board)
    restarted.confirmed()
    restarted.turn(COUNTS_FOR_S - 2 * LOOK_EVERY_S)
    assert restarted.guard.may_answer
    restarted.turn(3 * LOOK_EVERY_S)
    assert not restarted.guard.may_answer
    restarted.turn(ASK_AGAIN_S)
    restarted.answered("cy")
    assert restarted.guard.may_answer


@pytest.mark.parametrize("days", [3, -3])
def test_a_machine_that_was_suspended_asks_first(ada, board, days):
    """Its monotonic clock stood meanwhile. A clock that was set back is no reason to count answers for longer."""
    restarted = Restarted(ada, board)
    restarted.confirmed()
    restarted.wall.now += days * 86_400
    assert not restarted.guard.may_answer
    restarted.turn(1.0)
    assert len(board.asked) == 2
    restarted.answered("bo")
    assert restarted.guard.may_answer


@pytest.mark.parametrize("stands", ["wall", "clock"])
def test_an_answer_counts_for_two_days_by_the_clock_that_went_further(ada, board, stands):
    """A clock that stands still keeps no answer alive."""
    restarted = Restarted(ada, board)
    restarted.confirmed()
    before = getattr(restarted, stands).now
    restarted.clock.now += COUNTS_FOR_S
    restarted.wall.now += COUNTS_FOR_S
    getattr(restarted, stands).now = before
    assert not restarted.guard.may_answer


def test_an_answer_counts_from_its_challenge_on(ada, board):
    """A coordinator that passes it on late extends nothing."""
    restarted = Restarted(ada, board)
    restarted.confirmed("bo")
    restarted.turn(LOOK_FOR_S - 2 * LOOK_EVERY_S)
    restarted.answered("cy")
    restarted.turn(COUNTS_FOR_S - LOOK_FOR_S - LOOK_EVERY_S)
    assert restarted.guard.accepted_answers() == 2
    restarted.turn(2 * LOOK_EVERY_S)
    assert restarted.guard.accepted_answers() == 0


def test_every_time_that_it_waits_and_goes_on_is_logged(ada, board, caplog):
    caplog.set_level("INFO")
    restarted = Restarted(ada, board)
    restarted.guard.look(board)
    restarted.answered("bo", "cy")
    restarted.turn(COUNTS_FOR_S + USUAL_WAIT_S)
    restarted.answered("bo")
    waited, went_on = ("INFO", "waiting for witnesses"), ("INFO", "ledger witnessed")
    logged = [(record.levelname, record.message) for record in caplog.records]
    assert [line for line in logged if line[1] in (waited[1], went_on[1])] == [waited, went_on, waited, went_on]
    # Of those whose answers count.
    required = ada.world.policy().required_witnesses
    assert fields_of(caplog, went_on[1]) == [{"by": by, "required": required} for by in (["bo", "cy"], ["bo"])]


def test_what_was_taken_is_forgotten_with_its_challenge(ada, board):
    restarted = Restarted(ada, board)
    restarted.confirmed()
    for _ in range(3):
        board.answers.clear()
        restarted.turn(ASK_DAILY_S)
        restarted.answered("bo", "cy")
    assert len(restarted.guard._taken) == 2


def test_answers_may_be_counted_while_others_are_taken(ada, board):
    """The polling thread takes them, others ask whether the party may answer."""
    restarted = Restarted(ada, board)
    restarted.confirmed("bo")
    challenged = restarted.guard._challenged
    restarted.answered("cy")
    assert list(challenged) == ["bo"]
    assert restarted.guard.accepted_answers() == 2


def test_a_coordinator_that_knows_no_challenge_is_asked_at_most_twice_in_two_minutes(ada, board, monkeypatch, caplog):
    caplog.set_level("INFO")
    restarted = Restarted(ada, board)
    monkeypatch.setattr(board, "fetch_witnesses", Mock(side_effect=WireError(Code.QUERY_UNKNOWN)))
    for _ in range(1200):
        restarted.turn(1.0)
    assert 10 <= len(board.asked) <= 20
    # A party that waits says so.
    assert caplog.messages.count("waiting for witnesses") == 20


def test_a_confirmed_party_looks_for_ten_minutes_whatever_the_coordinator_says(ada, board, monkeypatch):
    restarted = Restarted(ada, board)
    restarted.confirmed()
    fetch = Mock(side_effect=WireError(Code.QUERY_UNKNOWN))
    monkeypatch.setattr(board, "fetch_witnesses", fetch)
    for _ in range(59):
        restarted.turn()
    assert restarted.guard.may_answer
    assert fetch.call_count <= LOOK_FOR_S / LOOK_EVERY_S
    assert len(board.asked) <= 1 + LOOK_FOR_S / ASK_AGAIN_S


def test_a_party_whose_answers_are_too_old_says_so_whatever_the_coordinator_says(ada, board, monkeypatch, caplog):
    caplog.set_level("INFO")
    restarted = Restarted(ada, board)
    restarted.confirmed()
    monkeypatch.setattr(board, "fetch_witnesses", Mock(side_effect=WireError(Code.QUERY_UNKNOWN)))
    caplog.clear()
    restarted.turn(COUNTS_FOR_S)
    for _ in range(10):
        restarted.turn()
    said = [record.levelname for record in caplog.records if record.message == "waiting for witnesses"]
    assert said == ["INFO"] * 5 + ["WARNING"] * 6


def test_a_member_that_the_policy_accepts_later_counts_once_its_cohorts_are_noted(ada, board):
    """Its answer came before, and what it showed charged nothing."""
    restarted = Restarted(ada, board, ada.world.query(), accepted_members=[])
    restarted.guard.look(board)
    restarted.answered("bo", in_cohorts=tuple(restarted.names))
    restarted.guard.follow(ada.world.policy())
    assert not restarted.guard.may_answer
    restarted.turn(1.0)
    assert restarted.guard.may_answer
    ada.lifecycle.end_queries(ada.lifecycle.held())
    assert restarted.is_charged(0)


def test_answers_are_fetched_once_until_other_members_are_accepted(ada, board):
    clock = Clock()
    bo = fingerprint(ada.world.party_keys["bo"].public_bytes)
    found = guard(ada, clock, accepted_members=[bo], required_witnesses=1)
    found.look(board)
    for party in ("cy", "bo"):
        board.say(party)
        found.look(board)
    clock.now += LOOK_EVERY_S
    found.look(board)
    assert board.known == [0, 0, 1, 2]
    found.follow(ada.world.policy(required_witnesses=2))
    found.look(board)
    found.look(board)
    assert (board.known, found.accepted_answers()) == ([0, 0, 1, 2, 0], 2)


def test_many_challenges_are_answered_in_few_calls(ada, board, monkeypatch):
    monkeypatch.setattr("parties.answering.witnesses.MOST_WITNESSES", 2)
    found = guard(ada)
    parties = [party for party in ada.world.party_keys if party != "ada"]
    now = int(time.time())
    asked = [
        Challenge(FEDERATION, party, bytes([place]) * 32, now).sign(ada.world.party_keys[party])
        for place, party in enumerate(parties)
    ]
    assert found.answer(asked, board) == 0
    assert {open_witness(sent, ada.world.roster)[0].subject for sent in board.sent} == set(parties)
    assert board.calls == -(-len(parties) // 2)


def test_a_member_that_the_policy_does_not_accept_any_more_does_not_count(ada, board):
    restarted = Restarted(ada, board)
    restarted.confirmed()
    restarted.guard.follow(ada.world.policy(accepted_members=[]))
    assert not restarted.guard.may_answer


def test_what_a_member_says_of_a_reservation_made_since_the_start_charges_nothing(ada, board):
    """It may lie, or have got the acceptance from the coordinator: a sound party would pay for attempts that end."""
    restarted = Restarted(ada, board)
    restarted.guard.look(board)
    envelopes = [ada.world.ask() for _ in range(3)]
    for envelope in envelopes:
        ada.lifecycle.advance(ada.work(envelope))
    first, second, third = (held.answer for held in ada.attempts.unfinished())
    assert head(third).entries == 3
    restarted.answered("bo", newest=third, in_cohorts=tuple(sorted(map(name_of, (first, second)))), in_cohorts_from=2)
    ada.lifecycle.end_queries(ada.lifecycle.held())
    assert (reserved(ada), spent(ada)) == (0, 0)


# A copy that went on.


class Member:
    """Bo, with a real ledger file and guard, in a federation where a coordinator decides what it sees."""

    def __init__(self, world: World, directory, wall: Clock, name: str = "bo"):
        self.world, self.name, self.wall = world, name, wall
        self.ledger = Ledger.open(directory / "ledger.sqlite", LedgerOwner(FEDERATION, name, "data.csv"), LIMITS)
        self.witnessed = Witnessed(self.ledger.database)
        rosters = Rosters(
            directory, federation=FEDERATION, federation_key=world.federation_key.public_bytes, log=Log("bo.test")
        )
        rosters.offer(world.roster_envelope)
        self.guard = LedgerGuard(
            federation=FEDERATION,
            party=name,
            signing_key=world.party_keys[name],
            policy=world.policy(),
            ledger=self.ledger,
            rosters=rosters,
            random=SystemRandom().bytes,
            log=Log("bo.test"),
            clock=wall,
            # The same challenge is answered again once some time has passed.
            monotonic=map(float, count(0, 60)).__next__,
        )

    def sees(self, acceptance: Envelope, query) -> None:
        """It charges for a cohort with this acceptance of ada."""
        self.witnessed.remember("ada", head(acceptance).entries, acceptance)
        self.witnessed.remember_in_cohort("ada", head(acceptance).entries, acceptance, query)

    def answers(self, challenge: Challenge) -> Envelope:
        heard = Board(self.world)
        self.guard.answer((challenge.sign(self.world.party_keys["ada"]),), heard)
        return heard.sent[0]


class SetBack(Restarted):
    """Ada accepts a query, is set back to before it, starts, is confirmed, and accepts two others."""

    def __init__(self, ada: Ada, board: Board, tmp_path, *, is_first: bool = True, newest: bool = False):
        shutil.copytree(ada.directory, tmp_path / "copy")
        query = ada.world.query()
        self.lost = self.accept(ada, query)
        restored(ada, tmp_path / "copy")
        super().__init__(ada, board)
        self.bo = Member(ada.world, tmp_path / "bo", self.wall)
        self.confirmed()
        if is_first:
            self.bo.sees(self.lost, query)
        self.queries = [ada.world.query() for _ in range(2)]
        self.others = [self.accept(ada, query) for query in self.queries]
        for other, asked in zip(self.others, self.queries, strict=True):
            self.bo.sees(other, asked)
        if not is_first:
            self.bo.sees(self.lost, query)
        board.newest = self.others[-1] if newest else None

    def accept(self, ada: Ada, query) -> Envelope:
        assert ada.lifecycle.advance(ada.work(ada.world.ask(query)))
        return ada.hub.answers[-1]

    def asked_and_answered(self, *silent: str, seconds: float = LOOK_EVERY_S) -> None:
        """Bo answers the newest challenge with what it holds, and cy, which colludes, with nothing."""
        self.board.answers.clear()
        if "bo" not in silent:
            self.board.answers.append(self.bo.answers(self.board.asked[-1]))
        if "cy" not in silent:
            self.board.say("cy")
        self.turn(seconds)


@pytest.mark.parametrize("is_first", [True, False], ids=["the lost cohort first", "the lost cohort last"])
def test_a_set_back_ledger_that_went_on_is_noticed_at_the_next_question(ada, board, tmp_path, is_first):
    """The coordinator shows none of it, and the acceptances with the most entries are in the ledger."""
    party = SetBack(ada, board, tmp_path, is_first=is_first, newest=True)
    assert party.bo.witnessed.newest("ada") == party.others[-1]
    party.turn(ASK_DAILY_S)
    party.asked_and_answered()
    # Names prove nothing, and bo's former answer counts.
    assert party.guard.may_answer
    party.turn()
    assert len(board.asked) == 3
    party.asked_and_answered()
    assert party.guard.is_set_back
    assert party.guard.evidence is not None
    assert (party.guard.evidence.statement, party.guard.evidence.source) == (party.lost, "bo")
    assert not party.guard.may_answer


def test_a_set_back_ledger_that_went_on_is_not_confirmed_at_a_start_before_the_member_was_asked(ada, board, tmp_path):
    party = SetBack(ada, board, tmp_path)
    party.guard = guard(ada, party.clock, party.wall)
    party.guard.look(board)
    party.asked_and_answered("cy")
    assert not party.guard.may_answer
    party.turn()
    party.asked_and_answered("cy")
    assert party.guard.is_set_back


def test_what_it_lost_is_charged_and_its_name_known_once_it_is_acknowledged(ada, board, tmp_path):
    """The members' newest acceptances alone say that nothing is missing."""
    party = SetBack(ada, board, tmp_path)
    party.turn(ASK_DAILY_S)
    party.asked_and_answered()
    party.turn()
    party.asked_and_answered()
    key = SumsKey("ada", ada.world.party_keys["ada"])
    config = Mock(ledger_file=tmp_path / "no ledger")
    claims = _claims(party.guard, ada.world.roster, key, config)
    assert {(claim.source, claim.entries) for claim in claims} == {("bo", 2), ("bo", 1)}
    decided = plan(ada.ledger, claims, witnessed=True)
    before = reserved(ada)
    charge_plan(ada.ledger, decided, party.wall.now)
    # Two are in the ledger, and one of the same cost is not.
    assert spent(ada) == before * Fraction(3, 2) > 0
    ada.ledger.database.close()
    ada.restart()
    # The name of the lost attempt, which is not another lie.
    Witnessed(ada.ledger.database).know([name_of(party.lost)])
    party.guard = guard(ada, party.clock, party.wall)
    party.guard.look(board)
    party.asked_and_answered("cy")
    assert party.guard.may_answer


def test_a_coordinator_that_withholds_what_would_show_it_withholds_a_witness(ada, board, tmp_path):
    """It passes on bo's answer to every question but those about the lost attempt, and cy does not answer."""
    party = SetBack(ada, board, tmp_path)
    party.turn(ASK_DAILY_S)
    for _ in range(2 * 24 * 60):
        is_about_it = board.asked[-1].nonce.startswith(name_of(party.lost))
        party.asked_and_answered("cy", *(["bo"] if is_about_it else []))
    assert not party.guard.is_set_back
    assert not party.guard.may_answer
    # Bo does not forget it meanwhile: no query is answered that would let it.
    party.asked_and_answered("cy")
    while not party.guard.is_set_back:
        assert len(board.asked) < 10_000
        party.asked_and_answered("cy")


@pytest.mark.more
def test_a_member_that_shows_ever_other_names_costs_a_bounded_number_of_questions_and_its_own_answer(ada, board):
    restarted = Restarted(ada, board)
    restarted.confirmed()
    board.answers.clear()
    restarted.turn(ASK_DAILY_S)
    before = len(board.asked)
    for _ in range(24 * 60):
        board.answers.clear()
        board.say("bo", in_cohorts=tuple(sorted(secrets.token_bytes(8) for _ in range(MOST_IN_COHORTS))))
        board.say("cy")
        restarted.turn()
        assert restarted.guard.may_answer
    assert len(board.asked) - before <= MOST_QUESTIONS_A_DAY + 25
    assert len(restarted.guard.unknown_names()) < 2000
    for _ in range(2 * 24 * 60):
        board.answers.clear()
        board.say("bo", in_cohorts=(secrets.token_bytes(8),))
        restarted.turn()
    # Alone it is as if it were silent.
    assert restarted.guard.accepted_answers() == 0


def test_a_member_that_answers_otherwise_about_a_name_is_not_asked_for_it_again(ada, board, caplog):
    """It lies, or holds it under a key that was replaced."""
    restarted = Restarted(ada, board)
    restarted.confirmed("cy")
    restarted.answered("bo", in_cohorts=(b"s" * 8,))
    assert restarted.guard.accepted_answers() == 1
    restarted.turn(ASK_AGAIN_S)
    assert len(board.asked) == 2
    assert board.asked[-1].nonce.startswith(b"s" * 8)
    restarted.answered("bo", "cy", in_cohorts=(b"s" * 8,))
    # Cy has just shown it for the first time, and answered about it.
    assert restarted.guard.accepted_answers() == 2
    assert restarted.guard.unknown_names() == frozenset()
    restarted.turn(ASK_HOURLY_S)
    assert len(board.asked) == 2
    assert caplog.messages.count("unknown attempts") == 1


def test_a_name_stays_open_until_the_member_has_answered_about_it(ada, board):
    """Newer attempts may push it out of what the member shows."""
    restarted = Restarted(ada, board)
    restarted.guard.look(board)
    restarted.answered("bo", in_cohorts=(b"s" * 8,))
    board.say("bo", in_cohorts_from=2)
    restarted.turn(1.0)
    assert restarted.guard.unknown_names() == {b"s" * 8}
    assert not restarted.guard.may_answer


def test_names_of_acceptances_that_were_forgotten_are_known(ada, board):
    restarted = Restarted(ada, board, ada.world.query(), required_witnesses=1)
    restarted.confirmed()
    restarted.turn(3600 + 2 * CLOCK_SKEW_S + 1)
    restarted.answered("bo", "cy")
    ada.lifecycle.end_queries(ada.lifecycle.held())
    assert ada.attempts.forget(restarted.wall.now + 3 * CLOCK_SKEW_S) == 1
    restarted.turn(ASK_DAILY_S)
    restarted.answered("bo", "cy", in_cohorts=tuple(restarted.names))
    assert restarted.guard.unknown_names() == frozenset()
    assert restarted.guard.accepted_answers() == 2


def test_the_evidence_with_the_most_entries_is_kept(ada, board, tmp_path, caplog):
    shutil.copytree(ada.directory, tmp_path / "copy")
    lost = [accepted(ada) for _ in range(3)]
    restored(ada, tmp_path / "copy")
    restarted = Restarted(ada, board)
    restarted.guard.look(board)
    for shown, kept in ((1, 1), (2, 2), (0, 2)):
        board.say("bo", lost[shown])
        restarted.turn(1.0)
        assert Witnessed(ada.ledger.database).evidence().statement == lost[kept]
    assert caplog.messages.count("ledger set back") == 1


def test_evidence_under_a_former_key_gives_way_to_any_other(ada, board, tmp_path):
    shutil.copytree(ada.directory, tmp_path / "copy")
    lost = [accepted(ada) for _ in range(2)][-1]
    restored(ada, tmp_path / "copy")
    restarted = Restarted(ada, board)
    restarted.guard.look(board)
    restarted.answered("bo", newest=lost)
    ada.world.party_keys["ada"] = SigningKey.generate(FEDERATION)
    ada.world.version += 1
    ada.rosters.offer(ada.world.roster_envelope)
    again = Restarted(ada, board)
    assert again.guard.evidence is not None
    again.guard.look(board)
    first = replace(Acceptance.from_bytes(lost.payload), ledger_head=LedgerHead(1, b"d" * 32, b""))
    shown = sign(first, ada.world.party_keys["ada"])
    again.answered("bo", newest=shown)
    assert Witnessed(ada.ledger.database).evidence().statement == shown


# Answering others.


def challenge(
    world: World, party: str = "bo", *, age_s: float = 0.0, key: SigningKey | None = None, nonce: bytes = b"n" * 32
) -> Envelope:
    asked = Challenge(FEDERATION, party, nonce, int(time.time() - age_s))
    return asked.sign(key or world.party_keys[party])


def test_it_shows_what_it_holds(ada, board):
    answering = guard(ada)
    acceptance = Acceptance.from_bytes(ada.world.acceptance(b"q" * 32, "bo").payload)
    held = sign(replace(acceptance, ledger_head=LedgerHead(3, b"d" * 32, b"")), ada.world.party_keys["bo"])
    Witnessed(ada.ledger.database).remember("bo", 3, held)
    answering.answer((challenge(ada.world), challenge(ada.world, "cy")), board)
    found = [open_witness(sent, ada.world.roster)[0] for sent in board.sent]
    assert found == [
        Witness(FEDERATION, "ada", "bo", b"n" * 32, held),
        Witness(FEDERATION, "ada", "cy", b"n" * 32, None),
    ]
    # With another key of bo in the roster the statement would be refused, so it is not shown.
    ada.world.party_keys["bo"] = SigningKey.generate(FEDERATION)
    ada.world.version += 1
    ada.rosters.offer(ada.world.roster_envelope)
    answering.answer((challenge(ada.world),), board)
    assert open_witness(board.sent[-1], ada.world.roster)[0].newest is None


@pytest.mark.usefixtures("small_comb")
def test_it_shows_every_cohort(ada, board):
    shown = []
    for _ in range(2):
        envelope, _ = ready(ada)
        cohort = cohort_with_heads(ada, ada.hub.answers[-1])
        ada.upload(envelope, cohort)
        shown.append(name_of(cohort.acceptances[1]))
    guard(ada).answer((challenge(ada.world),), board)
    found = open_witness(board.sent[0], ada.world.roster)[0]
    assert found.in_cohorts == tuple(sorted(shown))


def test_what_a_newer_acceptance_covers_is_not_shown_any_more(ada):
    witnessed = Witnessed(ada.ledger.database)

    number_of = {}

    def remember(entries: int, created_at_unix_s: int) -> None:
        query = ada.world.query(created_at_unix_s=created_at_unix_s, not_after_unix_s=created_at_unix_s + 100)
        statement = Envelope(b"", b"k" * 32, entries.to_bytes(64, "big"))
        number_of[name_of(statement)] = entries
        witnessed.remember_in_cohort("bo", entries, statement, query)

    def shown() -> list[int]:
        return sorted(number_of[name] for name in witnessed.in_cohorts("bo")[0])

    later = FORGOTTEN_AFTER_S + 2 * CLOCK_SKEW_S
    remember(2, 1000)
    remember(1, 1000)
    # Its query may have been made less than two days after the others had expired.
    remember(3, 1100 + later)
    assert shown() == [1, 2, 3]
    # One with more entries stays.
    remember(5, 1101 + later)
    assert shown() == [3, 5]
    remember(4, 10 * later)
    assert (shown(), witnessed.in_cohorts("bo")[1]) == ([4, 5], 0)
    for entries in range(6, 6 + MOST_IN_COHORTS):
        remember(entries, 10 * later)
    assert shown() == list(range(6, 6 + MOST_IN_COHORTS))
    # Of heads with fewer entries it says nothing.
    assert witnessed.in_cohorts("bo")[1] == 5


def test_it_shows_what_it_is_asked_for_by_name_and_otherwise_the_newest(ada, board):
    answering, witnessed = guard(ada), Witnessed(ada.ledger.database)
    acceptance = Acceptance.from_bytes(ada.world.acceptance(b"q" * 32, "bo").payload)
    query, held = ada.world.query(), []
    for entries in (3, 5):
        complete = replace(acceptance, ledger_head=LedgerHead(entries, b"d" * 32, b""))
        held.append(sign(complete, ada.world.party_keys["bo"]))
        witnessed.remember("bo", entries, held[-1])
        witnessed.remember_in_cohort("bo", entries, held[-1], query)

    def shown(nonce: bytes) -> Envelope | None:
        asked = Challenge(FEDERATION, "bo", nonce, int(time.time())).sign(ada.world.party_keys["bo"])
        answering.answer((asked,), board)
        return open_witness(board.sent[-1], ada.world.roster)[0].newest

    def about() -> bytes:
        return nonce_about(name_of(held[0]), secrets.token_bytes(32))

    for _ in range(2):
        assert shown(about()) == held[0]
        assert shown(secrets.token_bytes(32)) == held[1]
    assert len(about()) == len(secrets.token_bytes(32))
    # A row that was written without its acceptance has a name only.
    with ada.ledger.database.transaction() as connection:
        connection.execute("UPDATE in_cohorts SET acceptance = NULL")
    assert shown(about()) == held[1]
    assert len(open_witness(board.sent[-1], ada.world.roster)[0].in_cohorts) == 2
    # Nor is one shown that is under a former key.
    ada.world.party_keys["bo"] = SigningKey.generate(FEDERATION)
    ada.world.version += 1
    ada.rosters.offer(ada.world.roster_envelope)
    assert shown(about()) is None


def test_a_coordinator_that_shows_an_old_challenge_again_and_again_fills_no_log(ada, board, caplog):
    answering = guard(ada)
    for _ in range(100):
        answering.answer((challenge(ada.world, age_s=400),), board)
    assert [logged["code"] for logged in fields_of(caplog, "challenge refused")] == ["OLD"] * 10


def test_a_challenge_that_does_not_verify_is_logged_with_the_reason(ada, board, caplog):
    forged = challenge(ada.world, key=SigningKey.generate(FEDERATION))
    guard(ada).answer((forged,), board)
    (logged,) = fields_of(caplog, "challenge not answered")
    with pytest.raises(WireError) as raised:
        open_challenge(forged, ada.world.roster)
    assert logged["code"] == Code.SIGNATURE_INVALID
    assert logged["detail"] == raised.value.public_sentence


def test_the_same_challenge_is_answered_again_only_after_a_while(ada, board):
    clock = Clock()
    answering, asked = guard(ada, clock), challenge(ada.world)
    # In one answer of the coordinator, and in many.
    assert answering.answer((asked,) * 50, board) == 0
    for _ in range(50):
        assert answering.answer((asked,), board) == 1
    assert len(board.sent) == 1
    clock.now += ANSWER_AGAIN_S
    assert answering.answer((asked,), board) == 0
    assert len(board.sent) == 2
    # Each question is answered at once.
    assert answering.answer((challenge(ada.world, nonce=secrets.token_bytes(32)),), board) == 0
    assert len(board.sent) == 3


def test_junk_challenges_cost_no_answer_no_memory_and_one_fetch(ada, board):
    answering = guard(ada, Clock())
    for _ in range(5):
        junk = [challenge(ada.world, "stranger", key=SigningKey.generate(FEDERATION)) for _ in range(20)]
        long = Envelope(bytes(CHALLENGE_BYTES + 1), key_id(ada.world.party_keys["bo"].public_bytes), bytes(64))
        assert answering.answer((*junk, long), board) == 21
    assert (board.sent, board.rosters_fetched, answering._answered_lately) == ([], 1, {})


def test_a_member_that_signs_answers_without_end_is_kept_once(ada, board):
    answering = guard(ada, clock := Clock())
    answering.look(board)
    for number in range(50):
        board.answers.clear()
        board.say("bo", in_cohorts=(number.to_bytes(8, "big"),))
        clock.now += 1
        answering._take(board.answers[0])
    assert len(answering._taken) == 1


def test_a_party_that_has_just_joined_is_answered_at_once(ada, board):
    answering = guard(ada)
    ada.world.party_keys["zoe"] = SigningKey.generate(FEDERATION)
    ada.world.version += 1
    answering.answer((challenge(ada.world, "zoe"),), board)
    assert open_witness(board.sent[-1], ada.world.roster)[0].subject == "zoe"
    # Any number of strangers in one answer of the coordinator cost one call.
    fetched = board.rosters_fetched
    strangers = [challenge(ada.world, f"stranger{n}", key=SigningKey.generate(FEDERATION)) for n in range(5)]
    answering.answer(strangers, board)
    assert board.rosters_fetched == fetched + 1
    assert len(board.sent) == 1


def test_a_party_with_new_keys_is_answered_at_once(ada, board):
    """The operator replaced them, and the next roster was not fetched yet."""
    answering = guard(ada)
    ada.world.party_keys["bo"] = SigningKey.generate(FEDERATION)
    ada.world.version += 1
    answering.answer((challenge(ada.world, "bo"),), board)
    assert open_witness(board.sent[-1], ada.world.roster)[0].subject == "bo"


def test_old_foreign_and_forged_challenges_are_not_answered(ada, board):
    answering = guard(ada)
    stranger = SigningKey.generate(FEDERATION)
    wrong = (
        challenge(ada.world, age_s=400),
        challenge(ada.world, age_s=-400),
        challenge(ada.world, key=stranger),
        challenge(ada.world, "ada"),
        challenge(ada.world, "zoe", key=stranger),
        ada.world.ask(),
    )
    answering.answer(wrong, board)
    assert board.sent == []
    answering.answer((challenge(ada.world), challenge(ada.world)), board)
    assert len(board.sent) == 1
