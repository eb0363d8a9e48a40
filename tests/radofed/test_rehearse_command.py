"""`rado party rehearse`: a table, a picture, an exit code; bad tables and names are refused with what would do."""

import json
from fractions import Fraction
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from dpcore.attacks.options import RehearsalFields
from dpcore.attacks.outcome import Promise, guessed
from parties.rehearsal import Rehearsed
from radofed.cli.entry_point import run

PARTY = """
federation = "clinics"
name = "north"
coordinator = "localhost:7000"
federation_key = "federation.pem"
signing_key = "signing.pem"
state_directory = "state"
policy = "policy.toml"
schema = "schema.toml"
data = "table.csv"
[tls]
ca = "ca.pem"
certificate = "certificate.pem"
key = "key.pem"
"""
SCHEMA = """
schema_version = 2
texts = []
name = "clinics"
bias = true
[label]
column = "ill"
positive = ["yes"]
negative = ["no"]
"""
FEATURE = '[[features]]\nname = "{0}"\ntype = "real"\nlower = 0.0\nupper = 10.0\n'
BOOLEAN = '[[features]]\nname = "smoker"\ntype = "boolean"\ntrue = ["yes"]\nfalse = ["no"]\n'
NUMBERS = ("age", "weight", "height", "pulse")


def rows(count: int) -> str:
    generator = np.random.default_rng(1)
    lines = [",".join([*NUMBERS, "smoker", "ill"])]
    for _ in range(count):
        cells = [f"{value:.3f}" for value in generator.uniform(0, 10, len(NUMBERS))]
        lines.append(",".join([*cells, *(("yes", "no")[bit] for bit in generator.integers(0, 2, 2))]))
    return "\n".join([*lines, ""])


@pytest.fixture
def party(tmp_path):
    (tmp_path / "party.toml").write_text(PARTY)
    (tmp_path / "schema.toml").write_text(SCHEMA + BOOLEAN + "".join(map(FEATURE.format, NUMBERS)))
    (tmp_path / "table.csv").write_text(rows(30))
    return tmp_path


def rehearse(party, capsys, *options):
    code = run(["party", "rehearse", "--config", str(party / "party.toml"), *options])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


QUICK = ("--rados", "60", "--guesses", "20", "--recoveries", "1", "--seed", "5")


@pytest.mark.more
def test_every_attack_is_played_on_every_design_and_drawn(party, capsys):
    picture = party / "attacks.svg"
    code, out, _ = rehearse(party, capsys, *QUICK, "--picture", str(picture), "--format", "json")
    found = json.loads(out)["data"]
    assert code == 0
    assert (found["rows"], found["of_rows"], found["alarms"]) == (30, 30, [])
    played = {(each["attack"], each["release"]) for each in found["outcomes"]}
    guesses = {name for attack, name in played if attack == "membership"}
    assert guesses == {
        *("plain", "dp-feat", "dp-feat, joint", "fixed-support", "fixed-support, noised", "gaussian"),
        *("moments", "model of moments"),
    }
    assert {name for attack, name in played if attack == "all-but-one-cell"} == guesses
    bounded = {each["release"] for each in found["outcomes"] if each["bound"] is not None}
    assert bounded == guesses - {"plain", "dp-feat", "fixed-support"}
    drawn = ET.parse(picture).getroot()
    words = "".join(drawn.itertext())
    assert "membership: advantage of a guess" in words
    assert "moments, 29 rows" in words
    # The same seed plays the same again; no file is overwritten.
    again = json.loads(rehearse(party, capsys, *QUICK, "--format", "json")[1])["data"]
    assert again["outcomes"] == found["outcomes"]
    assert rehearse(party, capsys, *QUICK, "--picture", str(picture))[0] == 4


@pytest.mark.more
def test_people_read_a_table_and_what_it_means(party, capsys):
    code, out, err = rehearse(party, capsys, *QUICK, "--attack", "membership", "--rows", "20")
    assert code == 0
    assert "20 usable rows, a random part of 30" in out
    assert "no bound" in out
    assert "0.46" in out
    assert "all-but-one-cell" not in out
    assert "membership on gaussian, 60 rados" in err


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        (rows(0), (), "no rows"),
        (rows(1), (), "1 usable row: a rehearsal compares tables"),
        (rows(30), ("--attack", "guess"), "no attack is called 'guess': choose from ica, subset-sum, all-but-one-cell"),
        (rows(30), ("--rados", "1"), "1 rados: a rehearsal takes 2"),
        (rows(30), ("--picture", "attacks.png"), ".svg"),
        (rows(5001), (), "5001 usable rows: attacks take at most 5000; play on a random part of them, --rows 5000"),
        (rows(30).replace("pulse", "heart"), (), "pulse"),
    ],
)
def test_what_cannot_be_played_is_refused_with_what_would_do(party, capsys, table, options, said):
    (party / "table.csv").write_text(table)
    code, out, err = rehearse(party, capsys, *options)
    assert (code, out) in {(1, ""), (4, "")}
    assert said in err


def test_an_attack_beyond_its_bound_is_an_alarm():
    outcome = guessed("membership", "gaussian", 100, 30, 0.99, 200, Promise(Fraction(1)))
    (alarm,) = Rehearsed(RehearsalFields(), (outcome,), 30, 30).alarms
    assert alarm.startswith("alarm: membership on gaussian, 100 rados achieves at least 0.92 and at most 0.46")


def simulate(party, capsys, *options):
    data = ("--data", str(party / "table.csv"), "--schema", str(party / "schema.toml"))
    code = run(["simulate", *data, "--parties", "3", "--seed", "1", *options])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_simulation_plays_the_attacks_on_its_smallest_party(party, capsys):
    picture = party / "simulated.svg"
    code, out, _ = simulate(
        party, capsys, "--attack", "ica", "--rados", "60", "--picture", str(picture), "--format", "json"
    )
    found = json.loads(out)["data"]
    assert code == 0
    assert found["rows"] == 10
    assert {each["attack"] for each in found["outcomes"]} == {"ica"}
    assert {each["rados"] for each in found["outcomes"]} == {60}
    assert picture.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--attack", "guess"), "no attack is called 'guess'"),
        (("--attack", "ica", "--estimator", "newton"), "leave out --estimator"),
        (("--attack", "ica", "--design", "gaussian"), "leave out --design"),
    ],
)
def test_a_simulation_of_attacks_refuses_what_has_no_meaning_there(party, capsys, options, said):
    code, _, err = simulate(party, capsys, *options)
    assert code == 4
    assert said in err
