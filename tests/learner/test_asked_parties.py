"""A learner gives the seed of a total's tag to the parties that it accepted, counts them alone, and opens no other."""

from dataclasses import replace

import numpy as np
import pytest

import radofed
from dpcore.errors import ConfigurationError, PlanError
from learner.accepted_parties import parties_toml
from learner.decryption import CohortError, open_total
from learner.journal import SessionSource
from tests.federation.learner import REQUEST, World
from tests.federation.processes import rado
from tests.federation.setting import ROWS
from wire.envelopes import MessageType, SigningKey, fingerprint
from wire.errors import Code, WireError
from wire.query import open_query


@pytest.fixture
def session(setting):
    with setting.session() as opened:
        yield opened


PAIR = replace(REQUEST, cohort_min=2, colluders=0)


def accept(setting, *names):
    """The learner's people accept these parties, and no other."""
    keys = {party.name: fingerprint(party.signing_key) for party in setting.world.roster.parties}
    setting.config.parties.write_text(parties_toml({name: keys[name] for name in names}))


def test_a_party_that_was_not_accepted_gets_no_seed(setting, session):
    accept(setting, "ada", "bo")
    plan = session.plan(PAIR)
    assert plan.query.binding.parties == {"ada", "bo"}
    for name in ROWS:
        own = setting.world.party_keys[name]
        # Its own entry, and those of the others, of which it has all bytes.
        for sealed_for in ROWS:
            if name == sealed_for != "cy":
                assert plan.query.binding.unseal(name, own, plan.query.nonce) == plan.opening.seed
                continue
            with pytest.raises(WireError) as caught:
                plan.query.binding.unseal(sealed_for, own, plan.query.nonce)
            assert caught.value.code is (Code.PARTY_NOT_ASKED if sealed_for == "cy" else Code.SEED_MISMATCH)
    assert "1 of 3 parties are not asked (not accepted: cy)." in plan.sentences()


def test_a_plan_counts_accepted_parties_alone(setting, session):
    accept(setting, "ada", "bo")
    query = session.plan(replace(REQUEST, max_rows=None)).query
    assert (query.cohort_min, query.max_parties) == (2, 2)
    assert query.max_rows == 2 * 1_000_000
    assert SessionSource(session).rows == ROWS["ada"] + ROWS["bo"]
    with pytest.raises(PlanError, match=r"at least 3 parties cannot form: the query asks 2.*rado learner accept"):
        session.plan(replace(REQUEST, cohort_min=3))
    # A party that is not asked makes up for none that is.
    setting.stub.features[0] = setting.world.features("ada", ("bound-totals",))
    with pytest.raises(WireError, match="ada lacks") as caught:
        session.plan(REQUEST)
    assert caught.value.code is Code.FEATURE_MISSING


def test_a_learner_that_accepted_nobody_sends_nothing(setting, session):
    setting.config.parties.unlink()
    with pytest.raises(ConfigurationError, match=r"parties\.toml: there is no such file.*rado learner accept NAME"):
        session.plan(REQUEST)
    config = ("--config", str(setting.config_file))
    schema = setting.config_file.with_name("schema.toml")
    schema.write_text(REQUEST.schema.to_toml())
    asked = ("learner", "query", *config, "--schema", str(schema), "--design", "moments", "--epsilon", "1")
    failed = rado(*asked, code=4)
    assert "rado learner accept NAME" in failed["error"]["message"]
    listed = rado("learner", "members", *config)["data"]["members"]
    assert not any(member["asked"] for member in listed)
    ada = next(member["digits"] for member in listed if member["name"] == "ada")
    for name, digits, says in (("ada", "0" * 30, "another fingerprint"), ("eve", ada, "no party 'eve'")):
        failed = rado("learner", "accept", name, *config, "--fingerprint", digits, code=4)
        assert says in failed["error"]["message"]
    assert not setting.config.parties.exists()
    assert rado("learner", "accept", "ada", *config, "--fingerprint", ada)["data"]["changed"]
    assert [m["name"] for m in rado("learner", "members", *config)["data"]["members"] if m["asked"]] == ["ada"]
    assert "the query asks 1" in rado(*asked, code=PlanError.exit_code)["error"]["message"]
    assert setting.stub.submitted == []


def test_a_party_whose_key_changed_is_not_asked(setting, session):
    assert session.plan(REQUEST).not_asked == ""
    key = SigningKey.generate("clinics").public_bytes
    setting.issue(2, lambda members: tuple(replace(m, signing_key=key) if m.name == "bo" else m for m in members))
    plan = session.plan(replace(PAIR))
    assert plan.query.binding.parties == {"ada", "cy"}
    assert plan.not_asked == "1 of 3 parties are not asked (their keys changed: bo)"
    (warning,) = (sentence for sentence in plan.sentences() if sentence.startswith("Warning: parties whose keys"))
    assert "bo" in warning
    assert "rado learner accept" in warning


def test_an_accepted_party_that_left_is_named(setting, session):
    """Its rows were in earlier answers, and are in none any more."""
    setting.issue(2, lambda members: tuple(m for m in members if m.name != "bo"))
    said = session.plan(PAIR).sentences()
    (warning,) = (sentence for sentence in said if "not in the roster any more" in sentence)
    assert warning.startswith("Warning: parties that this learner accepted")
    assert "bo; ask the operator why, or remove their tables from parties.toml" in warning


def opened_for(world: World, *names: str):
    """A query to these parties, and its opening secret."""
    plan = world.plan(PAIR, asked=names)
    envelope = world.learner_key.sign(MessageType.QUERY, plan.query.to_bytes())
    return open_query(envelope, world.roster, now_unix_s=plan.query.created_at_unix_s), plan.opening


def no_chunks():
    raise AssertionError("a chunk was drawn before everything signed had held")
    yield b""


def test_a_cohort_with_a_party_that_was_not_asked_is_refused(world):
    opened, opening = opened_for(world, "ada", "bo")
    total = world.total(opened, {"ada": 100, "cy": 300})
    with pytest.raises(CohortError, match=r"members that the query does not ask \(cy\)"):
        open_total(total, no_chunks(), opened, world.roster, world.key.secret, opening=opening)


def test_a_member_with_another_key_than_the_one_that_was_asked_is_refused(world):
    """The roster of today may have another key for a name: its owner never had the seed."""
    opened, opening = opened_for(world, "ada", "bo")
    other = SigningKey.generate("clinics")
    changed = tuple(replace(m, signing_key=other.public_bytes) if m.name == "bo" else m for m in world.roster.members)
    newer = replace(world.roster, version=world.roster.version + 1, members=changed)
    world.party_keys["bo"] = other
    total = world.total(opened, {"ada": 100, "bo": 200})
    with pytest.raises(WireError, match="another key of 'bo'") as caught:
        open_total(total, no_chunks(), opened, newer, world.key.secret, opening=opening)
    assert caught.value.code is Code.PARTY_NOT_ASKED


def test_a_query_asks_whom_it_asked_when_it_was_planned(setting, session):
    """Whoever is accepted, or not any more, once it was sent: its total opens, and the next plan follows the file."""
    query_id = session.ask(session.plan(REQUEST))
    accept(setting, "ada", "bo")
    assert np.array_equal(session.fetch(query_id).integers.reshape(-1), setting.expected)
    assert session.plan(PAIR).query.binding.parties == {"ada", "bo"}


def test_python_warns_of_parties_that_are_not_asked(setting, tmp_path):
    """A command prints it. How far a round is, a display shows."""
    accept(setting, "ada", "bo")
    setting.rows = {"ada": 100, "bo": 200}
    with (
        radofed.connect(setting.config_file, schema=PAIR.schema, progress=False) as federation,
        pytest.warns(UserWarning, match="not asked") as warned,
    ):
        federation.source.answer(federation.plan(PAIR))
    assert [str(each.message) for each in warned] == ["1 of 3 parties are not asked (not accepted: cy)."]


def test_a_status_says_who_is_not_asked(setting, session):
    accept(setting, "ada", "bo")
    query_id = session.prepare(session.plan(PAIR))
    setting.stub.on_submit = lambda envelope: None
    session.send(query_id)
    found = rado("learner", "status", query_id.hex(), "--config", str(setting.config_file))["data"]
    assert found["not_asked"] == ["cy"]


@pytest.mark.more
def test_a_training_says_when_its_rounds_ask_other_parties(setting, session, tmp_path):
    """It goes on, as it does with another roster; the first round's answer is read from disk and not asked again."""
    notes = []
    source = SessionSource(session, tmp_path / "journal", note=notes.append)
    setting.rows = {"ada": 100, "bo": 200}
    accept(setting, "ada", "bo")
    source.answer(session.plan(PAIR))
    first = list(notes)
    assert first[0] == "1 of 3 parties are not asked (not accepted: cy)."
    accept(setting, "ada", "cy")
    setting.rows = {"ada": 100, "cy": 300}
    notes.clear()
    again = SessionSource(session, tmp_path / "journal", note=notes.append)
    assert set(again.answer(session.plan(PAIR)).party_rows) == {"ada", "bo"}
    assert any("already answered" in note for note in notes)
    assert set(again.answer(session.plan(PAIR)).party_rows) == {"ada", "cy"}
    assert "Warning: round 2 asks other parties than the round before (now asked: cy; not asked any more: bo)" in notes
