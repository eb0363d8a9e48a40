"""Accepting a party changes one entry of parties.toml, after its fingerprint was compared with the roster's."""

from dataclasses import replace

import pytest

from dpcore.errors import ConfigurationError
from learner import accepted_parties
from learner.accepted_parties import AcceptedParties, accept, find_party, parties_toml, selection
from learner.config import LearnerConfig
from radofed.provision import provision
from wire.envelopes import Envelope, SigningKey, fingerprint, key_id, spoken
from wire.roster import Roster

NAMES = ("north", "south", "west")


@pytest.fixture
def made(tmp_path):
    return provision(
        tmp_path / "f", federation="clinics", coordinator_address="localhost:1", parties=NAMES, learners=["lab", "uni"]
    )


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """No coordinator runs here."""
    monkeypatch.setattr(accepted_parties, "_TRY_S", 0.05)


@pytest.fixture
def lab(made):
    """Its configuration. It has accepted no party, and has the roster of the operator's answer."""
    member = next(m for m in made.members if m.name == "lab")
    (member.directory / "roster.signed").write_bytes((made.directory / "federation/roster.signed").read_bytes())
    (member.directory / "parties.toml").write_text(parties_toml({}))
    return LearnerConfig.load(member.config)


def member_of(made, name):
    return next(m for m in made.roster.members if m.name == name)


def find(config, name, digits):
    return find_party(config, config.parties.parent, name, digits)


def pinned(config):
    return {party.name: party.signing_key for party in AcceptedParties.load(config.parties).parties}


def test_provisioning_accepts_every_party_for_its_learners(made):
    """`rado provision init` is for trying out: the operator knows all keys."""
    for name in ("lab", "uni"):
        file = made.directory / "members" / name / "parties.toml"
        assert selection(file, made.roster).asked == made.roster.parties


def test_parties_are_accepted_one_after_the_other(made, lab):
    text = lab.parties.read_text()
    for name in ("west", "north"):
        party = member_of(made, name)
        found = accept(lab, find(lab, name, spoken(party.signing_key)))
        assert found.changed
        assert "the next query asks it" in found.sentences()[0]
        again = accept(lab, party)
        assert not again.changed
        assert "was accepted before" in again.sentences()[0]
    assert pinned(lab) == {name: key_id(member_of(made, name).signing_key).hex() for name in ("west", "north")}
    chosen = selection(lab.parties, made.roster)
    assert [party.name for party in chosen.asked] == ["north", "west"]
    assert chosen.not_asked == "1 of 3 parties are not asked (not accepted: south)"
    assert lab.parties.read_text().startswith(text)


@pytest.mark.parametrize("digits", ["", "1", "0" * 30, "x"])
def test_other_digits_accept_no_one(made, lab, digits):
    with pytest.raises(ConfigurationError, match="another fingerprint than"):
        find(lab, "south", digits)
    with pytest.raises(ConfigurationError, match="another fingerprint than") as caught:
        find(lab, "south", spoken(member_of(made, "west").signing_key))
    assert spoken(member_of(made, "south").signing_key) not in str(caught.value)


@pytest.mark.parametrize("name", ["lab", "uni", "coordinator", "zoe", ""])
def test_only_parties_of_the_roster_are_accepted(lab, name):
    with pytest.raises(ConfigurationError, match="it has north, south, west"):
        find(lab, name, "0")


def test_without_a_roster_it_says_where_one_comes_from(lab):
    (lab.parties.parent / "roster.signed").unlink()
    with pytest.raises(ConfigurationError, match="install the operator's answer"):
        find(lab, "south", "0")


def test_a_directory_of_an_earlier_version_has_no_such_file(made, lab):
    """Nothing is guessed: the error names the command, which makes the file."""
    lab.parties.unlink()
    text = (lab.parties.parent / "learner.toml").read_text()
    (lab.parties.parent / "learner.toml").write_text(text.replace("parties = ", "# parties = "))
    older = LearnerConfig.load(lab.parties.parent / "learner.toml")
    assert older.parties == lab.parties
    with pytest.raises(ConfigurationError, match="rado learner accept NAME") as caught:
        selection(older.parties, made.roster)
    assert str(older.parties) in str(caught.value)
    assert not older.parties.exists()
    assert accept(older, member_of(made, "south")).changed
    assert list(pinned(older)) == ["south"]


def test_a_file_that_accepts_nobody_of_the_roster_says_why(made, lab):
    with pytest.raises(ConfigurationError, match=r"not accepted: north, south, west.*rado learner accept"):
        selection(lab.parties, made.roster)
    accept(lab, replace(member_of(made, "south"), name="gone"))
    with pytest.raises(ConfigurationError, match="accepts no party of roster version 1"):
        selection(lab.parties, made.roster)


def test_a_party_with_a_new_key_is_not_asked_until_it_is_accepted_again(made, lab):
    for name in NAMES:
        accept(lab, member_of(made, name))
    comments = lab.parties.read_text().replace('name = "south"', 'name = "south"  # Tom, 2026')
    lab.parties.write_text(comments)
    renewed = replace(member_of(made, "south"), signing_key=SigningKey.generate("clinics").public_bytes)
    members = tuple(renewed if m.name == "south" else m for m in made.roster.members)
    newer = replace(made.roster, version=2, members=members)
    chosen = selection(lab.parties, newer)
    assert [party.name for party in chosen.asked] == ["north", "west"]
    assert (chosen.unaccepted, chosen.changed) == ((), ("south",))
    (warning,) = chosen.warnings
    assert "south" in warning
    assert "rado learner accept" in warning
    assert accept(lab, renewed).changed
    assert selection(lab.parties, newer).asked == newer.parties
    # The former key is out, and what people wrote stays.
    assert [party.name for party in selection(lab.parties, made.roster).asked] == ["north", "west"]
    former = fingerprint(member_of(made, "south").signing_key)
    assert lab.parties.read_text() == comments.replace(former, fingerprint(renewed.signing_key))


@pytest.mark.parametrize("same", ["name", "signing_key"])
def test_a_party_that_is_named_twice_is_refused(made, lab, same):
    for name in ("north", "south"):
        accept(lab, member_of(made, name))
    north, south = AcceptedParties.load(lab.parties).parties
    lab.parties.write_text(
        lab.parties.read_text()
        .replace(f'"{south.name}"', f'"{north.name if same == "name" else south.name}"')
        .replace(
            fingerprint(member_of(made, "south").signing_key),
            fingerprint(member_of(made, "north" if same == "signing_key" else "south").signing_key),
        )
    )
    with pytest.raises(ConfigurationError, match="two parties have the same"):
        selection(lab.parties, made.roster)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[parties]]\nname = "south"\nsigning_key = "12"\n', "64 hexadecimal digits"),
        ('[[parties]]\nname = "south"\n', "'parties.0.signing_key' is missing"),
        ('[[party]]\nname = "south"\n', "did you mean 'parties'"),
        ("parties = 1\n", "parties"),
        ("[[parties\n", "parties.toml"),
    ],
)
def test_a_file_that_cannot_be_read_asks_nobody(made, lab, text, says):
    lab.parties.write_text(text)
    with pytest.raises(ConfigurationError, match=says):
        selection(lab.parties, made.roster)
    with pytest.raises(ConfigurationError, match=says):
        accept(lab, member_of(made, "north"))
    assert lab.parties.read_text() == text


def test_a_file_that_is_written_otherwise_is_left_alone(made, lab):
    """A key over several lines is not found, so that it is not replaced beside it."""
    key = fingerprint(member_of(made, "south").signing_key)
    odd = f'[[parties]]\nname = "south"\nsigning_key = """\n{key}"""\n'
    lab.parties.write_text(odd)
    assert list(pinned(lab)) == ["south"]
    renewed = replace(member_of(made, "south"), signing_key=SigningKey.generate("clinics").public_bytes)
    with pytest.raises(ConfigurationError, match="by hand"):
        accept(lab, renewed)
    assert lab.parties.read_text() == odd


@pytest.mark.parametrize("text", ["parties = []\n", "parties = [] # none\n"])
def test_a_list_on_one_line_is_left_alone(made, lab, text):
    """No table can be added to it."""
    lab.parties.write_text(text)
    with pytest.raises(ConfigurationError, match="by hand"):
        accept(lab, member_of(made, "south"))
    assert lab.parties.read_text() == text


def test_the_file_keeps_its_mode(made, lab):
    lab.parties.chmod(0o640)
    accept(lab, member_of(made, "south"))
    assert lab.parties.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("mode", [0o666, 0o662, 0o664])
def test_a_file_that_others_may_write_asks_nobody(made, lab, mode):
    """Who can add a party to it receives the seed."""
    accept(lab, member_of(made, "south"))
    text = lab.parties.read_text()
    lab.parties.chmod(mode)
    with pytest.raises(ConfigurationError, match=r"parties\.toml"):
        selection(lab.parties, made.roster)
    with pytest.raises(ConfigurationError, match=r"parties\.toml"):
        accept(lab, member_of(made, "north"))
    assert lab.parties.read_text() == text


def test_the_roster_of_another_key_is_refused(lab, tmp_path):
    other = provision(tmp_path / "g", federation="clinics", coordinator_address="localhost:1", parties=["a"])
    content = (other.directory / "federation/roster.signed").read_bytes()
    assert Roster.from_bytes(Envelope.from_bytes(content).payload).parties
    (lab.parties.parent / "roster.signed").write_bytes(content)
    with pytest.raises(ConfigurationError, match="not a roster of this federation key"):
        find(lab, "a", "0")
