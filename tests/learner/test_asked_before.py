"""The same question twice: the earlier answer is found and offered, and a second charge needs a word."""

from fractions import Fraction

import pytest

from dpcore.predicates.notation import parse
from learner.federation import Federation
from learner.history import AskedBeforeError, NotAskedBeforeError
from learner.journal import SessionSource
from learner.requests import MomentsRequest, StatisticRequest
from tests.federation.learner import REQUEST, SCHEMA
from tests.federation.setting import Setting
from wire.errors import Code
from wire.status import Phase

EPSILON = Fraction(1)
REQUEST_PREDICATES = (parse("y == 1"),)


@pytest.fixture
def setting(tmp_path, learner_key):
    made = Setting(tmp_path, learner_key)
    yield made
    made.stub.stop()


def asked(setting) -> int:
    return len(setting.stub.submitted)


def test_the_same_statistic_twice_is_found_before_it_is_sent(setting):
    with setting.session() as session:
        federation = Federation(SessionSource(session), SCHEMA)
        first = federation.statistic(["y == 1"], epsilon=EPSILON)
        oracle = federation.within(EPSILON, Fraction(1, 10**6))
        with pytest.raises(AskedBeforeError, match=r"asked the same .* the answer is in .*--reuse .*--ask-again"):
            oracle.statistic(["y == 1"])
        assert (asked(setting), oracle.left) == (1, 1)
        # Another question, or another noise, is another one.
        federation.statistic(["y == -1"], epsilon=EPSILON)
        federation.statistic(["y == 1"], epsilon=EPSILON / 2)
        assert asked(setting) == 3
        # Both pieces of advice work, and only one of them asks.
        reused = Federation(SessionSource(session, reuses=True), SCHEMA).statistic(["y == 1"], epsilon=EPSILON)
        assert (reused.values, asked(setting)) == (first.values, 3)
        Federation(SessionSource(session, asks_again=True), SCHEMA).statistic(["y == 1"], epsilon=EPSILON)
        assert asked(setting) == 4


@pytest.mark.more
def test_another_confidence_reads_the_same_answer(setting):
    with setting.session() as session:
        Federation(SessionSource(session), SCHEMA).statistic(["y == 1"], epsilon=EPSILON)
        source = SessionSource(session, reuses=True, asks=False)
        wide = Federation(source, SCHEMA).statistic(["y == 1"], epsilon=EPSILON, confidence=0.999)
        assert (wide.confidence, asked(setting)) == (0.999, 1)
        with pytest.raises(NotAskedBeforeError, match="leave --reuse"):
            Federation(source, SCHEMA).statistic(["y == -1"], epsilon=EPSILON)
        assert asked(setting) == 1


def test_a_query_that_is_not_fetched_yet_is_found_and_followed(setting):
    with setting.session() as session:
        plan = session.plan(REQUEST)
        session.ask(plan)
        source = SessionSource(session)
        with pytest.raises(AskedBeforeError, match="its answer is not fetched yet"):
            source.answer(source.plan(REQUEST))
        reusing = SessionSource(session, reuses=True)
        assert reusing.answer(reusing.plan(REQUEST)).query_id == plan.query_id
        assert asked(setting) == 1


@pytest.mark.parametrize("ended", ["failed", "forgotten"])
def test_a_query_that_ended_without_an_answer_is_no_earlier_answer(setting, ended):
    with setting.session() as session:
        session.ask(session.plan(REQUEST))
        phases = setting.stub.phases
        if ended == "failed":
            setting.stub.phases, setting.stub.code = [Phase.FAILED], Code.COHORT_TOO_SMALL.value
        else:
            setting.stub.fail["WatchQuery"] = Code.QUERY_UNKNOWN
        assert session.asked_before(session.plan(REQUEST)) is None
        setting.stub.phases, setting.stub.fail = phases, {}
        source = SessionSource(session)
        if ended == "failed":
            source.answer(source.plan(REQUEST))
            assert asked(setting) == 2


@pytest.mark.more
def test_other_parties_are_another_question(setting):
    with setting.session() as session:
        session.run(session.plan(REQUEST))
        found = session.asked_before(session.plan(REQUEST))
        assert found.release == session.release_directory(found.query_id)
        issued = setting.issue(2, lambda members: tuple(m for m in members if m.name != "cy"))
        assert len(issued.parties) == 2
        assert session.asked_before(session.plan(REQUEST)) is None


@pytest.mark.more
def test_another_training_takes_its_first_answer_from_disk_and_its_journal_follows_it(setting, tmp_path):
    requests = [
        MomentsRequest(SCHEMA, epsilon=EPSILON, part=Fraction(1, 2)),
        StatisticRequest(SCHEMA, REQUEST_PREDICATES, epsilon=EPSILON, part=Fraction(1, 2)),
    ]
    with setting.session() as session:
        first = SessionSource(session, tmp_path / "one.journal")
        release = first.answer(first.plan(requests[0]))
        other = SessionSource(session, tmp_path / "two.journal")
        with pytest.raises(AskedBeforeError):
            other.answer(other.plan(requests[0]))
        notes = []
        reusing = SessionSource(session, tmp_path / "two.journal", reuses=True, note=notes.append)
        assert reusing.answer(reusing.plan(requests[0])).digest == release.digest
        assert any("nothing is charged for it" in note for note in notes)
        reusing.answer(reusing.plan(requests[1]))
        assert asked(setting) == 2
        # Without the option: the journal has both.
        again = SessionSource(session, tmp_path / "two.journal")
        for request in requests:
            again.answer(again.plan(request))
        assert asked(setting) == 2


@pytest.mark.more
def test_a_run_may_ask_the_same_in_another_round(setting, tmp_path):
    with setting.session() as session:
        source = SessionSource(session, tmp_path / "journal")
        digests = {source.answer(source.plan(REQUEST)).digest for _ in range(2)}
        assert (len(digests), asked(setting)) == (2, 2)


def test_an_answer_for_another_purpose_is_found_with_that_purpose(setting):
    """Parties agreed to that one."""
    with setting.session() as session:
        federation = Federation(SessionSource(session), SCHEMA, purpose="Study 17")
        federation.statistic(["y == 1"], epsilon=EPSILON)
        for purpose, said in (("", True), ("Study 18", True), ("Study 17", False)):
            again = Federation(SessionSource(session), SCHEMA, purpose=purpose)
            with pytest.raises(AskedBeforeError) as caught:
                again.statistic(["y == 1"], epsilon=EPSILON)
            assert ('the same for the purpose "Study 17" on' in str(caught.value)) == said
        assert asked(setting) == 1
