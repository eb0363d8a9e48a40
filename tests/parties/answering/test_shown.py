"""What a party makes of what it is shown: signatures first, the sweep over all open queries, newer rosters."""

import secrets
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from parties.answering.attempts import AttemptState
from parties.answering.coordinator_calls import WorkBatch
from parties.answering.jobs import ShownWork
from parties.history.history import HistoryPage, What
from parties.members import Rosters
from radobase.logs import Log
from tests.federation.party import FEDERATION, Ada
from wire.envelopes import Envelope, SigningKey
from wire.errors import Code, ConnectionLostError
from wire.status import PartyState, Phase, Work

pytestmark = pytest.mark.usefixtures("small_comb")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Looking:
    """Ada, what the coordinator shows it, and what was offered. has_room: whether offers are taken."""

    def __init__(self, ada: Ada) -> None:
        self.ada, self.offered, self.has_room, self.clock = ada, [], True, Clock()
        world, self.fetched = ada.world, 0
        self.rosters = Rosters(
            ada.directory,
            federation=FEDERATION,
            federation_key=world.federation_key.public_bytes,
            log=Log("party.test"),
            clock=self.clock,
        )
        fetch = ada.hub.fetch_roster

        def counted():
            self.fetched += 1
            return fetch()

        ada.hub.fetch_roster = counted
        self.shown = ShownWork(ada.lifecycle, self.offer, self.rosters, ada.hub, Log("party.test"))

    def offer(self, work: Work) -> bool:
        if self.has_room:
            self.offered.append(work.query)
        return self.has_room

    def take(self, *queries: Envelope, unreadable: int = 0, **changes) -> bool:
        work = tuple(self.ada.work(query, **changes) for query in queries)
        return self.shown.take(WorkBatch(work, self.shown.cursor + 1, unreadable))


@pytest.fixture
def looking(ada):
    return Looking(ada)


def forged(world) -> Envelope:
    return replace(world.ask(), payload=secrets.token_bytes(100))


def test_only_what_a_learner_signed_is_offered_and_the_rest_is_counted(ada, looking):
    genuine = [ada.world.ask() for _ in range(2)]
    junk = [forged(ada.world), ada.world.ask(key=SigningKey.generate(FEDERATION)), forged(ada.world)]
    assert looking.take(junk[0], genuine[0], *junk[1:], genuine[1], unreadable=7)
    assert looking.offered == genuine
    assert looking.shown.unverified.status()["entries"] == {
        "UNREADABLE": 7,
        Code.SIGNATURE_INVALID: 2,
        Code.PEER_UNKNOWN: 1,
    }
    assert not looking.take(*genuine)


def test_a_poll_that_this_party_ended_is_no_list_of_what_is_open(ada, looking):
    query = ada.world.ask()
    assert ada.go(query)
    for look in (looking.shown.take, lambda batch: looking.shown.hold(batch, "of a test")):
        assert not look(WorkBatch((), 0, was_ended=True))
        assert (looking.shown.cursor, looking.shown.is_sweeping) == (0, True)
    assert ada.lifecycle.held() == {query.payload_hash}


def test_a_sweep_ends_what_it_does_not_list_and_keeps_no_ids_of_others(ada, looking):
    held = [ada.world.ask() for _ in range(3)]
    for query in held[:2]:
        assert ada.go(query)
    assert not looking.take(held[0], *(ada.world.ask() for _ in range(20)))
    assert looking.shown._unlisted == {held[1].payload_hash}
    # Accepted during the sweep: not listed after that, and not over.
    assert ada.go(held[2])
    looking.take(forged(ada.world))
    assert looking.shown._unlisted == {held[1].payload_hash}
    assert not looking.take()
    assert not looking.shown.is_sweeping
    assert [ada.state(query) for query in held] == [AttemptState.READY, AttemptState.ENDED, AttemptState.READY]


def test_what_is_accepted_at_the_moment_when_a_sweep_ends_goes_on(ada, looking, monkeypatch):
    """Another thread accepts a query that was listed, between two looks at what this party holds."""
    query = ada.world.ask()
    assert not looking.take(query)
    unfinished, looks = ada.attempts.unfinished, []

    def accepting():
        found = unfinished()
        if not looks:
            looks.append(found)
            assert ada.go(query)
        return found

    monkeypatch.setattr(ada.attempts, "unfinished", accepting)
    assert not looking.take()
    assert looks
    assert ada.state(query) is AttemptState.READY


def test_junk_does_not_end_a_sweep(ada, looking):
    held = ada.world.ask()
    assert ada.go(held)
    for _ in range(3):
        looking.take(forged(ada.world))
    looking.take(unreadable=1)
    assert looking.shown.is_sweeping
    assert ada.state(held) is AttemptState.READY


def test_a_learner_that_has_joined_is_answered_after_one_fetch(ada, looking):
    newcomer = ada.world.learner_key = SigningKey.generate(FEDERATION)
    ada.world.version = 2
    query = ada.world.ask(key=newcomer)
    assert not looking.take(query)
    assert (looking.offered, looking.fetched) == ([query], 1)


@pytest.mark.more
def test_strangers_cost_fetches_at_a_pace_that_falls_and_a_newcomer_is_looked_at_again(ada, looking):
    for _ in range(600):
        looking.shown.follow_roster()
        assert looking.take(ada.world.ask(key=SigningKey.generate(FEDERATION)))
        looking.clock.now += 1
    assert 5 <= looking.fetched <= 11
    # Now a learner joins, and no fetch is due: the query is left out, and shown again once the roster is known.
    ada.world.learner_key, ada.world.version = SigningKey.generate(FEDERATION), 2
    query = ada.world.ask()
    assert looking.take(query)
    assert looking.offered == []
    looking.clock.now += 600
    looking.shown.follow_roster()
    assert (looking.shown.cursor, looking.shown.is_sweeping) == (0, True)
    assert not looking.take(query)
    assert looking.offered == [query]
    # A newer roster lets the pauses start again.
    before = looking.fetched
    looking.take(ada.world.ask(key=SigningKey.generate(FEDERATION)))
    assert looking.fetched == before + 1


def test_what_did_not_verify_is_looked_at_again_if_another_call_brought_the_roster(ada, looking):
    former = ada.world.roster_envelope
    ada.world.learner_key, ada.world.version = SigningKey.generate(FEDERATION), 2
    ada.hub.fetch_roster = lambda: (former, 0.0)
    query = ada.world.ask()
    assert looking.take(query)
    looking.rosters.offer(ada.world.roster_envelope)
    # Junk that is shown meanwhile does not make it forget what it left out.
    assert looking.take(forged(ada.world))
    looking.shown.follow_roster()
    assert looking.shown.cursor == 0
    assert not looking.take(query)
    assert looking.offered == [query]


def test_a_fetch_that_fails_hides_no_query_that_verified(ada, looking):
    ada.hub.fail["fetch_roster"] = [ConnectionLostError("hub", "cut")]
    query = ada.world.ask()
    with pytest.raises(ConnectionLostError):
        looking.take(ada.world.ask(key=SigningKey.generate(FEDERATION)), query)
    assert looking.offered == [query]


def hold(looking, *queries: Envelope, unreadable: int = 0, **changes) -> bool:
    work = tuple(looking.ada.work(query, **changes) for query in queries)
    return looking.shown.hold(WorkBatch(work, looking.shown.cursor + 1, unreadable), "this party was paused by Ann")


def test_what_is_asked_while_nothing_is_answered_is_noted_and_nothing_else_is_done(ada, looking):
    query = ada.world.ask()
    assert not hold(looking, query)
    assert not hold(looking, query)
    (shown,) = ada.history.page(HistoryPage())
    assert (shown.query_id, shown.learner, shown.charge) == (query.payload_hash, "lea", None)
    (event,) = ada.history.events([query.payload_hash])[query.payload_hash]
    assert (event.what, event.details) == (What.UNANSWERED, {"reason": "this party was paused by Ann"})
    assert ada.history.count_unanswered(event.at_unix_s) == 1
    assert ada.history.count_unanswered(event.at_unix_s + 1) == 0
    assert (looking.offered, ada.hub.answers, list(ada.ledger.events())) == ([], [], [])
    assert list(ada.attempts.of_query(query.payload_hash)) == []
    # Once it is answered it counts no more.
    assert ada.go(query)
    assert ada.history.count_unanswered(0.0) == 0


def test_junk_that_is_shown_while_nothing_is_answered_takes_no_line_on_disk(ada, looking):
    strangers = [ada.world.ask(key=SigningKey.generate(FEDERATION)) for _ in range(3)]
    expired = ada.world.ask(replace(ada.world.query(), created_at_unix_s=1, not_after_unix_s=2))
    assert hold(looking, forged(ada.world), *strangers, expired, unreadable=2)
    assert looking.shown.unverified.status()["entries"] == {
        "UNREADABLE": 2,
        Code.SIGNATURE_INVALID: 1,
        Code.PEER_UNKNOWN: 3,
    }
    # Nor what does not wait for this party's answer.
    assert not hold(looking, ada.world.ask(), phase=Phase.UPLOADING)
    assert not hold(looking, ada.world.ask(), state=PartyState.REFUSED)
    assert ada.history.page(HistoryPage()) == []
    with ada.history.database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)


def test_what_could_not_be_noted_is_shown_again(ada, looking):
    query = ada.world.ask()
    with closing(sqlite3.connect(ada.history.database.path)) as other:
        other.execute("ALTER TABLE queries RENAME TO away")
        assert hold(looking, query)
        assert (looking.shown.cursor, looking.shown.is_sweeping) == (0, True)
        other.execute("ALTER TABLE away RENAME TO queries")
    assert not hold(looking, query)
    assert [shown.query_id for shown in ada.history.page(HistoryPage())] == [query.payload_hash]


def test_a_query_of_a_learner_that_joined_meanwhile_is_noted(ada, looking):
    newcomer = ada.world.learner_key = SigningKey.generate(FEDERATION)
    ada.world.version = 2
    assert not hold(looking, ada.world.ask(key=newcomer))
    assert len(ada.history.page(HistoryPage())) == 1


def test_an_accepted_query_ends_although_its_learner_has_left(ada, looking):
    query = ada.world.ask()
    assert ada.go(query)
    ada.world.learner_key, ada.world.version = SigningKey.generate(FEDERATION), 2
    looking.rosters.offer(ada.world.roster_envelope)
    assert not looking.take(query, phase=Phase.FAILED)
    assert looking.offered == [query]


def test_queries_for_which_there_is_no_room_are_looked_at_again(ada, looking):
    query = ada.world.ask()
    looking.has_room = False
    assert looking.take(query)
    assert (looking.shown.cursor, looking.shown.is_sweeping) == (0, True)
    looking.has_room = True
    assert not looking.take(query)
    assert looking.offered == [query]


def test_a_cursor_that_goes_back_restarts_the_sweep(ada, looking):
    looking.take(ada.world.ask())
    looking.take()
    assert not looking.shown.is_sweeping
    looking.shown.take(WorkBatch((), 1))
    assert (looking.shown.cursor, looking.shown.is_sweeping) == (0, True)
