"""A coordinator that moves: what the operator signs, what members make of it, and what is refused."""

import datetime as dt
from dataclasses import replace

import pytest

from dpcore.errors import ConfigurationError
from radofed.joining.installing import install
from radofed.joining.moving import move
from radofed.joining.operator import admit, kept_requests
from radofed.provision import renew_roster, signed_roster
from tests.radofed.joining.test_joining import ADDRESS, NOW, Home
from wire.envelopes import SigningKey, load_public_key
from wire.errors import WireError
from wire.identity import Certificate
from wire.roster import MOST_ADDRESSES, coordinator_addresses
from wire.transport import answering

LATER = NOW + dt.timedelta(hours=1)
NEW, NEWEST = "elsewhere.example.org:8443", "[2001:db8::7]:7443"


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path)
    install(made.root / "hub", made.admission("hub"), now=NOW)
    return made


def roster_of(home):
    return signed_roster(home.operator / "roster.signed", load_public_key(home.operator / "federation.pub"))


def certificate_hosts(home):
    return Certificate.load(home.root / "hub" / "certificate.pem").dns_and_addresses


def test_the_certificate_names_both_hosts_and_the_roster_says_where_to_dial(home):
    moved = move(home.operator, NEW, now=LATER)
    install(home.root / "hub", home.admission("hub"), now=LATER)
    assert set(certificate_hosts(home)) >= {"rado.example.org", "elsewhere.example.org"}
    roster = roster_of(home)
    assert (roster.version, roster.coordinator_address, roster.former_addresses) == (2, NEW, (ADDRESS,))
    assert roster.members == home.first.roster.members
    assert roster.dialled(ADDRESS) == NEW
    # A member behind a proxy, or with another name for it, keeps its own.
    assert roster.dialled("proxy.internal:443") == "proxy.internal:443"
    assert moved.former == ADDRESS
    assert f'coordinator = "{NEW}"' in "\n".join(moved.sentences())


def test_later_answers_keep_the_address(home):
    move(home.operator, NEW, now=LATER)
    renew_roster(home.operator, now=LATER)
    assert roster_of(home).coordinator_address == NEW
    admit(home.operator, [home.request("south")], now=LATER)
    assert home.admission("south").coordinator_address == NEW
    assert roster_of(home).dialled(ADDRESS) == NEW
    # The next certificate of the coordinator is for the new host alone.
    admit(home.operator, kept_requests(home.operator, ["hub"]), now=LATER)
    install(home.root / "hub", home.admission("hub"), now=LATER)
    assert [*certificate_hosts(home)] == ["elsewhere.example.org"]


@pytest.mark.more
def test_it_moves_again_and_back(home):
    for address in (NEW, NEWEST, ADDRESS):
        move(home.operator, address, now=LATER)
    roster = roster_of(home)
    assert (roster.coordinator_address, roster.former_addresses) == (ADDRESS, (NEW, NEWEST))
    assert [roster.dialled(each) for each in (ADDRESS, NEW, NEWEST)] == [ADDRESS] * 3
    for number in range(MOST_ADDRESSES + 3):
        move(home.operator, f"host-{number}.example.org:7443", now=LATER)
    assert len(roster_of(home).former_addresses) == MOST_ADDRESSES - 1


@pytest.mark.parametrize(
    ("address", "match"),
    [
        (ADDRESS, "dial it there already"),
        ("elsewhere.example.org", "is not HOST:PORT"),
        ("0.0.0.0:7443", "members cannot dial"),
    ],
)
def test_an_address_that_is_none(home, address, match):
    before = home.signed
    with pytest.raises(ConfigurationError, match=match):
        move(home.operator, address, now=LATER)
    with pytest.raises(ConfigurationError, match="port 0"):
        move(home.operator, "elsewhere.example.org:0", now=LATER)
    assert home.signed == before


def test_without_the_coordinator_s_request_nothing_is_signed(home):
    (home.operator / "requests" / "hub.request").unlink()
    before = home.signed
    with pytest.raises(ConfigurationError, match="no request of hub is kept here"):
        move(home.operator, NEW, now=LATER)
    (home.operator / "roster.signed").rename(home.operator / "away")
    with pytest.raises(ConfigurationError, match="sign its request first"):
        move(home.operator, NEW, now=LATER)
    assert len(home.signed) == len(before)


def test_another_address_is_no_renewal(home):
    move(home.operator, NEW, now=LATER)
    with pytest.raises(ConfigurationError, match="rado provision move"):
        admit(home.operator, [home.request("south")], coordinator="third.example.org:7443", now=LATER)
    admit(home.operator, [home.request("west")], coordinator=NEW, now=LATER)


def test_a_roster_with_odd_addresses_is_none(home):
    many = tuple(f"host-{number}:1" for number in range(MOST_ADDRESSES))
    for former, present in (((), ADDRESS), ((ADDRESS,), ADDRESS), (("no address",), NEW), (many, NEW)):
        with pytest.raises(WireError, match="coordinator"):
            replace(roster_of(home), former_addresses=former, coordinator_address=present)


def test_a_clock_from_before_the_roster_signs_nothing(home):
    with pytest.raises(ConfigurationError, match="clock"):
        move(home.operator, NEW, now=NOW - dt.timedelta(days=1))


def test_a_member_follows_only_what_the_federation_s_key_signed(home, tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    key = home.operator / "federation.pub"
    assert coordinator_addresses(ADDRESS, state, key) == (ADDRESS,)
    move(home.operator, NEW, now=LATER)
    (state / "roster.signed").write_bytes((home.operator / "roster.signed").read_bytes())
    assert coordinator_addresses(ADDRESS, state, key) == (NEW, ADDRESS)
    assert coordinator_addresses("proxy.internal:443", state, key) == ("proxy.internal:443",)
    forged = roster_of(home).sign(SigningKey.generate("clinics"))
    (state / "roster.signed").write_bytes(forged.to_bytes())
    with pytest.raises(ConfigurationError, match="is not a roster of this federation key"):
        coordinator_addresses(ADDRESS, state, key)


def test_the_address_that_answers_is_dialled(free_listener):
    alive, dead = free_listener
    assert answering((dead, alive)) == alive
    assert answering((alive, dead)) == alive
    # None of both answers: the newer one.
    assert answering((dead, "127.0.0.1:9")) == dead


@pytest.fixture
def free_listener():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as alive, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{alive.getsockname()[1]}", f"127.0.0.1:{bound.getsockname()[1]}"
