"""What an operator's list shows: every member, until when its certificate is valid, and what to renew."""

import datetime as dt
import shutil

import pytest

from dpcore.errors import ConfigurationError
from radofed.joining.operator import admit, kept_requests, listing
from radofed.provision import provision
from tests.federation.processes import free_port, rado
from tests.radofed.joining.test_joining import NOW, Home

YEAR = dt.timedelta(days=365)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def test_members_are_due_from_two_thirds_of_a_year_until_they_are_renewed(home):
    later = NOW + YEAR * 2 / 3
    assert listing(home.operator, NOW).due == []
    assert listing(home.operator, later).due == ["hub", "north", "lab"]
    admit(home.operator, kept_requests(home.operator, ["north"]), now=later)
    found = listing(home.operator, later)
    assert found.due == ["hub", "lab"]
    assert found.sentences()[-1] == "To renew now: rado provision renew OPERATOR hub lab"
    ends = {each["name"]: each["certificate_not_after"] for each in found.to_dict()["members"]}
    assert ends["hub"] == (NOW + YEAR).isoformat(timespec="seconds")
    assert ends["north"] == (later + YEAR).isoformat(timespec="seconds")


def test_the_roster_s_end_is_warned_of(home):
    assert not any("Warning" in line for line in listing(home.operator, NOW).sentences())
    (warning,) = [
        line for line in listing(home.operator, NOW + dt.timedelta(days=80)).sentences() if line.startswith("Warning")
    ]
    assert "expires in 10 days" in warning


def test_an_admission_of_another_operator_is_refused(home, tmp_path):
    other = Home(tmp_path / "other")
    place = home.operator / "admissions" / "north.admission"
    shutil.copy(other.operator / "admissions" / "north.admission", place)
    with pytest.raises(ConfigurationError, match="another operator signed it"):
        listing(home.operator, NOW)
    place.write_bytes(place.read_bytes()[:-1])
    with pytest.raises(ConfigurationError, match=r"north\.admission"):
        listing(home.operator, NOW)


def test_a_member_is_removed_and_not_listed_any_more(tmp_path):
    """Also in a directory of `rado provision init`, which has no admissions."""
    made = provision(
        tmp_path / "f", federation="clinics", coordinator_address=f"127.0.0.1:{free_port()}", parties=["ada", "bob"]
    )
    operator = str(made.directory / "federation")
    shown = rado("provision", "roster", operator)["data"]
    assert [(each["name"], each["certificate_not_after"]) for each in shown["members"]] == [
        (name, None) for name in ("coordinator", "ada", "bob", "learner")
    ]
    assert rado("provision", "remove", operator, "bob")["data"]["removed"] == ["bob"]
    after = rado("provision", "roster", operator)["data"]
    assert after["version"] == shown["version"] + 1
    assert "bob" not in [each["name"] for each in after["members"]]
    failed = rado("provision", "remove", operator, "bob", code=4)
    assert "no party or learner bob" in failed["error"]["message"]
    assert rado("provision", "roster", operator)["data"] == after
