"""The history's file: what is noted and kept, what is forgotten and when, whose file it is."""

import sqlite3
import stat
from contextlib import closing
from dataclasses import replace

import pytest

from dpcore.errors import ConfigurationError
from parties.history import history as limits
from parties.history.database import HistoryDatabase, HistoryFileError
from parties.history.history import History, HistoryPage, What
from parties.ledger.charges import charge_for
from tests.federation.party import ready
from tests.waiting import wait_until
from wire.query import MAX_QUERY_BYTES, open_query

pytestmark = pytest.mark.usefixtures("small_comb")


@pytest.fixture
def history(tmp_path):
    database = HistoryDatabase(tmp_path / "history.sqlite", federation="clinics", party="ada")
    yield History(database)
    database.close()


@pytest.fixture
def opened(world):
    """Makes queries that verified, each another one."""

    def make(**changes):
        query = world.query(**changes)
        envelope = world.ask(replace(query, nonce=b"nonce of query " + bytes([make.count])))
        make.count += 1
        return open_query(envelope, world.roster, now_unix_s=query.created_at_unix_s)

    make.count = 0
    return make


def test_a_query_is_kept_as_it_was_signed(history, opened):
    query = opened()
    charge = charge_for(query.query, 40)
    history.shown(query, rows=40, charge=None, now_unix_s=100.5)
    history.shown(query, rows=40, charge=charge, now_unix_s=200.0)
    (shown,) = history.find(query.query_id.hex()[:10])
    assert (shown.envelope, shown.charge, shown.rows) == (query.envelope, charge, 40)
    assert (shown.shown_at_unix_s, shown.learner) == (100.5, query.query.learner)
    assert shown.words == query.query.kind.words()


def test_late_events_are_written_by_the_next_commit_or_a_moment_later(tmp_path, opened):
    def begin(**options):
        return HistoryDatabase(tmp_path / "late.sqlite", federation="clinics", party="ada", **options)

    query, noted = opened(), []
    with closing(begin(late_s=None)) as database, closing(begin()) as other:
        history, reader = History(database, noted.append), History(other)
        history.shown(query, rows=1, charge=None, now_unix_s=1.0)
        history.happened_late(query.query_id, 1, What.UPLOADED, 2.0)
        assert noted == [What.UPLOADED]
        assert not reader.has(query.query_id, 1, What.UPLOADED), "not yet"
        history.happened(query.query_id, 1, What.COHORT, 3.0)
        assert reader.has(query.query_id, 1, What.UPLOADED)
        history.happened(query.query_id, 1, What.WAITS, 4.0, reasons=[])
        history.happened_late(query.query_id, 1, What.ENDED, 5.0)
        assert not reader.waits(query.query_id), "people see at once that nothing waits for them"
    with closing(begin(late_s=0.01)) as database, closing(begin()) as other:
        History(database).happened_late(query.query_id, 2, What.UPLOADED, 6.0)
        wait_until(lambda: History(other).has(query.query_id, 2, What.UPLOADED), what="a moment")


def test_a_late_event_outlives_a_transaction_that_fails_and_not_a_kill(tmp_path, opened):
    path = tmp_path / "late.sqlite"
    query = opened()
    database = HistoryDatabase(path, federation="clinics", party="ada", late_s=None)
    history = History(database)
    history.shown(query, rows=1, charge=None, now_unix_s=1.0)
    history.happened_late(query.query_id, 1, What.UPLOADED, 2.0)
    with pytest.raises(KeyboardInterrupt), database.transaction():
        raise KeyboardInterrupt
    assert history.has(query.query_id, 1, What.UPLOADED)
    history.happened_late(query.query_id, 1, What.ENDED, 3.0)
    database.close()
    with closing(HistoryDatabase(path, federation="clinics", party="ada")) as again:
        assert not History(again).has(query.query_id, 1, What.ENDED)


def test_pages_are_newest_first_and_filtered(history, opened):
    queries = [opened() for _ in range(5)]
    for second, query in enumerate(queries):
        history.shown(query, rows=1, charge=None, now_unix_s=float(second))
    ids = [query.query_id for query in queries]
    assert [each.query_id for each in history.page(HistoryPage(limit=2))] == ids[:2:-1]
    assert [each.query_id for each in history.page(HistoryPage(limit=2, offset=3))] == ids[1::-1]
    between = HistoryPage(since_unix_s=1.0, until_unix_s=3.0)
    assert [each.query_id for each in history.page(between)] == [ids[2], ids[1]]
    assert (history.count(between), history.count(HistoryPage(limit=1))) == (2, 5)
    assert history.page(HistoryPage(learner="nobody")) == []
    assert history.page(HistoryPage())[0].envelope is None


@pytest.mark.parametrize("fields", [{"limit": 0}, {"offset": -1}])
def test_a_page_that_is_none_is_refused(fields):
    with pytest.raises(ValueError, match="at least one"):
        HistoryPage(**fields)


def test_predicates_are_forgotten_before_the_rest(history, opened):
    old, new = opened(), opened()
    for query, second in ((old, 100.0), (new, 200.0)):
        history.shown(query, rows=1, charge=None, now_unix_s=second)
        history.happened(query.query_id, 1, What.REFUSED, second, code="POLICY_LIMITS", detail="")
    history.forget(whole_before_unix_s=0.0, predicates_before_unix_s=150.0)
    (forgotten,), (kept,) = (history.find(query.query_id.hex()) for query in (old, new))
    assert (forgotten.envelope, forgotten.words) == (None, None)
    assert forgotten.contents == old.query.kind.contents
    assert kept.envelope == new.envelope
    history.forget(whole_before_unix_s=150.0, predicates_before_unix_s=150.0)
    assert history.find(old.query_id.hex()) == []
    assert history.count(HistoryPage()) == 1
    # Nothing of it is left in the file.
    content = history.database.path.read_bytes()
    assert old.query.nonce not in content
    assert new.query.nonce in content


def test_a_purpose_is_kept_as_long_as_the_words(history, opened):
    stated = {"features": ("purpose",), "purpose": "Study of rare things"}
    old, new, none = opened(**stated), opened(**stated), opened()
    for query, second in ((old, 100.0), (new, 200.0), (none, 200.0)):
        history.shown(query, rows=1, charge=None, now_unix_s=second)
    assert [each.purpose for each in history.page(HistoryPage())] == ["", *["Study of rare things"] * 2]
    history.forget(whole_before_unix_s=0.0, predicates_before_unix_s=150.0)
    found = {each.query_id: each.purpose for each in history.page(HistoryPage())}
    assert found == {old.query_id: "", new.query_id: "Study of rare things", none.query_id: ""}
    history.forget(whole_before_unix_s=250.0, predicates_before_unix_s=250.0)
    assert b"rare things" not in history.database.path.read_bytes()


def test_a_history_of_before_there_were_purposes_gets_them(tmp_path, history, opened):
    history.database.close()
    with closing(sqlite3.connect(history.database.path)) as connection:
        connection.execute("DROP TABLE purposes")
    database = HistoryDatabase(history.database.path, federation="clinics", party="ada", create=False)
    later = History(database)
    query = opened(purpose="Study 17")
    later.shown(query, rows=1, charge=None, now_unix_s=1.0)
    assert [each.purpose for each in later.page(HistoryPage())] == ["Study 17"]
    database.close()


def test_queries_without_a_charge_do_not_fill_the_disk(history, opened, monkeypatch):
    monkeypatch.setattr(limits, "MOST_WITHOUT_CHARGE", 4)
    queries = [opened() for _ in range(8)]
    for second, query in enumerate(queries):
        history.shown(query, rows=1, charge=None, now_unix_s=float(second))
    history.happened(queries[0].query_id, 1, What.CHARGED, 0.0, scopes=[])
    history.forget(whole_before_unix_s=0.0, predicates_before_unix_s=0.0)
    kept = [each.query_id for each in history.page(HistoryPage())]
    assert kept == [query.query_id for query in (*queries[:3:-1], queries[0])]
    size = len(queries[7].envelope.to_bytes())
    monkeypatch.setattr(limits, "MOST_BYTES_WITHOUT_CHARGE", 2 * size)
    history.forget(whole_before_unix_s=0.0, predicates_before_unix_s=0.0)
    with_text = [query for query in queries if any(each.envelope for each in history.find(query.query_id.hex()))]
    assert with_text == [queries[0], *queries[6:]]


def test_a_learner_that_asks_without_end_does_not_push_out_the_queries_of_others(history, opened, world, monkeypatch):
    monkeypatch.setattr(limits, "MOST_OF_LEARNER_WITHOUT_CHARGE", 3)
    quiet, loud = opened(), [opened() for _ in range(8)]
    quiet = replace(quiet, query=replace(quiet.query, learner="leo"))
    for second, query in enumerate([quiet, *loud]):
        history.shown(query, rows=1, charge=None, now_unix_s=float(second))
    history.forget(whole_before_unix_s=0.0, predicates_before_unix_s=0.0)
    assert [each.query_id for each in history.page(HistoryPage())] == [
        query.query_id for query in (*loud[:4:-1], quiet)
    ]
    monkeypatch.setattr(limits, "MOST_BYTES_OF_LEARNER_WITHOUT_CHARGE", 2 * len(quiet.envelope.to_bytes()))
    history.forget(whole_before_unix_s=0.0, predicates_before_unix_s=0.0)
    with_text = [query for query in (quiet, *loud) if any(each.envelope for each in history.find(query.query_id.hex()))]
    assert with_text == [quiet, *loud[6:]]


@pytest.mark.more
def test_the_bounds_hold_for_what_a_learner_may_really_send(history, opened):
    """The longest queries, as many as a learner likes: the file stays below what the threat model says."""
    assert limits.MOST_OF_LEARNER_WITHOUT_CHARGE <= limits.MOST_WITHOUT_CHARGE
    assert limits.MOST_BYTES_OF_LEARNER_WITHOUT_CHARGE == 32 << 20
    long = b"x" * MAX_QUERY_BYTES
    for number in range(100):
        query = opened()
        query = replace(query, envelope=replace(query.envelope, payload=long + b"%d" % number))
        history.shown(query, rows=1, charge=None, now_unix_s=float(number))
        history.forget(whole_before_unix_s=0.0, predicates_before_unix_s=0.0, at_once=False)
    most = limits.MOST_BYTES_OF_LEARNER_WITHOUT_CHARGE + limits._FORGET_EVERY * MAX_QUERY_BYTES
    assert history.database.path.stat().st_size < 1.1 * most


def test_a_refusal_for_the_noted_reason_changes_nothing(history, opened):
    query = opened()
    history.shown(query, rows=1, charge=None, now_unix_s=1.0)
    history.happened(query.query_id, 1, What.REFUSED, 2.0, code="POLICY_LIMITS", detail="a")
    history.happened(query.query_id, 1, What.WAITS, 3.0, reasons=[])
    before = history.database.path.read_bytes()
    for second in range(20):
        history.happened(bytes(32), 1, What.REFUSED, float(second), code="QUERY_EXPIRED", detail="")
        if second == 0:
            before = history.database.path.read_bytes()
    assert history.database.path.read_bytes() == before
    # It still decides that no one waits for a person, and another reason is noted.
    history.happened(query.query_id, 1, What.REFUSED, 5.0, code="POLICY_LIMITS", detail="a")
    assert history.waiting_ids() == set()
    history.happened(query.query_id, 1, What.REFUSED, 6.0, code="POLICY_LIMITS", detail="b")
    assert [(each.at_unix_s, each.detail) for each in history.refusals()] == [(0.0, ""), (6.0, "b")]


def test_refusals_of_what_could_not_be_opened_count_for_the_next_forgetting(history, monkeypatch):
    monkeypatch.setattr(limits, "MOST_WITHOUT_CHARGE", 3)
    for number in range(limits._FORGET_EVERY):
        history.happened(number.to_bytes(32, "big"), 1, What.REFUSED, float(number), code="QUERY_EXPIRED", detail="")
    history.forget(whole_before_unix_s=0.0, predicates_before_unix_s=0.0, at_once=False)
    assert len(history.refusals()) == 3


def test_it_waits_until_queries_were_added(history, opened):
    query = opened()
    history.shown(query, rows=1, charge=None, now_unix_s=1.0)
    history.forget(whole_before_unix_s=5.0, predicates_before_unix_s=5.0, at_once=False)
    assert history.count(HistoryPage()) == 1
    history.forget(whole_before_unix_s=5.0, predicates_before_unix_s=5.0)
    assert history.count(HistoryPage()) == 0


def test_refusals_of_unknown_queries_are_kept_and_limited(history, monkeypatch):
    monkeypatch.setattr(limits, "MOST_WITHOUT_CHARGE", 3)
    for number in range(9):
        history.happened(bytes([number]) * 32, 1, What.REFUSED, float(number), code="ROSTER_STALE", detail="")
    history.forget(whole_before_unix_s=0.0, predicates_before_unix_s=0.0)
    assert [refused.at_unix_s for refused in history.refusals()] == [6.0, 7.0, 8.0]


def test_what_only_the_ledger_knows_is_added_once(ada):
    envelope, cohort = ready(ada)
    ada.upload(envelope, cohort)
    assert ada.history.complete(ada.ledger.charged_queries()) == 0
    ada.history.database.close()
    ada.history.database.path.unlink()
    ada.restart()
    assert ada.history.complete(ada.ledger.charged_queries()) == 1
    assert ada.history.complete(ada.ledger.charged_queries()) == 0
    (shown,) = ada.history.page(HistoryPage())
    assert (shown.query_id, shown.learner, shown.words) == (envelope.payload_hash, "lea", None)


def test_only_its_owner_reads_the_file(history):
    assert stat.S_IMODE(history.database.path.stat().st_mode) == 0o600


def test_another_partys_history_is_refused(history):
    with pytest.raises(HistoryFileError, match="belongs to 'ada' of 'clinics'"):
        HistoryDatabase(history.database.path, federation="clinics", party="bob")


@pytest.mark.parametrize("content", [b"not a database " * 100, None], ids=["text", "another database"])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "history.sqlite"
    if content is None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE a (b)")
            connection.commit()
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(HistoryFileError, match="move the file aside"):
        HistoryDatabase(path, federation="clinics", party="ada")
    assert path.read_bytes() == before


def test_another_kind_of_database_is_refused(history):
    with closing(sqlite3.connect(history.database.path)) as connection:
        connection.execute("PRAGMA application_id = 1")
    with pytest.raises(HistoryFileError, match="another kind of file"):
        HistoryDatabase(history.database.path, federation="clinics", party="ada")


def test_a_newer_format_is_refused(history):
    with closing(sqlite3.connect(history.database.path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(HistoryFileError, match="format 2"):
        HistoryDatabase(history.database.path, federation="clinics", party="ada")


def test_a_missing_history_is_not_made_by_looking(tmp_path):
    path = tmp_path / "history.sqlite"
    with pytest.raises(ConfigurationError, match="there is no history yet"):
        HistoryDatabase(path, federation="clinics", party="ada", create=False)
    assert not path.exists()


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("queries", "envelope", b"\xff"),
        ("queries", "bounds", "{"),
        ("events", "what", "else"),
        ("events", "details", "["),
        ("events", "details", "{}"),
    ],
)
def test_an_entry_that_cannot_be_read_is_named(history, opened, table, column, value):
    query = opened()
    history.shown(query, rows=1, charge=charge_for(query.query, 40), now_unix_s=1.0)
    history.happened(query.query_id, 1, What.REFUSED, 1.0, code="POLICY_LIMITS", detail="")
    with history.database.transaction() as connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
    with pytest.raises(HistoryFileError, match="cannot be read"):
        history.find(query.query_id.hex()), history.events([query.query_id]), history.refusals()
