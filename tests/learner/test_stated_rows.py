"""A plan uses the rows that parties state in answers, and the roster's numbers before the first."""

from dataclasses import replace

import pytest

from dpcore.errors import ConfigurationError
from learner.journal import SessionSource
from tests.federation.learner import REQUEST
from tests.federation.setting import ROWS, Setting

NOW = {"ada": 10_000, "bo": 200, "cy": 50}
OPEN = replace(REQUEST, max_rows=None)


@pytest.fixture
def setting(tmp_path, learner_key):
    made = Setting(tmp_path, learner_key)
    yield made
    made.stub.stop()


def test_an_answer_replaces_the_rosters_numbers(setting):
    setting.rows = dict(NOW)
    with setting.session() as session:
        source = SessionSource(session)
        first = session.plan(OPEN)
        # A party with more rows than the roster states can answer.
        assert first.query.max_rows >= sum(NOW.values())
        assert (source.rows, first.party_rows) == (sum(ROWS.values()), tuple(ROWS.values()))
        session.run(first)
    with setting.session() as session:
        plan = session.plan(OPEN)
        assert (plan.party_rows, SessionSource(session).rows) == (tuple(NOW.values()), sum(NOW.values()))
        # The roster's number stays a lower bound for room.
        assert plan.query.max_rows == 4 * (NOW["ada"] + NOW["bo"] + ROWS["cy"])


def test_the_newest_answer_counts_and_another_key_is_another_party(setting):
    with setting.session() as session:
        state, roster = session._state, session.fetch_roster()
        state.note_rows({"ada": 500, "gone": 7}, roster, 20)
        state.note_rows({"ada": 400}, roster, 10)
        state.note_rows({"bo": 300}, roster, 10)
        assert state.rows_stated(roster) == {"ada": 500, "bo": 300}
        other = replace(
            roster,
            members=tuple(
                replace(member, signing_key=bytes(32)) if member.name == "ada" else member for member in roster.members
            ),
        )
        assert state.rows_stated(other) == {"bo": 300}
        assert session.rows_of(other.parties, other) == {"ada": ROWS["ada"], "bo": 300, "cy": ROWS["cy"]}


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"ada": 3}',
        '{"ada": {"rows": -1, "at_unix_s": 1, "key": ""}}',
        '{"ada": {"rows": 1, "at_unix_s": 1}}',
        "{",
    ],
)
def test_a_damaged_file_is_a_sentence_with_what_to_do(setting, content):
    path = setting.config.state_directory / "rows"
    with setting.session() as session:
        roster = session.fetch_roster()
        path.write_text(content)
        with pytest.raises(ConfigurationError, match="remove it: parties state their rows again"):
            session._state.rows_stated(roster)
        path.unlink()
        assert session._state.rows_stated(roster) == {}
    assert not path.exists()
