"""Journals that cannot be read, and queries that ended.

tests/end_to_end/test_asking.py tests resuming with real processes.
"""

import io
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.gaussian import gaussian_epsilon, gaussian_mu
from learner.answer_source import RoundEndedError, RoundLostError
from learner.composition import Unanswered
from learner.federation import Federation
from learner.journal import FORMAT, JournalError, SessionSource
from learner.progress import Lines
from learner.release import Release
from learner.session import QueryEndedError
from tests.federation.learner import REQUEST, SCHEMA, Memory, World, patients
from tests.federation.setting import ROWS, Setting
from wire.errors import Code, WireError
from wire.status import Phase

ENTRY = {"asked": "00" * 32, "query_id": "11" * 32}
GOOD = {"format": FORMAT, "format_version": 1, "rounds": [ENTRY]}


@pytest.mark.parametrize(
    "content",
    [
        " ",
        "[]",
        "[" * 100_000,
        json.dumps({**GOOD, "format": "radofed-model"}),
        json.dumps({**GOOD, "format_version": 2}),
        json.dumps({**GOOD, "rounds": {}}),
        json.dumps({**GOOD, "rounds": [ENTRY, {"asked": "00"}]}),
        json.dumps({**GOOD, "rounds": [{**ENTRY, "query_id": "xyz"}]}),
        json.dumps({**GOOD, "rounds": [{**ENTRY, "query_id": 7}]}),
    ],
)
def test_another_file_is_not_a_journal(tmp_path, content):
    path = tmp_path / "journal"
    path.write_text(content)
    with pytest.raises(JournalError, match="give another file"):
        SessionSource(None, path)
    assert path.read_text() == content


def test_a_missing_journal_is_created(tmp_path):
    path = tmp_path / "journal"
    SessionSource(None, path)
    # Not before a query is sent: a refused command leaves no file.
    assert not path.exists()
    path.write_text(json.dumps(GOOD))
    SessionSource(None, path)
    assert json.loads(path.read_text()) == GOOD


def test_a_name_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(JournalError, match="give another file"):
        SessionSource(None, tmp_path / ("x" * 300))


def test_a_directory_is_not_a_journal(tmp_path):
    with pytest.raises(JournalError):
        SessionSource(None, tmp_path)


def rounds_of(path) -> list[dict]:
    return json.loads(path.read_text())["rounds"]


@pytest.fixture
def setting(tmp_path, learner_key):
    made = Setting(tmp_path, learner_key)
    yield made
    made.stub.stop()


@pytest.mark.more
def test_a_round_is_one_line(setting, tmp_path):
    """On a display, the line of its query; elsewhere a note."""
    stream, notes = io.StringIO(), []
    with setting.session(progress=Lines(stream)) as session:
        source = SessionSource(session, tmp_path / "journal", note=notes.append)
        digits = source.answer(source.plan(REQUEST)).query_id.hex()[:16]
    (line,) = stream.getvalue().splitlines()
    assert line.startswith(f"round 1, query {digits}: attempt 1, complete; ")
    assert notes == []
    with setting.session(progress=False) as session:
        source = SessionSource(session, asks_again=True, note=notes.append)
        digits = source.answer(source.plan(REQUEST)).query_id.hex()[:16]
    assert notes == [f"round 1: sending query {digits}"]


def test_a_query_that_ended_is_kept_and_counted(setting, tmp_path):
    """It was charged, and it may have totals: the round that was sent again does not hide it."""
    journal = tmp_path / "journal"
    done = setting.stub.phases
    setting.stub.phases, setting.stub.code = [Phase.FAILED], Code.ATTEMPTS_EXHAUSTED.value
    with setting.session() as session:
        source = SessionSource(session, journal)
        with pytest.raises(QueryEndedError):
            source.answer(source.plan(REQUEST))
        assert [query.attempts for query in source.unanswered] == [1]
    (first,) = rounds_of(journal)
    with setting.session() as session:
        # Two attempts were made with the learner's signature before it ended.
        session._state.note_attempt(bytes.fromhex(first["query_id"]), 3)
        # It is asked again only if the learner says so.
        source = SessionSource(session, journal)
        with pytest.raises(
            RoundEndedError, match=r"ended without a total .*\. --ask-again asks the round again"
        ) as ended:
            source.answer(source.plan(REQUEST))
        assert (ended.value.attempts, len(setting.stub.submitted)) == (3, 1)
        assert [entry["query_id"] for entry in rounds_of(journal)] == [first["query_id"]]
        notes = []
        source = SessionSource(session, journal, asks_again=True, note=notes.append)
        plan = source.plan(REQUEST)
        phases = iter([[Phase.FAILED], done])
        watch = session.watch

        def followed(*given, **more):
            setting.stub.phases = next(phases)
            return watch(*given, **more)

        session.watch = followed
        release = source.answer(plan)
        assert [query.attempts for query in source.unanswered] == [3]
    # Before the query was sent.
    warned, sent = (
        next(place for place, note in enumerate(notes) if words in note)
        for words in ("under collusion 4 attempts count", "sending query")
    )
    assert warned < sent
    (again,) = rounds_of(journal)
    assert again["ended"] == [first["query_id"]]
    assert again["query_id"] == release.query_id.hex() != first["query_id"]
    # Also where the answer is read from disk.
    with setting.session() as session:
        source = SessionSource(session, journal)
        assert source.answer(source.plan(REQUEST)).digest == release.digest
        (ended,) = source.unanswered
        assert ended.attempts == 3
        assert not ended.counted(ROWS).is_opened


def test_a_round_that_was_asked_again_costs_what_it_costs(learner_key):
    """A budget of (1, 1e-6): a round of 3/28 that exhausted three attempts and was asked again, and all the others."""
    delta = Fraction(1, 10**6)
    records = {name: patients(1000, seed) for seed, name in enumerate("abcd")}
    memory = Memory(World(learner_key, dict.fromkeys(records, 1000)), records)
    oracle = Federation(memory, SCHEMA).within(Fraction(1), delta)
    parts = [Fraction(1, 4), *[Fraction(3, 28)] * 7]
    answer = memory.answer

    def asked_again(plan):
        found = answer(plan)
        memory.lost = [Unanswered(plan.query, 3)] if len(memory.asked) == 3 else []
        return found

    memory.answer = asked_again
    for part in parts:
        oracle.gradient(np.zeros(3), clip=Fraction(1), part=part)
    assert oracle.cost().epsilon_if_others_collude == pytest.approx(1.162, abs=2e-3)
    mu = gaussian_mu(Fraction(1), delta) * math.sqrt(1 + 9 / 28)
    assert oracle.cost().epsilon_if_others_collude == pytest.approx(gaussian_epsilon(mu, delta).upper, rel=1e-4)


def test_a_lost_attempt_ends_the_round_and_is_counted_when_it_resumes(setting, tmp_path):
    journal = tmp_path / "journal"
    done = setting.stub.phases
    with setting.session() as session:
        setting.stub.phases = [Phase.LOST]
        source = SessionSource(session, journal)
        with pytest.raises(RoundLostError, match="rado learner retry") as lost:
            source.answer(source.plan(REQUEST))
        assert lost.value.attempts == 1
        assert [query.attempts for query in source.unanswered] == [1]
        (entry,) = rounds_of(journal)
        # The number is on disk before the decision leaves: a learner that is killed here counts the attempt.
        setting.stub.fail["RetryQuery"] = Code.INTERNAL
        with pytest.raises(WireError):
            session.retry(bytes.fromhex(entry["query_id"]))
    setting.stub.fail.clear()
    setting.stub.phases = done
    with setting.session() as session:
        assert session.attempts(bytes.fromhex(entry["query_id"])) == 2
        source = SessionSource(session, journal)
        release = source.answer(source.plan(REQUEST))
    # The total is of attempt 1, and the learner had signed attempt 2: both count.
    assert (release.cohort.attempt, release.attempts) == (1, 2)
    assert source.unanswered == []
    assert len(setting.stub.submitted) == 1
    assert Release.load(setting.config.releases_directory / release.query_id.hex()[:16]).attempts == 2


def test_an_ended_query_of_another_state_directory_is_noticed(setting, tmp_path):
    journal = tmp_path / "journal"
    with setting.session() as session:
        source = SessionSource(session, journal)
        source.answer(source.plan(REQUEST))
    content = json.loads(journal.read_text())
    content["rounds"][0]["ended"] = ["11" * 32]
    journal.write_text(json.dumps(content))
    with setting.session() as session:
        source = SessionSource(session, journal)
        with pytest.raises(JournalError, match="another state directory"):
            source.answer(source.plan(REQUEST))


@pytest.mark.parametrize("ended", [None, "11" * 32, ["xyz"], [7], {}])
def test_malformed_ended_queries_are_refused(tmp_path, ended):
    path = tmp_path / "journal"
    path.write_text(json.dumps({**GOOD, "rounds": [{**ENTRY, "ended": ended}]}))
    with pytest.raises(JournalError, match="give another file"):
        SessionSource(None, path)
