"""The rosters that a party accepts while it answers queries."""

import os
import stat
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.errors import ConfigurationError
from parties.answering.attempts import AttemptState
from parties.members import Rosters, former_files, known_roster, members_of
from radobase.logs import Log
from tests.federation.party import FEDERATION, reserved, spent
from wire.envelopes import SigningKey, save_public_key
from wire.errors import Code, ConnectionLostError, WireError
from wire.query import open_query
from wire.roster import EXPIRY_SKEW_S
from wire.statements import Acceptance, Cohort, Refusal, open_statement, sign

pytestmark = pytest.mark.usefixtures("small_comb")


def test_a_newer_roster_is_fetched_if_the_query_needs_it(ada):
    ada.world.version = 2
    ada.world.party_keys["dee"] = SigningKey.generate(FEDERATION)
    assert ada.go(ada.world.ask(ada.world.query(roster_version=2)))
    assert ada.rosters.current.version == 2


def test_a_roster_that_goes_back_is_rejected(ada, world):
    world.version = 3
    assert ada.rosters.offer(world.roster_envelope)
    ada.restart()
    world.version = 2
    assert not ada.rosters.offer(world.roster_envelope)
    world.version = 3
    world.party_keys["dee"] = SigningKey.generate(FEDERATION)
    assert not ada.rosters.offer(world.roster_envelope)
    world.version, world.federation_key = 4, SigningKey.generate(FEDERATION)
    assert not ada.rosters.offer(world.roster_envelope)
    assert ada.rosters.current.version == 3
    assert ada.rosters.current.find("dee", ada.rosters.current.parties[0].role) is None


def signed(world, version: int, *, ends: int = 0, without: tuple[str, ...] = ()):
    members = tuple(member for member in world.roster.members if member.name not in without)
    roster = replace(world.roster, version=version, members=members, not_after_unix_s=ends)
    return roster.sign(world.federation_key)


def serve(ada, envelope) -> list[int]:
    """Let the coordinator serve this roster. Returns a list that grows with every fetch."""
    fetched: list[int] = []

    def fetch_roster():
        fetched.append(1)
        return envelope, time.time()

    ada.hub.fetch_roster = fetch_roster
    return fetched


def accepted(world, query_id: bytes, party: str, version: int):
    mask_key = world.mask_keys[party, 1] = X25519PrivateKey.generate()
    public = mask_key.public_key().public_bytes_raw()
    return sign(Acceptance(query_id, 1, party, 50, public, version), world.party_keys[party])


def fresh_cohort(ada, version: int, others: tuple[str, ...] = ("bo", "cy")):
    """A query that ada is ready for, and a cohort whose other members state this version."""
    envelope = ada.world.ask()
    assert ada.go(envelope)
    query_id = envelope.payload_hash
    theirs = (accepted(ada.world, query_id, name, version) for name in others)
    return envelope, Cohort(query_id, 1, (ada.hub.answers[-1], *theirs))


def test_an_expired_roster_answers_no_query(ada):
    now = int(time.time())
    assert ada.rosters.offer(signed(ada.world, 2, ends=now + 100))
    serve(ada, signed(ada.world, 2, ends=now + 100))
    assert ada.go(ada.world.ask())
    ada.offset_s = 100 + EXPIRY_SKEW_S + 1
    assert not ada.go(ada.world.ask(ada.world.query(created_at_unix_s=now + 300)))
    assert open_statement(Refusal, ada.hub.answers[-1], ada.world.roster)[0].code is Code.ROSTER_EXPIRED
    assert reserved(ada) > 0  # of the first query alone
    assert len(ada.attempts.unfinished()) == 1


def test_a_roster_that_expired_is_renewed_on_demand(ada):
    now = int(time.time())
    assert ada.rosters.offer(signed(ada.world, 2, ends=now + 100))
    ada.offset_s = 100 + EXPIRY_SKEW_S + 1
    serve(ada, signed(ada.world, 3, ends=now + 10_000))
    assert ada.go(ada.world.ask(ada.world.query(created_at_unix_s=now + 300)))
    assert ada.rosters.current.version == 3


def test_an_expired_roster_charges_nothing(ada):
    now = int(time.time())
    assert ada.rosters.offer(signed(ada.world, 2, ends=now + 100))
    serve(ada, signed(ada.world, 2, ends=now + 100))
    envelope, cohort = fresh_cohort(ada, 2)
    ada.offset_s = 100 + EXPIRY_SKEW_S + 1
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is AttemptState.ENDED
    assert (spent(ada), ada.hub.chunks) == (0, {})


def test_a_stored_roster_that_expired_still_opens(ada, world):
    """The node starts, and fetches the next version."""
    assert ada.rosters.offer(signed(world, 2, ends=world.roster.issued_at_unix_s + 1))
    world.version = 2
    ada.restart()
    assert ada.rosters.current.is_expired(time.time())


def test_acceptances_carry_the_newest_version(ada):
    assert ada.rosters.offer(signed(ada.world, 5))
    assert ada.go(ada.world.ask())
    assert Acceptance.from_bytes(ada.hub.answers[-1].payload).roster_version == 5


def test_a_member_ahead_is_followed_by_one_refresh(ada):
    envelope, cohort = fresh_cohort(ada, 4)
    fetched = serve(ada, signed(ada.world, 4))
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is AttemptState.UPLOADED
    assert (len(fetched), ada.rosters.current.version) == (1, 4)


def test_a_withheld_roster_is_noticed_as_soon_as_one_member_is_ahead(ada):
    envelope, cohort = fresh_cohort(ada, 4)
    fetched = serve(ada, signed(ada.world, 3))
    ada.upload(envelope, cohort)
    assert (len(fetched), ada.rosters.current.version) == (1, 3)
    assert ada.state(envelope) is AttemptState.ENDED
    assert (spent(ada), ada.hub.chunks) == (0, {})
    (refused,) = ada.history.refusals()
    assert refused.code is Code.ROSTER_STALE
    assert "bo has version 4, but this node has 3" in refused.detail


def test_a_member_behind_is_accepted(ada):
    """This party's own roster lists it; and it refuses the cohort itself until it has that roster too."""
    assert ada.rosters.offer(signed(ada.world, 9))
    envelope, cohort = fresh_cohort(ada, 2)
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is AttemptState.UPLOADED


def test_a_removed_member_is_refused_although_it_is_only_behind(ada):
    # With a fourth party the roster is large enough for the policy after the removal.
    ada.world.party_keys["dee"], ada.world.version = SigningKey.generate(FEDERATION), 2
    ada.restart()
    envelope, cohort = fresh_cohort(ada, 2)
    assert ada.rosters.offer(signed(ada.world, 3, without=("cy",)))
    serve(ada, signed(ada.world, 3, without=("cy",)))
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is AttemptState.ENDED
    assert (spent(ada), ada.hub.chunks) == (0, {})
    assert ada.history.refusals()[-1].code is Code.PEER_UNKNOWN


def test_a_removed_member_stops_an_upload_that_is_charged(ada):
    envelope, cohort = fresh_cohort(ada, 1)
    ada.hub.fail["receipt"] = [ConnectionLostError("hub", "cut")]
    with pytest.raises(ConnectionLostError):
        ada.upload(envelope, cohort)
    sent = sum(map(len, ada.hub.chunks.values()))
    assert ada.rosters.offer(signed(ada.world, 2, without=("cy",)))
    serve(ada, signed(ada.world, 2, without=("cy",)))
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is AttemptState.CHARGED
    assert (sum(map(len, ada.hub.chunks.values())), ada.hub.receipts) == (sent, [])


def rosters(directory, world, federation):
    key = world.federation_key.public_bytes
    return Rosters(directory, federation=federation, federation_key=key, log=Log("party.test"))


def test_a_roster_is_fetched_for_junk_at_a_pace_that_falls(ada, world, tmp_path):
    now = [0.0]
    key = world.federation_key.public_bytes
    held = Rosters(tmp_path, federation=FEDERATION, federation_key=key, log=Log("party.test"), clock=lambda: now[0])
    fetched = serve(ada, world.roster_envelope)
    stranger = world.ask(key=SigningKey.generate(FEDERATION))

    def verify(roster):
        return open_query(stranger, roster, now_unix_s=time.time())

    for _ in range(24 * 60):
        with pytest.raises(WireError, match="not signed with lea's key"):
            held.checked(ada.hub, verify)
        now[0] += 60.0
    # The pauses double up to ten minutes.
    assert 24 * 6 <= len(fetched) <= 24 * 6 + 11
    # What a learner signed under a newer roster is not junk: it is fetched at once.
    before = len(fetched)
    for _ in range(2):
        with pytest.raises(WireError, match="this node has 1"):
            held.checked(ada.hub, lambda roster: _refuse_older(roster, 2))
    assert len(fetched) == before + 2
    # A newer roster begins the pauses again.
    fetched = serve(ada, signed(world, 2))
    now[0] += 600.0
    with pytest.raises(WireError):
        held.checked(ada.hub, verify)
    with pytest.raises(WireError):
        held.checked(ada.hub, verify)
    assert (held.current.version, len(fetched)) == (2, 2)


def _refuse_older(roster, version: int) -> None:
    if roster.version < version:
        raise WireError(Code.ROSTER_STALE, f"Version {version}, but this node has {roster.version}.")


def test_the_same_roster_again_changes_nothing(world, tmp_path):
    held = rosters(tmp_path, world, world.roster.federation)
    envelope = world.roster_envelope
    assert held.offer(envelope)
    (stored,) = tmp_path.iterdir()
    noted = stored.stat()
    assert not held.offer(envelope)
    assert stored.stat() == noted
    assert held.check(envelope) == held.current


def test_another_roster_of_the_same_version_is_refused(world, tmp_path):
    held = rosters(tmp_path, world, world.roster.federation)
    assert held.offer(world.roster_envelope)
    with pytest.raises(WireError) as caught:
        held.check(signed(world, 1, without=("cy",)))
    assert caught.value.code is Code.ROSTER_STALE


def test_others_may_read_the_stored_roster_as_the_umask_allows(world, tmp_path):
    for mask in (0o022, 0o077):
        directory = tmp_path / str(mask)
        directory.mkdir()
        before = os.umask(mask)
        try:
            assert rosters(directory, world, world.roster.federation).offer(world.roster_envelope)
        finally:
            os.umask(before)
        (stored,) = directory.iterdir()
        assert stat.S_IMODE(stored.stat().st_mode) == 0o666 & ~mask


def test_the_log_says_why_a_roster_is_refused_and_when_one_expires(world, tmp_path, caplog):
    expiry_unix_s = int(time.time()) + 10**6
    with caplog.at_level("INFO"):
        assert not rosters(tmp_path, world, "others").offer(world.roster_envelope)
        envelope = signed(world, 1, ends=expiry_unix_s)
        held = rosters(tmp_path, world, world.roster.federation)
        assert held.offer(envelope)
    refused, accepted = (record for record in caplog.records if record.message.startswith("roster "))
    assert (refused.levelname, refused.fields["peer"]) == ("ERROR", "coordinator")
    assert f"The roster is for {world.roster.federation!r}." in refused.fields["reason"]
    assert accepted.fields["expires"] == held.current.expiry_date != "never"


def test_before_the_first_roster_there_is_none_to_use(world, tmp_path):
    with pytest.raises(WireError) as caught:
        _ = rosters(tmp_path, world, world.roster.federation).current
    assert caught.value.code is Code.ROSTER_STALE


def test_rosters_of_members_that_left_are_kept_and_no_others(ada, world, tmp_path, monkeypatch):
    for version, without in ((2, ()), (3, ("bo",)), (4, ("bo",)), (5, ("bo", "cy")), (6, ("cy",))):
        assert ada.rosters.offer(signed(world, version, without=without))
    again = rosters(tmp_path, world, FEDERATION)
    # Version 5 has every member of 6. Bo came back with the same key, so only Cy left.
    assert [roster.version for roster in again.former()] == [2, 4]
    rows = members_of(again.current, world.policy(), "ada", again.former())
    assert [(row.name, row.left_after, row.trust) for row in rows if row.left_after is not None] == [
        ("cy", 4, "left after version 4 of the roster")
    ]
    assert len(rows) == len(world.roster.members)
    monkeypatch.setattr("parties.members.MOST_FORMER", 1)
    assert again.offer(signed(world, 10, without=("bo", "cy")))
    assert [roster.version for roster in again.former()] == [6]


def test_a_former_roster_that_is_damaged_says_what_to_do(ada, world, tmp_path):
    assert ada.rosters.offer(signed(world, 2, without=("bo",)))
    (file,) = former_files(tmp_path)
    file.write_bytes(b"x")
    with pytest.raises(ConfigurationError, match=r"000001\.signed.*remove it: members that left"):
        ada.rosters.former()
    # It decides nothing.
    assert rosters(tmp_path, world, FEDERATION).current.version == 2


def test_a_disk_that_is_full_keeps_no_former_roster_and_stops_nothing(ada, world, tmp_path, caplog):
    (tmp_path / "former-rosters").write_bytes(b"in the way")
    with caplog.at_level("WARNING"):
        assert ada.rosters.offer(signed(world, 2, without=("bo",)))
    assert "former roster not kept" in caplog.text


def test_a_roster_of_another_federation_is_rejected(world, tmp_path):
    """One key may sign for two federations."""
    others = rosters(tmp_path, world, "others")
    assert not others.offer(world.roster_envelope)
    assert others.known is None


def test_a_command_reads_the_roster_that_the_node_stored(ada, tmp_path, caplog):
    directory = tmp_path / "other"
    directory.mkdir()
    rosters = Rosters(
        directory, federation=FEDERATION, federation_key=ada.world.federation_key.public_bytes, log=Log("party.ada")
    )
    with caplog.at_level("INFO"):
        assert rosters.offer(ada.world.roster_envelope)
    (record,) = [record for record in caplog.records if record.message == "roster accepted"]
    assert (record.fields["version"], record.fields["members"]) == (1, len(ada.world.roster.members))
    key = tmp_path / "federation.pub"
    save_public_key(key, ada.world.federation_key.public_bytes)
    config = SimpleNamespace(federation=FEDERATION, name="ada", state_directory=directory, federation_key=key)
    assert known_roster(config) == ada.world.roster
