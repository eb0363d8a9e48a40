import datetime as dt
import time
from dataclasses import replace

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.paillier.secret import SecretKey
from dpcore.queries.statement import statement_for
from learner.client import ANSWERS_AT_ONCE, ANSWERS_PER_PARTY, WATCH_EVERY_S, StatusPolls
from learner.config import LearnerConfig
from learner.decryption import retired_file, rotate_key
from learner.release import Release, ReleaseError
from learner.state import AskedQuery, LearnerState
from rado.v1 import query_pb2
from tests.federation.learner import REQUEST
from tests.federation.setting import ROWS
from wire.envelopes import MessageType, SigningKey
from wire.errors import Code, ConnectionLostError, TimedOutError, WireError
from wire.query import setting_of
from wire.roster import Roster
from wire.status import Phase, QueryStatus


@pytest.fixture
def session(setting):
    with setting.session() as session:
        yield session


def test_from_a_plan_to_a_release(setting, session, small_chunks):
    phases, chunks = [], []
    plan = session.plan(REQUEST)
    assert plan.party_rows == (100, 200, 300)
    release = session.run(plan, lambda s: phases.append(s.phase), 30, lambda done, of: chunks.append((done, of)))
    assert phases == [Phase.ANSWERING, Phase.UPLOADING, Phase.COMPLETE]
    assert np.array_equal(release.integers.reshape(-1), setting.expected)
    assert release.integers.shape == (40, 3)
    assert chunks[-1][0] == chunks[-1][1] > 1
    assert release.party_rows == ROWS
    query = plan.query
    assert release.statement == statement_for(
        query.kind, [100, 200, 300], query.delta, schema=query.schema, setting=setting_of(query)
    )
    release.verify(setting.world.federation_key.public_bytes)
    directory = setting.config.releases_directory / release.query_id.hex()[:16]
    assert Release.load(directory).digest == release.digest


@pytest.mark.more
def test_a_key_that_was_rotated_opens_what_was_asked_under_it(setting, session, learner_key):
    file = setting.config.paillier_key
    query_id = session.ask(session.plan(REQUEST))
    new = rotate_key(file, 2048)
    with setting.session() as later:
        assert later.key == new
        assert np.array_equal(later.fetch(query_id).integers.reshape(-1), setting.expected)
        assert later.plan(REQUEST).public_key == new.public_key != learner_key.public_key
    retired_file(file, learner_key.public_key).unlink()
    second = session.ask(session.plan(REQUEST))
    with setting.session() as later, pytest.raises(ConfigurationError, match=f"{learner_key.public_key.fingerprint()}"):
        later.fetch(second)
    # The session that asked still has it.
    assert session.fetch(second).query_id == second


class AnswersAtOnce:
    """A coordinator whose status changes at every poll."""

    def watch_query(self, query_id, cursor, wait_s):
        return QueryStatus(query_id, 1, Phase.PREPARING, (), "", "", 60, 0, 1_700_000_000), cursor + 1


@pytest.mark.parametrize("parties", [0, 1, 40])
def test_the_more_parties_the_more_statuses_come_without_a_pause(monkeypatch, parties):
    """Each party accepts, computes, uploads and completes, and all of them may do so at once."""
    paused = []
    monkeypatch.setattr("learner.client.time.sleep", paused.append)
    polls = StatusPolls(AnswersAtOnce(), bytes(32), parties)
    for _ in range(ANSWERS_AT_ONCE + ANSWERS_PER_PARTY * parties):
        polls.next(30)
    assert paused == []
    polls.next(30)
    assert paused == [WATCH_EVERY_S]


def test_a_session_counts_the_parties_of_its_roster(setting, session, monkeypatch):
    found = []
    monkeypatch.setattr(
        "learner.session.StatusPolls",
        lambda *arguments, **options: found.append(arguments[2]) or StatusPolls(*arguments, **options),
    )
    session.run(session.plan(REQUEST))
    assert found == [len(setting.world.roster.parties)]


def test_a_second_fetch_needs_no_coordinator(setting, session):
    release = session.run(session.plan(REQUEST))
    setting.stub.fail["FetchTotal"] = Code.INTERNAL
    again = session.fetch(release.query_id)
    assert again.digest == release.digest


def test_a_directory_with_another_release_is_refused(setting, session):
    first = session.run(session.plan(REQUEST))
    second = session.ask(session.plan(REQUEST))
    first.save(session.release_directory(second))
    with pytest.raises(ReleaseError, match="another query's release"):
        session.fetch(second)


def test_sending_a_plan_twice_is_one_query(setting, session):
    plan = session.plan(REQUEST)
    assert session.ask(plan) == session.ask(plan)
    assert len(setting.stub.submitted) == 1
    assert session.ask(session.plan(REQUEST)) != session.ask(plan)


def test_a_query_is_on_disk_before_it_is_sent(setting, session):
    setting.stub.fail["SubmitQuery"] = Code.QUERIES_TOO_MANY
    with pytest.raises(WireError) as caught:
        session.ask(session.plan(REQUEST))
    assert caught.value.code is Code.QUERIES_TOO_MANY
    (query_id,) = session.unsent()
    del setting.stub.fail["SubmitQuery"]
    with setting.session() as later:
        assert later.unsent() == (query_id,)
        later.send(query_id)
        assert later.unsent() == ()
        later.send(query_id)
        assert [q.payload_hash for q in setting.stub.submitted] == [query_id]
        later.watch(query_id)
        assert np.array_equal(later.fetch(query_id).integers.reshape(-1), setting.expected)


def test_a_coordinator_that_names_the_query_otherwise_is_refused(setting, session):
    setting.stub.id_of = lambda envelope: bytes(32)
    with pytest.raises(WireError, match="not the query's hash") as caught:
        session.ask(session.plan(REQUEST))
    assert caught.value.code is Code.MESSAGE_MALFORMED
    assert len(session.unsent()) == 1


@pytest.mark.variants(2)
@pytest.mark.parametrize("text", ["", "x", "-1", "0", "1.0"])
def test_a_number_of_attempts_that_is_none_is_refused(setting, session, text):
    query_id = session.ask(session.plan(REQUEST))
    session._state.note_attempt(query_id, 2)
    [path] = setting.config.state_directory.rglob("attempts")
    assert session.attempts(query_id) == 2
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="not a number of attempts"):
        session.attempts(query_id)


def test_a_coordinator_that_is_down_loses_nothing(setting, session):
    plan = session.plan(REQUEST)
    setting.stub.stop()
    with pytest.raises(ConnectionLostError):
        session.ask(plan)
    assert len(session.unsent()) == 1


def test_a_failed_query_ends_with_its_code_and_detail(setting, session):
    setting.stub.phases = [Phase.ANSWERING, Phase.FAILED]
    setting.stub.code, setting.stub.detail = "COHORT_TOO_SMALL", "Silent: bo."
    query_id = session.ask(session.plan(REQUEST))
    seen = []
    with pytest.raises(WireError, match=r"Silent: bo\.") as caught:
        session.watch(query_id, seen.append)
    assert caught.value.code is Code.COHORT_TOO_SMALL
    assert [s.phase for s in seen] == [Phase.ANSWERING, Phase.FAILED]


def test_a_failure_with_an_unknown_code(setting, session):
    setting.stub.phases = [Phase.FAILED]
    setting.stub.code = "NO_SUCH_CODE"
    with pytest.raises(WireError) as caught:
        session.watch(session.ask(session.plan(REQUEST)))
    assert caught.value.code is Code.INTERNAL


def test_watching_ends_in_time(setting, session):
    setting.stub.phases = [Phase.PREPARING]
    query_id = session.ask(session.plan(REQUEST))
    seen = []
    with pytest.raises(TimedOutError, match=r"in phase preparing after 0\.2 s and continues"):
        session.watch(query_id, seen.append, timeout_s=0.2)
    assert len(seen) == 1


def test_status_and_list(setting, session):
    query_id = session.ask(session.plan(REQUEST))
    assert session.status(query_id).phase is Phase.ANSWERING
    assert [status.query_id for status in session.list()] == [query_id]


def test_cancel_is_signed(setting, session):
    query_id = session.ask(session.plan(REQUEST))
    session.cancel(query_id)
    (envelope,) = setting.stub.cancelled
    payload = envelope.open(MessageType.CANCEL, "clinics", setting.world.learner_key.public_bytes)
    assert query_pb2.Cancel.FromString(payload) == query_pb2.Cancel(query_id=query_id, learner="learner")


def test_a_query_of_another_state_cannot_be_fetched(session):
    with pytest.raises(WireError, match="has no query") as caught:
        session.fetch(bytes(32))
    assert caught.value.code is Code.QUERY_UNKNOWN


@pytest.mark.parametrize("code", [Code.TOTAL_UNAVAILABLE, Code.QUERY_UNKNOWN])
def test_a_total_that_is_not_there(setting, session, code):
    query_id = session.ask(session.plan(REQUEST))
    setting.stub.fail["FetchTotal"] = code
    with pytest.raises(WireError) as caught:
        session.fetch(query_id)
    assert caught.value.code is code
    assert not session.release_directory(query_id).exists()


def change_index(chunk):
    chunk.index += 1
    return chunk


def change_content(chunk):
    chunk.ciphertexts = bytes(len(chunk.ciphertexts))
    return chunk


@pytest.mark.parametrize("spoil", [change_index, change_content])
def test_a_malformed_chunk_is_refused(setting, session, spoil):
    query_id = session.ask(session.plan(REQUEST))
    setting.stub.spoil_chunk = spoil
    with pytest.raises(WireError) as caught:
        session.fetch(query_id)
    assert caught.value.code is Code.CHUNK_MALFORMED
    assert not session.release_directory(query_id).exists()


def test_a_total_of_another_query(setting, session):
    first, second = session.ask(session.plan(REQUEST)), session.ask(session.plan(REQUEST))
    setting.stub.totals[first] = setting.stub.totals[second]
    with pytest.raises(Exception, match="another query's"):
        session.fetch(first)


def test_a_release_of_a_later_attempt_counts_every_attempt_under_collusion(setting, session):
    first = session.run(session.plan(REQUEST))
    setting.attempt = 2
    release = session.run(session.plan(REQUEST))
    assert (first.attempts, release.attempts) == (1, 2)
    assert release.statement.epsilon == first.statement.epsilon
    assert release.statement.epsilon_if_others_collude > 1.3 * first.statement.epsilon_if_others_collude
    assert any("counts 2 attempts" in text for text in release.statement.assumptions)
    assert not any("attempts" in text for text in first.statement.assumptions)
    assert Release.load(session.release_directory(release.query_id)).statement == release.statement


@pytest.mark.parametrize("rows", [1, 2])
def test_a_party_of_one_or_two_rows_does_not_lose_the_release(setting, session, rows):
    """The plan was feasible at the sizes of the roster; an acceptance with other sizes came after the charge."""
    setting.rows["cy"] = rows
    release = session.run(session.plan(REQUEST))
    assert np.array_equal(release.integers.reshape(-1), setting.expected)
    statement = release.statement
    assert (statement.scope, statement.epsilon, statement.epsilon_if_others_collude) == ("none", None, None)
    assert f"ada 100, bo 200, cy {rows}" in statement.warnings[0]
    assert "no finite epsilon" in statement.warnings[0]
    assert "'smoker'" in statement.sentences()[0]
    assert Release.load(session.release_directory(release.query_id)).statement == statement


def test_nothing_is_decrypted_before_every_chunk_is_there(setting, session, small_chunks, monkeypatch):
    """The requests for chunks must not reveal to the sender of the ciphertexts how long a decryption takes."""
    steps = []
    fetch, decrypt = session._coordinator.fetch_chunk, SecretKey.decrypt_many
    monkeypatch.setattr(session._coordinator, "fetch_chunk", lambda *asked: (steps.append("fetch"), fetch(*asked))[1])
    monkeypatch.setattr(
        SecretKey, "decrypt_many", lambda *given, **more: (steps.append("decrypt"), decrypt(*given, **more))[1]
    )
    session.run(session.plan(REQUEST))
    chunks = len(steps) - 1
    assert chunks > 1
    assert steps == ["fetch"] * chunks + ["decrypt"]


def test_two_concurrent_fetches_save_one_release(setting, session, monkeypatch):
    query_id = session.ask(session.plan(REQUEST))
    save = Release.save

    def overtaken(release, directory):
        save(release, directory)
        save(release, directory)

    monkeypatch.setattr(Release, "save", overtaken)
    release = session.fetch(query_id)
    assert np.array_equal(release.integers.reshape(-1), setting.expected)


@pytest.mark.variants(2)
@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan"), float("inf")])
def test_an_invalid_timeout_sends_nothing(setting, session, timeout_s):
    with pytest.raises(ConfigurationError, match="positive number of seconds"):
        session.run(session.plan(REQUEST), timeout_s=timeout_s)
    assert setting.stub.submitted == []


def test_an_expired_query_is_not_listed_as_unsent(setting, session, monkeypatch):
    setting.stub.fail["SubmitQuery"] = Code.QUERIES_TOO_MANY
    with pytest.raises(WireError):
        session.ask(session.plan(REQUEST))
    assert session.unsent() == session.asked() != ()
    later = time.time() + REQUEST.expires_after_s + 1
    monkeypatch.setattr("time.time", lambda: later)
    assert session.unsent() == ()
    assert len(session.asked()) == 1


def test_a_roster_never_goes_back(setting, session):
    old = setting.stub.roster
    setting.issue(5)
    assert session.fetch_roster().version == 5
    setting.stub.roster = old
    with setting.session() as later, pytest.raises(WireError, match="Version 1 came after version 5") as caught:
        later.fetch_roster()
    assert caught.value.code is Code.ROSTER_STALE


def test_two_rosters_of_one_version(setting, session):
    session.fetch_roster()
    setting.issue(1, lambda members: members[:-2] + members[-1:])
    with pytest.raises(WireError, match="two rosters of version 1"):
        session.fetch_roster()


def test_a_roster_that_another_key_signed(setting, session):
    setting.stub.roster = setting.world.roster.sign(SigningKey.generate("clinics"))
    with pytest.raises(WireError) as caught:
        session.plan(REQUEST)
    assert caught.value.code is Code.SIGNATURE_INVALID


def test_a_learner_that_the_roster_does_not_list(setting, session):
    setting.issue(2, lambda members: members[:-1])
    with pytest.raises(ConfigurationError, match="no learner 'learner'"):
        session.fetch_roster()


def test_a_signing_key_that_the_roster_does_not_list(setting, session):
    other = SigningKey.generate("clinics").public_bytes
    setting.issue(2, lambda members: (*members[:-1], replace(members[-1], signing_key=other)))
    with pytest.raises(ConfigurationError, match="is not the key that the roster lists"):
        session.fetch_roster()


def test_another_federation(setting):
    """Also one that the same key signed. It is newer, and does not take the place of the federation's own."""
    own = setting.stub.roster
    setting.world.federation_key._federation = "banks"
    other = replace(setting.world.roster, federation="banks", version=9)
    setting.stub.roster = other.sign(setting.world.federation_key)
    with setting.session() as session:
        with pytest.raises(WireError) as caught:
            session.fetch_roster()
        assert caught.value.code is Code.FEDERATION_MISMATCH
        setting.stub.roster = own
        assert session.fetch_roster().version == 1


def test_a_member_that_left_after_the_cohort_was_fixed(setting, session):
    query_id = session.ask(session.plan(REQUEST))
    setting.issue(2, lambda members: tuple(m for m in members if m.name != "bo"))
    assert session.fetch_roster().version == 2
    release = session.fetch(query_id)
    assert np.array_equal(release.integers.reshape(-1), setting.expected)
    release.verify(setting.world.federation_key.public_bytes)


def test_a_member_that_came_after_the_query(setting, session):
    query_id = session.ask(session.plan(REQUEST))
    newer = setting.issue(2)
    session.fetch_roster()
    release = session.fetch(query_id)
    assert Roster.from_bytes(release.roster_envelope.payload) == newer


def test_a_total_outlives_its_query(setting, session, monkeypatch):
    query_id = session.ask(session.plan(REQUEST))
    later = time.time() + 40 * 24 * 3600
    monkeypatch.setattr("time.time", lambda: later)
    assert session.fetch(query_id).created_at_unix_s == int(later)


def test_a_plan_of_an_unseen_roster_is_refused(setting, session):
    plan = session.plan(REQUEST)
    unseen = replace(plan, query=replace(plan.query, roster_version=9))
    with pytest.raises(WireError) as caught:
        session.ask(unseen)
    assert caught.value.code is Code.ROSTER_STALE
    assert session.unsent() == ()


def test_a_certificate_out_of_date(setting, monkeypatch):
    class Later(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + dt.timedelta(days=400)

    monkeypatch.setattr("learner.session.dt.datetime", Later)
    with pytest.raises(ConfigurationError, match="expired on"):
        setting.session()


def test_anothers_certificate(setting):
    with pytest.raises(ConfigurationError, match="use its own certificate"):
        setting.session(name="other")


def test_configuration_errors_name_the_key(setting):
    path = setting.made.directory / "members" / "learner" / "learner.toml"
    path.write_text(path.read_text().replace("paillier_key", "pailier_key"))
    with pytest.raises(ConfigurationError, match="did you mean 'paillier_key'"):
        LearnerConfig.load(path)


def test_state_survives_and_damage_is_named(setting, tmp_path):
    public = setting.world.federation_key.public_bytes
    state = LearnerState(tmp_path / "state", public)
    assert state.newest_roster() is None
    asked = AskedQuery(setting.world.ask().envelope, setting.stub.roster)
    opening = setting.world.openings[asked.query_id]
    state.remember(asked, opening)
    state.remember(asked, opening)
    assert LearnerState(tmp_path / "state", public).find(asked.query_id) == asked
    assert state.query_ids() == (asked.query_id,)
    path = tmp_path / "state" / "queries" / asked.query_id.hex() / "query.signed"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigurationError, match="damaged"):
        state.find(asked.query_id)
    path.write_bytes(setting.world.ask().envelope.to_bytes())
    with pytest.raises(ConfigurationError, match="contains another query"):
        state.find(asked.query_id)


def test_a_state_directory_that_is_a_file(setting, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        LearnerState(tmp_path / "file", setting.world.federation_key.public_bytes)


def test_a_full_disk_sends_nothing(setting, session, monkeypatch):
    plan = session.plan(REQUEST)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigurationError, match="No space left"):
        session.ask(plan)
    assert setting.stub.submitted == []
