"""A learner under rosters that expire or are withheld. Totals and releases outlive their roster."""

import shutil
import time
from dataclasses import replace

import numpy as np
import pytest

from learner.release import Release
from tests.learner.test_session import REQUEST
from wire.envelopes import SigningKey
from wire.errors import Code, WireError
from wire.roster import EXPIRY_SKEW_S, Role

DAY_S = 86_400


@pytest.fixture
def session(setting):
    with setting.session() as session:
        yield session


def serve(setting, version: int, *, ends: int | None = None, change=lambda members: members):
    """Let the coordinator serve this roster from now on."""
    roster = setting.world.roster
    ends = roster.not_after_unix_s if ends is None else ends
    newer = replace(roster, version=version, not_after_unix_s=ends, members=change(roster.members))
    setting.stub.roster = newer.sign(setting.world.federation_key)


def later(monkeypatch, unix_s: float) -> None:
    monkeypatch.setattr("time.time", lambda: unix_s)


def refused(code: Code, function, *arguments) -> WireError:
    with pytest.raises(WireError) as caught:
        function(*arguments)
    assert caught.value.code is code
    return caught.value


def test_nothing_is_planned_or_sent_under_an_expired_roster(setting, session, monkeypatch):
    plan = session.plan(REQUEST)
    ends = setting.world.roster.not_after_unix_s
    later(monkeypatch, ends + EXPIRY_SKEW_S + 1)
    refused(Code.ROSTER_EXPIRED, session.ask, plan)
    refused(Code.ROSTER_EXPIRED, session.plan, REQUEST)
    assert session.asked() == ()
    serve(setting, 2, ends=ends + 90 * DAY_S)
    assert session.fetch_roster().version == 2


def test_a_total_opens_after_its_roster_expired(setting, session, monkeypatch):
    query_id = session.ask(session.plan(REQUEST))
    later(monkeypatch, setting.world.roster.not_after_unix_s + 400 * DAY_S)
    release = session.fetch(query_id)
    assert np.array_equal(release.integers.reshape(-1), setting.expected)
    Release.load(session.release_directory(query_id)).verify(setting.world.federation_key.public_bytes)


def test_a_total_opens_under_a_newer_roster_that_is_expired_too(setting, session, monkeypatch):
    query_id = session.ask(session.plan(REQUEST))
    ends = setting.world.roster.not_after_unix_s
    serve(setting, 2, ends=ends + DAY_S)
    session.fetch_roster()
    later(monkeypatch, ends + 400 * DAY_S)
    assert np.array_equal(session.fetch(query_id).integers.reshape(-1), setting.expected)


def test_a_member_ahead_is_followed_by_one_refresh(setting, session):
    setting.world.stated_version = 2
    query_id = session.ask(session.plan(REQUEST))
    serve(setting, 2)
    assert np.array_equal(session.fetch(query_id).integers.reshape(-1), setting.expected)
    assert session.fetch_roster().version == 2


def test_a_withheld_roster_is_noticed_as_soon_as_one_member_is_ahead(setting, session):
    setting.world.stated_version = 3
    query_id = session.ask(session.plan(REQUEST))
    serve(setting, 2)
    assert "ada has version 3, but this node has 2." in refused(Code.ROSTER_STALE, session.fetch, query_id).detail
    assert not session.release_directory(query_id).exists()
    # It opens once the newest version is there.
    serve(setting, 3)
    assert np.array_equal(session.fetch(query_id).integers.reshape(-1), setting.expected)


def test_a_total_of_a_cohort_with_a_member_that_left_afterwards_opens(setting, session):
    """The newest roster does not verify it; the one that the query was planned with does, and nobody is ahead."""
    setting.world.stated_version = 2
    query_id = session.ask(session.plan(REQUEST))
    serve(setting, 2, change=lambda members: tuple(m for m in members if m.name != "cy"))
    assert np.array_equal(session.fetch(query_id).integers.reshape(-1), setting.expected)


@pytest.mark.parametrize(("days", "says"), [(31, None), (29.5, "expires in 29 days"), (0, "never expires")])
def test_a_plan_warns_of_the_roster_s_end(setting, session, days, says):
    serve(setting, 2, ends=int(time.time() + days * DAY_S) if days else 0)
    sentences = session.plan(REQUEST).sentences()
    warnings = [sentence for sentence in sentences if sentence.startswith("Warning: roster version 2")]
    assert len(warnings) == (says is not None)
    assert all(says in sentence for sentence in warnings)


def test_a_plan_is_signed_only_under_a_roster_at_least_as_new_as_its_own(setting, session, tmp_path):
    """Another process may have planned with a newer one."""
    serve(setting, 2)
    plan = session.plan(REQUEST)
    with setting.session(state_directory=tmp_path / "never connected") as other:
        refused(Code.ROSTER_STALE, other.prepare, plan)
    shutil.copytree(setting.config.state_directory, tmp_path / "copy")
    serve(setting, 3)
    newer = session.plan(REQUEST)
    with setting.session(state_directory=tmp_path / "copy") as older:
        refused(Code.ROSTER_STALE, older.prepare, newer)
        assert older.prepare(plan) in older.asked()


@pytest.fixture
def another_key(tmp_path):
    """The file of a new signing key, and its public bytes."""
    key, path = SigningKey.generate("clinics"), tmp_path / "new.key"
    key.save(path)
    return path, key.public_bytes


def test_a_query_that_the_roster_does_not_verify_is_not_kept(setting, session, another_key):
    """The key's file was exchanged since the roster came: no party would take the query."""
    plan = session.plan(REQUEST)
    with setting.session(signing_key=another_key[0]) as other:
        refused(Code.SIGNATURE_INVALID, other.prepare, plan)
        assert other.asked() == ()


def test_a_total_opens_under_its_own_roster_after_the_learner_s_key_changed(setting, session, another_key):
    """The newest roster verifies the cohort, but not the query."""
    query_id = session.ask(session.plan(REQUEST))
    path, key = another_key
    serve(setting, 2, change=lambda ms: tuple(replace(m, signing_key=key) if m.role is Role.LEARNER else m for m in ms))
    with setting.session(signing_key=path) as renewed:
        assert renewed.fetch_roster().version == 2
        assert np.array_equal(renewed.fetch(query_id).integers.reshape(-1), setting.expected)
        # A reader of the release verifies the query by the roster in it.
        Release.load(renewed.release_directory(query_id)).verify(setting.world.federation_key.public_bytes)
