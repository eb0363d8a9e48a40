"""A roster expires, and acceptances state which version their party has."""

from dataclasses import replace

import pytest

from rado.v1 import roster_pb2
from wire.envelopes import MessageType, SigningKey
from wire.errors import Code, WireError
from wire.roster import EXPIRY_SKEW_S, EXPIRY_WARNING_DAYS, Member, Role, Roster, open_roster
from wire.statements import Acceptance, check_roster_version

DAY_S = 86_400
ISSUED, ENDS = 1_900_000_000, 1_900_000_000 + 90 * DAY_S
ROSTER = Roster("clinics", 3, ISSUED, (Member(Role.COORDINATOR, "hub", b"", "rado://clinics/coordinator/hub"),), ENDS)


def refused(code: Code, function, *arguments) -> WireError:
    with pytest.raises(WireError) as caught:
        function(*arguments)
    assert caught.value.code is code
    return caught.value


def test_the_federation_key_signs_the_expiry():
    key = SigningKey.generate("clinics")
    signed = ROSTER.sign(key)
    assert open_roster(signed, key.public_bytes).not_after_unix_s == ENDS
    later = replace(signed, payload=replace(ROSTER, not_after_unix_s=ENDS + DAY_S).to_bytes())
    refused(Code.SIGNATURE_INVALID, open_roster, later, key.public_bytes)


def test_a_roster_expires_after_its_last_second_and_a_clock_s_difference():
    ROSTER.check_unexpired(ENDS + EXPIRY_SKEW_S)
    error = refused(Code.ROSTER_EXPIRED, ROSTER.check_unexpired, ENDS + EXPIRY_SKEW_S + 1)
    assert "Version 3 expired on 2030-06-15 17:46 UTC." in str(error)
    assert "rado provision renew-roster" in error.hint


def test_a_roster_of_version_0_1_has_the_same_bytes_and_never_expires():
    old = replace(ROSTER, not_after_unix_s=0)
    message = roster_pb2.Roster.FromString(old.to_bytes())
    message.ClearField("not_after_unix_s")
    assert message.SerializeToString(deterministic=True) == old.to_bytes()
    key = SigningKey.generate("clinics")
    opened = open_roster(key.sign(MessageType.ROSTER, old.to_bytes()), key.public_bytes)
    assert opened == old
    opened.check_unexpired(1e12)
    assert "never expires" in opened.expiry_warning(0)
    assert opened.expiry_date == "never"


def test_a_roster_that_is_read_is_the_one_that_was_written():
    ada = Member(Role.PARTY, "ada", bytes(32), "rado://clinics/party/ada", rows_at_least=7, tls_key_hash=b"t" * 32)
    assert Roster.from_bytes(replace(ROSTER, members=(*ROSTER.members, ada)).to_bytes()).members[1] == ada


def test_a_member_is_found_by_its_name_with_its_role_and_by_its_certificate():
    others = [
        Member(role, name, bytes([place]) * 32, f"rado://clinics/{role.value}/{name}")
        for place, (role, name) in enumerate(((Role.PARTY, "ada"), (Role.LEARNER, "lea")), 1)
    ]
    roster = replace(ROSTER, members=(*ROSTER.members, *others))
    for member in roster.members:
        assert roster.find(member.name, member.role) is member
        assert roster.find_certificate(member.certificate_san) is member
    assert roster.find("bo", Role.PARTY) is roster.find("ada", Role.COORDINATOR) is None
    assert roster.find_certificate("rado://clinics/party/bo") is None


@pytest.mark.parametrize("ends", [-1, 1, ISSUED, 1 << 62])
def test_an_expiry_before_the_issue_or_beyond_any_date_is_refused(ends):
    refused(Code.MESSAGE_MALFORMED, lambda: replace(ROSTER, not_after_unix_s=ends))


def test_the_warning_begins_thirty_days_before_the_end():
    begins = ENDS - EXPIRY_WARNING_DAYS * DAY_S
    assert ROSTER.expiry_warning(begins) == ""
    assert "expires in 29 days, on 2030-06-15 17:46 UTC; ask" in ROSTER.expiry_warning(begins + 1)
    assert "expires in 0 days" in ROSTER.expiry_warning(ENDS)
    assert "expired on" in ROSTER.expiry_warning(ENDS + 1)


def acceptance(version: int) -> Acceptance:
    return Acceptance(b"q" * 32, 1, "ada", 10, b"k" * 32, version)


def test_a_member_ahead_of_this_node_is_noticed_and_one_behind_is_not():
    check_roster_version(acceptance(1), 7)
    check_roster_version(acceptance(7), 7)
    error = refused(Code.ROSTER_STALE, check_roster_version, acceptance(8), 7)
    assert "ada has version 8, but this node has 7." in error.detail


def test_a_version_is_stated():
    refused(Code.MESSAGE_MALFORMED, check_roster_version, acceptance(0), 7)
