"""A renewed certificate from the coordinator: only what the operator signed for this member and key is installed.

The coordinator's own node stands for all: it reads what was left with it, and checks it as every member does.
"""

import datetime as dt
from types import SimpleNamespace

import pytest

from coordinator.config import CoordinatorConfig
from coordinator.membership import Admissions
from dpcore.errors import ConfigurationError
from radobase.logs import Log
from radofed.joining.installing import Admission, install, renew
from radofed.joining.operator import admit, found, kept_requests, leave
from radofed.joining.requests import ReceivedRequest, make_join_request
from tests.federation.processes import rado
from wire.identity import Certificate
from wire.roster import Role

NOW = dt.datetime.now(dt.UTC)
YEAR, DAY = dt.timedelta(days=365), dt.timedelta(days=1)
# Two thirds of the first certificate's life are over.
LATER = NOW + 300 * DAY


def joined(root, name, role, *, operator, now, **more):
    """A member with a certificate from `now` on, and what the operator signed for it."""
    made = make_join_request(root / name, federation="clinics", role=role, name=name, **more)
    signed = admit(operator, [ReceivedRequest.load(made.file)], now=now)
    ((_, file),) = signed.files
    admission = Admission.load(file)
    install(root / name, admission, now=now)
    return SimpleNamespace(directory=root / name, file=file, certificate=root / name / "certificate.pem")


@pytest.fixture
def hub(tmp_path):
    """A coordinator with a certificate that is to be renewed at LATER, and its operator."""
    operator = tmp_path / "operator"
    found(operator, "clinics", NOW)
    made = joined(tmp_path, "hub", Role.COORDINATOR, operator=operator, now=NOW, address="localhost:7443")
    made.operator, made.config = operator, made.directory / "coordinator.toml"
    made.admissions = Admissions(CoordinatorConfig.load(made.config).admissions_directory, Log("hub"))
    return made


def signed_again(hub, *, now=LATER) -> bytes:
    ((_, file),) = admit(hub.operator, kept_requests(hub.operator, ["hub"]), now=now).files
    return file.read_bytes()


def test_the_operator_s_newer_certificate_is_installed_when_it_is_time(hub):
    before = hub.certificate.read_bytes()
    hub.admissions.leave("hub", signed_again(hub))
    assert not renew(hub.config, NOW).is_new
    assert hub.certificate.read_bytes() == before
    done = renew(hub.config, LATER)
    assert (done.is_new, done.is_due) == (True, False)
    assert "renewed, valid until" in done.sentence()
    assert Certificate.load(hub.certificate).not_after == done.certificate.not_after > LATER + 300 * DAY
    again = renew(hub.config, LATER, before_due=True)
    assert (again.is_new, again.certificate) == (False, done.certificate)


def test_an_older_answer_is_not_left_in_place_of_a_newer_one(hub):
    first, newer = hub.file.read_bytes(), signed_again(hub)
    hub.admissions.leave("hub", newer)
    older = hub.file.with_name("older.admission")
    older.write_bytes(first)
    with pytest.raises(ConfigurationError, match="is older than the answer for hub that waits here"):
        leave(hub.config, [older])
    assert hub.admissions.of("hub") == newer


def test_where_none_was_left_it_is_still_due(hub):
    assert renew(hub.config, LATER).is_due
    # The first one, once more, is not newer.
    hub.admissions.leave("hub", hub.file.read_bytes())
    assert renew(hub.config, LATER).is_due


def of_another_federation(hub, root):
    operator = root / "other"
    found(operator, "clinics", NOW)
    return joined(root, "hub2", Role.COORDINATOR, operator=operator, now=LATER, address="localhost:1").file.read_bytes()


def for_another_member(hub, root):
    return joined(root, "ada", Role.PARTY, operator=hub.operator, now=LATER).file.read_bytes()


def for_another_key(hub, root):
    made = make_join_request(
        root / "new", federation="clinics", role=Role.COORDINATOR, name="hub", address="localhost:7443"
    )
    ((_, file),) = admit(hub.operator, [ReceivedRequest.load(made.file)], replaced=True, now=LATER).files
    return file.read_bytes()


def of_another_authority(hub, root):
    found(root / "other", "clinics", NOW)
    for name in ("ca.key", "ca.pem"):
        (root / "other" / name).replace(hub.operator / name)
    return signed_again(hub)


def with_a_changed_byte(hub, root):
    content = bytearray(signed_again(hub))
    place = content.index(b"BEGIN CERTIFICATE") + 100
    content[place] ^= 1
    return bytes(content)


def not_yet_valid(hub, root):
    return signed_again(hub, now=LATER + DAY)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (of_another_federation, "is signed by another key"),
        (for_another_member, "belongs to rado://clinics/party/ada"),
        (for_another_key, "is not the key of"),
        (of_another_authority, "was not issued by"),
        (with_a_changed_byte, "was changed"),
        (not_yet_valid, "check the clock"),
        (lambda *_: b"x" * 100, "is no answer of an operator"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_anything_else_is_refused_and_changes_nothing(hub, tmp_path, made, says):
    content = made(hub, tmp_path)
    before = {file: file.read_bytes() for file in hub.directory.iterdir() if file.is_file()}
    hub.admissions.leave("hub", content)
    with pytest.raises(ConfigurationError, match=says):
        renew(hub.config, LATER)
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.parametrize(
    ("made", "says"), [(of_another_federation, "is of another federation"), (for_another_member, "no such member")]
)
def test_the_coordinator_s_administrator_leaves_only_what_is_of_this_federation(hub, tmp_path, made, says):
    good, bad = tmp_path / "good.admission", tmp_path / "bad.admission"
    good.write_bytes(signed_again(hub))
    bad.write_bytes(made(hub, tmp_path))
    asked = ("coordinator", "admissions", "--config", str(hub.config), str(good))
    assert says in rado(*asked, str(bad), code=4)["error"]["message"]
    assert hub.admissions.of("hub") == b""
    assert rado(*asked)["data"] == {"members": ["hub"]}
    assert hub.admissions.of("hub") == good.read_bytes()


def test_what_the_coordinator_cannot_read_is_as_if_none_was_left(hub, caplog):
    hub.admissions.leave("hub", b"")
    file = CoordinatorConfig.load(hub.config).admissions_directory / "hub.admission"
    file.write_bytes(bytes(5 << 20))
    assert hub.admissions.of("hub") == b""
    assert [record.getMessage() for record in caplog.records] == ["admission not read"]
