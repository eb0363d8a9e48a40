"""Accepting a member changes one entry of the policy, after its fingerprint was compared with the roster's."""

import pytest

from dpcore.errors import ConfigurationError
from parties import members
from parties.config import PartyConfig
from parties.members import accept, accepts, find_member
from parties.policy import Policy
from radofed.cli import read_out
from radofed.cli.read_out import MOST_TRIES
from radofed.provision import provision
from tests.federation.processes import rado
from wire.envelopes import fingerprint, key_id, spoken


@pytest.fixture
def made(tmp_path):
    return provision(
        tmp_path / "f", federation="clinics", coordinator_address="localhost:1", parties=["north", "south", "west"]
    )


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """No coordinator runs here."""
    monkeypatch.setattr(members, "_TRY_S", 0.05)


@pytest.fixture
def north(made):
    """Its configuration, with a policy that accepts and pins no one."""
    member = next(m for m in made.members if m.name == "north")
    config = PartyConfig.load(member.config)
    text = config.policy.read_text()
    start, end = text.index("accepted_members = ["), text.index("# The privacy budget")
    config.policy.write_text(text[:start] + "accepted_members = [\n\n]\n\n" + text[end:].partition("[[learners]]")[0])
    (member.directory / "roster.signed").write_bytes((made.directory / "federation/roster.signed").read_bytes())
    return config


def member_of(made, name):
    return next(m for m in made.roster.members if m.name == name)


def find(config, name, digits):
    return find_member(config, config.policy.parent, name, digits)


def test_a_party_and_a_learner_are_accepted_and_nothing_else_changes(made, north):
    before, text = Policy.load(north.policy), north.policy.read_text()
    south, learner = member_of(made, "south"), member_of(made, "learner")
    for member in (south, learner):
        assert accept(north, find(north, member.name, spoken(member.signing_key))).changed
        assert not accept(north, member).changed
    after = Policy.load(north.policy)
    assert after.accepted_members == (key_id(south.signing_key).hex(),)
    assert [(one.name, one.signing_key) for one in after.learners] == [("learner", key_id(learner.signing_key).hex())]
    assert after.model_copy(update={"accepted_members": (), "learners": ()}) == before
    # Comments stay, and the new lines say whose key it is.
    assert set(text.splitlines()) <= set(north.policy.read_text().splitlines())
    assert "# south" in north.policy.read_text()


def test_spaces_between_digits_mean_nothing(made, north):
    key = member_of(made, "south").signing_key
    for digits in (spoken(key).replace(" ", ""), f" {spoken(key)} ", fingerprint(key), key_id(key).hex().upper()):
        assert find(north, "south", digits).signing_key == key


@pytest.mark.parametrize("digits", ["", "1", "0" * 30, "x"])
def test_other_digits_accept_no_one(made, north, digits):
    before = north.policy.read_text()
    with pytest.raises(ConfigurationError, match="another fingerprint than"):
        find(north, "south", digits)
    with pytest.raises(ConfigurationError, match="another fingerprint than") as caught:
        find(north, "south", spoken(member_of(made, "west").signing_key))
    assert spoken(member_of(made, "south").signing_key) not in str(caught.value)
    assert north.policy.read_text() == before


@pytest.mark.parametrize("name", ["north", "coordinator", "zoe", ""])
def test_members_that_cannot_be_accepted(north, name):
    with pytest.raises(ConfigurationError, match="it has south, west, learner"):
        find(north, name, "0")


def test_without_a_roster_it_says_where_one_comes_from(north):
    (north.policy.parent / "roster.signed").unlink()
    with pytest.raises(ConfigurationError, match="install the operator's answer"):
        find(north, "south", "0")


def test_a_roster_of_another_key_is_refused(north, tmp_path):
    other = provision(tmp_path / "g", federation="clinics", coordinator_address="localhost:1", parties=["a"])
    (north.policy.parent / "roster.signed").write_bytes((other.directory / "federation/roster.signed").read_bytes())
    with pytest.raises(ConfigurationError, match="not a roster of this federation key"):
        find(north, "a", "0")


def test_a_learner_with_a_new_key_is_not_pinned_beside_the_old_one(made, north):
    accept(north, member_of(made, "learner"))
    text = north.policy.read_text()
    north.policy.write_text(text.replace(f"{key_id(member_of(made, 'learner').signing_key).hex()[:4]}", "0000", 1))
    with pytest.raises(ConfigurationError, match="remove its table"):
        accept(north, member_of(made, "learner"))


def test_a_file_without_the_list_gets_one(made, north):
    text = north.policy.read_text()
    north.policy.write_text(text.replace("accepted_members = [\n\n]\n", ""))
    accept(north, member_of(made, "south"))
    assert len(Policy.load(north.policy).accepted_members) == 1


def test_a_file_that_is_written_otherwise_is_left_alone(made, north):
    """The list is in a text of several lines here, which only looks like it."""
    text = north.policy.read_text().replace("accepted_members = [\n\n]\n", "")
    learner = f'[[learners]]\nname = """\naccepted_members = [\n"""\nsigning_key = "{"0" * 64}"\n'
    odd = f"{text}\n{learner}"
    north.policy.write_text(odd)
    assert Policy.load(north.policy).learners
    with pytest.raises(ConfigurationError, match="by hand"):
        accept(north, member_of(made, "south"))
    assert north.policy.read_text() == odd


def test_a_list_of_learners_in_one_line_is_left_alone(made, north):
    """A table after it makes the file unreadable."""
    listed = f'learners = [{{ name = "other", signing_key = "{"0" * 64}" }}]\n{north.policy.read_text()}'
    north.policy.write_text(listed)
    assert Policy.load(north.policy).learners
    with pytest.raises(ConfigurationError, match="by hand"):
        accept(north, member_of(made, "learner"))
    assert north.policy.read_text() == listed


def test_the_file_keeps_its_mode(made, north):
    north.policy.chmod(0o640)
    accept(north, member_of(made, "south"))
    assert north.policy.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("listed", ['["{}", "{}"]', '[  # of clinics\n  "{}",\n  "{}",\n]', "[]"])
def test_a_list_on_one_line_takes_a_member_more(made, north, listed):
    """As `rado party policy` wrote it, or a person: the entries that were there stay, and the new one has its name."""
    south, west = member_of(made, "south"), member_of(made, "west")
    others = ["a" * 64, fingerprint(west.signing_key)] if "{}" in listed else []
    text = north.policy.read_text().replace("[\n\n]", listed.format(*others))
    north.policy.write_text(text)
    accept(north, find(north, "south", spoken(south.signing_key)))
    kept = [each.replace(":", "") for each in others]
    assert set(Policy.load(north.policy).accepted_members) == {*kept, key_id(south.signing_key).hex()}
    assert f'"{fingerprint(south.signing_key)}",  # south\n' in north.policy.read_text()


def test_several_are_accepted_together_or_no_one_is(made, north):
    named = {name: member_of(made, name) for name in ("south", "west", "learner")}
    config = ["--config", str(north.policy.with_name("party.toml"))]
    digits = {name: f"--fingerprint={name}={spoken(member.signing_key)}" for name, member in named.items()}
    wrong = f"--fingerprint=west={spoken(named['south'].signing_key)}"
    before = north.policy.read_bytes()
    for given, why in (
        ([digits["south"], wrong], "the roster's key of west has another fingerprint"),
        ([digits["south"]], "call the owner of west"),
        ([*digits.values(), "--fingerprint=east=1"], "write NAME=DIGITS, with one of the names"),
    ):
        assert why in rado("party", "accept", "south", "west", *config, *given, code=4)["error"]["message"]
    assert "south is named twice" in rado("party", "accept", "south", "south", *config, code=4)["error"]["message"]
    assert north.policy.read_bytes() == before
    assert rado("party", "accept", *named, *config, *digits.values())["data"]["changed"]
    policy = Policy.load(north.policy)
    assert all(accepts(policy, member) for member in named.values())
    assert not rado("party", "accept", *named, *config, *digits.values())["data"]["changed"]


def test_a_terminal_is_asked_for_the_digits_of_each_and_again_after_an_error(made, north, monkeypatch):
    asked, south, west = [], member_of(made, "south"), member_of(made, "west")
    typed = iter([spoken(west.signing_key), spoken(south.signing_key), *["1"] * MOST_TRIES])

    def prompt(words, **_):
        asked.append(words)
        return next(typed)

    monkeypatch.setattr(read_out.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(read_out.typer, "prompt", prompt)
    config = ["--config", str(north.policy.with_name("party.toml"))]
    assert rado("party", "accept", "south", *config)["data"]["changed"]
    assert asked == ["Digits that the owner of south reads out"] * 2
    assert "has another fingerprint" in rado("party", "accept", "west", *config, code=4)["error"]["message"]
    assert len(asked) == 2 + MOST_TRIES
