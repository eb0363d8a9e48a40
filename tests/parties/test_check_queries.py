"""The preflight's checks of queries: open ones, past refusals, rosters that go back, tables that are too small."""

import datetime as dt
import time
from dataclasses import replace

import pytest

from dpcore.records.schema import Schema
from parties.answering.coordinator_calls import WorkBatch
from parties.client import CoordinatorClient
from parties.config import PartyConfig
from parties.history.database import FILE, HistoryDatabase
from parties.history.history import History, What
from parties.preflight import preflight
from tests.federation.party import World
from tests.parties.check_world import replace_in, run
from tests.parties.test_node import SCHEMA
from wire.envelopes import Envelope, SigningKey
from wire.errors import Code
from wire.query import PaillierKey
from wire.roster import open_roster
from wire.status import PartyState, Phase, Work


@pytest.fixture
def show(served, secret_key, monkeypatch):
    """Lets the coordinator show queries of these schemas, "forged" for one that does not open; the check's finding."""
    world = World(secret_key, learner_key=SigningKey.load(served.learner.directory / "signing.key", "test"))
    now = int(time.time())
    certificate = PaillierKey("learner", secret_key.public_key, now - 10, now + 10_000).sign(world.learner_key)

    def look(*schemas, unreadable=0):
        works = []
        for text in schemas:
            key = SigningKey.generate("test") if text == "forged" else None
            schema = Schema.from_toml(SCHEMA if key else text)
            query = world.query(federation="test", learner="learner", paillier_key=certificate, schema=schema)
            works.append(Work(world.ask(query, key), 1, Phase.ANSWERING, PartyState.SILENT, None, frozenset()))
        monkeypatch.setattr(CoordinatorClient, "fetch_work", lambda *_: WorkBatch(tuple(works), 1, unreadable))
        return run(served)["queries"], [work.query_id.hex()[:16] for work in works]

    return look


OTHER = SCHEMA.replace("upper = 100", "upper = 120")


def test_an_open_query_with_another_schema_says_which_field_differs(show):
    same, _ = show(SCHEMA)
    assert (same.status, same.detail[:6]) == ("ok", "1 open")
    other, (name,) = show(OTHER)
    assert other.status == "failed"
    assert f"query {name} of learner: features.age.upper: here 100.0, there 120.0" in other.detail


def test_a_query_that_does_not_open_is_named_and_the_others_are_checked(show):
    found, (forged, good, other) = show("forged", SCHEMA, OTHER, unreadable=2)
    assert found.status == "failed"
    assert f"query {forged} cannot be opened: The signature is not valid" in found.detail
    assert f"query {other} of learner: features.age.upper" in found.detail
    assert "2 could not be read" in found.detail
    assert good not in found.detail
    for fix in ("signing key", "one schema file", "Update the older"):
        assert fix in found.fix


def history_of(federation):
    return History(HistoryDatabase(federation.directory("ada") / "state" / FILE, federation="test", party="ada"))


def test_a_refusal_is_reported_after_the_query_is_gone(offline):
    assert run(offline)["refusals"].status == "ok"
    history, now = history_of(offline), time.time()
    for query, seconds_ago, code, detail in (
        (b"a", 9000, Code.POLICY_LIMITS, "rados is 2000 and the limit is 1000."),
        (b"b", 60, Code.SCHEMA_MISMATCH, "These differ: features.age.upper."),
        (b"c", 30, Code.SCHEMA_MISMATCH, "These differ: features.age.upper."),
    ):
        history.happened(query * 32, 1, What.REFUSED, now - seconds_ago, code=code.value, detail=detail)
    found = run(offline)["refusals"]
    assert found.status == "advice"
    first, second = found.detail.split(" | ")
    at = dt.datetime.fromtimestamp(int(now - 30), dt.UTC)
    assert first == (
        f"SCHEMA_MISMATCH, 2 times, last at {at:%Y-%m-%d %H:%M:%S} UTC, query {'63' * 8}: "
        "These differ: features.age.upper."
    )
    assert second.startswith("POLICY_LIMITS at ")
    assert f"query {'61' * 8}: rados is 2000" in second
    assert "Agree with the learner on one schema file." in found.fix
    assert "data officer" in found.fix
    assert run(offline, now=now + 8 * 86_400)["refusals"].detail == "none in the last 7 days"


def test_a_cohort_that_was_refused_is_reported_with_what_to_do(offline):
    now = time.time()
    detail = "After it was accepted: The cohort does not contain this party's acceptance unchanged."
    assert run(offline)["refusals"].status == "ok"
    history = history_of(offline)
    history.happened(b"d" * 32, 2, What.REFUSED, now - 9, code=Code.COHORT_EXCLUDED.value, detail=detail)
    found = run(offline)["refusals"]
    assert found.status == "advice"
    assert found.detail.startswith("COHORT_EXCLUDED at ")
    assert found.detail.endswith(detail)
    assert "Ask the operator to check the coordinator" in found.fix


def test_a_roster_older_than_the_one_that_was_seen_is_a_failure(served, tmp_path):
    """Like a coordinator that lost its state and received an old file."""
    operator = served.root / "federation" / "federation"
    key = SigningKey.load(operator / "federation.key", "test")
    roster = open_roster(Envelope.from_bytes((operator / "roster.signed").read_bytes()), key.public_bytes)
    config = PartyConfig.load(served.member("ada").config).model_copy(update={"state_directory": tmp_path})

    def check(seen):
        (tmp_path / "roster.signed").write_bytes(seen.sign(key).to_bytes())
        return {finding.name: finding for finding in preflight(config)}

    assert check(roster)["roster"].status == "ok"
    found = check(replace(roster, version=3, members=[m for m in roster.members if m.name != "cy"]))
    assert found["roster"].status == "failed"
    assert "serves roster version 1; this party has seen version 3 and keeps it" in found["roster"].detail
    assert "higher version" in found["roster"].fix
    # The later checks use the roster that the party keeps.
    assert found["membership"].status == "ok"
    assert "1 of 1 other parties" in found["accepted-members"].detail
    twin = check(replace(roster, issued_at_unix_s=roster.issued_at_unix_s + 1))
    assert "a different roster with version 1" in twin["roster"].detail


def test_an_accepted_key_of_no_member_of_the_roster_is_named_with_whose_it_was(served, tmp_path):
    """Such as the former key of a party that has a new one: it would count again in a roster that listed it."""
    operator = served.root / "federation" / "federation"
    key = SigningKey.load(operator / "federation.key", "test")
    roster = open_roster(Envelope.from_bytes((operator / "roster.signed").read_bytes()), key.public_bytes)
    policy = tmp_path / "policy.toml"
    text = (served.directory("ada") / "policy.toml").read_text()
    config = PartyConfig.load(served.member("ada").config)
    config = config.model_copy(update={"state_directory": tmp_path, "policy": policy})

    def check(seen, *more):
        (tmp_path / "roster.signed").write_bytes(seen.sign(key).to_bytes())
        policy.write_text(text.replace("accepted_members = [", f"accepted_members = [{''.join(more)}"))
        return {finding.name: finding for finding in preflight(config)}["accepted-members"]

    assert check(roster).status == "ok"
    stray = ":".join(["abcd"] * 16)
    found = check(roster, f'"{stray}", ')
    assert found.status == "advice"
    assert f"accepted_members has {stray}, of no member that this party has seen: it would count again" in found.fix
    assert "Delete its line in policy.toml, and run `rado party reload`." in found.fix
    # A party that has a new key, and one that left: the rosters that this party saw say whose the keys were.
    directory = tmp_path / "former-rosters"
    directory.mkdir()
    (directory / f"{1:019}.signed").write_bytes(roster.sign(key).to_bytes())
    anew = SigningKey.generate("test").public_bytes
    others = [replace(m, signing_key=anew) if m.name == "bo" else m for m in roster.members if m.name != "cy"]
    found = check(replace(roster, version=2, members=others))
    bo, cy = (served.member(name).fingerprint for name in ("bo", "cy"))
    assert f"{bo}, the former key of bo, up to version 1 of the roster" in found.fix
    assert f"{cy}, of cy, which left after version 1 of the roster" in found.fix
    assert f"accepted_members has {served.member('ada').fingerprint}" not in found.fix
    assert "[[learners]] has" not in found.fix
    # A learner that left may ask again where a roster lists it.
    text += f'[[learners]]\nname = "former"\nsigning_key = "{stray}"\n'
    found = check(replace(roster, version=2, members=others))
    assert f"[[learners]] has {stray}, of no member that this party has seen: it may ask again" in found.fix
    assert "Delete its table in policy.toml" in found.fix


def test_a_table_too_small_for_any_dp_feat_query_is_advised(offline):
    data, policy = (offline.directory("ada") / name for name in ("data.csv", "policy.toml"))

    def look(rows):
        data.write_text("age,smoker,stayed\n" + "30,yes,no\n40,no,yes\n" * (rows // 2))
        return run(offline)["dp-feat"]

    small = look(12)
    assert small.status == "advice"
    assert small.detail == "at 12 rows and delta 1e-06 not even a query of 1 rado has a finite bound"
    assert small.fix == "Provide at least 20 rows, or a delta_per_query above 0.00025."
    assert look(18).status == "advice"
    enough = look(20)
    assert (enough.status, enough.detail) == (
        "ok",
        "at 20 rows and delta 1e-06 a first query of up to 1 rado costs at most epsilon 10",
    )
    replace_in(policy, 'epsilon = "10"', 'epsilon = "2"')
    dear = look(20)
    assert dear.status == "advice"
    assert "even 1 rado costs epsilon 2.994; the policy allows 2" in dear.detail
    replace_in(policy, '"dp-feat"', '"moments"')
    assert look(20).status == "ok"
